"""`datasets` of Hugging Face over shards of tarkit, streaming and not; the rules of `check --target hf`.

The library has no writer of shards, so there is nothing of it that tarkit could read.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._odd import odd_archive
from tests.commands.test_check import found
from tests.commands.test_check_target import COUNT, TARGETS, claims
from tests.conftest import Archive, Run, entries, tar
from tests.interop._packages import needs, result

pytestmark = pytest.mark.torch

LOAD = """
import sys, datasets
def load(path, streaming=True):
    data = datasets.load_dataset("webdataset", data_files={"train": path}, split="train", streaming=streaming)
    if not streaming or data.features is None:
        return list(data)
    pictures = [name for name, kind in data.features.items() if isinstance(kind, datasets.Image)]
    for name in pictures:  # the bytes of pictures, whatever they are
        data = data.cast_column(name, datasets.Image(decode=False))
    return [{k: v["bytes"] if k in pictures and v else v for k, v in each.items() if k != "__url__"} for each in data]
"""

VALUES = """
def plain(value):
    return [int(each) for each in value] if isinstance(value, list) else value
shards = sys.argv[1:]
streamed = load(shards)
kept = load(shards, False)
print([
    [each["png"] for each in streamed],
    [[each["png"].mode, each["png"].size, list(each["png"].tobytes())] for each in kept],
    [[{k: plain(v) for k, v in each.items() if k not in ("png", "__url__")} for each in rows] for rows in (streamed, kept)],
])
"""  # noqa: E501


def test_it_reads_what_tarkit_writes(run: Run) -> None:
    """Keys, text, numbers, JSON, arrays and pictures are those that tarkit encoded; other fields are bytes."""
    needs("datasets", "numpy", "PIL")
    import numpy as np

    rng = np.random.default_rng(7)
    expected, pixels = [], []
    with tarkit.ShardWriter("s-%d.tar", count=3) as out:
        for n in range(7):
            array, picture = rng.integers(0, 9, 3), rng.integers(0, 256, (4, 6, 3), np.uint8)
            fields = {"txt": f"ß{n}", "cls": n, "json": {"n": n, "of": ["a", "b"]}, "bin": bytes([n, 255])}
            out.write(f"d/k{n:02}", {**fields, "npy": array, "png": picture})
            expected.append({**fields, "npy": array.tolist(), "__key__": f"d/k{n:02}"})
            pixels.append(["RGB", (6, 4), list(picture.tobytes())])
    pictures = [sample["png"] for sample in tarkit.open("s-*.tar")]
    run("check", "s-0.tar", "s-1.tar", "s-2.tar", "--target", "hf")
    for suffix in ("tar.gz", "tar.bz2", "tar.xz", "tar.zst"):
        tarkit.open("s-*.tar").select("txt").write(f"c.{suffix}")
        run("check", f"c.{suffix}", "--target", "hf", exit=int(suffix == "tar.zst"))
    texts = [(each["__key__"], {"txt": each["txt"]}) for each in expected]
    packed = result(LOAD + CASES, "c.tar.gz", "c.tar.bz2", "c.tar.xz", "c.tar.zst")
    assert packed == [texts, texts, texts, "ReadError"]
    assert result(LOAD + VALUES, "s-0.tar", "s-1.tar", "s-2.tar") == [pictures, pixels, [expected, expected]]


CASES = """
import ast
rows = []
for path in sys.argv[1:]:
    try:
        rows.append([(each.pop("__key__"), {k: v for k, v in each.items() if v is not None}) for each in load(path)])
    except Exception as error:
        rows.append(type(error).__name__)
print(rows)
"""


def test_the_rules_of_check(run: Run, archive: Archive) -> None:
    """A shard for which `check --target hf` finds nothing is read as tarkit reads it, any other one is not."""
    needs("datasets", "numpy", "PIL")
    number = b"0" * 44 + b"1"  # in fields that must be integers
    shards = [
        archive(re.sub(rb"([kl]\dcls){9}", number, data), f"{place}.tar")
        for place, (data, _) in enumerate(TARGETS.values())
    ]
    read = result(LOAD + CASES, *shards)
    for (case, _), shard, rows in zip(TARGETS.items(), shards, read, strict=True):
        wrong = {problem for problem, _ in found(run("check", shard, "--target", "hf", exit=None))}
        expected: list[tuple[str, dict[str, Any]]] = []
        for sample in tarkit.open(shard):
            fields = {name: sample[name] for name in sample if "png" not in name or not case.startswith("symbolic")}
            values = {name: int(data) if name == "cls" and data else data for name, data in fields.items()}
            expected.append((sample.key, {k: v.decode() if k == "txt" else v for k, v in values.items()}))  # type: ignore[union-attr]
        if "reader-refuses" in wrong:
            assert isinstance(rows, str), case
        else:
            assert (rows != expected) == ("reader-misreads" in wrong), (case, rows)


# ---- archives drawn at random

READ = """
import base64
def plain(value):
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None}
    return [plain(each) for each in value] if isinstance(value, list) else value
