"""JSON on stdout: each line is an object whose keys docs/scripting.md lists, and there is nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests._tools import each_row
from tests.conftest import Archive, Run, tar

PAGE = Path(__file__).parents[2] / "docs/scripting.md"
SECRET = "https://user:s3cr3t@host.invalid/x.tar"


class Keys(NamedTuple):
    """The keys that the page lists for the objects of an output."""

    all: set[str]
    some: set[str]


def listed() -> dict[tuple[str, str], Keys]:
    """Return the rows of the table, by output and type."""
    rows: dict[tuple[str, str], Keys] = {}
    output = ""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith(("`", "type")):
            names = re.findall("`([^`]+)`", cells[0])
            output = output if cells[0].startswith("type") else names.pop(0)
            rows[output, names[0] if names else ""] = Keys(*(set(re.findall("`([^`]+)`", cell)) for cell in cells[2:]))
    return rows


LISTED = listed()


def objects(text: bytes, output: str) -> list[dict[str, Any]]:
    """Parse each line, and compare its keys with the page."""
    parsed = [json.loads(line) for line in text.splitlines()]
    assert text.endswith(b"\n")
    for record in parsed:
        keys = LISTED[output, record.get("type", "")]
        assert keys.all <= record.keys() <= keys.all | keys.some, record
        for field in record["fields"] if output in ("show --json", "get --json") else ():
            own = LISTED["fields", ""]
            assert own.all <= field.keys() <= own.all | own.some, field
    return parsed


def prepare(archive: Archive) -> None:
    """Write archives: x.tar, y.tar, and cut.tar, which is damaged."""
    members = {f"a/{key}.{field}": b"1" for key in range(3) for field in ("cls", "txt")}
    archive(
        {**members, "a/2.png": b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + bytes([0, 0, 0, 9, 0, 0, 0, 7, 8, 0, 0, 0, 0])},
        "x.tar",
    )
    archive(members, "y.tar")
    Path("cut.tar").write_bytes(tar(members)[:2000])
    Path("fixed").mkdir()


@each_row(
    ("words", "output", "types", "status"),
    [
        ("show x.tar --json", "show --json", "", 0),
        ("get a/2 x.tar --json", "get --json", "", 0),
        ("get a/1.txt x.tar --json", "get --json", "", 0),
        ("get -f png x.tar --json", "get --json", "", 0),
        ("check x.tar cut.tar --json --fix fixed/", "check --json", "fix fix-summary problem shard summary", 1),
        ("check x.tar --same-as y.tar --json", "check --json", "problem set summary", 1),
        ("check x.tar --leak y.tar --by txt --json", "check --json", "compared problem shard summary", 1),
        ("index x.tar y.tar --format dali,wids --json", "index --json", "index summary", 0),
        ("index x.tar --format tsv --verify --json", "index --json", "fault summary", 1),
        ("each a b --json -- sh -c", "each --json", "job summary", 1),
    ],
)
def test_lines(words: str, output: str, types: str, status: int, run: Run, archive: Archive) -> None:
    """Each line is an object of a listed type with the listed keys; each type is there."""
    prepare(archive)
    more = ["echo out; test $0 = a", "{}"] if words.startswith("each") else []
    ran = run(*words.split(), *more, exit=status)
    parsed = objects(ran.stdout, output)
    assert parsed
    assert {record.get("type", "") for record in parsed} == set(types.split()) or {""}
    if types.endswith("summary"):
        assert parsed[-1]["type"] == "summary"


def test_what_get_describes(run: Run, archive: Archive) -> None:
    """It is the object of show; with a field only that is in it, and an index changes nothing."""
    prepare(archive)
    shown = {record["key"]: record for record in objects(run("show", "x.tar", "--json").stdout, "show --json")}
    for _ in range(2):
        assert objects(run("get", "a/2", "x.tar", "--json").stdout, "get --json") == [shown["a/2"]]
        [one] = objects(run("get", "a/2.png", "x.tar", "--json").stdout, "get --json")
        assert one == {**shown["a/2"], "fields": shown["a/2"]["fields"][2:]}
        assert (one["fields"][0]["width"], one["fields"][0]["height"]) == (9, 7)
        run("index", "x.tar", "--format", "tsv")
    assert run("get", "a/9", "x.tar", "--json", exit=1).stdout == b""
    ran = run("get", "a/2", "x.tar", "--json", "-o", "o", exit=2)
    assert ran.lines[0].startswith("tarkit: --json prints to stdout")


def test_what_jobs_print(run: Run) -> None:
    """It goes to stderr, where stdout has JSON."""
    ran = run("each", "a", "--json", "--", "echo", "out")
    assert ran.stderr.startswith("out\n")
    [job, summary] = objects(ran.stdout, "each --json")
    assert (job["value"], job["command"], job["status"]) == ("a", "echo out", 0)
    assert summary["jobs"] == {"total": 1, "done": 1, "kept": 0, "failed": 0, "cancelled": 0, "retried": 0}
    assert json.loads(run("each", "a", "--report", "-", "--", "echo", "out").stdout)["jobs"]["done"] == 1
    lines = run("each", "a", "b", "--json", "--dry-run", "--", "cat", "{}").stdout.splitlines()
    assert [json.loads(line)["command"] for line in lines] == ["tarkit cat a", "tarkit cat b"]
    assert run("each", "a", "--json", "--emit", "make", "--", "true", exit=2).stdout == b""


def test_one_object(run: Run, archive: Archive) -> None:
    """stats prints one object."""
    prepare(archive)
    for words, more in ([], set()), (["--by", "cls", "--world", "2"], {"by", "shares"}):
        keys = LISTED["stats --json", ""]
        printed = json.loads(run("stats", "x.tar", "--json", *words).stdout)
        assert printed.keys() == keys.all | more <= keys.all | keys.some


@pytest.mark.forks
@each_row(
    "words",
    [
        "cat x.tar -o o.tar",
        "cat x.tar -o o{stem}.tar",
        "split x.tar -c 1 -o s-%d.tar",
        "sort x.tar -o o.tar",
        "shuffle x.tar -c 1 -o s-%d.tar",
        "mix x.tar -o o.tar -q",
        "proc x.tar -c true -o o.tar",
        "extract x.tar -C d",
        "index x.tar --format tsv",
        "shard fixed -o s-%d.tar",
        "tsv x.tar -f cls -o t.tsv",
        "stats x.tar --html p.html",
        "show x.tar --html p.html",
        "get a/1 x.tar -o o.tar",
        "each a -- echo out",
    ],
)
def test_report_on_stdout(words: str, run: Run, archive: Archive) -> None:
    """--report - prints the report, as it is in a file, and nothing else is on stdout."""
    prepare(archive)
    command, *rest = words.split()
    report = json.loads(run(command, "--report", "-", *rest).stdout)
    keys = LISTED["--report", ""]
    assert report["command"] == command
    assert {"command", "samples", "bytes", "shards", "seconds"} <= report.keys()
    assert keys.all >= {"command", "samples", "bytes", "shards", "seconds"}


@each_row(
    ("words", "what"),
    [
        ("cat x.tar", "output"),
        ("cat x.tar -o -", "output"),
        ("sort x.tar", "output"),
        ("shuffle x.tar --seed 1", "output"),
        ("mix x.tar", "output"),
        ("proc x.tar -c true", "output"),
        ("create recipe", "output"),
        ("tsv x.tar", "output"),
        ("stats x.tar", "output"),
        ("show x.tar --html -", "output"),
        ("show x.tar", "output"),
        ("get a/1.txt x.tar", "output"),
        ("check x.tar", "list of findings"),
        ("shard fixed --dry-run", "plan"),
        ("each a --dry-run -- true", "list of jobs"),
        ("each a --json -- true", "JSON"),
        ("index x.tar --format tsv --json", "JSON"),
        ("index x.tar --format tsv -o -", "index"),
        ("index x.tar --verify", "list of faults"),
    ],
)
def test_one_thing_on_stdout(words: str, what: str, run: Run, archive: Archive) -> None:
    """A report and something else on stdout is a usage error; nothing is written."""
    prepare(archive)
    command, *rest = words.split()
    ran = run(command, "--report", "-", *rest, exit=2)
    assert ran.stdout == b""
    assert ran.lines == [
        f"tarkit: stdout is the report, and the {what} too",
        "hint: --report FILE, or -o FILE, names a file for one",
    ]


def test_secrets(run: Run) -> None:
    """They are in no output."""
    for words in (["--json"], ["--json", "--dry-run"], ["--report", "-"]):
        ran = run("each", SECRET, *words, "--", "false", "{}", exit=None)
        assert b"host.invalid" in ran.stdout
        assert b"s3cr3t" not in ran.stdout
