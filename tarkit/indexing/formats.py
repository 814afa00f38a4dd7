"""The layouts of index files, each as its own tool reads it.

`dali`: text, `v1.2 SAMPLES`, then for each sample `FIELD OFFSET SIZE NAME` again and again (NVIDIA DALI, wds2idx).
`energon`: u64 in native order, where each sample's first header is, then where the archive ends (Megatron-Energon).
`webshart`: JSON, `path`, `filesize`, and under `files` for each name its `offset` and `length` (webshart).
`tsv`: ours, a row for each field: `__key__ field offset size entry`, cells escaped as in `tarkit tsv`; `entry` is where
the entry's first header is, `offset` where the content is. `parquet` has the same columns: `parquet.py`. The list
of shards that wids reads is in `wids.py`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from tarkit.errors import show
from tarkit.indexing.scan import COLUMNS, Layout, Listed, NoIndex, Row, grouped, key_in
from tarkit.tables.recipe import Malformed
from tarkit.tables.tsv import escape_tsv, unescape_tsv

_BLANK = re.compile(rb"[\x00\t\n\v\f\r ]")
_DALI = re.compile(rb"v1\.[0-2] (\d+)\n")
_META = re.compile(rb"__[^/]*__($|/)")  # what Energon and webdataset pass over


class Dali:
    """Text for DALI; its reader takes words between blanks."""

    def sample(self, key: bytes, fields: Sequence[Listed]) -> bytes:
        """A line."""
        cut = len(key) + 1
        words = []
        for name, offset, size, _ in fields:
            if len(name) == cut:
                raise ValueError(f"{show(name)} has an empty field, which DALI cannot read")
            if _BLANK.search(name):
                raise ValueError(f"{show(name)} has a blank in it, which DALI cannot read")
            words.append(b"%b %d %d %b" % (name[cut:], offset, size, name))
        return b" ".join(words) + b"\n"

    def head(self, samples: int) -> bytes:
        """The line that says how many follow."""
        if not samples:
            raise ValueError("there is no sample, and DALI refuses an index without one")
        return b"v1.2 %d\n" % samples

    def tail(self, end: int | None) -> bytes:
        """Nothing."""
        return b""


class Energon:
    """Offsets for Megatron-Energon, which passes over entries in a folder such as `__meta__`."""

    def sample(self, key: bytes, fields: Sequence[Listed]) -> bytes:
        """The offset of its first header."""
        start = next((field.start for field in fields if not _META.match(field.name)), None)
        return b"" if start is None else start.to_bytes(8, sys.byteorder)

    def head(self, samples: int) -> bytes:
        """Nothing."""
        return b""

    def tail(self, end: int | None) -> bytes:
        """Where the last sample ends."""
        if end is None:
            raise ValueError("samples are taken to lie one behind the other, and the archive was not read whole")
        return end.to_bytes(8, sys.byteorder)


class Webshart:
    """JSON for webshart."""

    def __init__(self, shard: str, size: int) -> None:
        self._shard = os.path.basename(shard)
        self._size = size
        self._more = ""

    def sample(self, key: bytes, fields: Sequence[Listed]) -> bytes:
        """A line for each of its fields."""
        lines = []
        for name, offset, size, _ in fields:
            text = json.dumps(_text(name), ensure_ascii=False)
            lines.append(f'{self._more}\n{text}: {{"offset": {offset}, "length": {size}}}')
            self._more = ","
        return "".join(lines).encode()

    def head(self, samples: int) -> bytes:
        """What is said of the shard."""
        path = json.dumps(_text(os.fsencode(self._shard)), ensure_ascii=False)
        return f'{{"path": {path}, "filesize": {self._size}, "includes_image_geometry": false, "files": {{'.encode()

    def tail(self, end: int | None) -> bytes:
        """What closes it."""
        return b"\n}}\n"


class Tsv:
    """Our table, as text."""

    def sample(self, key: bytes, fields: Sequence[Listed]) -> bytes:
        """A line for each of its fields."""
        cut, cell = len(key) + 1, escape_tsv(key)
        return b"".join(
            b"%b\t%b\t%d\t%d\t%d\n" % (cell, escape_tsv(name[cut:]), offset, size, start)
            for name, offset, size, start in fields
        )

    def head(self, samples: int) -> bytes:
        """The names of the columns."""
        return b"\t".join(COLUMNS) + b"\n"

    def tail(self, end: int | None) -> bytes:
        """Nothing."""
        return b""


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the name {show(name)} is no UTF-8") from None


# ---- reading


class DaliLines(Sequence[Row]):
    """The samples of a DALI index of version 1.2, each parsed when it is looked at. Raises NoIndex."""

    def __init__(self, data: bytes) -> None:
        found = _DALI.match(data)
        if not found or not data.startswith(b"v1.2"):
            raise NoIndex("no DALI index of version 1.2")
        self._data = data
        self._lines = data[found.end() :].splitlines()
        if len(self._lines) != int(found[1]):
            raise NoIndex(f"it says {int(found[1])} samples and has {len(self._lines)}")

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, place: Any) -> Any:
        words = self._lines[place].split()
        try:
            if not words or len(words) % 4:
                raise ValueError
            fields = [
                Listed(name, int(offset), int(size), -1)
                for offset, size, name in zip(words[1::4], words[2::4], words[3::4], strict=True)
            ]
        except ValueError:
            raise NoIndex(f"line {place + 2} is not of the form FIELD OFFSET SIZE NAME") from None
        return key_in(fields[0].name), fields

    def places(self, key: bytes) -> list[int]:
        """Where the samples of this key are."""
        places: list[int] = []
        name, place, pos = b" %b." % key, -1, 0
        while (found := self._data.find(name, pos)) >= 0:
            place += self._data.count(b"\n", pos, found)
            if self[place][0] == key:
                places.append(place)
            pos = self._data.find(b"\n", found)  # the rest of the line is about the same sample
            if pos < 0:
                break
        return places


def read_dali(data: bytes) -> list[Row]:
    """The samples of a DALI index of version 1.2. Raises NoIndex."""
    return list(DaliLines(data))


def read_energon(data: bytes) -> list[Row]:
    """Where samples begin, and the end as one more, all without keys. Raises NoIndex."""
    if not data or len(data) % 8:
        raise NoIndex("its size is no multiple of 8")
    starts = [int.from_bytes(data[at : at + 8], sys.byteorder) for at in range(0, len(data), 8)]
    if any(start % 512 for start in starts) or sorted(set(starts)) != starts:
        raise NoIndex("its numbers are no offsets of entries")
    return [(b"", (Listed(b"", start, 0, start),)) for start in starts]


def read_webshart(data: bytes) -> list[Row]:
    """The samples of webshart's JSON, its size first, as a sample without a key. Raises NoIndex."""
    try:
        facts = json.loads(data)
        files = facts["files"]
        listed = [
            Listed(name.encode(), int(each["offset"]), int(each.get("length", each.get("size"))), -1)
            for name, each in files.items()
        ]
        size = int(facts["filesize"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NoIndex("no JSON of webshart") from None
    listed.sort(key=lambda field: field.offset)
    return [(b"", (Listed(b"filesize", size, 0, -1),)), *grouped(listed)]


def read_tsv(data: bytes) -> list[Row]:
    """The samples of our table. Raises NoIndex."""
    lines = data.split(b"\n")
    if lines[0] != b"\t".join(COLUMNS) or lines.pop():
        raise NoIndex("no table with the columns " + " ".join(map(bytes.decode, COLUMNS)))
    listed = []
    for number, line in enumerate(lines[1:], 2):
        try:
            key, field, offset, size, start = line.split(b"\t")
            listed.append(Listed(unescape_tsv(key) + b"." + unescape_tsv(field), int(offset), int(size), int(start)))
        except (ValueError, Malformed):
            raise NoIndex(f"line {number} does not have the columns of the first") from None
    return grouped(listed)


# ---- the table of them

FORMATS = ("dali", "wids", "energon", "webshart", "tsv", "parquet")

_SUFFIXES = {
    "dali": ".idx",
    "energon": ".tar.idx",
    "webshart": ".json",
    "tsv": ".index.tsv",
    "parquet": ".index.parquet",
}
READERS = {"dali": read_dali, "energon": read_energon, "webshart": read_webshart, "tsv": read_tsv}


def index_path(format: str, shard: str, folder: str | None = None) -> str:
    """Where the index of a shard is: beside it, or in `folder`."""
    path = shard.removesuffix(".tar") + _SUFFIXES[format]
    return path if folder is None else os.path.join(folder, os.path.basename(path))


def make_layout(format: str, shard: str, size: int) -> Layout:
    """The layout for a shard of `size` bytes."""
    if format == "parquet":
        from tarkit.indexing.parquet import Parquet

        return Parquet(shard, size)
    if format == "webshart":
        return Webshart(shard, size)
    plain: dict[str, type[Dali | Energon | Tsv]] = {"dali": Dali, "energon": Energon, "tsv": Tsv}
    return plain[format]()


def read_index(format: str, data: bytes) -> list[Row]:
    """The samples that an index lists. Raises NoIndex when it is none of that format."""
    if format == "parquet":
        from tarkit.indexing.parquet import read_parquet

        return read_parquet(data)
    return READERS[format](data)


def is_index(format: str, path: str) -> bool:
    """Whether a file is an index of the format, as far as it shows without the shard."""
    try:
        with open(path, "rb") as file:
            if format == "dali":
                return _DALI.match(file.readline(100)) is not None
            if format == "tsv":
                return file.readline(100) == b"\t".join(COLUMNS) + b"\n"
            read_index(format, file.read())
    except NoIndex:
        return False
    return True
