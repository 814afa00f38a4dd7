"""`tarkit.open`: all kinds of inputs, streams that can be read once, problems and policies."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row, raising, samples_of
from tests.api._inputs import Stream, until_error
from tests.conftest import Archive, tar

AB = {"a.x": b"1", "a.y": b"22", "b.x": b"3"}
READ = [("a", {"x": b"1", "y": b"22"}), ("b", {"x": b"3"})]


WAYS: dict[str, Callable[[], Any]] = {
    "path": lambda: "in.tar",
    "file:": lambda: "file:in.tar",
    "Path": lambda: Path("in.tar"),
    "directory": lambda: Path("one"),
    "glob": lambda: "i*.tar",
    "braces": lambda: "{in,}.tar" if os.path.exists(".tar") else "i{n..n}.tar",
    "list": lambda: ["in.tar"],
    "generator": lambda: (name for name in ("in.tar",)),
    "gzip": lambda: "in.tar.gz",
    "pipe:": lambda: "pipe:cat in.tar",
    "pipe: gzip": lambda: "pipe:cat in.tar.gz",
    "BytesIO": lambda: io.BytesIO(tar(AB)),
    "BytesIO gzip": lambda: io.BytesIO(gzip.compress(tar(AB))),
    "raw": lambda: Stream(tar(AB)),
    "list of file objects": lambda: [io.BytesIO(tar(AB))],
}


@each_row("way", WAYS)
def test_ways_in(way: str, archive: Archive) -> None:
    """The samples are the same for every kind of input, and again in a second run if the input can seek."""
    archive(AB)
    archive(AB, "one/in.tar")
    Path("in.tar.gz").write_bytes(gzip.compress(tar(AB)))
    data = tarkit.open(WAYS[way]())

    assert samples_of(data) == READ
    if way == "raw":
        with pytest.raises(tarkit.Unsupported, match="a file object that cannot seek can be read once"):
            list(data)
    else:
        assert samples_of(data) == READ


def test_an_open_file(archive: Archive) -> None:
    """A file object is read from its offset, and stays open; each run begins there. At its end it is an error."""
    with open(archive(b"x" * 100 + tar(AB)), "rb") as file:
        file.seek(100)
        with tarkit.open(file) as data:
            assert [each.key for each in data.head()] == ["a"]
            assert samples_of(data) == READ
        assert samples_of(data) == READ, "also behind the block"
        assert not file.closed
        assert {each.shard for each in data} == {"in.tar"}
        file.seek(0, os.SEEK_END)
        with pytest.raises(tarkit.Problem, match="the input is empty"):
            list(tarkit.open(file))


def test_two_iterators_over_a_file_object() -> None:
    """Two iterators would take bytes from each other: the first one raises an error."""
    data = tarkit.open(io.BytesIO(tar({f"{i}.x": bytes(1 << 20) for i in range(8)})))
    first = iter(data)
    next(first)
    second = iter(data)
    assert next(second).key == "0"

    with pytest.raises(tarkit.TarkitError, match="another iterator has begun to read this file object"):
        list(first)
    assert [each.key for each in second] == list("1234567")


def test_two_iterators_over_files(archive: Archive) -> None:
    """Each iterator has its own position."""
    data = tarkit.open([archive(AB), f"pipe:cat {archive(AB, 'b.tar')}"], allow=["repeated-key"])

    pairs = list(zip(data, data, strict=True))

    assert [each.key for each, _ in pairs] == list("abab")
    assert all(dict(each) == dict(other) and each.offset == other.offset for each, other in pairs)


def test_a_text_file(archive: Archive) -> None:
    """The message has the correct mode."""
    with open(archive(AB), encoding="latin-1") as file, pytest.raises(tarkit.Usage, match="not bytes") as error:
        list(tarkit.open(file))  # type: ignore[arg-type]
    assert error.value.hint == "open it in mode 'rb'"


def test_a_file_object_twice() -> None:
    """A file object that is given twice is an error, as the second one would be empty."""
    file = io.BytesIO(tar(AB))
    with pytest.raises(tarkit.Usage, match="a file object is named more than once"):
        tarkit.open([file, file])
    with pytest.raises(tarkit.Usage, match="a file object is named more than once"):
        tarkit.mix([tarkit.open(file), tarkit.open(file)], seed=1)


STDIN = """
import sys, tarkit
data = tarkit.open("-")
print([each.key for each in data.head({first})])
try:
    print([each.key for each in data])
except tarkit.Unsupported as error:
    print(error, "|", error.hint)
