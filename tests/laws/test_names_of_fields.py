"""Names of fields mean the same in all commands and in the Python API: the name as it is spelled, else the first field
that differs only in case."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import tarkit
from tarkit.samples.names import FieldDict
from tests._tools import each_row
from tests.conftest import Archive, Ran, Run, entries, tar

Fields = list[tuple[str, bytes]]
Samples = dict[str, Fields]

SPELLINGS = ["n.txt", "N.txt", "n.TXT", "N.Txt", "É.txt", "é.txt"]  # of two fields: É and é are not ASCII


def drawn(seed: int) -> Samples:
    """Return samples whose fields are spelled at random; the content of each field is a number of its own."""
    draw, number, samples = random.Random(seed), 10, {}
    for key in "abcdefgh":
        fields = []
        for name in draw.sample(SPELLINGS, draw.randint(0, 4)) + ["id"]:
            number += 1
            fields.append((name, b"%d" % number))
        draw.shuffle(fields)
        samples[key] = fields
    return samples


def lower(name: str) -> str:
    """Return a name with ASCII letters in lower case."""
    return name.encode().lower().decode()


def meant(fields: Fields, name: str) -> tuple[str, bytes] | None:
    """Return the field that a name means: the model."""
    exact = [each for each in fields if each[0] == name]
    return next(iter(exact + [each for each in fields if lower(each[0]) == lower(name)]), None)


def archive_of(samples: Samples) -> bytes:
    return tar([(f"{key}.{field}", content) for key, fields in samples.items() for field, content in fields])


def table(ran: Ran) -> dict[str, str]:
    """Return the second column of a table by its first."""
    rows = [line.split("\t") for line in ran.stdout.decode().splitlines()]
    return {row[0]: row[1] for row in rows}


@each_row("seed", range(2))
def test_commands(seed: int, run: Run, archive: Archive, here: Path) -> None:
    """-f, --require, --where, sort -s, tsv -f, get, stats, show, proc and check take the same field."""
    samples = drawn(seed)
    name = archive(archive_of(samples))
    for wanted in random.Random(seed).sample([*SPELLINGS, "N.TXT", "x"], 4):
        found = {key: field for key, fields in samples.items() if (field := meant(fields, wanted))}
        contents = {key: content for key, (_, content) in found.items()}
        skip = ("--skip", "missing-field")
        run("cat", name, "-f", wanted, *skip, "-o", "f.tar", exit=None)
        assert entries("f.tar") == [(f"{key}.{wanted}", content) for key, content in contents.items()]
        run("cat", name, "-f", f"new:x,{wanted}", *skip, "-o", "f.tar", exit=None)
        assert entries("f.tar") == [(f"{key}.new", content) for key, content in contents.items()]
        run("cat", name, "--require", wanted, *skip, "-f", "id", "-o", "f.tar", exit=None)
        assert [each[0] for each in entries("f.tar")] == [f"{key}.id" for key in found]
        for given in ((name,), ("-",)):
            stdin = archive_of(samples) if given == ("-",) else None
            words = ("-s", wanted, "-t", "int", "-r", *skip, "-f", "id", "-o", "f.tar")
            run("sort", *given, *words, stdin=stdin, exit=None)
            order = sorted(contents, key=lambda key: -int(contents[key]))
            assert [each[0] for each in entries("f.tar")] == [f"{key}.id" for key in order]
        assert table(run("tsv", name, "-f", wanted, *skip, "--no-header", exit=None)) == {
            key: content.decode() for key, content in contents.items()
        }
        for key, content in [*contents.items()][:3]:
            assert run("get", f"{key}.{wanted}", name).stdout == content
            assert run("cat", name, "--where", f"field('{wanted}') == '{content.decode()}'", *skip, "-o", "f.tar")
            assert {each[0][0] for each in entries("f.tar")} == {key}
        if found:
            assert run("get", "-f", wanted, name).stdout == next(iter(contents.values()))
            counted = json.loads(run("stats", name, "--by", wanted, "--json").stdout)
            assert sorted(row["value"] for row in counted["by"]["classes"]) == sorted(
                map(bytes.decode, contents.values())
            )
            shown = run("show", name, "-f", wanted, *skip, "--json").stdout.splitlines()
            assert [json.loads(line)["fields"][0]["text"] for line in shown] == [
                content.decode() for content in contents.values()
            ]
        lacking = run("check", name, "--require", wanted, "--json", exit=None).stdout.splitlines()
        keys = {each["key"] for each in map(json.loads, lacking) if each.get("problem") == "missing-field"}
        assert keys == samples.keys() - found.keys()


@each_row("seed", range(4))
def test_python(seed: int, archive: Archive) -> None:
    """`sample[...]`, `in`, select, where, require, sort, decode, map and the loader take the same field."""
    samples = drawn(seed)
    data = tarkit.open(archive(archive_of(samples)), skip="missing-field", on_problem=lambda line: None)
    records = {record["__key__"]: record for record in tarkit.loader(data)}
    for wanted in [*SPELLINGS, "N.TXT", "x"]:
        found = {key: field for key, fields in samples.items() if (field := meant(fields, wanted))}
        contents = {key: content for key, (_, content) in found.items()}
        assert {sample.key: sample[wanted] for sample in data if wanted in sample} == contents
        assert {sample.key: sample.get(wanted) for sample in data} == {key: contents.get(key) for key in samples}
        assert {key: record[wanted] for key, record in records.items() if wanted in record} == contents
        assert {sample.key: list(sample) for sample in data.select(wanted)} == {key: [wanted] for key in found}
        assert [sample.key for sample in data.require(wanted)] == list(found)
        assert [sample.key for sample in data.where(f"has('{wanted}')")] == list(found)
        order = sorted(contents, key=lambda key: int(contents[key]))
        assert [sample.key for sample in data.sort(wanted, "int")] == order
        assert {sample.key: sample["x"] for sample in data.map(copied(wanted)) if "x" in sample} == contents
        decoded = {sample.key: sample for sample in data.decode({wanted: bytes.decode, "*": None})}
        assert {key: decoded[key][wanted] for key in found} == {key: text.decode() for key, text in contents.items()}


def copied(wanted: str) -> Callable[[tarkit.Sample], dict[str, bytes]]:
    """Return a function that adds a field x with the content of a field."""
    return lambda sample: {**sample, "x": sample[wanted]} if wanted in sample else dict(sample)


MAPPED = """
import json, sys
def looked_up(sample):
    names = {names}
    return {{"n": json.dumps([sample[name].decode() if name in sample else sample.get(name) for name in names])}}
