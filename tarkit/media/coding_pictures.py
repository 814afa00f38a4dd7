"""Decode pictures to images of Pillow, with pixels that are decoded when first read; encode images and arrays.

Source: the Pillow handbook, "Image file formats" (which modes and which parameters a format takes).
"""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import TarkitError, spell
from tarkit.media.coding_arrays import refuse_mask
from tarkit.media.libraries import media_library
from tarkit.media.limits import TooLarge, check_decoded

_FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"]  # of Pillow's, those that start no other program
_SETTINGS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95},
    "WEBP": {"quality": 95},
    "GIF": {"optimize": False},  # else the colours of a palette, which may be classes, are numbered anew
}
MODES = {
    "JPEG": ("1", "L", "RGB", "CMYK", "YCbCr"),
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I;16B"),
    "WEBP": ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "YCbCr"),
    "GIF": ("1", "L", "P"),
    "BMP": ("1", "L", "P", "RGB"),
    "TIFF": ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I", "I;16", "I;16L", "I;16B", "F"),
    "PPM": ("1", "L", "RGB", "I", "I;16", "F"),
    "pbm": ("1",),
    "pgm": ("L", "I", "I;16"),
    "ppm": ("RGB",),
}
"""The modes that each format keeps, or the field of this name; but for loss in JPEG and WebP. Pillow writes others too,
and drops alpha, colours or bits."""

DEEP = ("I", "F")
"""The first letter of modes whose values are not bytes: to convert them would cut the values off."""


def decode(data: bytes) -> Any:
    """Return a Pillow image in the format of the content, whose pixels are decoded when they are first read.

    Raises:
        TarkitError: a picture, or a later frame of it, whose values Pillow would change: several channels of more than
            8 bits, which it cuts to 8, and a largest value of PPM and PGM to which it scales.
        Exception: whatever Pillow raises for content that is no picture.
    """
    image = open_image(data)
    if image.format == "PNG":
        _check_bits(image, data[24])  # IHDR is the first chunk
    elif image.format == "TIFF":
        for frame in range(image.n_frames - 1, -1, -1):
            image.seek(frame)
            _check_bits(image, int(max(image.tag_v2.get(258, (1,)))))  # BitsPerSample
    elif image.format == "PPM" and image.mode != "F" and isinstance(arguments := image.tile[0][3], tuple):
        largest = int(arguments[-1])  # behind the raw mode; the plain format has it always
        _check_bits(image, largest.bit_length())
        if largest != (scale := 65535 if image.mode == "I" else 255):
            raise _changed(f"a picture with values from 0 to {largest}, which Pillow would scale to {scale}")
    return image


def open_image(data: bytes) -> Any:
    """Return a Pillow image in the format of the content, as Pillow decodes it.

    Raises:
        TooLarge: the picture is too large.
        Exception: whatever Pillow raises for content that is no picture.
    """
    Image = media_library("PIL.Image", "pictures")
    try:
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
    except Image.DecompressionBombError as error:
        raise TooLarge(f"a picture that is too large for Pillow: {error}", "PIL.Image.MAX_IMAGE_PIXELS") from error
    check_decoded(decoded_size(image), len(data))
    return image


def decoded_size(image: Any) -> int:
    """Return how many bytes the pixels of an image have once they are decoded."""
    return int(image.width * image.height * len(image.getbands()) * _bytes_of_value(image.mode))


def spread(image: Any) -> Any:
    """Return a picture of a DEEP mode with floats from 0, its darkest value, to 255, its brightest one."""
    image = image.convert("F")
    low, high = image.getextrema()
    scale = 255 / (high - low) if high > low else 1
    return image.point(lambda value: value * scale - low * scale)


def _bytes_of_value(mode: str) -> int:
    return 2 if mode.startswith("I;16") else 4 if mode.startswith(DEEP) else 1


def _check_bits(image: Any, bits: int) -> None:
    """Raise TarkitError for more bits of a channel than the mode of an image has."""
    if bits > 8 and not image.mode.startswith(DEEP):
        message = f"frame {image.tell()}, a picture" if image.tell() else "a picture"
        raise _changed(f"{message} of mode {image.mode} with {bits} bits a channel, which Pillow would cut to 8")


