"""Work in several processes: ordered results, unchanged errors, and no process left behind."""

from __future__ import annotations

import errno
import gzip
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tarkit import parallel
from tarkit.errors import CommandFailed, Problem, TarkitError, Unsupported, Usage
from tarkit.parallel import in_order
from tarkit.streams.tempfile import TemporaryFile
from tests._copies import Copied
from tests._tools import archive, descriptors, each_row, gone, happens, pid_in

ERRORS: list[Exception] = [
    Problem("truncated", "a.tar", 512, "what", "do this"),
    Problem("truncated", "a.tar", None, "what"),
    Usage("words", "other words"),
    Unsupported("no"),
    TarkitError("it is so"),
    FileNotFoundError(2, "No such file or directory", "a.tar"),
    CommandFailed("false", 1, "tail", "hint"),
]


def results_in_order(
    function: Callable[[int], Any], jobs: Iterable[int], processes: int, share: int | None = None
) -> Iterator[Any]:
    """Yield `function(job)` for each job, in order."""

    def work(job: int) -> Iterator[Any]:
        yield function(job)

    for results in in_order(jobs, work, processes, share=share):
        yield from results


def square(number: int) -> tuple[int, int]:
    """Return a result, and the process that computed it."""
    return number * number, os.getpid()


def fail(which: int, number: int) -> int:
    """Raise an error for a number that is too large."""
    if number >= 3:
        raise ERRORS[which]
    return number


@pytest.mark.forks
def test_no_descriptor_is_left() -> None:
    """No descriptor is left open, or held until other processes start."""
    before = descriptors()
    assert len(list(results_in_order(square, range(9), 3))) == 9
    assert descriptors() <= before


@pytest.mark.forks
@pytest.mark.parametrize("late", [False, True])
def test_threads(late: bool) -> None:
    """No process is forked while another thread runs, whose locks could block the child; the work is done here."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    found = results_in_order(square, range(4 * parallel.AHEAD), 2, share=1)
    first = [next(found) for _ in range(2)] if late else []
    thread.start()
    middle = [next(found) for _ in range(3 * parallel.AHEAD)]
    over.set()
    thread.join()
    last = list(found)
    assert [result for result, _ in first + middle + last] == [number**2 for number in range(4 * parallel.AHEAD)]
    here = [who == os.getpid() for _, who in first + middle + last]
    assert here[: len(first)] == [False] * len(first)
    assert here[len(first) + len(middle) - 1]
    assert not here[-1]


@pytest.mark.forks
@each_row(
    ("which", "count", "share"),
    [(0, 2, None), *((which, count, 6) for which in range(len(ERRORS)) for count in (1, 2))],
)
def test_errors(which: int, count: int, share: int | None) -> None:
    """The first error is raised unchanged, after the results before it."""
    error = ERRORS[which]
    found = results_in_order(partial(fail, which), range(6), count, share=share)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(type(error)) as raised:
        next(found)
    assert str(raised.value) == str(error)
    assert vars(raised.value) == vars(error)
    assert not multiprocessing.active_children()


@pytest.mark.forks
def test_an_error_stops_the_other_processes() -> None:
    """No process runs once an error is raised, though the iterator is neither closed nor freed."""

    def failing(job: int) -> Iterator[int]:
        if job:
            signal.pause()
        raise TarkitError("this one")
        yield job

    found = in_order([0, 1, 2, 3], failing, 2, share=1)
    with pytest.raises(TarkitError, match="this one"):
        list(next(found))
    assert not multiprocessing.active_children()


@pytest.mark.forks
@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was ended by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "was ended by SIGTERM"),
        (lambda: os._exit(7), "was ended with status 7"),
        (lambda: os._exit(0), "exited before it had finished"),
    ],
)
def test_a_process_that_ends_early(how: object, said: str) -> None:
    """A worker process that ends early is an error with a message; the caller neither waits for ever nor ends."""

    def end(number: int) -> int:
        if number == 2:
            how()  # type: ignore[operator]
        return number

    found = results_in_order(end, range(4), 2, share=2)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(TarkitError, match=f"a worker process {said}"):
        next(found)
    assert not multiprocessing.active_children()


@pytest.mark.forks
def test_no_room_for_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full temporary directory is an error of the system with the name of the directory."""
    import resource

    def limited(job: int) -> Iterator[bytes]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        yield bytes(1 << 18)

    with pytest.raises(OSError, match="File too large") as raised:
        list(map(list, in_order([0, 1], limited, 2, str(tmp_path))))
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, f"temporary space in {tmp_path}")


