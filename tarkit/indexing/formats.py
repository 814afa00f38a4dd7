"""The layouts of index files, each as its own tool reads it.

`dali`: text, `v1.2 SAMPLES`, then a line for each sample: `FIELD OFFSET SIZE NAME`, repeated (NVIDIA DALI, wds2idx).
`energon`: u64 in native byte order, the offset of each sample's first header and of the end (Megatron-Energon).
`webshart`: JSON, `path`, `filesize`, and under `files` for each name its `offset` and `length` (webshart).
`tsv`: tarkit's table, a row for each field: `__key__ field offset size entry`, cells escaped as in `tarkit tsv`;
`entry` is the offset of the entry's first header, `offset` that of the content. `parquet` has the same columns.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from tarkit.errors import MissingLibrary, show
from tarkit.export.pyarrow_file import PyarrowFile
from tarkit.indexing.files import IndexFile
from tarkit.indexing.scan import (
    COLUMNS,
    IndexBuilder,
    IndexedField,
    IndexLayout,
    InvalidIndex,
    Row,
    grouped,
    key_in,
    listed_field,
)
from tarkit.indexing.wids import NO_FACTS, read_wids
from tarkit.stores.schemes import scheme_of
from tarkit.streams.source import Source
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
    """A file for pyarrow that keeps the bytes written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        super().__init__(self._pieces.append)

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


class Parquet(IndexLayout):
    """A Parquet table with a row for each field; the metadata have the name and the size of the shard."""

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
                raise ValueError(f"the name {show(name)} is not UTF-8") from None
        if len(self._rows) >= GROUP:
            self._flush()
        return self._file.take()

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
    """Return the samples of a Parquet index. Raises InvalidIndex."""
    arrow, parquet = _library()
    try:
        table = parquet.read_table(arrow.BufferReader(data))
    except (arrow.ArrowException, OSError):
        raise InvalidIndex("not a Parquet file") from None
    if _ABOUT not in (table.schema.metadata or {}):
        raise InvalidIndex("a Parquet file with other content")
    try:
        keys, fields, offsets, sizes, starts = (table.column(name.decode()).to_pylist() for name in COLUMNS)
        listed = [
            listed_field(f"{key}.{field}".encode(), offset, size, start)
            for key, field, offset, size, start in zip(keys, fields, offsets, sizes, starts, strict=True)
        ]
    except (KeyError, TypeError, UnicodeEncodeError):
        raise InvalidIndex("a Parquet file with other columns") from None
    return grouped(listed)


_BLANK = re.compile(rb"[\x00\t\n\v\f\r ]")
_DALI = re.compile(rb"v1\.[0-2] (\d{1,18})\n")
_META = re.compile(rb"__[^/]*__($|/)")  # names that Energon and webdataset skip


class Dali(IndexLayout):
    """Text for DALI, whose reader splits lines at blanks."""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return the line of a sample."""
        cut = len(key) + 1
        words = []
        for name, offset, size, _ in fields:
            if len(name) == cut:
                raise ValueError(f"{show(name)} has an empty field, which DALI cannot read")
            if _BLANK.search(name):
                raise ValueError(f"{show(name)} contains a blank, which DALI cannot read")
            words.append(b"%b %d %d %b" % (name[cut:], offset, size, name))
        return b" ".join(words) + b"\n"

    def head(self, samples: int) -> bytes:
        """Return the line with the number of samples."""
        if not samples:
            raise ValueError("the shard has no samples, and DALI refuses an index without samples")
        return b"v1.2 %d\n" % samples


class Energon(IndexLayout):
    """Offsets for Megatron-Energon, which skips entries in a directory such as `__meta__`."""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return the offset of its first header."""
        start = next((field.start for field in fields if not _META.match(field.name)), None)
        return b"" if start is None else start.to_bytes(8, sys.byteorder)

    def tail(self, end: int | None) -> bytes:
        """Return the end of the last sample."""
        if end is None:
            raise ValueError("Energon requires adjacent samples, and the archive was not read whole")
        return end.to_bytes(8, sys.byteorder)


class Webshart(IndexLayout):
    """JSON for webshart."""

    def __init__(self, shard: str, size: int) -> None:
        self._shard = os.path.basename(shard)
        self._size = size
        self._more = ""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return a line for each of its fields."""
        lines = []
        for name, offset, size, _ in fields:
            text = json.dumps(_text(name), ensure_ascii=False)
            lines.append(f'{self._more}\n{text}: {{"offset": {offset}, "length": {size}}}')
            self._more = ","
        return "".join(lines).encode()

    def head(self, samples: int) -> bytes:
        """Return the description of the shard."""
        path = json.dumps(_text(os.fsencode(self._shard)), ensure_ascii=False)
        return f'{{"path": {path}, "filesize": {self._size}, "includes_image_geometry": false, "files": {{'.encode()

    def tail(self, end: int | None) -> bytes:
        """Return the closing brackets."""
        return b"\n}}\n"


class Tsv(IndexLayout):
    """tarkit's table as TSV."""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return a line for each of its fields."""
        cut, cell = len(key) + 1, escape_tsv(key)
        return b"".join(
            b"%b\t%b\t%d\t%d\t%d\n" % (cell, escape_tsv(name[cut:]), offset, size, start)
            for name, offset, size, start in fields
        )

    def head(self, samples: int) -> bytes:
        """Return the names of the columns."""
        return b"\t".join(COLUMNS) + b"\n"


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the name {show(name)} is not UTF-8") from None


