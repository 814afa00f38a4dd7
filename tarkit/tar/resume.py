"""Where reading can go on behind a header that cannot be trusted."""

from __future__ import annotations

from collections.abc import Callable

from tarkit.errors import Problem, TarkitError
from tarkit.tar import block as blocks
from tarkit.tar.block import BLOCK
from tarkit.tar.reader import NO_END, Source, Walk


def is_header(block: bytes) -> bool:
    """Whether a block is a header, by its checksum and what it begins with."""
    return (block[257:262] == b"ustar" or block[:1] != b"\0") and blocks.checksum_ok(block)


def find_header(
    source: Source, pos: int, passed: Callable[[int], None] | None = None, until: int = NO_END
) -> int | None:
    """The offset of the next block in [pos, until) that is a header by its checksum and magic, None if there is none.

    `passed` hears how far it has come, for who wants to let go of what lies before.
    """
    while pos < until:
        chunk = bytes(source.peek(pos, BLOCK))
        if len(chunk) < BLOCK:
            return None
        for at in range(0, min(len(chunk), until - pos) - BLOCK + 1, BLOCK):
            if is_header(chunk[at : at + BLOCK]):
                return pos + at
        pos += len(chunk) & -BLOCK
        if passed is not None:
            passed(pos)
    return None


def find_entry(source: Source, pos: int, reach: int, passed: Callable[[int], None] | None) -> int | None:
    """Where the archive goes on behind the damaged header at `pos`: at a header or at its end marker.

    The next header may be one of an archive that is the content of the damaged entry. So if the damaged header says
    where its content ends, at most `reach` bytes on, and a header or the end stands there, and what is found before is
    an archive that ends there, then that content is passed over.
    """
    stop = _stated_stop(source, pos, reach)
    if stop is None:
        return find_header(source, pos + BLOCK, passed)
    first = find_header(source, pos + BLOCK, until=stop)
    return stop if first is None or (first == pos + BLOCK and _is_archive(source, first, stop)) else first


def _stated_stop(source: Source, pos: int, reach: int) -> int | None:
    """Where the content of the header at `pos` ends by what it says, if something that can follow stands there."""
    head = bytes(source.peek(pos, BLOCK)[:BLOCK])
    try:
        size = blocks.payload_size(head[156:157], blocks.parse_number(head[124:136]))
    except ValueError:
        return None
    stop = pos + BLOCK + size + blocks.padding(size)
    if size > reach or (source.size is not None and stop > source.size):
        return None
    block = bytes(source.peek(stop, BLOCK)[:BLOCK])
    if len(block) < BLOCK:
        return None
    ends = blocks.is_zero(block) and find_header(source, stop, until=stop + blocks.RECORD) is None
    return stop if ends or is_header(block) else None


def _is_archive(source: Source, pos: int, stop: int) -> bool:
    """Whether bytes [pos, stop) are an archive: entries, and an end marker that is two blocks or fills a record."""
    walk, end = Walk(source, pos), pos
    try:
        for entry in walk.raw():
            end = entry[4]
            if end >= stop:
                return False
    except Problem as problem:
        if problem.name != "trailing-data" or walk.resume != stop:
            return False
    except TarkitError:
        return False
    return stop - end == 2 * BLOCK or (stop - pos) % blocks.RECORD == 0
