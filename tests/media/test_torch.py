"""Tensors: pth, and pictures as tensors. They need torch, and run with `-m torch` where it is."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from tarkit.decoding.decoder import parse_decode
from tarkit.decoding.forms import FORMS
from tarkit.errors import TarkitError
from tarkit.media.coding import Coded, Coder
from tests._tools import each_row
from tests.media._files import gradients as picture

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
webdataset = pytest.importorskip("webdataset")


VALUES = [
    torch.arange(6).reshape(2, 3),
    torch.tensor(1.5, dtype=torch.bfloat16),
    {"a": torch.zeros(0), "b": [1, 2.5, "x", None], "c": (torch.ones(2, 2),)},
    [torch.tensor([float("nan"), -0.0])],
]


@each_row("value", VALUES)
def test_pth(value: Any) -> None:
    """What is encoded is decoded; what did not change keeps its bytes."""
    coder = Coder()
    data = coder.encode("pth", value)
    file = io.BytesIO()
    torch.save(value, file)
    assert data == file.getvalue() == coder.encode("pth", value)
    sample = Coded(coder, {"pth": data, "other.pth.gz": coder.encode("pth.gz", value)})
    for field in sample.values:
        assert repr(sample.values[field]) == repr(value)
        assert sample.encode(field, sample.values[field]) == sample._raw[field]


def test_pth_that_was_changed_in_place() -> None:
    """A tensor that was changed in place is encoded anew."""
    sample = Coded(Coder(), {"pth": Coder().encode("pth", torch.zeros(3))})
    sample.values["pth"][1] = 5
    assert Coder().decode("pth", sample.encode("pth", sample.values["pth"])).tolist() == [0, 5, 0]


class Other:
    """An object that is no tensor."""


def test_pickles_in_pth_on_request() -> None:
    """Other objects are neither decoded nor encoded unless pickles are allowed."""
    file = io.BytesIO()
    torch.save({1: os.getcwd}, file)
    with pytest.raises(TarkitError, match="field 'pth': it is damaged, or has other objects than tensors") as raised:
        Coder().decode("pth", file.getvalue())
    assert "allow_pickle" in str(raised.value.hint)
    assert "\n" not in str(raised.value)
    with pytest.raises(TarkitError, match="has other objects than tensors"):
        Coder().encode("pth", {1: os.getcwd})
    assert Coder(pickles=True).decode("pth", file.getvalue()) == {1: os.getcwd}
    assert parse_decode(True, allow_pickle=True).decode("pth", file.getvalue()) == {1: os.getcwd}
    with pytest.raises(TarkitError, match="field 'pth'"):
        Coder().decode("pth", b"no tensor")


TENSORS = [name for name, form in FORMS.items() if form.library == "torch"]


@each_row("mode", ["RGB", "RGBA", "L", "P"])
@each_row("name", TENSORS)
def test_tensors_are_those_of_webdataset(name: str, mode: str) -> None:
    """Each form has the type, shape and values that webdataset's handler of that name returns."""
    data = picture(mode)
    found = parse_decode(name).decode("png", data)
    expected = webdataset.autodecode.imagehandler(name)(".png", data)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert torch.equal(found, expected)
    assert found.is_contiguous()
    file = io.BytesIO()
    Image.effect_noise((700, 500), 90).convert("RGB").save(file, "BMP")
    large = file.getvalue()
    assert torch.equal(parse_decode(name).decode("bmp", large), webdataset.autodecode.imagehandler(name)(".bmp", large))


@each_row("name", TENSORS)
def test_tensors_as_pictures(name: str) -> None:
    """A tensor is encoded as a picture; one that did not change keeps the bytes of a JPEG."""
    mode = FORMS[name].mode
    tensor = parse_decode(name).decode("png", picture(str(mode)))
    back = Image.open(io.BytesIO(Coder().encode("png", tensor)))
    assert (back.mode, back.tobytes()) == (mode, Image.open(io.BytesIO(picture(str(mode)))).tobytes())
    decoder, data = parse_decode(name), picture("RGB", "JPEG")
    value = decoder.decode("jpg", data)
    assert decoder.encode("jpg", value, "jpg", data) == data
    value += 1
    assert decoder.encode("jpg", value, "jpg", data) is None


def test_pth_of_webdataset() -> None:
    """webdataset reads our pth, and we read its."""
    file = io.BytesIO()
    with webdataset.TarWriter(file, encoder=True) as out:
        out.write({"__key__": "k", "pth": {"a": torch.arange(3)}})
    import tarkit

    sample = tarkit.open(io.BytesIO(file.getvalue()), decode=True).head()[0]
    assert sample["pth"]["a"].tolist() == [0, 1, 2]
    ours = io.BytesIO()
    with tarkit.TarWriter(ours) as writer:
        writer.write("k", {"pth": {"a": torch.arange(3)}})
    [theirs] = (webdataset.tariterators.tar_file_expander([{"stream": io.BytesIO(ours.getvalue()), "url": "x"}]),)
    fields = {item["fname"]: item["data"] for item in theirs if "fname" in item}
    assert webdataset.autodecode.torch_loads(fields["k.pth"])["a"].tolist() == [0, 1, 2]
