"""Properties of fields: the words before the name of a field, such as `size.jpg`, `width.jpg`, `sha256.jpg`.

Each function is called with the `FieldLookup` of a sample, the name of a field and its entry. It raises Problem:
`bad-field` for content that has no such property, `sparse-entry`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import MissingLibrary, Problem
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw

if TYPE_CHECKING:
    from tarkit.samples.lookup import FieldLookup

WHOLE = 1 << 20  # bytes of a content that is hashed at once


class Property(NamedTuple):
    """A property of fields.

    Attributes:
        meaning: the property in a few words, for hints.
        value: the function that returns it.
        form: its type and unit, for the documentation.
        cost: what is read and computed for it, for the documentation.
        extra: the extra of tarkit that installs the library.
        of_contents: returns the function of a content of at most WHOLE bytes that does the same; None if there is none.
    """

    meaning: str
    value: Callable[[FieldLookup, bytes, Raw], Any]
    form: str
    cost: str
    extra: str = ""
    of_contents: Callable[[], Callable[[bytes | memoryview], Any]] | None = None


def _size(lookup: FieldLookup, field: bytes, raw: Raw) -> int:
    """Return the size of the content of a field in bytes; of a sparse file, the size once unpacked."""
    entry = Entry._make(raw)
    return entry.real if entry.sparse else lookup.located(field, raw).size


def _offset(lookup: FieldLookup, field: bytes, raw: Raw) -> int:
    return lookup.located(field, raw).data


def _header(lookup: FieldLookup, field: bytes, raw: Raw) -> int:
    return Entry._make(raw).start


def _width(lookup: FieldLookup, field: bytes, raw: Raw) -> int:
    return _pixels(lookup, field, raw)[0]


def _height(lookup: FieldLookup, field: bytes, raw: Raw) -> int:
    return _pixels(lookup, field, raw)[1]


def _pixels(lookup: FieldLookup, field: bytes, raw: Raw) -> tuple[int, int]:
    from tarkit.media.headers import PICTURES, picture_size
    from tarkit.media.kinds import HEAD, kind_of

    read, size = lookup.reader(field, raw)
    kind = kind_of(read(0, HEAD), field, size)
    pixels = picture_size(kind, read)
    if pixels is None:
        cut = f"is {kind} whose header has no size that can be read"
        raise lookup.bad(field, cut if kind in PICTURES else "is not a picture of a known format")
    return pixels


def _digest() -> Callable[[bytes | memoryview], str]:
    from hashlib import sha256

    return lambda content: sha256(content).hexdigest()


def _sha256(lookup: FieldLookup, field: bytes, raw: Raw) -> str:
    from hashlib import sha256

    _, _, _, size, _, kind, _, real = raw
    if kind == block.REGULAR and real < 0 and size <= WHOLE:  # at once: 15 % of `--unique-by sha256.F` of 10 kB
        return sha256(lookup.content(field, raw, WHOLE)).hexdigest()
    digest = sha256()
    for piece in lookup.pieces(field, raw):
        digest.update(piece)
    return digest.hexdigest()


def _phash(lookup: FieldLookup, field: bytes, raw: Raw) -> str:
    from tarkit.decoding.phash import difference_hash
    from tarkit.media.limits import DEFAULT

    data = lookup.content(field, raw, DEFAULT)
    return f"{_decoded(lookup, field, 'a picture that can be decoded', lambda: difference_hash(data)):016x}"


def _duration(lookup: FieldLookup, field: bytes, raw: Raw) -> float:
    from tarkit.media.duration import seconds

    read, size = lookup.reader(field, raw)
    length: float | None = _decoded(lookup, field, "a sound whose header can be read", lambda: seconds(read, size))
    if length is None:
        raise lookup.bad(field, "is a sound whose header does not say how long it is")
    return length


def _lines(lookup: FieldLookup, field: bytes, raw: Raw) -> int:
    from codecs import getincrementaldecoder

    decoder, count, last = getincrementaldecoder("utf-8")(), 0, ""
    try:
        for piece in lookup.pieces(field, raw):
            if text := decoder.decode(piece):
                count, last = count + text.count("\n"), text
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        raise lookup.bad(field, "is not text in UTF-8") from None
    return count + (last != "" and not last.endswith("\n"))


def _ok(lookup: FieldLookup, field: bytes, raw: Raw) -> bool:
    from tarkit.media.limits import DEFAULT, NotDecoded
    from tarkit.media.whole import content_fault, is_decodable

    name = os.fsdecode(field)
    if not is_decodable(name):
        raise lookup.bad(field, "has no decoder that could say whether it is whole")
    try:
        return content_fault(name, lookup.content(field, raw, DEFAULT)) is None
    except NotDecoded as error:
        raise lookup.bad(field, f"is not decoded: {error}") from None


def _decoded(lookup: FieldLookup, field: bytes, content: str, decode: Callable[[], Any]) -> Any:
    """Return what `decode` returns; its errors are problems of a field that is not `content`."""
    from tarkit.media.coding import error_text

    try:
        return decode()
    except (MissingLibrary, Problem):
        raise
    except Exception as error:  # of a library, which raises any for damaged content
        raise lookup.bad(field, f"is not {content}: {error_text(error)}") from None


PROPERTIES = {
    "size": Property("size of a field in bytes", _size, "integer, bytes", "the header of the entry"),
    "offset": Property("offset of a field", _offset, "integer, bytes from the start of the archive", "the header"),
    "header": Property(
        "offset of the headers of a field",
        _header,
        "integer, bytes from the start of the archive",
        "the header",
    ),
    "width": Property("width of a picture", _width, "integer, pixels as stored", "the header of the picture"),
    "height": Property("height of a picture", _height, "integer, pixels as stored", "the header of the picture"),
    "sha256": Property("SHA-256 of a field", _sha256, "text, 64 hexadecimal digits", "the content", "", _digest),
    "phash": Property(
        "perceptual hash of a picture",
        _phash,
        "text, 16 hexadecimal digits",
        "the content; the picture is decoded at reduced size",
        "`images`",
    ),
    "duration": Property(
        "length of a sound or a video",
        _duration,
        "number, seconds",
        "the header, of Ogg the end too; of mp3 without a header of Xing all frames",
        "`sound`, but for wav and flac; `video` for video and m4a",
    ),
    "lines": Property("number of lines of a text", _lines, "integer", "the content"),
    "ok": Property(
        "whether a field is whole",
        _ok,
        "true or false",
        "the content, which is decoded in full",
        "that of the content",
    ),
}
"""The words before the name of a field."""
