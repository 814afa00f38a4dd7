"""The methods of a dataset: what they write is what the command line writes, byte for byte."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path

import pytest

import tarkit
from tarkit.sizes import plural
from tests._tools import each_row
from tests.api._inputs import MANY
from tests.conftest import Archive, Run, tar


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


def test_epochs(archive: Archive, run: Run) -> None:
    """Each has an order of its own, that of the command."""
    name = archive(MANY)
    run("shuffle", name, "--seed", "3", "--epochs", "3", "-c", "99", "-o", "e{epoch}-%d.tar")
    for epoch in range(3):
        assert tarkit.open(name).shuffle(3, epoch=epoch).write("out.tar").samples == 10
        assert Path("out.tar").read_bytes() == Path(f"e{epoch}-0.tar").read_bytes()


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


def test_keys_that_are_not_there(archive: Archive) -> None:
    """If no key is found and a file was named, a warning has the key of its sample. Each run counts separately."""
    told: list[str] = []
    data = tarkit.open(archive(MANY), on_problem=told.append)
    for _ in range(2):
        assert list(data.keys(["a/4.JPG"])) == []
    assert told == ["keys: no sample has the key 'a/4.JPG'; did you mean 'a/4'?"] * 2
    wanted = data.keys(["a/4"])
    assert [[each.key for each in wanted] for _ in range(2)] == [["a/4"]] * 2


def test_errors_of_a_step_leave_the_dataset_usable(archive: Archive) -> None:
    """The next run starts again from the beginning."""
    data = tarkit.open(archive({"a.json": b"{", "b.json": b"{}"}))
    with pytest.raises(tarkit.Problem) as error:
        data.where("json.x == 1").write("out.tar")
    assert error.value.name == "bad-field"
    assert os.listdir() == ["in.tar"]
    assert [each.key for each in data] == ["a", "b"]


# ---- Write


def test_write_to_a_file_object(archive: Archive) -> None:
    """It stays open; a codec may be given."""
    data = tarkit.open(archive(MANY))
    file = io.BytesIO(b"")
    shard = data.write(file)
    assert (shard.name, shard.first, shard.last) == ("a file object", b"b/3", b"a/8")
    assert file.getvalue() == tar(MANY)
    with open("f.tar", "wb") as opened_file:
        data.write(opened_file, compress="gz:1")
        assert not opened_file.closed
    assert Path("f.tar").read_bytes()[:2] == b"\x1f\x8b"
    assert data.table(rows := io.BytesIO(), "cls") == 10
    assert rows.getvalue().count(b"\n") == 11


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


def test_times_of_files(archive: Archive) -> None:
    """Those of the entries, the present, or any."""
    data = tarkit.open(archive(MANY))
    name = next(iter(MANY))
    for mtime, expected in (("source", 1234567890), (99, 99), (0, 0), (-5, -5)):
        data.extract("out", force=True, mtime=mtime)  # type: ignore[arg-type]
        assert os.stat(f"out/{name}").st_mtime == expected
    data.extract("out", force=True, mtime="now")
    assert os.stat(f"out/{name}").st_mtime > 1.5e9


def test_progress(archive: Archive, run: Run) -> None:
    """The numbers that --log prints, after each sample."""
    data, seen = tarkit.open(archive(MANY, "in.tar")), list[tuple[int, int]]()
    data.write("out.tar", progress=lambda samples, size: seen.append((samples, size)))
    ran = run("cat", "in.tar", "--log", "1", "-o", "other.tar")
    assert ran.lines == [f"tarkit: {plural(samples, 'sample')}, {size} bytes" for samples, size in seen]
    assert Path("out.tar").read_bytes() == Path("other.tar").read_bytes()


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


def test_disorder_behind_steps(archive: Archive) -> None:
    """The samples that the steps leave are looked at, with the problems that a sort has."""
    archive({"c.x": b"1", "a.x": b"2", "b.y": b"3"}, "in.tar")
    data = tarkit.open("in.tar")
    assert data.match("[ab]").find_disorder() is None
    with pytest.raises(tarkit.Problem, match="missing-field"):
        data.find_disorder(by="x")
    assert tarkit.open("in.tar", allow="missing-field").slice(2).find_disorder(by="x") is None
