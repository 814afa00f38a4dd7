"""A perceptual hash of pictures: the difference hash, which recompression and another size change in few bits.

Source: Neal Krawetz, "Kind of Like That", The Hacker Factor Blog, 2013 (dHash): the picture in 9 x 8 grey values; a bit
says whether a value is larger than its left neighbour, row by row from the top, the first bit is the highest.

Three things differ from the source. A JPEG picture is decoded at 1/2, 1/4 or 1/8 of its size, but at least 72 x 64, by
libjpeg: at 320 x 300 twice as many pictures a second. The filter is linear (Pillow's `BILINEAR`, over all pixels below
a value). Grey values are rounded to 1/16: whole ones change in twice as many bits when a picture is compressed again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tarkit.decoding.jpeg import LUMA, jpeg_pixels, jpeg_size
from tarkit.errors import TarkitError
from tarkit.media.coding_pictures import DEEP, open_image, spread
from tarkit.media.libraries import media_library
from tarkit.media.limits import TooLarge

_SIZE = 9, 8
_DECODED = 72, 64  # the minimum size of a picture that is decoded at reduced size; of 300 pictures that were resized to
# 0.3 to 1.7 times their size, 95 % have a distance of at most 4 bits; from 36 x 32 it would be 7, from 18 x 16 10
_STEPS = 16  # of a grey value


def load() -> None:
    """Import Pillow. Raises MissingLibrary if it is not installed."""
    media_library("PIL.Image", "pictures")


def difference_hash(data: bytes) -> int:
    """Return the difference hash of a picture, an integer of 64 bits.

    Of an animation it is the first frame; what is transparent is white; an orientation in EXIF data is not applied.

    Raises:
        MissingLibrary: Pillow is not installed.
        TarkitError: the content is no picture that Pillow decodes.
        Exception: whatever Pillow raises for a damaged picture.
    """
    Image = media_library("PIL.Image", "pictures")
    grey = _of_jpeg(Image, data) or _of_picture(Image, data)
    small = grey.convert("F").resize(_SIZE, Image.Resampling.BILINEAR)
    bits = [
        # only values near to each other need rounding, which takes two thirds of the time if all are rounded
        "1" if left < right and (right - left > 1 / _STEPS or round(_STEPS * left) < round(_STEPS * right)) else "0"
        for left, right in pairwise(memoryview(small.tobytes()).cast("f"))
    ]
    del bits[8::9]  # between the end of a row and the next one
    return int("".join(bits), 2)


def _of_jpeg(Image: Any, data: bytes) -> Any:
    """Return the grey values of an ordinary JPEG at reduced size, in less time than Pillow; None for others."""
    if (size := jpeg_size(data, LUMA)) is None:
        return None
    times = min(size[0] // _DECODED[1], size[1] // _DECODED[0])
    try:
        pixels = jpeg_pixels(data, LUMA, size, next(scale for scale in (8, 4, 2, 1) if times >= scale or scale == 1))
    except TooLarge:  # Pillow says so
        return None
    return None if pixels is None else Image.fromarray(pixels)


def _of_picture(Image: Any, data: bytes) -> Any:
    """Return a picture as grey values from 0 to 255, over white where it is transparent."""
    try:
        image = open_image(data)
    except Image.UnidentifiedImageError:
        raise TarkitError("it is not JPEG, PNG, WebP, GIF, BMP, TIFF or PPM, or its header is damaged") from None
    image.draft("L", _DECODED)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    return spread(image) if image.mode.startswith(DEEP) else image.convert("L")
