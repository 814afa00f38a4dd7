"""Datasets of PyTorch over shards. Importing this module loads torch, which is an extra of the package."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from tarkit.arguments import check_at_least
from tarkit.errors import MissingLibrary, Usage
from tarkit.loading.epochs import EpochLog, Iteration
from tarkit.loading.loader import Loader
from tarkit.loading.settings import LoaderOptions

try:
    from torch.utils.data import IterableDataset, get_worker_info
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "torch":
        raise
    raise MissingLibrary("tarkit.torch", "torch", "torch") from None

if TYPE_CHECKING:
    from tarkit.dataset import Dataset
    from tarkit.pipeline.chain import Input

__all__ = ["TorchDataset"]


class TorchDataset(IterableDataset):  # type: ignore[misc]
    """Samples for PyTorch: an IterableDataset over `tarkit.loader`, for a DataLoader with any number of workers.

    A sample is a dict: `__key__` and `__url__` (the name of the shard) as str, and the fields as bytes, or as values
    with `decode`. Each node and each worker reads its shards, so that each sample comes once in an epoch:

        dataset = TorchDataset("train-{000..099}.tar", decode="torchrgb", shuffle=1000, seed=7)
        for batch in DataLoader(dataset, batch_size=32, num_workers=4):
            ...

    The number of the epoch advances with each iteration, also in workers that are started again for each, or that
    stay (`persistent_workers`). A position is stored and loaded by torchdata's StatefulDataLoader; without workers also
    by `state_dict` and `load_state_dict`.

    `len(dataset)`, and so `len(DataLoader(dataset, batch_size=None, ...))`, is the number of batches of this node in a
    whole iteration, where numbers of samples are known; see `TorchDataset.__len__`.

    With `decode=True` pictures are Pillow images, which a DataLoader cannot put into batches.

    For random access give `tarkit.open(...).indexed()` to a DataLoader in its place.
    """

    def __init__(self, inputs: Input | Iterable[Input] | Dataset, **options: Unpack[LoaderOptions]) -> None:
        """Look up the names of the shards.

        Args:
            inputs: as for `tarkit.open`, or a dataset.
            options: see `tarkit.LoaderOptions`. `rank`, `world`, `worker` and `workers` are found. `workers` alone is
                the number of workers that the DataLoader will have, for `len`. With `batch` the dataset gives batches:
                `DataLoader(..., batch_size=None)`.
        """
        super().__init__()
        self._workers = options.pop("workers", None) if "worker" not in options else None
        check_at_least(0, workers=self._workers)
        self._loader = Loader(inputs, **options)
        self._log = EpochLog()
        self._times = 0  # how often this process has iterated

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next iteration begins with, in this process or its workers."""
        return self._log.next

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, also for workers that are running."""
        self._loader.set_epoch(epoch)
        self._log.set_next(epoch)

    def __len__(self) -> int:
        """The number of batches that all workers of this node give in a whole iteration, the next one.

        It is known with `batch`, without `epochs=None`, and

        - with `shuffle="full"` of all samples as they are (no `where`, no `transform`), for any number of workers;
        - with `workers`, the number of those of the DataLoader, also of views, with `equal`, with `length`, and of a
          mix with its `total` and `repeat`.

        Raises:
            TypeError: it is not known, or the DataLoader makes batches in several workers, which it cannot count.
        """
        return self._loader.length_of_node(self._workers, self.epoch)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, or continue the one of a loaded position; in a worker, its part.

        Raises:
            Usage: the DataLoader has another number of workers than `workers`.
        """
        from multiprocessing import current_process, parent_process

        info, loader, parent = get_worker_info(), self._loader, parent_process()
        there = 0 if info is None else info.num_workers
        if self._workers not in (None, there):
            raise Usage(f"workers={self._workers}, and the DataLoader has num_workers={there}", "give both the same")
        self._times += 1
        if info is None or parent is None or parent.pid is None:
            iteration = Iteration(os.getpid(), -1, 0, self._times)
        else:  # workers that are started together are so one after another
            group = current_process()._identity[-1] - info.id
            iteration = Iteration(parent.pid, group, info.num_workers, self._times)
        if loader.has_all and self._log.used_before(iteration):
            loader.forget()  # workers that are started anew have the positions, too
        progress = loader.loaded
        if progress is None:
            loader.set_epoch(self._log.begin(iteration, loader.epochs))
        else:  # the position of each worker is in an epoch of its own
            self._log.begin(iteration, 1, progress.following - 1)
        return iter(loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in this process as values of JSON; see `tarkit.Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue with a position in the next iteration; see `tarkit.Loader.load_state_dict`.

        For any number of workers: call it with the list of the states of all nodes, of loaders or of
        StatefulDataLoader, before the workers start.
        """
        self._loader.load_state_dict(state)
        if self._loader.has_all:
            self._log.set_next(self._loader.epoch)
