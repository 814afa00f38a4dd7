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
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, BinaryIO, ClassVar, NamedTuple

from tarkit.errors import Unsupported, show
from tarkit.indexing.files import IndexFile
from tarkit.samples.sample import split_name
from tarkit.sizes import plural
from tarkit.stores.schemes import scheme_of
from tarkit.streams.sink import open_sink
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.parquet import PyarrowFile, load_pyarrow
from tarkit.tables.recipe import MalformedRow
from tarkit.tables.tsv import escape_tsv, unescape_tsv
from tarkit.tar import block

BUFFERED = 1 << 20  # bytes of an index that are held in memory
COLUMNS = (b"__key__", b"field", b"offset", b"size", b"entry")  # of tsv and parquet
GROUP = 1 << 16  # rows of a row group
NO_FACTS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)  # JSON of another form
_LARGEST = 1 << 62  # so that sums have 63 bits


class InvalidIndex(ValueError):
    """A file that is not an index of the layout; str() is the reason."""


class IndexedField(NamedTuple):
    """A field as an index lists it; offsets and sizes in bytes. `start` is that of the entry's first header, or -1."""

    name: bytes
    offset: int
    size: int
    start: int = -1

    @property
    def stop(self) -> int:
        return self.offset + self.size + block.padding(self.size)


class IndexRow(NamedTuple):
    """A sample as an index lists it."""

    key: bytes
    fields: Sequence[IndexedField]

    @property
    def stop(self) -> int:
        """The offset after its last entry."""
        return max(field.stop for field in self.fields)

    @property
    def last_header(self) -> int:
        """The offset of the last entry's header; without extension headers if the index does not have them."""
        field = self.fields[-1]
        return field.start if field.start >= 0 else field.offset - block.BLOCK


def _field(name: bytes, offset: int, size: int, start: int = -1) -> IndexedField:
    """Return a field of an index file. Raises InvalidIndex for numbers that are no offsets or sizes."""
    if not (0 <= offset < _LARGEST and 0 <= size < _LARGEST and -1 <= start < _LARGEST):
        raise InvalidIndex(f"impossible offset or size of {show(name)}")
    return IndexedField(name, offset, size, start)


def _key(name: bytes) -> bytes:
    parts = split_name(name)
    return b"" if parts is None else parts[0]


def _grouped(fields: Iterable[IndexedField]) -> list[IndexRow]:
    return [IndexRow(key, list(group)) for key, group in groupby(fields, lambda field: _key(field.name))]


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the name {show(name)} is not UTF-8") from None


