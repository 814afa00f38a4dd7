"""Is the content of a field whole? Decoders conceal much damage: a picture without its lower half is grey there.

Each kind of the table in `coding` is decoded. Those with lenient decoders have a check of their own: pictures, sound,
JSON. What a format cannot tell cannot be seen: a changed byte in BMP, TIFF, PPM, WebP, wav and text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tarkit.errors import MissingLibrary, TarkitError, Usage, printable
from tarkit.media import whole_pictures, whole_sound
from tarkit.media.coding import Coder, is_compressed
from tarkit.media.coding_gzip import expand
from tarkit.media.limits import TooLarge, compressed_field, decode_limit, limit_words

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
        TooLarge: it would take more memory than its size allows.
        Usage: TARKIT_DECODE_LIMIT is invalid.
    """
    check = _check_of(field.removesuffix(".gz").removesuffix(".GZ"))
    try:
        if not is_compressed(field):
            check(data)
        else:
            with compressed_field(len(data)):
                check(expand(data))
    except (MissingLibrary, TooLarge, Usage):
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
}
"""The checks of kinds whose decoders are lenient, by name."""
