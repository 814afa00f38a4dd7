"""A working directory that was deleted and a $TMPDIR that is not there are named as the reason of an error."""

from __future__ import annotations

import os

import pytest

from tests._tools import each_row
from tests.conftest import Archive, Run, tarkit

LOST = ["cat in.tar", "cat x*.tar", "check .", "sort -o out.tar {}", "split {} -c 1 -o %d.tar", "extract {} -C ."]


@each_row("words", [*LOST, "create list"])
def test_a_deleted_working_directory(words: str, archive: Archive) -> None:
    """It is named where a name depends on it, and nowhere else."""
    name = os.path.abspath(archive({"a.txt": b"1"}))
    before = os.getcwd()
    os.mkdir("gone")
    os.chdir("gone")
    try:
        os.rmdir("../gone")
        ran = tarkit(*words.format(name).split(), exit=1)
        assert "hint: the working directory was deleted: change to another one with cd\n" in ran.stderr
        assert "was deleted" not in tarkit("cat", f"{name}.gz", exit=1).stderr
        assert tarkit("cat", name).stdout
    finally:
        os.chdir(before)


@each_row("words", ["sort -r --memory 1M", "shuffle --seed 1 --memory 1M", "proc -c true", "proc -p 2 --map os:fspath"])
def test_a_missing_tmpdir(words: str, run: Run, archive: Archive) -> None:
    """It is named as the origin of the directory."""
    run("cat", archive({f"{n}.bin": bytes(300_000) for n in range(9)}), "-o", "in.tar.gz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", "/no/such/directory")
        ran = run(*words.split(), "in.tar.gz", "-o", "out.tar", exit=1)
    assert "hint: $TMPDIR is /no/such/directory, which is no directory: make it, or name another" in ran.stderr
