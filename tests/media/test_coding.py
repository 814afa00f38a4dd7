"""Values of fields: decoding and encoding, and that unchanged values keep their bytes."""

from __future__ import annotations

import io
import json
import pickle
import sys
from typing import Any

import pytest

from tarkit.decoding.decoder import parse_decode
from tarkit.errors import MissingLibrary, TarkitError
from tarkit.media.coding import Coded, Coder
from tests._tools import each_row, error_line
from tests.media._files import npy, npz

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


def opened(data: bytes) -> Any:
    """Return the picture in some bytes."""
    return Image.open(io.BytesIO(data))


def picture(format: str, mode: str = "RGB", size: tuple[int, int] = (16, 8), **settings: Any) -> bytes:
    """Return a picture with several colours, so that a lossy format changes it each time."""
    image = Image.linear_gradient("L").resize(size).convert(mode)
    file = io.BytesIO()
    image.save(file, format, **settings)
    return file.getvalue()


def coded(field: str, data: bytes, pickles: bool = False) -> tuple[Coded, Any]:
    sample = Coded(Coder(pickles), {field: data})
    return sample, sample.values[field]


@each_row(
    ("field", "data", "value"),
    [
        ("txt", b"a\xc3\xa9\n", "aé\n"),
        ("en.TXT", b"x", "x"),
        ("transcript", b"", ""),
        ("cls", b"3", 3),
        ("cls", b" -12\n", -12),
        ("index", b"007", 7),
        ("a.b.int", b"+5", 5),
        ("json", b'{"b": 1, "a": [true, null, 1.50]}', {"b": 1, "a": [True, None, 1.5]}),
        ("json", b"NaN", pytest.approx(float("nan"), nan_ok=True)),
        ("jsn", b'\xef\xbb\xbf"x"', "x"),
        ("jsonl", b'{"a": 1}\r\n\n[2]\n3', [{"a": 1}, [2], 3]),
        ("bin", b"\x00\xff", b"\x00\xff"),
        ("bin.gz", b"x", b"x"),
        ("gz", b"x", b"x"),
        ("id", b"abc", b"abc"),
        ("pkl", pickle.dumps({1}), pickle.dumps({1})),
        ("", b"x", b"x"),
    ],
)
def test_decode_and_back(field: str, data: bytes, value: object) -> None:
    """A decoded value, or an equal one, is encoded to the same bytes."""
    sample, decoded = coded(field, data)
    assert (type(decoded), decoded) == (type(value), value) or decoded == value
    assert sample.encode(field, decoded) == data
    assert Coded(Coder(), {field: data}).encode(field, decoded) == data


@each_row(
    ("field", "data", "said"),
    [
        ("txt", b"\xff", "field 'txt' cannot be decoded: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"),
        ("cls", b"cat", "field 'cls': 'cat' is not an integer, as cls, index, int and the like must be"),
        ("cls", b"", "field 'cls': '' is not an integer"),
        ("cls", b"1_0", "field 'cls': '1_0' is not an integer"),
        ("cls", b"1.0", "field 'cls': '1.0' is not an integer"),
        ("a.json", b"{", "field 'a.json' cannot be decoded: JSONDecodeError: "),
        ("json", b"[" * 100_000, "field 'json' cannot be decoded: RecursionError: "),
        ("jsonl", b'{"a":\n1}', "field 'jsonl' cannot be decoded: JSONDecodeError: "),
        ("npy", b"no array", "field 'npy': the content is no npy and no npz"),
        ("jpg", b"no picture", "field 'jpg' cannot be decoded: UnidentifiedImageError: "),
        ("npy", pickle.dumps({1}), "field 'npy': the content is no npy and no npz"),
    ],
)
def test_decoding_errors(field: str, data: bytes, said: str) -> None:
    """A decoding error is one line that names the field."""
    assert error_line(Coded, Coder(), {field: data}).startswith(said)


