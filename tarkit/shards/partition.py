"""The series that a sample goes to: that of its part, such as train and val, or that of its category in a map.

The part is decided by a hash of the key or of a group, or class by class, in the order of the samples.

By hash, the part of a sample depends on its key, or its group, and on the seed alone: not on the order, the other
samples or the machine. So it stays the same when the set grows, and can be computed elsewhere:

    u = the first 8 bytes of SHA-256(SEED NUL KEY), as a number, the highest byte first
    the part is the first one of which  u < floor(2**64 * the sum of the shares up to it)

SEED has decimal digits; without a seed it has no bytes. In a shell, the 16 hexadecimal digits of u are
`printf '%s\0%s' SEED KEY | sha256sum | cut -c -16`. When shares change, only
samples at the moved boundaries change their part; a part that is split off the one before it moves no others."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from hashlib import sha256
from itertools import accumulate
from math import lcm
from typing import NamedTuple

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.pipeline.template import ShardTemplate, split_last
from tarkit.samples.sample import TarSample, key_of
from tarkit.shards.categories import Map, check_apart
from tarkit.shards.patterns import compile_regex
from tarkit.shards.series import PART, SeriesSpec

PLACES = 1 << 64
MOST = 9999  # equal parts
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_SHARE = re.compile(r"([0-9]{0,20}\.?[0-9]{0,20}) ?(%?)|[0-9]{1,9}/[0-9]{1,9}")


class Part(NamedTuple):
    """A part and its share of the samples."""

    name: str
    share: Fraction


def parse_parts(text: str) -> list[Part]:
    """Return the parts of `train=0.9,val=0.1`; shares are decimals, `10%` or `1/3`, a part without one gets the rest.

    A number K is K equal parts, `fold-0` and so on, with numbers of one length. Raises Usage: names that are not
    portable names of files, or come twice; shares that do not sum to 1; a number that is not from 2 to 9999.
    """
    option = spell("parts")
    if text.removeprefix("-").isdecimal():
        count = int(text[:9])
        if not 2 <= count <= MOST:
            raise Usage(
                f"{option} {text}: a number of parts is from 2 to {MOST}", f"one part has a name: {option} all=1"
            )
        width = len(str(count - 1))
        return [Part(f"fold-{number:0{width}d}", Fraction(1, count)) for number in range(count)]
    shares: dict[str, Fraction | None] = {}
    for word in text.split(","):
        name, equals, share = (part.strip() for part in word.partition("="))
        if not _NAME.fullmatch(name):
            raise Usage(f"{option} {show(text)}: invalid name {show(name)}", "a name has letters, digits, - _ and .")
        if name in shares:
            raise Usage(f"{option} {show(text)}: {name} occurs twice")
        shares[name] = _share(f"{option} {show(text)}", share) if equals else None
    total = sum((share for share in shares.values() if share is not None), Fraction(0))
    rest = [name for name, share in shares.items() if share is None]
    if len(rest) > 1:
        raise Usage(f"{option} {show(text)}: {' and '.join(rest)} have no share; one part may get the rest")
    if rest and total >= 1:
        raise Usage(f"{option} {show(text)}: nothing is left for {rest[0]}")
    if not rest and total != 1:
        hint = "they sum to 1; a part without a share gets the rest: train,val=0.1"
        raise Usage(f"{option} {show(text)}: the shares sum to {float(total):.10g}", hint)
    return [Part(name, 1 - total if share is None else share) for name, share in shares.items()]


def place(seed: bytes, group: bytes) -> int:
    """Return the place of a group, from 0 to 2**64 - 1."""
    return int.from_bytes(sha256(seed + b"\0" + group).digest()[:8], "big")


def part_series(parts: Sequence[Part], text: str, parse: Callable[[str], ShardTemplate]) -> list[SeriesSpec]:
    """Return the series of the parts, in names of which no shard comes twice.

    The name of a part replaces `{part}` in the template `text`, or comes before the name of the file in it.
    """
    if PART not in text:
        directory, name = split_last(text)
        text = f"{directory}{PART}-{name or '%06d.tar'}"
    series = [SeriesSpec(part.name, parse(text.replace(PART, part.name)), part.share) for part in parts]
    check_apart([spec.template for spec in series])
    return series


class ByHash:
    """The number of the part of a sample; None when it has no group and is left out."""

    def __init__(
        self, parts: Sequence[Part], seed: str = "", group: Callable[[TarSample], bytes | None] | None = None
    ) -> None:
        """`group` returns the bytes that are hashed in place of the key."""
        self._seed = os.fsencode(seed)
        self._group = group
        self._bounds = [sum_ * PLACES // 1 for sum_ in accumulate(part.share for part in parts)]

    def __call__(self, sample: TarSample) -> int | None:
        """Return the number of the part."""
        group = sample.key if self._group is None else self._group(sample)
        return None if group is None else self.part_of(group)

    def part_of(self, group: bytes) -> int:
        """Return the number of the part of a key or group."""
        return bisect_right(self._bounds, place(self._seed, group))


class KeyGroup:
    """The group of a sample, taken from its key by an expression: its first group, else the whole match.

    Called with a sample. Raises TarkitError when the expression does not match: the sample may belong to a group.
    """

    def __init__(self, text: str) -> None:
        try:
            self._pattern = compile_regex(text)
        except re.error as error:
            raise Usage(f"{spell('group')} {show(text)}: {error}") from None
        self.text = text

    def __call__(self, sample: TarSample) -> bytes:
        """Return the group."""
        assert sample.key is not None
        match = self._pattern.search(os.fsdecode(sample.key))
        if match is None:
            hint = f"if such keys are groups by themselves, match all: {spell('group', f'{self.text}|.*')}"
            raise TarkitError(
                f"{sample.source.name}: the key {show(sample.key)} does not match {show(self.text)}", hint
            )
        group = match[1] if match.re.groups and match[1] is not None else match[0]
        return os.fsencode(group)


class ByMap:
    """The number of the category of a sample.

    Attributes:
        unmatched: how many samples were in none.
        first: the key of the first of them.
    """

    def __init__(self, categories: Map) -> None:
        self.map = categories
        self.unmatched = 0
        self.first = b""

    def __call__(self, sample: TarSample) -> int | None:
        """Return the number of the category, None without one. Raises TarkitError when there are two."""
        sample.complete()
        names = (entry.name for entry in sample.entries if key_of(entry) is not None)
        category = self.map.category(names, sample.key)
        if category is not None:
            return category.place
        if not self.unmatched:
            self.first = sample.key or b""
        self.unmatched += 1
        return None


def _share(where: str, share: str) -> Fraction:
    match = _SHARE.fullmatch(share)
    if not match or not share.strip(" .%"):
        raise Usage(f"{where}: invalid share {show(share)}", "shares are 0.9, 90% or 1/3, and sum to 1")
    try:
        value = Fraction(match[1]) / 100 if match[2] else Fraction(share)
    except ZeroDivisionError:
        value = Fraction(0)
    if not 0 < value <= 1:
        hint = "shares are of 1: train=0.9,val=0.1" if value else "leave the part out"
        raise Usage(f"{where}: {show(share)}: a share is more than 0 and at most 1", hint)
    return value


# ---- Class by class (stratified): each part gets its share of each class, by largest deficit
# With the share f, a part has floor(f n) of the first n samples of a class, or one more; of more than two parts one may
# have one less for a moment. A part that would have less gets the sample; else, of the parts that would not have more,
# the one that lacks most of its share of the whole set, so that many small classes together are divided right as well.
#
# The part of a sample depends on the samples before it: the same input gives the same parts, appended samples change
# nothing, another order does. Only counts are kept.

CLASSES = 1_000_000  # maximum


class ByClass:
    """The number of the part of a sample; `label` returns its class, None for one that is left out.

    `counts` has the number of samples of each class in each part.
    """

    def __init__(self, parts: Sequence[Part], label: Callable[[TarSample], bytes | None]) -> None:
        self._label = label
        self._period = lcm(*(part.share.denominator for part in parts))
        self._weights = [int(part.share * self._period) for part in parts]
        self._totals = [0] * len(parts)
        self.counts: dict[bytes, list[int]] = {}

    def __call__(self, sample: TarSample) -> int | None:
        """Return the number of the part."""
        label = self._label(sample)
        return None if label is None else self.deal(label)

    def deal(self, label: bytes) -> int:
        """Return the part of the next sample of this class. Raises TarkitError when there are too many classes."""
        counts = self.counts.get(label)
        if counts is None:
            if len(self.counts) == CLASSES:
                raise TarkitError(f"{spell('stratify')}: over {CLASSES} classes", "is this field a class?")
            counts = self.counts[label] = [0] * len(self._weights)
        part = self._choose(counts)
        counts[part] += 1
        self._totals[part] += 1
        return part

    def _choose(self, counts: Sequence[int]) -> int:
        deficits = self._deficits(counts)
        part = max(range(len(deficits)), key=deficits.__getitem__)
        if deficits[part] >= self._period:
            return part
        of_all = self._deficits(self._totals)
        return max((part for part, deficit in enumerate(deficits) if deficit > 0), key=of_all.__getitem__)

    def _deficits(self, counts: Sequence[int]) -> list[int]:
        """Return what each part lacks of its share of these samples and the next one, in units of 1 / period."""
        number = sum(counts) + 1
        return [weight * number - count * self._period for weight, count in zip(self._weights, counts, strict=True)]
