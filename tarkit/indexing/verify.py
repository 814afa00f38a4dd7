"""Verify index files against their shards: a line for each fault."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tarkit.errors import TarkitError, show
from tarkit.indexing import formats
from tarkit.indexing.formats import make_layout, read_index
from tarkit.indexing.scan import NoIndex, Row, open_shard, spelled
from tarkit.problems import Policy
from tarkit.streams.location import Location

SHOWN = 3  # faults of one index that get a line of their own


def faults(location: Location, format: str, path: str, policy: Policy) -> Iterator[str]:
    """What is wrong with one index of a shard."""
    here = f"{location.name}: {path}"
    try:
        with open(path, "rb") as file:
            data = file.read()
        source = open_shard(location)
        right = spelled(source, make_layout(format, location.text, source.size or 0), format, policy)
        listed = [] if data == right else read_index(format, data)
    except FileNotFoundError as error:
        yield f"{location.name}: there is no index {error.filename}" if error.filename == path else f"{here}: {error}"
        return
    except NoIndex as error:
        yield f"{here}: it is no {format} index: {error}"
        return
    except TarkitError as error:
        yield str(error)
        return
    if data != right:
        yield from _first(here, list(_differences(format, _alike(listed), _alike(read_index(format, right)))))


def _alike(rows: Sequence[Row]) -> list[tuple[bytes, list[tuple[bytes, int, int]]]]:
    return [(key, [(field.name, field.offset, field.size) for field in fields]) for key, fields in rows]


def _differences(
    format: str,
    said: Sequence[tuple[bytes, list[tuple[bytes, int, int]]]],
    right: Sequence[tuple[bytes, list[tuple[bytes, int, int]]]],
) -> Iterator[str]:
    if len(said) != len(right):
        more = format in ("energon", "webshart")  # a row that is no sample: the end, or the size
        yield f"it lists {len(said) - more} samples, and the shard has {len(right) - more}"
    for number, (one, other) in enumerate(zip(said, right, strict=False)):
        if one != other:
            yield f"sample {number - (format == 'webshart')}: it has {_told(*one)}, and the shard {_told(*other)}"


def _told(key: bytes, fields: Sequence[tuple[bytes, int, int]]) -> str:
    if not key:
        return ", ".join(f"{os.fsdecode(name)} {offset}".strip() for name, offset, _ in fields)
    return ", ".join(f"{show(name)} at {offset} of {size} bytes" for name, offset, size in fields[:2])


def _first(here: str, found: Sequence[str]) -> Iterator[str]:
    yield from (f"{here}: {each}" for each in found[:SHOWN])
    if len(found) > SHOWN:
        yield f"{here}: and {len(found) - SHOWN} more such samples"


def wids_faults(path: str, shards: Sequence[formats.IndexedShard]) -> Iterator[str]:
    """What is wrong with a list of shards, where `shards` is what it should say; md5 only where both have it."""
    try:
        with open(path, "rb") as file:
            listed = {shard.url: shard for shard in formats.read_wids(file.read())}
    except FileNotFoundError:
        yield f"there is no index {path}"
        return
    except NoIndex as error:
        yield f"{path}: it is no wids index: {error}"
        return
    for shard in sorted(shards):
        said = listed.pop(shard.url, None)
        if said is None:
            yield f"{path}: {shard.url} is not in it"
            continue
        facts = (("samples", said.samples, shard.samples), ("bytes", said.size, shard.size))
        for what, one, other in facts:
            if one not in (other, -1):
                yield f"{path}: {shard.url} has {one} {what} in it, and {other} in truth"
        if said.md5 and shard.md5 and said.md5 != shard.md5:
            yield f"{path}: {shard.url} has another MD5 sum"
    for url in sorted(listed):
        if not os.path.exists(os.path.join(os.path.dirname(path), url)):
            yield f"{path}: {url} is in it, and there is no such shard"