@each_row(
    ("field", "value", "data"),
    [
        ("txt", "é", "é".encode()),
        ("cls", 3, b"3"),
        ("cls", numpy.int64(-3), b"-3"),
        ("json", {"b": 1, "a": (1, 2.0, None)}, b'{"b": 1, "a": [1, 2.0, null]}'),
        ("json", "x", b'"x"'),
        ("json", "é\udc80", b'"\\u00e9\\udc80"'),
        ("json", "é", '"é"'.encode()),
        ("jsonl", [{"a": 1}, 2], b'{"a": 1}\n2\n'),
        ("jsonl", [], b""),
        ("npy", numpy.arange(3, dtype="<i2"), npy(numpy.arange(3, dtype="<i2"))),
        ("npy", numpy.float32(1), npy(numpy.float32(1))),
        ("npz", {"a": numpy.ones(2)}, npz(a=numpy.ones(2))),
        ("bin", "é", "é".encode()),
        *((field, kind(b"raw"), b"raw") for field in ("txt", "json", "npy", "jpg", "x") for kind in (bytes, bytearray)),
        ("cls", memoryview(b"raw"), b"raw"),
    ],
)
def test_new_values(field: str, value: object, data: bytes) -> None:
    """New values are encoded by the field and the type of the value; bytes are stored unchanged in every field."""
    assert Coded(Coder(), {}).encode(field, value) == data
    assert Coded(Coder(), {field: b"7"} if field in ("txt", "cls", "json", "x") else {}).encode(field, value) == data


@each_row(
    ("field", "value", "said"),
    [
        ("txt", 3, "field 'txt': it takes str or bytes, not int"),
        ("txt", "\udc80", "field 'txt' cannot be encoded: UnicodeEncodeError: "),
        ("cls", True, "field 'cls': it takes an integer, not bool"),
        ("cls", 1.0, "field 'cls': it takes an integer, not float"),
        ("cls", "1", "field 'cls': it takes an integer, not str"),
        ("json", float("nan"), "field 'json' cannot be encoded: ValueError: Out of range float values"),
        ("json", {1: 2}, "field 'json': the key 1 of a dict is int; JSON has str alone"),
        ("json", [{"a": {None: 2}}], "field 'json': the key None of a dict is None; JSON has str alone"),
        ("json", {"a": {1}}, "field 'json' cannot be encoded: TypeError: Object of type set is not JSON serializable"),
        ("jsonl", "ab", "field 'jsonl': it takes a list, an item for each line, not str"),
        ("npy", [1, 2], "field 'npy': it takes a numpy array, not list"),
        ("npy", numpy.array([{}]), "field 'npy': an array of Python objects would be a pickle"),
        ("npz", numpy.ones(1), "field 'npz': it takes a dict of arrays, not ndarray"),
        ("npz", {"a": [1]}, "field 'npz': it takes a numpy array, not list"),
        ("bin", 3, "field 'bin': it takes bytes or str, not int"),
        ("bin", None, "field 'bin': it takes bytes or str, not None"),
        ("pkl", {1}, "field 'pkl': it takes bytes or str, not set"),
        ("jpg", "x", "field 'jpg': it takes a Pillow image, a numpy array or a tensor, not str"),
        ("png", [[1]], "field 'png': it takes a Pillow image, a numpy array or a tensor, not list"),
        ("png", numpy.ones((2, 2), "int64"), "field 'png': an array of int64, 2x2, is not a picture"),
        ("png", numpy.ones((2, 2, 2), "uint8"), "field 'png': an array of uint8, 2x2x2, is not a picture"),
        ("png", numpy.array([[0.0, 1.5]]), "field 'png': the values of pixels must be from 0 to 1, or of type"),
        ("png", numpy.array([[0.0, numpy.nan]]), "field 'png': the values of pixels must be from 0 to 1"),
        ("jpg", Image.new("RGBA", (2, 2)), "field 'jpg': a picture of mode RGBA, where jpg has 1 or L or RGB or CMYK"),
        ("pgm", Image.new("RGB", (2, 2)), "field 'pgm': a picture of mode RGB, where pgm has L or I or I;16"),
    ],
)
def test_encoding_errors(field: str, value: object, said: str) -> None:
    """An encoding error is one line that names the field, for any previous content."""
    before = {"json": b"1", "jpg": picture("JPEG"), "npy": npy(numpy.ones(1)), "txt": b"x", "cls": b"1"}
    for raw in ({}, {field: before[field]} if field in before else {}):
        assert error_line(Coded(Coder(), raw).encode, field, value).startswith(said)


