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
    from hashlib import shake_128

    block, first = divmod(start, _BATCH)
    while True:
        digest = shake_128(b"tarkit shuffle %d %d %d" % (seed, epoch, block)).digest(KEY * _BATCH)
        for place in range(KEY * first, KEY * _BATCH, KEY):
            yield digest[place : place + KEY]
        block, first = block + 1, 0
