"""The methods of a dataset: what they write is what the command line writes, byte for byte."""

from __future__ import annotations

import errno
import io
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive, Feed, Run, each_feed, entries, tar

MANY = {
    f"{'ab'[i % 2]}/{i}.{field}": content
    for i in [3, 1, 4, 15, 9, 2, 6, 5, 35, 8]
    for field, content in (
        ("cls", str(i % 4).encode()),
        ("json", json.dumps({"w": i * 10}).encode()),
        ("JPG", b"j" * i),
    )
}

Change = Callable[[tarkit.Dataset], tarkit.Dataset]

STEPS: dict[str, tuple[Change, list[str]]] = {
    "as they are": (lambda data: data, []),
    "where": (lambda data: data.where("cls == 3 and json.w > 30"), ["--where", "cls == 3 and json.w > 30"]),
    "where has": (lambda data: data.where("has(jpg) and size.jpg > 100"), ["--where", "has(jpg) and size.jpg > 100"]),
    "where none": (lambda data: data.where("False"), ["--where", "False"]),
    "match": (lambda data: data.match("^a/"), ["--match", "^a/"]),
    "keys": (lambda data: data.keys(["b/9", "a/4", "nix"]), ["--keys-from", "keys.txt"]),
    "sample": (lambda data: data.sample(0.5, seed=7), ["--sample", "0.5", "--seed", "7"]),
    "slice": (lambda data: data.slice(2, 9, 3), ["--slice", "2:9:3"]),
    "slice open": (lambda data: data.slice(4), ["--slice", "4:"]),
    "select": (lambda data: data.select("cls image:png,jpg"), ["-f", "cls image:png,jpg"]),
    "drop": (lambda data: data.drop("j*n", "cl?"), ["--drop", "j*n", "--drop", "cl?"]),
    "require": (lambda data: data.require("cls", "png|jpg"), ["--require", "cls,png|jpg"]),
    "rekey": (lambda data: data.rekey("{stem}/{index:03d}"), ["--rekey", "{stem}/{index:03d}"]),
    "chain": (
        lambda data: data.match("a/").where("cls != 0").select("json").slice(1, 3).rekey("n{index}"),
        ["--match", "a/", "--where", "cls != 0", "-f", "json", "--slice", "1:3", "--rekey", "n{index}"],
    ),
}
ORDERS: dict[str, tuple[Change, list[str]]] = {
    "sort": (lambda data: data.sort(), ["sort"]),
    "sort by": (lambda data: data.sort(by="cls"), ["sort", "-s", "cls"]),
    "sort by two": (lambda data: data.sort(["cls", "json"], "str"), ["sort", "-s", "cls,json", "--type", "str"]),
    "sort json": (lambda data: data.sort("json.w", reverse=True), ["sort", "-s", "json.w", "-r"]),
    "sort natural": (lambda data: data.sort(type="natural"), ["sort", "--type", "natural"]),
    "sort with little memory": (lambda data: data.sort(memory=1 << 20), ["sort", "--memory", "1M"]),
    "shuffle": (lambda data: data.shuffle(seed=3), ["shuffle", "--seed", "3"]),
    "buffer": (lambda data: data.buffer_shuffle(4, seed=3), ["shuffle", "--seed", "3", "--buffer", "4"]),
}  # fmt: skip


def opened(feed: Feed, name: str, **options: Any) -> tarkit.Dataset:
    """Return a dataset over an archive from a feed; a pipe is that of a command, which can be started again."""
    return tarkit.open(f"pipe:cat {name}" if feed.kind == "pipe" else str(feed(name)), **options)


@each_row("step", STEPS)
def test_steps(step: str, feeds: list[Feed], archive: Archive, run: Run) -> None:
    """Chosen and changed samples: written and iterated, from files and streams, as `cat` writes them."""
    name = archive(MANY)
    Path("keys.txt").write_text("b/9\na/4\nnix\n")
    change, words = STEPS[step]
    expected = run("cat", name, *words).stdout
    for feed in feeds:
        data = change(opened(feed, name))
        made = Path("out.tar")
        before = list(MANY)
        shard = data.write(made)
        if "stem" not in "".join(words) or feed.kind == "file":
            assert made.read_bytes() == expected, feed
        found = list(data)
        assert len(found) == shard.samples
        written = [(f"{each.key}.{field}", content) for each in found for field, content in each.items()]
        assert written == entries(made)
        assert shard.size == len(made.read_bytes())
        assert before == list(MANY)


