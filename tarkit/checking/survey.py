"""All entries of an archive whatever is wrong with it, and between them what is: nothing stops before the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tarkit.errors import Problem
from tarkit.samples.reader import find_beyond
from tarkit.samples.sample import key_of
from tarkit.streams.source import Source
from tarkit.tar import block as blocks
from tarkit.tar.reader import Raw, TarReader, find_header, is_header


class Damage(NamedTuple):
    """Bytes [start, stop) of an archive that hold no whole entry, or the border where two archives were glued.

    `key` is that of the entry that is cut there, where its header can be read. The empty `type` tells a Damage from an
    entry.
    """

    problem: Problem
    start: int
    stop: int
    key: bytes | None
    glued: bool
    type: bytes = b""


class Survey:
    """Iterate over the entries of an archive from `pos` on, with a Damage wherever some are missing.

    The bytes of an entry can be read until the next is asked for, but nothing else may peek meanwhile. Afterwards `end`
    is the length of the archive, as far as there was one, `marker` where its end marker begins, if it has one, and
    `nul` says whether a name has a NUL in it.

    Raises:
        Unsupported: a multi-volume archive.
        OSError, CommandFailed: it cannot be read.
    """

    def __init__(self, source: Source, pos: int = 0) -> None:
        self.source = source
        self.end = 0
        self.marker: int | None = None
        self._walk = TarReader(source, pos)
        self._found = False  # a whole entry, before the last time that the walk began anew
        self._over = False
        self._told = False  # why a stream ended before its end

    @property
    def nul(self) -> bool:
        """Whether a name of the entries so far, since the last damage, has a NUL in it."""
        return self._walk.nul

    @property
    def found(self) -> bool:
        """Whether there was a whole entry, once all is read; of a stream, a cut one is yielded too."""
        return self._found or self._walk.found

    @property
    def odd_end(self) -> str | None:
        """What is odd about the zeros at the end, if they are not those that programs write.

        These are two blocks, or fill a record of 10 KiB. Of a file whose rest never came, zeros may be the rest.
        """
        if self.marker is None:
            return None
        zeros = self.end - self.marker
        if self.end % blocks.BLOCK:
            return f"the archive has {self.end} bytes, no multiple of {blocks.BLOCK}: some were lost or added"
        if zeros < 2 * blocks.BLOCK + blocks.RECORD and (zeros <= 2 * blocks.BLOCK or self.end % blocks.RECORD == 0):
            return None
        return f"{zeros} bytes of zeros are at the end, as tar -b leaves them, and a file that is not complete"

    def __iter__(self) -> Iterator[Raw | Damage]:
        """Yield the entries and what is between them."""
        release = None if self.source.seekable else self.source.release
        while not self._over:
            try:
                if release is None:
                    yield from self._walk.raw()
                else:
                    for entry in self._walk.raw():
                        release(entry[1])
                        yield entry
                self.end, self.marker = self._walk.end or 0, self._walk.marker
                self._over = True
            except Problem as problem:
                yield self._mend(problem)
        if self.source.failure is not None and not self._told:
            yield self._broken(self.source.failure, self.end)

    def _mend(self, problem: Problem) -> Damage:
        """What a problem leaves of the archive; where it goes on, the walk does."""
        source, walk = self.source, self._walk
        if source.failure is not None or problem.name in ("truncated", "no-end-marker"):
            self._over = True
            return self._broken(source.failure or problem, walk.broken)
        source.release(walk.broken)
        if problem.name == "trailing-data":
            glued = is_header(bytes(source.peek(walk.resume, 512)[:512]))
            going_on = walk.resume if glued else find_header(source, walk.resume, source.release)
            return self._damage(problem, walk.resume, going_on, glued=True)
        return self._damage(problem, walk.broken, find_beyond(source, walk.resume - 512, walk.broken, source.release))

    def _broken(self, problem: Problem, start: int) -> Damage:
        """The archive ends too early, with bytes from `start` on that are no whole entry."""
        self.end = self.source.size or 0
        self._told = self.source.failure is not None
        offset = self.end if problem.offset is None else problem.offset
        problem = Problem(problem.name, problem.archive, offset, problem.detail, problem.hint)
        cut = self._walk.cut
        return Damage(problem, min(start, self.end), self.end, key_of(cut) if cut else None, False)

    def _damage(self, problem: Problem, start: int, going_on: int | None, glued: bool = False) -> Damage:
        if going_on is None:
            self._over = True
            self.end = going_on = self.source.size or 0
        else:
            self._found = self.found
            self._walk = TarReader(self.source, going_on)
        return Damage(problem, start, going_on, None, glued)
