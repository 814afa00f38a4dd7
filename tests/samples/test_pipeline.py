"""Shuffling through a buffer, and neighbours with the same key: samples/pipeline.py."""

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
from tarkit.streams.source import StreamSource
from tests._tools import batch_of, each_row
from tests.conftest import tar


def numbered(count: int) -> Iterator[TarSample]:
    """Return samples 0, 1, 2 ... of a source that can be read at any time."""
    for number in range(count):
        yield TarSample(b"%d" % number, HeldRange("x", 0, b""), [], 0, 0)


def order(samples: Iterator[TarSample]) -> list[int]:
    return [int(sample.key or b"") for sample in samples]


VECTORS = [
    # bufsize, initial, seed; order of 0..11 by webdataset's shuffle (version 1.0.2)
    (4, 2, 0, [1, 2, 0, 4, 7, 8, 6, 10, 9, 11, 5, 3]),
    (4, 4, 0, [3, 4, 0, 2, 7, 8, 6, 10, 9, 11, 5, 1]),
    (4, 9, 0, [3, 4, 0, 2, 7, 8, 6, 10, 9, 11, 5, 1]),
    (4, 4, 1, [1, 0, 2, 4, 7, 8, 9, 10, 3, 6, 11, 5]),
    (100, 100, 0, [6, 11, 0, 4, 7, 3, 2, 10, 5, 8, 9, 1]),
    (1, 1, 0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
]


@each_row(("size", "initial", "seed", "expected"), VECTORS)
def test_shuffle_vectors(size: int, initial: int, seed: int, expected: list[int]) -> None:
    """The order equals webdataset's for the same seed."""
    assert order(ShuffleBuffer[TarSample](size, initial, random.Random(seed)).shuffle(numbered(12))) == expected


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


def stream(data: bytes, name: str = "in") -> StreamSource:
    """Return a stream that delivers its bytes in small pieces."""

    class Pieces:
        at = 0

        def readinto(self, view: memoryview) -> int:
            piece = data[self.at : self.at + min(len(view), 70_000)]
            view[: len(piece)] = piece
            self.at += len(piece)
            return len(piece)

        def fileno(self) -> None:
            return None

        def close(self) -> None:
            pass

    return StreamSource(Pieces(), name)


def read(sample: TarSample) -> bytes:
    """Return the bytes of a sample."""
    return sample.source.read(sample.start, sample.stop)


def test_shuffled_samples_of_a_stream_stay_readable() -> None:
    """Samples in the buffer stay readable, small ones in memory and large ones in a file, until they are released."""
    draw = random.Random(4).randbytes
    members = {f"{n:03}.bin": draw(1_300_000 if n % 7 == 0 else 50_000) for n in range(40)}
    data = tar(members)
    samples = buffer_shuffle(iter(SampleReader(stream(data), Policy())), 5, 1)
    seen = []
    for sample in samples:
        assert read(sample)[512 : 512 + 1000] == members[f"{(sample.key or b'').decode()}.bin"][:1000]
        assert len(read(sample)) == sample.stop - sample.start
        seen.append(sample.key)
    assert sorted(map(str, seen)) == sorted(str(f"{n:03}".encode()) for n in range(40))


def keyed(*keys: str) -> Iterator[TarSample]:
    for key in keys:
        yield TarSample(key.encode() if key else None, HeldRange(f"{key}.tar", 0, b""), [], 0, 0)


def test_neighbours() -> None:
    """Two neighbours with the same key are an error; skip drops the later ones; samples without a key never match."""
    assert [sample.key for sample in neighbours(keyed("a", "b", "a", "", ""), Policy())] == [
        b"a",
        b"b",
        b"a",
        None,
        None,
    ]
    with pytest.raises(Problem, match=r"b\.tar: at 0: .* the same key 'b' \[joined-sample\]"):
        list(neighbours(keyed("a", "b", "b"), Policy()))
    kept = neighbours(keyed("a", "a", "a", "b", "a"), Policy(skip=["joined-sample"]))
    assert [sample.key for sample in kept] == [b"a", b"b", b"a"]


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


def test_neighbours_joined() -> None:
    """If allowed, each run of neighbours with the same key is one sample with all their bytes."""
    sources = [tar({"a.x": b"1", "b.x": b"2"}), tar({"b.y": b"3"}), tar({"b.z": b"4", "c.x": b"5"})]

    def samples() -> Iterator[TarSample]:
        for number, data in enumerate(sources):
            yield from SampleReader(stream(data, str(number)), Policy())

    joined = list(neighbours(samples(), Policy(allow=["joined-sample"])))
    assert [(sample.key, [entry[0] for entry in sample.entries]) for sample in joined] == [
        (b"a", [b"a.x"]),
        (b"b", [b"b.x", b"b.y", b"b.z"]),
        (b"c", [b"c.x"]),
    ]
    assert read(joined[1]) == sources[0][1024:2048] + sources[1][:1024] + sources[2][:1024]
