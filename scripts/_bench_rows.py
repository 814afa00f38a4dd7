"""The rows of the benchmark: the work, the tools that do it, and the aim."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from _bench_data import MANY, SETS, Content, Dataset, dataset
from _bench_run import (
    MIB,
    PURE,
    TARKIT,
    Check,
    Row,
    Stage,
    Way,
    counts,
    faster,
    holds,
    lists,
    measures,
    rows,
    samples,
    summarises,
    unpacks,
    within,
)

INSIDE = Path(__file__).resolve().parent / "_bench_inside.py"
FEW = 2000  # samples for tools that start a program for each
FEW_OF = Content(2 * FEW, 0)
COUNT = "wc -c sample.bin"
EXTENDED = ("wds", "long")  # with an extension header before every entry
LIMIT = 64  # MiB of memory


class Rows:
    """All rows, over one `part`-th of the data in one directory, with outputs in `out`.

    tarkit takes part twice where the accelerator matters: with and without it.
    """

    def __init__(self, place: Path, part: int, out: Path, tarkit: list[str], python: str, full: bool = False) -> None:
        self.place = place
        self.part = part
        self.out = out
        self.python = python
        self.tarkit = tarkit
        self.full = full

    def __iter__(self) -> Iterator[Row]:
        yield from self.start_up()
        for work in self.stats, self.cat, self.split:
            for name in "tiny", "npy", *EXTENDED:
                yield work(name)
        yield self.wide()
        yield self.split_pipe("tiny")
        yield self.split_pipe("npy")
        yield self.order("sort", "__key__", 3.5, 9)
        yield self.order("sort", "bin", 5, 11)
        yield self.order("shuffle", "__random__", 4, 9)
        yield from self.labels()
        yield self.create()
        yield from self.shard()
        yield from self.codecs()
        yield self.iterate("tiny")
        yield self.iterate("wds")
        yield self.tsv()
        yield from self.proc()
        if self.full:
            yield from self.many()
            yield from self.views()
        yield from self.memory()
        for name in "tiny", "npy", *EXTENDED:
            yield self.read(name)
        for name in "tiny", "npy":
            yield self.moved("sort", name)
        yield self.moved("shuffle", "npy")

    def start_up(self) -> Iterator[Row]:
        """Start and exit, compared with the library that takes most of the time."""
        click = Way("click", [[self.python, "-c", "import click"]])
        empty: Stage = ["cat", self.data("empty").tar, "-o", self.out / "b.tar"]
        works: list[tuple[str, Stage, float]] = [("--version", ["--version"], 0.5), ("--help", ["--help"], 0)]
        for name, words, aim in [*works, ("cat of an empty archive", empty, 1.5)]:
            ways = [Way(TARKIT, [[*self.tarkit, *words]]), click]
            yield Row(f"start: {name}", "empty", ways, within("click", aim), repeat=4)

    def stats(self, name: str) -> Row:
        """Count the contents of an archive, compared with a list of its names."""
        tar = self.data(name).tar
        ways = [*self.ours(["stats", tar], check=summarises)]
        ways.append(Way("tarfile", [[self.python, INSIDE, "tarfile", tar]], counts))
        ways += [Way(who, [[tool, "-tf", tar]], lists) for who, tool in (("GNU tar", "tar"), ("bsdtar", "bsdtar"))]
        return Row(f"stats {name}", name, ways, within("GNU tar", 2, 7) if name in EXTENDED else {})

    def cat(self, name: str) -> Row:
        """Copy an archive."""
        tar = self.data(name).tar
        words: Stage = ["cat", tar, "-o", self.out / "b.tar"]
        aims = {"tiny": within("cp", 2.5, 6), "npy": within("cp", 1.3, 1.5)}
        return Row(f"cat {name}", name, [*self.ours(words), self.tarp(words), self.cp(tar)], aims.get(name, {}))

    def split(self, name: str) -> Row:
        """Split a file into shards."""
        tar = self.data(name).tar
        words: Stage = ["split", "-c", "1000", tar, "-o", self.out / "s-%06d.tar"]
        ways = [*self.ours(words), self.tarp(words), self.cp(tar)]
        if name in EXTENDED:
            ways.append(Way("GNU tar", [["tar", "-tf", tar]], lists))
        aims = {"tiny": within("cp", 2.5, 6), "npy": within("cp", 1.5, 1.7)}
        return Row(f"split {name}", name, ways, aims.get(name, within("GNU tar", 2, 7)))

    def wide(self) -> Row:
        """Copy samples of more entries than fit the array of the accelerator, compared with samples of fewer."""
        data = self.data("wide")
        words: Stage = ["cat", data.tar, "-o", self.out / "b.tar"]
        fewer = Way("50 entries a sample", [[*self.tarkit, "cat", data.fewer, "-o", self.out / "b.tar"]], holds)
        return Row("cat of 100 entries a sample", "wide", [*self.ours(words), fewer], within(fewer.who, 1.2))

    def split_pipe(self, name: str) -> Row:
        """Split a stream into shards."""
        cat: Stage = ["cat", self.data(name).tar]
        words: Stage = ["split", "-", "-c", "1000", "-o", self.out / "s-%06d.tar"]
        ways = [*self.ours(words, before=[cat]), self.tarp(words, before=[cat])]
        ways.append(Way("cat to cat", [cat, ["cat"]], holds))
        aims = within("cat to cat", 2, 4) if name == "tiny" else within("cat to cat", 1.5, 2)
        return Row(f"split {name} from a pipe", name, ways, aims)

    def order(self, word: str, field: str, fast: float, pure: float) -> Row:
        """Change the order of an archive; tarp sorts by a random number instead of a shuffle.

        Sorting by the content, which is random, changes the order; the keys are sorted already.
        """
        tar, out = self.data("tiny").tar, self.out / "b.tar"
        how = ["--seed", "7"] if word == "shuffle" else ["-s", field]
        ways = [
            *self.ours([word, tar, "-o", out, *how]),
            self.tarp(["sort", "-s", field, tar, "-o", out]),
            self.cp(tar),
        ]
        name = "shuffle tiny" if word == "shuffle" else f"sort tiny by {field}"
        return Row(name, "tiny", ways, within("cp", fast, pure))

    def labels(self) -> Iterator[Row]:
        """Choose tiny samples, list and change them, compared with a copy of all by `tarkit cat`."""
        tar, out = self.data("labels").tar, self.out / "b.tar"
        copy: Stage = ["cat", tar, "-o", out]
        works: list[tuple[str, Stage, float]] = [
            ("--where of keys", [*copy, "--where", "endswith(__key__, '7')"], 1.5),
            ("--where of sizes", [*copy, "--where", "size.json > 50"], 1.5),
            ("--where of a field, 5 %", [*copy, "--where", "cls < 50"], 1.5),
            ("--where of a field, half", [*copy, "--where", "cls < 500"], 2),
            ("--where of JSON", [*copy, "--where", "json.width < 1000"], 3),
            ("tsv of two fields", ["tsv", tar, "-f", "cls size.json", "-o", self.out / "b.tsv"], 1.5),
            ("tsv of JSON", ["tsv", tar, "-f", "cls json.width", "-o", self.out / "b.tsv"], 3),
            ("-f of one field", [*copy, "-f", "cls"], 2),
            ("--drop of one field", [*copy, "--drop", "json"], 2),
            ("--rekey", [*copy, "--rekey", "x/{key}"], 4),
            ("sort by JSON", ["sort", tar, "-s", "json.width", "-o", out], 4),
        ]
        for name, words, aim in works:
            ways = [*self.ours(words, check=None), Way("tarkit cat", [[*self.tarkit, *copy]], holds)]
            yield Row(f"labels: {name}", "labels", ways, within("tarkit cat", aim))

    def create(self) -> Row:
        """Make an archive from files."""
        data, out = self.data("npy"), self.out / "b.tar"
        words: Stage = ["create", data.recipe, "-o", out]
        tar: Stage = ["tar", "-cf", out, "-C", data.files, "--no-recursion", "-T", data.list]
        ways = [Way(TARKIT, [[*self.tarkit, *words]], holds), self.tarp(words), Way("GNU tar", [tar], holds)]
        return Row("create npy", "npy", ways, within("GNU tar", 1))

    def shard(self) -> Iterator[Row]:
        """Make shards from a tree of small files, in the page cache and not, compared with one archive."""
        data = self.data("tree")
        command: Stage = [*self.tarkit, "shard", data.files, "-c", "1000", "-o", self.out / "s-%06d.tar"]
        packed: Stage = ["tar", "--sort=name", "-C", data.files, "-cf", self.out / "b.tar", "."]
        ways = [Way(TARKIT, [command], holds), Way("GNU tar", [packed], holds)]
        yield Row("shard tree", "tree", ways, within("GNU tar", 1))
        yield Row("shard tree, cold", "tree", ways, within("GNU tar", 1), by="wall", cold=data.files)

    def codecs(self) -> Iterator[Row]:
        """Read and write compressed archives, compared with the codec alone; processes work in parallel."""
        tar = self.data("packed").tar
        gzip = next((tool for tool in ("pigz", "igzip", "gzip") if shutil.which(tool)), "")
        tools = [("zst", "zstd"), ("gz", gzip)]
        for suffix, tool in tools:
            if not shutil.which(tool):
                continue
            packed = f"{tar}.{suffix}"
            decode = Way(f"{tool} -dc", [[tool, "-dc", packed]], holds)
            shards: Stage = ["split", "-c", "1000", packed, "-o", self.out / "s-%06d.tar"]
            ahead: Stage = ["cat", "-p", "2", packed, "-o", self.out / "b.tar"]
            for name, words in (f"split tiny.{suffix}", shards), (f"cat -p 2 tiny.{suffix}", ahead):
                yield Row(name, "packed", [*self.ours(words), decode], within(f"{tool} -dc", 1), by="wall")
        for suffix, tool in tools:
            if not shutil.which(tool):
                continue
            out = f"{self.out / 'b.tar'}.{suffix}"
            # gz has the size of level 1 by default
            encode = "zstd -T0" if suffix == "zst" else f"{tool} -1"
            ways = [Way(TARKIT, [[*self.tarkit, "cat", tar, "-o", out]], unpacks)]
            ways.append(Way(encode, [["sh", "-c", f'{encode} -qc "$0" > "$1"', str(tar), out]], unpacks))
            yield Row(f"cat tiny to {suffix}", "packed", ways, within(encode, 1), by="wall")

    def iterate(self, name: str) -> Row:
        """Iterate over all samples in Python and take all of their fields as bytes: timed inside the process."""
        tar = self.data(name).tar
        modes = {TARKIT: "api", PURE: "api", "webdataset": "webdataset"}
        ways = [Way(who, [[self.python, INSIDE, mode, tar]], counts, inside=True) for who, mode in modes.items()]
        return Row(f"samples {name}", name, ways, faster("webdataset", 25, 8))

    def tsv(self) -> Row:
        """Make a table of all samples, compared with reading them all with webdataset."""
        tar = self.data("tiny").tar
        ways = self.ours(["tsv", tar, "-f", "cls size.bin"], check=rows)
        ways.append(Way("webdataset", [[self.python, INSIDE, "webdataset", tar]], counts))
        return Row("tsv tiny", "tiny", ways)

    def proc(self) -> Iterator[Row]:
        """Run a program for each sample, two at a time; or a function and a long-lived program, over all of the set.

        The samples of xargs are unpacked in advance. The time of the function and of the long-lived program is scaled
        to 1000 samples: otherwise most of it would be the start.
        """
        tar, out = self.data("tiny").tar, self.out / "b.tar"
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else self.out
        first: Stage = [*self.tarkit, "proc", "-p", "2", "-q", "--count", str(FEW), "-c"]
        ways = [
            Way(TARKIT, [[*first, COUNT, tar, "-o", out]], samples),
            Way("tarkit -c 'bash'", [[*first, f"{COUNT}; :", tar, "-o", out]], samples),
            self.tarp(["proc", "--slice", f"0:{FEW}", "-c", COUNT, tar, "-o", out], samples),
            Way("xargs -P 2", [[self.python, INSIDE, "xargs", tar, place, str(FEW)]], inside=True),
        ]
        yield Row(f"proc: wc of {FEW} samples", "tiny", ways, within("xargs -P 2", 1.25), FEW_OF, by="wall")
        program = INSIDE.parent / "_bench_map.py"
        share: Stage = [self.python, INSIDE, "share", str(1000 * self.part / SETS["tiny"][0])]
        loop = Way("loop in Python", [[*share, self.python, INSIDE, "api", tar]], inside=True)
        for name, words in ("--map", f"{program}:count"), ("--worker", f"{self.python} {program}"):
            command: Stage = [*self.tarkit, "proc", "-p", "2", "-q", name, words, tar, "-o", out]
            ways = [Way(TARKIT, [[*share, *command]], inside=True), loop]
            yield Row(f"proc {name}: 1000 samples of all, so ms a sample", "tiny", ways, by="wall")

    def many(self) -> Iterator[Row]:
        """Work on many shards once, and compare the order of all of their samples with that of a tenth of them."""
        shards, out = self.data("many").shards, self.out / "b.tar"
        cp = Way("cp", [["cp", "--reflink=never", "-t", self.out, *shards]], holds)
        into: list[tuple[Stage, Check | None]] = [
            (["stats"], summarises),
            (["check"], None),
            (["cat", "-o", out], holds),
            (["split", "-c", "10000", "-o", self.out / "s-%06d.tar"], holds),
        ]
        for words, check in into:
            ways = self.ours([*words, *shards], check=check)
            yield Row(f"{words[0]} many", "many", [*ways, cp], repeat=0)
            aims = within("", LIMIT, LIMIT) if "-o" in words else {}
            yield Row(f"memory: {words[0]} many", "many", ways, aims, repeat=0, by="mib")
        for words in ["sort", "-s", "__key__"], ["shuffle", "--seed", "7"]:
            command: Stage = [*self.tarkit, *words, "-o", out]
            ways = [Way(TARKIT, [[*command, *shards]], holds)]
            ways.append(Way("a tenth", [[*command, *shards[: MANY // 10]]]))
            yield Row(f"{words[0]} many", "many", [*ways, cp], within("a tenth", 11), repeat=0, by="user")
            aims = within("", LIMIT + 64 * SETS["many"][0] / MIB)  # 64 bytes a sample
            yield Row(f"memory: {words[0]} many", "many", ways, aims, repeat=0, by="mib")

    def views(self) -> Iterator[Row]:
        """Choose, shuffle and divide the rows of a view of many shards, compared with reading and writing it."""
        data, out = self.data("many"), self.out / "b.view.parquet"
        view = data.directory / "all.view.parquet"
        copy = "import sys; from pyarrow.parquet import *; write_table(read_table(sys.argv[1]), sys.argv[2])"
        if not view.exists():
            make: Stage = [*self.tarkit, "tsv", "-q", "-f", "size.bin", "-o", view, *data.shards]
            subprocess.run([str(word) for word in make], check=True)
        works: list[tuple[str, Stage]] = [
            ("--where", ["cat", view, "--where", "size.bin == 200 and endswith(__key__, '7')", "-o", out]),
            ("shuffle", ["shuffle", view, "--seed", "7", "-o", out]),
            ("split", ["split", view, "-c", "10000", "--names", "s-%06d.tar", "-o", out]),
        ]
        for name, words in works:
            ways = [Way(TARKIT, [[*self.tarkit, *words]]), Way("pyarrow", [[self.python, "-c", copy, view, out]])]
            yield Row(f"{name} of a view of many", "many", ways, repeat=0)
            yield Row(f"memory: {name} of a view of many", "many", ways[:1], within("", 300), repeat=0, by="mib")

    def memory(self) -> Iterator[Row]:
        """Run the same work again for its memory, and copy an entry that is larger than the limit."""
        every = [self.cat("tiny"), self.cat("npy"), self.split("npy"), self.split_pipe("tiny"), self.split_pipe("npy")]
        for row in [*every, self.create(), self.stats("tiny"), self.tsv()]:
            ways = [way for way in row.ways if way.who in (TARKIT, PURE, "tarp")]
            aims = within("", LIMIT, LIMIT)
            yield Row(f"memory: {row.name}", row.data, ways, aims, repeat=0, by="mib")
        data = self.data("large")
        cat: Stage = ["cat", data.tar]
        count: Stage = ["wc", "-c"]
        works: list[tuple[str, list[Stage], int]] = [
            ("cat", [cat, [*self.tarkit, "cat", "-", "-o", "-"], count], 1),
            ("split", [cat, [*self.tarkit, "split", "-", "-c", "1", "-o", self.out / "s-%06d.tar"]], 1),
            ("create", [[*self.tarkit, "create", data.recipe, "-o", "-"], count], 0),
        ]
        for name, stages, watch in works:
            way = Way(TARKIT, stages, holds if name == "split" else measures, watch)
            name = f"memory: {name} one entry of {SETS['large'][0] // self.part} MiB"
            yield Row(name, "large", [way], within("", LIMIT), repeat=0, by="mib")

    def read(self, name: str) -> Row:
        """Count what a walk over all headers reads, compared with `cat`, which reads all bytes once."""
        tar = self.data(name).tar
        ways = [*self.ours(["stats", tar], check=summarises), Way("cat", [["cat", tar]], holds)]
        return Row(f"bytes read by a walk: stats {name}", name, ways, within("cat", 1.1, 1.1), repeat=0, by="read")

    def moved(self, word: str, name: str) -> Row:
        """Sort a stream four times as large as --memory: count bytes read and written, compared with `cp`."""
        tar, out = self.data(name).tar, self.out / "b.tar"
        entries, size = SETS[name][:2]
        memory = str(max(entries * size // self.part // 4, 1_000_000))
        how = ["-s", "size,__key__", "-r"] if word == "sort" else ["--seed", "7"]
        words: Stage = [word, "-", *how, "--memory", memory, "--tmpdir", self.out, "-o", out]
        ways = [Way(TARKIT, [["cat", tar], [*self.tarkit, *words]], holds), self.cp(tar)]
        return Row(f"{word} {name} in a quarter of its memory", name, ways, within("cp", 2.1), repeat=0, by="moved")

    def ours(self, words: Stage, before: Sequence[Stage] = (), check: Check | None = holds) -> list[Way]:
        """Return a command of tarkit, with and without the accelerator."""
        return [Way(who, [*before, [*self.tarkit, *words]], check) for who in (TARKIT, PURE)]

    def tarp(self, words: Stage, check: Check = holds, before: Sequence[Stage] = ()) -> Way:
        """Return a command of tarp."""
        return Way("tarp", [*before, ["tarp", *words]], check)

    def cp(self, tar: Path) -> Way:
        """Return a copy by `cp`, as the reference."""
        return Way("cp", [["cp", "--reflink=never", tar, self.out / "b.tar"]], holds)

    def data(self, name: str) -> Dataset:
        """Return the paths of a set."""
        return dataset(self.place, name, self.part)
