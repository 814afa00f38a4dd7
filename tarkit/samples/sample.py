"""Keys, fields and samples: the WebDataset convention over the entries of an archive.

The key is the path up to the first dot after the last slash, the field what follows that dot. Consecutive entries with
equal keys are one sample, and so a sample is one byte range. Entries without a key (directories, `README`, `.hidden`)
belong to the sample around them, else to the next one, at the end to the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, repeat
from operator import lt
from typing import TYPE_CHECKING, Any, Protocol

from tarkit.streams.files import changed
from tarkit.streams.ranges import AssembledSource, HeldRange
from tarkit.streams.source import FileSource, Source
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw, TarReader
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.problems import Policy
    from tarkit.tables.vectors import Columns
    from tarkit.tar.fast import PlainEntries

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
APART = 1 << 13  # bytes of an entry, as a mean, from which on contents in a file are read one by one
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


class _FieldNames(dict[bytes, str]):
    """The names of fields as text, of which an archive has few; bytes that are not UTF-8 become surrogates."""

    def __missing__(self, name: bytes) -> str:
        if len(self) >= 1000:
            self.clear()
        text = self[name] = name.decode("utf-8", "surrogateescape")
        return text


field_names = _FieldNames()


class ViewRow(Protocol):
    """A row of a view, which has values of a sample.

    Attributes:
        number: its number among the rows that are read together.
    """

    @property
    def number(self) -> int:
        """The number of the row among them."""

    @property
    def has_values(self) -> bool:
        """Whether there are columns with values."""

    def value(self, column: str) -> Any:
        """Return the value of a column; ABSENT if there is no such column."""

    def after(self, count: int) -> ViewRow:
        """Return the row that comes `count` rows later."""

    @property
    def stored(self) -> Any:
        """The row of a view that is an input, with its values; None for the row of a table alone."""

    @property
    def added(self) -> tuple[Any, Sequence[str], Sequence[Any]] | None:
        """The columns and cells that a joined table adds, after the table; None without one."""


def _moved(entry: Entry | Raw, shift: int) -> Raw:
    """Return an entry of an archive in which it begins so many bytes later."""
    name, start, data, size, stop, kind, link, real = entry
    return name, start + shift, data + shift, size, stop + shift, kind, link, real


OPEN = 2
"""The flag of a sample that an expression has to be evaluated for alone; the others have 0 or 1."""


class Condition(Protocol):
    """An expression that selects samples: a call says whether a sample is selected."""

    def __call__(self, sample: TarSample, policy: Policy) -> bool:
        """Return whether a sample is selected. Raises Problem unless `policy` lets it pass."""

    def flags(self, columns: Columns) -> list[bool] | None:
        """Return which of many samples are selected; None if one of them may be a problem."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the values that it needs."""


ABSENT: Any = object()
"""In place of a value that a row does not have; None is null."""


