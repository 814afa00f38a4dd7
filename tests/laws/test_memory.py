"""Memory does not grow with the data: the peak of each command, over streams several times as large."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.tar.header import encode
from tests._tools import MARKER, each_row, member, with_field

LIMIT = 28 << 10  # KiB: a window takes 16 MiB, a spool 8 MiB
WINDOW = 16 << 10  # KiB for each further stream
AHEAD = (1 << 10) + (1 << 8)  # KiB that are read ahead of a file of small entries, and the window before
SMALL = {  # a quarter of all these, for a quarter of the data
    "tarkit.streams.source.HELD": 4 << 20,
    "tarkit.samples.groups.LARGE": 4 << 20,
    "tarkit.tables.content.HELD": 4 << 20,
}
SIZE = 24_000_000

# Each run is a fork of a process that has loaded the commands and nothing else, so that they are loaded once. Its peak
# according to `wait4` would include the process that it was forked from, so the run reports it itself.
CODE = """
import hashlib, json, os, resource, shlex, signal, subprocess, sys, traceback
from importlib import import_module
from tarkit import cli

leave = os._exit

def run(words, limits):
    def end(status):
        with open("/proc/self/status") as status_file, open("peak", "w") as file:
            file.write(next(line for line in status_file if line.startswith("VmHWM")).split()[1])
        leave(status)

    os._exit = end  # when a thread still waits for something
    sys.argv = ["tarkit", *shlex.split(words)]
    try:
        for name, value in limits.items():
            module, _, constant = name.rpartition(".")
            assert isinstance(getattr(import_module(module), constant), int)
            setattr(import_module(module), constant, value)
        cli.main()
    except SystemExit as done:
        end(done.code or 0)
    except BaseException:
        traceback.print_exc()
        end(1)

for command in "cat create extract get mix shard shuffle sort split".split():
    import_module("tarkit.commands." + command)
