"""Divide samples into shards: by number or size, at the ends of directories or across them, or evenly.

Samples come in order, those of one category together, and with `separate` and `collapse` those of one directory too, in
the order of `directory_rank`: subdirectories first. The behaviour is that of ishard (docs/formats).
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable
from itertools import accumulate, repeat
from operator import sub
from typing import Literal

from tarkit.packing.batch import Batch, Group, batched
from tarkit.packing.layout import PackLayout
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
    """Whether a shard is full before or after another sample."""

    def __init__(self, limits: Limits) -> None:
        self.most = limits.count or 0
        self.content = limits.size if limits.rule == "content" else None
        self.tar = limits.size // RECORD * RECORD - _END if limits.size and limits.rule == "tar" else None

    def before(self, samples: int, tar: int) -> bool:
        """Return whether a shard that is not empty may not have so many samples, or bytes."""
        return bool((self.tar is not None and tar > self.tar) or (self.most and samples > self.most))

    def after(self, samples: int, content: int) -> bool:
        """Return whether a shard with this content is full."""
        return bool((self.content is not None and content >= self.content) or (self.most and samples >= self.most))


def pack(batches: Iterable[Batch], limits: Limits, dirs: Dirs, out: PackLayout) -> None:
    """Divide samples by limits; `separate` also ends a shard where the directory of the key changes."""
    if limits.count and limits.size is None and dirs != "separate":
        by_number(batches, repeat(limits.count), out)
        return
    full = _Full(limits)
    samples = content = tar = 0
    before: tuple[int, bytes] | None = None
    here: tuple[int, bytes] = (0, b"")
    for batch in batches:
        start = 0
        contents, lengths = weigh(batch, out.sized)
        for at, key in enumerate(batch.keys):
            here = (batch.category, directory_of(key) if dirs == "separate" else b"")
            if samples and (here != before or full.before(samples + 1, tar + lengths[at])):
                if at > start:
                    out.extend(batch.part(start, at))
                start = at
                out.close(before[0] if before else 0, samples, content, tar)
                samples = content = tar = 0
            before = here
            samples += 1
            content += contents[at]
            tar += lengths[at]
            if full.after(samples, content):
                out.extend(batch.part(start, at + 1))
                start = at + 1
                out.close(batch.category, samples, content, tar)
                samples = content = tar = 0
        if start < len(batch.keys):
            out.extend(batch.part(start, len(batch.keys)))
    if samples:
        out.close(here[0], samples, content, tar)


def by_number(batches: Iterable[Batch], counts: Iterable[int], out: PackLayout) -> None:
    """Divide samples into shards with the given `counts`, or fewer where a category ends; a count of 0 makes no shard.

    If `counts` are limited, all samples are of one category.
    """
    numbers = filter(None, counts)
    samples = content = tar = category = most = 0
    for batch in batches:
        if samples and batch.category != category:
            out.close(category, samples, content, tar)
            samples = content = tar = 0
        category = batch.category
        contents, lengths = weigh(batch, out.sized)
        start = 0
        while start < len(batch.keys):
            most = most if samples else next(numbers)
            stop = min(start + most - samples, len(batch.keys))
            out.extend(batch.part(start, stop))
            samples += stop - start
            content += sum(contents[start:stop])
            tar += sum(lengths[start:stop])
            start = stop
            if samples == most:
                out.close(category, samples, content, tar)
                samples = content = tar = 0
    if samples:
        out.close(category, samples, content, tar)


class _Rest:
    """The samples of a directory that do not fill a shard yet."""

    def __init__(self, path: list[bytes]) -> None:
        self.path = path
        self.groups: list[Group] = []
        self.content = self.tar = 0


def collapse(batches: Iterable[Batch], limits: Limits, out: PackLayout) -> None:
    """Divide samples by limits; the rest of a directory goes into shards of its parent, before the parent's samples.

    A rest is held in memory: less than a shard for each level of directories.
    """
    full = _Full(limits)
    stack: list[_Rest] = []
    current = 0

    def emit(rest: _Rest) -> None:
        for batch in batched(rest.groups):
            out.extend(batch)
        out.close(current, len(rest.groups), rest.content, rest.tar)
        rest.groups, rest.content, rest.tar = [], 0, 0

    def take(rest: _Rest, more: list[Group], content: int, tar: int) -> None:
        if rest.groups and full.before(len(rest.groups) + len(more), rest.tar + tar):
            emit(rest)
        rest.groups += more
        rest.content += content
        rest.tar += tar
        if rest.groups and full.after(len(rest.groups), rest.content):
            emit(rest)

    def hand_up(path: list[bytes]) -> None:
        """Close the directories that `path` is not in."""
        while stack and stack[-1].path != path[: len(stack[-1].path)]:
            done = stack.pop()
            above = done.path[:-1]
            if not stack or stack[-1].path != above:
                stack.append(_Rest(above))
            take(stack[-1], done.groups, done.content, done.tar)

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
        for group, content, tar in zip(batch.groups(), *weigh(batch, out.sized), strict=True):
            directory = directory_of(group[0])
            path = directory.split(b"/") if directory else []
            hand_up(path)
            if not stack or stack[-1].path != path:
                stack.append(_Rest(path))
            take(stack[-1], [group], content, tar)
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


def directory_of(key: bytes) -> bytes:
    """Return the virtual directory of a key, empty for the root."""
    return key[: max(key.rfind(b"/"), 0)]


def directory_rank(key: bytes) -> bytes:
    """Return a rank that orders samples by directory: subdirectories by name, then the samples of the directory."""
    directory = directory_of(key)
    parts = directory.split(b"/") if directory else []
    return b"".join([b"\x01%b\0" % part for part in parts]) + b"\x02"


_DOWN = bytes(255 - byte for byte in range(256))


def falling(key: bytes) -> bytes:
    """Return a rank that reverses the order of keys, which have no NUL byte."""
    return key.translate(_DOWN) + b"\xff"
