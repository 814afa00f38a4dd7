"""The limits of shards, and what is equal in equal shards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from tarkit.errors import spell
from tarkit.sizes import parse_size
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

    @classmethod
    def of(cls, count: int | None, size: int | str | None, rule: SizeRule, shards: int | None = None) -> Self:
        """Return the limits of options. Raises Usage for an invalid size."""
        return cls(count, None if size is None else parse_size(str(size), spell("count")), rule, shards)

    @property
    def longest(self) -> int | None:
        """The maximum length of the entries of a tar, in bytes, if its size is limited."""
        return None if self.size is None or self.rule != "tar" else self.size // RECORD * RECORD - 2 * BLOCK

    def end(self, ends: Sequence[int], begin: int, start: int, samples: int, weight: int) -> int:
        """Return the number of the first sample that a shard does not take; an empty shard takes one at least.

        Args:
            ends: of each sample, the sum of its weight and of those before it. The weight of a sample is its payload
                with the `rule` content, else its length in a tar.
            begin: the number of the next sample of the shard.
            start: the sum of the weights before that.
            samples, weight: how many samples the shard has, and their weight.
        """
        end = len(ends)
        if self.count is not None:
            end = min(end, begin + self.count - samples)
        if (longest := self.longest) is not None:
            end = min(end, bisect_right(ends, longest - weight + start, begin))
        elif self.size is not None:
            end = min(end, bisect_left(ends, self.size - weight + start, begin) + 1 if weight < self.size else begin)
        return end if samples else max(end, begin + 1)

    def exceeded(self, samples: int, entries: int) -> bool:
        """Return whether a shard that is not empty may not have so many samples, or bytes of entries."""
        return (self.count is not None and samples > self.count) or (
            self.longest is not None and entries > self.longest
        )

    def reached(self, samples: int, content: int) -> bool:
        """Return whether a shard with so many samples and bytes of content takes no more."""
        by_content = self.size is not None and self.rule == "content" and content >= self.size
        return by_content or (self.count is not None and samples >= self.count)


def no_limit() -> str:
    """Return the message about shards without a limit."""
    default = f"no limit is given: shards of at most {DEFAULT_SIZE} (10^9 bytes)"
    return f"{default}; {spell('count')} and {spell('size')} set others"