@each_row(
    ("data", "change", "new"),
    [
        (b'{"a":[1]}', lambda value: value["a"].append(2), b'{"a": [1, 2]}'),
        (b'{"a":1}', lambda value: value.update(a=True), b'{"a": true}'),
        (b'{"a":1}', lambda value: value.update(a=1.0), b'{"a": 1.0}'),
        (b'{"a":1,"b":2}', lambda value: value.update(a=value.pop("a")), b'{"b": 2, "a": 1}'),
        (b'{"a":1e2}', lambda value: value.update(a=100.0), b'{"a":1e2}'),
    ],
)
def test_json_that_was_changed_in_place(data: bytes, change: Any, new: bytes) -> None:
    """JSON is encoded anew if and only if the object was changed in place."""
    sample, value = coded("json", data)
    change(value)
    assert sample.encode("json", value) == new


def test_arrays_that_were_changed_in_place() -> None:
    """An array is compared with its original; unchanged, it keeps an unusual header or compression."""
    odd = npy(numpy.arange(3)).replace(b", }", b",}", 1).replace(b" \n", b"  \n", 1)
    assert odd != npy(numpy.arange(3))
    sample, value = coded("npy", odd)
    assert sample.encode("npy", value) == odd
    assert sample.encode("npy", value.copy()) == odd
    assert sample.encode("npy", value.astype("int32")) == npy(numpy.arange(3, dtype="int32"))
    value[0] = 9
    assert sample.encode("npy", value) == npy(numpy.array([9, 1, 2]))
    packed = npz(compressed=True, a=numpy.zeros(1000), b=numpy.ones(2))
    sample, value = coded("npz", packed)
    assert sample.encode("npz", dict(value)) == packed
    value["b"] = numpy.ones(3)
    assert sample.encode("npz", value) == npz(a=numpy.zeros(1000), b=numpy.ones(3))


FORMATS = {name: name.upper() for name in ("JPEG", "png", "webp", "gif", "bmp", "ppm")}
FORMATS |= {"jpg": "JPEG", "tif": "TIFF"}


@each_row("field", FORMATS)
def test_unchanged_pictures(field: str) -> None:
    """Unchanged pictures keep their bytes after loading, copying, conversion to an array, and under a new name."""
    data = picture(FORMATS[field])
    sample, image = coded(field, data)
    assert image.size == (16, 8)
    assert sample.encode(field, image) == data
    assert sample.encode("left." + field, image) == data
    image.load()
    assert sample.encode(field, image) == data
    assert sample.encode("left." + field, image) == data
    assert sample.encode(field, image.copy()) == data
    if image.mode != "P":
        assert sample.encode(field, numpy.asarray(image)) == data


@each_row("field", FORMATS)
def test_changed_pictures(field: str) -> None:
    """Changed pictures are encoded in the format of the field."""
    sample, image = coded(field, picture(FORMATS[field]))
    image.paste(image.crop((15, 7, 16, 8)), (0, 0))
    new = opened(sample.encode(field, image))
    assert (new.format, new.size) == (FORMATS[field], (16, 8))
    assert new.convert("RGB").getpixel((0, 0)) != (0, 0, 0)
    assert opened(sample.encode(field, image.resize((4, 4)))).size == (4, 4)


def test_a_picture_in_another_format() -> None:
    """A picture for a field of another format is converted, even if it is unchanged."""
    sample, image = coded("jpg", picture("JPEG"))
    assert opened(sample.encode("png", image)).format == "PNG"
    assert sample.encode("jpeg", image) == picture("JPEG")
    sample, image = coded("jpg", picture("PNG"))  # the content may be in another format than the field says
    assert sample.encode("jpg", image) == picture("PNG")
    assert opened(sample.encode("jpg", image.rotate(180))).format == "JPEG"


def test_a_changed_picture_keeps_its_profile_and_orientation() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    sample, image = coded("jpg", picture("JPEG", exif=exif, icc_profile=b"profile"))
    for field in ("jpg", "png", "webp"):
        new = opened(sample.encode(field, image.resize((4, 4))))
        assert (new.getexif()[0x0112], new.info["icc_profile"]) == (6, b"profile")


def test_animations() -> None:
    """An animation is kept if unchanged; a single frame is a picture; replacing all frames by one is refused."""
    file = io.BytesIO()
    Image.new("L", (4, 4), 0).save(file, "GIF", save_all=True, append_images=[Image.new("L", (4, 4), 255)])
    sample, image = coded("gif", file.getvalue())
    assert image.n_frames == 2
    assert sample.encode("gif", image) == file.getvalue()
    image.seek(1)
    with pytest.raises(TarkitError, match="the picture has 2 frames, and was changed"):
        sample.encode("gif", image)
    with pytest.raises(TarkitError, match="a picture of mode RGB, where gif has 1 or L or P"):
        sample.encode("gif", image.copy())
    assert opened(sample.encode("gif", image.copy().convert("P"))).n_frames == 1


