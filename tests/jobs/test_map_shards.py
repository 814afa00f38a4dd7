"""tarkit.map_shards: an archive for each archive, made by a function."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.dataset import Dataset
from tarkit.jobs.guard import ProcessGuard
from tarkit.jobs.job import JobOutcome, ValueJob
from tarkit.jobs.local import LocalExecutor
from tarkit.jobs.values import Value
from tarkit.streams.tempfile import TemporaryFile
from tests._tools import each_row, gone, pid_in
from tests.conftest import keys, tar


def make_shards(count: int = 4) -> list[str]:
    """Make shards of three samples, which are not in order."""
    names = [f"in-{at}.tar" for at in range(count)]
    for at, name in enumerate(names):
        Path(name).write_bytes(tar({f"{at}/{key}.cls": b"%d" % key for key in (3, 1, 2)}))
    return names


@pytest.fixture
def shards(here: Path) -> list[str]:
    return make_shards()


def in_order(data: Dataset) -> Dataset:
    return data.sort()


@pytest.mark.forks
@each_row("jobs", [1, 3])
def test_map(jobs: int, here: Path) -> None:
    """Each input has an output; lambdas are functions too; the summary counts."""
    make_shards()
    (here / "out").mkdir()
    summary = tarkit.map_shards("in-{0..3}.tar", "out/{stem}.tar", lambda data: data.where("cls > 1").sort(), jobs=jobs)
    assert (summary.done, summary.failed, summary.samples, summary.bytes) == (4, 0, 8, 4 * 10240)
    assert [keys(Path(f"out/in-{at}.tar")) for at in range(4)] == [f"{at}/2 {at}/3" for at in range(4)]


@pytest.mark.forks
@each_row("jobs", [1, 2])
def test_joins(jobs: int, here: Path) -> None:
    """A shard may have no row of a joined table, but not all of them."""
    shards = make_shards(3)

    def run(row: str) -> None:
        Path("t.csv").write_text(f"__key__,cls\n{row}\n")
        tarkit.map_shards(shards, "out-{index}.tar", lambda data: data.join("t.csv").set("cls"), jobs=jobs)

    run("1/3,7")
    assert [next(iter(tarkit.open(f"out-{at}.tar")))["cls"] for at in range(3)] == [b"3", b"7", b"3"]
    with pytest.raises(tarkit.TarkitError, match="no sample of 3 archives has a row of the table"):
        run("x,7")


@pytest.mark.forks
def test_failures_and_resume(shards: list[str]) -> None:
    """A damaged input is an error that names it; what was done is kept by a run that resumes."""
    whole = Path("in-2.tar").read_bytes()
    Path("in-2.tar").write_bytes(whole[:700])
    with pytest.raises(tarkit.TarkitError, match=r"(?m)^1 of 4 jobs failed; in-2.tar: in-2.tar: at .*\[truncated\]$"):
        tarkit.map_shards(shards, "out-{index}.tar", in_order, journal="j", halt="never", jobs=2)
    assert sorted(path.name for path in Path().glob("out-*")) == ["out-0.tar", "out-1.tar", "out-3.tar"]
    Path("in-2.tar").write_bytes(whole)
    seen = []
    summary = tarkit.map_shards(
        shards, "out-{index}.tar", in_order, journal="j", resume=True, progress=lambda each: seen.append(each.ended)
    )
    assert (summary.done, summary.kept, seen[-1]) == (1, 3, 4)
    assert len([json.loads(line) for line in Path("j").read_text().splitlines()]) == 5


@pytest.mark.forks
def test_errors_of_the_function(shards: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """An exception of the function fails its job, with the traceback behind the name of the input."""

    def broken(data: Dataset) -> Dataset:
        raise KeyError(7)

    with pytest.raises(tarkit.TarkitError, match="1 of 4 jobs failed"):
        tarkit.map_shards(shards, "out-{stem}.tar", broken, jobs=1)
    said = capfd.readouterr().err
    assert "in-0.tar: KeyError: 7\n" in said
    assert not [*Path().glob("*out*")]


@pytest.fixture
def with_thread() -> Iterator[None]:
    """Have a thread in this process, which therefore cannot be copied."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    yield
    stop.set()
    thread.join()


def test_with_threads(shards: list[str], with_thread: None) -> None:
    """A process with threads, which cannot be copied, does the work itself."""
    assert tarkit.map_shards(shards, "out-{stem}.tar", in_order, jobs=2).done == 4
    assert keys(Path("out-in-0.tar")) == "0/1 0/2 0/3"


def test_errors_with_threads(shards: list[str], with_thread: None, capfd: pytest.CaptureFixture[str]) -> None:
    """The text of an error has the name of the input before it, as that of a copy has."""
    Path("in-2.tar").write_bytes(Path("in-2.tar").read_bytes()[:700])

    def broken(data: Dataset) -> Dataset:
        if sum(1 for _ in data) == 3:
            raise KeyError("three\nsamples")
        return data

    message = r"(?m)^4 of 4 jobs failed; in-0.tar: KeyError: 'three\\nsamples'$"
    with pytest.raises(tarkit.TarkitError, match=message):
        tarkit.map_shards(shards, "out-{stem}.tar", broken, jobs=2, halt="never")
    said = capfd.readouterr().err.splitlines()
    assert "in-0.tar: KeyError: 'three\\nsamples'" in said
    assert [line for line in said if line.startswith("in-2.tar: tarkit: in-2.tar: at ")]
    assert all(line.startswith("in-") for line in said)


