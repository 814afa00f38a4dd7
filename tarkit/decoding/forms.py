"""The forms of decoded pictures: images of Pillow, arrays of numpy, tensors of torch, named as webdataset does.

Source: webdataset's `imagehandler`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, Usage, show
from tarkit.media.coding_pictures import DEEP
from tarkit.media.libraries import media_library
from tarkit.media.limits import check_decoded

_LARGE = 1 << 19  # bytes of pixels; larger pictures become arrays strip by strip
_STRIP = 1 << 16  # bytes of a strip


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


def check_form(name: str) -> None:
    """Raise Usage for a name that is no form of pictures."""
    if name not in FORMS:
        raise Usage(f"decode has no form of pictures {show(name)}", f"the forms are {', '.join(FORMS)}")


def converted(image: Any, name: str) -> Any:
    """Return a Pillow image in the mode of a form. Raises TarkitError if its values have more bits than the form."""
    mode = FORMS[name].mode
    if mode is None or image.mode == mode:
        return image
    if image.mode.startswith(DEEP):
        raise TarkitError(f"a picture of mode {image.mode} has more than 8 bits, which {name} would cut off")
    return image.convert(mode)


def check_size(form: PictureForm, height: int, width: int, stored: int) -> None:
    """Raise TooLarge if a picture of this size in a form is more than a field of `stored` bytes may become."""
    check_decoded(height * width * len(form.mode or "") * (4 if form.floats else 1), stored)


def of_pixels(pixels: Any, form: PictureForm) -> Any:
    """Return the form of an array of uint8, height x width, with 3 or 4 channels behind but for L; also of several.

    Tensors are views of it.
    """
    if form.floats:
        numpy = media_library("numpy", "pictures as arrays")
        pixels = numpy.divide(pixels, 255, dtype=numpy.float32)
    if form.library == "torch":
        tensor = media_library("torch", "pictures as tensors").from_numpy(pixels)
        return tensor if form.mode == "L" else tensor.movedim(-1, -3)
    return pixels


def of_image(image: Any, form: PictureForm) -> Any:
    """Return the form of a Pillow image that has its mode."""
    if form.library == "pil":
        return image
    numpy = media_library("numpy", "pictures as arrays")
    torch = media_library("torch", "pictures as tensors") if form.library == "torch" else None
    height, width, bands = image.height, image.width, len(image.getbands())
    shape = (height, width) if bands == 1 else (bands, height, width) if torch else (height, width, bands)
    pixels = numpy.empty(shape, numpy.float32 if form.floats else numpy.uint8)
    for rows, strip in _strips(image):
        planes = zip(pixels, strip.split(), strict=True) if torch and bands > 1 else ((pixels, strip),)
        for plane, values in planes:
            if form.floats:
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
