"""Maps, which are samples in messages, and their encodings.

A map has the key of the sample under `__key__`, and under the name of each field its content, as bytes. Names are text;
a name or key that is not UTF-8 is a byte string. Other names that begin with two underscores are those of other
programs, such as `__url__` of webdataset, and no fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tarkit.errors import MissingLibrary, TarkitError, show
from tarkit.streams.copy import CHUNK
from tarkit.tar.block import padding
from tarkit.tar.header import encode

KEY = "__key__"
LARGEST = 1 << 30
"""Bytes of the largest map: it is in memory as a whole."""

LONGEST = 1 << 20  # items of a list

Split = Callable[[bytes], tuple[bytes, bytes] | None]
"""A function that returns the key and the field of the name of an entry, None if it has none."""

EncodeValue = Callable[[str, Any], bytes]
"""A function of a field's name and a value that returns its bytes; raises TypeError or TarkitError."""


class MalformedMap(TarkitError):
    """A message is no sample; `position` is that of it in its file, if the format says it."""

    def __init__(self, message: str, hint: str | None = None, position: int | None = None) -> None:
        super().__init__(message, hint)
        self.position = position


class TarEntries(NamedTuple):
    """A sample as a part of an archive, with its key."""

    key: bytes
    archive: bytes


def map_to_entries(item: object, split: Split, encode_value: EncodeValue) -> TarEntries:
    """Return the entries of the sample that a map is. Raises MalformedMap."""
    if not isinstance(item, dict):
        raise MalformedMap(f"this is {_kind(item)}, not a map")
    if KEY in item and KEY.encode() in item:
        raise MalformedMap(f"the map has {KEY} twice, as text and as bytes")
    key = item.get(KEY, item.get(KEY.encode()))
    if key is None:
        raise MalformedMap(f"the map has no {KEY}", "is it a sample at all?")
    raw = _bytes("key", key)
    pieces: list[bytes] = []
    names = set()
    for field_name, value in item.items():
        field = _bytes("name of a field", field_name)
        if field.startswith(b"__"):
            continue
        name = raw + b"." + field
        if split(name) != (raw, field) or not field or field.startswith(b"."):
            raise MalformedMap(
                f"the key {show(raw)} with the field {show(field)} would be read as another sample",
                "a key is not empty and has no dot after its last slash; a field has no slash and no dot in front",
            )
        if name in names:
            raise MalformedMap(f"two fields of the sample {show(raw)} are called {show(field)}")
        names.add(name)
        content = value if type(value) is bytes else _encoded(raw, field, value, encode_value)
        try:
            pieces += (encode(name, len(content)), content, bytes(padding(len(content))))
        except ValueError as error:
            raise MalformedMap(f"the sample {show(raw)}: {error}") from None
    if not names:
        raise MalformedMap(f"the sample {show(raw)} has no field")
    return TarEntries(raw, b"".join(pieces))


def _bytes(role: str, name: object) -> bytes:
    if isinstance(name, bytes):
        return name
    if not isinstance(name, str):
        raise MalformedMap(f"the {role} is {_kind(name)}, not text or bytes")
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise MalformedMap(f"the {role} {show(name)} is no Unicode text") from None


def _encoded(key: bytes, field: bytes, value: object, encode_value: EncodeValue) -> bytes:
    """Return the bytes of a value that another program wrote as text, a number, a list or a map."""
    try:
        return encode_value(field.decode("utf-8", "surrogateescape"), value)
    except MissingLibrary:
        raise
    except TarkitError as error:
        raise MalformedMap(f"the sample {show(key)}: {error}", error.hint) from None
    except Exception as error:
        message = f"the sample {show(key)}: the field {show(field)} is {_kind(value)}, which has no encoding there"
        raise MalformedMap(message, "bytes are taken as they are, text is UTF-8, a list or map is for .json") from error


def _kind(value: object) -> str:
    names = {dict: "a map", list: "a list", tuple: "a list", str: "text", bytes: "bytes", type(None): "nothing"}
    return names.get(type(value)) or f"of type {type(value).__name__}"


def text_or_bytes(raw: bytes) -> str | bytes:
    """Return a name as it is written: text if it is UTF-8, else the bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


Unpack = Callable[[Callable[[int], bytes]], Iterator[object]]
"""A function that yields the items of a sequence, which is read by a function of a number of bytes.

It raises IncompleteMap, MalformedMap, and the exceptions of that function.
"""


class Encoding(NamedTuple):
    """The functions of one encoding.

    Attributes:
        pack: returns the bytes of a map.
        unpack: yields the items of a sequence.
    """

    pack: Callable[[dict[Any, Any]], bytes]
    unpack: Unpack


class IncompleteMap(Exception):
    """A sequence ends inside an item, which begins at `position`, if the format says it."""

    def __init__(self, position: int | None = None) -> None:
        super().__init__()
        self.position = position


def read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """Return the next `size` bytes, fewer at the end. Memory is taken for those that are there, not for a claim."""
    data = read(min(size, CHUNK)) if size else b""
    if len(data) == size or not data:
        return data
    pieces, missing = [data], size - len(data)
    while missing and (data := read(min(missing, CHUNK))):
        pieces.append(data)
        missing -= len(data)
    return b"".join(pieces)
