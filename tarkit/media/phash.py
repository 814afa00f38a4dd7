"""A perceptual hash of pictures: the difference hash, which recompression and another size change in few bits.

Source: Neal Krawetz, "Kind of Like That", The Hacker Factor Blog, 2013 (dHash): the picture in 9 x 8 grey values; a bit
says whether a value is larger than its left neighbour, row by row from the top, the first bit is the highest.

Three things differ from the source. A JPEG picture is decoded at 1/2, 1/4 or 1/8 of its size, but at least 72 x 64, by
libjpeg: at 320 x 300 twice as many pictures a second. The filter is linear (Pillow's `BILINEAR`, over all pixels below
a value). Grey values are rounded to 1/16: whole ones change in twice as many bits when a picture is compressed again.
"""

from __future__ import annotations

from typing import Any

from tarkit.errors import TarkitError
from tarkit.media.coding_pictures import DEEP, open_image, spread
from tarkit.media.libraries import media_library

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
    try:
        image = open_image(data)
    except Image.UnidentifiedImageError:
        raise TarkitError("it is not JPEG, PNG, WebP, GIF, BMP, TIFF or PPM, or its header is damaged") from None
    image.draft("L", _DECODED)
    small = _grey(Image, image).resize(_SIZE, Image.Resampling.BILINEAR)
    pixels = [round(_STEPS * pixel) for pixel in memoryview(small.tobytes()).cast("f")]
    value = 0
    for row in range(0, 72, 9):
        for at in range(row, row + 8):
            value = value << 1 | (pixels[at] < pixels[at + 1])
    return value


def _grey(Image: Any, image: Any) -> Any:
    """Return a picture as grey values of 32 bits from 0 to 255, over white where it is transparent."""
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image.convert("RGBA"))
        image = white
    return spread(image) if image.mode.startswith(DEEP) else image.convert("L").convert("F")
