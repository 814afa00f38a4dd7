"""Jobs on a cluster of Dask: a scheduler and two workers, each a process of its own; tarkit is one too."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarkit.jobs import dask
from tests._dask import Cluster, NewCluster, read_settings
from tests._tools import PATIENT, each_row, gone, happens, pid_in, process, tarkit
from tests.commands.test_each import outputs, records, said, shards
from tests.conftest import tar

# what a process of Dask does first, to be another than it is
WITHOUT_TARKIT = "import sys; sys.modules['tarkit'] = None"
OTHER_TARKIT = "import tarkit; tarkit.__version__ = '0.0.7'"
OTHER_PYTHON = "import platform; platform.python_version_tuple = lambda: ('3', '99', '0')"
NO_DIRECTORY = "import os; had = os.path.isdir; os.path.isdir = lambda path: 'elsewhere' not in str(path) and had(path)"


@contextmanager
def started(*words: str, **others: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start `tarkit WORDS`, and end it with the block."""
    with process(*words, stderr=subprocess.PIPE, **others) as run:
        try:
            yield run
        finally:
            run.kill()


def finished(run: subprocess.Popen[bytes]) -> str:
    """Wait for a process that succeeds, and return its stderr."""
    _, err = run.communicate(timeout=PATIENT)
    assert run.returncode == 0, err.decode()
    return err.decode()


