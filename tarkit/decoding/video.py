"""Decode frames of a video, from its bytes in memory, by PyAV, whose wheels have the libraries of ffmpeg in them.

Only what is needed is decoded: from the keyframe in front of a wanted time. A time is that of presentation, in seconds
from the first frame. Where a jump to a keyframe leads behind the wanted time, or to a damaged frame, the video is
decoded from its start, so that each frame is the one that a decoder of all frames gives.

Source: the documentation of PyAV.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from tarkit.decoding.forms import FORMS, PictureForm, check_form, of_pixels
from tarkit.decoding.target import PictureTarget, middle, parse_target
from tarkit.errors import TarkitError, Usage
from tarkit.media.container import open_container
from tarkit.media.libraries import media_library
from tarkit.media.limits import check_decoded

_JUMP = 2.0  # seconds to the next wanted frame from which on a jump is tried, where no index says where keyframes are
_BACK = (0.0, 0.2, 1.0, 4.0)
"""Seconds in front of a wanted time to which a jump is tried: formats look for times of decoding."""

_ROUNDING = 1e-6  # seconds by which a time may differ from that of a frame, and mean it
_MISSING = 1.0  # seconds at the end that a header may have too many
_MODES = {"RGB": "rgb24", "L": "gray8"}


def video(
    form: str = "rgb8",
    *,
    start: float = 0.0,
    stop: float | None = None,
    stride: int | None = None,
    fps: float | None = None,
    frames: int | None = None,
    short_side: int | None = None,
    size: int | tuple[int, int] | None = None,
    times: bool = False,
) -> VideoDecoder:
    """Return a rule of `decode` for video: `decode={"mp4": tarkit.video("torchrgb8", fps=2, short_side=256)}`.

    Args:
        form: the form of the frames: `"rgb8"`, `"l8"`, `"rgb"`, `"l"` are numpy arrays, frames x height x width x 3 (of
            grey: frames x height x width); `"torchrgb8"` and so on are tensors, frames x 3 x height x width.
        start: the time of the first frame to return, in seconds from the first frame of the video.
        stop: frames at this time and later are left out.
        stride: return one frame of each `stride`: 5 is every fifth, beginning with the first one.
        fps: frames a second to return: those that are shown at start, start + 1 / fps and so on.
        frames: with stride or fps the largest number of frames. Without them the number of frames, evenly spread: time
            is divided into this number of equal parts, and the frame in the middle of each part is returned.
        short_side: pixels of the shorter side, as in `tarkit.picture`; ffmpeg resizes frames.
        size: pixels of both sides, or (height, width), as in `tarkit.picture`.
        times: return a tuple of the frames and their times, an array of float64 in seconds.

    mp4, mov, webm, mkv and avi are decoded. Without stride, fps and frames all frames are returned. A rotation in the
    header is not applied.

    Raises:
        Usage: arguments that do not go together.

    >>> import tarkit
    >>> tarkit.video("torchrgb8", start=1.5, fps=2, frames=8)
    <tarkit.video of form torchrgb8, start 1.5, fps 2, frames 8>
    """
    check_form(form)
    if FORMS[form].library == "pil" or FORMS[form].mode not in _MODES:
        raise Usage(f"video has no form {form}", "the forms of frames are rgb8, l8, rgb, l, torchrgb8 and so on")
    for name, value in (("stride", stride), ("frames", frames)):
        if value is not None and (type(value) is not int or value < 1):
            raise Usage(f"{name} is a number of frames, not {value!r}")
    if stride is not None and fps is not None:
        raise Usage("stride counts frames, fps times: one of them can be given")
    if fps is not None and not fps > 0:
        raise Usage(f"fps is more than 0, not {fps!r}")
    if not start >= 0 or (stop is not None and not stop > start):
        raise Usage(f"start={start!r} and stop={stop!r} are no part of a video")
    return VideoDecoder(form, Clip(start, stop, stride, fps, frames), parse_target(short_side, size, None), times)


class Clip(NamedTuple):
    """The wanted part of a video, as `video` describes it."""

    start: float
    stop: float | None
    stride: int | None
    fps: float | None
    frames: int | None


class VideoDecoder:
    """Decodes frames of videos; `tarkit.video` makes one. It can be pickled."""

    def __init__(self, form: str, clip: Clip, target: PictureTarget, times: bool) -> None:
        """See `video`."""
        self._form, self._clip, self._target, self._times = form, clip, target, times

    def __repr__(self) -> str:
        named = (self._clip._asdict() | self._target._asdict()).items()
        words = [f"{name.replace('_', ' ')} {value}" for name, value in named if value is not None and value != 0.0]
        return f"<tarkit.video of {', '.join([f'form {self._form}', *words])}>"

    def __call__(self, data: bytes) -> Any:
        """Return the frames of a video of these bytes, and their times if they are wanted.

        Raises:
            MissingLibrary: PyAV is not installed.
            TooLarge: the frames are more than a field may become.
            TarkitError: another format, no video in it, damage.
            Exception: whatever PyAV raises.
        """
        numpy = media_library("numpy", "video", extra="video")
        form = FORMS[self._form]
        jumps = True
        while True:
            with _Reader(data, jumps) as reader:
                shape = self._target.plan(reader.height, reader.width)
                convert = _Conversion(form, shape.resized or (reader.height, reader.width), shape.kept, len(data))
                try:
                    chosen = [(time, convert(frame)) for time, frame in _chosen(reader, self._clip)]
                    break
                except TarkitError:
                    raise
                except Exception:
                    if not reader.jumped:
                        raise
                    jumps = False
        height, width = shape.shape
        empty = numpy.empty((0, height, width) if form.mode == "L" else (0, height, width, 3), numpy.uint8)
        found = of_pixels(numpy.stack([pixels for _, pixels in chosen]) if chosen else empty, form)
        return (found, numpy.array([time for time, _ in chosen], numpy.float64)) if self._times else found


class _NotThere(Exception):
    """A jump led behind the wanted frame, or to a damaged one."""


class _Conversion:
    """Makes arrays of frames, as long as all of them together are no more than a field may become."""

    def __init__(self, form: PictureForm, resized: tuple[int, int], kept: tuple[int, int] | None, stored: int) -> None:
        self._form, self._resized, self._kept, self._stored, self._count = form, resized, kept, stored, 0

    def __call__(self, frame: Any) -> Any:
        (height, width), mode = self._resized, str(self._form.mode)
        self._count += 1
        each = height * width * len(mode) * (4 if self._form.floats else 1)
        check_decoded(self._count * each, self._stored)
        pixels = frame.reformat(width, height, _MODES[mode], interpolation="BILINEAR").to_ndarray()
        if self._kept is None:
            return pixels
        (rows, columns), (top, left) = self._kept, map(middle, self._resized, self._kept)
        return pixels[top : top + rows, left : left + columns].copy()


class _Reader:
    """Reads the frames of the first video of a file, with their times; jumps to keyframes if `jumps`."""

    def __init__(self, data: bytes, jumps: bool) -> None:
        self._container = open_container(data, "video")
        try:
            if not self._container.streams.video:
                raise TarkitError("it has no video")
            self._stream = self._container.streams.video[0]
            self._stream.codec_context.thread_count = 1  # processes are what works in parallel
            self.height, self.width = self._stream.codec_context.height, self._stream.codec_context.width
            check_decoded(self.height * self.width * 3, len(data))
        except BaseException:
            self._container.close()
            raise
        self.jumped, self._jumps, self._jump = False, jumps, _JUMP
        self._first = self._stream.start_time or 0
        self._frames = self._decoded()
        self._at = -1.0

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._container.close()

    def duration(self, exact: bool = False) -> float | None:
        """Return seconds by the header; None if it has none, or with `exact` none for this video alone."""
        if self._stream.duration:
            return float(self._stream.duration * self._stream.time_base)
        known = self._container.duration and not (exact and len(self._container.streams) > 1)
        return self._container.duration / 1e6 if known else None

    def _decoded(self) -> Iterator[Any]:
        yield from self._container.decode(self._stream)

    def next(self) -> tuple[float, Any] | None:
        """Return the next frame and its time; None at the end."""
        frame = next(self._frames, None)
        if frame is None:
            return None
        if frame.is_corrupt or frame.pts is None:
            if self.jumped:
                raise _NotThere
            what = "is damaged" if frame.is_corrupt else "has no time"
            raise TarkitError(f"the {'first frame' if self._at < 0 else f'frame behind {self._at:.3f} s'} {what}")
        self._at = self._time(frame)
        return self._at, frame

    def near(self, time: float) -> None:
        """Go on with a frame at this time or before it: the one at a keyframe, if that is ahead, else the next."""
        ahead, keyframe = time - max(self._at, 0), self._keyframe(time)
        if not self._jumps or (ahead < self._jump if keyframe is None else keyframe <= max(self._at, 0)):
            return
        before, self.jumped = self._at, True
        for back in _BACK:
            self._container.seek(self._first + int((time - back) / self._stream.time_base), stream=self._stream)
            frames = self._decoded()
            first = next(frames, None)
            if first is None or first.pts is None:
                break
            if (at := self._time(first)) <= time:
                if at <= before:
                    self._jump *= 2  # keyframes are further apart
                self._frames = chain([first], frames)
                return
        raise _NotThere

    def _keyframe(self, time: float) -> float | None:
        """Return the time of the last keyframe up to this time; None if the index of the file does not say it."""
        entries: Any = getattr(self._stream, "index_entries", ())  # PyAV before 16 has none
        if len(entries) < 2:
            return None
        first = entries[0].timestamp  # times of decoding, which are as far from those of presentation for all keyframes
        found = entries.search_timestamp(first + int(time / self._stream.time_base), backward=True)
        return None if found < 0 else float((entries[found].timestamp - first) * self._stream.time_base)

    def _time(self, frame: Any) -> float:
        return float((frame.pts - self._first) * self._stream.time_base)

    def length(self, frame: Any) -> float:
        """Return for how many seconds a frame is shown."""
        rate = self._stream.average_rate
        return float((frame.duration or 0) * self._stream.time_base) or (float(1 / rate) if rate else 0.0)

    def check_end(self, end: float, wanted: float | None) -> None:
        """Raise TarkitError if a video that ends here should go on, as the header says, and more of it is wanted."""
        said = self.duration(exact=True)
        if said is not None and min(said, said if wanted is None else wanted) > end + _MISSING:
            raise TarkitError(f"it is cut off: its frames end at {end:.3f} s of {said:.3f} s")


def _chosen(reader: _Reader, clip: Clip) -> Iterator[tuple[float, Any]]:
    """Return the wanted frames with their times."""
    if clip.fps is not None:
        return _shown(reader, _regular(clip), clip.stop, to_end=False)
    if clip.frames is None or clip.stride is not None:
        return _counted(reader, clip)
    return _shown(reader, _spread(reader, clip), clip.stop, to_end=True)


def _counted(reader: _Reader, clip: Clip) -> Iterator[tuple[float, Any]]:
    """Yield every so many frames one."""
    reader.near(clip.start)
    number, end = 0, 0.0
    while (found := reader.next()) is not None:
        time, frame = found
        if clip.stop is not None and time >= clip.stop - _ROUNDING:
            return
        end = time + reader.length(frame)
        if time < clip.start - _ROUNDING:
            continue
        if number % (clip.stride or 1) == 0:
            yield found
            if clip.frames is not None and number // (clip.stride or 1) + 1 == clip.frames:
                return
        number += 1
    reader.check_end(end, clip.stop)


def _regular(clip: Clip) -> Iterator[float]:
    """Yield the times of so many frames a second."""
    count = 0
    while clip.frames is None or count < clip.frames:
        time = clip.start + count / float(clip.fps or 1)
        if clip.stop is not None and time >= clip.stop - _ROUNDING:
            return
        yield time + _ROUNDING
        count += 1


def _spread(reader: _Reader, clip: Clip) -> Iterator[float]:
    """Yield so many times in the middle of equal parts."""
    ends = [end for end in (reader.duration(), clip.stop) if end is not None]
    if not ends:
        raise TarkitError("its header does not say how long it is", "give stop=, in seconds, or fps= or stride=")
    if (length := min(ends) - clip.start) <= 0:
        return
    for number in range(clip.frames or 0):
        yield clip.start + (number + 0.5) * length / (clip.frames or 1) + _ROUNDING


def _shown(reader: _Reader, wanted: Iterator[float], stop: float | None, to_end: bool) -> Iterator[tuple[float, Any]]:
    """Yield the frame that is shown at each time; with `to_end` the last one also behind its end."""
    shown: tuple[float, Any] | None = None
    later: tuple[float, Any] | None = None  # the frame behind it, if it is read
    ended = False
    for time in wanted:
        if later is not None and later[0] <= time:
            shown, later = later, None
        if later is None and not ended:
            reader.near(time)
            while (found := reader.next()) is not None and found[0] <= time:
                shown = found
            later, ended = found, found is None
            shown = shown or later  # the first frame is shown before its time
        if shown is None:
            reader.check_end(0.0, stop)
            return
        if ended and time >= (end := shown[0] + reader.length(shown[1])):
            reader.check_end(end, stop)
            if not to_end:
                return
        yield shown
