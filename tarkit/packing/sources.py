"""Sources of entries, as in a recipe: a path, a URL, or literal content."""

from __future__ import annotations

from typing import Literal

from tarkit.tables.recipe import parse_source

_PREFIXES = (b"file:", b"text:", b"hex:", b"base64:", b"pipe:")


def path_source(path: bytes) -> bytes:
    """Return a path as a source, with the prefix `file:` if it could be something else."""
    return b"file:" + path if path.startswith(_PREFIXES) or b"://" in path else path


def text_source(value: bytes) -> bytes:
    """Return literal content as a source, on one line."""
    if any(byte in value for byte in b"\n\r\t\0"):
        from binascii import b2a_base64

        return b"base64:" + b2a_base64(value, newline=False)
    return b"text:" + value


def parse(source: bytes) -> tuple[Literal["path", "data", "url"], bytes]:
    """Return the path or the URL of a source, or its literal content."""
    kind, value = parse_source(source, pipes_allowed=False, rewrites=False)
    assert kind != "pipe"
    return kind, value
