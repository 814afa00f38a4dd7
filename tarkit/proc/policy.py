"""What to do about samples that failed: end, go on without them, keep them as they were; collect them; give up."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tarkit.errors import TarkitError, Usage, show, signal_name
from tarkit.problems import SHOWN
from tarkit.proc.engine import Failure, Job
from tarkit.proc.result import with_field
from tarkit.samples.sample import Part, TarSample
from tarkit.tar.writer import EntryWriter

OnError = Literal["error", "skip", "keep"]

ERROR_FIELD = b"__error__.json"
SPARE = 10  # more failures than a share allows end the run before its end
_HINT_CONTINUE = "--on-error skip goes on without such samples, --rejects OUT.tar collects them"
_HINT_NOT_FOUND = (
    "a command runs in the directory of its sample: give programs with their whole path, or say --script FILE"
)
_NOT_FOUND = (126, 127)  # what shells end with when a program cannot be run, or is not found
LINES = 3  # of what was said on stderr are in a message
KINDS = 100  # of failures that are told apart by what was said, then by their reasons alone


@dataclass(frozen=True)
class ErrorLimit:
    """How many samples may fail: so many, or such a share."""

    count: int | None = None
    percent: float | None = None

    def exceeded(self, failed: int, done: int, spare: int = 0) -> bool:
        """Whether `failed` of `done` are too many: of a share, by more than `spare`."""
        if self.count is not None and failed > self.count:
            return True
        return self.percent is not None and failed > done * self.percent / 100 + spare


def parse_limit(text: str) -> ErrorLimit:
    """`N` or `P%`. Raises Usage."""
    number = text.removesuffix("%").strip()
    try:
        if text.endswith("%"):
            percent = float(number)
            if 0 <= percent <= 100:
                return ErrorLimit(percent=percent)
        elif number.isascii() and number.isdigit():
            return ErrorLimit(count=int(number))
    except ValueError:
        pass
    raise Usage(f"--max-errors {show(text)}: it is a number of samples, or a share such as 1%")


class FailurePolicy:
    """Decides what becomes of samples that failed, and counts them.

    `warn` gets a line for each failure that does not end the run: without `every`, for the first three of those that
    are the same but for the key, and then one that more follow. `rejects` takes the samples as they came in,
    each with a field `__error__.json`. A share is judged at the end, and before it once it
    is exceeded by ten.
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
        """A sample was worked on, well."""
        self.done += 1

    def judge(self, job: Job, failure: Failure, written: int, last: bytes | None) -> Sequence[TarSample]:
        """The samples that come out in place of results; raises TarkitError when the run ends here.

        `written` samples came out before it, the last of them with the key `last`.
        """
        self.done += 1
        self.failed += 1
        message = describe(job, failure)
        if self.on_error == "error":
            hint = _HINT_NOT_FOUND if failure.status in _NOT_FOUND else _HINT_CONTINUE
            raise TarkitError(message, hint) from failure.error
        self._tell(job, failure, message)
        if self.rejects is not None:
            record = _record(job, failure, (written, last), self.on_error == "keep")
            with_field(job.sample, ERROR_FIELD, record).write(self.rejects)
        self._check(SPARE)
        return [job.sample] if self.on_error == "keep" else []

    def _tell(self, job: Job, failure: Failure, message: str) -> None:
        """Warn of a failure, unless there were many that are the same."""
        key = show(job.key)
        reason = failure.reason.replace(key, "KEY")
        said = message.removeprefix(f"{job.shard}: {key} {failure.reason}")
        alike = reason + re.sub(rf"(?<!\w){re.escape(key[1:-1])}(?!\w)", "KEY", said)
        if alike not in self._alike and len(self._alike) >= KINDS:
            alike = reason
        self._alike[alike] += 1
        if self.every or self._alike[alike] <= SHOWN:
            self.warn(message)
        elif self._alike[alike] == SHOWN + 1:
            self.warn(f"more samples fail in the same way: '{failure.reason}'; they are only counted, -v names all")

    def finish(self) -> None:
        """All samples have been worked on."""
        self._check(0)
        if self.rejects is not None:
            self.rejects.finish()

    def _check(self, spare: int) -> None:
        if self.limit is not None and self.limit.exceeded(self.failed, self.done, spare):
            raise TarkitError(f"{self.failed} of {self.done} samples failed, more than --max-errors allows")


def describe(job: Job, failure: Failure) -> str:
    """A line that names the sample, its shard, what went wrong, and the last that was said about it."""
    text = f"{job.shard}: {show(job.key)} {failure.reason}"
    if failure.attempts > 1:
        text += f" ({failure.attempts} attempts)"
    lines = [line.strip() for line in failure.tail.decode("utf-8", "backslashreplace").splitlines()]
    words = " | ".join([line for line in lines if line][-LINES:])
    return f"{text}: {words}" if words else text


