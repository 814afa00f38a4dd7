"""`tarkit.loader`: samples for training, in epochs, divided among nodes and workers, with a position to resume from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from tarkit.arguments import check_at_least, list_words, suggest_arguments
from tarkit.dataset import Dataset
from tarkit.dataset import open as open_dataset
from tarkit.errors import TarkitError, Usage
from tarkit.joining.set_fields import with_columns
from tarkit.loading.ahead import loader_threads
from tarkit.loading.division import WorkerPlace, find_place, find_process_group
from tarkit.loading.epoch import EpochReader
from tarkit.loading.identity import ShardFiles, find_changed, joined_marks
from tarkit.loading.mixed import MixedReader, MixedShards, next_epoch
from tarkit.loading.settings import LoaderOptions, LoaderSettings
from tarkit.loading.shards import Shards
from tarkit.loading.state import Progress
from tarkit.loading.union import Positions, check_complete, continue_here, continue_mix, find_states
from tarkit.mixing.mix import Mixture
from tarkit.samples.fields import field_names

Reader = EpochReader | MixedReader

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Input


def loader(inputs: Input | Iterable[Input] | Dataset, **options: Unpack[LoaderOptions]) -> Loader:
    """Read samples for training: in epochs, divided among nodes and workers, shuffled, decoded, in batches.

    Args:
        inputs: as for `tarkit.open`, but each must be readable again; or a dataset with its steps and its settings.
        options: see `tarkit.LoaderOptions`.

    Raises:
        Usage: options that are out of range or do not go together.
        Unsupported: an input that can be read only once, or a step that orders or counts all samples.

    >>> import tarkit
    >>> for batch in tarkit.loader("train-*.tar", select="cls", decode=True, shuffle_shards=False, batch=2):
    ...     print(batch["__key__"], batch["cls"])
    ['a/0', 'a/1'] [3, 1]
    ['b/0'] [3]
    """
    return Loader(inputs, **options)


def _open_shards(data: Dataset, settings: LoaderSettings) -> Shards | MixedShards:
    """Return the shards of a dataset, or those of the sources of a mix."""
    return MixedShards(data, settings) if isinstance(data.origin, Mixture) else Shards(data.apart(), settings)


def _open_reader(shards: Shards | MixedShards, place: WorkerPlace, progress: Progress) -> Reader:
    """Return the reader of a worker, from a position on."""
    if isinstance(shards, MixedShards):
        return MixedReader(shards, place, progress)
    return EpochReader(shards, place, progress)


def _place_of(state: Mapping[str, Any]) -> WorkerPlace:
    """Return the worker whose position a state is. Raises Usage."""
    numbers = [state.get(name) for name in WorkerPlace._fields]
    if any(type(number) is not int for number in numbers):
        raise Usage("the state of a loader is damaged: it names no worker")
    return WorkerPlace(*numbers)  # type: ignore[arg-type]


class Loader(Iterable[Any]):
    """Samples for training; `tarkit.loader` makes one.

    Iterating gives one epoch: a dict for each sample, with `__key__`, `__url__` (the name of its shard) and its fields,
    a tuple with `as_tuple`, what `transform` returns, or batches of these. The next iteration gives the next epoch, in
    another random order.

    The order depends on the shards, the options, the number of the epoch and the place of this process among nodes and
    workers (`tarkit.LoaderOptions`), and so it can be resumed:

    >>> import tarkit
    >>> data = tarkit.loader("train-*.tar", shuffle=100, seed=7)
    >>> samples = iter(data)
    >>> first, state = next(samples)["__key__"], data.state_dict()
    >>> rest = [sample["__key__"] for sample in samples]
    >>> again = tarkit.loader("train-*.tar", shuffle=100, seed=7)
    >>> again.load_state_dict(state)
    >>> [sample["__key__"] for sample in again] == rest
    True
    """

    @suggest_arguments(
        "tarkit.loader",
        batch_size="batch",
        collate_fn="collate",
        num_workers="workers",
        world_size="world",
        num_threads="threads",
    )
    def __init__(self, inputs: Input | Iterable[Input] | Dataset, **options: Unpack[LoaderOptions]) -> None:
        """Look up the names of the shards; with `equal` and `shuffle="full"` read the headers of all."""
        arguments: dict[str, Any] = dict(options)
        for name in arguments.keys() - LoaderOptions.__annotations__.keys():
            raise TypeError(f"tarkit.loader() got an unexpected keyword argument {name!r}: see tarkit.LoaderOptions")
        select, where = arguments.pop("select", None), arguments.pop("where", None)
        decode, allow_pickle = arguments.pop("decode", None), arguments.pop("allow_pickle", False)
        reading = {name: arguments.pop(name) for name in ("on_missing", "storage_options") if name in arguments}
        place = [arguments.pop(name, None) for name in ("rank", "world", "worker", "workers")]
        if arguments.pop("as_tuple", False):
            if select is None:
                raise Usage("as_tuple requires select: the values of the tuple")
            words = " ".join(list_words(select, "select")).split()
            arguments["fields"] = tuple(field_names(" ".join(words)))
            select = [word for word in words if word not in ("__key__", "__url__")] or None
        self._settings = LoaderSettings(**arguments)
        if isinstance(inputs, Dataset):
            for name, value in reading.items():
                if value is not None and (name, value) != ("on_missing", "error"):
                    raise Usage(f"{name} cannot be used with a dataset", "give it to tarkit.open")
            data = inputs
        else:
            data = open_dataset(inputs, **reading)
        data = with_columns(data if where is None else data.where(where))
        data = data if select is None else data.select(select)
        if decode is not None:
            data = data.decode(decode, allow_pickle=allow_pickle)
        elif allow_pickle:
            raise Usage("allow_pickle requires decode")
        self._given_place: tuple[int | None, ...] = tuple(place)
        self._find_place()  # raises for numbers that do not go together
        self._shards = _open_shards(data, self._settings)
        self._files = ShardFiles(data.locations, data.new_run().policy.skips_missing)
        self._epoch = 0
        self._loaded: Progress | None = None
        self._positions: Positions | None = None  # of all workers, until it is known which of them this one is
        self._loaded_for = WorkerPlace()
        self._reader: Reader | None = None

    def _find_place(self) -> WorkerPlace:
        return find_place(*self._given_place)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next iteration begins with, from 0 on."""
        if self._positions is not None:
            return min(progress.epoch for progress in self._positions.values())
        return self._epoch if self._loaded is None else self._loaded.epoch

    @property
    def epochs(self) -> int:
        """How many epochs are counted for an iteration; 1 for one without end."""
        return self._settings.epochs or 1

    @property
    def loaded(self) -> Progress | None:
        """The position with which the next iteration continues; None if it begins an epoch."""
        self._settle()
        return self._loaded

    @property
    def has_all(self) -> bool:
        """Whether the positions of all workers were loaded, for the next iteration of any of them."""
        return self._positions is not None

    def _settle(self) -> None:
        """Find the position of this worker among those of all, or its part of what these have left."""
        if self._positions is None:
            return
        positions, place, shards = self._positions, self._find_place(), self._shards
        if place in positions:
            self._loaded = positions[place]
        elif isinstance(shards, Shards):
            self._loaded = continue_here(positions, place, shards)
        else:
            self._loaded = continue_mix(positions, place, shards)
        self._loaded_for, self._positions = place, None

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch for the next iteration. A loaded position in this epoch stays."""
        check_at_least(0, epoch=epoch)
        if self.epoch != epoch or not (self._loaded or self._positions):
            self._loaded = self._positions = self._reader = None
        self._epoch = epoch

    def forget(self) -> None:
        """Forget a loaded position."""
        self._loaded = self._positions = None

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, or continue the one of a loaded position.

        Raises:
            Usage: there are more workers than shards, or the position was loaded for another worker.
        """
        self._settle()
        place, shards = self._find_place(), self._shards
        if self._loaded is not None and self._loaded_for != place:
            words = "the position was loaded in another process, and is that of another worker"
            raise Usage(words, "load that of each worker in it, as StatefulDataLoader of the package torchdata does")
        shards.check_idle(place)
        progress, self._loaded = self._loaded or self._next(), None
        self._epoch = progress.following
        reader = self._reader = _open_reader(shards, place, progress)
        return self._epochs(reader, place)

    def _epochs(self, reader: Reader, place: WorkerPlace) -> Iterator[Any]:
        """Yield the samples or batches of an epoch, and of those that follow in the same iteration."""
        with loader_threads(self._settings) as threads:
            while True:
                yield from reader.items(threads)
                progress = reader.progress()
                remaining = None if progress.epochs is None else progress.epochs - 1
                if remaining == 0:
                    return
                if remaining is None and not progress.given and progress.plan is None:
                    raise TarkitError("no samples: an iteration without end has nothing to give")
                following = _open_reader(self._shards, place, next_epoch(progress, remaining))
                if self._reader is reader:  # no other iteration has begun since
                    self._reader = following
                reader = following

    def __len__(self) -> int:
        """The number of samples or batches of an iteration of this worker, where it is known.

        Raises:
            TypeError: it is not known without `equal` or `length`, or of all samples, as they are, of views or with
                `shuffle="full"`; of a mix also with its `total` and `repeat` together.
        """
        return self.length(self._find_place(), self.epoch)

    def length(self, place: WorkerPlace, epoch: int) -> int:
        """Return the number of samples or batches of a worker in an iteration from an epoch on. Raises TypeError."""
        settings = self._settings
        sizes = [self._shards.length(epoch + number, place) for number in range(settings.epochs or 0)]
        if None in sizes or settings.epochs is None:
            ways = "equal, with length, of views or with shuffle='full', both with all samples and no transform"
            raise TypeError(f"the number of samples is known with {ways}, and of a mix with total and repeat")
        batch = settings.batch or 1
        return sum((size + (batch - 1) * settings.partial) // batch for size in sizes if size is not None)

    def length_of_node(self, workers: int | None, epoch: int) -> int:
        """Return the number of batches that the workers of this node give in an iteration from an epoch on.

        Args:
            workers: how many there are; None if that is not known.
            epoch: the first epoch.

        Raises:
            TypeError: it is not known, or depends on the number of workers.
        """
        settings, (rank, world, *_) = self._settings, self._find_place()
        if settings.batch is None and (workers is None or workers > 1):
            raise TypeError(
                "the number of batches is known where the dataset makes them: give it batch=, and the "
                "DataLoader batch_size=None"
            )
        if workers is None and not (settings.full and settings.equal is None and settings.length is None):
            raise TypeError("the number of batches depends on that of workers: give workers=, that of the DataLoader")
        every = max(workers or 1, 1)
        return sum(self.length(WorkerPlace(rank, world, worker, every), epoch) for worker in range(every))

    def state_dict(self) -> dict[str, Any]:
        """Return the position as values of JSON: that behind the latest sample or batch of the latest iteration.

        Samples count when they are given: where decoding or `collate` fails, those of the batch come again. Iterations
        that began before the latest one, and go on, have no position any more.

        At the end of an epoch it is its end: the rest of the epoch is empty, and the iteration after that is the next.
        It has a few numbers for each open shard and for each sample of the shuffle buffer, which is read again when the
        position is loaded.
        """
        self._settle()
        progress = self._loaded or (self._next() if self._reader is None else None)
        if progress is None:
            assert self._reader is not None
            progress = self._reader.progress()
        joined = [table.mark for table in self._shards.joined]
        return {**progress.as_json(self._identity()), **vars(self._files), "joined": joined}

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue with a position in the next iteration, or with the positions of all workers.

        A list has the positions of all workers of all nodes, on any number of nodes, also in states of
        StatefulDataLoader. On the same number of nodes and workers each worker continues with its own position. On
        another number, what is left of the epoch is divided. With `shuffle="full"` these are samples: batches of all
        nodes together have the same samples as before, if they have the same size. Of views these are rows. Otherwise
        these are shards that no worker has opened, the rest of each open one, and single samples of shuffle buffers.
        Each remaining sample comes once. Of a mix that is what is left of each source. The next epoch is that of the
        new number of workers.

        A position is one in the same shards, perhaps moved to another directory together, of the same samples: `where`
        and other steps that leave samples out must be the same, and functions of `map` have the same names. Joined
        tables, views and archives have the same contents, perhaps elsewhere, and are joined and set in the same way:
        they are compared when the next iteration reads them, before its first sample. Fields, decoding and the
        treatment of problems may be others.

        Shards that were read are not read again, but for samples that were in the shuffle buffer. In open ones the
        samples before the position are skipped by their headers. With other `interleave`, `shuffle` (not "full") or
        batches the order differs; each remaining sample comes once.

        Raises:
            Usage: the position is one in other shards or samples, or of another seed, order, node or worker; positions
                of a list are missing, or cannot be divided: those with resample, length or equal (but for "drop" where
                samples are divided), and with `shuffle="full"` behind `map`.
        """
        states = list(find_states(state))
        if states and states[0] is not state:
            self._load_all(states)
            return
        if not isinstance(state, Mapping):
            raise Usage("this is not the state of a loader", "load what state_dict has returned")
        progress = Progress.of_json(state, self._identity())
        self._check_shards(progress, state)
        self._expect_joined([state])
        self._loaded, self._loaded_for, self._reader = progress, self._find_place(), None

    def _load_all(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Load the positions of all workers. Raises Usage."""
        identity = {name: value for name, value in self._identity().items() if name not in WorkerPlace._fields}
        positions: dict[WorkerPlace, Progress] = {}
        for state in states:
            place, progress = _place_of(state), Progress.of_json(state, identity)
            if positions.setdefault(place, progress) != progress:
                raise Usage(f"two positions of worker {place.worker} on node {place.rank}", "give those of one time")
            self._check_shards(progress, state)
        check_complete(positions)
        self._expect_joined(states)
        self._loaded, self._positions, self._reader = None, positions, None

    def _check_shards(self, progress: Progress, state: Mapping[str, Any]) -> None:
        """Raise Usage if the shards are not those of a position."""
        hint = "resume with the shards that it was made with, or begin an epoch without it"
        names, times = (state.get(name) for name in ("names", "times"))
        same = names == self._files.names and times == self._files.times
        try:
            marks = self._shards.marks_in(progress)
        except ValueError as error:
            raise Usage(f"the state of a loader is damaged: {error}") from None
        if changed := find_changed(self._shards.data.locations, marks, files=not same):
            raise Usage(f"{changed.name}: not the shard of the position: its content has changed", hint)
        if names != self._files.names:
            raise Usage("the position is that of other shards: names or sizes of files differ", hint)

    def _expect_joined(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Set the marks that joined tables must have when they are read. Raises Usage if those of positions differ."""
        joined = self._shards.joined
        for table, mark in zip(joined, joined_marks(joined, states), strict=True):
            table.mark = mark

    def _next(self) -> Progress:
        return Progress(self._epoch, self._settings.epochs, self._epoch + self.epochs)

    def _identity(self) -> dict[str, Any]:
        """Return the identity of the loader, which is stored with a position."""
        settings, place = self._settings, self._find_place()
        return {
            "shards": self._shards.count,
            "order": self._shards.kind,
            "filter": self._shards.choice,
            "seed": settings.seed,
            "equal": settings.equal,
            **place._asdict(),
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: all but an iteration.

        The node is that of this process by torch.distributed, if it is initialised; it is not in a worker process.
        """
        place = self._given_place
        if place[0] is None and (node := find_process_group()) is not None:
            place = *node, *place[2:]
        return {**self.__dict__, "_reader": None, "_given_place": place}
