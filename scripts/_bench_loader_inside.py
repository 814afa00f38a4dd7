"""One epoch of arrays for training, for `scripts/bench loader`.

`python _bench_loader_inside.py WHO PLACE BATCH WORKERS`: WHO is one of WAYS, or `one set`, `table`, `archive` or `both`
for joins, of which PLACE has the directories `in` and `joined`. PLACE is else a directory of shards or of loose files,
or the URL of a bucket with them. Prints the times, without imports, and the number of samples. Of loose objects a part
is read, and its time is multiplied.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _bench_inside import clock, since
from torch.utils.data import DataLoader, Dataset

FIELDS = ("input.npy", "output.npy")
PART = 20  # of the loose objects, one in so many is read


class LooseFiles(Dataset[dict[str, Any]]):
    """Pairs of files in a directory, as a map-style dataset."""

    def __init__(self, place: str) -> None:
        self.stems = sorted(str(path).removesuffix(FIELDS[0]) for path in Path(place).glob(f"*.{FIELDS[0]}"))

    def __len__(self) -> int:
        return len(self.stems)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import numpy

        return {field: numpy.load(self.stems[index] + field) for field in FIELDS}


class LooseObjects(Dataset[dict[str, Any]]):
    """Pairs of objects in a bucket, by boto3."""

    def __init__(self, url: str) -> None:
        import boto3

        self.bucket, _, prefix = url.removeprefix("s3://").partition("/")
        pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{prefix}/")
        keys = (each["Key"] for page in pages for each in page["Contents"])
        self.stems = sorted(key.removesuffix(FIELDS[0]) for key in keys if key.endswith(FIELDS[0]))
        self.client: Any = None

    def __len__(self) -> int:
        return len(self.stems) // PART

    def __getitem__(self, index: int) -> dict[str, Any]:
        import boto3
        import numpy

        self.client = self.client or boto3.client("s3")  # one in each worker
        found = {}
        for field in FIELDS:
            body = self.client.get_object(Bucket=self.bucket, Key=self.stems[index] + field)["Body"].read()
            found[field] = numpy.load(io.BytesIO(body))
        return found


def shards_of(place: str) -> list[str]:
    """Return the names of the shards in a directory, or in a bucket."""
    if not place.startswith("s3://"):
        return sorted(map(str, Path(place).glob("*.tar")))
    import boto3

    listed = boto3.client("s3").list_objects_v2(Bucket=place.removeprefix("s3://").strip("/"), Delimiter="/")
    return [f"{place}{each['Key']}" for each in listed["Contents"] if each["Key"].endswith(".tar")]


def by_tarkit(place: str) -> Any:
    """Read with tarkit's dataset for torch."""
    from tarkit.torch import TorchDataset

    return TorchDataset(shards_of(place), decode=True, shuffle_shards=False)


def by_webdataset(place: str) -> Any:
    """Read with webdataset; objects by a program that writes them to a pipe, as it has no client of its own."""
    import webdataset

    rclone = Path(sys.executable).with_name("rclone")
    shards = [
        f"pipe:{rclone} cat bench:{url.removeprefix('s3://')}" if url.startswith("s3://") else url
        for url in shards_of(place)
    ]
    return webdataset.WebDataset(shards, shardshuffle=False).decode()


WAYS = {
    "tarkit": by_tarkit,
    "webdataset": by_webdataset,
    "loose files": LooseFiles,
    "loose objects": LooseObjects,
}


def joined(name: str, scratch: Path) -> tuple[str, int]:
    """Read bytes with tarkit's loader, with a table or an archive joined; return times and samples of the second epoch.

    In the first one it reads the table, and the headers of the archive.
    """
    import tarkit

    data = tarkit.open(sorted(map(str, (scratch / "in").glob("*.tar"))))
    if name in ("archive", "both"):
        data = data.join(scratch / "joined/features.tar").set("emb")
    if name in ("table", "both"):
        data = data.join(scratch / "joined/captions.csv").set("txt")
    loader = tarkit.loader(data, shuffle_shards=False)
    assert len(next(iter(loader))) == 4 + (name in ("archive", "both")) + (name in ("table", "both"))
    began = clock()
    count = sum(1 for _ in loader)
    return since(began), count


def read(batches: Iterable[Any]) -> tuple[int, int]:
    """Read all batches; return the number of samples, and the sum of their labels."""
    count = total = 0
    for batch in batches:
        count += len(batch[FIELDS[1]])
        total += int(batch[FIELDS[1]].sum())
        assert tuple(batch[FIELDS[0]].shape[1:]) == (64, 64)
    return count, total


def main(who: str, place: str, batch: str, workers: str) -> None:
    """Time one epoch."""
    if who not in WAYS:
        print(*joined(who, Path(place)))
        return
    data = WAYS[who](place)
    began = clock()
    count, total = read(DataLoader(data, batch_size=int(batch), num_workers=int(workers)))
    part = PART if who == "loose objects" else 1
    times = since(began, part)
    if total != count * (count - 1) // 2:  # the labels of the set are 0, 1, 2 ...
        sys.exit(f"the labels of {count} samples add up to {total}")
    print(times, count * part)


if __name__ == "__main__":
    main(*sys.argv[1:])
