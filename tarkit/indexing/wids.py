"""The list of shards that wids reads (webdataset before 1.0): where each is, how many samples and bytes it has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tarkit.errors import Unsupported, show
from tarkit.indexing.scan import NoIndex
from tarkit.samples.fields import stem

NAME = "shardindex.json"
"""What widsindex calls it."""

_KIND = "wids-shard-index-v1"


class Shard(NamedTuple):
    """A shard in the list; `url` is its path from the list's folder, `md5` is empty when it was not asked for."""

    url: str
    samples: int
    size: int
    md5: str = ""


def list_path(shards: Sequence[str]) -> str | None:
    """Where the list of these shards is: in their folder; None when they are in several."""
    folders = {os.path.dirname(path) for path in shards}
    return os.path.join(folders.pop(), NAME) if len(folders) == 1 else None


def url_of(shard: str, path: str) -> str:
    """How a shard is called in the list at `path`. Raises Unsupported for names that wids takes apart as URLs."""
    url = os.path.relpath(shard, os.path.dirname(path) or ".")
    if re.search(r"[#?;]|^[^/]*:", url) or not url.isprintable():
        raise Unsupported(f"{show(shard)}: wids reads this name as a URL, and so as another one")
    return url


def spell_wids(shards: Iterable[Shard]) -> bytes:
    """The list, in the order of the names."""
    shards, listed = sorted(shards), []
    for shard in shards:
        md5 = {"md5sum": shard.md5} if shard.md5 else {}
        listed.append({"url": shard.url, **md5, "nsamples": shard.samples, "filesize": shard.size})
    facts: dict[str, Any] = {"__kind__": _KIND, "wids_version": 1, "shardlist": listed}
    name = re.sub(r"[-_.]*\d*$", "", stem(shards[0].url)) if shards else ""
    if name:
        facts["name"] = name
    return json.dumps(facts, indent=2).encode() + b"\n"


def read_wids(data: bytes) -> list[Shard]:
    """The shards in a list. Raises NoIndex."""
    try:
        facts = json.loads(data)
        if not isinstance(facts["wids_version"], int):
            raise NoIndex("no version of wids")
        return [
            Shard(str(each["url"]), int(each["nsamples"]), int(each.get("filesize", -1)), str(each.get("md5sum", "")))
            for each in facts["shardlist"]
        ]
    except NoIndex:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NoIndex("no list of shards for wids") from None


def is_wids(path: str) -> bool:
    """Whether a file is such a list."""
    try:
        with open(path, "rb") as file:
            read_wids(file.read())
    except NoIndex:
        return False
    return True