@each_row("order", ORDERS)
def test_orders(order: str, feeds: list[Feed], archive: Archive, run: Run) -> None:
    """Sorted and shuffled samples, as `sort` and `shuffle` write them."""
    name = archive(MANY)
    change, words = ORDERS[order]
    expected = run(words[0], name, "-o", "-", *words[1:]).stdout
    for feed in feeds:
        data = change(opened(feed, name))
        file = io.BytesIO()
        data.write(file)
        assert file.getvalue() == expected, feed
        assert [(f"{e.key}.{field}", content) for e in data for field, content in e.items()] == entries(expected)


@each_row(("step", "order"), [(step, order) for step in STEPS for order in ORDERS if not step.startswith("where")])
def test_orders_of_changed_samples(step: str, order: str, archive: Archive, run: Run) -> None:
    """What is chosen and changed before a sort or a shuffle, as `cat` in front of the command does."""
    name = archive(MANY)
    Path("keys.txt").write_text("b/9\na/4\nnix\n")
    (change, words), (arrange, command) = STEPS[step], ORDERS[order]
    run("cat", name, *words, "-o", "changed.tar")
    ran = run(command[0], "changed.tar", "-o", "-", *command[1:], exit=None)
    expected = ran.stdout if ran.status == 0 else None
    try:
        arrange(change(tarkit.open(name))).write("out.tar")
    except tarkit.Problem:
        assert expected is None
    else:
        assert Path("out.tar").read_bytes() == expected


def test_public_names(archive: Archive) -> None:
    """`dir` has the documented methods alone, and each of them is there."""
    data = tarkit.open(archive(MANY))
    for each in (data, data.decode(), data.select("cls"), tarkit.mix([data], 1)):
        assert {"select", "sort", "write", "map", "decode"} < set(dir(each))
        assert not {"then", "steps", "pieces", "samples", "new_run", "filter_samples", "origin", "of"} & set(dir(each))
        for name in dir(each):
            assert not name.startswith("_")
            assert getattr(each, name).__doc__


@each_row("number", [100, 500, 1000, 1024, 5000, 10000])
def test_a_seed_that_looks_like_a_buffer(number: int, archive: Archive) -> None:
    """A warning names both arguments; a seed that is named does not warn, nor another number."""
    data = tarkit.open(archive(MANY))
    with pytest.warns(
        tarkit.TarkitWarning, match=rf"is a buffer of {number} samples meant\? That is buffer_shuffle"
    ) as said:
        warned = data.shuffle(number)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keys = [sample.key for sample in data.shuffle(seed=number)]
        for seed in (0, 7, 42, 99, 101, 1234, 2026, 123456):
            data.shuffle(seed)
    assert [sample.key for sample in warned] == keys


def test_arguments_of_a_buffer(archive: Archive) -> None:
    """The arguments of webdataset's `shuffle` are an error that names the method."""
    data = tarkit.open(archive(MANY))
    for options in ({"bufsize": 100}, {"buffer_size": 10, "seed": 1}):
        with pytest.raises(TypeError, match=r"a buffer is buffer_shuffle\(size, seed\)"):
            data.shuffle(**options)  # type: ignore[arg-type]


MISSING: dict[str, Callable[[], object]] = {
    "name": lambda: tarkit.open("no.tar"),
    "braces": lambda: tarkit.open("no-{0..3}.tar"),
    "list": lambda: tarkit.open(["in.tar", "no.tar"]),
    "file:": lambda: tarkit.open("file:no.tar"),
    "stats": lambda: tarkit.stats("no.tar"),
    "check": lambda: tarkit.check("no.tar"),
    "index": lambda: tarkit.index("no.tar", "tsv"),
    "loader": lambda: tarkit.loader("no.tar"),
    "mix": lambda: tarkit.mix("no.yaml", 1),
    "source of a mix": lambda: tarkit.mix([{"shards": "no.tar"}], 1),
    "table": lambda: tarkit.create("no.csv", "out.tar"),
    "order": lambda: list(tarkit.open("in.tar").sort(order_file="no.txt")),
    "removed": lambda: _without("in.tar"),
}


def _without(name: str) -> list[tarkit.Sample]:
    data = tarkit.open(name)
    os.unlink(name)
    return list(data)


