"""Read the samples of one archive in order, also after damage (see `samples.damage`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from tarkit.errors import Problem
from tarkit.problems import Policy
from tarkit.samples.checks import EntryChecks
from tarkit.samples.damage import Recovery
from tarkit.samples.groups import LARGE, NO_LIMIT, BatchFinder, EntryGroups, Group
from tarkit.samples.sample import Recent, SampleBatch, TarSample, is_safe, key_of, singly
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw


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
        partial: the samples before damage that ends the run are yielded before the error is raised, the last one
            perhaps incomplete.

    After the iteration `zeros` is the length of the end marker with its padding if the archive was read whole and
    without loss, else None.

    Raises:
        Problem: a problem that `policy` does not let pass; damage of an input without a whole entry, whatever the
            policy.
    """

    def __init__(
        self,
        source: Source,
        policy: Policy,
        *,
        moves: bool = True,
        gather: bool = False,
        pos: int = 0,
        field: bytes | None = None,
        partial: bool = False,
    ) -> None:
        self.source = source
        self.policy = policy
        self.zeros: int | None = None
        self._checks = EntryChecks(source, policy, moves)
        self._keys = None if gather else Recent()
        self._is_repeated = _never if self._keys is None else self._keys.add
        self._finder = BatchFinder(source, field)
        # Large samples are yielded before their end is known.
        self._early = not source.seekable and not policy.lenient
        self._unfinished: TarSample | None = None  # the last sample that was yielded before its end was known
        self._groups = EntryGroups()
        self._recovery = Recovery(source, policy, self._groups, pos, partial)
        self._unread = self._recovery.reader.raw()
        self._entries = self._unread  # or these after one that was read in advance

    @property
    def marker(self) -> int | None:
        """The offset of the end marker, once it was reached."""
        return self._recovery.reader.marker

    @property
    def dropped(self) -> int:
        """The number of samples that the policy left out."""
        return self._recovery.dropped

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples one by one."""
        return singly(self.batches())

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the samples, plain ones in batches if their names are safe and their keys are new."""
        good, recovery = True, self._recovery
        while not recovery.over:
            try:
                yield from self._batches()
            except Problem as problem:
                good = self._pass_over(problem)
        recovery.check_has_entry()
        yield from self._close(good)
        recovery.finish()

    def _pass_over(self, problem: Problem) -> bool:
        """Pass over damage; return whether the incomplete sample is kept."""
        reader = self._recovery.reader
        keep = self._recovery.pass_over(problem, self._unfinished)
        if self._recovery.reader is not reader:
            self._entries = self._unread = self._recovery.reader.raw()
        return keep

    def _batches(self) -> Iterator[SampleBatch]:
        """Yield samples up to the end, to damage, or to a sample that is yielded before its end is known."""
        source, recovery, release, is_repeated = self.source, self._recovery, self.source.release, self._is_repeated
        reader, limit = recovery.reader, LARGE if self._early and not recovery.damaged else NO_LIMIT
        for group in self._groups.read(self._entries, limit, self._ahead):
            if isinstance(group, SampleBatch):
                yield group
                release(group.stop)
                continue
            key, entries, plain = group
            sample = TarSample(key, source, entries, entries[0][1], entries[-1][4])
            repeated = is_repeated(key)
            plain = plain and not reader.nul
            if plain and not (repeated or recovery.suspect) and (block.SLASH not in key or is_safe(entries[0][0])):
                good = True
            else:
                good = self._check_start(sample, repeated)
                good = (plain or self._check_entries(sample)) and good
            if good:
                sample.plain = plain
                yield sample.without_gaps() if recovery.damaged else sample
            else:
                recovery.dropped += 1
            release(sample.stop)
        if self._groups.size > limit:
            yield from self._large()
        else:
            self._end()

    def _ahead(self, entry: Raw) -> Iterable[SampleBatch | Group]:
        """Return the plain samples from the first entry of a sample on: a batch if their keys are new."""
        batch = None if self._recovery.suspect else self._finder.find(self._recovery.reader, entry)
        if batch is None:
            return ()
        if self._keys is not None and not self._keys.extend(batch.keys):  # type: ignore[arg-type]
            return [(sample.key, sample.raw, True) for sample in batch]  # type: ignore[misc]
        return (batch,)

    def _close(self, good: bool) -> Iterator[TarSample]:
        """Yield the last sample, which the end of the archive completes, if it is `good`."""
        recovery = self._recovery
        if recovery.suspect and not self._groups.entries:
            return
        key, entries = self._groups.finish()
        if entries:
            sample = TarSample(key, self.source, entries, entries[0][1], entries[-1][4])
            good = good or key is None  # without a key each entry is for itself
            if not good:
                recovery.take_last_along(key, sample.start)
            if key is not None:
                good = self._check_start(sample, self._is_repeated(key)) and good
            if self._check_entries(sample) and good:
                yield sample.without_gaps() if recovery.damaged else sample
            else:
                recovery.dropped += 1
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
        if self._recovery.take_along(key, entry.start):
            return False
        good = not repeated or self._checks.scattered(key, entry.start)
        return (0 in entry.name or self._checks.name(entry)) and good  # all names with a NUL are checked later

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
                self._pass_over(problem)
                if self._recovery.over or problem.name == "trailing-data":
                    return None

    def _end(self) -> None:
        recovery, reader = self._recovery, self._recovery.reader
        recovery.over = True
        if self.source.failure is not None:
            reader.broken = reader.end or 0
            raise self.source.failure
        if not recovery.damaged and not recovery.dropped:
            assert reader.end is not None
            assert reader.marker is not None
            self.zeros = reader.end - reader.marker
