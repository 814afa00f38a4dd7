"""The limits of shards, and what is equal in equal shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tarkit.errors import spell
from tarkit.sizes import parse_size as parse_size

SizeRule = Literal["tar", "content"]
Even = Literal["count", "size"]  # what is equal in equal shards
Remainder = Literal["spread", "drop", "repeat"]  # what becomes of samples that are left over in equal shards
DEFAULT_SIZE = "1G"  # of shards without a limit


@dataclass(eq=False, repr=False)
class Limits:
    """When a shard closes: at `count` samples, or before its tar would be longer than `size` bytes, or with the `rule`
    content once its contents have reached that. `shards` is the maximum of shards."""

    count: int | None = None
    size: int | None = None
    rule: SizeRule = "tar"
    shards: int | None = None


def no_limit() -> str:
    """Return the message about shards without a limit."""
    default = f"no limit is given: shards of at most {DEFAULT_SIZE} (10^9 bytes)"
    return f"{default}; {spell('count')} and {spell('size')} set others"
