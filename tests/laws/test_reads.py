"""What each command reads of an archive in any order of entries: bytes of a file; bytes and requests of an object."""

from __future__ import annotations

import functools
import random
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("urllib3")

from tests._tools import each_row
from tests.conftest import Archive, Content, Run, tar
from tests.stores._http import HttpServer
from tests.stores.conftest import server  # noqa: F401

COUNT = 400
Rows = list[tuple[str, Content]]


def rows(order: Callable[[int], int] = lambda n: n) -> Rows:
    """Samples of two small fields."""
    return [
        (f"{order(n):05}.{field}", data)
        for n in range(COUNT)
        for field, data in (("jpg", b"p" * 900), ("cls", b"%d" % (n * 7 % 100)))
    ]


def by_field(members: Rows, size: int = COUNT) -> Rows:
    """One field before the other, of so many samples at a time."""
    return [
        row
        for at in range(0, len(members), 2 * size)
        for start in (0, 1)
        for row in members[at : at + 2 * size][start::2]
    ]


LAYOUTS: dict[str, Rows] = {
    "forward": rows(),
    "backward": rows(lambda n: COUNT - n),
    "reversed": rows()[::-1],
    "in strides": rows(lambda n: n * 71 % COUNT),
    "by field": by_field(rows()),
    "by field, one reversed": rows()[::2] + rows()[1::2][::-1],
    "in blocks": by_field(rows(), 30),
    "in blocks, reversed": by_field(rows(), 30)[::-1],
    "by chance": random.Random(1).sample(rows(), 2 * COUNT),
}
TRIED = ["reversed", "by field"]
"""Layouts for all commands; the others are for those that read in another order than that of the file."""

COMMANDS = {
    "cat": "cat IN -o out.tar",
    "cat -f": "cat IN -f cls --on-missing-field skip -o out.tar",
    "cat -s": "cat IN -s 100 --seed 1 -o out.tar",
    "cat --where": "cat IN --where 'has.cls and cls > 50' --on-missing-field skip -o out.tar",
    "split": "split IN -c 100 -o s-%d.tar",
    "split -n": "split IN -n 3 -o s-%d.tar",
    "sort": "sort IN -o out.tar",
    "sort -s": "sort -s cls IN -o out.tar",
    "sort -r": "sort -r IN -o out.tar",
    "shuffle": "shuffle --seed 1 IN -o out.tar",
    "shuffle --epochs": "shuffle --seed 1 --epochs 2 IN -o {epoch}.tar",
    "mix": "mix IN --until all --seed 1 -o out.tar",
    "proc --worker": "proc --worker cat IN -o out.tar",
    "proc --map": "proc --map tests.laws.test_reads:same IN -o out.tar",
    "show": "show --all IN",
    "show --json": "show --json IN",
    "show --names": "show --names IN",
    "show --html": "show --html out.html -c 500 IN",
    "get": "get 00350 IN -o out.tar",
    "get KEY.FIELD": "get 00350.cls IN -o out",
    "extract": "extract -C out IN",
    "tsv": "tsv -f cls --on-missing-field skip IN -o out.tsv",
    "tsv size": "tsv -f size.jpg --on-missing-field skip IN -o out.tsv",
    "stats": "stats IN",
    "stats --by": "stats --by cls IN",
    "check": "check -q IN",
    "check --target": "check -q --target webdataset IN",
    "check --same-as": "check -q IN --same-as IN2",
    "check --fix": "check -q IN --fix out.tar",
    "index": "index IN -f dali,tsv -o index/",
}


def same(sample: object) -> object:
    return sample


_loaded: set[str] = set()  # commands whose modules are loaded


class Reads(NamedTuple):
    """The bytes that a command reads, as a multiple of the archive, and the requests it makes."""

    times: float
    requests: int


MOST = {"proc --worker": 6, "proc --map": 30, "shuffle --epochs": 8}
"""How many times all bytes may be read from a file, with what goes through temporary files and pipes; else 5 times."""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count the bytes that are read")
@each_row("command", [*COMMANDS])
def test_files(command: str, run: Run, archive: Archive) -> None:
    """Each byte is read a few times, whatever the order of the entries."""
    for layout in TRIED:
        assert local_reads(command, layout, run, archive).times < MOST.get(command, 5), layout


