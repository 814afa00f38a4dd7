"""tarkit.index and tarkit.verify_index: the files and the faults of the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Run, tar


@pytest.mark.forks
def test_verify_as_the_command_does(archive: Archive, run: Run) -> None:
    """A line for each fault, of one format or of all."""
    names = [archive({f"{n}{i}.x": b"1" * n for i in range(3)}, f"s/{n}.tar") for n in (1, 2)]
    assert tarkit.index("s", format="dali,wids", md5=True) == ["s/1.idx", "s/2.idx", "s/shardindex.json"]
    assert tarkit.verify_index("s") == []
    assert tarkit.verify_index(names, ["wids"], md5=True) == []
    Path("s/1.tar").write_bytes(tar({"1.x": b"1"}))
    for format, more in ((None, []), ("dali", []), ("wids", ["--md5"])):
        words = [] if format is None else ["--format", format, *more]
        found = run("index", "s", "--verify", *words, exit=1).stdout.decode().splitlines()
        assert tarkit.verify_index("s", format or (), md5=bool(more)) == found != []
    Path("new").mkdir()
    assert tarkit.index("s", "dali", Path("new")) == ["new/1.idx", "new/2.idx"]
    assert tarkit.verify_index("s", output="new", processes=2) == []


def test_problems(archive: Archive) -> None:
    """As for `tarkit.open`."""
    archive([("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")], "a.tar")
    with pytest.raises(tarkit.Problem, match="scattered-sample"):
        tarkit.index("a.tar", "dali")
    said: list[str] = []
    tarkit.index("a.tar", "dali", allow="scattered-sample", on_problem=said.append)
    assert len(said) == 1
    assert tarkit.verify_index("a.tar", allow=["scattered-sample"], on_problem=said.append) == []


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no format": (lambda: tarkit.index("a.tar", ()), tarkit.Usage, "format names no format"),
    "number": (lambda: tarkit.index("a.tar", 3), TypeError, "format=3: a str or a list of str is needed"),  # type: ignore[arg-type]
    "md5": (lambda: tarkit.index("a.tar", "dali", md5=True), tarkit.Usage, "md5 requires format='wids'"),
    "processes": (lambda: tarkit.index("a.tar", "dali", processes=0), tarkit.Usage, "processes=0: it is at least 1"),
    "no index": (lambda: tarkit.verify_index("a.tar"), tarkit.TarkitError, "no index to verify"),
    "no such format": (lambda: tarkit.verify_index("a.tar", "nix"), tarkit.Usage, "no such format"),
}


@each_row("case", WRONG)
def test_wrong_arguments(case: str, archive: Archive) -> None:
    """At the call."""
    archive({"a.x": b"1"}, "a.tar")
    call, kind, text = WRONG[case]
    with pytest.raises(kind, match=text):
        call()
