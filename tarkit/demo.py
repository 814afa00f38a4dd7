"""Data to try tarkit on: posters of landscapes as PNG files, with captions and JSON, in a directory for each class.

    python3 -m tarkit.demo DIRECTORY [SCALE]
    python3 -m tarkit.demo --recipes DIRECTORY

The pictures are the same each time; there are 60 times SCALE, 1 by default. With --recipes there are the files of
`tarkit.demo_recipes` instead.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

from tarkit import demo_recipes
from tarkit.display.arrays import png

WIDTH, HEIGHT = 720, 480

Color = tuple[int, int, int]

# names of a time of day: sky at the top and at the horizon, the sun or moon, the nearest ground
TIMES: dict[str, tuple[Color, Color, Color, Color]] = {
    "dawn": ((58, 64, 122), (252, 190, 150), (255, 236, 200), (58, 44, 84)),
    "noon": ((76, 158, 214), (206, 234, 242), (255, 250, 226), (34, 84, 92)),
    "dusk": ((74, 34, 92), (248, 130, 84), (255, 214, 120), (44, 20, 58)),
    "night": ((10, 16, 44), (52, 72, 122), (238, 240, 224), (6, 10, 26)),
    "a hot afternoon": ((232, 150, 78), (252, 222, 160), (255, 246, 214), (112, 44, 34)),
    "a misty morning": ((142, 170, 178), (232, 236, 228), (255, 255, 250), (52, 78, 84)),
}
CLASSES = {"mountains": 17, "sea": 13, "canyon": 11, "forest": 9, "city": 6, "desert": 4}


def blend(one: Color, other: Color, share: float) -> Color:
    """Return a colour between two."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue


