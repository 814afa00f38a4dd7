"""Rules of decoding, and forms of pictures; the arrays are those of webdataset."""

from __future__ import annotations

import gzip
import io
import pickle
from typing import Any

import pytest

from tarkit.decoding.decoder import parse_decode
from tarkit.decoding.forms import FORMS
from tarkit.errors import TarkitError
from tests._tools import each_row
from tests.media._files import gradients as picture

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


@each_row(
    ("how", "field", "value"),
    [
        (True, "cls", 3),
        (True, "bin", b"3"),
        ({"cls": None}, "cls", b"3"),
        ({"cls": False}, "left.CLS", b"3"),
        ({"cls": True}, "cls", 3),
        ({"CLS txt": float}, "a.cls", 3.0),
        ({".cls": float}, "cls", 3.0),
        ({"cls": float, "left.cls": None}, "left.cls", b"3"),
        ({"left.cls": None, "cls": float}, "left.cls", b"3"),
        ({"left.cls": None}, "cls", 3),
        ({"cls": None}, "xcls", b"3"),
        ({"*": None}, "cls", b"3"),
        ({"*": None, "cls": True}, "cls", 3),
        ({"*": len}, "cls", 1),
        ({"bin": str}, "bin", "b'3'"),
        # a rule for the name without `.gz` gets the content; fields that stay bytes stay compressed
        (True, "cls.gz", 3),
        ({"cls": float}, "a.cls.gz", 3.0),
        ({"cls.gz": gzip.decompress}, "cls.gz", b"3"),
        ({"cls.gz": True}, "cls.gz", 3),
        ({"bin": len}, "bin.gz", 1),
        ({"cls": None}, "cls.gz", gzip.compress(b"3", mtime=0)),
        (True, "bin.gz", gzip.compress(b"3", mtime=0)),
    ],
)
def test_rules(how: Any, field: str, value: object) -> None:
    """The rule with the longest name that matches counts; the others are decoded by the table, unless `*` says more."""
    decoder, data = parse_decode(how), gzip.compress(b"3", mtime=0) if field.endswith(".gz") else b"3"
    assert decoder.decode(field, data) == value
    assert decoder.decode(field, data) == value


def test_copies_of_decoders() -> None:
    """A decoder can be pickled, before and after it was used."""
    for how in (True, "rgb8", {"png": "l8", "cls": float}):
        decoder = parse_decode(how, allow_pickle=True)
        for _ in range(2):
            copy = pickle.loads(pickle.dumps(decoder))
            assert copy.decode("cls", b"3") == 3
            assert copy.decode("pkl", pickle.dumps({1})) == {1}
            decoder.decode("png", picture())
        assert type(copy.decode("png", picture())) is type(decoder.decode("png", picture()))


ARRAYS = {name: form for name, form in FORMS.items() if form.library == "numpy"}
IMAGES = {name: form for name, form in FORMS.items() if form.library == "pil"}


def of_webdataset(name: str, extension: str, data: bytes) -> Any:
    """Return the picture that webdataset's handler of this name makes."""
    return pytest.importorskip("webdataset.autodecode").imagehandler(name)(extension, data)


@each_row("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
@each_row("name", ARRAYS)
def test_arrays_are_those_of_webdataset(name: str, mode: str) -> None:
    """Each form has the type, shape and values that webdataset's handler of that name has, and can be written to."""
    data = picture(mode=mode)
    found, expected = parse_decode(name).decode("png", data), of_webdataset(name, ".png", data)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert numpy.array_equal(found, expected)
    found[...] = 0


@pytest.mark.slow
@each_row("name", ARRAYS)
@each_row("size", [(1100, 470), (300_000, 2), (2, 100_001)])
def test_large_pictures(name: str, size: tuple[int, int]) -> None:
    """Large pictures, which become arrays in strips, have the same values."""
    file = io.BytesIO()
    Image.effect_noise(size, 90).convert("RGB").save(file, "BMP")
    expected = of_webdataset(name, ".bmp", file.getvalue())
    assert numpy.array_equal(parse_decode(name).decode("bmp", file.getvalue()), expected)


@each_row("mode", ["RGB", "RGBA", "L", "P"])
@each_row("name", [name for name in IMAGES if name != "image"])
def test_images_are_those_of_webdataset(name: str, mode: str) -> None:
    """The same for Pillow images; True keeps the mode that the picture has."""
    data = picture(mode=mode)
    found, expected = parse_decode(name).decode("png", data), of_webdataset(name, ".png", data)
    assert (found.mode, found.tobytes()) == (expected.mode, expected.tobytes())
    assert parse_decode(True).decode("png", data).mode == mode


def test_pictures_by_content() -> None:
    """A rule with the name of a form makes a picture of any field, also a compressed one."""
    decoder = parse_decode({"bin": "l8", "json": "rgb8", "dat.gz": "l8"})
    assert decoder.decode("bin", picture(format="JPEG")).shape == (8, 12)
    assert decoder.decode("json", picture(format="WEBP")).shape == (8, 12, 3)
    assert decoder.decode("dat.gz", gzip.compress(picture())).shape == (8, 12)
    assert parse_decode("rgb8").decode("jpg.gz", gzip.compress(picture())).shape == (8, 12, 3)
    assert parse_decode("rgb8").decode("bin", picture()) == picture()


def test_pictures_that_a_form_would_cut_off() -> None:
    """Values of more than 8 bits are not cut off: that is an error; True has them."""
    file = io.BytesIO()
    Image.fromarray(numpy.array([[0, 65535, 300]], "uint16")).save(file, "PNG")
    for name in ("rgb8", "l", "pil"):
        with pytest.raises(TarkitError, match=r"has more than 8 bits, which .* would cut off"):
            parse_decode(name).decode("png", file.getvalue())
    assert numpy.asarray(parse_decode(True).decode("png", file.getvalue())).tolist() == [[0, 65535, 300]]


def test_any_number_of_names() -> None:
    """What is remembered of names is bounded."""
    decoder = parse_decode(True)
    for number in range(5000):
        assert decoder.decode(f"x.{number}", b"3") == b"3"
        assert decoder.decode(f"{number}.cls", b"3") == 3
    assert len(decoder._functions) <= 1000
    assert len(decoder.coder._kinds) <= 1000
