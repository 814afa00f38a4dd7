"""The contract of the engine: jobs go in, outcomes come out, and an executor is what works on them in between.

An executor is one of the N hands that work at a time. The engine calls `run` from a thread that is the executor's own,
so that it may block; a hand that is a process, or has one, does its work beside us. `cancel` alone is called from
another thread. What an executor raises other than `Failed` ends the run: that is for what is wrong with all samples,
such as a program that cannot be started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from tarkit.errors import show, signal_name
from tarkit.samples.sample import KEYLESS, Sample, Source, split_name
from tarkit.tar import block
from tarkit.tar.reader import Entry

WHOLE = 1 << 20  # bytes; a sample up to this size is read at once
TAIL = 2000  # bytes of what was said on stderr that a failure keeps

_FILES = (block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS)


class Failure(NamedTuple):
    """Why there is no result for a sample; it is not raised but handed back, and the policies decide.

    `reason` is for a message, and follows the key: `ended with status 3`. `status` is that of a program, negative for a
    signal, None when none ended. `tail` is the end of what it said on stderr (or a traceback), at most TAIL bytes.
    `seconds` is the time of the last attempt.
    """

    reason: str
    status: int | None = None
    tail: bytes = b""
    seconds: float = 0.0
    attempts: int = 1


class Failed(Exception):
    """Raised by `run` when all jobs that were handed over fail together; with more than one the engine halves them."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Said(Protocol):
    """What a command said, in memory or in a file; `tarkit.streams.tempfile.Scratch` and `Words` are two."""

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), fewer only at the end."""


class Words(NamedTuple):
    """What a command said, in memory."""

    data: bytes

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), fewer only at the end."""
        return self.data[start:stop]


class Outcome(NamedTuple):
    """What became of one job: the samples that it gave, in order, none at all perhaps, or a failure.

    `said` is for the user's stderr, in this order. `seconds` is how long the work took.
    """

    samples: Sequence[Sample] = ()
    failure: Failure | None = None
    said: Sequence[Said] = ()
    seconds: float = 0.0


class Input(NamedTuple):
    """A field of a sample as it comes in. `data` is its content if the sample is small, else None."""

    field: bytes
    entry: Entry
    content: Entry  # the entry whose payload it is: that of a hard link is its target's
    source: Source
    data: bytes | None

    @property
    def size(self) -> int:
        """Bytes of content."""
        return self.content.size

    def read(self) -> bytes:
        """The content, however large."""
        if self.data is not None:
            return self.data
        return self.source.read(self.content.data, self.content.data + self.content.size)

    def send(self, sink: Any) -> None:
        """Write the content to a sink, without holding it."""
        if self.data is not None:
            sink.write(self.data)
        else:
            self.source.send(self.content.data, self.content.data + self.content.size, sink)


class Job:
    """One sample to work on, number `index` (from 0) of those that were chosen.

    The sample is good for as long as the job is, and can be read from any thread. What `passes` is not worked on and
    comes out as it is.
    """

    __slots__ = ("_head", "_inputs", "index", "passes", "sample")  # dataclasses take a third of a process's start

    def __init__(self, index: int, sample: Sample, passes: bool = False) -> None:
        self.index = index
        self.sample = sample
        self.passes = passes
        self._inputs: list[Input] | None = None
        self._head = 0, b""

    @property
    def key(self) -> bytes:
        """The key of the sample."""
        return self.sample.key or b""

    @property
    def shard(self) -> str:
        """The name of the input that it came from."""
        return self.sample.source.name

    def inputs(self) -> list[Input]:
        """The fields of the sample, in order, without the entries that have no key.

        Raises Failed for what has no content that could be handed over: symbolic links, devices and the like.
        """
        if self._inputs is None:
            self._inputs = list(self._read())
        return self._inputs

    def piece(self, start: int, stop: int) -> bytes | None:
        """Bytes [start, stop) of the sample's source, if they were read together with its fields."""
        first, data = self._head
        return data[start - first : stop - first] if data and start >= first and stop - first <= len(data) else None

    def _read(self) -> Iterable[Input]:
        sample = self.sample
        entries = sample.entries
        if not entries:
            return
        low, high = min(entry.start for entry in entries), max(entry.stop for entry in entries)
        if high - low <= WHOLE:
            self._head = (low, sample.source.read(low, high))
        skip = len(self.key) + 1
        by_name: dict[bytes, Entry] = {}
        for entry in entries:
            if entry.type in KEYLESS or split_name(entry.name) is None:
                continue
            content = by_name.get(entry.link, entry) if entry.type == block.HARD_LINK else entry
            if content.type not in _FILES or content.sparse:
                what = "a sparse file" if content.sparse else _KINDS.get(entry.type, "no regular file")
                raise Failed(Failure(f"has {show(entry.name)}, {what}, which has no content to work on"))
            by_name[entry.name] = content
            data = self.piece(content.data, content.data + content.size)
            yield Input(entry.name[skip:], entry, content, sample.source, data)


_KINDS = {
    block.HARD_LINK: "a hard link to what is not in the sample",
    block.SYMLINK: "a symbolic link",
    block.CHAR: "a device",
    block.BLOCK_DEVICE: "a device",
    block.FIFO: "a FIFO",
}


class Executor(Protocol):
    """One of the hands that work; made in the main thread, when the first job for it is there."""

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Work on some jobs: one outcome for each, in order. It blocks until they are done.

        A failure of one is an Outcome with `failure`. Raises Failed when all fail together: a batch that a function
        refused, a process that died on the way. The engine then hands over the halves, until one is alone. Where the
        results of a batch cannot be told apart they are all in the outcome of its first job.
        """

    def cancel(self) -> None:
        """End what runs, resident or not, from another thread, and start nothing more; `run` ends soon after."""

    def kill(self) -> None:
        """The same, with force: some time after `cancel`, if `run` has not ended."""

    def close(self) -> None:
        """End what is resident when all is done, in the thread that ran it. Raises TarkitError when that ends badly."""


def status_words(status: int) -> str:
    """How a program ended, for a Failure's reason: `ended with status 3`, `was ended by SIGKILL`."""
    return f"ended with status {status}" if status >= 0 else f"was ended by {signal_name(-status)}"
