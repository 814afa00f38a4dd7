"""Joins in loaders, against a model over dicts: each sample as often as it should come, with the right row."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tests._tools import MARKER, ROUNDS, member

Fields = dict[str, bytes]
Samples = dict[str, Fields]


def write(path: str, samples: Samples, draw: Random) -> None:
    """Write an archive, in which some samples have an entry without a key, and are not plain."""
    with open(path, "wb") as file:
        for key, fields in samples.items():
            if draw.random() < 0.03:
                file.write(member("README", b"no field"))
            for name, data in fields.items():
                file.write(member(f"{key}.{name}", data))
        file.write(MARKER)


def content(draw: Random) -> bytes:
    """Return bytes, a few of them many."""
    return draw.randbytes(draw.choice((0, 3, 50, 600, 600, 9000)))


class Joined:
    """A set of shards, and random joins with their models."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        keys = [f"d{number % 3}/{number:03}" for number in range(draw.randrange(20, 90))]
        self.samples: Samples = {
            key: {"bin": content(draw), **({"cls": b"%d" % draw.randrange(9)} if draw.random() < 0.9 else {})}
            for key in keys
        }
        shards = draw.randrange(1, 5)
        for number in range(shards):
            write(f"s-{number}.tar", {key: self.samples[key] for key in keys[number::shards]}, draw)
        self.data: Any = tarkit.open("s-*.tar")

    def rows(self) -> list[str]:
        """Return the keys that a table has: not all, in any order, others too."""
        keys = self.draw.sample(sorted(self.samples), self.draw.randrange(1, len(self.samples)))
        return [*keys, "d0/other"] if self.draw.random() < 0.5 else sorted(keys)

    def table(self, number: int) -> None:
        """Join a table, whose columns replace, add and remove fields."""
        rows = {key: {"label": self.draw.choice((None, 1, 7)), "text": f"text {key}"} for key in self.rows()}
        kind = self.draw.choice(("csv", "jsonl", "parquet"))
        path = Path(f"t{number}.{kind}")
        if kind == "csv":
            lines = (f"{key},{row['label'] or ''},{row['text']}\n" for key, row in rows.items())
            path.write_text("__key__,label,text\n" + "".join(lines))
        elif kind == "jsonl":
            path.write_text("".join(json.dumps({"__key__": key, **row}) + "\n" for key, row in rows.items()))
        else:
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(arrow.Table.from_pylist([{"__key__": key, **row} for key, row in rows.items()]), path)
        self.data = self.data.join(path).set(f"CLS:label t{number}.txt:text")
        for key, fields in self.samples.items():
            if key in rows:
                there = next((name for name in fields if name.lower() == "cls"), "CLS")
                if rows[key]["label"] is None:
                    fields.pop(there, None)
                else:
                    fields[there] = b"%d" % rows[key]["label"]  # type: ignore[operator]
                fields[f"t{number}.txt"] = f"text {key}".encode()

    def archives(self, number: int) -> None:
        """Join other archives: by name, as a dataset, perhaps with steps, or as a view."""
        pytest.importorskip("pyarrow")
        draw, keys = self.draw, self.rows()
        others: Samples = {key: {"npy": content(draw), "more": b"m" + key.encode()} for key in keys}
        cut = draw.randrange(len(keys))
        for part, some in enumerate((keys[:cut], keys[cut:])):
            write(f"o{number}-{part}.tar", {key: others[key] for key in some}, draw)
        how, words = draw.choice(("name", "dataset", "steps", "view")), f"o{number}-*.tar"
        data = tarkit.open(words)
        names = {"npy": f"npy{number}", "more": f"more{number}"}
        choice = " ".join(f"{new}:{old}" for old, new in names.items())
        if how == "name":
            self.data = self.data.join(words).set(choice)
        elif how == "dataset":
            self.data = self.data.join(data).set(choice)
        elif how == "view":
            data.shuffle(seed=number).write(f"v{number}.view.parquet")
            self.data = self.data.join(f"v{number}.view.parquet").set(choice)
        else:
            self.data = self.data.join(data.where("lines.more < 2").select(choice)).set()
        for key, fields in self.samples.items():
            fields |= {names[old]: found for old, found in others.get(key, {}).items()}


def joined(seed: int) -> Joined:
    draw = Random(seed)
    made = Joined(draw)
    for number in range(draw.choice((1, 1, 2, 3))):
        draw.choice((made.table, made.archives))(number)
    return made


def record(sample: Any) -> tuple[str, Fields]:
    fields = dict(sample)
    fields.pop("__url__")
    return fields.pop("__key__"), fields


@pytest.mark.parametrize("seed", range(12 * ROUNDS))
def test_samples(seed: int, here: Path) -> None:
    """A loader, a dataset and a written archive have the samples of the model, and their fields in its order."""
    made = joined(seed)
    loader = tarkit.loader(made.data, shuffle_shards=False)
    expected = {key: list(fields.items()) for key, fields in made.samples.items()}
    for _ in range(2):
        assert {key: list(fields.items()) for key, fields in map(record, loader)} == expected
    assert {sample.key: list(sample.items()) for sample in made.data} == expected
    made.data.write("out.tar")
    assert {sample.key: list(sample.items()) for sample in tarkit.open("out.tar")} == expected