@each_row(
    "output,expected",
    [
        ("out.tar", "it has no placeholder"),
        ("no/{stem}.tar", "there is no directory no"),
        ("{dir}.tar", "in-0.tar and in-1.tar have one output"),
        ("{name}", "in-0.tar is an input"),
        ("{stem}-%d.tar", "%d numbers a series"),
    ],
)
def test_usage(output: str, expected: str, here: Path) -> None:
    """Outputs that cannot be are errors before a job begins."""
    make_shards(2)
    with pytest.raises(tarkit.Usage, match=expected):
        tarkit.map_shards("in-*.tar", output, in_order)


def run_job(job: ValueJob, timeout: float | None = None, guard: ProcessGuard | None = None) -> JobOutcome:
    """Run a job, as on a worker of Dask."""
    executor = LocalExecutor(1, timeout=timeout, relay=lambda job, line: None, tmpdir=None, guard=guard)
    try:
        executor.submit(job, 1)
        while not (ended := executor.wait(9)):
            pass
        return ended[0][1]
    finally:
        executor.close()


def test_a_job_in_new_processes(here: Path, with_thread: None) -> None:
    """A pickled job runs in new processes, whatever threads there are, and what it printed is kept."""
    Path("in.tar").write_bytes(tar({"b.txt": b"2", "a.txt": b"1"}))
    value = Value("in.tar", 0, "in", "in.tar", ".")
    job = ValueJob(value, (("tarkit", "sort", "in.tar"), ("tarkit", "tsv", "-f", "txt")))
    outcome = run_job(pickle.loads(pickle.dumps(job)), timeout=60)
    assert (outcome.status, outcome.samples) == (0, 2)
    assert isinstance(outcome.output, TemporaryFile)
    assert outcome.output.read(0, 99) == b"__key__\ttxt\na\t1\nb\t2\n"
    failed = run_job(ValueJob(value, (("bash", "-c", "echo x >&2; sleep 600"),)), timeout=0.3)
    assert (failed.status, failed.words(), failed.tail) == (124, "timed out", "x\ntarkit: timed out")


@pytest.mark.forks
def test_a_call_that_is_killed(shards: list[str]) -> None:
    """A copy of this process that is killed, or ends itself, fails its job; what it wrote to stderr is recorded."""

    def end(data: Dataset) -> Dataset:
        os.write(2, b"before\n")
        if next(iter(data)).key.startswith("0"):
            os._exit(3)
        os.kill(os.getpid(), 9)
        return data

    with pytest.raises(tarkit.TarkitError, match=r"4 of 4 jobs failed; in-.\.tar: before"):
        tarkit.map_shards(shards, "out-{index}.tar", end, journal="j", halt="never", jobs=2)
    records = [json.loads(line) for line in Path("j").read_text().splitlines()]
    assert sorted((each["value"], each["status"], each["stderr"]) for each in records) == [
        ("in-0.tar", 3, "before"),
        *((f"in-{number}.tar", -9, "before") for number in (1, 2, 3)),
    ]


@pytest.mark.forks
def test_halt_now_ends_calls(shards: list[str]) -> None:
    """Calls that run are ended, with what they started in sessions of their own."""

    def wait(data: Dataset) -> Dataset:
        if next(iter(data)).key.startswith("0"):
            pid_in("pid")
            raise ValueError("no")
        subprocess.run(["bash", "-c", "echo $$ > pid; exec sleep 600"], start_new_session=True, check=False)
        return data

    with pytest.raises(tarkit.TarkitError, match=r"1 of 4 jobs failed; in-0\.tar: ValueError: no"):
        tarkit.map_shards(shards, "out-{index}.tar", wait, halt="now", jobs=2)
    assert gone(pid_in("pid"))


def test_a_script_at_its_end(here: Path) -> None:
    Path("in-0.tar").write_bytes(tar({"a.txt": b"1"}))
    script = "import tarkit; tarkit.map_shards('in-*.tar', 'out-{stem}.tar', lambda data: data)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert Path("out-in-0.tar").read_bytes() == Path("in-0.tar").read_bytes()


@pytest.mark.forks
def test_options_are_part_of_a_job(shards: list[str]) -> None:
    """A run that resumes with other options does all jobs again; the order of names does not count."""
    how: dict[str, Any] = {"journal": "j", "resume": True}
    for options, done in (
        ({}, 4),
        ({}, 0),
        ({"compress": "gz"}, 4),
        ({"skip": ["truncated", "bad-header"]}, 4),
        ({"skip": "bad-header,truncated"}, 0),
        ({"allow": "truncated"}, 4),
    ):
        assert tarkit.map_shards(shards, "out-{stem}.tar", in_order, **options, **how).done == done, options


@pytest.mark.forks
def test_a_command_is_done_again(shards: list[str]) -> None:
    """What it prints cannot be compared."""
    inputs = ["in-0.tar", "pipe:cat in-1.tar"]
    for done in (2, 1):
        assert tarkit.map_shards(inputs, "out-{index}.tar", in_order, journal="j", resume=True).done == done
