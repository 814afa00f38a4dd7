"""Sizes and numbers as users write them, and as they are written for users."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tarkit.errors import Usage, show

LARGEST = 2**63 - 1
"""The largest number of an option or argument that counts something."""

LONGEST = 10**9
"""The longest time-out in seconds, 31 years: the system takes no longer ones."""

EARLIEST, LATEST = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999 in seconds since 1970: some readers of tar fail or crash on times outside of them."""

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}{tail}": 1000**power for power, letter in enumerate("kmgt", 1) for tail in ("", "b")}
_UNITS |= {f"{letter}{tail}": 1024**power for power, letter in enumerate("kmgt", 1) for tail in ("i", "ib")}

_SIZE = r"(?i)([0-9]{1,30})(?:\.([0-9]{0,30}))?(?:e\+?([0-9]{1,2}))?([a-z]*)"


def parse_count(text: str) -> int | None:
    """Return a number in digits, up to LARGEST; None for any other text."""
    number = int(text) if re.fullmatch("[0-9]{1,19}", text) else None
    return number if number is None or number <= LARGEST else None


def parse_size(text: str, count_option: str | None = None) -> int:
    """Return the bytes of a size: `1e9`, `500M`, `16MiB`, `1.5GB`; K and KB are powers of 1000, Ki and KiB of 1024.

    A fraction of a byte is cut off. Sizes under 512 bytes, which hold no entry, are an error with a hint to the option
    `count_option`, if that is given. Raises `Usage`, also for an empty text, zero, and 2**63 and more.
    """
    match = re.fullmatch(_SIZE, text)
    factor = _UNITS.get(match[4].lower()) if match else None
    if not match or factor is None:
        raise Usage(f"invalid size {show(text)}", "sizes look like 500M, 1.5GB, 16MiB or 1e9 (bytes)")
    whole, decimals, power = match[1], match[2] or "", int(match[3] or 0)
    size: int = int(whole + decimals) * 10**power * factor // 10 ** len(decimals)
    if size > LARGEST:
        raise Usage(f"invalid size {show(text)}: 8 EiB or more")
    if size < 1:
        raise Usage(f"invalid size {show(text)}: the minimum is 1 byte")
    if count_option and size < 512:
        raise Usage(
            f"{show(text)}: a size of {plural(size, 'byte')} holds no entry", f"was {count_option} {text} meant?"
        )
    return size


def scaled(size: float) -> tuple[float, str]:
    """Return bytes in the unit in which they have at most three digits before the point, and this unit."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if size < 999.5:
            return size, unit
        size /= 1000
    return size, "EB"


def size_words(size: float) -> str:
    """Return bytes with three digits and a unit, a power of 1000: 999 B, 1.50 kB, 12.3 MB."""
    value, unit = scaled(size)
    digits = 0 if unit == "B" or value >= 99.95 else 2 if value < 9.995 else 1
    return f"{value:.{digits}f} {unit}"


def and_more(names: Sequence[str], most: int = 1) -> str:
    """Return the first `most` of some names, and how many more there are: `a.tar and 3 more`; empty without any."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: 1 sample, 2 samples, 2 entries.

    Args:
        count: the number.
        one: the noun in the singular, perhaps with a verb: `sample is`.
        many: the same in the plural, if that is more than another end: `samples are`.
    """
    if count == 1:
        return f"1 {one}"
    if not many and re.search("[^aeiou]y$", one):
        many = f"{one[:-1]}ies"
    return f"{count} {many or one + ('es' if one.endswith(('s', 'x', 'ch')) else 's')}"
