"""Memory does not grow with the data: each command's peak, over streams of several times that."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from _tools import MARKER, member

from tarkit.tar.header import encode

LIMIT = 64 << 10  # KiB
SIZE = 100_000_000
WINDOW = 16 << 10  # KiB of one more stream

# The peak of a child as `wait4` has it counts the parent that it was forked from, so the process says it by itself.
CODE = """
import atexit, os, sys
from tarkit import cli

path, leave = sys.argv.pop(1), os._exit

def say():
    with open("/proc/self/status") as status, open(path, "w") as file:
        file.write(next(line for line in status if line.startswith("VmHWM")).split()[1])

atexit.register(say)
os._exit = lambda status: (say(), leave(status))  # when a thread still waits for something
cli.main()
"""

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not tell the peak")


@pytest.fixture
def peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `PRODUCER | tarkit WORDS > /dev/null`; the peak in KiB."""
    monkeypatch.chdir(tmp_path)

    def peak(words: str, producer: str = "true") -> int:
        tarkit = shlex.join([sys.executable, "-c", CODE, "peak"])
        subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{producer} | {tarkit} {words} > /dev/null"], check=True, timeout=60
        )
        return int(Path("peak").read_text())

    return peak


@pytest.fixture
def growth(peak: Callable[..., int]) -> Callable[..., int]:
    """The same, less what a run takes that has next to nothing to do: of many small things each counts."""

    def growth(words: str, producer: str = "true") -> int:
        Path("few.tar").write_bytes(member("a.txt", b"x") + MARKER)
        return peak(words, producer) - peak("cat few.tar")

    return growth


def one(size: int = SIZE) -> str:
    """A shell command that writes an archive with one entry of zeros between two small ones."""
    Path("head").write_bytes(member("a.txt", b"first") + encode(b"b.bin", size))
    Path("tail").write_bytes(bytes(-size % 512) + member("c.txt", b"last") + MARKER)
    return f"{{ cat head; head -c {size} /dev/zero; cat tail; }}"


def many(count: int, size: int, name: bytes = b"%06d.x") -> str:
    """A shell command that writes an archive of samples of one entry, or of one sample."""
    with open("many.tar", "wb") as file:
        for first in range(0, count, 1000):
            file.write(b"".join(member(name % number, bytes(size)) for number in range(first, first + 1000)))
        file.write(MARKER)
    return "cat many.tar"


@pytest.mark.parametrize("options", ["", "--allow truncated", "--shuffle 3 --seed 1", "-p 2", "--allow joined-sample"])
def test_cat_of_a_large_sample(options: str, peak: Callable[..., int]) -> None:
    """One that memory does not hold, passed on, read ahead, or kept until its end is known."""
    assert peak(f"cat - -o - {options}", one()) < LIMIT


def test_cat_to_a_codec(peak: Callable[..., int]) -> None:
    """A codec in front of the output holds no more."""
    assert peak("cat - -o - --compress lz4", one()) < LIMIT


@pytest.mark.parametrize(("options", "shards"), [("-c 200", 5), ("-s 25M", 5), ("-n 3", 3)])
def test_split_of_a_stream(options: str, shards: int, peak: Callable[..., int]) -> None:
    """By count, by size, and in equal parts, for which all of the stream is spooled."""
    assert peak(f"split - {options} -o 's-%d.tar' -q", many(1000, 100_000)) < LIMIT
    assert len(list(Path().glob("s-*.tar"))) == shards


@pytest.mark.parametrize("options", ["-s 25M", "-s 25M --compress lz4"])
def test_split_of_a_large_sample(options: str, peak: Callable[..., int]) -> None:
    """One that is larger than a shard, written ahead or, for what cannot be taken back, spooled."""
    assert peak(f"split - {options} -o 's-%d.tar' -q", one(75_000_000)) < LIMIT
    assert len(list(Path().glob("s-*.tar"))) == 3


def test_create_of_a_large_file(peak: Callable[..., int]) -> None:
    """From a file, and from a command whose output has no size beforehand."""
    with open("big", "wb") as file:
        file.truncate(SIZE)
    Path("recipe").write_text("a.bin big\nb.bin pipe:head -c 60000000 /dev/zero\n")
    assert peak("create recipe -o -") < LIMIT


def test_create_of_many(growth: Callable[..., int]) -> None:
    """A long recipe is not held: 20 000 lines, of which one that is held takes more than 500 bytes."""
    assert growth("create - -o -", "seq 1000000 1020000 | sed 's/$/.txt text:x/'") < 10 << 10


