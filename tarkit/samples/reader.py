"""Read the samples of one archive in order, also after damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain

from tarkit.errors import Problem, TarkitError, show, spell
from tarkit.problems import Policy
from tarkit.samples.checks import EntryChecks
from tarkit.samples.groups import DAMAGED, LARGE, NO_LIMIT, BatchFinder, EntryGroups, Group
from tarkit.samples.sample import Recent, SampleBatch, TarSample, is_safe, key_of, singly
from tarkit.streams import source as streams
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw, TarReader, find_entry


def find_beyond(source: Source, header: int, kept: int, passed: Callable[[int], None] | None) -> int | None:
    """Return where reading can resume after the damaged header at `header` (see `find_entry`); None if nowhere.

    In a stream the search is limited, so that its bytes from `kept` on, which are still needed, stay in memory.
    """
    reach = 1 << 62 if source.seekable else streams.HELD // 4 - (header - kept)
    return find_entry(source, header, reach, passed)


def _never(key: bytes) -> bool:
    return False


class SampleReader:
    """Iterate over the samples of one archive, in order.

    Args:
        source: the archive.
        policy: decides about problems.
        moves: samples will be written elsewhere, so that hard links and global PAX headers are checked.
        gather: the parts of scattered samples are put together later, so that a key may occur again.
        pos: where to start: the offset of an entry.
        field: a field of which batches have the contents, as it is spelled.

    With `partial` the samples before damage that ends the run are yielded before the error is raised, the last one
    perhaps incomplete. After the iteration `zeros` is the length of the end marker with its padding if the archive was
    read whole and without loss, else None, and `dropped` the number of samples that the policy left out.

    Raises:
        Problem: a problem that `policy` does not let pass; damage of an input without a whole entry, whatever the
            policy.
    """

    partial = False

    def __init__(
        self,
        source: Source,
        policy: Policy,
        *,
        moves: bool = True,
        gather: bool = False,
        pos: int = 0,
        field: bytes | None = None,
    ) -> None:
        self.source = source
        self.policy = policy
        self.zeros: int | None = None
        self.dropped = 0
        self._checks = EntryChecks(source, policy, moves)
        self._keys = None if gather else Recent()
        self._is_repeated = _never if self._keys is None else self._keys.add
        self._finder = BatchFinder(source, field)
        # Large samples are yielded before their end is known.
        self._early = not source.seekable and not policy.lenient
        self._final_error: Problem | None = None  # damage to raise at the end
        self._first_damage: Problem | None = None  # the first damage that the policy let pass
        self._had_entry = False  # there was a whole entry before the last restart
        self._damaged = False
        self._suspect = False  # damage may have taken the first entries of the next sample
        self._lost: bytes | None = None  # the key of the sample that was left out before the damage
        self._over = False
        self._unfinished: TarSample | None = None  # the last sample that was yielded before its end was known
        self._groups = EntryGroups()
        self._reader = TarReader(source, pos)
        self._unread = self._reader.raw()
        self._entries = self._unread  # or these after one that was read in advance

    @property
    def marker(self) -> int | None:
        """The offset of the end marker, once it was reached."""
        return self._reader.marker

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples one by one."""
        return singly(self.batches())

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the samples, plain ones in batches if their names are safe and their keys are new."""
        good = True
        while not self._over:
            try:
                yield from self._batches()
            except Problem as problem:
                good = self._handle(problem)
        self._check_has_entry()
        yield from self._close(good)
        if self._final_error is not None:
            raise self._final_error
        failure = self.source.failure
        if failure is not None and failure.name == "bad-data" and self._reader.marker is None:
            what = "the rest cannot be decoded: its samples are left out, and not counted"
            self.policy.warn(f"{self.source.name}: at {self._reader.broken}: {what}")

    def _check_has_entry(self) -> None:
        """Raise the allowed damage if there is no whole entry: the input is not an archive. Zero bytes may be one."""
        problem = self._first_damage
        empty = self.source.size == 0 and self.source.failure is None
        if problem not in (None, self._final_error) and not (empty or self._had_entry or self._reader.has_entry):
            what = f"no whole entry was found: {problem.detail}"
            hint = f"{spell('allow')} and {spell('skip')} cannot read an archive without a whole entry"
            raise Problem(problem.name, problem.archive, problem.offset, what, problem.hint or hint)

    def _batches(self) -> Iterator[SampleBatch]:
        """Yield samples up to the end, to damage, or to a sample that is yielded before its end is known."""
        source, reader, release, is_repeated = self.source, self._reader, self.source.release, self._is_repeated
        limit = LARGE if self._early and not self._damaged else NO_LIMIT
        for group in self._groups.read(self._entries, limit, self._ahead):
            if isinstance(group, SampleBatch):
                yield group
                release(group.stop)
                continue
            key, entries, plain = group
            sample = TarSample(key, source, entries, entries[0][1], entries[-1][4])
            repeated = is_repeated(key)
            plain = plain and not reader.nul
            if plain and not (repeated or self._suspect) and (block.SLASH not in key or is_safe(entries[0][0])):
                good = True
            else:
                good = self._check_start(sample, repeated)
                good = (plain or self._check_entries(sample)) and good
            if good:
                sample.plain = plain
                yield sample.without_gaps() if self._damaged else sample
            else:
                self.dropped += 1
            release(sample.stop)
        if self._groups.size > limit:
            yield from self._large()
        else:
            self._end()

    def _ahead(self, entry: Raw) -> Iterable[SampleBatch | Group]:
        """Return the plain samples from the first entry of a sample on: a batch if their keys are new."""
        batch = None if self._suspect else self._finder.find(self._reader, entry)
        if batch is None:
            return ()
        if self._keys is not None and not self._keys.extend(batch.keys):  # type: ignore[arg-type]
            return [(sample.key, sample.raw, True) for sample in batch]  # type: ignore[misc]
        return (batch,)

    def _close(self, good: bool) -> Iterator[TarSample]:
        """Yield the last sample, which the end of the archive completes, if it is `good`."""
        if self._suspect and not self._groups.entries:
            return
        key, entries = self._groups.finish()
        if entries:
            sample = TarSample(key, self.source, entries, entries[0][1], entries[-1][4])
            good = good or key is None  # without a key each entry is for itself
            if not good and not self._suspect:
                self._say_left_out(key, sample.start, "after")
            if key is not None:
                good = self._check_start(sample, self._is_repeated(key)) and good
            if self._check_entries(sample) and good:
                yield sample.without_gaps() if self._damaged else sample
            else:
                self.dropped += 1
                self.zeros = None

    def _large(self) -> Iterator[TarSample]:
        """Yield a sample of a stream before its end is known; `sample.more` reads the rest."""
        key, entries = self._groups.take()
        assert key is not None
        sample = TarSample(key, self.source, entries, entries[0][1], entries[-1][4])
        self._check_start(sample, self._is_repeated(key))
        self._checks.entries(sample.entries)
        sample.more = self._advance
        self._unfinished = sample
        yield sample
        while sample.more is not None:
            self.source.release(sample.stop)
            sample.more()

    def _check_start(self, sample: TarSample, repeated: bool) -> bool:
        """Check the first entry of a sample: its key, its name, and damage before it. Return whether it is kept."""
        entry = next(entry for entry in map(Entry._make, sample.raw) if key_of(entry) is not None)
        key = key_of(entry) or b""
        if self._suspect:  # the rest of the sample that was damaged, or one that may have lost its first entries
            self._suspect = False
            if key == self._lost:  # named and counted before the damage
                self.dropped -= 1
            else:
                self._say_left_out(key, entry.start, "before")
            return False
        good = not repeated or self._checks.scattered(key, entry.start)
        return (0 in entry.name or self._checks.name(entry)) and good  # all names with a NUL are checked later

    def _leave_out(self, key: bytes | None, entries: list[Raw]) -> None:
        """Leave out the incomplete sample before damage, and suspect the next one. A sample is counted once."""
        reported = self._suspect and (not entries or key == self._lost)  # left out for the damage before this
        if entries and not reported:
            self.dropped += 1
            self._say_left_out(key, entries[0][1], "after")
        if not reported:
            self._lost = key
        self._suspect = True

    def _say_left_out(self, key: bytes | None, start: int, where: str) -> None:
        if key is not None:
            what = f"is left out: the damage {where} it may have destroyed some of its entries"
            self.policy.warn(f"{self.source.name}: at {start}: the sample {show(key)} {what}")

    def _say_rest(self, why: str = "") -> None:
        size, start = self.source.size, self._reader.broken
        rest = "the rest" if size is None else f"the rest, {size - start} bytes,"
        self.policy.warn(f"{self.source.name}: at {start}: {why}{rest} is left out")

    def _check_entries(self, sample: TarSample) -> bool:
        """Check for duplicate names, and for entries that depend on their place. Return whether the sample is kept."""
        return self._checks.entries(sample.entries)

    def _advance(self) -> None:
        """Add the next entry to the sample whose end is not known, or find that it has ended."""
        sample, keyless = self._unfinished, self._groups.keyless
        assert sample is not None
        while (raw := self._next_entry(sample)) is not None:
            entry = Entry._make(raw)
            key = key_of(entry)
            if key is None:
                keyless.append(entry)
            elif key == sample.key:
                self._extend(sample, entry)
                return
            else:
                self._entries = chain((entry,), self._unread)
                break
        else:
            self._extend(sample)
        sample.more = None

    def _extend(self, sample: TarSample, *entries: Entry) -> None:
        more = [*map(Entry._make, self._groups.keyless), *entries]
        self._groups.keyless.clear()
        if more:
            self._checks.entries(more, more=True)
            sample.entries += more
            sample.stop = more[-1].stop

    def _next_entry(self, sample: TarSample) -> Raw | None:
        while True:
            try:
                return next(self._entries, None)
            except Problem as problem:
                self._handle(problem)
                if self._over or problem.name == "trailing-data":
                    return None

    def _handle(self, problem: Problem) -> bool:
        """Apply the policy to damage; the incomplete sample keeps its whole entries.

        Sets `_over` if nothing follows.

        Returns:
            Whether the incomplete sample is kept.
        """
        if problem.name == "bad-header" and self.source.codec is not None:
            problem = self._failure_behind(problem)
        reader, groups, failure = self._reader, self._groups, self.source.failure
        if problem.name in ("truncated", "zero-filled", "no-end-marker"):
            problem = failure or problem
        keep = self._is_kept(problem)
        self._damaged = True
        self._first_damage = self._first_damage or problem
        if problem is failure and reader.end is not None and problem.name != "bad-data":  # behind the end marker
            self._over = True
            return True
        if problem.name == "trailing-data" and problem is not failure:
            return self._end_before_data(keep)
        groups.cut(reader.broken)
        if not keep:
            groups.keyless.clear()
        if problem.name != "bad-header" or problem is self._final_error:
            self._over = True
            next_is_cut = (
                reader.cut is not None and problem.name == "truncated" and key_of(reader.cut) not in (None, groups.key)
            )
            return keep or next_is_cut
        if not keep:
            self._leave_out(*groups.take())
            self.source.release(reader.resume - block.BLOCK)
        needed = [entry[1] for entry in (*groups.entries[:1], *groups.keyless[:1])]
        if self._unfinished is not None and self._unfinished.more is not None:
            needed.append(self._unfinished.start)
        header, passed = reader.resume - block.BLOCK, None if keep else self.source.release
        pos = find_beyond(self.source, header, min(needed, default=header), passed)
        self._over = pos is None
        if pos is not None:
            self._restart(pos)
            return True
        self._say_rest("no valid header follows: ")
        return self.source.failure is None or self.policy.apply(self.source.failure) == "keep"

    def _failure_behind(self, problem: Problem) -> Problem:
        """Return the damage of the compression if it is found at once behind a bad header, which comes from it then."""
        self.source.peek(self._reader.broken, DAMAGED)
        failure = self.source.failure
        return failure if failure is not None and failure.name == "bad-data" else problem

    def _end_before_data(self, keep: bool) -> bool:
        """Continue behind an end marker, or end there; return whether the incomplete sample is kept."""
        reader, groups = self._reader, self._groups
        if keep and self._final_error is None:
            if reader.filled is not None and not self._is_kept(reader.filled):
                self._leave_out(*groups.take())
            groups.sever()
            self._restart(reader.resume)
        self._over = not keep or self._final_error is not None
        if not keep:
            self._say_rest()
        return keep or not self._is_torn()

    def _is_torn(self) -> bool:
        """Return whether the zeros before trailing data are taken for damage inside of the incomplete sample.

        They are if the next sample has the same key, or fields that this sample lacks.
        """
        key, before = self._groups.key, {entry[0] for entry in self._groups.entries if key_of(Entry._make(entry))}
        if self._reader.torn:
            return True
        walk, after, next_key = self._reader.restart(self._reader.resume), set[bytes](), None
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
            return self.policy.apply(problem) == "keep"
        except Problem:
            if not self.partial:
                raise
            self._final_error = problem
            return True

    def _restart(self, pos: int) -> None:
        self._had_entry = self._had_entry or self._reader.has_entry
        self._reader = self._reader.restart(pos)
        self._entries = self._unread = self._reader.raw()

    def _end(self) -> None:
        self._over = True
        if self.source.failure is not None:
            self._reader.broken = self._reader.end or 0
            raise self.source.failure
        if not self._damaged and not self.dropped:
            assert self._reader.end is not None
            assert self._reader.marker is not None
            self.zeros = self._reader.end - self._reader.marker
