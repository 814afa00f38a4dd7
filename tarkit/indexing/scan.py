"""Index files that other tools read: one scan of a shard, by its headers alone, gives those of all layouts.

The layouts are in `formats`; here is what they are made of, how they are written and how they are read. Only
regular files with a key are listed. What an index says is not believed before it was compared with the shard.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import NamedTuple, Protocol

from tarkit.errors import Problem, TarkitError, Unsupported, show
from tarkit.problems import Policy
from tarkit.samples.dataset import open_source
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import split_name
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import Location
from tarkit.streams.sink import Sink, open_sink
from tarkit.streams.source import Source
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar import block

GATHERED = 1 << 20  # bytes of an index that are held before they go to temporary space

COLUMNS = (b"__key__", b"field", b"offset", b"size", b"entry")
"""The columns of a table, for each field."""

REGULAR = frozenset((block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS, block.GNU_SPARSE))


class IndexedField(NamedTuple):
    """A field as an index lists it; offsets and sizes in bytes. `start` is that of the entry's first header."""

    name: bytes
    offset: int
    size: int
    start: int

    @property
    def stop(self) -> int:
        """Behind its padding."""
        return self.offset + self.size + block.padding(self.size)


Row = tuple[bytes, Sequence[IndexedField]]  # the key of a sample, and its fields


class NoIndex(ValueError):
    """The file is not an index of that layout."""


class IndexLayout(Protocol):
    """The layout of the index of one shard; each shard needs a new object."""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return the bytes for one sample. Raises ValueError for what the layout cannot represent."""

    def head(self, samples: int) -> bytes:
        """What comes before the samples, of which there are so many. Raises ValueError."""

    def tail(self, end: int | None) -> bytes:
        """What comes behind; `end` is the offset of the end marker, None when the shard was not read whole."""


class Index(NamedTuple):
    """An index that is to be made: what it is called, where it goes and how it is spelled."""

    format: str
    path: str
    kind: str  # of the output: path, stdout, pipe, url
    layout: IndexLayout


class Scanned(NamedTuple):
    """The results of a scan of a shard."""

    samples: int
    size: int
    dropped: int


class Body:
    """The bytes of an index, of which only the last are in memory."""

    def __init__(self, tmpdir: str | None = None) -> None:
        self._tmpdir = tmpdir
        self._pieces: list[bytes] = []
        self._held = 0
        self._size = 0
        self._file: TemporaryFile | None = None

    def add(self, piece: bytes) -> None:
        """Append bytes."""
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > GATHERED:
            self._file = self._file or TemporaryFile(self._tmpdir)
            self._file.write(b"".join(self._pieces))
            self._size += self._held
            self._pieces, self._held = [], 0

    def send(self, sink: Sink) -> None:
        """Write all bytes to `sink`."""
        if self._file is not None:
            sink.copy(self._file.fd, 0, self._size)
            self._file.close()
        sink.write(b"".join(self._pieces))


def open_shard(location: Location, why: str = "an index") -> Source:
    """A shard as a plain file. Raises Unsupported for what is compressed or no file: it has no offsets to jump to."""
    if location.kind != "path" or not stat.S_ISREG(os.stat(location.text).st_mode):
        raise Unsupported(f"{location.name}: {why} needs a regular file")
    source = open_source(location)
    if source.seekable:
        return source
    source.close()
    codec = codec_by_suffix(location.text)
    plain = location.text
    while codec is not None and codec_by_suffix(plain):
        plain = os.path.splitext(plain)[0]
    plain = plain if plain.endswith(".tar") else f"{plain}.tar"
    if plain == location.text:
        plain = f"{plain.removesuffix('.tar')}.plain.tar"
    what = "a zip" if source.codec == "zip" else "compressed"
    raise Unsupported(
        f"{location.name}: it is {what}, and {why} needs offsets in a plain archive",
        f"make a plain one: tarkit cat {quote(location.text)} -o {quote(plain)}",
    )


def rows(samples: SampleReader, policy: Policy) -> Iterator[Row]:
    """What an index lists of each sample. Raises Problem: `sparse-entry`, and what `samples` does."""
    for sample in samples:
        if sample.key is None:
            continue
        fields, good = [], True
        prefix = sample.key + b"."
        cut = len(prefix)
        for name, start, data, size, _, type_, _, real in sample.entries:
            if type_ not in REGULAR or not name.startswith(prefix) or name.find(b"/", cut) >= 0:
                continue
            if real >= 0:
                what = f"{show(name)} is sparse: no offset leads to its content"
                problem = Problem("sparse-entry", samples.source.name, start, what)
                good = policy.judge(problem) == "keep" and good
                continue
            fields.append(IndexedField(name, data, size, start))
        if good and fields:
            yield sample.key, fields


def write_indexes(
    source: Source, indexes: Sequence[Index], policy: Policy, tmpdir: str | None = None, sync: bool = False
) -> Scanned:
    """Scan a shard and write indexes of it; an index appears when the whole shard was read.

    Raises:
        Problem: what `policy` does not let pass; then no index is written.
        Unsupported: a layout cannot say what is in the shard.
    """
    samples = SampleReader(source, policy, moves=False)
    bodies = [Body(tmpdir) for _ in indexes]
    count = 0
    try:
        for key, fields in rows(samples, policy):
            count += 1
            for index, body in zip(indexes, bodies, strict=True):
                body.add(_spelled(source, index, index.layout.sample, key, fields))
        end = samples.marker if samples.zeros is not None else None
        heads = [_spelled(source, index, index.layout.head, count) for index in indexes]
        tails = [_spelled(source, index, index.layout.tail, end) for index in indexes]
    finally:
        source.close()
    for index, head, body, tail in zip(indexes, heads, bodies, tails, strict=True):
        with open_sink(index.kind, index.path, sync=sync) as sink:
            sink.write(head)
            body.send(sink)
            sink.write(tail)
    return Scanned(count, source.size or 0, samples.dropped)


def spelled(source: Source, layout: IndexLayout, format: str, policy: Policy) -> bytes:
    """What an index of the shard should be. Raises as `write_indexes` does."""
    samples = SampleReader(source, policy, moves=False)
    index = Index(format, "", "path", layout)
    pieces = [_spelled(source, index, layout.sample, key, fields) for key, fields in rows(samples, policy)]
    end = samples.marker if samples.zeros is not None else None
    tail = _spelled(source, index, layout.tail, end)
    return b"".join((_spelled(source, index, layout.head, len(pieces)), *pieces, tail))


def _spelled(source: Source, index: Index, spell: Callable[..., bytes], *facts: object) -> bytes:
    try:
        return spell(*facts)
    except ValueError as error:
        raise Unsupported(f"{source.name}: no {index.format} index can be made: {error}") from None


def may_replace(path: str, recognised: Callable[[str], bool], format: str) -> None:
    """Raises TarkitError when there is something under this name that is no index of the format."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode) and status.st_size and not recognised(path):
        raise TarkitError(f"{path}: there is a file of this name, and it is no {format} index", "--force replaces it")


def grouped(listed: Sequence[IndexedField]) -> list[Row]:
    """Fields that stand one behind the other as samples."""
    samples: list[Row] = []
    last: bytes | None = None
    fields: list[IndexedField] = []
    for field in listed:
        key = key_in(field.name)
        if key != last:
            last, fields = key, []
            samples.append((key, fields))
        fields.append(field)
    return samples


def key_in(name: bytes) -> bytes:
    """The key in an entry's name, empty when it has none."""
    parts = split_name(name)
    return b"" if parts is None else parts[0]