class SampleBatch:
    """Samples in a row, of which neighbours have different keys: they pass from an origin through steps to an output.

    A step takes and returns batches; whoever needs single samples iterates over them. One sample is a batch as well:
    `TarSample`. A batch of a stream is valid until the next one is read.

    Attributes:
        source: the archive, or a source with the bytes of the samples, one after the other.
        start: where the first sample begins in it.
        stops: where each sample ends in it, and the next one begins.
        keys: the keys of the samples.
        key: the last of them.
        contents: of each sample the content of the field that the reader was asked for; empty if it was asked for none.
        places: of samples that are gathered, the archive of each and its offset there; None for samples in a row.
        plain: all entries are known to be regular files with the key, without gaps.
        rows: of samples of a view their rows, with values; None for others.
        entries_held: the entries of plain samples, and maybe of others around them; None if they are not known.
        first: the number of the first sample among those of `entries_held`.
    """

    unread = False
    """Whether the samples are rows of a view of which no archive was read."""

    __slots__ = (
        "contents",
        "entries_held",
        "first",
        "key",
        "keys",
        "places",
        "plain",
        "rows",
        "source",
        "start",
        "stop",
        "stops",
    )

    source: Source
    start: int
    stop: int
    key: bytes | None
    plain: bool
    rows: Sequence[ViewRow] | None
    entries_held: PlainEntries | None
    first: int
    if TYPE_CHECKING:  # attributes here, properties of TarSample
        keys: Sequence[bytes | None]
        stops: Sequence[int]
        contents: Sequence[bytes]

    def __init__(
        self,
        source: Source,
        start: int,
        keys: Sequence[bytes],
        stops: Sequence[int],
        contents: Sequence[bytes] = (),
        entries: PlainEntries | None = None,
        places: Sequence[tuple[Source, int]] | None = None,
        first: int = 0,
    ) -> None:
        """Make a batch.

        Args:
            source, start, keys, stops, contents, places, first: the attributes.
            entries: those of plain samples; without them headers are read again.
        """
        self.source = source
        self.start = start
        self.keys = keys
        self.key = keys[-1]
        self.stops = stops
        self.stop = stops[-1]
        self.contents = contents
        self.plain = entries is not None
        self.rows = None
        self.entries_held = entries
        self.first = first
        self.places = places

    @property
    def count(self) -> int:
        """The number of samples; 0 for the entries of an archive without samples."""
        return len(self.keys)

    @property
    def first_key(self) -> bytes | None:
        """The key of the first sample."""
        return self.keys[0]

    @property
    def gathered(self) -> bool:
        """Whether each sample has another source and offset when it comes alone."""
        return self.places is not None

    def start_of(self, number: int) -> int:
        """Return where a sample begins in the source."""
        return self.stops[number - 1] if number else self.start

    def part(self, begin: int, stop: int) -> SampleBatch:
        """Return samples [begin, stop), at least one."""
        if begin == 0 and stop == self.count:
            return self
        part = SampleBatch(
            self.source,
            self.start_of(begin),
            self.keys[begin:stop],  # type: ignore[arg-type]
            self.stops[begin:stop],
            self.contents[begin:stop],
            self.entries_held,
            None if self.places is None else self.places[begin:stop],
            self.first + begin,
        )
        part.plain = self.plain
        part.rows = None if self.rows is None else self.rows[begin:stop]
        return part

    def chosen(self, flags: bytes | bytearray) -> Iterator[SampleBatch]:
        """Yield the samples whose flag is 1, of flags that are 0 or 1."""
        begin = flags.find(1)
        while begin >= 0:
            stop = flags.find(0, begin)
            yield self.part(begin, len(flags) if stop < 0 else stop)
            begin = flags.find(1, stop) if stop >= 0 else -1

    def flags(self, condition: Condition) -> bytearray | None:
        """Return for each sample 1 if it is selected, 0 or OPEN; None if no columns with values are at hand."""
        return None

    def in_turn(self, condition: Condition, flags: bytearray, policy: Policy) -> Iterator[SampleBatch]:
        """Yield the samples that are selected; the condition decides about those with the flag OPEN in their turn."""
        for sample, flag in zip(self, flags, strict=False):
            if condition(sample, policy) if flag == OPEN else flag:
                yield sample

    def write(self, writer: EntryWriter, begin: int = 0, end: int | None = None) -> None:
        """Append samples [begin, end) to an archive, by default all."""
        writer.append(self.source, self.start_of(begin), self.stop if end is None else self.stops[end - 1])

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples one by one."""
        return self._singly() if self.rows is None else self._singly_with_rows(self.rows)

    def _singly_with_rows(self, rows: Sequence[ViewRow | None]) -> Iterator[TarSample]:
        joined = getattr(rows, "joined", None)
        for sample, row in zip(self._singly(), rows, strict=False):
            sample.row, sample.plain = row, self.plain
            if joined is not None:
                sample.joined = joined
            yield sample

    def _singly(self) -> Iterator[TarSample]:
        starts: Iterable[int] = chain((self.start,), self.stops)
        if self.places is not None:
            rows = repeat(None) if self.entries_held is None else self.entries_held.rows[self.first :]
            each = zip(self.keys, starts, self.stops, self.places, rows, strict=False)
            for key, start, stop, (source, at), entries in each:
                data = self.source.read(start, stop) if isinstance(self.source, HeldRange) else None
                if entries is not None and at != start:
                    entries = [_moved(entry, at - start) for entry in entries]
                sample = TarSample(key, source, entries, at, at + stop - start, data)
                sample.plain = entries is not None
                yield sample
        elif self.entries_held is None:
            for key, start, stop in zip(self.keys, starts, self.stops, strict=False):
                yield TarSample(key, self.source, None, start, stop)
        else:
            held = self.entries_held.rows[self.first : self.first + len(self.keys)]
            for key, entries, start, stop in zip(self.keys, held, starts, self.stops, strict=False):
                sample = TarSample(key, self.source, entries, start, stop)
                sample.plain = True
                yield sample


class TarSample(SampleBatch):
    """Entries of one key: a batch of one sample.

    Its range, its entries and their headers always agree. So a sample with other fields or names is a new one, with
    a source of its own: `Assembly` makes it.

    Attributes:
        key: the key; None for the entries of an archive without samples.
        source: the archive, or a source made from it.
        start, stop: the byte range of the sample in the source.
        more: reads one more entry of a sample whose end is not known yet; None at the end.
        row: the row of a view that the sample is of, with values; None for others.
        joined: the table that samples were joined with, for messages: its name and columns. Only there if it was.
        left_out: the table whose columns are no values since `set` made fields of some, as `joined`. Only there if so.
        base: the plain sample of which it is made when its entries or its bytes are asked for; None for most samples.
        data: its bytes if they were read with it; else None.
    """

    __slots__ = ("_entries", "_named", "data", "joined", "left_out", "more", "row")

    more: Callable[[], None] | None
    row: ViewRow | None
    joined: tuple[str, Collection[str]]
    left_out: tuple[str, Collection[str]]
    contents = ()
    places = None
    gathered = False
    entries_held = None
    base: TarSample | None = None

    def __init__(
        self,
        key: bytes | None,
        source: Source,
        entries: Sequence[Entry | Raw] | None,
        start: int,
        stop: int,
        data: bytes | None = None,
    ) -> None:
        """Make a sample; without `entries` headers are read when needed. `data` has its bytes if they were read."""
        self.key = key
        self.source = source
        self._entries = entries
        self.start = start
        self.stop = stop
        self.data = data
        self._named = self.plain = False
        self.more = self.row = None

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the sample."""
        yield self

    def part(self, begin: int, stop: int) -> TarSample:
        """Return the sample."""
        return self

    @property
    def count(self) -> int:
        """1, or 0 for the entries of an archive without samples."""
        return int(self.key is not None)

    @property
    def keys(self) -> Sequence[bytes | None]:  # type: ignore[override]
        """The key."""
        return (self.key,)

    @property
    def stops(self) -> Sequence[int]:  # type: ignore[override]
        """The end."""
        return (self.stop,)

    @property
    def rows(self) -> Sequence[ViewRow] | None:  # type: ignore[override]
        """The row."""
        return None if self.row is None else (self.row,)

    @property
    def entries(self) -> list[Entry]:
        """The entries, in order."""
        if not self._named:
            self.entries = list(map(Entry._make, self.raw))
        return self._entries  # type: ignore[return-value]

    @entries.setter
    def entries(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._named = True

    @property
    def raw(self) -> Sequence[Entry | Raw]:
        """The entries as they were read, perhaps plain tuples: faster than `entries` for many samples."""
        if self._entries is None:
            self._entries = list(self._read_again())
        return self._entries

    def _read_again(self) -> Iterator[Raw]:
        """Read the headers of a sample that was found before. Raises TarkitError if they are not there any more."""
        if self.start == self.stop:
            return
        for entry in TarReader(self.source, self.start).raw():
            yield entry
            if entry[4] >= self.stop:
                return
        raise changed(self.source.name)

    def plain_contents(self, data: bytes | None = None) -> dict[str, bytes]:
        """Return the contents of the fields of a plain sample by their names, in order; none if a file is sparse.

        `data` has the bytes of the sample if the caller has read them.
        """
        data = self.data if data is None else data
        if data is None:
            if self.stop - self.start > APART * len(self.raw) and isinstance(self.source, FileSource):
                return self._contents_apart(self.source)
            data = self.source.recent(self.start, self.stop)
        contents, names = {}, field_names
        cut, base = len(self.key or b"") + 1, self.start
        for name, _, start, size, _, _, _, real in self.raw:
            if real >= 0:
                return {}
            start -= base
            contents[names[name[cut:]]] = data[start : start + size]
        return contents

    def _contents_apart(self, source: FileSource) -> dict[str, bytes]:
        """Return the contents, each of which is read by itself: a copy of long ones would take longer."""
        contents, names, cut, read = {}, field_names, len(self.key or b"") + 1, source.read
        for name, _, start, size, _, _, _, real in self.raw:
            if real >= 0:
                return {}
            contents[names[name[cut:]]] = read(start, start + size)
        return contents

    def plain_fields(self) -> tuple[str, ...]:
        """Return the names of the fields of a plain sample."""
        cut, names = len(self.key or b"") + 1, field_names
        return tuple([names[entry[0][cut:]] for entry in self.raw])

    def without_gaps(self) -> TarSample:
        """Return the entries alone if there are other bytes between them, else the sample itself."""
        entries = self.entries
        if all(entry.stop == following.start for entry, following in pairwise(entries)):
            return self
        return self.with_entries(entries)

    def with_entries(self, entries: Iterable[Entry]) -> TarSample:
        """Return a sample of some of the entries."""
        assembly = Assembly(self.source, self.start)
        for entry in entries:
            assembly.keep(self.source, entry)
        return assembly.sample(self.key)

    def complete(self) -> None:
        """Read until the end is known; bytes of a stream that memory cannot hold go to a temporary file."""
        while self.more is not None:
            self.more()

    @property
    def content(self) -> int:
        """The size of the payloads in bytes."""
        return sum(size for _, _, _, size, *_ in self.raw)

    @property
    def size(self) -> int:
        """The size of the sample in an archive, in bytes."""
        return self.stop - self.start

    @property
    def extent(self) -> int:
        """The most bytes that the contents of the fields have together."""
        return self.stop - self.start

    def write(self, writer: EntryWriter, begin: int = 0, end: int | None = None) -> None:
        """Append the sample to an archive; the rest of a sample whose end is not known is read meanwhile."""
        if self.data is not None:
            writer.raw((self.data,), len(self.data))
            return
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
        self._origins: dict[int, tuple[Source, Entry | Raw] | None] = {}
        self._data: list[bytes] = []  # of headers and small payloads at the end

    def keep(self, source: Source, entry: Entry | Raw) -> None:
        """Append an entry of a source as it is."""
        name, start, data, size, stop, kind, link, real = entry
        self._origins[self._stop] = source, entry
        self._append(source, start, stop)
        self._list(name, data - start, size, stop - data, kind, link, real)

    def add(
        self,
        entry: Entry | Raw,
        name: bytes,
        header: bytes,
        content: bytes | tuple[Source, int, int],
        padding: bytes = b"",
        origin: Source | None = None,
    ) -> None:
        """Append an entry like `entry` with this name and header; `content` and `padding` are its payload.

        `origin` is the source of `entry` if the payload is that of `entry` too.
        """
        self._origins[self._stop] = None if origin is None else (origin, entry)
        self._data.append(header)
        if isinstance(content, bytes):
            self._data.append(content)
            length = len(content)
        else:
            length = content[2] - content[1]
            self._append(*content)
        self._data.append(padding)
        self._list(name, len(header), entry[3], length + len(padding), *entry[5:])

    def sample(self, key: bytes | None) -> TarSample:
        """Return the sample."""
        self._join()
        source = AssembledSource(self._origin, self._start, self._pieces)
        source.origins = self._origins
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


def singly(batches: Iterable[SampleBatch]) -> Iterator[TarSample]:
    """Yield the samples of batches one by one."""
    return chain.from_iterable(batches)


def is_safe(name: bytes) -> bool:
    """Return whether a name stays inside the directory to which it is extracted."""
    return name[:1] != b"/" and 0 not in name and (name.find(b"..") < 0 or b".." not in name.split(b"/"))


class Recent:
    """Hashes of the last `limit` keys (None: all), so that memory is bounded whatever their length.

    In one of a billion archives of 200 000 keys, two keys have equal 64-bit hashes.
    """

    def __init__(self, limit: int | None = REMEMBERED) -> None:
        self._order: deque[int] = deque(maxlen=limit)
        self._seen: set[int] | None = None
        self._highest = b""

    def add(self, key: bytes) -> bool:
        """Remember `key`; return whether it was known."""
        seen = self._seen
        if seen is None:
            if key > self._highest:  # while keys ascend, all are new
                self._highest = key
                self._order.append(hash(key))
                return False
            seen = self._seen = set(self._order)
        number = hash(key)
        if number in seen:
            return True
        if len(self._order) == self._order.maxlen:
            seen.discard(self._order[0])
        seen.add(number)
        self._order.append(number)
        return False

    def extend(self, keys: Sequence[bytes]) -> bool:
        """Remember `keys`, at most `limit`, and return True; False, and nothing, if one was known or is there twice."""
        numbers, order = list(map(hash, keys)), self._order
        if self._seen is None and keys[0] > self._highest and all(map(lt, keys, islice(keys, 1, None))):
            self._highest = keys[-1]
            order.extend(numbers)
            return True
        seen = self._seen = set(order) if self._seen is None else self._seen
        new = set(numbers)
        if len(new) < len(numbers) or not seen.isdisjoint(new):
            return False
        if order.maxlen is not None and (forgotten := len(order) + len(numbers) - order.maxlen) > 0:
            seen.difference_update(islice(order, forgotten))
        seen |= new
        order.extend(numbers)
        return True
