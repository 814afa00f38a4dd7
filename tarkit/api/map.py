"""The steps that change contents: a Python function for each sample, or a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tarkit.api.sample import WHOLE, Sample
from tarkit.api.steps import Flow, Step
from tarkit.api.writers import encode_value
from tarkit.proc.engine import Runner, RunOptions
from tarkit.proc.policy import FailurePolicy, OnError
from tarkit.proc.run import SampleRun, number_jobs
from tarkit.samples.sample import TarSample


@dataclass
class SampleWork(Step):
    """Work that is done on each sample, `processes` at a time (0: one per CPU)."""

    processes: int = 1
    ordered: bool = True
    retries: int = 0
    timeout: float | None = None
    on_error: OnError = "error"
    counts = True

    def runner(self, how: RunOptions, flow: Flow) -> AbstractContextManager[Runner]:
        """Return what does the work."""
        raise NotImplementedError

    def __call__(self, samples: Iterator[TarSample], flow: Flow) -> Iterator[TarSample]:
        """Return the results; the processes end with the iterator."""
        run, tmpdir = flow.run, flow.inputs.tmpdir
        how = RunOptions(self.processes or os.cpu_count() or 1, self.retries, self.ordered, self.on_error == "error")
        with self.runner(how, flow) as runner:
            failures = FailurePolicy(self.on_error, warn=run.warn)
            results = SampleRun(runner, run.policy, failures, tmpdir=tmpdir, log=lambda key, log: None)
            yield from results(number_jobs(samples, run.policy, tmpdir))


@dataclass
class CallFunction(SampleWork):
    """Call a Python function for each sample."""

    function: Callable[[Sample], Any] = lambda sample: sample

    def runner(self, how: RunOptions, flow: Flow) -> AbstractContextManager[Runner]:
        """Return what calls the function: this process where it is one at a time, else copies of it."""
        from tarkit.proc.function import FunctionOptions, function_runner

        options = FunctionOptions(
            self.function, timeout=self.timeout, tmpdir=flow.inputs.tmpdir, wrap=_view, encode=encode_value
        )
        return function_runner(options, None, how)


@dataclass
class RunCommand(SampleWork):
    """Run a shell command for each sample, in a directory with its fields as files."""

    command: str = "true"

    def runner(self, how: RunOptions, flow: Flow) -> AbstractContextManager[Runner]:
        """Return what runs the command."""
        from tarkit.proc.shell import command_runner

        environment = dict(os.environb)
        return command_runner(
            self.command, how, environment=environment, timeout=self.timeout, tmpdir=flow.inputs.tmpdir
        )


def _view(sample: TarSample) -> Mapping[str, Any]:
    """The sample as the function gets it."""
    small = sample.stop - sample.start <= WHOLE
    return Sample(sample, sample.source.read(sample.start, sample.stop) if small else None)
