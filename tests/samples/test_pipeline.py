"""Shuffling through a buffer, and neighbours with the same key: pipeline/stages.py."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Problem
from tarkit.pipeline.stages import ShuffleBuffer, buffer_shuffle, neighbours
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.streams.ranges import HeldRange
from tests._tools import batch_of, each_row
from tests.conftest import tar


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


@each_row("seed", range(100))
def test_neighbouring_batches(seed: int) -> None:
    """The check of batches keeps the samples that the check of each keeps, and reports the same."""
    pick = random.Random(seed)
    inputs = []
    for name in range(pick.randint(1, 5)):
        numbers = pick.sample(range(12), pick.randint(1, 8))
        data = tar({f"{number}.{field}": b"" for number in numbers for field in "yx"})
        inputs.append(list(SampleReader(HeldRange(f"{name}.tar", 0, data), Policy())))
    pieces: list[SampleBatch] = []
    for samples in inputs:
        cut = pick.randint(0, len(samples))
        for part in filter(None, (samples[:cut], samples[cut:])):
            pieces += [batch_of(part)] if pick.getrandbits(1) else part
    settings = pick.choice([{"skip": ["all"]}, {"allow": ["repeated-key"], "skip": ["joined-sample"]}, {}])
    distinct = bool(pick.getrandbits(1))

    def results(pieces: Iterator[SampleBatch], policy: Policy) -> list[object]:
        found: list[object] = []
        policy.warn = found.append
        try:
            for piece in neighbours(pieces, policy, distinct=distinct):
                found += [(each.source.name, each.key, each.entries, each.start, each.stop) for each in piece]
        except Problem as problem:
            found.append(str(problem))
        return [*found, policy.counts, policy.dropped]

    found = results((sample for samples in inputs for sample in samples), Policy(**settings))
    assert found == results(iter(pieces), Policy(**settings))
