"""Frames of MPEG audio, layer III (mp3): their length, and how many there are. Nothing is decoded.

Formats: ISO 11172-3 and 13818-3 (headers of frames), ID3v2 (the tag in front), the headers of Xing, LAME and
Fraunhofer in the first frame.
"""

from __future__ import annotations

_RATES = (44100, 48000, 32000)  # of MPEG 1; half of them for 2, a quarter for 2.5
_KILOBITS = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


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


def seconds_of_frames(data: bytes) -> float | None:
    """Return the length of a sound in seconds by its frames, also of variable bit rates; None if they do not say it."""
    at, total = first_frame(data), 0.0
    while length := frame_length(data, at):
        if length is True:
            return None
        version, rate = data[at + 1] >> 3 & 3, data[at + 2] >> 2 & 3
        if total or data[at + 36 : at + 40] != b"VBRI":
            total += (1152 if version == 3 else 576) / (_RATES[rate] >> {3: 0, 2: 1, 0: 2}[version])
        at += length
    return total or None
