"""Shuffling through a buffer, and neighbours with the same key: pipeline/stages.py."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.pipeline.stages import ShuffleBuffer, buffer_shuffle
from tarkit.samples.sample import TarSample
from tarkit.streams.ranges import HeldRange


def numbered(count: int) -> Iterator[TarSample]:
    """Return samples 0, 1, 2 ... of a source that can be read at any time."""
    for number in range(count):
        yield TarSample(b"%d" % number, HeldRange("x", 0, b""), [], 0, 0)


def order(samples: Iterator[TarSample]) -> list[int]:
    return [int(sample.key or b"") for sample in samples]


@settings(max_examples=20)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 25), st.integers(0, 2**32))
def test_shuffle_like_webdataset(count: int, size: int, initial: int, seed: int) -> None:
    """For any buffer the order equals webdataset's, and no sample is lost."""
    shuffle = pytest.importorskip("webdataset.filters", reason="webdataset is not installed")._shuffle
    ours = order(ShuffleBuffer[TarSample](size, initial, random.Random(seed)).shuffle(numbered(count)))
    assert ours == list(shuffle(iter(range(count)), size, initial, seed=seed))
    assert sorted(ours) == list(range(count))


def test_shuffle_is_local() -> None:
    """No more samples than the buffer are kept: one is returned for each one or two that are read."""
    source = numbered(1000)
    taken = [int(sample.key or b"") for sample, _ in zip(buffer_shuffle(source, 10, 3), range(20), strict=False)]
    assert int(next(source).key or b"") == 30
    assert max(taken) < 30
