"""Work on samples in parallel: one reader and writer, which is the main thread, and N hands in threads of their own.

Results come in the order of the input, whatever N is, or as they are ready. So much is under way at a time as N hands
need and no more: when results are not taken nothing is read, and when nothing comes the hands wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from tarkit.work.job import Executor, Failed, Failure, Job, Outcome

AHEAD = 4  # times the number of hands: so many batches are under way, done and not done
LEAST = 16  # batches that may always be, so that one that is slow does not stop the others
HELD = 32 << 20  # bytes of samples that wait or are worked on in memory
PATIENCE = 2.0  # seconds that hands get to end by themselves
WAIT = 0.2  # seconds between two looks for signals: one that comes just before a wait does not end it

Finished = tuple[Job, Outcome]


class Engine:
    """Runs jobs through `parallel` executors, which `start` makes.

    Up to `batch` jobs are handed over at a time, and not many more than `batch_bytes` of samples. Each failure is tried
    `retries` times more, alone. With `ordered` the results come in the order of the jobs.
    """

    def __init__(
        self,
        start: Callable[[], Executor],
        parallel: int,
        *,
        batch: int = 1,
        batch_bytes: int = 1 << 20,
        retries: int = 0,
        ordered: bool = True,
    ) -> None:
        self.start = start
        self.parallel = parallel
        self.batch = batch
        self.batch_bytes = batch_bytes
        self.retries = retries
        self.ordered = ordered

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Each job with what became of it. Closing the iterator ends all that runs."""
        raise NotImplementedError
