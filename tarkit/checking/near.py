"""Pairs of 64-bit hashes that differ in few bits: all of them, found by sorting parts of the hashes.

Two hashes that differ in at most d bits have d + k blocks of bits of which at least k are equal (the pigeonhole
principle). For each choice of k blocks the hashes are sorted by these blocks, and neighbours that are equal in them are
compared. Source: Manku, Jain, Das Sarma, "Detecting near-duplicates for web crawling", WWW 2007; here k is the number
that costs least for so many hashes. Bits of a block are spread over the hash, since neighbours in a picture are alike.

Memory: that of the hashes, and about 150 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb
from random import Random
from typing import Any

from tarkit.errors import load_library

BITS = 64
PART = 1 << 21  # hashes that are sorted together
_PIECE = 1 << 19  # hashes, or pairs, that are looked at together
_SORT, _COMPARE = 250, 12  # nanoseconds for a hash, and for a pair
_ENTROPY = 0.7  # of a bit in hashes of pictures
_MIX = 0x9E3779B97F4A7C15  # Knuth, TAOCP 3, 6.4: multiplicative hashing

Pairs = tuple[Any, Any, Any]
"""Arrays: positions of hashes, of later ones, and the number of bits in which both differ."""


def load_numpy() -> Any:
    """Return numpy. Raises MissingLibrary."""
    return load_library("numpy", "a distance of hashes", "numpy", "numpy")


def near_pairs(hashes: Any, distance: int) -> Iterator[Pairs]:
    """Yield all pairs of hashes that differ in at most `distance` bits; a pair may come several times.

    Args:
        hashes: an array of uint64.
        distance: a number of bits from 1 on.
    """
    numpy = load_numpy()
    blocks, equal = _plan(len(hashes), distance)
    order = Random(0).sample(range(BITS), BITS)
    masks = [sum(1 << bit for bit in order[block::blocks]) for block in range(blocks)]
    for chosen in combinations(masks, equal):
        mask = numpy.uint64(sum(chosen))
        parts = -(-len(hashes) // PART) if equal else 1
        for part in range(parts):
            yield from _equal_in(numpy, hashes, mask, _members(numpy, hashes, mask, part, parts), distance)


def _plan(count: int, distance: int) -> tuple[int, int]:
    """Return into how many blocks hashes are divided, and how many of these are equal in near ones."""

    def cost(equal: int) -> float:
        alike = 2 ** (_ENTROPY * BITS * equal / (distance + equal))
        return comb(distance + equal, equal) * (_SORT * count + _COMPARE * count * count / 2 / alike)

    equal = min(range(BITS - distance), key=cost)
    return distance + equal, equal


def _members(numpy: Any, hashes: Any, mask: Any, part: int, parts: int) -> Any:
    """Return the positions of the hashes of a part: hashes that are equal in the bits of `mask` are in one part."""
    if parts == 1:
        return numpy.arange(len(hashes))
    places = []
    for start in range(0, len(hashes), _PIECE):
        mixed = (hashes[start : start + _PIECE] & mask) * numpy.uint64(_MIX) >> numpy.uint64(32)
        places.append(numpy.flatnonzero(mixed % numpy.uint64(parts) == part) + start)
    return numpy.concatenate(places)


def _equal_in(numpy: Any, hashes: Any, mask: Any, places: Any, distance: int) -> Iterator[Pairs]:
    """Yield the near pairs among hashes that are equal in the bits of `mask`."""
    values = hashes[places]
    keys = values & mask
    order = numpy.argsort(keys, kind="stable")
    keys, values, places = keys[order], values[order], places[order]
    first = numpy.flatnonzero(keys[1:] == keys[:-1])
    step = 1
    while len(first):
        for start in range(0, len(first), _PIECE):
            one = first[start : start + _PIECE]
            bits = _count_bits(numpy, values[one] ^ values[one + step])
            near = numpy.flatnonzero(bits <= distance)
            if len(near):
                yield places[one[near]], places[one[near] + step], bits[near]
        step += 1
        first = first[: numpy.searchsorted(first, len(keys) - step)]
        first = first[keys[first] == keys[first + step]]


def _count_bits(numpy: Any, values: Any) -> Any:
    if hasattr(numpy, "bitwise_count"):  # numpy 2
        return numpy.bitwise_count(values)
    table = numpy.array([number.bit_count() for number in range(1 << 16)], numpy.uint8)
    return table[values.view(numpy.uint16).reshape(-1, 4)].sum(axis=1, dtype=numpy.uint8)
