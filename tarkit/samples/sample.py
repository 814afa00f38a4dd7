"""Keys, fields and samples: the WebDataset convention over the entries of an archive.

The key is the path up to the first dot after the last slash, the field what follows that dot. Consecutive entries with
equal keys are one sample, and so a sample is one byte range. Entries without a key (directories, `README`, `.hidden`)
belong to the sample around them, else to the next one, at the end to the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from operator import lt
from typing import TypeVar

from tarkit.streams.files import changed
from tarkit.streams.ranges import AssembledSource, HeldRange
from tarkit.streams.source import Source, WindowSource
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw, TarReader
from tarkit.tar.writer import EntryWriter

KEYLESS = frozenset(
    (
        block.DIRECTORY,
        block.PAX_GLOBAL,
        block.GNU_VOLUME,
        block.GNU_DUMPDIR,
        block.SOLARIS_ACL,
        block.SOLARIS_ATTRIBUTES,
    )
)
REMEMBERED = 200_000  # keys of one input that are remembered to find repeated ones


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Return the key and the field of an entry's name, None if it has no key.

    >>> split_name(b"d.1/a.seg.png")
    (b'd.1/a', b'seg.png')
    """
    slash = name.rfind(b"/") + 1
    dot = name.find(b".", slash)
    if dot <= slash:
        return None
    return name[:dot], name[dot + 1 :]


def key_of(entry: Entry) -> bytes | None:
    """Return the key of an entry; None for a directory or header, or if its name has no key."""
    parts = None if entry.type in KEYLESS else split_name(entry.name)
    return None if parts is None else parts[0]


