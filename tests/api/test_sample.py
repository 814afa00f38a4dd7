"""A sample: its fields, with all kinds of names and contents, and its lifetime."""

from __future__ import annotations

import copy
import gzip
import io
import os
import pickle
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row, member
from tests.api._inputs import Way, each_way
from tests.conftest import PAX, Archive, Content, Link, tar

DATA = Path(__file__).resolve().parents[1] / "data"
BIG = 5 << 18


def one(members: Any, **options: Any) -> tarkit.Sample:
    """Return the only sample of an archive of these members."""
    [sample] = tarkit.open(io.BytesIO(tar(members)), **options)
    return sample


KEY = {"b/k.x": b"1", "b/k.cls": b"2", "\udcff.x": b"1", "\udcff.cls": b"2"}


def test_the_key_in_all_forms_of_a_sample(archive: Archive) -> None:
    """`key` and `["__key__"]` are the key, in whatever way a sample comes; items are fields alone."""
    name = archive(KEY)
    data, keys = tarkit.open(name), ["b/k", "\udcff"]
    forms: list[Any] = [data, data.decode(), data.indexed(), data.decode().indexed(), data.select("x cls").sort()]
    forms += [data.head(9), [data.get(key) for key in keys], tarkit.loader(name), tarkit.loader(data, decode=True)]
    got: list[Any] = []
    for options in ({}, {"decode": True}):
        list(data.map(got.append, **options))  # type: ignore[arg-type, func-returns-value]
    list(data.map(lambda samples: got.extend(samples) or [None] * len(samples), batch=2, decode=True))  # type: ignore[func-returns-value]
    forms += [got[:2], got[2:4], got[4:]]
    for form in forms:
        found = list(form)
        assert sorted(sample.key for sample in found) == sorted(keys), form
        assert [sample["__key__"] for sample in found] == [sample.key for sample in found]
        assert all(sample.get("__key__") == sample.key for sample in found)
        if isinstance(found[0], tarkit.Sample):
            assert [list(sample) for sample in found] == [["x", "cls"]] * 2
            assert [len(sample) for sample in found] == [2, 2]
            assert "__key__" not in dict(found[0])


def test_keys_of_records_can_be_copied(archive: Archive) -> None:
    """A dict of a loader is a dict: copied, pickled, merged; without `__key__` it has no key."""
    [record] = tarkit.loader(archive({"a.x": b"1"}))
    assert record == {"__key__": "a", "__url__": "in.tar", "x": b"1"}
    for made in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
        assert (type(made), made, made.key) == (type(record), record, "a")
    del record["__key__"]
    assert not hasattr(record, "key")


def test_a_mapping(archive: Archive) -> None:
    """A sample has the methods of a read-only mapping."""
    [sample] = tarkit.open(archive({"d/a.x": b"1", "d/a.seg.png": b"22", "d/a.e": b""}))

    assert isinstance(sample, Mapping)
    assert (sample.key, sample.shard, sample.offset) == ("d/a", "in.tar", 0)
    assert list(sample) == list(sample.keys()) == ["x", "seg.png", "e"]
    assert list(sample.values()) == [b"1", b"22", b""]
    assert list(sample.items()) == [("x", b"1"), ("seg.png", b"22"), ("e", b"")]
    assert len(sample) == 3
    assert sample.sizes == {"x": 1, "seg.png": 2, "e": 0}
    assert "x" in sample
    assert "png" not in sample
    assert 3 not in sample
    assert sample.get("png") is None
    assert sample.get("png", b"-") == b"-"
    assert dict(sample) == {**sample} == sample == {"x": b"1", "seg.png": b"22", "e": b""}
    assert repr(sample) == "<tarkit.Sample 'd/a': x, seg.png, e>"
    match sample:
        case {"x": value}:
            assert value == b"1"
        case _:
            pytest.fail("no match")
    with pytest.raises(KeyError, match="png"):
        sample["png"]
    with pytest.raises(TypeError):
        sample["x"] = b"2"  # type: ignore[index]
    with pytest.raises(AttributeError):
        sample.key = "b"  # type: ignore[misc]
    with pytest.raises((TypeError, AttributeError)):
        sample.items().mapping["x"] = b"2"  # type: ignore[index]
    sample.sizes["x"] = 9
    assert (sample["x"], sample.sizes["x"]) == (b"1", 1), "what is handed out cannot change the sample"


@each_row(
    ("members", "fields", "looked_up"),
    [
        ({"a.JPG": b"1", "a.Seg.Png": b"2"}, "JPG Seg.Png", {"jpg": b"1", "JPG": b"1", "jPg": b"1", "seg.png": b"2"}),
        # the exact name takes precedence, then the first
        ({"a.JPG": b"1", "a.jpg": b"2", "a.Jpg": b"3"}, "JPG jpg Jpg", {"jpg": b"2", "Jpg": b"3", "jPG": b"1"}),
        # such a field of a foreign archive is found by its name, as all are
        ({"a.__key__": b"content"}, "__key__", {"__key__": b"content"}),
        # by a PAX header
        ({f"{'d' * 200}/a.é": b"1", f"{'d' * 200}/a.x": b"2"}, "é x", {"é": b"1", "x": b"2"}),
    ],
)
def test_names(members: dict[str, bytes], fields: str, looked_up: dict[str, bytes]) -> None:
    """Names are found in any case, and listed as they are."""
    [sample] = tarkit.open(io.BytesIO(tar(members, PAX)))
    assert list(sample) == fields.split()
    assert {name: sample[name] for name in looked_up} == looked_up
    assert sample.key == next(iter(members)).partition(".")[0]


