"""A function of `map` in front of a loader: what it returned comes out of the loader, or is an error."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tarkit.media.coding import is_lossy
from tarkit.pipeline.steps import Flow, Step
from tarkit.samples.sample import SampleBatch, singly

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def pictures(here: object) -> str:
    """Write pictures of noise, and other values."""
    random = Random(1)
    with tarkit.TarWriter("a.tar") as out:
        for number in range(4):
            noise = numpy.frombuffer(random.randbytes(16 * 16 * 3), "u1").reshape(16, 16, 3)
            out.write(f"{number}", {"jpg": noise, "png": noise, "cls": number, "npy": noise / 7})
    return "a.tar"


def flip(sample: Any) -> dict[str, Any]:
    """Return the sample with its picture flipped."""
    return {**sample, "jpg": sample["jpg"].transpose(Image.Transpose.FLIP_LEFT_RIGHT)}


def flip_array(sample: Any) -> dict[str, Any]:
    return {**sample, "jpg": sample["jpg"][:, ::-1]}


@pytest.mark.parametrize(
    ("decode", "function", "options"),
    [
        (True, flip, {}),
        ("rgb8", flip_array, {}),
        (None, flip, {"decode": True}),
        pytest.param(True, flip, {"processes": 2}, marks=pytest.mark.forks),
    ],
)
@pytest.mark.parametrize("again", [True, False])
def test_a_changed_picture_is_not_compressed_again(
    decode: Any, function: Any, options: dict[str, Any], again: bool, pictures: str
) -> None:
    """It is an error with the ways that keep its values; a file is written as before."""
    data = tarkit.open(pictures) if decode is None else tarkit.open(pictures, decode=decode)
    changed = data.map(function, **options)
    loader = tarkit.loader(changed, decode=True) if again and decode is not True else tarkit.loader(changed)
    with pytest.raises(tarkit.TarkitError, match=r"field 'jpg' would be compressed with a loss.*transform="):
        list(loader)
    assert changed.write("b.tar").samples == 4


def test_what_keeps_its_values(pictures: str) -> None:
    """Values that did not change, bytes, and fields without loss come out as the function returned them."""

    def change(sample: tarkit.Sample) -> dict[str, Any]:
        picture = sample["png"]
        return {
            "jpg": sample["jpg"],
            "thumb.jpg": sample["jpg"],
            "png": picture.rotate(90),
            "npy": sample["npy"] + 0.1,
            "cls": sample["cls"] + 10,
            "json": {"a": [1, 0.1]},
            "other.jpg": sample.raw("jpg"),  # type: ignore[attr-defined]
        }

    data = tarkit.open(pictures, decode=True)
    for before, behind in zip(data, tarkit.loader(data.map(change), decode=True), strict=True):
        expected = change(before)
        assert behind["png"].tobytes() == expected["png"].tobytes()
        assert (behind["npy"] == expected["npy"]).all()
        assert (behind["cls"], behind["json"]) == (expected["cls"], expected["json"])
        for name in ("jpg", "thumb.jpg", "other.jpg"):
            assert behind[name].tobytes() == before["jpg"].tobytes()


def test_fields_with_a_loss() -> None:
    """Pictures of JPEG and WebP, mp3; numbers that are not whole in other pictures; more bits than sound has."""
    whole, part, wide = numpy.zeros((2, 2), "u1"), numpy.zeros((2, 2), "f4"), numpy.zeros((2, 2))
    rows: list[tuple[str, Any, bool]] = [
        ("a.JPG", whole, True),
        ("webp", whole, True),
        ("png", whole, False),
        ("png", part, True),
        ("png.gz", part, True),
        ("npy", part, False),
        ("wav", (part, 8000), False),
        ("wav", (wide, 8000), True),
        ("flac", (part, 8000), True),
        ("flac", (numpy.zeros((2, 2), "i2"), 8000), False),
        ("mp3", (part, 8000), True),
        ("json", [0.5], False),
        ("x", b"", False),
    ]
    for field, value, lossy in rows:
        assert is_lossy(field, value) is lossy, field


def test_a_function_of_values(pictures: str) -> None:
    """It is refused too."""
    data = tarkit.open(pictures).map(flip, decode=True)
    with pytest.raises(tarkit.TarkitError, match="would be compressed with a loss"):
        list(tarkit.loader(data, decode=True))
    assert len(list(tarkit.loader(tarkit.open(pictures).map(dict, decode=True), decode=True))) == 4


def odd(sample: Any) -> Any:
    """Leave out every second sample."""
    return dict(sample) if int(sample["cls"]) % 2 else None


def test_all_samples_shuffled_behind_a_map(here: Path) -> None:
    """Where a map leaves samples out, a position continues at its result, and repeats none."""
    with tarkit.ShardWriter("m-%d.tar", count=10) as out:
        for number in range(40):
            out.write(f"{number:02d}", {"cls": number})
    data = tarkit.open("m-*.tar").map(odd)
    whole = [sample["__key__"] for sample in tarkit.loader(data, shuffle="full")]
    assert len(whole) == 20
    for stop in (0, 3, 15):
        loader, again = tarkit.loader(data, shuffle="full"), tarkit.loader(data, shuffle="full")
        found = [sample["__key__"] for sample in islice(loader, stop)]
        again.load_state_dict(loader.state_dict())
        assert found + [sample["__key__"] for sample in again] == whole


def test_random_numbers_behind_a_map(here: Path) -> None:
    """With `shuffle="full"` samples behind a map have no numbers: workers draw others all the same."""
    with tarkit.TarWriter("m.tar") as writer:
        for number in range(8):
            writer.write({"__key__": str(number), "cls": number})
    data = tarkit.open("m.tar").map(dict)
    for threads in (0, 2):
        drawn: list[float] = []
        for worker in range(4):
            place: dict[str, Any] = {"worker": worker, "workers": 4, "threads": threads}
            drawn += tarkit.loader(data, shuffle="full", transform=lambda _: tarkit.sample_random().random(), **place)
        assert len(drawn) == len({*drawn}) == 8


class Alternate(Step):
    """A step that leaves every second sample out, and does not say so."""

    reads = "headers"

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        for number, sample in enumerate(singly(batches)):
            if number % 2:
                yield sample


def test_a_step_that_does_not_say_whether_it_leaves_samples_out(here: Path) -> None:
    """Its samples are not counted as if all came, and with `equal` none comes twice."""
    with tarkit.ShardWriter("m-%d.tar", count=10) as out:
        for number in range(40):
            out.write(f"{number:02d}", {"cls": number})
    data = tarkit.open("m-*.tar").then(Alternate())
    with pytest.raises(TypeError):
        len(tarkit.loader(data, shuffle="full"))
    with pytest.raises(tarkit.Usage, match="may leave samples out"):
        tarkit.loader(data, shuffle="full", equal="drop")
    keys = [sample["__key__"] for sample in tarkit.loader(data, shuffle="full")]
    assert len(keys) == len(set(keys)) == 20
