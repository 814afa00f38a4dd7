"""Functions of the running process, from samples to samples: called in it, or in forked copies of it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import TarkitError
from tarkit.pipeline.run import Run
from tarkit.problems import Policy
from tarkit.proc.function import CallFunction, FunctionWorker
from tarkit.proc.pool import Pool
from tarkit.proc.run import ErrorLimit, SampleRun, number_jobs
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample
from tarkit.streams import command
from tarkit.streams.command import start_of
from tests._tools import PATIENT, archive, descriptors, happens, on_disk, raising

Sample = dict[str, Any]
Found = list[tuple[str, dict[str, bytes]]]

COUNT = 40
DATA = archive({f"{number:03}.{field}": b"%d" % number for number in range(COUNT) for field in ("cls", "txt")})
IN = [(f"{number:03}", {"cls": b"%d" % number, "txt": b"%d" % number}) for number in range(COUNT)]

PROCESSES = [1, 2, 4]
pytestmark = pytest.mark.forks


def found(samples: Iterator[TarSample]) -> Found:
    """Return keys and fields of samples."""
    return [
        (
            (sample.key or b"").decode(),
            {
                entry.name.decode().partition(".")[2]: sample.source.read(entry.data, entry.data + entry.size)
                for entry in sample.entries
            },
        )
        for sample in samples
    ]


def results(pool: Pool, lines: list[str] | None = None, limit: ErrorLimit | None = None) -> Generator[TarSample]:
    """Return what becomes of the samples of DATA; a failure ends the run, or with `lines` is a line there."""
    policy, samples = Policy(), number_jobs(iter(SampleReader(on_disk(DATA), Policy())), Policy())
    if lines is None:
        return SampleRun(pool, policy)(samples)
    return SampleRun(pool, policy, "skip", limit=limit, warn=lines.append, verbose=True)(samples)


def called(function: Callable[..., Any], processes: int = 1, **settings: Any) -> CallFunction:
    return CallFunction(**{"function": function, "processes": processes, "wrap": None, **settings})


def mapped(
    function: Callable[..., Any],
    processes: int,
    batch: int | None = None,
    lines: list[str] | None = None,
    limit: ErrorLimit | None = None,
    **settings: Any,
) -> Found:
    """Return the results of a function for DATA; no thread or process is left."""
    before = threading.active_count()
    try:
        with called(function, processes, batch=batch, **settings).pool(Run()) as pool:
            return found(results(pool, lines, limit))
    finally:
        assert threading.active_count() == before
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("processes", [1, 2])
def test_batches_that_fail(processes: int) -> None:
    """A batch is halved down to the sample that fails, which is tried again."""

    def fails(samples: Any) -> Any:
        if any(int(sample["cls"]) % 10 == 7 for sample in samples):
            raise ValueError("no sevens")
        return samples

    lines: list[str] = []
    assert mapped(fails, processes, 8, lines, retries=1) == [each for each in IN if each[0][-1] != "7"]
    assert ["(2 attempts)" in line for line in lines] == [True] * 4
    with pytest.raises(TarkitError, match="2 of 18 samples failed, more than max_errors allows"):
        mapped(fails, processes, 8, [], ErrorLimit(count=1))


def test_where_the_function_is_called() -> None:
    """With one process the function is called in the thread that takes the results, else in forked processes only."""
    pids = lambda processes: {fields["n"] for _, fields in mapped(lambda _: {"n": str(os.getpid())}, processes)}  # noqa: E731
    here = b"%d" % os.getpid()
    assert pids(1) == {here}
    assert here not in pids(2)
    threads: set[threading.Thread] = set()
    mapped(lambda sample: threads.add(threading.current_thread()), 1)
    assert threads == {threading.main_thread()}


def test_copies_have_the_state_of_their_start() -> None:
    """A process has the state at the start of the run; its changes are not visible here."""
    state = {"word": "before"}

    def function(sample: Sample) -> Sample:
        sample["txt"] = state["word"]
        state["word"] = "changed"
        return sample

    state["word"] = "later"
    words = [fields["txt"] for _, fields in mapped(function, 4)]
    assert set(words) == {b"later", b"changed"}
    assert state == {"word": "later"}


def test_init_is_called_in_each_process() -> None:
    """`init` is called once in each process before the first sample; its exception is an error of the run."""
    calls: list[int] = []
    numbers = mapped(lambda sample: {"n": str(len(calls))}, 4, init=lambda: calls.append(1))
    assert {fields["n"] for _, fields in numbers} == {b"1"}
    assert calls == []
    mapped(lambda sample: sample, 1, init=lambda: calls.append(1))
    assert calls == [1]
    for processes in PROCESSES:
        with pytest.raises(TarkitError, match=r"^map\(.*<lambda>\): .*<lambda> raised ZeroDivisionError"):
            mapped(lambda sample: sample, processes, init=lambda: 1 / 0)


KILLED = "the process that calls the function was ended by SIGKILL"


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize(("batch", "size"), [(None, 1), (1, 1), (3, 3)])
def test_a_process_that_ends(processes: int, batch: int | None, size: int) -> None:
    """The sample, or batch, of a process that ends has failed; the other processes continue."""

    def dies(given: Any) -> Any:
        if any(sample["cls"] == b"3" for sample in ([given] if batch is None else given)):
            os.kill(os.getpid(), signal.SIGKILL)
        return given

    lines: list[str] = []
    got = mapped(dies, processes, batch, lines=lines, retries=1)
    missing = [f"{number:03}" for number in range(3, 3 + size)]
    assert got == [each for each in IN if each[0] not in missing]
    words = KILLED if size == 1 else f"has no result, as its worker process died: {KILLED}"
    assert [line.partition(": ")[2] for line in lines] == [f"'{key}' {words}" for key in missing]


def together(
    function: Callable[[Sample], Any], processes: int, size: int, killed: int = 0, retries: int = 0, **settings: Any
) -> list[tuple[str, str]]:
    """Return keys and reasons of failures if `size` samples are sent at a time; some processes are killed first."""
    workers = [FunctionWorker(called(function, **settings)) for _ in range(processes)]
    for executor in workers[:killed]:
        process = executor.load()
        os.kill(process.program.pid, signal.SIGKILL)
        process.program.wait()
    jobs = number_jobs(iter(SampleReader(on_disk(DATA), Policy())), Policy())
    try:
        with Pool(lambda: workers.pop(0), processes, retries=retries, batch=size, exact=True) as pool:
            return [
                (job.key.decode(), outcome.failure.reason if outcome.failure else "") for job, outcome in pool(jobs)
            ]
    finally:
        for worker in workers:
            worker.end("terminate")
            worker.close()
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    ("processes", "size", "bad"),
    [
        *((2, size, {bad}) for size in (1, 7, 40, 64) for bad in (0, 3, 34, 38, 39)),
        *((4, size, bad) for size in (1, 7, 40, 64) for bad in ({34, 39}, {5, 6, 7}, {0, 38, 39}, {37, 38, 39})),
        (2, 1, {38, 39}),
        (4, 1, {36, 37, 38, 39}),
    ],
)
def test_other_processes_continue(tmp_path: Path, processes: int, size: int, bad: set[int]) -> None:
    """If processes end one by one only the current samples fail, in order, anywhere in the input.

    The function is called again only for samples whose results were lost.
    """

    def dies(sample: Sample) -> Sample:
        with open(tmp_path / "calls", "a") as file:
            file.write(f"{sample['__key__']}\n")
        if int(sample["cls"]) in bad:
            os.kill(os.getpid(), signal.SIGKILL)
        return sample

    found = together(dies, processes, size, retries=2)
    assert found == [(key, KILLED if number in bad else "") for number, (key, _) in enumerate(IN)]
    calls = (tmp_path / "calls").read_text().split()
    assert set(calls) == {key for key, _ in IN}
    assert all(calls.count(f"{number:03}") == 1 for number in bad)
    assert len(calls) <= COUNT + len(bad) * (size - 1)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_no_process_is_left(size: int) -> None:
    """If all processes have ended, the run ends with the reason of the last one."""
    with pytest.raises(TarkitError, match=r"(?m)^samples are left, but all worker processes have died: 2$") as raised:
        together(lambda sample: os.kill(os.getpid(), signal.SIGKILL), 2, size)
    assert raised.value.hint in [f"the last one at '{number:03}': {KILLED}" for number in range(2 * size)]


@pytest.mark.parametrize("killed", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_copies_that_are_killed_while_they_are_idle(killed: int, size: int) -> None:
    """No sample fails as long as one process is left."""
    with pytest.raises(TarkitError, match=r"(?m)all worker processes have died: 3$") if killed == 3 else nullcontext():
        assert together(lambda sample: sample, 3, size, killed) == [(key, "") for key, _ in IN]


@pytest.mark.parametrize("last", [6, 34, 39])
def test_a_timeout_at_the_end_of_a_batch(last: int) -> None:
    """A timeout costs one sample and one process; the other process continues."""

    def hangs(sample: Sample) -> Sample:
        if int(sample["cls"]) == last:
            time.sleep(PATIENT)
        return sample

    found = together(hangs, 2, 7, timeout=0.5)
    assert found == [(key, "took longer than 0.5 s" if number == last else "") for number, (key, _) in enumerate(IN)]


def test_attempts_of_other_samples(tmp_path: Path) -> None:
    """A sample that failed before its process ended keeps its remaining attempts; later samples keep all of theirs."""

    def function(sample: Sample) -> Sample:
        with open(tmp_path / sample["__key__"], "a") as file:
            file.write(".")
            tries = file.tell()
        if sample["cls"] == b"9":
            os.kill(os.getpid(), signal.SIGKILL)
        if sample["cls"] in (b"8", b"10") and tries < 3:
            time.sleep(0.1)  # so that the previous result is sent
            raise ValueError
        if sample["cls"] == b"11":
            raise ValueError
        return sample

    found = together(function, 2, COUNT, retries=2)
    assert [(key, reason) for key, reason in found if reason] == [("009", KILLED), ("011", found[11][1])]
    assert found[11][1].startswith("raised ValueError")
    sizes = [(tmp_path / key).stat().st_size for key in ("008", "009", "010", "011")]
    assert sizes == [3, 1, 3, 3]


def test_pipes_of_other_processes_are_closed() -> None:
    """Each process closes the pipes of the others, so that all end at once when their input ends."""
    started = time.monotonic()
    with called(lambda sample: sample, 4).pool(Run()) as pool:
        assert len(found(results(pool))) == COUNT
    assert time.monotonic() - started < PATIENT / 6  # without waiting for a process
    assert not command._running


def test_a_fork_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed fork is an error of the system, and no pipe stays open."""
    monkeypatch.setattr(os, "fork", raising(OSError, errno.EAGAIN, "no more processes"))
    before = descriptors()
    with pytest.raises(TarkitError, match=r"'map\(dict\)' cannot be started: no more processes"):
        mapped(dict, 2)
    assert descriptors() <= before


PARENT = """
import os, signal, sys
from tarkit.problems import Policy
from tarkit.pipeline.run import Run
from tarkit.proc.function import CallFunction
from tarkit.proc.run import SampleRun, number_jobs
from tarkit.samples.dataset import DatasetReader
from tarkit.streams import command
from tarkit.streams.location import expand_inputs
samples = iter(DatasetReader(expand_inputs(("in.tar",)), Policy()))
with CallFunction(function=lambda sample: sample, processes=3).pool(Run()) as pool:
    for sample in SampleRun(pool, Policy())(number_jobs(samples, Policy())):
        print(*[each.pid for each in command._running], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_copies_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    """The processes end with the one that forked them, even if it is killed, as their input ends."""
    (tmp_path / "in.tar").write_bytes(DATA)
    done = subprocess.run([sys.executable, "-c", PARENT], cwd=tmp_path, stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    pids = set(map(int, done.stdout.split()))
    assert len(pids) == 3
    assert happens(lambda: not any(map(start_of, pids)))
