"""A recipe and a tree as origins: steps and outputs take their samples as those of archives."""

from __future__ import annotations

import os
import random
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import tarkit
from tarkit.dataset import Dataset
from tarkit.packing.options import ShardOptions
from tarkit.packing.planner import plan_tree
from tarkit.packing.table import LoadedRows, TableOrigin
from tarkit.packing.tree_origin import TreeOrigin
from tarkit.pipeline.entries import HELD
from tarkit.pipeline.run import Run
from tarkit.streams.location import file_location
from tarkit.tables.content import ContentLoader, loaded
from tarkit.tables.recipe import read_recipe
from tests._tools import samples_of

Sample = tuple[str, dict[str, bytes]]


def dataset(lines: Iterable[bytes]) -> Dataset:
    """Return the samples of a recipe as a dataset."""
    load = ContentLoader()

    def rows(tmpdir: str | None) -> LoadedRows:
        return loaded(read_recipe(lines, "recipe", pipes_allowed=False), load)

    return Dataset(TableOrigin(file_location("recipe"), rows, "gather them"), Run)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[Sample]]:
    """A recipe whose samples and fields have sizes around all limits, and these samples."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(3)
    lines, want = [b"README\ttext:before the first\n"], []
    for number in range(60):
        fields = {}
        for field in ("jpg", "cls", "json")[: draw.randint(1, 3)]:
            size = draw.choice([0, 1, 511, 512, 513, 70_000, 300_000, HELD, HELD + 1, 2 * HELD])
            fields[field] = draw.randbytes(size)
            Path(f"{number}.{field}").write_bytes(fields[field])
            lines.append(f"k{number}.{field}\tfile:{number}.{field}\n".encode())
        if draw.random() < 0.2:
            lines.append(b"d%d/LICENSE\ttext:no key\n" % number)
        want.append((f"k{number}", fields))
    return lines, want


CHAINS: tuple[Callable[[Dataset], Dataset], ...] = (
    lambda data: data.select("picture:jpg"),
    lambda data: data.sort(reverse=True),
    lambda data: data.shuffle(seed=5).rekey("x/{key}"),
    lambda data: data.map(lambda sample: {**sample, "n": b"1"}).drop("jpg"),
)


@pytest.mark.slow
def test_steps(recipe: tuple[list[bytes], list[Sample]]) -> None:
    """What comes out of steps and outputs is what comes of an archive with the same entries."""
    lines, want = recipe
    Path("recipe").write_bytes(b"".join(lines))
    tarkit.create("recipe", "a.tar")
    archive = tarkit.open("a.tar")
    assert samples_of(archive) == samples_of(dataset(lines)) == want
    for chain in CHAINS:
        assert samples_of(chain(dataset(lines))) == samples_of(chain(archive))
        chain(dataset(lines)).write("one.tar")
        chain(archive).write("two.tar")
        assert samples_of(tarkit.open("one.tar")) == samples_of(tarkit.open("two.tar")) == samples_of(chain(archive))
        os.unlink("one.tar")
        os.unlink("two.tar")
    with pytest.warns(tarkit.TarkitWarning, match="1 entry without a key is left out"):
        shards = dataset(lines).split("s-%d.tar", count=25)
    assert [shard.samples for shard in shards] == [25, 25, 10]


@pytest.mark.slow
def test_steps_of_a_tree(recipe: tuple[list[bytes], list[Sample]]) -> None:
    """What comes of a planned tree is what comes of its shards; each planned shard can be read alone."""
    Path("tree").mkdir()
    for path in Path().glob("*.*"):
        path.rename(Path("tree", path))
    Path("tree/README").write_text("no key")
    shards = tarkit.shard("tree", "s-%d.tar", count=25, on_problem=print)
    plan = plan_tree(Run(on_problem=print), ShardOptions.of({"directory": "tree", "template": "x-%d.tar", "count": 25}))
    archives = tarkit.open([shard.name for shard in shards])
    for skip_missing in (False, True):
        tree = Dataset(TreeOrigin(plan, plan.shards, skip_missing=skip_missing), Run)
        assert samples_of(tree) == samples_of(archives) == samples_of(archives.sort())
        for number, shard in enumerate(shards):
            tree.only([number]).write("one.tar")
            assert Path("one.tar").read_bytes() == Path(shard.name).read_bytes()
        for chain in CHAINS:
            assert samples_of(chain(tree)) == samples_of(chain(archives))
            chain(tree).write("one.tar")
            assert samples_of(tarkit.open("one.tar")) == samples_of(chain(archives))
        assert [shard.samples for shard in tree.split(f"t-{skip_missing}-%d.tar", count=40)] == [40, 20]


def test_one_long_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of many large fields is written while it is read: few files are open at a time."""
    monkeypatch.chdir(tmp_path)
    Path("big").write_bytes(bytes(300_000))
    fields, most, before = 100, 0, len(os.listdir("/dev/fd"))

    def lines() -> Iterator[bytes]:
        nonlocal most
        for number in range(fields):
            most = max(most, len(os.listdir("/dev/fd")))
            yield b"k.f%d\tbig\n" % number

    dataset(lines()).write("a.tar")
    assert most - before < 12
    with tarfile.open("a.tar") as archive:
        assert [member.size for member in archive] == [300_000] * fields
