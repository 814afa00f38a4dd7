"""Sort samples, and divide them into shards: by number or size, at the ends of directories or across them, or evenly.

Samples come in order, those of one category together, and with `separate` and `collapse` those of one directory too, in
the order of `directory_rank`: subdirectories first. The behaviour is that of ishard (docs/formats).
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from operator import sub
from typing import Literal, NamedTuple

from tarkit.errors import Usage, show, spell
from tarkit.packing.grouping import is_sample, ranked
from tarkit.packing.plan import Plan
from tarkit.packing.planned import PlannedBatch, PlannedSample, batched, ends_of_runs
from tarkit.shards.limits import Limits
from tarkit.sizes import parse_count
from tarkit.sorting.shuffle import random_keys
from tarkit.tar.header import encode

_ORDER = re.compile(r"(-?)key|(?:alpha|alphanumeric)(?::(inc|dec))?|shuffle(?::([0-9]{1,19}))?")
_DOWN = bytes(255 - byte for byte in range(256))


class SampleOrder(NamedTuple):
    """An order of samples; `seed` is that of a shuffle, None for a random one."""

    by: Literal["none", "rising", "falling", "shuffle"] = "none"
    seed: int | None = None


def parse_order(text: str | None) -> SampleOrder:
    """Parse `key`, `-key` or `shuffle:SEED`, or ishard's `alpha:inc`, `alphanumeric:dec`. Raises Usage."""
    if text is None:
        return SampleOrder()
    match = _ORDER.fullmatch(text)
    seed = parse_count(match[3]) if match and match[3] else None
    if not match or (match[3] and seed is None):
        raise Usage(f"{spell('sort')} {show(text)}: not key, -key, shuffle or shuffle:SEED", "SEED is a number >= 0")
    if text.startswith("shuffle"):
        return SampleOrder("shuffle", seed)
    return SampleOrder("falling" if match[1] or match[2] == "dec" else "rising")


def ordered(
    samples: Iterator[PlannedSample], order: SampleOrder, by_directory: bool, tmpdir: str | None
) -> Iterator[PlannedSample]:
    """Sort samples by category, by directory if that is requested, and by `order`; the sort is stable."""
    orders = order.by != "none" or by_directory
    ranks = random_keys(order.seed or 0) if order.by == "shuffle" else None

    def rank(sample: PlannedSample) -> bytes:
        key, files, category = sample
        front = category.to_bytes(4, "big") + (directory_rank(key) if by_directory else b"")
        if not orders:
            return front
        if not is_sample(files):
            return front + b"\0"  # first
        front += b"\1"
        if ranks is not None:
            return front + next(ranks)
        if order.by == "falling":
            return front + key.translate(_DOWN) + b"\xff"  # keys have no NUL byte
        return front + (key if order.by == "rising" else b"")

    return ranked(((rank(sample), sample) for sample in samples), tmpdir)


def directory_of(key: bytes) -> bytes:
    """Return the virtual directory of a key, empty for the root."""
    return key[: max(key.rfind(b"/"), 0)]


def directory_rank(key: bytes) -> bytes:
    """Return a rank that orders samples by directory: subdirectories by name, then the samples of the directory."""
    directory = directory_of(key)
    parts = directory.split(b"/") if directory else []
    return b"".join([b"\x01%b\0" % part for part in parts]) + b"\x02"


# ---- Shards

Dirs = Literal["pack", "separate", "collapse"]

_PLAIN_NAME, _PLAIN_SIZE = 100, 8**11 - 1  # maxima that a header of one block always holds


def weigh(batch: PlannedBatch, sized: bool = True) -> tuple[list[int], list[int]]:
    """Return the bytes of contents, and of entries in a tar, to the end of each sample; 0 if sizes are not known."""
    if not sized:
        nothing = [0] * len(batch.keys)
        return nothing, nothing
    entries = (
        (512 if len(name) <= _PLAIN_NAME and size <= _PLAIN_SIZE else len(encode(name, size))) + (size + 511 & -512)
        for name, size in zip(batch.names, batch.sizes, strict=True)
    )
    totals = list(accumulate(batch.sizes)), list(accumulate(entries))
    contents, taken = ([total[stop - 1] for stop in batch.stops] for total in totals)
    return contents, taken


def of_each(ends: list[int]) -> Iterator[int]:
    """Return the weight of each sample."""
    return map(sub, ends, [0, *ends])


