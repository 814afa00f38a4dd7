"""Kinds of content by first bytes; sizes of pictures, lengths of sounds and shapes of arrays from headers."""

from __future__ import annotations

import io
import json
import random
import struct
import wave
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.media import headers, kinds
from tarkit.samples.items import Item, describe
from tarkit.samples.items_text import about_words
from tests._tools import each_row, payload_of

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\2\0\0\0"
GIF = b"GIF89a" + struct.pack("<HH", 30, 20)
SOF = b"\xff\xc0\0\x11\x08" + struct.pack(">HH", 480, 640) + b"\3\1\x11\0\2\x11\0\3\x11\0"
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(10) + SOF
EXIF = b"\xff\xd8\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000) + b"\xff" + SOF
BMP = b"BM" + bytes(12) + struct.pack("<Iii", 40, 7, -9) + bytes(24)
BMP_OS2 = b"BM" + bytes(12) + struct.pack("<IHH", 12, 7, 9) + bytes(24)
VP8 = b"RIFF\x40\0\0\0WEBPVP8 " + bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", 640 | 0x4000, 480)
VP8L = b"RIFF\x40\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 639 | 479 << 14) + bytes(8)
VP8X = b"RIFF\x40\0\0\0WEBPVP8X" + bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")


def tiff(order: str, width: int, height: int) -> bytes:
    """Return the header of a TIFF with its directory after some data; width is a SHORT, height a LONG."""
    short = struct.pack(f"{order}HHIHH", 256, 3, 1, width, 0)
    long = struct.pack(f"{order}HHII", 257, 4, 1, height)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 100)
    return head + bytes(92) + struct.pack(f"{order}H", 2) + short + long


def box(name: str, *content: bytes) -> bytes:
    """Return a box of HEIF or JPEG 2000."""
    data = b"".join(content)
    return struct.pack(">I4s", 8 + len(data), name.encode()) + data


def heif(brand: str, *properties: bytes) -> bytes:
    """Return the header of a HEIF file: a picture of 640 x 480 pixels with these properties, and one of 30 x 20."""
    sizes = [box("ispe", bytes(4), struct.pack(">II", *size)) for size in ((30, 20), (640, 480))]
    linked = bytes([0, 1, 1 + len(properties), *range(2, 3 + len(properties)), 0, 2, 1, 1])
    items = box("iprp", box("ipco", *sizes, *properties), box("ipma", struct.pack(">II", 0, 2), linked))
    meta = box("meta", bytes(4), box("hdlr", bytes(25)), box("pitm", bytes(4), b"\0\1"), items)
    return box("ftyp", brand.encode(), bytes(4), b"mif1") + meta + box("mdat", bytes(100))


JP2 = box("jP  ", b"\r\n\x87\n") + box("ftyp", b"jp2 ", bytes(4), b"jp2 ")
JP2 += box("jp2h", box("ihdr", struct.pack(">II", 480, 640), b"\0\3\7\7\0\0"))
AVIF = heif("avif")


def reader(data: bytes) -> headers.Read:
    """Return a function that reads from bytes."""
    return lambda pos, n: data[pos : pos + n]