class Layout:
    """An index of one shard in one layout, made sample by sample; of its bytes only the last ones are in memory.

    A layout is a subclass: `encode`, `head` and `tail` return the bytes for a sample, before all and after all samples,
    and raise ValueError for samples that it cannot represent; `decode` returns the samples of an index, or raises
    InvalidIndex.

    Attributes:
        suffix: replaces `.tar` in the path of the shard.
        file: where the index is.
        shard: the path or URL of the shard, of `size` bytes.
        error: why the layout cannot represent the shard, if it cannot.
    """

    suffix: ClassVar[str]

    def __init__(self, file: IndexFile, shard: str, name: str, size: int, tmpdir: str | None = None) -> None:
        """`name` is that of the shard in messages."""
        self.file, self.shard, self.size = file, shard, size
        self.error: Unsupported | None = None
        self._name, self._tmpdir = name, tmpdir
        self._head = self._tail = b""
        self._pieces: list[bytes] = []
        self._held = self._stored_size = 0
        self._stored: TemporaryFile | None = None

    def encode(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return the bytes for a sample."""
        raise NotImplementedError

    def head(self, samples: int) -> bytes:
        """Return the bytes before the samples; `samples` is their number."""
        return b""

    def tail(self, end: int | None) -> bytes:
        """Return the bytes after the samples; `end` is the offset of the end marker, None for a damaged shard."""
        return b""

    @staticmethod
    def decode(data: bytes) -> list[IndexRow]:
        """Return the samples that an index lists."""
        raise NotImplementedError

    @classmethod
    def recognises(cls, file: BinaryIO) -> bool:
        """Return whether a file is such an index, as far as that is visible without the shard."""
        try:
            cls.decode(file.read())
        except InvalidIndex:
            return False
        return True

    def add(self, key: bytes, fields: Sequence[IndexedField]) -> None:
        """Append a sample."""
        piece = self._encoded(self.encode, key, fields)
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > BUFFERED:
            self._stored = self._stored or TemporaryFile(self._tmpdir)
            self._stored.write(b"".join(self._pieces))
            self._stored_size += self._held
            self._pieces, self._held = [], 0

    def finish(self, samples: int, end: int | None) -> None:
        """Complete the index; see `head` and `tail`."""
        self._head, self._tail = self._encoded(self.head, samples), self._encoded(self.tail, end)

    def write(self, sync: bool) -> None:
        """Write the file; with `sync` it is on the disk before it gets its name."""
        with open_sink(self.file.kind, self.file.path, sync=sync, options=self.file.options) as sink:
            sink.write(self._head)
            if self._stored is not None:
                sink.copy(self._stored.fd, 0, self._stored_size)
                self._stored.close()
            sink.write(b"".join((*self._pieces, self._tail)))

    def read(self) -> bytes:
        """Return all bytes. Raises Unsupported when the layout cannot represent the shard."""
        if self.error is not None:
            raise self.error
        stored = b"" if self._stored is None else self._stored.read(0, self._stored_size)
        return b"".join((self._head, stored, *self._pieces, self._tail))

    def _encoded(self, encode: Callable[..., bytes], *facts: object) -> bytes:
        try:
            return b"" if self.error is not None else encode(*facts)
        except ValueError as error:
            self.error = Unsupported(f"{self._name}: cannot make a {self.file.format} index: {error}")
            return b""


_BLANK = re.compile(rb"[\x00\t\n\v\f\r ]")
_DALI = re.compile(rb"v1\.[0-2] (\d{1,18})\n")


class Dali(Layout):
    """Text for DALI, whose reader splits lines at blanks."""

    suffix = ".idx"

    def encode(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
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
        if not samples:
            raise ValueError("the shard has no samples, and DALI refuses an index without samples")
        return b"v1.2 %d\n" % samples

    @staticmethod
    def decode(data: bytes) -> list[IndexRow]:
        return list(DaliLines(data))

    @classmethod
    def recognises(cls, file: BinaryIO) -> bool:
        return _DALI.match(file.readline(100)) is not None


class DaliLines(Sequence[IndexRow]):
    """The samples of a DALI index of version 1.2, each parsed on access. Raises InvalidIndex."""

    def __init__(self, data: bytes) -> None:
        head = _DALI.match(data)
        if not head or not data.startswith(b"v1.2"):
            raise InvalidIndex("not a DALI index of version 1.2")
        self._data = data
        self._lines = data[head.end() :].splitlines()
        if len(self._lines) != int(head[1]):
            raise InvalidIndex(f"its header has {plural(int(head[1]), 'sample')}, the file {len(self._lines)}")

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, place: Any) -> Any:
        words = self._lines[place].split()
        try:
            if not words or len(words) % 4:
                raise ValueError
            facts = zip(words[1::4], words[2::4], words[3::4], strict=True)
            fields = [_field(name, int(offset), int(size)) for offset, size, name in facts]
        except ValueError:
            raise InvalidIndex(f"line {place + 2} is not of the form FIELD OFFSET SIZE NAME") from None
        return IndexRow(_key(fields[0].name), fields)

    def places(self, key: bytes) -> list[int]:
        """Return the indexes of the samples with this key."""
        places: list[int] = []
        name, place, pos = b" %b." % key, -1, 0
        while (at := self._data.find(name, pos)) >= 0:
            place += self._data.count(b"\n", pos, at)
            if self[place][0] == key:
                places.append(place)
            pos = self._data.find(b"\n", at)  # the rest of the line belongs to the same sample
            if pos < 0:
                break
        return places


_META = re.compile(rb"__[^/]*__($|/)")  # names that Energon and webdataset skip


class Energon(Layout):
    """Offsets for Megatron-Energon, which skips entries in a directory such as `__meta__`."""

    suffix = ".tar.idx"

    def encode(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        start = next((field.start for field in fields if not _META.match(field.name)), None)
        return b"" if start is None else start.to_bytes(8, sys.byteorder)

    def tail(self, end: int | None) -> bytes:
        if end is None:
            raise ValueError("Energon requires adjacent samples, and the archive was not read whole")
        return end.to_bytes(8, sys.byteorder)

    @staticmethod
    def decode(data: bytes) -> list[IndexRow]:
        """Return the offsets of samples and of the end, as samples without keys."""
        if not data or len(data) % 8:
            raise InvalidIndex("its size is not a multiple of 8")
        starts = [int.from_bytes(data[at : at + 8], sys.byteorder) for at in range(0, len(data), 8)]
        if any(start % 512 for start in starts) or sorted(set(starts)) != starts:
            raise InvalidIndex("its numbers are not offsets of entries")
        return [IndexRow(b"", (IndexedField(b"", start, 0, start),)) for start in starts]


class Webshart(Layout):
    """JSON for webshart."""

    suffix = ".json"
    _comma = ""

    def encode(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        lines = []
        for name, offset, size, _ in fields:
            text = json.dumps(_text(name), ensure_ascii=False)
            lines.append(f'{self._comma}\n{text}: {{"offset": {offset}, "length": {size}}}')
            self._comma = ","
        return "".join(lines).encode()

    def head(self, samples: int) -> bytes:
        path = json.dumps(_text(os.fsencode(os.path.basename(self.shard))), ensure_ascii=False)
        return f'{{"path": {path}, "filesize": {self.size}, "includes_image_geometry": false, "files": {{'.encode()

    def tail(self, end: int | None) -> bytes:
        return b"\n}}\n"

    @staticmethod
    def decode(data: bytes) -> list[IndexRow]:
        """Return the samples, after the size of the shard as a sample without a key."""
        try:
            facts = json.loads(data)
            fields = [
                _field(name.encode(), int(place["offset"]), int(place.get("length", place.get("size"))))
                for name, place in facts["files"].items()
            ]
            size = int(facts["filesize"])
        except InvalidIndex:
            raise
        except NO_FACTS:
            raise InvalidIndex("not JSON of webshart") from None
        fields.sort(key=lambda field: field.offset)
        return [IndexRow(b"", (IndexedField(b"filesize", size, 0),)), *_grouped(fields)]


class Tsv(Layout):
    """tarkit's table as TSV."""

    suffix = ".index.tsv"
    _HEAD = b"\t".join(COLUMNS) + b"\n"

    def encode(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        cut, cell = len(key) + 1, escape_tsv(key)
        return b"".join(
            b"%b\t%b\t%d\t%d\t%d\n" % (cell, escape_tsv(name[cut:]), offset, size, start)
            for name, offset, size, start in fields
        )

    def head(self, samples: int) -> bytes:
        return self._HEAD

    @staticmethod
    def decode(data: bytes) -> list[IndexRow]:
        lines = data.split(b"\n")
        if lines[0] != b"\t".join(COLUMNS) or lines.pop():
            raise InvalidIndex("not a table with the columns " + " ".join(map(bytes.decode, COLUMNS)))
        fields = []
        for number, line in enumerate(lines[1:], 2):
            try:
                key, field, *facts = line.split(b"\t")
                offset, size, start = map(int, facts)
                fields.append(_field(unescape_tsv(key) + b"." + unescape_tsv(field), offset, size, start))
            except (ValueError, MalformedRow):
                raise InvalidIndex(f"line {number} is not a row of these columns") from None
        return _grouped(fields)

    @classmethod
    def recognises(cls, file: BinaryIO) -> bool:
        return file.readline(100) == cls._HEAD


_ABOUT = b"tarkit.index"


class Parquet(Layout):
    """tarkit's table as Parquet; the metadata have the name and the size of the shard."""

    suffix = ".index.parquet"

    def __init__(self, file: IndexFile, shard: str, name: str, size: int, tmpdir: str | None = None) -> None:
        super().__init__(file, shard, name, size, tmpdir)
        self._arrow, parquet = load_pyarrow("Parquet")
        about = {_ABOUT: b"1", b"tarkit.shard": os.fsencode(os.path.basename(shard)), b"tarkit.size": b"%d" % size}
        types = [self._arrow.string()] * 2 + [self._arrow.int64()] * 3
        self._schema = self._arrow.schema(list(zip(map(bytes.decode, COLUMNS), types, strict=True)), metadata=about)
        self._written = PyarrowFile()
        self._writer = parquet.ParquetWriter(self._written, self._schema, compression="snappy")
        self._rows: list[tuple[str, str, int, int, int]] = []

    def encode(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        cut = len(key) + 1
        for name, offset, size, start in fields:
            _text(name)  # raises where it is not UTF-8
            self._rows.append((key.decode(), name[cut:].decode(), offset, size, start))
        if len(self._rows) >= GROUP:
            self._write_group()
        return self._written.take()

    def tail(self, end: int | None) -> bytes:
        if self._rows:
            self._write_group()
        self._writer.close()
        return self._written.take()

    def _write_group(self) -> None:
        columns = [list(column) for column in zip(*self._rows, strict=True)]
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._rows = []

    @staticmethod
    def decode(data: bytes) -> list[IndexRow]:
        arrow, parquet = load_pyarrow("Parquet")
        try:
            table = parquet.read_table(arrow.BufferReader(data))
        except (arrow.ArrowException, OSError):
            raise InvalidIndex("not a Parquet file") from None
        if _ABOUT not in (table.schema.metadata or {}):
            raise InvalidIndex("a Parquet file with other content")
        try:
            columns = (table.column(name.decode()).to_pylist() for name in COLUMNS)
            rows = zip(*columns, strict=True)
            return _grouped(_field(f"{key}.{field}".encode(), *facts) for key, field, *facts in rows)
        except (KeyError, TypeError, UnicodeEncodeError):
            raise InvalidIndex("a Parquet file with other columns") from None


# ---- Table of layouts

LAYOUTS: dict[str, type[Layout]] = {
    "dali": Dali,
    "energon": Energon,
    "webshart": Webshart,
    "tsv": Tsv,
    "parquet": Parquet,
}
FORMATS = ("dali", "wids", "energon", "webshart", "tsv", "parquet")
"""All formats; wids lists shards, see `wids`."""


def index_path(format: str, shard: str, directory: str | None = None) -> str:
    """Return the path or URL of the index of a shard: in the directory of the shard, or in `directory`."""
    query = ""
    if scheme_of(shard) in ("http", "https"):
        shard, mark, query = shard.partition("?")
        query = mark + query
    path = shard.removesuffix(".tar") + LAYOUTS[format].suffix
    return path + query if directory is None else os.path.join(directory, os.path.basename(path))
