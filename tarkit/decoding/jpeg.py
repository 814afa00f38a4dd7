"""The pixels of a JPEG by simplejpeg, the same as those of Pillow, in two thirds of its time: both use libjpeg-turbo.

What is unusual is left to Pillow, so that results and errors are the same: colours of printers, grey values of a
picture in colours, unusual samplings, more than 8 bits, sizes that Pillow warns of, damage of any kind.
"""

from __future__ import annotations

from typing import Any

from tarkit.errors import MissingLibrary
from tarkit.media.libraries import media_library
from tarkit.media.limits import check_decoded

MAGIC = b"\xff\xd8\xff"
_BANDS = {"L": ("GRAY", 1), "RGB": ("RGB", 3), "RGBA": ("RGBA", 4)}
_SOURCES = {"L": ("Gray",), "RGB": ("Gray", "RGB", "YCbCr"), "RGBA": ("Gray", "RGB", "YCbCr")}


def jpeg_size(data: bytes, mode: str) -> tuple[int, int] | None:
    """Return height and width of a picture that `jpeg_pixels` can decode to a mode of Pillow, else None."""
    if not data.startswith(MAGIC):
        return None
    try:
        library = media_library("simplejpeg", "pictures")
    except MissingLibrary:
        return None
    try:
        height, width, colours, _ = library.decode_jpeg_header(data)
    except ValueError:
        return None
    most = media_library("PIL.Image", "pictures").MAX_IMAGE_PIXELS
    if colours not in _SOURCES[mode] or (most is not None and height * width > most):
        return None
    return height, width


def jpeg_pixels(data: bytes, mode: str, size: tuple[int, int], scale: int = 1) -> Any:
    """Return the pixels of a picture as an array of uint8, height x width x bands (for L height x width).

    Args:
        data: the picture.
        mode: L, RGB or RGBA.
        size: what `jpeg_size` returned.
        scale: 1, 2, 4 or 8, by which height and width are divided, and rounded up, while it is decoded.

    Returns None if the picture is damaged: Pillow says how, or conceals it.
    Raises TooLarge if its pixels, at full size, are more than a field may become.
    """
    colours, bands = _BANDS[mode]
    check_decoded(size[0] * size[1] * bands, len(data))
    height, width = (0, 0) if scale == 1 else (-(-size[0] // scale), -(-size[1] // scale))
    library = media_library("simplejpeg", "pictures")
    try:
        pixels = library.decode_jpeg(data, colorspace=colours, min_height=height, min_width=width)
    except ValueError:
        return None
    return pixels[:, :, 0] if bands == 1 else pixels
