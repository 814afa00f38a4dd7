"""Decode and encode pictures with Pillow: as its images, with pixels that are decoded when first read, or as arrays.

Sources: the Pillow handbook, "Image file formats" (which modes and which parameters a format takes); the names of forms
are those of webdataset's `imagehandler`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, Usage, show, spell
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

_LARGE = 1 << 19  # bytes of pixels; larger pictures become arrays strip by strip
_STRIP = 1 << 16  # bytes of a strip
_DEEP = ("I", "F")  # the first letter of modes whose values are not bytes: to convert them would cut the values off


class PictureForm(NamedTuple):
    """Form of a decoded picture: an image or array of a library, converted to a mode (None: unchanged)."""

    library: str
    mode: str | None
    floats: bool = False


FORMS = {
    "image": PictureForm("pil", None),
    "pil": PictureForm("pil", "RGB"),
    "pill": PictureForm("pil", "L"),
    "pilrgb": PictureForm("pil", "RGB"),
    "pilrgba": PictureForm("pil", "RGBA"),
    "l8": PictureForm("numpy", "L"),
    "rgb8": PictureForm("numpy", "RGB"),
    "rgba8": PictureForm("numpy", "RGBA"),
    "l": PictureForm("numpy", "L", floats=True),
    "rgb": PictureForm("numpy", "RGB", floats=True),
    "rgba": PictureForm("numpy", "RGBA", floats=True),
    "torchl8": PictureForm("torch", "L"),
    "torchrgb8": PictureForm("torch", "RGB"),
    "torchrgba8": PictureForm("torch", "RGBA"),
    "torchl": PictureForm("torch", "L", floats=True),
    "torchrgb": PictureForm("torch", "RGB", floats=True),
    "torch": PictureForm("torch", "RGB", floats=True),
    "torchrgba": PictureForm("torch", "RGBA", floats=True),
}
"""The forms of pictures by name. Arrays of numpy are height x width x channels, tensors of torch channels x height x
width, both without the channels where there is one; uint8, or float32 from 0 to 1."""


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


def _bytes_of_value(mode: str) -> int:
    return 2 if mode.startswith("I;16") else 4 if mode.startswith(_DEEP) else 1


def _check_bits(image: Any, bits: int) -> None:
    """Raise TarkitError for more bits of a channel than the mode of an image has."""
    if bits > 8 and not image.mode.startswith(_DEEP):
        message = f"frame {image.tell()}, a picture" if image.tell() else "a picture"
        raise _changed(f"{message} of mode {image.mode} with {bits} bits a channel, which Pillow would cut to 8")


def _changed(message: str) -> TarkitError:
    return TarkitError(message, f"{spell('decode')} with a function for this field, or None for its bytes")


def check_form(name: str) -> None:
    """Raise Usage for a name that is no form of pictures."""
    if name not in FORMS:
        raise Usage(f"decode has no form of pictures {show(name)}", f"the forms are {', '.join(FORMS)}")


def decode_as(name: str, data: bytes) -> Any:
    """Return a picture in the form of this name, with all pixels decoded. Orientations in EXIF data are not applied.

    Raises:
        TarkitError: the values of its pixels have more than 8 bits, and the form has 8.
        Exception: whatever Pillow raises for content that is no picture.
    """
    library, mode, floats = FORMS[name]
    image = decode(data)
    colours = len(mode) if mode is not None else 0
    check_decoded(image.width * image.height * colours * (4 if floats else 1), len(data))
    image.load()
    if mode is not None and image.mode != mode:
        if image.mode.startswith(_DEEP):
            raise TarkitError(f"a picture of mode {image.mode} has more than 8 bits, which {name} would cut off")
        image = image.convert(mode)
    if library == "pil":
        return image
    numpy = media_library("numpy", "pictures as arrays")
    torch = media_library("torch", "pictures as tensors") if library == "torch" else None
    height, width, bands = image.height, image.width, len(image.getbands())
    shape = (height, width) if bands == 1 else (bands, height, width) if torch else (height, width, bands)
    pixels = numpy.empty(shape, numpy.float32 if floats else numpy.uint8)
    for rows, strip in _strips(image):
        planes = zip(pixels, strip.split(), strict=True) if torch and bands > 1 else ((pixels, strip),)
        for plane, values in planes:
            if floats:
                numpy.divide(values, 255, out=plane[rows], dtype=numpy.float32)
            else:
                plane[rows] = values
    return torch.from_numpy(pixels) if torch else pixels


def _strips(image: Any) -> Iterator[tuple[slice, Any]]:
    """Yield the rows of a picture and an image of them; several for a large one.

    Pillow makes two copies of the pixels of an image for numpy. With those of a whole picture of 512 x 512 the system
    gives and takes the memory each time: 390 pictures a second, in strips 920.
    """
    width, height, row = image.width, image.height, image.width * len(image.getbands())
    if row * height <= _LARGE:
        yield slice(height), image
        return
    step = max(1, _STRIP // row)
    for top in range(0, height, step):
        yield slice(top, top + step), image.crop((0, top, width, min(height, top + step)))


def encode(format: str, name: str, value: Any) -> bytes:
    """Return the bytes of an image, or of an array of pixels, in `format`, for a field with the extension `name`.

    Lossy formats are written with quality 95. Colour profile and EXIF data are kept. Raises TarkitError.
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
    image.save(file, format, **{**_SETTINGS.get(format, {}), **metadata})
    return file.getvalue()


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