def _changed(message: str) -> TarkitError:
    return TarkitError(message, f"{spell('decode')} with a function for this field, or None for its bytes")


def encode(format: str, name: str, value: Any, **settings: Any) -> bytes:
    """Return the bytes of an image, or of an array of pixels, in `format`, for a field with the extension `name`.

    Lossy formats have quality 95 unless `settings`, of Pillow, say another. Colour profile and EXIF data are kept.
    Raises TarkitError.
    """
    image = _image(value)
    if getattr(image, "n_frames", 1) > 1:
        raise TarkitError(
            f"the picture has {image.n_frames} frames, and was changed", "return bytes, or a copy() of one frame"
        )
    modes = MODES.get(name, MODES[format])
    if image.mode not in modes:
        raise TarkitError(
            f"a picture of mode {image.mode}, where {name} has {' or '.join(modes)}", "convert() changes the mode"
        )
    if not image.mode.endswith("A") and image.has_transparency_data and not _keeps_transparency(format, image):
        raise TarkitError(
            f"the {'palette' if image.mode == 'P' else 'picture'} has transparent colours, which {name} lacks",
            "convert('RGBA') makes it alpha, del image.info['transparency'] drops it",
        )
    if format == "PPM" and image.mode == "I":
        low, high = image.getextrema()
        if low < 0 or high > 65535:
            raise TarkitError(
                f"the values of pixels are from {low} to {high}, where {name} has 0 to 65535",
                "convert() changes the mode; tif keeps mode I",
            )
    metadata = {key: image.info[key] for key in ("icc_profile", "exif") if image.info.get(key)}
    file = io.BytesIO()
    image.save(file, format, **{**_SETTINGS.get(format, {}), **settings, **metadata})
    return file.getvalue()


def picture_of_pixels(mode: str, size: tuple[int, int], pixels: bytes) -> bytes:
    """Return the pixels of an image of Pillow as PNG. Raises TarkitError for a mode that PNG has not."""
    Image = media_library("PIL.Image", "pictures", encode=True)
    return encode("PNG", "png", Image.frombytes(mode, size, pixels))


def _keeps_transparency(format: str, image: Any) -> bool:
    """Whether a format keeps the transparency of a palette or of a colour; GIF has one that is fully transparent."""
    may_keep = format == "WEBP" or (format == "GIF" and isinstance(image.info.get("transparency"), int))
    return format == "PNG" or (may_keep and image.mode in ("L", "P"))


def same(value: Any, original: bytes) -> bool:
    """Whether an image, or an array of pixels, equals the original."""
    Image = media_library("PIL.Image", "pictures")
    if isinstance(value, Image.Image):
        if getattr(value, "tile", None) and getattr(value, "tell", int)() == 0:
            return _unread(Image, value, original)
        image, facts = value, True
    else:
        image, facts = _image(value), False
    stored = decode(original)
    if image.size != stored.size or image.mode != stored.mode or getattr(image, "tell", int)() != 0:
        return False
    stored.load()
    if image.tobytes() != stored.tobytes() or image.getpalette() != stored.getpalette():
        return False
    return not facts or bool(image.info == stored.info)


def _unread(Image: Any, value: Any, original: bytes) -> bool:
    stored = decode(original)
    where = getattr(value, "fp", None)
    return (
        isinstance(where, io.BytesIO)
        and value.size == stored.size
        and value.info == stored.info
        and where.getvalue() == original
    )


def _image(value: Any) -> Any:
    Image = media_library("PIL.Image", "pictures", encode=True)
    if isinstance(value, Image.Image):
        return value
    kind = type(value)
    if kind.__module__.partition(".")[0] == "torch" and hasattr(value, "numpy"):
        value = value.detach().cpu().numpy()
        value = value.transpose(1, 2, 0) if value.ndim == 3 else value
        kind = type(value)
    if kind.__module__.partition(".")[0] != "numpy" or not hasattr(value, "dtype"):
        raise TarkitError(f"it takes a Pillow image, a numpy array or a tensor, not {kind.__name__}")
    refuse_mask(value)
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
    value = value[:, :, 0] if value.ndim == 3 and depth == 1 else value
    return Image.fromarray(value.copy() if any(step < 0 for step in value.strides) else value)
