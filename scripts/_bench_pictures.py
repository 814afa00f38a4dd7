"""The rows of pictures in `scripts/bench loader`, and the program that they run: pictures to tensors, in one process.

`python _bench_pictures.py make DIRECTORY NUMBER` makes shards of JPEG pictures of noise with the spectrum of photos:
small ones of 500 x 375, and a twentieth as many of 2048 x 1536. `python _bench_pictures.py WHO WORK SHARD` reads one
and prints the times, without imports, and the number of samples.
"""

from __future__ import annotations

import io
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from _bench_data import Content
from _bench_inside import clock, since
from _bench_run import STDOUT, TARKIT, Aims, BenchError, Row, Way, faster, within

SIZES = {"small": (375, 500, 1), "large": (1536, 2048, 20)}  # height, width, and one for so many small ones
DISTINCT = 10
NUMBER = 400
CROP = 224
PEERS = ("webdataset", "datasets")
ROWS = (
    ("JPEG to tensors of uint8", "tensors", "small", 1.7),
    ("JPEG to crops of 224 px", "crops", "small", 2.5),
    ("JPEG of 3 MP to crops of 224 px", "crops", "large", 2.5),
)
ONE, WORKERS = "one process", "two workers"  # beside tarkit with two threads
PARALLEL = (("JPEG to batches of 224 px, two threads", "tensors"), ("JPEG to batches of crops, two threads", "crops"))
BATCH = 32


def picture_rows(scratch: Path, part: int, python: str, environ: Mapping[str, str]) -> Iterator[Row]:
    """Make the shards, and yield the rows."""
    program, number = [python, __file__], NUMBER // part
    subprocess.run([*program, "make", str(scratch), str(number)], env=environ, check=True)
    for name, work, kind, aim in ROWS:
        aims: Aims = {TARKIT: faster("webdataset", aim, 1)[TARKIT]}
        ways = [
            Way(who, [[*program, who, work, scratch / f"{kind}.tar"]], _all, inside=True) for who in (TARKIT, *PEERS)
        ]
        yield Row(name, "", ways, aims, Content(number // SIZES[kind][2], 0))
    for name, work in PARALLEL:
        ways = [
            Way(who, [[*program, parallel, work, scratch / "small.tar"]], _all, inside=True)
            for who, parallel in ((TARKIT, "two threads"), (ONE, ONE), (WORKERS, WORKERS))
        ]
        yield Row(name, "", ways, within(WORKERS, 1), Content(number, 0), by="wall")


def _all(out: Path, expected: Content) -> None:
    """Check that the last word on stdout is the number of samples."""
    if (found := int((out / STDOUT).read_bytes().split()[-1])) != expected.entries:
        raise BenchError(f"read {found} samples, should be {expected.entries}")


def _noise(height: int, width: int, seed: int) -> bytes:
    """Return a JPEG of three planes of noise that fades with its frequency, which have most of it in common."""
    import numpy
    from PIL import Image

    numbers = numpy.random.default_rng(seed)
    fades = numpy.hypot(numpy.fft.fftfreq(height)[:, None], numpy.fft.fftfreq(width))
    fades[0, 0] = 1
    planes = numpy.fft.ifft2(numpy.fft.fft2(numbers.normal(size=(3, height, width))) / fades).real
    planes = planes / planes.std() + 2 * planes[:1] / planes.std()
    file = io.BytesIO()
    pixels = (128 + 25 * planes).clip(0, 255).astype("uint8").transpose(1, 2, 0)
    Image.fromarray(pixels).save(file, "JPEG", quality=75)
    return file.getvalue()


def make(directory: str, number: str) -> None:
    """Write a shard of each size."""
    for kind, (height, width, rare) in SIZES.items():
        pictures = [_noise(height, width, seed) for seed in range(max(1, DISTINCT // rare))]
        with tarfile.open(Path(directory) / f"{kind}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for index in range(int(number) // rare):
                for field, data in (("jpg", pictures[index % len(pictures)]), ("cls", b"%d" % index)):
                    entry = tarfile.TarInfo(f"{index:06d}.{field}")
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))


def by_tarkit(work: str, shard: str) -> Iterator[Any]:
    """Read with tarkit's loader."""
    import tarkit

    if work == "tensors":
        for sample in tarkit.loader(shard, select="jpg cls", decode={"jpg": "torchrgb8", "cls": True}):
            yield sample["jpg"]
        return
    crop = tarkit.picture("torchrgb8", size=CROP, crop="random")
    yield from tarkit.loader(shard, select="jpg cls", transform=lambda sample: crop(sample["jpg"]))


def by_batches(work: str, shard: str, threads: int = 0, workers: int = 0) -> Iterator[Any]:
    """Read batches with tarkit's dataset for torch: in this process, by threads of it, or by workers."""
    import torch

    import tarkit
    from tarkit.torch import TorchDataset

    crop = tarkit.picture("torchrgb8", size=CROP, crop=None if work == "tensors" else "random")
    data = TorchDataset(
        shard,
        select="jpg cls",
        transform=lambda sample: crop(sample["jpg"]),
        shuffle="full",
        batch=BATCH,
        collate=torch.stack,
        threads=threads,
    )
    for batch in torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers):
        yield from batch


def by_webdataset(work: str, shard: str) -> Iterator[Any]:
    """Read with webdataset and the decoder that it has."""
    import webdataset

    samples = webdataset.WebDataset(shard, shardshuffle=False)
    for sample in samples.decode("torchrgb8" if work == "tensors" else "pil"):
        yield sample["jpg"] if work == "tensors" else cropped(sample["jpg"])


def by_datasets(work: str, shard: str) -> Iterator[Any]:
    """Read with Hugging Face's datasets as a stream."""
    import datasets

    for sample in datasets.load_dataset("webdataset", data_files=shard, split="train", streaming=True):
        yield tensor(sample["jpg"]) if work == "tensors" else cropped(sample["jpg"])


def cropped(image: Any) -> Any:
    """Return a part of an image at random, as torchvision's RandomResizedCrop does it with Pillow."""
    from PIL import Image

    scale = random.uniform(0.3, 1)
    width, height = round(image.width * scale), round(image.height * scale)
    left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
    part = image.crop((left, top, left + width, top + height))
    return tensor(part.resize((CROP, CROP), Image.Resampling.BILINEAR))


def tensor(image: Any) -> Any:
    """Return the pixels of an image, channels first."""
    import numpy
    import torch

    return torch.from_numpy(numpy.array(image.convert("RGB"))).permute(2, 0, 1)


WAYS: dict[str, Callable[[str, str], Iterator[Any]]] = {
    "tarkit": by_tarkit,
    "webdataset": by_webdataset,
    "datasets": by_datasets,
    ONE: by_batches,
    "two threads": partial(by_batches, threads=2),
    WORKERS: partial(by_batches, workers=2),
}


def main(who: str, work: str, shard: str) -> None:
    """Time one pass; the first sample, with the imports, does not count."""
    import torch

    torch.set_num_threads(1)
    samples = WAYS[who](work, shard)
    assert next(samples).shape[0] == 3
    began, count = clock(), 1
    for _ in samples:
        count += 1
    print(since(began), count)


if __name__ == "__main__":
    make(*sys.argv[2:]) if sys.argv[1] == "make" else main(*sys.argv[1:])
