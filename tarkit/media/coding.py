"""Decode fields to values by the name of the field, and encode values by that name and their type.

The part of the name after its last dot decides, in any case: `seg.PNG` is a picture.

`KINDS` is the table of the kinds of values, with the text for the table in `docs/formats`. Fields of other names are
bytes, and take bytes, or str as UTF-8. A name that ends in `.gz` is that of a field whose content is compressed.

Bytes are accepted for every field and written unchanged. A value that equals the decoded original is written as the
original bytes, also to another field of the same kind: a JPEG picture that was not changed is not compressed again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from tarkit.errors import MissingLibrary, TarkitError, show
from tarkit.media import coding_arrays as arrays
from tarkit.media import coding_messages as messages
from tarkit.media import coding_pictures as pictures
from tarkit.media import coding_sound as sound
from tarkit.media import coding_tenbin as tenbin
from tarkit.media import coding_torch as tensors
from tarkit.media.coding_gzip import compress, expand
from tarkit.media.equality import equal
from tarkit.media.limits import compressed_field

MOST_NAMES = 1000  # of fields, whose functions are remembered: archives have few
_LOSSY = frozenset(("jpg", "jpeg", "jpe", "jfif", "img", "image", "webp", "mp3", "ogg"))
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")  # in the text of an object, which differs in each run
_INTEGER = re.compile(rb"\s*[-+]?[0-9]+\s*")


class ValueKind(NamedTuple):
    """The functions for the values of some fields; all three may raise any exception.

    Attributes:
        name: that of the kind.
        fields: the extensions of the fields, separated by spaces.
        decode: returns the value.
        encode: is called with the extension and the value, and returns the bytes.
        same: returns whether a value equals the decoded bytes; None where `equality.equal` says that.
        value: the decoded value, for the documentation.
        takes: the values that can be encoded.
        refused: content and values that are errors.
        extra: the extra of tarkit that installs the library.
    """

    name: str
    fields: str
    decode: Callable[[bytes], Any]
    encode: Callable[[str, Any], bytes]
    same: Callable[[Any, bytes], bool] | None = None
    value: str = ""
    takes: str = "the same"
    refused: str = ""
    extra: str = ""

    def equals(self, value: Any, original: bytes) -> bool:
        return equal(value, self.decode(original)) if self.same is None else self.same(value, original)


def extension(field: str) -> str:
    """Return the part of a field's name that decides: after its last dot, in lower case, without an ending `.gz`."""
    return field.lower().removesuffix(".gz").rpartition(".")[2]


def is_compressed(field: str) -> bool:
    """Whether the name of a field says that its content is compressed with gzip."""
    return field[-3:].lower() == ".gz"


def is_lossy(field: str, value: Any) -> bool:
    """Whether the bytes of a field, of a value that it takes, may decode to another value."""
    name = extension(field)
    if name in _LOSSY:
        return True
    kind = _KINDS.get(name)
    if kind is None or kind.name not in ("picture", "sound"):
        return False
    dtype = str(getattr(value[0] if isinstance(value, (tuple, list)) and value else value, "dtype", ""))
    return "float" in dtype and (name, dtype) != ("wav", "float32")


class Coder:
    """Decode and encode fields. With `pickles` also pickles, which can run any code."""

    def __init__(self, pickles: bool = False) -> None:
        self._kinds: dict[tuple[str, bool], ValueKind | None] = {}
        self._pickles = pickles

    def kind(self, field: str) -> ValueKind | None:
        """Return the kind of a field, None for one that stays bytes."""
        name = extension(field), is_compressed(field)
        try:
            return self._kinds[name]
        except KeyError:
            if len(self._kinds) >= MOST_NAMES:
                self._kinds.clear()
            kind = (_PICKLED.get(name[0]) if self._pickles else None) or _KINDS.get(name[0])
            kind = self._kinds[name] = compressed(kind) if kind is not None and name[1] else kind
            return kind  # another thread may clear the dict

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
        # not of numbers: a small one that was computed is the same object as one that was decoded
        self._origin = {id(value): field for field, value in self.values.items() if not isinstance(value, (int, float))}

    def encode(self, field: str, value: Any) -> bytes:
        """Return the bytes of a value of a field: the original ones if the value is equal. Raises TarkitError."""
        kind = None if isinstance(value, (bytes, bytearray, memoryview)) else self._coder.kind(field)
        if kind is not None:
            for origin in dict.fromkeys((field, self._origin.get(id(value), field))):
                original = self._raw.get(origin)
                if original is not None and self._coder.kind(origin) is kind:
                    try:
                        if kind.equals(value, original):
                            return original
                    except MissingLibrary:
                        raise
                    except Exception as error:
                        raise name_error(field, "cannot be compared with the original", error) from error
        return self._coder.encode(field, value)


