"""Keys, fields and samples: the WebDataset convention over the entries of an archive.

The key is the path up to the first dot after the last slash, the field what follows that dot. Consecutive entries with
equal keys are one sample, and so a sample is one byte range. Entries without a key (directories, `README`, `.hidden`)
go with the sample they stand in, or with the one that follows, or at the end with the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from tarkit.errors import Problem, show
from tarkit.problems import Policy
from tarkit.tar import block, pax
from tarkit.tar.walk import Entry, Walk, find_header
from tarkit.tar.walk import Source as WalkSource
from tarkit.tar.writer import Source as WriterSource
from tarkit.tar.writer import Writer

REMEMBERED = 200_000  # keys of one input, to notice that one comes back
LARGE = 16 << 20  # bytes; a larger sample of a stream is passed on before its end is known

PLAIN = frozenset((block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS))
_KEYLESS = frozenset((block.DIRECTORY, block.PAX_GLOBAL, block.GNU_VOLUME, block.GNU_DUMPDIR))


class Source(WalkSource, WriterSource, Protocol):
    """What samples are read from; `tarkit.streams.source` has them."""

    @property
    def seekable(self) -> bool:
        """Whether bytes can be asked for at any time, in any order."""

    @property
    def failure(self) -> Problem | None:
        """Why a stream ended before its end, when the archive itself does not show it."""

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""

    def release(self, pos: int) -> None:
        """What lies before `pos` will not be asked for again."""

    def close(self) -> None:
        """Let go of it."""


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


class Sample:
    """Entries of one key. From a stream it is good until the next one is asked for.

    `parts` is what to write in place of its range, once fields were chosen or names changed. A sample whose end is not
    known yet has `more`, which reads on by one entry and is None at the end. `key` is None for the entries of an
    archive that has no sample at all.
    """

    __slots__ = ("entries", "key", "more", "parts", "source", "start", "stop")

    def __init__(self, key: bytes | None, source: Source, entries: list[Entry], start: int, stop: int) -> None:
        self.key = key
        self.source = source
        self.entries = entries
        self.start = start
        self.stop = stop
        self.parts: list[Part] | None = None
        self.more: Callable[[], None] | None = None

    def complete(self) -> None:
        """Read on until the end is known: what memory cannot hold of a stream goes to a temporary file."""
        while self.more is not None:
            self.more()

    @property
    def size(self) -> int:
        """Bytes that it takes in an archive."""
        if self.parts is None:
            return self.stop - self.start
        return sum(len(part) if isinstance(part, bytes) else part[2] - part[1] for part in self.parts)

    def write(self, writer: Writer) -> None:
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


class Recent:
    """The last so many keys, by their hash: bounded memory whatever their length.

    Two of 200 000 keys have equal hashes of 64 bits once in a billion archives.
    """

    def __init__(self, limit: int = REMEMBERED) -> None:
        self.limit = limit
        self._known: set[int] = set()
        self._order: deque[int] = deque()

    def add(self, key: bytes) -> bool:
        """Remember `key`; True if it was here already."""
        number = hash(key)
        known = self._known
        if number in known:
            return True
        known.add(number)
        self._order.append(number)
        if len(known) > self.limit:
            known.discard(self._order.popleft())
        return False


class Samples:
    """Iterate over the samples of one archive, in order.

    `earlier` remembers the keys of all inputs, where there are several. `moves` says that samples will not stay where
    they are, which hard links cannot bear. `lag` keeps a stream's sample good until the next but one is asked for.
    Afterwards `zeros` is the length of the end marker with its padding if the archive was read whole and without loss,
    else None, and `dropped` how many samples the policy left out.

    Raises:
        Problem: what `policy` does not let pass.
    """

    def __init__(
        self, source: Source, policy: Policy, *, earlier: Recent | None = None, moves: bool = True, lag: bool = False
    ) -> None:
        self.source = source
        self.policy = policy
        self.moves = moves
        self.lag = lag
        self.zeros: int | None = None
        self.dropped = 0
        self._earlier = earlier
        self._recent = Recent()
        self._damaged = False
        self._glued = False  # another archive follows the end marker
        self._over = False
        self._opened: Sample | None = None
        self._doubt = False  # damage may have taken the first entries of the next sample
        self._strays: list[Entry] = []
        self._walk = Walk(source)
        self._entries: Iterator[Entry] = iter(self._walk)

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples."""
        source, strays = self.source, self._strays
        room = LARGE if not source.seekable and not self.policy.lenient else 1 << 62
        current: Sample | None = None
        entries: list[Entry] = []
        start, prefix, length, last, good, plain = 0, b"", 0, b"", True, True
        while True:
            try:
                for entry in self._entries:
                    name = entry[0]
                    if length and name.startswith(prefix) and entry[5] == b"0" and name.find(b"/", length) < 0:
                        if strays or name <= last:
                            plain = False
                            entries += strays
                            strays.clear()
                        last = name
                        entries.append(entry)
                        current.stop = entry[4]  # type: ignore[union-attr]
                    elif (key := _key(entry)) is None:
                        strays.append(entry)
                        continue
                    elif current is not None and key == current.key and not self._glued:
                        plain = False
                        entries += [*strays, entry]
                        strays.clear()
                        current.stop = entry[4]
                    else:
                        if current is not None:
                            if (plain or self._examine(current)) and good:
                                yield current
                            else:
                                self.dropped += 1
                        start = strays[0].start if strays else entry[1]
                        source.release(current.start if self.lag and current is not None else start)
                        plain = not strays and entry[5] in PLAIN
                        entries = [*strays, entry]
                        strays.clear()
                        current = Sample(key, source, entries, start, entry[4])
                        good = self._open(current)
                        prefix, last = key + b".", name
                        length = len(prefix)
                    if entry[4] - start > room:
                        break
                else:
                    self._end()
                    break
                assert current is not None
                self._examine(current)
                current.more = self._advance
                self._opened = current
                yield current
                self._drain(current)
                current, length = None, 0
            except Problem as problem:
                current, good = self._mend(problem, current, good)
                length = 0
                if self._over:
                    break
        if strays and good:
            current = self._with_strays(current)
        if current is not None:
            if self._examine(current) and good:
                yield current
            else:
                self.dropped += 1

    def _open(self, sample: Sample) -> bool:
        """Whether a sample that begins here is good, by its key and by what went before."""
        assert sample.key is not None
        key, offset = sample.key, sample.entries[-1].start
        good = not self._doubt
        self._doubt = self._glued = False
        if self._recent.add(key):
            good = self._judge("scattered-sample", offset, f"the key {show(key)} comes back") and good
        elif self._earlier is not None and self._earlier.add(key):
            good = self._judge("repeated-key", offset, f"the key {show(key)} was in an earlier input") and good
        if b".." in key or key[0] == 0x2F or b"\0" in key:
            good = self._check_name(sample.entries[-1]) and good
        return good

    def _check_name(self, entry: Entry) -> bool:
        if is_safe(entry.name):
            return True
        return self._judge("unsafe-name", entry.start, f"the name {show(entry.name)} is not safe to extract")

    def _examine(self, sample: Sample) -> bool:
        """Whether no name is there twice, and all entries mean the same elsewhere."""
        good = True
        names: set[bytes] = set()
        for entry in sample.entries:
            if entry.name in names and entry.type not in _KEYLESS:
                good = self._judge("duplicate-entry", entry.start, f"{show(entry.name)} is there twice") and good
            if self.moves and entry.type == block.HARD_LINK and entry.link not in names:
                what = f"{show(entry.name)} is a hard link to {show(entry.link)}, which may end up elsewhere"
                good = self._judge("unmovable-entry", entry.start, what) and good
            if self.moves and entry.type == block.PAX_GLOBAL and self._says_more(entry):
                what = "a global PAX header is about all entries that follow it"
                good = self._judge("unmovable-entry", entry.start, what) and good
            names.add(entry.name)
        return good

    def _says_more(self, entry: Entry) -> bool:
        payload = self.source.read(entry.data, entry.data + entry.size)
        return any(keyword != b"comment" for keyword, _ in pax.parse_pairs(payload))

    def _judge(self, name: str, offset: int, what: str) -> bool:
        return self.policy.judge(Problem(name, self.source.name, offset, what)) == "keep"

    def _with_strays(self, sample: Sample | None) -> Sample:
        """Entries without key at the end of the archive go with the last sample."""
        strays = list(self._strays)
        self._strays.clear()
        if sample is None:
            return Sample(None, self.source, strays, strays[0].start, strays[-1].stop)
        sample.entries += strays
        sample.stop = strays[-1].stop
        return sample

    def _advance(self) -> None:
        """Read on by one entry of the sample whose end is not known yet."""
        sample = self._opened
        assert sample is not None
        while True:
            try:
                entry = next(self._entries, None)
            except Problem as problem:
                self._mend(problem, sample, True)
                entry = None
            if entry is None:
                if self.source.failure is not None:
                    raise self.source.failure
                if self._strays:
                    self._with_strays(sample)
                break
            key = _key(entry)
            if key is None:
                self._strays.append(entry)
            elif key == sample.key and not self._glued:
                sample.entries += [*self._strays, entry]
                self._strays.clear()
                sample.stop = entry.stop
                self._examine(sample)
                return
            else:
                self._entries = chain((entry,), self._entries)
                break
        sample.more = None

    def _drain(self, sample: Sample) -> None:
        while sample.more is not None:
            self.source.release(sample.stop)
            sample.more()

    def _mend(self, problem: Problem, current: Sample | None, good: bool) -> tuple[Sample | None, bool]:
        """Do what the policy says about damage; what is left of the current sample, and whether it is good."""
        problem = self.source.failure or problem
        keep = self.policy.judge(problem) == "keep"
        self._damaged = True
        if problem.name == "trailing-data":
            self._over = not keep
            if keep:
                self._glued = True
                self._restart(self._walk.resume)
            return current, good
        broken = self._walk.broken
        if current is not None:
            current.entries[:] = [entry for entry in current.entries if entry.start < broken]
        self._strays[:] = [entry for entry in self._strays if entry.start < broken]
        if current is not None and not keep:
            good = False
            self._strays.clear()
        if current is not None:
            if not current.entries:
                current = None
            else:
                current.stop = current.entries[-1].stop
        pos = None
        if problem.name == "bad-header":
            if not keep:
                self.dropped += current is not None
                current, good, self._doubt = None, True, True
                self.source.release(self._walk.resume)
            pos = find_header(self.source, self._walk.resume)
        if pos is None:
            self._over = True
        else:
            self._restart(pos)
        return current, good

    def _restart(self, pos: int) -> None:
        self._walk = Walk(self.source, pos)
        self._entries = iter(self._walk)

    def _end(self) -> None:
        if self.source.failure is not None:
            raise self.source.failure
        if not self._damaged and not self.dropped:
            assert self._walk.end is not None
            assert self._walk.marker is not None
            self.zeros = self._walk.end - self._walk.marker


def is_safe(name: bytes) -> bool:
    """Whether a name stays inside the folder that it is extracted to."""
    return not name.startswith(b"/") and b"\0" not in name and b".." not in name.split(b"/")


def _key(entry: Entry) -> bytes | None:
    parts = None if entry.type in _KEYLESS else split_name(entry.name)
    return None if parts is None else parts[0]
