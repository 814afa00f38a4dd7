"""What is read from files that are not in the cache of the system is what is read from others."""

import os
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

import tarkit
from tests.streams.test_cold import evict, needs_advice


@pytest.fixture
def tmp_path():
    """Make a directory on a disk: that of other tests may be in memory."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def asked(monkeypatch):
    """The files that were asked for, and ranges of archives."""
    known = []
    advise = os.posix_fadvise

    def note(fd, start, size, advice):
        if advice == os.POSIX_FADV_WILLNEED:
            known.append(os.fstat(fd).st_ino)
        return advise(fd, start, size, advice)

    monkeypatch.setattr(os, "posix_fadvise", note)
    return known


def tree(path, count=400):
    random = Random(5)
    for number in range(count):
        directory = path / str(number // 50)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number:04d}.txt").write_bytes(random.randbytes(random.choice((0, 10, 3000))))
        (directory / f"{number:04d}.cls").write_bytes(b"%d" % number)
    return sorted(file for file in path.rglob("*") if file.is_file())


@needs_advice
def test_shard_and_create_of_cold_files(tmp_path, asked):
    files = tree(tmp_path / "tree")
    full = [file for file in files if file.stat().st_size]
    recipe = tmp_path / "recipe"
    recipe.write_text("".join(f"{file.relative_to(tmp_path / 'tree')}\tfile:{file}\n" for file in files))

    def pack(name):
        tarkit.create(recipe, tmp_path / f"{name}.tar")
        created = (tmp_path / f"{name}.tar").read_bytes()
        tarkit.shard(tmp_path / "tree", tmp_path / f"{name}-%d.tar", count=150)
        return created, [(tmp_path / f"{name}-{number}.tar").read_bytes() for number in range(3)]

    warm = pack("warm")
    asked.clear()
    evict(full)
    created = pack("cold")
    assert created == warm
    assert len(asked) > len(full) // 2
    evict(full)
    asked.clear()
    tarkit.shard(tmp_path / "tree", tmp_path / "again-%d.tar", count=150, skip_missing=True)
    assert [(tmp_path / f"again-{number}.tar").read_bytes() for number in range(3)] == warm[1]
    assert len(set(asked)) > len(full) // 2


@needs_advice
def test_samples_in_any_order_of_cold_archives(tmp_path, asked):
    random = Random(6)
    path = tmp_path / "a-0.tar"
    with tarkit.ShardWriter(tmp_path / "a-%d.tar") as writer:
        for number in range(600):
            writer.write({"__key__": f"{number:04d}", "bin": random.randbytes(random.choice((10, 20_000, 60_000)))})
    data = tarkit.open(path).indexed()
    numbers = random.sample(range(600), 600)
    expected = [data[number]["bin"] for number in numbers]
    tarkit.open(path).sort(by="__key__").shuffle(seed=1).write(tmp_path / "view.parquet")
    rows = [(sample.key, sample["bin"]) for sample in tarkit.open(tmp_path / "view.parquet")]
    evict([path])
    asked.clear()
    assert [sample["bin"] for sample in data.samples(numbers)] == expected
    assert len(asked) > 300
    evict([path])
    asked.clear()
    assert [(sample.key, sample["bin"]) for sample in tarkit.open(tmp_path / "view.parquet")] == rows
    assert asked


@needs_advice
def test_errors_of_cold_files_are_in_their_turn(tmp_path):
    files = [file for file in tree(tmp_path / "tree") if file.stat().st_size]
    recipe = tmp_path / "recipe"
    lines = [f"{file.relative_to(tmp_path / 'tree')}\tfile:{file}\n" for file in files]
    lines[300] = f"300.txt\tfile:{tmp_path}/missing\n"
    lines[310] = "no source\n"
    recipe.write_text("".join(lines))
    evict(files)
    with pytest.raises(tarkit.TarkitError, match=r"recipe:301: .*missing"):
        tarkit.create(recipe, tmp_path / "out.tar")
