"""TFRecord files as inputs and outputs; the package `tfrecord` reads what is written, and writes what is read."""

from __future__ import annotations

import gzip
import random
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import Problem, TarkitError
from tests._tools import each_row, traced
from tests.conftest import Archive, Content, Run, entries, tar

library: Any = pytest.importorskip("tfrecord")
numpy: Any = pytest.importorskip("numpy")

PNG, JPEG = b"\x89PNG\r\n\x1a\n1", b"\xff\xd8\xff\xe0"
FIELDS = ["jpg", "cls", "json", "seg.png", "txt", "é", "x.gz", "index"]
CONTENTS = [
    b"",
    b"3",
    b"-7",
    b"03",
    b"-0",
    b"3\n",
    b"9223372036854775808",
    b"-9223372036854775807",
    PNG,
    b"\0" * 70_000,
]


def write(path: str, *rows: dict[str, tuple[Any, str]]) -> str:
    """Write records by the library: values and their types, `byte`, `int` or `float`."""
    out = library.TFRecordWriter(path)
    for row in rows:
        out.write(row)
    out.close()
    return path


def read(path: str) -> list[dict[str, Any]]:
    """Return the records that the library reads, with bytes and lists of numbers as such."""
    return [
        {name: value if isinstance(value, bytes) else value.tolist() for name, value in row.items()}
        for row in library.tfrecord_loader(path, None)
    ]


def samples(path: str, **options: Any) -> list[tuple[str, dict[str, bytes]]]:
    return [(sample.key, dict(sample)) for sample in tarkit.open(path, **options)]


def test_both_ways(run: Run, archive: Archive) -> None:
    """Random samples come back as they were, in order, and the library reads their contents; compressed ones too."""
    draw = random.Random(7)
    for number in range(20):
        rows: list[tuple[str, Content]] = []
        for key in draw.sample(range(100), draw.randint(1, 9)):
            fields = draw.sample(FIELDS, draw.randint(1, 4))
            rows += [(f"d/{key}.{field}", draw.choice(CONTENTS)) for field in fields]
        name = archive(tar(rows))
        path = f"{number}.tfrecord"
        run("cat", name, "-o", path)
        assert entries(run("cat", path).stdout) == rows
        run("check", path, "--same-as", name)
        expected: dict[str, dict[str, Any]] = {}
        for entry, content in rows:
            key, field = entry.split(".", 1)
            is_number = field in ("cls", "index") and content in (b"3", b"-7", b"-9223372036854775807")
            value = [int(bytes(content))] if is_number else content  # type: ignore[arg-type]
            expected.setdefault(key, {"__key__": key.encode()})[field] = value
        assert read(path) == list(expected.values())
        for suffix, pack in ((".gz", gzip.compress), ("", gzip.compress), ("", zlib.compress)):
            Path(f"packed.tfrecord{suffix}").write_bytes(pack(Path(path).read_bytes()))
            assert entries(run("cat", f"packed.tfrecord{suffix}").stdout) == rows
        assert entries(run("cat", stdin=Path(path).read_bytes()).stdout) == rows


def test_shards(run: Run, archive: Archive) -> None:
    """Commands that write shards write TFRecord, under the names that TensorFlow has for them, and read these."""
    archive(tar([(f"{n}.cls", b"%d" % n) for n in range(5)]), "a.tar")
    run("shuffle", "a.tar", "--seed", "1", "-c", "2", "-o", "x.tfrecord-%05d-of-00003")
    shuffled = entries(run("shuffle", "a.tar", "--seed", "1").stdout)
    assert entries(run("cat", "x.tfrecord-*").stdout) == shuffled
    assert [len(read(f"x.tfrecord-0000{n}-of-00003")) for n in range(3)] == [2, 2, 1]
    Path("a.tar").rename("a")
    assert entries(run("cat", ".").stdout) == shuffled
    Path("a").rename("a.tar")
    Path("x.tfrecord-00000-of-00003").rename("x-00000-of-00003")
    assert entries(run("cat", "x-00000-of-00003").stdout) == shuffled[:2]
    tarkit.open("a.tar").write("b.tfrecord")
    assert run("cat", "a.tar", "--to", "tfrecord").stdout == Path("b.tfrecord").read_bytes()
    assert samples("b.tfrecord") == samples("a.tar")


OWN = {"__key__": (b"k", "byte")}


