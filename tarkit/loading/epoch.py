"""One epoch of one worker: its shards in order, read one after another or in turns, through the shuffle buffer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count, islice, repeat
from typing import Any

from tarkit.errors import Problem, TarkitError
from tarkit.loading.ahead import Ahead, LoaderThreads
from tarkit.loading.cursor import Cursor, Position
from tarkit.loading.division import WorkerPlace
from tarkit.loading.identity import OpenedMarks, parse_marks
from tarkit.loading.order import Unit, buffer_random
from tarkit.loading.records import as_record, as_tuple, check_left_out, collate_lists, unread
from tarkit.loading.shards import Shards
from tarkit.loading.state import Plan, Progress, restore_random, store_random
from tarkit.loading.transform import Again, Transform
from tarkit.pipeline.run import Run
from tarkit.pipeline.sample import Sample
from tarkit.pipeline.stages import ShuffleBuffer
from tarkit.problems import Policy
from tarkit.sizes import plural

BARREN = 20
"""How often all shards may turn out to have no sample before an endless order is given up."""

Numbered = tuple[int, int, Sample]  # the number of a shard, that of a sample in it, the sample


class EpochReader:
    """The samples of one epoch of a worker, from a position on. Iterate once."""

    def __init__(self, shards: Shards, place: WorkerPlace, progress: Progress, holds: bool = False) -> None:
        """`progress` says where to start. With `holds` samples count as given from `release` on."""
        self._holds = holds
        self._latest: tuple[Any, int, int, int] | None = None  # of the latest value, if it `holds` any: for `_give`
        self._shards = shards
        self._place = place
        self._settings = settings = shards.settings
        self._start = progress = progress._replace(block=progress.block or settings.batch or 1)
        self._rows = shards.rows(place, progress) if settings.full else None
        self._by_row = shards.by_sample and not shards.data.opaque  # behind code of the user results have no rows
        self._size = shards.size(progress.epoch, place)
        if self._rows is not None and settings.equal == "drop":
            self._size = len(self._rows)
        self._yielded = progress.given
        self._skip = progress.skip  # how many values the first of the samples below has given
        self._passed = self._done = progress.passed  # samples before those below, and with those that gave their values
        self._taken: list[tuple[int, int]] = []  # the places of samples that are not given yet, as of a batch
        self._making: tuple[int, int] | None = None  # the place of the sample of which a value is being made
        self._transform: Transform | None = None
        self._ahead: Ahead | None = None  # the samples that threads make values of
        self._again: deque[Numbered] = deque()  # those that an earlier run has taken and not given
        self._opened = progress.opened
        self._marks = OpenedMarks({**shards.marks, **parse_marks(progress.marks, shards.count)})
        self._turns: deque[Cursor] = deque()
        self._buffer: ShuffleBuffer[Numbered] | None = None
        self._begun = False
        self._barren = 0  # shards without a sample since the latest sample
        if (settings.shuffle or progress.buffer) and not settings.full:
            random = buffer_random(settings.seed, progress.epoch, place)
            if progress.random is not None:
                restore_random(random, progress.random)
            size = int(settings.shuffle) or 1  # without a shuffle, samples of the buffer come between the others
            self._buffer = ShuffleBuffer(size, size if settings.initial is None else settings.initial, random)

    def progress(self) -> Progress:
        """Return the position behind the latest sample that was given."""
        if not self._begun:
            return self._start
        buffer, ahead = self._buffer, () if self._ahead is None else self._ahead.places
        return self._start._replace(
            given=self._yielded,
            opened=self._opened,
            open=tuple((cursor.shard, cursor.next, cursor.stop) for cursor in self._turns),
            buffer=() if buffer is None else tuple((shard, number) for shard, number, _ in buffer.items),
            random=None if buffer is None else store_random(buffer.random),
            taken=(*self._taken, *ahead, *((shard, number) for shard, number, _ in self._again)),
            skip=self._skip,
            passed=self._passed if self._settings.comes_again else 0,
            marks=self._marks.text,
        )

    @property
    def planned(self) -> bool:
        """Whether the worker reads a part of what other workers have left of the epoch."""
        return self._start.plan is not None

    @property
    def later(self) -> tuple[Plan, ...]:
        """What is left of later epochs, as `Progress` has it."""
        return self._start.later

    @property
    def read(self) -> int:
        """How many values were read in this epoch, with those that are held."""
        return self._yielded if self._latest is None else self._latest[2]

    def release(self) -> None:
        """Count all values that were read as given."""
        if self._latest is not None:
            self._give(*self._latest)
            self._latest = None

    def items(self, threads: LoaderThreads | None) -> Iterator[Any]:
        """Yield the samples as records, or batches of them. Those that the policy leaves out are as if not there.

        They are made by `threads`, if there are any. Raises TarkitError where an endless order has none that can be
        decoded.
        """
        if self._size is not None and self._yielded >= self._size:
            return
        run = self._shards.data.new_run()
        try:
            self._again += self._restore(self._start.taken, run)
            if self._buffer is not None:
                self._buffer.items += self._restore(self._start.buffer, run)
            for unit in self._start.open:
                self._turns.append(self._open(unit, Position(unit[1], skip=not self._by_row), run))
            self._begun = True
            if (function := self._settings.transform) is not None:
                self._transform = Transform(function, self._settings.seed, threads)
            self._ahead = None if threads is None else Ahead(threads)
            yield from self._given(run)
            for words in filter(None, (run.policy.missing_words, *self._shards.without_rows(self._place))):
                run.warn(f"epoch {self._start.epoch}: {words}")
        except BaseException:  # of GeneratorExit nothing is being made
            if self._making is not None and (not self._taken or self._taken[-1] is not self._making):
                self._taken.append(self._making)
            raise
        finally:
            if self._ahead is not None:
                self._ahead.end()
            for cursor in self._turns:
                cursor.close()

    def _given(self, run: Run) -> Iterator[Any]:
        batch, size, collate = [], self._settings.batch, self._settings.collate or collate_lists
        taken, read, holds = self._taken, self._yielded, self._holds
        for place, item, following in self._values(run):
            read += 1
            if (holds or size is not None) and (not taken or taken[-1] is not place):  # not one more of the same sample
                taken.append(place)
            if size is not None:
                batch.append(item)
                if len(batch) == size:
                    item, batch = collate(batch), []
            if not batch:
                self._move(place, following, read)
                yield item
            if read == self._size:
                break
        if batch and self._settings.partial:
            item = collate(batch)
            self._give(None, 0, read, self._done)
            yield item
        if self._ahead is not None:
            self._ahead.places.clear()  # the epoch ends before them
        self._move(None, 0, read)

    def _move(self, place: Any, following: int, read: int) -> None:
        """Move the position behind the latest value, now or at `release`."""
        latest = place, following, read, self._done
        if self._holds:
            self._latest = latest
        else:
            self._give(*latest)

    def _give(self, place: Any, following: int, read: int, done: int) -> None:
        """Move the position behind all values that were read; the latest may be one of several of the same sample."""
        self._taken.clear()
        if following:
            self._taken.append(place)
        self._skip, self._yielded, self._passed = following, read, done - bool(following)

    def _values(self, run: Run) -> Iterator[tuple[tuple[int, int], Any, int]]:
        """Yield what samples give: the place of the sample, a value, and how many it has given if it may give more.

        The place is the same object for all values of a sample.
        """
        policy, make, ahead = run.policy, self._make, self._ahead
        read, skip = self._yielded, self._skip
        since: int | None = None  # how many shards had been opened when the samples began to give nothing
        samples: Iterator[tuple[int, int, Any]] = chain(self._taken_before(), self._samples(run))
        for shard, number, sample in samples if ahead is None else self._calls(ahead, samples):
            self._making = place = shard, number
            made = make(sample) if ahead is None else sample.result()
            if type(made) is not tuple:
                made = self._values_of(made, place, skip, policy)
            values: Iterable[Any] = made
            self._done += 1
            several, given = type(values) is not tuple, skip
            for item in values:
                self._making, given, read = None, given + 1, read + 1
                yield place, item, given if several else 0
                self._making = place
            self._making = None
            if given > skip:
                since = None
            else:
                since = self._opened if since is None else since
                if self._opened - since > BARREN * self._shards.count:
                    words = f"{plural(self._opened - since, 'shard')} one after another"
                    raise TarkitError(f"no samples that give a value in {words}")
                if self._taken and self._settings.comes_again:  # counted in `_passed` when these are given
                    self._taken.append(place)
            skip = 0
            if not self._taken:
                self._skip, self._passed = 0, self._done

    def _make(self, sample: Sample) -> Any:
        """Return a tuple of the record of a sample, or the record alone, from which `transform` makes values.

        Returns a Problem of which the policy may leave the sample out.
        """
        record, transform, fields = as_record(sample), self._transform, self._settings.fields
        if transform is not None or not isinstance(record, dict):
            return record
        return (record if fields is None else as_tuple(record, fields),)

    def _values_of(self, made: Any, place: tuple[int, int], skip: int, policy: Policy) -> Iterable[Any]:
        """Return the values of a sample of which nothing but its record is made, or something else than a tuple."""
        if type(made) is Again:
            made = self._make(made.sample._undecoded())
        if isinstance(made, Problem):
            check_left_out(made, policy)
            return ()
        if isinstance(made, dict):
            assert self._transform is not None
            return self._transform.values(made, self._identity(place, self._done), skip)
        values: Iterable[Any] = made
        return values

    def _calls(self, ahead: Ahead, samples: Iterator[Numbered]) -> Iterator[tuple[int, int, Any]]:
        """Return the samples with calls that make their values, or what `transform` makes values of."""
        transform, numbers, skips = self._transform, count(self._done), chain((self._skip,), repeat(0))

        def work_of(place: tuple[int, int], sample: Sample) -> Callable[[], Any]:
            identity, skip = self._identity(place, next(numbers)), next(skips)
            try:
                sample._load()
            except Exception as error:  # it is raised, or left out, when it is the turn of the sample
                return partial(unread, error)
            if transform is None or not transform.in_threads:
                return partial(self._make, sample)
            return partial(transform.make, sample, identity, skip)

        return ahead.calls(samples, work_of, lambda: transform is not None and transform.in_threads is None)

    def _identity(self, place: tuple[int, int], before: int) -> tuple[int, ...]:
        """Return numbers that tell a sample from all others in any epoch, on any number of nodes and workers.

        Where samples come several times in an epoch, these depend on the worker and on the number of samples `before`;
        on the worker also where samples of an index have no rows.
        """
        shard, number = place
        row = self._rows[number] if self._rows is not None and self._by_row else number
        again = self._settings.comes_again
        own = self._place if again or (self._rows is not None and not self._by_row) else ()
        return self._start.epoch, shard, row, *own, *((before,) if again else ())

    def _taken_before(self) -> Iterator[Numbered]:
        while self._again:
            yield self._again.popleft()

    def _open(self, unit: Unit, position: Position, run: Run) -> Cursor:
        if self._rows is not None:
            return self._shards.open_index(self._rows, position, run)
        return self._shards.open(unit, position, run, self._marks)

    def _restore(self, places: Collection[tuple[int, int]], run: Run) -> list[Numbered]:
        """Return the samples at these places. Of each of their shards, headers are read as far as needed."""
        numbers: dict[int, set[int]] = {}
        for shard, number in places:
            numbers.setdefault(shard, set()).add(number)
        restored: dict[tuple[int, int], Sample] = {}
        for shard, wanted in numbers.items():
            start = Position(min(wanted), wanted, skip=False) if self._by_row else Position(0, wanted)
            cursor = self._open((shard, 0, max(wanted) + 1), start, run)
            for sample in cursor.samples:
                restored[shard, cursor.position.number - 1] = sample
        if lost := next((place for place in places if place not in restored), None):
            name = self._shards.data.locations[lost[0]].name
            message = f"{name}: sample {lost[1]}, which had been read and not given, is not found"
            raise TarkitError(message, "resume with the shards and the steps that the state was made with")
        return [(*place, restored[place]) for place in places]

    def _samples(self, run: Run) -> Iterator[Numbered]:
        """Return the samples of the shards that are not open yet, behind those that are."""
        shards: Iterable[Unit] = self._shards.order(self._start.epoch, self._place)
        if self._rows is not None:
            shards = [(0, 0, -1)] if self._rows else []
        elif self._start.plan is not None:
            shards = self._start.plan
        if self._size is not None and not self._settings.resample:  # also "drop": some samples may be left out
            return self._laps(list(shards), run)
        return self._lap(islice(shards, self._opened, None), run)

    def _laps(self, shards: Sequence[Unit], run: Run) -> Iterator[Numbered]:
        """Yield the samples of the shards again and again; the buffer is empty between two laps, so none is missing."""
        while shards:
            busy = bool(self._turns or (self._buffer and self._buffer.items))  # then it is not the end of a lap
            skipped = (self._opened - busy) // len(shards) * len(shards)
            yield from self._lap(islice(shards, self._opened - skipped, None), run)

    def _lap(self, order: Iterator[Unit], run: Run) -> Iterator[Numbered]:
        """Return the samples of shards in turns, through the buffer."""
        if self._buffer is not None:
            return self._buffer.shuffle(self._in_turns(order, run))
        if self._settings.interleave == 1 and len(self._turns) <= 1:
            return self._one_by_one(order, run)
        return self._in_turns(order, run)

    def _open_next(self, order: Iterator[Unit], run: Run) -> bool:
        """Open the next shard; return False at the end. Raises TarkitError after many shards without a sample."""
        unit = next(order, None)
        if unit is None:
            return False
        if self._barren > BARREN * self._shards.count:
            raise TarkitError(f"no samples in {plural(self._barren, 'shard')} that were read one after another")
        self._turns.append(self._open(unit, Position(unit[1], skip=not self._by_row), run))
        self._opened += 1
        self._barren += 1
        return True

    def _one_by_one(self, order: Iterator[Unit], run: Run) -> Iterator[Numbered]:
        """Yield the samples of one shard after another: `_in_turns` for one at a time, at the speed of the samples."""
        turns = self._turns
        while turns or self._open_next(order, run):
            cursor = turns[0]
            shard, position = cursor.shard, cursor.position
            for sample in cursor.samples:
                cursor.next = number = position.number
                yield shard, number - 1, sample
            self._barren = 0 if cursor.next else self._barren
            turns.popleft()

    def _in_turns(self, order: Iterator[Unit], run: Run) -> Iterator[Numbered]:
        """Yield a sample of each open shard in turn; those of an earlier run may be more than `interleave`."""
        turns, interleave = self._turns, self._settings.interleave
        while True:
            while len(turns) < interleave and self._open_next(order, run):
                pass
            if not turns:
                return
            cursor = turns[0]
            shard, position = cursor.shard, cursor.position
            for sample in cursor.samples:
                self._barren = 0
                cursor.next = position.number
                if len(turns) > 1:
                    turns.rotate(-1)
                    yield shard, cursor.next - 1, sample
                    break
                yield shard, cursor.next - 1, sample  # no other shard is open: it is its turn again
            else:
                turns.popleft()