@pytest.mark.slow
@each_row("command", [*COMMANDS])
def test_objects(command: str, run: Run, server: HttpServer) -> None:  # noqa: F811
    """Each byte of an object is read once, in few requests."""
    for layout in TRIED:
        reads = remote_reads(command, layout, run, server)
        assert reads.times < (2.1 if command == "check --same-as" else 1.1), layout
        assert reads.requests <= 10, layout


@pytest.mark.slow
@each_row("command", ["sort", "check", "check --fix", "check --same-as", "shuffle"])
def test_every_layout(command: str, run: Run, archive: Archive, server: HttpServer) -> None:  # noqa: F811
    """Commands that return to what they have passed do so in small steps."""
    for layout in LAYOUTS.keys() - TRIED:
        assert local_reads(command, layout, run, archive).times < 5, layout
        reads = remote_reads(command, layout, run, server)
        assert reads.times < 2.1, layout
        assert reads.requests <= 10, layout


SIZES = {"20 kB": [20_000], "70 kB": [70_000], "mixed": [100, 5000, 50_000, 300_000, 1_500_000]}


@each_row("sizes", SIZES)
def test_objects_of_larger_samples(sizes: str, run: Run, server: HttpServer) -> None:  # noqa: F811
    """Headers are read in small ranges, or with all other bytes; contents in order with few requests."""
    chance = random.Random(sizes)
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1\0\x08\2\0\0\0"
    members: Rows = []
    for n in range(60):
        members += [(f"{n:02}.cls", b"5"), (f"{n:02}.png", picture + bytes(chance.choice(SIZES[sizes])))]
    data = tar(members)
    for words, times, requests in (
        ("stats", 1.0, 70),
        ("stats --by cls", 1.0, 130),
        ("show --names", 1.0, 70),
        ("show --html page.html", 1.5, 90),
        ("check -q", 1.0, 70),
        ("get 59.cls", 1.0, 70),
    ):
        url = server.serve("/a.tar", data)
        run(*words.split(), url)
        served = server.objects["/a.tar"]
        assert served.sent <= times * len(data) + (1 << 15), words
        assert served.requests <= requests, words


@pytest.mark.slow
@each_row("words", ["sort", "sort -r", "shuffle --seed 1"])
def test_small_samples_behind_a_large_one(words: str, run: Run, server: HttpServer, archive: Archive) -> None:  # noqa: F811
    """An object is read by ranges since its first sample is large; the small ones are not requested one by one."""
    data = tar([("big.bin", bytes(9 << 20)), *by_field(rows())])
    allow = ["--allow", "scattered-sample,joined-sample", "-o", "-"]
    found = run(*words.split(), server.serve("/a.tar", data), *allow)
    assert found.stdout == run(*words.split(), archive(data), *allow).stdout
    served = server.objects["/a.tar"]
    assert served.requests <= 40
    assert served.sent < 2 * len(data)


@functools.cache
def laid_out(layout: str) -> bytes:
    return tar(LAYOUTS[layout])


def remote_reads(command: str, layout: str, run: Run, server: HttpServer) -> Reads:  # noqa: F811
    """Run a command over an object and return what it reads."""
    data = laid_out(layout)
    served = [server.serve(f"/{name}.tar", data) for name in ("a", "b")]
    _run(command, *served, run)
    objects = [server.objects[f"/{name}.tar"] for name in ("a", "b")]
    return Reads(sum(each.sent for each in objects) / len(data), sum(each.requests for each in objects))


def local_reads(command: str, layout: str, run: Run, archive: Archive) -> Reads:
    """Run a command over a file and return what it reads, without outputs and modules that it loads."""
    data = laid_out(layout)
    names = [archive(data, f"{name}.tar") for name in ("a", "b")]
    if command not in _loaded:
        _run(command, *names, run)
        _loaded.add(command)
    before = _read()
    _run(command, *names, run)
    return Reads((_read() - before) / len(data), 0)


def _run(command: str, first: str, second: str, run: Run) -> None:
    for name in ("out", "index"):
        shutil.rmtree(name, ignore_errors=True)
        Path(name).unlink(missing_ok=True)
    Path("index").mkdir()
    for path in Path().glob("s-*.tar"):
        path.unlink()
    Path("out.tar").unlink(missing_ok=True)
    line = [{"IN": first, "IN2": second}.get(word, word) for word in shlex.split(COMMANDS[command])]
    if not command.startswith(("sort", "check")):
        line += ["--allow", "scattered-sample,joined-sample"]
    ran = run(*line, exit=None)
    assert ran.status == 0 or command.startswith("check"), ran.stderr


def _read() -> int:
    """Return the bytes that this process has read so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])
