"""Dataset.map and Dataset.proc: results, errors, processes, and cleanup."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row, happens, samples_of
from tests.api._inputs import SIXTY, until_error
from tests.conftest import Archive


class Lower:
    """An object with a method, which can be called itself."""

    def __init__(self, field: str) -> None:
        self.field = field

    def method(self, sample: tarkit.Sample) -> dict[str, bytes]:
        """Return the sample with the field in capitals."""
        return {self.field: sample[self.field].upper()}

    __call__ = method


def children() -> set[str]:
    """Return the child processes that were not waited for."""
    found: set[str] = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found |= set(Path(f"/proc/self/task/{task}/children").read_text().split())
    return found


def temporary() -> set[str]:
    """Return the open files of this process that have no name."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return {f"{link} {name}" for link in links if os.path.lexists(link) and "(deleted)" in (name := os.readlink(link))}


@pytest.mark.forks
def test_each_kind_of_callable(archive: Archive) -> None:
    """A lambda, a closure, a method and an object are called, without being pickled."""
    source, suffix = archive({"a.txt": b"x", "b.txt": b"y"}), b"!"

    def closure(sample: tarkit.Sample) -> dict[str, bytes]:
        return {"txt": sample["txt"] + suffix}

    called: list[tuple[Callable[[tarkit.Sample], Any], list[bytes]]] = [
        (lambda sample: {"txt": sample["txt"] * 2}, [b"xx", b"yy"]),
        (closure, [b"x!", b"y!"]),
        (Lower("txt").method, [b"X", b"Y"]),
        (Lower("txt"), [b"X", b"Y"]),
    ]
    for function, expected in called:
        for processes in (1, 3):
            assert [each["txt"] for each in tarkit.open(source).map(function, processes=processes)] == expected


@pytest.mark.forks
def test_the_argument_is_a_sample(archive: Archive) -> None:
    """The argument has key, shard, offset and sizes of the input, in any process."""

    def look(sample: tarkit.Sample) -> dict[str, Any]:
        assert isinstance(sample, tarkit.Sample)
        assert "jpg" in sample
        assert "__key__" not in sample
        return {"json": [sample.key, sample.shard, sample.offset, sample.sizes, list(sample), sample["jpg"].decode()]}

    source = archive(SIXTY)
    plain = [look(sample) for sample in tarkit.open(source)]
    for processes in (1, 3):
        data = tarkit.open(source).map(look, processes=processes)
        assert [{"json": json.loads(sample["json"])} for sample in data] == plain


def test_values_that_can_be_returned(archive: Archive) -> None:
    """A function may return values that a writer takes; they are encoded in the same way."""
    values: dict[str, Any] = {
        "a": b"\0\xff",
        "b": bytearray(b"array"),
        "c": memoryview(b"view"),
        "d": "\u00e4",
        "e": 7,
        "f": 1.5,
        "g.json": {"a": [1, None]},
        "h": b"",
    }
    with tarkit.TarWriter("expected.tar") as out:
        out.write("k", values)
    made = tarkit.open(archive({"k.x": b""})).map(lambda sample: values)
    assert samples_of(made) == samples_of(tarkit.open("expected.tar"))


@each_row(
    "returned,message",
    [
        (3, "returned an int, not a dict, several dicts or None"),
        ({"x": None}, "NoneType has no encoding"),
        ({"x": object()}, "object has no encoding"),
        ({"x.npy": "text", "y.json": {1, 2}}, "y.json"),
        ({"__key__": "a.b", "x": b""}, "'a.b'"),
    ],
)
def test_what_cannot_be_a_sample(returned: object, message: str, archive: Archive) -> None:
    """The error has the returned value and the sample, and there is no output."""
    data = tarkit.open(archive({"k.x": b"1"})).map(lambda sample: returned)
    with pytest.raises(tarkit.TarkitError, match=r"^in\.tar: 'k' ") as caught:
        data.write("out.tar")
    assert message in str(caught.value)
    assert not os.path.exists("out.tar")


@pytest.mark.forks
def test_an_exception_of_the_function(archive: Archive) -> None:
    """An exception ends the run with the sample and the line; in this process it is the cause as well."""

    def fails(sample: tarkit.Sample) -> tarkit.Sample:
        if sample.key == "d/017":
            raise LookupError("a message")
        return sample

    source = archive(SIXTY)
    for processes in (1, 3):
        data = tarkit.open(source).map(fails, processes=processes)
        with pytest.raises(tarkit.TarkitError, match=r"'d/017' raised LookupError in test_map.py, line \d+") as caught:
            data.write("out.tar")
        assert "a message" in str(caught.value)
        assert (type(caught.value.__cause__) is LookupError) is (processes == 1)
        assert not os.path.exists("out.tar")
        assert until_error(data)[0] == [f"d/{i:03}" for i in range(17)]


