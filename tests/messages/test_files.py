"""Sequences of CBOR and MessagePack maps as inputs and outputs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tarkit
from tarkit.bytereader import ByteReader
from tarkit.errors import Problem, TarkitError, Usage
from tarkit.media.coding_gzip import compress
from tarkit.messages import encodings
from tarkit.messages.reader import MessageReader
from tarkit.samples.encoder import encode_value
from tarkit.samples.sample import split_name
from tests._tools import Chunks, each_row, traced
from tests.conftest import Archive, Link, Run, entries, tar

FORMS = ["cbors", "msgpack"]
SUFFIX = {"cbors": ".cbors", "msgpack": ".mp"}
PACK: dict[str, Any] = {"cbors": cbor2.dumps, "msgpack": msgpack.packb}
SAMPLES = [
    ("a/1.cls", b"3"),
    ("a/1.jpg", bytes(range(256)) * 9),
    ("a/2.cls", b""),
    ("a/2.seg.png", b"\0" * 70000),
    ("b c/\u00e9.txt", b"t"),
    ("\udcff.x", b"1"),
    ("z.\udcfe", b"2"),
]
MAPS: list[dict[Any, Any]] = [
    {"__key__": b"a/1", "cls": b"3", "jpg": bytes(range(256)) * 9},
    {"__key__": b"a/2", "cls": b"", "seg.png": b"\0" * 70000},
    {"__key__": "b c/\u00e9".encode(), "txt": b"t"},
    {"__key__": b"\xff", "x": b"1"},
    {"__key__": b"z", b"\xfe": b"2"},
]


def unpacked(form: str, data: bytes) -> list[Any]:
    """Return the items of a sequence as the library of the format reads them."""
    if form == "msgpack":
        unpacker = msgpack.Unpacker()
        unpacker.feed(data)
        return list(unpacker)
    found, stream = [], io.BytesIO(data)
    while stream.tell() < len(data):
        found.append(cbor2.load(stream))
    return found


def packed(form: str, *items: Any) -> bytes:
    """Return a sequence that the library of the format writes."""
    return b"".join(map(PACK[form], items))


def read(form: str, data: bytes, step: int = 1 << 20) -> bytes:
    reader = MessageReader(Chunks(data, step), "x", form, split_name, encode_value)
    view, out = memoryview(bytearray(1 << 16)), bytearray()
    while got := reader.readinto(view):
        out += view[:got]
    return bytes(out)


@each_row("form", FORMS)
def test_both_ways(form: str, run: Run, archive: Archive) -> None:
    """The maps of an archive are those of the library; sequences by both give the same archive, byte for byte.

    They are read from a file and, by their first bytes, from stdin, compressed ones by the name or with --from.
    """
    archive(tar(SAMPLES), "a.tar")
    name = f"b{SUFFIX[form]}"
    run("cat", "a.tar", "-o", name)
    raw = Path(name).read_bytes()
    assert unpacked(form, raw) == MAPS
    assert run("cat", "a.tar", "--to", form).stdout == raw
    assert entries(tarred()) == SAMPLES
    for data in (raw, packed(form, *MAPS)):
        zipped = gzip.compress(data)
        archive(data, name)
        archive(zipped, f"{name}.gz")
        assert run("cat", name).stdout == run("cat", f"{name}.gz").stdout == tarred()
        assert run("cat", stdin=data).stdout == tarred()
        for each in (data, zipped):
            assert run("cat", "--from", form, stdin=each).stdout == tarred()
        run("check", name)
        assert run("get", "a/1.cls", name).stdout == b"3"


def tarred() -> bytes:
    """Return the archive of the samples that tarkit writes."""
    target = io.BytesIO()
    with tarkit.TarWriter(target) as out:
        for item in MAPS:
            fields = {os.fsdecode(name): value for name, value in item.items() if name != "__key__"}
            out.write(os.fsdecode(item["__key__"]), fields)
    return target.getvalue()


@each_row("form", FORMS)
def test_concatenated(form: str, run: Run, archive: Archive) -> None:
    """Files of maps one after another are one, also where each was compressed; so is what `cat` makes of several."""
    parts = [packed(form, {"__key__": key, "x": b"1"}, {"__key__": key + b"2", "x": b"2"}) for key in (b"a", b"b")]
    expected = read(form, b"".join(parts))
    members = [f"{key}.x" for key in ("a", "a2", "b", "b2")]
    archive(parts[0], f"a{SUFFIX[form]}")
    archive(parts[1], f"b{SUFFIX[form]}")
    assert [name for name, _ in entries(expected)] == members
    for compress_part, suffix in ((bytes, ""), (gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")):
        archive(b"".join(map(compress_part, parts)), f"both{SUFFIX[form]}{suffix}")
        assert run("cat", f"both{SUFFIX[form]}{suffix}").stdout == expected
    for suffix in ("", ".gz", ".zst", ".lz4", ".xz"):
        name = f"c{SUFFIX[form]}{suffix}"
        run("cat", f"a{SUFFIX[form]}", f"b{SUFFIX[form]}", "-o", name)
        assert run("cat", name).stdout == expected
        archive(Path(name).read_bytes()[:-6], f"cut{SUFFIX[form]}{suffix}")
        assert "[truncated]" in run("cat", f"cut{SUFFIX[form]}{suffix}", exit=1).stderr


@each_row("form", FORMS)
def test_commands(form: str, run: Run, archive: Archive) -> None:
    """Other commands write them too: compressed, several shards, sorted, one sample."""
    archive(tarred(), "a.tar")
    suffix = SUFFIX[form]
    run("sort", "a.tar", "-o", f"s{suffix}.zst")
    assert run("cat", f"s{suffix}.zst").stdout == run("sort", "a.tar").stdout
    run("split", "a.tar", "-c", "2", "-o", f"p-%02d{suffix}")
    assert run("cat", f"p-{{00..02}}{suffix}").stdout == tarred()
    run("get", "a/2", "a.tar", "-o", f"one{suffix}")
    with open(f"one{suffix}", "rb") as file:
        assert unpacked(form, file.read()) == MAPS[1:2]
    assert run("cat", f"one{suffix}", "--rekey", "{stem}/{key}").stdout.startswith(b"one/a/2.cls")
    assert "not a sequence of" in run("index", f"one{suffix}", "--format", "dali", exit=1).stderr


@each_row("form", FORMS)
def test_api(form: str, here: Any) -> None:
    """The Python API reads and writes them, by suffix or by name of the format."""
    name = f"x{SUFFIX[form]}"
    with tarkit.TarWriter(name) as out:
        out.write("k", {"cls": 3, "json": {"a": 1}})
    assert [dict(sample) for sample in tarkit.open(name)] == [{"cls": b"3", "json": b'{"a": 1}'}]
    tarkit.open(name).write("other", format=form)
    with open("other", "rb") as file, open(name, "rb") as first:
        assert file.read() == first.read()
    assert [sample.key for sample in tarkit.open("other", format=form)] == ["k"]
    with pytest.raises(tarkit.TarkitError, match="unknown format"):
        tarkit.open(name, format="cbor")


MISTAKEN = [
    ("a.cbor", "a sequence of CBOR maps is .cbors, an archive .tar"),
    ("a.CBOR.gz", "a sequence of CBOR maps is .cbors, an archive .tar"),
    ("a.msg", "a sequence of MessagePack maps is .mp, an archive .tar"),
    ("a.mpk", "a sequence of MessagePack maps is .mp, an archive .tar"),
]


@each_row("name,hint", MISTAKEN)
def test_mistaken_suffix(name: str, hint: str, run: Run, archive: Archive) -> None:
    """A suffix that is that of one map, or another program's, is refused: the output would be an archive."""
    archive(tarred(), "a.tar")
    for words in (["cat"], ["split", "-c", "2"], ["get", "a/2"]):
        said = run(*words, "a.tar", "-o", name.replace("a", "a-%d", 1) if words[0] == "split" else name, exit=2).stderr
        assert "is not the suffix of an output of samples" in said
        assert hint in said
    assert os.listdir() == ["a.tar"]
    with pytest.raises(Usage, match="is not the suffix"):
        tarkit.open("a.tar").write(name)
    with pytest.raises(Usage, match="is not the suffix"), tarkit.TarWriter(name) as out:
        out.write("k", {"x": b""})
    run("cat", "a.tar", "--to", "tar", "-o", name)
    assert entries(run("cat", name).stdout) == SAMPLES
    assert run("get", "a/1.cls", "a.tar", "-o", "one.cbor").status == 0  # the content of a field


