"""Writing an archive: adjacent ranges become one copy, entries stay in order, the end is correct."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.streams import source as sources
from tarkit.streams.copy import Short
from tarkit.streams.source import FileSource
from tarkit.tar import writer as writing
from tarkit.tar.header import encode
from tarkit.tar.writer import EntryWriter
from tests._tools import MARKER, archive, contents, each_row, fd_of, member, on_disk, stream


class Log:
    """A sink in memory that records the calls."""

    fd = None

    def __init__(self) -> None:
        self.data = bytearray()
        self.calls: list[str] = []

    def write(self, data: bytes | memoryview) -> None:
        self.calls.append("write")
        self.data += data

    def writev(self, pieces: Sequence[bytes]) -> None:
        self.calls.append("writev")
        self.data += b"".join(pieces)

    def copy(self, source: int, start: int, stop: int, short: object = None) -> None:
        self.calls.append("copy")
        got = os.pread(source, stop - start, start)
        self.data += got
        if len(got) < stop - start:
            raise Short(start + len(got))

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


DATA = archive({f"{number}.bin": bytes([number]) * 1000 for number in range(8)})  # entries of 1536 bytes
ENTRY = 1536


def ranges(source: FileSource, *numbers: int) -> tuple[Log, EntryWriter]:
    """Return a writer, with its sink, that got these entries of DATA."""
    sink = Log()
    writer = EntryWriter(sink)
    for number in numbers:
        writer.append(source, number * ENTRY, (number + 1) * ENTRY)
    return sink, writer


def test_adjacent_ranges_are_one_copy() -> None:
    """All entries of a file in order are a single copy, followed by the end."""
    sink, writer = ranges(on_disk(DATA), *range(8))
    assert sink.calls == []
    writer.close()
    assert sink.calls == ["copy", "write", "close"]
    assert sink.data == DATA[:-1024] + bytes(20_480 - 8 * ENTRY)
    assert writer.position == len(sink.data)


@pytest.mark.parametrize(("numbers", "copies"), [([0, 1, 3, 4], 2), ([3, 2, 1], 3), ([1, 1], 2), ([5], 1), ([], 0)])
def test_any_order(numbers: list[int], copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges that are not adjacent are gathered, or copied one by one, in the order of the calls."""
    expected = b"".join(DATA[number * ENTRY : (number + 1) * ENTRY] for number in numbers)
    sink, writer = ranges(on_disk(DATA), *numbers)
    writer.finish(0)
    assert sink.calls == ["writev"] * (copies > 1) + ["copy"] * (copies > 0), "short ranges are written together"
    assert sink.data == expected
    monkeypatch.setattr(writing, "SMALL", 0)
    sink, writer = ranges(on_disk(DATA), *numbers)
    writer.finish(0)
    assert sink.calls == ["copy"] * copies
    assert sink.data == expected


