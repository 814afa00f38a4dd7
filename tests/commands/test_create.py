"""tarkit create: the archive of a recipe, byte for byte, and its errors."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit.sizes import EARLIEST, LATEST
from tarkit.streams import copy
from tarkit.tables import content as contents
from tests._tools import each_row, program
from tests.conftest import Content, Run, entries, keys

Rows = dict[str, Content]


def made(members: Rows, mtime: int = 0) -> bytes:
    """Return the archive that `create` writes, field by field: names, sizes, one time, and defaults."""
    parts = []
    for name, content in members.items():
        assert isinstance(content, bytes)
        prefix, base = b"", os.fsencode(name)
        if len(base) > 100:
            prefix, base = base.rsplit(b"/", 1)
        numbers = b"0000644\0" + b"0000000\0" * 2 + b"%011o\0%011o\0" % (len(content), mtime)
        tail = b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2 + prefix.ljust(155, b"\0") + bytes(12)
        head = base.ljust(100, b"\0") + numbers
        checksum = sum(head) + sum(b" " * 8) + sum(tail)
        parts += [head, b"%06o\0 " % checksum, tail, content, bytes(-len(content) % 512)]
    data = b"".join(parts)
    return data + bytes(1024 + -(len(data) + 1024) % 10240)


@pytest.fixture
def create(run: Run) -> Any:
    """Return a function that creates an archive from a recipe and returns its bytes."""

    def create(recipe: str | bytes, *words: str) -> bytes:
        text = recipe if isinstance(recipe, bytes) else os.fsencode(recipe)
        Path("recipe").write_bytes(text)
        out = run("create", "recipe", *words).stdout
        assert run("create", "-", *words, "-o", "-", stdin=text).stdout == out
        return out

    return create


# ---- recipes


README = "README text:1\na.x text:2\na.y text:3\nLICENSE text:4"


@each_row(  # tests/tables/test_recipe.py has all forms of lines
    ("recipe", "expected"),
    [
        ("a b.txt\ttext: hello \n", {"a b.txt": b" hello "}),
        ("a.txt pipe:printf 'x\\0y' | cat", {"a.txt": b"x\0y"}),
        ("a.txt pipe:cat", {"a.txt": b""}),  # the stdin of a command is empty
        ("a.txt file", {"a.txt": b"content"}),
        ("a.txt file:file", {"a.txt": b"content"}),
        ("a.txt sub/../file", {"a.txt": b"content"}),
        ("a.txt /dev/null", {"a.txt": b""}),
        (README, {"README": b"1", "a.x": b"2", "a.y": b"3", "LICENSE": b"4"}),
        ("./a.x text:1\nd/b.x text:2", {"./a.x": b"1", "d/b.x": b"2"}),
        ("\udce9.x text:\udcff", {"\udce9.x": b"\xff"}),
    ],
)
def test_recipe(recipe: str, expected: Rows, create: Any, here: Path) -> None:
    """A line is NAME SOURCE; the recipe is a file or stdin; the archive has only names and contents."""
    os.mkdir("sub")
    Path("file").write_bytes(b"content")
    assert create(recipe) == made(expected)


@each_row(
    ("recipe", "words"),
    [
        ("", ""),
        ("# nothing\n\n", ""),
        ("a,b\n", "--format csv"),
        ("", "--format jsonl"),
        ("a.x none", "--on-missing skip"),
        ("a.x text:1", "--count 0"),
    ],
)
def test_no_entry(recipe: str, words: str, run: Run, here: Path) -> None:
    """The archive is empty, and a warning says so: perhaps what wrote the recipe has failed."""
    Path("recipe").write_text(recipe)
    ran = run("create", "recipe", *words.split(), "-o", "out.tar")
    assert ran.lines[-1] == "tarkit: warning: recipe: no entry, so the archive is empty"
    assert Path("out.tar").read_bytes() == bytes(10240)
    again = run("create", "-", *words.split(), stdin=recipe.encode())
    assert again.stdout == bytes(10240)
    assert again.lines[-1] == "tarkit: warning: stdin: no entry, so the archive is empty"


def test_a_large_source_without_a_size(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of a command that exceeds memory goes through temporary space."""
    monkeypatch.setattr(contents, "CHUNK", 1 << 14)
    monkeypatch.setattr(contents, "HELD", 1 << 16)
    data = random.Random(1).randbytes(180_001)
    Path("data").write_bytes(data)
    assert run("create", stdin=b"a.x pipe:cat data\na.y text:end").stdout == made({"a.x": data, "a.y": b"end"})


