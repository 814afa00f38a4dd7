"""Is a sound whole? libsndfile decodes it, but takes what there is of a cut one: its container must reach to its end.

Formats: RIFF WAVE (sizes of chunks); AIFF (EA IFF 85: the size of its form); FLAC (libsndfile checks its checksums);
Ogg (RFC 3533: pages, their checksums, the last one); MPEG audio, layer III (`duration`: frames up to the end, and their
number in the header of Xing or LAME).
"""

from __future__ import annotations

import io
import zlib
from typing import Any

from tarkit.errors import TarkitError
from tarkit.media.duration import declared_frames, first_frame, frame_length, samples_of_frames, with_length
from tarkit.media.libraries import media_library, silent_stderr
from tarkit.media.limits import NotDecoded
from tarkit.sizes import plural

_PIECE = 1 << 18  # values of all channels that are decoded together
_UNKNOWN = 1 << 62  # frames, and more: the header does not say how many there are
_ESTIMATED = ("MP3", "MPEG")  # formats whose header need not say how many there are
_STREAMED = (0, 0xFFFFFFFF)  # sizes in a wav of a program that could not seek
_LAST_PAGE = 4
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_TAGS = (b"TAG", b"APETAGEX", b"LYRICS", b"ID3", b"3DI")  # after the last frame


def check(data: bytes) -> None:
    """Raise an exception unless a sound is whole.

    Raises:
        MissingLibrary: soundfile or numpy is not installed.
        NotDecoded: libsndfile does not know this kind of samples.
        Exception: whatever soundfile raises.
    """
    media_library("numpy", "sound", extra="sound")
    soundfile = media_library("soundfile", "sound")
    try:
        with silent_stderr(), soundfile.SoundFile(io.BytesIO(data)) as sound:
            format, frames, decoded = sound.format, sound.frames, _decode(sound)
    except soundfile.LibsndfileError as error:
        if "unimplemented" in str(error):
            raise NotDecoded(f"libsndfile does not decode it: {error.error_string}") from None
        raise
    if decoded != frames and 0 < frames < _UNKNOWN and format not in _ESTIMATED:
        raise TarkitError(f"{decoded} of {plural(frames, 'frame')} can be decoded")
    check_end(data, format)


def open_sound(data: bytes) -> Any:
    """Return a sound of soundfile, which is to be closed. Raises TarkitError if it is cut off.

    libsndfile reads no more of an mp3 than it estimates, if the header does not say how long it is: then it gets one
    that does. Of such a sound it leaves out the delay of a decoder, the first 529 samples.
    """
    soundfile = media_library("soundfile", "sound")
    sound = soundfile.SoundFile(io.BytesIO(data))
    try:
        check_end(data, sound.format)
        if sound.format in _ESTIMATED and sound.frames < (samples_of_frames(data) or 0):
            sound.close()
            return soundfile.SoundFile(io.BytesIO(with_length(data)))
    except BaseException:
        sound.close()
        raise
    return sound


def check_end(data: bytes, format: str) -> None:
    """Raise TarkitError if the container of a sound says that something is missing; nothing is decoded.

    Args:
        data: the sound.
        format: the name of libsndfile for its format.
    """
    if data.startswith(b"RIFF") and format in ("WAV", "WAVEX"):
        _check_wav(data)
    elif format == "AIFF":
        if (missing := 8 + int.from_bytes(data[4:8]) - len(data)) > 0:
            raise TarkitError(f"{plural(missing, 'byte is', 'bytes are')} missing at the end")
    elif format == "OGG":
        _check_ogg(data)
    elif format in _ESTIMATED:
        _check_mp3(data)


def _decode(sound: Any) -> int:
    """Decode a sound piece by piece, and return the number of frames."""
    piece, total = bytearray(4 * sound.channels * max(1, _PIECE // sound.channels)), 0
    while count := sound.buffer_read_into(piece, dtype="float32"):
        total += count
    return total


def _check_wav(data: bytes) -> None:
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"data":
            missing = at + 8 + size - len(data)
            if missing > 0 and size not in _STREAMED:
                words = plural(missing, "byte is", "bytes are")
                raise TarkitError(f"{words} missing at the end, of {plural(size, 'byte')}")
            return
        at += 8 + size + size % 2
    raise TarkitError("it is cut off before its sound")


def _check_ogg(data: bytes) -> None:
    at, flags = 0, 0
    while at < len(data):
        if data[at : at + 4] != b"OggS" or at + 27 > len(data):
            raise TarkitError(f"there is no whole page at {at}")
        flags, segments = data[at + 5], data[at + 26]
        start, at = at, at + 27 + segments + sum(data[at + 27 : at + 27 + segments])
        if at > len(data):
            raise TarkitError("its last page is cut off")
        page = data[start : start + 22] + bytes(4) + data[start + 26 : at]
        if data[start + 22 : start + 26] != _ogg_checksum(page):
            raise TarkitError(f"the page at {start} does not match its checksum")
    if not flags & _LAST_PAGE:
        raise TarkitError("its last page is missing")


def _ogg_checksum(page: bytes) -> bytes:
    """Return the checksum of a page as it stores it: that of zlib, with other ends, of reversed bits."""
    reversed_bits = zlib.crc32(page.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return reversed_bits.to_bytes(4, "little").translate(_REVERSED)[::-1]


def _check_mp3(data: bytes) -> None:
    at = first_frame(data)
    count, declared = 0, None
    while at < len(data) and (length := frame_length(data, at)):
        if length is True:  # of free format, the length of its frames is not known
            return
        if at + length > len(data):
            raise TarkitError(
                f"its last frame is cut off: {plural(at + length - len(data), 'byte is', 'bytes are')} missing"
            )
        if not count:
            declared = declared_frames(data[at : at + length])
        count, at = count + 1, at + length
    rest = data[at:]
    if count and not rest.startswith(_TAGS) and any(rest):
        raise TarkitError(f"there is no frame at {at}")
    if declared is not None and count - 1 < declared - 1:
        raise TarkitError(f"{count - 1} of {plural(declared, 'frame')} are there")
