"""Decode fields to values by the name of the field, and encode values by that name and their type.

The part of the name after its last dot decides, in any case: `seg.PNG` is a picture.

| field                                         | decoded                    | encoded from                            |
|-----------------------------------------------|----------------------------|-----------------------------------------|
| txt text transcript                           | str, of UTF-8              | str                                     |
| cls cls2 class index inx count int            | int, of decimal digits     | integers; neither bool nor float        |
| json jsn                                      | what the JSON says         | the same types; no NaN, keys are str    |
| jsonl ndjson                                  | list of these, one a line  | list or tuple of these                  |
| npy                                           | numpy array                | numpy array or scalar                   |
| npz                                           | dict of numpy arrays       | the same                                |
| jpg jpeg png webp gif bmp tif tiff ppm pgm .. | Pillow image, loaded late  | Pillow image, or array of its pixels    |
| pkl pickle pyd, only where pickle is allowed  | what was pickled           | anything that can be pickled            |
| all others                                    | bytes                      | bytes, str as UTF-8                     |

Bytes are accepted for every field and written unchanged. A value that equals the decoded original is written as the
original bytes, also to another field of the same kind: a JPEG picture that was not changed is not compressed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from tarkit.errors import MissingLibrary, TarkitError, show
from tarkit.media import coding_arrays as arrays
from tarkit.media import coding_pictures as pictures
from tarkit.media.coding_gzip import compress, expand

_INTEGER = re.compile(rb"\s*[-+]?[0-9]+\s*")


class ValueKind(NamedTuple):
    """The functions for the values of some fields; all three may raise any exception.

    `encode` is called with the extension and the value. `same` returns whether a value equals the decoded bytes.
    """

    name: str
    decode: Callable[[bytes], Any]
    encode: Callable[[str, Any], bytes]
    same: Callable[[Any, bytes], bool]


def extension(field: str) -> str:
    """Return the part of a field's name that decides: after its last dot, in lower case, without an ending `.gz`."""
    return field.lower().removesuffix(".gz").rpartition(".")[2]


def is_compressed(field: str) -> bool:
    """Whether the name of a field says that its content is compressed with gzip."""
    return field[-3:].lower() == ".gz"


