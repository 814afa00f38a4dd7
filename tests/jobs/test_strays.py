"""When a job is ended, nothing that it started goes on, also in sessions of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests._tools import each_row, gone, pid_in, process, tarkit
from tests.conftest import tar

pytestmark = pytest.mark.forks
LATE = "echo $$ > pid; exec sleep 600"
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("pid~", "w").write(f"{os.getpid()}\\n")
        os.rename("pid~", "pid")
        time.sleep(600)
    os._exit(0)
os.wait()
"""

SETSID = f"""#!{sys.executable}
import os, sys

if os.getpid() == os.getpgrp() and (child := os.fork()):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.setsid()
os.execvp(sys.argv[1], sys.argv[1:])
"""  # the program of this name is not everywhere

STRAYS: dict[str, list[str]] = {
    "session": ["bash", "-c", f"HERE/setsid bash -c '{LATE}' & sleep 600"],
    "deaf": ["bash", "-c", f"HERE/setsid bash -c 'trap \"\" TERM; {LATE}' & sleep 600"],
    "daemon": ["bash", "-c", '"$0" daemon.py; sleep 600', sys.executable],
    "first step": ["bash", "-c", f"HERE/setsid bash -c '{LATE}' & sleep 600", "+", "cat", "+", "sleep", "600"],
    "emptied": ["bash", "-c", f"env -i HERE/setsid $(type -p bash) -c 'PATH={os.defpath}; {LATE}' & sleep 600"],
    "tarkit": ["proc", "a.tar", "-c", f"cd 'HERE'; HERE/setsid bash -c '{LATE}' & sleep 600", "-o", "b.tar"],
    "nested": ["each", "v", "--", "bash", "-c", '"$0" daemon.py; sleep 600', sys.executable],
}


def write_setsid() -> None:
    """Write a program `setsid`, which runs a command in a session of its own."""
    Path("setsid").write_text(SETSID)
    Path("setsid").chmod(0o755)


def step(kind: str, here: Path) -> list[str]:
    """Return the command line of a job, and write what it needs."""
    Path("daemon.py").write_text(DAEMON)
    write_setsid()
    Path("a.tar").write_bytes(tar({"a.txt": b"x"}))
    return [word.replace("HERE", str(here)) for word in STRAYS[kind]]


@pytest.mark.slow
def test_timeouts(here: Path) -> None:
    """All of it is ended, whatever it is; the jobs of all kinds run at once."""
    running = {}
    for number, kind in enumerate(STRAYS):
        directory = here / str(number)
        directory.mkdir()
        os.chdir(directory)
        words = ["each", "v", "--job-timeout", "4", "--", *step(kind, directory)]
        running[kind] = process(*words, stderr=subprocess.PIPE)
    for number, (kind, run) in enumerate(running.items()):
        with run:
            assert b"timed out" in run.communicate()[1], kind
        os.chdir(here / str(number))
        assert (run.returncode, gone(pid_in("pid"))) == (1, True), kind


@each_row(
    "kind,how",
    [
        ("session", signal.SIGINT),
        ("daemon", signal.SIGTERM),
        ("session", signal.SIGKILL),
        ("daemon", signal.SIGKILL),
        ("emptied", signal.SIGKILL),
        ("nested", signal.SIGKILL),
        ("nested", signal.SIGHUP),
    ],
)
def test_the_end_of_a_run(here: Path, kind: str, how: signal.Signals) -> None:
    """Whatever ends the run ends what its jobs started."""
    with process("each", "v", "--", *step(kind, here)) as run:
        pid = pid_in("pid")
        run.send_signal(how)
        assert run.wait(20) == -how
    assert gone(pid)


def test_halt_now(here: Path) -> None:
    """Jobs that are ended since another one failed; those that ended by themselves leave their daemons."""
    Path("daemon.py").write_text(DAEMON)
    waits = "until [[ -e pid ]]; do sleep 0.05; done; exit 1"
    script = f'case $1 in 0) exit 0;; 1) "$0" daemon.py; sleep 600;; 2) {waits}; esac'
    words = ["each", "{0..2}", "-j", "3", "--halt", "now", "--", "bash", "-c", script, sys.executable, "{}"]
    tarkit(*words, exit=1)
    assert gone(pid_in("pid"))
    os.unlink("pid")
    tarkit("each", "v", "--", sys.executable, "daemon.py")
    pid = pid_in("pid")
    os.kill(pid, signal.SIGKILL)  # it runs


def test_jobs_beside_it_go_on(here: Path) -> None:
    """A job that is ended takes no process of another one with it."""
    write_setsid()
    waits = "while kill -0 $(<pid) 2>/dev/null; do sleep 0.05; done"  # for the end of the first job
    cases = f"0) echo $$ > pid; exec sleep 600;; 1) sleep 1.5;; 2) ./setsid bash -c '{waits}; touch done';;"
    jobs = ["bash", "-c", f"case $1 in {cases} esac", "-", "{}"]  # the last one begins when the second has ended
    tarkit("each", "{0..2}", "-j", "2", "--job-timeout", "3", "--halt", "never", "--", *jobs, exit=1)
    assert os.path.exists("done")
