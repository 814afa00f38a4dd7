"""Pictures of a batch, decoded behind the workers. They need torch; scripts/gpu compares a GPU with the CPU."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import TarkitError, Usage
from tests._tools import each_row
from tests.decoding.test_jpeg import OF_TORCH, hide
from tests.decoding.test_picture import ODD, TARGETS, exif, photo

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


def test_batch_on_cpus() -> None:
    """The tensors are those of `tarkit.picture`, in one where all have one size; other fields stay."""
    data = [photo(61, 83), photo(100, 70, format="PNG"), ODD["CMYK"]]
    batch = {"jpg": data, "cls": torch.tensor([1, 2, 3])}
    found = tarkit.decode_batch(batch, device="cpu", size=24, crop="center")
    rule = tarkit.picture("torchrgb8", size=24, crop="center")
    assert found["jpg"].shape == (3, 3, 24, 24)
    assert all(torch.equal(one, rule(each)) for one, each in zip(found["jpg"], data, strict=True))
    assert found["cls"] is batch["cls"]
    assert batch["jpg"] is data
    several = tarkit.decode_batch({"left.png": data}, "left.png", device="cpu")["left.png"]
    assert [tuple(each.shape) for each in several] == [(3, 61, 83), (3, 100, 70), (3, 61, 83)]


def test_stage_behind_workers(tmp_path: Path) -> None:
    """A DataLoader over a TorchDataset passes the bytes of pictures on."""
    from torch.utils.data import DataLoader

    from tarkit.torch import TorchDataset

    with tarkit.TarWriter(str(tmp_path / "a.tar")) as out:
        for number in range(4):
            out.write({"__key__": str(number), "jpg": photo(61 + number), "cls": number})
    loader = DataLoader(TorchDataset(str(tmp_path / "a.tar"), decode={"jpg": None}, select="jpg cls"), batch_size=4)
    (batch,) = (tarkit.decode_batch(each, device="cpu", size=20) for each in loader)
    assert batch["jpg"].shape == (4, 3, 20, 20)
    assert batch["cls"].tolist() == [0, 1, 2, 3]


def test_random_crops_of_a_batch() -> None:
    """Crops at random follow from the random numbers of Python, whichever thread decodes."""
    made = []
    for seed in (1, 1, 2):
        random.seed(seed)
        made.append(tarkit.decode_batch({"jpg": [photo()] * 8}, device="cpu", size=16, crop="random")["jpg"])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert not torch.equal(made[0][0], made[0][1])


@each_row(("target", "stored", "shape"), TARGETS)
def test_sizes_on_a_device(target: dict[str, Any], stored: tuple[int, int], shape: tuple[int, int]) -> None:
    """What resizes on a GPU gives, on the CPU, the pixels of `tarkit.picture` within one level."""
    from tarkit.decoding.batch import cut_out

    rule = tarkit.picture("torchrgb8", **target, reducing_gap=None)
    found = cut_out(tarkit.picture("torchrgb8")(photo(*stored)), rule.plan(*stored, 1))
    assert found.dtype == torch.uint8
    assert found.shape == (3, *shape)
    assert (found.int() - rule(photo(*stored)).int()).abs().max() <= 1


def test_batches_that_cannot_be_decoded() -> None:
    """Without a GPU, and for a damaged picture, there is one clear line."""
    if not torch.cuda.is_available():
        with pytest.raises(TarkitError, match="device='cuda' needs a GPU, and torch sees none") as raised:
            tarkit.decode_batch({"jpg": [photo()]})
        assert "device='cpu'" in str(raised.value.hint)
    with pytest.raises(Usage, match="device is 'cpu' or 'cuda', not 'meta'"):
        tarkit.decode_batch({"jpg": [photo()]}, device="meta")
    with pytest.raises(TarkitError, match="field 'jpg' cannot be decoded: OSError"):
        tarkit.decode_batch({"jpg": [photo(), photo()[:700]]}, device="cpu")
    for data in (photo()[:700], b"text"):
        with pytest.raises(TarkitError, match="the sample 'b': field 'jpg' cannot be decoded"):
            tarkit.decode_batch({"__key__": ["a", "b"], "jpg": [photo(), data]}, device="cpu")
        with pytest.raises(TarkitError, match=r"batch\['jpg'\]\[1\]: field 'jpg' cannot be decoded"):
            tarkit.decode_batch({"jpg": [photo(), data]}, device="cpu")


@pytest.mark.parametrize("name", OF_TORCH)
def test_what_a_gpu_does_not_decode(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged picture is left to the CPU; a library that decodes none is an error, not a slow run."""
    pytest.importorskip(name, exc_type=ImportError)
    hide(monkeypatch, name)
    from tarkit.decoding.batch import _decoded

    assert len(_decoded([photo(), photo()], torch.device("cpu")) or ()) == 2
    assert _decoded([photo(), photo()[:700]], torch.device("cpu")) is None
    with pytest.raises(TarkitError, match=f"{name.partition('.')[0]} decodes no JPEG on cuda"):
        _decoded([photo()], torch.device("cuda:99"))


@pytest.mark.parametrize("name", OF_TORCH)
def test_the_way_to_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs for a GPU gives, on the CPU, what Pillow does; pictures are not turned, and none is left out."""
    pytest.importorskip(name, exc_type=ImportError)
    hide(monkeypatch, name)
    from tarkit.decoding.batch import _Pictures
    from tarkit.decoding.picture import PictureDecoder
    from tarkit.decoding.target import parse_target

    data = [photo(), photo(exif=exif(3)), ODD["CMYK"], photo(format="PNG"), photo(mode="L")]
    for target in ({}, {"size": 20}, {"short_side": 30, "size": 24}):
        plan = parse_target(target.get("short_side"), target.get("size"), None)
        found = _Pictures({"jpg": data}, "jpg", PictureDecoder("torchrgb8", plan)).on_gpu(torch.device("cpu"))
        for one, each in zip(found, data, strict=True):
            expected = tarkit.picture("torchrgb8", **target, decoder="pillow")(each)
            assert (one.int() - expected.int()).abs().max() <= 1
