r"""A plan: which file becomes which entry of which shard, and its form as a table that users can edit.

The file is a TSV table with the header `shard position name source size`. Tab, LF, CR and backslash in a cell are
escaped as in all tables (`tables/tsv.py`), so a plan is read as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from tarkit.errors import TarkitError, show
from tarkit.streams.sink import Sink
from tarkit.tables.recipe import MalformedRow, parse_source, without_bom, without_end
from tarkit.tables.tsv import escape_tsv, unescape_tsv

COLUMNS = ("shard", "position", "name", "source", "size")
GATHERED = 1000  # rows of a plan in one write

_HEADER = "\t".join(COLUMNS).encode()
_SAVE = "tarkit shard --plan saves one"
_PREFIXES = (b"file:", b"text:", b"hex:", b"base64:", b"pipe:")


class Planned(NamedTuple):
    """A planned entry. Rows of one sample have the same `position` in their shard, counted from 0.

    `shard` is the path or URL of the shard. `source` is as in a recipe: a path (`file:PATH` if that could be something
    else), a URL, `text:LITERAL`, `hex:..`, `base64:..`. `size` is the content in bytes; UNSIZED: that of the file when
    it is read. `line` is that of the saved plan, 0 for a plan that was not saved.
    """

    shard: bytes
    position: int
    name: bytes
    source: bytes
    size: int
    line: int = 0


def source_of(path: bytes) -> bytes:
    """Return a path as the source of a row, with the prefix `file:` if it could be something else."""
    return b"file:" + path if path.startswith(_PREFIXES) or b"://" in path else path


def write_plan(target: Sink, plan: Iterable[Planned]) -> None:
    """Write a plan."""
    lines = [_HEADER]
    for row in plan:
        lines.append(format_row(row))
        if len(lines) >= GATHERED:
            target.write(b"\n".join(lines) + b"\n")
            lines = []
    if lines:
        target.write(b"\n".join(lines) + b"\n")


def format_row(row: Planned) -> bytes:
    """Return the line of a row, without its end."""
    shard, position, name, source, size, _ = row
    line = b"%b\t%d\t%b\t%b\t%d" % (shard, position, name, source, size)
    if b"\\" in line or b"\n" in line or b"\r" in line or line.count(b"\t") != 4:
        return b"%b\t%d\t%b\t%b\t%d" % (escape_tsv(shard), position, escape_tsv(name), escape_tsv(source), size)
    return line


class SavedPlan:
    """The rows of a saved plan, read from `lines`. `line` is the number of the last line that was read.

    Blank lines are skipped. Raises TarkitError `NAME:LINE: reason` for an invalid line.
    """

    def __init__(self, lines: Iterable[bytes], name: str) -> None:
        self.name = name
        self.line = 0
        self._lines = without_bom(lines)

    def __iter__(self) -> Iterator[Planned]:
        """Yield the rows, once."""
        for line in self._lines:
            if not line:
                raise TarkitError(f"{self.name}: not a plan: it is empty", _SAVE)
            self.line += 1
            line = without_end(line)
            if self.line == 1:
                if line != _HEADER:
                    raise self.error(f"not a plan: its first line is not {', '.join(COLUMNS)} between tabs", _SAVE)
                continue
            try:
                cells = line.split(b"\t")
                if len(cells) != len(COLUMNS):
                    if not line.strip():
                        continue
                    raise MalformedRow(f"{len(cells)} cells, and a row has {len(COLUMNS)}: {', '.join(COLUMNS)}")
                if b"\\" in line:
                    cells = [unescape_tsv(cell) for cell in cells]
                shard, position, name, source, size = cells
                if not (shard and name and source) or b"\0" in line:
                    raise MalformedRow(_wrong(shard, name, source))
                place = _number(position, "position")
                yield Planned(shard, place, name, source, _number(size, "size"), self.line)
            except MalformedRow as error:
                raise self.error(str(error), error.hint) from error

    def error(self, reason: str, hint: str | None = None) -> TarkitError:
        """Return an error for the last row."""
        return TarkitError(f"{self.name}:{self.line}: {reason}", hint)


def _number(cell: bytes, what: str) -> int:
    if not cell.isdigit() or len(cell) > 18:
        raise MalformedRow(f"the {what} {show(cell)} is not a number >= 0")
    return int(cell)


def _wrong(shard: bytes, name: bytes, source: bytes) -> str:
    for what, cell in (("shard", shard), ("name", name), ("source", source)):
        if not cell:
            return f"no {what} in this row"
    return "a NUL byte: not a plan?"


def content_of(source: bytes) -> tuple[Literal["path", "data", "url"], bytes]:
    """Return the path or the URL of a source, or its literal content. Raises MalformedRow for other sources."""
    kind, value = parse_source(source, pipes_allowed=True, rewrites=False)
    if kind == "path" and value:
        return "path", value
    if kind == "data":
        return "data", value
    if kind == "url":
        return "url", value
    raise MalformedRow(f"the source {show(source)} has no known size: use a file")
