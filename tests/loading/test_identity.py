"""A position in shards that were changed since: it is an error, or each sample comes once."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tarkit.loading.identity import marks_as_text, parse_marks
from tests._tools import ROUNDS

Contents = dict[str, bytes]  # of a shard: the labels of its samples, by key


def write(name: str, samples: Contents, suffix: str = "cls") -> None:
    """Write a shard anew; with the same number of samples it has the same size."""
    Path(name).unlink(missing_ok=True)
    with tarfile.open(name, "w") as out:
        for key, label in samples.items():
            info = tarfile.TarInfo(f"{key}.{suffix}")
            info.size = len(label)
            out.addfile(info, io.BytesIO(label))


def read(data: Any, stop: int | None = None, **options: Any) -> tuple[list[tuple[str, bytes]], dict[str, Any]]:
    """Return keys and labels of the first samples of an epoch, and the position as it is stored."""
    loader = tarkit.loader(data, **options)
    found = [(sample["__key__"], sample["cls"]) for sample in islice(loader, stop)]
    return found, json.loads(json.dumps(loader.state_dict()))


def resumed(data: Any, state: dict[str, Any], **options: Any) -> list[tuple[str, bytes]]:
    """Return keys and labels of the rest of an epoch."""
    loader = tarkit.loader(data, **options)
    loader.load_state_dict(state)
    return [(sample["__key__"], sample["cls"]) for sample in loader]


def halves(count: int, each: int) -> list[Contents]:
    """Return shards with so many samples each."""
    return [{f"k{n:03d}": b"%d" % (n % 10) for n in range(s * each, (s + 1) * each)} for s in range(count)]


def reshuffled(shards: list[Contents], random: Random) -> list[Contents]:
    """Give the samples of all shards another order."""
    samples = [item for shard in shards for item in shard.items()]
    random.shuffle(samples)
    rest = iter(samples)
    return [dict(next(rest) for _ in shard) for shard in shards]


def one_reshuffled(shards: list[Contents], random: Random) -> list[Contents]:
    """Give the samples of one shard another order."""
    number = random.randrange(len(shards))
    samples = random.sample(list(shards[number].items()), len(shards[number]))
    return [dict(samples) if place == number else shard for place, shard in enumerate(shards)]


def swapped(shards: list[Contents], random: Random) -> list[Contents]:
    """Give two shards the names of each other."""
    return [*shards[1:], shards[0]]


def relabelled(shards: list[Contents], random: Random) -> list[Contents]:
    """Correct a label of the same size in one shard."""
    number = random.randrange(len(shards))
    key = random.choice(list(shards[number]))
    return [{**shard, key: b"x"} if place == number else shard for place, shard in enumerate(shards)]


def rewritten(shards: list[Contents], random: Random) -> list[Contents]:
    """Write the same bytes."""
    return shards


CHANGES = [reshuffled, one_reshuffled, swapped, relabelled, rewritten]


def test_shards_that_were_changed_at_random(here: Path) -> None:
    """A shard that was opened is refused, by name, if its content is another; else what came and what comes is all."""
    refused = 0
    for seed in range(30 * ROUNDS):
        random = Random(seed)
        shards = halves(random.randint(1, 5), random.randint(1, 8))
        names = [f"s{number}.tar" for number in range(len(shards))]
        for name, samples in zip(names, shards, strict=True):
            write(name, samples)
        shuffle = random.choice([0, 3, 50, "full"])
        options = {"seed": seed, "shuffle": shuffle, "interleave": 1 if shuffle == "full" else random.randint(1, 3)}
        stop = random.randint(0, sum(map(len, shards)))
        first, state = read(names, stop, **options)
        opened = parse_marks(state["marks"], len(names))
        after = random.choice(CHANGES)(shards, random)
        for name, samples in zip(names, after, strict=True):
            write(name, samples)
        different = [n for n in opened if list(shards[n].items()) != list(after[n].items())]
        if different:
            refused += 1
            with pytest.raises(tarkit.Usage, match=r"not the shard of the position") as raised:
                resumed(names, state, **options)
            assert any(str(raised.value).startswith(names[number]) for number in different)
            assert "begin an epoch without it" in (raised.value.hint or "")
        else:
            rest = resumed(names, state, **options)
            assert sorted(key for key, _ in first + rest) == sorted(key for shard in shards for key in shard), seed
    assert refused > 10


def test_copies(here: Path) -> None:
    """Files with the same content are the same shards, in any directory and of any time."""
    for number, samples in enumerate(halves(3, 10)):
        write(f"s{number}.tar", samples)
    whole, _ = read("s*.tar")
    first, state = read("s*.tar", 13)
    Path("copies").mkdir()
    for number in range(3):
        shutil.copyfile(f"s{number}.tar", f"copies/s{number}.tar")
        os.utime(f"s{number}.tar", (1, 1))
    assert first + resumed("s*.tar", state) == whole
    loader = tarkit.loader("copies/s*.tar")
    loader.load_state_dict(state)
    samples = iter(loader)
    middle = [(sample["__key__"], sample["cls"]) for sample in islice(samples, 9)]
    second = loader.state_dict()
    samples.close()  # type: ignore[attr-defined]
    assert set(parse_marks(second["marks"], 3)) == {0, 1, 2}
    assert first + middle + resumed("s*.tar", second) == whole


def test_a_large_shard(here: Path) -> None:
    """Samples in another order are noticed in any part of a file; what is compared is a part of it."""
    samples = {f"k{number:05d}": b"1" for number in range(1000)}
    write("s.tar", samples)
    _, state = read("s.tar", 5)
    for front in (0, 200, 500, 700):
        keys = list(samples)
        write("s.tar", dict.fromkeys(keys[:front] + keys[: front - 1 : -1] if front else keys[::-1], b"1"))
        with pytest.raises(tarkit.Usage, match=r"s\.tar: not the shard of the position"):
            resumed("s.tar", state)


def test_compressed_shards(here: Path) -> None:
    """They are compared as they are stored."""
    import gzip

    write("a.tar", halves(1, 10)[0])
    Path("s.tar.gz").write_bytes(gzip.compress(Path("a.tar").read_bytes(), mtime=1))
    _, state = read("s.tar.gz", 5)
    Path("s.tar.gz").write_bytes(gzip.compress(Path("a.tar").read_bytes(), mtime=2))
    with pytest.raises(tarkit.Usage, match=r"s\.tar\.gz: not the shard"):
        resumed("s.tar.gz", state)


def test_commands_are_not_compared(here: Path) -> None:
    """Nobody knows what they print."""
    write("a.tar", halves(1, 10)[0])
    first, state = read("pipe:cat a.tar", 4)
    assert state["marks"] == ""
    assert len(first + resumed("pipe:cat a.tar", state)) == 10


def test_marks() -> None:
    """They come back from text; text of anything else is an error."""
    assert parse_marks(marks_as_text({3: "ab", 0: "cd"}), 4) == {3: "ab", 0: "cd"}
    assert parse_marks("", 0) == {}
    for text in ("4:ab", "-1:ab", "x:ab"):
        with pytest.raises(ValueError, match=r"number|invalid literal"):
            parse_marks(text, 4)
