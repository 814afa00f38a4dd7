"""Thumbnails, made with Pillow: the extra `images`."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tarkit.errors import load_library
from tarkit.media.coding_pictures import DEEP, spread
from tarkit.samples.items import Item

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = 16 << 20  # bytes of a picture that is decoded
PIXELS = 1 << 26  # of one: more would take 200 MB of memory
DECODED = frozenset(("png", "jpeg", "gif", "bmp", "webp", "tiff", "netpbm"))
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")  # no others: fewer decoders see hostile bytes


class Undrawn(Exception):
    """Why a picture is not drawn."""


def available() -> bool:
    """Return whether Pillow is installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        return False
    return True


def require() -> None:
    """Raise MissingLibrary unless Pillow is installed."""
    load_library("PIL.Image", "drawing pictures", "Pillow", "images")


def is_picture(item: Item) -> bool:
    """Return whether an item is a picture that can be drawn."""
    return item.kind in DECODED


def thumbnail(item: Item, width: int, height: int) -> Image:
    """Return a picture in RGB, at most `width` x `height` pixels, turned as its EXIF says. Raises Undrawn."""
    from PIL import ImageOps

    with _opened(item) as image:
        image.draft("RGB", (2 * width, 2 * height))
        turned = ImageOps.exif_transpose(_rgb(image))
        turned.thumbnail((width, height))
        return turned


def looks_right_as_is(item: Item) -> bool:
    """Return whether browsers show all tones of a picture, not so with 16 bits and floats. Raises Undrawn."""
    with _opened(item) as image:
        image.load()
        return not image.mode.startswith(DEEP)


def smaller(data: bytes, side: int, quality: int) -> bytes:
    """Return a picture as JPEG, at most `side` x `side` pixels."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
        turned = ImageOps.exif_transpose(_rgb(image))
        turned.thumbnail((side, side))
        return encoded(turned, "JPEG", quality)


@contextmanager
def _opened(item: Item) -> Iterator[Image]:
    """Open a picture for a block that decodes it. Raises Undrawn."""
    from PIL import Image

    payload = item.payload
    if payload is None or item.size > LARGEST:
        raise Undrawn(f"larger than {LARGEST >> 20} MiB")
    data = payload.source.read(payload.start, payload.start + payload.size)
    if item.about.get("width", 0) * item.about.get("height", 0) > PIXELS:
        raise Undrawn("too many pixels")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                if image.width * image.height > PIXELS:
                    raise Undrawn("too many pixels")
                yield image
    except Undrawn:
        raise
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise Undrawn("it cannot be decoded") from error


def _rgb(image: Image) -> Image:
    """Return a picture in RGB, on white where it is transparent; 16 bits and floats are spread from black to white."""
    if image.mode.startswith(DEEP):
        deep: Image = spread(image).convert("L")
        return deep.convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "P") or "transparency" in image.info:
        from PIL import Image as images

        exif = image.info.get("exif")
        layer = image.convert("RGBA")
        flat = images.new("RGB", layer.size, "white")
        flat.paste(layer, mask=layer.getchannel("A"))
        if exif is not None:
            flat.info["exif"] = exif
        return flat
    return image.convert("RGB")


def encoded(image: Image, format: str, quality: int = 0) -> bytes:
    """Return a picture as JPEG or PNG."""
    out = io.BytesIO()
    if format == "JPEG":
        image.save(out, format, quality=quality, optimize=True)
    else:
        image.save(out, format, compress_level=1)
    return out.getvalue()
