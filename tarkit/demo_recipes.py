"""The files that the recipes of the documentation work on, which `tarkit.demo` writes."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from pathlib import Path

from tarkit.tar.block import padding
from tarkit.tar.header import encode, end_of_archive

JPEG = b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQ"
    "YEpRUk//wAALCAAQABgBAREA/8QAFQABAQAAAAAAAAAAAAAAAAAAAAb/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/9oACAEBAAA/AKwAH//Z"
)  # 24 x 16
SHARDS = ("cat/0 cat/1 cat/2 cat/3", "cat/4 cat/5 dog/0", "dog/1 dog/2 dog/3", "dog/4 dog/7")


def _npy(numbers: list[float], *shape: int) -> bytes:
    header = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).ljust(117).encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(numbers)}d", *numbers)


def _tar(keys: str) -> bytes:
    """Return an archive of samples with these keys, such as cat/3: a picture, the class, JSON and a text."""
    data = b""
    for key in keys.split():
        kind, number = key.split("/")
        values = {"label": kind, "score": int(number) / 8}
        text = f"a {kind} {('asleep', 'at the door', 'on a chair')[int(number) % 3]}"
        fields = {
            "jpg": JPEG,
            "cls": b"%d" % (kind == "dog"),
            "json": json.dumps(values).encode(),
            "txt": text.encode(),
        }
        for field, content in fields.items():
            data += encode(f"{key}.{field}".encode(), len(content)) + content + bytes(padding(len(content)))
    return data + end_of_archive(len(data))


def files() -> dict[str, bytes]:
    """Return the contents of all files by path."""
    return {
        "cut.tar": _tar(SHARDS[0] + " cat/4")[: 4 * 4 * 1024 + 1024 + 600],
        "a.tar": _tar("cat/0 cat/1"),
        "b.tar": _tar("cat/0 cat/1"),
        "keep.txt": b"cat/3\ndog/7\n",
        "scores.csv": b"key,score\ncat/3,0.5\ndog/7,0.9\n",
        "captions.csv": b"file,txt\n" + b"".join(b"%d.jpg,picture %d\n" % (i, i) for i in range(4)),
        **{f"shards/train-{i:06d}.tar": _tar(keys) for i, keys in enumerate(SHARDS)},
        **{f"photos/{kind}/{i}.jpg": JPEG for kind in ("cat", "dog") for i in range(10)},
        **{f"tree/images/{i}.jpg": JPEG for i in range(4)},
        **{f"tree/notes/{i}.json": b"{}" for i in range(3)},
        **{f"scans/scan.2024.v{i}.{field}": JPEG for i in range(4) for field in ("png", "txt")},
        **{f"npy/arr_{i:06d}.input.npy": _npy([i] * 16, 4, 4) for i in range(40)},
        **{f"npy/arr_{i:06d}.output.npy": _npy([i]) for i in range(40)},
        **{f"npy_large/arr_{i:06d}.input.npy": _npy([i] * 16, 4, 4) for i in range(12)},
        **{f"npy_large/arr_{i:06d}.output.npy": _npy([i]) for i in range(12)},
    }


def write(directory: Path) -> int:
    """Write all files into a directory, which may exist; return how many there are."""
    contents = files()
    for name, content in contents.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return len(contents)