class Poster:
    """A picture of at most 256 colours: flat layers, painted from back to front."""

    def __init__(self, rng: random.Random, time: str) -> None:
        self.rng = rng
        self.top, self.low, self.light, self.near = TIMES[time]
        self.palette: list[Color] = []
        bands = 72
        sky = [self.color(blend(self.top, self.low, band / (bands - 1))) for band in range(bands)]
        self.rows = [bytearray([sky[min(bands - 1, y * bands // (HEIGHT * 3 // 4))]]) * WIDTH for y in range(HEIGHT)]

    def color(self, color: Color) -> int:
        """Return the index of a colour in the palette."""
        if color not in self.palette:
            self.palette.append(color)
        return self.palette.index(color)

    def disc(self, x: float, y: float, radius: float, color: Color) -> None:
        """Paint a sun or a moon."""
        index = self.color(color)
        for row in range(max(0, math.ceil(y - radius)), min(HEIGHT, math.floor(y + radius) + 1)):
            half = math.sqrt(max(0.0, radius**2 - (row - y) ** 2))
            left, right = max(0, round(x - half)), min(WIDTH, round(x + half))
            if right > left:
                self.rows[row][left:right] = bytes([index]) * (right - left)

    def layer(self, height: Callable[[float], float], color: Color) -> None:
        """Paint all below a line, whose height above the lower edge is a share of the picture's."""
        index = self.color(color)
        tops = [HEIGHT - round(HEIGHT * height(x / WIDTH)) for x in range(WIDTH)]
        for x, top in enumerate(tops):
            for row in self.rows[max(top, 0) :]:
                row[x] = index

    def box(self, left: int, top: int, right: int, bottom: int, color: Color) -> None:
        """Paint a rectangle."""
        index = self.color(color)
        left = max(left, 0)
        right = max(left, min(right, WIDTH))
        for row in self.rows[max(top, 0) : bottom]:
            row[left:right] = bytes([index]) * (right - left)

    def stars(self, count: int) -> None:
        """Paint points in the upper half."""
        for _ in range(count):
            x, y = self.rng.randrange(WIDTH - 2), self.rng.randrange(HEIGHT // 2)
            size = self.rng.choice((1, 2, 2))
            self.box(x, y, x + size, y + size, blend(self.top, self.light, self.rng.choice((0.5, 0.8))))

    def shade(self, share: float) -> Color:
        """Return the colour at a distance: `share` is 0 at the horizon and 1 in front."""
        return blend(blend(self.low, self.near, 0.28), self.near, share)

    def png(self) -> bytes:
        """Return the picture with a palette."""
        palette = b"".join(bytes(color) for color in self.palette)
        return png(WIDTH, list(map(bytes, self.rows)), 3, [(b"PLTE", palette)])


def waves(rng: random.Random, base: float, depth: float, sharp: float = 0.0) -> Callable[[float], float]:
    """Return the height of a line of hills around `base`; `sharp` makes peaks of them."""
    parts = [
        (rng.uniform(0.8, 1.6) * 2**octave, rng.random(), depth / 2**octave) for octave in range(6 if sharp else 2)
    ]

    def height(x: float) -> float:
        total = base
        for frequency, phase, size in parts:
            turn = (x * frequency + phase) % 1
            peak = abs(2 * turn - 1) - 0.5
            total += size * ((1 - sharp) * math.sin(2 * math.pi * turn) / 2 + sharp * peak)
        return total

    return height


def mountains(poster: Poster) -> str:
    """Paint ridges, one behind the other."""
    count = poster.rng.randint(3, 5)
    for place in range(count):
        share = place / (count - 1)
        poster.layer(waves(poster.rng, 0.52 - 0.42 * share, 0.30 - 0.12 * share, 1.0), poster.shade(share))
    return f"{('three', 'four', 'five')[count - 3]} ridges of mountains, the far ones pale"


def sea(poster: Poster) -> str:
    """Paint water, with reflected light, and sometimes a sail."""
    poster.layer(lambda x: 0.42, blend(poster.low, poster.top, 0.55))
    for place in range(5):
        share = place / 4
        poster.layer(waves(poster.rng, 0.34 - 0.3 * share, 0.03), blend(poster.shade(share), poster.top, 0.35))
    sails = poster.rng.randint(0, 2)
    for _ in range(sails):
        x, y, size = poster.rng.randint(60, WIDTH - 80), HEIGHT * 62 // 100, poster.rng.randint(36, 72)
        for row in range(size):
            poster.box(x, y - size + row, x + row // 2 + 1, y - size + row + 1, poster.light)
        poster.box(x - size // 3, y + 2, x + size * 2 // 3, y + size // 8 + 3, poster.near)
    return ("a calm sea with nobody on it", "a calm sea and one sail", "a calm sea and two sails")[sails]


def canyon(poster: Poster) -> str:
    """Paint mesas with steep sides."""
    for place in range(3):
        share = place / 2
        line = waves(poster.rng, 0.0, 1.0)
        poster.layer(
            lambda x, line=line, share=share: (
                (0.5 - 0.2 * share if line(x) > 0.1 else 0.22 - 0.14 * share)  # type: ignore[misc]
                - 0.02 * (line(x) > 0.3)
            ),
            poster.shade(share),
        )
    return "flat-topped rocks above a canyon"


def forest(poster: Poster) -> str:
    """Paint rows of firs."""
    for place in range(4):
        share = place / 3
        ground = waves(poster.rng, 0.40 - 0.34 * share, 0.08)
        firs = [(poster.rng.random(), poster.rng.uniform(0.10, 0.16) * (1 + share)) for _ in range(26 - 5 * place)]

        def height(
            x: float, ground: Callable[[float], float] = ground, firs: list[tuple[float, float]] = firs
        ) -> float:
            tops = (size - 3.2 * abs(x - at) for at, size in firs)
            return ground(x) + max(0.0, *tops)

        poster.layer(height, poster.shade(share))
    return "firs on four hills"


def city(poster: Poster) -> str:
    """Paint towers with lit windows."""
    lit = blend(poster.light, (255, 214, 120), 0.5)
    for place in range(3):
        share, x = place / 2, -20
        while x < WIDTH:
            width = poster.rng.randint(28, 64)
            top = HEIGHT - round(HEIGHT * poster.rng.uniform(0.24, 0.62) * (1 - 0.35 * share))
            poster.box(x, top, x + width, HEIGHT, poster.shade(share))
            for row in range(top + 10, HEIGHT - 8, 14):
                for column in range(x + 6, x + width - 8, 11):
                    if place and poster.rng.random() < 0.28:
                        poster.box(column, row, column + 5, row + 7, blend(poster.shade(share), lit, 0.85))
            x += width + poster.rng.randint(0, 8)
    return "towers of a city, some windows lit"


def desert(poster: Poster) -> str:
    """Paint dunes."""
    for place in range(4):
        share = place / 3
        poster.layer(waves(poster.rng, 0.36 - 0.26 * share, 0.14), poster.shade(0.15 + 0.75 * share))
    return "dunes in a desert, and no tree"


PAINTERS = {each.__name__: each for each in (mountains, sea, canyon, forest, city, desert)}


def paint(name: str, number: int) -> tuple[bytes, str, dict[str, object]]:
    """Return a picture of a class as PNG, its caption, and its values for JSON; `number` is the seed."""
    rng = random.Random(number)
    time = list(TIMES)[number % len(TIMES)]
    poster = Poster(rng, time)
    if time == "night":
        poster.stars(90)
    light = rng.random() < 0.75
    if light:
        poster.disc(rng.uniform(110, WIDTH - 110), rng.uniform(90, 210), rng.uniform(36, 76), poster.light)
    words = PAINTERS[name](poster)
    body = ("a full moon" if time == "night" else "a pale sun") if light else "an empty sky"
    caption = f"{words[0].upper()}{words[1:]}, under {body}: {time}."
    return poster.png(), caption, {"time": time, "sun": light, "seed": number}


def paint_all(directory: Path, scale: int) -> int:
    """Write all pictures, with captions and values; return how many there are."""
    number = 0
    for name, count in CLASSES.items():
        (directory / name).mkdir(parents=True)
        for _ in range(count * scale):
            number += 1
            picture, caption, values = paint(name, number)
            base = directory / name / f"{number:04d}"
            base.with_suffix(".png").write_bytes(picture)
            base.with_suffix(".txt").write_text(caption + "\n")
            base.with_suffix(".json").write_text(json.dumps(values) + "\n")
    return number


def main(words: list[str]) -> None:
    """Write what the words of the command line say. Raises SystemExit for other words, and for --help."""
    parser = argparse.ArgumentParser("python3 -m tarkit.demo", description="Write data to try tarkit on.")
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="a new directory")
    parser.add_argument("scale", metavar="SCALE", type=int, nargs="?", help="paint 60 times SCALE pictures; default: 1")
    parser.add_argument("--recipes", action="store_true", help="the files that the recipes of the documentation name")
    given = parser.parse_args(words)
    directory, scale = given.directory, given.scale
    if directory.exists():
        parser.error(f"{directory} is there already: remove it, or name another directory")
    if scale is not None and (given.recipes or scale < 1):
        parser.error("SCALE is a number of 1 or more, and does not go with --recipes")
    count = demo_recipes.write(directory) if given.recipes else paint_all(directory, scale or 1)
    sys.stdout.write(f"{count} {'files' if given.recipes else 'pictures'} in {directory}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
