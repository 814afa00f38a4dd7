"""The table of codecs: names, suffixes, magic bytes, levels. No codec library is imported here.

Suffixes, `--compress` with its help, and detection by magic bytes follow from `CODECS`; `DECODERS` and `ENCODERS` have
the functions. CONTRIBUTING.md has the steps to add a codec.

A format that is only recognised, so that the error names a command that decodes it, is a row of `FOREIGN`.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from tarkit.errors import Unsupported, Usage, spell
from tarkit.sizes import parse_count
from tarkit.streams.codecs.tfrecord import record_length


class Codec(NamedTuple):
    """A codec.

    Attributes:
        suffixes: suffixes of file names, in lower case; the first is the usual one.
        magics: the first bytes of a stream.
        unit: the word for one complete part of a stream, in messages.
        lowest: the lowest level that `parse_spec` accepts.
        highest: the highest level.
        default: the level if none is given.
        skips: whether a stream may contain skippable frames.
    """

    name: str
    suffixes: tuple[str, ...]
    magics: tuple[bytes, ...]
    unit: str
    lowest: int
    highest: int
    default: int
    skips: bool = False


# A bzip2 stream begins with its block size, then the magic of a block, or that of its end if it is empty.
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

# The first bytes of an entry, of the end record of an empty zip, and of the first of several volumes.
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08PK\x03\x04", b"PK00PK\x03\x04")
# The first bytes of programs, which self-extracting zips begin with: Windows, Linux, macOS (four kinds), scripts.
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
"""Zip has suffixes, magic bytes and levels like a codec; `tarkit.zip` reads and writes it. Level 0 stores.

