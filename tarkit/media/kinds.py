"""Detect the kind of content by its first bytes, and by the field's name only for formats without magic bytes.

The table here has the formats that `show` describes, and those of machine learning. All others are left to the library
`filetype`, which has no dependencies and knows about eighty formats. (puremagic misdetects zeros and AVIF; libmagic is
not a Python package.)
"""

from __future__ import annotations

import json
import re

from tarkit.media.headers import NETPBM

HEAD = 8192  # bytes that are enough to detect a kind

_MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n", "png"),
    (0, b"\xff\xd8\xff", "jpeg"),
    (0, b"GIF87a", "gif"),
    (0, b"GIF89a", "gif"),
    (0, b"II*\0", "tiff"),
    (0, b"MM\0*", "tiff"),
    (4, b"ftypavis", "avif"),
    (4, b"ftypheix", "heic"),
    (0, b"\x93NUMPY", "npy"),
    (0, b"~TenBin~", "tenbin"),
    (0, b"fLaC", "flac"),
    (0, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (0, b"PAR1", "parquet"),
    (0, b"ARROW1\0\0", "arrow"),
    (0, b"\x28\xb5\x2f\xfd", "zst"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"v/1\x01", "exr"),
    (0, b"%PDF-", "pdf"),
    (0, b"{\\rtf", "rtf"),
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
    (257, b"ustar", "tar"),
)
_RIFF = {b"WAVE": "wav", b"WEBP": "webp"}
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PICKLED = frozenset((b"pickle", b"pkl", b"pyd"))
_MESSAGES = {b"mp": "msgpack", b"msg": "msgpack", b"msgpack": "msgpack", b"cbor": "cbor"}  # without magic bytes
_CONTROLS = re.compile(rb"[\0-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")  # but for tab, LF, FF, CR, ESC
_TEXTS = ("json", "text", "latin text")

_NAMED = {
    b"bmp": "bmp", b"flac": "flac", b"gif": "gif", b"jpeg": "jpeg", b"jpg": "jpeg", b"json": "json", b"npy": "npy",
    b"npz": "npz", b"pgm": "netpbm", b"png": "png", b"ppm": "netpbm", b"tif": "tiff", b"tiff": "tiff", b"wav": "wav",
    b"webp": "webp",
}  # fmt: skip


def kind_of(head: bytes, field: bytes, size: int) -> str:
    """Return the kind of content that begins with `head` (all of it, or at least HEAD bytes) and is `size` bytes long.

    It is the name of a format in lower case, as in file suffixes, or `json`, `text`, `latin text` (not UTF-8), `empty`
    or `data`. Only text is decoded.
    """
    if not size:
        return "empty"
    last = field.lower().rpartition(b".")[2]
    if last in _PICKLED or _PICKLE.match(head):
        return "pickle"
    if last in _MESSAGES:
        return _MESSAGES[last]
    kind = _by_magic(head)
    if kind is None and last == b"safetensors" and head[8:9] == b"{":
        kind = "safetensors"
    return kind or _text(head, last, size) or _by_library(head) or ("latin text" if _is_latin(head) else "data")


def is_text(kind: str) -> bool:
    """Whether content of this kind is text."""
    return kind in _TEXTS


def named_for(field: bytes, kind: str) -> str | None:
    """Return the format in the field's name if the content is of another kind, else None."""
    last = field.lower().rpartition(b".")[2]
    expected = _NAMED.get(last)
    return None if expected in (None, kind) or kind == "empty" else last.decode()


def _by_magic(head: bytes) -> str | None:
    for offset, magic, kind in _MAGIC:
        if head.startswith(magic, offset):
            return kind
    if head[:4] in (b"RIFF", b"RF64"):
        return _RIFF.get(head[8:12])
    if head[:4] == b"PK\x03\x04":
        return "zip"
    if (
        head[:2] == b"BM"
        and len(head) >= 26
        and int.from_bytes(head[14:18], "little") in (12, 40, 52, 56, 64, 108, 124)
    ):
        return "bmp"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "webm" if b"webm" in head[:64] else "mkv"
    return "netpbm" if NETPBM.match(head) else None


def _by_library(head: bytes) -> str | None:
    import filetype

    guess = filetype.guess(head)
    return None if guess is None else str(guess.extension)


def decode(head: bytes, whole: bool) -> str | None:
    """Return `head` decoded as UTF-8, without a cut character at its end; None if it is not UTF-8."""
    try:
        return head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        cut = not whole and error.end == len(head) and error.start >= len(head) - 3 and "unexpected end" in error.reason
        return head[: error.start].decode("utf-8-sig") if cut else None


def _is_latin(head: bytes) -> bool:
    """Whether it may be text in a single-byte encoding: no control characters, and mostly ASCII."""
    return not _CONTROLS.search(head) and 4 * sum(byte > 127 for byte in head) < len(head)


def _text(head: bytes, last: bytes, size: int) -> str | None:
    if _CONTROLS.search(head):
        return None
    text = decode(head, len(head) == size)
    if text is None:
        return None
    start = text.lstrip()[:1]
    if last != b"json" and (start not in ("{", "[") or last == b"jsonl"):
        return "text"
    if len(head) < size:
        return "json" if start in ("{", "[", '"') else "text"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "text"
    return "json"
