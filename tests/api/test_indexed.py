"""Access by number and key, `tarkit.check` and `tarkit.index`."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

import tarkit
from tests._odd import odd_archive
from tests._tools import each_row, samples_of
from tests.conftest import Archive, Run, tar

SHARDS = {
    f"{shard}.tar": {f"{shard}/{i}.{field}": f"{shard}{i}{field}".encode() * 99 for i in range(50) for field in "xy"}
    for shard in "ab"
}


@pytest.fixture
def indexed(archive: Archive) -> tarkit.IndexedDataset:
    """Return two shards of fifty samples each."""
    return tarkit.open([archive(members, name) for name, members in SHARDS.items()]).indexed()


def expected(shard: str, number: int) -> dict[str, bytes]:
    """Return the fields of a sample in them."""
    return {field: SHARDS[f"{shard}.tar"][f"{shard}/{number}.{field}"] for field in "xy"}


def test_by_number(indexed: tarkit.IndexedDataset) -> None:
    """Access by number works as in a list."""
    assert len(indexed) == 100
    places = {0: "a/0", 49: "a/49", 50: "b/0", 99: "b/49", -1: "b/49", -100: "a/0", True: "a/1"}
    for number, key in places.items():
        sample = indexed[number]
        assert (sample.key, sample.shard) == (key, f"{key[0]}.tar")
        assert dict(sample) == expected(key[0], int(key[2:]))
    for number in (100, -101):
        with pytest.raises(IndexError):
            indexed[number]
    with pytest.raises(TypeError):
        indexed[1.0]  # type: ignore[call-overload]
    assert [each.key for each in indexed[48:52]] == ["a/48", "a/49", "b/0", "b/1"]
    assert [each.key for each in indexed[::-40]] == ["b/49", "b/9", "a/19"]
    assert indexed[200:] == []


def test_by_key(indexed: tarkit.IndexedDataset) -> None:
    """Access by key works as in a dict."""
    assert dict(indexed["b/7"]) == expected("b", 7)
    assert "a/7" in indexed
    assert "a/7.x" not in indexed
    assert 7 not in indexed
    assert indexed.keys()[:2] == ["a/0", "a/1"]
    with pytest.raises(KeyError, match="c/1"):
        indexed["c/1"]


def test_as_the_dataset(indexed: tarkit.IndexedDataset) -> None:
    """Samples and order are those of the dataset, also in reverse and with alternating iterators."""
    data = list(tarkit.open(["a.tar", "b.tar"]))
    found = [(each.key, each.offset, dict(each)) for each in indexed]
    assert found == [(each.key, each.offset, dict(each)) for each in data]
    assert [each.key for each in reversed(indexed)] == [each.key for each in data][::-1]
    assert all(one.key == other.key for one, other in zip(indexed, indexed, strict=True))


@pytest.mark.slow
def test_threads_share_it(indexed: tarkit.IndexedDataset) -> None:
    def look(number: int) -> bool:
        shard, place = "ab"[number % 2], number * 7 % 50
        return dict(indexed[f"{shard}/{place}"]) == expected(shard, place)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(look, range(3000)))


def described(sample: tarkit.Sample) -> object:
    """Return all that a sample says of itself, or the error of its contents."""
    try:
        contents: object = list(sample.items())
    except tarkit.Problem as error:
        contents = str(error)
    row = sample._sample.row
    value = None if row is None else row.value("cls")
    return sample.key, sample.shard, sample.offset, contents, sample.sizes, value


@pytest.mark.filterwarnings("ignore::tarkit.TarkitWarning")
@pytest.mark.parametrize("seed", range(20))
def test_many_are_as_one_by_one(seed: int, here: Path) -> None:
    """Samples that are read together are those that are looked up one by one: of odd archives, and views of them."""
    draw = Random(seed)
    for name in ("a.tar", "b.tar"):
        plain = [
            (f"{name}/{number}.bin", draw.randbytes(draw.choice((0, 9, 9, 4000, 4000, 300_000, 1 << 20))))
            for number in range(9)
        ]
        Path(name).write_bytes(odd_archive(draw)[:-1024] + tar(plain) if draw.random() < 0.7 else tar(plain))
    data = tarkit.open(["a.tar", "b.tar"], allow="all")
    try:
        made = [data.indexed()]
    except tarkit.Unsupported:  # a global PAX header
        return
    keys = [each.key for each in made[0]]
    if all(map(str.isprintable, keys)):  # in a view keys are UTF-8
        labels = arrow.table({"__key__": arrow.array(keys, arrow.string()), "cls": list(range(len(keys)))})
        parquet.write_table(labels, "labels.parquet")
        view = data.join("labels.parquet", on_duplicate="last") if seed % 2 else data
        view.write("v.view.parquet")
        made.append(tarkit.open("v.view.parquet", allow="all").indexed())
    for indexed in made:
        numbers = draw.choices(range(len(indexed)), k=40)
        found = list(indexed.samples(numbers))
        assert list(map(described, found)) == [described(indexed[number]) for number in numbers]
        copies = pickle.loads(pickle.dumps([each for each in found if not isinstance(described(each)[3], str)]))  # type: ignore[index]
        assert [each.key for each in copies] == [each.key for each in found if not isinstance(described(each)[3], str)]  # type: ignore[index]


def test_values_of_some(here: Path) -> None:
    """Samples of archives and of views without values are read together with those that have values."""
    for name in "ab":
        Path(f"{name}.tar").write_bytes(tar((f"{name}{number:02}.bin", b"B") for number in range(12)))
    Path("labels.csv").write_text("__key__,cls\n" + "".join(f"b{number:02},{number}\n" for number in range(12)))
    tarkit.open("b.tar").join("labels.csv").write("v.view.parquet")
    tarkit.open("a.tar").write("w.view.parquet")
    for inputs in permutations(("a.tar", "v.view.parquet", "w.view.parquet"), 2):
        data = tarkit.open(inputs)
        indexed = data.indexed()
        for step in range(1, len(indexed)):
            numbers = [*range(0, len(indexed), step), *range(len(indexed))]
            assert list(map(described, indexed.samples(numbers))) == [described(indexed[each]) for each in numbers]
        keys = {sample["__key__"] for sample in tarkit.loader(data.where("has(cls)"), shuffle="full")}
        assert keys == {sample.key for sample in data.where("has(cls)")}
        assert len(keys) == (12 if "v.view.parquet" in inputs else 0)


def test_rows_that_are_wrong(here: Path) -> None:
    """Each is refused when it is looked up; the others of a view are as before, one by one and together."""
    Path("a.tar").write_bytes(tar((f"{number:02}.bin", b"%d" % number) for number in range(12)))
    tarkit.open("a.tar").write("v.view.parquet")
    rows = parquet.read_table("v.view.parquet").to_pylist()
    largest = (1 << 63) - 1
    for start, stop in ((9216, 0), (0, -largest), (-largest, largest), (0, largest), (512, 1024), (0, 0)):
        changed = [*rows[:6], {**rows[6], "__start__": start, "__stop__": stop}, *rows[7:]]
        parquet.write_table(arrow.Table.from_pylist(changed), "w.view.parquet")
        indexed = tarkit.open("w.view.parquet").indexed()
        others = [number for number in range(12) if number != 6]
        assert [sample["bin"] for sample in indexed.samples(others)] == [b"%d" % number for number in others]
        refused = r"a\.tar: .*row 7 of w\.view\.parquet"
        with pytest.raises(tarkit.TarkitError, match=refused):
            indexed[6]
        with pytest.raises(tarkit.TarkitError, match=refused):
            indexed[list(range(12))]


def test_rows_without_a_field(here: Path) -> None:
    """A row whose fields are all missing, and may be, has no sample, as with `select`."""
    Path("a.tar").write_bytes(tar((f"{number}.{'txt' if number == 3 else 'bin'}", b"B") for number in range(8)))
    tarkit.open("a.tar").write("v.view.parquet")
    rows = parquet.read_table("v.view.parquet").to_pylist()
    parquet.write_table(arrow.Table.from_pylist([{**row, "__fields__": "bin"} for row in rows]), "w.view.parquet")
    data = tarkit.open("w.view.parquet", allow="missing-field")
    with pytest.warns(tarkit.TarkitWarning, match=r"row 4 of w\.view\.parquet: no field is left of '3': left out"):
        assert [sample.key for sample in data] == [*"0124567"]
    with pytest.raises(tarkit.Unsupported, match="row 4 of w"):
        data.indexed()[3]


def test_large_samples(archive: Archive) -> None:
    """Large samples are read on access."""
    data = tarkit.open(archive({f"{i}.x": bytes([i]) * (2 << 20) for i in range(3)})).indexed()
    found = [data[number] for number in (2, 0, 1)]
    assert [(each.sizes["x"], each["x"][:1], len(each["x"])) for each in found] == [
        (2 << 20, bytes([number]), 2 << 20) for number in (2, 0, 1)
    ]


@pytest.mark.parametrize("change", ["cut", "other", "same size"])
def test_a_file_that_changes(change: str, indexed: tarkit.IndexedDataset) -> None:
    """A changed file is an error, not another sample or an early end."""
    data = Path("b.tar").read_bytes()
    new = {"cut": data[:5120], "other": tar({"z.x": b""}), "same size": data.replace(b"b0x", b"c9x")}[change]
    with open("b.tar", "r+b") as file:
        file.write(new)
        file.truncate()
    os.utime("b.tar", (1, 1))

    for look in (lambda: indexed["b/0"], lambda: indexed[99], lambda: list(indexed), lambda: indexed[40:60]):
        with pytest.raises(tarkit.TarkitError, match="the file was changed while it was read"):
            look()
    assert dict(indexed["a/3"]) == expected("a", 3)


# ---- One sample by its key


def test_get(run: Run, archive: Archive) -> None:
    """The fields are those of `tarkit get KEY.FIELD`, of a file and of a stream; steps before it apply."""
    name = archive({"d/a.txt": b"x", "d/a.bin": b"b" * (2 << 20), "d/b.txt": b"y", "d/c.txt": b"z"})
    for word in (name, f"pipe:cat {name}"):
        for key in ("d/a", "d/c"):
            sample = tarkit.open(word).get(key)
            assert sample.key == key
            for field in sample:
                assert sample[field] == run("get", f"{key}.{field}", name).stdout
        assert tarkit.open(word).select("txt").rekey("new/{key}").get("new/d/b")["txt"] == b"y"


@each_row("format", [None, "dali", "tsv", "webshart"])
def test_get_by_an_index(format: Any, archive: Archive) -> None:
    """With it what lies before the sample is not read; without it, damage there is an error."""
    for name, members in SHARDS.items():
        archive(members, name)
        if format:
            tarkit.index(name, format=format)
    later = Path("b.tar").stat().st_mtime_ns
    with open("b.tar", "r+b") as file:
        file.seek(tarkit.open("b.tar").indexed()["b/24"].offset)
        file.write(b"\xff" * 512)
    os.utime("b.tar", ns=(later, later))
    data = tarkit.open(["a.tar", "b.tar"])
    assert dict(data.get("b/20")) == expected("b", 20)
    if format:
        assert dict(data.get("b/30")) == expected("b", 30)
    else:
        with pytest.raises(tarkit.Problem, match="bad-header"):
            data.get("b/30")
    os.utime("b.tar", ns=(later + 10**12, later + 10**12))
    messages: list[str] = []
    assert dict(tarkit.open("b.tar", on_problem=messages.append).get("b/2")) == expected("b", 2)
    assert ["index not used: it is older than the shard" in each for each in messages] == [True] * bool(format)


def test_get_what_is_not_there(archive: Archive) -> None:
    """A KeyError that is an error of tarkit, and names keys; of a field that is not there it names the fields."""
    data = tarkit.open([archive(members, name) for name, members in SHARDS.items()])
    with pytest.raises(KeyError) as found:
        data.get("c/x")
    assert isinstance(found.value, tarkit.TarkitError)
    assert str(found.value) == "no sample 'c/x': searched 2 inputs"
    assert found.value.hint == "the first keys are 'a/0', 'a/1', 'a/2', 'a/3', 'a/4'"
    with pytest.raises(KeyError, match="no such field; the sample a/0 has x, y"):
        data.get("a/0")["z"]
    with pytest.raises(tarkit.TarkitError, match="no sample 'a/0'"):
        data.keys(["b/0"]).get("a/0")


def test_a_file_that_is_replaced(indexed: tarkit.IndexedDataset) -> None:
    """The opened file is still read after it was replaced."""
    Path("new.tar").write_bytes(tar({"z.x": b""}))
    os.replace("new.tar", "b.tar")
    assert dict(indexed["b/3"]) == expected("b", 3)


def test_what_has_no_index(archive: Archive) -> None:
    """Streams, compressed archives and changed samples have no index; a file object is not read."""
    archive(SHARDS["a.tar"], "a.tar")
    data = tarkit.open("a.tar")
    data.write("a.tar.gz")
    data.write("a.zip")
    for given in ("a.tar.gz", "a.zip", "pipe:cat a.tar"):
        with pytest.raises(tarkit.Unsupported, match="plain archives that can be read in any order"):
            tarkit.open(given).indexed()
    for changed, said in (
        (data.match("x"), "archives as they are, not behind steps: match"),
        (data.rekey("{index}"), "not behind steps: rekey"),
        (data.sort(), "not behind steps: sort"),
        (tarkit.open("a.tar", shard_slice=slice(3)), "looks samples up in archives as they are\nhint"),
    ):
        with pytest.raises(tarkit.Unsupported, match=said):
            changed.indexed()
    with pytest.raises(AttributeError, match=r"decode comes before indexed: tarkit\.open"):
        data.indexed().decode(True)  # type: ignore[attr-defined]
    assert not hasattr(data.indexed(), "select")
    file = tarkit.open(io.BytesIO(Path("a.tar").read_bytes()))
    with pytest.raises(tarkit.Unsupported):
        file.indexed()
    assert len(list(file)) == 50


def test_damage(archive: Archive) -> None:
    """Damage is handled by the policy when the headers are read; a lookup then prints nothing."""
    name = archive(tar(SHARDS["a.tar"])[:60_000])
    with pytest.raises(tarkit.Problem):
        tarkit.open(name).indexed()
    told: list[str] = []
    data = tarkit.open(name, skip=["truncated"], on_problem=told.append).indexed()
    kept = list(tarkit.open(name, skip=["truncated"], on_problem=told.append))
    assert samples_of(data) == samples_of(kept)
    assert len(told) == 2


def test_a_key_that_comes_back(archive: Archive) -> None:
    """By key the first sample is found, by number both are."""
    name = archive([("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")])
    data = tarkit.open(name, allow=["scattered-sample"], on_problem=lambda text: None).indexed()
    assert (len(data), data.keys()) == (3, ["a", "b"])
    assert (dict(data["a"]), dict(data[2])) == ({"x": b"1"}, {"y": b"3"})


def test_entries_without_key(archive: Archive) -> None:
    """Entries without a key belong to the next sample, and do not affect lookups."""
    name = archive([("d/", None), ("d/a.x", b"1"), ("README", b""), ("d/b.x", b"2"), ("end", b"")])
    data = tarkit.open(name).indexed()
    assert samples_of(data) == [("d/a", {"x": b"1"}), ("d/b", {"x": b"2"})]


@each_row("record", [("comment", "git"), ("mtime", "1"), ("path", "z.x")])
def test_global_headers(record: tuple[str, str], here: Path) -> None:
    """A global header that changes later entries is an error, since a lookup would miss it; others have no effect."""
    keyword, value = record
    with tarfile.open("in.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={keyword: value}) as file:
        for name in ("a.x", "b.x"):
            file.addfile(tarfile.TarInfo(name))
    data = tarkit.open("in.tar", allow=["duplicate-entry", "scattered-sample"], on_problem=lambda text: None)
    if keyword == "path":
        with pytest.raises(tarkit.Unsupported, match="global PAX header"):
            data.indexed()
    else:
        assert [each.key for each in data.indexed()] == [each.key for each in data] == ["a", "b"]


# ---- check and index


def test_check_as_the_command_does(archive: Archive, run: Run) -> None:
    """Findings, counts and verdict are those of the command."""
    archive(SHARDS["a.tar"], "a.tar")
    archive(tar(SHARDS["b.tar"])[:30_000], "b.tar")
    ran = run("check", "a.tar", "b.tar", "--require", "x,z", "--json", exit=1)
    said = [json.loads(line) for line in ran.stdout.decode().splitlines()]

    report = tarkit.check(["a.tar", "b.tar"], require=["x", "z"])

    assert not report.ok
    problems = [each for each in said if each["type"] == "problem"]
    assert [(each.shard, each.name, each.level, each.detail) for each in report] == [
        (each["shard"], each["problem"], each["level"], each["detail"]) for each in problems
    ]
    assert {each.name for each in report} >= {"truncated", "missing-field"}
    shards = [each for each in said if each["type"] == "shard"]
    assert [(each.shard, each.samples, each.bad) for each in report.shards] == [
        (each["shard"], each["samples"], each["verdict"] == "bad") for each in shards
    ]
    assert report.samples == sum(each["samples"] for each in shards)
    assert report.same is None
    assert report.complete is None


def test_check_options(archive: Archive) -> None:
    """Allowed problems and strictness, two sets, a clean copy and file objects are supported."""
    archive(SHARDS["a.tar"], "a.tar")
    archive([("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")], "s.tar")
    assert [each.name for each in tarkit.check("s.tar") if each.level == "error"] == ["scattered-sample"]
    assert tarkit.check("s.tar", allow=["scattered-sample"]).ok
    assert not tarkit.check("s.tar", allow=["scattered-sample"], strict=True).ok
    tarkit.open("a.tar").shuffle(seed=1).write("mixed.tar.gz")
    assert tarkit.check("a.tar", same_as="mixed.tar.gz").same is True
    assert tarkit.check("a.tar", same_as="s.tar").same is False
    report = tarkit.check("s.tar", fix="clean.tar", rejects="rejects.tar")
    assert report.complete is not None
    assert tarkit.check("clean.tar").ok
    file = io.BytesIO(tar(SHARDS["a.tar"]))
    assert tarkit.check(file).samples == 50
    assert not file.closed
