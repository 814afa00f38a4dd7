"""Every text file that an option names may begin with a byte order mark, as editors of Windows write it."""

from __future__ import annotations

import os
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from tests._tools import each_row
from tests.conftest import Run, tarkit

TREE = ("t/cat/1.x", "t/dog/2.x")
FILES = {
    "list": "a.tar\r\n",
    "keys": "cat/1\r\n",
    "keys.csv": "__key__,n\ncat/1,1\n",
    "keys.tsv": "__key__\tn\ncat/1\t1\n",
    "keys.jsonl": '{"__key__": "cat/1"}\n',
    "recipe": "a.x text:1\n",
    "classes": "cat\ndog\n",
    "map": "cat/.*\tcat-%d.tar\ndog/.*\tdog-%d.tar\n",
    "map.json": '{"cat-%d.tar": ["cat/.*"], "dog-%d.tar": ["dog/.*"]}',
    "mix.json": '{"sources": [{"shards": "a.tar", "weight": 1}]}',
    "mix.yaml": "sources:\n  - shards: a.tar\n    weight: 1\n",
    "order": "dog/2\ncat/1\n",
}
COMMANDS = [
    "cat -T list -o o.tar",
    "stats -T list",
    "each -T list -- stats {}",
    "cat a.tar --keys-from keys --require-all -o o.tar",
    "cat a.tar --keys-from keys.csv:__key__ --require-all -o o.tar",
    "cat a.tar --keys-from keys.tsv:__key__ --require-all -o o.tar",
    "cat a.tar --keys-from keys.jsonl:__key__ --require-all -o o.tar",
    "cat a.tar --match cat -o - | check - --against keys.csv",
    "create recipe -o o.tar",
    "create keys.csv --format csv -o o.tar",
    "create keys.tsv --format tsv -o o.tar",
    "create keys.jsonl --format jsonl -o o.tar",
    "shard t --label-from-dir cls --classes classes -c 9 -o o-%d.tar",
    "shard t --join keys.csv:__key__ -c 9 -o o-%d.tar",
    "shard t --map map -c 9",
    "shard t --map map.json -c 9",
    "split a.tar --map map -c 9",
    "stats a.tar --by x --classes classes",
    "mix mix.json --total 2 --seed 1 -o o.tar",
    "mix mix.yaml --total 2 --seed 1 -o o.tar",
    "sort a.tar --order-file order -o o.tar",
    "check --manifest m.tsv p-0.tar",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a tree, a shard of it twice, and its manifest."""
    directory = tmp_path_factory.mktemp("made")
    for name in TREE:
        (directory / name).parent.mkdir(parents=True)
        (directory / name).write_text("1")
    with chdir(directory):
        tarkit("shard", "t", "-c", "9", "-o", "p-%d.tar", "--manifest", "m.tsv")
        shutil.copy("p-0.tar", "a.tar")
    return directory


@pytest.mark.forks
@each_row("command", COMMANDS)
def test_a_mark_is_ignored(command: str, run: Run, here: Path, made: Path) -> None:
    """A command does the same with a byte order mark before each of its text files."""
    results = []
    for number, mark in enumerate((b"", b"\xef\xbb\xbf")):
        work = here / f"{COMMANDS.index(command)}-{number}"
        work.mkdir()
        os.chdir(work)
        shutil.copytree(made, ".", dirs_exist_ok=True)
        for name, text in FILES.items():
            Path(name).write_bytes(mark + text.encode())
        Path("m.tsv").write_bytes(mark + Path("m.tsv").read_bytes())
        first, _, second = command.partition(" | ")
        ran = run(*first.split())
        if second:
            ran = run(*second.split(), stdin=ran.stdout)
        archives = {path.name: path.read_bytes() for path in Path().glob("*.tar")}
        results.append((ran.stdout, [line for line in ran.lines if " s" not in line], archives))
    assert results[0] == results[1]
