"""Test helpers: a table that is one test runs every row and reports every failure; a pipe has its own descriptor."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil

import pytest

from tests._tools import each_row, program
from tests.conftest import Archive, Piped, Run


def test_every_row_runs_and_every_failure_has_its_row() -> None:
    """All rows run after failures of all kinds, in nested tables as well."""
    ran = []

    @each_row("second", ["x", "y"])
    @each_row(("first", "odd"), [(1, True), (2, False), (3, True)])
    def check(first: int, odd: bool, second: str) -> None:
        ran.append((first, second))
        if odd and second == "y":
            if first == 1:
                pytest.fail("no")
            raise ValueError(first)

    with pytest.raises(ExceptionGroup) as caught:
        check()
    assert ran == [(first, second) for second in "xy" for first in (1, 2, 3)]
    [inner] = caught.value.exceptions
    assert inner.__notes__ == ["in row 1: 'y'"]
    assert isinstance(inner, ExceptionGroup)
    assert [each.__notes__ for each in inner.exceptions] == [["in row 0: (1, True)"], ["in row 2: (3, True)"]]


def test_a_row_that_is_skipped_hides_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows run; the reasons are those of the rows; a failure takes precedence over skips."""
    monkeypatch.delenv("TARKIT_TESTS_WITHOUT", raising=False)
    ran = []

    def check(name: str) -> None:
        if name != "sh":
            program(name)
        ran.append(name)

    with pytest.raises(pytest.skip.Exception) as caught:
        each_row("name", ["no-such-program", "sh", "no-such-program", "no-other-program", "sh"])(check)()
    assert ran == ["sh", "sh"]
    assert str(caught.value) == (
        "no-such-program is not here: 2 of 5 rows; no-other-program is not here: 1 of 5 rows of check"
    )

    @each_row("row", [0, 1])
    def fails(row: int) -> None:
        assert program("sh" if row else "no-such-program") != shutil.which("sh")

    with pytest.raises(ExceptionGroup, match="1 of 2 rows of fails"):
        fails()


def test_a_required_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """If TARKIT_TESTS_WITHOUT names the programs that may be missing, a test that needs another one fails."""
    monkeypatch.setenv("TARKIT_TESTS_WITHOUT", "")
    assert program("no-such-program", "sh") == shutil.which("sh")
    with pytest.raises(pytest.fail.Exception, match="no-such-program or nor-this is not here, and TARKIT_TESTS"):
        program("no-such-program", "nor-this")
    with pytest.raises(pytest.fail.Exception, match=r"ls \(GNU tar\) is not here"):
        program("ls", version="GNU tar")
    monkeypatch.setenv("TARKIT_TESTS_WITHOUT", "something nor-this")
    with pytest.raises(pytest.skip.Exception):
        program("no-such-program", "nor-this")


def test_a_table_without_rows_is_an_error() -> None:
    """A table without rows is an error, since its test would check nothing."""
    with pytest.raises(AssertionError, match="no rows"):
        each_row("x", [])(lambda x: None)


class Collected:
    """An object that closes its descriptor when it is collected as garbage, as the input of a failed command does."""

    def __init__(self, fd: int) -> None:
        self.fd, self.itself = fd, self

    def __del__(self) -> None:
        os.close(self.fd)


def test_a_pipe_takes_no_descriptor_in_use(run: Run, archive: Archive) -> None:
    """A descriptor in use is an error: its owner would close the pipe later."""
    word = Piped(400, archive({"a.x": b"1"}))
    with open(os.devnull) as null:
        Collected(fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, 400))
    os.fstat(400)
    data = run("cat", word).stdout
    gc.collect()
    assert run("cat", word).stdout == data
    with open(os.devnull) as null:
        fd = fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, 400)
    try:
        with pytest.raises(AssertionError, match="400"):
            run("cat", word)
    finally:
        os.close(fd)
