"""Random numbers of one sample: the function of `transform=` draws them, in whatever thread or process it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random

from tarkit.errors import Usage


class _Drawn:
    """The random numbers that follow from a seed, made when the first is drawn."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers: Random | None = None

    @property
    def numbers(self) -> Random:
        if self._numbers is None:
            self._numbers = Random(f"sample {self._seed}")  # others than those of random.seed(seed)
        return self._numbers


_current: ContextVar[_Drawn | None] = ContextVar("random numbers of a sample", default=None)


@contextmanager
def random_numbers(seed: int) -> Iterator[None]:
    """Let `sample_random` of this thread return numbers that follow from a seed."""
    token = _current.set(_Drawn(seed))
    try:
        yield
    finally:
        _current.reset(token)


def drawn_for_sample() -> Random | None:
    """Return the random numbers of the sample that `transform` is called with; None outside of such a call."""
    drawn = _current.get()
    return None if drawn is None else drawn.numbers


def sample_random() -> Random:
    """Return the random numbers of the sample that `transform=` of a loader is called with.

    They follow from the seed of the loader, the epoch and the sample, in any thread and process. Each call for a sample
    returns the same object, which goes on; each value of a generator has numbers of its own. Other libraries get a seed
    from it: `numpy.random.default_rng(tarkit.sample_random().getrandbits(64))`.

    Raises:
        Usage: no `transform` is running in this thread.

    >>> import tarkit
    >>> def draw(sample):
    ...     return sample["__key__"], tarkit.sample_random().randrange(100)
    >>> list(tarkit.loader("a.tar", transform=draw, seed=7)) == list(tarkit.loader("a.tar", transform=draw, seed=7))
    True
    """
    numbers = drawn_for_sample()
    if numbers is None:
        raise Usage("sample_random() is for the function of transform=, while a loader calls it with a sample")
    return numbers
