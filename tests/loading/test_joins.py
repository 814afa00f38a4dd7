"""Joins in loaders, against a model over dicts: each sample as often as it should come, with the right row."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tarkit.joining.table import JoinTable
from tests._tools import MARKER, ROUNDS, member, slow

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
    return draw.randbytes(draw.choice((0, 3, 50, 600, 600, 9000, 40000)))


class Joined:
    """A set of shards, and random joins with their models."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        keys = [f"d{number % 3}/{number:03}" for number in range(draw.randrange(20, 90))]
        often = draw.choice((0.9, 1))  # where all have the same fields, samples stay together
        self.samples: Samples = {
            key: {"bin": content(draw), **({"cls": b"%d" % draw.randrange(9)} if draw.random() < often else {})}
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

    def change(self, number: int) -> None:
        """Leave a field out, or some of the samples, or give them other keys."""
        how = self.draw.choice(("drop", "match", "rekey"))
        if how == "drop":
            self.data = self.data.drop("cls")
            for fields in self.samples.values():
                for name in [name for name in fields if name.lower() == "cls"]:
                    del fields[name]
        elif how == "match":
            prefix = self.draw.choice([key[:4] for key in self.samples])
            self.data = self.data.match(f"^({prefix}|d[01]/)")
            self.samples = {
                key: fields for key, fields in self.samples.items() if key.startswith((prefix, "d0/", "d1/"))
            }
        else:
            self.data = self.data.rekey(f"{{key}}-{number}")
            self.samples = {f"{key}-{number}": fields for key, fields in self.samples.items()}


def joined(seed: int) -> Joined:
    draw = Random(seed)
    made = Joined(draw)
    for number in range(draw.choice((1, 1, 2, 3))):
        if draw.random() < 0.3:
            made.change(number)
        draw.choice((made.table, made.archives))(number)
    return made


def record(sample: Any) -> tuple[str, Fields]:
    fields = dict(sample)
    fields.pop("__url__")
    return fields.pop("__key__"), fields


@pytest.mark.filterwarnings("ignore:drop")
@pytest.mark.parametrize("seed", [*range(3), *map(slow, range(3, 12 * ROUNDS))])
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


@pytest.mark.filterwarnings("ignore:.*no sample has a row", "ignore:drop")
@pytest.mark.parametrize("seed", [*range(3), *map(slow, range(3, 12 * ROUNDS))])
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


def test_members_in_another_order(here: Path) -> None:
    """An object of JSON finds its row whatever the order of its members."""
    with tarkit.TarWriter("s.tar") as out:
        for key, value in (("1", {"b": [{"d": 1, "c": 2}], "a": 2}), ("2", "x"), ("3", [2, 1])):
            out.write(key, {"json": {"id": value}})
    rows = [{"id": {"a": 2, "b": [{"c": 2, "d": 1}]}, "n": 1}, {"id": {"b": 2, "a": 2}, "n": 9}, {"id": [2, 1], "n": 3}]
    Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = tarkit.open("s.tar").join("t.jsonl", "id", by="json.id")
    assert {sample["__key__"]: sample.get("n") for sample in tarkit.loader(data)} == {"1": b"1", "2": None, "3": b"3"}


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
    parts = [tarkit.loader(every.join("t.csv"), shuffle_shards=False, worker=worker, workers=2) for worker in range(2)]
    assert [len(list(part)) for part in parts] == [3, 3]
    assert [text.partition(":")[2][:40] for text in words] == [" worker 0 on node 0: t.csv: no sample ha"]


@pytest.mark.parametrize("shuffle", [0, "full"])
def test_joined_sources_of_a_mix(shuffle: int | str, here: Path) -> None:
    """They have the fields that a loader of each alone gives; steps and joins of the mix come behind these."""
    keys = {name: [f"{name}/{number:02}" for number in range(20)] for name in "ab"}
    for name in keys:
        write(f"{name}.tar", {key: {"bin": b"B"} for key in keys[name]}, Random(1))
    Path("t.csv").write_text("__key__,txt\n" + "".join(f"{key},{key}\n" for key in keys["a"]))
    Path("u.csv").write_text("__key__,n\n" + "".join(f"{key},7\n" for name in keys for key in keys[name]))
    one, other = tarkit.open("a.tar").join("t.csv"), tarkit.open("b.tar")
    mix = tarkit.mix([(one, 1), (other, 1)])
    for data, of_one, of_both in (
        (mix, {"txt"}, set[str]()),
        (mix.where("not has(txt) or endswith(txt, '1')"), {"txt"}, set()),
        (mix.join("u.csv"), {"txt"}, {"n"}),
        (mix.join("u.csv").set("m:n"), {"txt"}, {"m"}),
        (tarkit.mix([(one.set(""), 1), (other, 1)]), set(), set()),
        (tarkit.mix([(one.set("label.txt:txt"), 1), (other, 1)]), {"label.txt"}, set()),
    ):
        found = dict(map(record, tarkit.loader(data, shuffle=shuffle)))
        assert {key[0] for key in found} == {"a", "b"}
        for key, fields in found.items():
            assert set(fields) == {"bin", *of_both, *(of_one if key[0] == "a" else ())}
            assert fields.get("txt", key.encode()) == key.encode()


@pytest.mark.slow
def test_rows_are_found_together(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many samples at once, behind other steps and in any order too; few are in vain where most are left out."""
    pytest.importorskip("pyarrow")
    keys = [f"d/{number:04}" for number in range(2000)]
    for path, fields in ("s.tar", {"bin": b"B", "cls": b"1"}), ("o.tar", None):
        with tarkit.TarWriter(path) as out:
            for key in keys:
                out.write(key, fields or {"npy": key.encode()})
    tarkit.open("o.tar").write("v.view.parquet")
    Path("t.csv").write_text("__key__,txt\n" + "".join(f"{key},{key}\n" for key in keys))
    asked: list[int] = []
    find_all = JoinTable.find_all

    def counted(table: JoinTable, keys: Sequence[bytes]) -> Any:
        asked.append(len(keys))
        return find_all(table, keys)

    monkeypatch.setattr(JoinTable, "find_all", counted)
    data = tarkit.open("s.tar")
    both = data.join("t.csv").set("txt").join("v.view.parquet").set("npy")
    for chain, shuffle, joins in (
        (data.join("t.csv").set("txt"), 0, 1),
        (both, 0, 2),
        (data.select("bin").join("v.view.parquet"), 0, 1),
        (both, "full", 2),
        (data.join("v.view.parquet").set("npy").select("bin npy").join("t.csv"), "full", 2),
    ):
        for sample in tarkit.loader(chain, shuffle=shuffle):
            assert {sample[name] for name in ("txt", "npy") if name in sample} == {sample["__key__"].encode()}
        assert sum(asked) <= joins * 1.1 * len(keys)
        assert len(asked) <= joins * len(keys) // 16
        asked.clear()
    few = data.join("t.csv").where("endswith(txt, '77')").set("txt").join("v.view.parquet")
    assert len(list(tarkit.loader(few))) == 20
    assert sum(asked) < len(keys) + 512


@pytest.mark.parametrize("last", ["d/99", "behind"])  # the second is the key of the entry behind samples in memory
@pytest.mark.parametrize("shuffle", [0, 7, "full"])
def test_samples_together(last: str, shuffle: int | str, here: Path) -> None:
    """Batches of samples with the same fields, some too long for memory, some without a row; replaced fields too."""
    pytest.importorskip("pyarrow")
    keys = [*(f"d/{number:02}" for number in range(60)), last]
    samples = {key: {"bin": bytes(1 << 21 if key in ("d/20", last) else 9), "cls": b"1", "Txt": b"old"} for key in keys}
    others = {key: {"npy": key.encode() * 500, "more": b"m"} for key in keys if key != "d/33"}
    for path, some in ("s.tar", samples), ("o.tar", others):
        with tarkit.TarWriter(path) as out:
            for key, fields in some.items():
                out.write(key, fields)
    rows = {key: (number, f"text {key}") for number, key in enumerate(keys, 1) if key not in ("d/11", "d/12")}
    lines = (f"{key},{number},{text}\n" for key, (number, text) in rows.items())
    Path("t.csv").write_text("__key__,cls,txt\n" + "".join(lines))
    data = tarkit.open("s.tar").join("o.tar").set("npy more2:more").join("t.csv").set("cls txt")
    for loader in tarkit.loader(data, shuffle=shuffle), tarkit.loader(data.where("cls > 0"), shuffle=shuffle):
        found = dict(map(record, loader))
        for key, fields in samples.items():
            expected = dict(fields)
            if key in others:
                expected |= {"npy": others[key]["npy"], "more2": b"m"}
            if key in rows:
                expected |= {"cls": b"%d" % rows[key][0], "Txt": rows[key][1].encode()}
            assert list(found[key].items()) == list(expected.items())


def test_a_cell_that_is_no_content(here: Path) -> None:
    """The samples in front of it come."""
    with tarkit.TarWriter("s.tar") as out:
        for number in range(40):
            out.write(f"{number:02}", {"bin": b"B"})
    cells = ["x" if number == 30 else "1" for number in range(40)]
    Path("t.csv").write_text("__key__,cls\n" + "".join(f"{number:02},{cell}\n" for number, cell in enumerate(cells)))
    loader = iter(tarkit.loader(tarkit.open("s.tar").join("t.csv")))
    assert [next(loader)["__key__"] for _ in range(30)] == [f"{number:02}" for number in range(30)]
    with pytest.raises(tarkit.TarkitError, match=r"t\.csv:32: '30': 'x' is no integer"):
        next(loader)


KINDS = ("csv", "jsonl", "parquet", "view", "name", "dataset")
Values = dict[str, int]


def write_joined(kind: str, directory: Path, values: Values, column: str = "n") -> Any:
    """Write a table, a view or archives with a value for each key; return what is joined."""
    directory.mkdir(exist_ok=True)
    if kind == "csv":
        (directory / "t.csv").write_text(f"__key__,{column}\n" + "".join(f"{k},{v}\n" for k, v in values.items()))
    elif kind == "jsonl":
        lines = (json.dumps({"__key__": key, column: value}) + "\n" for key, value in values.items())
        (directory / "t.jsonl").write_text("".join(lines))
    elif kind == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = arrow.Table.from_pylist([{"__key__": key, column: value} for key, value in values.items()])
        parquet.write_table(table, directory / "t.parquet")
    else:
        pytest.importorskip("pyarrow")
        for number in range(2):
            some = {key: {column: b"%d" % value} for key, value in list(values.items())[number::2]}
            write(str(directory / f"o-{number}.tar"), some, Random(1))
        data = tarkit.open(f"{directory}/o-*.tar")
        if kind == "view":
            data.write(directory / "t.view.parquet")
            return directory / "t.view.parquet"
        return data if kind == "dataset" else f"{directory}/o-*.tar"
    return directory / f"t.{kind}"


def one_changed(values: Values, draw: Random) -> Values:
    """Give one key another value of the same size."""
    key = draw.choice(sorted(values))
    return {**values, key: 19 - values[key] + 10}


def one_removed(values: Values, draw: Random) -> Values:
    """Leave a key out."""
    gone = draw.choice(sorted(values))
    return {key: value for key, value in values.items() if key != gone}


def one_added(values: Values, draw: Random) -> Values:
    """Add a key."""
    return {**values, "k999": 12}


def swapped(values: Values, draw: Random) -> Values:
    """Give two keys the values of each other."""
    one, other = draw.sample(sorted(values), 2)
    return {**values, one: values[other], other: values[one]}


def unchanged(values: Values, draw: Random) -> Values:
    """Write the same again."""
    return values


def stopped(data: Any, stop: int, **options: Any) -> tuple[list[tuple[str, Fields]], Any]:
    """Return samples up to one, and the position as it is stored."""
    loader = tarkit.loader(data, **options)
    found = list(map(record, islice(loader, stop)))
    return found, json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("seed", [*range(6), *map(slow, range(6, 24 * ROUNDS))])
def test_what_is_joined_changes(seed: int, here: Path) -> None:
    """Other values are refused by name, before any sample; the same ones, elsewhere too, are what was joined."""
    draw = Random(seed)
    kind = KINDS[seed % len(KINDS)]
    keys = [f"k{number:03}" for number in range(draw.randrange(6, 40))]
    values = {key: 10 + number % 7 + (number % 3 == 0) for number, key in enumerate(keys)}
    write("s-0.tar", {key: {"bin": b"B"} for key in keys[::2]}, draw)
    write("s-1.tar", {key: {"bin": b"B"} for key in keys[1::2]}, draw)
    options: dict[str, Any] = {"shuffle": draw.choice((0, 4, "full")), "seed": seed}
    first, state = stopped(
        tarkit.open("s-*.tar").join(write_joined(kind, here / "a", values)), len(keys) // 2, **options
    )
    change = draw.choice((one_changed, one_removed, one_added, swapped, unchanged, unchanged))
    after = change(values, draw)
    column = "m" if after == values and draw.random() < 0.4 else "n"
    other = write_joined(kind, here / draw.choice("ab"), after, column)
    workers = draw.choice((1, 1, 2))
    data = tarkit.open("s-*.tar").join(other)
    loaders = [tarkit.loader(data, **options, worker=worker, workers=workers) for worker in range(workers)]
    for loader in loaders:
        loader.load_state_dict(draw.choice((state, [state])) if workers == 1 else [state])
        assert loader.state_dict()["joined"] == state["joined"]
    if (after, column) == (values, "n"):
        found = first + [record(sample) for loader in loaders for sample in loader]
        assert dict(found) == {key: {"bin": b"B", "n": b"%d" % value} for key, value in values.items()}
        assert len(found) == len(keys)
    else:
        name = {"name": "o-*.tar", "dataset": "o-0.tar and 1 more"}.get(kind, f"t.{kind}")
        for loader in loaders + [
            pickle.loads(pickle.dumps(loader)) for loader in loaders
        ]:  # as other processes have it
            with pytest.raises(tarkit.Usage, match=r"not what the position was joined with") as raised:
                next(iter(loader))
            assert name in str(raised.value)
            assert "resume with what it was made with" in (raised.value.hint or "")


def test_other_options_of_a_join(here: Path) -> None:
    """Another column, way to find rows, or choice of fields is another loader."""
    keys = ["a/1", "a/2", "a/3"]
    write("s-0.tar", {key: {"bin": b"B"} for key in keys}, Random(1))
    Path("t.csv").write_text("__key__,other,n,m\n" + "".join(f"{key},{key},1,2\n" for key in keys))
    data = tarkit.open("s-0.tar")
    _, state = stopped(data.join("t.csv").set("n"), 1)
    others = [
        data.join("t.csv"),
        data.join("t.csv").set("m"),
        data.join("t.csv").set("x:n"),
        data.join("t.csv").set("json:{n}"),
        data.join("t.csv", by="stem").set("n"),
        data.join("t.csv", on_duplicate="last").set("n"),
        data.join("t.csv", "other").set("n"),
        data,
    ]
    for other in others:
        for loaded in state, [state]:
            with pytest.raises(tarkit.Usage, match="its filter is"):
                tarkit.loader(other).load_state_dict(loaded)
    tarkit.loader(data.join("t.csv").set("n")).load_state_dict(state)


def test_a_table_changes_at_the_end_of_an_epoch(here: Path) -> None:
    """The next epoch has none of its rows; nor have a mix, another number of workers, or positions that differ."""
    keys = [f"k{number}" for number in range(8)]
    for number in range(2):
        write(f"s-{number}.tar", {key: {"bin": b"B"} for key in keys[number::2]}, Random(1))
    values = dict.fromkeys(keys, 10)

    def states(data: Any, stop: int | None) -> list[Any]:
        places: list[dict[str, int]] = [{"worker": worker, "workers": 2} for worker in range(2)]
        return [stopped(data, stop, shuffle="full", **place)[1] for place in places]

    data = tarkit.open("s-*.tar").join(write_joined("csv", here / "a", values))
    mix = tarkit.mix([(tarkit.open("s-0.tar"), 1), (tarkit.open("s-1.tar"), 1)]).join(here / "a/t.csv")
    before, of_mix = [states(data, stop) for stop in (None, 1)], states(mix, None)
    write_joined("csv", here / "a", {**values, "k3": 11})
    for made, positions in ((data, before[0]), (data, before[1]), (mix, of_mix)):
        loader = tarkit.loader(made, shuffle="full")
        loader.load_state_dict(positions)
        with pytest.raises(tarkit.Usage, match=r"t\.csv: not what"):
            [list(loader) for _ in range(2)]  # the rest of an epoch, perhaps empty, and the next
    with pytest.raises(tarkit.Usage, match=r"t\.csv: workers have joined contents that differ"):
        tarkit.loader(data, shuffle="full").load_state_dict([before[1][0], states(data, 1)[1]])
    with pytest.raises(tarkit.Usage, match="damaged"):
        tarkit.loader(data, shuffle="full").load_state_dict({**before[1][0], "worker": 0, "workers": 1, "joined": [7]})


def test_a_table_is_read_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To compare it takes no other read, and no epoch does."""
    write("s-0.tar", {f"k{number}": {"bin": b"B"} for number in range(4)}, Random(1))
    table = write_joined("csv", here / "a", {"k1": 10})
    data = tarkit.open("s-0.tar").join(table)
    _, state = stopped(data, 2)
    opened: list[str] = []
    from tarkit.tables import rows

    read = rows.open_file
    monkeypatch.setattr(rows, "open_file", lambda word, storage: opened.append(word) or read(word, storage))
    loader = tarkit.loader(data)
    loader.load_state_dict(state)
    assert len(list(loader)) == 2
    assert len(list(loader)) == 4
    assert len(opened) == 1