def test_aliases(run: Run, archive: Archive) -> None:
    """The suffix, and the word without s, name the formats too."""
    archive(tarred(), "a.tar")
    for alias, form in (("mp", "msgpack"), ("cbor", "cbors")):
        data = run("cat", "a.tar", "--to", alias).stdout
        assert data == run("cat", "a.tar", "--to", form).stdout
        assert run("cat", "--from", alias, stdin=data).stdout == tarred()
        with pytest.raises(Usage) as raised:
            tarkit.open("a.tar", format=alias)
        assert raised.value.hint == f"did you mean {form!r}?"


VALUES = [
    ("cls", 3, b"3"),
    ("txt", "\u00e9", "\u00e9".encode()),
    ("txt", 2.5, b"2.5"),
    ("json", {"a": [1, None]}, b'{"a": [1, null]}'),
    ("json", [1, 2], b"[1, 2]"),
    ("json", '{"a":1}', b'{"a":1}'),
    ("x", "text", b"text"),
    ("x", 7, b"7"),
    ("json.gz", "[1]", compress(b"[1]")),
    ("json.gz", [1], compress(b"[1]")),
    ("x.gz", "text", compress(b"text")),
    ("x.gz", b"text", b"text"),
]


@each_row("form,field,value,content", [(form, *row) for form in FORMS for row in VALUES])
def test_values(form: str, field: str, value: object, content: bytes) -> None:
    """Values that other programs wrote are encoded by the name of the field; names for the program itself are none."""
    item = {"__key__": "k", "__url__": "file:x", field: value}
    assert entries(read(form, packed(form, item))) == [(f"k.{field}", content)]


