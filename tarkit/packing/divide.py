"""Divide samples into shards: by number or size, at the ends of directories or across them, or evenly.

Samples come in order, those of one category together, and with `separate` and `collapse` those of one directory too, in
the order of `directory_rank`: subdirectories first. The behaviour is that of ishard (docs/formats).
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import sub
from typing import Literal

from tarkit.packing.batch import Batch, Group, batched, ends_of_runs
from tarkit.packing.order import directory_of
from tarkit.packing.plan import Plan
from tarkit.shards.limits import Limits
from tarkit.tar.block import BLOCK, RECORD
from tarkit.tar.header import encode

Dirs = Literal["pack", "separate", "collapse"]

_END = 2 * BLOCK
_PLAIN_NAME, _PLAIN_SIZE = 100, 8**11 - 1  # maxima that a header of one block always holds


def weigh(batch: Batch, sized: bool = True) -> tuple[list[int], list[int]]:
    """Return for each sample the bytes of its content and of its entries in a tar; 0 if sizes are not known."""
    if not sized:
        nothing = [0] * len(batch.keys)
        return nothing, nothing
    taken = [
        (512 if len(name) <= _PLAIN_NAME and size <= _PLAIN_SIZE else len(encode(name, size))) + (size + 511 & -512)
        for name, size in zip(batch.names, batch.sizes, strict=True)
    ]
    return _sums(batch.sizes, batch.stops), _sums(taken, batch.stops)


def _sums(numbers: list[int], stops: list[int]) -> list[int]:
    totals = [0, *accumulate(numbers)]
    ends = [totals[stop] for stop in stops]
    return list(map(sub, ends, [0, *ends]))


class _Full:
    """Where a shard ends."""

    def __init__(self, limits: Limits) -> None:
        self.count = limits.count
        self.content = limits.size if limits.rule == "content" else None
        self.entries = limits.size // RECORD * RECORD - _END if limits.size and limits.rule == "tar" else None

    def before(self, samples: int, entries: int) -> bool:
        """Return whether a shard that is not empty may not have so many samples, or bytes of entries."""
        return bool((self.entries is not None and entries > self.entries) or (self.count and samples > self.count))

    def after(self, samples: int, content: int) -> bool:
        """Return whether a shard with this content is full."""
        return bool((self.content is not None and content >= self.content) or (self.count and samples >= self.count))

    def end(self, plan: Plan, start: int, contents: list[int], entries: list[int]) -> int:
        """Return up to which sample, from `start` on, the current shard takes them; an empty one takes at least one.

        `contents` and `entries` are the bytes of all samples before each, and of all samples.
        """
        stop = len(contents) - 1
        if self.count is not None:
            stop = min(stop, start + self.count - plan.open_samples)
        if self.content is not None:
            stop = min(stop, bisect_left(contents, self.content - plan.open_content + contents[start], start + 1))
        if self.entries is not None:
            fit = bisect_right(entries, self.entries - plan.open_entries + entries[start], start) - 1
            stop = min(stop, max(fit, start if plan.open_samples else start + 1))
        return stop


def pack(
    batches: Iterable[Batch], limits: Limits, separate: bool, plan: Plan, counts: Iterator[int] | None = None
) -> None:
    """Divide samples by limits; `separate` also ends a shard where the directory of the key changes.

    `counts` are the numbers of samples of the shards, in place of a limit of samples; all are of one category then.
    """
    full = _Full(limits)
    before: tuple[int, bytes] | None = None
    for directory, batch in _directories(batches) if separate else ((b"", batch) for batch in batches):
        if before != (batch.category, directory):
            plan.close()
        before = batch.category, directory
        contents, entries = ([0, *accumulate(weights)] for weights in weigh(batch, plan.sized))
        start, samples = 0, len(batch.keys)
        while start < samples:
            if counts is not None and not plan.open_samples:
                full.count = next(counts)
            stop = full.end(plan, start, contents, entries)
            if start < stop:
                plan.extend(batch.part(start, stop), contents[stop] - contents[start], entries[stop] - entries[start])
            if stop < samples or full.after(plan.open_samples, plan.open_content):
                plan.close()
            start = stop
    plan.close()


def _directories(batches: Iterable[Batch]) -> Iterator[tuple[bytes, Batch]]:
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
        self.groups: list[Group] = []
        self.content = self.entries = 0


def collapse(batches: Iterable[Batch], limits: Limits, plan: Plan) -> None:
    """Divide samples by limits; the rest of a directory goes into shards of its parent, before the parent's samples.

    A rest is held in memory: less than a shard for each level of directories.
    """
    full = _Full(limits)
    stack: list[_Rest] = []
    current = 0

    def emit(rest: _Rest) -> None:
        for batch in batched(rest.groups):
            plan.extend(batch)
        plan.close(rest.content, rest.entries)
        rest.groups, rest.content, rest.entries = [], 0, 0

    def take(rest: _Rest, more: list[Group], content: int, entries: int) -> None:
        if rest.groups and full.before(len(rest.groups) + len(more), rest.entries + entries):
            emit(rest)
        rest.groups += more
        rest.content += content
        rest.entries += entries
        if rest.groups and full.after(len(rest.groups), rest.content):
            emit(rest)

    def hand_up(path: list[bytes]) -> None:
        """Close the directories that `path` is not in."""
        while stack and stack[-1].path != path[: len(stack[-1].path)]:
            done = stack.pop()
            above = done.path[:-1]
            if not stack or stack[-1].path != above:
                stack.append(_Rest(above))
            take(stack[-1], done.groups, done.content, done.entries)

    def finish() -> None:
        if stack:
            hand_up([b"\0"])
            if stack and stack[-1].groups:
                emit(stack[-1])
            stack.clear()

    for batch in batches:
        if batch.category != current:
            finish()
            current = batch.category
        for group, content, entries in zip(batch.groups(), *weigh(batch, plan.sized), strict=True):
            directory = directory_of(group[0])
            path = directory.split(b"/") if directory else []
            hand_up(path)
            if not stack or stack[-1].path != path:
                stack.append(_Rest(path))
            take(stack[-1], [group], content, entries)
    finish()


def equal(total: int, shards: int) -> list[int]:
    """Return the number of samples of each shard: equal, or one more in the first shards."""
    each, rest = divmod(total, shards)
    return [each + (number < rest) for number in range(shards)]


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
