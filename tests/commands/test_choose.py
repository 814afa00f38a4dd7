"""Options that choose by what all samples have: --unique-by, --balance, --sample N; and lists of keys."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.pipeline import choose
from tarkit.pipeline.view_reader import ViewReader
from tarkit.spill import sets
from tests._chains import Item
from tests._tools import each_row
from tests.conftest import Archive, Content, Feed, Piped, Run, each_feed, keys, tar

SIX: dict[str, Content] = {
    "a.cls": b"1", "b.cls": b"2\n", "c.cls": b"1", "d.cls": b"3", "e.cls": b" 1", "f.cls": b"2",
}  # fmt: skip


def members(items: list[Item]) -> dict[str, Content]:
    """Return the entries of samples."""
    return {f"{item.key}.{field}": data for item in items for field, data in item.fields.items()}


def class_of(item: Item) -> bytes | None:
    """Return the class of a sample of the model."""
    return item.fields["cls"].strip() if "cls" in item.fields else None


def repeated(items: list[Item], seed: int, size: str) -> list[Item]:
    """Return the samples that --per-class max or median takes: the model, class by class, number by number."""
    numbers, classes = random.Random(f"tarkit balance {seed}"), dict[bytes | None, list[tuple[int, int]]]()
    for place, item in enumerate(items):
        classes.setdefault(class_of(item), []).append((numbers.getrandbits(64), place))
    counts = sorted(map(len, classes.values()))
    count = counts[-1] if size == "max" else counts[(len(counts) - 1) // 2]
    places = [sorted(some)[number % len(some)][1] for some in classes.values() for number in range(count)]
    return [items[place] for place in sorted(places)]


@each_row(("size", "seed"), [(size, seed) for size in ("max", "median") for seed in range(4)])
def test_repeated_samples(size: str, seed: int, run: Run) -> None:
    """With max and median samples of smaller classes come again, next to each other, in their order."""
    draw = random.Random(seed)
    items = [Item(f"k{at:03}", {"cls": b"%d" % (draw.randrange(30) ** 0.5)}, "") for at in range(40)]
    Path("in.tar").write_bytes(tar(members(items)))
    words = ("in.tar", "--balance", "cls", "--per-class", size, "--seed", str(seed))
    expected = [item.key for item in repeated(items, seed, size)]
    ran = run("cat", *words, "--rekey", "{index:04d}-{key}")
    assert [key.partition("-")[2] for key in keys(ran.stdout).split()] == expected
    data = tarkit.open("in.tar").balance("cls", size, seed=seed)  # type: ignore[arg-type]
    assert [sample.key for sample in data] == expected
    ran = run("tsv", *words, "-f", "cls", "--allow", "repeated-key")
    assert [line.split("\t")[0] for line in ran.printed[1:]] == expected
    pytest.importorskip("pyarrow")
    run("cat", *words, "-o", "o.view.parquet")
    assert [sample.key for sample in tarkit.open("o.view.parquet")] == expected


@each_feed
def test_messages(run: Run, archive: Archive, feed: Feed) -> None:
    """A line says what was chosen, the report has the numbers; fewer samples than asked for are a warning."""
    word = feed(archive(SIX))
    ran = run("cat", word, "--unique-by", "cls", "--report", "r.json")
    assert keys(ran.stdout) == "a b d"
    assert ran.lines == ["tarkit: --unique-by cls: 3 of 6 samples left out: a sample before has the same value"]
    assert json.loads(Path("r.json").read_text())["unique_by"] == {"samples": 6, "left_out": 3}
    ran = run("cat", word, "--balance", "cls", "--seed", "1", "--report", "r.json")
    assert ran.lines == ["tarkit: --balance cls: 1 sample of each of 3 classes, from 6 samples"]
    assert json.loads(Path("r.json").read_text())["balance"] == {"samples": 6, "classes": 3, "per_class": 1}
    ran = run("cat", word, "--sample", "7", "--seed", "1", "--report", "r.json")
    assert ran.stdout == tar(SIX)
    assert ran.lines == ["tarkit: warning: --sample 7: there are 6 samples, and all are taken"]
    assert json.loads(Path("r.json").read_text())["sample"] == {"samples": 6, "taken": 6}
    Path("list").write_text("b\nx\n")
    ran = run("cat", word, "--exclude-keys-from", "list", "--report", "r.json")
    assert keys(ran.stdout) == "a c d e f"
    assert ran.lines == ["tarkit: list: 2 keys to leave out, 1 found, 1 missing, the first of them 'x'"]
    assert json.loads(Path("r.json").read_text())["exclude_keys"] == {"wanted": 2, "found": 1, "missing": 1}


@each_row(
    ("words", "expected"),
    [
        ("--unique-by cls", "[missing-field]"),
        ("--unique-by cls --skip missing-field", "a"),
        ("--unique-by cls --allow missing-field", "a b c"),  # samples without a value are all different
        ("--unique-by x", "a c"),  # bytes that are not text
        ("--unique-by __key__", "a b c"),
        ("--unique-by none", "a b"),  # empty
        ("--unique-by dash --allow missing-field", "a c"),  # one character
        ("--unique-by size.x", "a"),
        ("--balance cls --seed 1 --skip missing-field", "a"),
        ("--balance size.x --seed 1 --per-class 3", "a b c"),
        ("--sample 100% --seed 1", "a b c"),
        ("--sample 3 --seed 4 --slice 1", "b"),
    ],
)
def test_values(words: str, expected: str, run: Run, archive: Archive) -> None:
    """A field is any value that a sort takes; a sample without one is a problem."""
    a = {"cls": b"1", "x": b"\xff\x01", "none": b"", "dash": b"-"}
    b, c = {"x": b"\xff\x01", "none": b" x", "dash": b"-"}, {"x": b"\xff\x02", "none": b"\n"}
    word = archive(members([Item("a", a, ""), Item("b", b, ""), Item("c", c, "")]))
    ran = run("cat", word, *words.split(), "-q", "-o", "out.tar", exit=None)
    assert expected in (ran.stderr if expected.startswith("[") else keys("out.tar"))
    assert ran.status == expected.startswith("[")


def test_every_sample_is_as_probable(here: Path) -> None:
    """Over many seeds, each pair of four samples is drawn about as often, and no class prefers its first ones."""
    Path("in.tar").write_bytes(tar({f"{key}.cls": b"%d" % (key in "ab") for key in "abcd"}))
    data, pairs, ones = tarkit.open("in.tar"), Counter[str](), Counter[str]()
    for seed in range(300):
        pairs["".join(sample.key for sample in data.sample(2, seed))] += 1
        ones["".join(sample.key for sample in data.balance("cls", 1, seed=seed).slice(0, 1))] += 1
    assert len(pairs) == 6
    assert sum((count - 50) ** 2 / 50 for count in pairs.values()) < 15.1  # 99 % of chi-square
    assert len(ones) == 2


@each_row(("held", "keep"), [(2, "list"), (2, "list.csv"), (1 << 20, "list")])
def test_long_lists_and_many_values(held: int, keep: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists and values that memory does not hold give the same samples and messages as short ones."""
    for name, value in (("HELD", held), ("WRITTEN", 3), ("MOST", 2)):
        monkeypatch.setattr(sets, name, value)
    monkeypatch.setattr(choose, "FEW", 2 * held)
    Path("in.tar").write_bytes(tar({f"k{at:02}.cls": b"%d" % (at % 13) for at in range(40)}))
    listed = [f"k{at:02}" for at in range(0, 60, 3)]
    Path("list").write_text("\n".join(listed))
    Path("list.csv").write_text("n,__key__\n" + "".join(f"1,{key}\n" for key in listed))
    here, others = [key for key in listed if key < "k40"], [f"k{at:02}" for at in range(40) if at % 3]
    words = "20 keys {}, 14 found, 6 missing, the first of them 'k42'"
    ran = run("cat", "in.tar", "--keys-from", keep)
    assert (keys(ran.stdout).split(), ran.lines) == (here, [f"tarkit: {keep}: {words.format('requested')}"])
    ran = run("cat", "in.tar", "--exclude-keys-from", keep)
    assert (keys(ran.stdout).split(), ran.lines) == (others, [f"tarkit: {keep}: {words.format('to leave out')}"])
    ran = run("cat", "in.tar", "--keys-from", keep, "--require-all", exit=1)
    assert ran.lines == [f"tarkit: {keep}: {words.format('requested')}"]
    ran = run("check", "in.tar", "--against", keep, "-v", exit=1)
    assert [line.count("missing-sample") for line in ran.printed].count(1) == 6
    assert keys(run("cat", "in.tar", "--unique-by", "cls").stdout).split() == [f"k{at:02}" for at in range(13)]
    drawn = run("cat", "in.tar", "--sample", "5", "--seed", "3").stdout
    assert keys(drawn).split() == [sample.key for sample in tarkit.open("in.tar").sample(5, 3)]
    Path("wrong").write_text("K01\nK02\nK03\n")
    ran = run("cat", "in.tar", "--exclude-keys-from", "wrong")
    assert ran.lines[1:] == ["tarkit: warning: wrong: no sample has the key 'K01'; did you mean 'k01'?"]


