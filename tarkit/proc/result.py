"""Samples that were made: what did not change is as it was, header and all; what is new has a new header."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tarkit.errors import Problem, TarkitError, show
from tarkit.proc.engine import BatchFailed, Failure, InputField, Job
from tarkit.samples.sample import Part, TarSample, is_safe, key_of, split_name
from tarkit.streams.copy import Short
from tarkit.streams.ranges import HeldRange
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.block import padding
from tarkit.tar.header import encode, rename
from tarkit.tar.reader import Entry, Raw

COMPARED = 1 << 20  # bytes of one look when contents are compared


class FieldContent(Protocol):
    """What a field will hold, when it is not in memory; it lasts as long as somebody refers to it."""

    size: int
    mtime: int  # seconds since 1970

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""

    def send(self, start: int, stop: int, sink: Any) -> None:
        """Write bytes [start, stop) to a sink."""


class Stored:
    """The first `size` bytes of the file `path`, which `owner` keeps there for as long as this is referred to."""

    def __init__(self, path: bytes, size: int, mtime: int, owner: object) -> None:
        self.path = path
        self.size = size
        self.mtime = mtime
        self.owner = owner

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        fd = self._open()
        try:
            return os.pread(fd, stop - start, start)
        finally:
            os.close(fd)

    def send(self, start: int, stop: int, sink: Any) -> None:
        """Write bytes [start, stop) to a sink."""
        fd = self._open()
        try:
            sink.copy(fd, start, stop)
        except Short:
            raise TarkitError(f"{show(self.path)} became shorter while it was read") from None
        finally:
            os.close(fd)

    def _open(self) -> int:
        return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


class Timed:
    """Bytes in memory that have a time of their own."""

    def __init__(self, data: bytes, mtime: int) -> None:
        self.data = data
        self.size = len(data)
        self.mtime = mtime

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        return self.data[start:stop]

    def send(self, start: int, stop: int, sink: Any) -> None:
        """Write bytes [start, stop) to a sink."""
        sink.write(memoryview(self.data)[start:stop])


class Assembled:
    """A source that is put together: bytes, ranges of other sources, contents that are somewhere else."""

    seekable = True
    failure: Problem | None = None
    codec: str | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.size: int | None = 0
        self.pieces: list[tuple[int, int, bytes | FieldContent | tuple[Source, int]]] = []

    def add(self, piece: bytes | FieldContent | tuple[Source, int, int]) -> None:
        """Append to it."""
        at = self.size or 0
        if isinstance(piece, tuple):
            source, start, stop = piece
            self.pieces.append((at, at + stop - start, (source, start)))
            self.size = at + stop - start
        else:
            size = len(piece) if isinstance(piece, bytes) else piece.size
            self.pieces.append((at, at + size, piece))
            self.size = at + size

    def peek(self, pos: int, n: int) -> bytes:
        """At least `n` bytes from `pos` on, fewer only at the end."""
        return self.read(pos, min(pos + n, self.size or 0))

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        found = []
        for low, high, piece in self._within(start, stop):
            if isinstance(piece, bytes):
                found.append(piece[low:high])
            elif isinstance(piece, tuple):
                found.append(piece[0].read(piece[1] + low, piece[1] + high))
            else:
                found.append(piece.read(low, high))
        return b"".join(found)

    def send(self, start: int, stop: int, sink: Any) -> None:
        """Write bytes [start, stop) to a sink."""
        for low, high, piece in self._within(start, stop):
            if isinstance(piece, bytes):
                sink.write(memoryview(piece)[low:high])
            elif isinstance(piece, tuple):
                piece[0].send(piece[1] + low, piece[1] + high, sink)
            else:
                piece.send(low, high, sink)

    def _within(self, start: int, stop: int) -> list[tuple[int, int, Any]]:
        return [
            (max(start, low) - low, min(stop, high) - low, piece)
            for low, high, piece in self.pieces
            if low < stop and high > start
        ]

    def release(self, pos: int) -> None:
        """It is kept whole."""

    def lend(self, flush: Callable[[], None]) -> None:
        """It does not move."""

    def close(self) -> None:
        """It goes when nobody refers to it."""


class Maker:
    """Makes the samples of the outcome of a job. `mtime` is in seconds since 1970; None: each content's own."""

    def __init__(self, mtime: int | None = 0) -> None:
        self.mtime = mtime

    def __call__(
        self, job: Job, key: bytes, fields: Sequence[tuple[bytes, bytes | FieldContent]], *, first: bool = True
    ) -> TarSample:
        """A sample of `key` with these fields, in any order: those that the input has come in its order, then the rest
        in byte order. A field whose content is that of the input keeps its entry, with another name if need be.

        The `first` sample of an outcome has the entries without key that stand in the input sample. One that did not
        change at all is the input sample itself. Raises Failed for a key or a field that cannot be.
        """
        check_key(key)
        sample = job.sample
        inputs = {each.field: each for each in job.inputs()}
        wanted = dict(fields)
        if len(wanted) < len(fields):
            names = [field for field, _ in fields]
            twice = next(name for name in names if names.count(name) > 1)
            raise BatchFailed(Failure(f"gave the field {show(twice)} twice"))
        strays = [entry for entry in sample.entries if key_of(entry) is None] if first else []
        order = [field for field in inputs if field in wanted] + sorted(wanted.keys() - inputs.keys())
        same = {field: each for field, each in inputs.items() if field in wanted and _same(each, wanted[field])}
        if first and key == sample.key and len(same) == len(inputs) == len(order):
            return sample
        parts: list[Any] = []
        entries: list[Entry] = []
        for entry in strays:
            self._keep(job, entry, entry.name, parts, entries)
        for field in order:
            name = key + b"." + field
            if field in same and same[field].entry is same[field].content:
                self._keep(job, same[field].entry, name, parts, entries)
            else:
                self._new(name, wanted[field], parts, entries)
        return _sample(key, job.shard, parts, entries)

    def _keep(self, job: Job, entry: Entry, name: bytes, parts: list[Any], entries: list[Entry]) -> None:
        """An entry of the input, under this name."""
        source = job.sample.source
        start = entries[-1].stop if entries else 0
        header: bytes | tuple[Source, int, int] = job.piece(entry.start, entry.data) or (
            source,
            entry.start,
            entry.data,
        )
        if name != entry.name:
            header = rename(header if isinstance(header, bytes) else source.read(entry.start, entry.data), name)
        length = len(header) if isinstance(header, bytes) else entry.data - entry.start
        parts.append(header)
        if entry.stop > entry.data:
            parts.append(job.piece(entry.data, entry.stop) or (source, entry.data, entry.stop))
        data = start + length
        entries.append(entry._replace(name=name, start=start, data=data, stop=data + entry.stop - entry.data))

    def _new(self, name: bytes, content: bytes | FieldContent, parts: list[Any], entries: list[Entry]) -> None:
        start = entries[-1].stop if entries else 0
        size = len(content) if isinstance(content, bytes) else content.size
        mtime = self.mtime if self.mtime is not None else 0 if isinstance(content, bytes) else content.mtime
        try:
            header = encode(name, size, mtime=mtime)
        except ValueError:
            raise BatchFailed(Failure(f"gave {show(name)}, which cannot be the name of an entry")) from None
        pad = padding(size)
        parts += [header, content, bytes(pad)] if size else [header]
        data = start + len(header)
        entries.append(Entry(name, start, data, size, data + size + pad, b"0", b"", -1))


