"""Files that are not in the cache of the system: what is asked for, in which order items come, how many are taken."""

import os
from ctypes import CDLL, byref, c_char, c_size_t, c_ubyte
from mmap import MAP_PRIVATE, mmap
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import pytest

from tarkit.streams import cold
from tarkit.streams.cold import EVERY, GROUPS, MEMORY, ColdFiles, ask_for_file, ask_for_range
from tarkit.streams.files import Descriptor, File
from tarkit.streams.source import FileSource

needs_advice = pytest.mark.skipif(cold._THREAD is None, reason="the system takes no advice about files")


@pytest.fixture
def tmp_path():
    """Make a directory on a disk: that of other tests may be in memory."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


def is_cached(path):
    """Return whether the first page of a file is in the cache of the system, without reading it."""
    with open(path, "rb") as file, mmap(file.fileno(), 1, MAP_PRIVATE) as view:
        page, state = c_char.from_buffer(view), c_ubyte()
        assert CDLL(None).mincore(byref(page), c_size_t(1), byref(state)) == 0
        del page
    return bool(state.value & 1)


def read(path):
    with open(path, "rb") as file:
        file.read()


def evict(paths):
    """Drop files from the cache of the system; skip the test where that does not work, or reads are not counted."""
    for path in paths:
        before = cold._blocks()
        fd = os.open(path, os.O_RDWR)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if path is paths[-1] and not is_cached(path):
            os.pread(fd, 1, 0)
            if cold._blocks() == before:
                pytest.skip("the system does not count what is read from this file system")
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    if any(map(is_cached, paths)):
        pytest.skip("this file system keeps its files in the cache")


@pytest.fixture
def files(tmp_path):
    paths = []
    for number in range(40 * EVERY):
        paths.append(tmp_path / f"{number:05d}")
        paths[-1].write_bytes(b"%d" % number * 100)
    return [os.fsencode(path) for path in paths]


@needs_advice
def test_cold_files_are_read_before_their_turn(files):
    evict(files)
    state = ColdFiles()
    items = state.ahead(files, ask_for_file)
    for _ in range(EVERY + 1):
        read(next(items))
    assert state.cold
    bound = (GROUPS + 1) * EVERY
    wanted = files[: bound - 1]
    deadline = monotonic() + 60
    while not all(map(is_cached, wanted)) and monotonic() < deadline:
        sleep(0.01)
    assert all(map(is_cached, wanted))
    assert not any(map(is_cached, files[bound + EVERY :]))  # bounded


@needs_advice
def test_files_in_the_cache_are_not_asked_for(files):
    for path in files:
        read(path)
    asked = []
    state = ColdFiles()
    for path in state.ahead(files, asked.append):  # type: ignore[arg-type]
        read(path)
    # other programs may have the system drop a few
    assert len(asked) < len(files) // 2


@needs_advice
def test_the_next_files_are_asked_for_at_once(files):
    evict(files)
    state = ColdFiles()
    for path in state.ahead(files[: 2 * EVERY], ask_for_file):
        read(path)
    assert state.cold
    asked = []
    next(state.ahead(files[2 * EVERY :], lambda path: asked.append(path) or ask_for_file(path)))
    assert len(asked) == GROUPS * EVERY


@pytest.mark.parametrize("seed", range(60))
def test_any_files_come_in_order_with_their_errors(seed, monkeypatch):
    """Disks that are read at random: the same items, the same error in its turn, a bounded number taken ahead."""
    random = Random(seed)
    count, every = random.randrange(3000), random.choice((1, 2, EVERY))
    fails = random.choice((None, random.randrange(count + 1)))
    share, size = random.choice((0, 0.1, 0.5, 1)), random.choice((0, 1000, MEMORY // 50))
    blocks, taken = [0], [0]

    def more_blocks():
        blocks[0] += random.random() < share
        return blocks[0]

    def items():
        for number in range(count):
            if number == fails:
                raise ValueError(number)
            taken[0] = number + 1
            yield number

    monkeypatch.setattr(cold, "_THREAD", 1)
    monkeypatch.setattr(cold, "_blocks", more_blocks)
    state = ColdFiles()
    state.cold = random.random() < 0.5
    came = []
    asked = set()
    end = None
    try:
        for item in state.ahead(items(), lambda item: asked.add(item) or size, every):
            came.append(item)
            assert taken[0] - len(came) <= GROUPS * every
            assert size * (taken[0] - len(came)) <= MEMORY + size * every
    except ValueError as error:
        end = error.args[0]
    expected = count if fails is None or fails >= count else fails
    assert came == list(range(expected))
    assert end == (fails if expected == fails and fails < count else None)
    assert share or not state.cold or not asked or count <= every


def test_nothing_but_regular_files_is_opened(tmp_path):
    fifo, empty, directory = tmp_path / "fifo", tmp_path / "empty", tmp_path / "directory"
    os.mkfifo(fifo)
    empty.touch()
    directory.mkdir()
    for path in (fifo, empty, directory, tmp_path / "missing"):
        assert ask_for_file(os.fsencode(path)) == 0


@needs_advice
def test_a_range_is_bounded(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(3 << 20))
    source = FileSource(os.open(path, os.O_RDONLY), "file")
    assert ask_for_range(source, 1 << 20, (1 << 20) + 100) == 100
    assert ask_for_range(source, 0, 3 << 20) == cold.MOST
    assert ask_for_range(object(), 0, 100) == 0


def test_an_archive_that_was_replaced_is_not_asked_for(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    file = File(Descriptor(os.open(path, os.O_RDONLY)), "file", str(path))
    file.close()
    path.unlink()
    assert ask_for_range(FileSource(file, "file"), 0, 100) == 0
