"""Wrong arguments of the API, and arguments in several forms: one clear error, no internal traceback."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Archive

Call = Callable[[tarkit.Dataset], Any]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tarkit.Dataset:
    """Make ten samples with the fields txt and cls, in a.tar of the current directory."""
    monkeypatch.chdir(tmp_path)
    with tarkit.TarWriter("a.tar") as out:
        for number in range(10):
            out.write(f"{number:02}", {"txt": "x", "cls": number % 2})
    return tarkit.open("a.tar")


WRONG: dict[str, tuple[Call, type[Exception], str]] = {
    "target": (lambda data: tarkit.check("a.tar", target="torch"), tarkit.Usage, "target='torch': it is one of"),  # type: ignore[arg-type]
    "target of a dataset": (lambda data: data.check(target="torch"), tarkit.Usage, "target='torch'"),  # type: ignore[arg-type]
    "rejects alone": (lambda data: tarkit.check("a.tar", rejects="r.tar"), tarkit.Usage, "rejects requires fix"),
    "fix in parallel": (lambda data: tarkit.check("a.tar", fix="f.tar", processes=2), tarkit.Usage, "fix cannot be"),
    "same_as and more": (lambda data: tarkit.check("a.tar", same_as="a.tar", unique=True), tarkit.Usage, "same_as"),
    "template": (lambda data: data.write("x-%06d.tar"), tarkit.Usage, "%06d numbers a series of files"),
    "template as path": (lambda data: data.write(Path("x-%06d.tar")), tarkit.Usage, "%06d numbers"),
    "template of a writer": (lambda data: tarkit.TarWriter("x-{00..10}.tar"), tarkit.Usage, "numbers a series"),
    "template of a table": (lambda data: data.table("x-%06d.csv"), tarkit.Usage, "numbers a series"),
    "function as expression": (lambda data: data.where(lambda s: True), TypeError, "for a function use map"),  # type: ignore[arg-type]
    "seed": (lambda data: data.shuffle(seed="x"), TypeError, "seed='x': a whole number is needed, not str"),  # type: ignore[arg-type]
    "no seed": (lambda data: data.shuffle(None), TypeError, "seed=None: a whole number"),  # type: ignore[arg-type]
    "seed 1.5": (lambda data: data.shuffle(1.5), TypeError, "seed=1.5: a whole number"),  # type: ignore[arg-type]
    "epoch": (lambda data: data.shuffle(1, epoch="2"), TypeError, "epoch='2'"),  # type: ignore[arg-type]
    "seed of a buffer": (lambda data: data.buffer_shuffle(5, seed="x"), TypeError, "seed='x'"),  # type: ignore[arg-type]
    "seed of a part": (lambda data: data.sample(0.5, seed="x"), TypeError, "seed='x'"),  # type: ignore[arg-type]
    "count of split": (lambda data: data.split("x-%d.tar", count="10"), TypeError, "count='10'"),  # type: ignore[arg-type]
    "count of shard": (lambda data: tarkit.shard(".", count="10"), TypeError, "count='10'"),  # type: ignore[arg-type]
    "names in a mix": (lambda data: tarkit.mix(["a.tar", "b.tar"], seed=1), TypeError, r"pairs \(dataset, weight\)"),  # type: ignore[list-item]
    "weight first": (lambda data: tarkit.mix([(2, data)], seed=1), TypeError, r"pairs \(dataset, weight\)"),  # type: ignore[list-item]
    "a mix of one": (lambda data: tarkit.mix(data, seed=1), TypeError, r"pairs \(dataset, weight\)"),  # type: ignore[arg-type]
    "seed of a mix": (lambda data: tarkit.mix([data], seed="x"), TypeError, "seed='x'"),  # type: ignore[arg-type]
    "head": (lambda data: data.head(-1), tarkit.Usage, "count=-1: it is at least 0"),
    "head of text": (lambda data: data.head("1"), TypeError, "count='1'"),  # type: ignore[arg-type]
    "shard_slice": (lambda data: tarkit.open("a.tar", shard_slice=3), TypeError, "shard_slice=3: a slice is needed"),  # type: ignore[arg-type]
    "number as output": (lambda data: data.write(3), TypeError, "a path or a binary file object, not int"),  # type: ignore[arg-type]
    "text file": (lambda data: data.write(io.StringIO()), tarkit.Usage, "a text file"),  # type: ignore[arg-type]
    "number as field": (lambda data: data.select(3), TypeError, "fields=3: a str or a list of str is needed"),  # type: ignore[arg-type]
    "numbers as keys": (lambda data: data.keys([1, 2]), TypeError, r"keys=\[1, 2\]: a str or a list of str"),  # type: ignore[list-item]
    "share": (lambda data: data.sample("x", 1), TypeError, "share='x': a number is needed, not str"),  # type: ignore[arg-type]
    "share of 2": (lambda data: data.sample(2, 1), tarkit.Usage, "share=2: it is from 0 to 1"),
    "slice": (lambda data: data.slice("a"), TypeError, "start='a': a whole number is needed, not str"),  # type: ignore[arg-type]
    "stop": (lambda data: data.slice(0, "a"), TypeError, "stop='a': a whole number is needed"),  # type: ignore[arg-type]
    "no step": (lambda data: data.slice(0, 3, 0), tarkit.Usage, "with a step of at least 1"),
    "pattern": (lambda data: data.match(3), TypeError, "pattern=3: a str is needed, not int"),  # type: ignore[arg-type]
    "no pattern": (lambda data: data.match(None), TypeError, "pattern=None: a str is needed"),  # type: ignore[arg-type]
    "rekey": (lambda data: data.rekey(3), TypeError, "template=3: a str is needed, not int"),  # type: ignore[arg-type]
    "stats": (lambda data: data.stats(by=3), TypeError, "by=3: a str is needed, not int"),  # type: ignore[arg-type]
    "stats of names": (lambda data: tarkit.stats("a.tar", by=3), TypeError, "by=3: a str is needed"),  # type: ignore[arg-type]
    "timeout": (lambda data: data.map(dict, timeout="x"), TypeError, "timeout='x': a number is needed"),  # type: ignore[arg-type]
    "command": (lambda data: data.proc(3), TypeError, "command=3: a str is needed, not int"),  # type: ignore[arg-type]
    "size of split": (lambda data: data.split("x-%d.tar", size=1.5), TypeError, "size=1.5: a whole number"),  # type: ignore[arg-type]
    "sort by nothing": (lambda data: data.sort(by=[]), tarkit.Usage, "by names no field"),
    "sort by a number": (lambda data: data.sort(by=3), TypeError, "by=3: a str or a list of str is needed"),  # type: ignore[arg-type]
    "order_file": (lambda data: data.sort("cls", order_file="x"), tarkit.Usage, "order_file cannot be used with by"),
    "no order_file": (lambda data: data.sort(order_file="x"), tarkit.TarkitError, "x: No such file or directory"),
    "find_disorder": (lambda data: data.find_disorder(type="x"), tarkit.Usage, "type='x': it is one of"),  # type: ignore[arg-type]
    "number of a sample": (lambda data: data.indexed()[10000], IndexError, "no sample 10000: the dataset has 10"),
    "negative number": (lambda data: data.indexed()[-11], IndexError, "no sample -11: the dataset has 10"),
    "field": (lambda data: data.head()[0]["jpg"], KeyError, "jpg: no such field; the sample 00 has txt, cls"),
}  # fmt: skip


@each_row("case", WRONG)
def test_wrong_arguments(data: tarkit.Dataset, case: str) -> None:
    """The error is one line, raised by the call."""
    call, kind, text = WRONG[case]

    with pytest.raises(kind, match=text):
        call(data)


def test_hints(data: tarkit.Dataset) -> None:
    """The hint has the correct argument; nothing is written."""
    with pytest.raises(tarkit.Usage) as template:
        data.write("x-%06d.tar")
    with open("t", "w") as file, pytest.raises(tarkit.Usage) as text:
        data.write(file)  # type: ignore[arg-type]

    assert "use .split()" in str(template.value.hint)
    assert text.value.hint == "open it in mode 'wb'"
    assert not list(Path().glob("x-*"))
    assert data.write("file:x-%06d.tar").samples == 10


FIELDS: dict[str, tuple[Any, type[Exception], str]] = {
    "pairs": ([("txt", "x")], TypeError, "a dict of names and values, not list"),
    "dot": ({".txt": "x"}, tarkit.Usage, "invalid name of a field: '.txt'"),
    "key": ({"__key__": "b"}, tarkit.Usage, "invalid name of a field: '__key__'"),
}


@each_row("case", FIELDS)
def test_wrong_fields_of_a_writer(tmp_path: Path, case: str) -> None:
    """Nothing of the sample is written, and the next one can follow."""
    fields, kind, text = FIELDS[case]

    with tarkit.TarWriter(tmp_path / "a.tar") as out:
        with pytest.raises(kind, match=text):
            out.write("a", fields)
        out.write("a", {"txt": "x"})
    assert [dict(each) for each in tarkit.open(tmp_path / "a.tar")] == [{"txt": b"x"}]


SAME: dict[str, tuple[Call, Call]] = {
    "select": (lambda data: data.select("cls txt"), lambda data: data.select(["cls", "txt"])),
    "mix of lists": (lambda data: tarkit.mix([(data, 2)], 1), lambda data: tarkit.mix([[data, 2]], 1)),  # type: ignore[list-item]
    "select words": (lambda data: data.select("cls txt"), lambda data: data.select("cls", "txt")),
    "drop": (lambda data: data.drop("cls", "txt"), lambda data: data.drop(["cls", "txt"])),
    "require": (lambda data: data.require("cls", "txt"), lambda data: data.require(["cls", "txt"])),
    "require commas": (lambda data: data.require("cls", "txt"), lambda data: data.require("cls,txt")),
}


@each_row("case", SAME)
def test_words_and_lists(data: tarkit.Dataset, case: str) -> None:
    """A list is equivalent to a str with names."""
    one, other = SAME[case]

    assert [list(each.items()) for each in one(data)] == [list(each.items()) for each in other(data)]


def test_columns_as_a_list(data: tarkit.Dataset) -> None:
    """A list of columns is equivalent to a str with spaces."""
    assert data.table("x.csv", ["cls", "txt"]) == data.table("y.csv", "cls txt") == 10

    assert Path("x.csv").read_bytes() == Path("y.csv").read_bytes()


def test_names_of_problems_and_fields(data: tarkit.Dataset) -> None:
    """A str is one name, or several with commas; a key may contain a comma."""
    whole = Path("a.tar").read_bytes()
    Path("cut.tar").write_bytes(whole[:3000])

    assert [each.name for each in tarkit.check("a.tar", require="png")] == ["missing-field"] * 10
    assert [each.name for each in tarkit.check("a.tar", require="png,txt")] == ["missing-field"] * 10
    for allow in ("truncated", "truncated,bad-header", ["truncated", "bad-header"]):
        assert tarkit.check("cut.tar", allow=allow).ok
        assert data.__class__ is tarkit.open("cut.tar", allow=allow).__class__
    with pytest.warns(tarkit.TarkitWarning):
        assert len(list(tarkit.open("cut.tar", skip="truncated, bad-header"))) == 1
    assert not list(data.keys("00,01"))


def test_templates_may_be_paths(data: tarkit.Dataset, tmp_path: Path) -> None:
    """Templates of split, ShardWriter and shard may be paths."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("x")

    assert len(data.split(tmp_path / "s-%d.tar", count=5)) == 2
    with tarkit.ShardWriter(tmp_path / "w-%d.tar") as out:
        out.write("a", {"txt": "x"})
    assert [shard.name for shard in tarkit.shard("tree", tmp_path / "p-%d.tar")] == [str(tmp_path / "p-0.tar")]


