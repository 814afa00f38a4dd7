"""What a stranger's words come to: nothing that was said on the command line is dropped without a word."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _tools import each_row
from conftest import Archive, Content, Run, tar

AB: dict[str, Content] = {f"{key}.{field}": b"x" * 600 for key in "ab" for field in ("cls", "jpg", "txt")}
NO_TAR = "hint: it is no tar archive; for a list of inputs use -T, for a recipe tarkit create"


@each_row(
    ("words", "fields"),
    [
        (["-f", "jpg", "-f", "cls"], ["jpg", "cls"]),
        (["-f", "jpg cls", "--field", "t:text,txt"], ["jpg", "cls", "t"]),
        (["--drop", "jpg,t*"], ["cls"]),
        (["--drop", "jpg txt"], ["cls"]),
        (["--drop", "jpg", "--drop", "cls"], ["txt"]),
    ],
)
def test_fields_add_up(words: list[str], fields: list[str], run: Run, archive: Archive) -> None:
    """-f and --drop may be given several times, and --drop takes several words."""
    run("cat", archive(AB), *words, "-o", "out.tar")
    assert Path("out.tar").read_bytes() == tar({f"{key}.{field}": b"x" * 600 for key in "ab" for field in fields})


def test_a_comma_without_a_new_name(run: Run, archive: Archive) -> None:
    """It could mean both or either."""
    assert run("cat", archive(AB), "-f", "jpg,cls", exit=2).lines == [
        "tarkit: 'jpg,cls': a comma means the first that is there",
        "hint: 'jpg cls' for both, 'jpg:jpg,cls' for either",
    ]


@each_row(
    ("words", "name"),
    [
        (["--match", "a", "--match", "b"], "--match"),
        (["--slice", "1:2", "--slice=3"], "--slice"),
        (["--keys-from", "a", "--keys-from", "b"], "--keys-from"),
        (["-R", "a", "--rekey", "b"], "--rekey"),
        (["--sample", "1", "--sample", "1"], "--sample"),
        (["-o", "a.tar", "--outputs", "b.tar"], "--output"),
    ],
)
def test_given_twice(words: list[str], name: str, run: Run, archive: Archive) -> None:
    """An option with one value has no second."""
    assert run("cat", archive(AB), *words, exit=2).lines == [f"tarkit: {name} is given twice"]


def test_flags_may_be_given_twice(run: Run, archive: Archive) -> None:
    """They lose nothing."""
    run("cat", archive(AB), "-q", "-q", "--fsync", "--fsync", "-o", "out.tar")
    assert Path("out.tar").read_bytes() == tar(AB)


def test_what_is_allowed_is_said(run: Run, archive: Archive) -> None:
    """An error that is allowed is a warning."""
    word = archive(AB)
    Path(word).write_bytes(Path(word).read_bytes()[:5000])
    lines = run("cat", word, "--allow", "truncated", "-o", "out.tar").lines
    assert lines[0].startswith(f"tarkit: warning: {word}: at 5000: the input ends inside")
    assert lines[0].endswith("[truncated]")


@each_row(
    ("content", "hint"),
    [
        (b"", "hint: it has 0 bytes: make or fetch it again"),
        (b"a.tar\n", NO_TAR),
        (b"a.jpg\tfile:a.jpg\n" * 99, NO_TAR),
    ],
)
def test_no_archive_at_all(content: bytes, hint: str, run: Run) -> None:
    """Where nothing is a header, to skip the damage is no advice."""
    Path("in.tar").write_bytes(content)
    assert run("cat", "in.tar", "-o", "out.tar", exit=1).lines[1:] == [hint]


def test_damage_later_keeps_its_hint(run: Run, archive: Archive) -> None:
    """An archive that breaks off, even in its second header, is one."""
    word = archive(AB)
    Path(word).write_bytes(Path(word).read_bytes()[:1700])
    assert "--skip truncated" in run("cat", word, "-o", "out.tar", exit=1).lines[1]


def test_messages_of_click_are_one_line(run: Run) -> None:
    """Its lists of choices come with newlines and tabs."""
    line = run("completion", exit=2).lines[0]
    assert "\\x" not in line
    assert line.endswith("Choose from: bash, zsh, fish")


def test_a_short_option_loads_no_search_for_words_like_it(
    run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes with the message for a long option that does not exist, and not before."""
    monkeypatch.delitem(sys.modules, "difflib", raising=False)
    name = archive({"a.x": b"1"})
    assert run("cat", name, "-qs3", "-o", "out.tar").stderr == ""
    assert "difflib" not in sys.modules
    assert "--shuffle" in run("cat", name, "--shufle", "3", exit=2).stderr
    assert "difflib" in sys.modules
