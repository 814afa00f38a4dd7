"""From samples to samples: number them, run them, handle failures, check new keys."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from tarkit.errors import Problem, show
from tarkit.pipeline.run import CommandOutput
from tarkit.pipeline.stages import keeper
from tarkit.problems import Policy
from tarkit.proc.job import Finished, Job
from tarkit.proc.policy import FailurePolicy
from tarkit.proc.pool import Pool
from tarkit.samples.sample import Recent, TarSample


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
            what = f"{show(name)} is a sparse file, whose content is not in one piece"
            if policy.apply(Problem("sparse-entry", sample.source.name, start, what)) == "drop":
                continue
            passes = True
        yield Job(-1 if passes else index, keep(sample), passes)
        index += not passes


class SampleRun:
    """Runs jobs and yields their results; counts both.

    Args:
        pool: runs the jobs.
        policy: what to do about problems of keys.
        failures: decides what becomes of samples that fail.
        log: called with the key of a sample and what was printed for it.

    Attributes:
        position: bytes of the samples that are finished.
        passed: samples that were not worked on and have a key.
        removed: samples without result that did not fail.
        slowest: seconds and key of the sample that took longest.
    """

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        failures: FailurePolicy,
        log: Callable[[bytes, Sequence[CommandOutput]], None] = lambda key, log: None,
    ) -> None:
        self.pool = pool
        self.policy = policy
        self.failures = failures
        self.log = log
        self.position = self.passed = self.removed = 0
        self.slowest = (0.0, b"")
        self._keys = Recent()
        self._last: bytes | None = None
        self._renamed = False

    def __call__(
        self, jobs: Iterator[Job], watch: Callable[[Iterator[Finished]], Iterator[Finished]] = iter
    ) -> Generator[TarSample]:
        """Yield the results, each to be used before the next; `watch` sees the finished jobs pass."""
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
            samples: Sequence[TarSample] = outcome.samples
            if outcome.failure is not None:
                samples = self.failures.apply(job, outcome.failure, outcome.seconds)
            else:
                self.failures.passed()
                self.removed += not samples
            for sample in samples:
                key = sample.key
                if self._distinct(sample, job):
                    yield sample
                    self._last = key
            del job, outcome, samples
        self.failures.finish()

    def nothing_left(self, kind: str) -> str | None:
        """Return the warning when all samples failed and were skipped, or have no result, at the end of the run.

        Args:
            kind: `map` for a function, else a command was run.
        """
        failed, done = self.failures.failed, self.failures.done - self.failures.failed
        if not done and failed and self.failures.on_error == "skip" and not self.passed:
            return f"nothing is left of {failed} samples: all failed" if failed > 1 else "the only sample failed"
        if self.removed and self.removed == done:
            how = "the command left no file sample.*"
            if kind == "map":
                how = "the function returned None: does it return them?"
            return f"nothing is left of {done} sample{'' if done == 1 else 's'}: {how}"
        return None

    def _distinct(self, sample: TarSample, job: Job) -> bool:
        """Whether no earlier sample, other than the one before it, got its key from what was run."""
        key = sample.key or b""
        self._renamed = self._renamed or key != job.key
        if not self._keys.add(key) or not self._renamed or key == self._last:
            return True
        what = f"{show(job.key)} gave the key {show(key)}, which was given before"
        hint = "each sample needs a key of its own"
        good = self.policy.apply(Problem("scattered-sample", job.shard, None, what, hint)) == "keep"
        if good:
            self.policy.scattered.add(hash(key))
        return good
