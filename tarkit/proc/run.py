"""From samples to samples: number them, run them, handle failures, check keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tarkit.errors import Problem, show
from tarkit.problems import Policy
from tarkit.proc.engine import CommandOutput, Finished, Job, Runner
from tarkit.proc.policy import FailurePolicy
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import keeper, neighbours
from tarkit.samples.sample import Recent, TarSample


def number_jobs(samples: Iterator[TarSample], policy: Policy, tmpdir: str | None = None) -> Iterator[Job]:
    """Yield a job for each sample, numbered; entries without key pass."""
    return prepare_jobs((Job(-1, sample, passes=sample.key is None) for sample in samples), policy, tmpdir)


def prepare_jobs(jobs: Iterator[Job], policy: Policy, tmpdir: str | None = None) -> Iterator[Job]:
    """Yield jobs whose samples can be read from any thread for as long as the job lasts; number those without number.

    A sample with a sparse file is a problem for `policy`.
    """
    keep = keeper(tmpdir)
    index = 0
    for job in jobs:
        sample = job.sample
        sample.complete()
        if not job.passes:
            action = None
            for name, start, *_, real in sample.raw:
                if real >= 0:
                    what = f"{show(name)} is a sparse file, whose content is not in one piece"
                    action = policy.apply(Problem("sparse-entry", sample.source.name, start, what))
                    break
            if action == "drop":
                continue
            job.passes = action is not None
        if not job.passes and job.index < 0:
            job.index = index
            index += 1
        job.sample = keep(sample)
        yield job


class SampleRun:
    """Runs jobs and yields the samples for the output; counts both.

    Args:
        runner: runs the jobs.
        policy: what to do about problems of keys.
        failures: decides what becomes of samples that fail.
        fields: is applied to the results.
        apart: apply `fields` to results alone, not to jobs that pass.
        distinct: check for keys that occur again later, too.
        log: called with the key of a sample and what was printed for it.

    Attributes:
        position: bytes of the samples that are finished.
        written: samples that were taken from the iterator and have a key.
        last: key of the last of these.
        removed: samples without result that did not fail.
        slowest: seconds and key of the sample that took longest.
    """

    def __init__(
        self,
        runner: Runner,
        policy: Policy,
        failures: FailurePolicy,
        *,
        fields: Fields | None = None,
        apart: bool = False,
        distinct: bool = False,
        tmpdir: str | None = None,
        log: Callable[[bytes, Sequence[CommandOutput]], None] = lambda key, log: None,
    ) -> None:
        self.runner = runner
        self.policy = policy
        self.failures = failures
        self.fields = fields
        self.apart = apart
        self.distinct = distinct
        self.tmpdir = tmpdir
        self.log = log
        self.position = self.written = self.removed = 0
        self.last: bytes | None = None
        self.slowest = (0.0, b"")
        self._keys = Recent()
        self._renamed = False

    def __call__(
        self, jobs: Iterator[Job], watch: Callable[[Iterator[Finished]], Iterator[Finished]] = iter
    ) -> Iterator[TarSample]:
        """Yield the samples for the output, each to be used before the next; `watch` sees the finished jobs pass."""
        samples = self._samples(watch(self.runner(jobs)))
        if self.fields is not None and not self.apart:
            samples = self.fields(samples, self.policy)
        for sample in neighbours(samples, self.policy, self.tmpdir, self.distinct):
            yield sample
            self.written += sample.key is not None
            self.last = sample.key
        self.failures.finish()

    def nothing_left(self, kind: str) -> str | None:
        """Return the warning when all samples failed and were skipped, or have no result, at the end of the run.

        Args:
            kind: `map` for a function, else a command was run.
        """
        failed, done = self.failures.failed, self.failures.done - self.failures.failed
        if not done and failed and self.failures.on_error == "skip" and not self.written:
            return f"nothing is left of {failed} samples: all failed" if failed > 1 else "the only sample failed"
        if self.removed and self.removed == done:
            how = "the command left no file sample.*"
            if kind == "map":
                how = "the function returned None: does it return them?"
            return f"nothing is left of {done} sample{'' if done == 1 else 's'}: {how}"
        return None

    def _samples(self, finished: Iterator[Finished]) -> Iterator[TarSample]:
        for job, outcome in finished:
            self.position += job.sample.size
            if outcome.log:
                self.log(job.key, outcome.log)
            if job.passes:
                yield from outcome.samples
                continue
            if outcome.seconds > self.slowest[0]:
                self.slowest = (outcome.seconds, job.key)
            samples: Sequence[TarSample] = outcome.samples
            if outcome.failure is not None:
                samples = self.failures.apply(job, outcome.failure, self.written, self.last)
            else:
                self.failures.passed()
                self.removed += not samples
            good: Iterator[TarSample] = (sample for sample in samples if self._distinct(sample, job))
            yield from self.fields(good, self.policy) if self.fields is not None and self.apart else good
            del job, outcome, samples, good

    def _distinct(self, sample: TarSample, job: Job) -> bool:
        """Whether no earlier sample, other than the one before it, got its key from what was run."""
        key = sample.key or b""
        self._renamed = self._renamed or key != job.key
        if not self._keys.add(key) or not self._renamed or key == self.last:
            return True
        what = f"{show(job.key)} gave the key {show(key)}, which was given before"
        hint = "each sample needs a key of its own"
        good = self.policy.apply(Problem("scattered-sample", job.shard, None, what, hint)) == "keep"
        if good:
            self.policy.scattered.add(hash(key))
        return good


def run_samples(
    samples: Iterator[TarSample],
    runner: Runner,
    policy: Policy,
    failures: FailurePolicy | None = None,
    tmpdir: str | None = None,
) -> Iterator[TarSample]:
    """Yield what becomes of samples, in order; the first failure is an error unless `failures` says otherwise.

    Raises:
        TarkitError: a sample failed.
        Problem: keys of the results cannot be told apart.
    """
    return SampleRun(runner, policy, failures or FailurePolicy(), tmpdir=tmpdir)(number_jobs(samples, policy, tmpdir))
