"""Facts about a plan that was made: what was left out, and what readers of the shards may not expect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tarkit.errors import show
from tarkit.packing.samples import Keyless
from tarkit.packing.transform import SampleTransform
from tarkit.packing.tree import Tree


class PlanNote(NamedTuple):
    """A message about a plan, and whether it is a warning."""

    text: str
    warning: bool = True


def plan_notes(tree: Tree, transform: SampleTransform, keyless: Keyless) -> Iterator[PlanNote]:
    """Yield the messages about samples of `tree` after they were planned."""
    for what, count in sorted(tree.skipped.items()):
        yield PlanNote(f"left out, {what}: {count}", warning=False)
    rule, required = transform.rule, transform.required
    if rule.unmatched:
        yield PlanNote(f"--key: names without a match, which are their own keys: {rule.unmatched} of {tree.files}")
    if transform.unmatched and transform.on_unmatched == "warn":
        first = show(transform.unmatched_first)
        what = f"samples in no category, left out: {transform.unmatched}, {first} first; --unmatched packs them"
        yield PlanNote(what)
    if required is not None and required.lacking + required.others:
        counts = f"samples that lack a field: {required.lacking}; files of other fields: {required.others}"
        yield PlanNote(f"--require: {counts}")
    yield from _join_notes(transform)
    yield from _update_notes(transform)
    if transform.parted:
        first = show(transform.parted_first)
        what = f"readers would split {transform.parted} samples, {first} first: their entries have different paths"
        yield PlanNote(f"{what}; --rename key makes each one sample")
    if transform.shared:
        first = show(transform.shared_first)
        yield PlanNote(f"keys that readers find in several samples, perhaps in several shards: {transform.shared}, "
                       f"{first} first")  # fmt: skip
    if keyless.count:
        yield PlanNote(
            f"names without a key, with no dot or a leading one: {keyless.count}, {show(keyless.first)} first"
        )


def _join_notes(transform: SampleTransform) -> Iterator[PlanNote]:
    join = transform.join
    if join is None:
        return
    rows = f"samples with a row: {join.found}, without: {join.lacking}; rows without a sample: {join.unused}"
    yield PlanNote(f"{join.name}: {rows}", warning=False)
    if join.lacking and not join.found:
        what = f"column {show(join.column)} begins with {show(join.example)}, keys with {show(join.first)}"
        more = "" if transform.rule.kind == "base" else "; --key base takes names without their directories"
        yield PlanNote(f"{join.name}: no sample has a row: {what}{more}")


def _update_notes(transform: SampleTransform) -> Iterator[PlanNote]:
    if transform.known is not None:
        none = "" if transform.known else "; there are no shards of this name"
        yield PlanNote(f"--update: samples that are in shards already: {transform.known_samples}{none}", warning=False)
        if transform.known and not transform.known_samples:
            what = "no file of the tree is in the shards; were they made with another --rename or DIR?"
            yield PlanNote(f"--update: {what}")
    if transform.changed:
        first = show(transform.changed_first)
        what = f"files with another size than in the shards, which stay: {transform.changed}, {first} first"
        yield PlanNote(f"--update: {what}")
