"""Messages about a plan: what was left out, and what readers of the shards may not expect."""

from __future__ import annotations

from tarkit.errors import show, spell
from tarkit.packing.plan import Plan
from tarkit.packing.transform import SampleTransform
from tarkit.packing.tree import CountedNames
from tarkit.pipeline.run import Run


def report(run: Run, plan: Plan, transform: SampleTransform) -> None:
    """Report the numbers of files and samples, and what readers of shards may not expect."""
    tree, rule, required = plan.tree, transform.rule, transform.required
    for what, count in sorted(tree.skipped.items()):
        run.tell(f"left out, {what}: {count}")
    if tree.junk.count:
        run.tell(f"left out, files of file managers: {_shown(tree.junk)}; {spell('keep_junk')} packs them")
    if rule.unmatched:
        what = f"{spell('key')}: names without a match, which are their own keys"
        run.warn(f"{what}: {rule.unmatched} of {tree.files}")
    if transform.unmatched.count:
        what = f"samples in no category, left out: {_shown(transform.unmatched)}"
        run.warn(f"{what}; {spell('unmatched')} packs them")
    if required is not None and required.lacking + required.others:
        counts = f"samples that lack a field: {required.lacking}; files of other fields: {required.others}"
        run.warn(f"{spell('require')}: {counts}")
    _report_join(run, transform)
    _report_update(run, transform)
    if transform.parted.count:
        first = show(transform.parted.first)
        what = f"readers would split {transform.parted.count} samples, {first} first: their entries have different"
        run.warn(f"{what} paths; {spell('rename', 'key')} makes each one sample")
    if transform.shared.count:
        what = f"keys that readers find in several samples, perhaps in several shards: {_shown(transform.shared)}"
        more = "" if transform.rename == "key" else f"; {spell('rename', 'key')} names entries after their sample"
        run.warn(what + more)
    if transform.keyless_out.count:
        run.warn(f"files without a key, left out since no sample goes with them: {_shown(transform.keyless_out)}")
    if plan.keyless.count:
        what = f"names without a key, with no dot or a leading one: {_shown(plan.keyless)}"
        run.warn(f"{what}; they are no samples, and go with the sample that follows")
    if (parts := plan.dotted.parts_of_names) is not None:
        fields, example = parts
        what = f"fields with a dot, each in one sample only: {fields}, as in {show(example)}"
        way = f"{spell('last_dot')} {spell('rename', 'key')}"
        run.warn(f"{what}: they are probably parts of names; {way} ends keys at the last dot")
    run.facts["files"] = tree.files
    if tree.junk.count:
        run.facts["junk"] = tree.junk.count
    if transform.map is not None:
        run.facts["unmatched"] = transform.unmatched.count
    content = f" of {tree.content} bytes" if tree.sized else ""
    run.note(f"{tree.files} files{content}, {plan.samples} samples, {len(plan.shards)} shards")


def _report_join(run: Run, transform: SampleTransform) -> None:
    if (join := transform.join) is not None:
        rows = f"samples with a row: {join.with_row}, without: {join.without_row}; rows without a sample: {join.unused}"
        run.tell(f"{join.name}: {rows}")


def _report_update(run: Run, transform: SampleTransform) -> None:
    if transform.packed is not None:
        none = "" if transform.packed else "; there are no shards of this name"
        run.tell(f"{spell('update')}: samples that are in shards already: {transform.packed_samples}{none}")
        if transform.packed and not transform.packed_samples:
            what = f"no file of the tree is in the shards; were they made with another {spell('rename')} or DIR?"
            run.warn(f"{spell('update')}: {what}")
    if transform.changed.count:
        what = f"files with another size than in the shards, which stay: {_shown(transform.changed)}"
        run.warn(f"{spell('update')}: {what}")


def _shown(names: CountedNames) -> str:
    return f"{names.count}, {show(names.first)} first"