@pytest.mark.forks
def test_on_error(archive: Archive) -> None:
    """skip drops such samples with a warning; keep passes them on unchanged."""

    def fails(sample: tarkit.Sample) -> dict[str, bytes]:
        if int(sample.key[-1]) == 7:
            raise ValueError("seven")
        return {"new": b"1"}

    source = archive(SIXTY)
    before = dict(samples_of(tarkit.open(source)))
    for processes in (1, 3):
        messages: list[str] = []
        data = tarkit.open(source, on_problem=messages.append)
        skipped = samples_of(data.map(fails, processes=processes, on_error="skip"))
        assert [key for key, _ in skipped] == [key for key in before if key[-1] != "7"]
        assert len(messages) == 4  # three lines, and one that more follow
        assert "'d/007' raised ValueError" in messages[0]
        kept = dict(samples_of(data.map(fails, processes=processes, on_error="keep")))
        assert kept == {key: before[key] if key[-1] == "7" else {"new": b"1"} for key in before}


@pytest.mark.forks
def test_retries(archive: Archive) -> None:
    """A failed call is repeated up to the given number."""
    source = archive({"a.x": b"1", "b.x": b"2"})
    for processes in (1, 3):

        def counted(sample: tarkit.Sample) -> tarkit.Sample:
            with open(f"calls-{sample.key}", "a+") as file:
                file.write("x")
                file.flush()
                if sample.key == "b" and file.tell() < 3:
                    raise OSError("not yet")
            return sample

        assert len(list(tarkit.open(source).map(counted, processes=processes, retries=2))) == 2
        assert (Path("calls-a").read_text(), Path("calls-b").read_text()) == ("x", "xxx")
        os.unlink("calls-b")
        with pytest.raises(tarkit.TarkitError, match=r"'b' raised OSError.*\(2 attempts\)"):
            list(tarkit.open(source).map(counted, processes=processes, retries=1))
        os.unlink("calls-a")
        os.unlink("calls-b")


@pytest.mark.forks
def test_timeout(archive: Archive) -> None:
    """A call that takes too long fails, with one process as well."""
    source = archive({f"{key}.x": b"" for key in "ab"})
    for processes in (1, 2):
        messages: list[str] = []
        data = tarkit.open(source, on_problem=messages.append)
        slow = data.map(lambda sample: time.sleep(20 * (sample.key == "b")) or sample, timeout=0.5, on_error="skip",
                        processes=processes)  # fmt: skip
        assert [sample.key for sample in slow] == ["a"]
        assert messages == ["in.tar: 'b' took longer than 0.5 s"]


@pytest.mark.forks
def test_a_process_that_dies(archive: Archive) -> None:
    """The error names the current sample; with on_error="skip" only that sample is left out."""

    def dies(sample: tarkit.Sample) -> tarkit.Sample:
        if sample.key == "b":
            os.kill(os.getpid(), signal.SIGKILL)
        return sample

    data = tarkit.open(archive({"a.x": b"", "b.x": b""})).map(dies, processes=3)
    with pytest.raises(tarkit.TarkitError, match=r"'b' the process that calls the function was ended by SIGKILL"):
        data.write("out.tar")
    assert not os.path.exists("out.tar")
    messages: list[str] = []
    some = tarkit.open("in.tar", on_problem=messages.append).map(dies, processes=3, on_error="skip")
    assert [sample.key for sample in some] == ["a"]
    assert messages == ["in.tar: 'b' the process that calls the function was ended by SIGKILL"]


@pytest.mark.forks
def test_order(archive: Archive) -> None:
    """The order is that of the samples; without order, slow samples come later, and none is lost."""

    def slow(sample: tarkit.Sample) -> tarkit.Sample:
        time.sleep(0.5 * (sample.key == "d/000"))
        return sample

    data = tarkit.open(archive(SIXTY))
    expected = [sample.key for sample in data]
    assert [sample.key for sample in data.map(slow, processes=2)] == expected
    found = [sample.key for sample in data.map(slow, processes=2, ordered=False)]
    assert found != expected
    assert sorted(found) == expected


