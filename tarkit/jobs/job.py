"""A job: the command lines, or the call, for one value; and how it ended."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from shlex import quote
from typing import Any, NamedTuple, Protocol

from tarkit.errors import printable, signal_name
from tarkit.jobs.values import Value
from tarkit.pipeline.template import ShardTemplate
from tarkit.redaction import hide_secrets
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.tempfile import TemporaryFile

NOT_STARTED, TIMED_OUT = 127, 124  # statuses, as of a shell and of timeout(1)
TAIL = 2000  # bytes of stderr that an outcome keeps

JobStdout = TemporaryFile | bytes
"""What a job wrote to stdout."""


class Counts(NamedTuple):
    """Samples and bytes that a job has written, and what `--join` reports of its table; None without one."""

    samples: int
    bytes: int
    join: dict[str, Any] | None = None

    @property
    def joined(self) -> int | None:
        """How many samples have a row of the table; None if that says nothing about the table."""
        return joined_of(self.join)


def joined_of(counts: dict[str, Any] | None) -> int | None:
    """Return how many samples have a row of a joined table; None if that says nothing about the table."""
    if counts is None or not (counts["with_row"] or (counts["without_row"] and "unused" in counts)):
        return None
    return int(counts["with_row"])


Relay = Callable[["ValueJob", bytes], None]
RunWords = Callable[[Sequence[str]], int]
"""Runs a command line of tarkit, without the word `tarkit`, and returns its exit status."""


@dataclass(frozen=True)
class ValueJob:
    """One job. It can be pickled, if its call can.

    Attributes:
        value: the value that it is done for.
        steps: command lines, each of which reads what the one before it writes.
        inputs, outputs: the files and URLs that it reads and writes, as far as they are known.
        reads: returns the state of its inputs, for a journal.
        storage: how outputs are reached that are URLs.
        series: the templates of the shards that its last step writes.
        replaces: shards of these names are of an earlier attempt, and are replaced.
        directories: are made before it begins.
        common: options of steps of tarkit that do not change the output, such as `--verbose`.
        call: is called in place of steps; returns the samples and bytes that it wrote.
        name: the name of the call, which tells it from others.
    """

    value: Value
    steps: tuple[tuple[str, ...], ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    reads: Callable[[], dict[str, str | None]] = dict
    storage: StoreOptions | None = None
    series: tuple[ShardTemplate, ...] = ()
    replaces: bool = False
    directories: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    call: Callable[[], Counts] | None = None
    name: str = ""

    def shown(self) -> str:
        """Return the command line for bash, on one line, without secrets of URLs."""
        whole = ((*step[:1], *self.common, *step[1:]) if step[0] == "tarkit" else step for step in self.steps)
        words = (map(shell_word, (hide_secrets(word, whole=bool(scheme_of(word))) for word in step)) for step in whole)
        return " | ".join(map(" ".join, words)) if self.steps else self.name


_ESCAPES = {"\n": r"\n", "\t": r"\t", "\\": r"\\", "'": r"\'"}
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\udc80-\udcff]")


def shell_word(word: str) -> str:
    """Return a word for bash: quoted, and with escapes (the form $'...') if it has unprintable characters."""
    return f"$'{''.join(map(_escaped, word))}'" if _UNPRINTABLE.search(word) else quote(word)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char)) if _UNPRINTABLE.match(char) else char


def print_line(job: ValueJob, line: bytes) -> None:
    """Write a line of a job's stderr to stderr, after its value; a closed stderr is not an error."""
    if b"://" in line or b"=" in line:
        line = os.fsencode(hide_secrets(os.fsdecode(line)))
    data = printable(public_name(job.value.text)).encode() + b": " + line + b"\n"
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass


@dataclass
class JobOutcome:
    """How an attempt of a job ended.

    Attributes:
        status: 0 if it succeeded; of a signal its negative number.
        seconds: how long it took.
        samples, bytes: the size of its output, if the last step is a command of tarkit, which reports it.
        joined: how many of its samples have a row of the table of `--join`; None without one, or without samples.
        attempt: its number, from 1.
        host: the machine.
        start: when it began, in UTC.
        tail: the last lines of its stderr.
        output: the bytes that it wrote to stdout, if it succeeded.
    """

    status: int
    seconds: float = 0.0
    samples: int | None = None
    bytes: int | None = None
    attempt: int = 1
    joined: int | None = field(default=None, kw_only=True)
    host: str = field(default_factory=lambda: os.uname().nodename)
    start: str = ""
    tail: str = ""
    output: JobStdout | None = field(default=None, repr=False)

    def words(self) -> str:
        """Return how it ended, in words."""
        if self.status == TIMED_OUT:
            return "timed out"
        return f"status {self.status}" if self.status >= 0 else signal_name(-self.status)


class JobExecutor(Protocol):
    """An executor: runs jobs.

    Attributes:
        slots: how many jobs are submitted at a time; it may change.
    """

    slots: int

    def submit(self, job: ValueJob, attempt: int) -> None:
        """Begin a job."""

    def wait(self, seconds: float) -> list[tuple[ValueJob, JobOutcome]]:
        """Return the jobs that have ended; wait up to `seconds` while there are none."""

    def cancel(self) -> None:
        """End all jobs that run; `wait` does not return them."""

    def close(self) -> None:
        """End all jobs that run, and the processes started for them."""


def make_directories(job: ValueJob, working: str | None = None) -> None:
    """Make the directories of a job's outputs, relative to the directory `working`, or to that of this process."""
    for directory in job.directories:
        os.makedirs(os.path.join(working or "", directory), exist_ok=True)


def utc_now() -> str:
    """Return the time in UTC, as an outcome has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