"""


ONCE = "stdin: a stream can be read once | write it to a file, and open that"


@each_row(
    ("first", "stdin", "second"),
    [
        (1, "pipe", ONCE),  # the rest might begin at a header, and be taken for the whole
        (5, "pipe", ONCE),
        (1, "in.tar", "['a', 'b']"),
        (1, "in.tar.gz", ONCE),  # it has another offset then
    ],
)
def test_stdin(first: int, stdin: str, second: str, archive: Archive) -> None:
    """What is read from stdin once cannot be read again, unless it is a file."""
    Path("in.tar.gz").write_bytes(gzip.compress(tar(AB)))
    name = archive(AB)
    with open(name if stdin == "pipe" else stdin, "rb") as file:
        given: dict[str, Any] = {"input": file.read()} if stdin == "pipe" else {"stdin": file}
        words = [sys.executable, "-c", STDIN.format(first=first)]
        ran = subprocess.run(words, **given, capture_output=True, check=True)
    assert ran.stdout.decode().splitlines() == [str(["a", "b"][:first]), second]
    assert ran.stderr == b""


def test_a_named_pipe_is_read_once(archive: Archive) -> None:
    """The first run reads all of it; a second run is an error, since it would wait for another writer."""
    data = tar(AB)
    os.mkfifo("fifo.tar")
    threading.Thread(target=lambda: Path("fifo.tar").write_bytes(data), daemon=True).start()
    dataset = tarkit.open("fifo.tar")

    assert samples_of(dataset) == READ
    with pytest.raises(tarkit.Unsupported, match=r"fifo\.tar: a stream can be read once"):
        list(dataset)


# ---- Damage


SCATTERED = [("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")]


@pytest.mark.parametrize("stream", [False, True])
def test_a_problem_is_an_error(stream: bool, archive: Archive) -> None:
    """Samples before the problem are yielded; a second run has the same error."""
    name = archive(SCATTERED)
    data = tarkit.open(f"pipe:cat {name}" if stream else name)
    for _ in range(2):
        found, error = until_error(data)
        assert isinstance(error, tarkit.Problem)
        assert (found, error.name, error.offset) == (["a", "b"], "scattered-sample", 2048)


def test_a_cut_archive(archive: Archive) -> None:
    """The end is an error by default; allow keeps complete entries, skip drops the damaged sample."""
    name = archive(tar(AB)[:2600])

    with pytest.raises(tarkit.Problem) as error:
        list(tarkit.open(name))
    assert (error.value.name, error.value.archive) == ("truncated", "in.tar")
    told: list[str] = []
    assert samples_of(tarkit.open(name, allow="truncated", on_problem=told.append)) == READ[:1]
    assert samples_of(tarkit.open(name, skip=["truncated"], on_problem=told.append)) == READ[:1]
    assert samples_of(tarkit.open(name, maxerr=1, on_problem=told.append)) == READ[:1]
    assert [each.count("[truncated]") for each in told] == [1, 1, 1]


def test_warnings(archive: Archive) -> None:
    """They are for the line that iterates, may be errors as any warning, and go to on_problem in each run."""
    name, told = archive(SCATTERED), list[str]()
    with pytest.warns(tarkit.TarkitWarning) as caught:
        found = {sample.key: dict(sample) for sample in tarkit.open(name, skip=["scattered-sample"])}
    assert found == {"a": {"x": b"1"}, "b": {"x": b"2"}}
    of_tarkit = [each for each in caught if each.category is not ResourceWarning]  # those are of an earlier test
    assert [(Path(each.filename).name, each.category) for each in of_tarkit] == [("test_open.py", tarkit.TarkitWarning)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", tarkit.TarkitWarning)
        with pytest.raises(tarkit.TarkitWarning, match="scattered"):
            list(tarkit.open(name, allow=["scattered-sample"]))
        data = tarkit.open(name, allow=["scattered-sample"], on_problem=told.append)
        list(data)
        list(data)
    assert told == ["in.tar: at 2048: the key 'a' occurs again [scattered-sample]"] * 2


def test_an_exception_of_on_problem_ends_the_run(archive: Archive) -> None:
    """The exception is raised unchanged, and the dataset can be read again."""
    calls = []

    def refuse(text: str) -> None:
        calls.append(text)
        raise KeyError(text)

    data = tarkit.open(archive(SCATTERED), allow=["scattered-sample"], on_problem=refuse)
    for _ in range(2):
        with pytest.raises(KeyError):
            data.write("out.tar")
    assert len(calls) == 2
    assert sorted(os.listdir()) == ["in.tar"]


# ---- Other options


def test_several_archives(archive: Archive) -> None:
    """Archives are read in sequence, or a sample of each in turn; `shard_slice` applies to each."""
    names = [archive({f"{shard}{i}.x": b"" for i in range(3)}, f"{shard}.tar") for shard in "ab"]

    def read(**options: Any) -> str:
        return " ".join(each.key for each in tarkit.open(names, **options))

    assert read() == "a0 a1 a2 b0 b1 b2"
    assert read(interleave=2) == read(interleave=9) == "a0 b0 a1 b1 a2 b2"
    assert read(prefetch=3) == "a0 a1 a2 b0 b1 b2"
    assert read(shard_slice=slice(2)) == "a0 a1 b0 b1"
    assert read(shard_slice=slice(0, None, 2)) == "a0 a2 b0 b2"
    assert {each.shard for each in tarkit.open(names)} == {"a.tar", "b.tar"}


def test_tmpdir(archive: Archive) -> None:
    """Data that exceed memory go to `tmpdir`; afterwards it is empty."""
    Path("tmp").mkdir()
    name = archive({f"{i}.x": bytes(100_000) for i in range(30)})
    data = tarkit.open(f"pipe:cat {name}", tmpdir="tmp").sort(reverse=True, memory=1_000_000)

    assert [each.key for each in data][:2] == ["9", "8"]
    assert os.listdir("tmp") == []
    with pytest.raises(OSError, match="none"):
        list(tarkit.open(f"pipe:cat {name}", tmpdir="none").sort(memory=1_000_000))


def test_a_command_that_fails(archive: Archive) -> None:
    """The samples before the failure are yielded, then the error is raised."""
    found, error = until_error(tarkit.open(f"pipe:cat {archive(AB)}; exit 3"))
    assert (found, "ended with status 3" in str(error)) == (["a"], True)


def test_an_error_of_a_file_object() -> None:
    """The exception is raised unchanged."""
    file = Stream(tar(AB))
    file.readinto = raising(RuntimeError, "the network is down")  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the network is down"):
        list(tarkit.open(file))
