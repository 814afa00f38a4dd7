"""Laws of views: what is read through a view is what is read from the archives."""

from __future__ import annotations

import os
import random
import re
import shutil
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import Problem, TarkitError
from tarkit.samples.sample import key_of
from tarkit.streams.source import FileSource
from tarkit.tar.reader import TarReader
from tests._chains import Chain, differences
from tests._tools import slow
from tests.conftest import Run

pytest.importorskip("pyarrow", reason="views are Parquet files")

CHAINS = int(os.environ.get("TARKIT_TESTS_CHAINS", "60"))
FIRST = int(os.environ.get("TARKIT_TESTS_FIRST_CHAIN", "0"))


@pytest.mark.slow
def test_chains_over_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains of steps over views of archives give what the model gives; every second one without the accelerator."""
    failed = differences(range(FIRST, FIRST + CHAINS), tmp_path, monkeypatch, processes=0, views=True)
    assert not failed, f"{len(failed)} of {CHAINS} chains\n" + "\n".join(failed[:8])


REFUSED = "a view names ranges of plain archives|is not UTF-8, as the keys|has no fields"
"""New contents, compressed archives, and what a row cannot say."""


def written(data: tarkit.Dataset, path: Path, odd: bool) -> bytes | str | list[tuple[bytes, ...]]:
    """Return the archive that a dataset is written to, its entries with keys if it is `odd`, or a problem.

    A view has no entries without a key beside samples, nor in samples whose fields are renamed.
    """
    try:
        data.write(path)
    except Problem as problem:
        return problem.name
    if not odd:
        return path.read_bytes()
    source = FileSource(os.open(path, os.O_RDONLY), path.name)
    entries = [entry for entry in TarReader(source) if key_of(entry) is not None]
    return [(entry.name, entry.type, entry.link, source.read(entry.data, entry.stop)) for entry in entries]


@pytest.mark.slow
def test_view_of_a_chain(tmp_path: Path) -> None:
    """The archive that a view of a chain stands for is the one that the chain writes, byte for byte."""
    failed, count = [], 0
    for seed in range(FIRST, FIRST + CHAINS):
        here = tmp_path / str(seed)
        here.mkdir()
        one = Chain(seed, here, processes=0, views=seed % 2 == 1)
        try:
            if all(shard.named for shard in one.shards):
                view = here / "of.view.parquet"
                one.dataset().write(view)
                count += 1
                through = tarkit.open(view, allow=["duplicate-entry", "joined-sample"], on_problem=lambda text: None)
                actual, expected = (
                    written(data, here / f"{name}.tar", one.odd)
                    for name, data in (("through", through), ("copy", one.dataset()))
                )
                if actual != expected:
                    failed.append(f"{seed}: {one}: {actual[:200]!r} {expected[:200]!r}")
        except TarkitError as error:
            if not re.search(REFUSED, str(error)):
                failed.append(f"{seed}: {one}: {error}")
        finally:
            one.close()
        shutil.rmtree(here)
    assert not failed, f"{len(failed)} of {count} views\n" + "\n".join(failed[:8])
    assert count > CHAINS // 8


CHOICES = [
    ["--match", "[02468]$"],
    ["-c", "3"],
    ["--slice", "1:4"],
    ["--where", "cls < 4"],
    ["--exclude-keys-from", "others"],
    ["--skip", "changed-source"],
    ["--allow", "repeated-key"],
    ["--shard-slice", "0:300:2"],
    ["--mix", "2"],
    ["--sample", "2", "--seed", "1"],
    ["--require-all"],
]


@pytest.mark.parametrize("seed", [*range(8), *map(slow, range(8, 40))])
def test_first_choices(seed: int, run: Run, here: Path) -> None:
    """A list and a position choose of views what they choose of archives, with the same words, and other choices."""
    draw = random.Random(seed)
    for shard in range(3):
        with tarkit.TarWriter(f"{shard}.tar") as out:
            for number in range(400):
                out.write(f"{shard}/{number:03}", {"cls": number % 7})
        run("cat", f"{shard}.tar", "-o", f"{shard}.view.parquet")
    for name in ("listed", "others"):
        keys = [f"{draw.randrange(4)}/{draw.randrange(410):03}" for _ in range(draw.choice([1, 5, 12, 60]))]
        Path(name).write_text("".join(f"{key}\n" for key in keys))
    choices = draw.sample(CHOICES, draw.randrange(3)) + [["--keys-from", "listed"]] * draw.choice([0, 1, 1])
    words = [word for choice in choices for word in choice]
    found, expected = (
        run("cat", *(f"{shard}{suffix}" for shard in range(3)), *words, "-o", "-", exit=None)
        for suffix in (".view.parquet", ".tar")
    )
    assert (found.status, found.stdout) == (expected.status, expected.stdout), words
    assert found.stderr == expected.stderr, words