def test_tables_and_views_as_lists(run: Run, archive: Archive) -> None:
    """Without a column the keys of a table or a view are in `__key__`; other types of columns are refused."""
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    word = archive(SIX)
    run("cat", word, "--match", "[ab]", "-o", "ab.view.parquet")
    assert keys(run("cat", word, "--exclude-keys-from", "ab.view.parquet").stdout) == "c d e f"
    table = arrow.table(
        {"k": arrow.array(["c", None, "d"]).dictionary_encode(), "b": [b"e", b"", b"f"], "f": [0.5] * 3}
    )
    parquet.write_table(table, "t.parquet")
    assert keys(run("cat", word, "--keys-from", "t.parquet:k").stdout) == "c d"
    assert keys(run("cat", word, "--keys-from", "t.parquet:b").stdout) == "e f"
    assert run("cat", word, "--keys-from", "t.parquet", exit=1).lines == ["tarkit: t.parquet: no column '__key__'"]
    line = "tarkit: t.parquet: the column 'f' has double, and keys are text"
    assert run("cat", word, "--keys-from", "t.parquet:f", exit=1).lines == [line]
    Path("l.jsonl").write_text('{"__key__": "a", "n": 1}\n{"__key__": "f"}\n')
    assert keys(run("cat", word, "--keys-from", "l.jsonl").stdout) == "a f"
    Path("l.tsv").write_text("__key__\nb\n")
    assert keys(run("cat", word, "--keys-from", Piped(600, "l.tsv")).stdout) == "b"
    assert "is a stream" in run("cat", word, "--keys-from", Piped(600, "t.parquet"), exit=1).stderr


