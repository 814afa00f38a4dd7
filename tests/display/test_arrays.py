"""Pictures of arrays: the pixels and points that numbers become."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest

from tarkit.display.arrays import SIDE, Sketch, sketch
from tarkit.samples.items import Item, describe
from tests._tools import each_row, payload_of

numpy = pytest.importorskip("numpy", reason="numpy is not installed")


def item(array: Any, reach: int | None = None) -> Item:
    """Return an item with this array, of which the first `reach` bytes can be read."""
    out = io.BytesIO()
    numpy.save(out, array)
    data = out.getvalue()
    payload = payload_of(data, reach)
    return describe(Item(b"a.npy", b"npy", len(data), "", payload=payload), payload)


def picture(found: Sketch | None) -> Any:
    """Return the picture of a heat map, in RGBA."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    assert found is not None
    assert found.type == "image/png"
    return images.open(io.BytesIO(found.data)).convert("RGBA")


def points(found: Sketch | None) -> list[list[tuple[float, float]]]:
    """Return the points of curves."""
    assert found is not None
    assert found.type == "image/svg+xml"
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in line.split())]
        for line in re.findall('points="(.*?)"', found.data.decode())
    ]


@each_row("dtype", ["f2", "f4", "f8", ">f4", ">i2", "i1", "u1", "i8", "u8", "?"])
def test_heat_map(dtype: str) -> None:
    """Each number is a pixel, the minimum dark, the maximum bright."""
    found = sketch(item(numpy.array([[0, 1, 0], [1, 1, 0]], dtype)))
    image = picture(found)
    assert found
    assert (image.size, found.range) == ((3, 2), "0 to 1")
    pixels = [image.getpixel((x, y)) for y in range(2) for x in range(3)]
    low, high = (38, 22, 73, 255), (250, 230, 70, 255)
    assert pixels == [low, high, low, high, high, low]


def test_many_numbers() -> None:
    """A large array is sampled, and its range has `about`; of more dimensions the first plane is drawn."""
    big = numpy.add.outer(numpy.arange(500.0), numpy.arange(1000.0))
    found = sketch(item(big))
    image = picture(found)
    assert found
    assert max(image.size) <= SIDE
    assert found.range.startswith("about 0 to 1")
    stack = numpy.stack([big[:9, :9], big[9:18, :9]])
    assert picture(sketch(item(stack))).tobytes() == picture(sketch(item(stack[0]))).tobytes()
    channels = numpy.stack([big[:40, :40], -big[:40, :40]], 2)
    assert picture(sketch(item(channels))).tobytes() == picture(sketch(item(big[:40, :40]))).tobytes()


def test_colours() -> None:
    """Bytes in three or four channels are drawn as colours."""
    array = numpy.arange(5 * 4 * 3, dtype="u1").reshape(5, 4, 3)
    image = picture(sketch(item(array)))
    assert image.convert("RGB").tobytes() == array.tobytes()
    array = numpy.arange(5 * 4 * 4, dtype="u1").reshape(5, 4, 4)
    assert picture(sketch(item(array))).tobytes() == array.tobytes()


def test_curves() -> None:
    """Each number of a series is a point; of many, minimum and maximum at each position."""
    [line] = points(sketch(item(numpy.array([0.0, 1.0, math.nan, 0.5]))))
    assert line == [(60.0, 228.0), (180.0, 12.0), (420.0, 120.0)]
    assert points(sketch(item(numpy.array([[3], [3]])))) == [[(120.0, 120.0), (360.0, 120.0)]]
    assert len(points(sketch(item(numpy.zeros((3, 50)))))) == 3
    found = sketch(item(numpy.sin(numpy.arange(100_000) / 5)))
    [line] = points(found)
    assert len(line) <= 480
    assert found
    assert found.range == "about -1 to 1"
    # the namespace is there, so that a browser accepts it in a data URL
    assert found.data.startswith(b'<svg xmlns="http://www.w3.org/2000/svg" width="480" height="240"')
    assert b"script" not in found.data


def test_arrays_that_are_not_drawn() -> None:
    """Text, non-finite numbers, objects, Fortran order, damage and truncated content are not drawn."""
    fine = numpy.arange(12.0).reshape(3, 4)
    arrays = [
        numpy.float64(1), numpy.zeros((0, 3)), numpy.array(["a"]), numpy.array([1j]), numpy.array([None]),
        numpy.asfortranarray(fine), numpy.full((9, 9), math.inf), numpy.array([1e308, -1e308]),
        numpy.zeros((5, 1 << 18)),
    ]  # fmt: skip
    assert [sketch(item(array)) for array in arrays] == [None] * len(arrays)
    assert sketch(item(fine, 128)) is None
    assert sketch(Item(b"a", b"x", 1, "text", {}, "x")) is None
    cut = item(fine)
    cut.about["note"] = "the header requires more bytes"
    assert sketch(cut) is None
