"""Decode pictures in a form and, on request, at a size: the one place that chooses what decodes them.

A JPEG is decoded by a library of `decoding.jpeg` where it gives the pixels of Pillow, all else by Pillow. Of a picture
that is wanted smaller, a JPEG is decoded at a half, a quarter or an eighth of its size, as Pillow's `draft` does it, if
that leaves enough pixels to resize. Tensors are resized by torch, within one level of Pillow's `resize` with BILINEAR,
which resizes all others; it decodes these too, since a picture of its own is one copy less.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Any, Literal

from tarkit.decoding.forms import FORMS, PictureForm, check_form, check_size, converted, of_image, of_pixels
from tarkit.decoding.jpeg import MAGIC, jpeg_pixels, jpeg_size
from tarkit.decoding.target import RANDOM, Crop, PicturePlan, PictureTarget, middle, parse_target
from tarkit.errors import Usage
from tarkit.media import coding_pictures as pictures
from tarkit.media.libraries import media_library

Library = Literal["best", "pillow"]

_ALL = PictureTarget()


def picture(
    form: str,
    *,
    short_side: int | None = None,
    size: int | tuple[int, int] | None = None,
    crop: Crop = None,
    reducing_gap: float | None = 2.0,
    decoder: Library = "best",
) -> PictureDecoder:
    """Return a rule of `decode` for pictures of a size: `decode={"jpg": tarkit.picture("torchrgb8", short_side=256)}`.

    Args:
        form: the form of the pictures, such as `"torchrgb8"`; see `Dataset.decode`.
        short_side: pixels of the shorter side; the other one follows, rounded down.
        size: pixels of both sides, or (height, width). With `short_side`, what is cut out of the middle of the resized
            picture.
        crop: what is cut out before the picture is resized: `"center"`, the largest box in the middle with the ratio of
            `size`; `"random"`, a box of 8 to 100 % of the area, at random; (top, left, height, width) in pixels, or a
            function that returns these for height and width.
        reducing_gap: a large JPEG is decoded at a half, a quarter or an eighth of its height and width, if these are
            then at least `reducing_gap` times those of the result. Values differ a little from those of all pixels,
            which None decodes; these differ by at most 1 of 255 from those of Pillow.
        decoder: `"best"` is the fastest library that is installed; `"pillow"` decodes and resizes with Pillow alone.

    The resize is bilinear, with antialias. Small pictures are enlarged. Orientations in EXIF data are not applied.

    Raises:
        Usage: an unknown form, or arguments that do not go together.

    >>> import tarkit
    >>> tarkit.picture("rgb8", short_side=256, size=224)
    <tarkit.picture of form rgb8, short side 256, size 224x224>
    """
    return PictureDecoder(form, parse_target(short_side, size, crop), reducing_gap, decoder)


class PictureDecoder:
    """Decodes pictures; `tarkit.picture` makes one. It can be pickled if the function for its crop can."""

    def __init__(
        self,
        form: str,
        target: PictureTarget = _ALL,
        reducing_gap: float | None = 2.0,
        decoder: Library = "best",
    ) -> None:
        """See `picture`. Raises Usage."""
        check_form(form)
        if reducing_gap is not None and reducing_gap < 1:
            raise Usage(f"reducing_gap is at least 1, or None, not {reducing_gap!r}")
        if decoder not in ("best", "pillow"):
            raise Usage(f"decoder is 'best' or 'pillow', not {decoder!r}")
        if target and FORMS[form].mode is None:
            raise Usage(f"a picture of form {form} keeps its mode, and is not resized", "form 'pil' has RGB")
        self._form, self._target, self._gap, self._decoder = form, target, reducing_gap, decoder

    def __repr__(self) -> str:
        short_side, size, crop = self._target
        words = [f"form {self._form}"]
        words += [f"short side {short_side}"] if short_side else []
        words += [f"size {size[0]}x{size[1]}"] if size else []
        words += [f"crop {crop}"] if crop else []
        return f"<tarkit.picture of {', '.join(words)}>"

    @property
    def is_random(self) -> bool:
        """Whether random numbers say what is cut out."""
        return self._target.crop == RANDOM

    def plan(self, height: int, width: int, stored: int, crop: Crop = None) -> PicturePlan:
        """Return what is done with a picture of this size, of `stored` bytes. Raises TarkitError, or TooLarge."""
        plan = self._target.plan(height, width, crop)
        check_size(FORMS[self._form], *(plan.resized or plan.shape), stored)  # what is kept is never larger
        return plan

    def __call__(self, data: bytes, crop: Crop = None) -> Any:
        """Return the picture of these bytes in the form and the size.

        Args:
            data: a JPEG, PNG, WebP, GIF, BMP, TIFF or PPM.
            crop: what is cut out of this one, in place of the crop of all.

        Raises:
            TarkitError: the values of its pixels have more than 8 bits, and the form has 8; the crop is not inside.
            TooLarge: it would have more bytes than a field may become.
            Exception: whatever Pillow raises for content that is no picture.
        """
        form, plan = FORMS[self._form], None
        if self._decoder == "best" and form.library != "pil" and (size := jpeg_size(data, str(form.mode))):
            plan = self.plan(*size, len(data), crop)  # once: a box at random takes random numbers
            scale = plan.scale(self._gap)
            if plan.resized is None or (form.library == "torch" and not any(each % scale for each in plan.box)):
                pixels = jpeg_pixels(data, str(form.mode), size, scale)
                if pixels is not None:
                    return _of_jpeg(pixels, plan, scale, form)
        return self._by_pillow(data, form, crop, plan)

    def _by_pillow(self, data: bytes, form: PictureForm, crop: Crop, plan: PicturePlan | None) -> Any:
        image = pictures.decode(data)
        width, height = image.size
        plan = plan or self.plan(height, width, len(data), crop)
        scale = plan.scale(self._gap) if data.startswith(MAGIC) else 1
        if scale > 1:
            drafted = image.draft(None, (width // scale, height // scale))
            scale = round(width / drafted[1][2]) if drafted else 1  # by the box of all pixels, which is not rounded
        image.load()
        return of_image(_kept(_resized(converted(image, self._form), plan, scale), plan), form)


def _of_jpeg(pixels: Any, plan: PicturePlan, scale: int, form: PictureForm) -> Any:
    """Return the form of the pixels of a JPEG, which is decoded at 1 / `scale` of its size; a resized one as tensor."""
    top, left, rows, columns = (each // scale for each in plan.box)
    part = pixels[top : top + rows, left : left + columns]
    if plan.resized is None:
        return of_pixels(part, form)
    tensor = media_library("torch", "pictures as tensors").from_numpy(part)
    tensor = resized(tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1), plan)
    tensor = tensor / 255 if form.floats else tensor
    return tensor[0] if form.mode == "L" else tensor


def resized(part: Any, plan: PicturePlan) -> Any:
    """Return a tensor of uint8 in the size of a plan, of its box, as uint8 or as floats; channels x height x width.

    Floats give values that differ by at most 1.
    """
    interpolate = media_library("torch", "pictures as tensors").nn.functional.interpolate
    result = interpolate(part[None], plan.resized, mode="bilinear", antialias=True)[0]
    if plan.kept is not None:
        (height, width), (top, left) = plan.kept, map(middle, result.shape[1:], plan.kept)
        result = result[:, top : top + height, left : left + width]
    return result.round().clamp(0, 255).byte() if result.is_floating_point() else result


def _resized(image: Any, plan: PicturePlan, scale: int) -> Any:
    """Return the box of a plan out of an image that has 1 / `scale` of its size, resized."""
    top, left, rows, columns = (each / scale for each in plan.box)
    whole = floor(left), floor(top), ceil(left + columns), ceil(top + rows)
    if whole != (0, 0, *image.size):
        image = image.crop(whole)  # the resize would mix pixels around the box into its edges
    if plan.resized is None:
        return image
    left, top = left - whole[0], top - whole[1]
    box = left, top, left + columns, top + rows
    resampling = media_library("PIL.Image", "pictures").Resampling.BILINEAR
    return image.resize(plan.resized[::-1], resampling, box=box)


def _kept(image: Any, plan: PicturePlan) -> Any:
    """Return what is kept of a resized image."""
    height, width = plan.shape
    if (width, height) == image.size:
        return image
    left, top = middle(image.width, width), middle(image.height, height)
    return image.crop((left, top, left + width, top + height))