def test_short_ranges_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ranges are written once there are many, or many bytes of them; long ones stay in order."""
    monkeypatch.setattr(writing, "SMALL", ENTRY)
    source = on_disk(DATA)
    sink, writer = ranges(source, 5, 3, 1, 0)
    writer.append(source, 2 * ENTRY, 4 * ENTRY)
    writer.append(source, 0, ENTRY)
    writer.append(stream(DATA), 0, ENTRY)
    writer.add(encode(b"x", 1), b"x")
    writer.finish(0)
    assert sink.calls == ["writev", "copy", "writev", "write", "writev"]
    at = [DATA[number * ENTRY : (number + 1) * ENTRY] for number in (5, 3, 1, 0, 2, 3, 0, 0)]
    assert sink.data == b"".join(at) + member("x", b"x")
    monkeypatch.setattr(writing, "GATHERED", 2 * ENTRY)
    assert ranges(source, *range(7, 0, -1))[0].calls == ["writev", "writev"]
    monkeypatch.setattr(writing, "GATHERED", 1 << 20)
    monkeypatch.setattr(writing, "PIECES", 1)
    assert ranges(source, *range(7, 0, -1))[0].calls == ["writev"] * 3


def test_ranges_of_two_sources_are_not_adjacent() -> None:
    """Ranges of different files are not adjacent, for any offsets."""
    one, two = on_disk(DATA), on_disk(DATA[::-1])
    sink = Log()
    writer = EntryWriter(sink)
    writer.append(one, 0, ENTRY)
    writer.append(two, ENTRY, 2 * ENTRY)
    writer.append(one, ENTRY, 2 * ENTRY)
    writer.finish(0)
    assert sink.data == DATA[:ENTRY] + DATA[::-1][ENTRY : 2 * ENTRY] + DATA[ENTRY : 2 * ENTRY]


def test_entries_of_all_kinds_keep_their_order(tmp_path: Path) -> None:
    """Ranges, entries in memory, pieces and files are written in the order of the calls."""
    source = on_disk(DATA)
    path = tmp_path / "file"
    path.write_bytes(b"f" * 777 + b"more than is asked for")
    sink = Log()
    with open(path, "rb") as file, EntryWriter(sink) as writer:
        writer.add(encode(b"first", 3), b"abc")
        writer.append(source, 0, ENTRY)
        writer.add(encode(b"empty", 0), b"")
        writer.add_file(encode(b"file", 777), file.fileno(), 777)
        writer.append(source, ENTRY, 2 * ENTRY)
        writer.raw((member("raw", b"r" * 512),), 1024)
        writer.add_file(encode(b"whole", 512), file.fileno(), 512)
        writer.append(source, 2 * ENTRY, 3 * ENTRY)
        assert writer.position == 1024 + ENTRY + 512 + ENTRY + ENTRY + 1024 + 1024 + ENTRY
    assert contents(bytes(sink.data)) == [
        ("first", b"abc"),
        ("0.bin", bytes(1000)),
        ("empty", b""),
        ("file", b"f" * 777),
        ("1.bin", b"\1" * 1000),
        ("raw", b"r" * 512),
        ("whole", b"f" * 512),
        ("2.bin", b"\2" * 1000),
    ]
    assert writer.position == len(sink.data) == 20_480
    assert sink.calls[-1] == "close"


def test_small_entries_are_written_together() -> None:
    """A thousand entries take a few calls, each within the limits of a system call."""
    sizes: list[int] = []
    sink = Log()
    sink.writev = lambda pieces: (sizes.append(len(pieces)), Log.writev(sink, pieces))[1]  # type: ignore[method-assign]
    pairs = [(f"{number}.txt", b"x" * (number * 7 % 1500)) for number in range(1000)]
    with EntryWriter(sink) as writer:
        for name, payload in pairs:
            writer.add(encode(name.encode(), len(payload)), payload)
    assert contents(bytes(sink.data)) == pairs
    assert sink.calls.count("writev") < 8
    assert max(sizes) <= 1024


def test_memory_is_bounded() -> None:
    """Entries in memory are written once they have a megabyte."""
    sink = Log()
    writer = EntryWriter(sink)
    for _ in range(5):
        writer.add(encode(b"x", 1 << 20), bytes(1 << 20))
    assert len(sink.data) >= 4 << 20


@each_row("length", [0, 512, 9216, 9728, 10_240, 20_480])
def test_end(length: int) -> None:
    """The end is two zero blocks, padded to a record of 10 240 bytes."""
    sink = Log()
    with EntryWriter(sink) as writer:
        writer.raw((b"x" * length,), length)
    assert len(sink.data) % 10_240 == 0
    assert 1024 <= len(sink.data) - length < 10_240 + 1024
    assert not any(sink.data[length:])
    assert writer.position == len(sink.data)


@each_row("zeros", [0, 1, 1024, 1535, 3_000_001])
def test_end_of_a_copy(zeros: int) -> None:
    """A complete copy keeps the end of the archive; a finished writer is not finished again."""
    sink = Log()
    with EntryWriter(sink) as writer:
        writer.raw((b"x" * 512,), 512)
        writer.finish(zeros)
    assert sink.data == b"x" * 512 + bytes(zeros)
    assert writer.position == 512 + zeros


def test_an_exception_aborts() -> None:
    """After an exception nothing more is written; the sink is aborted, not closed."""
    sink = Log()
    writer = EntryWriter(sink)
    writer.append(on_disk(DATA), 0, ENTRY)
    writer.add(encode(b"x", 1), b"x")
    with pytest.raises(KeyError), writer:
        raise KeyError
    assert sink.calls == ["abort"]
    assert not sink.data


def test_a_failure_at_the_end_aborts() -> None:
    """If the last copy finds that a source became shorter, there is no archive."""
    sink, writer = ranges(on_disk(DATA[:2000]), 0, 1)
    with pytest.raises(Exception, match="became shorter"):
        writer.close()
    assert sink.calls == ["copy", "abort"]


def test_a_file_that_is_too_short() -> None:
    """An entry with less than the size in its header is an error."""
    sink, source = Log(), on_disk(b"y" * 9999)
    with pytest.raises(Short), EntryWriter(sink) as writer:
        writer.add_file(encode(b"x", 10_000), fd_of(source), 10_000)
    assert sink.calls[-1] == "abort"


def test_ranges_of_a_stream_are_written_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of a stream is written before its window moves."""
    monkeypatch.setattr(sources, "CHUNK", 4096)
    source = stream(DATA, 700)
    sink = Log()
    with EntryWriter(sink) as writer:
        for start in range(0, 8 * ENTRY, ENTRY):
            source.release(start)
            source.peek(start, 512)
            writer.append(source, start, start + ENTRY)
    assert sink.data[: 8 * ENTRY] == DATA[: 8 * ENTRY]


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("range"), st.integers(0, 7), st.integers(1, 3)),
            st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 2000)),
        ),
        max_size=20,
    )
)
def test_any_order_of_calls(calls: list[tuple[str, int, int]]) -> None:
    """Any mixture is written in order, and `position` is correct at each step."""
    source, sink, expected = on_disk(DATA), Log(), b""
    with EntryWriter(sink) as writer:
        for kind, number, length in calls:
            if kind == "range":
                stop = min(number + length, 8)
                writer.append(source, number * ENTRY, stop * ENTRY)
                expected += DATA[number * ENTRY : stop * ENTRY]
            else:
                writer.add(encode(b"%d" % number, length), b"z" * length)
                expected += member(b"%d" % number, b"z" * length)
            assert writer.position == len(expected)
        writer.finish(1024)
    assert sink.data == expected + MARKER


def test_constants() -> None:
    """The pieces of one call, and the two that the last entry adds, fit in IOV_MAX."""
    assert os.sysconf("SC_IOV_MAX") >= writing.PIECES + 3
