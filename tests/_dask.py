"""A cluster of Dask for tests: a scheduler and workers, each a process of its own."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests._tools import happens

if importlib.util.find_spec("distributed") is None:
    pytest.skip("distributed is not installed: pip install 'tarkit[dask]'", allow_module_level=True)


class Cluster:
    """A scheduler of Dask, and its workers, in a directory of their own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self._env: dict[str, str] = {}
        self.workers: list[subprocess.Popen[bytes]] = []

    def begin(self, workers: int = 2, env: Mapping[str, str] | None = None) -> Cluster:
        """Start the scheduler and workers; all of them, and those that are added, have the variables in `env`."""
        importlib.import_module("distributed")  # once, and not in each fork that is a client
        self._env = {**os.environ, **(env or {})}
        words = ("--port", "0", "--scheduler-file", "file", "--no-dashboard")
        self.scheduler = self.start("scheduler", *words)
        file = self.directory / "file"
        assert happens(lambda: file.exists() and file.read_text().endswith("}")), self.log()
        self.address = json.loads(file.read_text())["address"]
        for _ in range(workers):
            self.add()
        return self

    def add(self, *options: str, **settings: Any) -> None:
        """Start another worker, and wait for it."""
        words = ("worker", self.address, "--no-nanny", "--nthreads", "1", "--no-dashboard", *options)
        log = self.directory / f"worker-{len(self.workers)}.log"
        self.workers.append(self.start(*words, log=log, **settings))
        assert happens(lambda: self.workers[-1].poll() or "Registered to" in log.read_text()), self.log()

    def start(
        self, *words: str, first: str = "", log: Path | None = None, env: dict[str, str] | None = None, **others: Any
    ) -> subprocess.Popen[bytes]:
        """Start a process of Dask, after some lines of Python."""
        script = f"{first or 'pass'}; from dask.__main__ import main; main()"
        with open(log or self.directory / "scheduler.log", "wb") as file:
            started = subprocess.Popen(
                [sys.executable, "-P", "-c", script, *words, "--host", "127.0.0.1"],
                cwd=self.directory,
                env={**self._env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                **others,
            )
        self._stack.callback(started.wait)
        self._stack.callback(started.kill)
        return started

    def log(self) -> str:
        """Return what its processes have printed."""
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("*.log")))


def read_settings() -> None:
    """Read the variables of Dask again, in a fork that has others."""
    importlib.import_module("dask").config.refresh()


NewCluster: TypeAlias = Callable[..., Cluster]
"""Makes a cluster, with the arguments of `Cluster.begin`."""