def test_columns_without_set(here: Path) -> None:
    """In a loader, and before another join, columns and joined samples are fields, unless `set` says which."""
    pytest.importorskip("pyarrow")
    keys = ["d/1", "d/2", "d/3"]
    write("s-0.tar", {key: {"bin": b"B"} for key in keys}, Random(1))
    write("o.tar", {key: {"npy": key.encode()} for key in keys[:2]}, Random(1))
    Path("t.csv").write_text("__key__,txt,n\n" + "".join(f"{key},text,{key[-1]}\n" for key in keys))
    both = tarkit.open("s-0.tar").join(tarkit.open("o.tar")).join("t.csv")
    expected = {key: {"bin": b"B", "npy": key.encode(), "txt": b"text", "n": key[-1:].encode()} for key in keys}
    del expected["d/3"]["npy"]
    assert dict(map(record, tarkit.loader(both))) == expected
    assert len(tarkit.loader(both, shuffle="full", equal="drop")) == 3
    chosen = tarkit.loader(both, where="n > 1", select="bin txt")
    assert dict(map(record, chosen)) == {key: {"bin": b"B", "txt": b"text"} for key in ["d/2", "d/3"]}
    none = tarkit.loader(both.where("n < 2").set(""))
    assert dict(map(record, none)) == {"d/1": {"bin": b"B", "npy": b"d/1"}}


def test_samples_of_a_view_without_a_row(here: Path) -> None:
    """They stay as they are, and so do the values of the view."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    keys = ["d/1", "d/2", "d/3"]
    write("s.tar", {key: {"bin": b"B"} for key in keys}, Random(1))
    tarkit.open("s.tar").write("v.view.parquet")
    parquet.write_table(
        parquet.read_table("v.view.parquet").append_column("x", arrow.array([7, 8, 9])), "v.view.parquet"
    )
    Path("t.csv").write_text("__key__,txt\nd/2,text\n")
    data = tarkit.open("v.view.parquet").join("t.csv")
    expected = {key: {"bin": b"B", **({"txt": b"text"} if key == "d/2" else {})} for key in keys}
    for words in (), ("txt",):
        assert {sample.key: dict(sample) for sample in data.set(*words)} == expected
        assert dict(map(record, tarkit.loader(data.set(*words), shuffle="full"))) == expected
    assert [sample.key for sample in data.where("x > 7")] == ["d/2", "d/3"]
    with_x = data.set("txt").set("n:x")
    assert {sample.key: sample["n"] for sample in with_x} == {"d/1": b"7", "d/2": b"8", "d/3": b"9"}


@pytest.mark.parametrize("seed", range(12 * ROUNDS))
def test_resumed(seed: int, here: Path) -> None:
    """Stopped at random places, on the same and other nodes and workers: each sample comes once, with its row."""
    made, draw = joined(seed), Random(seed)
    shuffle = draw.choice((0, 10, "full"))
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "interleave": 1 if shuffle == "full" else 2}
    found: list[tuple[str, Fields]] = []
    states: list[Any] | None = None
    same = draw.random() < 0.5
    world, workers = draw.randint(1, 2), draw.randint(1, 2)
    for stop in (True, True, False):
        if not same:
            world, workers = draw.randint(1, 2), draw.randint(1, 2)
        ends = []
        for rank in range(world):
            for worker in range(workers):
                place = {"rank": rank, "world": world, "worker": worker, "workers": workers, "allow_idle": True}
                loader = tarkit.loader(made.data, **options, **place)  # type: ignore[arg-type]
                if states is not None:
                    loader.load_state_dict(states)
                found += map(record, islice(loader, draw.randrange(15) if stop else None))
                ends.append(json.loads(json.dumps(loader.state_dict())))
        states = ends
    assert Counter(key for key, _ in found) == dict.fromkeys(made.samples, 1)
    assert dict(found) == made.samples


def test_no_sample_has_a_row(here: Path) -> None:
    """The end of an epoch warns of it: a worker reads some of the samples, and so it may be no error."""
    for shard in range(2):
        write(f"s-{shard}.tar", {f"d{shard}/{number}": {"bin": b"B"} for number in range(3)}, Random(1))
    Path("t.csv").write_text("__key__,txt\nd1/2,text\n")
    Path("u.csv").write_text("id,n\nd0,1\n")
    Path("v.csv").write_text("id,n\n9,1\n")
    words: list[str] = []
    some = tarkit.open("s-0.tar", on_problem=words.append)
    every = tarkit.open("s-*.tar", on_problem=words.append)
    for data, reason in (
        (every.join("t.csv"), None),
        (some.join("t.csv"), "t.csv: no sample has a row: column '__key__' begins with 'd1/2'"),
        (every.join("t.csv").join("u.csv", "id"), "u.csv: no sample has a row: column 'id'"),
        (every.join("v.csv", "id", by="bin"), "v.csv: no sample has a row: column 'id' begins with"),
        (tarkit.mix([(some.join("t.csv"), 1)]), "t.csv: no sample has a row"),
    ):
        for threads in (0, 2):
            assert len(list(tarkit.loader(data, threads=threads))) in (3, 6)
            assert [f"epoch 0: {reason}" in text for text in words] == [True] * (reason is not None)
            words.clear()
