"""Which commands need no shell: what runs without one does the same as with one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _tools import each_row
from conftest import Archive, Run, entries

from tarkit.work.program import direct

HERE = {b"PATH": os.fsencode(os.defpath)}


@pytest.mark.parametrize("command", ["wc -c sample.x", "/bin/ls", " cat  a=b @x 50% -- ", "sort -k2,2 -t: +x"])
def test_plain(command: str) -> None:
    """A program and words that mean nothing to a shell."""
    found = direct(command, HERE)
    assert found is not None
    assert os.access(found[0], os.X_OK)
    assert found[1] == command.split()


@each_row(
    "command",
    [
        *("wc -c *", "ls ?", "ls [a]", "ls; ls", "ls | wc", "ls & ", "ls > x", "ls $x", "ls `x`", "ls 'x'", 'ls "x"'),
        *("ls \\x", "ls #x", "ls {a,b}", "ls ~", "ls x\nls", "a=b ls", "! ls", "(ls)", "ls x~", "", " ", "ls\tx", "%1"),
        *("echo x", "cd /", "test -e x", "true", "kill 1", "time ls", "if x", "exit", "printf x", ":", ". x"),
        *("no-such-command", "./ls", "bin/ls", "/", "/etc/passwd", "ls \u00e9"),
    ],
)
def test_not_plain(command: str) -> None:
    """All that a shell does itself, or would say."""
    assert direct(command, HERE) is None


@pytest.mark.parametrize(
    "more", [{b"BASH_ENV": b"x"}, {b"BASH_FUNC_ls%%": b"() { :; }"}, {b"SHELLOPTS": b"xtrace"}, {b"PATH": b"/bin:."}]
)
def test_what_the_environment_can_change(more: dict[bytes, bytes]) -> None:
    """Functions, options, and folders that depend on where it runs."""
    assert direct("ls", {**HERE, **more}) is None


def test_it_is_the_same(run: Run, archive: Archive) -> None:
    """The environment too, but for what bash says of itself."""
    archive({"a.x": b"1"})
    own = {"SHLVL", "_", "OLDPWD"}
    said = []
    for command in ("env", "env;"):
        lines = run("proc", "-c", command, "in.tar", "--tmpdir", ".").lines
        said.append(sorted(line.replace("-1/", "-0/") for line in lines if line.partition("=")[0] not in own))
    assert said[0] == said[1]
    assert [name for name, _ in entries(run("proc", "-c", "cp sample.x sample.y", "in.tar").stdout)] == ["a.x", "a.y"]
    Path("plain").write_text("echo $0 > sample.z")  # bash runs it all the same
    os.chmod("plain", 0o755)
    out = run("proc", "-c", os.path.abspath("plain"), "in.tar").stdout
    assert [name for name, _ in entries(out)] == ["a.x", "a.z"]