@pytest.mark.forks
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="Linux tells which processes and files there are")
def test_an_error_of_a_later_step(archive: Archive) -> None:
    """No process and no thread is left, although the exception and its traceback still exist."""
    before = children(), threading.active_count()
    data = tarkit.open(archive(SIXTY), on_problem=lambda line: None)
    same = data.map(lambda sample: {**sample, "__key__": "k"}, processes=2)
    mapped = data.map(lambda sample: sample, processes=2)

    def fails(sample: tarkit.Sample) -> tarkit.Sample:
        raise ValueError

    for consume in (
        lambda: same.write("out.tar"),
        lambda: same.split("out-%d.tar", count=2),
        lambda: mapped.map(fails).write("out.tar"),
        lambda: mapped.map(fails).split("out-%d.tar", count=2),
        lambda: list(mapped.map(fails)),
        lambda: same.extract("out"),
    ):
        with pytest.raises(tarkit.TarkitError) as raised:
            consume()
        assert (children(), threading.active_count()) == before
        assert raised.value.__traceback__ is not None


@pytest.mark.slow
@pytest.mark.forks
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="Linux tells which processes and files there are")
def test_an_iterator_that_is_abandoned(archive: Archive) -> None:
    """No process and no temporary file is left, nor after an exception in the loop or the function."""
    data = tarkit.open(archive(SIXTY))
    gc.collect()
    before = children(), temporary(), set(os.listdir())

    def fails(sample: tarkit.Sample) -> tarkit.Sample:
        raise ValueError

    for made in (
        data.map(lambda sample: sample, processes=3),
        data.map(lambda sample: sample, processes=2).map(lambda sample: sample, processes=2),
        data.map(lambda sample: sample, timeout=5),
        data.proc("true", processes=2),
        data.map(fails, processes=3),
    ):
        try:
            for _ in made:
                break
            for _ in made:
                raise KeyError
        except (KeyError, tarkit.TarkitError):
            pass
        del made
        _ = None
        gc.collect()
        assert happens(lambda: (children(), temporary(), set(os.listdir())) == before)


@pytest.mark.forks
def test_nothing_is_printed(archive: Archive, capfd: pytest.CaptureFixture[str]) -> None:
    """Workers and commands print nothing; a function in this process prints as usual."""

    def loud(sample: tarkit.Sample) -> tarkit.Sample:
        print("out")  # noqa: T201
        print("err", file=sys.stderr)  # noqa: T201
        return sample

    data = tarkit.open(archive({"a.x": b"", "b.x": b""}))
    assert len(list(data.map(loud, processes=2))) == 2
    assert len(list(data.proc("echo out; echo err >&2"))) == 2
    assert capfd.readouterr() == ("", "")
    assert len(list(data.map(loud))) == 2
    assert capfd.readouterr() == ("out\nout\n", "err\nerr\n")


@pytest.mark.slow
@pytest.mark.forks
def test_keys_that_come_back(archive: Archive) -> None:
    """A repeated key is found after a shuffle and a map that reads ahead, also if the function returns it."""
    archive({f"{i}.x": b"" for i in range(200)}, "a.tar")
    archive({f"{i}.x": b"" for i in range(199, 400)}, "b.tar")
    both = tarkit.open(["a.tar", "b.tar"])
    for seed in range(5):
        for processes in (1, 2):
            with pytest.raises(tarkit.Problem, match="the key '199' is already in the output"):
                both.shuffle(seed).map(lambda sample: sample, processes=processes).write("out.tar")
            gc.collect()  # the traceback refers to the run, and so to its threads
    apart = both.shuffle(1).map(lambda sample: {**sample, "__key__": sample.shard[0] + sample.key}, processes=2)
    assert apart.write("out.tar").samples == 401
    with pytest.raises(tarkit.Problem, match="gave the key '0', which was given before"):
        tarkit.open("a.tar").map(lambda sample: {**sample, "__key__": str(int(sample.key) % 150)}).write("o.tar")


@pytest.mark.forks
def test_steps_before_and_behind(archive: Archive) -> None:
    """Only selected samples are passed to the function; later steps see its results; each run calls it again."""
    calls: list[str] = []

    def called(sample: tarkit.Sample) -> dict[str, Any]:
        calls.append(sample.key)
        return {"n": int(sample.key[-3:])}

    data = tarkit.open(archive(SIXTY)).match("5$").map(called)
    assert calls == []
    assert [each.key for each in data.where("n > 30").sort("n", reverse=True).head(2)] == ["d/055", "d/045"]
    assert calls == [f"d/0{i}5" for i in range(6)]
    parts = data.map(lambda sample: {"m": sample["n"]}, processes=2).split("p-%d.tar", count=4)
    assert [part.samples for part in parts] == [4, 2]
    assert data.stats().fields == {"n": tarkit.FieldStats(6, 11, 1, 2, 2)}
    assert len(list(tarkit.open("in.tar").map(lambda sample: sample, processes=2).shuffle(1))) == 60
