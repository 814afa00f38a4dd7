"""From a tree of files to a layout of shards: list, group, transform, sort, divide.

Errors are reported here, before any shard is written: two entries of one name, too few names of shards, missing fields.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.packing.batch import Batch, Group, batched
from tarkit.packing.divide import Dirs, by_number, collapse, directory_rank, equal, falling, level, pack, weigh
from tarkit.packing.layout import PackLayout
from tarkit.packing.samples import DottedFields, KeyRule, attach, by_key, in_directories, is_sample, ranked
from tarkit.packing.transform import SampleTransform
from tarkit.packing.tree import CountedFiles, Tree
from tarkit.shards.limits import Limits
from tarkit.sizes import parse_count
from tarkit.sorting.shuffle import random_keys
from tarkit.spill.records import SpilledList

Watch = Callable[[Iterator[Batch]], Iterator[Batch]]

_SORT = re.compile(r"(-?)key|(?:alpha|alphanumeric)(?::(inc|dec))?|shuffle(?::([0-9]{1,19}))?")


class Sort(NamedTuple):
    """An order of samples; `seed` is that of a shuffle, None for a random one."""

    by: Literal["none", "rising", "falling", "shuffle"] = "none"
    seed: int | None = None


UNSORTED = Sort()


def parse_sort(text: str | None) -> Sort:
    """Parse `key`, `-key` or `shuffle:SEED`, or ishard's `alpha:inc`, `alphanumeric:dec`. Raises Usage."""
    if text is None:
        return UNSORTED
    found = _SORT.fullmatch(text)
    seed = parse_count(found[3]) if found and found[3] else None
    if not found or (found[3] and seed is None):
        raise Usage(f"{spell('sort')} {show(text)}: not key, -key, shuffle or shuffle:SEED", "SEED is a number >= 0")
    if text.startswith("shuffle"):
        return Sort("shuffle", seed)
    return Sort("falling" if found[1] or found[2] == "dec" else "rising")


@dataclass(frozen=True)
class Cut:
    """How samples are ordered and divided: by limits, or into `shards` of equal number, and `even` of equal size."""

    limits: Limits
    dirs: Dirs = "pack"
    sort: Sort = UNSORTED
    shards: int | None = None
    even: bool = False


class OddNames(NamedTuple):
    """Names of files that readers of shards do not see as the user may expect."""

    keyless: CountedFiles
    dotted: DottedFields


def lay_out(
    tree: Tree,
    rule: KeyRule,
    transform: SampleTransform,
    cut: Cut,
    layout: PackLayout,
    tmpdir: str | None,
    watch: Watch,
) -> OddNames:
    """Fill `layout` with all samples and shards; `watch` wraps the batches that are found. Return what is odd about the
    names of files."""
    keyless, dotted = CountedFiles(), DottedFields()
    if rule.streams:
        tree.together, tree.scattered = rule.stem, rule.last_dot
        batches = in_directories(tree, keyless, rule.last_dot)
    else:
        batches = batched(by_key(tree, rule, keyless, tmpdir))
    batches = watch(batches if rule.may_have_dots else dotted.watch(batches))
    if transform.needed or cut.sort.by != "none" or cut.dirs != "pack":
        groups = (group for batch in batches for group in batch.groups())
        batches = batched(_sorted(_transformed(groups, transform, tmpdir), transform, cut, tmpdir))
    renames = transform.rename != "none"
    batches = attach(batches, lambda: renames or keyless.count > 0, transform.keyless_out)
    if cut.shards is not None:
        _divide(batches, cut, layout, tmpdir)
    elif cut.dirs == "collapse":
        collapse(batches, cut.limits, layout)
    else:
        pack(batches, cut.limits, cut.dirs, layout)
    transform.close()
    if tree.files and keyless.count == tree.files and not layout.samples:
        what = f"no file has a key, {show(keyless.first)} is the first of {tree.files}: there is no sample"
        raise TarkitError(what, "a key ends at the first dot of a file name, which is not its first character: rename")
    return OddNames(keyless, dotted)


def _transformed(groups: Iterator[Group], transform: SampleTransform, tmpdir: str | None) -> Iterator[Group]:
    groups = transform.apply(groups)
    if transform.classes is not None:
        if transform.classes.open:
            groups = iter(_stored(groups, tmpdir))
        transform.classes.close()
        groups = transform.classes.filled(groups)
    return groups


def _stored(groups: Iterable[Group], tmpdir: str | None) -> SpilledList[Group]:
    records: SpilledList[Group] = SpilledList(tmpdir)
    for group in groups:
        records.append(group)
    return records


