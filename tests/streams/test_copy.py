"""Copies of ranges between descriptors: each system call, and every way in which one is refused."""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarkit.streams import copy as copying
from tarkit.streams.copy import CHUNK, Copier, Short, is_pipe, widen, writev_all
from tests._tools import each_row, raising

DATA = random.Random(3).randbytes(1_200_000)
CALLS = ("copy_file_range", "sendfile")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    """A file with DATA."""
    (tmp_path / "source").write_bytes(DATA)
    fd = os.open(tmp_path / "source", os.O_RDWR)
    yield fd
    os.close(fd)


class Target:
    """A descriptor to write to, and the bytes that arrive there."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.path = directory / "target"
        self.received = bytearray()
        self.reader: threading.Thread | None = None
        if kind in ("file", "append"):
            self.path.write_bytes(b"before")
            self.fd = os.open(self.path, os.O_WRONLY | (os.O_APPEND if kind == "append" else 0))
            os.lseek(self.fd, 0, os.SEEK_END)
            return
        if kind == "pipe":
            read, self.fd = os.pipe()
        else:
            one, two = socket.socketpair()
            read, self.fd = one.detach(), two.detach()
        os.write(self.fd, b"before")
        self.reader = threading.Thread(target=self._drain, args=(read,))
        self.reader.start()

    def _drain(self, read: int) -> None:
        while data := os.read(read, 1 << 16):
            self.received += data
        os.close(read)

    def close(self) -> bytes:
        """Close it and return all bytes that arrived."""
        os.close(self.fd)
        if self.reader is None:
            return self.path.read_bytes()
        self.reader.join()
        return bytes(self.received)


@pytest.fixture(params=["file", "append", "pipe", "socket"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path)


RANGES = [(0, 1), (0, 0), (5, 1_200_000), (1_199_999, 1_200_000), (1_000_000, 1_000_512), (0, 1000)]
assert len(DATA) > CHUNK


def copied(copier: Copier, source: int) -> bytes:
    """Copy RANGES; return the expected bytes."""
    for start, stop in RANGES:
        copier.copy(source, start, stop)
    return b"before" + b"".join(DATA[start:stop] for start, stop in RANGES)


def test_copy(source: int, target: Target) -> None:
    """Ranges in any order arrive in sequence, at the target's own offset; the source's offset does not move."""
    os.lseek(source, 77, os.SEEK_SET)
    expected = copied(Copier(target.fd), source)
    assert os.lseek(source, 0, os.SEEK_CUR) == 77
    assert target.close() == expected


def test_a_pipe_gets_copies(source: int) -> None:
    """What is written to the file after the copy does not change what is in the pipe."""
    read, write = os.pipe()
    Copier(write).copy(source, 100, 60_000)
    os.pwrite(source, bytes(len(DATA)), 0)
    os.close(write)
    with open(read, "rb") as file:
        assert file.read() == DATA[100:60_000]


def refuse(patch: pytest.MonkeyPatch, name: str, how: int | None, asked: list[str]) -> None:
    """Have a system call raise an error of this number, return 0, as on some file systems, or not exist (None)."""

    def call(*args: object) -> int:
        asked.append(name)
        if how:
            raise OSError(how, "refused")
        return 0

    if how is None:
        patch.delattr(os, name)
    else:
        patch.setattr(os, name, call)


NUMBERS = [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EBADF, errno.EOPNOTSUPP, errno.EPERM]


@each_row("kind", ["file", "pipe"])
@each_row(
    "refused",
    [
        *(dict.fromkeys(CALLS, number) for number in NUMBERS),
        *({name: how} for name in CALLS for how in (errno.EXDEV, 0)),
        {"copy_file_range": None},
        {"copy_file_range": None, "splice": None},  # macOS
        {"copy_file_range": None, "sendfile": 0},
    ],
)
def test_refusals(kind: str, refused: dict[str, int | None], source: int, tmp_path: Path) -> None:
    """If a system call is refused the next one is used; it is tried once, and the data are the same."""
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, how in refused.items():
            refuse(patch, name, how, asked)
        target = Target(kind, tmp_path)
        expected = copied(Copier(target.fd), source)
        assert target.close() == expected
    assert len(asked) <= len(refused)
    assert kind == "pipe" or not refused.get("copy_file_range") or "copy_file_range" in asked


def test_refused_in_the_middle(source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a call is refused after it worked, the copy continues where it stopped."""
    real, count = os.copy_file_range, 0

    def some(source: int, target: int, length: int, start: int) -> int:
        nonlocal count
        count += 1
        if count > 2:
            raise OSError(errno.EXDEV, "refused")
        return real(source, target, min(length, 1000), start)

    monkeypatch.setattr(os, "copy_file_range", some)
    target = Target("file", tmp_path)
    Copier(target.fd).copy(source, 0, len(DATA))
    assert target.close() == b"before" + DATA
    assert count == 3


