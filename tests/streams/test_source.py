"""Sources: files in any order, streams through a window, and ranges that exceed it."""

from __future__ import annotations

import functools
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.bytereader import ByteReader
from tarkit.errors import Problem
from tarkit.streams import source as sources
from tarkit.streams.files import Descriptor, File
from tarkit.streams.readers import DescriptorReader, Prepended
from tarkit.streams.sink import Sink, open_sink
from tarkit.streams.source import HELD, FileSource, Gather, StreamSource, gather
from tarkit.tar import fast
from tests._tools import Chunks, Log, counted, each_row, fd_of, on_disk, raising, stream, traced

DATA = random.Random(7).randbytes(300_000)
MIB = 1 << 20


@functools.cache
def big() -> bytes:
    """Return more bytes than one splice moves; made on demand, since each fork copies existing memory."""
    return random.Random(2).randbytes(5 * MIB)


def sent(source: FileSource | StreamSource, start: int, stop: int) -> bytes:
    """Return what `send` writes."""
    sink = Log()
    source.send(start, stop, sink)
    return bytes(sink.data)


def peeked(source: FileSource | StreamSource, pos: int, n: int) -> bytes:
    """Return what `peek` shows of [pos, pos + n)."""
    shown = source.peek(pos, n)
    stop = min(pos + n, len(DATA))
    assert len(shown) >= stop - pos
    assert shown == DATA[pos : pos + len(shown)]
    return bytes(shown[:n])


# ---- files


def no_gather(*_: object) -> None:
    """Gather nothing, as without the accelerator."""


def test_file_that_becomes_shorter(tmp_path: Path) -> None:
    """A file that became shorter is an error with the position in the archive."""
    path = tmp_path / "x"
    path.write_bytes(b"#" * 100 + DATA)
    source = FileSource(os.open(path, os.O_RDONLY), "x.tar", 100)
    os.truncate(path, 1100)
    acts: list[Callable[[], object]] = [
        lambda: source.read(0, 2000),
        lambda: gather([source, source], (500, 0), (10, 2000), None),
        lambda: gather([source, source], (500, 0), (10, 2000), fast.gather),
        lambda: sent(source, 0, 2000),
        lambda: source.read(5000, 6000),
    ]
    for act in acts:
        with pytest.raises(Problem, match="became shorter") as error:
            act()
        assert error.value.name == "truncated"
        assert error.value.offset in (1000, 5000)
    sink = open_sink("path", str(tmp_path / "out"))
    with pytest.raises(Problem, match=r"at 1000: .*became shorter"), sink:
        source.send(0, 2000, sink)


@each_row("most", [4, 1000])
@each_row("quick", [no_gather, fast.gather])
def test_gather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: Gather, most: int) -> None:
    """Ranges of several files are read in any order, those that were closed too; an error names its file."""
    monkeypatch.setattr("tarkit.streams.source.most_files", lambda: most)
    numbers = random.Random(7)
    blobs = [numbers.randbytes(5000) for _ in range(3)]
    files: list[FileSource] = []
    for number, blob in enumerate(blobs):
        path = tmp_path / str(number)
        path.write_bytes(b"#" * number + blob)
        opened = Descriptor(os.open(path, os.O_RDONLY))
        files.append(FileSource(File(opened, str(path), str(path)), f"{number}.tar", number))
        files[-1].file.close()
    for count in 1, 2, 100:
        chosen = [numbers.randrange(3) for _ in range(count)]
        starts = [numbers.randrange(4000) for _ in range(count)]
        sizes = [numbers.randrange(1000) for _ in range(count)]
        found = gather([files[each] for each in chosen], starts, sizes, quick)
        rows = zip(chosen, starts, sizes, strict=True)
        assert found == b"".join(blobs[each][start : start + size] for each, start, size in rows)
    os.truncate(tmp_path / "1", 1001)
    with pytest.raises(Problem, match=r"1.tar: at 1000: .*became shorter"):
        gather(files, (0, 999, 0), (10, 2, 10), quick)
    files[2].file.opened = Descriptor(os.open(tmp_path / "2", os.O_WRONLY))
    with pytest.raises(OSError, match="Bad file descriptor") as error:
        gather([files[0], files[2]], (0, 0), (10, 10), quick)
    assert error.value.filename == "2.tar"


