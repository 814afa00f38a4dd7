"""Messages about a plan: what was left out, and what readers of the shards may not expect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tarkit.errors import show, spell
from tarkit.packing.planner import OddNames
from tarkit.packing.transform import SampleTransform
from tarkit.packing.tree import CountedNames, Tree


class PlanNote(NamedTuple):
    """A message about a plan, and whether it is a warning."""

    text: str
    warning: bool = True


def plan_notes(tree: Tree, transform: SampleTransform, names: OddNames) -> Iterator[PlanNote]:
    """Yield the messages about samples of `tree` after they were planned."""
    for what, count in sorted(tree.skipped.items()):
        yield PlanNote(f"left out, {what}: {count}", warning=False)
    if tree.junk.count:
        what = f"left out, files of file managers: {_shown(tree.junk)}"
        yield PlanNote(f"{what}; {spell('keep_junk')} packs them", warning=False)
    rule, required = transform.rule, transform.required
    if rule.unmatched:
        what = f"{spell('key')}: names without a match, which are their own keys"
        yield PlanNote(f"{what}: {rule.unmatched} of {tree.files}")
    if transform.unmatched.count:
        what = f"samples in no category, left out: {_shown(transform.unmatched)}"
        yield PlanNote(f"{what}; {spell('unmatched')} packs them")
    if required is not None and required.lacking + required.others:
        counts = f"samples that lack a field: {required.lacking}; files of other fields: {required.others}"
        yield PlanNote(f"{spell('require')}: {counts}")
    yield from _join_notes(transform)
    yield from _update_notes(transform)
    if transform.parted.count:
        first = show(transform.parted.first)
        what = (
            f"readers would split {transform.parted.count} samples, {first} first: their entries have different paths"
        )
        yield PlanNote(f"{what}; {spell('rename', 'key')} makes each one sample")
    if transform.shared.count:
        what = f"keys that readers find in several samples, perhaps in several shards: {_shown(transform.shared)}"
        more = "" if transform.rename == "key" else f"; {spell('rename', 'key')} names entries after their sample"
        yield PlanNote(what + more)
    if transform.keyless_out.count:
        what = "files without a key, left out since no sample goes with them"
        yield PlanNote(f"{what}: {_shown(transform.keyless_out)}")
    yield from _name_notes(names)


def _name_notes(names: OddNames) -> Iterator[PlanNote]:
    if names.keyless.count:
        what = f"names without a key, with no dot or a leading one: {_shown(names.keyless)}"
        yield PlanNote(f"{what}; they are no samples, and go with the sample that follows")
    found = names.dotted.parts_of_names
    if found is not None:
        count, example = found
        what = f"fields with a dot, each in one sample only: {count}, as in {show(example)}: they are probably parts of"
        way = f"{spell('last_dot')} {spell('rename', 'key')}"
        yield PlanNote(f"{what} names; {way} ends keys at the last dot")


def _join_notes(transform: SampleTransform) -> Iterator[PlanNote]:
    join = transform.join
    if join is None:
        return
    rows = f"samples with a row: {join.found}, without: {join.lacking}; rows without a sample: {join.unused}"
    yield PlanNote(f"{join.name}: {rows}", warning=False)


def _update_notes(transform: SampleTransform) -> Iterator[PlanNote]:
    if transform.known is not None:
        none = "" if transform.known else "; there are no shards of this name"
        what = f"{spell('update')}: samples that are in shards already"
        yield PlanNote(f"{what}: {transform.known_samples}{none}", warning=False)
        if transform.known and not transform.known_samples:
            what = f"no file of the tree is in the shards; were they made with another {spell('rename')} or DIR?"
            yield PlanNote(f"{spell('update')}: {what}")
    if transform.changed.count:
        what = f"files with another size than in the shards, which stay: {_shown(transform.changed)}"
        yield PlanNote(f"{spell('update')}: {what}")


def _shown(tally: CountedNames) -> str:
    return f"{tally.count}, {show(tally.first)} first"