@pytest.mark.forks
def test_processes_end_when_the_caller_stops_reading() -> None:
    """No process is left when the caller stops reading."""

    def slow(job: int) -> Iterator[int]:
        if job:
            signal.pause()
        yield job

    found = in_order([0, 1, 2], slow, 2)
    assert list(next(found)) == [0]
    assert multiprocessing.active_children()
    found.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()


@pytest.mark.forks
def test_few_jobs_are_ahead(tmp_path: Path) -> None:
    """Jobs are started as results are taken, not all at once."""

    most = parallel.AHEAD * 2

    def begin(job: int) -> int:
        (tmp_path / str(job)).touch()
        if not job:  # the first job ends after all others that may start before it is done, and a little later
            happens((tmp_path / str(most - 1)).exists)
            time.sleep(0.1)
        return job

    found = results_in_order(begin, range(30), 2, share=1)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert len(list(tmp_path.iterdir())) == most


PROGRAM = """
import os, sys
from tarkit.cli.app import guarded
from tarkit.signals import catch_signals
from tarkit.parallel import in_order
from tarkit.streams import command
from tarkit.streams.command import call
from tarkit.streams.sink import open_sink

command.PATIENCE = 0.3

def work(job):
    with open_sink("path", f"{job}.tar") as sink:
        sink.write(b"x")
        call(f"exec 2> /dev/null; trap '' TERM; echo $$ > {job}; mv {job} {job}.pid; while :; do sleep 0.01; done")
    yield job

catch_signals()
guarded(list, map(list, in_order(range(2), work, 2)))
"""


LOST = """
import os, signal, time
from tarkit.cli.app import guarded
from tarkit.signals import catch_signals

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

catch_signals()
def work():
    Last()
    while True:
        time.sleep(0.01)
guarded(work)
"""


def test_a_signal_where_exceptions_are_ignored() -> None:
    """A signal in `__del__`, where exceptions are ignored, ends the process silently."""
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, b"")


LOCKS = """
import os, signal, sys, threading
from functools import partial
from types import SimpleNamespace
from tarkit.cli.app import guarded
from tarkit.signals import catch_signals

# the signal comes as these functions return, which are not Python's: it is handled in what has called them
kill = partial(os.kill, os.getpid(), signal.SIGTERM)
come = dict.fromkeys(sys.argv[1:], kill)
lock = SimpleNamespace(acquire=None, release=None, _is_owned=lambda: True)
lock.__enter__ = come.get("enter", lambda: None)
lock.__exit__ = lambda *_: print("released", flush=True)
lock._release_save = come.get("wait", lambda: None)
lock._acquire_restore = lambda state: print("taken again", flush=True)

def work():
    changed = threading.Condition(lock)
    with changed:
        changed.wait(10)

catch_signals()
guarded(work)
"""


@each_row("moment", ["enter", "wait"])
def test_a_signal_as_a_lock_is_taken(moment: str) -> None:
    """A lock is released when a signal arrives while it is acquired: threads that are joined at the end may need it."""
    done = subprocess.run([sys.executable, "-c", LOCKS, moment], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, b"taken again\nreleased\n", b"")