ODD = ["x", "seg.png", ".x", "..", "x.", "é", "\udcff\udcfe", "a b", "'", '"', "\n", "x" * 300, "İ", "ß", "0"]


@each_way
def test_odd_names(way: Way, archive: Archive) -> None:
    """Dots, spaces, quotes, long names, and bytes that are not UTF-8, as surrogates, are names of fields."""
    for order in (ODD, ODD[::-1]):
        members = [(os.fsencode(f"d.1/k.{field}"), field.encode("utf-8", "surrogateescape")) for field in order]
        raw = b"".join(member(name, content) for name, content in members) + bytes(1024)
        [sample] = tarkit.open(way(archive(raw, "odd.tar")))
        assert sample.key == "d.1/k"
        assert dict(sample) == {field: field.encode("utf-8", "surrogateescape") for field in order}
        assert all(sample[field].decode("utf-8", "surrogateescape") == field for field in order)


def test_odd_keys() -> None:
    """Keys are unchanged."""
    keys = ["a b", "é", "\udcff", "ein/lan.ger/pfad", "x" * 400, "\n", " "]
    file = io.BytesIO()
    with tarkit.TarWriter(file) as out:
        for key in keys:
            out.write(key, {"x": key})
    file.seek(0)
    assert [(each.key, each["x"].decode("utf-8", "surrogateescape")) for each in tarkit.open(file)] == [
        (key, key) for key in keys
    ]


def test_entries_without_key_are_no_fields() -> None:
    """Directories, README and hidden files before, in and after a sample are no fields."""
    members: list[tuple[str, Content]] = [
        ("d/", None),
        ("d/a.x", b"1"),
        ("README", b"read"),
        ("d/.hidden", b"h"),
        ("d/e.dir/", None),
        ("d/a.y", b"2"),
        ("end", b"e"),
    ]
    sample = one(members)
    assert dict(sample) == {"x": b"1", "y": b"2"}
    assert (len(sample), sample.sizes, sample.offset) == (2, {"x": 1, "y": 1}, 0)
    assert list(tarkit.open(io.BytesIO(tar({"d/": None, "README": b"r"})))) == []


def test_links() -> None:
    """A hard link to an entry of the sample has its content; other links have none."""
    sample = one(
        {"a.x": b"123", "a.y": Link("a.x"), "a.z": Link("b.x"), "a.s": Link("a.x", b"2")}, allow=["unmovable-entry"]
    )
    assert (sample["x"], sample["y"]) == (b"123", b"123")
    assert sample.sizes == {"x": 3, "y": 3, "z": 0, "s": 0}
    assert "z" in sample
    for field, words in (("z", "is a hard link to 'b.x'"), ("s", "is not a regular file")):
        with pytest.raises(tarkit.Problem, match=words) as error:
            sample[field]
        assert error.value.name == "bad-field"
    with pytest.raises(tarkit.Problem):
        dict(sample)


@each_row("name", sorted(path.name for path in DATA.glob("*sparse*.tar")))
def test_sparse_files(name: str) -> None:
    """The content of a sparse file is not stored as it is: an error for each format, never wrong bytes."""
    found = 0
    for source in (DATA / name, f"pipe:cat {DATA / name}", io.BytesIO((DATA / name).read_bytes())):
        for sample in tarkit.open(source):
            for field, size in sample.sizes.items():
                if size > 1 << 20:
                    found += 1
                    for read in (lambda sample: sample["bin"], lambda sample: list(sample.values()), dict):
                        with pytest.raises(tarkit.Problem) as error:
                            read(sample)
                        assert error.value.name == "sparse-entry"
                else:
                    assert len(sample[field]) == size
    assert found == 3


def test_the_same_field_twice() -> None:
    """A duplicate field is an error; if it is allowed the first counts, also after renaming."""
    twice = tar([("a.x", b"1"), ("a.x", b"2"), ("a.y", b"3")])
    with pytest.raises(tarkit.Problem) as error:
        list(tarkit.open(io.BytesIO(twice)))
    assert error.value.name == "duplicate-entry"
    ignore: list[str] = []
    [sample] = tarkit.open(io.BytesIO(twice), allow=["duplicate-entry"], on_problem=ignore.append)
    assert (dict(sample), len(sample)) == ({"x": b"1", "y": b"3"}, 2)
    data = tarkit.open(io.BytesIO(tar({"a.x": b"1", "a.y": b"3"})), allow=["duplicate-entry"], on_problem=ignore.append)
    [sample] = data.select("n:x n:y")
    assert (dict(sample), len(sample)) == ({"n": b"1"}, 1)


# ---- lifetime of a sample


