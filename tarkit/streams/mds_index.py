"""The index of a data set in MDS, `index.json`: its shards in order, with sizes and checksums of their files.

`streaming/base/format/base/writer.py` of MosaicML Streaming 0.13 writes it: a file `raw_data`, and its compressed copy
`zip_data`, of which one is enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from tarkit.bytereader import ByteReader
from tarkit.errors import Problem, TarkitError, Unsupported, show
from tarkit.sizes import plural
from tarkit.stores.names import stays_below

NAME = "index.json"


class FileSums(NamedTuple):
    """The length of a file in bytes, and its checksums by the names of their algorithms."""

    size: int
    hashes: tuple[tuple[str, str], ...]


def read_index(directory: str) -> list[tuple[str, FileSums]] | None:
    """Return the files of the shards of a directory, each with what the index says of it; None without such an index.

    Raises:
        TarkitError: the index is damaged, or a file is missing or has another length.
    """
    import json  # not loaded for most inputs

    path = os.path.join(directory, NAME)
    try:
        with open(path, "rb") as file:
            index = json.load(file)
        shards = index["shards"]
        if not all(shard["format"] == "mds" for shard in shards):
            return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        if any(name.endswith(".mds") for name in os.listdir(directory)):
            raise TarkitError(f"{path}: damaged, and there are shards of MDS beside it: {error!r}") from None
        return None  # of another program
    try:
        return [_file_of(directory, path, shard) for shard in shards]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TarkitError(f"{path}: damaged: {error!r}") from None


def _file_of(directory: str, index: str, shard: dict[str, Any]) -> tuple[str, FileSums]:
    """Return the file of a shard that is there, the one that is not compressed first."""
    for entry in filter(None, (shard["raw_data"], shard["zip_data"])):
        path = os.path.join(directory, entry["basename"])
        if not stays_below(entry["basename"]):
            raise ValueError(f"the file {entry['basename']} is outside")
        if not os.path.exists(path):
            continue
        if entry is not shard["raw_data"] and shard["compression"].partition(":")[0] not in ("zstd", "gz", "bz2"):
            message = f"{path}: tarkit does not decode {shard['compression'].partition(':')[0]}"
            raise Unsupported(message, "StreamingDataset leaves decoded shards in its directory `local`")
        size = os.stat(path).st_size
        if size != entry["bytes"]:
            raise TarkitError(
                f"{path}: it has {plural(size, 'byte')}, and {index} says {entry['bytes']}", "fetch it again"
            )
        return path, FileSums(size, tuple(sorted(entry["hashes"].items())))
    raise TarkitError(f"{os.path.join(directory, shard['raw_data']['basename'])}: missing, and is named by {index}")


class SummedReader(ByteReader):
    """The bytes of a reader, whose checksums are compared at the end, as far as Python has their algorithms.

    Raises Problem `bad-data`.
    """

    def __init__(self, reader: ByteReader, name: str, sums: FileSums) -> None:
        import hashlib

        self._reader = reader
        self._name = name
        self._sums = [
            (algorithm, value, hashlib.new(algorithm, usedforsecurity=False))
            for algorithm, value in sums.hashes
            if algorithm in hashlib.algorithms_available and not algorithm.startswith("shake")
        ]

    def readinto(self, view: Any, /) -> int:
        count = self._reader.readinto(view)
        for algorithm, value, digest in self._sums:
            digest.update(view[:count])
            if not count and digest.hexdigest() != value:
                message = f"the {algorithm} of the file is {digest.hexdigest()}, and {NAME} says {show(value)}"
                raise Problem("bad-data", self._name, None, message)
        return count

    def close(self) -> None:
        self._reader.close()


def entry_of(config: dict[str, Any], name: str, samples: int, size: int) -> dict[str, Any]:
    """Return what an index says of a shard: its columns, its name in the directory, its samples and bytes."""
    raw = {"basename": name, "bytes": size, "hashes": {}}
    return {**config, "raw_data": raw, "samples": samples, "zip_data": None}


def index_of(entries: Iterable[dict[str, Any]]) -> bytes:
    """Return an index of shards, each as its `raw_data` and its columns say."""
    import json

    return json.dumps({"version": 2, "shards": list(entries)}, sort_keys=True).encode()
