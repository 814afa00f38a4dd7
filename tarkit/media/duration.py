"""The length of a sound or a video in seconds, by its headers. Nothing is decoded.

WAVE and FLAC are parsed in `headers`; PyAV reads the headers of mp4, m4a, mov, webm, mkv and avi, soundfile those of
other formats: mp3, Ogg with Vorbis or Opus, AIFF, AU, CAF, W64. soundfile estimates the length of an mp3 without a
header of Xing, 16 s for one minute of a variable bit rate, so that the frames of these are counted.

Frames of MPEG audio, layer III (mp3): ISO 11172-3 and 13818-3 (headers of frames), ID3v2 (the tag in front), the
headers of Xing, LAME and Fraunhofer in the first frame.
"""

from __future__ import annotations

from tarkit.bytereader import SeekableFile
from tarkit.errors import TarkitError
from tarkit.media import headers
from tarkit.media.container import container_format, open_file
from tarkit.media.headers import Read
from tarkit.media.kinds import HEAD, kind_of
from tarkit.media.libraries import media_library, silent_stderr

_UNKNOWN = 1 << 62  # frames, and more: the header does not say how many there are
_RATES = (44100, 48000, 32000)  # of MPEG 1; half of them for 2, a quarter for 2.5
_KILOBITS = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


def seconds(read: Read, size: int) -> float | None:
    """Return the length of a sound or a video of `size` bytes in seconds; None if it is not known.

    What encoders of mp3 add at both ends does not count where the header says how much it is.

    Raises:
        MissingLibrary: soundfile, or PyAV, is not installed.
        TarkitError: the content is no sound that libsndfile knows.
    """
    head = read(0, HEAD)
    content = SeekableFile(lambda start, stop: read(start, stop - start), size)
    if (container := container_format(head)) is not None:
        with open_file(content, container, "the header") as opened:
            return opened.duration / 1e6 if opened.duration else None
    kind = kind_of(head, b"", size)
    sound = headers.sound(kind, read, size)
    if sound is not None and sound.seconds is not None:
        return sound.seconds
    soundfile = media_library("soundfile", "sound")
    try:
        with silent_stderr(), soundfile.SoundFile(content) as file:
            frames, rate, format = file.frames, file.samplerate, file.format
    except soundfile.LibsndfileError as error:
        raise TarkitError(f"it is {kind}, and libsndfile says: {error.error_string.rstrip('.')}") from None
    if format in ("MP3", "MPEG") and not _says_length(read):
        return _seconds_of_frames(read(0, size))
    return frames / rate if 0 <= frames < _UNKNOWN else None


def _says_length(read: Read) -> bool:
    """Return whether the first frame of an mp3 says how many frames there are."""
    head = read(tag_length(read(0, HEAD)), HEAD)
    return declared_frames(head[first_frame(head) :]) is not None


# ---- Frames of MPEG audio


def tag_length(data: bytes) -> int:
    """Return the length of the tag of ID3 in front of the first frame, in bytes."""
    if not data.startswith(b"ID3") or len(data) < 10:
        return 0
    size = data[6:10]
    return 10 + (size[0] << 21 | size[1] << 14 | size[2] << 7 | size[3])


def first_frame(data: bytes) -> int:
    """Return the position of the first frame."""
    return max(data.find(b"\xff", tag_length(data)), 0)


def frame_length(data: bytes, at: int) -> int | bool:
    """Return the length of an MPEG frame in bytes: True if it is not in the header, 0 if there is none."""
    if len(data) < at + 4:
        return 0
    first, second, third = data[at], data[at + 1], data[at + 2]
    version, layer = second >> 3 & 3, second >> 1 & 3
    bits, rate = third >> 4, third >> 2 & 3
    if first != 0xFF or second < 0xE0 or version == 1 or layer != 1 or bits == 15 or rate == 3:
        return 0
    if not bits:
        return True
    kilobits = _KILOBITS[1 if version == 3 else 2][bits]
    hertz = _RATES[rate] >> {3: 0, 2: 1, 0: 2}[version]
    return (144000 if version == 3 else 72000) * kilobits // hertz + (third >> 1 & 1)


def declared_frames(frame: bytes) -> int | None:
    """Return the number of frames that the first frame says: in a header of Xing, which others write too."""
    for name in (b"Xing", b"Info"):
        at = frame.find(name, 0, 64)
        if at >= 0 and len(frame) >= at + 12 and frame[at + 7] & 1:
            return int.from_bytes(frame[at + 8 : at + 12], "big")
    return None


def samples_of_frames(data: bytes) -> int | None:
    """Return the samples of a channel in the frames of an mp3 whose header does not say how many there are, else None.

    They are not known of free format either.
    """
    at, total = first_frame(data), 0
    if declared_frames(data[at : at + HEAD]) is not None:
        return None
    while length := frame_length(data, at):
        if length is True:
            return None
        total += _samples(data[at + 1])
        at += length
    return total


def with_length(data: bytes) -> bytes:
    """Return an mp3 with a frame in front, with a header of Xing, that says how many frames there are."""
    start, count = first_frame(data), 0
    at = start
    while length := frame_length(data, at):
        count, at = count + 1, at + length
    first, second, third, fourth = data[start : start + 4]
    mono = fourth >> 6 == 3
    side = (17 if mono else 32) if second >> 3 & 3 == 3 else (9 if mono else 17)  # bytes in front of the header
    frame = bytes((first, second | 1, third & 0x0C | 0x90, fourth)) + bytes(side)
    frame += b"Xing" + (1).to_bytes(4, "big") + count.to_bytes(4, "big")
    return data[:start] + frame.ljust(frame_length(frame, 0), b"\0") + data[start:]


def _samples(second: int) -> int:
    """Return the samples of a channel in a frame, by the second byte of its header."""
    return 1152 if second >> 3 & 3 == 3 else 576


def _seconds_of_frames(data: bytes) -> float | None:
    """Return the length of a sound in seconds by its frames, also of variable bit rates; None if they do not say it."""
    at, total = first_frame(data), 0.0
    while length := frame_length(data, at):
        if length is True:
            return None
        version, rate = data[at + 1] >> 3 & 3, data[at + 2] >> 2 & 3
        if total or data[at + 36 : at + 40] != b"VBRI":
            total += _samples(data[at + 1]) / (_RATES[rate] >> {3: 0, 2: 1, 0: 2}[version])
        at += length
    return total or None
