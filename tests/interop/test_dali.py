"""NVIDIA DALI, whose reader of shards runs without a GPU: over index files of tarkit, which are those of wds2idx.

It is installed by itself, without the libraries for GPUs:
pip install --no-deps --target build/dali nvidia-dali-cuda120 astunparse gast optree nvtx makefun libcst six
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._odd import odd_archive
from tests._tools import each_row, program
from tests.commands.test_check import found
from tests.commands.test_check_target import COUNT, TARGETS, claims
from tests.conftest import GNU, PAX, Archive, Content, Run, tar
from tests.interop._packages import BUILD, DALI, needs, result

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def installed() -> None:
    """Skip tests where DALI or GNU tar is not there."""
    needs("numpy", "packaging", "six", build=DALI)
    program("tar", version="GNU tar")


def by_wds2idx(shard: str, locale: str = "C.UTF-8") -> bytes:
    """Return the index that wds2idx writes; of an error the last line."""
    words = [sys.executable, str(BUILD / DALI / "wds2idx.py"), shard, "wds2idx.idx"]
    ran = subprocess.run(
        words, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "LC_ALL": locale}
    )
    return Path("wds2idx.idx").read_bytes() if not ran.returncode else ran.stderr.splitlines()[-1].encode()


READ = """
import sys
from nvidia.dali import fn, pipeline_def, types
@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def pipeline(paths, fields, indexes):
    return tuple(fn.readers.webdataset(
        paths=paths, ext=fields, dtypes=[types.UINT8] * len(fields), missing_component_behavior="empty", name="reader",
        pad_last_batch=False, **indexes
    ))
fields, *paths = sys.argv[1:]
def read(**indexes):
    made = pipeline(paths, fields.split(","), indexes)
    made.build()
    return [[bytes(each.at(0)) for each in made.run()] for _ in range(made.epoch_size("reader"))]
"""


@pytest.mark.parametrize("format", [PAX, GNU], ids=["pax", "gnu"])
def test_it_reads_by_an_index_of_tarkit(format: int, here: Path) -> None:
    """Its reader returns each field, in the order of `indexed`; without an index none that a PAX header names."""
    long = {n: "n" * 140 if n % 3 == 2 else "" for n in range(10)}
    for place in range(3):
        numbers = range(4 * place, min(4 * place + 4, 10))
        members = [(n, name) for n in numbers for name in ("txt", "seg.bin", "more") if name != "more" or n % 2]
        data = tar([(f"d.1/{n}{long[n]}.{name}", f"ß{n}{name}".encode() * (n + 1)) for n, name in members], format)
        Path(f"s-{place}.tar").write_bytes(data)
    shards = [f"s-{place}.tar" for place in range(3)]
    indexes = tarkit.index("s-*.tar", "dali")
    samples = tarkit.open("s-*.tar").indexed()
    expected = [[sample.get(name, b"") for name in ("txt", "seg.bin", "more")] for sample in samples]
    words = ["txt,seg.bin,more", *shards]
    assert result(READ + f"print(read(index_paths={indexes}))", *words, build=DALI) == expected
    without = [[b""] * 3 if format == PAX and long[n] else each for n, each in enumerate(expected)]
    assert result(READ + "print(read())", *words, build=DALI) == without


@each_row("format", [PAX, GNU])
def test_wds2idx_writes_the_index_of_tarkit(format: int, here: Path, archive: Archive) -> None:
    """The files are equal byte for byte; where GNU headers hold long names that of wds2idx has wrong offsets."""
    members: list[tuple[str, Content]] = [("d", None), ("d/a.jpg", b"A" * 600), ("d/a.json", b"{}"), ("d/.hidden", b"")]
    members += [("b.seg.png", b""), ("__index__/c.cls", b"1"), ("é.txt", b"2")]
    shard = archive(members, format=format)
    tarkit.index(shard, "dali", "ours.idx")
    assert by_wds2idx(shard) == Path("ours.idx").read_bytes()
    assert b"\\303\\251.txt" in by_wds2idx(shard, "C")
    shard = archive([*members, ("n" * 120 + ".x", b"long"), ("n" * 300 + "/x.x", b"longer")], "l.tar", format=format)
    tarkit.index(shard, "dali", "ours.idx")
    assert (by_wds2idx(shard) == Path("ours.idx").read_bytes()) == (format == PAX)


def test_tarkit_reads_by_an_index_of_wds2idx(run: Run, archive: Archive) -> None:
    """`get` finds samples by it, and `index --verify` finds nothing."""
    shard = archive({f"d/{n}.{field}": f"{n}{field}".encode() for n in range(20) for field in ("x", "seg.y")})
    Path("in.idx").write_bytes(by_wds2idx(shard))
    assert tarkit.verify_index(shard) == []
    assert run("get", "d/17.seg.y", shard).stdout == b"17seg.y"
    assert dict(tarkit.open(shard).indexed()["d/3"]) == {"x": b"3x", "seg.y": b"3seg.y"}


def fields_of(lines: list[bytes], data: bytes) -> list[list[Any]]:
    """Return name, size and content of the fields of each sample in an index; none where a line has another form."""
    read = []
    for line in lines[1:]:
        words = line.split(b" ")
        try:
            read.append(
                [
                    [words[at + 3], int(words[at + 2]), data[int(words[at + 1]) :][: int(words[at + 2])]]
                    for at in range(0, len(words), 4)
                ]
            )
        except (ValueError, IndexError):
            read.append([])
    return read


def test_odd_archives(here: Path) -> None:
    """The index of an archive with odd names, types and headers has its fields, if `check` finds nothing."""
    checked = 0
    for seed in range(COUNT):
        data = odd_archive(random.Random(seed))
        Path("odd.tar").write_bytes(data)
        if claims("odd.tar", "dali") != set():
            continue
        checked += 1
        lines = by_wds2idx("odd.tar").splitlines()
        assert fields_of(lines, data) == [
            [[os.fsencode(f"{sample.key}.{name}"), sample.sizes[name], sample[name]] for name in sample]
            for sample in tarkit.open("odd.tar")
        ], seed
    assert checked


def test_the_rules_of_check(run: Run, archive: Archive) -> None:
    """Where `check --target dali` finds nothing, the index of wds2idx has the fields that tarkit reads."""
    fixed = {"no ASCII", "PAX header", "PAX header of a short name"}  # what older versions refuse or misread
    for place, (case, (data, _)) in enumerate(TARGETS.items()):
        shard = archive(data, f"{place}.tar")
        wrong = {problem for problem, _ in found(run("check", shard, "--target", "dali", exit=None))}
        lines = by_wds2idx(shard).splitlines()
        expected: list[list[Any]] = [
            [[os.fsencode(f"{sample.key}.{name}"), sample.sizes[name], sample[name]] for name in sample]
            for sample in tarkit.open(shard)
            if case != "symbolic link"
        ]
        read = fields_of(lines, data)
        assert case in fixed or (read == expected and not lines[0].startswith(b"Value")) == (not wrong), case
