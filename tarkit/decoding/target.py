"""The wanted part and size of a picture: which box is cut out, to what it is resized, what of that is kept.

Sizes are those of torchvision's `Resize`, `CenterCrop` and `RandomResizedCrop` (Szegedy et al., Going Deeper with
Convolutions, 2015, section 6).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

from tarkit.decoding.random_numbers import drawn_for_sample
from tarkit.errors import TarkitError, Usage

Box = tuple[int, int, int, int]
"""Top, left, height and width in pixels of the stored picture."""

Crop = str | Box | Callable[[int, int], Box] | None
"""`"center"`, `"random"`, a box, or a function that returns one for height and width."""

CENTER, RANDOM = "center", "random"
_AREA = (0.08, 1.0)  # of the picture, at random
_RATIO = (3 / 4, 4 / 3)  # of width and height, times that of the size
_TRIES = 10


class PicturePlan(NamedTuple):
    """What is done with one picture: `box` is cut out, resized to `resized`, of which `kept` is cut out of the middle.

    Sizes are height and width; `resized` and `kept` are None where nothing is done.
    """

    box: Box
    resized: tuple[int, int] | None
    kept: tuple[int, int] | None

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the result."""
        return self.kept or self.resized or self.box[2:]

    def scale(self, gap: float | None) -> int:
        """Return by how much a decoder may divide the size: to `gap` times the size of the result or more."""
        if self.resized is None or gap is None:
            return 1
        rows, columns = self.box[2] / self.resized[0] / gap, self.box[3] / self.resized[1] / gap
        return next(scale for scale in (8, 4, 2, 1) if scale == 1 or min(rows, columns) >= scale)


class PictureTarget(NamedTuple):
    """What is wanted of pictures, as `decoding.picture.picture` describes it."""

    short_side: int | None = None
    size: tuple[int, int] | None = None
    crop: Crop = None

    def __bool__(self) -> bool:
        """Whether anything is wanted but the picture as it is."""
        return any(each is not None for each in self)

    def plan(self, height: int, width: int, crop: Crop = None) -> PicturePlan:
        """Return what is done with a picture of this size; `crop` takes the place of its own. Raises TarkitError."""
        box = self._box(height, width, self.crop if crop is None else crop)
        if self.short_side is None:
            return PicturePlan(box, self.size, None)
        rows, columns = box[2:]
        longer = max(1, self.short_side * max(rows, columns) // min(rows, columns))
        resized = (longer, self.short_side) if columns <= rows else (self.short_side, longer)
        return PicturePlan(box, resized, self.size)

    def _box(self, height: int, width: int, crop: Crop) -> Box:
        if crop is None:
            return 0, 0, height, width
        if crop == CENTER:
            return _center(height, width, self._ratio())
        if crop == RANDOM:
            return _random(height, width, self._ratio())
        box: tuple[Any, ...] = tuple(crop(height, width) if callable(crop) else crop)
        if len(box) != 4:
            raise TarkitError(f"crop is (top, left, height, width), not {box}")
        top, left, rows, columns = (index(each) for each in box)
        if min(top, left) < 0 or min(rows, columns) < 1 or top + rows > height or left + columns > width:
            raise TarkitError(f"the crop {box} is not inside a picture of {height} x {width}")
        return top, left, rows, columns

    def _ratio(self) -> float:
        """Return the wanted width as a multiple of the height."""
        return 1.0 if self.size is None else self.size[1] / self.size[0]


def _center(height: int, width: int, ratio: float) -> Box:
    """Return the largest box in the middle whose width is `ratio` times its height."""
    rows, columns = min(height, max(1, round(width / ratio))), min(width, max(1, round(height * ratio)))
    return middle(height, rows), middle(width, columns), rows, columns


def middle(whole: int, part: int) -> int:
    """Return where a part begins that is in the middle of a whole."""
    return round((whole - part) / 2)


def _random(height: int, width: int, ratio: float) -> Box:
    """Return a box of random area, ratio and place; else one in the middle.

    The random numbers are those of the sample that `transform` is called with, elsewhere those of Python.
    """
    low, high = (math.log(each) for each in _RATIO)
    draw: Any = drawn_for_sample() or random
    for _ in range(_TRIES):
        area = height * width * draw.uniform(*_AREA)
        drawn = ratio * math.exp(draw.uniform(low, high))
        rows, columns = round(math.sqrt(area / drawn)), round(math.sqrt(area * drawn))
        if 0 < rows <= height and 0 < columns <= width:
            return draw.randint(0, height - rows), draw.randint(0, width - columns), rows, columns
    return _center(height, width, min(max(width / height, ratio * _RATIO[0]), ratio * _RATIO[1]))


def parse_target(short_side: Any, size: Any, crop: Any) -> PictureTarget:
    """Return what is wanted. Raises Usage, or TypeError, for arguments that do not go together."""
    if short_side is not None and (type(short_side) is not int or short_side < 1):
        raise Usage(f"short_side is a number of pixels, not {short_side!r}")
    if type(size) is int:
        size = (size, size)
    if size is not None:
        size = tuple(size)
        if len(size) != 2 or not all(type(each) is int and each > 0 for each in size):
            raise Usage(f"size is a number of pixels, or (height, width), not {size!r}")
        if short_side is not None and max(size) > short_side:
            raise Usage(f"size={size} is cut out of a picture whose shorter side is short_side={short_side}")
    if isinstance(crop, str) and crop not in (CENTER, RANDOM):
        raise Usage(f"crop is 'center', 'random', (top, left, height, width) or a function, not {crop!r}")
    if isinstance(crop, str) and size is None:
        raise Usage(f"crop={crop!r} needs the size of the result: size=224")
    if crop is not None and not isinstance(crop, str) and not callable(crop):
        crop = tuple(crop)
    return PictureTarget(short_side, size, crop)
