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
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tarkit.errors import MissingLibrary, Unsupported, show
from tarkit.export.parquet import PyarrowFile
from tarkit.indexing.scan import COLUMNS, IndexedField, IndexLayout, NoIndex, Row, grouped, key_in
from tarkit.samples.fields import stem
from tarkit.tables.recipe import MalformedRow
from tarkit.tables.tsv import escape_tsv, unescape_tsv

# ---- The index of a shard as a Parquet file, by pyarrow: the columns of the TSV one

GROUP = 1 << 16  # rows of a row group

_ABOUT = b"tarkit.index"


def _library() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingLibrary("Parquet", "pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet


class _Gathered(PyarrowFile):
    """What pyarrow wants of a file, with what it has written so far."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        super().__init__(self._pieces.append)

    def take(self) -> bytes:
        """Return what was written since the last call."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


class Parquet:
    """A row for each field; the file's metadata have the shard's name and size."""

    def __init__(self, shard: str, size: int) -> None:
        self._arrow, parquet = _library()
        about = {_ABOUT: b"1", b"tarkit.shard": os.fsencode(os.path.basename(shard)), b"tarkit.size": b"%d" % size}
        types = [self._arrow.string()] * 2 + [self._arrow.int64()] * 3
        self._schema = self._arrow.schema(list(zip(map(bytes.decode, COLUMNS), types, strict=True)), metadata=about)
        self._file = _Gathered()
        self._writer = parquet.ParquetWriter(self._file, self._schema, compression="snappy")
        self._rows: list[tuple[str, str, int, int, int]] = []

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return the row groups that are complete."""
        cut = len(key) + 1
        for name, offset, size, start in fields:
            try:
                self._rows.append((key.decode(), name[cut:].decode(), offset, size, start))
            except UnicodeDecodeError:
                raise ValueError(f"the name {show(name)} is no UTF-8") from None
        if len(self._rows) >= GROUP:
            self._flush()
        return self._file.take()

    def head(self, samples: int) -> bytes:
        """Nothing: the file begins with its first row."""
        return b""

    def tail(self, end: int | None) -> bytes:
        """Return the last rows and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()
        return self._file.take()

    def _flush(self) -> None:
        columns = [list(column) for column in zip(*self._rows, strict=True)]
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._rows = []


def read_parquet(data: bytes) -> list[Row]:
    """The samples of the file. Raises NoIndex."""
    arrow, parquet = _library()
    try:
        table = parquet.read_table(arrow.BufferReader(data))
    except (arrow.ArrowException, OSError):
        raise NoIndex("no Parquet file") from None
    if _ABOUT not in (table.schema.metadata or {}):
        raise NoIndex("a Parquet file of something else")
    keys, fields, offsets, sizes, starts = (table.column(name.decode()).to_pylist() for name in COLUMNS)
    listed = [
        IndexedField(f"{key}.{field}".encode(), offset, size, start)
        for key, field, offset, size, start in zip(keys, fields, offsets, sizes, starts, strict=True)
    ]
    return grouped(listed)


_BLANK = re.compile(rb"[\x00\t\n\v\f\r ]")
_DALI = re.compile(rb"v1\.[0-2] (\d+)\n")
_META = re.compile(rb"__[^/]*__($|/)")  # what Energon and webdataset pass over


class Dali:
    """Text for DALI; its reader takes words between blanks."""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return the line of a sample."""
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
        """Return the line with the number of samples."""
        if not samples:
            raise ValueError("there is no sample, and DALI refuses an index without one")
        return b"v1.2 %d\n" % samples

    def tail(self, end: int | None) -> bytes:
        """Nothing."""
        return b""


class Energon:
    """Offsets for Megatron-Energon, which passes over entries in a folder such as `__meta__`."""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
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

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
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
        """Return the closing brackets."""
        return b"\n}}\n"


class Tsv:
    """The table of tarkit, as text."""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
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


# ---- Read an index


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
                IndexedField(name, int(offset), int(size), -1)
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
    return [(b"", (IndexedField(b"", start, 0, start),)) for start in starts]


def read_webshart(data: bytes) -> list[Row]:
    """The samples of webshart's JSON, its size first, as a sample without a key. Raises NoIndex."""
    try:
        facts = json.loads(data)
        files = facts["files"]
        listed = [
            IndexedField(name.encode(), int(each["offset"]), int(each.get("length", each.get("size"))), -1)
            for name, each in files.items()
        ]
        size = int(facts["filesize"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise NoIndex("no JSON of webshart") from None
    listed.sort(key=lambda field: field.offset)
    return [(b"", (IndexedField(b"filesize", size, 0, -1),)), *grouped(listed)]


def read_tsv(data: bytes) -> list[Row]:
    """The samples of the table of tarkit. Raises NoIndex."""
    lines = data.split(b"\n")
    if lines[0] != b"\t".join(COLUMNS) or lines.pop():
        raise NoIndex("no table with the columns " + " ".join(map(bytes.decode, COLUMNS)))
    listed = []
    for number, line in enumerate(lines[1:], 2):
        try:
            key, field, offset, size, start = line.split(b"\t")
            listed.append(
                IndexedField(unescape_tsv(key) + b"." + unescape_tsv(field), int(offset), int(size), int(start))
            )
        except (ValueError, MalformedRow):
            raise NoIndex(f"line {number} does not have the columns of the first") from None
    return grouped(listed)


# ---- Table of layouts

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


def make_layout(format: str, shard: str, size: int) -> IndexLayout:
    """The layout for a shard of `size` bytes."""
    if format == "parquet":
        return Parquet(shard, size)
    if format == "webshart":
        return Webshart(shard, size)
    plain: dict[str, type[Dali | Energon | Tsv]] = {"dali": Dali, "energon": Energon, "tsv": Tsv}
    return plain[format]()


def read_index(format: str, data: bytes) -> list[Row]:
    """The samples that an index lists. Raises NoIndex when it is none of that format."""
    if format == "parquet":
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


# ---- The list of shards that wids reads (webdataset before 1.0): where each is, how many samples and bytes it has

NAME = "shardindex.json"
"""What widsindex calls it."""

_KIND = "wids-shard-index-v1"


class IndexedShard(NamedTuple):
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


def spell_wids(shards: Iterable[IndexedShard]) -> bytes:
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


def read_wids(data: bytes) -> list[IndexedShard]:
    """The shards in a list. Raises NoIndex."""
    try:
        facts = json.loads(data)
        if not isinstance(facts["wids_version"], int):
            raise NoIndex("no version of wids")
        return [
            IndexedShard(
                str(each["url"]), int(each["nsamples"]), int(each.get("filesize", -1)), str(each.get("md5sum", ""))
            )
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
