"""Frames of video: those that a decoder of all frames gives, whatever part is wanted."""

from __future__ import annotations

import io
import pickle
import random
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

import tarkit
from tarkit.decoding import video as module
from tarkit.decoding.decoder import parse_decode
from tarkit.errors import TarkitError, Usage
from tests._tools import ROUNDS, each_row

av = pytest.importorskip("av")
numpy = pytest.importorskip("numpy")

COUNT, RATE = 120, 25
CODECS = [
    ("mp4", "mpeg4", {"bf": "2", "g": "12"}),
    ("mp4", "libx264", {"bf": "3", "g": "30", "preset": "ultrafast"}),
    ("mov", "mpeg4", {"g": "300"}),
    ("matroska", "mpeg4", {"g": "12"}),
    ("webm", "libvpx", {"g": "25", "deadline": "realtime"}),
    ("avi", "mpeg4", {"g": "12"}),
    ("mp4", "libx264", {"bf": "3", "g": "10", "x264-params": "open-gop=1:scenecut=0"}),
    ("mov", "libx264", {"bf": "2", "g": "7", "preset": "ultrafast"}),
    ("mp4", "libx264", {"bf": "3", "g": "10", "x264-params": "open-gop=1:scenecut=0"}),
    ("mov", "libx264", {"bf": "2", "g": "7", "preset": "ultrafast"}),
    ("mp4", "libx264", {"uneven": "1", "g": "20", "preset": "ultrafast"}),
]


@cache
def clip(number: int = 0) -> bytes:
    """Return a video of 4.8 s, whose frames have their number as the brightness of eight blocks, one for each bit."""
    format, codec, options = CODECS[number]
    file = io.BytesIO()
    with av.open(file, "w", format=format) as container:
        stream = container.add_stream(codec, rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 128, 48, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        stream.options = {name: value for name, value in options.items() if name != "uneven"}
        for index in range(COUNT):
            bits = numpy.array([255 * (index >> bit & 1) for bit in range(8)], "uint8")
            pixels = numpy.repeat(numpy.tile(numpy.repeat(bits, 16), (48, 1))[..., None], 3, 2)
            frame = av.VideoFrame.from_ndarray(numpy.ascontiguousarray(pixels), format="rgb24")
            frame.pts, frame.time_base = index * 40 + ("uneven" in options) * (index % 3) * 12, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


def numbers(frames: Any) -> list[int]:
    """Return the numbers that are painted on frames."""
    lit = frames[:, 24, 8::16].mean(2) > 127
    return [sum(1 << bit for bit in range(8) if row[bit]) for row in lit]


@cache
def whole(number: int) -> tuple[Any, list[float], float, float]:
    """Return all frames, their times, where the last one ends, and the length by the header, by PyAV alone."""
    with av.open(io.BytesIO(clip(number))) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(stream))
        times = [float((frame.pts - stream.start_time) * stream.time_base) for frame in frames]
        end = times[-1] + float((frames[-1].duration or 0) * stream.time_base or 1 / stream.average_rate)
        length = float(stream.duration * stream.time_base) if stream.duration else container.duration / 1e6
        return numpy.stack([frame.to_ndarray(format="rgb24") for frame in frames]), times, end, length


def expected(number: int, **wanted: Any) -> list[int]:
    """Return the numbers of the wanted frames, by the words of the documentation."""
    _, times, end, said = whole(number)
    start, stop, count = wanted.get("start", 0), wanted.get("stop", 1e9), wanted.get("frames")
    if "fps" in wanted:
        points = [start + each / wanted["fps"] for each in range(9999)]
        points = [each for each in points if each < min(stop, end)][:count]
    elif count and "stride" not in wanted:
        length = min(stop, said) - start
        points = [start + (each + 0.5) * length / count for each in range(count)] if length > 0 else []
    else:
        return [each for each in range(COUNT) if start <= times[each] < stop][:: wanted.get("stride", 1)][:count]
    return [max(each for each in range(COUNT) if times[each] <= point + 1e-9) for point in points]


WANTED = [
    {},
    {"stride": 7},
    {"start": 1.0, "stop": 2.0},
    {"start": 3.93, "stride": 3, "frames": 4},
    {"start": 2.405, "fps": 7},
    {"fps": 0.9},
    {"fps": 60, "start": 4.5},
    {"fps": 10, "frames": 3, "start": 0.6, "stop": 3.5},
    {"frames": 5},
    {"frames": 3, "start": 3.1, "stop": 4.1},
    {"frames": 200},
    {"start": 4.9},
    {"start": 9, "fps": 3},
    {"start": 2.2, "stop": 99},
]


