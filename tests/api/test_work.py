"""map, proc and worker of a dataset do what `tarkit proc` does: the same archives, to the byte, and failures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.api._inputs import TEN
from tests.conftest import Archive, Run, entries, keys

THIRD = "((TARKIT_INDEX % 3 != 1)) || { echo bad $TARKIT_KEY >&2; exit 3; }; echo > sample.z"


def bytes_of(name: str) -> bytes | list[Any]:
    """An archive; of rejects its entries, without the time that each sample took."""
    if name != "bad.tar":
        return Path(name).read_bytes()
    found: list[Any] = []
    for entry, content in entries(name):
        if entry.endswith("__error__.json"):
            assert isinstance(content, bytes)
            content = json.loads(content) | {"seconds": 0}
        found.append((entry, content))
    return found


@pytest.mark.forks
@pytest.mark.parametrize("processes", [1, 2])
def test_batches_of_samples(processes: int, archive: Archive) -> None:
    """Without decode a batch is a list of `Sample`; the last one is shorter."""

    def sizes(samples: list[tarkit.Sample]) -> list[dict[str, Any]]:
        return [{"json": [len(samples), sample.key, sample.shard]} for sample in samples]

    found = tarkit.open(archive(TEN)).map(sizes, batch=4, processes=processes)
    expected = [f'[{4 if key < 8 else 2}, "{key}", "in.tar"]' for key in range(10)]
    assert [re.sub(r"\s+", " ", each["json"].decode()).strip() for each in found] == expected


# ---- failures


@pytest.mark.forks
@each_row(
    ("words", "arguments"),
    [
        ("--rejects bad.tar --on-error keep --max-errors 80%", {"on_error": "keep", "max_errors": "80%"}),
        ("--rejects bad.tar --max-errors 4", {"max_errors": 4}),
    ],
)
def test_rejects(words: str, arguments: dict[str, Any], archive: Archive, run: Run) -> None:
    """The archive of failed samples is that of the command, and so are the warnings."""
    source = archive(TEN)
    said = run("proc", "-p", "2", "-c", THIRD, source, *words.split(), "-o", "out.tar", "--drop", "y").lines
    expected = [bytes_of(name) for name in ("out.tar", "bad.tar")]
    messages: list[str] = []
    data = tarkit.open(source, on_problem=messages.append).proc(THIRD, processes=2, rejects="bad.tar", **arguments)
    data.drop("y").write("out.tar")
    assert [bytes_of(name) for name in ("out.tar", "bad.tar")] == expected
    assert [f"tarkit: warning: {line}" for line in messages] == [line for line in said if "warning" in line]


def test_rejects_of_a_loop_and_of_shards(archive: Archive) -> None:
    """They are the same for all outputs; none are left by half a run."""

    def odd(sample: tarkit.Sample) -> tarkit.Sample:
        if int(sample.key) % 2:
            raise ValueError
        return sample

    data = tarkit.open(archive(TEN), on_problem=lambda line: None).map(odd, rejects="bad.tar")
    with tarkit.TarWriter("loop.tar") as out:
        for sample in data:
            out.write(sample.key, sample)
    rejects = bytes_of("bad.tar")
    assert keys("bad.tar") == "1 3 5 7 9"
    data.split("s-%d.tar", count=2)
    assert bytes_of("bad.tar") == rejects
    os.unlink("bad.tar")
    data.head(3)
    assert not os.path.exists("bad.tar")


# ---- text


@each_row(
    ("mode", "text", "expected"),
    [
        ("lines", b"a b\n\nc", {"000000000.txt": b"a b\n", "000000001.txt": b"\n", "000000002.txt": b"c"}),
        ("pages", b"a\nb\n\fc\n\f", {"000000000.txt": b"a\nb\n", "000000001.txt": b"c\n"}),
        ("pages", b"a", {"000000000.txt": b"a"}),
        ("lines", b"", {}),
    ],
)
def test_samples_of_text(mode: Any, text: bytes, expected: dict[str, bytes], here: Path) -> None:
    """There is a sample for each line, or each page, of a file or a stream."""
    Path("in.txt").write_bytes(text)
    for word in ("in.txt", "pipe:cat in.txt"):
        tarkit.open(word, mode=mode).write("out.tar")
        assert dict(entries("out.tar")) == expected


def test_samples_of_keys(here: Path) -> None:
    """A line is the key of a sample that has no fields yet."""
    Path("list").write_bytes(b"a\n\nd/b\r\n")
    data = tarkit.open("list", mode="keys").map(lambda sample: {"txt": sample.key})
    assert [(sample.key, sample["txt"]) for sample in data] == [("a", b"a"), ("d/b", b"d/b")]
    Path("list").write_bytes(b"a\nb.jpg\n")
    with pytest.raises(tarkit.TarkitError, match=r"list:2: invalid key 'b[.]jpg'"):
        list(tarkit.open("list", mode="keys"))


@each_row(("mode", "count"), [("lines", 6), ("pages", 3), ("keys", 5)])
def test_text_of_several_files(mode: Any, count: int, here: Path) -> None:
    """Also a slice of each; they can be read again."""
    Path("a.txt").write_text("one\ntwo\n\fthree\n")
    Path("b.txt").write_text("four\n\nfive")
    for part, samples in ((None, count), (slice(1), 2)):
        data = tarkit.open(["a.txt", "b.txt"], mode=mode, shard_slice=part)
        assert len(list(data)) == len(list(data)) == samples
        assert sorted(each.key for each in data.shuffle(1)) == sorted(each.key for each in data)
    with pytest.raises(tarkit.Unsupported, match="text that is read twice must be in a file"):
        tarkit.open("pipe:cat a.txt", mode=mode).split("x-%d.tar", shards=1)
    with pytest.raises(tarkit.Unsupported, match="in archives as they are"):
        data.indexed()


# ---- steps that read twice


@pytest.mark.forks
@each_row(
    "write",
    [
        lambda data: data.split("out/{0..0}.tar", shards=1),
        lambda data: data.map(dict).select("y x").split("out/{0..0}.tar", shards=1),
        lambda data: data.shuffle(3).shuffle(7).split("out/{0..0}.tar", shards=1),
        lambda data: data.extract("out"),
    ],
)
def test_a_function_is_called_once(write: Callable[[tarkit.Dataset], object], archive: Archive) -> None:
    """Results are kept for the second pass; their order and their bytes are those of an archive of results."""
    source = archive(dict(sorted({**TEN, "5.big": bytes(2 << 20), "README": b"without a key"}.items())))
    calls: list[str] = []

    def called(sample: tarkit.Sample) -> Any:
        calls.append(sample.key)
        if sample.key == "3":
            return None
        return sample if sample.key in "15" else {**sample, "__key__": f"k/{sample.key}", "y": b"new"}

    def written() -> dict[str, bytes]:
        found = {str(path): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
        for name in found:
            os.unlink(name)
        return found

    os.mkdir("out")
    tarkit.open(source).map(called).write("mapped.tar")
    assert len(calls) == 10
    calls.clear()
    for given in (source, f"pipe:cat {source}"):
        write(tarkit.open(given).map(called))
        assert calls == [str(index) for index in range(10)], given
        calls.clear()
        found = written()
        write(tarkit.open("mapped.tar"))
        assert written() == found


def test_what_a_command_prints(archive: Archive) -> None:
    """The option `add_log` makes a field of stdout and stderr, for any command, with the steps before it applied."""
    data = tarkit.open(archive({"a.txt": b"1", "a.cls": b"2"})).select("text:txt cls").rekey("x/{key}")
    command = "cat <<E\n$TARKIT_KEY\nE\necho err >&2 # the end"
    [sample] = data.proc(command, add_log="log")
    assert {"key": sample.key, **{field: bytes(sample[field]) for field in sample}} == {
        "key": "x/a",
        "text": b"1",
        "cls": b"2",
        "log": b"x/a\nerr\n",
    }
