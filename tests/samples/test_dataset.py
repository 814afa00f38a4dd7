"""Opening inputs, one after another or several at a time: samples/dataset.py."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import lz4.frame
import pytest
import zstandard

from tarkit.errors import Problem
from tarkit.problems import Policy
from tarkit.samples import dataset as inputs_module
from tarkit.samples.dataset import DatasetReader, open_source
from tarkit.streams.location import Location, expand_inputs
from tarkit.streams.source import StreamSource, WindowSource
from tarkit.tar.reader import Raw, TarReader
from tests._tools import each_row, program
from tests.conftest import Archive, Content, Feed, Run, keys, tar

# As in the tests of commands, but with a command instead of the pipe, so that an input can be read more than once.
each_way = each_row("feed", [Feed("file"), "pipe:cat {}".format, Feed("gzip")])
Way: TypeAlias = Callable[[str], str]
AB: dict[str, Content] = {"a.x": b"1" * 700, "b.x": b"2"}
CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
    "lz4": lz4.frame.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
}
FOREIGN = {  # the first bytes of each, and the command that decodes it
    "a.tar.Z": (b"\x1f\x9d\x90", "compress (.Z)", "gzip -dc"),
    "a.tar.lz": (b"LZIP\x01\x0c", "lzip", "lzip -dc"),
    "a.tar.lzo": (b"\x89LZO\x00\r\n\x1a\n", "lzop", "lzop -dc"),
    "a.tar.lz4": (b"\x02\x21\x4c\x18", "legacy lz4", "lz4 -dc"),
    "a.tar.br": (b"\x0b\x02\x80", "brotli", "brotli -dc"),
}


def names(*words: str) -> str:
    """Return the keys of the samples in these inputs."""
    return " ".join((sample.key or b"-").decode() for sample in DatasetReader(expand_inputs(words), Policy()))


def read_all(source: WindowSource | StreamSource) -> bytes:
    data = b""
    while chunk := bytes(source.peek(len(data), 1)):
        source.release(len(data))
        data += chunk
    return data


def whole(word: str) -> bytes:
    """Return all bytes of an input, decompressed."""
    [location] = expand_inputs([word])
    source = open_source(location)
    data = read_all(source)
    source.close()
    return data


@each_row("codec", CODECS)
def test_compression_is_detected_by_content(codec: str, here: Path) -> None:
    """The suffix has no effect; several members or frames in sequence are one input."""
    pack = CODECS[codec]
    data = tar(AB)
    Path("in.tar").write_bytes(pack(data))
    assert whole("in.tar") == data
    assert names("in.tar") == "a b"
    Path("in.tar").write_bytes(pack(data[:1000]) + pack(b"") + pack(data[1000:]))
    assert whole("in.tar") == data
    assert whole("pipe:cat in.tar") == data
    for name in (f"plain.tar.{codec}", "plain.tar.lz", "plain.tar.br"):
        Path(name).write_bytes(data)
        assert names(name) == "a b"
    Path("plain.tar.br").write_bytes(pack(data))
    assert names("plain.tar.br") == "a b"


@pytest.mark.slow
@each_row("codec", CODECS)
def test_decoding_in_a_thread(codec: str, here: Path) -> None:
    """A compressed file that is decoded ahead has the same bytes, and the same error where it is cut or damaged."""
    packed = CODECS[codec](tar({f"{number}.x": os.urandom(3000) for number in range(200)}))
    location = Location("path", "in.tar", "in.tar")
    middle = len(packed) // 2
    damaged = packed[:middle] + bytes(100) + packed[middle + 100 :]  # which not all codecs notice
    for data in (packed, packed[:middle], damaged, packed + b"more"):
        Path("in.tar").write_bytes(data)
        plain, threaded = open_source(location), open_source(location, decode_ahead=True)
        assert read_all(plain) == read_all(threaded)
        assert str(plain.failure) == str(threaded.failure)
        assert data == damaged or (plain.failure is None) == (data == packed)
        threaded.close()
        plain.close()


@each_row("magic", [b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh91AY&SY", b"\x04\x22\x4d\x18"])
def test_a_header_takes_precedence_over_magic_bytes(magic: bytes, here: Path) -> None:
    """A tar whose first name looks like the magic bytes of a codec is a tar."""
    data = tar({os.fsdecode(magic) + ".x": b"1", "b.x": b"2"})
    Path("in.tar").write_bytes(data)
    assert whole("in.tar") == whole("pipe:cat in.tar") == data


@each_row("size", [0, 1, 2, 9, 100, 511, 512, 513])
def test_short_inputs(size: int, here: Path) -> None:
    """An input shorter than one block is read unchanged, from a file and from a pipe that delivers single bytes."""
    data = tar(AB)[:size]
    Path("in.tar").write_bytes(data)
    assert whole("in.tar") == data
    assert whole("pipe:cat in.tar") == data
    Path("cut.gz").write_bytes(gzip.compress(tar(AB))[:size])
    if 3 <= size < 100:
        with pytest.raises(Problem, match=r"\[truncated\]"):
            names("cut.gz")
    assert whole("pipe:head -c 600 in.tar | dd bs=1 status=none") == data


@each_row("name", FOREIGN)
def test_codecs_that_are_not_decoded(name: str, run: Run) -> None:
    """An unsupported codec is an error with its name and a program that decodes it, for all policies and inputs."""
    head, codec, command = FOREIGN[name]
    Path("d").mkdir()
    for path in (name, f"my {name}", f"d/{name}"):
        Path(path).write_bytes(head + b"\x55" * 3000)
    words = [(name, f"pipe:{command} {name}"), (f"my {name}", f"pipe:{command} 'my {name}'")]
    words += [(f"pipe:cat {name}", f"pipe:cat {name} | {command}"), ("d", f"pipe:{command} d/{name}")]
    for word, hint in words[:2] if name.endswith(".br") else words[: 3 if name.endswith(".lz4") else 4]:
        for options in ("", "--allow all", "--skip all", "--maxerr 9"):
            ran = run("cat", word, "-o", "out.tar", *options.split(), exit=1)
            assert ran.lines[0].endswith(f"{name}: this is {codec}, which tarkit does not decode")
            assert ran.lines[1] == f"hint: decode it with a command: {shlex.quote(hint)}"
            assert not Path("out.tar").exists()
    if name != "a.tar.br":
        ran = run("cat", stdin=Path(name), exit=1)
        assert ran.lines[1] == f"hint: decode it with a command: {command} | tarkit ..."
    ran = run("check", name, "--json", exit=1)
    assert f"this is {codec}" in ran.stdout.decode()
    assert command in ran.stdout.decode()
    assert run("stats", name, exit=1).lines[0].startswith(f"tarkit: {name}: this is {codec}")


@each_row(
    ("command", "name"),
    [
        ("compress", "a.tar.Z"), ("lzip", "a.tar.lz"), ("lzop", "a.tar.lzo"), ("lz4 -l", "a.tar.lz4"),
        ("brotli", "a.tar.br"),
    ],
)  # fmt: skip
def test_the_command_of_the_hint_decodes(command: str, name: str, run: Run, archive: Archive) -> None:
    """The output of a program is refused, and the command in the hint reads it."""
    program(command.split()[0])
    archive(AB)
    subprocess.run(f"{command} -c < in.tar > {name}", shell=True, check=True)
    ran = run("cat", name, exit=1)
    [word] = shlex.split(ran.lines[1].partition("command: ")[2])
    assert run("cat", word).stdout == tar(AB)


def test_a_long_skippable_frame_before_lz4(archive: Archive) -> None:
    """A skippable frame hides which codec follows; the frames after it determine it."""
    Path("in.tar").write_bytes(b"\x53\x2a\x4d\x18\x00\x10\0\0" + bytes(4096) + lz4.frame.compress(tar(AB)))
    assert names("in.tar") == names("pipe:cat in.tar") == "a b"


@each_row("ahead", [0, 1, 5])
@each_way
def test_inputs_are_opened_in_order(ahead: int, archive: Archive, feed: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are opened one after another, `ahead` of them in advance; an input that is not reached is not opened."""
    words = [feed(archive({f"{number}.x": b""}, f"{number}.tar")) for number in range(4)]
    told: list[str] = []
    opened: list[str] = []

    def opening(location: Location, **settings: Any) -> Any:
        opened.append(location.name)
        return open_source(location, **settings)

    monkeypatch.setattr(inputs_module, "open_source", opening)
    inputs = DatasetReader(expand_inputs(words), Policy(), prefetch=ahead, announce=told.append)
    samples = iter(inputs)
    assert next(samples).key == b"0"
    assert told == words[:1]
    assert opened == words[: 1 + ahead]
    assert [sample.key for sample in samples] == [b"1", b"2", b"3"]
    assert told == words