rows = []
for path in open("shards").read().split():
    try:
        data = datasets.load_dataset("webdataset", data_files={"train": path}, split="train")
        for name, kind in data.features.items():
            if isinstance(kind, datasets.Image):
                data = data.cast_column(name, datasets.Image(decode=False))
        read = []
        for each in data:
            key, _ = each.pop("__key__"), each.pop("__url__")
            pictures = [k for k, v in each.items() if v and isinstance(data.features[k], datasets.Image)]
            read.append((key, plain({k: v["bytes"] if k in pictures else v for k, v in each.items()})))
        rows.append(read)
    except Exception as error:
        rows.append(type(error).__name__)
print(rows)
"""


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_null(each) for name, each in value.items() if each is not None}
    return [without_null(each) for each in value] if isinstance(value, list) else value


def as_hf(sample: tarkit.Sample) -> tuple[str, dict[str, Any]]:
    fields: dict[str, Any] = {}
    for name, data in sample.items():
        last = name.rpartition(".")[2].lower()
        known = {"txt": bytes.decode, "cls": int, "cls2": int, "json": json.loads}.get(last, lambda data: data)
        fields[name] = known(data)
    return sample.key, without_null(fields)


def compare(archives: list[bytes]) -> int:
    """Compare what check says with what the library reads; return the number of archives without other problems."""
    for number, data in enumerate(archives):
        Path(f"{number}.tar").write_bytes(data)
    Path("shards").write_text("\n".join(f"{number}.tar" for number in range(len(archives))))
    checked = 0
    for number, rows in enumerate(result(LOAD + READ)):
        said = claims(f"{number}.tar", "hf")
        if said is None:
            continue
        checked += 1
        if isinstance(rows, str):
            assert said, (number, rows, entries(archives[number]))
            continue
        assert said != {"reader-refuses"}, (number, rows, entries(archives[number]))
        if not said:
            assert rows == [as_hf(each) for each in tarkit.open(f"{number}.tar")], number
        else:
            assert rows != samples_or_none(f"{number}.tar"), (number, said)
    return checked


def samples_or_none(path: str) -> list[tuple[str, dict[str, Any]]] | None:
    """Return the samples as the library has them, None if there are contents that cannot be read or decoded."""
    try:
        return [as_hf(each) for each in tarkit.open(path)]
    except (ValueError, tarkit.TarkitError):
        return None


def test_odd_archives(here: Path) -> None:
    """No verdict on names, types and extension headers is false."""
    needs("datasets", "numpy", "PIL")
    assert compare([odd_archive(random.Random(seed)) for seed in range(COUNT // 2)]) > COUNT // 5


def drawn(draw: random.Random, depth: int = 2) -> Any:
    """Return a value of JSON."""
    kind = draw.choice("snnnol" if depth else "nnns")
    if kind == "o":
        return {name: drawn(draw, depth - 1) for name in draw.sample("abc", draw.randint(0, 2))}
    if kind == "l":
        return [drawn(draw, depth - 1) for _ in range(draw.randint(0, 2))]
    return (
        draw.choice([None, None, True, 0, 1, 7, 1.5, 2.0, -1, 2**63, 2**53 + 1])
        if kind == "n"
        else draw.choice(["", "a", "7"])
    )


def contents(draw: random.Random) -> bytes:
    """Return a shard whose later samples may have other contents than the first ones."""
    field = draw.choice(["json", "json", "json", "JSON", "x.json", "cls", "txt", "cls2"])
    few = [drawn(draw) for _ in range(draw.choice([1, 1, 2]))]
    more = [*few, drawn(draw)] if draw.random() < 0.6 else few
    values = [draw.choice(few) for _ in range(draw.choice([3, 5, 6]))] + [draw.choice(more) for _ in range(3)]
    if field in ("cls", "cls2"):
        texts = [
            draw.choice([b"1", b" 2\n", b"-3"] + [b"", b"1.5", b"x", b"9" * 19, b"1_0"] * (draw.random() < 0.1))
            for _ in values
        ]
    elif field == "txt":
        texts = [draw.choice([b"", "\xe9".encode(), b"a"] + [b"\xff"] * (draw.random() < 0.1)) for _ in values]
    else:
        texts = [json.dumps(value).encode() for value in values]
        if draw.random() < 0.1:
            texts[draw.randrange(len(texts))] = draw.choice([b"", b"{", b"\xff", b'"\\ud800"', "1".encode("utf-16")])
    return tar({f"{number}.{field}": text for number, text in enumerate(texts)})


def test_odd_contents(here: Path) -> None:
    """No verdict on texts, numbers and JSON is false, in the first samples and in later ones."""
    needs("datasets", "numpy", "PIL")
    assert compare([contents(random.Random(seed)) for seed in range(COUNT)]) == COUNT
