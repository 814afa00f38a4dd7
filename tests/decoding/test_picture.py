"""Pictures by the best decoder that is installed, and at a size: their pixels are those of Pillow."""

from __future__ import annotations

import io
import pickle
import random
from typing import Any

import pytest

import tarkit
from tarkit.decoding.decoder import parse_decode
from tarkit.errors import TarkitError, Usage
from tests._tools import each_row

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


def photo(height: int = 61, width: int = 83, mode: str = "RGB", format: str = "JPEG", **options: Any) -> bytes:
    """Return a picture of soft and sharp shapes with noise."""
    rows, columns = numpy.mgrid[:height, :width]
    planes = [rows * 255 // height, columns * 255 // width, (rows // 9 + columns // 7) % 2 * 200]
    noise = numpy.random.default_rng(5).integers(-20, 20, (height, width, 3))
    pixels = (numpy.stack(planes, 2) + noise).clip(0, 255).astype("uint8")
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, format, **options)
    return file.getvalue()


def exif(orientation: int) -> Any:
    """Return EXIF data that say how a picture is turned."""
    found = Image.Exif()
    found[0x0112] = orientation
    return found


def twelve_bits(data: bytes) -> bytes:
    """Return a JPEG whose header says 12 bits."""
    at = data.index(b"\xff\xc0")
    return data[: at + 4] + b"\x0c" + data[at + 5 :]


ODD = {
    "4:2:0": photo(subsampling=2),
    "4:2:2": photo(subsampling=1),
    "4:4:4": photo(subsampling=0),
    "4:1:1": photo(subsampling="4:1:1"),
    "RGB": photo(keep_rgb=True),
    "progressive": photo(progressive=True),
    "restarts": photo(restart_marker_rows=1),
    "poor": photo(quality=5),
    "grey": photo(mode="L"),
    "CMYK": photo(mode="CMYK"),
    "turned": photo(exif=exif(6)),
    "several": photo(format="MPO", save_all=True, append_images=[Image.new("RGB", (9, 9))]),
    "one pixel": photo(1, 1),
    "one row": photo(1, 90),
    "behind": photo() + b"behind",
    "before a marker": photo()[:2] + b"\xff\xff" + photo()[3:],
    "no end": photo()[:-2],
    "cut": photo()[:-700],
    "cut header": photo()[:150],
    "damaged": photo()[:900] + b"\xff\xff\0\0" * 9 + photo()[936:],
    "12 bits": twelve_bits(photo()),
    "PNG": photo(format="PNG"),
    "palette": photo(mode="P", format="PNG"),
    "empty": b"",
}


def outcome(rule: Any, data: bytes) -> Any:
    """Return the type and pixels of a picture, or the error."""
    try:
        found = parse_decode({"jpg": rule}).decode("jpg", data)
    except TarkitError as error:
        return str(error)
    return str(found.dtype), found.tolist()


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures that Pillow finds too large, and those larger than a field may become, are errors as with Pillow."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert "too large for Pillow" in outcome("rgb8", photo()) == outcome("pil", photo())
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "1k")
    data = photo(900, 1200, quality=1)
    for rule in ("rgb8", tarkit.picture("rgb8", size=9), tarkit.picture("rgb8", short_side=9000)):
        assert "would become more than" in outcome(rule, data)
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "1G")
    assert "would become more than" in outcome(tarkit.picture("rgb8", short_side=9000), photo(1, 1000))
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "1M")
    for decoder in ("best", "pillow"):  # it is resized to 64 x 64000, of which little is kept
        rule = tarkit.picture("rgb8", short_side=64, size=64, decoder=decoder)
        assert "would become more than" in outcome(rule, photo(1, 1000))


