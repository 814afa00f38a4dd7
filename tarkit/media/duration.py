"""The length of a sound in seconds, by its headers. Nothing is decoded.

WAVE and FLAC are parsed in `headers`; soundfile reads the headers of other formats: mp3, Ogg with Vorbis or Opus, AIFF,
AU, CAF, W64. It estimates the length of an mp3 without a header of Xing, 16 s for one minute of a variable bit rate,
so that the frames of these are counted.
"""

from __future__ import annotations

import io
import os
from typing import Any

from tarkit.errors import TarkitError
from tarkit.media import headers, mpeg
from tarkit.media.headers import Read
from tarkit.media.kinds import HEAD, kind_of
from tarkit.media.libraries import media_library
from tarkit.media.quiet import silent_stderr

_UNKNOWN = 1 << 62  # frames, and more: the header does not say how many there are


def seconds(read: Read, size: int) -> float | None:
    """Return the length of a sound of `size` bytes in seconds; None if it is not known.

    What encoders of mp3 add at both ends does not count where the header says how much it is.

    Raises:
        MissingLibrary: soundfile is not installed.
        TarkitError: the content is no sound that libsndfile knows.
    """
    kind = kind_of(read(0, HEAD), b"", size)
    sound = headers.sound(kind, read, size)
    if sound is not None and sound.seconds is not None:
        return sound.seconds
    soundfile = media_library("soundfile", "sound")
    try:
        with silent_stderr(), soundfile.SoundFile(_Content(read, size)) as file:
            frames, rate, format = file.frames, file.samplerate, file.format
    except soundfile.LibsndfileError as error:
        raise TarkitError(f"it is {kind}, and libsndfile says: {error.error_string.rstrip('.')}") from None
    if format in ("MP3", "MPEG") and not _says_length(read):
        return mpeg.seconds_of_frames(read(0, size))
    return frames / rate if 0 <= frames < _UNKNOWN else None


def _says_length(read: Read) -> bool:
    """Return whether the first frame of an mp3 says how many frames there are."""
    head = read(mpeg.tag_length(read(0, HEAD)), HEAD)
    return mpeg.declared_frames(head[mpeg.first_frame(head) :]) is not None


class _Content(io.RawIOBase):
    """Content as a file, for soundfile."""

    def __init__(self, read: Read, size: int) -> None:
        self._read, self._size, self._pos = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(self._pos, len(buffer))
        buffer[: len(data)] = data
        self._pos += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._pos = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._pos, os.SEEK_END: self._size}[whence]
        return self._pos

    def tell(self) -> int:
        return self._pos