Magic bytes: PKWARE APPNOTE.TXT 4.3.7, 4.3.16 and 8.5.4; a self-extracting zip (4.1.9) begins with a program.
"""

# .lzma has no magic bytes: as in XZ Utils, it is detected by the usual properties (lc=3, lp=0, pb=2) and a dictionary
# size of 2^n or 2^n + 2^(n-1) bytes.
_LZMA_MAGICS = tuple(
    b"\x5d" + size.to_bytes(4, "little") for n in range(12, 32) for size in (1 << n, (1 << n) + (1 << n - 1))
)

LZMA = Codec("lzma", (".tar.lzma", ".tlz", ".lzma"), _LZMA_MAGICS, "member", 0, 9, 6)
"""LZMA-alone is read and not written, since it has no checksum."""

DECODED = {**CODECS, LZMA.name: LZMA}


class MessageFormat(NamedTuple):
    """A format for a sequence of samples, each a map; `tarkit.messages` reads and writes them.

    Attributes:
        suffixes: suffixes of file names, in lower case, which those of codecs may follow.
        magic: a regular expression for the first bytes of a map whose first name is `__key__`.
        title: the kind of file, for messages.
        library: the package that is needed.
        has_columns: whether other programs write values under names of their own, which `--set` makes fields of.
    """

    name: str
    suffixes: tuple[str, ...]
    magic: bytes
    title: str
    library: str
    has_columns: bool = False


# RFC 8949, 3.1 and 3.4.6 (maps, text, the tag of self-described data); the MessagePack specification (map, fixstr)
MESSAGES: dict[str, MessageFormat] = {
    form.name: form
    for form in (
        MessageFormat(
            "cbors",
            (".cbors",),
            rb"(?s)(?:\xd9\xd9\xf7)?(?:[\xa1-\xb7\xbf]|\xb8.|\xb9..)\x67__key__",
            "a sequence of CBOR maps",
            "cbor2",
        ),
        MessageFormat(
            "msgpack",
            (".mp", ".msgpack"),
            rb"(?s)(?:[\x81-\x8f]|\xde..)\xa7__key__",
            "a sequence of MessagePack maps",
            "msgpack",
        ),
        # `record_length` detects it; TensorFlow writes names such as x.tfrecord-00000-of-00010
        MessageFormat("tfrecord", (".tfrecord", ".tfrecords"), b"(?!)", "a TFRecord file", "protobuf", True),
        # only a directory with an index says that a file is one, or the suffix
        MessageFormat("mds", (".mds", ".mds.zstd"), b"(?!)", "a shard of MDS", "", True),
    )
}

FORMAT_ALIASES = {"cbor": "cbors", "mp": "msgpack"}
"""Other words for formats of messages, on the command line."""

MESSAGE_SUFFIXES: dict[str, str] = {
    suffix + compressed: form.name
    for form in MESSAGES.values()
    for suffix in form.suffixes
    for compressed in (
        "",
        *(suffix for codec in (*CODECS.values(), LZMA) for suffix in codec.suffixes if not suffix.startswith(".t")),
    )
}
"""The formats of messages by the suffixes of files, compressed ones too: `.cbors`, `.mp.zst` .."""


_MISTAKEN = {".cbor": "cbors", ".msg": "msgpack", ".mpk": "msgpack", ".msgpk": "msgpack"}


class Foreign(NamedTuple):
    """A format that is recognised and not decoded; `command` decodes stdin, or a file, to stdout."""

    name: str
    suffixes: tuple[str, ...]
    magics: tuple[bytes, ...]
    command: str


# Magic bytes: gzip(1) for compress, the lzip manual, lzop's header.c, and the LZ4 frame format ("Legacy frame"). Brotli
# has none (RFC 7932), so it is recognised by its suffix.
FOREIGN = (
    Foreign("compress (.Z)", (".tar.z", ".taz", ".z"), (b"\x1f\x9d",), "gzip -dc"),
    Foreign("lzip", (".tar.lz", ".lz"), (b"LZIP\x00", b"LZIP\x01"), "lzip -dc"),
    Foreign("lzop", (".tar.lzo", ".tzo", ".lzo"), (b"\x89LZO\x00\r\n\x1a\n",), "lzop -dc"),
    Foreign("legacy lz4", (), (b"\x02\x21\x4c\x18",), "lz4 -dc"),
    Foreign("brotli", (".tar.br", ".tbr", ".br"), (), "brotli -dc"),
)

_ALL = {**CODECS, ZIP.name: ZIP}

# Skippable frames, the same in zstd and lz4: one of 16 magic numbers, a 32-bit length, that many bytes.
SKIPPABLE = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))

_ALIASES = {"gzip": "gz", "zstd": "zst", "bzip2": "bz2"}


def codec_by_magic(head: bytes) -> str | None:
    """Return the name of the codec of a stream that begins with `head` (10 bytes or more, if there are), or None.

    Check for a tar header first: the name of an entry may look like any magic. Behind skippable frames, which zstd and
    lz4 share, the next frame decides; if `head` does not reach that far, the result is zst.
    """
    at = _behind_skippable(head)
    if at and at + 4 > len(head):
        return "zst"
    for codec in (*_ALL.values(), LZMA):
        if head.startswith(codec.magics, at) and (at == 0 or codec.skips):
            return codec.name
    return None


def message_format(head: bytes, path: str) -> str | None:
    """Return the name of the format of messages for the suffix of `path`, or of what begins with `head`, or None.

    Check for a tar header first.
    """
    by_suffix = message_format_by_suffix(path)
    if by_suffix is None and head[5:8] == bytes(3) and record_length(head) is not None:
        return "tfrecord"
    if by_suffix is not None or b"__key__" not in head:
        return by_suffix
    return next((form.name for form in MESSAGES.values() if re.match(form.magic, head)), None)


def message_format_by_suffix(path: str) -> str | None:
    """Return the name of the format of messages for the suffix of `path` (in any case), perhaps compressed, or None."""
    lower = path.lower()
    if "-of-" in lower:
        lower = re.sub(r"-[0-9]+-of-[0-9]+$", "", lower)
    return next((name for suffix, name in MESSAGE_SUFFIXES.items() if lower.endswith(suffix)), None)


def mistaken_suffix(path: str) -> tuple[str, MessageFormat] | None:
    """Return a suffix that `path` has in place of that of a format of messages, perhaps compressed, and the format."""
    root, suffix = os.path.splitext(path.lower())
    if any(suffix in codec.suffixes for codec in DECODED.values()):
        suffix = os.path.splitext(root)[1]
    return (suffix, MESSAGES[_MISTAKEN[suffix]]) if suffix in _MISTAKEN else None


def foreign_codec(head: bytes, path: str | None = None) -> Foreign | None:
    """Return the format that is not decoded of a stream that begins with `head` and has the name `path`, or None.

    The suffix decides only for a format without magic bytes. Check for a tar header and `codec_by_magic` first.
    """
    at = _behind_skippable(head)
    for codec in FOREIGN:
        if head.startswith(codec.magics, at) if codec.magics else path and path.lower().endswith(codec.suffixes):
            return codec
    return None


def not_decoded(codec: Foreign, archive: str) -> Unsupported:
    """Return the error for an input in this format; its hint is a `pipe:` that decodes it."""
    import shlex

    if archive.startswith("pipe:"):
        command = f"{archive} | {codec.command}"
    else:
        command = f"pipe:{codec.command} {shlex.quote(archive)}"
    hint = f"decode it with a command: {shlex.quote(command)}"
    if archive == "stdin":
        hint = f"decode it with a command: {codec.command} | tarkit ..."
    return Unsupported(f"{archive}: this is {codec.name}, which tarkit does not decode", hint)


def _behind_skippable(head: bytes) -> int:
    """Return the length of the skippable frames at the start of `head`; the last may end after it."""
    at = 0
    while head.startswith(SKIPPABLE, at):
        at += 8 + int.from_bytes(head[at + 4 : at + 8], "little")
    return at


def codec_by_suffix(path: str) -> str | None:
    """Return the name of the codec for the suffix of `path` (`.tar.zst`, `.tgz`, `.xz` .., in any case), or None."""
    lower = path.lower()
    for codec in _ALL.values():
        if lower.endswith(codec.suffixes):
            return codec.name
    return None


def parse_spec(spec: str) -> tuple[str, int | None]:
    """Parse `CODEC[:LEVEL]` and return the name and the level, None if not given.

    gzip, zstd and bzip2 mean gz, zst and bz2; `none` has no levels. Raises Usage for any other name or level.
    """
    word, colon, digits = spec.partition(":")
    name = _ALIASES.get(word, word)
    if name != "none" and name not in _ALL:
        raise Usage(f"{spell('compress', spec)}: the codec is one of {', '.join(_ALL)}, none")
    if not colon:
        return name, None
    if name == "none":
        raise Usage(f"{spell('compress', spec)}: none has no levels")
    level = parse_count(digits)
    if level is None:
        raise _bad_level(name, digits)
    return name, legal_level(name, level)


def legal_level(name: str, level: int | None) -> int:
    """Return the level for the codec `name`, its default for None. Raises Usage for a level out of its range."""
    codec = _ALL[name]
    if level is None:
        return codec.default
    if not codec.lowest <= level <= codec.highest:
        raise _bad_level(name, str(level))
    return level


def _bad_level(name: str, level: str) -> Usage:
    codec = _ALL[name]
    given = spell("compress", f"{name}:{level}")
    return Usage(f"{given}: the level of {name} is a number from {codec.lowest} to {codec.highest}")
