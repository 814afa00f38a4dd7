"""Arrays and pictures as files, written by numpy, by Pillow, and by hand."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


def npy(array: Any) -> bytes:
    """Return the bytes of an npy file."""
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    """Return the bytes of an npz file."""
    file = io.BytesIO()
    (numpy.savez_compressed if compressed else numpy.savez)(file, **arrays)
    return file.getvalue()


def gradients(mode: str = "RGB", format: str = "PNG") -> bytes:
    """Return a picture of 12 x 8 pixels with several colours."""
    file = io.BytesIO()
    image = Image.radial_gradient("L").resize((12, 8))
    Image.merge("RGBA", [image, image.rotate(90), image.rotate(180), image]).convert(mode).save(file, format)
    return file.getvalue()


def png(width: int, height: int, pixels: bytes, bits: int = 8, colour: int = 0) -> bytes:
    """Return a PNG of these lines of pixels, or of some of them; by default of one channel of 8 bits."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(pixels, 9)) + chunk(b"IEND", b"")
