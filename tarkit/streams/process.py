"""Copies of this process, and new processes of Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from tarkit.streams.command import disown_commands

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def python_words(module: str, function: str, *arguments: object) -> tuple[str, ...]:
    """Return the words of a command line that calls a function of tarkit in a new process of Python."""
    call = f"from {module} import {function}; sys.path.remove({_ROOT!r}); {function}{arguments!r}"
    # -P: tarkit is imported before what is in the current directory
    return sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {_ROOT!r}); {call}"


class ForkedChild:
    """A copy of this process that does some work and ends. It has what `command.Program` uses of `subprocess.Popen`.

    The files, commands and directories of this process stay its own. A copy is made only while there are no threads.

    Args:
        work: called in the copy, which leads its process group; returns the exit status.
        close: descriptors that the copy closes.
        began: called in the copy with its process id, before it closes them.
        words: not used, as all that `Popen` takes besides.
        stdin, stdout, stderr: descriptors of the copy; negative ones are /dev/null.
    """

    def __init__(
        self,
        work: Callable[[], int],
        close: Iterable[int],
        words: Sequence[str | bytes],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        began: Callable[[int], object] = lambda pid: None,
        **ignored: object,
    ) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _work_in_copy(work, (stdin, stdout, stderr), close, began)
        try:
            os.setpgid(self.pid, self.pid)  # the copy does that too, perhaps later
        except OSError:
            pass

    def poll(self) -> int | None:
        """Return the status if the process has ended."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the end of the process and return its status."""
        return self._waited(0) or 0

    def _waited(self, flags: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _work_in_copy(
    work: Callable[[], int], fds: Sequence[int], close: Iterable[int], began: Callable[[int], object]
) -> NoReturn:
    import gc

    from tarkit.streams.sink import unfinished

    status = 1
    try:
        os.setpgid(0, 0)
        began(os.getpid())
        for place, fd in enumerate(fds):
            os.dup2(fd if fd >= 0 else os.open(os.devnull, os.O_RDWR), place)
        for fd in close:
            os.close(fd)
        gc.freeze()  # a collection would copy all pages of the parent
        unfinished.clear()
        disown_commands()
        status = work()
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)