@pytest.fixture
def local(here: Path) -> dict[str, bytes]:
    """Make eight shards, and return what a local run over them writes."""
    shards(8)
    tarkit("each", "{0..7}", "--", "sort", "in-{}.tar", "-o", "out-{}.tar")
    found = outputs()
    for name in found:
        os.unlink(name)
    return found


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Make a cluster without workers."""
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack).begin(0)


@pytest.fixture
def empty(scheduler: Cluster) -> Iterator[Cluster]:
    """Return a cluster without workers; those that the test adds end with it."""
    yield scheduler
    for worker in scheduler.workers:
        worker.kill()
    assert happens(lambda: scheduler.log().count("Remove worker addr") == len(scheduler.workers))


def python(script: str, *words: str, exit: int = 0) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-c", textwrap.dedent(script), *words)
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENT)
    assert ran.returncode == exit, ran.stderr
    return ran


def test_same_as_local(shared: Cluster, local: dict[str, bytes]) -> None:
    """Outputs, stdout in the order of the values, lines of stderr, the journal: as on this machine."""
    tarkit("sort", "in-{0..7}.tar", "-o", "out-{index}.tar", "--dask", shared.address, "--journal", "j")
    assert outputs() == local
    assert [each["status"] for each in records()] == [0] * 8
    assert {each["host"] for each in records()} == {os.uname().nodename}
    assert all(each["outputs"] and each["samples"] == 3 for each in records())
    again = tarkit("sort", "in-{0..7}.tar", "-o", "out-{index}.tar", "--journal", "j", "--resume", "-v")
    assert "8 jobs: 8 kept" in said(again)[-1]  # by a local run
    Path("s").write_text('sleep 0.0$((9 - $1)); echo >&2; echo "a $PWD" >&2; printf b >&2; seq $1 20000')
    line = ["--", "bash", "s", "{}"]
    there, here = (tarkit("each", "{1..5}", *where, *line) for where in (("--dask", shared.address, "-j", "3"), ()))
    assert there.stdout == here.stdout
    assert sorted(said(there)) == sorted(said(here))
    assert f"1: a {os.getcwd()}" in said(there)


def test_map_shards(shared: Cluster, local: dict[str, bytes]) -> None:
    """A function of the caller is sent to the workers, by address or by a client, which stays open."""
    script = """
        import sys, threading
        import distributed, tarkit

        LOCK = threading.Lock()

        def broken(data):
            raise KeyError(7)

        if __name__ == "__main__":
            ran = tarkit.map_shards("in-{0..7}.tar", "out-{index}.tar", lambda data: data.sort(), dask=sys.argv[1])
            print(ran.done, ran.samples, ran.bytes)
            with distributed.Client(sys.argv[1]) as client:
                try:
                    tarkit.map_shards("in-*.tar", "no-{stem}.tar", broken, dask=client, halt="never")
                except tarkit.TarkitError as error:
                    print(error)
                try:
                    tarkit.map_shards("in-*.tar", "no-{stem}.tar", lambda data: LOCK, dask=client)
                except tarkit.TarkitError as error:
                    print(error)
                print(client.status)
    """
    ran = python(script, shared.address)
    done, failed, refused, status = ran.stdout.splitlines()
    assert (done, status) == ("8 24 81920", "running")
    assert re.fullmatch("8 of 8 jobs failed; in-[0-7].tar: KeyError: 7", failed)
    assert refused == "the function cannot be sent to workers: cannot pickle '_thread.lock' object"
    assert outputs() == local
    assert not [*Path().glob("no-*")]


def test_environment_and_resources(shared: Cluster, here: Path) -> None:
    """Variables of the client stay with it; a job that needs a resource runs where it is."""
    shared.add("--resources", "GPU=1", env={"ONLY_THERE": "yes"})
    try:
        line = ["--", "bash", "-c", "echo $ONLY_THERE $SECRET"]
        words = ["each", "{0..5}", "--dask", shared.address, "--dask-resources", "GPU=1", *line]
        assert tarkit(*words, env={"SECRET": "x"}).stdout == b"yes\n" * 6
        words[5] = "GPU=2"
        assert said(tarkit(*words, exit=2)) == [
            f"tarkit: --dask-resources GPU=2: no worker of {shared.address} has this",
            "hint: workers are started with what they have: dask worker ADDRESS --resources GPU=2",
        ]
    finally:
        shared.workers.pop().terminate()


def test_a_worker_is_killed(empty: Cluster, local: dict[str, bytes]) -> None:
    """Its jobs end with it, and another worker does them again; Dask counts lost workers, not the retries of jobs."""
    cluster = empty
    cluster.add()
    cluster.add()
    Path("s").write_text("! mkdir first 2>/dev/null || { echo $PPID > worker; echo $$ > pid; sleep 600; }")
    line = ["--", "bash", "s", "+", "sort", "in-{}.tar", "-o", "out-{}.tar"]
    with started("each", "{0..7}", "--dask", cluster.address, "--journal", "j", *line) as run:
        pid, worker = pid_in("pid"), pid_in("worker")
        assert worker in [each.pid for each in cluster.workers]
        os.kill(worker, signal.SIGKILL)
        finished(run)
    assert gone(pid)
    assert outputs() == local
    assert [(each["status"], each["attempt"]) for each in records()] == [(0, 1)] * 8


def test_the_client_is_killed(shared: Cluster, local: dict[str, bytes]) -> None:
    """What runs on workers ends, and a run that resumes does the rest: the bytes are those of an unbroken run."""
    Path("s").write_text("[ $(ls out-*.tar 2>/dev/null | wc -l) -lt 3 ] || [ -e go ] || { echo $$ > pid; sleep 600; }")
    line = ["--journal", "j", "--", "bash", "s", "+", "sort", "in-{}.tar", "-o", "out-{}.tar"]
    with started("each", "{0..7}", "--dask", shared.address, *line) as run:
        pid = pid_in("pid")
        run.kill()
    assert gone(pid)
    before = {each["value"] for each in records()}
    assert 0 < len(before) < 8
    Path("go").touch()
    ran = tarkit("each", "{0..7}", "-v", "--resume", "--dask", shared.address, *line)
    assert f"8 jobs: {8 - len(before)} done, {len(before)} kept" in said(ran)[-1]
    assert outputs() == local


def test_a_signal_ends_all_jobs(shared: Cluster, here: Path) -> None:
    """A signal ends the processes of all jobs on workers, and tarkit by that signal; nothing is half written."""
    shards(1)
    words = ["proc", "-c", f"echo $$ > {here}/pid; sleep 600", "in-0.tar", "-o", "out-{}.tar"]
    with started("each", "v", "--dask", shared.address, "--journal", "j", "--", *words) as run:
        pid = pid_in("pid")
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=PATIENT)
        assert not Path(f"/proc/{pid}").exists()  # it is waited for
    assert (run.returncode, err) == (-signal.SIGINT, b"")
    assert records() == []
    assert sorted(os.listdir()) == ["in-0.tar", "j", "pid"]


def test_halt_now_and_time_limits(shared: Cluster, here: Path) -> None:
    """--halt now ends the jobs that run; --job-timeout ends one with all that it started."""
    Path("s").write_text("[ $1 = 1 ] || { echo $$ > pid0; sleep 600; }; until [ -e pid0 ]; do sleep 0.01; done; exit 3")
    line = ["--", "bash", "s", "{}"]
    ran = tarkit("each", "{0..1}", "-v", "--dask", shared.address, "--halt", "now", *line, exit=1)
    assert "2 jobs: 1 failed, 1 cancelled" in said(ran)[-3]
    assert gone(pid_in("pid0"))
    words = ["--", "bash", "-c", "sleep 600 & echo $! > pid; wait"]
    ran = tarkit("each", "v", "--dask", shared.address, "--job-timeout", "0.3", *words, exit=1)
    assert said(ran)[0] == "v: tarkit: timed out"
    assert gone(pid_in("pid"))


def test_poisoned_shards(new_cluster: NewCluster, local: dict[str, bytes]) -> None:
    """A job that fails each time, and one that ends its worker, are in the table; all others are done."""
    cluster = new_cluster(env={"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"})
    whole = Path("in-2.tar").read_bytes()
    Path("in-2.tar").write_bytes(whole[:700])
    Path("s").write_text('[ $1 != 5 ] || kill -9 "$PPID"')
    line = ["--", "bash", "s", "{}", "+", "sort", "in-{}.tar", "-o", "out-{}.tar"]
    where = ("-j", "2", "--dask", cluster.address, "--journal", "j")  # -j: none waits on the worker that is lost
    ran = tarkit("each", "{0..7}", *where, "--halt", "never", *line, exit=1)
    table = [each for each in said(ran) if each.startswith("tarkit: ")]
    assert "2 of 8 jobs failed" in table[-1]
    assert any(re.match("tarkit: 2 +status 1 +1 .*sort in-2.tar -o out-2.tar", each) for each in table)
    assert any(re.match("tarkit: 5 +status 1 +1 .*sort in-5.tar -o out-5.tar", each) for each in table)
    lost = "tarkit: the worker that had it was lost"
    assert [each["stderr"] for each in records() if each["value"] == "5"] == [lost]
    assert f"5: {lost}" in said(ran)
    assert outputs().items() <= local.items()
    assert {"out-2.tar", "out-5.tar"} >= local.keys() - outputs().keys() >= {"out-2.tar"}
    Path("in-2.tar").write_bytes(whole)
    Path("s").write_text("")
    tarkit("each", "{0..7}", *where, "--resume", *line)
    assert outputs() == local


def test_a_full_disk_on_one_worker(empty: Cluster, local: dict[str, bytes]) -> None:
    """Its jobs fail with the reason and leave nothing; with it gone, a run that resumes completes the work.

    The disk is a limit on the size of files, which needs no root.
    """
    cluster = empty
    cluster.add()
    cluster.add(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)))
    line = ["--journal", "j", "--", "bash", "-c", "sleep 0.1", "+", "sort", "in-{}.tar", "-o", "out-{}.tar"]
    ran = tarkit("each", "{0..7}", "--dask", cluster.address, "--halt", "never", *line, exit=1)
    failed = {each["value"] for each in records() if each["status"]}
    assert 0 < len(failed) < 8
    assert {f"{value}: tarkit: out-{value}.tar: File too large" for value in failed} <= set(said(ran))
    assert outputs() == {name: data for name, data in local.items() if name[4] not in failed}
    cluster.workers[-1].kill()
    assert gone(cluster.workers[-1].pid)
    tarkit("each", "{0..7}", "--dask", cluster.address, "--resume", *line)
    assert outputs() == local


@each_row(
    "first,expected",
    [
        (OTHER_TARKIT, r"has tarkit 0.0.7, and this is \S+\nhint: .*tarkit==\S+"),
        (WITHOUT_TARKIT, r"has no tarkit: .*\nhint: .*tarkit==\S+"),
        (NO_DIRECTORY, r"has no directory \S+elsewhere, where the jobs work\nhint: .*"),
    ],
)
def test_workers_that_cannot_do_it(here: Path, scheduler: Cluster, first: str, expected: str) -> None:
    """One line names the worker and the repair: when the run begins, and for a worker that comes later."""
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    cluster, line = scheduler, ["each", "{0..9}", "--dask", scheduler.address, "--", "bash", "-c", ":> pid; sleep 600"]
    expected = rf"tarkit: (?:the worker tcp://\S+ on \S+|a worker of tcp://\S+) {expected}\n"
    clients, lost = (cluster.log().count(each) for each in ("Receive client connection", "Remove worker addr"))
    with started(*line) as run:
        assert happens(lambda: cluster.log().count("Receive client connection") > clients)
        cluster.add(first=first)
        _, err = run.communicate(timeout=PATIENT)
    assert re.fullmatch(expected, err.decode()), err
    if first == OTHER_TARKIT:
        ran = tarkit(*line, exit=1)
        assert re.fullmatch(expected, ran.stderr.decode()), ran.stderr
    cluster.workers[-1].kill()
    assert happens(lambda: cluster.log().count("Remove worker addr") > lost)
    assert not os.listdir()


def test_another_python(empty: Cluster, here: Path) -> None:
    """A worker with another Python gets no functions; command lines it does get."""
    shards(1)
    empty.add(first=OTHER_PYTHON)
    script = "import sys, tarkit; tarkit.map_shards('in-0.tar', 'out-{stem}.tar', lambda data: data, dask=sys.argv[1])"
    ran = python(script, empty.address, exit=1)
    message = r"WorkerMismatch: the worker tcp://\S+ on \S+ has Python 3.99, and this is 3.\d+: it cannot"
    assert re.search(message, ran.stderr)
    assert not outputs()
    tarkit("cat", "in-0.tar", "-o", "out-{stem}.tar", "--dask", empty.address)
    assert outputs()


def test_no_library(here: Path) -> None:
    """Where Dask is not installed, the message names the extra."""
    script = "import sys; sys.modules['distributed'] = None; from tarkit.__main__ import main; main()"
    ran = python(script, "each", "v", "--dask", "local", "--", "true", exit=1)
    assert ran.stderr.splitlines() == [
        "tarkit: --dask needs distributed, which is not installed",
        "hint: pip install 'tarkit[dask]'",
    ]


def test_no_scheduler(here: Path) -> None:
    """An address where nobody answers, and one that is none, are errors within a time limit."""
    env = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}
    ran = tarkit("each", "v", "--dask", "127.0.0.1:9", "--", "true", env=env, first=read_settings, exit=1)
    assert said(ran) == [
        "tarkit: --dask 127.0.0.1:9: no scheduler answers within 1s",
        "hint: dask scheduler prints its address, such as tcp://HOST:8786",
    ]
    assert said(tarkit("each", "v", "--dask", "x://y", "--", "true", exit=1))[0].startswith(
        "tarkit: --dask x://y: unknown address scheme 'x'"
    )


def test_the_scheduler_is_lost(new_cluster: NewCluster, here: Path) -> None:
    """The run ends with an error, and so do the jobs."""
    cluster = new_cluster(workers=1)
    with started("each", "v", "--dask", cluster.address, "--", "bash", "-c", "echo $$ > pid; sleep 600") as run:
        pid = pid_in("pid")
        cluster.scheduler.kill()
        _, err = run.communicate(timeout=PATIENT)
    assert run.returncode == 1
    assert f"tarkit: --dask {cluster.address}: the connection to the scheduler was lost\n" in err.decode()
    assert gone(pid)


def test_workers_are_waited_for(empty: Cluster, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster without workers is warned of; the jobs begin when there are some."""
    monkeypatch.setattr(dask, "ALONE", 0.1)
    monkeypatch.setattr(dask, "REFRESH", 0.1)
    cluster = empty
    with started("each", "v", "--dask", cluster.address, "--", "true") as run:
        assert run.stderr is not None
        warning = b"tarkit: warning: %s has no workers: the work waits for them\n" % cluster.address.encode()
        assert run.stderr.readline() == warning
        cluster.add()
        finished(run)


