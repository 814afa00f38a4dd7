"""What to do about samples that fail: end the run, skip or keep them, write them to rejects, end after too many."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tarkit import errors
from tarkit.errors import TarkitError, Usage, show, signal_name, spell
from tarkit.problems import SHOWN
from tarkit.proc.job import Failure, Job
from tarkit.proc.result import with_field
from tarkit.redaction import hide_secrets
from tarkit.samples.sample import TarSample
from tarkit.sizes import parse_count
from tarkit.tar.writer import EntryWriter

OnError = Literal["error", "skip", "keep"]

ERROR_FIELD = b"__error__.json"
_ADDRESS = r" at 0x[0-9A-Fa-f]{6,}"  # of an object of Python, in its representation
SPARE = 10  # failures above the allowed share that end the run early
_MISTAKES = ("NameError", "UnboundLocalError", "SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError")
_NOT_FOUND = (126, 127)  # exit status of a shell when a program cannot be run, or is not found
LINES = 3  # last lines of stderr in a message
KINDS = 100  # kinds of failures that are told apart by their messages; further ones by their reasons alone


@dataclass(frozen=True)
class ErrorLimit:
    """How many samples may fail: a number, or a share in percent."""

    count: int | None = None
    percent: float | None = None

    def exceeded(self, failed: int, done: int, spare: int = 0) -> bool:
        """Return whether `failed` of `done` are too many; a share may be exceeded by `spare`."""
        if self.count is not None and failed > self.count:
            return True
        return self.percent is not None and failed > done * self.percent / 100 + spare


def parse_limit(text: str) -> ErrorLimit:
    """Parse `N` or `P%`. Raises Usage."""
    number = text.removesuffix("%").strip()
    try:
        if text.endswith("%"):
            percent = float(number)
            if 0 <= percent <= 100:
                return ErrorLimit(percent=percent)
        elif (count := parse_count(number)) is not None:
            return ErrorLimit(count=count)
    except ValueError:
        pass
    raise Usage(f"{spell('max_errors')} {show(text)}: expected a number of samples, or a share such as 1%")


class FailurePolicy:
    """Judges samples that failed, and counts.

    Args:
        on_error: end the run at the first failure, skip such samples, or keep the input samples.
        limit: more failures end the run; a share is checked at the end, and earlier once ten more have failed.
        rejects: takes the input samples, each with a field `__error__.json`.
        warn: called with a line for each failure that does not end the run: for the first three of those that differ
            by the key alone, and then once more.
        every: warn of all failures.

    Attributes:
        failed: samples that failed.
        done: samples that were worked on, with those that failed.
    """

    def __init__(
        self,
        on_error: OnError = "error",
        limit: ErrorLimit | None = None,
        rejects: EntryWriter | None = None,
        warn: Callable[[str], None] = lambda line: None,
        every: bool = False,
    ) -> None:
        self.on_error = on_error
        self.limit = limit
        self.rejects = rejects
        self.warn = warn
        self.every = every
        self.failed = 0
        self.done = 0
        self._alike: Counter[str] = Counter()

    def passed(self) -> None:
        """Count a sample that did not fail."""
        self.done += 1

    def apply(self, job: Job, failure: Failure, seconds: float) -> Sequence[TarSample]:
        """Count a failure; return the samples for the output in place of results.

        Args:
            job: the sample that failed.
            failure: why it did.
            seconds: time of the last attempt.

        Raises:
            TarkitError: the run ends here.
        """
        self.done += 1
        self.failed += 1
        message = describe(job, failure)
        if self.on_error == "error":
            hint = f"{spell('on_error', 'skip')} leaves such samples out, {spell('rejects', 'OUT.tar')} collects them"
            if _is_mistake(failure.reason, first=self.done == 1):
                hint = "this looks like a mistake in the function, not in the sample: correct the function"
            if failure.status in _NOT_FOUND:
                hint = "commands run in the directory of the sample: give programs by their absolute paths"
            raise TarkitError(message, hint) from failure.error
        self._tell(job, failure, message)
        if self.rejects is not None:
            with_field(job.sample, ERROR_FIELD, _record(job, failure, seconds)).write(self.rejects)
        self._check(SPARE)
        return [job.sample] if self.on_error == "keep" else []

    def _tell(self, job: Job, failure: Failure, message: str) -> None:
        """Warn of a failure, unless there were several of its kind."""
        key = show(job.key)
        reason = failure.reason.replace(key, "KEY")
        detail = message.removeprefix(f"{job.shard}: {key} {failure.reason}")
        alike = reason + re.sub(rf"(?<!\w){re.escape(key[1:-1])}(?!\w)", "KEY", detail)
        if alike not in self._alike and len(self._alike) >= KINDS:
            alike = reason
        self._alike[alike] += 1
        if self.every or self._alike[alike] <= SHOWN:
            self.warn(message)
        elif self._alike[alike] == SHOWN + 1:
            more = "they are counted" + ", -v shows all" * (errors.command_line is not None)
            self.warn(f"more samples fail in the same way: '{failure.reason}'; {more}")

    def finish(self) -> None:
        """Check the limit and finish the rejects, after the last sample."""
        self._check(0)
        if self.rejects is not None:
            self.rejects.finish()

    def _check(self, spare: int) -> None:
        if self.limit is not None and self.limit.exceeded(self.failed, self.done, spare):
            what = f"{self.failed} of {self.done} samples failed"
            raise TarkitError(f"{what}, more than {spell('max_errors')} allows")


def _is_mistake(reason: str, first: bool) -> bool:
    """Return whether a function fails, by its error or its result, in a way that hardly depends on the sample.

    Errors that a bad sample can cause as well are taken for mistakes of the function at the first sample alone.
    """
    raised = re.match(r"raised (\w+)", reason)
    if raised is None:
        return first and reason.startswith("returned ")
    return raised[1] in _MISTAKES or (first and raised[1] in ("TypeError", "AttributeError"))


def describe(job: Job, failure: Failure) -> str:
    """Return a line with the shard, the key, the reason and the last lines of stderr."""
    text = f"{job.shard}: {show(job.key)} {failure.reason}"
    if job.failures > 1:
        text += f" ({job.failures} attempts)"
    lines = [line.strip() for line in failure.tail.decode("utf-8", "backslashreplace").splitlines()]
    words = " | ".join([line for line in lines if line][-LINES:])
    return f"{text}: {words}" if words else text


def _told(text: str) -> str:
    """Return a text of a record: without secrets, and the same in each run: without addresses in memory."""
    return hide_secrets(re.sub(_ADDRESS, " at 0x...", text))


def _record(job: Job, failure: Failure, seconds: float) -> bytes:
    """Return the content of `__error__.json`."""
    status = failure.status
    record = {
        "key": os.fsdecode(job.key),
        "shard": job.shard,
        "index": job.index,
        "reason": _told(failure.reason),
        "status": status,
        "signal": signal_name(-status) if status is not None and status < 0 else None,
        "stderr": _told(failure.tail.decode("utf-8", "backslashreplace")),
        "seconds": round(seconds, 3),
        "attempts": job.failures,
    }
    return json.dumps(record, indent=1).encode() + b"\n"
