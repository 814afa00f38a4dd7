"""Values as bytes whose byte order is the order of the values: numbers of any size, text, names with numbers in them.

No code is a prefix of another, so concatenated codes compare one after the other, and the complement of all bytes
reverses the order. The first byte is the kind of value; the order of kinds is: nothing, false, true, numbers by value,
text, lists, objects.
"""

from __future__ import annotations

import re

MISSING = b"\x05"  # also JSON's null
FALSE, TRUE = b"\x06", b"\x07"
_LOWEST, _NEGATIVE, _ZERO, _POSITIVE, _HIGHEST, _NAN = b"\x10", b"\x11", b"\x12", b"\x13", b"\x14", b"\x15"
TEXT, LIST, OBJECT = b"\x20", b"\x30", b"\x31"

_FLIP = bytes(range(255, -1, -1))
_NUMBER = re.compile(rb"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,18}))?")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_SPECIAL = re.compile(rb"([+-]?)(?:(inf(?:inity)?)|nan)", re.IGNORECASE)
_DIGITS = re.compile(rb"[0-9]+")
_NEAR = 100  # exponents up to here take one byte
_WHITE = b" \t\r\n\f\v"
_BEGIN = b"+-.0123456789" + _WHITE  # of a number


def reverse(code: bytes) -> bytes:
    """Return the code whose order is the opposite."""
    return code.translate(_FLIP)


def text(raw: bytes, kind: bytes = TEXT) -> bytes:
    """Return the code of bytes."""
    return kind + raw.replace(b"\0", b"\0\xff") + b"\0\0"


def number(raw: bytes) -> bytes | None:
    """Return the code of a decimal number of any length, by its exact value: `12`, `-0.5`, `1e9`; None for other text.

    White space around it is ignored. 1, 1.0 and 1e0 are equal, and so are 0 and -0.
    """
    if raw.isdigit() and len(raw) <= _NEAR:  # in a third of the time
        mantissa = raw.lstrip(b"0")
        return b"%b%c%b\0" % (_POSITIVE, 128 + len(mantissa), mantissa.rstrip(b"0")) if mantissa else _ZERO
    return _number(raw) if raw[:1] in _BEGIN else None  # most text begins with something else


def auto(raw: bytes) -> bytes:
    """Return the code of a decimal number, or of other bytes."""
    return number(raw) or text(raw)


def _number(raw: bytes) -> bytes | None:
    """Return the code of any number; the reference of `number`."""
    match = _NUMBER.fullmatch(raw.strip(_WHITE))
    if match is None:
        return None
    sign, whole, fraction, power = match.groups()
    digits = whole + (fraction or b"")
    if not digits:
        return None
    mantissa = digits.lstrip(b"0")
    if not mantissa:
        return _ZERO
    exponent = len(whole) - len(digits) + len(mantissa) + int(power or 0)  # of 0.MANTISSA
    code = _exponent(exponent) + mantissa.rstrip(b"0") + b"\0"
    return _NEGATIVE + code.translate(_FLIP) if sign == b"-" else _POSITIVE + code


def integer(raw: bytes) -> bytes | None:
    """Return the code of an integer in decimal, of any length; None for other text."""
    return number(raw) if _INTEGER.fullmatch(raw.strip(_WHITE)) else None


def real(raw: bytes) -> bytes | None:
    """Return the code of a number, inf, -inf or nan, which is after all others; None for other text."""
    code = number(raw)
    if code is None:
        match = _SPECIAL.fullmatch(raw.strip(_WHITE))
        if match is not None:
            code = _NAN if match[2] is None else _LOWEST if match[1] == b"-" else _HIGHEST
    return code


def natural(raw: bytes) -> bytes:
    """Return the code of bytes with runs of digits by value: img9 < img10. Equal ones (7, 07) compare by bytes."""
    return text(_DIGITS.sub(_digits, raw)) + text(raw)


def _digits(match: re.Match[bytes]) -> bytes:
    digits = match[0].lstrip(b"0")
    length = len(digits)
    return b"0" + (bytes((length,)) if length < 255 else b"\xff" + length.to_bytes(8, "big")) + digits


def _exponent(value: int) -> bytes:
    if -_NEAR <= value <= _NEAR:
        return bytes((128 + value,))
    return (b"\xff" if value > 0 else b"\0") + (value + (1 << 63)).to_bytes(8, "big")