@each_row(
    "row,options,expected",
    [
        # values
        (
            OWN | {"n": (7, "int"), "x": (0.5, "float"), "t": (b"\xff", "byte")},
            {},
            {"n": b"7", "x": b"0.5", "t": b"\xff"},
        ),
        (OWN | {"n": ([1, 2], "int"), "x": ([0.5, 2.0], "float")}, {}, {"n": b"[1,2]", "x": b"[0.5,2.0]"}),
        (OWN | {"t": (["é".encode(), b"b"], "byte"), "no": ([], "int")}, {}, {"t": '["é","b"]'.encode()}),
        (OWN | {"jpg": (PNG, "byte"), "raw": (JPEG, "byte")}, {}, {"jpg": PNG, "raw": JPEG}),
        # names of other programs
        (
            {"image/encoded": (JPEG, "byte"), "image/class/label": (3, "int")},
            {},
            {"jpg": JPEG, "image.class.label": b"3"},
        ),
        (
            {"a": (JPEG, "byte"), "b/c": (PNG, "byte"), "png": (PNG, "byte")},
            {},
            {"a.jpg": JPEG, "b.c.png": PNG, "png": PNG},
        ),
        ({"image": (b"?", "byte")}, {}, {"image": b"?"}),
        # --set
        (
            {"image/encoded": (PNG, "byte"), "label": (3, "int"), "t": (b"x", "byte")},
            {"set": "jpg:image/encoded cls:label json:{label,t} json.u.v:t"},
            {"jpg": PNG, "cls": b"3", "json": b'{"label":3,"t":"x","u":{"v":"x"}}'},
        ),
    ],
)
def test_values(row: Any, options: Any, expected: dict[str, bytes], here: Path) -> None:
    """Values are contents of fields, by their types and names, or by the words of `--set`."""
    write("x.tfrecord", row)
    assert [fields for _, fields in samples("x.tfrecord", **options)] == [expected]


def test_arrays_and_keys(here: Path) -> None:
    """Lists of numbers are arrays for a field of arrays; keys are those of a column, else names and numbers of rows."""
    rows = [{"v": ([n, 0.5], "float"), "w": ([n], "int"), "id": (n, "int")} for n in range(2)]
    write("x.tfrecord-00001-of-00002", *rows)
    data = tarkit.open("x.tfrecord-00001-of-00002", set="npy:v one.npy:w", key="{id:03d}", decode=True)
    found = [(sample.key, sample["npy"], sample["one.npy"]) for sample in data]
    assert [(key, v.tolist(), w.tolist()) for key, v, w in found] == [("000", [0, 0.5], [0]), ("001", [1, 0.5], [1])]
    assert {str(v.dtype) for _, v, _ in found} == {"float32"}
    assert [key for key, _ in samples("x.tfrecord-00001-of-00002")] == [f"x-00001-of-00002/00000000{n}" for n in (0, 1)]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


BAD, CUT = "sample 2 of a TFRecord file cannot be read: the", "a TFRecord file ends inside sample 2 [truncated]"


@each_row(
    "damage,words",
    [
        (lambda data, at: flipped(data, at + 3), f"x.tfrecord: at AT: {BAD} length"),
        (lambda data, at: flipped(data, at + 9), f"x.tfrecord: at AT: {BAD} length"),
        (lambda data, at: flipped(data, at + 20), f"x.tfrecord: at AT: {BAD} data"),
        (lambda data, at: flipped(data, len(data) - 1), f"x.tfrecord: at AT: {BAD} data"),
        (lambda data, at: data[: at + 1], f"x.tfrecord: at AT: {CUT}"),
        (lambda data, at: data[: at + 12], f"x.tfrecord: at AT: {CUT}"),
        (lambda data, at: data[:-1], f"x.tfrecord: at AT: {CUT}"),
        (lambda data, at: zlib.compress(data)[:-9], "truncated"),
        (lambda data, at: zlib.compress(data) + b"x", "other bytes follow the end of the stream of zlib"),
        (lambda data, at: zlib.compress(data)[:-1] + b"x", "the stream of zlib is damaged"),
    ],
)
def test_damage(damage: Callable[[bytes, int], bytes], words: str, here: Path) -> None:
    """A damaged record is an error that names the file and the offset; the samples before it can be kept."""
    write(
        "x.tfrecord",
        OWN | {"x": (b"1", "byte")},
        {"__key__": (b"l", "byte"), "x": (random.Random(3).randbytes(99), "byte")},
    )
    data = Path("x.tfrecord").read_bytes()
    start = 16 + data[0]
    Path("x.tfrecord").write_bytes(damage(data, start))
    with pytest.raises(Problem) as raised:
        tarkit.open("x.tfrecord").write("y.tar")
    assert words.replace("AT", str(start)) in str(raised.value)
    assert not Path("y.tar").exists()
    kept = samples("x.tfrecord", allow=raised.value.name, on_problem=print)
    assert kept[0] == ("k", {"x": b"1"})


