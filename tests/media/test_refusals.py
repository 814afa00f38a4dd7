"""Values that a format cannot hold are refused, and no part of them is dropped."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from typing import Any

import pytest

from tarkit.decoding.decoder import parse_decode
from tarkit.decoding.forms import FORMS
from tarkit.decoding.picture import PictureDecoder
from tarkit.errors import TarkitError
from tarkit.media.coding import Coder
from tarkit.media.coding_pictures import MODES
from tarkit.sizes import plural
from tests._tools import each_row, error_line
from tests.media._files import npy, png

numpy = pytest.importorskip("numpy")
PIL = pytest.importorskip("PIL")
Image = pytest.importorskip("PIL.Image")

FIELDS = ("jpg", "png", "webp", "gif", "bmp", "tif", "pnm", "pbm", "pgm", "ppm")
FORMATS = {"jpg": "JPEG", "tif": "TIFF", "pnm": "PPM", "png": "PNG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP"}
ALL_MODES = ["1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV"]
ALL_MODES += ["I", "I;16", "I;16L", "I;16B", "F"]
MOST_LOSS = {"jpg": 12, "webp": 12}


def smooth(mode: str) -> Any:
    """Return a picture with different values in each channel, alpha among them."""
    across, down = numpy.meshgrid(numpy.arange(32), numpy.arange(32))
    if mode in ("I", "F") or mode.startswith("I;16"):
        types = {"I": "<i4", "F": "<f4", "I;16B": ">u2"}
        data = ((across * 32 + down) * 64).astype(types.get(mode, "<u2"))
        return Image.frombytes(mode, (32, 32), data.tobytes())
    if mode == "1":
        return Image.fromarray(across < down)
    planes = [across * 2 + 60, down * 2 + 80, across + down + 90, 255 - down * 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        bands = len(Image.new(mode, (1, 1)).getbands())
    planes = planes[-bands:] if mode in ("LA", "La", "PA") else planes[:bands]
    image = Image.frombytes(mode, (32, 32), numpy.stack(planes, axis=-1).astype("uint8").tobytes())
    if mode in ("P", "PA"):
        image.putpalette([value for index in range(256) for value in (index, 255 - index, 128)])
    return image


def values(image: Any, like: Any) -> Any:
    """Return the values of the pixels of a picture, in the mode of another."""
    if image.mode != like.mode:
        through = "RGB" if like.mode == "P" else "RGBA" if like.mode == "PA" else like.mode
        through = image.mode if like.mode.startswith("I;16") else through
        image = image.convert(through)
    elif image.mode in ("P", "PA"):
        assert image.getpalette() == like.getpalette()
    return numpy.asarray(image).astype("int64" if image.mode != "F" else "float64")


@each_row(("field", "mode"), [(field, mode) for field in FIELDS for mode in ALL_MODES])
def test_modes_that_a_format_keeps(field: str, mode: str) -> None:
    """What is written comes back, by the table of modes; all other modes are refused."""
    image = smooth(mode)
    if mode not in MODES.get(field) if field in MODES else mode not in MODES[FORMATS[field]]:
        with pytest.raises(TarkitError, match=f"a picture of mode {mode}, where {field} has ") as raised:
            Coder().encode(field, image)
        assert raised.value.hint == "convert() changes the mode"
        return
    back = Image.open(io.BytesIO(Coder().encode(field, image)))
    if PIL.__version__.startswith("12.") and (back.format, mode) == ("TIFF", "YCbCr"):
        pytest.skip("Pillow 12 does not read the TIFF files of YCbCr that it writes")
    back.load()
    expected = image
    if mode in ("P", "PA") and back.mode != mode:
        expected = image.convert("RGB" if mode == "P" else "RGBA")
    assert abs(values(back, image) - values(expected, expected)).max() <= MOST_LOSS.get(field, 0)
    if field == "webp" and mode in ("LA", "PA", "RGBA"):
        assert numpy.array_equal(numpy.asarray(back.getchannel("A")), numpy.asarray(image.getchannel("A")))


@each_row(
    ("field", "value", "said"),
    [
        ("bmp", numpy.zeros((2, 2, 4), "uint8"), "a picture of mode RGBA, where bmp has 1 or L or P or RGB"),
        ("pnm", numpy.zeros((2, 2, 4), "uint8"), "a picture of mode RGBA, where pnm has "),
        ("gif", numpy.zeros((2, 2, 3), "uint8"), "a picture of mode RGB, where gif has 1 or L or P"),
        ("webp", numpy.zeros((2, 2), "uint16"), "a picture of mode I;16, where webp has "),
        ("gif", numpy.zeros((2, 2), "uint16"), "a picture of mode I;16, where gif has "),
        ("pgm", Image.new("I", (2, 2), 70000), "the values of pixels are from 70000 to 70000, where pgm has"),
        ("pnm", Image.new("I", (2, 2), -5), "the values of pixels are from -5 to -5, where pnm has 0 to 65535"),
        ("png", numpy.ma.array([[1, 2]], mask=[[0, 1]], dtype="uint8"), "a masked array would lose its mask"),
        ("npy", numpy.ma.array([1, 2], mask=[0, 1]), "a masked array would lose its mask"),
        ("npz", {"a": numpy.ma.array([1, 2], mask=[0, 1])}, "a masked array would lose its mask"),
        ("ten", [numpy.ma.array([1, 2], mask=[0, 1])], "a masked array would lose its mask"),
        ("npz", {"a\0b": numpy.ones(1)}, "the name 'a\\x00b' of an array has a NUL"),
        ("npz", {"a": numpy.ones(1), "a.npy": numpy.ones(2)}, "numpy.load would read the array 'a' under the name "),
    ],
)
def test_refused(field: str, value: object, said: str) -> None:
    """The error says what the format cannot hold."""
    assert error_line(Coder().encode, field, value).startswith(f"field '{field}': {said}")


def palette(transparency: object, field: str = "png") -> Any:
    """Return a picture with a palette, in which some colours are transparent, from a file."""
    image = Image.fromarray(numpy.arange(16, dtype="uint8").reshape(4, 4)).convert("P")
    file = io.BytesIO()
    image.save(file, FORMATS[field], transparency=transparency)
    return Image.open(file)


@each_row("field", ["png", "webp", "gif", "bmp", "tif"])
def test_transparent_colours(field: str) -> None:
    """The transparency of a palette is kept, or the picture refused; GIF has one transparent colour."""
    for transparency, kept in ((3, ("png", "webp", "gif")), (bytes([0, 128]), ("png", "webp"))):
        image = palette(transparency)
        image.load()
        alpha = image.convert("RGBA").getchannel("A").tobytes()
        if field in kept:
            back = Image.open(io.BytesIO(Coder().encode(field, image))).convert("RGBA")
            assert back.getchannel("A").tobytes() == alpha
        else:
            with pytest.raises(TarkitError, match=f"the palette has transparent colours, which {field} lacks"):
                Coder().encode(field, image)
    one = palette(3, "gif")
    assert Image.open(io.BytesIO(Coder().encode("gif", one.copy()))).info["transparency"] == 3


TRANSPARENT = [
    ("L", 75, ("png", "webp", "gif")),
    ("RGB", (75, 80, 85), ("png",)),
    ("1", 255, ("png",)),
    ("I;16", 300, ("png",)),
]


@each_row("mode,colour,kept", TRANSPARENT)
def test_one_transparent_colour(mode: str, colour: Any, kept: tuple[str, ...]) -> None:
    """A colour without alpha that is transparent, as PNG has it, is kept, or the picture refused."""
    plane = numpy.arange(48, dtype="uint8").reshape(4, 4, 3) * 5
    arrays = {"L": plane[..., 0], "RGB": plane, "1": plane[..., 0] > 100, "I;16": plane[..., 0].astype("uint16") * 4}
    file = io.BytesIO()
    Image.fromarray(arrays[mode]).save(file, "PNG", transparency=colour)
    image = Image.open(file)
    assert image.mode == mode
    assert image.info["transparency"] == colour
    for field in FIELDS:
        if mode not in MODES.get(field, MODES[FORMATS.get(field, "PPM")]):
            continue
        if field in kept:
            back = Image.open(io.BytesIO(Coder().encode(field, image.copy())))
            if mode == "I;16":
                assert back.info == image.info
            else:
                assert back.convert("RGBA").getchannel("A").tobytes() == image.convert("RGBA").getchannel("A").tobytes()
            continue
        with pytest.raises(TarkitError, match=f"the picture has transparent colours, which {field} lacks"):
            Coder().encode(field, image.copy())
        plain = image.copy()
        del plain.info["transparency"]
        assert Coder().encode(field, plain)


@each_row("field", ["npy", "npz", "ten"])
def test_a_mask_over_an_unchanged_array(field: str) -> None:
    """A masked array does not equal the array that it covers."""
    plain = numpy.array([1, 2])
    masked = numpy.ma.array(plain, mask=[False, True])
    wrap = {"npy": lambda array: array, "npz": lambda array: {"a": array}, "ten": lambda array: [array]}[field]
    original = Coder().encode(field, wrap(plain))
    decoder = parse_decode(True)
    assert decoder.encode(field, wrap(plain), field, original) == original
    assert decoder.encode(field, wrap(masked), field, original) is None


def deep_png(colour: int, bands: int) -> bytes:
    """Return a PNG of one pixel with 16 bits a channel."""
    return png(1, 1, b"\0" + bytes(range(2 * bands)), 16, colour)


def deep_tiff(before: bytes = b"II*\0") -> bytes:
    """Return a TIFF of one RGB pixel with 16 bits a channel, as a frame behind others where `before` is a TIFF."""
    start = max(len(before), 8)
    tags = [(256, 3, 1, 1), (257, 3, 1, 1), (258, 3, 3, start), (259, 3, 1, 1), (262, 3, 1, 2)]
    tags += [(273, 4, 1, start + 6), (277, 3, 1, 3), (278, 3, 1, 1), (279, 4, 1, 6)]
    content = struct.pack("<3H", 16, 16, 16) + bytes(range(6))
    if len(before) > 4:
        first = struct.unpack("<I", before[4:8])[0]
        end = first + 2 + 12 * struct.unpack("<H", before[first : first + 2])[0]
        assert Image.open(io.BytesIO(before)).n_frames == 1
        before = before[:end] + struct.pack("<I", start + 12) + before[end + 4 :]
    else:
        before += struct.pack("<I", start + 12)
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return before + content + directory + bytes(4)


DEEP = {
    "png": deep_png(2, 3),
    "rgba.png": deep_png(6, 4),
    "la.png": deep_png(4, 2),
    "ppm": b"P6 1 1 65535\n" + bytes(range(6)),
    "ten.ppm": b"P6 # ten bits\n1 1 1023\n" + bytes(6),
    "plain.ppm": b"P3 1 1 65535 1 2 65535\n",
    "tiff": deep_tiff(),
    "frames.tiff": deep_tiff(Coder().encode("tiff", Image.new("RGB", (1, 1)))),
}


@each_row("field", DEEP)
def test_channels_of_16_bits(field: str) -> None:
    """Pillow would cut them to 8 bits: every form is an error, and the bytes can be had."""
    for how in (True, *FORMS):
        if how is True or FORMS[how].library != "torch":
            with pytest.raises(TarkitError, match=r"bits a channel, which Pillow would cut to 8"):
                parse_decode(how).decode(field, DEEP[field])
    assert parse_decode({field: None}).decode(field, DEEP[field]) == DEEP[field]


@each_row(
    ("data", "expected"),
    [
        (deep_png(0, 1), [[1]]),
        (b"P5 1 1 65535\n\x01\x02", [[258]]),
        (b"P6 1 1 255\n\x01\x02\x03", [[[1, 2, 3]]]),
        (b"P3 1 1 255 1 2 3\n", [[[1, 2, 3]]]),
        (b"P2 2 1 65535 1 300\n", [[1, 300]]),
        (b"P4 1 1\n\x80", [[False]]),
        (b"P1 2 1 1 0\n", [[False, True]]),
    ],
)
def test_pictures_that_pillow_holds(data: bytes, expected: object) -> None:
    """One channel of 16 bits, and several of 8, are kept."""
    assert numpy.asarray(PictureDecoder("image")(data)).tolist() == expected


SCALED = [
    (b"P5 2 1 100\n\x01\x64", [[3, 255]], 255),
    (b"P5 2 1 1000\n\x00\x01\x03\xe8", [[66, 65535]], 65535),
    (b"P2 2 1 3 1 3\n", [[85, 255]], 255),
    (b"P6 1 1 31\n\x01\x02\x1f", [[[8, 16, 255]]], 255),
]


@each_row("data,scaled,most", SCALED)
def test_values_that_pillow_scales(data: bytes, scaled: object, most: int) -> None:
    """A largest value that is neither 255 nor 65535 is refused, since Pillow, and so webdataset, changes the values."""
    assert numpy.asarray(Image.open(io.BytesIO(data))).tolist() == scaled
    for field in ("pnm", "pgm", "png"):
        with pytest.raises(TarkitError, match=f"from 0 to [0-9]+, which Pillow would scale to {most}"):
            Coder().decode(field, data)
    assert parse_decode({"pgm": None}).decode("pgm", data) == data


def test_names_of_arrays_in_npz() -> None:
    """Names that are arguments of numpy.savez are names like others; the same value gives the same bytes."""
    arrays = {name: numpy.full(2, at) for at, name in enumerate(("a", "allow_pickle", "file", "b.npy", "", "é/x"))}
    data = Coder().encode("npz", arrays)
    assert data == Coder().encode("npz", arrays)
    back = Coder().decode("npz", data)
    assert list(back) == list(arrays)
    assert all(numpy.array_equal(back[name], arrays[name]) for name in arrays)


def test_names_of_arrays_that_numpy_mistakes() -> None:
    """Each entry of an npz by another program is decoded to its own array, and two of one name are an error."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in (("a.npy", 1), ("a.npy.npy", 2)):
            archive.writestr(name, Coder().encode("npy", numpy.array(value)))
    assert Coder().decode("npz", file.getvalue()) == {"a": 1, "a.npy": 2}
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("a", b"x")
    with pytest.raises(TarkitError, match="two arrays are called 'a'"):
        Coder().decode("npz", file.getvalue())


@each_row(
    ("dtype", "pickles"),
    [("u1", False), ("<f8", False), ("O", True), ("U3", False), ([("a", "i4"), ("b", "S2")], False)],
)
def test_bytes_behind_an_array(dtype: Any, pickles: bool) -> None:
    """An array that other bytes follow is refused, as values of MessagePack and CBOR are: two arrays are not one."""
    data, coder = npy(numpy.zeros(3, dtype)), Coder(pickles)
    assert coder.decode("npy", data).shape == (3,)
    for more in (b"\0", b"more bytes", data):
        said = f"field 'npy': {plural(len(more), 'byte follows', 'bytes follow')} the array"
        assert error_line(coder.decode, "npy", data + more).startswith(said)
