"""Sorted runs: the order of records, in memory and on disk, and how many bytes they take."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from tarkit.spill import runs as module
from tarkit.spill.runs import SortedRuns, merge, ordinal_of, pack, rank_of, rest_of, rests_of

ranks = st.lists(st.lists(st.sampled_from([b"\0", b"\1", b"a", b"\xff"]), max_size=4).map(b"".join), max_size=60)


def found(runs: SortedRuns) -> list[bytes]:
    """Return the ranks of records, in order."""
    return [rank_of(record) for record in chain.from_iterable(runs.blocks())]


@given(ranks)
def test_the_order_of_records(ranks: list[bytes]) -> None:
    """Records are in the order of rank and ordinal, and all of their parts can be read again."""
    rows = [(rank, ordinal * 2**40, rank * 2) for ordinal, rank in enumerate(ranks)]
    records = sorted(pack(*row) for row in reversed(rows))
    assert [(rank_of(each), ordinal_of(each), rest_of(each)) for each in records] == sorted(rows)
    assert rests_of(records) == [rest for _, _, rest in sorted(rows)]


@given(ranks, st.sampled_from([0, 300, 2000, 1 << 20]), st.integers(1, 9))
def test_any_memory(ranks: list[bytes], memory: int, together: int) -> None:
    """The order is that of `sorted` for any memory, as often as it is read; few runs are there at once."""
    records = [pack(rank, ordinal, b"%d" % ordinal) for ordinal, rank in enumerate(ranks)]
    with mock.patch.object(module, "BATCH", 3), mock.patch.object(module, "BUFFER", 100):
        runs = SortedRuns(None, memory)
        for start in range(0, len(records), together):
            runs.extend(records[start : start + together])
            assert len(runs._runs) < 20
        assert sorted(chain.from_iterable(runs.unordered())) == sorted(records)
        for _ in range(2):
            assert list(chain.from_iterable(runs.blocks())) == sorted(records)
        runs.spill()
        assert list(chain.from_iterable(runs.blocks())) == sorted(records)
    assert runs.count == len(records)


@given(st.lists(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), max_size=5), max_size=6))
def test_merge(shapes: list[list[list[int]]]) -> None:
    """Runs in blocks of any lengths are merged."""
    values = iter(range(10**6))
    flat = [[[b"%08d" % (number * 10**4 + next(values)) for number in block] for block in run] for run in shapes]

    def blocks(run: list[list[bytes]]) -> Iterator[list[bytes]]:
        """Yield the blocks of a run again, in order."""
        ordered = iter(sorted(chain.from_iterable(run)))
        return ([next(ordered) for _ in block] for block in run)

    expected = sorted(chain.from_iterable(chain.from_iterable(flat)))
    assert list(chain.from_iterable(merge([blocks(run) for run in flat]))) == expected


def test_rounds_of_a_merge() -> None:
    """Each round of a merge of many runs takes records of all of them, not one block of one."""
    numbers = random.Random(7)
    runs = [sorted(numbers.randbytes(8) for _ in range(2000)) for _ in range(60)]
    found = list(merge([iter([run[at : at + 100] for at in range(0, 2000, 100)]) for run in runs]))
    assert list(chain.from_iterable(found)) == sorted(chain.from_iterable(runs))
    assert len(found) < 100, "and not 60 * 20"


def test_long_records() -> None:
    """Blocks of long records have few of them, so that merging many runs takes little memory."""
    runs = SortedRuns(None, 10 << 20)
    for number in range(300):
        runs.extend([pack(b"%05d" % number * 2000, number, b"") if number % 3 else pack(b"%05d" % number, number, b"")])
    assert max(sum(map(len, block)) for block in runs.blocks()) < module.BUFFER // 2
    assert found(runs) == sorted(b"%05d" % number * (2000 if number % 3 else 1) for number in range(300))