@each_row("call", MISSING)
def test_inputs_that_do_not_exist(call: str, archive: Archive) -> None:
    """The error is a FileNotFoundError and a TarkitError, with the message of the command line."""
    archive(MANY)
    with pytest.raises(FileNotFoundError, match=r"in\.tar|no") as raised:
        MISSING[call]()
    error = raised.value
    assert isinstance(error, tarkit.TarkitError)
    assert error.errno == errno.ENOENT
    assert str(error.filename) in str(error)


def test_epochs(archive: Archive, run: Run) -> None:
    """Each has an order of its own, that of the command."""
    name = archive(MANY)
    run("shuffle", name, "--seed", "3", "--epochs", "3", "-c", "99", "-o", "e{epoch}-%d.tar")
    for epoch in range(3):
        assert tarkit.open(name).shuffle(3, epoch=epoch).write("out.tar").samples == 10
        assert Path("out.tar").read_bytes() == Path(f"e{epoch}-0.tar").read_bytes()


def test_scattered_samples_come_together(archive: Archive) -> None:
    """`sort` joins the parts of a sample, large or small."""
    for size in (1, 2 << 20):
        archive([("b.x", b"1" * size), ("a.x", b"2"), ("b.y", b"3" * size), ("a.y", b"4"), ("b.z", b"5")])
        for given in ("in.tar", "pipe:cat in.tar"):
            found = [(each.key, dict(each), each.sizes) for each in tarkit.open(given).sort()]
            expected = [
                ("a", {"x": b"2", "y": b"4"}),
                ("b", {"x": b"1" * size, "y": b"3" * size, "z": b"5"}),
            ]
            assert [each[:2] for each in found] == expected
            assert found[1][2] == {"x": size, "y": size, "z": 1}


def test_parts_in_two_archives(archive: Archive) -> None:
    """Parts in two archives are joined if that is allowed."""
    names = [archive({"a.x": b"1", "b.x": b"2"}, "1.tar"), archive({"b.y": b"3", "c.x": b"4"}, "2.tar")]
    with pytest.raises(tarkit.Problem, match="joined-sample"):
        list(tarkit.open(names).sort())
    found = [(each.key, dict(each)) for each in tarkit.open(names, allow=["joined-sample"]).sort()]
    assert found == [("a", {"x": b"1"}), ("b", {"x": b"2", "y": b"3"}), ("c", {"x": b"4"})]


def test_steps_make_new_datasets(archive: Archive) -> None:
    """A step leaves its dataset unchanged, so that several steps can share it."""
    data = tarkit.open(archive(MANY))
    a, numbered = data.match("^a/"), data.rekey("{index}")

    assert len(list(data)) == 10
    assert {each.key[0] for each in a} == {"a"}
    for _ in range(2):
        assert [each.key for each in numbered] == [str(i) for i in range(10)]
        assert [each.key for each in zip_first(numbered)] == ["0", "0", "1", "1"]
    assert len(list(a)) == 4


def zip_first(data: tarkit.Dataset) -> list[tarkit.Sample]:
    """Return the first two samples of two alternating iterators, which are then abandoned."""
    first, second = iter(data), iter(data)
    return [next(first), next(second), next(first), next(second)]


def test_a_random_choice_is_the_same_each_time(archive: Archive) -> None:
    """Runs that are not finished change nothing."""
    data = tarkit.open(archive(MANY)).sample(0.5, seed=3).shuffle(seed=1).buffer_shuffle(3, seed=2)
    first = [each.key for each in data]
    next(iter(data))
    assert [each.key for each in data] == first
    assert 0 < len(first) < 10


def test_head(archive: Archive) -> None:
    """The first samples, all if there are fewer."""
    data = tarkit.open(archive(MANY))
    assert [each.key for each in data.head()] == ["b/3"]
    assert [each.key for each in data.head(3)] == ["b/3", "b/1", "a/4"]
    assert data.head(0) == []
    assert len(data.head(99)) == 10
    with pytest.raises(tarkit.Usage, match="at least 0"):
        data.head(-1)


