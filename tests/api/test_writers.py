"""TarWriter and ShardWriter: their output, refused values, and cleanup."""

from __future__ import annotations

import array
import enum
import errno
import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import entries, tar


class Number(int, enum.Enum):
    """A number whose str is different."""

    THREE = 3


class Word(str, enum.Enum):  # noqa: UP042
    """A str whose str() is different."""

    TEN = "ten"


def writer(output: str, **options: Any) -> tarkit.TarWriter | tarkit.ShardWriter:
    """Return a writer of an archive, or of shards if the name has a place for a number."""
    return tarkit.ShardWriter(output, **options) if "%" in output else tarkit.TarWriter(output, **options)


each_writer = pytest.mark.parametrize("output", ["o-0.tar", "o-%d.tar"])


VALUES: dict[str, tuple[str, Any, bytes]] = {
    "bytes": ("bin", b"\0\xff", b"\0\xff"),
    "empty": ("bin", b"", b""),
    "bytearray": ("jpg", bytearray(b"xy"), b"xy"),
    "memoryview": ("npy", memoryview(b"abcdef")[::2], b"ace"),
    "memoryview of numbers": ("bin", memoryview(array.array("H", [1])).cast("B"), b"\x01\0"),
    "str": ("txt", "é\n", b"\xc3\xa9\n"),
    "str with surrogates": ("txt", "\udcff", b"\xff"),
    "str in json": ("json", '{"a": 1}', b'{"a": 1}'),
    "Enum of str": ("txt", Word.TEN, b"ten"),
    "int": ("cls", 10, b"10"),
    "negative": ("cls", -1, b"-1"),
    "large": ("bin", 10**30, b"1" + b"0" * 30),
    "Enum of int": ("cls", Number.THREE, b"3"),
    "float": ("score", 0.1, b"0.1"),
    "small float": ("score", 1e-300, b"1e-300"),
    "float in cls": ("cls", 1.5, b"1.5"),
    "int in json": ("json", 3, b"3"),
    "bool in json": ("json", True, b"true"),
    "None in json": ("meta.json", None, b"null"),
    "dict": ("json", {"b": [1, 2.5, "é"], "a": None}, b'{"b": [1, 2.5, "\xc3\xa9"], "a": null}'),
    "lines": ("jsonl", [1, {"a": 2}], b'1\n{"a": 2}\n'),
}


@each_row("value", VALUES)
def test_values(value: str, here: Path) -> None:
    """Each value is encoded by the table of codecs."""
    field, given, expected = VALUES[value]
    with tarkit.TarWriter("a.tar") as out:
        out.write("k", {field: given})
    [sample] = tarkit.open("a.tar")

    assert sample[field] == expected
    assert entries("a.tar") == [(f"k.{field}", expected)]


def test_arrays_and_pictures(here: Path) -> None:
    """They are restored by reading; numbers of numpy are written as the equal ones of Python, and bools are refused."""
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    with tarkit.TarWriter("a.tar") as out:
        out.write("k", {"npy": numpy.arange(6).reshape(2, 3), "png": image.new("RGB", (4, 2), "red")})
        out.write("l", {"cls": numpy.uint8(3), "n": numpy.int64(-7), "x": numpy.float32(0.5), "txt": numpy.int8(1)})
        out.write("m", {"json": numpy.float32(0.5), "npy": numpy.float32(0.5), "npz": {"a": numpy.ones(2)}})
        for bad in (numpy.ones(2), numpy.bool_(True), numpy.array([1.5]), numpy.complex64(1)):
            with pytest.raises(TypeError, match="has no encoding"):
                out.write("n", {"bin": bad})
    first, second, third = tarkit.open("a.tar")

    assert numpy.load(io.BytesIO(first["npy"])).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert image.open(io.BytesIO(first["png"])).size == (4, 2)
    assert dict(second) == {"cls": b"3", "n": b"-7", "x": b"0.5", "txt": b"1"}
    assert (third["json"], third.decode("npy").dtype) == (b"0.5", numpy.dtype("float32"))
    assert numpy.load(io.BytesIO(third["npz"]))["a"].tolist() == [1, 1]


