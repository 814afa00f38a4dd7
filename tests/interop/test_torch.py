"""webdataset, and `tarkit.wds` in its place, in torch's DataLoader, with and without workers."""

from __future__ import annotations

from pathlib import Path

import pytest

import tarkit
from tests.interop._packages import needs, result

pytestmark = pytest.mark.torch

LOAD = """
import sys, webdataset
from torch.utils.data import DataLoader
loaders = {"WebLoader": webdataset.WebLoader, "DataLoader": DataLoader}
found = []
for name in sys.argv[1:]:
    for workers in (0, 2):
        data = webdataset.WebDataset("s-{0..3}.tar", shardshuffle=False).decode("torchrgb8")
        loader = loaders[name](data, batch_size=None, num_workers=workers)
        found.append([(s["__key__"], s["txt"], s["cls"], s["json"], s["npy"].tolist(), s["png"].tolist()) for s in loader])
data = webdataset.WebDataset("s-{0..3}.tar", shardshuffle=False).decode("torchrgb").to_tuple("png", "cls").batched(5)
for workers in (0, 2):
    loader = webdataset.WebLoader(data, batch_size=None, num_workers=workers)
    found.append([(list(pictures.shape), classes.tolist()) for pictures, classes in loader])
print(found)
"""  # noqa: E501


def test_loaders_give_the_values_that_tarkit_encoded(here: Path) -> None:
    """Each sample comes once, with text, numbers, JSON, arrays and pictures as tensors; workers take turns."""
    needs("torch", "webdataset", "numpy", "PIL")
    import numpy as np

    rng = np.random.default_rng(7)
    expected = []
    with tarkit.ShardWriter("s-%d.tar", count=3) as out:
        for n in range(12):
            array, picture = rng.random(3), rng.integers(0, 256, (4, 6, 3), np.uint8)
            out.write(f"k{n:02}", {"txt": f"ß{n}", "cls": n, "json": {"n": [n]}, "npy": array, "png": picture})
            channels = picture.transpose(2, 0, 1).tolist()
            expected.append((f"k{n:02}", f"ß{n}", n, {"n": [n]}, array.tolist(), channels))
    by_turns = [expected[shard * 3 + n] for pair in ((0, 1), (2, 3)) for n in range(3) for shard in pair]
    for program in (LOAD, LOAD.replace("import sys, webdataset", "import sys, tarkit.wds as webdataset")):
        *whole, alone, two = result(program, "WebLoader", "DataLoader")
        assert whole == [expected, by_turns] * 2
        assert alone == [([size, 3, 4, 6], [*range(start, start + size)]) for start, size in ((0, 5), (5, 5), (10, 2))]
        assert sorted(number for _, numbers in two for number in numbers) == [*range(12)]