TARGETS: list[tuple[dict[str, Any], tuple[int, int], tuple[int, int]]] = [
    ({"short_side": 30}, (61, 83), (30, 40)),
    ({"short_side": 30}, (83, 61), (40, 30)),
    ({"short_side": 200}, (61, 83), (200, 272)),
    ({"size": 24}, (61, 83), (24, 24)),
    ({"size": (20, 31)}, (61, 83), (20, 31)),
    ({"size": (20, 31), "crop": "center"}, (61, 83), (20, 31)),
    ({"size": 90, "crop": "center"}, (7, 83), (90, 90)),
    ({"short_side": 30, "size": 24}, (61, 83), (24, 24)),
    ({"short_side": 30, "size": (30, 17)}, (83, 61), (30, 17)),
    ({"crop": (3, 5, 20, 30)}, (61, 83), (20, 30)),
    ({"crop": (3, 5, 20, 30), "size": 10}, (61, 83), (10, 10)),
    ({"crop": lambda height, width: (height // 2, 0, 8, width), "short_side": 4}, (61, 83), (4, 41)),
    ({"size": 1}, (1, 1), (1, 1)),
    ({"short_side": 8}, (400, 3), (1066, 8)),
]


def reference(data: bytes, mode: str, short_side: int = 0, size: Any = None, crop: Any = None) -> Any:
    """Return the pixels as Pillow alone makes them, step by step."""
    image = Image.open(io.BytesIO(data)).convert(mode)
    width, height = image.size
    size = (size, size) if isinstance(size, int) else size
    if crop == "center":
        ratio = size[1] / size[0]
        rows, columns = min(height, max(1, round(width / ratio))), min(width, round(height * ratio))
        crop = round((height - rows) / 2), round((width - columns) / 2), rows, columns
    if crop:
        top, left, rows, columns = crop(height, width) if callable(crop) else crop
        image = image.crop((left, top, left + columns, top + rows))
    if short_side:
        width, height = image.size
        longer = short_side * max(width, height) // min(width, height)
        image = image.resize((short_side, longer) if width <= height else (longer, short_side), Image.BILINEAR)
        if size:
            left, top = round((image.width - size[1]) / 2), round((image.height - size[0]) / 2)
            image = image.crop((left, top, left + size[1], top + size[0]))
    elif size:
        image = image.resize(size[::-1], Image.BILINEAR)
    return numpy.asarray(image).astype(int)


@each_row(("target", "stored", "shape"), TARGETS)
def test_targets(target: dict[str, Any], stored: tuple[int, int], shape: tuple[int, int]) -> None:
    """The size is exact, and without reduced decoding the pixels are those that Pillow's own functions give."""
    for format, mode in (("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "RGBA")):
        data = photo(*stored, mode=mode, format=format)
        for decoder in ("best", "pillow"):
            form = {"RGB": "rgb8", "L": "l8", "RGBA": "rgba8"}[mode]
            found = tarkit.picture(form, **target, reducing_gap=None, decoder=decoder)(data)
            assert found.shape[:2] == shape
            assert abs(found - reference(data, mode, **target)).max() <= 0
        assert tarkit.picture("pil", **target)(data).size == shape[::-1]
        assert tarkit.picture("rgb", **target)(data).dtype == "float32"


@pytest.mark.slow
@each_row("target", [{"size": 40}, {"short_side": 25}, {"crop": (1, 3, 350, 401), "size": 33}, {"size": 1}])
@each_row("options", [{}, {"subsampling": 0}, {"mode": "L"}, {"mode": "CMYK"}, {"progressive": True}])
def test_reduced_decoding(target: dict[str, Any], options: dict[str, Any]) -> None:
    """Both decoders give the same pixels; sizes are exact; the difference to all pixels is small."""
    data = photo(477, 611, **options)
    found, by_pillow = (tarkit.picture("rgb8", **target, decoder=decoder)(data) for decoder in ("best", "pillow"))
    expected = reference(data, "RGB", **target)
    assert found.tolist() == by_pillow.tolist()
    assert found.shape == expected.shape
    difference = abs(found - expected)
    assert difference.mean() < 2
    assert difference.max() < 40  # at sharp edges
    exact = tarkit.picture("rgb8", **target, reducing_gap=None)(data)
    assert abs(exact - expected).max() <= 1
    assert exact.shape == (1, 1, 3) or exact.tolist() != found.tolist()


@each_row("stored", [(17, 800), (800, 17), (19, 19), (33, 47), (90, 9)])
@each_row("target", [{"size": 1}, {"short_side": 2}, {"size": (1, 2), "crop": "center"}, {"size": 2, "crop": "random"}])
def test_reduced_decoding_of_narrow_pictures(stored: tuple[int, int], target: dict[str, Any]) -> None:
    """Sides that are rounded up when they are divided do not move the box that is resized."""
    rows, columns = numpy.mgrid[: stored[0], : stored[1]]
    file = io.BytesIO()
    Image.fromarray((rows / stored[0] * 200 + columns / stored[1] * 55).astype("uint8")).save(file, "JPEG")
    box = tarkit.picture("l8", **target)._target.plan(*stored).box
    target.pop("crop", None)
    found = tarkit.picture("l8", **target)(file.getvalue(), crop=box)
    assert abs(found - reference(file.getvalue(), "L", **target, crop=box)).max() <= 25


def test_reduced_decoding_keeps_to_the_box() -> None:
    """Pixels beside a box do not get into it."""
    pixels = numpy.full((96, 128, 3), 255, "uint8")
    pixels[32:64, 16:80] = 0
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", subsampling=0, quality=100)
    for size in (1, 2, 4, 8):
        for decoder in ("best", "pillow"):
            rule = tarkit.picture("rgb8", size=size, crop=(32, 16, 32, 64), decoder=decoder)
            assert rule(file.getvalue()).max() <= 1


def test_reduced_decoding_leaves_enough() -> None:
    """A picture is never decoded at less than the gap times the wanted size."""
    for target, gap, scale in [(100, 2.0, 2), (101, 2.0, 1), (50, 2.0, 4), (25, 2.0, 8), (1, 2.0, 8), (100, 1.0, 4)]:
        plan = tarkit.picture("rgb8", size=target)._target.plan(400, 500)
        assert plan.scale(gap) == scale
    assert plan.scale(None) == 1


def test_crops_at_random() -> None:
    """A random crop follows from the random numbers of Python; the loader's transform= seeds these."""
    rule = tarkit.picture("rgb8", size=(16, 24), crop="random")
    data, seen = photo(), set()
    for seed in range(20):
        random.seed(seed)
        found = rule(data)
        random.seed(seed)
        assert found.shape == (16, 24, 3)
        assert found.tolist() == rule(data).tolist()
        seen.add(found.tobytes())
    assert len(seen) == 20
    assert rule(data, crop=(0, 0, 61, 83)).tolist() == tarkit.picture("rgb8", size=(16, 24))(data).tolist()
    areas = []
    for _ in range(300):
        top, left, rows, columns = rule._target.plan(300, 400).box
        assert 0 <= top <= 300 - rows
        assert 0 <= left <= 400 - columns
        assert 1 < columns / rows < 2.1 or (rows, columns) in ((300, 400), (200, 300))
        areas.append(rows * columns / 120_000)
    assert min(areas) < 0.2
    assert max(areas) > 0.8
    with pytest.raises(Usage, match="at random would be another one each time"):
        parse_decode({"jpg": rule})


@each_row(
    ("arguments", "message"),
    [
        (("RGB", {}), "no form of pictures 'RGB'"),
        (("image", {"size": 9}), "form image keeps its mode"),
        (("rgb8", {"size": 0}), "size is a number of pixels, or"),
        (("rgb8", {"size": (1, 2, 3)}), "size is a number of pixels, or"),
        (("rgb8", {"short_side": 2.5}), "short_side is a number of pixels, not 2.5"),
        (("rgb8", {"short_side": 9, "size": 10}), r"size=\(10, 10\) is cut out of a picture whose shorter side"),
        (("rgb8", {"crop": "left", "size": 9}), "crop is 'center', 'random', .* not 'left'"),
        (("rgb8", {"crop": "center"}), "crop='center' needs the size"),
        (("rgb8", {"reducing_gap": 0.5}), "reducing_gap is at least 1"),
        (("rgb8", {"decoder": "opencv"}), "decoder is 'best' or 'pillow'"),
    ],
)
def test_usage(arguments: tuple[str, dict[str, Any]], message: str) -> None:
    """Arguments that make no sense are named."""
    with pytest.raises(Usage, match=message):
        tarkit.picture(arguments[0], **arguments[1])


@each_row("crop", [(0, 0, 62, 83), (-1, 0, 5, 5), (0, 80, 5, 5), (0, 0, 0, 5), lambda height, width: (0, 0, 5)])
def test_crops_outside(crop: Any) -> None:
    """A crop that is not inside of the picture is an error with both sizes."""
    with pytest.raises(TarkitError, match=r"field 'jpg': (the crop .* is not inside a picture of 61 x 83|crop is )"):
        parse_decode({"jpg": tarkit.picture("rgb8", crop=crop)}).decode("jpg", photo())


def test_as_a_rule() -> None:
    """A rule can be pickled and shown; compressed fields too; a value that did not change keeps its bytes."""
    decoder = parse_decode({"jpg png": tarkit.picture("rgb8", short_side=20)})
    copy = pickle.loads(pickle.dumps(decoder))
    assert copy.decode("left.jpg", photo()).shape == (20, 27, 3)
    assert repr(tarkit.picture("l", size=9, crop="center")) == "<tarkit.picture of form l, size 9x9, crop center>"
    value = copy.decode("jpg", photo())
    assert copy.encode("jpg", value, "jpg", photo()) == photo()
    value[0, 0] ^= 1
    assert copy.encode("jpg", value, "jpg", photo()) is None


@pytest.mark.torch
@each_row("name", ["4:2:0", "grey", "CMYK", "PNG"])
def test_tensors(name: str) -> None:
    """Tensors have the pixels of arrays, channels first; resized ones within one level of those of Pillow."""
    torch = pytest.importorskip("torch")
    for form in ("rgb8", "rgb", "rgba8", "l8"):
        found, expected = (parse_decode(each).decode("jpg", ODD[name]) for each in (f"torch{form}", form))
        expected = expected if form == "l8" else expected.transpose(2, 0, 1)
        assert numpy.array_equal(found.numpy(), expected)
        assert torch.equal(torch.stack([found, found])[0], found)
    for target, stored, shape in TARGETS:
        data = photo(*stored, mode="L" if name == "grey" else "RGB")
        found = tarkit.picture("torchrgb8", **target, reducing_gap=None)(data)
        assert found.shape == (3, *shape)
        assert abs(found.permute(1, 2, 0).numpy() - reference(data, "RGB", **target)).max() <= 1
        grey = tarkit.picture("torchl8", **target)(data)
        assert grey.shape == shape
        for form in ("l", "rgb"):
            floats, whole = (tarkit.picture(f"torch{form}{bits}", **target)(data) for bits in ("", "8"))
            assert floats.numpy().tolist() == (whole.numpy() / numpy.float32(255)).tolist()
    data = photo(480, 640)
    found, expected = (tarkit.picture(form, short_side=50)(data) for form in ("torchrgb8", "rgb8"))
    assert abs(found.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1
