"""The index of shards of MDS: `index.json` in their directory, which its readers need."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

from tarkit.errors import TarkitError
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import parse_output
from tarkit.streams.mds_index import NAME, entry_of, index_of
from tarkit.streams.text import create_file, is_there, open_file


def index_path(shard: str) -> str:
    """Return the path or URL of the index beside a shard."""
    directory, slash, _ = parse_output(shard).text.rpartition("/")
    return f"{directory}{slash}{NAME}"


def base_name(shard: str) -> str:
    """Return the name of a shard in its directory, as the index has it."""
    return parse_output(shard).text.rpartition("/")[2]


def read_entries(index: str, storage: StoreOptions | None) -> dict[str, dict[str, Any]]:
    """Return the entries of an index by the names of their shards; none if it is not there. Raises TarkitError."""
    import json

    if not is_there(index, storage):
        return {}
    try:
        with closing(open_file(index, storage)) as file:
            return {entry["raw_data"]["basename"]: entry for entry in json.loads(file.read())["shards"]}
    except (ValueError, KeyError, TypeError) as error:
        raise TarkitError(
            f"{index}: damaged, or no index of MDS: {error!r}", "remove it, if it is not needed"
        ) from None


def read_entry(shard: str, storage: StoreOptions | None) -> dict[str, Any]:
    """Return the entry of a shard, whose header is read."""
    from tarkit.messages.mds import read_head

    with closing(open_file(shard, storage)) as file:
        offsets, config = read_head(file.read)
    return entry_of(config, base_name(shard), len(offsets) - 1, offsets[-1])


def write_index(index: str, entries: Iterable[dict[str, Any]], storage: StoreOptions | None) -> None:
    """Write the index of a directory."""
    with create_file(index, options=storage) as sink:
        sink.write(index_of(entries))