REFUSED: dict[str, tuple[str, Any, type[Exception]]] = {
    "None": ("bin", None, TypeError),
    "list": ("bin.gz", [1], TypeError),
    "bool": ("bin", True, TypeError),
    "object": ("x", object(), TypeError),
    "bool in cls": ("cls", False, tarkit.TarkitError),
    "NaN in json": ("json", float("nan"), tarkit.TarkitError),
    "NaN inside json": ("json", {"a": [float("inf")]}, tarkit.TarkitError),
    "bytes inside json": ("json", {"a": b"x"}, tarkit.TarkitError),
    "keys of json": ("json", {1: 2}, tarkit.TarkitError),
    "number as array": ("npy", 3, tarkit.TarkitError),
    "number as picture": ("jpg", 3, tarkit.TarkitError),
    "surrogate": ("txt", "\ud800", UnicodeEncodeError),
}


@each_writer
def test_values_that_are_refused(output: str, here: Path) -> None:
    """Nothing of the sample is written, not even fields before the value; its key can be used again."""
    with writer(output) as out:
        for row, (field, value, kind) in REFUSED.items():
            with pytest.raises(kind) as error:
                out.write("k", {"good": b"1", field: value})
            assert field in str(error.value) or kind is UnicodeEncodeError, row
        out.write("k", {"good": b"2"})
        assert out.samples == 1
    assert entries("o-0.tar") == [("k.good", b"2")]


KEYS = {
    "would be read as another sample": ["", "a/", "a.b", "d/a.b", "..", ".a"],
    "is absolute, or has .. or a NUL in it": ["/a", "../a", "a/../b", "a\0"],
    "is no Unicode text": ["\ud800"],
}
FIELDS = {
    "would be read as another sample": ["", "a/b", "/"],
    "invalid name of a field": [".", ".txt", "__key__", "../x"],
    "is absolute, or has .. or a NUL in it": ["x\0"],
    "is no Unicode text": ["\ud800"],
}


@each_writer
def test_names_that_are_refused(output: str, here: Path) -> None:
    """Names that would be read as something else, or lead out of a directory, are refused."""
    with writer(output) as out:
        for said, key in ((said, key) for said, keys in KEYS.items() for key in keys):
            with pytest.raises(tarkit.TarkitError, match=said):
                out.write(key, {"x": b""})
        for said, field in ((said, field) for said, fields in FIELDS.items() for field in fields):
            with pytest.raises(tarkit.TarkitError, match=said):
                out.write("k", {"y": b"", field: b""})
        with pytest.raises(TypeError, match="fields are a dict of names and values, not list"):
            out.write("k", [("txt", "x")])  # type: ignore[arg-type]
        for key, fields in ((b"k", {"x": 1}), (3, {"x": 1}), ("k", {b"x": 1}), ("k", {None: 1})):
            with pytest.raises(TypeError, match="is a str, not"):
                out.write(key, fields)  # type: ignore[arg-type]
        with pytest.raises(tarkit.TarkitError, match="has no field"):
            out.write("k", {})
        with pytest.raises(tarkit.TarkitError, match="the same name"):
            out.write("k", {"é": b"1", "\udcc3\udca9": b"2"})
        out.write("k", {"x.y": b"1", "X.y": b"2", "x.": b"3"})
        assert out.samples == 1
    assert entries("o-0.tar") == [("k.x.y", b"1"), ("k.X.y", b"2"), ("k.x.", b"3")]


@each_writer
def test_the_same_key_twice(output: str, here: Path) -> None:
    """Adjacent samples with one key would be one sample, others a repeated key: an error, but writing continues."""
    with writer(output, **({"count": 2} if "%" in output else {})) as out:
        for key in "bac":
            out.write(key, {"x": b"1"})
            with pytest.raises(tarkit.TarkitError, match="'b' was written before"):
                out.write("b", {"y": b"2"})
        assert out.samples == 3
    assert [each.key for each in tarkit.open("o-*.tar")] == ["b", "a", "c"]
    assert tarkit.check("o-*.tar", unique=True).ok


