"""Processes of jobs that are not command lines of their own: copies of this process, calls, and the guard.

A copy runs a command line of tarkit, or a call, without the start of a new interpreter (`ProcessCopy`). Copies are made
only while this process has no other thread (`threads.has_threads`). Workers elsewhere send a call to a new process
(`call_input`). `ProcessGuard`, a copy or a new process as well, ends the steps that still run when this process is
killed.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from tarkit.errors import Interrupted, TarkitError
from tarkit.jobs.job import Counts, PickledCall, error_text, python_words
from tarkit.signals import catch_signals, clean_up, die, restart_in_copy
from tarkit.streams.command import PATIENCE, disown_commands, lives, send
from tarkit.streams.process import ForkedChild, Program
from tarkit.streams.sink import unfinished

RunWords = Callable[[Sequence[str]], int]
"""Runs a command line of tarkit in this process, and returns its exit status."""


class ProcessCopy(ForkedChild):
    """A copy of this process that runs one step.

    Args:
        run: runs a command line of tarkit; None if there are only calls.
        close: descriptors of this process that the copy closes.
        call: is called in place of a command line.
        report: the descriptor to which the samples and bytes of a call are written; a command line names it itself, in
            `--report`.
        words: the command line; of a call they are not used.
        stdin, stdout, stderr: descriptors of the copy; negative ones are /dev/null.
        preexec_fn: called in the copy first, which leads its process group by then.
        ignored: what `subprocess.Popen` takes besides.
    """

    def __init__(
        self,
        run: RunWords | None,
        close: Iterable[int],
        call: Callable[[], Counts] | None,
        report: int,
        words: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        preexec_fn: Callable[[], object] | None = None,
        **ignored: object,
    ) -> None:
        pid = os.fork()
        if pid == 0:

            def work() -> int:
                if call is not None:
                    return _reported(call, report)
                assert run is not None
                return run(words)

            _main(work, (stdin, stdout, stderr), close, preexec_fn)
        super().__init__(pid)


def _main(
    work: Callable[[], int],
    fds: Sequence[int],
    close: Iterable[int] = (),
    first: Callable[[], object] | None = None,
) -> NoReturn:
    """Work in a process that was made for it, and end the process with the status that `work` returns.

    In a copy the unfinished files, commands and directories of the parent stay those of the parent.

    Args:
        work: returns the status.
        fds: become stdin, stdout and stderr; negative ones are /dev/null.
        close: descriptors of the parent that are closed.
        first: called before that, once the process leads its group.
    """
    status = 1
    try:
        try:
            if os.getpgid(0) != os.getpid():
                os.setpgid(0, 0)
            if first is not None:
                first()
            for place, fd in enumerate(fds):
                os.dup2(fd if fd >= 0 else os.open(os.devnull, os.O_RDWR), place)
            for fd in close:
                os.close(fd)
            gc.freeze()  # a collection would copy all pages of the parent
            unfinished.clear()
            disown_commands()
            catch_signals()
            restart_in_copy()
            status = work()
            clean_up()
        except Interrupted as error:
            die(error.signum)
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)


def call_input(report: int, path: list[str]) -> NoReturn:
    """Call what is pickled in stdin, with this search path, and end the process; counts are written to `report`."""
    sys.path[:] = path
    fd = os.dup(0)
    os.set_inheritable(report, False)

    def work() -> int:
        with open(fd, "rb") as file:
            data = file.read()
        return _reported(PickledCall(data), report)

    _main(work, (-1, 1, 2))


def _reported(call: Callable[[], Counts], report: int) -> int:
    """Call a function and report what it returns; return a status."""
    try:
        samples, size = call()
    except (TarkitError, OSError) as error:
        os.write(2, error_text(error).encode())
        return 1
    os.write(report, json.dumps({"samples": samples, "bytes": size}).encode())
    return 0


class ProcessGuard:
    """A process that ends the steps of jobs when this process has been killed and cannot do so itself.

    It reads from a pipe which processes run, and sees that the pipe is closed.

    Args:
        copy: whether it is a copy of this process, which has no threads then; else a new process.

    Attributes:
        fd: the end of the pipe that is written; a copy of this process closes it.
    """

    def __init__(self, copy: bool = True) -> None:
        read, self.fd = os.pipe()
        self._child: ForkedChild | Program
        if not copy:
            self._child = Program(python_words("tarkit.jobs.copies", "guard_input"), stdin=read)
        elif (pid := os.fork()) == 0:
            try:
                os.close(self.fd)
                os.setpgid(0, 0)  # a signal to the group of the parent is not for it
                for fd in range(3):
                    os.dup2(os.open(os.devnull, os.O_RDWR), fd)
                gc.freeze()
                _guard(read)
            finally:
                os._exit(0)
        else:
            self._child = ForkedChild(pid)
        os.close(read)

    def began(self, pid: int) -> None:
        """Take note of a process, which leads its group."""
        self._tell(b"+%d\n" % pid)

    def ended(self, pid: int) -> None:
        """Take note that a process has ended, and its group with it."""
        self._tell(b"-%d\n" % pid)

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self.fd, line)
        except BrokenPipeError:
            pass  # it has been killed itself

    def close(self) -> None:
        """End it."""
        os.close(self.fd)
        self._child.wait()


def guard_input() -> None:
    """Guard the processes that stdin tells, in a process of its own."""
    _guard(0)


def _guard(fd: int) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    running: set[int] = set()
    with open(fd, "rb") as lines:
        for line in lines:
            if line.startswith(b"+"):
                running.add(int(line[1:]))
            else:
                running.discard(int(line[1:]))
    groups = [-pid for pid in running]
    send(groups, signal.SIGTERM)
    limit = time.monotonic() + PATIENCE
    while any(map(lives, running)) and time.monotonic() < limit:
        time.sleep(0.01)
    send(groups, signal.SIGKILL)