def test_local(here: Path) -> None:
    """`local` starts workers, which do not import the script again, and ends them."""
    Path("script.py").write_text(
        "import os, tarkit\n"
        "def work(data):\n    open(f'pid-{os.getpid()}', 'w')\n    return data\n"
        "tarkit.map_shards(['i.tar'] * 2, '{index}.tar', work, dask='local', jobs=1)"
    )
    Path("i.tar").write_bytes(tar({}))
    assert python("import runpy; runpy.run_path('script.py', run_name='__main__')").stderr == ""
    assert Path("0.tar").read_bytes() == Path("1.tar").read_bytes() == Path("i.tar").read_bytes()
    pids = [int(name[4:]) for name in os.listdir() if name.startswith("pid-")]
    assert pids
    assert all(map(gone, pids))


def test_tasks(shared: Cluster, here: Path) -> None:
    """Results of tasks come in the order of the items, with few in flight; errors name the item."""
    script = """
        import sys
        from tarkit.errors import Problem, TarkitError
        from tarkit.jobs.dask import WINDOW, connect_cluster

        def numbers():
            global taken
            for taken in range(300):
                yield taken

        def square(item):
            yield item * item

        def bad(item):
            yield item
            if item == 2:
                raise Problem("truncated", "a.tar", 7, "x")
            yield 1 // (item - 5)

        with connect_cluster(sys.argv[1]) as cluster:
            seen = []
            for [result] in cluster.in_order(square, numbers()):
                assert result == len(seen) ** 2
                assert taken - len(seen) <= 8 * WINDOW
                seen.append(result)
            assert len(seen) == 300
            for items in ([5], [1, 2], []):
                try:
                    for results in cluster.in_order(bad, items):
                        print(*results)
                except TarkitError as error:
                    print(type(error).__name__, error)
    """
    assert python(script, shared.address).stdout.splitlines() == [
        "TarkitError 5: ZeroDivisionError: integer division or modulo by zero",
        "1 -1",
        "Problem a.tar: at 7: x [truncated]",
    ]


def test_much_stderr(shared: Cluster, here: Path) -> None:
    """Of much stderr the first and the last lines come, and how many are left out."""
    ran = tarkit("each", "v", "--dask", shared.address, "--", "bash", "-c", "seq -f %0900g 3000 >&2")
    lines = said(ran)
    left = [line for line in lines if "left out" in line]
    assert len(left) == 1
    assert [int(lines[at].split()[1]) for at in (0, -1)] == [1, 3000]
    assert len(lines) - 1 + int(left[0].split()[2]) == 3000


def test_much_stdout(shared: Cluster, here: Path) -> None:
    """A job that prints more than can be sent fails, and says what to do."""
    ran = tarkit("each", "v", "--dask", shared.address, "--", "head", "-c", "70000000", "/dev/zero", exit=1)
    assert ran.stdout == b""
    assert "v: tarkit: the job wrote more than 64 MiB to stdout: let it write a file" in said(ran)
