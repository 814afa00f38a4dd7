"""Verify index files against their shards: a line for each difference."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tarkit.errors import TarkitError, show
from tarkit.indexing import wids
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import make_builders, read_index
from tarkit.indexing.scan import IndexBuilder, InvalidIndex, Row, Scanned, build_indexes, open_shard
from tarkit.problems import Policy
from tarkit.streams.location import Location

SHOWN = 3  # differences of one index that get a line of their own


def faults(
    location: Location, files: Sequence[IndexFile], policy: Policy, tmpdir: str | None = None, count: bool = False
) -> tuple[list[str], Scanned | None]:
    """Compare indexes with their shard, which is read once.

    Args:
        location: the shard.
        files: its indexes.
        policy: what to do about problems of the shard.
        tmpdir: the directory of temporary files.
        count: whether the shard is read even if none of its indexes is there.

    Returns:
        A line for each difference, and what the shard has: None if it was not read, or cannot be.
    """
    found: list[str] = []
    read: list[tuple[IndexFile, bytes]] = []
    for index in files:
        try:
            read.append((index, index.read()[0]))
        except FileNotFoundError:
            found.append(f"{location.name}: no index {index.name}")
        except TarkitError as error:
            found.append(str(error))
    if not read and not count:
        return found, None
    try:
        source = open_shard(location)
        builders = make_builders(source, location.text, [file for file, _ in read], tmpdir)
        scanned = build_indexes(source, builders, policy)
    except FileNotFoundError as error:
        return [*found, f"{location.name}: {error.strerror}"], None
    except TarkitError as error:
        return [*found, str(error)], None
    for (index, data), builder in zip(read, builders, strict=True):
        found += _faults(f"{location.name}: {index.name}", index.format, data, builder)
    return found, scanned


def _faults(here: str, format: str, data: bytes, builder: IndexBuilder) -> Iterator[str]:
    """Yield a line for each difference between the bytes of an index and those that it should have."""
    try:
        right = builder.read()
        listed = [] if data == right else read_index(format, data)
    except InvalidIndex as error:
        yield f"{here}: not a {format} index: {error}"
    except TarkitError as error:
        yield str(error)
    else:
        if data != right:
            differences = list(_differences(format, listed, read_index(format, right)))
            yield from (f"{here}: {line}" for line in differences[:SHOWN])
            if len(differences) > SHOWN:
                yield f"{here}: and {len(differences) - SHOWN} more differences"


def _differences(format: str, listed: Sequence[Row], right: Sequence[Row]) -> Iterator[str]:
    if len(listed) != len(right):
        more = format in ("energon", "webshart")  # a row that is not a sample: the end, or the size
        yield f"{len(listed) - more} samples in the index, {len(right) - more} in the shard"
    for number, (one, other) in enumerate(zip(listed, right, strict=False), -(format == "webshart")):
        if _facts(one) != _facts(other):
            yield f"sample {number}: {_described(one)} in the index, {_described(other)} in the shard"


def _facts(row: Row) -> tuple[bytes, list[tuple[bytes, int, int]]]:
    return row[0], [(field.name, field.offset, field.size) for field in row[1]]


def _described(row: Row) -> str:
    key, fields = row
    if not key:
        return ", ".join(f"{os.fsdecode(field.name)} {field.offset}".strip() for field in fields)
    return ", ".join(f"{show(field.name)} at {field.offset} of {field.size} bytes" for field in fields[:2])


def wids_faults(index: IndexFile, shards: Sequence[wids.IndexedShard]) -> Iterator[str]:
    """Yield a line for each difference between a list of shards and `shards`; md5 is compared if both have it."""
    path = index.name
    try:
        data, _ = index.read()
        listed = {shard.url: shard for shard in wids.read_wids(data)}
    except FileNotFoundError:
        yield f"no index {path}"
        return
    except InvalidIndex as error:
        yield f"{path}: not a wids index: {error}"
        return
    for shard in sorted(shards):
        row = listed.pop(shard.url, None)
        if row is None:
            yield f"{path}: {shard.url} is not in the index"
            continue
        facts = (("samples", row.samples, shard.samples), ("bytes", row.size, shard.size))
        for what, one, other in facts:
            if one not in (other, -1):
                yield f"{path}: {shard.url}: {one} {what} in the index, {other} in the shard"
        if row.md5 and shard.md5 and row.md5 != shard.md5:
            yield f"{path}: {shard.url}: the MD5 sum differs"
    for url in sorted(listed):
        if not index.beside(url).exists():
            yield f"{path}: {url} is in the index, but does not exist"
