"""--resume: a job is done again if and only if what it reads has changed, or cannot be compared."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from tarkit.cli.app import group
from tarkit.cli.command import Option
from tests._copies import Copied
from tests._tools import ROUNDS, each_row
from tests.conftest import tar, tarkit

pytestmark = pytest.mark.forks
JOBS = 3


@pytest.fixture(autouse=True)
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start Python as copies of this process."""
    monkeypatch.setattr(subprocess, "Popen", Copied)


def shard(path: str, text: str) -> bytes:
    """Return an archive with two samples; for another text of the same length it has the same size."""
    return tar({f"{re.sub(r'[./-]', '_', path)}{number}.txt": text.encode() for number in (0, 1)})


def put(path: str, text: str) -> None:
    """Write a file, which is an archive if its name says so."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    Path(path).write_bytes(shard(path, text) if path.endswith(".tar") else text.encode())


def plain(name: str, draw: random.Random) -> list[str]:
    put(f"{name}.tar", name + "plain")
    return [f"{name}.tar"]


def two(name: str, draw: random.Random) -> list[str]:
    for part in "ab":
        put(f"{name}-{part}.tar", name + part + "two")
    return [f"{name}-a.tar", f"{name}-b.tar"]


def recipe(name: str, draw: random.Random) -> list[str]:
    put(f"{name}.one", f"{name} one")
    put(f"{name}.two", f"{name} two")
    put(f"{name}.rcp", f"k0.txt {name}.one\nk1.txt text:{name}\nk1.bin file:{name}.two\n")
    return [f"{name}.one", f"{name}.two", f"{name}.rcp"]


def table(name: str, draw: random.Random) -> list[str]:
    put(f"t/{name}.one", f"{name} one")
    put(f"{name}.tsv", f"__key__\ttxt\t@bin\nk0\t{name}\t{name}.one\n")
    return [f"t/{name}.one", f"{name}.tsv"]


def mixed(name: str, draw: random.Random) -> list[str]:
    read = two(name, draw)
    put(f"{name}.json", json.dumps({"sources": [{"shards": read[0]}, {"shards": f"{name}-b*.tar", "weight": 2}]}))
    return [*read, f"{name}.json"]


def listed(name: str, draw: random.Random) -> list[str]:
    read = two(name, draw)
    put(f"{name}.list", "\n".join(["", read[0], f"file:{read[1]}"]) + "\n")
    return [*read, f"{name}.list"]


def directory(name: str, draw: random.Random) -> list[str]:
    put(f"d{name}/1.tar", name + "one")
    put(f"d{name}/2.tar", name + "two")
    return [f"d{name}/1.tar", f"d{name}/2.tar"]


def tree(name: str, draw: random.Random) -> list[str]:
    put(f"t{name}/a/1.txt", name + "one")
    put(f"t{name}/2.txt", name + "two")
    return [f"t{name}/a/1.txt", f"t{name}/2.txt"]


def keyed(name: str, draw: random.Random) -> list[str]:
    put(f"{name}.tar", name + "keyed")
    put(f"{name}.keys", f"{name}_tar0\n{name}_tar1\n")
    return [f"{name}.tar", f"{name}.keys"]


def mapped(name: str, draw: random.Random) -> list[str]:
    put(f"{name}.tar", name + "mapped")
    put(
        f"{name}_f.py",
        f"from {name}_pack.part import made\nimport {name}_other\n\ndef run(sample):\n    return made(sample)\n",
    )
    put(f"{name}_other.py", "import json\n")
    put(f"{name}_pack/__init__.py", "")
    put(f"{name}_pack/part.py", "from .deep import made\n")
    put(f"{name}_pack/deep.py", "def made(sample):\n    return sample\n")
    return [f"{name}.tar", *(f"{name}_{each}.py" for each in ("f", "other", "pack/__init__", "pack/part", "pack/deep"))]


Make = Callable[[str, random.Random], list[str]]

NAMED: dict[str, tuple[Make, list[str]]] = {
    "path": (plain, ["cat", "{}.tar", "-o", "out-{}"]),
    "file": (plain, ["cat", "file:{}.tar", "-o", "out-{}"]),
    "glob": (two, ["cat", "{}-*.tar", "-o", "out-{}"]),
    "braces": (two, ["cat", "{}-{a,b}.tar", "-o", "out-{}"]),
    "colons": (two, ["cat", "{}-a.tar::file:{}-b.tar", "-o", "out-{}"]),
    "steps": (two, ["cat", "{}-a.tar", "+", "cat", "-", "{}-b.tar", "-o", "out-{}"]),
    "list": (listed, ["cat", "-T", "{}.list", "-o", "out-{}"]),
    "load": (listed, ["cat", "--load", "{}.list", "-o", "out-{}"]),
    "directory": (directory, ["cat", "d{}/", "-o", "out-{}"]),
    "recipe": (recipe, ["create", "{}.rcp", "-o", "out-{}"]),
    "table": (table, ["create", "{}.tsv", "--format", "tsv", "-C", "t", "-o", "out-{}"]),
    "mix": (mixed, ["mix", "{}.json", "--seed", "1", "--until", "all", "-o", "out-{}"]),
    "weights": (two, ["mix", "{}-a.tar@2", "{}-b*.tar@1", "--seed", "1", "--until", "all", "-o", "out-{}"]),
    "tree": (tree, ["shard", "t{}", "-o", "out-{}.%d"]),
    "keys": (keyed, ["cat", "{}.tar", "--keys-from", "{}.keys", "-o", "out-{}"]),
    "map": (mapped, ["proc", "{}.tar", "--map", "{}_f.py:run", "-o", "out-{}"]),
    "module": (mapped, ["proc", "{}.tar", "--map", "{}_f:run", "-o", "out-{}"]),
    "common": (plain, ["tarkit", "-q", "cat", "{}.tar", "-o", "out-{}"]),
    "field": (plain, ["get", "{}_tar0.txt", "{}.tar", "-o", "out-{}"]),
    "same": (plain, ["check", "{}.tar", "--same-as", "{}.tar", "+", "bash", "-c", "cat > $1", "-", "out-{}"]),
    "program": (plain, ["bash", "-c", "cat $1 > $2", "-", "{}.tar", "out-{}"]),
    "assigned": (plain, ["dd", "if={}.tar", "of=out-{}", "status=none"]),
    "inside": (plain, ["bash", "-c", "cat {} > out-{stem}"]),
}


def new_records(*words: str) -> list[dict[str, Any]]:
    """Run jobs with a journal, and return what was recorded in it."""
    before = len(Path("j").read_text().splitlines()) if os.path.exists("j") else 0
    tarkit(words[0], "--journal", "j", "--resume", *words[1:])
    return [json.loads(each) for each in Path("j").read_text().splitlines()[before:]]


def ran(line: list[str], values: list[str]) -> list[str]:
    """Run jobs with a journal, and return the values of those that were done."""
    found = new_records("each", *values, "-j", "2", "--", *line)
    assert {each["status"] for each in found} <= {0, None}
    return sorted({each["value"] for each in found})


def change(path: str, draw: random.Random) -> None:
    """Change the bytes of a file, to others that its reader takes, of the same length where it has one."""
    data = Path(path).read_bytes()
    if path.endswith(".tar"):
        data = shard(path, f"{draw.random():.9f}")
    elif path.endswith(".py"):
        data += b"# changed\n"
    elif path.endswith((".keys", ".list")):
        data = b"\n".join(reversed(data.strip().split(b"\n"))) + b"\n"
    elif path.endswith(".json"):
        data = re.sub(rb'"weight": (.)', lambda found: b'"weight": %d' % (int(found[1]) % 9 + 1), data)
    elif path.endswith((".rcp", ".tsv")):
        data = data.replace(b"k0", b"n0")
    else:
        data = bytes(reversed(data))
    put_new = Path(f"{path}.new~")
    put_new.write_bytes(data)
    os.replace(put_new, path)


@pytest.mark.slow
@each_row("kind", NAMED)
def test_a_job_is_done_again_if_what_it_reads_has_changed(here: Path, kind: str) -> None:
    """Files are changed at random; all jobs that read one of them are done again, and no others."""
    draw = random.Random(f"{kind} {os.environ.get('TARKIT_TESTS_SEED', '')}")
    make, line = NAMED[kind]
    values = [f"v{number}" for number in range(JOBS)]
    reads = {value: make(value, draw) for value in values}
    if kind == "inside":
        values = [f"{value}.tar" for value in values]
        reads = {value: [value] for value in values}
    put("unrelated.tar", "nothing")
    assert ran(line, values) == values
    for _ in range(2 * ROUNDS):
        changed = {draw.choice(reads[value]) for value in values if draw.random() < 0.4}
        for path in [*changed, "unrelated.tar"]:
            change(path, draw)
        expected = [value for value in values if changed.intersection(reads[value])]
        assert ran(line, values) == expected, changed
    assert ran(line, values) == []
    for path in [path for value in values for path in reads[value]]:  # each by itself
        if draw.random() < (0.5 if ROUNDS == 1 else 1):
            change(path, draw)
            assert ran(line, values) == [value for value in values if path in reads[value]], path
    if kind == "inside":
        return  # tarkit does not know what is written
    name = draw.choice([name for name in os.listdir() if name.startswith("out-")])
    os.unlink(name)
    assert [value[:2] for value in ran(line, values)] == [name[4:6]]


@each_row(
    "make,line,new",
    [
        (two, ["cat", "{}-*.tar", "-o", "out-{}"], "{}-c.tar"),
        (directory, ["cat", "d{}", "-o", "out-{}"], "d{}/3.tar"),
        (tree, ["shard", "t{}", "-o", "out-{}.%d"], "t{}/a/b/3.txt"),
        (mixed, ["mix", "{}.json", "--seed", "1", "--until", "all", "-o", "out-{}"], "{}-bb.tar"),
    ],
)
def test_a_new_file(here: Path, make: Make, line: list[str], new: str) -> None:
    """A file that a name finds now, and did not find before, is a change."""
    values = ["v0", "v1"]
    for value in values:
        make(value, random.Random(0))
    assert ran(line, values) == values
    put(new.replace("{}", "v1"), "zz new")
    assert ran(line, values) == ["v1"]
    os.unlink(new.replace("{}", "v1"))
    assert ran(line, values) == ["v1"]
    assert ran(line, values) == []


@pytest.mark.slow
@each_row(
    "line",
    [
        ["cat", "pipe:cat {}.tar", "-o", "out-{}"],
        ["cat", "{}.tar::pipe:cat {}.tar", "-o", "out-{}", "--rekey", "{{stem}}-{{index}}"],
        ["cat", "-T", "pipe:echo {}.tar", "-o", "out-{}"],
        ["create", "pipe:echo 'a.txt text:{}'", "-o", "out-{}"],
        ["sort", "{}.tar", "--order-file", "pipe:echo {}_tar0; echo {}_tar1", "-o", "out-{}"],
        ["mix", "pipe:cat {}.tar@2", "--seed", "1", "-o", "out-{}"],
        ["each", "{}.tar", "--", "cat", "{{}}", "-o", "out-{}"],
    ],
)
def test_what_cannot_be_compared_is_done_again(here: Path, line: list[str]) -> None:
    """Its state is unknown, which is never the one before; a line says so. No command is run to compare."""
    plain("v0", random.Random(0))
    Path("bin").mkdir()
    for _ in range(2):
        assert ran(line, ["v0"]) == ["v0"]
    said = tarkit("each", "v0", "--journal", "j", "--resume", "--", *line).stderr
    assert "1 of the jobs that j has as done was done again: what it reads or writes cannot be compared" in said


@each_row("words", [["pipe:cat a.tar"], ["a.tar", "pipe:cat a.tar", "-j", "1"]])
def test_commands_as_inputs_of_a_mapped_command(here: Path, words: list[str]) -> None:
    """An input that is a command is done again; others are not."""
    put("a.tar", "aaaa")
    for count in (len([word for word in words if word.endswith(".tar")]), 1):
        assert len(new_records("cat", *words, "-o", "o{index}.tar")) == count


@pytest.mark.slow
def test_options_that_name_files_of_a_mapped_command(here: Path) -> None:
    """All of its jobs read them."""
    plain("v0", random.Random(0))
    mapped("v1", random.Random(0))
    put("keys", "v0_tar0\nv0_tar1\nv1_tar0\n")
    line = ["proc", "v0.tar", "v1.tar", "--map", "v1_f.py:run", "--keys-from", "keys", "-o", "out-{stem}.tar"]
    assert [len(new_records(*line)) for _ in range(2)] == [2, 0]
    for path, expected in (("v1_pack/deep.py", 2), ("keys", 2), ("v0.tar", 1), ("v1_other.py", 2), ("v0.tar", 1)):
        with open(path, "ab") as file:
            file.write(bytes(10240) if path.endswith(".tar") else b"\n")
        assert [len(new_records(*line)) for _ in range(2)] == [expected, 0], path


def test_every_option_that_names_a_file_is_looked_at() -> None:
    """An option whose value may be a file says whether it is read or written."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        for param in command.params:
            if isinstance(param, Option) and re.search("FILE|TABLE|LIST|FUNC|OUT|TEMPLATE|OTHER", param.metavar or ""):
                listed = param.name in ("files_from", "unmatched", "names") or (name, param.name) == ("create", "key")
                assert param.role or listed, (name, param.name)
