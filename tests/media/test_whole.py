"""Content that is not whole: what decoders conceal is a fault all the same, in one line, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import resource
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tarkit.media import whole
from tarkit.media.limits import NotDecoded, TooLarge
from tarkit.media.whole import content_fault, is_decodable, load_decoder
from tests._tools import each_row, raising
from tests.media._files import npy as npy_of
from tests.media._files import npz, png

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")
soundfile = pytest.importorskip("soundfile")


def picture(format: str, frames: int = 1, mode: str = "RGB", **settings: Any) -> bytes:
    """Return a picture without areas of one colour, so that each byte of it matters."""
    y, x = numpy.mgrid[0:64, 0:96]
    noise = numpy.random.default_rng(0).integers(0, 20, (64, 96))
    first = Image.fromarray(numpy.stack([x * 2 + noise, y * 3 + noise, x + y], 2).astype("u1")).convert(mode)
    if frames > 1:
        settings |= {"save_all": True, "append_images": [first.rotate(20 * at) for at in range(1, frames)]}
    file = io.BytesIO()
    first.save(file, format, **settings)
    return file.getvalue()


def sound(format: str, subtype: str) -> bytes:
    file = io.BytesIO()
    wave = numpy.sin(numpy.arange(30_000) / 20) * 0.3 + numpy.random.default_rng(0).normal(0, 0.05, 30_000)
    soundfile.write(file, wave.astype("f4"), 48_000, format=format, subtype=subtype)
    return file.getvalue()


def npy(*shape: int, data: bytes | None = None) -> bytes:
    """Return an array; with `data` in place of its own."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n"
    held = numpy.arange(shape[0], dtype="<f8").tobytes() if data is None else data
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head.encode() + held


WHOLE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "JPEG": ("jpg", lambda: picture("JPEG")),
    "progressive JPEG": ("seg.JPEG", lambda: picture("JPEG", progressive=True)),
    "grey JPEG": ("jpg", lambda: picture("JPEG", mode="L")),
    "CMYK JPEG": ("jpg", lambda: picture("JPEG", mode="CMYK")),
    "PNG": ("png", lambda: picture("PNG")),
    "animated PNG": ("png", lambda: picture("PNG", 3)),
    "GIF": ("gif", lambda: picture("GIF")),
    "animated GIF": ("gif", lambda: picture("GIF", 3)),
    "WebP": ("webp", lambda: picture("WEBP")),
    "animated WebP": ("webp", lambda: picture("WEBP", 3)),
    "BMP": ("bmp", lambda: picture("BMP")),
    "TIFF": ("tif", lambda: picture("TIFF", compression="tiff_lzw")),
    "PPM": ("ppm", lambda: picture("PPM")),
    "PNG named jpg": ("jpg", lambda: picture("PNG")),
    "wav": ("wav", lambda: sound("WAV", "PCM_16")),
    "flac": ("flac", lambda: sound("FLAC", "PCM_16")),
    "mp3": ("mp3", lambda: sound("MP3", "MPEG_LAYER_III")),
    "ogg": ("ogg", lambda: sound("OGG", "VORBIS")),
    "opus": ("ogg", lambda: sound("OGG", "OPUS")),
    "npy": ("npy", lambda: npy(50)),
    "npz": ("npz", lambda: npz(a=numpy.arange(300), b=numpy.arange(20.0))),
    "json": ("json", lambda: json.dumps({"a": ["é", 1.5, None]}, ensure_ascii=False).encode()),
    "json.gz": ("json.gz", lambda: gzip.compress(b'{"a": 1}')),
    "gzip of anything": ("log.gz", lambda: gzip.compress(b"\xff" * 500)),
}