def test_file_that_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may return less than requested, as on a network file system."""
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, pos: whole(fd, [views[0][:100]], pos))
    source = on_disk(DATA)
    assert source.peek(1000, 512)[:512] == DATA[1000:1512]
    assert source.read(5, 5000) == DATA[5:5000]


def test_recent_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content that was read with the header of its entry needs no other read; any other range does.

    So after an error while the window moved. After the source was closed they are read again, as the file is then.
    """
    path = tmp_path / "in"
    path.write_bytes(DATA)
    source = FileSource(os.open(path, os.O_RDONLY), "in")
    reads: list[int] = []
    read = source.read
    source.read = lambda start, stop: reads.append(start) or read(start, stop)  # type: ignore[method-assign,func-returns-value]
    seen = len(source.peek(1000, 512))
    near = [(1000, 1001), (1100, 1100), (1000, 1000 + seen), (999 + seen, 1000 + seen)]
    far = [(999, 1001), (0, 5), (1000, 1001 + seen), (250_000, 250_001)]
    for start, stop in near + far:
        assert source.recent(start, stop) == DATA[start:stop], (start, stop)
    assert reads == [start for start, _ in far]
    source.peek(20_000, 270_000)  # more than any read-ahead
    with monkeypatch.context() as broken:
        broken.setattr(os, "preadv", raising(OSError, 5, "bad disk"))
        with pytest.raises(OSError, match="bad disk"):
            source.peek(280_000, 20_000)
    for start in range(20_000, 289_000, 700):
        assert source.recent(start, start + 100) == DATA[start : start + 100]
    source.peek(20_000, 270_000)
    path.write_bytes(bytes(len(DATA)))
    source.close()
    assert source.recent(20_000, 20_100) == bytes(100)