def test_a_missing_file_that_is_not_reached(run: Run, archive: Archive) -> None:
    """Only the inputs that are needed are opened: with a count, a later input may be unreadable."""
    archive({"a.x": b"1"}, "1.tar")
    archive(b"this is no archive at all", "2.tar")
    assert keys(run("cat", "1.tar", "2.tar", "-c", "1").stdout) == "a"
    run("cat", "1.tar", "2.tar", exit=1)


@each_row(
    "words", ["cat a.tar b.tar", "cat a.tar b.tar -m 2", "split a.tar b.tar -c 3 -o out-%d.tar", "tsv a.tar b.tar -f x"]
)
@pytest.mark.parametrize("name", ["a.tar", "b.tar"])
def test_a_file_that_is_overwritten(
    name: str, words: str, run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes while it is read, of the same length, is an error: no output of two states of it."""
    for each in "ab":
        Path(f"{each}.tar").write_bytes(tar({f"{each}{number}.x": b"1" * 5000 for number in range(20)}))
    read = inputs_module.SampleReader.batches

    def overwritten(self: Any) -> Any:
        for count, piece in enumerate(read(self)):
            if count == 1 and self.source.name == name:
                with open(name, "r+b") as file:
                    file.seek(90_000)
                    file.write(b"2" * 100)
                os.utime(name, ns=(1, 1))
            yield piece

    monkeypatch.setattr(inputs_module.SampleReader, "batches", overwritten)
    ran = run(*words.split(), exit=1)
    assert ran.lines[0] == f"tarkit: {name}: the file was changed while it was read"


@each_row(
    "words", ["stats a.tar", "stats a.tar --allow all", "check a.tar", "index a.tar --format tsv", "tsv a.tar -f x"]
)
def test_a_file_that_is_overwritten_while_it_is_looked_at(
    words: str, run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error of what reads headers alone as well: counts, findings and offsets are those of one state."""
    Path("a.tar").write_bytes(tar({f"{number}.x": b"1" * 5000 for number in range(20)}))
    raw = TarReader.raw

    def overwritten(self: TarReader) -> Iterator[Raw]:
        for entry in raw(self):
            os.utime("a.tar", ns=(1, 1))
            yield entry

    monkeypatch.setattr(TarReader, "raw", overwritten)
    ran = run(*words.split(), exit=1)
    assert "a.tar: the file was changed while it was read" in ran.stdout.decode() + ran.stderr
    assert sorted(os.listdir()) == ["a.tar"], "no index is written"