def compressed(kind: ValueKind) -> ValueKind:
    """Return the kind of fields whose content is that of another kind, compressed."""
    return kind._replace(
        decode=partial(_decode_expanded, kind),
        encode=partial(_encode_compressed, kind),
        same=partial(_equals_expanded, kind),
    )


def _decode_expanded(kind: ValueKind, data: bytes) -> Any:
    with compressed_field(len(data)):
        return kind.decode(expand(data))


def _encode_compressed(kind: ValueKind, name: str, value: Any) -> bytes:
    return compress(kind.encode(name, value))


def _equals_expanded(kind: ValueKind, value: Any, original: bytes) -> bool:
    with compressed_field(len(original)):
        return kind.equals(value, expand(original))


def name_error(field: str, failure: str, error: Exception) -> TarkitError:
    """Return an error of a field in one line, with the class of an exception of another library."""
    if isinstance(error, TarkitError):
        return TarkitError(f"field {show(field)}: {error}", error.hint)
    return TarkitError(f"field {show(field)} {failure}: {error_text(error)}")


def error_text(error: Exception) -> str:
    """Return an error in one line: its text, with the class of an exception of another library."""
    if isinstance(error, TarkitError):
        return str(error)
    text = _ADDRESS.sub("", " ".join(str(error).split()))
    return f"{type(error).__name__}{': ' if text else ''}{text}"


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


def _encode_json(name: str, value: Any) -> bytes:
    _check_keys(value)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can represent
        if pair := _SURROGATES.search(text):
            raise TarkitError(
                f"text has the surrogates {pair[0]!a} one after another, which JSON has for one character",
                r"text.encode('utf-16', 'surrogatepass').decode('utf-16') makes it one",
            ) from None
        return json.dumps(value, allow_nan=False).encode()


def _check_keys(value: Any) -> None:
    """Raise TarkitError for keys that are not str: JSON would turn them into str, and two of them perhaps into one."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TarkitError(f"the key {key!r} of a dict is {_type(key)}; JSON has str alone", "str() makes one")
            _check_keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_keys(item)


def _decode_lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def _encode_lines(name: str, value: Any) -> bytes:
    if not isinstance(value, (list, tuple)):
        raise TarkitError(f"it takes a list, an item for each line, not {_type(value)}")
    return b"".join(_encode_json(name, item) + b"\n" for item in value)


def _decode_pickle(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)


def _encode_pickle(name: str, value: Any) -> bytes:
    import pickle

    return pickle.dumps(value, protocol=4)


def _same_pickle(value: Any, original: bytes) -> bool:
    return _encode_pickle("", value) == _encode_pickle("", _decode_pickle(original))


def _same_json(value: Any, original: bytes, decode: Callable[[bytes], Any] = json.loads) -> bool:
    """Return whether values have the same JSON text, NaN included: it differs for 1, True and 1.0."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return text == json.dumps(decode(original), ensure_ascii=False)


def _picture(fields: str, format: str) -> ValueKind:
    return ValueKind(
        "picture",
        fields,
        pictures.decode,
        partial(pictures.encode, format),
        pictures.same,
        "Pillow image; its pixels are decoded when they are read. `decode=` has other forms of pictures",
        "Pillow image; numpy array, height x width x 1, 3 or 4, or torch tensor, 1, 3 or 4 x height x width: of uint8, "
        "or of numbers from 0 to 1; arrays of uint16 for png. JPEG and WebP have quality 95",
        "other content than JPEG, PNG, WebP, GIF, BMP, TIFF and PPM; several channels of more than 8 bits, and values "
        "that Pillow would scale; modes and transparent colours that the format lacks; changed animations",
        "images",
    )


