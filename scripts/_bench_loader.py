"""The rows of `scripts/bench loader`: batches of arrays for training, by torch's DataLoader.

The first rows are of shards with a table and an archive that are joined when they are read, beside shards that have all
fields, by `tarkit.loader` alone. The others are of batches of arrays.

The set is that of pairs of arrays `npy`, as shards of 1000 samples and as loose files, on the disk and on a local
server of S3 (see `_bench_stores`). All candidates decode the arrays with numpy and collate them into tensors; the
time is that of one epoch, without imports, and each checks the number of samples and the sum of their labels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from _bench_data import SETS, Content, dataset, make
from _bench_run import STDOUT, TARKIT, BenchError, Row, Way, within

PROGRAM = Path(__file__).with_name("_bench_loader_inside.py")
SET = "npy"
SIZE = 1000  # samples of a shard
BATCHES = (1, 100)
WORKERS = (0, 2)
WEBDATASET, FILES, OBJECTS = "webdataset", "loose files", "loose objects"
ONE_SET, JOINS = "one set", ("table", "archive", "both")


def prepare(place: Path, part: int, scratch: Path, tarkit: Sequence[str], environ: Mapping[str, str]) -> None:
    """Make the bucket `in`, a directory, with the shards and the loose files."""
    make(place, SET, part)
    data = dataset(place, SET, part)
    (scratch / "in").mkdir()
    shards = scratch / "in/s-%03d.tar"
    subprocess.run([*tarkit, "split", "-q", data.tar, "-c", str(SIZE), "-o", shards], env=environ, check=True)
    shutil.copytree(data.files, scratch / "in/files", copy_function=os.link)
    (scratch / "joined").mkdir()
    words = ["-f", "emb:output.npy cap:output.npy", "-o", scratch / "joined/features.tar"]
    subprocess.run([*tarkit, "cat", "-q", data.tar, *words], env=environ, check=True)
    with (scratch / "joined/captions.csv").open("w") as table:
        table.write("__key__,txt\n")
        table.writelines(f"arr_{number:06d},caption {number}\n" for number in range(SETS[SET][0] // part))


def joined_rows(scratch: Path, python: str) -> Iterator[Row]:
    """Yield the rows of joins, beside a loader of the same shards without one."""
    program = [python, str(PROGRAM)]
    for name in JOINS:
        ways = [
            Way(who, [[*program, word, scratch, "1", "0"]], pairs, inside=True)
            for who, word in ((TARKIT, name), (ONE_SET, ONE_SET))
        ]
        yield Row(f"joined {name}", SET, ways, within(ONE_SET, 1.3))


def loader_rows(place: Path, part: int, scratch: Path, python: str) -> Iterator[Row]:
    """Yield the rows: batch sizes and numbers of workers, on the disk, then from the server."""
    files, program = dataset(place, SET, part).files, [python, str(PROGRAM)]

    places: dict[str, dict[str, Path | str]] = {
        "disk": {TARKIT: scratch / "in", WEBDATASET: scratch / "in", FILES: files},
        "S3": {TARKIT: "s3://in/", WEBDATASET: "s3://in/", OBJECTS: "s3://in/files"},
    }
    for name, candidates in places.items():
        for batch in BATCHES:
            for workers in WORKERS:
                ways = [
                    Way(who, [[*program, who, each, str(batch), str(workers)]], pairs, inside=True)
                    for who, each in candidates.items()
                ]
                title = f"{name}, batch {batch}, {workers} workers"
                yield Row(title, SET, ways, within(WEBDATASET, 1), by="wall")


def pairs(out: Path, expected: Content) -> None:
    """Check that the last word on stdout is the number of samples of two entries."""
    found = int((out / STDOUT).read_bytes().split()[-1])
    if found != expected.entries // 2:
        raise BenchError(f"read {found} samples, should be {expected.entries // 2}")
