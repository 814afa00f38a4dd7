"""Abandoned iterators, huge samples, processes: nothing stays open, and data are never mixed up."""

from __future__ import annotations

import gc
import gzip
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import descriptors, gone, happens, pid_in
from tests.conftest import Archive, tar

SAMPLES = {f"{i}.x": str(i).encode() * 2000 for i in range(400)}


def test_an_iterator_that_is_left_closes_its_files(archive: Archive, here: Path) -> None:
    """Files, commands and temporary files are closed, for all steps."""
    name = archive(SAMPLES)
    Path("in.tar.gz").write_bytes(gzip.compress(tar({f"n{key}": value for key, value in SAMPLES.items()})))
    before = descriptors()
    stream = tarkit.open([f"pipe:cat {name}", "in.tar.gz"], interleave=2, prefetch=1)
    for data in (
        tarkit.open(name),
        tarkit.open("in.tar.gz"),
        stream,
        stream.sort(memory=1 << 20),
        stream.buffer_shuffle(50, seed=1),
        tarkit.mix([tarkit.open(name), tarkit.open("in.tar.gz")], seed=1),
    ):
        for count, _ in enumerate(data):
            if count == 5:
                break
    del data, stream, _
    assert happens(lambda: gc.collect() >= 0 and descriptors() <= before)


def test_threads_of_inputs_that_were_opened_ahead_end(archive: Archive) -> None:
    """An iterator that is left in the first input ends the threads that read the next ones ahead."""
    data = tar(SAMPLES)
    before = threading.active_count()
    for kind in ("raw", "gz", "pipe"):
        ahead: list[Any] = [archive(SAMPLES)]
        if kind == "raw":
            ahead += [io.BufferedReader(io.BytesIO(data)) for _ in range(2)]  # type: ignore[arg-type]
        elif kind == "gz":
            Path("b.tar.gz").write_bytes(gzip.compress(data))
            ahead += ["b.tar.gz"]
        else:
            ahead += [f"pipe:cat {ahead[0]} {ahead[0]}"]
        assert len(tarkit.open(ahead, prefetch=2).head(3)) == 3
    assert happens(lambda: threading.active_count() <= before)


def test_a_command_that_is_left_ends(archive: Archive) -> None:
    """The command ends, and its end by a signal is no error."""
    name = archive(SAMPLES)
    samples = iter(tarkit.open(f"pipe:echo $$ > pid; exec cat {name} {name} /dev/zero"))
    assert next(samples).key == "0"
    del samples
    gc.collect()
    pid = pid_in("pid")
    assert happens(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_command_ends_with_a_mix_that_has_enough(archive: Archive) -> None:
    """A mix that stops before its sources are read ends their commands, while the dataset lives."""
    name = archive(SAMPLES)
    mixed = tarkit.mix([tarkit.open(f"pipe:echo $$ > pid; cat {name}"), tarkit.open(name)], seed=1, total=5)
    assert len(list(mixed)) == 5
    assert gone(pid_in("pid"))


def test_an_exception_in_the_loop(archive: Archive) -> None:
    """The exception is raised unchanged, and the dataset can be read again."""
    data = tarkit.open(f"pipe:cat {archive(SAMPLES)}").shuffle(seed=1)
    with pytest.raises(ZeroDivisionError):
        _ = [1 // 0 for _ in data]
    assert len(list(data)) == 400


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells how much memory there was")
def test_a_huge_sample_of_a_stream(archive: Archive, here: Path) -> None:
    """The fields of a sample larger than the window of a stream are correct in any order, in bounded memory."""
    fields = {f"f{i}": bytes([65 + i]) * (9 << 20) for i in range(5)}
    archive({"a.x": b"1", **{f"b.{name}": data for name, data in fields.items()}, "c.x": b"3"})
    code = """if True:
        import hashlib, sys, tarkit
        for sample in tarkit.open(sys.argv[1]):
            found = {name: hashlib.md5(sample[name]).hexdigest() for name in sorted(sample, reverse=True)}
            print(sample.key, sample.sizes, found)
        print(int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) >> 10, file=sys.stderr)
    """
    file, stream = (
        subprocess.run([sys.executable, "-c", code, word], capture_output=True, check=True, text=True)
        for word in ("in.tar", "pipe:cat in.tar")
    )
    assert file.stdout == stream.stdout != ""
    assert int(stream.stderr) < 64


@pytest.mark.forks
def test_a_copy_of_the_process_leaves_a_writer_alone(here: Path) -> None:
    """A process that is forked while an archive is written does not remove it when it ends."""
    with tarkit.TarWriter("o.tar") as out:
        out.write("a", {"x": b"1"})
        if (child := os.fork()) == 0:
            del out
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        out.write("b", {"x": b"2"})
    assert [each.key for each in tarkit.open("o.tar")] == ["a", "b"]


def test_shards_that_change_between_two_runs(archive: Archive) -> None:
    """Each run opens the shards again: the second one has their new content."""
    data = tarkit.open(archive(SAMPLES))
    assert len(list(data)) == 400
    archive({"z.x": b"new"})
    assert [dict(each) for each in data] == [{"x": b"new"}]
    os.unlink("in.tar")
    with pytest.raises(FileNotFoundError, match=r"in\.tar"):
        list(data)
    archive({"y.x": b"again"})
    assert [each.key for each in data] == ["y"]