def test_arrays_as_pictures() -> None:
    """Arrays of bytes, of numbers from 0 to 1 as in webdataset, of one channel and of 16 bits are pictures."""
    coder = Coder()
    pixels = numpy.arange(24, dtype="uint8").reshape(2, 4, 3)
    assert numpy.array_equal(numpy.asarray(opened(coder.encode("png", pixels))), pixels)
    assert numpy.array_equal(numpy.asarray(opened(coder.encode("png", pixels / 255))), pixels)
    assert numpy.array_equal(numpy.asarray(opened(coder.encode("png", pixels[:, :, :1]))), pixels[:, :, 0])
    deep = numpy.array([[0, 65535]], dtype="uint16")
    assert numpy.array_equal(numpy.asarray(opened(coder.encode("png", deep))), deep)


def test_pickles_only_when_allowed() -> None:
    """Arrays of objects, which can run code, are decoded only if allowed; tests/api/test_decode.py has pickles."""
    objects = numpy.array([{}], dtype=object)
    sample, value = coded("npy", npy(objects), pickles=True)
    assert numpy.load(io.BytesIO(sample.encode("npy", value)), allow_pickle=True)[0] == {}
    with pytest.raises(TarkitError, match="cannot be decoded: ValueError: Object arrays cannot be loaded"):
        coded("npy", npy(objects))


@each_row(
    ("module", "field", "needed", "extra"),
    [
        ("PIL.Image", "jpg", "pictures needs Pillow", "images"),
        ("numpy", "npy", "arrays needs numpy", "numpy"),
        ("numpy", "ten", "arrays needs numpy", "numpy"),
        ("msgpack", "mp", "msgpack needs msgpack", "msgpack"),
        ("cbor2", "cbor", "CBOR needs cbor2", "cbor"),
        ("soundfile", "wav", "sound needs soundfile", "sound"),
        ("torch", "pth", "pth needs torch", "torch"),
    ],
)
def test_without_a_library(module: str, field: str, needed: str, extra: str) -> None:
    """The error names the library and says whether it decodes or encodes, the hint the extra to install."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module, None)
        decoder = parse_decode(True)
        assert decoder.decode("cls", b"3") == 3
        for what, call, value in (("decode of", decoder.decode, b"x"), ("to encode", Coder().encode, 1)):
            with pytest.raises(MissingLibrary) as raised:
                call(field, value)
            assert str(raised.value) == f"{what} {needed}, which is not installed"
            assert raised.value.hint == f"pip install 'tarkit[{extra}]'"


def test_two_fields_that_decode_to_one_object() -> None:
    """Fields that decode to one object, such as a small integer, keep their own bytes."""
    sample = Coded(Coder(), {"cls": b"3\n", "index": b"003", "json": json.dumps(3).encode()})
    assert {field: sample.encode(field, value) for field, value in sample.values.items()} == {
        "cls": b"3\n",
        "index": b"003",
        "json": b"3",
    }
    assert sample.encode("count.cls", 3) == sample.encode("n.index", 1 + 2) == b"3"  # no content of another field


def test_surrogates_in_json() -> None:
    """A lone surrogate is kept; two that JSON has for one character are refused, and are not that character."""
    coder = Coder()
    for text in ("\ud83d", "\ude00\ud83d", "\ud83dx\ude00", "\U0001f600"):
        assert coder.decode("json", coder.encode("json", [text])) == [text]
    for value in ("\ud83d\ude00", {"\ud83d\ude00": 1}):
        with pytest.raises(TarkitError, match=r"field 'json': text has the surrogates '\\ud83d\\ude00'"):
            coder.encode("json", value)
    sample = Coded(coder, {"json": b'"\\ud83d\\ude00"', "jsonl": b'"\\ud83d\\ude00"\n'})
    assert sample.encode("json", "\U0001f600") == b'"\\ud83d\\ude00"'
    for field, value in (("json", "\ud83d\ude00"), ("jsonl", ["\ud83d\ude00"])):
        with pytest.raises(TarkitError, match="surrogates"):
            sample.encode(field, value)
