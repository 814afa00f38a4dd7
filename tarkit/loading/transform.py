"""`transform=` of a loader: a function of the user that is called with each sample, in the worker that reads it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from struct import pack
from types import GeneratorType
from typing import Any

from tarkit.decoding.random_numbers import random_numbers
from tarkit.errors import show
from tarkit.loading.settings import Record


class Transform:
    """A function that makes values of a sample: one, none for None, or those of a generator.

    While it runs, the random numbers of Python, numpy and torch (on the CPU), as far as these are imported, follow from
    the seed, the epoch and the sample, whichever worker reads it and wherever reading began. Afterwards they go on as
    if nothing had been drawn.
    """

    def __init__(self, function: Callable[[Record], Any], seed: int) -> None:
        """`seed` is that of the loader."""
        self._function = function
        self._seed = seed

    def values(self, record: Record, place: tuple[int, ...], first: int) -> Iterable[Any]:
        """Return the values of a sample: a tuple of one or none, or an iterator over those of a generator.

        Args:
            record: the sample.
            place: numbers that tell the sample from all others.
            first: how many values of the generator were given before: these are made, and not returned.

        An exception of the function has a note with the key and the shard of the sample.
        """
        at = f"tarkit: in the transform of {show(record['__key__'])} in {record['__url__']}"
        value = self._call(self._function, (record,), (*place, 0), at)
        if type(value) is GeneratorType:
            return self._several(value, place, first, at)
        return () if value is None else (value,)

    def _several(self, values: Iterator[Any], place: tuple[int, ...], first: int, at: str) -> Iterator[Any]:
        number, end = 0, object()
        while (value := self._call(next, (values, end), (*place, number), at)) is not end:
            number += 1
            if number > first:
                yield value

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], place: tuple[int, ...], at: str) -> Any:
        digest = blake2b(pack(f"<q{len(place)}Q", self._seed, *place), digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        with random_numbers(number), seeded(number):
            try:
                return function(*arguments)
            except Exception as error:
                error.add_note(at)
                raise


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the random numbers of Python, numpy and torch with 64 bits; afterwards the former ones go on."""
    state = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    numpy = None if numpy is None else numpy.random  # which numpy imports when it is used
    bits = None if numpy is None else numpy.get_bit_generator()
    generator = None if torch is None else torch.default_generator
    words = None if generator is None else generator.get_state()
    random.seed(seed)
    if numpy is not None:
        numpy.set_bit_generator(numpy.PCG64(seed))
    if generator is not None:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.set_bit_generator(bits)
        if generator is not None:
            generator.set_state(words)
