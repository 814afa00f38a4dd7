"""The exceptions: pickled, and made anew of a message alone, as data loaders of torch do with errors of workers."""

from __future__ import annotations

import pickle
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import (
    CommandFailed,
    MissingFile,
    MissingKey,
    MissingLibrary,
    Problem,
    TarkitError,
    Unsupported,
    Usage,
)
from tests._tools import each_row

ERRORS = [
    TarkitError("no", "do this"),
    TarkitError("no"),
    Problem("bad-header", "a.tar", 1024, "the checksum is wrong", "fetch it again"),
    Problem("truncated", "a.tar", None, "cut"),
    MissingLibrary("decode of pictures", "Pillow", "images", "; or leave it out"),
    Unsupported("a stream", "write a file"),
    MissingKey("no sample 'a'", "the first keys are b"),
    MissingFile("a.tar: No such file or directory", "look", "a.tar"),
    CommandFailed("false", 1, "tail", "try again"),
    CommandFailed("sleep 9", -9),
    Usage("batch=0", "give more"),
]


@each_row("error", ERRORS)
def test_a_copy_is_the_same(error: TarkitError) -> None:
    """It has the class, the message, the hint and all facts, once more copied too."""
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.args == error.args
    assert copy.hint == error.hint
    assert vars(copy) == vars(error)


@each_row("error", ERRORS)
def test_made_of_a_message(error: TarkitError) -> None:
    """Every class takes one argument; a problem finds its name in it."""
    text = "".join(traceback.format_exception(error))
    again = type(error)(text)
    assert str(again) == text
    assert again.hint is None
    assert str(error) in text
    assert error.hint is None or f"hint: {error.hint}" in text
    if isinstance(error, Problem):
        assert isinstance(again, Problem)
        assert (again.name, again.archive, again.offset) == (error.name, "", None)


def test_the_hint_is_a_note() -> None:
    """Also one that is set later; other notes stay."""
    error = TarkitError("no", "first")
    error.add_note("other")
    error.hint = "second"
    assert error.__notes__ == ["hint: second", "other"]
    error.hint = None
    assert error.__notes__ == ["other"]


def _read(name: str) -> int:
    return len(list(tarkit.open(name)))


@pytest.mark.forks
def test_from_another_process(tmp_path: Path) -> None:
    """A problem that a worker of a pool raises arrives, and the pool goes on."""
    (tmp_path / "a.tar").write_bytes(b"no archive" * 100)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(tarkit.Problem) as raised:
            pool.submit(_read, str(tmp_path / "a.tar")).result(60)
        assert pool.submit(len, "abc").result(60) == 3
    assert raised.value.archive == str(tmp_path / "a.tar")
    assert raised.value.hint is not None