def _record(job: Job, failure: Failure, place: tuple[int, bytes | None], kept: bool) -> bytes:
    """The content of `__error__.json`: `place` is what came out before it, with `kept` the sample itself is next."""
    written, last = place
    status = failure.status
    record = {
        "key": os.fsdecode(job.key),
        "shard": job.shard,
        "index": job.index,
        "reason": failure.reason,
        "status": status,
        "signal": signal_name(-status) if status is not None and status < 0 else None,
        "stderr": failure.tail.decode("utf-8", "backslashreplace"),
        "seconds": round(failure.seconds, 3),
        "attempts": failure.attempts,
        "place": {"samples": written, "after": None if last is None else os.fsdecode(last), "kept": kept},
    }
    return json.dumps(record, indent=1).encode() + b"\n"


# ---- Samples that were rejected, back to where they belong: `__error__.json` says what came out before each of them

_BACK = "INPUT is the output of the run that made the rejects; if it was put back there since, leave it out of them"
_MOST = 1 << 20  # bytes of such a record


@dataclass(frozen=True)
class Reject:
    """A sample that failed, without its record; `written` samples came before it, the last with the key `after`. If it
    was `kept`, the next one is this very sample, for which the result is put."""

    sample: TarSample
    index: int
    written: int
    after: bytes | None
    kept: bool


def merge_rejects(first: Iterator[TarSample], rejects: Iterator[TarSample]) -> Iterator[Job]:
    """The samples of the first output, which only pass, and between them the rejects, to be worked on once more; those
    that were kept there come in place of themselves.

    Raises TarkitError when the two do not belong together, or a reject is back already.
    """
    written, last = 0, None
    given: set[bytes | None] = set()  # keys of the rejects since the last sample
    reject = _next(rejects)
    for sample in first:
        while reject is not None and reject.written <= written and not reject.kept:
            given.add(reject.sample.key)
            yield _checked(reject, written, last)
            reject = _next(rejects)
        if sample.key is not None and sample.key in given:
            raise TarkitError(
                f"{sample.source.name}: at {sample.start}: {show(sample.key)} is there already, and in the rejects too",
                _BACK,
            )
        if reject is not None and reject.written <= written and sample.key is not None:
            if sample.key != reject.sample.key:
                raise _strange(reject)
            yield _checked(reject, written, last)
            reject = _next(rejects)
        else:
            yield Job(-1, sample, passes=True)
        if sample.key is not None:
            written, last = written + 1, sample.key
            given.clear()
    while reject is not None:
        if reject.kept:
            raise _strange(reject)
        yield _checked(reject, written, last)
        reject = _next(rejects)


def _checked(reject: Reject, written: int, last: bytes | None) -> Job:
    if (reject.written, reject.after) != (written, last):
        raise _strange(reject)
    return Job(reject.index, reject.sample)


def _strange(reject: Reject) -> TarkitError:
    where = "at the start" if reject.after is None else f"behind {show(reject.after)}"
    return TarkitError(
        f"{reject.sample.source.name}: {show(reject.sample.key or b'')} belongs {where}, "
        f"as number {reject.written}, and the inputs have something else there",
        "the inputs are the output, as it was written, of the run that made the rejects",
    )


def _next(rejects: Iterator[TarSample]) -> Reject | None:
    sample = next(rejects, None)
    while sample is not None and sample.key is None:  # entries without key, and nothing to work on
        sample = next(rejects, None)
    return None if sample is None else _reject(sample)


def _reject(sample: TarSample) -> Reject:
    """What a sample of the rejects says of itself; raises TarkitError."""
    sample.complete()
    name = (sample.key or b"") + b"." + ERROR_FIELD
    record = next((entry for entry in sample.entries if entry.name == name), None)
    try:
        if record is None or record.size > _MOST:
            raise ValueError("no such field")
        said = json.loads(sample.source.read(record.data, record.data + record.size))
        place, index = said["place"], int(said["index"])
        after, written, kept = place["after"], int(place["samples"]), place.get("kept") is True
        sample.entries = [entry for entry in sample.entries if entry is not record]
        parts: list[Part] = [(sample.source, entry.start, entry.stop) for entry in sample.entries]
        sample.parts = parts
        return Reject(sample, index, written, None if after is None else os.fsencode(after), kept)
    except (ValueError, KeyError, TypeError) as error:
        what = f"{show(sample.key or b'')} has no {os.fsdecode(ERROR_FIELD)} that says where it belongs: {error}"
        raise TarkitError(f"{sample.source.name}: {what}", "--redo takes what --rejects wrote") from None
