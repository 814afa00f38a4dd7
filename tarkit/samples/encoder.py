"""Encode Python values as samples: the entries of an archive, with the bytes of each field."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial

from tarkit.errors import TarkitError, Usage, show
from tarkit.media.coding import Coder, extension, is_compressed
from tarkit.media.coding_gzip import compress
from tarkit.samples.sample import is_safe, split_name
from tarkit.tar.header import encode
from tarkit.tar.reader import Entry
from tarkit.tar.writer import PADS

Value = object
"""A value of a field: bytes, or a value that the table of codecs encodes for a field of that name."""

FieldEncoder = Callable[[str, Value], bytes]
"""A function of the name of a field and its value."""

_TEXT_OF_NUMBERS = frozenset(("txt", "text", "transcript", "cls", "cls2", "class", "index", "inx", "count", "int"))
"""Fields of the table of codecs that hold a number as its decimal text."""


_NUMBERS = frozenset(("text", "integer", "json", "lines"))  # kinds of fields that take numbers of numpy as Python's


class SampleEncoder:
    """An encoder of samples: from a key and values to the bytes of an archive."""

    def __init__(self, mtime: int, allow_pickle: bool = False, encoder: bool = True) -> None:
        """Set the time of all entries, in seconds since 1970, whether pickles are written, and whether values are."""
        self._mtime = mtime
        if not encoder:
            if allow_pickle:
                raise Usage("allow_pickle cannot be used with encoder=False, which takes only bytes")
            self._encode: FieldEncoder = _only_bytes
            return
        self._encode = partial(encode_value, coder=Coder(True)) if allow_pickle else encode_value

    def encode(self, key: str, fields: Mapping[str, Value]) -> tuple[bytes, bytes, list[Entry]]:
        """Return the key as bytes, the bytes of the entries, and the position of each entry.

        Raises TarkitError for a name that no field or key can have, and TypeError for a value that has no encoding.
        """
        raw = _name_bytes("key", key)
        if not isinstance(fields, Mapping):
            raise TypeError(f"fields are a dict of names and values, not {type(fields).__name__}")
        encode_field: FieldEncoder = getattr(fields, "_encode_value", self._encode)  # of a `Sample`
        if not fields:
            raise TarkitError(f"the sample {show(key)} has no field", "a sample is at least one file")
        pieces: list[bytes] = []
        entries: list[Entry] = []
        at = 0
        for field, value in fields.items():
            name = raw + b"." + _name_bytes("field", field)
            if field == "__key__" or field.startswith("."):
                hint = "the key is the first argument; a field is named without the dot: 'txt', not '.txt'"
                raise Usage(f"invalid name of a field: {show(field)}", hint)
            if split_name(name) != (raw, name[len(raw) + 1 :]) or not name[len(raw) + 1 :]:
                raise TarkitError(
                    f"{show(name)} would be read as another sample",
                    "a key is not empty and has no dot after its last slash; a field has no slash",
                )
            if not is_safe(name):
                raise TarkitError(f"the name {show(name)} is absolute, or has .. or a NUL in it [unsafe-name]")
            data = encode_field(field, value)
            header = encode(name, len(data), mtime=self._mtime)
            start, content = at, at + len(header)
            at = content + len(data) + len(PADS[len(data) % 512])
            pieces += (header, data, PADS[len(data) % 512])
            entries.append(Entry(name, start, content, len(data), at, b"0", b"", -1))
        if len({entry.name for entry in entries}) < len(entries):
            raise TarkitError(f"two fields of {show(key)} have the same name in bytes [duplicate-entry]")
        return raw, b"".join(pieces), entries


def _only_bytes(field: str, value: Value) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"the field {show(field)} is bytes with encoder=False, not {type(value).__name__}")
    return bytes(value)


_CODER = Coder()


def encode_value(field: str, value: Value, coder: Coder = _CODER) -> bytes:
    """Return the bytes of a value for a field of this name.

    bytes are taken as they are, str is UTF-8, int and float, those of numpy too, are decimal text. Other values are
    encoded by the name of the field: json, npy, npz, pictures and so on. All but bytes are compressed for a name that
    ends in `.gz`. A `coder` that writes pickles requires `allow_pickle`.

    Raises:
        TypeError: a value that has no encoding.
        TarkitError: a value that the field cannot hold.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    kind = coder.kind(field)
    numpy = sys.modules.get("numpy")
    if numpy is not None and (kind is None or kind.name in _NUMBERS) and isinstance(value, numpy.number):
        value = value.item()  # the equal number of Python
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and (kind is None or extension(field) in _TEXT_OF_NUMBERS):
        value = (int if isinstance(value, int) else float).__repr__(value)  # whatever a subclass prints
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogateescape")
        return compress(text) if is_compressed(field) else text
    if kind is None:
        raise TypeError(
            f"field {field!r}: {type(value).__name__} has no encoding here; give it bytes, str, int or float, "
            "or the field a name that says how, such as json or npy"
        )
    return coder.encode(field, value)


def _name_bytes(role: str, name: str) -> bytes:
    """Return a key or a field as bytes. Raises TypeError unless it is a str, TarkitError for invalid Unicode."""
    if not isinstance(name, str):
        raise TypeError(f"a {role} is a str, not {type(name).__name__}")
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise TarkitError(f"the {role} {show(name)} is no Unicode text") from None