GOOD = {"__key__": b"g", "x": b"1"}
BAD = [
    ([1, 2], "a list, not a map"),
    ({"x": b"1"}, "no __key__"),
    ({"__key__": b"a", b"__key__": b"b", "x": b"1"}, "__key__ twice"),
    ({"__key__": 3, "x": b"1"}, "the key is of type int"),
    ({"__key__": b"", "x": b"1"}, "would be read as another sample"),
    ({"__key__": b"a.b", "x": b"1"}, "would be read as another sample"),
    ({"__key__": b"a/", "x": b"1"}, "would be read as another sample"),
    ({"__key__": b"a/.b", "x": b"1"}, "would be read as another sample"),
    ({"__key__": b"a", "x/y": b"1"}, "would be read as another sample"),
    ({"__key__": b"a", ".x": b"1"}, "would be read as another sample"),
    ({"__key__": b"a", "": b"1"}, "would be read as another sample"),
    ({"__key__": b"a\0b", "x": b"1"}, "NUL"),
    ({"__key__": b"a", "x": b"1", b"x": b"2"}, "two fields"),
    ({"__key__": b"a"}, "has no field"),
    ({"__key__": b"a", "__url__": b"u"}, "has no field"),
    ({"__key__": b"a", "jpg": {"b": 1}}, "field 'jpg'"),
    ({"__key__": b"a", "x": [1]}, "has no encoding"),
    ({"__key__": b"a", "x": None}, "has no encoding"),
    ({"__key__": b"a", "cls": True}, "bool"),
    (GOOD, "that of the sample before it"),
]


@each_row("form,item,what", [(form, *row) for form in FORMS for row in BAD])
def test_no_sample(form: str, item: object, what: str, here: Any) -> None:
    """What is no sample is a line that says which one and why; the samples before it can be kept."""
    data = packed(form, GOOD, item)
    with open("x", "wb") as file:
        file.write(data)
    with pytest.raises(Problem, match=what) as raised:
        list(tarkit.open("x", format=form))
    assert raised.value.name == "bad-data"
    assert "sample 2 of a sequence" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert [each.key for each in tarkit.open("x", format=form, allow="bad-data", on_problem=print)] == ["g"]


@each_row("form", FORMS)
def test_cut(form: str) -> None:
    """A sequence that is cut inside a map is truncated at every byte; between two maps it cannot be known."""
    data = packed(form, GOOD, GOOD | {"__key__": b"h"})
    size = len(packed(form, GOOD))
    for length in range(len(data)):
        if length in (0, size):
            assert len(entries(read(form, data[:length]))) == length // size
            continue
        with pytest.raises(Problem, match=r"ends inside sample .* \[truncated\]"):
            read(form, data[:length])


BOMBS = {
    "cbors": [
        b"\x5b\0\0\0\x0f" + b"\xff" * 4,
        b"\x9b\0\0\0\x0f" + b"\xff" * 4,
        b"\xbb\0\0\0\x0f" + b"\xff" * 4,
        b"\xa1\x67__key__\x7b" + b"\xff" * 8,
        b"\x81" * 100_000,
        b"\x9f" * 100_000,
        b"\xc4\x82\x1b" + b"\x7f" * 8 + b"\x01",
        b"\xc5\x82\x1b" + b"\x7f" * 8 + b"\x01",
    ],
    "msgpack": [
        b"\xc6\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa7__key__\xdb\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\xdd\x00\x0f\xff\xff" * 1000,
        b"\xc1",
        b"\xd8" + b"\0" * 20,
    ],
}


