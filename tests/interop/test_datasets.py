"""`datasets` of Hugging Face over shards of tarkit, streaming and not; the rules of `check --target hf`.

The library has no writer of shards, so there is nothing of it that tarkit could read.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import tarkit
from tests.commands.test_check import found
from tests.commands.test_check_target import TARGETS
from tests.conftest import Archive, Run
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
