"""A layout of shards as text, in the shape that ishard's dry run has, and as JSON (ishard-spec 2.12)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator

from tarkit.packing.batch import File, RowBatch
from tarkit.packing.layout import PackLayout, ShardLayout
from tarkit.streams.location import ARCHIVE_SUFFIXES
from tarkit.tables.tsv import escape_tsv

_UNITS = ("KiB", "MiB", "GiB", "TiB")
_SUFFIXES = sorted((*ARCHIVE_SUFFIXES, ".zip"), key=len, reverse=True)

Samples = Iterable[tuple[bytes, list[File]]]


def _samples(batches: Iterable[RowBatch]) -> Samples:
    return (sample for batch in batches for sample in batch.samples())


def human_size(size: int) -> str:
    """Bytes in binary units: `100B`, `30.00KiB`, `1.07MiB`."""
    if size < 1024:
        return f"{size}B"
    value, unit = size / 1024, 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.2f}{_UNITS[unit]}"


def bare_name(name: str) -> str:
    """The name of a shard without its suffix."""
    suffix = next((each for each in _SUFFIXES if name.lower().endswith(each)), "")
    return name[: len(name) - len(suffix)]


def as_text(layout: PackLayout, keys: bool, content: bool) -> Iterator[bytes]:
    """Lines: a shard and its size, below it `SHARD/ENTRY` with its bytes, before a sample its [key].

    The size is that of the tar before compression, or with `content` of the contents: what the size rule limits.
    What would break a line is escaped as in our tables.
    """
    for shard, batches in layout.shards():
        size = shard.content if content else shard.tar
        yield b"%b\t%b\n" % (escape_tsv(os.fsencode(shard.name)), human_size(size).encode())
        front = escape_tsv(os.fsencode(bare_name(shard.name)))
        for key, files in _samples(batches):
            lines = [
                b"    %b/%b\t%b\n" % (front, escape_tsv(name), human_size(size).encode()) for name, size, _ in files
            ]
            if keys:
                lines.insert(0, b"  [%b]\t\n" % escape_tsv(key))
            yield b"".join(lines)


def as_json(layout: PackLayout) -> Iterator[bytes]:
    """An object a line for each shard: shard, bytes (of content), tar (its length), samples with key and entries."""
    for shard, batches in layout.shards():
        yield json.dumps(_shard(shard, _samples(batches))).encode() + b"\n"


def _shard(shard: ShardLayout, samples: Samples) -> dict[str, object]:
    return {
        "shard": shard.name,
        "bytes": shard.content,
        "tar": shard.tar,
        "samples": [
            {
                "key": os.fsdecode(key),
                "entries": [
                    {"name": os.fsdecode(name), "source": os.fsdecode(source), "size": size}
                    for name, size, source in files
                ],
            }
            for key, files in samples
        ],
    }