def _sorted(groups: Iterator[Group], transform: SampleTransform, cut: Cut, tmpdir: str | None) -> Iterator[Group]:
    """Sort samples by category, directory and `cut.sort`, as far as requested."""
    sort, by_directory = cut.sort, cut.dirs != "pack"
    if sort.by == "none" and not by_directory and transform.map is None:
        return groups
    orders = sort.by != "none" or by_directory
    ranks = random_keys(sort.seed or 0) if sort.by == "shuffle" else None

    def rank(group: Group) -> bytes:
        key = group[0]
        front = group[2].to_bytes(4, "big") + (directory_rank(key) if by_directory else b"")
        if not orders:
            return front
        if not is_sample(group[1]):
            return front + b"\0"  # first
        front += b"\1"
        if ranks is not None:
            return front + next(ranks)
        return front + (falling(key) if sort.by == "falling" else key if sort.by == "rising" else b"")

    return ranked(((rank(group), group) for group in groups), tmpdir)


def _divide(batches: Iterator[Batch], cut: Cut, layout: PackLayout, tmpdir: str | None) -> None:
    """Divide samples into shards of equal numbers, and with `even` of nearly equal sizes."""
    shards = cut.shards or 1
    sizes = array("Q")
    records: SpilledList[Group] = SpilledList(tmpdir)
    for batch in batches:
        if cut.even:
            sizes.extend(weigh(batch)[1])
        records.extend(list(batch.groups()))
    total = len(records)
    if 0 < total < shards:
        raise TarkitError(f"{total} samples cannot fill {shards} shards", "choose fewer shards")
    each: Iterable[Group] = records
    if cut.even and total:
        chosen = level(sizes, shards)
        each = ranked(
            ((number.to_bytes(4, "big"), group) for number, group in zip(chosen, records, strict=True)), tmpdir
        )
    by_number(batched(each), equal(total, shards), layout)


# ---- Facts about a plan: what was left out, and what readers of the shards may not expect


class PlanNote(NamedTuple):
    """A message about a plan, and whether it is a warning."""

    text: str
    warning: bool = True


def plan_notes(tree: Tree, transform: SampleTransform, names: OddNames) -> Iterator[PlanNote]:
    """Yield the messages about samples of `tree` after they were planned."""
    for what, count in sorted(tree.skipped.items()):
        yield PlanNote(f"left out, {what}: {count}", warning=False)
    junk = tree.junk
    if junk.count:
        what = f"left out, files of file managers: {junk.count}, {show(junk.first)} first"
        yield PlanNote(f"{what}; {spell('keep_junk')} packs them", warning=False)
    rule, required = transform.rule, transform.required
    if rule.unmatched:
        what = f"{spell('key')}: names without a match, which are their own keys"
        yield PlanNote(f"{what}: {rule.unmatched} of {tree.files}")
    if transform.map is not None and transform.unmatched:
        what = f"samples in no category, left out: {transform.unmatched}, {show(transform.unmatched_first)} first"
        yield PlanNote(f"{what}; {spell('unmatched')} packs them")
    if required is not None and required.lacking + required.others:
        counts = f"samples that lack a field: {required.lacking}; files of other fields: {required.others}"
        yield PlanNote(f"{spell('require')}: {counts}")
    yield from _join_notes(transform)
    yield from _update_notes(transform)
    if transform.parted:
        first = show(transform.parted_first)
        what = f"readers would split {transform.parted} samples, {first} first: their entries have different paths"
        yield PlanNote(f"{what}; {spell('rename', 'key')} makes each one sample")
    if transform.shared:
        first = show(transform.shared_first)
        what = (
            f"keys that readers find in several samples, perhaps in several shards: {transform.shared}, {first} first"
        )
        more = "" if transform.rename == "key" else f"; {spell('rename', 'key')} names entries after their sample"
        yield PlanNote(what + more)
    out = transform.keyless_out
    if out.count:
        yield PlanNote(
            f"files without a key, left out since no sample goes with them: {out.count}, {show(out.first)} first"
        )
    yield from _name_notes(names)


def _name_notes(names: OddNames) -> Iterator[PlanNote]:
    keyless = names.keyless
    if keyless.count:
        what = f"names without a key, with no dot or a leading one: {keyless.count}, {show(keyless.first)} first"
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
    if transform.changed:
        first = show(transform.changed_first)
        what = f"files with another size than in the shards, which stay: {transform.changed}, {first} first"
        yield PlanNote(f"{spell('update')}: {what}")