def test_the_same_bytes_each_time(here: Path) -> None:
    """Times are 0 unless given, so that the bytes are reproducible."""
    for name in ("a.tar", "b.tar"):
        with tarkit.TarWriter(name) as out:
            out.write("k", {"x": 1})
    assert Path("a.tar").read_bytes() == Path("b.tar").read_bytes()
    with tarkit.TarWriter("b.tar", mtime=1_700_000_000, fsync=True) as out:
        out.write("k", {"x": 1})
    tarkit.open("b.tar").extract("out")
    assert Path("out/k.x").stat().st_mtime == 1_700_000_000


@each_row("name", ["o.tar.zst", "o.tar.gz", "o.zip", "o.tar"])
def test_suffixes(name: str, here: Path) -> None:
    """The suffix determines the compression; reading restores the fields."""
    with tarkit.TarWriter(Path(name)) as out:
        for i in range(50):
            out.write(f"{i:03d}", {"x": bytes(i)})
    assert [(each.key, each["x"]) for each in tarkit.open(name)] == [(f"{i:03d}", bytes(i)) for i in range(50)]
    assert tarkit.check(name).ok


def test_an_empty_archive(here: Path) -> None:
    """Without samples there is an empty archive; a series has no shard then."""
    with tarkit.TarWriter("a.tar"):
        pass
    assert list(tarkit.open("a.tar")) == []
    with tarkit.ShardWriter("s-%d.tar") as out:
        pass
    assert (out.shards, sorted(os.listdir())) == ([], ["a.tar"])


def test_a_file_object(here: Path) -> None:
    """It stays open, keeps what was written before, and gets nothing after the archive."""
    file = io.BytesIO()
    file.write(b"head")
    with tarkit.TarWriter(file, compress="gz") as out:
        out.write("k", {"x": b"1"})
    assert not file.closed
    file.seek(4)
    assert [dict(each) for each in tarkit.open(file)] == [{"x": b"1"}]


def test_a_command(here: Path) -> None:
    """The failure of the command is raised by the writer."""
    with tarkit.TarWriter("pipe:cat > o.tar") as out:
        out.write("k", {"x": b"1"})
    assert entries("o.tar") == [("k.x", b"1")]
    with pytest.raises(tarkit.TarkitError, match="status 3"), tarkit.TarWriter("pipe:cat > /dev/null; exit 3") as out:
        out.write("k", {"x": b"1"})


# ---- The end


def fail(out: tarkit.TarWriter | tarkit.ShardWriter, kind: type[BaseException], count: int) -> None:
    """Write some samples, then raise an exception."""
    for i in range(count):
        out.write(str(i), {"x": bytes(100_000)})
    raise kind


@each_row("output", ["o.tar", "o.tar.zst", "o.zip", "o-%d.tar"])
def test_an_exception_leaves_nothing(output: str, here: Path) -> None:
    """After any exception the old file is unchanged; closing does nothing, writing is an error."""
    Path("o.tar").write_bytes(b"before")
    for kind in (RuntimeError, KeyboardInterrupt, GeneratorExit):
        with pytest.raises(kind), writer(output) as out:
            fail(out, kind, 1)
        assert os.listdir() == ["o.tar"]
        assert Path("o.tar").read_bytes() == b"before"
        out.close()
        with pytest.raises(tarkit.Usage, match="the writer is closed"):
            out.write("l", {"x": b""})
        assert Path("o.tar").read_bytes() == b"before"


def test_complete_shards_stay(here: Path) -> None:
    with pytest.raises(RuntimeError), tarkit.ShardWriter("o-%d.tar", count=2) as out:
        fail(out, RuntimeError, 5)
    assert sorted(os.listdir()) == ["o-0.tar", "o-1.tar"]
    assert [shard.name for shard in out.shards] == ["o-0.tar", "o-1.tar"]


