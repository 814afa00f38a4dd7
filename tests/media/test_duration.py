"""The length of a sound by its headers: exact in each format, also of mp3 with a variable bit rate."""

from __future__ import annotations

import io
from typing import Any

import pytest

from tests._tools import each_row
from tests.conftest import Archive, Run

numpy = pytest.importorskip("numpy")
soundfile = pytest.importorskip("soundfile")

from tarkit.media.duration import frame_length, seconds  # noqa: E402

NOISE = numpy.random.default_rng(0).standard_normal((3 * 48000, 1)).astype("float32") / 4
NOISE[:48000] /= 1000  # quiet, so that variable bit rates differ


def stored(format: str, **settings: Any) -> bytes:
    """Return three seconds in a format."""
    file = io.BytesIO()
    soundfile.write(file, NOISE, 48000, format=format, **settings)
    return file.getvalue()


def length(content: bytes) -> tuple[float | None, int]:
    """Return the length of a sound, and how many bytes are read for it."""
    total = 0

    def read(pos: int, count: int) -> bytes:
        nonlocal total
        data = content[pos : pos + count]
        total += len(data)
        return data

    return seconds(read, len(content)), total


FORMATS: list[tuple[str, dict[str, str]]] = [
    *((format, {}) for format in ("WAV", "FLAC", "AIFF", "AU", "CAF", "W64", "RF64", "OGG")),
    ("WAV", {"subtype": "FLOAT"}),
    ("OGG", {"subtype": "OPUS"}),
    *(("MP3", {"bitrate_mode": mode}) for mode in ("CONSTANT", "VARIABLE")),
]


@each_row(("format", "settings"), FORMATS)
def test_formats(format: str, settings: dict[str, str]) -> None:
    """A length is exact to a sample, and little is read for it."""
    content = stored(format, **settings)
    found, read = length(content)
    assert found == pytest.approx(3, abs=1e-9)
    assert read < 100_000 or format == "OGG"


@each_row("mode", ("CONSTANT", "VARIABLE"))
def test_mp3_without_its_number_of_frames(mode: str) -> None:
    """Frames are counted, behind a tag of any length."""
    content = stored("MP3", bitrate_mode=mode)
    content = content[frame_length(content, 0) :]
    tag = b"ID3\3\0\0" + bytes((0, 1, 2, 3)) + b"\xff" * (1 << 14 | 2 << 7 | 3)
    assert length(content)[0] == length(tag + content)[0] == pytest.approx(3, abs=0.06)
    assert length(content[: len(content) // 2])[0] < 2.5
    assert length(tag + stored("MP3", bitrate_mode=mode))[0] == pytest.approx(3, abs=1e-9)


def test_values(run: Run, archive: Archive) -> None:
    """Seconds are numbers in tables and expressions; what is no sound is `bad-field`."""
    word = archive({"a.ogg": stored("OGG"), "b.ogg": stored("FLAC")})
    assert run("tsv", word, "-f", "duration.ogg", "--no-header").stdout == b"a\t3.0\nb\t3.0\n"
    assert run("tsv", word, "-f", "__key__", "--no-header", "--where", "duration.ogg > 3").stdout == b""
    line = run("tsv", archive({"a.ogg": b"text"}), "-f", "duration.ogg", exit=1).lines[0]
    assert "is not a sound whose header can be read" in line
    assert line.endswith("[bad-field]")


def test_whole(run: Run, archive: Archive) -> None:
    """ok says what `content_fault` finds."""
    whole = stored("FLAC")
    word = archive({"a.flac": whole, "b.flac": whole[: len(whole) // 2], "c.flac": b"text"})
    assert run("tsv", word, "-f", "ok.flac", "--no-header").stdout == b"a\ttrue\nb\tfalse\nc\tfalse\n"
    assert run("tsv", word, "-f", "__key__", "--no-header", "--where", "not ok.flac").stdout == b"b\nc\n"
