"""Verify index files against their shards: a line for each difference."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tarkit.errors import TarkitError, show
from tarkit.indexing import formats
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import make_layout, read_index
from tarkit.indexing.scan import InvalidIndex, Row, index_bytes, open_shard
from tarkit.problems import Policy
from tarkit.streams.location import Location

SHOWN = 3  # differences of one index that get a line of their own


def faults(location: Location, index: IndexFile, policy: Policy) -> Iterator[str]:
    """Yield a line for each difference between an index and its shard."""
    format, here = index.format, f"{location.name}: {index.name}"
    try:
        data, _ = index.read()
        source = open_shard(location)
        right = index_bytes(source, make_layout(format, location.text, source.size or 0), format, policy)
        listed = [] if data == right else read_index(format, data)
    except FileNotFoundError as error:
        yield f"{location.name}: no index {error.filename}" if error.filename == index.name else f"{here}: {error}"
        return
    except InvalidIndex as error:
        yield f"{here}: not a {format} index: {error}"
        return
    except TarkitError as error:
        yield str(error)
        return
    if data != right:
        yield from _first(here, list(_differences(format, _comparable(listed), _comparable(read_index(format, right)))))


def _comparable(rows: Sequence[Row]) -> list[tuple[bytes, list[tuple[bytes, int, int]]]]:
    return [(key, [(field.name, field.offset, field.size) for field in fields]) for key, fields in rows]


def _differences(
    format: str,
    listed: Sequence[tuple[bytes, list[tuple[bytes, int, int]]]],
    right: Sequence[tuple[bytes, list[tuple[bytes, int, int]]]],
) -> Iterator[str]:
    if len(listed) != len(right):
        more = format in ("energon", "webshart")  # a row that is not a sample: the end, or the size
        yield f"{len(listed) - more} samples in the index, {len(right) - more} in the shard"
    for number, (one, other) in enumerate(zip(listed, right, strict=False)):
        if one != other:
            yield (
                f"sample {number - (format == 'webshart')}: {_described(*one)} in the index, "
                f"{_described(*other)} in the shard"
            )


def _described(key: bytes, fields: Sequence[tuple[bytes, int, int]]) -> str:
    if not key:
        return ", ".join(f"{os.fsdecode(name)} {offset}".strip() for name, offset, _ in fields)
    return ", ".join(f"{show(name)} at {offset} of {size} bytes" for name, offset, size in fields[:2])


def _first(here: str, found: Sequence[str]) -> Iterator[str]:
    yield from (f"{here}: {each}" for each in found[:SHOWN])
    if len(found) > SHOWN:
        yield f"{here}: and {len(found) - SHOWN} more differences"


def wids_faults(index: IndexFile, shards: Sequence[formats.IndexedShard]) -> Iterator[str]:
    """Yield a line for each difference between a list of shards and `shards`; md5 is compared if both have it."""
    path = index.name
    try:
        data, _ = index.read()
        listed = {shard.url: shard for shard in formats.read_wids(data)}
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
