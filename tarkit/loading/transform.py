"""`transform=` of a loader: a function of the user that is called with each sample, in the process that reads it.

Its random numbers follow from the seed, the epoch and the sample. Those of Python, numpy and torch belong to the whole
process: they are seeded for a call in the thread that iterates, while no other thread makes one. A function that does
not draw from them, as its first values show, is called in other threads. A call during which these numbers change all
the same, by this function or by other code, is made again in the thread that iterates: values never depend on threads.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from struct import pack
from types import GeneratorType
from typing import Any, NamedTuple

from tarkit.decoding.random_numbers import random_numbers
from tarkit.errors import Problem, show
from tarkit.loading.ahead import LoaderThreads
from tarkit.loading.records import as_record
from tarkit.loading.settings import Record
from tarkit.pipeline.sample import Sample

VALUES = 8
"""Values of a generator that a thread makes; more are made when they are asked for."""

MOST_DOUBTS = 16
"""Calls in threads, beyond a quarter of them, that may be made again before no more are made there."""

_MT_SIZE = 625 * 4  # bytes of the state of numpy's MT19937, which would take 60 us to get as a dict
_END = object()


class Again(NamedTuple):
    """A sample for which the function is to be called again, in the thread that iterates."""

    sample: Sample


class Transform:
    """A function that makes values of a sample: one, none for None, or those of a generator.

    While it runs in the thread that iterates, the random numbers of Python, numpy and torch (on the CPU), as far as
    these are imported, follow from the seed, the epoch and the sample, whichever worker reads it and wherever reading
    began. Afterwards they go on as if nothing had been drawn.

    Attributes:
        in_threads: whether other threads may call the function, since it draws none of these numbers; None until a
            sample has shown it.
    """

    def __init__(self, function: Callable[[Record], Any], seed: int, threads: LoaderThreads | None) -> None:
        """`seed` is that of the loader."""
        self._function = function
        self._seed = seed
        self._gate = None if threads is None else threads.gate
        self._doubts = 0.0
        self.in_threads: bool | None = False if threads is None else None

    def values(self, record: Record, place: tuple[int, ...], first: int) -> Iterable[Any]:
        """Return the values of a sample: a tuple of one or none, or an iterator over those of a generator.

        Args:
            record: the sample.
            place: numbers that tell the sample from all others.
            first: how many values of the generator were given before: these are made, and not returned.

        An exception of the function has a note with the key and the shard of the sample.
        """
        at = _words(record)
        value = self._call_here(self._function, (record,), (*place, 0), at)
        if type(value) is GeneratorType:
            return self._several(value, place, 0, first, at)
        return () if value is None else (value,)

    def make(self, sample: Sample, place: tuple[int, ...], first: int) -> Iterable[Any] | Problem | Again:
        """Make the values of a sample in another thread; the arguments are those of `values`.

        Returns the problem of a sample, see `as_record`. An error of a generator is raised behind its values.
        """
        record = as_record(sample)
        if isinstance(record, Problem):
            return record
        assert self._gate is not None
        failure: BaseException | None = None
        values: Iterable[Any] = ()
        with self._gate.among_others():
            before = _states()
            try:
                values = self._make(record, place, first)
            except BaseException as error:
                failure = error
            doubtful = before != _states()
        self._doubts = self._doubts + 1 if doubtful else max(self._doubts - 1 / 4, 0)
        if doubtful:
            self.in_threads = self.in_threads and self._doubts < MOST_DOUBTS
            return Again(sample)
        if failure is not None:
            raise failure
        return values

    def _make(self, record: Record, place: tuple[int, ...], first: int) -> Iterable[Any]:
        at = _words(record)
        value = _call(self._function, (record,), self._number((*place, 0)), at)
        if type(value) is not GeneratorType:
            return () if value is None else (value,)
        made: list[Any] = []
        for number in range(first + VALUES):
            try:
                one = _call(next, (value, _END), self._number((*place, number)), at)
            except BaseException as error:
                return _followed(made, (), error)
            if one is _END:
                return _followed(made, ())
            made += [one] if number >= first else []
        return _followed(made, self._several(value, place, first + VALUES, first, at))

    def _several(
        self, values: Iterator[Any], place: tuple[int, ...], number: int, first: int, at: str
    ) -> Iterator[Any]:
        """Yield the values of a generator that has made a `number` of them, but for the `first` ones."""
        while (value := self._call_here(next, (values, _END), (*place, number), at)) is not _END:
            number += 1
            if number > first:
                yield value

    def _call_here(self, function: Callable[..., Any], arguments: Any, place: tuple[int, ...], at: str) -> Any:
        """Call a function with the random numbers of the process seeded, in the thread that iterates."""
        number = self._number(place)
        if self._gate is None:
            with seeded(number):
                return _call(function, arguments, number, at)
        with self._gate.alone(), seeded(number):
            if self.in_threads is False:
                return _call(function, arguments, number, at)
            before = _states()
            value = _call(function, arguments, number, at)
            after = _states()
        if any(state is not None and state != new for state, new in zip(before, after, strict=True)):
            self.in_threads = False
        elif before == after and self.in_threads is None:  # nothing was imported either
            ended = place[-1] > 0 and value is _END if function is next else value is not None
            self.in_threads = True if ended and type(value) is not GeneratorType else None
        return value

    def _number(self, place: tuple[int, ...]) -> int:
        """Return the seed of a call."""
        digest = blake2b(pack(f"<q{len(place)}Q", self._seed, *place), digest_size=8).digest()
        return int.from_bytes(digest, "little")


def _call(function: Callable[..., Any], arguments: Any, number: int, at: str) -> Any:
    """Call a function of the user, with `sample_random` of a seed."""
    try:
        with random_numbers(number):
            return function(*arguments)
    except Exception as error:
        error.add_note(at)
        raise


def _words(record: Record) -> str:
    return f"tarkit: in the transform of {show(record['__key__'])} in {record['__url__']}"


def _followed(made: Iterable[Any], rest: Iterable[Any], failure: BaseException | None = None) -> Iterator[Any]:
    yield from made
    if failure is not None:
        raise failure
    yield from rest


def _libraries() -> tuple[Any, Any]:
    """Return numpy's module of random numbers, and torch's generator on the CPU, as far as they are imported.

    Where another thread is importing one, this waits for it.
    """
    numpy = import_module("numpy.random") if "numpy" in sys.modules else None
    return numpy, import_module("torch").default_generator if "torch" in sys.modules else None


def _states() -> tuple[Any, bytes | None, bytes | None]:
    """Return the states of the random numbers of Python, numpy and torch; None for those that are not imported.

    Not seen: a normal number of numpy's legacy functions that was left over from the draw of another.
    """
    numpy, generator = _libraries()
    bits = words = None
    if numpy is not None:
        bits = numpy.get_bit_generator()
        plain = type(bits) is numpy.MT19937
        bits = ctypes.string_at(bits.ctypes.state_address, _MT_SIZE) if plain else repr(bits.state).encode()
    if generator is not None:
        state = generator.get_state()
        words = ctypes.string_at(state.data_ptr(), state.numel())
    return random.getstate(), bits, words


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the random numbers of Python, numpy and torch with 64 bits; afterwards the former ones go on."""
    state = random.getstate()
    numpy, generator = _libraries()
    bits = None if numpy is None else numpy.get_bit_generator()
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
