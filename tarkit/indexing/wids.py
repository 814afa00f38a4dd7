"""The list of shards that wids reads (webdataset before 1.0): path, number of samples and size of each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tarkit.errors import Unsupported, show
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import NO_FACTS, InvalidIndex
from tarkit.samples.fields import stem
from tarkit.samples.sample import TarSample, key_of
from tarkit.stores.schemes import scheme_of
from tarkit.streams.source import Source
from tarkit.tar import block

NAME = "shardindex.json"
"""The file name that widsindex uses."""

_KIND = "wids-shard-index-v1"
_NAME = 100  # bytes of a name that wids reads


class IndexedShard(NamedTuple):
    """A shard in the list; `url` is its path relative to the list, `md5` is empty if not requested."""

    url: str
    samples: int
    size: int
    md5: str = ""


def url_of(shard: str, path: str) -> str:
    """Return the name of a shard in the list at `path`.

    Raises:
        Unsupported: wids would parse the name as a URL.
    """
    if scheme_of(shard) or scheme_of(path):
        url = shard.removeprefix(os.path.dirname(path) + "/")
        if scheme_of(url) or url == shard:
            raise Unsupported(f"{show(shard)}: a wids index of objects lies in their directory, or above it")
    else:
        url = os.path.relpath(shard, os.path.dirname(path) or ".")
    if re.search(r"[#?;]|^[^/]*:", url) or not url.isprintable():
        raise Unsupported(f"{show(shard)}: wids would parse this name as a URL")
    return url


def refuse_other_names(source: Source, sample: TarSample) -> None:
    """Raise Unsupported if wids, which parses headers by itself, would find other samples in a shard than tarkit."""
    for entry in sample.entries:
        if entry.type not in (block.REGULAR, block.REGULAR_V7):
            continue
        subject = f"{source.name}: cannot be in a wids index:"
        if entry.data - entry.start > block.BLOCK or len(entry.name) > _NAME:
            header = entry.data - block.BLOCK
            if source.read(header, header + _NAME).partition(b"\0")[0] != entry.name:
                words = f"wids reads the {_NAME} bytes of a name in its last header, and so not {show(entry.name)}"
                raise Unsupported(f"{subject} {words}", "tarkit cat --rekey makes short keys")
        if b"." in entry.name and key_of(entry) is None:
            words = f"wids makes a sample of {show(entry.name)}, which has no key"
            raise Unsupported(f"{subject} {words}", "tarkit check --fix leaves it out")


def repeated_name(shards: Iterable[IndexedShard]) -> tuple[str, str] | None:
    """Return the first two shards that have one base name, None without such."""
    seen: dict[str, str] = {}
    for shard in shards:
        other = seen.setdefault(shard.url.rpartition("/")[2], shard.url)
        if other != shard.url:
            return other, shard.url
    return None


def encode_wids(shards: Iterable[IndexedShard]) -> bytes:
    """Return the list as JSON, in the order of the names."""
    shards = sorted(shards)
    rows = [
        {
            "url": shard.url,
            **({"md5sum": shard.md5} if shard.md5 else {}),
            "nsamples": shard.samples,
            "filesize": shard.size,
        }
        for shard in shards
    ]
    facts: dict[str, Any] = {"__kind__": _KIND, "wids_version": 1, "shardlist": rows}
    if shards and (name := re.sub(r"[-_.]*\d*$", "", stem(shards[0].url))):
        facts["name"] = name
    return json.dumps(facts, indent=2).encode() + b"\n"


def read_wids(data: bytes) -> list[IndexedShard]:
    """Return the shards in a list. Raises InvalidIndex."""
    try:
        facts = json.loads(data)
        if not isinstance(facts["wids_version"], int):
            raise InvalidIndex("no version of wids")
        return [
            IndexedShard(
                str(row["url"]), int(row["nsamples"]), int(row.get("filesize", -1)), str(row.get("md5sum", ""))
            )
            for row in facts["shardlist"]
        ]
    except InvalidIndex:
        raise
    except NO_FACTS:
        raise InvalidIndex("not a list of shards for wids") from None


def faults(index: IndexFile, shards: Sequence[IndexedShard]) -> Iterator[str]:
    """Yield a line for each difference between a list of shards and `shards`; md5 is compared if both have it."""
    path = index.name
    try:
        rows = {shard.url: shard for shard in read_wids(index.read()[0])}
    except FileNotFoundError:
        yield f"no index {path}"
        return
    except InvalidIndex as error:
        yield f"{path}: not a wids index: {error}"
        return
    for shard in sorted(shards):
        row = rows.pop(shard.url, None)
        if row is None:
            yield f"{path}: {shard.url} is not in the index"
            continue
        for unit, listed, real in (("samples", row.samples, shard.samples), ("bytes", row.size, shard.size)):
            if listed not in (real, -1):
                yield f"{path}: {shard.url}: {listed} {unit} in the index, {real} in the shard"
        if row.md5 and shard.md5 and row.md5 != shard.md5:
            yield f"{path}: {shard.url}: the MD5 sum differs"
    for url in sorted(rows):
        if not index.beside(url).exists():
            yield f"{path}: {url} is in the index, but does not exist"