def test_keys_that_are_not_there(archive: Archive) -> None:
    """If no key is found and a file was named, a warning has the key of its sample. Each run counts separately."""
    told: list[str] = []
    data = tarkit.open(archive(MANY), on_problem=told.append)
    for _ in range(2):
        assert list(data.keys(["a/4.JPG"])) == []
    assert told == ["keys: no sample has the key 'a/4.JPG'; did you mean 'a/4'?"] * 2
    wanted = data.keys(["a/4"])
    assert [[each.key for each in wanted] for _ in range(2)] == [["a/4"]] * 2


def test_missing_fields(archive: Archive) -> None:
    """The error of `select` and `require` names the field; on_missing determines the effect."""
    data = tarkit.open(archive({"a.x": b"1", "b.x": b"2", "b.y": b"3"}), on_problem=(told := []).append)
    for asked in (data.select("x y"), data.require("y")):
        with pytest.raises(tarkit.Problem) as error:
            list(asked)
        assert error.value.name == "missing-field"
    assert [each.key for each in data.require("y", on_missing="skip")] == ["b"]
    assert [each.key for each in data.require("y", on_missing="keep")] == ["a", "b"]
    assert told == []
    assert [each.key for each in data.require("y", on_missing="warn")] == ["a", "b"]
    assert len(told) == 1


WRONG: dict[str, Callable[[tarkit.Dataset], object]] = {
    "where": lambda data: data.where("cls =="),
    "where calls": lambda data: data.where("__import__('os')"),
    "match": lambda data: data.match("("),
    "sample": lambda data: data.sample(1.5, seed=1),
    "slice": lambda data: data.slice(-1),
    "slice step": lambda data: data.slice(0, 3, -1),
    "rekey": lambda data: data.rekey("{nix}"),
    "sort type": lambda data: data.sort(type="nix"),  # type: ignore[arg-type]
    "columns": lambda data: data.table("t.tsv", "a:"),
    "compress": lambda data: data.write("x.tar", compress="nix"),
    "on_missing": lambda data: data.require("x", on_missing="nix"),  # type: ignore[arg-type]
    "table on_missing": lambda data: data.table("t", on_missing="nix"),  # type: ignore[arg-type]
    "format": lambda data: data.table("t", format="nix"),  # type: ignore[arg-type]
    "size_rule": lambda data: data.split("x-%d.tar", size_rule="nix"),  # type: ignore[arg-type]
    "until": lambda data: tarkit.mix([data], seed=1, until="nix"),  # type: ignore[arg-type]
    "template": lambda data: data.split("x-%d-%d.tar", count=1),
    "size": lambda data: data.split("x-%d.tar", size="10Q"),
    "size of 0": lambda data: data.split("x-%d.tar", size=0),
    "count of 0": lambda data: data.split("x-%d.tar", count=0),
    "max_shards": lambda data: data.split("x-%d.tar", max_shards=0),
    "start": lambda data: data.split("x-%d.tar", start=-1),
    "interleave": lambda data: tarkit.open("in.tar", interleave=0),
    "prefetch": lambda data: tarkit.open("in.tar", prefetch=-1),
    "maxerr": lambda data: tarkit.open("in.tar", maxerr=-1),
    "buffer": lambda data: data.buffer_shuffle(0, seed=1),
    "memory of a sort": lambda data: data.sort(memory=100),
    "memory of a shuffle": lambda data: data.shuffle(1, memory=-1),
    "total": lambda data: tarkit.mix([data], seed=1, total=-1),
    "weight": lambda data: tarkit.mix([(data, float("nan"))], seed=1),
    "stdout": lambda data: data.split("-", count=1),
}


@each_row("call", WRONG)
def test_wrong_arguments(call: str, archive: Archive) -> None:
    """Wrong arguments are refused by the call, with a usage error, and nothing is written."""
    data = tarkit.open(archive(MANY))
    with pytest.raises(tarkit.Usage):
        WRONG[call](data)
    assert os.listdir() == ["in.tar"]


def test_a_rekey_that_makes_no_key(archive: Archive) -> None:
    """An invalid new key is an error of the run."""
    with pytest.raises(tarkit.TarkitError, match="which is not a key"):
        list(tarkit.open(archive(MANY)).rekey("{key}.x"))


def test_errors_of_a_step_leave_the_dataset_usable(archive: Archive) -> None:
    """The next run starts again from the beginning."""
    data = tarkit.open(archive({"a.json": b"{", "b.json": b"{}"}))
    with pytest.raises(tarkit.Problem) as error:
        data.where("json.x == 1").write("out.tar")
    assert error.value.name == "bad-field"
    assert os.listdir() == ["in.tar"]
    assert [each.key for each in data] == ["a", "b"]


