"""Fields that are small, and would be large when they are decoded."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import tarkit
from tarkit.media import limits
from tarkit.media.coding import Coder
from tests._tools import each_row
from tests.conftest import Run
from tests.media._files import npy, npz, png

numpy = pytest.importorskip("numpy")

SIZE = 6 << 20  # of the values; the limit is less


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a small limit."""
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "4MiB")


ZEROS = numpy.zeros(SIZE, "u1")


def halves() -> bytes:
    """Return an npz whose arrays are large together."""
    return npz(compressed=True, a=ZEROS[: SIZE // 2], b=ZEROS[: SIZE // 2])


def dark() -> bytes:
    """Return a picture of zeros."""
    width, height = 2000, SIZE // 2000 + 1
    return png(width, height, bytes((width + 1) * height))


def flac() -> bytes:
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, numpy.zeros((SIZE // 4, 1), "i2"), 8000, format="FLAC")
    return file.getvalue()


def pth() -> bytes:
    pytest.importorskip("torch", reason="torch is not here")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(SIZE))
    return file.getvalue()


BOMBS: dict[str, Callable[[], bytes]] = {
    "txt.gz": lambda: gzip.compress(bytes(SIZE)),
    "json.gz": lambda: gzip.compress(b" " * SIZE + b"1"),
    "a.txt.gz": lambda: gzip.compress(bytes(SIZE // 60)) * 61,
    "npy.gz": lambda: gzip.compress(npy(ZEROS)),
    "npz": halves,
    "npz.gz": lambda: gzip.compress(halves()),
    "png": dark,
    "png.gz": lambda: gzip.compress(dark()),
    "flac": flac,
    "pth": pth,
}


@each_row("field", list(BOMBS))
def test_a_small_field_of_a_large_value(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error with the limit and the variable that sets it; with a larger one it is decoded."""
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "4MiB")
    data, coder = BOMBS[field](), Coder()
    with pytest.raises(
        tarkit.TarkitError, match=f"{len(data)} bytes would become more than 4194304 bytes .TARKIT_DECODE_LIMIT"
    ):
        coder.decode(field, data)
    if field != "pth":  # which is no value
        monkeypatch.setenv("TARKIT_DECODE_LIMIT", "8MiB")
        coder.decode(field, data)


def test_a_large_field() -> None:
    """A field may become eight times as large, also beyond the limit; one that was expanded counts as it is stored."""
    data = Random(1).randbytes(1 << 20)
    assert limits.decode_limit(1 << 20) == 8 << 20
    assert limits.decode_limit(1 << 10) == 4 << 20
    with limits.compressed_field(100):
        assert limits.decode_limit(1 << 20) == 4 << 20
    assert limits.decode_limit(1 << 20) == 8 << 20
    value = Coder().decode("npy", npy(ZEROS))
    assert value.nbytes == SIZE
    assert Coder().decode("txt.gz", gzip.compress(data.hex().encode())) == data.hex()


def test_floats_of_a_picture() -> None:
    """They have four bytes each."""
    from tarkit.decoding.decoder import parse_decode

    side = int((3 << 20) ** 0.5)
    picture = Coder().encode("png", numpy.zeros((side, side), "u1"))
    assert parse_decode("l8").decode("png", picture).shape == (side, side)
    with pytest.raises(tarkit.TarkitError, match="would become more than"):
        parse_decode("l").decode("png", picture)


def test_an_invalid_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "much")
    with pytest.raises(tarkit.TarkitError, match="TARKIT_DECODE_LIMIT: invalid size"):
        Coder().decode("txt.gz", gzip.compress(b"x"))


def test_the_problem_of_its_sample(here: object, run: Run) -> None:
    """It is `bad-field` in the loader and for a sample, and a failure of `proc --decode`; `skip` leaves it out."""
    with tarkit.TarWriter("a.tar") as out:
        out.write("a", {"txt.gz": gzip.compress(bytes(SIZE))})
        out.write("b", {"txt.gz": gzip.compress(b"x")})
    with pytest.raises(tarkit.Problem, match=r"'a': field 'txt.gz'.*would become more than") as raised:
        next(iter(tarkit.open("a.tar", decode=True)))["txt.gz"]
    assert raised.value.name == "bad-field"
    data = tarkit.open("a.tar", skip="bad-field", on_problem=lambda line: None)
    assert [sample["__key__"] for sample in tarkit.loader(data, decode=True)] == ["b"]
    Path("own.py").write_text("def same(sample):\n    return sample\n", encoding="utf-8")
    failed = run("proc", "a.tar", "--decode", "--map", "own.py:same", "-o", "b.tar", exit=1)
    assert "would become more than 4194304 bytes (TARKIT_DECODE_LIMIT=4G sets another limit)" in failed.stderr
