"""The codecs by name: their suffixes, magic bytes and levels, how a user asks for one, and which are not decoded."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from tarkit.errors import Unsupported, Usage


class Codec(NamedTuple):
    """What is known of a codec without loading its library.

    `unit` is what one complete piece of such a stream is called, `lowest` to `highest` are the levels that `parse_spec`
    takes, `default` is the level when none is asked for. A stream of a codec that `skips` may hold skippable frames.
    """

    name: str
    suffixes: tuple[str, ...]
    magics: tuple[bytes, ...]
    unit: str
    lowest: int
    highest: int
    default: int
    skips: bool = False


# A bzip2 stream opens with its block size, then a block (the digits of pi) or, if it is empty, its end (of pi's root).
_BZ2_MAGICS = tuple(
    b"BZh%d" % size + after
    for size in range(1, 10)
    for after in (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")
)

CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        Codec("gz", (".tar.gz", ".tgz", ".gz"), (b"\x1f\x8b\x08",), "member", 1, 9, 2),
        Codec("zst", (".tar.zst", ".tzst", ".zst"), (b"\x28\xb5\x2f\xfd",), "frame", 1, 22, 3, skips=True),
        Codec("lz4", (".tar.lz4", ".tlz4", ".lz4"), (b"\x04\x22\x4d\x18",), "frame", 1, 12, 1, skips=True),
        Codec("xz", (".tar.xz", ".txz", ".xz"), (b"\xfd7zXZ\x00",), "frame", 0, 9, 6),
        Codec("bz2", (".tar.bz2", ".tbz2", ".tbz", ".bz2"), _BZ2_MAGICS, "frame", 1, 9, 9),
    )
}

# The first bytes of an entry, of the end of a zip without any, and of the first of several volumes.
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08PK\x03\x04", b"PK00PK\x03\x04")
# Those of a program with a zip behind it: of Windows, of Linux, of macOS in four kinds, and a script.
_PROGRAM_MAGICS = (
    b"MZ",
    b"\x7fELF",
    b"\xcf\xfa\xed\xfe",
    b"\xce\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"\xfe\xed\xfa\xcf",
    b"#!",
)

ZIP = Codec("zip", (".zip",), _ZIP_MAGICS + _PROGRAM_MAGICS, "entry", 0, 9, 0)
"""A codec by its suffix, content and levels, but no stream: `tarkit.zip.reader` and `writer` know it.

