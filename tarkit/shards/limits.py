"""The limits of shards, and what is equal in equal shards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tarkit.errors import spell
from tarkit.sizes import parse_size as parse_size
from tarkit.tar.block import BLOCK, RECORD

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

    def end(self, sums: Sequence[int], first: int, samples: int, weight: int) -> int:
        """Return the number of the first sample that a shard does not take; the shard takes one sample at least.

        Args:
            sums: the sum of the weights of all samples before each, and of all. The weight of a sample is its payload
                with the `rule` content, else its length in a tar.
            first: the number of the next sample of the shard.
            samples: how many samples the shard has.
            weight: their weight.
        """
        ends = [len(sums)]
        if self.count is not None:
            ends.append(first + self.count - samples)
        if self.size is not None and self.rule == "content":
            ends.append(bisect_left(sums, self.size - weight + sums[first]))
        elif self.size is not None:
            longest = self.size // RECORD * RECORD - 2 * BLOCK  # of the entries of a tar that is as long as allowed
            ends.append(bisect_right(sums, longest - weight + sums[first]) - 1)
        return max(min(ends), first + (not samples))


def no_limit() -> str:
    """Return the message about shards without a limit."""
    default = f"no limit is given: shards of at most {DEFAULT_SIZE} (10^9 bytes)"
    return f"{default}; {spell('count')} and {spell('size')} set others"