@each_row("length", [1_199_999, 1000, 0])
@each_row("without", [(), ("copy_file_range",), ("copy_file_range", "splice")])
def test_short(length: int, without: tuple[str, ...], source: int, tmp_path: Path) -> None:
    """A file that ends before the range does is an error with the position, with each call."""
    os.ftruncate(source, length)
    with pytest.MonkeyPatch.context() as patch:
        for name in without:
            patch.delattr(os, name)
        target = Target("file", tmp_path)
        with pytest.raises(Short) as error:
            Copier(target.fd).copy(source, 0, len(DATA))
    assert error.value.pos == length
    assert target.close() == b"before" + DATA[:length]


def test_shrinking_while_it_is_copied(source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_STEP", 400_000)
    real = os.copy_file_range

    def shrink(source: int, target: int, length: int, start: int) -> int:
        os.ftruncate(source, 600_000)
        return real(source, target, length, start)

    monkeypatch.setattr(os, "copy_file_range", shrink)
    target = Target("file", tmp_path)
    with pytest.raises(Short) as error:
        Copier(target.fd).copy(source, 0, len(DATA))
    assert error.value.pos == 600_000
    target.close()


@each_row("number", [errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EPIPE])
def test_real_errors(number: int, source: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is no refusal: no other call is tried."""
    for name in (*CALLS, "write"):
        monkeypatch.setattr(os, name, raising(OSError, number, os.strerror(number)))
    target = Target("file", tmp_path)
    copier = Copier(target.fd)
    with pytest.raises(OSError, match=r".") as error:
        copier.copy(source, 0, 10)
    assert error.value.errno == number
    assert len(copier.ways) == 3
    target.close()


@pytest.fixture
def partial_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make `write` or `writev` take a few bytes at a time."""

    def halt(name: str) -> None:
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, memoryview(data)[:100]))
        if name == "writev":
            monkeypatch.setattr(os, "writev", lambda fd, pieces: real(fd, b"".join(pieces)[:150]))

    return halt


@each_row("short", [False, True])
@each_row("count", [0, 1, 1023, 1024, 1025, 5000])
def test_writev_all(count: int, short: bool, tmp_path: Path, partial_writes: Callable[[str], None]) -> None:
    """Any number of pieces is written, although one call takes few."""
    if short:
        partial_writes("writev")
    pieces = [DATA[number : number + number % 7] for number in range(count)]
    with open(tmp_path / "x", "wb", buffering=0) as file:
        writev_all(file.fileno(), pieces)
    assert (tmp_path / "x").read_bytes() == b"".join(pieces)


def test_widen() -> None:
    """A pipe is widened to a megabyte if that is allowed; other descriptors are unchanged."""
    import fcntl

    read, write = os.pipe()
    widen(write)
    assert fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) >= 1 << 16
    assert is_pipe(read)
    os.close(read)
    os.close(write)
    with open(os.devnull, "rb") as file:
        widen(file.fileno())
        assert not is_pipe(file.fileno())