# ---- Write


@each_row("name", ["out.tar", "out.tar.gz", "out.tar.zst", "out.tar.xz", "out.zip"])
def test_write_as_cat_does(name: str, archive: Archive, run: Run) -> None:
    """The suffix determines the compression."""
    archive(MANY)
    run("cat", "in.tar", "-o", name)
    expected = Path(name).read_bytes()
    os.unlink(name)

    shard = tarkit.open("in.tar").write(Path(name))

    assert Path(name).read_bytes() == expected
    assert (shard.name, shard.samples, shard.first, shard.last) == (name, 10, b"b/3", b"a/8")
    assert [dict(each) for each in tarkit.open(name)] == [dict(each) for each in tarkit.open("in.tar")]


def test_write_to_other_outputs(archive: Archive) -> None:
    """An output may be a command or a file object, which stays open; a codec may be given for any name."""
    data = tarkit.open(archive(MANY))
    data.write("pipe:cat > out.tar")
    assert Path("out.tar").read_bytes() == tar(MANY)
    file = io.BytesIO(b"")
    assert data.write(file).name == "a file object"
    assert file.getvalue() == tar(MANY)
    with open("f.tar", "wb") as opened_file:
        data.write(opened_file, compress="gz:1")
        assert not opened_file.closed
    assert Path("f.tar").read_bytes()[:2] == b"\x1f\x8b"
    data.write("synced.tar", fsync=True)
    assert Path("synced.tar").read_bytes() == tar(MANY)
    with pytest.raises(tarkit.TarkitError, match="ended with status 3"):
        data.write("pipe:cat > /dev/null; exit 3")


def test_an_archive_is_not_written_over_itself(archive: Archive) -> None:
    """An output that is an input, by name or by a link, is refused."""
    data = tarkit.open(archive(MANY))
    os.symlink("in.tar", "link.tar")
    for name in ("in.tar", "link.tar", "./in.tar"):
        with pytest.raises(tarkit.Usage, match="is both input and output"):
            data.write(name)
    with pytest.raises(tarkit.Usage, match="is an input"):
        tarkit.open(archive(MANY, "s-0.tar")).split("s-%d.tar", count=1, force=True)
    assert Path("in.tar").read_bytes() == tar(MANY)


def test_an_error_leaves_nothing(archive: Archive) -> None:
    """There is no output and no temporary file; complete shards are kept, as by the command."""
    Path("tmp").mkdir()
    cut = tarkit.open(archive(tar(MANY)[:20000]), tmpdir="tmp")
    for write in (
        lambda: cut.write("out.tar"),
        lambda: cut.write("out.tar.zst"),
        lambda: cut.sort().write("out.tar"),
        lambda: cut.table("t.tsv"),
        lambda: cut.split("x/%d.tar", count=4),
        lambda: cut.split("s-%d.tar"),
        lambda: cut.extract("out"),
    ):
        with pytest.raises((tarkit.TarkitError, OSError)):
            write()
    assert [path for path in Path().rglob("*") if ".part" in path.name] == []
    assert {path.name for path in Path().iterdir()} <= {"in.tar", "tmp", "out"}
    assert os.listdir("tmp") == []


def test_an_exception_from_outside_leaves_nothing(archive: Archive) -> None:
    """An exception between two samples, such as KeyboardInterrupt, leaves no file."""

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    data = tarkit.open(archive([*MANY.items(), ("b/3.y", b"")]), allow="scattered-sample", on_problem=interrupt)
    for write in (lambda: data.write("o.tar"), lambda: data.split("o-%d.tar"), lambda: data.table("t.tsv")):
        with pytest.raises(KeyboardInterrupt):
            write()
    assert os.listdir() == ["in.tar"]


SPLITS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "count": ({"count": 3}, ["-c", "3"]),
    "size": ({"size": 10240}, ["-s", "10240"]),
    "size in words": ({"size": "20K", "count": 9}, ["-s", "20K", "-c", "9"]),
    "content": ({"size": 600, "size_rule": "content"}, ["-s", "600", "--size-rule", "content"]),
    "start": ({"count": 4, "start": 7}, ["-c", "4", "--start", "7"]),
    "max_shards": ({"count": 2, "max_shards": 2}, ["-c", "2", "--max-shards", "2"]),
    "no limit": ({}, []),
    "compress": ({"count": 5, "compress": "gz"}, ["-c", "5", "--compress", "gz"]),
}