# ---- Read an index


class DaliLines(Sequence[Row]):
    """The samples of a DALI index of version 1.2, each parsed on access. Raises InvalidIndex."""

    def __init__(self, data: bytes) -> None:
        found = _DALI.match(data)
        if not found or not data.startswith(b"v1.2"):
            raise InvalidIndex("not a DALI index of version 1.2")
        self._data = data
        self._lines = data[found.end() :].splitlines()
        if len(self._lines) != int(found[1]):
            raise InvalidIndex(f"its header has {int(found[1])} samples, the file {len(self._lines)}")

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, place: Any) -> Any:
        words = self._lines[place].split()
        try:
            if not words or len(words) % 4:
                raise ValueError
            fields = [
                listed_field(name, int(offset), int(size))
                for offset, size, name in zip(words[1::4], words[2::4], words[3::4], strict=True)
            ]
        except ValueError:
            raise InvalidIndex(f"line {place + 2} is not of the form FIELD OFFSET SIZE NAME") from None
        return key_in(fields[0].name), fields

    def places(self, key: bytes) -> list[int]:
        """Return the indexes of the samples with this key."""
        places: list[int] = []
        name, place, pos = b" %b." % key, -1, 0
        while (found := self._data.find(name, pos)) >= 0:
            place += self._data.count(b"\n", pos, found)
            if self[place][0] == key:
                places.append(place)
            pos = self._data.find(b"\n", found)  # the rest of the line belongs to the same sample
            if pos < 0:
                break
        return places


def read_dali(data: bytes) -> list[Row]:
    """Return the samples of a DALI index of version 1.2. Raises InvalidIndex."""
    return list(DaliLines(data))


def read_energon(data: bytes) -> list[Row]:
    """Return the offsets of samples and of the end, as samples without keys. Raises InvalidIndex."""
    if not data or len(data) % 8:
        raise InvalidIndex("its size is not a multiple of 8")
    starts = [int.from_bytes(data[at : at + 8], sys.byteorder) for at in range(0, len(data), 8)]
    if any(start % 512 for start in starts) or sorted(set(starts)) != starts:
        raise InvalidIndex("its numbers are not offsets of entries")
    return [(b"", (IndexedField(b"", start, 0, start),)) for start in starts]


def read_webshart(data: bytes) -> list[Row]:
    """Return the samples of webshart's JSON, after its size as a sample without a key. Raises InvalidIndex."""
    try:
        facts = json.loads(data)
        files = facts["files"]
        listed = [
            listed_field(name.encode(), int(each["offset"]), int(each.get("length", each.get("size"))))
            for name, each in files.items()
        ]
        size = int(facts["filesize"])
    except InvalidIndex:
        raise
    except NO_FACTS:
        raise InvalidIndex("not JSON of webshart") from None
    listed.sort(key=lambda field: field.offset)
    return [(b"", (IndexedField(b"filesize", size, 0, -1),)), *grouped(listed)]


def read_tsv(data: bytes) -> list[Row]:
    """Return the samples of tarkit's table. Raises InvalidIndex."""
    lines = data.split(b"\n")
    if lines[0] != b"\t".join(COLUMNS) or lines.pop():
        raise InvalidIndex("not a table with the columns " + " ".join(map(bytes.decode, COLUMNS)))
    listed = []
    for number, line in enumerate(lines[1:], 2):
        try:
            key, field, offset, size, start = line.split(b"\t")
            listed.append(
                listed_field(unescape_tsv(key) + b"." + unescape_tsv(field), int(offset), int(size), int(start))
            )
        except (ValueError, MalformedRow):
            raise InvalidIndex(f"line {number} is not a row of these columns") from None
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
READERS = {
    "dali": read_dali,
    "energon": read_energon,
    "webshart": read_webshart,
    "tsv": read_tsv,
    "parquet": read_parquet,
}


def index_path(format: str, shard: str, directory: str | None = None) -> str:
    """Return the path or URL of the index of a shard: in the directory of the shard, or in `directory`."""
    query = ""
    if scheme_of(shard) in ("http", "https"):
        shard, mark, query = shard.partition("?")
        query = mark + query
    path = shard.removesuffix(".tar") + _SUFFIXES[format]
    return path + query if directory is None else os.path.join(directory, os.path.basename(path))


def make_builders(
    source: Source, shard: str, files: Sequence[IndexFile], tmpdir: str | None = None
) -> list[IndexBuilder]:
    """Return what makes the indexes `files` of a shard, which is at the path or URL `shard`."""
    size = source.size or 0
    layouts: dict[str, Callable[[], IndexLayout]] = {
        "dali": Dali,
        "energon": Energon,
        "tsv": Tsv,
        "parquet": lambda: Parquet(shard, size),
        "webshart": lambda: Webshart(shard, size),
    }
    return [IndexBuilder(file, layouts[file.format](), source.name, tmpdir) for file in files]


def read_index(format: str, data: bytes) -> list[Row]:
    """Return the samples that an index lists.

    Raises:
        InvalidIndex: the data are not an index of that format.
    """
    return READERS[format](data)


def is_index(format: str, file: BinaryIO) -> bool:
    """Return whether a file is an index of the format, as far as that is visible without the shard."""
    try:
        if format == "dali":
            return _DALI.match(file.readline(100)) is not None
        if format == "tsv":
            return file.readline(100) == b"\t".join(COLUMNS) + b"\n"
        (read_wids if format == "wids" else READERS[format])(file.read())
    except InvalidIndex:
        return False
    return True
