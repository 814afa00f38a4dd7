"""The options of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tarkit.arguments import check_at_least, check_choice, check_function, check_whole
from tarkit.errors import Usage
from tarkit.pipeline.selection import OnMissingShard

if TYPE_CHECKING:
    from tarkit.decoding.decoder import DecodeSpec

Record = dict[str, Any]
Equal = Literal["drop", "repeat"]


class LoaderOptions(TypedDict, total=False):
    """The options of `tarkit.loader` and `tarkit.torch.TorchDataset`.

    Attributes:
        select, where: fields and samples to keep, as for `Dataset.select` and `Dataset.where`.
        decode, allow_pickle: decode the fields, as for `Dataset.decode`. Without it they are bytes. A field that cannot
            be decoded is a problem, `bad-field`: `tarkit.open(..., skip="bad-field")` leaves its sample out.
        transform: called in the process that reads, with each sample as a dict (fields, `__key__`, `__url__`). It
            returns any value, which is given in place of the dict and not encoded again; None leaves the sample out,
            and a generator gives several values. The random numbers of `random`, `numpy.random` and torch's CPU follow
            from seed, epoch and sample, so they are the same in another worker, and after a resume.
        as_tuple: give the values of `select` as a tuple, in its order, in place of a dict: `select="jpg cls __key__"`.
        shuffle: the size of the buffer through which the samples of a worker are shuffled; 0 keeps their order.
            `"full"` is a random order of all samples, which looks each of them up: it needs plain archives.
        initial: how many samples are in the buffer before the first is taken; by default it is filled.
        seed: with the number of the epoch it determines all random orders. It must be the same on all nodes.
        shuffle_shards: whether each epoch has the shards in another random order.
        interleave: how many shards are open at a time, giving a sample each in turn.
        resample: draw shards with replacement, without end or until `length`.
        equal: give each worker of all nodes the same number of samples in an epoch: `"drop"` ends an epoch where the
            worker with the fewest samples ends, `"repeat"` lets the others read theirs again until the one with most
            ends. The samples of all shards are counted once, when the loader is made.
            Behind `transform` its values count.
        length: the number of samples (or values of `transform`) that each worker gives in an epoch: the first of its
            order, and with fewer it reads them again.
        batch: the number of samples in a batch. Without it there are no batches.
        partial: whether a last batch with fewer samples is given.
        collate: makes a batch of a list of samples; by default it is a dict with a list for each field, for tuples a
            tuple of lists, and a list for other values.
        threads: the number of threads that decode samples, and call `transform`, before their turn; 0 is none. They
            are started by each iteration, in the process that reads: they are in place of worker processes, or in each
            of them. A transform that draws from `random`, `numpy.random` or torch is called in the thread that
            iterates, since threads share these; in other threads `tarkit.sample_random` has random numbers. Functions
            of `decode` must not draw from them then. Two samples for each thread, and those of one batch, are in
            memory.
        epochs: how many epochs one iteration has; None is without end.
        rank, world: the number of this node and of all nodes. By default those of `$RANK` and `$WORLD_SIZE`, else of
            torch.distributed, else 0 of 1.
        worker, workers: the number of this worker and of all workers of a node. By default those of `$WORKER` and
            `$NUM_WORKERS`, else of torch's DataLoader, else 0 of 1.
        allow_idle: whether there may be fewer shards than workers, or samples of views, so that some have no samples.
        on_missing: `"warn"` goes on without shards that are missing or broken, with a warning for each, and names those
            that are missing at the end of an epoch; see `tarkit.open`, which has it for a dataset.
        storage_options: how URLs are reached, as for `tarkit.open`.
    """

    select: str | Iterable[str] | None
    where: str | None
    decode: DecodeSpec | None
    allow_pickle: bool
    transform: Callable[[Record], Any] | None
    as_tuple: bool
    shuffle: int | Literal["full"]
    initial: int | None
    seed: int
    shuffle_shards: bool
    interleave: int
    resample: bool
    equal: Equal | None
    length: int | None
    batch: int | None
    partial: bool
    collate: Callable[[list[Any]], Any] | None
    threads: int
    epochs: int | None
    rank: int | None
    world: int | None
    worker: int | None
    workers: int | None
    allow_idle: bool
    on_missing: OnMissingShard
    storage_options: Mapping[str, object] | None


@dataclass(frozen=True)
class LoaderSettings:
    """The options of a loader that hold for all its epochs; see `LoaderOptions`.

    Attributes:
        fields: with as_tuple, the names of its values.
    """

    shuffle: int | Literal["full"] = 0
    initial: int | None = None
    seed: int = 0
    shuffle_shards: bool = True
    interleave: int = 1
    resample: bool = False
    equal: Equal | None = None
    length: int | None = None
    batch: int | None = None
    partial: bool = True
    collate: Callable[[list[Any]], Any] | None = None
    threads: int = 0
    epochs: int | None = 1
    allow_idle: bool = False
    transform: Callable[[Record], Any] | None = None
    fields: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check the options. Raises TypeError or Usage."""
        if self.shuffle != "full":
            if isinstance(self.shuffle, (str, bool)):
                words = "it is the number of samples in a buffer, such as 1000, or 'full' for all samples"
                raise Usage(f"shuffle={self.shuffle!r}: {words}")
            check_at_least(0, shuffle=self.shuffle)
        check_whole(seed=self.seed)
        check_at_least(0, initial=self.initial, length=self.length, threads=self.threads)
        check_at_least(1, interleave=self.interleave, batch=self.batch, epochs=self.epochs)
        if self.equal is not None:
            check_choice("equal", self.equal, Equal)
        if self.collate is not None:
            check_function(collate=self.collate)
        if self.transform is not None:
            check_function(transform=self.transform)
            if self.fields is not None:
                raise Usage("as_tuple cannot be used with transform", "transform can return a tuple")
        if self.full and (self.resample or self.interleave > 1):
            raise Usage("shuffle='full' cannot be used with resample or interleave: it has no order of shards")
        if self.resample and self.equal:
            raise Usage("equal cannot be used with resample: give length, the number of samples of each worker")
        if self.length is not None and self.equal is not None:
            raise Usage("length cannot be used with equal: it gives each worker the same number of samples")
        if self.collate is not None and self.batch is None:
            raise Usage("collate requires batch")

    @property
    def comes_again(self) -> bool:
        """Whether a sample may come several times in an epoch."""
        return self.resample or self.equal == "repeat" or self.length is not None

    @property
    def full(self) -> bool:
        """Whether all samples are shuffled."""
        return self.shuffle == "full"