import_module("difflib")  # click loads it at the first short option
for line in sys.stdin:
    folder, producer, words, limits = json.loads(line)
    os.chdir(folder)
    bash = subprocess.Popen(["bash", "-o", "pipefail", "-c", producer], stdout=subprocess.PIPE)
    if (child := os.fork()) == 0:
        signal.alarm(60)
        resource.setrlimit(resource.RLIMIT_CPU, (5, 5))  # many times what a run takes, unless that grows as a square
        os.dup2(bash.stdout.fileno(), 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        bash.stdout.close()
        run(words, limits)
    bash.stdout.close()
    status = os.waitpid(child, 0)[1]
    print(json.dumps([status, bash.wait()]), flush=True)
"""

unknown = not os.path.exists("/proc/self/status")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(unknown, reason="the system does not report the peak")]

Growth = Callable[..., int]


@pytest.fixture(scope="module")
def peak() -> Iterator[Growth]:
    """Yield a function that forks a run and returns its peak in KiB; `limits` replace constants of tarkit."""
    with subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdin is not None
        assert it.stdout is not None

        def peak(words: str, producer: str = ":", limits: Mapping[str, int] | None = None) -> int:
            print(json.dumps([os.getcwd(), producer, words, limits or {}]), file=it.stdin, flush=True)
            assert json.loads(it.stdout.readline()) == [0, 0]  # statuses of the run and of the producer
            found = int(Path("peak").read_text())
            Path("peak").unlink()
            return found

        yield peak
        it.stdin.close()


@pytest.fixture(scope="module")
def baseline(peak: Growth, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return the peak of a run with one tiny sample."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("least"))
        Path("few.tar").write_bytes(member("a.txt", b"x") + MARKER)
        return peak("cat few.tar")


@pytest.fixture
def growth(here: Path, peak: Growth, baseline: int) -> Growth:
    """Return a function that runs `PRODUCER | tarkit WORDS > /dev/null`: its peak in KiB less that of a tiny run."""

    def growth(*run: Any) -> int:
        return peak(*run) - baseline

    return growth


def one(size: int = SIZE) -> str:
    """A shell command that writes an archive with one entry of zeros between two small ones."""
    Path("head").write_bytes(member("a.txt", b"first") + encode(b"b.bin", size))
    Path("tail").write_bytes(bytes(-size % 512) + member("c.txt", b"last") + MARKER)
    return f"{{ cat head; head -c {size} /dev/zero; cat tail; }}"


def many(count: int, size: int, name: bytes = b"%06d.x") -> str:
    """A shell command that writes an archive of samples of one entry, or of one sample."""
    with open("many.tar", "wb", buffering=1 << 20) as file:
        for number in range(count):
            file.write(encode(name % number, size))
            if size:
                file.seek(size + -size % 512, os.SEEK_CUR)  # a hole reads as zeros and is written at once
        file.write(MARKER)
    return "cat many.tar"


SHUFFLED = (2_000_000 >> 10) + (5 << 10)  # KiB: --memory 2M, and the overhead
LARGE = [  # a sample larger than memory: the command, and how much memory it may take
    *(
        (f"cat - -o - {options}", LIMIT // 4)  # copied, read ahead, or kept until its end is known
        for options in (
            "",
            "--allow truncated",
            "--shuffle 3 --seed 1",
            "--sample 3 --seed 1 --tmpdir .",
            "-p 2",
            "--allow joined-sample",
            "--compress lz4",
        )
    ),
    ("split - -s 9M -o s-%d.tar -q", LIMIT // 4),  # written ahead
    ("split - -s 9M --compress lz4 -o s-%d.tar -q", LIMIT // 4),  # an output that cannot be truncated: spooled
    ("sort - --memory 2M --tmpdir . -r", SHUFFLED),
    ("shuffle - --memory 2M --seed 1 --tmpdir .", SHUFFLED),
    *((words, LIMIT // 4) for words in ("get b.bin -", "get b -", "get -f bin -", "extract - -C out")),
]


@each_row(("words", "most"), LARGE)
def test_a_large_sample(words: str, most: int, here: Path, growth: Growth) -> None:
    """A sample larger than memory is written as it arrives, or goes to temporary space."""
    assert growth(words, one(), SMALL) < most
    assert len(list(Path().glob("s-*.tar"))) == 3 * words.startswith("split")


CHOICES = ("--sample 300", "--balance size", "--balance size --per-class max --rekey '{index}'")
CHOSEN = {"tarkit.pipeline.choose.MEMORY": 1 << 20, "tarkit.pipeline.choose.FEW": 1 << 10}
CHOSEN |= {"tarkit.spill.sets." + name: 1 << 10 for name in ("HELD", "WRITTEN", "FILTER")}
MANY = [  # the command, the number and size of the samples, constants, and how much memory it may take
    *((f"split - {limit} -o s-%d.tar -q", (600, 40_000), SMALL, LIMIT // 4) for limit in ("-c 200", "-s 9M", "-n 3")),
    *(
        (f"{words} --memory 2M --tmpdir .", (200, 60_000), {}, SHUFFLED)  # several times as large as --memory
        for words in (
            "shuffle - --seed 1",
            "shuffle many.tar --seed 1 -c 100 -o s-%d.tar",
            "sort many.tar",
            "sort - -s x -t str -r",
            "sort - -c 100 -o s-%d.tar",
        )
    ),
    # tiny samples, whose list alone is several times --memory
    ("shuffle many.tar --memory 1M --seed 1 --tmpdir .", (40_000, 0), {}, 6 << 10),
    # samples that may be chosen, and values, are in temporary space
    *((f"cat - --seed 1 {options} --tmpdir . -o -", (600, 40_000), SMALL, LIMIT // 4) for options in CHOICES),
    ("cat many.tar --sample 30000 --seed 1 --tmpdir . -o -", (40_000, 0), CHOSEN, 6 << 10),
    ("cat many.tar --unique-by __key__ --tmpdir . -o -", (15_000, 0), CHOSEN, 4 << 10),
    # fewer than 150 bytes for each entry
    ("cat many.tar -o -", (15_000, 0), {}, 3 << 10),
    ("cat - -o -", (15_000, 0), {}, 3 << 10),
    # samples of a run are not read into memory where their keys are known, so that they are looked at one by one
    ("cat many.tar many.tar --allow repeated-key -o -", (100, 1_000_000), {}, LIMIT // 4),
]


@each_row(("words", "samples", "limits", "most"), MANY)
def test_many_samples(
    words: str, samples: tuple[int, int], limits: Mapping[str, int], most: int, here: Path, growth: Growth
) -> None:
    """Memory does not depend on the number of samples, from a stream and from a file."""
    producer = many(*samples)
    assert growth(words, producer if words.split()[1] == "-" else ":", limits) < most
    assert len(list(Path().glob("s-*.tar"))) == (3 if "split" in words else 2) * ("s-%d" in words)


def test_windows_of_the_real_size(growth: Growth) -> None:
    """Memory is bounded with the constants that tarkit has."""
    assert growth("cat - -o - --allow truncated", one(60_000_000)) < LIMIT


def test_create_of_a_large_file(growth: Growth) -> None:
    """create reads a large file, and a command whose output size is unknown, in bounded memory."""
    with open("big", "wb") as file:
        file.truncate(SIZE)
    Path("recipe").write_text(f"a.bin big\nb.bin pipe:head -c {SIZE} /dev/zero\n")
    assert growth("create recipe -o -", ":", SMALL) < (LIMIT + WINDOW) // 4


def test_create_of_many(growth: Growth) -> None:
    """A long recipe is not kept: 10 000 lines, each of which would take more than 150 bytes."""
    assert growth("create - -o -", "seq 1000000 1010000 | sed 's/$/.txt text:x/'") < 1 << 10


def test_a_large_sample_of_many_entries(growth: Growth) -> None:
    """An incomplete sample is not searched again for each of its entries."""
    assert growth("cat - -o -", many(10_000, 600, b"k.%06d"), SMALL) < LIMIT // 2


@each_row("kind", [b"x", b"g"])
def test_many_records(kind: bytes, here: Path, growth: Growth) -> None:
    """Of extension headers with 500 000 small PAX records, only those with a name or size are kept."""
    header = with_field(member("PaxHeaders/x", b"12 comment=\n" * 125_000), 156, kind)
    with open("many.tar", "wb") as file:
        file.write(header * 4 + member("a.txt", b"1") + MARKER)
    assert growth("cat many.tar -o out.tar") < 16 << 10


@each_row("options", ["--until all", "--repeat --total 9", "--until all -p 2"])
def test_mix_of_streams(options: str, here: Path, growth: Growth) -> None:
    """Two streams with a sample larger than memory each take one window each."""
    producer = one()
    Path("more").write_text(producer)
    words = f"mix - 'pipe:bash more' {options} --rekey '{{key}}-{{index}}' --seed 1 -q -o -"
    assert growth(words, producer, SMALL) < (LIMIT + 2 * WINDOW) // 4 + (10 << 10 if "-p" in options else 0)


def test_mix_of_many_samples(growth: Growth) -> None:
    """12 000 samples in a random order take fewer than 300 bytes each."""
    for letter in "ab":
        many(6000, 0, letter.encode() + b"%06d.x")
        Path("many.tar").rename(f"{letter}.tar")
    assert growth("mix a.tar@2 'pipe:cat b.tar' --until all --seed 1 -q -o -") < 6 << 10


@each_row("words", ["sort", "sort -s size -r"])
def test_lists_are_compact(words: str, here: Path, growth: Growth) -> None:
    """A tiny sample of a file takes fewer than 64 bytes of memory until its turn comes."""
    limits = {"tarkit.spill.runs.UNSORTED": 1 << 17, "tarkit.sorting.runs.LEAST_SET": 1 << 16}
    found = []
    for count in (20_000, 80_000):
        many(count, 0)
        found.append(growth(f"{words} many.tar", ":", limits))
    assert found[1] - found[0] < 60_000 * 64 >> 10, found


def test_sort_by_long_fields(growth: Growth) -> None:
    """sort by contents of some kilobytes stays within --memory: they are written to the disk in time."""
    with open("many.tar", "wb") as file:
        for number in range(6000):
            file.write(member(f"{number:06}.x", b"%06d" % (number * 7919 % 6000) * 600))
        file.write(MARKER)
    assert growth("sort many.tar -s x --memory 2M --tmpdir .") < SHUFFLED


def test_sort_of_scattered_samples(growth: Growth) -> None:
    """If every sample is in two parts, the lists of the gathered parts are bounded as well."""
    many(8000, 0)
    Path("two.tar").write_bytes(Path("many.tar").read_bytes()[: -len(MARKER)] + Path("many.tar").read_bytes())
    words = "sort two.tar --memory 1M --tmpdir . -s size --allow duplicate-entry -q"
    limits = {"tarkit.spill.runs.BUFFER": 1 << 12}
    assert growth(words, ":", limits) < AHEAD + (2 << 10)


def test_join_with_a_long_table(growth: Growth) -> None:
    """A table of 18 MB is not in memory, whatever the order of its rows; SQLite itself takes some."""
    many(100, 0)
    rows = (f"{number * 7919 % 30_000:06}\t{'x' * 600}\n" for number in range(30_000))
    Path("t.tsv").write_text("__key__\ttxt\n" + "".join(rows))
    limits = {"tarkit.spill.keyed.MEMORY": 1 << 20}
    assert growth("cat many.tar --join t.tsv -q -o out.tar", ":", limits) < 7 << 10


def test_shuffle_of_rows_of_a_view(growth: Growth) -> None:
    """Rows of a view, with 40 MB of values, are not in memory; what pyarrow takes is measured by a view of few."""
    arrow = pytest.importorskip("pyarrow", reason="views are Parquet files")
    parquet = pytest.importorskip("pyarrow.parquet", reason="views are Parquet files")
    many(1000, 0)
    tarkit.open("many.tar").write("few.parquet")
    table = arrow.concat_tables([parquet.read_table("few.parquet")] * 40)
    texts = arrow.array([f"{number}" * 200 for number in range(len(table))])
    parquet.write_table(table.append_column("text", texts), "rows.parquet", row_group_size=2000)
    limits = {"tarkit.sorting.rows.HELD": 1 << 20, "tarkit.pipeline.view_writer.ROWS": 1 << 10}
    words = "shuffle {}.parquet --seed 1 -q --tmpdir . -o out.parquet"
    few, rows = (growth(words.format(name), ":", limits) for name in ("few", "rows"))
    assert rows < few + (32 << 10)