@each_row("output", ["o.tar", "o.tar.gz", "o-%d.tar"])
def test_closing_twice(output: str, here: Path) -> None:
    """The second close does nothing, with and without `with`; a sample after it is an error."""
    with writer(output) as out:
        out.write("k", {"x": b"1"})
        out.close()
        before = {path.name: path.read_bytes() for path in Path().iterdir()}
        with pytest.raises(tarkit.Usage, match="the writer is closed"):
            out.write("l", {"x": b"2"})
        out.close()
    out.close()
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before
    assert [each.key for each in tarkit.open(next(iter(before)))] == ["k"]


@each_row("output", ["o.tar", "o.tar.zst", "o-%d.tar"])
def test_a_writer_that_is_dropped(output: str, here: Path) -> None:
    """Without close there is no archive, and no temporary file; a warning says so."""
    out = writer(output)
    out.write("k", {"x": b"1"})
    assert len(os.listdir()) == 1
    with pytest.warns(tarkit.TarkitWarning) as said:
        del out
    [warning] = said
    hint = "write in a `with` block, or call close()"
    assert str(warning.message) == f"{output}: the writer was never closed, lost samples: 1 of 1; {hint}"
    assert warning.filename == __file__
    assert os.listdir() == []


CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
NOT_CLOSED = """
import io, sys, tarkit
def write(kind):
    if kind == "shards":
        out = tarkit.ShardWriter("o-%d.tar", count=2)
    else:
        out = tarkit.TarWriter(io.BytesIO() if kind == "object" else "pipe:cat >/dev/null" if kind == "pipe" else kind)
    for number in range(5):
        out.write(str(number), {"x": number})
    return out
kept = write(sys.argv[1])
if sys.argv[2] == "cycle": cycle = [kept]; cycle.append(cycle); del cycle, kept
if sys.argv[2] == "error": 1 / 0
if sys.argv[2] == "exit": raise SystemExit
if sys.argv[2] == "close": kept.close()
if sys.argv[2] == "with":
    with kept: 1 / 0
"""


@pytest.mark.slow
@each_row(
    ("kind", "end"),
    [
        *((kind, "end") for kind in ("o.tar", "o.cbors", "shards", "object", "pipe")),
        *(("o.tar", end) for end in ("cycle", "error", "exit")),
        *((kind, end) for kind in ("o.tar", "shards") for end in ("close", "with")),
    ],
)
def test_a_program_that_forgets_to_close(kind: str, end: str, here: Path) -> None:
    """Without any option of Python a line on stderr names the output and what is lost; complete shards stay."""
    ran = subprocess.run(
        [sys.executable, "-c", NOT_CLOSED, kind, end], capture_output=True, text=True, check=False, env=CLEAN
    )
    name = {"shards": "o-%d.tar", "object": "a file object", "pipe": "pipe:cat >/dev/null"}.get(kind, kind)
    lost = 1 if kind == "shards" else 5
    warned = f"TarkitWarning: {name}: the writer was never closed, lost samples: {lost} of 5; write in a `with` block"
    assert (warned in ran.stderr) == (end not in ("close", "with")), ran.stderr
    complete = ["o-0.tar", "o-1.tar"] if kind == "shards" else []
    if end == "close":
        complete = [*complete, "o-2.tar"] if kind == "shards" else [kind]
    assert sorted(os.listdir()) == complete


IN_A_FORK = """
import multiprocessing, sys, tarkit
def work():
    global out
    out = tarkit.TarWriter("o.tar")
    out.write("k", {"x": 1})
    if sys.argv[2] == "close": out.close()
context = multiprocessing.get_context(sys.argv[1])
if __name__ == "__main__":
    process = context.Process(target=work)
    process.start()
    process.join()
"""


