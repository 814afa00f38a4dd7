"""Parts of sounds: those of the whole, by soundfile and by PyAV."""

from __future__ import annotations

import io
import pickle
from functools import cache
from typing import Any

import pytest

import tarkit
from tarkit.decoding.decoder import parse_decode
from tarkit.errors import TarkitError, Usage
from tests._tools import each_row
from tests.conftest import Archive, Run
from tests.decoding.test_video import clip

numpy = pytest.importorskip("numpy")
soundfile = pytest.importorskip("soundfile")
av = pytest.importorskip("av")

RATE = 8000
TONE = numpy.stack([numpy.sin(numpy.arange(4 * RATE) ** each / 50) / 3 for each in (1, 1.1)], 1).astype("float32")
KINDS = [
    ("wav", "pcm_f32le"),
    ("flac", ""),
    ("ogg", ""),
    ("mp3", ""),
    ("mp4", "aac"),
    ("matroska", "pcm_s16le"),
    ("webm", "libopus"),
]


@cache
def tone(kind: str, codec: str) -> bytes:
    """Return four seconds in a format: by soundfile, or with a codec by PyAV."""
    file = io.BytesIO()
    if codec in ("", "pcm_f32le"):
        soundfile.write(file, TONE, RATE, format=kind.upper(), subtype="FLOAT" if codec else None)
        return file.getvalue()
    with av.open(file, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=48000 if codec == "libopus" else RATE, layout="stereo")
        frame = av.AudioFrame.from_ndarray(numpy.ascontiguousarray(TONE.T), format="fltp", layout="stereo")
        frame.sample_rate = RATE
        resampler = av.AudioResampler(stream.format, "stereo", stream.rate, stream.codec_context.frame_size or 1024)
        for each in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(each))
        container.mux(stream.encode())
    return file.getvalue()


@each_row(("kind", "codec"), KINDS)
def test_parts_of_sounds(kind: str, codec: str) -> None:
    """A part is the same part of the whole, and the whole is the sound that was stored, but for loss."""
    data = tone(kind, codec)
    whole, rate = tarkit.sound()(data)
    assert whole.dtype == "float32"
    assert whole.shape[1] == 2
    assert len(whole) / rate == pytest.approx(4, abs=0.3)
    if rate == RATE and kind not in ("mp3", "mp4"):  # whose encoders add frames in front
        length = min(len(whole), len(TONE))
        assert abs(whole[RATE : length - RATE] - TONE[RATE : length - RATE]).mean() < 0.02
    for start, stop in [(0, 1), (1.5, 1.75), (3, None), (3.5, 99), (50, None)]:
        part, again = tarkit.sound(start=start, stop=stop)(data)
        expected = whole[round(start * rate) : None if stop is None else round(stop * rate)]
        assert (again, part.shape) == (rate, expected.shape)
        assert abs(part - expected).max(initial=0) < 1e-6


@pytest.mark.slow
@each_row("options", [{"bitrate_mode": "VARIABLE"}, {"bitrate_mode": "CONSTANT", "compression_level": 0.9}])
@each_row("rate", [44100, 16000])
def test_mp3_that_does_not_say_its_length(options: dict[str, Any], rate: int) -> None:
    """All of it is decoded, though the first frames are larger than the others."""
    from tarkit.media.duration import declared_frames, first_frame, frame_length

    loud = numpy.random.default_rng(0).standard_normal((5 * rate, 2)) / 5
    file = io.BytesIO()
    soundfile.write(file, numpy.concatenate([loud, loud / 1e6, loud / 1e6]), rate, format="MP3", **options)
    data = file.getvalue()
    start = first_frame(data)
    if declared_frames(data[start : start + 99]) is not None:
        data = data[:start] + data[start + int(frame_length(data, start)) :]
    for sound, found in (tarkit.sound()(data), parse_decode(True).decode("mp3", data)):
        assert found == rate
        assert len(sound) / rate == pytest.approx(15, abs=0.15)
        assert abs(sound[rate : 4 * rate]).mean() > 0.05 > 0.01 > abs(sound[6 * rate :]).mean()
    assert len(tarkit.sound(start=13, stop=14)(data)[0]) == rate


@each_row("kind", ["wav", "wavex", "aiff", "flac", "ogg", "mp3"])
def test_sounds_cut_off(kind: str) -> None:
    """What ends in the middle is an error, for each part behind the cut and for the whole."""
    data = tone(kind, "")
    for rule in (True, {"wav": tarkit.sound()}, {"wav": tarkit.sound(start=2, stop=3)}):
        decoder = parse_decode(rule)
        assert len(decoder.decode("wav", data)[0])
        with pytest.raises(TarkitError, match="field 'wav'"):
            decoder.decode("wav", data[: len(data) // 2])


@pytest.mark.torch
def test_sound_as_tensors() -> None:
    """Tensors are channels x frames."""
    pytest.importorskip("torch")
    found, rate = tarkit.sound("torch", stop=1)(tone("flac", ""))
    assert (tuple(found.shape), rate) == ((2, RATE), RATE)


def test_sound_as_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule can be pickled; what is no sound, is cut or too large is an error in one line."""
    rule = pickle.loads(pickle.dumps(tarkit.sound(start=1, stop=2)))
    assert repr(rule) == "<tarkit.sound of form numpy, from 1 s to 2 s>"
    decoder = parse_decode({"m4a wav": rule})
    assert decoder.decode("m4a", tone("mp4", "aac"))[0].shape == (RATE, 2)
    assert parse_decode(True).decode("m4a", b"bytes") == b"bytes"
    for content, message in [
        (tone("mp4", "aac")[:-9], "it is cut off"),
        (clip(), "it has no sound"),
        (b"text", "cannot be decoded"),
    ]:
        with pytest.raises(TarkitError, match=f"field 'm4a'.*{message}"):
            decoder.decode("m4a", content)
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "50k")
    with pytest.raises(TarkitError, match="would become more than"):
        tarkit.sound()(tone("mp4", "aac"))
    for arguments in ({"form": "list"}, {"start": -1}, {"start": 2, "stop": 1}):
        with pytest.raises(Usage, match=r"sound has no form|are no part of a sound"):
            tarkit.sound(**arguments)


@pytest.mark.slow
def test_length_of_video(archive: Archive, run: Run) -> None:
    """duration.FIELD is that of the header, of video and of m4a too."""
    contents: dict[str, Any] = {f"{number}.x": clip(number) for number in (0, 3, 4, 5)}
    word = archive({**contents, "9.x": tone("mp4", "aac")})
    lines = run("tsv", word, "-f", "duration.x", "--no-header").stdout.splitlines()
    assert [float(line.split()[1]) for line in lines] == pytest.approx([4.8, 4.8, 4.8, 4.8, 4], abs=0.15)
