"""The rows of the benchmark: the work, the tools that do it, and the aim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from _bench_data import SETS, Content, Dataset, dataset
from _bench_run import (
    MIB,
    MOVED,
    TARKIT,
    Aim,
    Row,
    Stage,
    Way,
    counts,
    holds,
    lists,
    measures,
    rows,
    samples,
    summarises,
)

INSIDE = Path(__file__).resolve().parent / "_bench_inside.py"
BOTH = (TARKIT, "tarp")
FEW = 2000  # samples for tools that start a program for each
FEW_OF = Content(2 * FEW, 0)
COUNT = "wc -c sample.bin"
EXTENDED = ("wds", "long")  # with an extension header before every entry
LISTED = Aim("GNU tar", within=7)  # GNU tar lists the names only


class Rows:
    """All rows, over one `part`-th of the data in one directory, with outputs in `out`."""

    def __init__(self, place: Path, part: int, out: Path, tarkit: list[str], python: str) -> None:
        self.place = place
        self.part = part
        self.out = out
        self.python = python
        self.tools = {TARKIT: tarkit, "tarp": ["tarp"]}

    def __iter__(self) -> Iterator[Row]:
        yield from self.start_up()
        for work in self.walk, self.stats, self.cat, self.split, self.split_pipe:
            for name in "tiny", "npy":
                yield work(name)
        for work in self.stats, self.split:
            for name in "wds", "long":
                yield work(name)
        for name in "tiny", "wds":
            yield self.iterate(name)
        yield self.order("sort", "bin")
        yield self.order("sort", "__key__")
        yield self.order("shuffle", "__random__")
        yield self.create()
        yield self.create_split()
        yield self.shard()
        yield self.tsv()
        yield from self.proc()
        yield from self.memory()
        for name in "tiny", "npy":
            yield self.moved("sort", name)
        yield self.moved("shuffle", "npy")

    def start_up(self) -> Iterator[Row]:
        """Start and exit, compared with the library that takes most of the time."""
        for option in "--version", "--help":
            click = Way("click", [[self.python, "-c", "import click"]])
            ways = [Way(TARKIT, [[*self.tools[TARKIT], option]]), click]
            yield Row(f"start {option}", "", ways, Aim("click", within=1.2), repeat=4)

    def walk(self, name: str) -> Row:
        """Find all entries: timed inside the process in Python, whole processes in C."""
        tar = self.data(name).tar
        modes = {TARKIT: "walk", "tarfile": "tarfile", "webdataset": "webdataset"}
        ways = [Way(who, [[self.python, INSIDE, mode, tar]], counts, inside=True) for who, mode in modes.items()]
        ways += [Way(who, [[tool, "-tf", tar]], lists) for who, tool in (("GNU tar", "tar"), ("bsdtar", "bsdtar"))]
        return Row(f"walk {name}", name, ways, Aim("tarfile", faster=10) if name == "tiny" else None)

    def stats(self, name: str) -> Row:
        """Count the contents of an archive, compared with a list of it: whole processes."""
        tar = self.data(name).tar
        ways = [Way(TARKIT, [[*self.tools[TARKIT], "stats", tar]], summarises)]
        ways.append(Way("tarfile", [[self.python, INSIDE, "tarfile", tar]], counts))
        ways += [Way(who, [[tool, "-tf", tar]], lists) for who, tool in (("GNU tar", "tar"), ("bsdtar", "bsdtar"))]
        aim = Aim("tarfile", faster=7) if name == "tiny" else LISTED if name in EXTENDED else None
        return Row(f"stats {name}", name, ways, aim)

    def tsv(self) -> Row:
        """Make a table of all samples, compared with reading them all with webdataset: whole processes."""
        tar = self.data("tiny").tar
        ways = [Way(TARKIT, [[*self.tools[TARKIT], "tsv", tar, "-f", "cls size.bin"]], rows)]
        ways.append(Way("webdataset", [[self.python, INSIDE, "webdataset", tar]], counts))
        return Row("tsv tiny", "tiny", ways)

    def iterate(self, name: str) -> Row:
        """Iterate over all samples in Python and take all of their fields as bytes."""
        tar = self.data(name).tar
        modes = {TARKIT: "api", "webdataset": "webdataset"}
        ways = [Way(who, [[self.python, INSIDE, mode, tar]], counts, inside=True) for who, mode in modes.items()]
        return Row(f"samples {name}", name, ways, Aim("webdataset", faster=8))

    def cat(self, name: str) -> Row:
        """Copy an archive."""
        tar = self.data(name).tar
        ways = self.each(lambda tool: [[*tool, "cat", tar, "-o", self.out / "b.tar"]])
        ways.append(self.cp(tar))
        return Row(f"cat {name}", name, ways, either(name, Aim("tarp", faster=6), Aim("cp", within=1.5)))

    def split(self, name: str) -> Row:
        """Split a file into shards."""
        tar = self.data(name).tar
        ways = self.each(lambda tool: [[*tool, "split", "-c", "1000", tar, "-o", self.out / "s-%06d.tar"]])
        ways.append(self.cp(tar))
        if name in EXTENDED:
            ways.append(Way("GNU tar", [["tar", "-tf", tar]], lists))
            return Row(f"split {name}", name, ways, LISTED)
        return Row(f"split {name}", name, ways, either(name, Aim("tarp", faster=6), Aim("cp", within=1.5)))

    def split_pipe(self, name: str) -> Row:
        """Split a stream into shards."""
        cat: Stage = ["cat", self.data(name).tar]
        ways = self.each(lambda tool: [cat, [*tool, "split", "-", "-c", "1000", "-o", self.out / "s-%06d.tar"]])
        ways.append(Way("cat to cat", [cat, ["cat"]], holds))
        aim = either(name, Aim("tarp", faster=3), Aim("cat to cat", within=2.5))
        return Row(f"split {name} from a pipe", name, ways, aim)

    def order(self, word: str, field: str) -> Row:
        """Change the order of an archive; tarp sorts by a random number instead of a shuffle.

        Sorting by the content, which is random, changes the order; the keys are sorted already.
        """
        tar, out = self.data("tiny").tar, self.out / "b.tar"
        how = ["--seed", "7"] if word == "shuffle" else ["-s", field]
        ways = [
            Way(TARKIT, [[*self.tools[TARKIT], word, tar, "-o", out, *how]], holds),
            Way("tarp", [[*self.tools["tarp"], "sort", "-s", field, tar, "-o", out]], holds),
            self.cp(tar),
        ]
        name = "shuffle tiny" if word == "shuffle" else f"sort tiny by {field}"
        return Row(name, "tiny", ways, Aim("tarp", faster=25))

    def moved(self, word: str, name: str) -> Row:
        """Sort a stream four times as large as --memory: count bytes read and written, compared with `cp`."""
        tar, out = self.data(name).tar, self.out / "b.tar"
        entries, size = SETS[name][:2]
        memory = max(entries * size // self.part // 4, 1_000_000)
        how = ["-s", "size,__key__", "-r"] if word == "sort" else ["--seed", "7"]
        command: Stage = [
            *self.tools[TARKIT],
            word,
            "-",
            *how,
            "--memory",
            str(memory),
            "--tmpdir",
            self.out,
            "-o",
            out,
        ]
        cat: Stage = ["cat", tar]
        ways = [Way(TARKIT, [cat, command], holds), self.cp(tar)]
        return Row(f"{word} {name} in a quarter of its memory", name, ways, Aim("cp", within=2.1), repeat=0, unit=MOVED)

    def create(self) -> Row:
        """Make an archive from files."""
        data, out = self.data("npy"), self.out / "b.tar"
        ways = self.each(lambda tool: [[*tool, "create", data.recipe, "-o", out]])
        ways.append(Way("GNU tar", [["tar", "-cf", out, "-C", data.files, "--no-recursion", "-T", data.list]], holds))
        return Row("create npy", "npy", ways, Aim("GNU tar", within=1))

    def create_split(self) -> Row:
        """Make shards from files."""
        recipe, out = self.data("npy").recipe, self.out / "s-%06d.tar"
        ways = self.each(
            lambda tool: [[*tool, "create", recipe, "-o", "-"], [*tool, "split", "-", "-c", "10000", "-o", out]]
        )
        return Row("create to split npy", "npy", ways, Aim("tarp", faster=3))

    def shard(self) -> Row:
        """Make shards from a tree of small files, compared with one archive, and with that split into shards."""
        data, shards = self.data("tree"), self.out / "s-%06d.tar"
        command: Stage = [*self.tools[TARKIT], "shard", data.files, "-c", "1000", "-o", shards]
        packed: Stage = ["tar", "--sort=name", "-C", data.files, "-cf"]
        ways = [
            Way(TARKIT, [command], holds),
            Way("tarkit -p 2", [[*command, "-p", "2"]], holds),
            Way("GNU tar", [[*packed, self.out / "b.tar", "."]], holds),
            Way("tarp", [[*packed, "-", "."], ["tarp", "split", "-", "-c", "1000", "-o", shards]], holds),
        ]
        return Row("shard tree", "tree", ways, Aim("GNU tar", within=1))

    def proc(self) -> Iterator[Row]:
        """Run a program for each sample, two at a time; or a function and a long-lived program, over all of the set.

        The time of the latter is scaled to the samples of the former: otherwise most of it would be the start.
        """
        tar, out, tarkit = self.data("tiny").tar, self.out / "b.tar", self.tools[TARKIT]
        tarp: Stage = ["tarp", "proc", "--slice", f"0:{FEW}", "-c", COUNT, tar, "-o", out]
        xargs = f"tarkit cat --count {FEW} {{}} | tar -xC {self.out} && ls -d {self.out}/*.bin | xargs -P 2 -n 1 wc -c"
        first = [*tarkit, "proc", "-p", "2", "-q", "--count", str(FEW), "-c"]
        ways = [
            Way(TARKIT, [[*first, COUNT, tar, "-o", out]], samples),
            Way("tarkit -c 'bash'", [[*first, f"{COUNT}; :", tar, "-o", out]], samples),
            Way("tarp", [tarp], samples),
            Way("xargs -P 2", [["bash", "-c", xargs.format(tar).replace("tarkit", " ".join(map(str, tarkit)), 1)]]),
        ]
        yield Row(f"proc, wc of {FEW} samples", "tiny", ways, Aim("tarp", faster=3), FEW_OF)
        part = str(FEW * self.part / 100_000)
        for name, words in (
            ("--map", ["--map", f"{INSIDE.parent / '_bench_map.py'}:count"]),
            ("--worker", ["--worker", f"{self.python} {INSIDE.parent / '_bench_map.py'}"]),
        ):
            command: list[str | Path] = [*tarkit, "proc", "-p", "2", "-q", *words, tar, "-o", out]
            ways = [
                Way(TARKIT, [[self.python, INSIDE, "share", part, *command]], inside=True),
                Way("tarp", [tarp], samples),
            ]
            aim = Aim("tarp", faster=100) if name == "--map" else None
            yield Row(f"proc {name}, {FEW} samples of all", "tiny", ways, aim, FEW_OF)

    def memory(self) -> Iterator[Row]:
        """Run the same work again for its memory, and copy an entry that is larger than the limit."""
        works = [self.cat("tiny"), self.cat("npy"), self.split("npy"), self.split_pipe("tiny"), self.split_pipe("npy")]
        for row in [*works, self.create(), self.stats("tiny"), self.tsv()]:
            ways = [way for way in row.ways if way.who in BOTH]
            yield Row(f"memory: {row.name}", row.data, ways, Aim(within=64), repeat=0, unit="MiB")
        size = (4 << 30) if self.part == 1 else (256 << 20)
        cat = [*self.tools[TARKIT], "cat", "-", "-o", "-"]
        way = Way(TARKIT, [[self.python, INSIDE, "zeros", str(size)], cat, ["wc", "-c"]], measures, watch=1)
        name = f"memory: cat one entry of {size // MIB} MiB from a pipe"
        yield Row(name, "", [way], Aim(within=64), Content(1, size), repeat=0, unit="MiB")

    def each(self, stages: Callable[[list[str]], list[Stage]]) -> list[Way]:
        """Return the same command lines for both tools that have them."""
        return [Way(who, stages(self.tools[who]), holds) for who in BOTH]

    def cp(self, tar: Path) -> Way:
        """Return a copy by `cp`, as the reference."""
        return Way("cp", [["cp", "--reflink=never", tar, self.out / "b.tar"]], holds)

    def data(self, name: str) -> Dataset:
        """Return the paths of a set."""
        return dataset(self.place, name, self.part)


def either(name: str, tiny: Aim, npy: Aim) -> Aim:
    """Return the aim: for small entries against a tool that handles entries, for large ones against a copy of bytes."""
    return tiny if name == "tiny" else npy
