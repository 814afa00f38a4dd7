"""File objects as inputs and outputs: what raw ones take and give only in part, or not yet."""

from __future__ import annotations

import gzip
import io
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import TarkitError
from tarkit.streams.fileobjects import FileObjectSink
from tests._tools import each_row, samples_of
from tests.conftest import Archive, entries

CONTENT = {f"{n}.bin": random.Random(n).randbytes(n * 30_000) for n in range(12)}


class Raw(io.RawIOBase):
    """An unbuffered file that takes and gives a random number of bytes, often none."""

    def __init__(self, seed: int, data: bytes = b"") -> None:
        self.draw = random.Random(seed)
        self.data = bytearray(data)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def _count(self, most: int) -> int | None:
        return self.draw.choice((None, 0, 1, 511, most // 2, most, most, most))

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        count = self._count(len(data))
        if count is not None:
            count = min(count, len(data))
            self.data += bytes(data[:count])
        return count

    def readinto(self, view: Any) -> int | None:  # type: ignore[override]
        count = self._count(min(len(view), 70000)) or self.draw.choice((None, 1))
        if count is not None:
            count = min(count, len(self.data), len(view))
            view[:count] = self.data[:count]
            del self.data[:count]
        return count


class Plain:
    """No class of io: its `write` returns nothing, and takes all."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        """Do nothing."""


@each_row("seed", range(10))
def test_short_writes_and_reads(seed: int, archive: Archive) -> None:
    """What an unbuffered object takes in part, or not at all, is offered again; a read of nothing is repeated."""
    name = archive(CONTENT)
    expected = Path(name).read_bytes()
    for compress in (None, "gz"):
        file = Raw(seed)
        tarkit.open(name).write(file, compress=compress)  # type: ignore[arg-type]
        data = bytes(file.data)
        assert (gzip.decompress(data) if compress else data) == expected
    assert samples_of(tarkit.open(Raw(seed, expected))) == samples_of(tarkit.open(name))  # type: ignore[arg-type]


def test_objects_that_return_nothing(archive: Archive) -> None:
    """An object that is not of io takes all without saying so."""
    name, file = archive(CONTENT), Plain()
    tarkit.open(name).write(file)  # type: ignore[arg-type]
    assert bytes(file.data) == Path(name).read_bytes()


@each_row(("buffering", "reading"), [(0, False), (-1, False), (0, True)])
def test_pipes_that_do_not_block(buffering: int, reading: bool, archive: Archive) -> None:
    """A full pipe, and an empty one, are waited for; a buffer in front of it loses nothing."""
    name = archive(CONTENT)
    expected = Path(name).read_bytes()
    given, taken = os.pipe()
    os.set_blocking(given if reading else taken, False)
    found = bytearray()

    def move() -> None:
        with open(taken if reading else given, "wb" if reading else "rb", buffering=0) as file:
            if reading:
                for at in range(0, len(expected), 100_000):
                    time.sleep(0.005)
                    file.write(expected[at : at + 100_000])
            while not reading and (data := file.read(50_000)):
                time.sleep(0.002)
                found.extend(data)

    thread = threading.Thread(target=move)
    thread.start()
    if reading:
        with open(given, "rb", buffering=0) as file:
            assert tarkit.open(file).write("out.tar").samples == 12  # type: ignore[arg-type]
        assert entries("out.tar") == entries(expected)
    else:
        with open(taken, "wb", buffering=buffering) as file:
            tarkit.open(name).write(file)  # type: ignore[arg-type]
    thread.join()
    assert reading or bytes(found) == expected


@each_row("count", [-1, 4, 2.0, "3"])
def test_impossible_counts(count: Any) -> None:
    class Wrong(Plain):
        def write(self, data: bytes) -> Any:
            return count

    with pytest.raises(TarkitError, match=r"w: its write\(\) returned"):
        FileObjectSink(Wrong(), "w").write(b"abc")  # type: ignore[arg-type]
