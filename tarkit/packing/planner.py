"""From a tree of files to a plan of shards: list, group, transform, sort, divide.

Errors are reported here, before any shard is written: two entries of one name, too few names of shards, missing fields.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator

from tarkit.errors import TarkitError, show
from tarkit.packing.batch import Batch, Group, batched
from tarkit.packing.divide import collapse, equal, level, pack, weigh
from tarkit.packing.options import ShardOptions
from tarkit.packing.order import SampleOrder, in_order
from tarkit.packing.plan import Plan
from tarkit.packing.samples import attach, by_key, in_directories, ranked
from tarkit.packing.transform import SampleTransform
from tarkit.shards.limits import Limits
from tarkit.spill.records import SpilledList

Watch = Callable[[Iterator[Batch]], Iterator[Batch]]


def fill_plan(
    plan: Plan,
    options: ShardOptions,
    shards: int | None,
    order: SampleOrder,
    transform: SampleTransform,
    watch: Watch,
) -> None:
    """Fill a plan with all samples of its tree, and divide them into shards.

    `shards` is the number of equal shards, None where limits divide; `watch` wraps the batches of the tree.
    """
    tree, tmpdir, rule, dirs, keyless = plan.tree, plan.tmpdir, options.rule, options.dirs, plan.keyless
    if rule.streams:
        tree.together, tree.scattered = rule.stem, rule.last_dot
        batches = in_directories(tree, keyless, rule.last_dot)
    else:
        batches = batched(by_key(tree, rule, keyless, tmpdir))
    batches = watch(batches if rule.may_have_dots else plan.dotted.watch(batches))
    sorts = order.by != "none" or dirs != "pack" or transform.map is not None
    if transform.needed or sorts:
        groups: Iterator[Group] = (group for batch in batches for group in batch.groups())
        groups = _transformed(groups, transform, tmpdir)
        batches = batched(in_order(groups, order, dirs != "pack", tmpdir) if sorts else groups)
    renames = transform.rename != "none"
    batches = attach(batches, lambda: renames or keyless.count > 0, transform.keyless_out)
    if shards is not None:
        _divide(batches, shards, options.even, plan)
    elif dirs == "collapse":
        collapse(batches, options.limits, plan)
    else:
        pack(batches, options.limits, dirs == "separate", plan)
    transform.close()
    if tree.files and keyless.count == tree.files and not plan.samples:
        what = f"no file has a key, {show(keyless.first)} is the first of {tree.files}: there is no sample"
        raise TarkitError(what, "a key ends at the first dot of a file name, which is not its first character: rename")


def _transformed(groups: Iterator[Group], transform: SampleTransform, tmpdir: str | None) -> Iterator[Group]:
    groups, classes = transform.apply(groups), transform.classes
    if classes is None:
        return groups
    if classes.open:
        records: SpilledList[Group] = SpilledList(tmpdir)
        for group in groups:
            records.append(group)
        groups = iter(records)
    classes.close()
    return classes.filled(groups)


def _divide(batches: Iterator[Batch], shards: int, even: bool, plan: Plan) -> None:
    """Divide samples into shards of equal numbers, and with `even` of nearly equal sizes."""
    sizes = array("Q")
    records: SpilledList[Group] = SpilledList(plan.tmpdir)
    for batch in batches:
        if even:
            sizes.extend(weigh(batch)[1])
        records.extend(list(batch.groups()))
    total = len(records)
    if 0 < total < shards:
        raise TarkitError(f"{total} samples cannot fill {shards} shards", "choose fewer shards")
    groups: Iterable[Group] = records
    if even and total:
        chosen = level(sizes, shards)
        groups = ranked(
            ((number.to_bytes(4, "big"), group) for number, group in zip(chosen, records, strict=True)), plan.tmpdir
        )
    pack(batched(groups), Limits(), False, plan, filter(None, equal(total, shards)))