def test_refused(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no sample, and what is no record, is one line; nothing is left under the name of the output."""
    out = library.TFRecordWriter("sequence.tfrecord")
    out.write({"n": (1, "int")}, {"m": ([1, 2], "int")})
    out.close()
    write("bytes.tfrecord", OWN | {"t": ([b"\xff", b"b"], "byte")})
    write("nan.tfrecord", OWN | {"x": ([float("nan"), 1.0], "float")})
    write("same.tfrecord", OWN | {"a/b": (1, "int"), "a.b": (2, "int")})
    write("none.tfrecord", OWN)
    write("dots.tfrecord", {"n": (b"a.b", "byte")})
    archive(tar([("a.\udcff", b"1")]), "name.tar")
    for words, message in [
        (["sequence.tfrecord"], "a SequenceExample"),
        (["bytes.tfrecord"], "2 byte strings"),
        (["nan.tfrecord"], "NaN"),
        (["same.tfrecord"], "two values are the field 'a.b'"),
        (["none.tfrecord"], "no value that is a field"),
        (["dots.tfrecord", "--key", "n"], "a dot after the last slash"),
        (["dots.tfrecord", "--set", "txt:m"], "there is no column 'm'"),
        (["dots.tfrecord", "--set", "txt:n x:m"], "there is no column 'm'"),
    ]:
        error = run("cat", *words, "-o", "y.tar", exit=1).stderr
        assert message in error
        assert error.startswith(f"tarkit: {words[0]}: ")
        assert not Path("y.tar").exists()
    assert "its name is not UTF-8" in run("cat", "name.tar", "-o", "y.tfrecord", exit=1).stderr
    assert not Path("y.tfrecord").exists()
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    for each in (["cat", "none.tfrecord"], ["cat", "name.tar", "-o", "y.tfrecord"]):
        assert "pip install 'tarkit[tfrecord]'" in run(*each, exit=1).stderr


def test_claims(here: Path) -> None:
    """A length that nothing follows takes no memory, and many records no more than one."""
    from google_crc32c import value as crc32c

    from tarkit.messages.tfrecord import read_records, record
    from tarkit.streams.codecs.tfrecord import mask

    length = (1 << 29).to_bytes(8, "little")
    Path("x.tfrecord").write_bytes(length + mask(crc32c(length)) + b"1")
    piece = record(bytes(1 << 20), crc32c)

    def many() -> Iterator[bytes]:
        for _ in range(100):
            yield from (piece[:12], piece[12:-4], piece[-4:])

    pieces = many()
    with traced() as memory:
        with pytest.raises(TarkitError, match="truncated"):
            samples("x.tfrecord")
        assert sum(len(data) for _, data in read_records(lambda size: next(pieces, b""), crc32c)) == 100 << 20
        assert memory()[1] < 30 << 20


def test_hints(run: Run, archive: Archive) -> None:
    """A file without a suffix, and equal keys, have hints with the words; a verdict says of what its size is."""
    archive(tar([("a.txt", b"1"), ("b.txt", b"1")]), "a.tar")
    archive(tar([("a.txt", b"1"), ("b.txt", b"0"), ("c.txt", b"1")]), "c.tar")
    run("cat", "c.tar", "-o", "c.tfrecord")
    run("cat", "a.tar", "-o", "a.tfrecord")
    shutil.copy("a.tfrecord", "a.bin")
    Path("gz.bin").write_bytes(gzip.compress(Path("a.bin").read_bytes()))
    for words, message in [
        (["cat", "a.bin", "--set", "txt", "-o", "x.tar"], "is one, and there is no --join\nhint: --from tfrecord"),
        (["cat", "a.bin", "--key", "txt", "-o", "x.tar"], "is one\nhint: --from tfrecord says that an input"),
        (["cat", "gz.bin", "-o", "x.tar"], "this is a TFRecord file, no archive"),
        (["cat", "gz.bin", "-o", "x.tar"], "hint: --from tfrecord reads it"),
        (["cat", "a.tfrecord", "--key", "txt", "-o", "x.tar"], "the key '1' is that of the sample before it as well"),
        (["cat", "c.tfrecord", "--key", "txt", "-o", "x.tar"], "[scattered-sample]\nhint: --key COLUMN names another"),
        (["cat", "a.tfrecord", "--key", "txt", "-o", "x.tar"], "hint: --key COLUMN names another column, --key"),
    ]:
        assert message in run(*words, exit=None).stderr
        assert not Path("x.tar").exists()
    with pytest.raises(TarkitError) as raised:
        tarkit.open("gz.bin").head()
    assert raised.value.hint == "tarkit.open(..., format='tfrecord') reads it"
    assert b"a.tfrecord: ok: 2 samples, 2 entries, 10240 bytes as tar\n" in run("check", "a.tfrecord", "-v").stdout
