"""Random orders that depend on a seed and on ordinals alone, the same in every version of Python.

A full shuffle gives each sample 16 pseudo-random bytes and sorts by them: all orders are equally likely, but for a
negligible bias, and the key of a sample is known as soon as the sample is read, whatever the memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

KEY = 16  # bytes; two of a billion samples have equal ones with a probability of 10**-21
_BATCH = 1024  # keys of one digest

_MASK = (1 << 64) - 1
_MASK128 = (1 << 128) - 1
_MULTIPLIER = 2549297995355413924 << 64 | 4865540595714422341
_INCREMENT = 6364136223846793005 << 64 | 1442695040888963407
_CHEAP = 0xDA942042E4DD58B5


def random_keys(seed: int, epoch: int = 0, start: int = 0) -> Iterator[bytes]:
    """Yield the keys of the samples 0, 1, 2 ... without end, from sample `start` on: 16 bytes each, another order for
    each seed and epoch.

    Key `i` is the bytes from 16 * (i % 1024) on of SHAKE-128 (FIPS 202) of the ASCII text
    `tarkit shuffle SEED EPOCH BLOCK`, the numbers in decimal, BLOCK being i // 1024.
    """
    from hashlib import shake_128

    block, first = divmod(start, _BATCH)
    while True:
        digest = shake_128(b"tarkit shuffle %d %d %d" % (seed, epoch, block)).digest(KEY * _BATCH)
        for place in range(KEY * first, KEY * _BATCH, KEY):
            yield digest[place : place + KEY]
        block, first = block + 1, 0


class Pcg:
    """The generator `PCG` of Go's package math/rand/v2: PCG-DXSM with 128 bits of state, seeded with (seed, 0).

    Sources: Go's documentation of math/rand/v2; M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient
    Statistically Good Algorithms for Random Number Generation", with the output function DXSM of 2019. `seed` is from
    0 to 2**64 - 1.
    """

    def __init__(self, seed: int) -> None:
        if not 0 <= seed <= _MASK:
            raise ValueError(f"seed {seed}")
        self._state = seed << 64

    def next(self) -> int:
        """Return the next 64 bits."""
        state = self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK128
        high, low = state >> 64, state & _MASK
        high ^= high >> 32
        high = high * _CHEAP & _MASK
        high ^= high >> 48
        return high * (low | 1) & _MASK

    def below(self, bound: int) -> int:
        """Return a number from 0 to `bound` - 1; `bound` is less than 2**32.

        A power of two masks the draw; other bounds multiply its upper half, and draw again where that has a bias
        (D. Lemire, "Fast Random Integer Generation in an Interval", 2019).
        """
        if bound & (bound - 1) == 0:
            return self.next() & (bound - 1)
        product = (self.next() >> 32) * bound
        if product & 0xFFFFFFFF < bound:
            least = (1 << 32) % bound
            while product & 0xFFFFFFFF < least:
                product = (self.next() >> 32) * bound
        return product >> 32


def pcg_order(count: int, seed: int) -> array[int]:
    """Return the indices of `count` samples in the order that AIStore's dSort gives them for a seed.

    Sample i changes places with one of 0 to i. It takes 8 bytes per sample.
    """
    if count >= 1 << 32:
        raise ValueError(f"{count} samples")
    order = array("Q", range(count))
    below = Pcg(seed).below
    for index in range(count):
        other = below(index + 1)
        order[index], order[other] = order[other], order[index]
    return order


def pcg_keys(count: int, seed: int) -> Iterator[bytes]:
    """Yield the keys that put `count` samples into that order: their positions, 8 bytes each, big-endian."""
    places = array("Q", bytes(8 * count))
    for place, sample in enumerate(pcg_order(count, seed)):
        places[sample] = place
    return (place.to_bytes(8, "big") for place in places)
