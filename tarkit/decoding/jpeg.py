"""The pixels of a JPEG by the fastest library at hand, the same as those of Pillow: all of them use libjpeg-turbo.

simplejpeg takes half to two thirds of the time of Pillow. Where it is not installed, torchvision or torchcodec takes no
more, if the program has imported it: that costs 2 s and 170 MB in each process, and Pillow needs 2 s for 2000 pictures.

What is unusual is left to Pillow, so that results and errors are the same: colours of printers, grey values of a
picture in colours, unusual samplings, more than 8 bits, sizes that Pillow warns of, damage of any kind. What the
libraries of torch lack is too: alpha, and a size that is divided while it is decoded.
"""

from __future__ import annotations

import sys
from importlib import import_module
from struct import unpack_from
from typing import Any

from tarkit.errors import MissingLibrary
from tarkit.media.headers import JPEG_DATA, JPEG_FRAMES, jpeg_segments
from tarkit.media.libraries import media_library
from tarkit.media.limits import check_decoded

MAGIC = b"\xff\xd8\xff"
LUMA = "Y"
"""In place of a mode: grey values as they are stored, also of a picture in colours, which Pillow gives by `draft`."""
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive, all with Huffman codes
_APP1, _APP15 = 0xE1, 0xEF  # segments of EXIF data, and of none
_LUMA = (0x11, 0x12, 0x14, 0x21, 0x22, 0x41)  # horizontal and vertical samples for one of each colour
_BANDS = {"L": ("GRAY", 1), LUMA: ("GRAY", 3), "RGB": ("RGB", 3), "RGBA": ("RGBA", 4)}
_OF_TORCH = ("torchvision.io", "torchcodec.decoders")
"""Modules with the same function `decode_jpeg`. It is deprecated in torchvision since 0.29, for that of torchcodec."""


def jpeg_size(data: bytes, mode: str) -> tuple[int, int] | None:
    """Return height and width of an ordinary picture that may become `mode` by `jpeg_pixels`, else None."""
    if not data.startswith(MAGIC):
        return None
    size = None
    for _, head in jpeg_segments(lambda pos, count: data[pos : pos + count]):
        if head[1] == JPEG_DATA:
            return size
        if head[1] in JPEG_FRAMES:
            size = _ordinary(head, mode)
    return None  # it has no data, or something else between its segments


def _ordinary(frame: bytes, mode: str) -> tuple[int, int] | None:
    """Return height and width by the header of a frame."""
    if len(frame) < 19:
        return None
    bits, height, width, bands = unpack_from(">BHHB", frame, 4)
    if frame[1] not in _FRAMES or bits != 8 or not height or not width:
        return None
    if bands != 1 and (bands != 3 or mode == "L" or frame[11] not in _LUMA or not frame[14] == frame[17] == 0x11):
        return None
    most = media_library("PIL.Image", "pictures").MAX_IMAGE_PIXELS
    return None if most is not None and height * width > most else (height, width)


def jpeg_pixels(data: bytes, mode: str, size: tuple[int, int], scale: int = 1) -> Any:
    """Return the pixels of a picture as an array of uint8, height x width x bands (for L height x width).

    Args:
        data: the picture.
        mode: L, RGB, RGBA or LUMA.
        size: what `jpeg_size` returned.
        scale: 1, 2, 4 or 8, by which height and width are divided, and rounded up, while it is decoded.

    Returns None if no library is at hand, or the picture is damaged: Pillow says how, or conceals it.
    Raises TooLarge if its pixels, at full size, are more than a field may become.
    """
    colours, bands = _BANDS[mode]
    check_decoded(size[0] * size[1] * bands, len(data))
    height, width = (0, 0) if scale == 1 else (-(-size[0] // scale), -(-size[1] // scale))
    try:
        library = media_library("simplejpeg", "pictures")
    except MissingLibrary:
        return None if mode == "RGBA" or scale > 1 else _by_torch(data, colours)
    try:
        pixels = library.decode_jpeg(data, colorspace=colours, min_height=height, min_width=width)
    except ValueError:
        return None
    return pixels[:, :, 0] if colours == "GRAY" else pixels


def _by_torch(data: bytes, colours: str) -> Any:
    """Return the pixels by a library of torch that is imported, else None."""
    decode = next((found for name in _OF_TORCH if (found := getattr(sys.modules.get(name), "decode_jpeg", None))), None)
    if decode is None:
        return None
    try:
        tensor = decode(as_stored(data), mode=colours)
    except (RuntimeError, Warning):  # Warning: where the program raises them
        return None
    return (tensor[0] if colours == "GRAY" else tensor.permute(1, 2, 0)).numpy()


def torch_decoder() -> Any:
    """Return `decode_jpeg` of torchvision or torchcodec, which takes tensors of bytes, `mode` and `device`.

    Raises MissingLibrary if neither can be imported.
    """
    for name in _OF_TORCH:
        try:
            if found := getattr(import_module(name), "decode_jpeg", None):
                return found
        except (ImportError, OSError, RuntimeError):  # also where it is for another version of torch
            continue
    raise MissingLibrary("JPEG on a GPU needs torchvision or torchcodec, and neither can be imported")


def as_stored(data: bytes) -> Any:
    """Return the bytes of a JPEG as a tensor, without EXIF data, by which torchcodec turns pictures."""
    copy = bytearray(data)
    for at, head in jpeg_segments(lambda pos, count: data[pos : pos + count]):
        if head[1] == _APP1:
            copy[at + 1] = _APP15
    torch = media_library("torch", "pictures as tensors")
    return torch.frombuffer(copy, dtype=torch.uint8)