@each_row("name", [*WHOLE])
def test_whole_and_cut(name: str) -> None:
    """Whole content has no fault; wherever it is cut, it has one: a line without addresses of memory."""
    field, make = WHOLE[name]
    data = make()
    assert is_decodable(field)
    load_decoder(field)
    assert content_fault(field, data) is None
    draw = random.Random(5)
    for cut in (0, 1, len(data) // 2, *(len(data) - n for n in (1, 2, 3, 4, 9)), *draw.sample(range(len(data)), 8)):
        fault = content_fault(field, data[:cut])
        assert fault, cut
        assert re.fullmatch(r"[^\n]{5,200}", fault)
        assert "0x" not in fault
    assert content_fault(field, b"") == "it is empty"


@each_row("name", ["JPEG", "PNG", "animated PNG", "flac", "ogg", "opus", "npz", "json.gz", "gzip of anything", "json"])
def test_a_part_of_zeros(name: str) -> None:
    """A download into allocated space has zeros where data are missing: formats that can tell do so."""
    field, make = WHOLE[name]
    data = make()
    draw = random.Random(5)
    for start in draw.sample(range(len(data) // 4, len(data) * 3 // 4), 5):
        assert content_fault(field, data[:start] + bytes(len(data) - start)), start


LARGE_PNG = png(9000, 9000, bytes(9999), colour=2)
FAULTS: list[tuple[str, bytes, str]] = [
    ("jpg", b"<html>not found</html>", "it is text, not JPEG, PNG, WebP, GIF, BMP, TIFF or PPM"),
    ("jpg", b"%PDF-1.4 " + bytes(99), "it is pdf, not JPEG"),
    ("jpg", b"\xff\xd8\xff\xe0" + b"junk" * 50, "Truncated"),
    ("png", LARGE_PNG, "image file is truncated"),
    ("wav", b"hello", "Format not recognised"),
    ("npy", npy(50, data=bytes(399)), "expected 400 bytes got 399"),
    ("npy", npy(50) + b"x", "1 byte follows the array"),
    ("npy", npy(10**9, data=bytes(99)), "EOF: reading array data"),
    ("npy", npy(10**13, data=bytes(99)), "Unable to allocate"),
    ("json", b'{"a": NaN}', "NaN is not JSON"),
    ("json", b'{"a": 1', "Expecting"),
    ("json", b'"\xed\xa0\x80"', "UnicodeDecodeError"),
    ("json", b"[" * 100_000, "RecursionError"),
    ("jsonl", b'{}\n\n{"a": -Infinity}\n', "line 3: -Infinity is not JSON"),
    ("cls", b"x1", "'x1' is not an integer"),
    ("txt", b"abc\xff", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 3"),
    ("txt.gz", gzip.compress(b"abc\xff"), "UnicodeDecodeError"),
    ("json.gz", b"{}", "it is not compressed with gzip"),
    ("mp", b"\xdd\xff\xff\xff\xff", "exceeds max_array_len"),
    ("ten", b"~TenBin~", "cut off"),
]  # fmt: skip


@each_row(("field", "data", "words"), FAULTS)
def test_faults(field: str, data: bytes, words: str) -> None:
    """A fault says what is wrong, and takes no more memory than its content."""
    if field == "mp":
        pytest.importorskip("msgpack")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert words in (content_fault(field, data) or "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would take more memory than the limit is no fault: whether it is whole is not known."""
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "1MiB")
    large = [
        ("png", LARGE_PNG),
        ("txt.gz", gzip.compress(bytes(2 << 20))),
        ("json", b"[" + b"[]," * 30_000 + b"1]"),
    ]
    for field, data in large:
        with pytest.raises(TooLarge, match="TARKIT_DECODE_LIMIT=4G sets another limit"):
            content_fault(field, data)


def test_what_is_not_decoded() -> None:
    """Objects may run code, and a kind of sound may be unknown: such content may be whole."""
    wav = sound("WAV", "PCM_16")
    for field, data, words in (
        ("npy", npy_of(numpy.array([None])), "arrays of Python objects are pickles"),
        ("wav", wav[:34] + b"\x2d" + wav[35:], "libsndfile does not decode it"),
    ):
        with pytest.raises(NotDecoded, match=words):
            content_fault(field, data)


def test_sound_without_a_number_of_frames() -> None:
    """The number of frames of an mp3 is an estimate of libsndfile where no header has it."""
    mp3 = sound("MP3", "MPEG_LAYER_III")
    assert content_fault("mp3", mp3[mp3.index(b"\xff\xf3" if b"\xff\xf3" in mp3[1:] else b"\xff\xfb", 4) :]) is None


def test_unknown_sizes() -> None:
    """A wav of a program that could not seek has no sizes, which is no fault; nor is anything that no one decodes."""
    wav = sound("WAV", "PCM_16")
    at = wav.index(b"data") + 4
    assert content_fault("wav", wav[:4] + b"\xff" * 4 + wav[8:at] + b"\xff" * 4 + wav[at + 4 :]) is None
    assert not is_decodable("bin")
    assert content_fault("bin", b"\0") is None


def test_c_libraries_are_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """What libtiff and mpg123 say on stderr is not shown."""
    tiff, mp3 = WHOLE["TIFF"][1](), WHOLE["mp3"][1]()
    assert content_fault("tif", tiff[:200] + bytes(900) + tiff[1100:])
    assert content_fault("mp3", mp3[:2000] + bytes(900) + mp3[2900:])
    assert capfd.readouterr().err == ""


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error that names the extra, and no fault."""
    missing = raising(whole.MissingLibrary, "JPEG", "simplejpeg", "images")
    monkeypatch.setattr(whole.whole_pictures, "media_library", missing)
    with pytest.raises(whole.MissingLibrary, match="simplejpeg"):
        load_decoder("jpg")
