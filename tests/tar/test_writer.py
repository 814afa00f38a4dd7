"""Writing an archive: entries stay in order, adjacent ranges become one copy, the end is correct."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.streams import source as sources
from tarkit.streams.source import FileSource
from tarkit.tar import writer as writing
from tarkit.tar.writer import EntryWriter
from tests._tools import MARKER, Log, archive, each_row, member, on_disk, stream

DATA = archive({f"{number}.bin": bytes([number]) * 1000 for number in range(8)})  # entries of 1536 bytes
ENTRY = 1536


def ranges(source: FileSource, numbers: Iterable[int]) -> tuple[Log, EntryWriter]:
    """Return a writer, with its sink, that got these entries of DATA."""
    sink = Log()
    writer = EntryWriter(sink)
    for number in numbers:
        writer.append(source, number * ENTRY, (number + 1) * ENTRY)
    return sink, writer


CALLS = st.lists(
    st.tuples(st.sampled_from(["one", "two", "stream"]), st.integers(0, 7), st.integers(1, 3))
    | st.tuples(st.just("raw"), st.integers(0, 3), st.integers(0, 2000)),
    max_size=20,
)


@settings(max_examples=60)
@given(CALLS, st.sampled_from([0, ENTRY, 1 << 20]), st.sampled_from([1, 1024]))
def test_any_order_of_calls(calls: list[tuple[str, int, int]], small: int, pieces: int) -> None:
    """Ranges of any sources and pieces are in order, and `position` is correct at each step.

    Short ranges are gathered, in any number, or copied one by one.
    """
    files = {"one": DATA, "two": DATA[: 8 * ENTRY][::-1]}
    opened = {name: on_disk(data) for name, data in files.items()}
    sink, expected = Log(), b""
    with pytest.MonkeyPatch.context() as patch, EntryWriter(sink) as writer:
        patch.setattr(writing, "SMALL", small)
        patch.setattr(writing, "PIECES", pieces)
        for kind, number, length in calls:
            start, stop = number * ENTRY, min(number + length, 8) * ENTRY
            if kind in opened:
                writer.append(opened[kind], start, stop)
                expected += files[kind][start:stop]
            elif kind == "stream":
                writer.append(stream(DATA, 700), 0, stop)
                expected += DATA[:stop]
            else:
                entry = member(b"%d" % number, b"z" * length)
                writer.raw((entry[:512], entry[512:]), len(entry))
                expected += entry
            assert writer.position == len(expected)
        writer.finish(1024)
    assert sink.data == expected + MARKER
    assert sink.calls[-1] == "close"


@each_row(
    ("numbers", "limits", "calls"),
    [
        ([], {}, ""),
        ([5], {}, "copy"),
        (range(8), {}, "copy"),
        ([1, 1], {"SMALL": 0}, "copy copy"),
        ([0, 1, 3, 4], {"SMALL": 0}, "copy copy"),
        ([0, 1, 3, 4], {}, "writev copy"),
        ([7, 6, 5, 4, 3, 2, 1], {}, "writev copy"),
        ([7, 6, 5, 4, 3, 2, 1], {"GATHERED": 2 * ENTRY}, "writev writev copy"),
        ([7, 6, 5, 4, 3, 2, 1], {"PIECES": 1}, "writev writev writev copy"),
    ],
)
def test_copies(numbers: Iterable[int], limits: dict[str, int], calls: str) -> None:
    """Adjacent ranges are a single copy; short ones are written together, a limited number of pieces and bytes."""
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            patch.setattr(writing, name, limit)
        sink, writer = ranges(on_disk(DATA), numbers)
        writer.finish(0)
    assert sink.calls == calls.split()
    assert sink.data == b"".join(DATA[number * ENTRY : (number + 1) * ENTRY] for number in numbers)


def test_sources_that_are_too_short() -> None:
    """If a copy finds that a source became shorter, there is no archive."""
    sink, writer = ranges(on_disk(DATA[:2000]), [0, 1])
    with pytest.raises(Exception, match="became shorter"):
        writer.close()
    assert sink.calls == ["copy", "abort"]


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
