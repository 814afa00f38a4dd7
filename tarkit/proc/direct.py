"""A Python function that is called in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Self

from tarkit.errors import MissingLibrary, TarkitError
from tarkit.proc.call import FunctionOptions, new_samples, pieces_of
from tarkit.proc.child import NewSample, SampleFunction, failure_of, load
from tarkit.proc.engine import BatchFailed, Failure, Finished, Job, Outcome, RunOptions, retried


class DirectRunner:
    """A runner that calls a callable in this process, in the thread that takes the results: a debugger works.

    What the function prints is printed; what it raises is the cause of the error that ends the run.

    Args:
        options: the function; `timeout` and `tmpdir` have no effect.
        batch: samples in a call; None where the function takes one sample.
        run: order and retries.
    """

    def __init__(self, options: FunctionOptions, batch: int | None, run: RunOptions) -> None:
        self.options = options
        self.batch = batch
        self.run = run
        self._function: SampleFunction | None = None

    def __call__(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Yield each job with its outcome."""
        try:
            self._function = load(self.options.settings(-1))
        except TarkitError as error:
            raise TarkitError(f"{self.options.label}: {error}", error.hint) from error.__cause__
        group: list[Job] = []
        for job in jobs:
            if job.passes:
                yield from self._finish(group)
                group = []
                yield job, Outcome((job.sample,))
                continue
            group.append(job)
            if len(group) >= (self.batch or 1):
                yield from self._finish(group)
                group = []
        yield from self._finish(group)

    def _finish(self, jobs: list[Job]) -> Iterator[Finished]:
        """Yield jobs with their outcomes, after further attempts at those that failed."""
        if jobs:
            for job, outcome in zip(jobs, retried(self._outcomes, jobs, self.run.retries), strict=True):
                assert outcome is not None
                yield job, outcome

    def _outcomes(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Call the function with the samples of jobs. Raises BatchFailed when a call with several fails."""
        assert self._function is not None
        samples = [(name, start, data, *each) for name, start, data, some in pieces_of(list(jobs)) for each in some]
        started = time.monotonic()
        made: list[list[NewSample] | Exception]
        try:
            made = [self._function.one(*samples[0])] if self.batch is None else self._function.many(samples)
        except MissingLibrary:
            raise
        except Exception as error:
            failure = self._failure(error, time.monotonic() - started)
            if len(jobs) > 1:
                raise BatchFailed(failure) from error
            return [Outcome(failure=failure, seconds=failure.seconds)]
        seconds = (time.monotonic() - started) / len(jobs)
        return [
            Outcome(failure=self._failure(each, seconds), seconds=seconds)
            if isinstance(each, Exception)
            else Outcome(new_samples(job, each), seconds=seconds)
            for job, each in zip(jobs, made, strict=True)
        ]

    def _failure(self, error: Exception, seconds: float) -> Failure:
        reason, tail = failure_of(error)
        return Failure(reason, None, tail, seconds, error=error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass
