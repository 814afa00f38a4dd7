"""The rows of `scripts/bench loader`: batches of arrays for training, by torch's DataLoader.

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

from _bench_data import Content, dataset, make
from _bench_run import STDOUT, TARKIT, Aim, BenchError, Row, Way

PROGRAM = Path(__file__).with_name("_bench_loader_inside.py")
SET = "npy"
SIZE = 1000  # samples of a shard
BATCHES = (1, 100)
WORKERS = (0, 2)
WEBDATASET, FILES, OBJECTS = "webdataset", "loose files", "loose objects"


def prepare(place: Path, part: int, scratch: Path, tarkit: Sequence[str], environ: Mapping[str, str]) -> None:
    """Make the bucket `in`, a directory, with the shards and the loose files."""
    make(place, SET, part)
    data = dataset(place, SET, part)
    (scratch / "in").mkdir()
    shards = scratch / "in/s-%03d.tar"
    subprocess.run([*tarkit, "split", "-q", data.tar, "-c", str(SIZE), "-o", shards], env=environ, check=True)
    shutil.copytree(data.files, scratch / "in/files", copy_function=os.link)


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
                yield Row(f"{name}, batch {batch}, {workers} workers", SET, ways, Aim(WEBDATASET, within=1))


def pairs(out: Path, expected: Content) -> None:
    """Check that the last word on stdout is the number of samples of two entries."""
    found = int((out / STDOUT).read_bytes().split()[-1])
    if found != expected.entries // 2:
        raise BenchError(f"read {found} samples, should be {expected.entries // 2}")


def plot(rows: Sequence[Row], samples: int, path: Path) -> None:
    """Draw the samples a second of each candidate as an SVG: a group of bars for each row."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tarkit"
    from matplotlib import pyplot

    colours = {TARKIT: "#1f6feb", WEBDATASET: "#d29922", FILES: "#6e7781", OBJECTS: "#b7bdc4"}
    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    for place, row in enumerate(rows):
        for bar, (who, seconds) in enumerate(row.medians.items()):
            rate = samples / seconds
            drawn = axes.bar(place + 0.28 * (bar - 1), rate, 0.26, color=colours[who], label=who)
            axes.bar_label(drawn, [f"{rate:,.0f}"], fontsize=6, rotation=90, padding=2)
    axes.set_xticks(range(len(rows)), [row.name.replace(", ", "\n") for row in rows], fontsize=7)
    axes.set_ylabel("samples a second")
    axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    axes.legend(handles.values(), handles, ncols=4, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.15))
    figure.savefig(path, metadata={"Date": None})