KINDS = (
    ValueKind(
        "text",
        "txt text transcript html htm",
        bytes.decode,
        _encode_text,
        value="`str`, of UTF-8",
        takes="`str`",
        refused="bytes that are not UTF-8",
    ),
    ValueKind(
        "integer",
        "cls cls2 class index inx count int",
        _decode_integer,
        _encode_integer,
        value="`int`, of decimal digits, with white space around them",
        takes="integers; `TarWriter` and `map` take float and str too, as text",
        refused="other text; bool",
    ),
    ValueKind(
        "json",
        "json jsn",
        json.loads,
        _encode_json,
        _same_json,
        "dict, list, str, int, float, bool, None",
        "the same, and tuples",
        "NaN, keys that are no str, and pairs of surrogates in text, when it is encoded",
    ),
    ValueKind(
        "lines",
        "jsonl ndjson",
        _decode_lines,
        _encode_lines,
        partial(_same_json, decode=_decode_lines),
        "list of such values, one for each line",
        "list or tuple of these",
        "as for json",
    ),
    ValueKind(
        "array",
        "npy",
        arrays.decode,
        arrays.encode,
        arrays.same,
        "numpy array, with the shape and type that it was stored with",
        "numpy array or scalar",
        "masked arrays; arrays of Python objects, unless pickles are allowed",
        "numpy",
    ),
    ValueKind(
        "arrays",
        "npz",
        arrays.decode,
        arrays.encode,
        arrays.same,
        "dict of numpy arrays",
        "the same",
        "as for npy; names with NUL; the name `a` beside `a.npy`, which numpy would mistake for each other",
        "numpy",
    ),
    ValueKind(
        "tenbin",
        "ten tenbin tb",
        tenbin.decode,
        tenbin.encode,
        value="list of numpy arrays",
        takes="list or tuple of numpy arrays, or one; written as little-endian",
        refused="masked arrays; types other than float16 to float64, int8 to int64, uint8 to uint64; more than 9 "
        "dimensions",
        extra="numpy",
    ),
    ValueKind(
        "torch",
        "pth",
        tensors.decode,
        tensors.encode,
        value="what `torch.save` was given, with tensors on the CPU",
        takes="tensors, and dicts, lists, numbers, str of these",
        refused="other objects, unless pickles are allowed",
        extra="torch",
    ),
    ValueKind(
        "msgpack",
        "mp msgpack msg",
        messages.decode_msgpack,
        messages.encode_msgpack,
        value="dict, list, str, bytes, int, float, bool, None, `msgpack.Timestamp`",
        takes="the same; a tuple is a list",
        refused="data after the value; integers of more than 64 bits",
        extra="msgpack",
    ),
    ValueKind(
        "cbor",
        "cbor",
        messages.decode_cbor,
        messages.encode_cbor,
        value="dict, list, str, bytes, int, float, bool, None, and what the tags of CBOR stand for",
        takes="the same; a tuple is a list",
        refused="data after the value; values that would come back as others: frozenset, flags of patterns, times in "
        "named zones, Decimal NaN",
        extra="cbor",
    ),
    ValueKind(
        "sound",
        "wav flac mp3 ogg",
        sound.decode,
        sound.encode,
        value="tuple of a numpy array of float32, frames x channels, from -1 to 1, and the frames a second, an int",
        takes="(array, rate); wav keeps float32, int16 and int32, flac int16, and 24 bits of float32; mp3 is lossy",
        refused="values out of range; ogg is not written, since its bytes would differ each time",
        extra="sound",
    ),
    _picture("jpg jpeg jpe jfif img image", "JPEG"),
    _picture("png", "PNG"),
    _picture("webp", "WEBP"),
    _picture("gif", "GIF"),
    _picture("bmp", "BMP"),
    _picture("tif tiff", "TIFF"),
    _picture("ppm pgm pbm pnm", "PPM"),
)
_ALLOWED: dict[str, Any] = {"pickles": True}
PICKLED_KINDS = (
    ValueKind(
        "pickle",
        "pkl pickle pyd",
        _decode_pickle,
        _encode_pickle,
        _same_pickle,
        "what was pickled; bytes unless pickles are allowed",
        "anything that can be pickled; bytes unless pickles are allowed",
    ),
    *(
        kind._replace(
            decode=partial(kind.decode, **_ALLOWED),
            encode=partial(kind.encode, **_ALLOWED),
            same=None if kind.same is None else partial(kind.same, **_ALLOWED),
        )
        for kind in KINDS
        if kind.name in ("array", "arrays", "torch")
    ),
)
"""The kinds of fields where pickles are allowed, in place of those of the same names."""

_KINDS = {name: kind for kind in KINDS for name in kind.fields.split()}
_PICKLED = {name: kind for kind in PICKLED_KINDS for name in kind.fields.split()}
