"""The steps that change contents: they call a Python function, or run a command, for each sample."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tarkit.api.chain import at_least, function, number, one_of
from tarkit.api.sample import WHOLE, Sample
from tarkit.api.steps import Flow, Step
from tarkit.api.writers import encode_value
from tarkit.errors import Usage
from tarkit.proc.engine import Runner, RunOptions
from tarkit.proc.policy import FailurePolicy, OnError
from tarkit.proc.run import SampleRun, number_jobs
from tarkit.samples.sample import TarSample


@dataclass
class SampleWork(Step):
    """Processing of each sample, `processes` at a time (0: one per CPU).

    Raises:
        Usage: an argument is out of range.
    """

    processes: int = 1
    ordered: bool = True
    retries: int = 0
    timeout: float | None = None
    on_error: OnError = "error"
    name = "map"
    counts = True

    def __post_init__(self) -> None:
        at_least(0, processes=self.processes, retries=self.retries)
        one_of("on_error", self.on_error, OnError)
        if self.timeout is not None:
            number(timeout=self.timeout)
            if not self.timeout > 0:
                raise Usage(f"timeout={self.timeout}: it is more than 0 seconds, or None")

    def runner(self, how: RunOptions, flow: Flow) -> AbstractContextManager[Runner]:
        """Return the runner that processes the samples."""
        raise NotImplementedError

    def __call__(self, samples: Iterator[TarSample], flow: Flow) -> Iterator[TarSample]:
        """Return the results; the processes end with the iterator."""
        flow.repeated = None  # keys change, and samples are read ahead
        results = self._results(samples, flow)
        flow.iterators.append(results)
        return results

    def _results(self, samples: Iterator[TarSample], flow: Flow) -> Generator[TarSample]:
        run, tmpdir = flow.run, flow.inputs.tmpdir
        how = RunOptions(self.processes or os.cpu_count() or 1, self.retries, self.ordered, self.on_error == "error")
        with self.runner(how, flow) as runner:
            failures = FailurePolicy(self.on_error, warn=run.warn)
            results = SampleRun(runner, run.policy, failures, tmpdir=tmpdir, log=lambda key, log: None)
            yield from results(number_jobs(samples, run.policy, tmpdir))
        if (left := results.nothing_left(self.name)) is not None:
            run.warn(left)


@dataclass
class CallFunction(SampleWork):
    """Call a Python function for each sample."""

    function: Callable[[Sample], Any] = lambda sample: sample

    def __post_init__(self) -> None:
        super().__post_init__()
        function(function=self.function)

    def runner(self, how: RunOptions, flow: Flow) -> AbstractContextManager[Runner]:
        """Return a runner that calls the function in this process, or in copies of it."""
        from tarkit.proc.function import FunctionOptions, function_runner

        options = FunctionOptions(
            self.function, timeout=self.timeout, tmpdir=flow.inputs.tmpdir, wrap=_as_sample, encode=encode_value
        )
        return function_runner(options, None, how)


@dataclass
class RunCommand(SampleWork):
    """Run a shell command for each sample, in a directory that has its fields as files."""

    command: str = "true"
    name = "proc"

    def runner(self, how: RunOptions, flow: Flow) -> AbstractContextManager[Runner]:
        """Return a runner that starts the command for each sample."""
        from tarkit.proc.shell import command_runner

        environment = dict(os.environb)
        return command_runner(
            self.command, how, environment=environment, timeout=self.timeout, tmpdir=flow.inputs.tmpdir
        )


def _as_sample(sample: TarSample) -> Mapping[str, Any]:
    """Return the argument of the function."""
    small = sample.stop - sample.start <= WHOLE
    return Sample(sample, sample.source.read(sample.start, sample.stop) if small else None)
