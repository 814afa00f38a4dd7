"""What `proc` does between its samples and its output: what failed, what was said, what came out, a summary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tarkit.cli.console import Run
from tarkit.cli.messages import bars_hidden
from tarkit.errors import Problem, show
from tarkit.problems import Policy
from tarkit.proc.engine import CommandOutput, Finished, Job
from tarkit.proc.policy import Failures
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import keeper
from tarkit.samples.sample import Recent, TarSample

PIECE = 1 << 16  # bytes of what a command said that are passed on at a time


def jobs_of(samples: Iterator[TarSample], policy: Policy, tmpdir: str | None) -> Iterator[Job]:
    """Number the samples. What has no key only passes; what has a sparse file is for `policy` to judge."""
    return prepared((Job(-1, sample, passes=sample.key is None) for sample in samples), policy, tmpdir)


def prepared(jobs: Iterator[Job], policy: Policy, tmpdir: str | None) -> Iterator[Job]:
    """See that the samples of jobs are good for as long as the jobs are; number those that have no number."""
    keep = keeper(tmpdir)
    index = 0
    for job in jobs:
        sample = job.sample
        sample.complete()
        if not job.passes:
            for name, start, *_, real in sample.raw:
                if real >= 0:
                    what = f"{show(name)} is a sparse file, whose content is not in one piece"
                    judged = policy.judge(Problem("sparse-entry", sample.source.name, start, what))
                    break
            else:
                judged = None
            if judged == "drop":
                continue
            job.passes = judged is not None
        if not job.passes and job.index < 0:
            job.index = index
            index += 1
        job.sample = keep(sample)
        yield job


@dataclass
class Results:
    """Makes samples for the output of what is finished, and counts. `apart` applies `fields` to what was worked on."""

    run: Run
    failures: Failures
    fields: Fields
    policy: Policy
    apart: bool = False
    kind: str = "shell"  # what worked on them, as `tarkit.cli.proc_executors.Kind` has it
    position: int = 0  # bytes of the samples that are finished
    last: bytes | None = None  # key of the last sample that was written
    removed: int = 0
    slowest: tuple[float, bytes] = (0.0, b"")
    _keys: Recent = field(default_factory=Recent)
    _renamed: bool = False

    def __call__(self, finished: Iterator[Finished]) -> Iterator[TarSample]:
        """The samples for the output."""
        samples = self._samples(finished)
        return samples if self.apart else self.fields(samples, self.policy)

    def _samples(self, finished: Iterator[Finished]) -> Iterator[TarSample]:
        for job, outcome in finished:
            self.position += job.sample.size
            if outcome.said:
                relay(self.run, job.key, outcome.said)
            if job.passes:
                yield from outcome.samples
                continue
            if outcome.seconds > self.slowest[0]:
                self.slowest = (outcome.seconds, job.key)
            samples: Sequence[TarSample] = outcome.samples
            if outcome.failure is not None:
                samples = self.failures.judge(job, outcome.failure, self.run.samples, self.last)
            else:
                self.failures.passed()
                self.removed += not samples
            good: Iterator[TarSample] = (sample for sample in samples if self._distinct(sample, job))
            yield from self.fields(good, self.policy) if self.apart else good
            del job, outcome, samples, good

    def _distinct(self, sample: TarSample, job: Job) -> bool:
        """Whether no sample before it, but for a neighbour, got its key from what was run."""
        key = sample.key or b""
        self._renamed = self._renamed or key != job.key
        if not self._keys.add(key) or not self._renamed or key == self.last:
            return True
        what = f"{show(job.key)} gave the key {show(key)}, which was given before"
        hint = "each sample needs a key of its own"
        good = self.policy.judge(Problem("scattered-sample", job.shard, None, what, hint)) == "keep"
        if good:
            self.policy.scattered.add(hash(key))
        return good

    def summarize(self) -> None:
        """Say what is to be said in the end."""
        failures, run = self.failures, self.run
        skipped = failures.failed if failures.on_error == "skip" else 0
        run.facts |= {"done": failures.done - failures.failed, "failed": failures.failed, "left_out": skipped}
        run.facts |= {"removed": self.removed, "kept": failures.failed - skipped}
        run.extra = f", {failures.done - failures.failed} done, {skipped} skipped, {failures.failed} failed"
        run.extra += f", {self.removed} removed" if self.removed else ""
        if self.slowest[0] > 0:
            seconds, key = self.slowest
            run.facts["slowest"] = {"key": os.fsdecode(key), "seconds": round(seconds, 3)}
            run.extra += f", slowest {show(key)} with {seconds:.2f} s"
        self._tell_removed()
        if failures.failed:
            became = "was left out" if skipped else "was kept as it came in"
            many = became.replace("was", "were").replace("it", "they")
            run.tell(
                f"1 sample failed and {became}"
                if failures.failed == 1
                else f"{failures.failed} samples failed and {many}"
            )

    def _tell_removed(self) -> None:
        """Say so where samples may have been removed unawares: by a program, or all of them."""
        done = self.failures.done - self.failures.failed
        samples = f"{done} samples" if done != 1 else "1 sample"
        if self.removed and self.kind == "worker":
            had = "had no answer and was" if self.removed == 1 else "had no answer and were"
            self.run.tell(f"{self.removed} of {samples} {had} removed")
        elif not done and self.failures.failed and self.failures.on_error == "skip" and not self.run.samples:
            failed = self.failures.failed
            self.run.warn(
                f"nothing is left of {failed} samples: all failed" if failed > 1 else "the only sample failed"
            )
        elif self.removed and self.removed == done:
            how = "the function gave None" if self.kind == "map" else "the command left no file sample.*"
            hint = ": does it return them?" if self.kind == "map" else ""
            self.run.warn(f"nothing is left of {samples}: {how}{hint}")


def relay(run: Run, key: bytes, said: Sequence[CommandOutput]) -> None:
    """Pass on what a command said, under -v with its key before each line."""
    if run.quiet:
        return
    prefix = show(key)[1:-1].encode() + b": " if run.verbose else b""
    try:
        with bars_hidden():
            for each in said:
                _relay(each, prefix)
    except OSError:
        pass  # stderr is closed


def _relay(said: CommandOutput, prefix: bytes) -> None:
    pos = 0
    border = True  # of a line
    while data := said.read(pos, pos + PIECE):
        pos += len(data)
        if prefix:
            ended = data.endswith(b"\n")
            data = (prefix if border else b"") + data[: -1 if ended else None].replace(b"\n", b"\n" + prefix)
            data, border = data + b"\n" * ended, ended
        while data:
            data = data[os.write(2, data) :]
    if prefix and not border:
        os.write(2, b"\n")


def number_of_hands(parallel: int, processors: Callable[[], int | None]) -> int:
    """What -p says: 0 is as many as there are processors."""
    return parallel or processors() or 1
