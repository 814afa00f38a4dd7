"""From samples to samples: number them, run them, decide about failures, check new keys."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tarkit import errors
from tarkit.errors import Problem, TarkitError, Usage, show, signal_name, spell
from tarkit.pipeline.run import CommandOutput
from tarkit.pipeline.stages import keeper
from tarkit.problems import SHOWN, Policy
from tarkit.proc.job import Failure, Finished, Job
from tarkit.proc.pool import Pool
from tarkit.proc.result import with_field
from tarkit.redaction import hide_secrets
from tarkit.samples.sample import Recent, TarSample
from tarkit.sizes import parse_count, plural
from tarkit.tar.writer import EntryWriter

OnError = Literal["error", "skip", "keep"]

ERROR_FIELD = b"__error__.json"
_ADDRESS = r" at 0x[0-9A-Fa-f]{6,}"  # of an object of Python, in its representation
SPARE = 10  # failures above the allowed share that end the run early
_MISTAKES = ("NameError", "UnboundLocalError", "SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError")
_NOT_FOUND = (126, 127)  # exit status of a shell when a program cannot be run, or is not found
LINES = 3  # last lines of stderr in a message
KINDS = 100  # kinds of failures that are told apart by their messages; further ones by their reasons alone


def number_jobs(samples: Iterator[TarSample], policy: Policy, tmpdir: str | None = None) -> Iterator[Job]:
    """Yield a numbered job for each sample, which can be read from any thread for as long as the job lasts.

    Entries without key pass. A sample with a sparse file is a problem for `policy`.
    """
    keep = keeper(tmpdir)
    index = 0
    for sample in samples:
        sample.complete()
        passes = sample.key is None
        sparse = None if passes else next((entry for entry in sample.raw if entry[-1] >= 0), None)
        if sparse is not None:
            name, start, *_ = sparse
            message = f"{show(name)} is a sparse file, whose content is not in one piece"
            if policy.apply(Problem("sparse-entry", sample.source.name, start, message)) == "drop":
                continue
            passes = True
        yield Job(-1 if passes else index, keep(sample), passes)
        index += not passes


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


class SampleRun:
    """Runs jobs, decides about those that fail, and yields the samples for the output; counts them.

    Args:
        pool: runs the jobs.
        policy: what to do about problems of keys.
        on_error: end the run at the first failure, skip such samples, or keep the input samples.
        limit: more failures end the run; a share is checked at the end, and earlier once ten more have failed.
        rejects: takes the input samples of failures, each with a field `__error__.json`.
        warn: called with a line for each failure that does not end the run: for the first three of those that differ
            by the key alone, and then once more.
        verbose: warn of all failures.
        log: called with the key of a sample and what was printed for it.

    Attributes:
        position: bytes of the samples that are finished.
        done: samples that were worked on, with those that failed.
        failed: samples that failed.
        passed: samples that were not worked on and have a key.
        removed: samples without result that did not fail.
        slowest: seconds and key of the sample that took longest.
    """

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        on_error: OnError = "error",
        *,
        limit: ErrorLimit | None = None,
        rejects: EntryWriter | None = None,
        warn: Callable[[str], None] = lambda line: None,
        verbose: bool = False,
        log: Callable[[bytes, Sequence[CommandOutput]], None] = lambda key, log: None,
    ) -> None:
        self.pool = pool
        self.policy = policy
        self.on_error = on_error
        self.limit = limit
        self.rejects = rejects
        self.warn = warn
        self.verbose = verbose
        self.log = log
        self.position = self.done = self.failed = self.passed = self.removed = 0
        self.slowest = (0.0, b"")
        self._alike: Counter[str] = Counter()
        self._keys = Recent()
        self._last: bytes | None = None
        self._renamed = False

    def __call__(
        self, jobs: Iterator[Job], watch: Callable[[Iterator[Finished]], Iterator[Finished]] = iter
    ) -> Generator[TarSample]:
        """Yield the results, each to be used before the next; `watch` sees the finished jobs pass.

        Raises:
            TarkitError: a failure ends the run.
        """
        for job, outcome in watch(self.pool(jobs)):
            self.position += job.sample.size
            if outcome.log:
                self.log(job.key, outcome.log)
            if job.passes:
                self.passed += job.sample.key is not None
                yield from outcome.samples
                self._last = job.sample.key
                continue
            if outcome.seconds > self.slowest[0]:
                self.slowest = (outcome.seconds, job.key)
            self.done += 1
            samples: Sequence[TarSample] = outcome.samples
            if outcome.failure is not None:
                samples = self._fail(job, outcome.failure, outcome.seconds)
            else:
                self.removed += not samples
            for sample in samples:
                key = sample.key
                if self._distinct(sample, job):
                    yield sample
                    self._last = key
            del job, outcome, samples
        self._check_limit(0)
        if self.rejects is not None:
            self.rejects.finish()

    def _fail(self, job: Job, failure: Failure, seconds: float) -> Sequence[TarSample]:
        """Count a failure; return the samples for the output in place of results."""
        self.failed += 1
        message = describe(job, failure)
        if self.on_error == "error":
            hint = f"{spell('on_error', 'skip')} leaves such samples out, {spell('rejects', 'OUT.tar')} collects them"
            if _is_mistake(failure.reason, first=self.done == 1):
                hint = "this looks like a mistake in the function, not in the sample: correct the function"
            if failure.status in _NOT_FOUND:
                hint = "commands run in the directory of the sample: give programs by their absolute paths"
            raise TarkitError(message, failure.hint or hint) from failure.error
        self._tell(job, failure, message)
        if self.rejects is not None:
            with_field(job.sample, ERROR_FIELD, _record(job, failure, seconds)).write(self.rejects)
        self._check_limit(SPARE)
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
        if self.verbose or self._alike[alike] <= SHOWN:
            self.warn(message)
        elif self._alike[alike] == SHOWN + 1:
            more = "they are counted" + ", -v shows all" * (errors.command_line is not None)
            self.warn(f"more samples fail in the same way: '{failure.reason}'; {more}")

    def _check_limit(self, spare: int) -> None:
        if self.limit is not None and self.limit.exceeded(self.failed, self.done, spare):
            message = f"{self.failed} of {plural(self.done, 'sample')} failed"
            raise TarkitError(f"{message}, more than {spell('max_errors')} allows")

    def _distinct(self, sample: TarSample, job: Job) -> bool:
        """Whether no earlier sample, other than the one before it, got its key from what was run."""
        key = sample.key or b""
        self._renamed = self._renamed or key != job.key
        if not self._keys.add(key) or not self._renamed or key == self._last:
            return True
        message = f"{show(job.key)} gave the key {show(key)}, which was given before"
        hint = "each sample needs a key of its own"
        good = self.policy.apply(Problem("scattered-sample", job.shard, None, message, hint)) == "keep"
        if good:
            self.policy.scattered.add(hash(key))
        return good

    def nothing_left(self, kind: str) -> str | None:
        """Return the warning when all samples failed and were skipped, or have no result, at the end of the run.

        Args:
            kind: `map` for a function, else a command was run.
        """
        failed, good = self.failed, self.done - self.failed
        if not good and failed and self.on_error == "skip" and not self.passed:
            return f"nothing is left of {failed} samples: all failed" if failed > 1 else "the only sample failed"
        if self.removed and self.removed == good:
            how = "the command left no file sample.*"
            if kind == "map":
                how = "the function returned None: does it return them?"
            return f"nothing is left of {plural(good, 'sample')}: {how}"
        return None


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
        text += f" ({plural(job.failures, 'attempt')})"
    lines = [line.strip() for line in failure.tail.decode("utf-8", "backslashreplace").splitlines()]
    words = " | ".join([line for line in lines if line][-LINES:])
    return f"{text}: {words}" if words else text


def _stable(text: str) -> str:
    """Return a text of a record: without secrets, and without addresses in memory, which differ from run to run."""
    return hide_secrets(re.sub(_ADDRESS, " at 0x...", text))


def _record(job: Job, failure: Failure, seconds: float) -> bytes:
    """Return the content of `__error__.json`."""
    status = failure.status
    record = {
        "key": os.fsdecode(job.key),
        "shard": job.shard,
        "index": job.index,
        "reason": _stable(failure.reason),
        "status": status,
        "signal": signal_name(-status) if status is not None and status < 0 else None,
        "stderr": _stable(failure.tail.decode("utf-8", "backslashreplace")),
        "seconds": round(seconds, 3),
        "attempts": job.failures,
    }
    return json.dumps(record, indent=1).encode() + b"\n"
