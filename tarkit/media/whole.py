"""Is the content of a field whole? Decoders conceal much damage: a picture without its lower half is grey there.

Each kind of the table in `coding` is decoded. Those with lenient decoders have a check of their own: pictures, sound,
JSON. What a format cannot tell cannot be seen: a changed byte in BMP, TIFF, PPM, WebP, wav and text.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from tarkit.errors import MissingLibrary, TarkitError, Usage, printable
from tarkit.media import coding_arrays as arrays
from tarkit.media import coding_torch as tensors
from tarkit.media import whole_pictures, whole_sound
from tarkit.media.coding import Coder, is_compressed
from tarkit.media.coding_gzip import expand
from tarkit.media.limits import NotDecoded, TooLarge, compressed_field, decode_limit, limit_words

_OBJECTS = frozenset(("json", "msgpack", "cbor"))
_RATIO = 16  # so many times less content of these is decoded: an empty list of one to three bytes takes 64 of memory
_LONGEST = 200  # characters of a reason
_OBJECT = re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>")
_CODER = Coder()


def content_fault(field: str, data: bytes) -> str | None:
    """Return what is wrong with the content of a field, in one line; None if it is whole, or nothing can decode it.

    Args:
        field: its name, whose ending says what it should be: `jpg`, `seg.png`, `json.gz`.
        data: all bytes of its content.

    Raises:
        MissingLibrary: the library that decodes it is not installed.
        NotDecoded: it may be whole, but takes too much memory, or cannot be decoded without running code.
        Usage: TARKIT_DECODE_LIMIT is invalid.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large pictures, odd metadata, arrays of old versions
            _check(field, data)
    except (MissingLibrary, NotDecoded, Usage):
        raise
    except Exception as error:  # of any library
        return _reason(error, data)
    return None


def is_decodable(field: str) -> bool:
    """Return whether a name says what the content of a field should be: there is a decoder for it."""
    return is_compressed(field) or _CODER.kind(field) is not None


def load_decoder(field: str) -> None:
    """Import the libraries that decode a field. Raises MissingLibrary if one is not installed."""
    content_fault(field[:-3] if is_compressed(field) else field, b"")


def _check(field: str, data: bytes) -> None:
    if not is_compressed(field):
        _check_of(field)(data)
    else:
        with compressed_field(len(data)):
            _check_of(field[:-3])(expand(data))


def _check_of(name: str) -> Callable[[bytes], Any]:
    kind = _CODER.kind(name)
    if kind is None:
        return len
    check = _STRICT.get(kind.name, kind.decode)
    return partial(_check_objects, check) if kind.name in _OBJECTS else check


def _check_objects(check: Callable[[bytes], Any], data: bytes) -> None:
    """Check content whose value has many small objects, if these are sure to fit into memory."""
    limit = decode_limit(0) // _RATIO
    if len(data) > limit:
        raise TooLarge(limit_words(len(data), limit))
    check(data)


def _check_json(data: bytes) -> None:
    json.loads(data.decode(json.detect_encoding(data)), parse_constant=_refuse_constant)


def _check_lines(data: bytes) -> None:
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                _check_json(line)
            except (ValueError, RecursionError, TarkitError) as error:
                raise TarkitError(f"line {number}: {_reason(error, line)}") from None


def _check_arrays(data: bytes) -> None:
    try:
        arrays.decode(data)
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise NotDecoded("arrays of Python objects are pickles, which can run any code") from None
        raise


def _check_torch(data: bytes) -> None:
    try:
        tensors.decode(data)
    except TarkitError as error:
        if data.startswith(b"PK") and not isinstance(error, (MissingLibrary, NotDecoded)):  # it has checksums
            raise NotDecoded("it has other objects than tensors, numbers, str, list, tuple and dict") from None
        raise


def _refuse_constant(name: str) -> None:
    raise TarkitError(f"{name} is not JSON")


def _reason(error: Exception, data: bytes) -> str:
    if not data:
        return "it is empty"
    text = printable(_OBJECT.sub("it", " ".join(str(error).split())))
    if not isinstance(error, TarkitError):
        text = f"{type(error).__name__}{': ' if text else ', says its decoder'}{text}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


_STRICT: dict[str, Callable[[bytes], Any]] = {
    "picture": whole_pictures.check,
    "sound": whole_sound.check,
    "json": _check_json,
    "lines": _check_lines,
    "array": _check_arrays,
    "arrays": _check_arrays,
    "torch": _check_torch,
}
"""The checks of kinds whose decoders are lenient, by name."""
