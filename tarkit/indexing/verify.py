"""Verify the index files of a shard: a line for each difference."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tarkit.errors import TarkitError, show
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import IndexRow, InvalidIndex, Layout
from tarkit.indexing.scan import Scanned, fill_indexes
from tarkit.problems import Policy
from tarkit.sizes import plural
from tarkit.streams.location import Location

SHOWN = 3  # differences of one index that get a line of their own


def faults(
    location: Location, files: Sequence[IndexFile], policy: Policy, tmpdir: str | None = None, count: bool = False
) -> tuple[list[str], Scanned | None]:
    """Compare indexes with their shard, which is read once.

    Args:
        files: its indexes.
        policy: decides about problems of the shard.
        count: whether the shard is read even if none of its indexes is there.

    Returns:
        A line for each difference, and the counts of the shard: None if it was not read, or cannot be.
    """
    lines: list[str] = []
    contents: list[bytes] = []
    present: list[IndexFile] = []
    for index in files:
        try:
            contents.append(index.read()[0])
            present.append(index)
        except FileNotFoundError:
            lines.append(f"{location.name}: no index {index.name}")
        except TarkitError as error:
            lines.append(str(error))
    if not present and not count:
        return lines, None
    try:
        layouts, scanned = fill_indexes(location, present, policy, tmpdir)
    except FileNotFoundError as error:
        return [*lines, f"{location.name}: {error.strerror}"], None
    except TarkitError as error:
        return [*lines, str(error)], None
    for data, layout in zip(contents, layouts, strict=True):
        lines += _faults(f"{location.name}: {layout.file.name}", data, layout)
    return lines, scanned


def _faults(here: str, data: bytes, layout: Layout) -> Iterator[str]:
    """Yield a line for each difference between the bytes of an index and those that it should have."""
    try:
        right = layout.read()
        rows = [] if data == right else layout.decode(data)
    except InvalidIndex as error:
        yield f"{here}: not a {layout.file.format} index: {error}"
    except TarkitError as error:
        yield str(error)
    else:
        if data != right:
            differences = list(_differences(layout.file.format, rows, layout.decode(right)))
            yield from (f"{here}: {line}" for line in differences[:SHOWN])
            if len(differences) > SHOWN:
                yield f"{here}: and {plural(len(differences) - SHOWN, 'more difference')}"


def _differences(format: str, rows: Sequence[IndexRow], right: Sequence[IndexRow]) -> Iterator[str]:
    if len(rows) != len(right):
        more = format in ("energon", "webshart")  # a row that is not a sample: the end, or the size
        yield f"{plural(len(rows) - more, 'sample')} in the index, {len(right) - more} in the shard"
    for number, (row, other) in enumerate(zip(rows, right, strict=False), -(format == "webshart")):
        if _facts(row) != _facts(other):
            yield f"sample {number}: {_described(row)} in the index, {_described(other)} in the shard"


def _facts(row: IndexRow) -> tuple[bytes, list[tuple[bytes, int, int]]]:
    return row.key, [field[:3] for field in row.fields]


def _described(row: IndexRow) -> str:
    key, fields = row
    if not key:
        return ", ".join(f"{os.fsdecode(field.name)} {field.offset}".strip() for field in fields)
    return ", ".join(f"{show(field.name)} at {field.offset} of {plural(field.size, 'byte')}" for field in fields[:2])