class Coder:
    """Decode and encode fields. With `pickles` also pickles, which can run any code."""

    def __init__(self, pickles: bool = False) -> None:
        self._kinds: dict[tuple[str, bool], ValueKind | None] = {}
        self._pickles = pickles

    def kind(self, field: str) -> ValueKind | None:
        """Return the kind of a field, None for one that stays bytes."""
        name = extension(field), is_compressed(field)
        if name not in self._kinds:
            kind = (_PICKLED.get(name[0]) if self._pickles else None) or _KINDS.get(name[0])
            self._kinds[name] = compressed(kind) if kind is not None and name[1] else kind
        return self._kinds[name]

    def decode(self, field: str, data: bytes) -> Any:
        """Return the value of a field. Raises TarkitError if it cannot be decoded."""
        kind = self.kind(field)
        if kind is None:
            return data
        try:
            return kind.decode(data)
        except MissingLibrary:
            raise
        except Exception as error:
            raise name_error(field, "cannot be decoded", error) from error

    def encode(self, field: str, value: Any) -> bytes:
        """Return the bytes of a value. Raises TarkitError if the field cannot hold it."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        kind = self.kind(field)
        try:
            return _encode_other(field, value) if kind is None else kind.encode(extension(field), value)
        except MissingLibrary:
            raise
        except Exception as error:
            raise name_error(field, "cannot be encoded", error) from error


class Coded:
    """The decoded values of a sample, with its bytes for values that come back unchanged."""

    def __init__(self, coder: Coder, raw: Mapping[str, bytes]) -> None:
        """`raw`: fields and their bytes. Raises TarkitError."""
        self._coder = coder
        self._raw = raw
        self.values = {field: coder.decode(field, data) for field, data in raw.items()}
        self._kept = list(self.values.values())  # kept alive, so that no other object gets the same id
        self._origin = {id(value): field for field, value in self.values.items()}

    def encode(self, field: str, value: Any) -> bytes:
        """Return the bytes of a value of a field: the original ones if the value is equal. Raises TarkitError."""
        kind = None if isinstance(value, (bytes, bytearray, memoryview)) else self._coder.kind(field)
        if kind is not None:
            for origin in dict.fromkeys((field, self._origin.get(id(value), field))):
                original = self._raw.get(origin)
                if original is not None and self._coder.kind(origin) is kind:
                    try:
                        if kind.same(value, original):
                            return original
                    except MissingLibrary:
                        raise
                    except Exception as error:
                        raise name_error(field, "cannot be compared with the original", error) from error
        return self._coder.encode(field, value)


def compressed(kind: ValueKind) -> ValueKind:
    """Return the kind of fields whose content is that of another kind, compressed."""
    return ValueKind(
        kind.name, partial(_decode_expanded, kind), partial(_encode_compressed, kind), partial(_same_expanded, kind)
    )


def _decode_expanded(kind: ValueKind, data: bytes) -> Any:
    return kind.decode(expand(data))


def _encode_compressed(kind: ValueKind, name: str, value: Any) -> bytes:
    return compress(kind.encode(name, value))


def _same_expanded(kind: ValueKind, value: Any, original: bytes) -> bool:
    return kind.same(value, expand(original))


def name_error(field: str, what: str, error: Exception) -> TarkitError:
    """Return an error of a field in one line, with the class of an exception of another library."""
    if isinstance(error, TarkitError):
        return TarkitError(f"field {show(field)}: {error}", error.hint)
    text = " ".join(str(error).split())
    return TarkitError(f"field {show(field)} {what}: {type(error).__name__}{': ' if text else ''}{text}")


def _encode_other(field: str, value: Any) -> bytes:
    if isinstance(value, str):
        return compress(value.encode()) if is_compressed(field) else value.encode()
    raise TarkitError(
        f"it takes bytes or str, not {_type(value)}",
        "encode it yourself, or use a field name with a codec, such as .json",
    )


def _type(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _encode_text(name: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise TarkitError(f"it takes str or bytes, not {_type(value)}", f"str() makes text of it: {name} is for text")
    return value.encode()


def _decode_integer(data: bytes) -> int:
    if not _INTEGER.fullmatch(data):
        raise TarkitError(f"{show(data[:40])} is not an integer, as cls, index, int and the like must be")
    return int(data)


def _encode_integer(name: str, value: Any) -> bytes:
    if type(value) is bool or not hasattr(type(value), "__index__"):
        raise TarkitError(f"it takes an integer, not {_type(value)}", "int() makes one of it")
    return b"%d" % value.__index__()


def _decode_json(data: bytes) -> Any:
    import json

    return json.loads(data)


def _encode_json(name: str, value: Any) -> bytes:
    import json

    _check_keys(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can represent
        return json.dumps(value, allow_nan=False).encode()


def _check_keys(value: Any) -> None:
    """Raise TarkitError for keys that are not str: JSON would turn them into str, and two of them perhaps into one."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise TarkitError(f"the key {key!r} of a dict is {_type(key)}; JSON has str alone", "str() makes one")
            _check_keys(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _check_keys(each)


def _decode_lines(data: bytes) -> list[Any]:
    return [_decode_json(line) for line in data.splitlines() if line.strip()]


def _encode_lines(name: str, value: Any) -> bytes:
    if not isinstance(value, (list, tuple)):
        raise TarkitError(f"it takes a list, an item for each line, not {_type(value)}")
    return b"".join(_encode_json(name, each) + b"\n" for each in value)


def _decode_pickle(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)


def _encode_pickle(name: str, value: Any) -> bytes:
    import pickle

    return pickle.dumps(value, protocol=4)


def _same_pickle(value: Any, original: bytes) -> bool:
    return _encode_pickle("", value) == _encode_pickle("", _decode_pickle(original))


def _same_text(value: Any, original: bytes) -> bool:
    return isinstance(value, str) and value.encode("utf-8", "surrogatepass") == original


def _same_integer(value: Any, original: bytes) -> bool:
    return type(value) is int and value == int(original)


def _same_json(value: Any, original: bytes) -> bool:
    text = _dumped(value)
    return text is not None and text == _dumped(_decode_json(original))


def _same_lines(value: Any, original: bytes) -> bool:
    text = _dumped(value)
    return text is not None and text == _dumped(_decode_lines(original))


def _dumped(value: Any) -> str | None:
    """Return the JSON text of a value, NaN included, or None. The text differs for 1, True and 1.0."""
    import json

    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None


def _kinds(
    name: str,
    names: str,
    decode: Callable[..., Any],
    encode: Callable[..., bytes],
    same: Callable[..., bool],
    **more: Any,
) -> dict[str, ValueKind]:
    """Return one kind for several names."""
    kind = ValueKind(name, partial(decode, **more), partial(encode, **more), partial(same, **more))
    return dict.fromkeys(names.split(), kind)


def _pictures(names: str, format: str) -> dict[str, ValueKind]:
    return _kinds("picture", names, pictures.decode, partial(pictures.encode, format), pictures.same)


_KINDS = {
    **_kinds("text", "txt text transcript", bytes.decode, _encode_text, _same_text),
    **_kinds("integer", "cls cls2 class index inx count int", _decode_integer, _encode_integer, _same_integer),
    **_kinds("json", "json jsn", _decode_json, _encode_json, _same_json),
    **_kinds("jsonl", "jsonl ndjson", _decode_lines, _encode_lines, _same_lines),
    **_kinds("array", "npy", arrays.decode, arrays.encode, arrays.same),
    **_kinds("arrays", "npz", arrays.decode, arrays.encode, arrays.same),
    **_pictures("jpg jpeg jpe jfif", "JPEG"),
    **_pictures("png", "PNG"),
    **_pictures("webp", "WEBP"),
    **_pictures("gif", "GIF"),
    **_pictures("bmp", "BMP"),
    **_pictures("tif tiff", "TIFF"),
    **_pictures("ppm", "PPM"),
    **_pictures("pgm", "PPM"),
    **_pictures("pbm", "PPM"),
    **_pictures("pnm", "PPM"),
}
_PICKLED = {
    **_kinds("pickle", "pkl pickle pyd", _decode_pickle, _encode_pickle, _same_pickle),
    **_kinds("array", "npy", arrays.decode, arrays.encode, arrays.same, pickles=True),
    **_kinds("arrays", "npz", arrays.decode, arrays.encode, arrays.same, pickles=True),
}