def test_nothing_is_left(data: tarkit.Dataset) -> None:
    """If no sample is left the warnings are those of the commands."""

    def fail(sample: tarkit.Sample) -> None:
        raise ValueError

    said: list[str] = []
    data = tarkit.open("a.tar", on_problem=said.append)
    data.map(lambda sample: None).write("b.tar")
    data.proc("rm sample.*").write("c.tar")
    assert said == [
        "nothing is left of 10 samples: the function returned None: does it return them?",
        "nothing is left of 10 samples: the command left no file sample.*",
    ]
    data.map(fail, on_error="skip").write("d.tar")
    assert said[-1] == "nothing is left of 10 samples: all failed"
    assert data.stats(by="class").missing == 10
    assert said[-1] == "no sample has 'class'"
    said.clear()
    data.map(lambda sample: None if sample.key < "05" else sample).write("e.tar")
    assert not said


def test_repr(data: tarkit.Dataset) -> None:
    """The repr is short: the number of inputs, and the steps."""
    Path("bad.tar").write_bytes(b"x" * 1000)
    chain = (
        data.where("cls == 1").match("0").keys("01").sample(1, seed=1).slice(0).select("txt").drop("x").require("txt")
    )
    chain = chain.rekey("{key}").sort().shuffle(1).buffer_shuffle(3, 1).map(dict).proc("true")
    steps = "where, match, keys, sample, slice, select, drop, require, rekey, sort, shuffle, buffer_shuffle, map, proc"

    assert repr(data) == "<tarkit.Dataset of 1 input>"
    assert repr(chain) == f"<tarkit.Dataset of 1 input: {steps}>"
    assert repr(tarkit.open(["a.tar", "bad.tar"])) == "<tarkit.Dataset of 2 inputs>"
    report = tarkit.check(["a.tar", "bad.tar"])
    assert repr(report) == "<tarkit.Report: 1 of 2 shards bad>"
    assert report.bad == ["bad.tar"]


@pytest.mark.forks
def test_check_uses_the_directory_of_the_dataset(archive: Archive) -> None:
    """For temporary files, as all methods of the dataset do."""
    names = [archive({f"{number}.x": b"1"}, f"{number}.tar") for number in range(2)]
    Path("tmp").mkdir()
    data = tarkit.open(names, tmpdir="tmp")
    assert data.check(processes=2).ok
    Path("tmp").rmdir()
    with pytest.raises(FileNotFoundError):
        data.check(processes=2)


@pytest.mark.forks
@pytest.mark.parametrize("processes", [1, 2])
def test_missing_field_in_a_function(data: tarkit.Dataset, processes: int) -> None:
    """The message has the line in the function, not one of tarkit."""

    def read_picture(sample: tarkit.Sample) -> dict[str, bytes]:
        return {"txt": sample["jpg"]}

    with pytest.raises(tarkit.TarkitError, match=r"test_arguments\.py.*no such field; the sample 00 has txt, cls"):
        data.map(read_picture, processes=processes).head()