def test_cat_of_many_entries(growth: Callable[..., int]) -> None:
    """60 000 tiny ones, from a file and from a stream: fewer than 150 bytes for each."""
    producer = many(60_000, 0)
    assert growth("cat many.tar -o -") < 9 << 10
    assert growth("cat - -o -", producer) < 9 << 10


def test_a_large_sample_of_many_entries(peak: Callable[..., int]) -> None:
    """What is not known whole is not looked through again for each of its entries."""
    assert peak("cat - -o -", many(40_000, 600, b"k.%06d")) < LIMIT


@pytest.mark.parametrize("options", ["--until all", "--repeat --total 9", "--until all -p 2"])
def test_mix_of_streams(options: str, peak: Callable[..., int]) -> None:
    """Two at once, each with a sample that memory does not hold, of which it holds a window."""
    producer = one(60_000_000)
    Path("more").write_text(producer)
    assert (
        peak(f"mix - 'pipe:bash more' {options} --rekey '{{key}}-{{index}}' --seed 1 -q -o -", producer)
        < LIMIT + WINDOW
    )


def test_mix_of_many_samples(growth: Callable[..., int]) -> None:
    """As many as there are, in an order that is none: 40 000, fewer than 300 bytes for each."""
    for letter in "ab":
        many(20_000, 0, letter.encode() + b"%06d.x")
        Path("many.tar").rename(f"{letter}.tar")
    assert growth("mix a.tar@2 'pipe:cat b.tar' --until all --seed 1 -q -o -") < 12 << 10


SHUFFLED = (16_000_000 >> 10) + (40 << 10)  # KiB: --memory 16M, and what Python takes


@pytest.mark.parametrize("words", ["-", "many.tar", "- -c 100 -o s-%d.tar"])
def test_shuffle_is_bounded(words: str, peak: Callable[..., int]) -> None:
    """Of samples of several times --memory, from a stream and from a file."""
    producer = many(1000, 60_000)
    peaked = peak(f"shuffle {words} --memory 16M --seed 1 --tmpdir .", producer if "-" in words else "true")
    assert peaked < SHUFFLED


def test_shuffle_of_many(growth: Callable[..., int]) -> None:
    """Tiny ones, whose list alone is several times --memory."""
    many(12_000, 0)
    assert growth("shuffle many.tar --memory 1M --seed 1 --tmpdir .") < 12 << 10


def test_shuffle_of_a_large_sample(peak: Callable[..., int]) -> None:
    """One that memory does not hold."""
    assert peak("shuffle - --memory 16M --seed 1 --tmpdir .", one()) < SHUFFLED


@pytest.mark.parametrize("words", ["-", "many.tar", "- -s x -r", "- -c 100 -o s-%d.tar"])
def test_sort_is_bounded(words: str, peak: Callable[..., int]) -> None:
    """Of samples of several times --memory, by key and by what is in them."""
    producer = many(1000, 60_000)
    peaked = peak(f"sort {words} --memory 16M --tmpdir .", producer if "-" in words.split() else "true")
    assert peaked < SHUFFLED


def test_sort_of_what_is_scattered(growth: Callable[..., int]) -> None:
    """When every sample is in two parts the lists of what is put together are bounded too."""
    many(4000, 0)
    Path("two.tar").write_bytes(Path("many.tar").read_bytes()[: -len(MARKER)] + Path("many.tar").read_bytes())
    assert growth("sort two.tar --memory 1M --tmpdir . -s size --allow duplicate-entry -q") < 8 << 10


def test_sort_of_a_large_sample(peak: Callable[..., int]) -> None:
    """One that memory does not hold."""
    assert peak("sort - --memory 16M --tmpdir . -r", one()) < SHUFFLED


@pytest.mark.parametrize("words", ["get b.bin -", "get b -", "get -f bin -", "extract - -C out --force"])
def test_a_large_field_of_a_stream(words: str, peak: Callable[..., int]) -> None:
    """One that memory does not hold goes on as it comes."""
    assert peak(words, one()) < LIMIT


@pytest.mark.parametrize("shards", [1, 100])
def test_a_plan_in_any_order(shards: int, peak: Callable[..., int]) -> None:
    """Rows of a plan, wherever they stand, wait in a file and not in memory; those of one shard that is out of order,
    some 400 bytes each, do."""
    count = 30_000 if shards == 1 else 100_000
    with open("p.tsv", "wb") as file:
        file.write(b"shard\tposition\tname\tsource\tsize\n")
        for row in range(count):
            number = row * 7919 % count
            file.write(b"s-%d.tar\t%d\t%040d.x\ttext:1\t1\n" % (number % shards, number, number))
    assert peak("shard --from-plan p.tsv") < LIMIT
