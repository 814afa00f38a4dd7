"""What waits for a resident program, and what its answers hold."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tarkit.errors import show
from tarkit.proc.job import Failed, Failure, Job
from tarkit.proc.result import Content
from tarkit.samples.sample import KEYLESS, Sample, key_of, split_name
from tarkit.streams.ranges import Spool, SpooledRange
from tarkit.tar import block

HELD = 1 << 20  # bytes of a field of an answer from which on it is in a temporary file

_FILES = (block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS)


class Feed:
    """Samples that wait to be written, first come first served; `size` is how many bytes they have.

    `room` is called when there is less than half of `full` bytes or `many` samples again.
    """

    def __init__(self, full: int = 0, many: int = 0, room: Callable[[], None] = lambda: None) -> None:
        self._full, self._many, self._room = full // 2, many // 2, room
        self._change = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._closed = False
        self.size = 0

    def put(self, job: Job) -> None:
        """Add one."""
        with self._change:
            self._jobs.append(job)
            self.size += job.sample.size
            self._change.notify_all()

    def take(self, over: Callable[[], bool]) -> Job | None:
        """The next one, once there is one; None when no more will come, or it is `over`."""
        with self._change:
            while not self._jobs and not self._closed and not over():
                self._change.wait()
            if over() or not self._jobs:
                return None
            before = self._is_full()
            job = self._jobs.popleft()
            self.size -= job.sample.size
            if before and not self._is_full():
                self._room()
            return job

    def _is_full(self) -> bool:
        return self.size >= self._full or len(self._jobs) >= self._many

    def rest(self) -> list[Job]:
        """All that nobody has taken, to be taken now."""
        with self._change:
            jobs = list(self._jobs)
            self._jobs.clear()
            self.size = 0
            return jobs

    def close(self) -> None:
        """No more will come."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def wake(self) -> None:
        """Let whoever waits look again whether it is over."""
        with self._change:
            self._change.notify_all()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def ended(self) -> bool:
        """Whether all have been taken and no more will come."""
        with self._change:
            return self._closed and not self._jobs


class Spooled:
    """A large field of an answer, as `tarkit.proc.result.Content` has it."""

    mtime = 0

    def __init__(self, held: SpooledRange) -> None:
        self.held = held
        self.size = (held.size or 0) - held.start

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        return self.held.read(self.held.start + start, self.held.start + stop)

    def send(self, start: int, stop: int, sink: Any) -> None:
        """Write bytes [start, stop) to a sink."""
        self.held.send(self.held.start + start, self.held.start + stop, sink)


def fields_of(sample: Sample, spool: Spool) -> list[tuple[bytes, bytes | Content]]:
    """The fields of an answer, those that are large in a temporary file.

    Directories are passed over. Raises Failed for other entries without key, and for what is no regular file.
    """
    fields: list[tuple[bytes, bytes | Content]] = []
    source = sample.source
    for entry in sample.entries:
        if key_of(entry) is None:
            if entry.type not in KEYLESS:
                raise Failed(Failure(f"the program answered {show(entry.name)}, which belongs to no sample"))
            continue
        if entry.type not in _FILES or entry.sparse:
            raise Failed(Failure(f"the program answered {show(entry.name)}, which is no regular file"))
        stop = entry.data + entry.size
        _, field = split_name(entry.name) or (b"", b"")
        if entry.size < HELD:
            fields.append((field, source.read(entry.data, stop)))
        else:
            fields.append((field, Spooled(spool.hold(source.name, entry.data, stop, source.send))))
    return fields