@pytest.mark.slow
@each_row(("start", "end"), [(start, end) for start in ("fork", "spawn") for end in ("close", "")])
def test_a_process_that_forgets_to_close(start: str, end: str, here: Path) -> None:
    """A process of `multiprocessing` warns at its end too, and leaves no file."""
    Path("program.py").write_text(IN_A_FORK)
    ran = subprocess.run(
        [sys.executable, "program.py", start, end], capture_output=True, text=True, check=True, env=CLEAN
    )
    assert ("o.tar: the writer was never closed, lost samples: 1 of 1" in ran.stderr) == (end != "close")
    assert sorted(os.listdir()) == ["o.tar", "program.py"][end != "close" :]


class Full(io.BytesIO):
    """A file object on a disk that is full for a while."""

    full = True

    def write(self, data: Any) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_an_error_while_writing_ends_the_archive(here: Path) -> None:
    """Part of a sample may be missing: nothing more is written, and close raises, even if the error was ignored."""
    file = Full()
    out = tarkit.TarWriter(file)
    with pytest.raises(OSError, match="No space left"):
        out.write("k", {"x": bytes(1 << 20)})
    file.full = False
    with pytest.raises(tarkit.TarkitError, match="was given up after an error"):
        out.write("l", {"x": b""})
    with pytest.raises(tarkit.TarkitError, match="was given up after an error"):
        out.close()
    with pytest.raises(tarkit.TarkitError, match="was given up after an error"), out:
        pass
    assert file.getvalue() == b""


def test_an_error_at_the_end(here: Path) -> None:
    """If the directory is removed before the rename, close raises each time, and no file is left."""
    Path("d").mkdir()
    out = tarkit.TarWriter("d/o.tar")
    out.write("k", {"x": b"1"})
    [part] = Path("d").iterdir()
    part.unlink()
    with pytest.raises(OSError, match=r"d/o\.tar"):
        out.close()
    with pytest.raises(tarkit.TarkitError, match="was given up"):
        out.close()
    assert os.listdir("d") == []


def test_two_writers_of_one_file(here: Path) -> None:
    """The output of the last writer that is closed is kept, complete."""
    first, second = tarkit.TarWriter("o.tar"), tarkit.TarWriter("o.tar")
    first.write("a", {"x": bytes(3000)})
    second.write("b", {"x": b"2"})
    second.close()
    first.close()
    assert entries("o.tar") == [("a.x", bytes(3000))]
    assert os.listdir() == ["o.tar"]


# ---- Shards


def test_limits_of_shards(here: Path) -> None:
    """Shards end by count, by size, or by both; the numbers begin at `start`."""
    with tarkit.ShardWriter("c-%03d.tar", count=2, start=5) as out:
        for i in range(5):
            out.write(f"{i}", {"x": bytes(100)})
    assert [(shard.name, shard.samples, shard.size) for shard in out.shards] == [
        ("c-005.tar", 2, 10240),
        ("c-006.tar", 2, 10240),
        ("c-007.tar", 1, 10240),
    ]
    for size in (20480, "20480"):
        with tarkit.ShardWriter("s-%03d.tar", size=size, force=True) as out:
            for i in range(5):
                out.write(f"{i}", {"x": bytes(9000)})
        assert [shard.samples for shard in out.shards] == [1] * 5 or all(shard.size <= 20480 for shard in out.shards)
        assert sum(shard.samples for shard in out.shards) == 5
    assert [shard.sha256 != "" for shard in out.shards] == [True] * len(out.shards)


def test_shards_that_are_there(here: Path) -> None:
    """Existing shards are an error before anything is written, unless `force` is given."""
    for options in ({}, {"force": True}):
        with tarkit.ShardWriter("o-%d.tar", count=1, **options) as out:  # type: ignore[arg-type]
            out.write("a", {"x": str(options)})
    with pytest.raises(tarkit.TarkitError, match="there are shards of this name"):
        tarkit.ShardWriter("o-%d.tar")
    assert entries("o-0.tar") == [("a.x", b"{'force': True}")]