@pytest.mark.slow
@each_row("number", range(len(CODECS)))
@each_row("wanted", WANTED)
def test_wanted_frames(number: int, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames and times are those of all frames, with and without jumps to keyframes."""
    frames, times = whole(number)[:2]
    chosen = expected(number, **wanted)
    for jump in (2.0, 0.1):
        monkeypatch.setattr(module, "_JUMP", jump)
        found, at = tarkit.video(**wanted, times=True)(clip(number))
        assert numbers(found) == chosen
        assert found.shape == (len(chosen), 48, 128, 3)
        assert numpy.array_equal(found, frames[chosen])
        assert at.tolist() == pytest.approx([times[each] for each in chosen])


def drawn(draw: random.Random) -> dict[str, Any]:
    """Return random arguments of `video`."""
    wanted: dict[str, Any] = {"start": round(draw.uniform(0, 4.7), 3)} if draw.random() < 0.6 else {}
    if draw.random() < 0.4:
        wanted["stop"] = round(wanted.get("start", 0) + draw.uniform(0.05, 3), 3)
    if (kind := draw.randrange(3)) < 2:
        wanted |= {"fps": draw.choice([0.7, 2, 3, 11])} if kind else {"stride": draw.randrange(1, 20)}
    if draw.random() < 0.5:
        wanted["frames"] = draw.randrange(1, 12)
    return wanted


@pytest.mark.slow
def test_random_parts() -> None:
    """Any part of any video has the frames of the whole."""
    draw = random.Random(8)
    for _ in range(60 * ROUNDS):
        number, wanted = draw.randrange(len(CODECS)), drawn(draw)
        assert numbers(tarkit.video(**wanted)(clip(number))) == expected(number, **wanted), (CODECS[number], wanted)


def test_forms_and_sizes() -> None:
    """Shapes and types are those of pictures, with the frames in front; sizes are exact."""
    for form, shape, kind in [
        ("rgb8", (2, 48, 128, 3), "uint8"),
        ("l8", (2, 48, 128), "uint8"),
        ("rgb", (2, 48, 128, 3), "float32"),
        ("l", (2, 48, 128), "float32"),
    ]:
        found = tarkit.video(form, frames=2)(clip())
        assert (found.shape, found.dtype) == (shape, kind)
        assert tarkit.video(form, start=50)(clip()).shape == (0, *shape[1:])
    for target, size in [
        ({"short_side": 24}, (24, 64)),
        ({"size": 33}, (33, 33)),
        ({"short_side": 24, "size": 20}, (20, 20)),
    ]:
        assert tarkit.video(**target, stride=60)(clip()).shape == (2, *size, 3)
    small = tarkit.video(size=(24, 64), start=1, stop=2)(clip())
    lit = small[:, 12, 4::8].mean(2) > 127
    assert [sum(1 << bit for bit in range(8) if row[bit]) for row in lit] == list(range(25, 50))


@pytest.mark.torch
def test_tensors_of_frames() -> None:
    """Tensors are frames x channels x height x width."""
    pytest.importorskip("torch")
    for form in ("rgb8", "l8", "rgb"):
        found, array = (tarkit.video(each, frames=3)(clip()) for each in (f"torch{form}", form))
        assert numpy.array_equal(found.numpy(), array if form == "l8" else array.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(("number", "jump"), [(0, 0.5), (0, 2.0), (3, 0.5)])
def test_only_what_is_needed_is_decoded(number: int, jump: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames from the keyframe on are decoded, not those in front of it; by the index of an mp4 also near ones."""
    if jump > 1 and not hasattr(av.stream.Stream, "index_entries"):
        pytest.skip("PyAV before 16 does not say where keyframes are")
    monkeypatch.setattr(module, "_JUMP", jump)
    read = []
    plain = module._Reader.next
    monkeypatch.setattr(module._Reader, "next", lambda self: read.append(1) or plain(self))
    for wanted, most in [({"start": 4.5, "frames": 1, "stride": 1}, 16), ({"fps": 1, "frames": 4}, 4 * 16)]:
        read.clear()
        tarkit.video(**wanted)(clip(number))
        assert len(read) <= most


@each_row(
    ("content", "message"),
    [
        (lambda: b"", "it is empty, not mp4, mov, webm, mkv or avi"),
        (lambda: b"#EXTM3U\nfile:///etc/passwd\n", "it is text, not mp4"),
        (lambda: b"\x89PNG\r\n\x1a\n" + bytes(99), "it is png, not mp4"),
        (lambda: clip()[:900], "it is cut off: "),
        (lambda: clip(3)[:4000], "it is cut off: it has 4000 of"),
        (lambda: clip(5)[:-1], "it is cut off: it has .* of"),
    ],
)
def test_what_is_no_video(content: Any, message: str) -> None:
    """Other content and cut videos are errors in one line."""
    with pytest.raises(TarkitError, match=f"field 'mp4'.*{message}") as raised:
        parse_decode({"mp4": tarkit.video(stride=10)}).decode("mp4", content())
    assert "\n" not in str(raised.value)


def test_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All frames together are no more than a field may become."""
    monkeypatch.setenv("TARKIT_DECODE_LIMIT", "200k")
    with pytest.raises(TarkitError, match="would become more than"):
        tarkit.video()(clip())
    assert len(tarkit.video(stride=20)(clip())) == 6


@each_row(
    ("arguments", "message"),
    [
        ({"form": "pil"}, "video has no form pil"),
        ({"form": "rgba8"}, "video has no form rgba8"),
        ({"form": "RGB"}, "no form of pictures 'RGB'"),
        ({"stride": 0}, "stride is a number of frames, not 0"),
        ({"frames": 1.5}, "frames is a number of frames, not 1.5"),
        ({"stride": 2, "fps": 3}, "one of them can be given"),
        ({"fps": 0}, "fps is more than 0"),
        ({"start": -1}, "start=-1 and stop=None are no part"),
        ({"start": 2, "stop": 2}, "start=2 and stop=2 are no part"),
        ({"size": "9"}, "size is a number of pixels"),
    ],
)
def test_arguments_of_video(arguments: dict[str, Any], message: str) -> None:
    """Arguments that make no sense are named."""
    with pytest.raises(Usage, match=message):
        tarkit.video(**arguments)


def test_video_as_a_rule() -> None:
    """A rule can be pickled and shown; without it video stays bytes."""
    rule = tarkit.video("l8", start=1, fps=2, size=9)
    assert repr(rule) == "<tarkit.video of form l8, start 1, fps 2, size (9, 9)>"
    decoder = pickle.loads(pickle.dumps(parse_decode({"mp4 webm": rule})))
    assert decoder.decode("left.mp4", clip()).shape == (8, 9, 9)
    assert parse_decode(True).decode("mp4", clip()) == clip()