def with_field(sample: TarSample, field: bytes, data: bytes) -> TarSample:
    """A sample with one more field behind those that it has, in place of one of that name."""
    name = (sample.key or b"") + b"." + field
    old = [entry for entry in sample.entries if entry.name == name]
    parts: list[Part] = []
    if old or sample.parts is None:
        parts += [(sample.source, each.start, each.stop) for each in sample.entries if each not in old]
    else:
        parts += sample.parts
    made = TarSample(sample.key, sample.source, [each for each in sample.entries if each not in old], 0, 0)
    made.parts = [*parts, encode(name, len(data)) + data + bytes(padding(len(data)))]
    return made


def check_key(key: bytes) -> None:
    """Raises Failed unless `key` can be one."""
    if b"\0" in key or split_name(key + b".x") != (key, b"x"):
        what = "a key is not empty and has no dot behind its last slash"
        raise BatchFailed(Failure(f"gave the key {show(key)}, which is none: {what}"))
    if not is_safe(key):
        raise BatchFailed(Failure(f"gave the key {show(key)}, which is absolute or has a '..' in it"))


def _same(each: InputField, content: bytes | FieldContent) -> bool:
    """Whether a field holds what it held."""
    if isinstance(content, bytes):
        return len(content) == each.size and content == each.read()
    if content.size != each.size:
        return False
    base = each.content.data
    for low in range(0, each.size, COMPARED):
        high = min(low + COMPARED, each.size)
        if content.read(low, high) != each.source.read(base + low, base + high):
            return False
    return True


