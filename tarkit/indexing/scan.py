"""Write index files for other tools: one scan of the headers of a shard gives the indexes of all layouts.

The layouts are in `formats`. Only regular files with a key are listed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from tarkit.errors import Problem, Unsupported, show
from tarkit.indexing.files import IndexFile
from tarkit.problems import Policy
from tarkit.samples.dataset import open_source
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample, split_name
from tarkit.streams.codecs import MESSAGES, codec_by_suffix
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink
from tarkit.streams.source import Source
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar import block

BUFFERED = 1 << 20  # bytes of an index that are held in memory

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
        """The offset after its padding."""
        return self.offset + self.size + block.padding(self.size)


def listed_field(name: bytes, offset: int, size: int, start: int = -1) -> IndexedField:
    """Return a field as a file of an index lists it. Raises InvalidIndex for numbers that are no offsets or sizes."""
    if not (0 <= offset < _LARGEST and 0 <= size < _LARGEST and -1 <= start < _LARGEST):
        raise InvalidIndex(f"impossible offset or size of {show(name)}")
    return IndexedField(name, offset, size, start)


_LARGEST = 1 << 62  # so that sums have 63 bits

Row = tuple[bytes, Sequence[IndexedField]]  # the key of a sample, and its fields


class InvalidIndex(ValueError):
    """A file that is not an index of the layout; str() is the reason."""


class IndexLayout:
    """The layout of the index of one shard; a new object for each shard."""

    def sample(self, key: bytes, fields: Sequence[IndexedField]) -> bytes:
        """Return the bytes for one sample. Raises ValueError for a sample that the layout cannot represent."""
        raise NotImplementedError

    def head(self, samples: int) -> bytes:
        """Return the bytes before the samples; `samples` is their number. Raises ValueError."""
        return b""

    def tail(self, end: int | None) -> bytes:
        """Return the bytes after the samples; `end` is the offset of the end marker, None for a damaged shard."""
        return b""


class Scanned(NamedTuple):
    """The results of a scan of a shard; `md5` is empty if not requested."""

    samples: int = 0
    size: int = 0
    dropped: int = 0
    md5: str = ""


class IndexBuilder:
    """An index that is made of one layout; of its samples only the last ones are in memory.

    Attributes:
        file: where the index is.
        error: why the layout cannot represent the shard, if it cannot.
    """

    def __init__(self, file: IndexFile, layout: IndexLayout, shard: str, tmpdir: str | None = None) -> None:
        self.file = file
        self.error: Unsupported | None = None
        self._layout = layout
        self._shard = shard
        self._tmpdir = tmpdir
        self._pieces: list[bytes] = []
        self._held = 0
        self._size = 0
        self._file: TemporaryFile | None = None
        self._head = self._tail = b""

    def add(self, key: bytes, fields: Sequence[IndexedField]) -> None:
        """Append a sample."""
        piece = self._encoded(self._layout.sample, key, fields)
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > BUFFERED:
            self._file = self._file or TemporaryFile(self._tmpdir)
            self._file.write(b"".join(self._pieces))
            self._size += self._held
            self._pieces, self._held = [], 0

    def finish(self, samples: int, end: int | None) -> None:
        """Complete the index; see `IndexLayout`."""
        self._head = self._encoded(self._layout.head, samples)
        self._tail = self._encoded(self._layout.tail, end)

    def write(self, sync: bool) -> None:
        """Write the file; with `sync` it is on the disk before it gets its name."""
        with open_sink(self.file.kind, self.file.path, sync=sync, options=self.file.options) as sink:
            sink.write(self._head)
            if self._file is not None:
                sink.copy(self._file.fd, 0, self._size)
                self._file.close()
            sink.write(b"".join((*self._pieces, self._tail)))

    def read(self) -> bytes:
        """Return all bytes. Raises Unsupported when the layout cannot represent the shard."""
        if self.error is not None:
            raise self.error
        stored = b"" if self._file is None else self._file.read(0, self._size)
        return b"".join((self._head, stored, *self._pieces, self._tail))

    def _encoded(self, encode: Callable[..., bytes], *facts: object) -> bytes:
        """Return the bytes for some facts; after an error there are none."""
        try:
            return b"" if self.error is not None else encode(*facts)
        except ValueError as error:
            self.error = Unsupported(f"{self._shard}: cannot make a {self.file.format} index: {error}")
            return b""


def open_shard(location: Location, why: str = "an index") -> Source:
    """Open a shard that is a plain file, or an object that ranges can be read of; `why` is what needs it.

    Raises:
        Unsupported: the shard is compressed or a stream, and so has no offsets.
    """
    if location.kind != "url" and not (location.kind == "path" and stat.S_ISREG(os.stat(location.text).st_mode)):
        raise Unsupported(f"{location.name}: {why} needs a regular file")
    source = open_source(location)
    if source.seekable:
        return source
    source.close()
    if source.codec is None:
        what = f"{location.name}: {why} needs a server that sends parts of an object"
        raise Unsupported(what, f"copy it to a file: tarkit cat {quote(location.name)} -o FILE.tar")
    codec = codec_by_suffix(location.text)
    plain = location.text
    while codec is not None and codec_by_suffix(plain):
        plain = os.path.splitext(plain)[0]
    plain = plain if plain.endswith(".tar") else f"{plain}.tar"
    if plain == location.text:
        plain = f"{plain.removesuffix('.tar')}.plain.tar"
    named = {"zip": "a zip", **{name: form.title for name, form in MESSAGES.items()}}
    what = named.get(source.codec, "a compressed archive")
    raise Unsupported(
        f"{location.name}: {why} needs offsets in a plain archive, not {what}",
        f"make a plain archive: tarkit cat {quote(location.text)} -o {quote(plain)}",
    )


def rows(
    samples: SampleReader, policy: Policy, look: Callable[[Source, TarSample], None] = lambda source, sample: None
) -> Iterator[Row]:
    """Yield the row of each sample in an index; `look` is called with each sample, also those without a key.

    Raises:
        Problem: `sparse-entry`; problems of `samples`.
    """
    for sample in samples:
        look(samples.source, sample)
        if sample.key is None:
            continue
        fields, good = [], True
        prefix = sample.key + b"."
        cut = len(prefix)
        for name, start, data, size, _, type_, _, real in sample.entries:
            if type_ not in REGULAR or not name.startswith(prefix) or name.find(b"/", cut) >= 0:
                continue
            if real >= 0:
                what = f"{show(name)} is a sparse file, whose content has no single offset"
                problem = Problem("sparse-entry", samples.source.name, start, what)
                good = policy.apply(problem) == "keep" and good
                continue
            fields.append(IndexedField(name, data, size, start))
        if good and fields:
            yield sample.key, fields


def build_indexes(
    source: Source,
    builders: Sequence[IndexBuilder],
    policy: Policy,
    strict: bool = False,
    look: Callable[[Source, TarSample], None] = lambda source, sample: None,
) -> Scanned:
    """Scan a shard once, fill the indexes and close it; `look` is called with each sample.

    Raises:
        Problem: a problem that `policy` does not let pass.
        TarkitError: the file was changed meanwhile.
        Unsupported: with `strict`, a layout cannot represent the shard; else `IndexBuilder.error` says so.
    """
    samples = SampleReader(source, policy, moves=False)
    count = 0
    try:
        for key, fields in rows(samples, policy, look):
            count += 1
            for builder in builders:
                builder.add(key, fields)
                if strict and builder.error is not None:
                    raise builder.error
        end = samples.marker if samples.zeros is not None else None
        for builder in builders:
            builder.finish(count, end)
            if strict and builder.error is not None:
                raise builder.error
        source.unchanged()
    finally:
        source.close()
    return Scanned(count, source.size or 0, samples.dropped)


def grouped(listed: Sequence[IndexedField]) -> list[Row]:
    """Group consecutive fields of one key into samples."""
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
    """Return the key in the name of an entry, empty if it has none."""
    parts = split_name(name)
    return b"" if parts is None else parts[0]
