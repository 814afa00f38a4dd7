"""Decode and encode pictures with Pillow; pixels are decoded when they are first read.

Sources: the Pillow handbook, "Image file formats" (which modes and which parameters a format takes).
"""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import MissingLibrary, TarkitError, spell

_FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"]  # of Pillow's, those that start no other program
_SETTINGS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 95}, "WEBP": {"quality": 95}}
_MODES = {"pbm": ("1",), "pgm": ("L", "I", "I;16"), "ppm": ("RGB",)}  # Pillow writes any of them under each name


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingLibrary(f"{spell('decode')} of pictures", "Pillow", "images") from None
    return Image


def decode(data: bytes) -> Any:
    """Return a Pillow image in the format of the content, whose pixels are decoded when they are first read."""
    return _pillow().open(io.BytesIO(data), formats=_FORMATS)


def encode(format: str, name: str, value: Any) -> bytes:
    """Return the bytes of an image, or of an array of pixels, in `format`, for a field with the extension `name`.

    Lossy formats are written with quality 95. Colour profile and EXIF data are kept. Raises TarkitError.
    """
    image = _image(value)
    if getattr(image, "n_frames", 1) > 1:
        raise TarkitError(
            f"the picture has {image.n_frames} frames, and was changed", "return bytes, or a copy() of one frame"
        )
    if image.mode not in _MODES.get(name, (image.mode,)):
        raise TarkitError(
            f"a picture of mode {image.mode}, where {name} has {' or '.join(_MODES[name])}",
            "convert() changes the mode",
        )
    known = {key: image.info[key] for key in ("icc_profile", "exif") if image.info.get(key)}
    file = io.BytesIO()
    image.save(file, format, **{**_SETTINGS.get(format, {}), **known})
    return file.getvalue()


def same(value: Any, original: bytes) -> bool:
    """Whether an image, or an array of pixels, equals the original."""
    Image = _pillow()
    if isinstance(value, Image.Image):
        if getattr(value, "tile", None) and getattr(value, "tell", int)() == 0:
            return _unread(Image, value, original)
        image, facts = value, True
    else:
        image, facts = _image(value), False
    known = decode(original)
    if image.size != known.size or image.mode != known.mode or getattr(image, "tell", int)() != 0:
        return False
    known.load()
    if image.tobytes() != known.tobytes() or image.getpalette() != known.getpalette():
        return False
    return not facts or bool(image.info == known.info)


def _unread(Image: Any, value: Any, original: bytes) -> bool:
    """Whether an image whose pixels were not decoded yet is the original."""
    known = decode(original)
    where = getattr(value, "fp", None)
    return (
        isinstance(where, io.BytesIO)
        and value.size == known.size
        and value.info == known.info
        and where.getvalue() == original
    )


def _image(value: Any) -> Any:
    Image = _pillow()
    if isinstance(value, Image.Image):
        return value
    kind = type(value)
    if kind.__module__.partition(".")[0] != "numpy" or not hasattr(value, "dtype"):
        raise TarkitError(f"it takes a Pillow image or a numpy array, not {kind.__name__}")
    if value.dtype.kind == "f":
        if value.size and not (value.min() >= 0 and value.max() <= 1):
            raise TarkitError("the values of pixels must be from 0 to 1, or of type uint8")
        value = (value * 255).round().astype("uint8")
    depth = value.shape[2] if value.ndim == 3 else 1
    if value.dtype == "uint16" and value.ndim == 2:
        return Image.fromarray(value)
    if value.dtype != "uint8" or value.ndim not in (2, 3) or depth not in (1, 3, 4):
        shape = "x".join(map(str, value.shape))
        raise TarkitError(
            f"an array of {value.dtype}, {shape}, is not a picture", "pictures are uint8, height x width x 1, 3 or 4"
        )
    return Image.fromarray(value[:, :, 0] if value.ndim == 3 and depth == 1 else value)
