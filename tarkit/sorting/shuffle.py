"""Random orders that depend on a seed and on ordinals alone, the same in every version of Python.

A full shuffle gives each sample 16 pseudo-random bytes and sorts by them: all orders are equally likely, but for a
negligible bias, and the key of a sample is known as soon as the sample is read, whatever the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

KEY = 16  # bytes; two of a billion samples have equal ones with a probability of 10**-21
_BATCH = 1024  # keys of one digest


def random_keys(seed: int, epoch: int = 0, start: int = 0) -> Iterator[bytes]:
    """Yield the keys of the samples 0, 1, 2 ... without end, from sample `start` on: 16 bytes each, another order for
    each seed and epoch.

    Key `i` is the bytes from 16 * (i % 1024) on of SHAKE-128 (FIPS 202) of the ASCII text
    `tarkit shuffle SEED EPOCH BLOCK`, the numbers in decimal, BLOCK being i // 1024.
    """
    keys = RandomKeys(seed, epoch, start)
    while True:
        several = keys.take(_BATCH)
        for place in range(0, KEY * _BATCH, KEY):
            yield several[place : place + KEY]


class RandomKeys:
    """The keys of `random_keys`, taken together, or one by one."""

    def __init__(self, seed: int, epoch: int = 0, start: int = 0) -> None:
        self._seed, self._epoch = seed, epoch
        self._block, first = divmod(start, _BATCH)
        self._keys, self._at = b"", 0
        self.take(first)

    def take(self, count: int) -> bytes:
        """Return the next keys, one after the other."""
        stop = self._at + KEY * count
        if stop > len(self._keys):
            parts = [self._keys[self._at :]]
            size = len(parts[0])
            while size < KEY * count:
                parts.append(_digest(self._seed, self._epoch, self._block))
                size += KEY * _BATCH
                self._block += 1
            self._keys, self._at, stop = b"".join(parts), 0, KEY * count
        keys = self._keys[self._at : stop]
        self._at = stop
        return keys


def _digest(seed: int, epoch: int, block: int) -> bytes:
    from hashlib import shake_128

    return shake_128(b"tarkit shuffle %d %d %d" % (seed, epoch, block)).digest(KEY * _BATCH)
