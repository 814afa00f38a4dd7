"""The index of shards of MDS: `index.json` in their directory, which its readers need."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from tarkit.messages.mds import read_head
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import parse_output
from tarkit.streams.mds_index import NAME, index_of
from tarkit.streams.text import create_file, open_file


def index_path(shard: str) -> str:
    """Return the path or URL of the index beside a shard."""
    directory, slash, _ = parse_output(shard).text.rpartition("/")
    return f"{directory}{slash}{NAME}"


def write_indexes(shards: Iterable[str], storage: StoreOptions | None) -> None:
    """Write the index of the shards of each directory, in this order; their headers are read."""
    indexes: dict[str, list[dict[str, Any]]] = {}
    for shard in shards:
        indexes.setdefault(index_path(shard), []).append(_entry(shard, storage))
    for path, entries in indexes.items():
        with create_file(path, options=storage) as sink:
            sink.write(index_of(entries))


def _entry(shard: str, storage: StoreOptions | None) -> dict[str, Any]:
    with closing(open_file(shard, storage)) as file:
        offsets, config = read_head(file.read)
    raw = {"basename": parse_output(shard).text.rpartition("/")[2], "bytes": offsets[-1], "hashes": {}}
    return {**config, "raw_data": raw, "samples": len(offsets) - 1, "zip_data": None}