class TarSample:
    """Entries of one key. From a stream it is valid until the next one is read.

    Its range, its entries and their headers always agree. So a sample with other fields or names is a new one, with
    a source of its own: `Assembly` makes it.

    Attributes:
        key: the key; None for the entries of an archive without samples.
        source: the archive, or what was made of it.
        start, stop: the byte range of the sample in the source.
        more: reads one more entry of a sample whose end is not known yet; None at the end.
        plain: all entries are known to be regular files with the key, without gaps.
    """

    __slots__ = ("_entries", "_named", "key", "more", "plain", "source", "start", "stop")

    more: Callable[[], None] | None

    def __init__(
        self, key: bytes | None, source: Source, entries: Sequence[Entry | Raw], start: int, stop: int
    ) -> None:
        self.key = key
        self.source = source
        self._entries = entries
        self.start = start
        self.stop = stop
        self._named = self.plain = False
        self.more = None

    @property
    def entries(self) -> list[Entry]:
        """The entries, in order."""
        if not self._named:
            self.entries = list(map(Entry._make, self._entries))
        return self._entries  # type: ignore[return-value]

    @entries.setter
    def entries(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._named = True

    @property
    def first_key(self) -> bytes | None:
        """The key; of a run of samples that of the first one."""
        return self.key

    @property
    def raw(self) -> Sequence[Entry | Raw]:
        """The entries as they were read, perhaps plain tuples: faster than `entries` for many samples."""
        return self._entries

    def without_gaps(self) -> TarSample:
        """Return the entries alone if there are other bytes between them, else the sample itself."""
        entries = self.entries
        if all(entry.stop == following.start for entry, following in pairwise(entries)):
            return self
        return self.with_entries(entries)

    def with_entries(self, entries: Iterable[Entry]) -> TarSample:
        """Return a sample of some of the entries."""
        made = Assembly(self.source, self.start)
        for entry in entries:
            made.keep(self.source, entry)
        return made.sample(self.key)

    def complete(self) -> None:
        """Read until the end is known; bytes of a stream that memory cannot hold go to a temporary file."""
        while self.more is not None:
            self.more()

    @property
    def content(self) -> int:
        """The size of the payloads in bytes."""
        return sum(entry[3] for entry in self._entries)

    @property
    def size(self) -> int:
        """The size of the sample in an archive, in bytes."""
        return self.stop - self.start

    def write(self, writer: EntryWriter) -> None:
        """Append the sample to an archive; the rest of a sample whose end is not known is read meanwhile."""
        if isinstance(self.source, AssembledSource):
            for piece in self.source.pieces:  # gathered, or copied, like those of other samples
                writer.append(*piece)
            return
        writer.append(self.source, self.start, self.stop)
        while self.more is not None:
            stop = self.stop
            writer.flush()
            self.source.release(stop)
            self.more()
            if self.stop > stop:
                writer.append(self.source, stop, self.stop)


class Assembly:
    """Put a sample together from entries as they are, entries under other names, and new ones.

    Args:
        origin: the source of the sample that is changed.
        start: where that begins; there the new one begins in its own source.
    """

    def __init__(self, origin: Source, start: int) -> None:
        self._origin = origin
        self._start = self._stop = start
        self._pieces: list[tuple[Source, int, int]] = []
        self._entries: list[Raw] = []
        self._data: list[bytes] = []  # of headers and small payloads at the end

    def keep(self, source: Source, entry: Entry | Raw) -> None:
        """Append an entry of a source as it is."""
        name, start, data, size, stop, kind, link, real = entry
        self._append(source, start, stop)
        self._list(name, data - start, size, stop - data, kind, link, real)

    def add(self, entry: Entry | Raw, name: bytes, header: bytes, content: bytes | tuple[Source, int, int]) -> None:
        """Append an entry like `entry` with this name and header; `content` is its payload with the padding."""
        self._data.append(header)
        if isinstance(content, bytes):
            self._data.append(content)
            length = len(content)
        else:
            length = content[2] - content[1]
            self._append(*content)
        self._list(name, len(header), entry[3], length, *entry[5:])

    def sample(self, key: bytes | None) -> TarSample:
        """Return the sample."""
        self._join()
        source = AssembledSource(self._origin, self._start, self._pieces)
        return TarSample(key, source, self._entries, self._start, self._stop)

    def _list(self, name: bytes, header: int, size: int, payload: int, kind: bytes, link: bytes, real: int) -> None:
        start, data = self._stop, self._stop + header
        self._stop = data + payload
        self._entries.append((name, start, data, size, self._stop, kind, link, real))

    def _append(self, source: Source, start: int, stop: int) -> None:
        """Append a range of a source: of an assembled one its pieces, so that these do not nest."""
        if start == stop:
            return
        if self._data:
            self._join()
        if isinstance(source, AssembledSource):
            self._pieces += source.within(start, stop)
        elif self._pieces and self._pieces[-1][0] is source and self._pieces[-1][2] == start:
            self._pieces[-1] = source, self._pieces[-1][1], stop
        else:
            self._pieces.append((source, start, stop))

    def _join(self) -> None:
        """Make one piece of the bytes in memory."""
        if self._data:
            data = b"".join(self._data)
            self._data.clear()
            self._pieces.append((HeldRange(self._origin.name, 0, data), 0, len(data)))


class RunOfSamples:
    """Samples that are written together: here plain ones that follow each other in an archive; see `SampleReader.runs`.

    Attributes:
        source: the archive.
        start, stop: the byte range in the archive, or of another kind of run in what `write` writes.
        keys: those of the samples; neighbours differ.
        key: that of the last one.
        stops: the ends of the samples, in the same bytes.
        contents: those of the field that the reader was asked for.
    """

    __slots__ = ("contents", "key", "keys", "source", "start", "stop", "stops")

    def __init__(
        self,
        source: Source,
        start: int,
        keys: Sequence[bytes],
        stops: Sequence[int],
        contents: Sequence[bytes] = (),
    ) -> None:
        self.source = source
        self.start = start
        self.keys = keys
        self.key = keys[-1]
        self.stops = stops
        self.stop = stops[-1]
        self.contents = contents

    @property
    def first_key(self) -> bytes:
        """The key of the first sample."""
        return self.keys[0]

    def start_of(self, number: int) -> int:
        """Return where a sample begins."""
        return self.stops[number - 1] if number else self.start

    def write(self, writer: EntryWriter, begin: int = 0, end: int | None = None) -> None:
        """Append samples [begin, end) to an archive, by default all."""
        writer.append(self.source, self.start_of(begin), self.stop if end is None else self.stops[end - 1])

    def samples(self) -> Iterator[TarSample]:
        """Yield the samples one by one; their headers are read again. Raises TarkitError if they are not there."""
        start, source = self.start, self.source
        if isinstance(source, WindowSource):
            entries = TarReader(source.another(), start).raw()
        else:
            entries = TarReader(HeldRange(source.name, start, source.read(start, self.stop)), start).raw()
        for key, stop in zip(self.keys, self.stops, strict=True):
            own: list[Raw] = []
            while not own or own[-1][4] < stop:
                if (entry := next(entries, None)) is None:
                    raise changed(source.name)
                own.append(entry)
            sample = TarSample(key, self.source, own, start, stop)
            sample.plain = True
            yield sample
            start = stop


Piece = TarSample | RunOfSamples  # what an output gets that takes samples as ranges of bytes
AnyPiece = TypeVar("AnyPiece", TarSample, Piece)


def singly(pieces: Iterable[Piece]) -> Iterator[TarSample]:
    """Yield the samples, those of runs one by one."""
    for piece in pieces:
        if isinstance(piece, TarSample):
            yield piece
        else:
            yield from piece.samples()


def is_safe(name: bytes) -> bool:
    """Return whether a name stays inside the directory to which it is extracted."""
    return name[:1] != b"/" and 0 not in name and (name.find(b"..") < 0 or b".." not in name.split(b"/"))


class Recent:
    """Hashes of the last `limit` keys (None: all), so that memory is bounded whatever their length.

    In one of a billion archives of 200 000 keys, two keys have equal 64-bit hashes.
    """

    def __init__(self, limit: int | None = REMEMBERED) -> None:
        self._order: deque[int] = deque(maxlen=limit)
        self._known: set[int] | None = None
        self._highest = b""

    def add(self, key: bytes) -> bool:
        """Remember `key`; return whether it was known."""
        known = self._known
        if known is None:
            if key > self._highest:  # while keys ascend, all are new
                self._highest = key
                self._order.append(hash(key))
                return False
            known = self._known = set(self._order)
        number = hash(key)
        if number in known:
            return True
        if len(self._order) == self._order.maxlen:
            known.discard(self._order[0])
        known.add(number)
        self._order.append(number)
        return False

    def extend(self, keys: Sequence[bytes]) -> bool:
        """Remember `keys`, at most `limit`, and return True; False, and nothing, if one was known or is there twice."""
        numbers, order = list(map(hash, keys)), self._order
        if self._known is None and keys[0] > self._highest and all(map(lt, keys, islice(keys, 1, None))):
            self._highest = keys[-1]
            order.extend(numbers)
            return True
        known = self._known = set(order) if self._known is None else self._known
        new = set(numbers)
        if len(new) < len(numbers) or not known.isdisjoint(new):
            return False
        if order.maxlen is not None:
            for _ in range(len(order) + len(numbers) - order.maxlen):
                known.discard(order.popleft())
        known |= new
        order.extend(numbers)
        return True
