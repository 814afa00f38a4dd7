"""JPEG by each library that may decode it: the pixels, or the errors, are those of Pillow.

Those of torchvision and torchcodec run where these are installed, which no environment of scripts/test has.
"""

from __future__ import annotations

import io
import random
import sys
from typing import Any

import pytest

import tarkit
from tarkit.decoding import jpeg
from tarkit.errors import MissingLibrary
from tests._tools import ROUNDS
from tests.decoding.test_picture import ODD, exif, outcome, photo

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

OF_TORCH = ("torchvision.io", "torchcodec.decoders")
LIBRARIES = ["simplejpeg", *(pytest.param(each, marks=pytest.mark.torch) for each in OF_TORCH), "none"]
FORMS = ("rgb8", "l8", "rgba8", "rgb")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The only library for JPEG beside Pillow."""
    name: str = request.param
    if name != "none":
        pytest.importorskip(name, exc_type=ImportError)
    hide(monkeypatch, name)
    return name


def hide(monkeypatch: pytest.MonkeyPatch, but: str) -> None:
    """Let all libraries for JPEG but one be missing."""
    for each in ("simplejpeg", *OF_TORCH):
        if each != but:
            monkeypatch.setitem(sys.modules, each, None)


def by_library(data: bytes) -> Any:
    """Return the pixels that a library other than Pillow decodes, or None."""
    size = jpeg.jpeg_size(data, "RGB")
    return None if size is None else jpeg.jpeg_pixels(data, "RGB", size)


def agree(data: bytes) -> None:
    """Check that the best decoder and Pillow give the same values, shapes and errors, for each form."""
    for form in FORMS:
        assert outcome(form, data) == outcome(tarkit.picture(form, decoder="pillow"), data)


def test_odd_pictures(library: str) -> None:
    """Unusual and damaged pictures."""
    for data in ODD.values():
        agree(data)


def drawn(draw: random.Random) -> bytes:
    """Return a JPEG of random size, content and options, which may be damaged."""
    height, width = (draw.choice([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 40, 61, 127]) for _ in range(2))
    step = draw.choice([1, 8])
    shape = height // step + 1, width // step + 1, 3
    pixels = numpy.frombuffer(draw.randbytes(shape[0] * shape[1] * 3), "uint8").reshape(shape)
    pixels = pixels.repeat(step, 0).repeat(step, 1)[:height, :width]
    mode = draw.choice(["RGB", "RGB", "RGB", "L", "CMYK", "YCbCr"])
    options: dict[str, Any] = {"quality": draw.choice([1, 30, 75, 95, 100]), "progressive": draw.random() < 0.3}
    if mode == "RGB" and draw.random() < 0.2:
        options["keep_rgb"] = True
    elif mode != "L":
        options["subsampling"] = draw.choice([0, 1, 2, "4:1:1"])
    if draw.random() < 0.2:
        options["restart_marker_blocks"] = draw.randrange(1, 5)
    if draw.random() < 0.4:
        options["exif"] = exif(draw.randrange(1, 9))
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "JPEG", **options)
    data, damage = bytearray(file.getvalue()), draw.random()
    if damage < 0.3:
        for _ in range(draw.choice([1, 2, 5])):
            data[draw.randrange(3, len(data))] = draw.choice([0, 255, draw.randrange(256)])
    elif damage < 0.4:
        del data[draw.randrange(3, len(data)) :]
    return bytes(data)


def test_random_pictures(library: str) -> None:
    """Pictures of any kind, whole and damaged: most of the whole ones are not left to Pillow."""
    draw, decoded = random.Random(5), 0
    for _ in range(60 * ROUNDS):
        data = drawn(draw)
        agree(data)
        decoded += by_library(data) is not None
    assert decoded > 20 * ROUNDS or library == "none"
    assert decoded == 0 or library != "none"


def test_ordinary_pictures_are_not_left_to_pillow(library: str) -> None:
    """What the other decoder is for, and what it leaves to Pillow."""
    found = {name for name, data in ODD.items() if by_library(data) is not None}
    ordinary = {
        "4:2:0",
        "4:2:2",
        "4:4:4",
        "4:1:1",
        "RGB",
        "progressive",
        "restarts",
        "poor",
        "grey",
        "turned",
        "several",
    }
    assert found == set() if library == "none" else found >= ordinary
    assert not found & {"CMYK", "PNG", "palette", "cut", "no end", "cut header", "12 bits", "empty"}
    assert jpeg.jpeg_size(ODD["4:2:0"], "L") is None


def test_sizes_and_crops(library: str) -> None:
    """Pictures of a size, boxes at random too: the same random numbers, whichever library decodes, and after damage."""
    for data in (photo(477, 611), photo(477, 611, mode="CMYK"), ODD["damaged"]):
        for target in ({"short_side": 40}, {"size": 33, "crop": "center"}, {"size": (30, 20), "crop": "random"}):
            made = []
            for decoder in ("best", "pillow"):
                random.seed(3)
                rule = tarkit.picture("rgb8", **target, decoder=decoder)
                made.append((rule(data).tolist(), rule(data).tolist(), random.random()))
            assert made[0] == made[1]


def frame(data: bytes) -> int:
    """Return where the header of the frame is in a JPEG."""
    return data.index(b"\xff\xc0")


def test_headers() -> None:
    """What may stand before and between segments; a header that is not plain is left to Pillow."""
    data = photo(61, 83)
    at = frame(data)
    assert jpeg.jpeg_size(data, "RGB") == (61, 83)
    for between in (b"\xff\xe1\0\x02", b"\xff\xff\xff\xe1\0\x02", b"\xff\x01", b"\xff\xfe\0\x06text"):
        assert jpeg.jpeg_size(data[:at] + between + data[at:], "RGB") == (61, 83)
    for other in (data[:at] + b"text" + data[at:], data[:at], data[: at + 9], data[:at] + b"\xff\xd9" + data[at:]):
        assert jpeg.jpeg_size(other, "RGB") is None
    for offset, value in ((1, 0xC3), (1, 0xC9), (4, 12), (9, 2), (9, 4), (11, 0x31), (14, 0x21), (17, 0x12)):
        changed = data[: at + offset] + bytes([value]) + data[at + offset + 1 :]
        assert jpeg.jpeg_size(changed, "RGB") is None
    assert jpeg.jpeg_size(data[: at + 5] + b"\0\0" + data[at + 7 :], "RGB") is None
    assert jpeg.jpeg_size(data.replace(b"\xff\xda", b"\xff\xdb"), "RGB") is None


@pytest.mark.torch
@pytest.mark.parametrize("name", OF_TORCH)
def test_libraries_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are used where the program has imported them, and imported where pictures are decoded on a GPU."""
    pytest.importorskip(name, exc_type=ImportError)
    hide(monkeypatch, name)
    data = photo(exif=exif(3))
    tensor = jpeg.torch_decoder()([jpeg.as_stored(data)], mode="RGB", device="cpu")[0]
    assert numpy.array_equal(tensor.permute(1, 2, 0).numpy(), tarkit.picture("rgb8", decoder="pillow")(data))
    found = tarkit.picture("torchrgb8")(data)
    assert found.stride() == (1, 83 * 3, 3)  # a view
    assert found.numpy().tolist() == tensor.numpy().tolist()
    monkeypatch.delitem(sys.modules, name)
    assert by_library(data) is None
    assert name not in sys.modules


@pytest.mark.torch
def test_no_library_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one a GPU decodes nothing: one line that names both. One for another version of torch is none."""
    pytest.importorskip("torch")
    hide(monkeypatch, "none")
    with pytest.raises(MissingLibrary, match="JPEG on a GPU needs torchvision or torchcodec, and neither can be"):
        jpeg.torch_decoder()
