"""Work in several processes: results in order, errors as they were, nothing left running."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from tarkit.dataset.parallel import in_processes
from tarkit.errors import CommandFailed, Problem, TarkitError, Unsupported, Usage

ERRORS: list[Exception] = [
    Problem("truncated", "a.tar", 512, "what", "do this"),
    Problem("truncated", "a.tar", None, "what"),
    Usage("words", "other words"),
    Unsupported("no"),
    TarkitError("it is so"),
    FileNotFoundError(2, "No such file or directory", "a.tar"),
]
COMMAND = CommandFailed("false", 1, "tail", "hint")


def square(number: int) -> tuple[int, int]:
    """A result, and who found it."""
    return number * number, os.getpid()


def fail(which: int, number: int) -> int:
    """An error in the place of a number that is too large."""
    if number >= 3:
        raise [*ERRORS, COMMAND][which]
    return number


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_in_order(processes: int) -> None:
    """All results, in the order of the items; several processes when there are to be several."""
    found = list(in_processes(square, range(20), processes))
    assert [result for result, _ in found] == [number**2 for number in range(20)]
    assert (os.getpid() in {who for _, who in found}) == (processes == 1)
    assert list(in_processes(square, [], processes)) == []


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("which", range(len(ERRORS)))
def test_errors(which: int, processes: int) -> None:
    """The first one is raised as it was, with all that it says, behind the results before it."""
    error = ERRORS[which]
    found = in_processes(partial(fail, which), range(9), processes)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(type(error)) as raised:
        next(found)
    assert str(raised.value) == str(error)
    assert vars(raised.value) == vars(error)


def test_a_command_that_failed() -> None:
    """Its message comes through."""
    with pytest.raises(TarkitError, match="command ended with status 1: false: tail"):
        list(in_processes(partial(fail, len(ERRORS)), [3, 4], 2))


def end(number: int) -> int:
    """End this process as the system does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_process_that_is_ended() -> None:
    """An error in words, not a wait without an end."""
    with pytest.raises(TarkitError, match="a process of ours was ended from outside"):
        list(in_processes(end, range(4), 2))


def test_few_items_wait() -> None:
    """Items are taken as results are, not all at once."""
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    found = in_processes(square, items(), 2)
    next(found)
    assert len(taken) <= 6
    found.close()  # type: ignore[attr-defined]