def pack(
    batches: Iterable[PlannedBatch], limits: Limits, separate: bool, plan: Plan, counts: Iterator[int] | None = None
) -> None:
    """Divide samples by limits; `separate` also ends a shard where the directory of the key changes.

    `counts` are the numbers of samples of the shards, in place of a limit of samples; all are of one category then.
    """
    before: tuple[int, bytes] | None = None
    for directory, batch in _directories(batches) if separate else ((b"", batch) for batch in batches):
        if before != (batch.category, directory):
            plan.close()
        before = batch.category, directory
        contents, entries = ([0, *ends] for ends in weigh(batch, plan.sized))
        weights = contents if limits.rule == "content" else entries
        ends, start, samples = weights[1:], 0, len(batch.keys)
        while start < samples:
            if counts is not None and not plan.open_samples:
                limits = replace(limits, count=next(counts))
            weight = plan.open_content if limits.rule == "content" else plan.open_entries
            stop = limits.end(ends, start, weights[start], plan.open_samples, weight)
            if start < stop:
                plan.extend(batch.part(start, stop), contents[stop] - contents[start], entries[stop] - entries[start])
            if stop < samples:
                plan.close()
            start = stop
    plan.close()


def _directories(batches: Iterable[PlannedBatch]) -> Iterator[tuple[bytes, PlannedBatch]]:
    """Yield the samples with their directory, those of one directory together."""
    for batch in batches:
        directories = list(map(directory_of, batch.keys))
        start = 0
        for stop in ends_of_runs(directories):
            yield directories[start], batch.part(start, stop)
            start = stop


class _Rest:
    """The samples of a directory that do not fill a shard yet."""

    def __init__(self, path: list[bytes]) -> None:
        self.path = path
        self.samples: list[PlannedSample] = []
        self.content = self.entries = 0


def collapse(batches: Iterable[PlannedBatch], limits: Limits, plan: Plan) -> None:
    """Divide samples by limits; the rest of a directory goes into shards of its parent, before the parent's samples.

    A rest is held in memory: less than a shard for each level of directories.
    """
    stack: list[_Rest] = []
    current = 0

    def emit(rest: _Rest) -> None:
        for batch in batched(rest.samples):
            plan.extend(batch)
        plan.close(rest.content, rest.entries)
        rest.samples, rest.content, rest.entries = [], 0, 0

    def take(rest: _Rest, more: list[PlannedSample], content: int, entries: int) -> None:
        if rest.samples and limits.exceeded(len(rest.samples) + len(more), rest.entries + entries):
            emit(rest)
        rest.samples += more
        rest.content += content
        rest.entries += entries
        if rest.samples and limits.reached(len(rest.samples), rest.content):
            emit(rest)

    def hand_up(path: list[bytes]) -> None:
        """Close the directories that `path` is not in."""
        while stack and stack[-1].path != path[: len(stack[-1].path)]:
            done = stack.pop()
            above = done.path[:-1]
            if not stack or stack[-1].path != above:
                stack.append(_Rest(above))
            take(stack[-1], done.samples, done.content, done.entries)

    def finish() -> None:
        if stack:
            hand_up([b"\0"])
            if stack and stack[-1].samples:
                emit(stack[-1])
            stack.clear()

    for batch in batches:
        if batch.category != current:
            finish()
            current = batch.category
        for sample, content, entries in zip(batch.samples(), *map(of_each, weigh(batch, plan.sized)), strict=True):
            directory = directory_of(sample[0])
            path = directory.split(b"/") if directory else []
            hand_up(path)
            if not stack or stack[-1].path != path:
                stack.append(_Rest(path))
            take(stack[-1], [sample], content, entries)
    finish()


def equal(total: int, shards: int) -> list[int]:
    """Return the number of samples of each shard: equal, or one more in the first shards."""
    samples, rest = divmod(total, shards)
    return [samples + (number < rest) for number in range(shards)]


def level(sizes: array[int], shards: int) -> array[int]:
    """Return the shard of each sample, so that numbers are equal and sizes nearly so (greedy, largest first).

    Each sample, by falling size in bytes, goes to the smallest shard that is not full. Memory: about 50 bytes per
    sample.
    """
    room = equal(len(sizes), shards)
    heap = [(0, number) for number in range(shards) if room[number]]
    chosen = array("L", bytes(array("L").itemsize * len(sizes)))
    for index in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        filled, number = heap[0]
        chosen[index] = number
        room[number] -= 1
        if room[number]:
            heapq.heapreplace(heap, (filled + sizes[index], number))
        else:
            heapq.heappop(heap)
    return chosen
