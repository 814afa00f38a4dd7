r"""A plan: which file becomes which entry of which shard, and how that is written down so that people can edit it.

The file is a TSV table with the header `shard position name source size`. Tab, LF, CR and backslash in a cell are
escaped as in every table of ours (`tsv.py`), so a plan that was written is read back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from tarkit.dataset.tsv import escape_tsv

COLUMNS = ("shard", "position", "name", "source", "size")
GATHERED = 1000  # rows of a plan that are written at a time

_HEADER = "\t".join(COLUMNS).encode()
_PREFIXES = (b"file:", b"text:", b"hex:", b"base64:", b"pipe:")


class Planned(NamedTuple):
    """An entry to make. Rows of one sample have the same `position` in their shard, which counts from 0.

    `shard` is the path or URL of the shard, `source` what a recipe has: a path (`file:PATH` where it could be taken for
    something else), `text:LITERAL`, `hex:..`, `base64:..`. `size` is the content in bytes.
    """

    shard: bytes
    position: int
    name: bytes
    source: bytes
    size: int


class Target(Protocol):
    """Where a plan is written to: a sink."""

    def write(self, data: bytes) -> None:
        """Write all of `data`."""


def source_of(path: bytes) -> bytes:
    """A path as the source of a row: `file:` before what would be taken for something else."""
    return b"file:" + path if path.startswith(_PREFIXES) or b"://" in path else path


def write_plan(target: Target, plan: Iterable[Planned]) -> None:
    """Write a plan; rows are written as they come."""
    lines = [_HEADER]
    for row in plan:
        lines.append(format_row(row))
        if len(lines) >= GATHERED:
            target.write(b"\n".join(lines) + b"\n")
            lines = []
    if lines:
        target.write(b"\n".join(lines) + b"\n")


def format_row(row: Planned) -> bytes:
    """The line of a row, without its end."""
    shard, position, name, source, size = row
    line = b"%b\t%d\t%b\t%b\t%d" % (shard, position, name, source, size)
    if b"\\" in line or b"\n" in line or b"\r" in line or line.count(b"\t") != 4:
        return b"%b\t%d\t%b\t%b\t%d" % (escape_tsv(shard), position, escape_tsv(name), escape_tsv(source), size)
    return line