def test_a_program_that_changes_its_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shards are in the directory that was the present one when the writer was made, with their checksums."""
    Path("other").mkdir()
    for output in ("o-%d.tar", "sub/o-%d.tar.gz", str(here / "abs-%d.tar")):
        Path("sub").mkdir(exist_ok=True)
        with tarkit.ShardWriter(output, count=2) as out:
            for number in range(7):
                out.write(str(number), {"x": number})
                os.chdir(here / "other" if number in (1, 2, 5) else here)
            os.chdir(here / "other")
        monkeypatch.chdir(here)
        assert [shard.name for shard in out.shards] == [output % number for number in range(4)]
        for shard in out.shards:
            assert hashlib.sha256(Path(shard.name).read_bytes()).hexdigest() == shard.sha256
        assert sum(1 for _ in tarkit.open([shard.name for shard in out.shards])) == 7
    with tarkit.TarWriter("one.tar") as one:
        one.write("k", {"x": 1})
        os.chdir("other")
    monkeypatch.chdir(here)
    assert Path("one.tar").exists()
    assert os.listdir("other") == []


def test_a_function_that_changes_the_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `split` writes, replaces and removes is in the directory where it began."""
    Path("other").mkdir()
    rows = {f"{number}.x": str(number).encode() for number in range(6)}
    Path("in.tar").write_bytes(tar(rows))
    for number in range(9):
        Path(f"o-{number}.tar").write_bytes(b"before")
        Path(f"other/o-{number}.tar").write_bytes(b"of others")

    def function(sample: tarkit.Sample) -> tarkit.Sample:
        os.chdir(here / "other" if int(sample.key) > 2 else here)
        return sample

    data = tarkit.open(here / "in.tar").map(function)
    shards = data.split("o-%d.tar", count=2, force=True, manifest="m.tsv", post="cp {} {}.copy")
    monkeypatch.chdir(here)
    assert [shard.samples for shard in shards] == [2, 2, 2]
    names = [f"o-{number}.tar" for number in range(3)]
    assert sorted(os.listdir()) == sorted(["in.tar", "m.tsv", "other", *names, *(f"{name}.copy" for name in names)])
    assert {path.read_bytes() for path in Path("other").iterdir()} == {b"of others"}


@each_writer
def test_samples_as_dicts(output: str, here: Path) -> None:
    """A sample is written as a dict with its key, as webdataset and a loader have it, or as it was read."""
    with tarkit.TarWriter("in.tar") as out:
        out.write({"__key__": "a/1", "__url__": "x.tar", "__local_path__": "/x", "txt": "ten", "cls": 10})
    with writer(output) as out:
        [read] = tarkit.open("in.tar", decode=True)
        out.write(read)
        for sample in tarkit.loader("in.tar", decode=True):
            out.write({**sample, "__key__": "a/2"})
        for sample, words in (({"txt": "x"}, "no item __key__"), ({"__key__": 3, "txt": "x"}, "is a str, not int")):
            with pytest.raises(TypeError, match=words):
                out.write(sample)
        with pytest.raises(TypeError, match="a sample, or a key and fields"):
            out.write({"__key__": "b"}, {"txt": "x"})
    fields = [("txt", b"ten"), ("cls", b"10")]
    assert entries("o-0.tar") == [(f"a/{number}.{field}", value) for number in (1, 2) for field, value in fields]


@each_writer
def test_without_an_encoder(output: str, here: Path) -> None:
    """With encoder=False only bytes are written."""
    with writer(output, encoder=False) as out:
        with pytest.raises(TypeError, match="'cls' is bytes with encoder=False, not int"):
            out.write("a", {"txt": b"x", "cls": 3})
        out.write("a", {"txt": b"x", "npy": bytearray(b"y")})
    assert entries("o-0.tar") == [("a.txt", b"x"), ("a.npy", b"y")]
    with pytest.raises(tarkit.Usage, match="allow_pickle"):
        tarkit.TarWriter("p.tar", encoder=False, allow_pickle=True)
    assert sorted(path.name for path in here.iterdir()) == ["o-0.tar"]