@pytest.mark.skipif(not os.path.exists("/proc/self/comm"), reason="the system has no /proc")
def test_files_with_a_wrong_size(create: Any) -> None:
    """Files in /proc have the size 0, and a link has the size of its target."""
    Path("data").write_bytes(b"x" * 70_000)
    os.symlink("data", "link")
    out = entries(create("a.x /proc/filesystems\na.y link"))
    assert out[0][1] == Path("/proc/filesystems").read_bytes() != b""
    assert out[1] == ("a.y", b"x" * 70_000)


@pytest.mark.parametrize("when", [(), ("--mtime", "source")])
def test_files_of_any_size_and_pipes(when: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small and large files and files without a size are packed, with and without their own times."""
    monkeypatch.setattr(contents, "SMALL", 100)
    monkeypatch.setattr(copy, "UNSIZED", 100)
    sizes = (0, 1, 99, 100, 101, 511, 512, 513, 5000)
    data = {f"{size}.{kind}": random.Random(size).randbytes(size) for size in sizes for kind in ("file", "pipe")}
    for name, content in data.items():
        if name.endswith("pipe"):
            os.mkfifo(name)
            threading.Thread(target=Path(name).write_bytes, args=(content,), daemon=True).start()
        else:
            Path(name).write_bytes(content)
            os.utime(name, (7, 7))
    run("create", "-", "-o", "out.tar", *when, stdin="".join(f"{name} {name}\n" for name in data).encode())
    assert entries("out.tar") == list(data.items())
    with tarfile.open("out.tar") as tar:
        assert {entry.mtime for entry in tar if entry.name.endswith("file")} == ({7} if when else {0})


LONG_NAMES = [
    "n" * 98 + ".x",  # 100 bytes: the name field
    "n" * 99 + ".x",
    "p" * 155 + "/" + "n" * 98 + ".x",  # 256 bytes: prefix and name
    "p" * 156 + "/" + "n" * 98 + ".x",
    "n" * 255 + ".x",
    "d/" * 200 + "n.x",
    "é" * 50 + ".x",
    "\udce9" * 101 + ".x",
]


def test_long_names(create: Any) -> None:
    """A name is in a USTAR header if it fits, else in a PAX record, and is read back unchanged."""
    rows: Rows = {name: b"%d" % number for number, name in enumerate(LONG_NAMES)}
    out = create("".join(f"{name} text:{number}\n" for number, name in enumerate(LONG_NAMES)))
    assert entries(out) == [*rows.items()]
    assert [out[at : at + 1] for at in (156, 1024 + 156)] == [b"0", b"x"]
    assert create(f"{LONG_NAMES[2]} text:1") == made({LONG_NAMES[2]: b"1"})


# ---- tables

TABLES = [  # tests/tables/test_recipe.py has all forms of cells, keys and columns, test_reader.py separators
    ("tsv", "txt\tid\nx\\ty\t7\n", ["--key", "s{id:04d}"], ["s0007.txt=x\ty", "s0007.id=7"]),
    ("tsv", "__key__\t@jpg\na\tfile\nb\t\nc\ttext:y\n", [], ["a.jpg=content", "c.jpg=y"]),
    ("csv", '__key__;txt\r\na;"1;2"\r\nb;3,4\r\n', [], ["a.txt=1;2", "b.txt=3,4"]),
    ("csv", "sep=;\n__key__;txt|x\na;1\n", [], ["a.txt|x=1"]),
    ("csv", '"a;b"\n1;2\n', ["--key", "{index}"], ["0.a;b=1;2"]),
    ("csv", "1;2|3|4\n", ["--columns", "txt,cls"], ["000000000.txt=1", "000000000.cls=2|3|4"]),
    ("jsonl", '{"__key__": "a", "txt": "é", "x": null, "@f": "file"}\n', [], ["a.txt=é", "a.f=content"]),
]


@each_row(("format", "table", "options", "expected"), TABLES)
def test_table(format: str, table: str, options: list[str], expected: list[str], create: Any, here: Path) -> None:
    """A row is a sample: columns are fields, those with @ have sources; keys are a column, a template or a number."""
    Path("file").write_bytes(b"content")
    out = create(table.encode(), "--format", format, *options)
    assert out == made({name: text.encode() for name, _, text in (row.partition("=") for row in expected)})


def test_directory(create: Any, here: Path) -> None:
    """-C is the directory of relative paths, also in tables; absolute paths are unchanged."""
    os.mkdir("base")
    Path("base/data").write_bytes(b"1")
    Path("data").write_bytes(b"2")
    assert create(f"a.x data\na.y file:data\na.z {here}/data\na.p pipe:cat data", "-C", "base") == made(
        {"a.x": b"1", "a.y": b"1", "a.z": b"2", "a.p": b"2"}
    )
    out = create("__key__\t@x\na\tdata\n", "--directory", "base", "--format", "tsv")
    assert out == made({"a.x": b"1"})


@each_row(
    ("count", "expected"),
    [(0, ""), (1, "a.x"), (3, "a.x a.y b.x"), (99, "a.x a.y b.x b.y"), (2**63 - 1, "a.x a.y b.x b.y")],
)
def test_count(count: int, expected: str, create: Any) -> None:
    """--count limits the entries; errors after them are not reached."""
    recipe = "a.x text:1\na.y text:1\nb.x text:1\nb.y text:1\n" + ("" if count > 4 else "b.z none\n")
    assert create(recipe, "--count", str(count)) == made(dict.fromkeys(expected.split(), b"1"))


def test_on_missing(run: Run) -> None:
    """With --on-missing skip a missing file is left out, reported and counted; all else is an error."""
    Path("data").write_bytes(b"1")
    Path("recipe").write_text("a.x data\na.y none\nb.x none\nc.x data\nREADME data\n")
    ran = run("create", "recipe", "--on-missing", "skip", "--report", "r.json")
    assert ran.stdout == made({"a.x": b"1", "c.x": b"1", "README": b"1"})
    assert ran.lines == [
        "tarkit: warning: recipe:2: 'none': No such file or directory; its entry is left out",
        "tarkit: warning: recipe:3: 'none': No such file or directory; its entry is left out",
    ]
    report = json.loads(Path("r.json").read_text())
    assert report.pop("seconds") < 60
    whole = {"command": "create", "samples": 2, "bytes": 10240, "shards": 0, "problems": {}, "skipped": {}}
    assert report == {**whole, "missing": 2}
    assert run("create", "recipe", "--on-missing", "skip", "-q").lines == []
    ran = run("create", "recipe", "-o", "out.tar", exit=1)
    assert ran.lines == ["tarkit: recipe:2: 'none': No such file or directory"]
    for source in (".", "data/x", "pipe:cat none"):
        Path("recipe").write_text(f"a.x data\na.y {source}\n")
        run("create", "recipe", "--on-missing", "skip", exit=1)
    assert not Path("out.tar").exists()


def test_group(create: Any) -> None:
    """--group gathers each sample at the position of its first entry; entries without a key are not moved."""
    recipe = "a.x text:1\nREADME text:2\nb.x text:3\na.y text:4\nd/a.x text:5\nb.y text:6\na.z text:7\n"
    order = {"a.x": b"1", "a.y": b"4", "a.z": b"7", "README": b"2", "b.x": b"3", "b.y": b"6", "d/a.x": b"5"}
    assert create(recipe, "--group") == made(order)
    assert create(recipe, "--group", "--count", "3") == made(dict([*order.items()][:3]))


# ---- times


@each_row(
    ("words", "epoch", "expected"),
    [
        ([], None, 0),
        ([], "1234", 1234),
        ([], "", 0),
        (["--mtime", "@77"], None, 77),
        (["--mtime", "@77"], "1234", 77),
        (["--mtime", "@0"], "1234", 0),
        (["--mtime", "@8589934591"], None, 8589934591),
        (["--mtime", "@-00"], None, 0),
        (["--mtime", "@" + "0" * 5000 + "1"], None, 1),
    ],
)
def test_mtime(
    words: list[str], epoch: str | None, expected: int, create: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries have time 0 unless --mtime or SOURCE_DATE_EPOCH is given."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    Path("data").write_bytes(b"1")
    assert create("a.x data\na.y text:2", *words) == made({"a.x": b"1", "a.y": b"2"}, mtime=expected)


def test_mtime_of_the_source(run: Run) -> None:
    """--mtime source is the time of each file, 0 for other sources; now is the current time; any time can be stored."""
    Path("small").write_bytes(b"1")
    Path("large").write_bytes(bytes(300_000))
    Path("recipe").write_text("a.x small\na.y large\na.z text:\na.p pipe:true\n")
    os.utime("small", (5, 1000.75))
    os.utime("large", (5, -1.5))
    run("create", "recipe", "--mtime", "source", "-o", "out.tar")
    with tarfile.open("out.tar") as file:
        assert [info.mtime for info in file] == [1000, -2, 0, 0]
    before = int(time.time())
    run("create", "recipe", "--mtime", "now", "-o", "out.tar")
    with tarfile.open("out.tar") as file:
        assert all(before <= info.mtime <= time.time() for info in file)
    for when in (8589934592, -1, LATEST, EARLIEST):
        run("create", "recipe", "--mtime", f"@{when}", "-o", "out.tar")
        with tarfile.open("out.tar") as file:
            assert [info.mtime for info in file] == [when] * 4
        run("extract", "out.tar", "-C", "out", "--force")
        os.utime("small", (5, when))  # a file system may have a smaller range
        assert {os.stat(f"out/a.{field}").st_mtime for field in "xyzp"} == {os.stat("small").st_mtime}
        os.utime("small", (5, 1000))


NO_TIMES = [
    ("x", None, "--mtime 'x': expected source, now or @SECONDS"),
    ("", None, "--mtime '': expected source, now or @SECONDS"),
    ("@²", None, "--mtime '@²': expected source, now or @SECONDS"),
    ("@+1", None, "--mtime '@+1': expected source, now or @SECONDS"),
    *(
        (f"@{when}", None, f"--mtime '@{when}': must be from {EARLIEST} to {LATEST} seconds since 1970, the years 1")
        for when in (LATEST + 1, EARLIEST - 1, 2**63, -(2**63), "9" * 20, "9" * 5000)
    ),
    (None, "x", "SOURCE_DATE_EPOCH 'x': expected seconds since 1970"),
    (None, "@5", "SOURCE_DATE_EPOCH '@5': expected seconds since 1970"),
    (None, "9" * 20, f"SOURCE_DATE_EPOCH '{'9' * 20}': must be from {EARLIEST} to {LATEST} seconds since 1970"),
]


@each_row(("when", "epoch", "message"), NO_TIMES)
def test_invalid_times(
    when: str | None, epoch: str | None, message: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command with --mtime refuses the same times, before anything is written."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    Path("recipe").write_text("a.x text:1\n")
    Path("tree").mkdir()
    Path("tree/a.x").write_text("1")
    run("create", "recipe", "-o", "in.tar")
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    words = [] if when is None else ["--mtime", when]
    commands = [
        ("create", "recipe", "-o", "out.tar"),
        ("shard", "tree", "-c", "1", "-o", "out-%d.tar"),
        ("proc", "in.tar", "-c", "echo 2 > sample.y", "-o", "out.tar"),
        *([("extract", "in.tar", "-C", "out")] if when is not None else []),
    ]
    for command in commands:
        assert run(*command, *words, exit=2).lines[0].startswith(f"tarkit: {message}")
        assert sorted(os.listdir()) == ["in.tar", "recipe", "tree"]


@each_row(
    ("when", "holds"),
    [
        *((each, True) for each in ("@-11644473599", "@-2", "@0", "@1700000001", f"@{LATEST}", "now", "source")),
        *((each, False) for each in (f"@{EARLIEST}", "@-11644473600")),
    ],
)
def test_times_in_a_zip(when: str, holds: bool, run: Run) -> None:
    """A time before 1601, which a zip cannot store, is refused; any other is restored to the second."""
    Path("recipe").write_text("a.x text:1\n")
    Path("tree").mkdir()
    Path("tree/a.x").write_text("1")
    run("create", "recipe", "-o", "in.tar")
    for command in (
        ("create", "recipe", "-o", "out-0.zip"),
        ("shard", "tree", "-c", "1", "--force", "-o", "out-%d.zip"),
        ("proc", "in.tar", "-c", "echo 2 > sample.x", "-o", "out-0.zip"),
    ):
        ran = run(*command, "--mtime", when, exit=0 if holds else 2)
        if not holds:
            assert ran.lines[0] == f"tarkit: a zip cannot hold the time {when}: a time before 1601 or after 30827"
            assert not Path("out-0.zip").exists()
        elif when.startswith("@"):
            with tarfile.open(fileobj=io.BytesIO(run("cat", "out-0.zip").stdout)) as file:
                assert [info.mtime for info in file] == [int(when[1:])]


# ---- several processes


def test_parallel(run: Run) -> None:
    """-p N reads ahead and writes the same bytes, in the order of the recipe."""
    lines = []
    for number in range(24):
        Path(f"f{number}").write_bytes(bytes([number]) * (number * 997 % 5000 if number % 8 else 300_000))
        kind = ("", "pipe:cat ", "text:")[number % 3]
        lines.append(f"{number:03}.x {kind}f{number}\n")
    lines.insert(12, "missing.x none\n")
    Path("recipe").write_text("".join(lines))
    one = run("create", "recipe", "--on-missing", "skip")
    for parallel in ("2", "7"):
        assert run("create", "recipe", "--on-missing", "skip", "-p", parallel) == one
    assert len(keys(one.stdout).split()) == 24


def test_parallel_errors_are_in_order(run: Run) -> None:
    """The first error in the order of lines is reported, even if later ones occurred earlier."""
    Path("recipe").write_text("a.x text:1\nb.x pipe:head -c 99999 /dev/zero; exit 3\nc.x none\nd.x none\n")
    ran = run("create", "recipe", "-p", "4", "-o", "out.tar", exit=1)
    assert ran.lines[0] == "tarkit: recipe:2: command ended with status 3: head -c 99999 /dev/zero; exit 3"
    assert not Path("out.tar").exists()


# ---- errors

WRONG = [
    ("\n# c\na.x none\n", "recipe:3: 'none': No such file or directory"),
    ("a.x .\n", "recipe:1: '.' is a directory"),
    ("a.x data/x\n", "recipe:1: 'data/x': Not a directory"),
    ("a.x hex:0\n", "recipe:1: bad hex: "),
    ("a.x pipe:exit 3\n", "recipe:1: command ended with status 3: exit 3"),
    ("a.x pipe:echo why >&2; kill -9 $$\n", "recipe:1: command was ended by SIGKILL: echo why >&2; kill -9 $$: why"),
    ("a.x text:1\na.x text:2\n", "recipe:2: 'a.x' occurs twice [duplicate-entry]"),
    ("a.x text:1\na.y text:1\na.x text:2\n", "recipe:3: 'a.x' occurs twice [duplicate-entry]"),
    ("README text:1\na.x text:1\nREADME text:2\n", "recipe:3: 'README' occurs twice [duplicate-entry]"),
    (
        "a.x text:1\nb.x text:2\na.y text:3\n",
        "recipe:3: 'a.y' belongs to a sample that ended before [scattered-sample]",
    ),
    ("../a.x text:1\n", "recipe:1: the name '../a.x' is absolute, or contains .. or a NUL [unsafe-name]"),
    ("d/../a.x text:1\n", "recipe:1: the name 'd/../a.x' is absolute, or contains .. or a NUL [unsafe-name]"),
    ("/a.x text:1\n", "recipe:1: the name '/a.x' is absolute, or contains .. or a NUL [unsafe-name]"),
    ("d/ text:1\n", "recipe:1: the name 'd/' is the name of a directory [unsafe-name]"),
    ("d/. text:1\n", "recipe:1: the name 'd/.' is the name of a directory [unsafe-name]"),
    (". text:1\n", "recipe:1: the name '.' is the name of a directory [unsafe-name]"),
    ("\udce9.x none\n", "recipe:1: 'none': No such file or directory"),
    ("a.x \udce9\n", "recipe:1: '\\xe9': No such file or directory"),
    ("a.x out.tar\n", "recipe:1: 'out.tar' is both input and output"),
]


@each_row(("recipe", "message"), WRONG)
def test_errors(recipe: str, message: str, run: Run) -> None:
    """An error has the name and line of the recipe; there is no output, and an old one is unchanged."""
    Path("data").write_bytes(b"1")
    Path("out.tar").write_text("old")
    Path("recipe").write_bytes(os.fsencode(recipe))
    ran = run("create", "recipe", "-o", "out.tar", exit=1)
    said = [line for line in ran.lines if line.startswith("tarkit: ")]
    assert said[0].startswith(f"tarkit: {message}")
    assert Path("out.tar").read_text() == "old"
    ran = run("create", "-p", "3", "-o", "out.tar", stdin=os.fsencode(recipe), exit=1)
    said = [line for line in ran.lines if line.startswith("tarkit: ")]
    assert said[0].startswith(f"tarkit: {message.replace('recipe:', 'stdin:', 1)}")


def test_rows_that_are_numbered(run: Run) -> None:
    """A table without keys is named, unless a template says how rows are numbered."""
    Path("t.csv").write_text("txt\nx\n")
    what = "tarkit: warning: t.csv: no column __key__: keys are the numbers of the rows; --key '{index:09d}' says so"
    assert run("create", "t.csv", "--format", "csv").lines == [what]
    assert run("create", "t.csv", "--format", "csv", "--key", "{index:09d}").lines == []


def test_errors_of_tables(run: Run) -> None:
    """An error of a table has the line on which the row begins."""
    Path("t.csv").write_text('__key__,txt\na,"1\n2"\nb,1,2\n')
    ran = run("create", "t.csv", "--format", "csv", "-o", "out.tar", exit=1)
    assert ran.lines == ["tarkit: t.csv:4: cells in this row: 3, columns: 2"]
    Path("t.csv").write_text("__key__,@txt\na,none\n")
    assert run("create", "t.csv", "--format", "csv", exit=1).lines == [
        "tarkit: t.csv:2: 'none': No such file or directory"
    ]
    assert not Path("out.tar").exists()


def test_sources_are_never_overwritten(run: Run) -> None:
    """A report or a depfile that is a source is refused, and the source is unchanged."""
    Path("data").write_bytes(b"1")
    os.link("data", "other")
    Path("recipe").write_text("a.x data\n")
    for words in (["--report", "other"], ["--depfile", "other"]):
        ran = run("create", "recipe", "-o", "out.tar", *words, exit=1)
        assert ran.lines[0] == "tarkit: recipe:1: 'data' is both input and output"
    assert Path("data").read_bytes() == b"1"
    assert not Path("out.tar").exists()


# ---- dependencies for make

STRANGE = ["plain", "a b", "d$x", "e#y", "f:z", "h%", "sub/dir"]


@each_row(("size", "mode"), [(1000, "ab"), (300_000, "ab"), (300_000, "rb+")])
def test_a_file_that_changes_while_it_is_read(size: int, mode: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process still writes to the file: what was read could be a file that never was."""
    Path("a").write_bytes(b"1" * size)
    Path("recipe").write_text("a.x\tfile:a\n")
    for place, name in (contents, "read_small"), (contents.LargeContent, "send"):
        before = getattr(place, name)

        def grow(*arguments: Any, before: Callable[..., Any] = before) -> Any:
            with Path("a").open(mode) as file:
                file.write(b"2")
            return before(*arguments)

        monkeypatch.setattr(place, name, grow)
    ran = run("create", "recipe", "--mtime", "source", "-o", "a.tar", exit=1)
    assert ran.lines == ["tarkit: recipe:1: 'a' was changed while it was read"]
    assert not Path("a.tar").exists()


def test_depfile(run: Run) -> None:
    """The output depends on the recipe and each file, which has a rule; without an output there is no depfile."""
    write_sources()
    run("create", "recipe", "-o", "out put.tar", "--depfile", "out.d")
    assert Path("out.d").read_text() == (
        "out\\ put.tar: \\\n  recipe \\\n  plain \\\n  a\\ b \\\n  d$$x \\\n"
        "  e\\#y \\\n  f\\:z \\\n  h% \\\n  sub/dir\n"
        "\nrecipe:\n\nplain:\n\na\\ b:\n\nd$$x:\n\ne\\#y:\n\nf\\:z:\n\nh%:\n\nsub/dir:\n"
    )
    text = Path("recipe").read_bytes()
    run("create", "-o", "x", "--depfile", "out.d", "-C", "sub/..", stdin=text)
    assert Path("out.d").read_text().startswith("x: \\\n  sub/../plain \\\n  sub/../a\\ b \\\n")
    run("create", "-o", "out.tar", "--depfile", "out.d", "--on-missing", "skip", stdin=b"a.x none\nb.x plain")
    assert Path("out.d").read_text() == "out.tar: \\\n  plain\n\nplain:\n"
    run("create", "-o", "none.tar", "--depfile", "none.d", stdin=b"a.x recipe\nb.x none\n", exit=1)
    ran = run("create", "-o", "new\nline", "--depfile", "none.d", stdin=b"a.x recipe", exit=1)
    assert ran.lines == ["tarkit: 'new\\x0aline': a depfile cannot represent a name with a newline"]
    assert not [name for name in os.listdir() if name.startswith("none")]


def write_sources() -> None:
    os.mkdir("sub")
    for name in STRANGE:
        Path(name).write_text(name)
    rows = [f"{number}.x\t{name}\n" for number, name in enumerate(STRANGE)]
    Path("recipe").write_text("".join([*rows, "7.x\ttext:1\n", "8.x\tpipe:true\n", "9.x\tfile:plain\n"]))


def test_make_reads_the_depfile(run: Run) -> None:
    """GNU make does nothing if all is old, and builds again when any source is newer or missing."""
    write_sources()
    Path("Makefile").write_text("out.tar:\n\t@echo again\ninclude out.d\n")
    run("create", "recipe", "-o", "out.tar", "--depfile", "out.d")

    def make() -> str:
        ran = subprocess.run([program("make")], capture_output=True, text=True, check=False)
        return ran.stdout + ran.stderr

    for name in [*STRANGE, "recipe", "out.d"]:
        os.utime(name, (1000, 1000))
    os.utime("out.tar", (2000, 2000))
    assert "up to date" in make()
    for name in [*STRANGE, "recipe"]:
        os.utime(name, (3000, 3000))
        assert make() == "again\n"
        os.utime(name, (1000, 1000))
    assert "up to date" in make()
    os.unlink("a b")
    assert make() == "again\n"
