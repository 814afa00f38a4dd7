"""The table of problems, and the errors; tests/commands/test_cat_problems.py has the decisions of a policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tarkit import errors
from tarkit.errors import CommandFailed, Problem, TarkitError, Usage, printable, respell, show
from tarkit.problems import PROBLEMS, Policy
from tarkit.samples import reader
from tests._tools import each_row
from tests.conftest import Archive, Piped, Run

DEFAULTS = {
    "error": """
        truncated zero-filled no-end-marker bad-header bad-data trailing-data scattered-sample joined-sample
        duplicate-entry unmovable-entry changed-source foreign-source missing-shard missing-field bad-field sparse-entry
    """,
    "warning": """
        repeated-key unsafe-name
    """,
    "note": """
        stray-entry case-variant mixed-fields odd-field
    """,
}


def problem(name: str, offset: int | None = 512) -> Problem:
    """Return a problem of this name."""
    return Problem(name, "a.tar", offset, "what")


@each_row("name", PROBLEMS)
def test_the_table(name: str) -> None:
    """Every row states its meaning and what --allow and --skip do, without a full stop at the end."""
    kind = PROBLEMS[name]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert kind.default in ("error", "warning", "note")
    for words in (kind.meaning, kind.allow, kind.skip, *([kind.repair] if kind.repair else [])):
        assert words
        assert not words[0].isupper()
        assert not words.endswith(".")


@each_row("name", PROBLEMS)
def test_default(name: str) -> None:
    """An error is raised with its repair as the hint; a warning is printed and kept, a note is kept."""
    said: list[str] = []
    policy = Policy(warn=said.append)
    kind = PROBLEMS[name]
    if kind.default == "error":
        with pytest.raises(Problem) as error:
            policy.apply(problem(name))
        assert error.value.hint == respell(kind.repair)
        assert error.value.exit_code == 1
    else:
        assert policy.apply(problem(name)) == "keep"
        assert len(said) == (kind.default == "warning")


def test_a_hint_of_its_own_stays() -> None:
    """A hint that the problem brings takes precedence over the repair of the table."""
    with pytest.raises(Problem) as error:
        Policy().apply(Problem("truncated", "a.tar", None, "what", "do this"))
    assert error.value.hint == "do this"
    assert str(error.value) == "a.tar: what [truncated]"


def test_names_and_defaults_stay() -> None:
    """Scripts rely on the names of problems and on which of them end a run."""
    expected = {name: default for default, names in DEFAULTS.items() for name in names.split()}
    assert {name: kind.default for name, kind in PROBLEMS.items()} == expected


# ---- errors


def subclasses(kind: type[TarkitError]) -> list[type[TarkitError]]:
    """Return a class and all its subclasses."""
    return [kind, *(each for below in kind.__subclasses__() for each in subclasses(below))]


def test_exit_codes() -> None:
    """Each error has the status that the docstring of its module states: 2 for usage, else 1."""
    assert errors.__doc__
    codes = dict(re.findall(r"^\W*(\w+)\s+(\d)\s", errors.__doc__, re.M))
    ones = ("TarkitError", "Problem", "MissingFile", "MissingLibrary", "Unsupported", "MissingKey", "CommandFailed")
    assert codes == {**dict.fromkeys(ones, "1"), "Usage": "2"}
    for kind in subclasses(TarkitError):
        if kind.__module__ == "tarkit.errors":
            assert str(kind.exit_code) == codes[kind.__name__]
        assert kind.exit_code == (2 if issubclass(kind, Usage) else 1)
    assert not issubclass(errors.Interrupted, Exception), "`except Exception` must not catch it"


def test_a_signal_without_a_name() -> None:
    """The message has its number; tests/cli/test_app.py and tests/commands/test_create.py have the other ends."""
    assert str(CommandFailed("cmd", -63, "")) == "command was ended by signal 63: cmd"


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
    """A name is shown on one line for any bytes, and different names differ."""
    assert show(name) == shown


def test_printable() -> None:
    """Backslashes of a message stay; line ends and invalid characters are escaped."""
    assert printable("a\\n é 'x'") == "a\\n é 'x'"
    assert printable("a\nb\udcff") == r"a\x0ab\xff"


def test_a_stream_that_ends_during_a_copy(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem that no policy has seen gets its hint as well."""
    monkeypatch.setattr(reader, "LARGE", 1 << 16)
    large = Path(archive({"a.bin": bytes(6 << 20)})).read_bytes()
    ran = run("cat", Piped(600, archive(large[: 5 << 20], "cut.tar")), "-o", "out.tar", exit=1)
    assert ran.stderr == (
        "tarkit: /dev/fd/600: at 5242880: the input ends inside an entry [truncated]\n"
        "hint: fetch the shard again; --skip truncated keeps the whole samples before the cut\n"
    )
    assert not Path("out.tar").exists()
