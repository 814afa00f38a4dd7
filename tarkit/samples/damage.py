"""Damage of one archive: which samples it takes along, and where reading goes on after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tarkit.errors import Problem, TarkitError, show, spell
from tarkit.problems import Policy
from tarkit.samples.groups import DAMAGED, EntryGroups
from tarkit.samples.sample import TarSample, key_of
from tarkit.sizes import plural
from tarkit.streams import source as streams
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw, TarReader, find_entry


def find_beyond(source: Source, header: int, kept: int, passed: Callable[[int], None] | None) -> int | None:
    """Return where reading can resume after the damaged header at `header` (see `find_entry`); None if nowhere.

    In a stream the content of the damaged entry is passed over only if its bytes from `kept` on, which are still
    needed, stay in memory.
    """
    reach = 1 << 62 if source.seekable else streams.HELD // 4 - (header - kept)
    return find_entry(source, header, reach, passed)


class Recovery:
    """The reader of the entries of one archive, and what damage has done to its samples so far.

    Each damage is passed to `pass_over`, which asks the policy. A sample that may have lost entries is left out, named
    and counted once.

    Attributes:
        reader: reads the entries; another one after damage that is passed over.
        over: no entries follow.
        dropped: the number of samples that were left out.
        suspect: damage may have taken the first entries of the next sample.
        final_error: damage to raise once all samples before it were yielded; with `partial` only.
    """

    def __init__(self, source: Source, policy: Policy, groups: EntryGroups, pos: int, partial: bool) -> None:
        self._source = source
        self._policy = policy
        self._groups = groups
        self._partial = partial
        self.reader = TarReader(source, pos)
        self.over = False
        self.dropped = 0
        self.suspect = False
        self.final_error: Problem | None = None
        self._first: Problem | None = None  # the first damage that the policy let pass
        self._had_entry = False  # there was a whole entry before the last restart
        self._lost: bytes | None = None  # the key of the sample that was left out before the damage

    @property
    def damaged(self) -> bool:
        """Whether there was damage that the policy let pass."""
        return self._first is not None

    def pass_over(self, problem: Problem, begun: TarSample | None) -> bool:
        """Apply the policy to damage: end, or go on behind it. Where it is kept, so are all whole entries.

        Args:
            problem: the damage, which ended the entries of `reader`.
            begun: a sample whose end is not known, and whose bytes are still needed.

        Returns:
            Whether the sample that is incomplete then is whole as far as damage goes: behind a header that is passed
            over it is the next one, since the one before was left out.

        Raises:
            Problem: damage that the policy does not let pass.
        """
        if problem.name == "bad-header" and self._source.codec is not None:
            problem = self._failure_behind(problem)
        reader, groups, failure = self.reader, self._groups, self._source.failure
        if problem.name in ("truncated", "zero-filled", "no-end-marker"):
            problem = failure or problem
        keep = self._is_kept(problem)
        self._first = self._first or problem
        if problem is failure and reader.end is not None and problem.name != "bad-data":  # behind the end marker
            self.over = True
            return True
        if problem.name == "trailing-data" and problem is not failure:
            return self._end_before_data(keep)
        groups.cut(reader.broken)
        if not keep:
            groups.keyless.clear()
        if problem.name != "bad-header" or problem is self.final_error:
            self.over = True
            next_is_cut = (
                reader.cut is not None and problem.name == "truncated" and key_of(reader.cut) not in (None, groups.key)
            )
            return keep or next_is_cut
        return self._go_on_behind_header(keep, begun)

    def _go_on_behind_header(self, keep: bool, begun: TarSample | None) -> bool:
        """Continue with the next header that is valid, or end; return what `pass_over` does."""
        reader, groups = self.reader, self._groups
        header = reader.resume - block.BLOCK
        if not keep:
            self._leave_out(*groups.take())
            self._source.release(header)
        needed = [entry[1] for entry in (*groups.entries[:1], *groups.keyless[:1])]
        if begun is not None and begun.more is not None:
            needed.append(begun.start)
        passed = None if keep else self._source.release
        pos = find_beyond(self._source, header, min(needed, default=header), passed)
        self.over = pos is None
        if pos is not None:
            self._restart(pos)
            return True
        self._say_rest("no valid header follows: ")
        return self._source.failure is None or self._policy.apply(self._source.failure) == "keep"

    def take_along(self, key: bytes, start: int) -> bool:
        """Return whether the next sample has to be left out, as the damage before `start` may have taken entries of it.

        It is the rest of the sample that was left out before, which is counted once, or another one, which is named.
        """
        if not self.suspect:
            return False
        self.suspect = False
        if key == self._lost:  # named and counted before the damage
            self.dropped -= 1
        else:
            self._say_left_out(key, start, "before")
        return True

    def take_last_along(self, key: bytes | None, start: int) -> None:
        """Name the last sample, which is left out."""
        if not self.suspect:
            self._say_left_out(key, start, "after")

    def finish(self) -> None:
        """Raise damage that was kept for the end, and say what cannot be decoded."""
        if self.final_error is not None:
            raise self.final_error
        failure = self._source.failure
        if failure is not None and failure.name == "bad-data" and self.reader.marker is None:
            words = "the rest cannot be decoded: its samples are left out, and not counted"
            self._policy.warn(f"{self._source.name}: at {self.reader.broken}: {words}")

    def check_has_entry(self) -> None:
        """Raise the allowed damage if there is no whole entry: the input is not an archive, and may be left out as one.

        Zero bytes may be an archive.
        """
        problem = self._first
        empty = self._source.size == 0 and self._source.failure is None
        if problem not in (None, self.final_error) and not (empty or self._had_entry or self.reader.has_entry):
            message = f"no whole entry was found: {problem.detail}"
            hint = f"{spell('allow')} and {spell('skip')} cannot read an archive without a whole entry"
            error = Problem(problem.name, problem.archive, problem.offset, message, problem.hint or hint)
            self._policy.leave_out(problem.archive, error)

    def _leave_out(self, key: bytes | None, entries: list[Raw]) -> None:
        """Leave out the incomplete sample before damage, and suspect the next one. A sample is counted once."""
        reported = self.suspect and (not entries or key == self._lost)  # left out for the damage before this
        if entries and not reported:
            self.dropped += 1
            self._say_left_out(key, entries[0][1], "after")
        if not reported:
            self._lost = key
        self.suspect = True

    def _say_left_out(self, key: bytes | None, start: int, where: str) -> None:
        if key is not None:
            words = f"is left out: the damage {where} it may have destroyed some of its entries"
            self._policy.warn(f"{self._source.name}: at {start}: the sample {show(key)} {words}")

    def _say_rest(self, why: str = "") -> None:
        size, start = self._source.size, self.reader.broken
        rest = "the rest" if size is None else f"the rest, {plural(size - start, 'byte')},"
        self._policy.warn(f"{self._source.name}: at {start}: {why}{rest} is left out")

    def _failure_behind(self, problem: Problem) -> Problem:
        """Return the damage of the compression if it is found at once behind a bad header, which comes from it then."""
        self._source.peek(self.reader.broken, DAMAGED)
        failure = self._source.failure
        return failure if failure is not None and failure.name == "bad-data" else problem

    def _end_before_data(self, keep: bool) -> bool:
        """Continue behind an end marker, or end there; return whether the incomplete sample is kept."""
        reader, groups = self.reader, self._groups
        if keep and self.final_error is None:
            if reader.filled is not None and not self._is_kept(reader.filled):
                self._leave_out(*groups.take())
            groups.sever()
            self._restart(reader.resume)
        self.over = not keep or self.final_error is not None
        if not keep:
            self._say_rest()
        return keep or not self._is_torn()

    def _is_torn(self) -> bool:
        """Return whether the zeros before trailing data are taken for damage inside of the incomplete sample.

        They are if the next sample has the same key, or fields that this sample lacks.
        """
        key, before = self._groups.key, {entry[0] for entry in self._groups.entries if key_of(Entry._make(entry))}
        if self.reader.torn:
            return True
        walk, after, next_key = self.reader.restart(self.reader.resume), set[bytes](), None
        with suppress(TarkitError):
            for entry in walk:
                if (entry_key := key_of(entry)) is not None and entry_key != (next_key := next_key or entry_key):
                    break
                after |= {entry.name} if entry_key is not None else set()
        if walk.cut is not None and key_of(walk.cut) == next_key:
            after.add(walk.cut.name)
        if key is None or next_key is None:
            return False
        return key == next_key or not {name[len(next_key) :] for name in after} <= {name[len(key) :] for name in before}

    def _is_kept(self, problem: Problem) -> bool:
        """Return whether the samples that damage touches are kept; with `partial` store damage that ends the run."""
        try:
            return self._policy.apply(problem) == "keep"
        except Problem:
            if not self._partial:
                raise
            self.final_error = problem
            return True

    def _restart(self, pos: int) -> None:
        self._had_entry = self._had_entry or self.reader.has_entry
        self.reader = self.reader.restart(pos)
