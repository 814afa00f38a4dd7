"""The perceptual hash of pictures: near where pictures look alike, in any format, and as documented at the edges."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from tests._tools import ROUNDS, each_row
from tests.conftest import Archive, Run

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")

from tarkit.decoding import phash  # noqa: E402
from tarkit.decoding.phash import difference_hash  # noqa: E402
from tarkit.media.coding_pictures import MODES  # noqa: E402


def landscape(seed: int, size: tuple[int, int] = (320, 300)) -> Any:
    """Return a picture of smooth shapes: noise of several sizes, one over the other."""
    rng = random.Random(seed)
    picture = Image.new("L", size)
    for cells in (3, 6, 12, 48):
        noise = Image.frombytes("L", (cells, cells), rng.randbytes(cells * cells)).resize(size, Image.BICUBIC)
        picture = Image.blend(picture, noise, 0.6 if cells == 3 else 0.3)
    picture = ImageOps.autocontrast(picture)
    return Image.merge("RGB", [picture, picture.point(lambda value: 255 - value // 2), picture])


def stored(picture: Any, format: str = "JPEG", **settings: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, format, **settings)
    return file.getvalue()


def distance(one: bytes, other: bytes) -> int:
    """Return the bits in which the hashes of two pictures differ."""
    return (difference_hash(one) ^ difference_hash(other)).bit_count()


def test_definition() -> None:
    """A bit says whether a grey value is larger than its left neighbour; the first one is the highest."""
    picture = Image.new("L", (9, 8))
    picture.putpixel((1, 0), 9)
    picture.putpixel((8, 7), 9)
    assert f"{difference_hash(stored(picture, 'PNG')):016x}" == "8000000000000001"
    assert difference_hash(stored(Image.new("RGB", (50, 40), "red"))) == 0


@pytest.mark.slow
def test_alike() -> None:
    """Recompression and other sizes change few bits; other pictures have about half of the bits different."""
    pictures = [landscape(seed) for seed in range(12)]
    for picture in pictures:
        plain = stored(picture, quality=92)
        for other in (
            stored(picture, quality=40),
            stored(picture, "PNG"),
            stored(picture.resize((160, 150))),
            stored(picture.resize((600, 500))),
            stored(picture.resize((224, 224)), "WEBP"),
        ):
            assert distance(plain, other) <= 5
    hashes = [difference_hash(stored(picture)) for picture in pictures]
    assert min((one ^ other).bit_count() for at, one in enumerate(hashes) for other in hashes[:at]) > 8


@each_row(
    ("format", "mode"),
    [
        (name, mode)
        for name in ("PNG", "TIFF", "PPM")
        for mode in MODES[name]
        if mode != "LAB" and (name, mode) != ("TIFF", "YCbCr")  # which Pillow 12.3 writes and does not read
    ],
)
def test_modes(format: str, mode: str) -> None:
    """A picture has the same hash in any mode, also in those of more than 8 bits; black and white is near."""
    grey = landscape(1, (90, 80)).convert("L")
    if mode in ("1", "P", "PA"):
        picture = grey.convert("RGBA").convert("PA") if mode == "PA" else grey.convert(mode)
    else:
        deep = mode.startswith("I")
        picture = grey.convert("I").point(lambda value: value * 257) if deep else grey.convert(mode, dither=0)
        picture = picture.convert(mode) if picture.mode != mode else picture
    assert distance(stored(grey, "PNG"), stored(picture, format)) <= (10 if mode == "1" else 1)


def test_transparent_animated_rotated() -> None:
    """What is transparent is white, an animation is its first frame, an orientation is not applied."""
    picture, other = landscape(1), landscape(2)
    hole = Image.new("L", picture.size, 255)
    hole.paste(0, (100, 0, 220, 300))
    clear, white = other.copy(), picture.copy()
    white.paste("white", (100, 0, 220, 300))
    clear.paste(picture, (0, 0), hole)
    clear.putalpha(hole)
    assert distance(stored(clear, "PNG"), stored(white, "PNG")) == 0
    assert distance(stored(picture, "GIF", save_all=True, append_images=[other]), stored(picture, "GIF")) == 0
    turned = Image.Exif()
    turned[0x0112] = 6
    assert distance(stored(picture, exif=turned), stored(picture)) == 0


def test_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of a JPEG is the same with and without simplejpeg, whole or damaged; so is its error."""
    pytest.importorskip("simplejpeg")
    from tests.decoding.test_jpeg import drawn, hide
    from tests.decoding.test_picture import ODD

    draw, some = random.Random(7), [*ODD.values()]
    for seed in range(40 * ROUNDS):
        size = draw.choice([(320, 300), (1, 1), (71, 700), (143, 129), (144, 128), (300, 257), (577, 520)])
        picture = landscape(seed, size).convert(draw.choice(["RGB", "RGB", "L", "CMYK", "YCbCr"]))
        progressive, quality = draw.random() < 0.3, draw.choice([5, 60, 95])
        data = bytearray(stored(picture, progressive=progressive, quality=quality, subsampling=draw.choice([0, 1, 2])))
        for _ in range(draw.choice([0, 0, 1, 3])):
            data[draw.randrange(3, len(data))] = draw.randrange(256)
        some += [bytes(data), drawn(draw), drawn(draw)]
    assert sum(phash._of_jpeg(Image, data) is not None for data in some) > 30 * ROUNDS
    found = []
    for library in ("simplejpeg", "none"):
        hide(monkeypatch, library)
        for limit in ("256M", "300k"):
            monkeypatch.setenv("TARKIT_DECODE_LIMIT", limit)
            found.append([outcome(data) for data in some])
    assert found[:2] == found[2:]
    assert found[0] != found[1]


def outcome(data: bytes) -> int | str:
    """Return the hash of a picture, or the error."""
    try:
        return difference_hash(data)
    except Exception as error:
        return f"{type(error).__name__} {error}"


def test_values(run: Run, archive: Archive) -> None:
    """Commands have the hash as 16 digits; what is no picture, or half of one, is `bad-field`."""
    picture = stored(landscape(3))
    digits = f"{difference_hash(picture):016x}"
    word = archive(
        {"a.jpg": picture, "a.cls": b"1", "b.jpg": stored(landscape(4)), "c.jpg": stored(landscape(3), "PNG")}
    )
    rows = [json.loads(line) for line in run("tsv", word, "-f", "phash.jpg", "--format", "jsonl").stdout.splitlines()]
    assert rows[0] == {"__key__": "a", "phash.jpg": digits}
    assert run("tsv", word, "-f", "__key__", "--no-header", "--where", f"phash.jpg == '{digits}'").stdout == b"a\nc\n"
    for content, words in ((b"text", "is not a picture"), (picture[:5000], "truncated"), (b"", "is not a picture")):
        ran = run("tsv", archive({"a.jpg": content}), "-f", "phash.jpg", exit=1)
        assert words in ran.lines[0]
        assert "0x" not in ran.lines[0]
        assert ran.lines[0].endswith("[bad-field]")
