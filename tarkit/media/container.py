"""Containers of video and sound that PyAV reads: their format, where they end, and how they are opened.

Sources: the documentation of PyAV; ISO/IEC 14496-12 (boxes of mp4 and mov), RFC 9559 (segments of Matroska) and RIFF
say where content ends. ffmpeg gets the name of the format, one of three that name no other files.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from tarkit.errors import TarkitError
from tarkit.media.kinds import HEAD, kind_of
from tarkit.media.libraries import media_library
from tarkit.sizes import plural

_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")  # with which mp4 and mov begin, behind their length


def container_format(head: bytes) -> str | None:
    """Return the name of ffmpeg for the format of content that begins so: mp4, matroska or avi; None for another."""
    if head[4:8] in _BOXES and head[8:12] not in (b"avif", b"avis", b"heic", b"heix", b"mif1", b"crx "):
        return "mp4"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "matroska"
    return "avi" if head.startswith(b"RIFF") and head[8:12] == b"AVI " else None


def open_container(data: bytes, content: str) -> Any:
    """Return a container of PyAV, which is to be closed.

    Args:
        data: mp4, mov, m4a, webm, mkv or avi.
        content: what is looked for in it, `video` or `sound`.

    Raises:
        MissingLibrary: PyAV is not installed.
        TarkitError: another format, or content that ends before its own sizes say so.
        Exception: whatever PyAV raises.
    """
    format = container_format(data[:HEAD])
    if format is None:
        raise TarkitError(f"it is {kind_of(data[:HEAD], b'', len(data))}, not mp4, mov, webm, mkv or avi")
    if (end := _END[format](data)) > len(data):
        raise TarkitError(f"it is cut off: it has {len(data)} of {plural(end, 'byte')}")
    return open_file(io.BytesIO(data), format, content)


def open_file(file: Any, format: str, content: str) -> Any:
    """Return a container of PyAV for a file that can seek, in a format of `container_format`."""
    return media_library("av", content).open(file, format=format)


def _end_of_boxes(data: bytes) -> int:
    """Return where the last box of mp4 or mov ends, or should end."""
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4])
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16])
        if size < 8:  # 0: up to the end
            break
        at += size
    return at


def _end_of_segment(data: bytes) -> int:
    """Return where the segment of a Matroska file ends, or should end."""
    start, size = _element(data, 4)
    if data[start + size : start + size + 4] != b"\x18\x53\x80\x67":
        return 0
    start, size = _element(data, start + size + 4)
    return start + size


def _element(data: bytes, at: int) -> tuple[int, int]:
    """Return where the content of an element of EBML begins, and its size, by the size at `at`; 0 if it has none."""
    length = 9 - data[at].bit_length() if at < len(data) else 1
    size = int.from_bytes(data[at : at + length]) & ((1 << 7 * length) - 1)
    return at + length, 0 if size == (1 << 7 * length) - 1 else size


_END: dict[str, Callable[[bytes], int]] = {
    "mp4": _end_of_boxes,
    "matroska": _end_of_segment,
    "avi": lambda data: 8 + int.from_bytes(data[4:8], "little"),
}
"""Where content ends by its own sizes."""
