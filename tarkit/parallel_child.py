"""The other side of `parallel`: a copy of this process that works, and what it writes for the one that started it."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, TypeVar

from tarkit.errors import CommandFailed, Interrupted, Problem, TarkitError
from tarkit.signals import catch_signals, heed_no_signals
from tarkit.streams.command import disown_commands, end_commands
from tarkit.streams.sink_plain import discard_unfinished, unfinished
from tarkit.streams.tempfile import Scratch

Job = TypeVar("Job")
Item = TypeVar("Item")

BUFFER, ROOM = 1 << 16, 1 << 12  # bytes; the second is enough to tell of a full disk
_NEXT, _ITEM, _FAILED = range(3)


class Failed:
    """An error of the family as plain facts: the exceptions themselves cannot go from one process to another."""

    def __init__(self, error: Exception) -> None:
        self.kind = type(error)
        self.facts: tuple[Any, ...] = (str(error), getattr(error, "hint", None))
        if isinstance(error, Problem):
            self.facts = (error.name, error.archive, error.offset, error.detail, error.hint)
        elif isinstance(error, OSError):
            self.facts = (error.errno, error.strerror, error.filename)
        elif isinstance(error, CommandFailed):
            self.kind = TarkitError

    def again(self) -> Exception:
        """The error."""
        return self.kind(*self.facts)


def run(work: Callable[[Job], Iterator[Item]], jobs: Sequence[Job], file: Scratch, mask: set[int], parent: int) -> None:
    """What a process does. What ends its parent ends it through its parent, which must be there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    catch_signals()
    gc.freeze()  # a collection that looks at what is the parent's would copy it
    unfinished.clear()
    disown_commands()
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    try:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _work(work, jobs, file, parent)
        finally:
            _clean_up()
            heed_no_signals()
    except Interrupted as error:  # which may have come while it cleaned up, and comes once
        _clean_up()
        signal.signal(error.signum, signal.SIG_DFL)
        os.kill(os.getpid(), error.signum)


def _clean_up() -> None:
    discard_unfinished()
    end_commands()


def _outlive_nobody() -> None:
    """End when the parent ends, even when it is killed."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _clean_up()
    os.kill(os.getpid(), signal.SIGKILL)  # nobody waits for the rest


def _work(work: Callable[[Job], Iterator[Item]], jobs: Sequence[Job], file: Scratch, parent: int) -> None:
    """Write what `work` yields, with marks; where there is no room for it, that instead."""
    try:
        with os.fdopen(os.dup(file.fd), "wb", BUFFER) as stream:
            for job in jobs:
                if os.getppid() != parent:
                    raise SystemExit(1)
                stream.write(bytes([_NEXT]))
                for mark, item in _marked(work, job):
                    stream.write(bytes([mark]))
                    pickle.dump(item, stream, pickle.HIGHEST_PROTOCOL)
                    if mark == _FAILED:
                        return
            stream.write(bytes([_NEXT]))
    except OSError as error:
        error.filename = file.name
        os.ftruncate(file.fd, ROOM)
        os.pwrite(file.fd, bytes([_NEXT, _FAILED]) + pickle.dumps(Failed(error)), 0)


def _marked(work: Callable[[Job], Iterator[Item]], job: Job) -> Iterator[tuple[int, Item | Failed]]:
    """What is yielded for a job, and what is raised in the end."""
    try:
        for item in work(job):
            yield _ITEM, item
    except (TarkitError, OSError) as error:
        yield _FAILED, Failed(error)


def results(stream: IO[bytes]) -> Iterator[Any]:
    """What was yielded for one job; the stream stands behind the mark before it."""
    while (mark := stream.read(1)) != bytes([_NEXT]):
        if not mark or mark[0] > _FAILED:
            raise TarkitError("a process of ours did less than it should")
        item = pickle.load(stream)
        if mark == bytes([_FAILED]):
            raise item.again()
        yield item