@each_row(("n", "most"), [(512, 40), (700, 40), (20_000, 700), (300_000, 50)])
def test_no_byte_of_a_file_is_read_twice(n: int, most: int) -> None:
    """Pieces of any size become few reads, of no more bytes than the file has; at distant positions small ones."""
    data = bytes(range(256)) * (8 * MIB // 256)
    source = on_disk(data)
    reads = counted(source)
    pos = 0
    while pos < len(data):
        assert source.peek(pos, n)[:n] == data[pos : pos + n]
        pos += n * 2 // 3
    assert sum(reads) <= len(data)
    assert len(reads) < most
    sizes = [len(source.peek(pos, 512)) for pos in range(0, len(data), 3 * MIB // 4)]
    assert sizes[-1] <= 4096


def test_file_is_closed_with_its_last_reference() -> None:
    """Samples refer to the source, so the descriptor is open as long as they exist; stdin is never closed."""
    source = on_disk(DATA)
    fd = fd_of(source)
    source.close()
    assert os.fstat(fd)
    del source
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


# ---- streams


@pytest.fixture(params=["real", "small"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of the real size, and of a few kilobytes."""
    if request.param == "small":
        shrink(monkeypatch)


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Set windows of a few kilobytes."""
    patch.setattr(sources, "CHUNK", 2048)
    patch.setattr(sources, "HELD", 8192)


def test_peek_across_the_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peek may begin before the position where memory was full (with real sizes, and small ones)."""
    data = big() * 4
    source = stream(data)
    border = HELD
    for pos in range(MIB, border - 4096, MIB // 2):
        source.peek(pos, 512)
    pos = border - 512
    assert source.peek(pos, 1024)[:1024] == data[pos : pos + 1024]
    assert source.read(pos, pos + 1024) == data[pos : pos + 1024]
    assert source.read(0, 1000) == data[:1000]
    shrink(monkeypatch)
    for step in (511, 700, 5000):
        for pos in range(7000, 20_000, 1021):
            source = stream(DATA, step)
            source.peek(6000, 512)
            assert peeked(source, pos, 1024) == DATA[pos : pos + 1024]
            assert source.read(0, pos) == DATA[:pos]


def test_stream_that_is_cut() -> None:
    """A range beyond the end cannot be read or sent."""
    for act in (lambda s: s.read(0, 3000), lambda s: sent(s, 0, 3000), lambda s: sent(s, 2500, 3000)):
        with pytest.raises(Problem, match="truncated"):
            act(stream(DATA[:2000], 700))


def test_released_bytes_are_not_readable() -> None:
    """A read of a released range is a bug, and raises instead of returning other bytes."""
    source = stream(DATA * 20)
    source.release(5_000_000)
    source.peek(5_000_000, 512)
    with pytest.raises(AssertionError):
        sent(source, 0, 100)


def test_memory_is_bounded_and_the_rest_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes beyond HELD are in a file without a name in `tmpdir`, whose space is reused."""
    shrink(monkeypatch)
    with pytest.raises(OSError, match="missing"):
        StreamSource(Chunks(DATA, 700), "x.tar", str(tmp_path / "missing")).peek(200_000, 512)
    source = StreamSource(Chunks(DATA, 700), "x.tar", str(tmp_path))
    source.peek(200_000, 512)
    assert os.listdir(tmp_path) == []
    assert source.read(0, 200_000) == DATA[:200_000]
    source.release(200_000)
    source.peek(250_000, 512)
    source.release(250_000)
    source.peek(290_000, 512)
    assert source.read(250_000, 290_000) == DATA[250_000:290_000]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["peek", "peek", "read", "send", "release"]), st.integers(0, 9000), st.integers(0, 9000)
        ),
        max_size=30,
    ),
    st.integers(100, 3000),
)
def test_any_use_of_a_stream(calls: list[tuple[str, int, int]], step: int) -> None:
    """For any valid sequence of calls the bytes are those of the stream.

    Peeks go forward; ranges begin anywhere after the released part, and what `send` takes is released.
    """
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        source, low, front = stream(DATA, step), 0, 0
        for kind, ahead, n in calls:
            if kind == "peek":
                front = min(front + ahead, 280_000)
                peeked(source, front, n // 4)
            elif kind == "release":
                low = min(low + ahead, front)
                source.release(low)
            else:
                start = min(low + ahead, front)
                stop = min(start + n, len(DATA))
                assert (source.read if kind == "read" else lambda a, z: sent(source, a, z))(start, stop) == DATA[
                    start:stop
                ]
                front = max(front, stop)
                if kind == "send":
                    low = stop
                    source.release(low)


# ---- splice


@pytest.fixture
def pipe() -> Iterator[Callable[[bytes], int]]:
    """Return the read end of a pipe that a thread fills."""
    threads = []

    def fill(data: bytes) -> int:
        read, write = os.pipe()

        def run() -> None:
            with suppress(BrokenPipeError), open(write, "wb") as file:
                file.write(data)

        thread = threading.Thread(target=run)
        thread.start()
        threads.append((thread, read))
        return read

    yield fill
    for thread, read in threads:
        with suppress(OSError):
            os.close(read)
        thread.join()


@pytest.mark.parametrize("refusal", [None, OSError(22, "Invalid argument"), OSError(9, "Bad file"), OSError(38, "no")])
def test_splice(
    refusal: OSError | None, pipe: Callable[[bytes], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long range is spliced from pipe to file; if that is refused it is read and written."""
    spliced: list[int] = []
    real = os.splice

    def splice(source: int, target: int, count: int) -> int:
        if refusal is not None:
            raise refusal
        done = real(source, target, count)
        spliced.append(done)
        return done

    monkeypatch.setattr(os, "splice", splice)
    source = StreamSource(DescriptorReader(pipe(big())), "x.tar")
    with open_sink("path", str(tmp_path / "out")) as sink:
        source.peek(0, 512)
        source.send(0, 4 * MIB, sink)
        source.release(4 * MIB)
        assert source.peek(4 * MIB, 512)[:512] == big()[4 * MIB : 4 * MIB + 512]
        source.send(4 * MIB, 5 * MIB, sink)
    assert (tmp_path / "out").read_bytes() == big()
    assert (sum(spliced) > 2 * MIB) == (refusal is None)
    source.close()


def test_splice_to_a_file_opened_for_appending(pipe: Callable[[bytes], int], tmp_path: Path) -> None:
    """A file that is open for appending refuses splice, and gets the same bytes."""
    path = tmp_path / "out"
    path.write_bytes(b"before")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    StreamSource(DescriptorReader(pipe(big())), "x.tar").send(0, 5 * MIB, Sink(fd, "out"))
    os.close(fd)
    assert path.read_bytes() == b"before" + big()


def test_splice_when_the_stream_is_cut(pipe: Callable[[bytes], int], tmp_path: Path) -> None:
    """A stream that ends inside the range is an error with the position."""
    source = StreamSource(DescriptorReader(pipe(big())), "x.tar")
    with pytest.raises(Problem, match=r"at 5242880: .*\[truncated\]"), open_sink("path", str(tmp_path / "out")) as sink:
        source.send(0, 6 * MIB, sink)
    assert os.listdir(tmp_path) == []


def test_a_long_copy_to_a_closed_pipe(pipe: Callable[[bytes], int]) -> None:
    """The error has the name of the sink, as for a short write."""
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(BrokenPipeError) as error:
        StreamSource(DescriptorReader(pipe(big())), "x.tar").send(0, 5 * MIB, Sink(write, "a name"))
    os.close(write)
    assert error.value.filename == "a name"


# ---- all of a stream, readers


def drained(reader: ByteReader, step: int = 1000) -> bytes:
    view, data = memoryview(bytearray(step)), b""
    while got := reader.readinto(view):
        data += view[:got]
    return data


def test_readers(tmp_path: Path) -> None:
    """Bytes read ahead come first; the descriptor is available once none are left."""
    path = tmp_path / "x"
    path.write_bytes(DATA)
    for step in (1, 7, 100_000):
        fd = os.open(path, os.O_RDONLY)
        os.lseek(fd, 299_000, os.SEEK_SET)
        reader = Prepended(b"head", DescriptorReader(fd))
        with pytest.raises(OSError, match="fileno"):
            reader.fileno()
        assert drained(reader, step) == b"head" + DATA[299_000:]
        assert reader.fileno() == fd
        reader.close()
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)
        reader.close()
    assert drained(Prepended(b"", Chunks(b"x"))) == b"x"


def test_descriptor_reader(tmp_path: Path) -> None:
    """Descriptors 0 to 2 are not closed; errors have the name of the input."""
    DescriptorReader(0).close()
    assert os.fstat(0)
    reader = DescriptorReader(os.open(tmp_path, os.O_RDONLY), "a name")
    with pytest.raises(IsADirectoryError) as error:
        reader.readinto(memoryview(bytearray(10)))
    assert error.value.filename == "a name"
    reader.close()


def test_a_closed_file_holds_no_memory() -> None:
    """The buffer of a closed file is freed, and filled again on demand: samples may keep the files of many shards."""
    with traced() as memory:
        files = []
        for _ in range(20):
            file = on_disk(bytes(range(256)) * 4)
            assert file.peek(256, 4)[:4] == b"\0\1\2\3"
            file.close()
            files.append(file)
        assert memory()[0] < 200_000
    assert all(file.peek(1, 4)[:4] == file.read(1, 5) == b"\1\2\3\4" for file in files)