The magics are those of PKWARE APPNOTE.TXT 4.3.7, 4.3.16 and 8.5.4, and of programs, since a self-extracting zip (4.1.9)
begins with one; level 0 stores.
"""

# .lzma has no magic: the usual properties (lc=3, lp=0, pb=2) and a dictionary of 2^n or 2^n + 2^(n-1) bytes are what XZ
# Utils look for, too.
_LZMA_MAGICS = tuple(
    b"\x5d" + size.to_bytes(4, "little") for n in range(12, 32) for size in (1 << n, (1 << n) + (1 << n - 1))
)

LZMA = Codec("lzma", (".tar.lzma", ".tlz", ".lzma"), _LZMA_MAGICS, "member", 0, 9, 6)
"""A codec that is read and not written: LZMA-alone has no checksum."""

DECODED = {**CODECS, LZMA.name: LZMA}


class Foreign(NamedTuple):
    """A codec that is recognised and not decoded: `command` decodes stdin, or the file that follows it, to stdout."""

    name: str
    suffixes: tuple[str, ...]
    magics: tuple[bytes, ...]
    command: str


# Magic bytes: gzip(1) for compress, the lzip manual, lzop's header.c, and the LZ4 frame format ("Legacy frame"). Brotli
# has none (RFC 7932), so its suffix decides.
FOREIGN = (
    Foreign("compress (.Z)", (".tar.z", ".taz", ".z"), (b"\x1f\x9d",), "gzip -dc"),
    Foreign("lzip", (".tar.lz", ".lz"), (b"LZIP\x00", b"LZIP\x01"), "lzip -dc"),
    Foreign("lzop", (".tar.lzo", ".tzo", ".lzo"), (b"\x89LZO\x00\r\n\x1a\n",), "lzop -dc"),
    Foreign("legacy lz4", (), (b"\x02\x21\x4c\x18",), "lz4 -dc"),
    Foreign("brotli", (".tar.br", ".tbr", ".br"), (), "brotli -dc"),
)

_ALL = {**CODECS, ZIP.name: ZIP}

# The same sixteen in zstd and in lz4; a 32-bit length follows, then that many bytes of anything.
SKIPPABLE = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))

_ALIASES = {"gzip": "gz", "zstd": "zst", "bzip2": "bz2"}


def codec_by_magic(head: bytes) -> str | None:
    """The codec of a stream that begins with the bytes `head` (at least 10 of them, if there are), None if no codec's.

    Ask for a tar header first: the name of an entry may look like any magic. Skippable frames belong to zstd and lz4
    alike; the first frame behind them decides, and zstd is assumed where `head` does not reach that far.
    """
    at = _behind_skippable(head)
    if at and at + 4 > len(head):
        return "zst"
    for codec in (*_ALL.values(), LZMA):
        if head.startswith(codec.magics, at) and (at == 0 or codec.skips):
            return codec.name
    return None


def foreign_codec(head: bytes, path: str | None = None) -> Foreign | None:
    """The codec, one that is not decoded, of a stream that begins with `head` and has the name `path`; None if none's.

    The suffix counts for a codec without magic bytes alone. Ask for a tar header and `codec_by_magic` first.
    """
    at = _behind_skippable(head)
    for codec in FOREIGN:
        if head.startswith(codec.magics, at) if codec.magics else path and path.lower().endswith(codec.suffixes):
            return codec
    return None


def not_decoded(codec: Foreign, archive: str) -> Unsupported:
    """The error for an input of this codec, with the `pipe:` that decodes it; `archive` is its name in messages."""
    if archive.startswith("pipe:"):
        command = f"{archive} | {codec.command}"
    else:
        command = f"pipe:{codec.command} {shlex.quote(archive)}"
    hint = f"let a command decode it: {shlex.quote(command)}"
    if archive == "stdin":
        hint = f"let a command decode it: {codec.command} | tarkit ..."
    return Unsupported(f"{archive}: this is {codec.name}, which tarkit does not decode", hint)


def _behind_skippable(head: bytes) -> int:
    """How many bytes the skippable frames take that `head` begins with; the last may end behind it."""
    at = 0
    while head.startswith(SKIPPABLE, at):
        at += 8 + int.from_bytes(head[at + 4 : at + 8], "little")
    return at


def codec_by_suffix(path: str) -> str | None:
    """The codec that the name `path` asks for by its suffix (`.tar.zst`, `.tgz`, `.xz` ..., in any case), or None."""
    lower = path.lower()
    for codec in _ALL.values():
        if lower.endswith(codec.suffixes):
            return codec.name
    return None


def parse_spec(spec: str) -> tuple[str, int | None]:
    """The codec's name and the level, None if not given, of a user's `CODEC[:LEVEL]`.

    gzip, zstd and bzip2 are taken for gz, zst and bz2; `none` is a name without levels. Raises `Usage`, which says what
    would be right, for another word or level.
    """
    word, colon, digits = spec.partition(":")
    name = _ALIASES.get(word, word)
    if name != "none" and name not in _ALL:
        raise Usage(f"unknown codec '{word}': one of {', '.join(_ALL)}, none")
    if not colon:
        return name, None
    if name == "none":
        raise Usage(f"'{spec}': none has no levels")
    if not (digits.isascii() and digits.isdigit()):
        raise _bad_level(name, digits)
    return name, legal_level(name, int(digits))


def legal_level(name: str, level: int | None) -> int:
    """The level to use for the codec `name`: its default for None. Raises `Usage` for a level out of its range."""
    codec = _ALL[name]
    if level is None:
        return codec.default
    if not codec.lowest <= level <= codec.highest:
        raise _bad_level(name, str(level))
    return level


def _bad_level(name: str, level: str) -> Usage:
    codec = _ALL[name]
    return Usage(f"'{name}:{level}': the level of {name} is a number from {codec.lowest} to {codec.highest}")