def _sample(key: bytes, name: str, parts: list[Any], entries: list[Entry]) -> TarSample:
    if all(isinstance(part, bytes) for part in parts):
        data = b"".join(parts)
        sample = TarSample(key, HeldRange(name, 0, data), entries, 0, len(data))
        sample.parts = [data]
        return sample
    source = Assembled(name)
    for part in parts:
        source.add(part)
    return TarSample(key, source, entries, 0, source.size or 0)


# ---- Fast path for plain samples: the fields are regular files
# What comes out is what `Maker` makes, at a third of the time; where it would be anything else, the answer is None.

Fields = list[tuple[str, bytes]]

_FILES = (block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS)


def taken(key: bytes, entries: list[Raw], data: bytes, base: int) -> Fields | None:
    """The fields and contents of a sample whose archive has `data` at the offset `base`."""
    prefix = key + b"."
    skip = len(prefix)
    fields = []
    end = entries[0][1] if entries else 0
    for name, start, begin, size, stop, kind, _, real in entries:
        if start != end or kind not in _FILES or real >= 0 or not name.startswith(prefix) or name.find(b"/", skip) >= 0:
            return None
        end = stop
        fields.append((name[skip:].decode("utf-8", "surrogateescape"), data[begin - base : begin - base + size]))
    return fields if len(dict(fields)) == len(fields) else None


def given(
    key: bytes,
    entries: list[Raw],
    data: bytes,
    base: int,
    before: Fields,
    after: Sequence[tuple[str, bytes | None]],
    mtime: int,
) -> tuple[bytes, list[Raw], bytes] | None:
    """Key, entries and bytes of the sample with the fields `after` in place of those `before`; None in place of
    contents is what it was. None in place of all: nothing changed. Raises ValueError for what cannot be an entry."""
    wanted = dict(after)
    parts: list[bytes] = []
    made: list[Raw] = []
    pos = same = 0
    for (field, original), entry in zip(before, entries, strict=True):
        if field not in wanted:
            continue
        value = wanted.pop(field)
        name, start, begin, size, stop, kind, link, real = entry
        if value is None or value == original:
            same += 1
            parts.append(data[start - base : stop - base])
            shift = pos - start
            pos = stop + shift
            made.append((name, start + shift, begin + shift, size, pos, kind, link, real))
        else:
            pos = _add(name, value, mtime, pos, parts, made)
    if same == len(entries) and not wanted:
        return None
    if wanted:
        new = sorted((field.encode("utf-8", "surrogateescape"), value or b"") for field, value in wanted.items())
        for raw, content in new:
            pos = _add(key + b"." + raw, content, mtime, pos, parts, made)
    return key, made, b"".join(parts)


def sample_of(shard: str, key: bytes, entries: list[Raw], data: bytes) -> TarSample:
    """The sample that has just these bytes."""
    sample = TarSample(key, HeldRange(shard, 0, data), entries, 0, len(data))
    sample.parts = [data]
    return sample


def changed(job: Job, fields: Sequence[tuple[bytes, object]], mtime: int) -> TarSample | None:
    """The sample of a job with other contents under its key; None where that takes the long way."""
    entries: list[Raw] = list(map(tuple, job.sample.entries))  # type: ignore[arg-type]
    low = entries[0][1] if entries else 0
    data = job.piece(low, entries[-1][4]) if entries else None
    before = None if data is None else taken(job.key, entries, data, low)
    after = {field.decode("utf-8", "surrogateescape"): content for field, content in fields}
    if data is None or before is None or len(after) < len(fields):
        return None
    contents = [(field, content) for field, content in after.items() if isinstance(content, bytes)]
    if len(contents) < len(after):
        return None
    try:
        made = given(job.key, entries, data, low, before, contents, mtime)
    except ValueError:
        return None
    return job.sample if made is None else sample_of(job.shard, *made)


def _add(name: bytes, content: bytes, mtime: int, pos: int, parts: list[bytes], made: list[Raw]) -> int:
    """A new entry at `pos`; where it ends."""
    size = len(content)
    header = encode(name, size, mtime=mtime)
    pad = padding(size)
    parts += (header, content, bytes(pad))
    begin = pos + len(header)
    made.append((name, pos, begin, size, begin + size + pad, block.REGULAR, b"", -1))
    return begin + size + pad
