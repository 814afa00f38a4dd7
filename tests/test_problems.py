"""The vocabulary of problems, and what a policy makes of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tarkit import errors
from tarkit.errors import CommandFailed, Problem, TarkitError, Usage, printable, show
from tarkit.problems import PROBLEMS, SHOWN, Policy
from tarkit.samples import reader
from tests._tools import each_row
from tests.conftest import Archive, Piped, Run


def problem(name: str, offset: int | None = 512) -> Problem:
    """A problem of this name."""
    return Problem(name, "a.tar", offset, "what")


@each_row("name", PROBLEMS)
def test_the_table(name: str) -> None:
    """Every row says what it means and what --allow and --skip do, in words that end without a full stop."""
    kind = PROBLEMS[name]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert kind.default in ("error", "warning", "note")
    for words in (kind.meaning, kind.allow, kind.skip, *([kind.repair] if kind.repair else [])):
        assert words
        assert not words[0].isupper()
        assert not words.endswith(".")


@each_row("name", PROBLEMS)
def test_allow(name: str) -> None:
    """Kept and counted; said if it is an error, unless it is one that is allowed on purpose."""
    error = PROBLEMS[name].default == "error" and name != "joined-sample"
    for allowed in ([name], ["all"], [f"{name}, duplicate-entry"], [name, "truncated"]):
        said: list[str] = []
        policy = Policy(allow=allowed, warn=said.append)
        assert policy.judge(problem(name)) == "keep"
        assert policy.counts == {name: 1}
        assert not policy.dropped
        assert said == ([f"a.tar: at 512: what [{name}]"] if error else [])


@each_row("name", PROBLEMS)
def test_skip(name: str) -> None:
    """Dropped, counted, said."""
    for skipped in ([name], ["all"]):
        said: list[str] = []
        policy = Policy(skip=skipped, warn=said.append)
        assert policy.judge(problem(name)) == "drop"
        assert (policy.counts, policy.dropped) == ({name: 1}, {name: 1})
        assert said == [f"a.tar: at 512: what [{name}]"]


@each_row("name", PROBLEMS)
def test_default(name: str) -> None:
    """An error with its repair as the hint; a warning is said and kept, a note only kept."""
    said: list[str] = []
    policy = Policy(warn=said.append)
    kind = PROBLEMS[name]
    if kind.default == "error":
        with pytest.raises(Problem) as error:
            policy.judge(problem(name))
        assert error.value.hint == kind.repair
        assert error.value.exit_code == 1
    else:
        assert policy.judge(problem(name)) == "keep"
        assert len(said) == (kind.default == "warning")


def test_a_hint_of_its_own_stays() -> None:
    """Who knows better says so."""
    with pytest.raises(Problem) as error:
        Policy().judge(Problem("truncated", "a.tar", None, "what", "do this"))
    assert error.value.hint == "do this"
    assert str(error.value) == "a.tar: what [truncated]"


def test_maxerr() -> None:
    """So many errors are passed over as --skip would; warnings do not count against it."""
    policy = Policy(maxerr=2)
    assert policy.judge(problem("unsafe-name")) == "keep"
    assert [policy.judge(problem("truncated")), policy.judge(problem("bad-header"))] == ["drop", "drop"]
    with pytest.raises(Problem, match="duplicate-entry"):
        policy.judge(problem("duplicate-entry"))
    assert policy.dropped == {"truncated": 1, "bad-header": 1}


def test_many_of_a_kind_are_not_all_said() -> None:
    """The first few are, then that there are more; others still are."""
    said: list[str] = []
    policy = Policy(skip=["all"], warn=said.append)
    for offset in range(100):
        policy.judge(problem("duplicate-entry", offset))
    policy.judge(problem("truncated"))
    assert len(said) == SHOWN + 2
    assert said[SHOWN] == "more of [duplicate-entry] follow; they are only counted"
    assert said[-1].endswith("[truncated]")
    assert policy.dropped == {"duplicate-entry": 100, "truncated": 1}


@each_row(
    ("allow", "skip", "allowed", "skipped"),
    [
        (["truncated"], ["bad-header"], {"truncated"}, {"bad-header"}),
        (["all"], ["bad-header"], PROBLEMS.keys() - {"bad-header"}, {"bad-header"}),
        (["truncated"], ["all"], {"truncated"}, PROBLEMS.keys() - {"truncated"}),
        (["truncated,bad-header", "bad-data"], [], {"truncated", "bad-header", "bad-data"}, set()),
        ([" truncated , "], [], {"truncated"}, set()),
        ([], [], set(), set()),
    ],
)
def test_names(allow: list[str], skip: list[str], allowed: set[str], skipped: set[str]) -> None:
    """Repeated, with commas, `all`; the name beats `all`."""
    policy = Policy(allow, skip)
    assert (policy.allowed, policy.skipped) == (allowed, skipped)


@each_row(
    ("allow", "skip", "message"),
    [
        (["nothing"], [], r"--allow nothing: no such problem; there are: all, truncated,"),
        ([], ["truncated,typo"], r"--skip typo: no such problem"),
        (["truncated"], ["truncated"], r"--allow and --skip both name truncated"),
        (["truncated,bad-data"], ["truncated"], r"--allow and --skip both name truncated$"),
        (["all"], ["all"], r"--allow and --skip both name"),
    ],
)
def test_names_that_make_no_sense(allow: list[str], skip: list[str], message: str) -> None:
    """A usage error, which lists what there is."""
    with pytest.raises(Usage, match=message) as error:
        Policy(allow, skip)
    assert error.value.exit_code == 2


@each_row(
    ("settings", "lenient"),
    [
        ({}, False),
        ({"allow": ["duplicate-entry", "no-end-marker"]}, False),
        ({"allow": ["trailing-data"]}, True),
        ({"allow": ["truncated"]}, True),
        ({"allow": ["all"]}, True),
        ({"skip": ["duplicate-entry"]}, True),
        ({"maxerr": 1}, True),
    ],
)
def test_lenient(settings: dict[str, object], lenient: bool) -> None:
    """Whether a sample that has begun may still change: then none is passed on before its end is known."""
    assert Policy(**settings).lenient == lenient  # type: ignore[arg-type]


def test_defaults() -> None:
    """What ends a run, what only warns and what `check` alone mentions: scripts rely on it."""
    names = {level: {name for name, kind in PROBLEMS.items() if kind.default == level} for level in ("warning", "note")}
    assert names["warning"] == {"repeated-key", "unsafe-name"}
    assert names["note"] == {"stray-entry", "case-variant", "mixed-fields", "odd-field"}
    errors = PROBLEMS.keys() - names["warning"] - names["note"]
    assert {PROBLEMS[name].default for name in errors} == {"error"}
    assert errors == {
        "truncated",
        "no-end-marker",
        "bad-header",
        "bad-data",
        "trailing-data",
        "scattered-sample",
        "joined-sample",
        "duplicate-entry",
        "unmovable-entry",
        "missing-field",
        "bad-field",
        "sparse-entry",
    }


# ---- errors


def subclasses(kind: type[TarkitError]) -> list[type[TarkitError]]:
    """A class and all below it."""
    return [kind, *(each for below in kind.__subclasses__() for each in subclasses(below))]


def test_exit_codes() -> None:
    """Each error of the family has the status that its docstring promises: 2 for usage, else 1."""
    assert errors.__doc__
    codes = dict(re.findall(r"^\W*(\w+)\s+(\d)\s", errors.__doc__, re.M))
    ones = ("TarkitError", "Problem", "MissingLibrary", "Unsupported", "CommandFailed")
    assert codes == {**dict.fromkeys(ones, "1"), "Usage": "2"}
    for kind in subclasses(TarkitError):
        if kind.__module__ == "tarkit.errors":
            assert str(kind.exit_code) == codes[kind.__name__]
        assert kind.exit_code == (2 if issubclass(kind, Usage) else 1)
    assert not issubclass(errors.Interrupted, Exception), "nothing may swallow it"


@each_row(
    ("status", "tail", "message"),
    [
        (3, "", "command ended with status 3: cmd"),
        (3, "why", "command ended with status 3: cmd: why"),
        (-9, "", "command was ended by SIGKILL: cmd"),
        (-63, "", "command was ended by signal 63: cmd"),
    ],
)
def test_command_failed(status: int, tail: str, message: str) -> None:
    """What, how, and what it said last."""
    assert str(CommandFailed("cmd", status, tail)) == message


@each_row(
    ("name", "shown"),
    [
        (b"a/b.jpg", "'a/b.jpg'"),
        ("a b", "'a b'"),
        ("é".encode(), "'é'"),
        (b"\xe9", r"'\xe9'"),
        (b"a\nb\tc", r"'a\x0ab\x09c'"),
        (b"a\\nb", r"'a\\nb'"),
        ("caf\udce9", r"'caf\xe9'"),
        ("\u2028", r"'\xe2\x80\xa8'"),
        ("\ud800", r"'\xed\xa0\x80'"),
        (b"\x1b[31m", r"'\x1b[31m'"),
        (b"", "''"),
    ],
)
def test_show(name: bytes | str, shown: str) -> None:
    """On one line, whatever bytes it has, and no two names alike."""
    assert show(name) == shown


def test_printable() -> None:
    """A whole message keeps its backslashes and loses what would break the line."""
    assert printable("a\\n é 'x'") == "a\\n é 'x'"
    assert printable("a\nb\udcff") == r"a\x0ab\xff"


def test_a_stream_that_ends_amid_a_copy(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has judged that when it is found; the line says what helps all the same."""
    monkeypatch.setattr(reader, "LARGE", 1 << 16)
    large = Path(archive({"a.bin": bytes(6 << 20)})).read_bytes()
    ran = run("cat", Piped(100, archive(large[: 5 << 20], "cut.tar")), "-o", "out.tar", exit=1)
    assert ran.stderr == (
        "tarkit: /dev/fd/100: at 5242880: the input ends inside an entry [truncated]\n"
        "hint: fetch the shard again; --skip truncated keeps the whole samples before the cut\n"
    )
    assert not Path("out.tar").exists()
