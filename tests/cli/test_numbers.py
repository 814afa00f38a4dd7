"""Numbers of every option of every command: what is out of range is a usage error of one line, and no traceback."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from tarkit.cli.app import COMMANDS, group
from tarkit.cli.command import Option
from tests.conftest import Archive, Run

HUGE = "99999999999999999999"
NUMBERS = [HUGE, "9223372036854775807", "0", "-1", "1e400", "-1e400", "nan", "0.5", "", "9" * 5000, "\u0663", "1_0"]
METAVARS = {
    "WHEN": "@{}",
    "LO:HI:STEP": "{0} {0}: :{0} 0:{0} ::{0}",
    "SIZE": "{0} {0}K {0}GiB",
    "A=0.9,B=0.1": "a={0},b=1 a={0},b={0}",
    "K/N": "{0}/{0} 0/{0} {0}/1",
    "CODEC[:LEVEL]": "gz:{0} zst:{0} xz:{0} bz2:{0} lz4:{0}",
    "N|P%": "{0} {0}%",
    "NAME=N": "a={0}",
    "ORDER": "shuffle:{0}",
    "EXPR": "cls>{0} cls=={0}**2 size<{0}",
}
"""What the words of an option that are not numbers alone have in them."""
NUMERIC = ("N", "S", "P", "M", "K", "W", *METAVARS)
LINES = {
    "create": "create recipe -o out.tar",
    "shard": "shard tree -c 2 -o out-%d.tar --force",
    "split": "split in.tar -c 2 -o out-%d.tar --force",
    "sort": "sort in.tar -o out.tar",
    "shuffle": "shuffle in.tar -o out.tar",
    "cat": "cat in.tar -o out.tar",
    "mix": "mix in.tar -o out.tar",
    "proc": "proc -c true in.tar -o out.tar",
    "show": "show in.tar",
    "get": "get 1.cls in.tar -o out",
    "extract": "extract in.tar -C out --force",
    "tsv": "tsv in.tar -f cls -o out.tsv",
    "sql": "sql 'select 1' -o out.tsv",
    "stats": "stats in.tar",
    "check": "check in.tar",
    "index": "index in.tar -f dali -o in.idx",
    "each": "each 1 --dry-run -- true {}",
}
LONG = {("shuffle", "epochs"), ("stats", "world"), ("stats", "workers"), ("split", "shards"), ("shard", "shards")}
"""Options for which a large number in range means that much work or output."""


def counts(option: click.Option) -> bool:
    """Return whether the values of an option are numbers."""
    return isinstance(option, Option) and option.row.type is not None


def options() -> list[tuple[str, click.Option]]:
    """Return the options that take numbers, each with the name of its command."""
    context, found = click.Context(group), []
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        for param in command.params:
            takes = isinstance(param, click.Option) and not param.is_flag
            if takes and (counts(param) or (param.metavar or "") in NUMERIC):
                found.append((name, param))
    return found


def test_all_commands_are_here() -> None:
    """Each command but that of completion has a line here; no option is forgotten since it has another metavar."""
    assert {*LINES} == {*COMMANDS} - {"completion"}
    assert len(options()) > 150


@pytest.mark.parametrize("command", [*LINES])
def test_numbers(command: str, run: Run, archive: Archive) -> None:
    """A number is used or refused in two lines, without a traceback; options that commands share are tried once."""
    archive({f"{n}.{field}": b"%d" % n for n in range(5) for field in ("cls", "txt")})
    Path("recipe").write_text("1.txt text:x\n")
    Path("tree").mkdir()
    Path("tree/1.txt").write_text("x")
    first: dict[tuple[str | None, str | None], str] = {}
    for name, option in options():
        first.setdefault((option.name, option.metavar), name)
    for name, option in options():
        if name == command:
            for number in NUMBERS if first[option.name, option.metavar] == command else [HUGE]:
                if (command, option.name) not in LONG or not number.isdigit() or len(number) != 19:
                    for pattern in METAVARS.get(option.metavar or "", "{}").split(" "):
                        _try(command, option, pattern.format(number), run)


def _try(command: str, option: click.Option, value: str, run: Run) -> None:
    """Run a command with a value of an option."""
    words = shlex.split(LINES[command])
    for spelled in option.opts:
        if spelled in words:
            at = words.index(spelled)
            del words[at : at + 2]
    words[1:1] = [option.opts[0], value]
    ran = run(*words, exit=None)
    lines = [line for line in ran.lines if not line.startswith(("tarkit: warning", "hint: ", "tarkit: seed: "))]
    what = shlex.join(words)[:100], ran.stderr[:1000]
    assert ran.status in (0, 1, 2), what
    assert len(lines) <= 1 or ran.status == 0, what
    if ran.status == 0 and counts(option) and option.name != "seed":
        assert value.lower() not in (HUGE, "1e400", "-1e400", "nan", ""), what
