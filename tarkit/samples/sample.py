"""Keys, fields and samples: the WebDataset convention over the entries of an archive.

The key is the path up to the first dot after the last slash, the field what follows that dot. Consecutive entries with
equal keys are one sample, and so a sample is one byte range. Entries without a key (directories, `README`, `.hidden`)
go with the sample they stand in, or with the one that follows, or at the end with the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw
from tarkit.tar.writer import EntryWriter

KEYLESS = frozenset((block.DIRECTORY, block.PAX_GLOBAL, block.GNU_VOLUME, block.GNU_DUMPDIR))
REMEMBERED = 200_000  # keys of one input, to notice that one comes back


Part = bytes | tuple[Source, int, int]  # new bytes, or a range


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Key and field of an entry's name, None when it has no key.

    >>> split_name(b"d.1/a.seg.png")
    (b'd.1/a', b'seg.png')
    """
    slash = name.rfind(b"/") + 1
    dot = name.find(b".", slash)
    if dot <= slash:
        return None
    return name[:dot], name[dot + 1 :]


def key_of(entry: Entry) -> bytes | None:
    """The key of an entry; None for what is no file, or has no key in its name."""
    parts = None if entry.type in KEYLESS else split_name(entry.name)
    return None if parts is None else parts[0]


class TarSample:
    """Entries of one key. From a stream it is good until the next one is asked for.

    `parts` is what to write in place of its range, once fields were chosen or names changed. A sample whose end is not
    known yet has `more`, which reads on by one entry and is None at the end. `plain` says that its entries are files
    with a key, one behind the other; False leaves that open. `key` is None for the entries of an archive that has no
    sample at all.
    """

    __slots__ = ("_entries", "_named", "key", "more", "parts", "plain", "source", "start", "stop")

    parts: list[Part] | None
    more: Callable[[], None] | None

    def __init__(
        self, key: bytes | None, source: Source, entries: Sequence[Entry | Raw], start: int, stop: int
    ) -> None:
        self.key = key
        self.source = source
        self._entries = entries
        self.start = start
        self.stop = stop
        self._named = self.plain = False  # in few steps: there are very many samples
        self.parts = self.more = None

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
    def raw(self) -> Sequence[Entry | Raw]:
        """The same as plain tuples, where it is them that were read: for who looks at many samples."""
        return self._entries

    def leave_gaps(self) -> None:
        """Write the entries alone, when other bytes lie between them."""
        entries = self.entries
        if any(entry.stop != following.start for entry, following in pairwise(entries)):
            self.parts = [(self.source, entry.start, entry.stop) for entry in entries]

    def complete(self) -> None:
        """Read on until the end is known: what memory cannot hold of a stream goes to a temporary file."""
        while self.more is not None:
            self.more()

    @property
    def content(self) -> int:
        """Bytes of payload in it."""
        return sum(entry[3] for entry in self._entries)

    @property
    def size(self) -> int:
        """Bytes that it takes in an archive."""
        if self.parts is None:
            return self.stop - self.start
        return sum(len(part) if isinstance(part, bytes) else part[2] - part[1] for part in self.parts)

    def write(self, writer: EntryWriter) -> None:
        """Append it to an archive; one whose end is not known is read on meanwhile."""
        if self.parts is not None:
            for part in self.parts:
                if isinstance(part, bytes):
                    writer.raw((part,), len(part))
                else:
                    writer.append(*part)
            return
        writer.append(self.source, self.start, self.stop)
        while self.more is not None:
            stop = self.stop
            writer.flush()
            self.source.release(stop)
            self.more()
            if self.stop > stop:
                writer.append(self.source, stop, self.stop)


def is_safe(name: bytes) -> bool:
    """Whether a name stays inside the folder that it is extracted to."""
    return name[:1] != b"/" and 0 not in name and (name.find(b"..") < 0 or b".." not in name.split(b"/"))


class Recent:
    """The last `limit` keys (None: all), by their hash: bounded memory whatever their length.

    Two of 200 000 keys have equal hashes of 64 bits once in a billion archives.
    """

    def __init__(self, limit: int | None = REMEMBERED) -> None:
        self._order: deque[int] = deque(maxlen=limit)
        self._known: set[int] | None = None
        self._highest = b""

    def add(self, key: bytes) -> bool:
        """Remember `key`; True if it was here already."""
        known = self._known
        if known is None:
            if key > self._highest:  # as long as keys ascend none can have been here
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