def content(number: int, field: str, size: int) -> bytes:
    """Return bytes that only this field has."""
    return random.Random(f"{number} {field}").randbytes(size)


@each_way
def test_small_samples_outlive_the_iteration(way: Way, archive: Archive) -> None:
    """Small samples of files and streams stay readable, in any order."""
    name = archive({f"{i}.{field}": content(i, field, 3000 + i) for i in range(200) for field in ("x", "y")})
    found = list(tarkit.open(way(name)))
    random.Random(1).shuffle(found)
    assert len(found) == 200
    for sample in found:
        number = int(sample.key)
        assert dict(sample) == {field: content(number, field, 3000 + number) for field in ("x", "y")}


def large(archive: Archive) -> tuple[str, dict[str, dict[str, bytes]]]:
    """Return an archive of samples larger than 1 MiB, and their contents."""
    expected = {str(i): {"x": content(i, "x", BIG + i), "y": content(i, "y", 7)} for i in range(4)}
    return archive({f"{key}.{field}": data for key, each in expected.items() for field, data in each.items()}), expected


def test_large_samples_of_files_outlive_the_iteration(archive: Archive) -> None:
    """They are read on access from the file that was opened, even if it was moved, also in several threads at once."""
    name, expected = large(archive)
    found = list(tarkit.open(name)) * 4
    assert {each.key: dict(each) for each in found[3::-1]} == expected
    assert found[0].sizes == {field: len(data) for field, data in expected["0"].items()}
    os.rename(name, "elsewhere.tar")
    Path(name).write_bytes(b"something else")
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda sample: dict(sample) == expected[sample.key], found))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pipe", "gzip", "object"])
def test_large_samples_of_streams(way: str, archive: Archive) -> None:
    """Large samples of streams are readable until the next sample is requested; then reading is an error."""
    name, expected = large(archive)
    raw = Path(name).read_bytes()
    Path("in.tar.gz").write_bytes(gzip.compress(raw, 1))
    data = tarkit.open({"pipe": f"pipe:cat {name}", "gzip": "in.tar.gz", "object": io.BytesIO(raw)}[way])

    assert {sample.key: dict(sample) for sample in data} == expected
    found = list(data)
    assert [each.key for each in found] == list(expected)
    for sample in found:
        assert list(sample) == ["x", "y"]
        for read in (lambda sample: sample["x"], lambda sample: list(sample.values()), dict):
            with pytest.raises(tarkit.Unsupported, match="of a stream has been passed") as error:
                read(sample)
            assert error.value.hint
            assert "dict(sample)" in error.value.hint


def test_the_first_samples_of_a_stream_are_held(archive: Archive) -> None:
    """`head` returns a list of samples that are all readable, sorted ones as well."""
    name, expected = large(archive)
    for data in (tarkit.open(f"pipe:cat {name}"), tarkit.open(f"pipe:cat {name}").sort()):
        assert {each.key: dict(each) for each in data.head(3)} == {key: expected[key] for key in "012"}


def test_large_samples_through_steps(archive: Archive) -> None:
    """Sorted, shuffled and mixed samples of streams have their own bytes."""
    name, expected = large(archive)
    stream = tarkit.open(f"pipe:cat {name}")

    for data in (
        stream.sort(reverse=True),
        stream.shuffle(seed=3),
        stream.buffer_shuffle(3, seed=3),
        stream.select("y x"),
        tarkit.mix([stream], seed=1),
        tarkit.open([f"pipe:cat {name}"], interleave=2, prefetch=1),
    ):
        assert {each.key: dict(each) for each in data} == expected
    both = tarkit.mix([(stream, 1), (stream.rekey("n/{key}"), 1)], seed=1, until="all")
    seen = {}
    for each in both:
        seen[each.key] = dict(each)
    assert seen == {**expected, **{f"n/{key}": fields for key, fields in expected.items()}}


def test_a_file_that_changes_before_a_late_read(archive: Archive) -> None:
    """A changed file is an error, since the bytes may be other ones."""
    name, _ = large(archive)
    found = list(tarkit.open(name))
    with open(name, "r+b") as file:
        file.seek(600)
        file.write(b"other")
    os.utime(name, (1, 1))

    with pytest.raises(tarkit.TarkitError, match="the file was changed while it was read"):
        found[0]["x"]


def test_a_file_that_is_cut_while_it_is_read(archive: Archive) -> None:
    """No sample is silently missing or cut."""
    name, _ = large(archive)
    samples = iter(tarkit.open(name))
    first = next(samples)
    os.truncate(name, 1 << 19)

    with pytest.raises(tarkit.Problem, match="became shorter"):
        first["x"]
    with pytest.raises(tarkit.TarkitError):
        list(samples)


def test_threads_iterate_one_dataset(archive: Archive) -> None:
    expected = {f"{i}": {"x": content(i, "x", 2000)} for i in range(300)}
    data = tarkit.open(archive({f"{key}.x": each["x"] for key, each in expected.items()})).rekey("{index}")

    def read(_: int) -> bool:
        return {sample.key: dict(sample) for sample in data} == expected

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(12)))
