"""When a shard is full, and sizes as users write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tarkit.errors import Usage, show, spell

SizeRule = Literal["tar", "content"]
DEFAULT_SIZE = "1G"  # of shards without a limit


@dataclass(frozen=True)
class Limits:
    """When a shard closes: at `count` samples, or before its tar would be longer than `size` bytes, or with the `rule`
    content once its contents have reached that. `shards` is the maximum of shards."""

    count: int | None = None
    size: int | None = None
    rule: SizeRule = "tar"
    shards: int | None = None


_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}{tail}": 1000**power for power, letter in enumerate("kmgt", 1) for tail in ("", "b")}
_UNITS |= {f"{letter}{tail}": 1024**power for power, letter in enumerate("kmgt", 1) for tail in ("i", "ib")}

_SIZE = re.compile(r"([0-9]{1,30})(?:\.([0-9]{0,30}))?(?:e\+?([0-9]{1,2}))?([a-z]*)", re.IGNORECASE)


def no_limit() -> str:
    """Return the message about shards without a limit."""
    default = f"no limit is given: shards of at most {DEFAULT_SIZE} (10^9 bytes)"
    return f"{default}; {spell('count')} and {spell('size')} set others"


def parse_size(text: str, count_option: str | None = None) -> int:
    """Return the bytes of a size: `1e9`, `500M`, `16MiB`, `1.5GB`; K and KB are powers of 1000, Ki and KiB of 1024.

    A fraction of a byte is cut off. Sizes under 512 bytes, which hold no entry, are an error with a hint to the option
    `count_option`, if that is given. Raises `Usage`, also for an empty text, zero, and 2**63 and more.
    """
    found = _SIZE.fullmatch(text)
    factor = _UNITS.get(found[4].lower()) if found else None
    if not found or factor is None:
        raise Usage(f"invalid size {show(text)}", "sizes look like 500M, 1.5GB, 16MiB or 1e9 (bytes)")
    whole, decimals, power = found[1], found[2] or "", int(found[3] or 0)
    size: int = int(whole + decimals) * 10**power * factor // 10 ** len(decimals)
    if size >= 2**63:
        raise Usage(f"invalid size {show(text)}: 8 EiB or more")
    if size < 1:
        raise Usage(f"invalid size {show(text)}: the minimum is 1 byte")
    if count_option and size < 512:
        raise Usage(f"{show(text)}: a size of {size} bytes holds no entry", f"was {count_option} {text} meant?")
    return size