def test_commands_that_choose(run: Run, archive: Archive) -> None:
    """Other commands choose the same samples; a view that is chosen from has the values of its rows."""
    word = archive(SIX)
    words = ("--balance", "cls", "--seed", "5")
    chosen = keys(run("cat", word, *words).stdout)
    run("split", word, *words, "-c", "9", "-o", "s-%d.tar")
    assert keys("s-0.tar") == chosen
    assert sorted(keys(run("shuffle", word, *words).stdout).split()) == sorted(chosen.split())
    assert keys(run("sort", word, *words, "-r").stdout).split() == sorted(chosen.split(), reverse=True)
    assert run("stats", word, *words, "--total").stdout.decode().strip() == str(len(chosen.split()))
    run("extract", word, *words, "-C", "out")
    assert sorted(os.listdir("out")) == [f"{key}.cls" for key in sorted(chosen.split())]
    assert keys(run("proc", word, *words, "-c", "true").stdout) == chosen
    ran = run("mix", word, *words, "--until", "all")
    assert len(keys(ran.stdout).split()) == 3
    ran = run("mix", word, *words, "--per-class", "max", "--until", "all", "-o", "m.tar", exit=1)
    hint = "--per-class max repeats samples: --rekey '{index:09d}-{key}' gives each a key of its own"
    assert ran.lines[-1] == f"hint: {hint}"
    run("cat", word, "--sample", "2", "--seed", "1", "-o", "o-{stem}.tar")
    assert keys("o-in.tar") == keys(run("cat", word, "--sample", "2", "--seed", "1").stdout)


def test_unique_long_contents(run: Run, archive: Archive) -> None:
    """Contents of more than 1 MiB are compared too, by their hashes."""
    long = bytes(1 << 21)
    archive([("a.x", long), ("b.x", long + b"1"), ("c.x", long), ("d.x", b"short"), ("e.x", b"0" * (1 << 21))])
    run("cat", "in.tar", "--unique-by", "x", "-o", "out.tar")
    assert keys(Path("out.tar")) == "a b d e"


def test_drawn_rows(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of views the drawn rows alone are read, if they are few: with the samples and reports of their archives."""
    pytest.importorskip("pyarrow")
    for name, count in (("a", 150), ("b", 90)):
        entries = [(f"{name}{n:03}.{field}", b"%d" % n) for n in range(count) for field in ("cls", "txt")]
        Path(f"{name}.tar").write_bytes(tar(entries))
        run("cat", f"{name}.tar", "-o", f"{name}.parquet")
    read: list[int] = []
    whole = ViewReader.read
    monkeypatch.setattr(
        ViewReader, "read", lambda self, rows, before: read.append(len(rows.keys)) or whole(self, rows, before)
    )
    archives, views = ("a.tar", "b.tar"), ("a.parquet", "b.parquet")
    for drawn in (0, 1, 7, 8, 240, 300):
        read.clear()
        outputs = []
        for inputs in (views, archives):
            ran = run("cat", *inputs, "--sample", str(drawn), "--seed", "5", "--report", "r.json")
            outputs.append((ran.stdout, ran.lines, json.loads(Path("r.json").read_text())["sample"]))
        assert outputs[0] == outputs[1]
        assert sum(read) == (drawn if drawn < 8 else 240)
    data, expected = tarkit.open([*views]).sample(3, 5), [s.key for s in tarkit.open([*archives]).sample(3, 5)]
    assert [[sample.key for sample in data] for _ in range(2)] == [expected] * 2
    run("cat", *views, "--sample", "5", "--seed", "1", "-o", "o.parquet")
    expected_bytes = run("cat", *archives, "--sample", "5", "--seed", "1").stdout
    assert run("cat", "o.parquet").stdout == expected_bytes
    chosen = ("cat", "--sample", "2", "--seed", "1", "--slice", "1:")
    assert run(*chosen, *views).stdout == run(*chosen, *archives).stdout
