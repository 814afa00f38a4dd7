"""Decode a part of a sound: soundfile reads wav, flac, ogg, mp3 and others, PyAV mp4, m4a, webm and others.

Sound whose frames depend on those before is decoded from its start, so that a part is the very part of the whole.
"""

from __future__ import annotations

from typing import Any

from tarkit.errors import TarkitError, Usage
from tarkit.media.container import container_format, open_container
from tarkit.media.kinds import HEAD
from tarkit.media.libraries import media_library
from tarkit.media.limits import check_decoded
from tarkit.media.whole_sound import open_sound

FORMS = ("numpy", "torch")
_SEEKABLE = ("WAV", "WAVEX", "RF64", "W64", "FLAC", "AIFF", "AU", "CAF")  # frames of others depend on those before


def sound(form: str = "numpy", *, start: float = 0.0, stop: float | None = None) -> SoundDecoder:
    """Return a rule of `decode` for a part of sounds: `decode={"flac": tarkit.sound("torch", start=2, stop=5)}`.

    Args:
        form: `"numpy"` for an array of float32, frames x channels, as `decode=True` has it; `"torch"` for a tensor,
            channels x frames.
        start: where the part begins, in seconds.
        stop: where it ends, in seconds. If the sound ends earlier, the part is shorter.

    The value is a tuple of the sound, from -1 to 1, and its number of frames a second. wav, flac, ogg, mp3 and others
    need the extra `sound`; the sound of mp4, m4a, mov, webm, mkv and avi the extra `video`.

    Raises:
        Usage: an unknown form, or times that are no part.

    >>> import tarkit
    >>> tarkit.sound("torch", start=2, stop=5)
    <tarkit.sound of form torch, from 2 s to 5 s>
    """
    if form not in FORMS:
        raise Usage(f"sound has no form {form!r}", f"the forms are {' and '.join(FORMS)}")
    if not start >= 0 or (stop is not None and not stop > start):
        raise Usage(f"start={start!r} and stop={stop!r} are no part of a sound")
    return SoundDecoder(form, start, stop)


class SoundDecoder:
    """Decodes a part of sounds; `tarkit.sound` makes one. It can be pickled."""

    def __init__(self, form: str, start: float, stop: float | None) -> None:
        """See `sound`."""
        self._form, self._start, self._stop = form, start, stop

    def __repr__(self) -> str:
        end = "the end" if self._stop is None else f"{self._stop} s"
        return f"<tarkit.sound of form {self._form}, from {self._start} s to {end}>"

    def __call__(self, data: bytes) -> tuple[Any, int]:
        """Return the part of a sound of these bytes, and its frames a second.

        Raises:
            MissingLibrary: soundfile, PyAV or numpy is not installed.
            TooLarge: the part is more than a field may become.
            TarkitError: there is no sound in it, or it is cut off.
            Exception: whatever the libraries raise.
        """
        contained = container_format(data[:HEAD]) is not None
        numpy = media_library("numpy", "sound", extra="video" if contained else "sound")
        samples, rate = (self._by_av if contained else self._by_soundfile)(data)
        if self._form == "torch":
            return media_library("torch", "sound as tensors").from_numpy(numpy.ascontiguousarray(samples.T)), rate
        return samples, rate

    def _frames(self, rate: int, whole: int) -> tuple[int, int]:
        """Return the first frame, and the one behind the last, of a sound with so many frames."""
        first, last = round(self._start * rate), whole if self._stop is None else round(self._stop * rate)
        return min(first, whole), min(last, whole)

    def _by_soundfile(self, data: bytes) -> tuple[Any, int]:
        with open_sound(data) as file:
            first, last = self._frames(file.samplerate, file.frames)
            begin = first if file.format in _SEEKABLE else 0
            check_decoded(4 * (last - begin) * file.channels, len(data))
            file.seek(begin)
            return file.read(last - begin, dtype="float32", always_2d=True)[first - begin :], int(file.samplerate)

    def _by_av(self, data: bytes) -> tuple[Any, int]:
        numpy, av = media_library("numpy", "sound", extra="video"), media_library("av", "sound")
        with open_container(data, "sound") as container:
            if not container.streams.audio:
                raise TarkitError("it has no sound")
            stream = container.streams.audio[0]
            convert, rate, count, pieces = av.AudioResampler("fltp"), int(stream.codec_context.sample_rate), 0, []
            for frame in container.decode(stream):
                for each in convert.resample(frame):
                    pieces.append(each.to_ndarray())
                    count += each.samples
                    check_decoded(4 * count * len(pieces[-1]), len(data))
                if self._stop is not None and count >= round(self._stop * rate):
                    break
            if not pieces:
                raise TarkitError("its sound has no frames")
            first, end = self._frames(rate, count)
            order = "F" if self._form == "torch" else "C"  # as the result has it in memory
            return numpy.concatenate(pieces, 1)[:, first:end].T.copy(order), rate
