"""Pipelines in webdataset's form: a source and stages, by a list of them or by methods one after another."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Self

from tarkit.errors import MissingLibrary, Usage
from tarkit.wds import filters
from tarkit.wds.decoding import decode
from tarkit.wds.filters import FUNCTIONS, Handler, Samples, Stage, reraise_exception
from tarkit.wds.shardlists import IterableDataset, ResampledShards, SimpleShardList, single_node_only, split_by_worker
from tarkit.wds.tariterators import tarfile_to_samples

Source = Iterable[Any] | Callable[[], Iterable[Any]]


class PipelineStage:
    """The base of stages with a state: `run(samples)` returns the samples behind it."""

    def run(self, *samples: Samples) -> Iterable[Any]:
        """Return the samples behind the stage; without samples, those of a source."""
        raise NotImplementedError


class DataPipeline(IterableDataset, PipelineStage):  # type: ignore[misc]
    """A source and stages. Iterating begins an epoch: the source is iterated anew."""

    def __init__(self, *stages: Any) -> None:
        """Set the source, then the stages; None is left out, and a list stands for what is in it."""
        super().__init__()
        self.pipeline: list[Any] = []
        for stage in stages:
            self.pipeline += stage if isinstance(stage, list) else [] if stage is None else [stage]
        self._times: int | None = 1  # how often the source is iterated; None is without end
        self._samples: int | None = None  # how many samples an epoch has at most
        self._length: int | None = None

    def __iter__(self) -> Iterator[Any]:
        return islice(self._repeated(), self._samples)

    def __len__(self) -> int:
        """The length that `with_length` has set. Raises TypeError without one."""
        if self._length is None:
            raise TypeError("a pipeline has no length: with_length sets one, and tarkit.loader knows some")
        return self._length

    def run(self, *samples: Samples) -> Iterable[Any]:
        """Return the samples of the pipeline, which may be the source of another."""
        return iter(self)

    def _repeated(self) -> Iterator[Any]:
        times = 0
        while self._times is None or times < self._times:
            times, empty = times + 1, True
            for sample in self._once():
                empty = False
                yield sample
            if empty:
                return

    def _once(self) -> Samples:
        samples = _invoked(self.pipeline[0])
        for stage in self.pipeline[1:]:
            samples = _invoked(stage, samples)
        return samples

    def append(self, stage: Any) -> None:
        """Add a stage to this pipeline."""
        self.pipeline.append(stage)

    def compose(self, *stages: Any) -> Self:
        """Return a pipeline with more stages."""
        made = copy.copy(self)
        made.pipeline = [*self.pipeline, *stages]
        return made

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Make epochs of so many samples or batches, for which the source is repeated."""
        self._times, self._samples = None, _count(max(nsamples, nbatches))
        return self

    def with_length(self, n: int, silent: bool = True) -> Self:
        """Set what `len()` returns; nothing else changes."""
        self._length = n
        return self

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Repeat the source in each epoch, without end or so often, for so many samples at most.

        With `nepochs=1` all samples come, as in webdataset.
        """
        self._times, self._samples = _count(nepochs), None if nepochs == 1 else _count(nbatches)
        return self

    def close(self) -> None:
        """Close the stages that can be closed."""
        for stage in self.pipeline:
            if hasattr(stage, "close"):
                stage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _count(number: int) -> int | None:
    return number if number > 0 else None


def _invoked(stage: Any, *samples: Samples) -> Samples:
    if isinstance(stage, PipelineStage):
        return iter(stage.run(*samples))
    if not samples and isinstance(stage, Iterable):
        return iter(stage)
    if callable(stage):
        return iter(stage(*samples))
    raise Usage(
        f"{type(stage).__name__} is no stage of a pipeline", "a stage is a function of an iterator over samples"
    )


def _method(name: str) -> Callable[..., Any]:
    function = FUNCTIONS[name]

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return self.compose(Stage(name, args, options))

    method.__name__, method.__doc__ = name, function.__doc__
    return method


class FluidInterface:
    """Pipelines with a method for each stage: `.shuffle(1000)` for `.compose(shuffle(1000))`."""


for _name in FUNCTIONS.keys() - {"tarfile_to_samples"}:
    setattr(FluidInterface, _name, _method(_name))


class FluidWrapper(DataPipeline, FluidInterface):
    """A pipeline over a source, with a method for each stage."""


class WebDataset(DataPipeline, FluidInterface):
    """The samples of shards, as dicts, with a method for each stage."""

    def __init__(
        self,
        urls: str | Iterable[str],
        handler: Handler = reraise_exception,
        mode: str | None = None,
        resampled: bool = False,
        repeat: bool = False,
        shardshuffle: int | bool | None = None,
        cache_size: int = -1,
        cache_dir: str | None = None,
        detshuffle: bool = False,
        nodesplitter: Callable[..., Any] | None = single_node_only,
        workersplitter: Callable[..., Any] | None = split_by_worker,
        select_files: Callable[[str], bool] | None = None,
        rename_files: Callable[[str], str] | None = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: int | None = None,
        storage_options: Mapping[str, object] | None = None,
        extensions: str | None = None,
        decoder: Any = None,
        transforms: Iterable[Callable[[Any], Any] | None] | None = None,
        shuffle: int = 0,
    ) -> None:
        """Look up the names of the shards.

        Args:
            urls: the shards, as for `tarkit.open`.
            handler: gets what is wrong with a shard; if it returns true, the next shard is read.
            mode, resampled: draw shards with replacement, without end: `mode="resampled"`, or `resampled=True`.
            repeat: iterate without end.
            shardshuffle: the size of the buffer through which shards are shuffled; True is 100.
            cache_size, cache_dir: keep objects of stores in a directory, in so many bytes at most.
            detshuffle: whether the order of shards follows from the seed and the number of the epoch.
            nodesplitter, workersplitter: divide the shards; None does not.
            select_files, rename_files: which files are taken, and their names.
            empty_check: whether no samples are an error.
            verbose: has no effect.
            seed: of the order of the shards, `$WDS_SEED` by default, else another one each time.
            storage_options: as for `tarkit.open`.
            extensions, decoder, transforms, shuffle: the stages `to_tuple`, `decode` (`"rgb"` where `extensions` are
                given), `map_tuple` and `shuffle`, as webdataset 0.1 took them.
        """
        super().__init__()
        drawn = resampled or mode == "resampled"
        if mode not in (None, "resampled"):
            raise Usage(f"mode={mode!r}: shards are read in order, or mode='resampled'")
        seed = _seed(seed)
        self.append(
            ResampledShards(urls, seed=seed or 0, deterministic=seed is not None) if drawn else SimpleShardList(urls)
        )
        self.pipeline += [splitter for splitter in (nodesplitter, workersplitter) if splitter]
        if shardshuffle and not drawn:
            size = 100 if shardshuffle is True else shardshuffle
            self.append(EpochShuffle(size, seed=seed or 0) if detshuffle else filters.shuffle(size, seed=seed))
        storage = dict(storage_options or {})
        if cache_dir is not None and cache_size != 0:
            storage |= {"cache": cache_dir, **({"cache_size": cache_size} if cache_size > 0 else {})}
        self.append(tarfile_to_samples(handler, select_files, rename_files, storage or None, local_path=True))
        if empty_check:
            self.append(check_empty)
        if shuffle:
            self.append(filters.shuffle(shuffle))
        if decoder is not None or extensions is not None:
            self.append(decode("rgb" if decoder in (None, True) else decoder))
        if extensions is not None:
            self.append(filters.to_tuple(extensions))
        if transforms is not None:
            self.append(filters.map_tuple(*transforms))
        if repeat:
            self.repeat()


class EpochShuffle(PipelineStage):
    """Shuffle through a buffer, in an order that follows from the seed and the number of the epoch."""

    def __init__(self, bufsize: int = 1000, initial: int = 100, seed: int = 0, epoch: int = -1) -> None:
        """`epoch` is the number of the epoch before the first."""
        self._sizes = bufsize, initial
        self.seed = seed
        self.epoch = epoch

    def run(self, *samples: Samples) -> Samples:
        """Return the samples of the next epoch."""
        self.epoch += 1
        return filters.shuffle(*self._sizes, seed=self.seed + self.epoch)(samples[0])


def check_empty(samples: Iterable[Any]) -> Iterator[Any]:
    """Yield the samples. Raises Usage if there are none."""
    sample = None
    for sample in samples:
        yield sample
    if sample is None:
        raise Usage("there are no samples", "are there fewer shards than workers? empty_check=False allows that")


class WebLoader(DataPipeline, FluidInterface):
    """A DataLoader of torch, with a method for each stage behind it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take the arguments of `torch.utils.data.DataLoader`."""
        try:
            from torch.utils.data import DataLoader
        except ModuleNotFoundError:
            raise MissingLibrary("tarkit.wds.WebLoader", "torch", "torch") from None
        super().__init__(DataLoader(*args, **options))


def _seed(seed: int | None) -> int | None:
    return int(os.environ["WDS_SEED"]) if seed is None and "WDS_SEED" in os.environ else seed
