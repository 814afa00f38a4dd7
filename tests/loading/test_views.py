"""Loaders and indexed datasets over views: they give what they give for archives of the same samples."""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tests._tools import ROUNDS, slow

arrow: Any = pytest.importorskip("pyarrow", reason="views are Parquet files")
parquet: Any = pytest.importorskip("pyarrow.parquet")


def write_archives(random: Random) -> list[dict[str, Any]]:
    """Write archives of random sizes; return the rows of a view of all samples."""
    number = 0
    for shard in range(random.randint(1, 4)):
        with tarkit.TarWriter(f"s-{shard}.tar") as out:
            for _ in range(random.choice([1, 3, 20])):
                out.write(f"{number:05d}", {"cls": number % 7, "txt": "t" * number})
                number += 1
    tarkit.open("s-*.tar").write("all.view.parquet")
    rows: list[dict[str, Any]] = parquet.read_table("all.view.parquet").to_pylist()
    return rows


def write_views(random: Random, rows: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Write views of some rows in any order, some with other keys and values, and archives of the same samples."""
    random.shuffle(rows)
    if random.random() < 0.5:
        rows = [{**row, "__key__": f"x/{row['__key__']}", "__fields__": "label:cls txt"} for row in rows]
    rows = [{**row, "score": int(row["__key__"][-5:]) % 5} for row in rows]
    count = random.randint(1, min(3, len(rows)))
    views, archives = [], []
    for part in range(count):
        view = f"v-{part}.view.parquet"
        parquet.write_table(arrow.Table.from_pylist(rows[part::count]), view, row_group_size=random.choice([2, 7, 99]))
        tarkit.open(view).write(f"a-{part}.tar")
        views.append(view)
        archives.append(f"a-{part}.tar")
    return views, archives


def draw(random: Random) -> dict[str, Any]:
    shuffle = random.choice([0, 4, "full"])
    return {
        "seed": random.randrange(9),
        "epochs": random.choice([1, 2]),
        "shuffle": shuffle,
        "interleave": 1 if shuffle == "full" else random.choice([1, 2]),
        "batch": random.choice([None, 3]),
        "equal": random.choice([None, "drop", "repeat"]),
        "shuffle_shards": random.random() < 0.7,
    }


def given(items: Any) -> list[Any]:
    return [{name: value for name, value in item.items() if name != "__url__"} for item in items]


def stopped(views: list[str], random: Random, **options: Any) -> list[Any]:
    """Return what a loader gives that is stopped and resumed."""
    loader = tarkit.loader(views, **options)
    found = given(islice(loader, random.randint(0, 40)))
    again = tarkit.loader(views, **options)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    return found + given(again)


@pytest.mark.parametrize("seed", [0, 1, *map(slow, range(2, 6 * ROUNDS))])
def test_a_loader_of_views(seed: int, here: Path) -> None:
    """It gives what a loader of archives with the samples gives, in that order, also when it is stopped and resumed."""
    random = Random(seed)
    views, archives = write_views(random, write_archives(random))
    options = draw(random)
    expected = given(tarkit.loader(archives, **options))
    assert given(tarkit.loader(views, **options)) == expected
    assert stopped(views, random, **options) == expected


@pytest.mark.parametrize("seed", [0, 1, *map(slow, range(2, 6 * ROUNDS))])
def test_samples_of_views_are_divided(seed: int, here: Path) -> None:
    """Whatever the number of views, each worker has as many samples as the others, and `len` says how many."""
    random = Random(seed)
    rows = write_archives(random)
    views, _ = write_views(random, rows)
    options = {**draw(random), "epochs": 1, "allow_idle": True}
    world, workers = random.choice([(1, 3), (2, 2), (2, 5), (3, 1)])
    parts, one = [], [sample["__key__"] for sample in tarkit.loader(views, **{**options, "batch": None})]
    for rank in range(world):
        for worker in range(workers):
            how = {**options, "rank": rank, "world": world, "worker": worker, "workers": workers}
            whole = given(tarkit.loader(views, **how))
            assert len(tarkit.loader(views, **how)) == len(whole)
            assert stopped(views, random, **how) == whole
            batched = [sample["__key__"] for sample in whole]
            parts.append([key for batch in batched for key in batch] if options["batch"] else batched)
    sizes, counts = [*map(len, parts)], Counter(key for part in parts for key in part)
    if options["shuffle"] != "full" or not options["batch"]:
        assert max(sizes) - min(sizes) <= (options["equal"] is None or len(rows) < len(parts))
    if options["equal"] == "drop":
        assert (sum(sizes), len(counts)) == (len(rows) // len(parts) * len(parts),) * 2
    else:
        assert counts.keys() == {*one}
        assert options["equal"] or max(counts.values()) == 1
    if options["shuffle"] == 0 and options["interleave"] == 1 and not options["equal"]:
        assert [key for part in parts for key in part] == one


def test_samples_that_a_policy_leaves_out_have_no_numbers(here: Path) -> None:
    """Then views are divided, not their samples."""
    write_archives(Random(4))
    for skip in ("changed-source", "missing-shard"):
        data = tarkit.open("all.view.parquet", skip=skip)
        with pytest.raises(tarkit.Usage, match="1 shard for 2 workers"):
            next(iter(tarkit.loader(data, worker=0, workers=2)))
    data = tarkit.open("all.view.parquet", skip="bad-field")
    assert list(tarkit.loader(data, worker=1, workers=2))


def test_rows_that_stand_twice(here: Path) -> None:
    """A sample comes as often as it has rows, to all workers together, and a column chooses among them."""
    rows = write_archives(Random(4))
    weighted = [row for number, row in enumerate(rows) for _ in range(number % 4)]
    table = [{**row, "odd": int(row["__key__"]) % 2} for row in weighted]
    parquet.write_table(arrow.Table.from_pylist(table), "w.view.parquet")
    expected = Counter(row["__key__"] for row in weighted)
    options: dict[str, Any]
    for options in ({"shuffle": "full"}, {"shuffle": "full", "where": "odd == 1"}, {"where": "odd == 1"}, {}):
        found: Counter[str] = Counter()
        for worker in range(3):
            found.update(
                item["__key__"] for item in tarkit.loader("w.view.parquet", worker=worker, workers=3, **options)
            )
        assert found == {key: count for key, count in expected.items() if "where" not in options or int(key) % 2}
    with pytest.raises(tarkit.TarkitError, match=f"{len(table)} samples for 999 workers"):
        next(iter(tarkit.loader("w.view.parquet", worker=0, workers=999)))


def test_a_view_that_changed(here: Path) -> None:
    """A position is not continued in another view."""
    rows = write_archives(Random(4))
    loader = tarkit.loader("all.view.parquet")
    list(islice(loader, 2))
    parquet.write_table(arrow.Table.from_pylist([*rows[1:], rows[0]]), "all.view.parquet")
    with pytest.raises(tarkit.TarkitError, match=r"all\.view\.parquet: not the shard of the position|other shards"):
        tarkit.loader("all.view.parquet").load_state_dict(loader.state_dict())


@pytest.mark.parametrize("copy", [False, True])
def test_an_archive_that_is_replaced(copy: bool, here: Path) -> None:
    """Samples of two versions of an archive are not mixed, though both fit the view, and not in another process."""
    write_archives(Random(4))
    data = tarkit.open("all.view.parquet").indexed()
    assert dict(data[0])
    before = Path("s-0.tar").read_bytes()
    Path("new.tar").write_bytes(before.replace(b"t" * 9, b"u" * 9))
    if copy:
        os.replace("new.tar", "s-0.tar")
        data = pickle.loads(pickle.dumps(data))
    else:
        Path("s-0.tar").write_bytes(Path("new.tar").read_bytes())
    with pytest.raises(tarkit.TarkitError, match=r"s-0\.tar: the .* chang"):
        data[1]
    samples = iter(tarkit.loader("all.view.parquet", shuffle="full"))
    next(samples)
    for path in here.glob("s-*.tar"):
        path.write_bytes(path.read_bytes())
    with pytest.raises(tarkit.TarkitError, match=r"s-.\.tar: the .* chang"):
        list(samples)


def test_an_indexed_view(here: Path) -> None:
    """Samples by number are the rows, by key the first of them; a sample whose archive has changed is an error."""
    random = Random(3)
    views, archives = write_views(random, write_archives(random))
    data, expected = tarkit.open(views).indexed(), tarkit.open(archives).indexed()
    assert len(data) == len(expected)
    for one in (data, pickle.loads(pickle.dumps(data))):
        assert [(sample.key, dict(sample)) for sample in one] == [(sample.key, dict(sample)) for sample in expected]
        assert [sample.key for sample in one[[2, 0]]] == [expected[2].key, expected[0].key]
        assert one[expected[1].key].key == expected[1].key
    mixed = tarkit.open([views[0], "s-0.tar"], decode=True).indexed()
    assert mixed[len(mixed) - 1]["txt"].startswith("t") or not mixed[len(mixed) - 1]["txt"]
    assert data.keys() == expected.keys()
    archive = Path("s-0.tar")
    archive.write_bytes(bytes(512) + archive.read_bytes())
    with pytest.raises(tarkit.TarkitError, match=r"s-0\.tar"):
        list(tarkit.open("all.view.parquet").indexed())
