"""Processes of jobs that are not command lines of their own: copies of this process, and calls.

A copy runs a command line of tarkit, or a call, without the start of a new interpreter (`ProcessCopy`). Copies are made
only while this process has no other thread (`threads.has_threads`). Workers elsewhere send a call to a new process
(`call_input`).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from tarkit.errors import Interrupted, TarkitError
from tarkit.jobs.job import Counts, PickledCall, error_text
from tarkit.jobs.strays import take_environment
from tarkit.signals import catch_signals, clean_up, die, restart_in_copy
from tarkit.streams.command import disown_commands
from tarkit.streams.process import ForkedChild
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
        env: the environment of the copy.
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
        env: Mapping[bytes, bytes] | None = None,
        preexec_fn: Callable[[], object] | None = None,
        **ignored: object,
    ) -> None:
        pid = os.fork()
        if pid == 0:

            def work() -> int:
                take_environment(env or {})
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
        first: called before all of this, once the process leads its group.
    """
    status = 1
    try:
        try:
            if os.getpgid(0) != os.getpid():
                os.setpgid(0, 0)
            if first is not None:
                first()
                signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as in the parent, and not as programs expect
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