@each_row("split", SPLITS)
def test_split_as_the_command_does(split: str, archive: Archive, run: Run) -> None:
    """Names, bytes and announcements of shards are those of the command."""
    archive(MANY)
    options, words = SPLITS[split]
    Path("cli").mkdir()
    Path("api").mkdir()
    run("split", "in.tar", "-o", "cli/s-%04d.tar", *words)
    shards = tarkit.open("in.tar").split("api/s-%04d.tar", **options)

    assert contents("api") == contents("cli")
    assert [shard.name for shard in shards] == [f"api/{name}" for name in contents("api")]
    assert all(shard.sha256 and shard.samples and shard.first for shard in shards)


def contents(folder: str) -> dict[str, bytes]:
    """Return names and bytes of the files in a directory."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def test_shards_that_are_there(archive: Archive) -> None:
    """Existing shards are an error, unless they are replaced or appended to; `post` runs for each shard."""
    data = tarkit.open(archive(MANY))
    Path("s").mkdir()
    data.split("s/%d.tar", count=3)
    first = contents("s")
    with pytest.raises(tarkit.TarkitError, match="there are shards of this name") as error:
        data.split("s/%d.tar", count=3)
    assert error.value.hint == "force replaces them; append keeps them, and appends all inputs after them"
    assert contents("s") == first
    assert [each.name for each in data.split("s/%d.tar", count=5, append=True)] == ["s/4.tar", "s/5.tar"]
    data.split("s/%d.tar", count=5, force=True, post="echo {} >> log")
    assert list(contents("s")) == ["0.tar", "1.tar"]
    assert Path("log").read_text() == "s/0.tar\ns/1.tar\n"


TABLES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "default": ({}, []),
    "columns": ({"columns": "cls json.w size.jpg"}, ["-f", "cls json.w size.jpg"]),
    "no key": ({"columns": "cls", "key": False, "header": False}, ["-f", "cls", "--no-key", "--no-header"]),
    **{
        each: ({"columns": "cls", "format": each}, ["-f", "cls", "--format", each]) for each in ("csv", "jsonl", "json")
    },
    "missing": ({"columns": "nix", "on_missing": "skip"}, ["-f", "nix", "--on-missing-field", "skip"]),
}


@each_row("table", TABLES)
def test_tables_as_the_command_writes_them(table: str, archive: Archive, run: Run) -> None:
    """Tables are written to a file and to a file object; the result is the number of rows."""
    name = archive(MANY)
    options, words = TABLES[table]
    expected = run("tsv", name, *words).stdout
    file = io.BytesIO()

    rows = tarkit.open(name).table(file, **options)

    assert file.getvalue() == expected
    assert rows == (0 if table == "missing" else 10)
    tarkit.open(name).table("t", **options)
    assert Path("t").read_bytes() == expected


def test_the_suffix_of_a_table(archive: Archive) -> None:
    """The suffix determines the format."""
    data = tarkit.open(archive(MANY)).slice(0, 2)
    assert data.table("t.csv", "cls") == data.table("t.jsonl.gz", "cls") == data.table("t.parquet", "cls") == 2
    assert Path("t.csv").read_text() == "__key__,cls\nb/3,3\nb/1,1\n"
    assert Path("t.jsonl.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert Path("t.parquet").read_bytes()[:4] == b"PAR1"


@each_feed
def test_extract_as_the_command_does(feed: Feed, archive: Archive, run: Run) -> None:
    """The files are those of the command; existing ones are replaced only with `force`."""
    name = archive(MANY)
    run("extract", name, "-C", "cli")
    data = opened(feed, name)

    assert data.extract("api") == 30
    found = {str(path.relative_to("api")): path.read_bytes() for path in Path("api").rglob("*") if path.is_file()}
    assert found == {
        str(path.relative_to("cli")): path.read_bytes() for path in Path("cli").rglob("*") if path.is_file()
    }
    with pytest.raises(tarkit.TarkitError):
        data.extract("api")
    assert data.match("^a/").extract(Path("api"), force=True) == 12


def test_extract_stays_inside(archive: Archive) -> None:
    """A name that leads out of the directory is an error."""
    with pytest.raises(tarkit.Problem) as error:
        tarkit.open(archive({"../a.x": b"1"}, "in.tar")).extract("out")
    assert error.value.name == "unsafe-name"
    assert not Path("a.x").exists()


def test_times_of_files(archive: Archive) -> None:
    """Those of the entries, the present, or any."""
    data = tarkit.open(archive(MANY))
    name = next(iter(MANY))
    for mtime, expected in (("source", 1234567890), (99, 99), (0, 0), (-5, -5)):
        data.extract("out", force=True, mtime=mtime)  # type: ignore[arg-type]
        assert os.stat(f"out/{name}").st_mtime == expected
    data.extract("out", force=True, mtime="now")
    assert os.stat(f"out/{name}").st_mtime > 1.5e9
    for wrong, kind in (("then", tarkit.Usage), (10**12, tarkit.Usage), (1.5, TypeError)):
        with pytest.raises(kind, match="mtime="):
            data.extract("out", force=True, mtime=wrong)  # type: ignore[arg-type]


def test_progress(archive: Archive, run: Run) -> None:
    """The numbers that --log prints, after each sample."""
    data, seen = tarkit.open(archive(MANY, "in.tar")), list[tuple[int, int]]()
    data.write("out.tar", progress=lambda samples, size: seen.append((samples, size)))
    ran = run("cat", "in.tar", "--log", "1", "-o", "other.tar")
    assert ran.lines == [f"tarkit: {samples} samples, {size} bytes" for samples, size in seen]
    assert Path("out.tar").read_bytes() == Path("other.tar").read_bytes()
    with pytest.raises(TypeError, match="progress=3: a function is needed, not int"):
        data.write("out.tar", progress=3)  # type: ignore[arg-type]


# ---- Order


def test_orders_as_the_command_does(archive: Archive, run: Run) -> None:
    """By key, a field, and a list of keys."""
    archive({f"{name}.{field}": b"1" for name in ("b", "a-1", "a", "B", "a1") for field in ("y", "x")}, "in.tar")
    Path("list").write_text("a1\nB\nb\na\na-1\nc\n")
    data = tarkit.open("in.tar")
    for given, words in (
        ({"by": "__key__"}, "--by __key__"),
        ({"by": "__key__", "type": "natural", "reverse": True}, "--by __key__ -t natural -r"),
        ({"order_file": "list"}, "--order-file list"),
        ({"order_file": Path("list")}, "--order-file list"),
    ):
        data.sort(**given).write("out.tar")
        run("sort", "in.tar", "-o", "expected.tar", *words.split())
        assert Path("out.tar").read_bytes() == Path("expected.tar").read_bytes()
        assert tarkit.open("out.tar").find_disorder(**given) is None
        found = data.find_disorder(**given)
        assert found is not None
        ran = run("sort", "in.tar", "--check-only", *words.split(), exit=1)
        said = f"in.tar: at {found.offset}: '{found.after.decode()}' is out of order after '{found.before.decode()}'"
        assert ran.lines[0] == f"tarkit: {said}"
        assert data.head(found.position + 1)[-1].key == found.after.decode()
    Path("list").write_text("a\nb\n")
    with pytest.raises(tarkit.TarkitError, match="'B' is not in list"):
        list(data.sort(order_file="list"))


def test_disorder_behind_steps(archive: Archive) -> None:
    """The samples that the steps leave are looked at, with the problems that a sort has."""
    archive({"c.x": b"1", "a.x": b"2", "b.y": b"3"}, "in.tar")
    data = tarkit.open("in.tar")
    assert data.match("[ab]").find_disorder() is None
    with pytest.raises(tarkit.Problem, match="missing-field"):
        data.find_disorder(by="x")
    assert tarkit.open("in.tar", allow="missing-field").slice(2).find_disorder(by="x") is None


def test_epochs_as_the_command_does(archive: Archive, run: Run) -> None:
    """A loop over epoch."""
    archive(MANY, "in.tar")
    run("shuffle", "in.tar", "--seed", "3", "--epochs", "3", "-o", "e{epoch}.tar")
    for epoch in range(3):
        tarkit.open("in.tar").shuffle(3, epoch=epoch).write("out.tar")
        assert Path("out.tar").read_bytes() == Path(f"e{epoch}.tar").read_bytes()
