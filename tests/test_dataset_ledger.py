"""Equal keys among many, exactly, and work in processes with its results in order."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Iterator
from zlib import crc32

import pytest

from tarkit.dataset import ledger, processes
from tarkit.dataset.ledger import Ledger, in_runs
from tarkit.dataset.processes import in_order
from tarkit.errors import TarkitError


@pytest.mark.parametrize("few", [0, 1 << 20])
@pytest.mark.parametrize("held", [50, 1000, 10_000, 1 << 30])
def test_groups(held: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All values of each key, in order, wherever they were kept."""
    monkeypatch.setattr(ledger, "HELD", held)
    monkeypatch.setattr(ledger, "FEW", few)
    draw = random.Random(held)
    expected: dict[bytes, list[bytes]] = {}
    book = Ledger()
    for number in range(1500):
        key, value = b"%d" % draw.randrange(400), b"v%d" % number
        book.add(key, value)
        expected.setdefault(key, []).append(value)
    assert book.count == 1500
    assert dict(book.groups()) == expected
    assert not list(book.groups())


def test_empty_keys_and_values() -> None:
    """They are keys and values like others."""
    book = Ledger()
    for key, value in ((b"", b""), (b"a", b""), (b"", b"x")):
        book.add(key, value)
    assert dict(book.repeated()) == {b"": [b"", b"x"]}


def test_equal_checksums_are_no_equal_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys of one checksum stay two."""
    one, two = b"plumless", b"buckeroo"
    assert crc32(one) == crc32(two)
    for held in (1, 1 << 20):
        monkeypatch.setattr(ledger, "HELD", held)
        book = Ledger()
        book.add(one, b"1")
        book.add(two, b"2")
        assert not list(book.repeated())
        assert dict(Ledger().groups()) == {}


def test_runs() -> None:
    """In order if they fit, else in sorted runs; nothing is lost."""
    items = [(n * 7 % 10, n) for n in range(10)]
    assert list(in_runs(items)) == sorted(items)
    assert list(in_runs(items, 4)) == [*sorted(items[:4]), *sorted(items[4:8]), *sorted(items[8:])]


# ---- processes


def work(job: int) -> Iterator[tuple[int, int]]:
    """So many items as its number says."""
    for number in range(job % 5):
        yield job, number


@pytest.mark.parametrize("count", [0, 1, 2, 23])
def test_results_in_order(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for any number of processes."""
    monkeypatch.setattr(processes, "SHARES", 2)
    jobs = list(range(count))
    expected = [list(work(job)) for job in jobs]
    for number in (1, 2, 4):
        assert [list(items) for items in in_order(jobs, work, number)] == expected


def test_what_a_process_raises() -> None:
    """It is raised where the result is read, and no process is left."""

    def failing(job: int) -> Iterator[int]:
        yield job
        if job == 1:
            raise TarkitError("this one")

    found = in_order([0, 1, 2, 3], failing, 2)
    assert list(next(found)) == [0]
    second = next(found)
    assert next(second) == 1
    with pytest.raises(TarkitError, match="this one"):
        next(second)
    found.close()  # type: ignore[attr-defined]


def test_a_process_that_is_killed() -> None:
    """It is an error, not the end."""

    def killed(job: int) -> Iterator[int]:
        if job == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        yield job

    with pytest.raises(TarkitError, match=r"was ended \(status -9\)"):
        list(map(list, in_order([0, 1, 2], killed, 2)))


def test_processes_end_when_nobody_reads_on() -> None:
    """Whoever stops reading leaves none behind."""

    def slow(job: int) -> Iterator[int]:
        if job:
            signal.pause()
        yield job

    found = in_order([0, 1, 2], slow, 2)
    assert list(next(found)) == [0]
    assert multiprocessing.active_children()
    found.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()
