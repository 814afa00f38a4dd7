"""Read all entries of a damaged archive, and locate the damage between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tarkit.errors import Problem
from tarkit.samples.damage import find_beyond
from tarkit.samples.groups import EntryGroups, Group, plain_groups
from tarkit.samples.sample import key_of
from tarkit.sizes import plural
from tarkit.streams.source import Source
from tarkit.tar import block as blocks
from tarkit.tar.reader import Entry, Raw, TarReader, find_header, is_header


class Damage(NamedTuple):
    """Bytes [start, stop) of an archive without a whole entry, or the border between two concatenated archives.

    Attributes:
        start, stop: the bytes.
        key: the key of an entry that is cut there, if its header can be read.
        marker: at a border the offset of the end marker of the first archive, else None.
        cut: the name of that entry.
    """

    problem: Problem
    start: int
    stop: int
    key: bytes | None
    marker: int | None = None
    cut: bytes | None = None


SurveyedSample = tuple[bytes | None, list[Raw], bool]
"""Key, entries and whether they are plain, as of `EntryGroups.read`; a key of None for the entries without a key."""


class Survey:
    """Iterate over the entries of an archive up to the next damage; the next iteration continues after it.

    Args:
        source: the archive. Of a stream, the bytes of an entry can be read until the next entry is requested.
        pos: the offset of the first entry.
        on_entry: called with every entry before it is yielded.

    After each iteration `damage` is the damage that ended it, None at the end of the archive. At the end `end` is the
    length of the archive as far as it could be read and `marker` the offset of its end marker, if it has one. `groups`
    has the sample that is not complete.

    Raises:
        Unsupported: a multi-volume archive.
        OSError, CommandFailed: the archive cannot be read.
    """

    def __init__(self, source: Source, pos: int = 0, on_entry: Callable[[Entry], None] | None = None) -> None:
        self.source = source
        self.end = 0
        self.marker: int | None = None
        self.damage: Damage | None = None
        self.groups = EntryGroups()
        self._on_entry = on_entry
        self._reader = TarReader(source, pos)
        self._had_entry = False  # there was a whole entry before the last restart
        self._over = False
        self._reported = False  # the error that ended a stream

    @property
    def special(self) -> bool:
        """Whether since the last damage a name contains a NUL, or an entry is a sparse file."""
        return self._reader.nul or self._reader.sparse

    @property
    def has_entry(self) -> bool:
        """Whether there was a whole entry, at the end of the archive; of a stream, a cut entry is yielded too."""
        return self._had_entry or self._reader.has_entry

    @property
    def odd_end(self) -> str | None:
        """A message about an unusual number of zeros at the end.

        None for two blocks, or as many as fill a record of 10 KiB. A file whose transfer was interrupted may end with
        zeros in place of its last entries.
        """
        if self.marker is None:
            return None
        zeros = self.end - self.marker
        if zeros < 2 * blocks.BLOCK + blocks.RECORD and (zeros <= 2 * blocks.BLOCK or self.end % blocks.RECORD == 0):
            return None
        return f"{plural(zeros, 'byte')} of zeros at the end, as written by tar -b or left by an incomplete transfer"

    def __iter__(self) -> Iterator[Raw]:
        """Yield the entries up to the next damage."""
        self.damage = None
        if not self._over:
            try:
                if self.source.seekable and self._on_entry is None:
                    yield from self._reader.raw()
                else:
                    yield from self._one_by_one()
                self.end, self.marker = self._reader.end or 0, self._reader.marker
                self._over = True
            except Problem as problem:
                self.damage = self._locate(problem)
                return
        if self.source.failure is not None and not self._reported:
            self.damage = self._truncation(self.source.failure, self.end)

    def samples(self, *, apart: bool = False) -> Iterator[SurveyedSample | Damage]:
        """Yield the samples, and each damage after the samples before it.

        A sample that damage interrupts goes on after it; if damage is the end of an archive, or with `apart`, its
        entries before the damage are a sample of their own, which with `apart` precedes the damage.
        """
        groups, reads_each = self.groups, self._on_entry is not None
        while True:
            yield from groups.read(self, ahead=self._ahead if not reads_each and self._reader.accelerated else None)
            if self.damage is None:
                break
            if apart:
                yield *groups.take(), False
            yield self.damage
            groups.cut(self.damage.start)
            if self.damage.marker is not None and not apart:
                yield *groups.take(), False
        yield *groups.finish(), False

    def _ahead(self, entry: Raw) -> Sequence[Group]:
        return plain_groups(self._reader, entry)  # of the current reader: there is another one after damage

    def _one_by_one(self) -> Iterator[Raw]:
        for entry in map(Entry._make, self._reader.raw()):
            self.source.release(entry.start)
            if self._on_entry is not None:
                try:
                    self._on_entry(entry)
                except Problem:
                    self._reader.broken = entry.start
                    raise
            yield entry

    def entries(self) -> Iterator[Raw]:
        """Yield all entries, before and after damage."""
        yield from self
        while self.damage is not None:
            yield from self

    def _locate(self, problem: Problem) -> Damage:
        """Return the bytes that a problem affects, and continue at the next entry after them, if any."""
        source, reader = self.source, self._reader
        if problem.name in ("truncated", "zero-filled", "no-end-marker", "bad-data"):
            self._over = True
            return self._truncation(source.failure or problem, reader.broken)
        source.release(reader.broken)
        if problem.name == "trailing-data":
            start, marker = reader.resume, reader.marker
            resume: int | None = start
            if not is_header(bytes(source.peek(start, blocks.BLOCK)[: blocks.BLOCK])):
                resume = find_header(source, start, source.release)
        else:
            start, marker = reader.broken, None
            resume = find_beyond(source, reader.resume - blocks.BLOCK, start, source.release)
        if resume is None:
            self._over = True
            self.end = resume = source.size or 0
        else:
            self._had_entry = self.has_entry
            self._reader = reader.restart(resume)
        return Damage(problem, start, resume, None, marker)

    def _truncation(self, problem: Problem, start: int) -> Damage:
        """Return the damage of an archive that ends too early: the bytes from `start` on are not a whole entry."""
        self.end = self.source.size or 0
        self._reported = self.source.failure is not None
        offset = self.end if problem.offset is None else problem.offset
        problem = Problem(problem.name, problem.archive, offset, problem.detail, problem.hint)
        cut = self._reader.cut
        key, name = (key_of(cut), cut.name) if cut else (None, None)
        return Damage(problem, min(start, self.end), self.end, key, cut=name)
