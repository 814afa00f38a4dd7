"""Small pictures of arrays: a heat map of a matrix, curves of series. Made of a few of the numbers, without numpy."""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from tarkit.samples.items import Item, Payload

SIDE = 120  # pixels of a heat map, at most
POINTS = 240  # of a curve, at most
CURVES = 4  # series in one picture
ROW = 1 << 20  # bytes of a row that is read
SPAN = 64  # numbers that are read for a point of a curve
_CODES = {
    "float16": "e", "float32": "f", "float64": "d", "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H",
    "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
}  # fmt: skip
_HEAT = ((38, 22, 73), (58, 64, 138), (38, 116, 148), (42, 165, 136), (136, 205, 88), (250, 230, 70))
_COLORS = ("#4a8fe0", "#e08a3c", "#3fae7a", "#b86fd0")
_WIDE, _HIGH = 480, 240  # units of the picture of a curve


class Sketch(NamedTuple):
    """A picture of an array: its media type, its bytes, and the range of the numbers in words."""

    type: str
    data: bytes
    range: str


class _Grid(NamedTuple):
    """Where the numbers of an array are: `rows` x `columns` of `code`, each row `stride` bytes after the last."""

    payload: Payload
    start: int
    code: str
    rows: int
    columns: int

    def read(self, row: int, column: int, count: int) -> tuple[float, ...]:
        """Return numbers of a row; fewer where the bytes end."""
        width = struct.calcsize(self.code)
        data = self.payload.read(self.start + (row * self.columns + column) * width, count * width)
        return struct.unpack(f"{self.code[0]}{len(data) // width}{self.code[1]}", data[: len(data) // width * width])


def sketch(item: Item) -> Sketch | None:
    """Return a picture of the array in a .npy file; None if it has no numbers that can be drawn.

    One dimension is a curve, and so are up to four long rows; two are a heat map, and of more the first plane is.
    Three bytes in the last of three dimensions are colours.
    """
    shape, name, payload = item.about.get("shape"), item.about.get("dtype", ""), item.payload
    code = _CODES.get(name.removesuffix(" big-endian"))
    if item.kind != "npy" or "note" in item.about or payload is None or code is None or not shape or 0 in shape:
        return None
    code = (">" if name.endswith("big-endian") else "<") + code
    start = item.size - struct.calcsize(code) * math.prod(shape)
    if re.search(rb"'fortran_order': *True", payload.read(0, start)):
        return None
    if len(shape) == 3 and shape[2] in (3, 4) and code[1] == "B":
        return _colors(_Grid(payload, start, code, shape[0], shape[1] * shape[2]), shape[2])
    if len(shape) == 3 and shape[2] <= 4 < shape[0]:  # the first of the channels
        return _heat(_Grid(payload, start, code, shape[0], shape[1] * shape[2]), shape[2])
    rows, columns = (shape[-2] if len(shape) > 1 else 1), shape[-1]
    grid = _Grid(payload, start, code, rows, columns)
    if rows == 1 or (rows <= CURVES and columns >= 8 * rows):
        return _curves(grid)
    if columns == 1:
        return _curves(_Grid(payload, start, code, 1, rows))
    return _heat(grid, 1)


def _heat(grid: _Grid, channels: int) -> Sketch | None:
    """Draw a number as a colour, from the smallest to the largest; numbers that are not finite stay transparent."""
    rows = _sampled(grid, channels)
    low, high, text = _range([value for row in rows for value in row], grid.rows * grid.columns // channels)
    if not rows or low is None or high is None:
        return None
    scale = 254 / (high - low) if high > low else 0.0
    pixels = [bytes(1 + round((value - low) * scale) if math.isfinite(value) else 0 for value in row) for row in rows]
    palette = bytes(channel for index in range(255) for channel in _heat_color(index / 254))
    chunks = [(b"PLTE", bytes(3) + palette), (b"tRNS", b"\0")]
    return Sketch("image/png", png(len(rows[0]), pixels, 3, chunks), text)


def _heat_color(share: float) -> tuple[int, ...]:
    place, part = divmod(share * (len(_HEAT) - 1), 1)
    one, other = _HEAT[int(place)], _HEAT[min(int(place) + 1, len(_HEAT) - 1)]
    return tuple(round(first + (second - first) * part) for first, second in zip(one, other, strict=True))


def _colors(grid: _Grid, channels: int) -> Sketch | None:
    planes = [_sampled(grid, channels, channel) for channel in range(channels)]
    if not planes[0]:
        return None
    pixels = [
        bytes(int(value) for pixel in zip(*rows, strict=True) for value in pixel) for rows in zip(*planes, strict=True)
    ]
    return Sketch("image/png", png(len(planes[0][0]), pixels, 2 if channels == 3 else 6, []), "")


def _sampled(grid: _Grid, channels: int, channel: int = 0) -> list[Sequence[float]]:
    """Return at most SIDE x SIDE numbers of one of interleaved channels; no rows when they are too long to be read."""
    if grid.columns * struct.calcsize(grid.code) > ROW:
        return []
    step = max(1, -(-max(grid.rows, grid.columns // channels) // SIDE))
    rows: list[Sequence[float]] = []
    for row in range(0, grid.rows, step):
        values = grid.read(row, 0, grid.columns)
        if len(values) < grid.columns:  # after what may be looked at
            break
        rows.append(values[channel :: channels * step])
    return rows


def _curves(grid: _Grid) -> Sketch | None:
    """Draw series as lines, of long ones the smallest and the largest number at each place."""
    step = max(1, -(-grid.columns // POINTS))
    series = [
        [grid.read(row, at, min(step, SPAN, grid.columns - at)) for at in range(0, grid.columns, step)]
        for row in range(grid.rows)
    ]
    values = [value for spans in series for span in spans for value in span]
    low, high, text = _range(values, grid.rows * grid.columns)
    if low is None or high is None:
        return None
    lines = []
    for spans, color in zip(series, _COLORS, strict=False):
        points = []
        for place, span in enumerate(spans):
            x = _WIDE * (place + 0.5) / len(spans)
            finite = [value for value in span if math.isfinite(value)]
            for value in dict.fromkeys((min(finite), max(finite)) if finite else ()):
                share = (value - low) / (high - low) if high > low else 0.5
                points.append(f"{x:.1f},{_HIGH - 12 - share * (_HIGH - 24):.1f}")
        lines.append(f'<polyline points="{" ".join(points)}" stroke="{color}"/>')
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{_HIGH}" viewBox="0 0 {_WIDE} {_HIGH}" '
        f'fill="none" stroke-width="2" stroke-linejoin="round">{"".join(lines)}</svg>'
    )
    return Sketch("image/svg+xml", svg.encode(), text)


def _range(values: Sequence[float], all_: int) -> tuple[float | None, float | None, str]:
    """Return the smallest and the largest number, and both in words: `about` when others were not looked at."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=math.inf), max(finite, default=0.0)
    if not math.isfinite(high - low):
        return None, None, ""
    return low, high, f"{'' if len(values) == all_ else 'about '}{low:.4g} to {high:.4g}"


def png(width: int, rows: Sequence[bytes], kind: int, chunks: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a PNG of 8 bits a channel (W3C PNG, 11.2): `kind` is its colour type."""
    head = struct.pack(">IIBBBBB", width, len(rows), 8, kind, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in ((b"IHDR", head), *chunks, (b"IDAT", data), (b"IEND", b""))
    )