KINDS: list[tuple[bytes, bytes, str]] = [
    (PNG, b"png", "png"),
    (PNG, b"jpg", "png"),
    (JPEG, b"x", "jpeg"),
    (GIF, b"x", "gif"),
    (BMP, b"x", "bmp"),
    (b"BM is a fine start for a text, too", b"txt", "text"),
    (VP8, b"x", "webp"),
    (b"RIFF\x40\0\0\0AVI LIST" + bytes(20), b"x", "avi"),
    (tiff("<", 1, 1), b"x", "tiff"),
    (b"P6\n# a comment\n3 4\n255\n" + bytes(36), b"x", "netpbm"),
    (b"P6 is no picture", b"txt", "text"),
    (b"RIFF\x40\0\0\0WAVEfmt ", b"x", "wav"),
    (b"fLaC\0\0\0\x22" + bytes(34), b"x", "flac"),
    (b"ID3\x03" + bytes(30), b"x", "mp3"),
    (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(20), b"x", "mp4"),
    (b"\0\0\0\x1cftypavif" + bytes(20), b"x", "avif"),
    (heif("avis"), b"x", "avif"),
    (heif("heic"), b"x", "heic"),
    (heif("heix"), b"x", "heic"),
    (JP2, b"x", "jpx"),
    (b"\x1a\x45\xdf\xa3" + bytes(10) + b"webm" + bytes(9), b"x", "webm"),
    (b"\x89HDF\r\n\x1a\n" + bytes(9), b"x", "hdf5"),
    (b"PAR1" + bytes(9), b"x", "parquet"),
    (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", b"x", "pdf"),
    (b"\x1f\x8b\x08" + bytes(20), b"json.gz", "gz"),
    (b"PK\x03\x04" + bytes(20), b"x", "zip"),
    (b"\x80\x04\x95\x05\0\0\0\0\0\0\0]\x94.", b"x", "pickle"),
    (b"\x80\x02}q\0.", b"x", "pickle"),
    (b"(lp0\n.", b"pyd", "pickle"),
    (b"(lp0\n.", b"txt", "text"),
    (b"", b"png", "empty"),
    (b"7", b"cls", "text"),
    (b"7", b"json", "json"),
    (b' {"a": 1}\n', b"x", "json"),
    (b'{"a": 1,}', b"json", "text"),
    (b'{"a": 1}\n{"a": 2}\n', b"jsonl", "text"),
    (b"[" * 100_000, b"x", "text"),
    ("\u00e9\u4e00\U0001f600".encode(), b"x", "text"),
    (b"caf\xe9 au lait, s'il vous pla\xeet", b"x", "latin text"),
    (b"\xe9" * 20, b"x", "data"),
    (b"a\0b", b"txt", "data"),
    (b"\x1b[31mred\x1b[0m", b"txt", "text"),
    (bytes(100), b"x", "data"),
    (b"\xff\x0a" + bytes(30), b"x", "data"),
]


@each_row(("head", "field", "kind"), KINDS)
def test_kind(head: bytes, field: bytes, kind: str) -> None:
    """The kind is determined by magic bytes, else by decoding; by name for pickles only."""
    assert kinds.kind_of(head, field, len(head)) == kind


def test_cut_text() -> None:
    """The head of a longer text may end inside a character; cut JSON is recognized by its first character."""
    text = "\u00e9" * 5000
    assert kinds.kind_of(text.encode()[:8191], b"txt", 10_000) == "text"
    assert kinds.decode(text.encode()[:8191], False) == "\u00e9" * 4095
    assert kinds.decode(text.encode()[:8191], True) is None
    assert kinds.decode(b"a\xe9\xe9\xe9\xe9", False) is None
    assert kinds.decode(b"\xef\xbb\xbfa", True) == "a"
    assert kinds.kind_of(b'{"a": "' + b"x" * 8185, b"json", 10_000) == "json"
    assert kinds.kind_of(b'"' + b"x" * 8191, b"json", 10_000) == "json"
    assert kinds.kind_of(b"x" * 8192, b"json", 10_000) == "text"


@each_row(
    ("field", "kind", "said"),
    [
        (b"jpg", "jpeg", None),
        (b"JPEG", "png", "jpeg"),
        (b"left.png", "webp", "png"),
        (b"json", "text", "json"),
        (b"cls", "json", None),
        (b"jpg", "empty", None),
        (b"ppm", "netpbm", None),
    ],
)
def test_names_of_another_kind(field: bytes, kind: str, said: str | None) -> None:
    assert kinds.named_for(field, kind) == said


SIZES: list[tuple[str, bytes, tuple[int, int] | None]] = [
    ("png", PNG, (640, 480)),
    ("jpeg", JPEG, (640, 480)),
    ("jpeg", EXIF, (640, 480)),
    ("jpeg", b"\xff\xd8\xff\xff\xd0" + SOF, (640, 480)),
    ("gif", GIF, (30, 20)),
    ("bmp", BMP, (7, 9)),
    ("bmp", BMP_OS2, (7, 9)),
    ("webp", VP8, (640, 480)),
    ("webp", VP8L, (640, 480)),
    ("webp", VP8X, (640, 480)),
    ("tiff", tiff("<", 640, 480), (640, 480)),
    ("tiff", tiff(">", 640, 480), (640, 480)),
    ("avif", AVIF, (640, 480)),
    ("avif", heif("avis", box("irot", b"\1")), (640, 480)),
    ("heic", heif("heic", box("imir", b"\1"), box("irot", b"\3")), (640, 480)),
    ("jpx", JP2, (640, 480)),
    ("netpbm", b"P5 3 4 255 ", (3, 4)),
    ("netpbm", b"P6\n# by hand\n 3\n#\n4\n255\n", (3, 4)),
    # invalid headers
    ("png", PNG[:16] + bytes(8), None),
    ("jpeg", b"\xff\xd8" + b"\xff\xe0\0\2" * 5000 + SOF, None),  # more segments than any picture has
    ("jpeg", b"\xff\xd8\xff\xda\0\2" + SOF, None),
    ("jpeg", b"\xff\xd8\0\0" + SOF, None),
    ("tiff", b"II*\0\xff\xff\xff\xff", None),
    ("webp", b"RIFF\x40\0\0\0WEBPVP9 " + bytes(30), None),
    ("heic", heif("heic", box("clap", struct.pack(">8I", 639, 1, 479, 1, 0, 1, 0, 1))), None),  # cropped
    ("avif", box("ftyp", b"avif", bytes(4)) + b"\xff" * 40, None),
    ("jpx", JP2[:32] + bytes(40), None),
    ("unknown", PNG, None),
]


@each_row(("kind", "data", "size"), SIZES)
def test_picture_size(kind: str, data: bytes, size: tuple[int, int] | None) -> None:
    """Width and height are read; a header that is invalid, or cut anywhere, has no size, and raises nothing."""
    assert headers.picture_size(kind, reader(data)) == size
    for length in [*range(min(len(data), 120)), len(data) // 2]:
        assert headers.picture_size(kind, reader(data[:length])) in (None, size)


OF_PILLOW: list[tuple[str, str, dict[str, Any]]] = [
    ("JPEG", "RGB", {"progressive": True, "exif": b"Exif\0\0" + bytes(50_000)}),
    ("JPEG", "L", {}),
    ("JPEG", "CMYK", {}),
    ("MPO", "RGB", {"save_all": True}),
    ("PNG", "RGBA", {}),
    ("PNG", "1", {"interlace": 1}),
    ("PNG", "I;16", {}),
    ("GIF", "P", {"save_all": True}),
    ("BMP", "RGB", {}),
    ("TIFF", "RGB", {}),
    ("TIFF", "I;16B", {}),  # from the highest byte on
    ("TIFF", "I;16", {"compression": "tiff_deflate"}),
    ("WEBP", "RGB", {}),
    ("WEBP", "RGBA", {"save_all": True}),
    ("WEBP", "RGB", {"lossless": True}),
    ("WEBP", "RGB", {"exif": b"Exif\0\0" + bytes(10)}),
    ("PPM", "RGB", {}),
    ("PPM", "L", {}),
    ("AVIF", "RGB", {}),
    ("AVIF", "RGBA", {"save_all": True}),
    ("JPEG2000", "RGB", {}),
    ("JPEG2000", "LA", {}),
]
ORIENTED = ("JPEG", "PNG", "TIFF", "WEBP", "AVIF")
KIND = {"ppm": "netpbm", "mpo": "jpeg", "jpeg2000": "jpx"}


@each_row(("format", "mode", "saved"), OF_PILLOW)
def test_picture_sizes_of_pillow(format: str, mode: str, saved: dict[str, Any]) -> None:
    """The sizes of pictures of any size that Pillow writes in many forms are read, as stored in any orientation."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    images.init()
    if format not in images.SAVE:  # AVIF and JPEG 2000 need libraries
        pytest.skip(f"this Pillow does not write {format}")
    draw = random.Random(f"{format} {mode} {saved}")
    turned = format in ORIENTED and not {"exif", "save_all"} & {*saved}  # Pillow 13.0 crashes over turned frames
    for orientation in (1, draw.randint(2, 4), draw.randint(5, 8)) if turned else (0,):
        size = draw.randint(1, 300), draw.randint(1, 300)
        exif = images.Exif()
        exif[0x112] = orientation
        frames = {"append_images": [images.new(mode, size, 1)]} if "save_all" in saved else {}
        out = io.BytesIO()
        images.new(mode, size).save(out, format, **saved, **frames, **({"exif": exif} if orientation else {}))
        data = out.getvalue()
        kind = kinds.kind_of(data[: kinds.HEAD], b"x", len(data))
        assert (kind, headers.picture_size(kind, reader(data))) == (KIND.get(format.lower(), format.lower()), size)


@settings(max_examples=25)
@given(st.sampled_from([(kind, data) for kind, data, _ in SIZES]), st.data())
def test_any_header_of_a_picture(picture: tuple[str, bytes], data: st.DataObject) -> None:
    """A header with other bytes in it has a size or none, and raises nothing."""
    kind, header = picture
    start = data.draw(st.integers(0, min(len(header), 300)))
    changed = header[:start] + data.draw(st.binary(max_size=30)) + header[start + data.draw(st.integers(0, 30)) :]
    size = headers.picture_size(kind, reader(changed))
    assert size is None or min(size) > 0


def wav(seconds: float, rate: int = 8000, channels: int = 2) -> bytes:
    """Return a WAV file of silence."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(int(seconds * rate) * channels * 2))
    return out.getvalue()


def flac(samples: int, rate: int = 44_100, channels: int = 2) -> bytes:
    """Return the header of a FLAC file."""
    bits = rate << 44 | (channels - 1) << 41 | 15 << 36 | samples
    return b"fLaC\x80\0\0\x22" + bytes(10) + bits.to_bytes(8, "big") + bytes(16)


def test_sound() -> None:
    """Length, rate and channels are read, also if the length was unknown when the header was written."""
    data = wav(1.5)
    assert headers.sound("wav", reader(data), len(data)) == (1.5, 8000, 2)
    streamed = data[:40] + b"\xff\xff\xff\xff" + data[44:]
    assert headers.sound("wav", reader(streamed), len(data)) == (1.5, 8000, 2)
    listed = data[:12] + b"LIST\3\0\0\0abc\0" + data[12:]
    assert headers.sound("wav", reader(listed), len(listed)) == (1.5, 8000, 2)
    ds64 = b"ds64" + struct.pack("<IQQQI", 28, 0, 48_000_000_000, 0, 0)
    long = b"RF64\xff\xff\xff\xffWAVE" + ds64 + data[12:40] + b"\xff\xff\xff\xff"
    assert headers.sound("wav", reader(long), len(long)) == (1_500_000.0, 8000, 2)
    assert headers.sound("flac", reader(flac(66_150)), 42) == (1.5, 44_100, 2)
    assert headers.sound("flac", reader(flac(0)), 42) == (None, 44_100, 2)
    for kind, cut in (
        ("flac", b"fLaC"),
        ("wav", data[:30]),
        ("wav", data[:28] + bytes(16)),
        ("flac", flac(1)[:20]),
        ("mp3", data),
    ):
        assert headers.sound(kind, reader(cut), len(cut)) is None
    assert headers.sound("wav", reader(b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 9000), 1) is None


def npy(header: str, version: int = 1, payload: bytes = b"") -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + payload


def test_npy_by_hand() -> None:
    """Headers of each version and of other writers are read; invalid ones are no array."""
    plain = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n"
    assert headers.npy(reader(npy(plain))) == ("float32", (3, 4), False, 10 + len(plain) + 48)
    assert headers.npy(reader(npy(plain, 2))) == ("float32", (3, 4), False, 12 + len(plain) + 48)
    other = '{"shape":(5L,),"fortran_order":True,"descr":">i8"}'
    assert headers.npy(reader(npy(other))) == ("int64 big-endian", (5,), False, 10 + len(other) + 40)
    for descr, dtype, pickled in [
        ("'|O'", "object", True),
        ("'|b1'", "bool", False),
        ("'<U7'", "<U7", False),
        ("'|S3'", "|S3", False),
        ("'<M8[ns]'", "<M8[ns]", False),
        ("'<c16'", "complex128", False),
        ("[('a', '<f4'), ('b', '|O')]", "structured", True),
        ("[('a', '<f4')]", "structured", False),
    ]:
        found = headers.npy(reader(npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': ()}}")))
        assert found is not None
        assert (found.dtype, found.shape, found.pickled) == (dtype, (), pickled)
    huge = "9" * 5000
    for bad in ("{}", "{'descr': '<f4'}", f"{{'descr': '<f4', 'shape': ({huge},)}}", "{'descr': f(), 'shape': (1,)}"):
        assert headers.npy(reader(npy(bad))) is None
    assert headers.npy(reader(npy("{'descr': '<f4', 'shape': (" + "1," * 100 + ")}"))) is None
    assert headers.npy(reader(npy(plain)[:40])) is None
    assert headers.npy(reader(b"")) is None


@each_row("dtype", ["float32", ">f8", "int8", "uint16", "bool", "complex64", "O", "S5", "f4,i8"])
def test_npy_of_numpy(dtype: str) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros((3, 0, 5) if dtype == "int8" else (2, 3), dtype)
    out = io.BytesIO()
    numpy.save(out, array)
    found = headers.npy(reader(out.getvalue()))
    assert found is not None
    assert found.shape == array.shape
    assert found.pickled == (dtype == "O")
    if array.dtype.kind in "fiubc":
        assert found.dtype.split()[0] == array.dtype.name
        assert found.bytes == len(out.getvalue())


@each_row("save", ["savez", "savez_compressed"])
def test_npz_of_numpy(save: str) -> None:
    """All arrays of an npz are listed, stored or compressed."""
    numpy = pytest.importorskip("numpy")
    out = io.BytesIO()
    getattr(numpy, save)(out, a=numpy.zeros((300, 40)), b=numpy.arange(5, dtype="<i4"), c=numpy.array([{}]))
    found, whole = headers.members(reader(out.getvalue()))
    assert [(each.name, each.array and each.array[:3]) for each in found] == [
        ("a.npy", ("float64", (300, 40), False)),
        ("b.npy", ("int32", (5,), False)),
        ("c.npy", ("object", (1,), True)),
    ]
    assert whole


def zipped(members: dict[str, bytes], out: io.BytesIO | None = None) -> bytes:
    """Return a zip of compressed members, which is written to `out`."""
    out = out or io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def test_zip() -> None:
    """Names of members are listed; in a streamed zip only the first is known; damage ends the list."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *where: int) -> int:
            raise OSError

        def tell(self) -> int:
            raise OSError

    members = dict.fromkeys(("a.txt", "\u00e9.npy"), b"x" * 1000)
    data = zipped(members)
    assert headers.members(reader(data)) == ([("a.txt", None), ("\u00e9.npy", None)], True)
    assert headers.members(reader(zipped(members, Pipe()))) == ([("a.txt", None)], False)
    assert headers.members(reader(data[:60])) == ([("a.txt", None)], False)
    assert headers.members(reader(b"PK\x03\x04" + bytes(26)))[1] is False
    assert headers.members(reader(b"")) == ([], False)


def test_safetensors() -> None:
    """Tensors are listed by name; an invalid header yields None."""
    header = {"__metadata__": {"a": "b"}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
    text = json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + bytes(24)
    assert headers.safetensors(reader(data), len(data)) == [("w", ("F32", (2, 3), False, None))]
    for bad in (b"", data[:20], struct.pack("<Q", 1 << 40) + b"{}", struct.pack("<Q", 2) + b"[]", data[:7]):
        assert headers.safetensors(reader(bad), len(bad)) is None


def seen(data: bytes, field: bytes = b"x", reach: int | None = None) -> tuple[Item, int]:
    """Return the item with its description, and how many bytes were read for it."""
    payload = payload_of(data, reach)
    return describe(Item(b"a." + field, field, len(data), ""), payload), payload.source.count  # type: ignore[attr-defined]


SEEN: list[tuple[bytes, bytes, str, dict[str, Any]]] = [
    (PNG, b"png", "png", {"width": 640, "height": 480}),
    (PNG, b"jpg", "png", {"width": 640, "height": 480, "named": "jpg"}),
    (PNG[:12], b"png", "png", {"note": "no size in the header"}),
    (AVIF, b"avif", "avif", {"width": 640, "height": 480}),
    (wav(0.5), b"wav", "wav", {"seconds": 0.5, "rate": 8000, "channels": 2}),
    (flac(1)[:20], b"x", "flac", {"note": "invalid header"}),
    (npy("{'descr': '<f4', 'shape': (2,)}", payload=bytes(8)), b"npy", "npy", {"dtype": "float32", "shape": [2]}),
    (
        npy("{'descr': '<f4', 'shape': (2,)}"),
        b"npy",
        "npy",
        {"dtype": "float32", "shape": [2], "note": "the header requires 49 bytes"},
    ),
    (
        npy("{'descr': '|O', 'shape': (2,)}"),
        b"npy",
        "npy",
        {"dtype": "object", "shape": [2], "note": "pickled objects, not opened"},
    ),
    (npy("{"), b"npy", "npy", {"note": "invalid header"}),
    (b"\x80\x04\x95.", b"pth", "pickle", {"note": "not opened"}),
    (b"\x1f\x8b\x08" + bytes(9), b"json", "gz", {"named": "json"}),
]


@each_row(("data", "field", "kind", "about"), SEEN)
def test_describe(data: bytes, field: bytes, kind: str, about: dict[str, Any]) -> None:
    """An item has its kind and the facts of its header."""
    item, _ = seen(data, field)
    assert (item.kind, item.about, item.text) == (kind, about, None)


def test_describe_zip() -> None:
    """A zip of arrays is an npz. Members that are pickles are listed, not opened."""
    pickled = {"members": ["w/data.pkl"], "note": "pickled objects, not opened"}
    assert seen(zipped({"w/data.pkl": b"\x80\x04."}), b"pth")[0].about == pickled
    item, _ = seen(zipped({"a.npy": npy("{'descr': '<f4', 'shape': (2,)}"), "b.npy": b"no array"}), b"npz")
    assert (item.kind, item.about) == (
        "npz",
        {"arrays": [{"name": "a", "dtype": "float32", "shape": [2]}, {"name": "b", "dtype": None, "shape": None}]},
    )


@each_row(
    ("data", "text", "cut", "most"),
    [
        (b"hello\n", "hello\n", False, 100),
        (b"x" * 5000, "x" * 4096, True, 5000),
        (b"x" * (1 << 18), "x" * 4096, True, 8192),
        (b"{" + b" " * 20_000 + b"}", "{" + " " * 20_000 + "}", False, 40_000),
        (b"{" + b" " * (1 << 18) + b"}", "{" + " " * 8191, True, 8192),
        (b"caf\xe9 au lait", "caf\udce9 au lait", False, 100),
    ],
)
def test_describe_text(data: bytes, text: str, cut: bool, most: int) -> None:
    """An item has the beginning of its text; only its head is read."""
    item, count = seen(data)
    assert (item.text, item.cut) == (text, cut)
    assert count <= most


@each_row("make", [lambda: wav(100.0), lambda: EXIF + bytes(1 << 18), lambda: PNG + bytes(1 << 18)])
def test_only_heads_are_read(make: Callable[[], bytes]) -> None:
    data = make()
    item, count = seen(data)
    assert item.about
    assert count < 20_000


ARRAYS = {"a.npy": npy("{'descr': '<f4', 'shape': (2,)}"), "b.npy": npy("{'descr': '<f4', 'shape': ()}")}
TENSORS = b'{"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}'
WHOLE = [PNG, JPEG, EXIF[-400:], GIF, BMP, VP8, VP8L, VP8X, tiff("<", 3, 4), tiff(">", 3, 4), AVIF, JP2, wav(0.01),
         flac(5), npy("{'descr': '<f4', 'shape': (2,)}"), zipped(ARRAYS), struct.pack("<Q", len(TENSORS)) + TENSORS,
         b"P6 3 4 255 " + bytes(36), b'{"a": [1, "\xc3\xa9"]}', b"\x1a\x45\xdf\xa3webm", b"BM"]  # fmt: skip


@settings(max_examples=25)
@given(
    st.sampled_from(WHOLE),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=6),
    st.integers(0, 1 << 16),
    st.binary(max_size=20),
    st.sampled_from([b"x", b"json", b"npz", b"safetensors", b"jpg", b"pkl"]),
)
def test_any_bytes_are_described(
    data: bytes, flips: list[tuple[int, int]], cut: int, more: bytes, field: bytes
) -> None:
    """Any bytes, changed, cut or extended, are described without an error."""
    changed = bytearray(data)
    for place, value in flips:
        changed[place % len(data)] = value
    item, _ = seen(bytes(changed[: len(data) - cut % (len(data) + 1)]) + more, field)
    assert item.kind
    assert about_words(item).isprintable()
    assert json.loads(json.dumps(item.about)) == item.about


def test_reach() -> None:
    """Nothing is read beyond the reach of an item."""
    item, _ = seen(EXIF, reach=30_000)
    assert item.about == {"note": "no size in the header"}