@pytest.mark.forks
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all(signum: signal.Signals, here: Path) -> None:
    """A signal ends workers and their commands, even those that ignore TERM, and removes unfinished outputs."""
    process = Copied([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, start_new_session=True)
    pids = [pid_in(f"{job}.pid") for job in range(2)]
    assert len(list(here.glob(".*.part"))) == 2
    process.send_signal(signum)
    assert process.communicate(timeout=20)[1] == b""
    assert process.returncode == -signum
    assert all(map(gone, pids))
    assert sorted(path.name for path in here.iterdir()) == ["0.pid", "1.pid"]


@pytest.mark.forks
def test_signals_while_it_cleans_up(here: Path) -> None:
    """A worker process that gets SIGTERM again while it cleans up still ends what it started."""

    def work(job: int) -> Iterator[int]:
        end_commands, asked = parallel.end_commands, os.getpid()

        def ending() -> None:
            os.kill(asked, signal.SIGTERM)
            end_commands()

        parallel.end_commands = ending  # type: ignore[assignment]
        if job:
            os.kill(asked, signal.SIGTERM)
        yield job

    for job in (0, 1):
        with pytest.raises(TarkitError, match="was ended by SIGTERM"):
            list(map(list, in_order([job, job], work, 2)))


class Full:
    """A stream on a full disk."""

    def __init__(self, fd: int, *_: object) -> None:
        os.close(fd)

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, data: bytes) -> int:
        """Raise ENOSPC."""
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a full disk reaches the caller, in space that is reserved at the start."""
    file = TemporaryFile(str(tmp_path))
    file.reserve(parallel.ROOM)
    blocks = os.fstat(file.fd).st_blocks
    monkeypatch.setattr(os, "fdopen", Full)
    parallel._work(iter, [()], file, os.getppid())
    monkeypatch.undo()
    assert os.fstat(file.fd).st_blocks == blocks
    with os.fdopen(os.dup(file.fd), "rb") as stream:
        stream.seek(0)
        with pytest.raises(OSError, match="No space left on device: 'temporary space in "):
            list(parallel.results(stream))


FORKS = """
import os, sys, time
from tarkit.__main__ import main

def count(event, words):
    if event == "os.fork":
        limit = time.monotonic() + 1  # one that has ended may still be there
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < limit:
            time.sleep(0.001)
        print(len(os.listdir("/proc/self/task")), end=" ", file=sys.stderr)

sys.addaudithook(count)
main()
"""


@pytest.mark.slow
@each_row(
    "words",
    [
        "check -p 2 -q in.tar in.tar.gz",
        "check -p 2 -q in.tar in.tar.gz --unique --against in.keys",
        "check -p 2 -q in.tar --same-as pipe:cat<in.tar",
        "stats -p 2 in.tar.gz pipe:cat<in.tar",
        "index -p 2 --format tsv,wids in.tar b.tar -o .",
        "shard -p 2 tree -c 1 -o s-%d.tar",
        "shard -p 2 tree -c 1 -o s-%d.tar.zst --post true --manifest list",
    ],
)
def test_commands_have_no_threads_when_they_fork(words: str, here: Path) -> None:
    """Each command that forks has one thread when it does, for all kinds of inputs and outputs."""
    Path("in.tar").write_bytes(archive({f"{key}.txt": b"x" * 1000 for key in range(50)}))
    Path("in.tar.gz").write_bytes(gzip.compress(Path("in.tar").read_bytes()))
    Path("b.tar").write_bytes(archive({"b.txt": b"x"}))
    Path("in.keys").write_text("".join(f"{key}\n" for key in range(50)))
    Path("tree").mkdir()
    for key in range(9):
        Path(f"tree/{key}.txt").write_text("x")
    done = subprocess.run([sys.executable, "-c", FORKS, *words.split()], capture_output=True, check=False)
    threads = [word for word in done.stderr.decode().split() if word.isdigit()]
    assert threads
    assert set(threads) == {"1"}
