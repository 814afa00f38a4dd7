"""Commands that need no shell: the result is the same as with one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarkit.proc.shell import direct
from tests._tools import each_row
from tests.conftest import Archive, Run, entries

HERE = {b"PATH": os.fsencode(os.defpath)}
OUT = os.O_WRONLY | os.O_CREAT


@each_row(
    ("command", "words", "files"),
    [
        *((each, each, []) for each in ("wc -c sample.x", "/bin/ls", " cat  a=b @x 50% -- ", "sort -k2,2 -t: +x")),
        ("wc -c < sample.x", "wc -c", [(0, os.O_RDONLY, "sample.x")]),
        ("wc <a -c >b", "wc -c", [(0, os.O_RDONLY, "a"), (1, OUT | os.O_TRUNC, "b")]),
        ("wc < a\n", "wc", [(0, os.O_RDONLY, "a")]),
        ("cat >> a", "cat", [(1, OUT | os.O_APPEND, "a")]),
        ("cat 2 > /dev/null", "cat 2", [(1, OUT | os.O_TRUNC, "/dev/null")]),
        ("cat < a < b", "cat", [(0, os.O_RDONLY, "a"), (0, os.O_RDONLY, "b")]),
    ],
)
def test_plain(command: str, words: str, files: list[tuple[int, int, str]]) -> None:
    """A program is started directly, also with files of the current directory as stdin and stdout."""
    found = direct(command, HERE)
    assert found is not None
    assert os.access(found[0], os.X_OK)
    assert (found[1], found[2]) == (words.split(), files)


@pytest.mark.parametrize(
    "command",
    [
        *("tr a-z A-Z < sample.x > sample.y", "cat < sample.x >> sample.z", "cat > sample.x"),
        *("wc -c < sample.x", "cat < sample.gone > sample.y", "cat > sample.y < sample.gone", "cat < sample.x > sub"),
        *("cat > sample.y > sample.q < sample.x", "ls sample.gone > sample.y", "cat <sample.__key__ >sample."),
        "env > a",
    ],
)
@pytest.mark.parametrize("allowed", [0o022, 0o077])
def test_files_are_the_same(command: str, allowed: int, run: Run, archive: Archive) -> None:
    """Output, messages and status are those of bash."""
    archive({"a.x": b"one\n", "a.z": b"two\n"})
    before = os.umask(allowed)
    try:
        words = ("--on-error", "keep", "in.tar")
        plain, shell = (run("proc", "-c", text, *words) for text in (command, f"{command};"))
    finally:
        os.umask(before)
    assert plain.stdout == shell.stdout
    assert plain.stderr == shell.stderr


@each_row(
    "command",
    [
        *("wc -c *", "ls ?", "ls [a]", "ls; ls", "ls | wc", "ls & ", "ls >& x", "ls $x", "ls `x`", "ls 'x'", 'ls "x"'),
        *("ls \\x", "ls #x", "ls {a,b}", "ls ~", "ls x\nls", "a=b ls", "! ls", "(ls)", "ls x~", "", " ", "ls\tx", "%1"),
        *("echo x", "cd /", "test -e x", "true", "kill 1", "time ls", "if x", "exit", "printf x", ":", ". x"),
        *("no-such-command", "./ls", "bin/ls", "/", "/etc/passwd", "ls \u00e9"),
        # files that bash opens, and what looks like one
        *("wc < a/b", "wc < /etc/passwd", "wc 2> x", "wc 2>x", "wc <> x", "wc << x", "wc <<< x", "wc >| x", "wc > $x"),
        *("wc >& x", "wc &> x", "wc >&2", "wc < ", "wc >", "wc > *", "< a", "> a", "wc > a&", "wc > a;", "wc>a"),
        *("wc <(a)", "wc a< b", "wc > ~", "wc >a>b", "wc > > a", "wc < 'a'", "echo > a", "wc > /dev/stderr"),
    ],
)
def test_not_plain(command: str) -> None:
    """Builtins, syntax of the shell, other redirections and errors go to bash."""
    assert direct(command, HERE) is None


@pytest.mark.parametrize(
    "more", [{b"BASH_ENV": b"x"}, {b"BASH_FUNC_ls%%": b"() { :; }"}, {b"SHELLOPTS": b"xtrace"}, {b"PATH": b"/bin:."}]
)
def test_environments_that_need_bash(more: dict[bytes, bytes]) -> None:
    """Functions, options and relative directories in the environment require bash."""
    assert direct("ls", {**HERE, **more}) is None


def test_the_environment_is_the_same(run: Run, archive: Archive) -> None:
    """The environment is the same, except for variables that bash sets or removes for itself."""
    archive({"a.x": b"1"})
    own = {"SHLVL", "_", "OLDPWD", "PS1"}
    said = []
    for command in ("env", "env;"):
        lines = run("proc", "-c", command, "in.tar", "--tmpdir", ".").lines
        said.append(sorted(line.replace("-1/", "-0/") for line in lines if line.partition("=")[0] not in own))
    assert said[0] == said[1]
    assert [name for name, _ in entries(run("proc", "-c", "cp sample.x sample.y", "in.tar").stdout)] == ["a.x", "a.y"]
    Path("plain").write_text("echo $0 > sample.z")  # a script without #!, which bash runs
    os.chmod("plain", 0o755)
    out = run("proc", "-c", os.path.abspath("plain"), "in.tar").stdout
    assert [name for name, _ in entries(out)] == ["a.x", "a.z"]


def test_two_fields_of_one_name(archive: Archive, run: Run) -> None:
    """A directory has no place for the second one."""
    path = archive([("a.txt", b"1"), ("a.txt", b"2"), ("b.txt", b"3")])
    ran = run("proc", "-c", "true", "--allow", "duplicate-entry", path, "-o", "out.tar", exit=1)
    assert "'a' has two fields 'txt'" in ran.stderr
    assert "--skip duplicate-entry leaves such samples out" in ran.stderr
