"""Jobs, one for each sample, and their outcomes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import TarkitError, show
from tarkit.samples.sample import KEYLESS, TarSample, split_name
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry

if TYPE_CHECKING:
    from tarkit.pipeline.run import CommandOutput

WHOLE = 1 << 20  # bytes; a sample up to this size is read at once
TAIL = 2000  # bytes of the end of stderr that a failure keeps


class Failure(NamedTuple):
    """Why there is no result for a sample; it is returned, not raised, and `run.SampleRun` decides about it.

    Attributes:
        reason: for a message, after the key: `ended with status 3`.
        status: exit status of a program, negative for a signal; None when no program ended.
        tail: the end of its stderr, or a traceback; at most TAIL bytes.
        error: what a function in this process raised.
        fatal: it is not tried again: a process that is not replaced died of it, or the answer of a program is invalid.
        hint: what to do about it, where that is known.
    """

    reason: str
    status: int | None = None
    tail: bytes = b""
    error: Exception | None = None
    fatal: bool = False
    hint: str | None = None


class WorkFailed(Exception):
    """All jobs that a worker has got together failed; if there are several, the pool runs the halves.

    Args:
        failure: of each; a str is the reason.
        seconds: time that the attempt took.
    """

    def __init__(self, failure: Failure | str, seconds: float = 0.0) -> None:
        self.failure = Failure(failure) if isinstance(failure, str) else failure
        self.seconds = seconds
        super().__init__(self.failure.reason)


class Outcome(NamedTuple):
    """The result of one job: samples in order, perhaps none, or a failure.

    Attributes:
        failure: why there are none.
        log: output for the user's stderr, in this order.
        seconds: time that the last attempt took.
    """

    samples: Sequence[TarSample] = ()
    failure: Failure | None = None
    log: Sequence[CommandOutput] = ()
    seconds: float = 0.0


class InputField(NamedTuple):
    """A field of an input sample. `data` is its content if the sample is small, else None."""

    field: bytes
    entry: Entry
    content: Entry  # the entry with the payload: for a hard link, its target
    source: Source
    data: bytes | None

    @property
    def size(self) -> int:
        """Number of bytes of content."""
        return self.content.size

    def read(self) -> bytes:
        """Return the content, whatever its size."""
        if self.data is not None:
            return self.data
        return self.source.read(self.content.data, self.content.data + self.content.size)

    def send(self, sink: Any) -> None:
        """Write the content to a sink without reading it whole."""
        if self.data is not None:
            sink.write(self.data)
        else:
            self.source.send(self.content.data, self.content.data + self.content.size, sink)


class Job:
    """One sample to work on.

    The sample can be read from any thread for as long as the job exists.

    Attributes:
        index: its number among the selected samples, from 0.
        passes: it is not worked on, and is its own result.
        failures: the attempts that failed.
        log: what was printed in them.
    """

    __slots__ = ("_head", "_inputs", "failures", "index", "log", "passes", "sample")

    def __init__(self, index: int, sample: TarSample, passes: bool = False) -> None:
        self.index = index
        self.sample = sample
        self.passes = passes
        self.failures = 0
        self.log: list[CommandOutput] = []
        self._inputs: list[InputField] | None = None
        self._head = 0, b""

    @property
    def key(self) -> bytes:
        """The key of the sample."""
        return self.sample.key or b""

    @property
    def shard(self) -> str:
        """The name of the input that it came from."""
        return self.sample.source.name

    def inputs(self) -> list[InputField]:
        """Return the fields of the sample in order, without the entries that have no key.

        Raises:
            WorkFailed: an entry has no content: a symbolic link, a device and the like.
        """
        if self._inputs is None:
            self._inputs = list(self._read())
        return self._inputs

    def piece(self, start: int, stop: int) -> bytes | None:
        """Return bytes [start, stop) of the sample's source if they were read together with its fields."""
        first, data = self._head
        return data[start - first : stop - first] if data and start >= first and stop - first <= len(data) else None

    def _read(self) -> Iterator[InputField]:
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
            if content.type not in block.FILES:
                words = _KINDS.get(entry.type, "no regular file")
                raise WorkFailed(f"has {show(entry.name)}, {words}, which has no content to work on")
            by_name[entry.name] = content
            data = self.piece(content.data, content.data + content.size)
            yield InputField(entry.name[skip:], entry, content, sample.source, data)


_KINDS = {
    block.HARD_LINK: "a hard link to what is not in the sample",
    block.SYMLINK: "a symbolic link",
    block.CHAR: "a device",
    block.BLOCK_DEVICE: "a device",
    block.FIFO: "a FIFO",
}


def find_program(name: str, path: str) -> str:
    """Return the path of a program, looked for in the directories of `path`. Raises TarkitError."""
    from shutil import which

    program = name if "/" in name else which(name, path=path)
    if program is None:
        raise TarkitError(f"{show(name)} is needed to run commands and was not found")
    return os.path.abspath(program)


Finished = tuple[Job, Outcome]