def changed(sample):
    for name in {names}:
        if name in sample:
            sample[name] = sample[name] + b"!"
    return sample
def removed(sample):
    for name in {names}:
        sample.pop(name, None)
    return sample
"""


@each_row("seed", range(2))
def test_functions(seed: int, run: Run, archive: Archive, here: Path) -> None:
    """The dict that `proc --map` gives to a function takes the same field, where it is set and removed too."""
    samples, wanted = drawn(seed), ["n.txt", "N.TXT", "É.txt", "x"]
    name = archive(archive_of(samples))
    Path("f.py").write_text(MAPPED.format(names=wanted))
    run("proc", name, "--map", "f.py:looked_up", "-o", "f.tar")
    found = {key: [meant(fields, each) for each in wanted] for key, fields in samples.items()}
    assert [(each, json.loads(content)) for each, content in entries("f.tar")] == [
        (f"{key}.n", [each and each[1].decode() for each in fields]) for key, fields in found.items()
    ]
    run("proc", name, "--map", "f.py:changed", "-o", "f.tar")
    expected = []
    for key, fields in samples.items():
        contents = dict(fields)
        for each in wanted:
            if field := meant(fields, each):
                contents[field[0]] += b"!"
        expected += [(f"{key}.{field}", content) for field, content in contents.items()]
    assert entries("f.tar") == expected
    run("proc", name, "--map", "f.py:removed", "-o", "f.tar")
    expected = []
    for key, fields in samples.items():
        left = list(fields)
        for each in wanted:
            if field := meant(left, each):
                left.remove(field)
        expected += [(f"{key}.{field}", content) for field, content in left]
    assert entries("f.tar") == expected


def test_the_dict_of_a_sample() -> None:
    """It stays a dict: copies, pickles and unpacking have the names of the archive."""
    sample = FieldDict({"JPG": 1, "jpg": 2, "CLS": 3})
    assert (sample["jpg"], sample["JPG"], sample["Jpg"], sample["cls"]) == (2, 1, 1, 3)
    copies = [
        sample.copy(),
        pickle.loads(pickle.dumps(sample)),
        {**sample},
        dict(sample),
        json.loads(json.dumps(sample)),
    ]
    assert copies == [sample] * 5
    assert [type(each) for each in copies[:3]] == [FieldDict, FieldDict, dict]
    sample["cls"] = 4
    sample.update(jPG=5)
    sample |= {"new": 6}
    assert sample.setdefault("NEW", 7) == 6
    assert list(sample.items()) == [("JPG", 5), ("jpg", 2), ("CLS", 4), ("new", 6)]
    assert sample.pop("cls") == 4
    assert sample.pop("cls", None) is None
    del sample["jpg"]
    assert list(sample) == ["JPG", "new"]
    for wrong in ("png", 1):
        with pytest.raises(KeyError):
            sample[wrong]  # type: ignore[index]