@each_row("form,data", [(form, bomb) for form in FORMS for bomb in BOMBS[form]])
def test_bombs(form: str, data: bytes) -> None:
    """A length that nothing follows costs no memory, and is an error, as are depths and wrong types."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Problem, match=r"truncated|bad-data"):
        read(form, packed(form, GOOD) + data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@each_row("form", FORMS)
def test_limit(form: str, here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample larger than the limit is refused, by readers and writers."""
    monkeypatch.setattr(encodings, "LARGEST", 3 << 20)
    monkeypatch.setattr("tarkit.messages.writer.LARGEST", 3 << 20)
    monkeypatch.setattr("tarkit.messages.writer.MessageSink.large", 3 << 20)
    large = bytes(5 << 20)
    with pytest.raises(Problem, match="larger than"):
        read(form, packed(form, GOOD, {"__key__": b"a", "x": large}))
    halves = {"x": large[: 2 << 20], "y": large[: 2 << 20]}
    for fields in ({"x": large}, halves):
        with pytest.raises(TarkitError, match="larger than"), tarkit.TarWriter(io.BytesIO(), format=form) as out:
            out.write("a", fields)


@given(st.sampled_from(FORMS), st.integers(0, 1 << 32), st.binary(max_size=40))
def test_fuzz(form: str, seed: int, noise: bytes) -> None:
    """Damage is an error about the input, or gives samples; never another exception."""
    generator = random.Random(seed)
    data = bytearray(packed(form, *MAPS[:1], GOOD, {"__key__": "j", "json": {"a": [1, "b", 2.5]}, "cls": 7}))
    for _ in range(generator.randrange(1, 6)):
        data[generator.randrange(len(data))] = generator.randrange(256)
    for each in (bytes(data), noise, bytes(data[: generator.randrange(len(data))])):
        try:
            read(form, each, generator.choice([1, 7, 1 << 20]))
        except Problem as problem:
            if problem.name not in ("truncated", "bad-data"):
                raise


REFUSED: list[tuple[Any, str]] = [
    ([("a.x", b"1"), ("a.y", Link("a.x"))], "a hard link"),
    ([("a.x", b"1"), ("README", b"r"), ("b.x", b"1")], "belongs to no sample"),
    ([("a.__url__", b"1")], "two underscores"),
    ([("a..x", b"1")], "begins with a dot"),
    ([("a.", b"1")], "is empty"),
    ([("a.x", b"1"), ("a.x", b"2")], "twice in one"),
]


@each_row("form,members,what", [(form, *row) for form in FORMS for row in REFUSED])
def test_refused(form: str, members: Any, what: str, run: Run, archive: Archive) -> None:
    """What a map cannot hold is an error, even where an archive may have it, and there is no file."""
    archive(tar(members), "a.tar")
    words = ("cat", "a.tar", "--allow", "duplicate-entry", "-o", f"x{SUFFIX[form]}")
    assert what in run(*words, exit=1).stderr
    assert not os.path.exists(f"x{SUFFIX[form]}")


@each_row("form", FORMS)
def test_directories(form: str, run: Run, archive: Archive) -> None:
    """Directories are left out; an archive without samples is an empty file, which can be read."""
    archive(tar([("d", None), ("d/a.x", b"1")]), "a.tar")
    archive(tar([("d", None)]), "none.tar")
    assert unpacked(form, run("cat", "a.tar", "--to", form).stdout) == [{"__key__": b"d/a", "x": b"1"}]
    name = f"x{SUFFIX[form]}"
    assert run("cat", "none.tar", "-o", name).status == 0
    assert entries(run("cat", name).stdout) == []


@each_row("form,step", [(form, step) for form in FORMS for step in (1, 3, 511, 4096)])
def test_any_pieces(form: str, step: int) -> None:
    assert read(form, packed(form, *MAPS), step) == tarred()


def test_memory(here: Any) -> None:

    def many() -> Iterator[bytes]:
        for number in range(300):
            yield msgpack.packb({"__key__": b"%d" % number, "x": bytes(1 << 20)})

    source = many()

    class Reader(ByteReader):
        held = b""

        def readinto(self, view: Any, /) -> int:
            self.held = self.held or next(source, b"")
            count = min(len(view), len(self.held))
            view[:count] = self.held[:count]
            self.held = self.held[count:]
            return count

    with traced() as memory:
        reader, view = MessageReader(Reader(), "x", "msgpack", split_name, encode_value), memoryview(bytearray(1 << 18))
        total = 0
        while got := reader.readinto(view):
            total += got
        assert total > 300 << 20
        assert memory()[1] < 30 << 20


@each_row("form", FORMS)
def test_without_library(form: str, run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library an error names the extra, also where it would be written."""
    archive(tarred(), "a.tar")
    archive(b"", f"x{SUFFIX[form]}")
    monkeypatch.setitem(sys.modules, {"cbors": "cbor2"}.get(form, form), None)
    for words in (["cat", f"x{SUFFIX[form]}"], ["cat", "a.tar", "-o", f"y{SUFFIX[form]}"]):
        assert f"pip install 'tarkit[{form.removesuffix('s')}]'" in run(*words, exit=1).stderr
