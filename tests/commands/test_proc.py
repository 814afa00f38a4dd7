"""tarkit proc: the files that commands get, and the results, byte for byte."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarkit.proc import workdir as in_memory
from tests._tools import archive as packed
from tests._tools import contents, descriptors, each_row, happens, member, small_disk
from tests.conftest import PAX, Archive, Content, Feed, Link, Run, each_feed, entries, keys, tar

AB: dict[str, Content] = {f"{key}.{field}": f"{key} {field}".encode() for key in "ab" for field in ("txt", "cls")}


def new(members: dict[str, bytes], mtime: int = 0) -> list[bytes]:
    """Return entries with new headers: fixed metadata."""
    return [member(name, content, mtime=mtime) for name, content in members.items()]


def old(name: str) -> bytes:
    """Return an entry of AB with its original header."""
    return tar({name: AB[name]})[:1024]


def ended(*parts: bytes) -> bytes:
    """Return an archive of these entries, with its end."""
    data = b"".join(parts)
    return data + bytes(1024 + -(len(data) + 1024) % 10240)


# ---- output


@each_row(
    ("command", "expected"),
    [
        (":", [old("a.txt"), old("a.cls"), old("b.txt"), old("b.cls")]),
        ("touch sample.txt", [old("a.txt"), old("a.cls"), old("b.txt"), old("b.cls")]),
        ("cp sample.txt x; mv x sample.txt", [old("a.txt"), old("a.cls"), old("b.txt"), old("b.cls")]),
        ("rm sample.txt", [old("a.cls"), old("b.cls")]),
        ("rm sample.*", []),
        (
            "echo hello > sample.txt",
            [*new({"a.txt": b"hello\n"}), old("a.cls"), *new({"b.txt": b"hello\n"}), old("b.cls")],
        ),
        (
            "echo -n 1 > sample.z; echo -n 2 > sample.b.c; rm sample.txt; touch other.txt sample sampler.x",
            [old("a.cls"), *new({"a.b.c": b"2", "a.z": b"1"}), old("b.cls"), *new({"b.b.c": b"2", "b.z": b"1"})],
        ),
        (
            "rm sample.txt; echo n/$TARKIT_KEY > sample.__key__; echo -n new > sample.a",
            [
                tar({"n/a.cls": b"a cls"})[:1024],
                *new({"n/a.a": b"new"}),
                tar({"n/b.cls": b"b cls"})[:1024],
                *new({"n/b.a": b"new"}),
            ],
        ),
        ("rm sample.__key__ sample.txt", [old("a.cls"), old("b.cls")]),
        (
            'rm sample.cls; echo "$(cat sample.__key__) $TARKIT_KEY $TARKIT_INDEX $TARKIT_SHARD" > sample.txt',
            new({"a.txt": b"a a 0 in.tar\n", "b.txt": b"b b 1 in.tar\n"}),
        ),
        ("cat > sample.txt; rm sample.cls", new({"a.txt": b"", "b.txt": b""})),  # stdin is empty
        ("rm *.cls; basename $PWD > sample.txt", new({"a.txt": b"000000000\n", "b.txt": b"000000001\n"})),
    ],
)
def test_results(command: str, expected: list[bytes], run: Run, archive: Archive) -> None:
    """Unchanged files keep their headers; new ones get new headers, in byte order after the others."""
    archive(AB)
    assert run("proc", "-c", command, "in.tar").stdout == ended(*expected)
    if "TARKIT" in command:
        Path("script").write_text(f"#!/bin/sh\n{command}\n")
        os.chmod("script", 0o755)
        assert run("proc", "-c", os.path.abspath("script"), "in.tar", "-p", "3").stdout == ended(*expected)


@each_row("size", [65535, 65537, (1 << 20) - 600, (1 << 20) + 1, (3 << 20) + 3])
@each_feed
def test_large_contents(size: int, run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents in memory and on disk have the same results, changed or not."""
    for limit in ("streams.source.HELD", "samples.groups.LARGE", "tar.writer.LONG", "streams.background.LONG"):
        monkeypatch.setattr(f"tarkit.{limit}", 2 << 20)
    content = os.urandom(size)
    word = feed(archive({"a.bin": content, "a.cls": b"1", "b.cls": b"2"}))
    script = "[ -e sample.bin ] || exit 0; cp sample.bin sample.new; echo -n x >> sample.new"
    out = run("proc", "-c", script, word).stdout
    assert out == ended(
        tar({"a.bin": content, "a.cls": b"1"})[: 1024 + 512 + size + -size % 512],
        *new({"a.new": content + b"x"}),
        tar({"b.cls": b"2"})[:1024],
    )


def test_parallel(run: Run, archive: Archive) -> None:
    """The output is in the order of the input for any number of processes."""
    rows = {f"{index:03d}.{field}": b"%d" % index for index in range(16) for field in ("cls", "txt")}
    archive(rows)
    command = "n=$TARKIT_INDEX; if ((n % 7 == 0)); then sleep 0.02; fi; echo $((n * n)) > sample.sq; rm sample.txt"
    outs = {number: run("proc", "-p", str(number), "-c", command, "in.tar").stdout for number in (0, 1, 4, 16)}
    assert {*outs.values()} == {outs[1]}
    assert entries(outs[1]) == [
        row
        for index in range(16)
        for row in ((f"{index:03d}.cls", b"%d" % index), (f"{index:03d}.sq", b"%d\n" % index**2))
    ]


def test_unordered(run: Run, archive: Archive) -> None:
    """Without order the samples are the same, slow ones come later."""
    archive({f"{index}.x": b"" for index in range(5)})
    out = run("proc", "-p", "2", "--unordered", "-c", "if ((TARKIT_INDEX == 0)); then sleep 0.1; fi", "in.tar").stdout
    assert sorted(keys(out).split()) == list("01234")
    assert keys(out) != "0 1 2 3 4"


# ---- several samples from one


@each_row(
    ("command", "expected"),
    [
        (
            "for i in 000000 000003; do cp sample.txt sample-$i.txt; done",
            "a/000000.txt a/000003.txt b/000000.txt b/000003.txt",
        ),
        (":", ""),
        (
            "for i in 2 10; do echo > sample-$i.x; echo $TARKIT_KEY-$i > sample-$i.__key__; done",
            "a-2.x a-10.x b-2.x b-10.x",
        ),
    ],
)
def test_many(command: str, expected: str, run: Run, archive: Archive) -> None:
    """Numbered files and directories are samples; their keys begin with the key of the input sample."""
    archive(AB)
    assert [name for name, _ in entries(run("proc", "-m", command, "in.tar").stdout)] == expected.split()


# ---- unusual samples

LINES = (b"a\n", b"a\n\n", b"a\r\n", b"a\nb", b"\n", b"d/\r", b"\xff\n", b" \n ")
COPY = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"


@pytest.mark.slow
@each_row(
    ("words", "behind", "changes"),
    [
        (["-c", "true"], b"", False),
        (["-c", "cp sample.x x; rm sample.x; mv x sample.x"], b"", False),
        (["-c", "rm sample.__key__"], b"", False),
        (["-c", "echo -n 2 > sample.x"], b"", True),
        (["-c", "echo -n 2 > sample.x", "-p", "2"], b"", True),
        (["-c", "echo -n - >> sample.__key__"], b"-", False),
        (["-c", "printf '\\r' >> sample.__key__"], b"\r", False),
        (["-c", "echo - >> sample.__key__"], b"-", False),  # a line end after an edited key is not part of it
        (["-m", "mv sample.x sample-7.x; mv sample.__key__ sample-7.__key__"], b"", False),
        (["-m", "mv sample.x sample-7.x"], b"/7", False),
        (["--map", "fun.py:same"], b"", False),
        (["--map", "fun.py:two"], b"", True),
        (["--map", "fun.py:both", "--batch", "3"], b"", True),
        (["--map", "fun.py:more"], b"-", False),
        (["--worker", f"{sys.executable} -c '{COPY}'"], b"", False),
    ],
)
def test_line_ends_in_keys(words: list[str], behind: bytes, changes: bool, run: Run, here: Path) -> None:
    """An unchanged key is kept to the last byte, in all ways in which it is passed."""
    (here / "fun.py").write_text(
        "def same(s): return s\n"
        "def two(s): return dict(s, x=b'2')\n"
        "def both(batch): return [two(s) for s in batch]\n"
        "def more(s): return dict(s, __key__=s['__key__'] + '-')\n"
    )
    (here / "in.tar").write_bytes(packed({key + b".x": b"1" for key in LINES}))
    run("proc", *words, "in.tar", "-o", "out.tar")
    expected = [(os.fsdecode(key + behind + b".x"), b"2" if changes else b"1") for key in LINES]
    assert entries("out.tar") == expected


def test_names_that_no_file_has(run: Run, here: Path) -> None:
    """Names that no file can have are restored, for changed and unchanged files."""
    long = "x" * 300 + ".png"
    fields = {"__key__": b"1", long: b"2", ".": b"3", ".x": b"4", "": b"5", "0 (clean).mp3": b"6"}
    Path("in.tar").write_bytes(packed({f"d.e/k.{field}": value for field, value in fields.items()}))
    out = run("proc", "-c", ":", "in.tar").stdout
    assert entries(out) == [(f"d.e/k.{field}", value) for field, value in fields.items()]
    command = 'for f in sample.*; do [ "$f" = sample.__key__ ] || echo -n 7 >> "$f"; done; ls >&2'
    ran = run("proc", "-c", command, "in.tar")
    assert entries(ran.stdout) == [(f"d.e/k.{field}", value + b"7") for field, value in fields.items()]
    assert "sample.%5F_key__" in ran.lines
    [cut] = [line for line in ran.lines if "xxx" in line]
    assert len(cut) == 255
    assert cut.endswith("xx~0.png")
    assert os.listdir(here) == ["in.tar"]


def test_a_name_with_a_nul(run: Run, here: Path) -> None:
    """A name with a NUL, as in PAX records, is kept; a new entry cannot have it."""
    name = b"k.a\0b"
    record = b"path=" + name + b"\n"
    record = b"%d " % (len(record) + 3) + record
    pax = member("PaxHeaders/k", record, typeflag=b"x")
    Path("in.tar").write_bytes(pax + member("k.a", b"1") + bytes(1024))
    assert run("proc", "-q", "-c", ":", "in.tar").stdout == ended(pax + member("k.a", b"1"))
    ran = run("proc", "-c", "echo > sample.a%00b", "in.tar", exit=1)
    assert ran.lines[-2].endswith("'k' gave 'k.a\\x00b', which is not a valid name of an entry")


def test_entries_without_key(run: Run, archive: Archive) -> None:
    """Entries without a key are copied, after the entry before them, with the first sample that is written."""
    rows: list[tuple[str, Content]] = [("d", None), ("d/a.x", b"1"), ("README", b"r"), ("d/a.y", b"2"), ("end", None)]
    archive(rows)
    assert entries(run("proc", "-c", ":", "in.tar").stdout) == rows
    out = entries(run("proc", "-c", "echo > sample.z", "in.tar").stdout)
    assert out == [("d", None), ("README", b"r"), ("end", None), ("d/a.x", b"1"), ("d/a.y", b"2"), ("d/a.z", b"\n")]
    archive([("d", None), ("README", b"r")])
    assert entries(run("proc", "-c", "exit 1", "in.tar").stdout) == [("d", None), ("README", b"r")]


def test_a_key_that_is_too_long(run: Run, archive: Archive) -> None:
    """A key that exceeds the limits of the system is a failure of that sample."""
    archive([("k" * 200_000 + ".x", b"1"), ("b.x", b"2")], format=PAX)
    ran = run("proc", "-c", ":", "in.tar", "--on-error", "skip")
    assert "has a key of 200000 bytes, which is too long for a command's environment" in ran.lines[0]
    assert keys(ran.stdout) == "b"


def test_hard_links_inside_a_sample(run: Run, archive: Archive) -> None:
    """A hard link becomes a file with the content of its target, and is written as one."""
    archive([("a.x", b"1"), ("a.y", Link("a.x"))])
    assert run("proc", "-c", "echo >> sample.x", "in.tar").stdout == ended(*new({"a.x": b"1\n", "a.y": b"1"}))


@each_row(
    ("type", "what"),
    [(tarfile.SYMTYPE, "a symbolic link"), (tarfile.FIFOTYPE, "a FIFO"), (tarfile.CHRTYPE, "a device")],
)
def test_what_has_no_content(type: bytes, what: str, run: Run, archive: Archive) -> None:
    """An entry without content cannot be passed, and its sample fails; nothing is lost."""
    archive([("a.x", b"1"), ("a.y", Link("/etc/passwd", type)), ("b.x", b"2")])
    ran = run("proc", "-c", ":", "in.tar", exit=1)
    assert ran.lines[0] == f"tarkit: in.tar: 'a' has 'a.y', {what}, which has no content to work on"
    assert run("proc", "-c", ":", "in.tar", "--on-error", "keep").stdout == Path("in.tar").read_bytes()
    assert keys(run("proc", "-c", ":", "in.tar", "--on-error", "skip").stdout) == "b"


@each_row("parallel", [1, 3])
def test_each_command_runs_once(parallel: int, run: Run, archive: Archive) -> None:
    """Also where commands are run several at a time, and the sample of one of them cannot be passed."""
    link = Link("/etc/passwd", tarfile.SYMTYPE)
    archive([(f"{number:03}.x", link if number % 11 == 10 else b"1") for number in range(120)])
    log = Path("log").absolute()
    run("proc", "-p", f"{parallel}", "--on-error", "skip", "-c", f"echo $TARKIT_KEY >> {log}", "in.tar")
    assert sorted(log.read_text().split()) == [f"{number:03}" for number in range(120) if number % 11 != 10]


def test_what_a_command_leaves_prints_into_no_other_sample(run: Run, archive: Archive) -> None:
    """A process that has left the group of its command, and so lives on, has lost its output."""
    archive([(f"{number:02}.x", b"1") for number in range(40)])
    late = "set -m; (sleep 0.02; echo late $TARKIT_KEY) & echo $TARKIT_KEY; sleep 0.01"
    lines = [line for line in run("proc", "-v", "-c", late, "in.tar").lines if line[:1].isdigit()]
    assert [line for line in lines if "late" not in line] == [f"{number:02}: {number:02}" for number in range(40)]
    for line in lines:
        assert re.fullmatch(r"(\d\d): (late )?\1", line), line  # `late` where it was not late


def test_sparse_files(run: Run, here: Path) -> None:
    """Sparse files are refused with their names, and can be kept or skipped."""
    record = b"".join(b"%d %b\n" % (len(each) + 4, each) for each in (b"GNU.sparse.major=1", b"GNU.sparse.minor=0"))
    for each in (b"GNU.sparse.name=a.x", b"GNU.sparse.realsize=1000"):
        record += b"%d %b\n" % (len(each) + 4, each)
    data = member("PaxHeaders/a.x", record, typeflag=b"x") + member("GNUSparseFile.0/a.x", b"0\n".ljust(512, b"\0"))
    data += member("b.x", b"2")
    Path("in.tar").write_bytes(data + bytes(1024))
    lines = run("proc", "-c", "echo > sample.y", "in.tar", exit=1).lines
    assert lines[0].endswith("'a.x' is a sparse file, whose content is not in one piece [sparse-entry]")
    kept = run("proc", "-c", "echo > sample.y", "in.tar", "--allow", "sparse-entry").stdout
    assert kept == ended(data, *new({"b.y": b"\n"}))
    dropped = run("proc", "-c", "echo > sample.y", "in.tar", "--skip", "sparse-entry").stdout
    assert dropped == ended(member("b.x", b"2"), *new({"b.y": b"\n"}))


# ---- invalid results


@each_row(
    ("command", "what"),
    [
        ("ln -s /etc/passwd sample.x", "left 'sample.x', which is a symbolic link: copy its target instead"),
        ("ln -s sample.txt sample.x", "left 'sample.x', which is a symbolic link: copy its target instead"),
        ("mkdir sample.x", "left 'sample.x', which is a directory"),
        ("mkfifo sample.x", "left 'sample.x', which is a FIFO"),
        ("rm sample.__key__; ln -s /etc/hostname sample.__key__", "left 'sample.__key__', which is a symbolic link"),
        ("echo a.b > sample.__key__", "gave the invalid key 'a.b'"),
        (": > sample.__key__", "gave the invalid key ''"),
        ("echo ../x > sample.__key__", "gave the key '../x', which is absolute or contains '..'"),
        ("echo /x > sample.__key__", "gave the key '/x', which is absolute"),
        ("head -c 100000 /dev/zero > sample.__key__", "left a key of 100000 bytes"),
    ],
)
def test_refused(command: str, what: str, run: Run, archive: Archive) -> None:
    """An invalid result is a failure of the sample, and no link out of the directory is followed."""
    archive(AB)
    ran = run("proc", "-c", command, "in.tar", "-o", "out.tar", exit=1)
    assert ran.lines[0].startswith(f"tarkit: in.tar: 'a' {what}")
    assert not Path("out.tar").exists()


def test_two_samples_of_one_key(run: Run, archive: Archive) -> None:
    """Two results of one sample with one key are a failure; results of two samples are a repeated key."""
    archive(AB)
    command = "for i in 1 2; do echo > sample-$i.x; echo k > sample-$i.__key__; done"
    assert "gave two samples of the key 'k'" in run("proc", "-m", command, "in.tar", exit=1).lines[0]
    lines = run("proc", "-c", "echo k > sample.__key__", "in.tar", exit=1).lines
    assert lines[0].endswith("the sample before it in the output has the same key 'k' [joined-sample]")
    archive({"a.x": b"", "b.x": b"", "c.x": b""})
    words = ("proc", "-c", "tr c a < sample.__key__ > k; mv k sample.__key__", "in.tar")
    line = "in.tar: 'c' gave the key 'a', which was given before [scattered-sample]"
    assert run(*words, exit=1).lines == [f"tarkit: {line}", "hint: each sample needs a key of its own"]
    ran = run(*words, "--allow", "scattered-sample")
    assert ran.lines == [f"tarkit: warning: {line}"]
    assert keys(ran.stdout) == "a b a"


# ---- options


def test_a_key_of_two_inputs(run: Run, archive: Archive) -> None:
    """A key in two inputs is an error, unless the keys in the output differ."""
    words = [archive(AB, "1.tar"), archive(AB, "2.tar"), "-c", "true"]
    ran = run("proc", *words, "-o", "out.tar", exit=1)
    assert ran.lines[0] == "tarkit: 2.tar: at 0: the key 'a' is already in the output [repeated-key]"
    assert not Path("out.tar").exists()
    assert keys(run("proc", *words, "--rekey", "{stem}/{key}").stdout) == "1/a 1/b 2/a 2/b"
    assert keys(run("proc", *words, "--skip", "repeated-key").stdout) == "a b"


def test_select_and_fields(run: Run, archive: Archive) -> None:
    """Samples are selected before the command, fields after it."""
    rows = {f"{key}.{field}": key.encode() for key in "abcdef" for field in ("x", "y")}
    archive(rows)
    out = run(
        "proc", "-c", "echo $TARKIT_INDEX > sample.z", "in.tar", "--match", "[b-e]", "--slice", "1:", "--count", "2"
    )
    assert [name for name, _ in entries(out.stdout)] == ["c.x", "c.y", "c.z", "d.x", "d.y", "d.z"]
    assert dict(entries(out.stdout))["c.z"] == b"0\n"
    words = ("-f", "n:z x", "--rekey", "k{index}", "--count", "2")
    out = run("proc", "-c", "echo $TARKIT_INDEX > sample.z", "in.tar", *words)
    assert entries(out.stdout) == [("k0.n", b"0\n"), ("k0.x", b"a"), ("k1.n", b"1\n"), ("k1.x", b"b")]
    assert keys(run("proc", "-c", ":", "in.tar", "--shard-slice", "1:3").stdout) == "b c"
    assert "[missing-field]" in run("proc", "-c", "rm sample.x", "in.tar", "--require", "x", exit=1).stderr


@each_row(("words", "mtime"), [([], 0), (["--mtime", "@17"], 17), (["--mtime", "source"], 1_700_000_000)])
def test_mtime(words: list[str], mtime: int, run: Run, archive: Archive) -> None:
    """--mtime is the time of new entries; unchanged ones keep their time."""
    archive({"a.x": b"1"})
    out = run("proc", "-c", "echo > sample.y; touch -d @1700000000.999999999 sample.y", "in.tar", *words).stdout
    assert out == ended(tar({"a.x": b"1"})[:1024], *new({"a.y": b"\n"}, mtime))


def test_what_a_command_says(run: Run, archive: Archive) -> None:
    """Output of a command goes to stderr in order, with -v after the key; -q suppresses it."""
    archive({"a.x": b"1", "b.x": b"2"})
    command = "echo out $TARKIT_KEY; echo err >&2; printf end >&2"
    assert run("proc", "-p", "2", "-c", "echo $TARKIT_KEY; sleep 0.02; echo e >&2", "in.tar").stderr == "a\ne\nb\ne\n"
    lines = run("proc", "-v", "-c", command, "in.tar").lines
    assert lines[1:7] == ["a: out a", "a: err", "a: end", "b: out b", "b: err", "b: end"]
    assert run("proc", "-q", "-c", command, "in.tar").stderr == ""
    assert len(run("proc", "-c", "seq 20000", "in.tar", "--count", "1").stderr) == 108894


def test_keep_dir(run: Run, archive: Archive, here: Path) -> None:
    """All directories are kept with their files, and their path is printed."""
    archive({"a.x": b"1", "b.x": b"2"})
    ran = run("proc", "--keep-dir", "--tmpdir", str(here), "-c", "touch other", "in.tar")
    place = Path(ran.lines[-1].removeprefix("tarkit: the directories of the samples are in "))
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == [
        f"00000000{index}{name}" for index in (0, 1) for name in ("", "/other", "/sample.__key__", "/sample.x")
    ]


def test_long_names_keep_their_headers(run: Run, archive: Archive) -> None:
    """Extension headers belong to an entry that is kept."""
    name = "d/" * 100 + "a"
    archive({f"{name}.x": b"1", f"{name}.y": b"2"}, format=PAX)
    out = run("proc", "-c", "echo >> sample.y", "in.tar").stdout
    with tarfile.open(fileobj=io.BytesIO(out)) as file:
        assert [(info.name, info.mtime) for info in file] == [(f"{name}.x", 1234567890), (f"{name}.y", 0)]


@each_row("environment", [{}, {"BASH_ENV": "/dev/null"}])
def test_a_command_that_empties_its_input(
    environment: dict[str, str], run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error before anything runs, whoever starts it; the hint is how to change a field in place."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    name = archive({"a.json": b"x", "b.json": b"y"})
    ran = run("proc", name, "-c", "tr a-z A-Z < sample.json > sample.json", "-o", "out.tar", exit=2)
    assert ran.lines == [
        "tarkit: the command reads 'sample.json', which > empties first",
        "hint: > sample.new && mv sample.new sample.json",
    ]
    assert not Path("out.tar").exists()
    command = "tr a-z A-Z < sample.json > sample.new && mv sample.new sample.json"
    assert entries(run("proc", name, "-c", command).stdout) == [("a.json", b"X"), ("b.json", b"Y")]
    for command in ("tr a b < sample.json >> sample.json", "cat < /dev/null > /dev/null"):
        run("proc", name, "-c", command)


# ---- directories in memory


GIB = 1 << 30
FREE = 8 * GIB, 8 * GIB, 1 << 30  # bytes that are free, all bytes, files that can be made


@pytest.fixture
def memory(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a directory stand for the file system in memory; temporary space is where the output is."""
    (here / "memory").mkdir()
    (here / "disk").mkdir()
    monkeypatch.setattr(in_memory, "MEMORY", str(here / "memory"))
    monkeypatch.setattr(in_memory, "free_space", lambda path: FREE)
    monkeypatch.delenv("TMPDIR", raising=False)
    return here / "memory"


def places(run: Run, *words: str | Path, size: int = 10) -> list[str]:
    """Return where the command was run for each sample: the names of the directory of the work directories."""
    Path("in.tar").write_bytes(packed({f"{number}.txt": bytes(size) for number in range(3)}))
    command = "basename $(dirname $(dirname $PWD)) > sample.at"
    run("proc", "-c", command, "in.tar", "-o", "disk/out.tar", *words)
    found = contents(Path("disk/out.tar").read_bytes())
    return [data.decode().strip() for name, data in found if name.endswith(".at")]


def test_where_samples_are(run: Run, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, where nothing is left, or over 1 MiB beside the output; --tmpdir and $TMPDIR name a place for all."""
    assert places(run) == ["memory"] * 3
    assert list(memory.iterdir()) == []
    assert places(run, size=(1 << 20) + 1) == ["disk"] * 3
    assert places(run, "--tmpdir", "disk", "-p", "2") == ["disk"] * 3
    monkeypatch.setenv("TMPDIR", str(memory.parent / "disk"))
    assert places(run) == ["disk"] * 3


@pytest.mark.parametrize(
    "low", [(2 * GIB - 1, 2 * GIB, FREE[2]), (4 * GIB - 1, 8 * GIB, FREE[2]), (8 * GIB, 8 * GIB, (1 << 20) - 1)]
)
def test_memory_that_is_nearly_full(
    low: tuple[int, int, int], run: Run, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample is on disk while less than 2 GiB or half of the memory is free, or few files can be made there."""
    answers = iter([FREE, low, FREE])
    choose = in_memory.WorkDirectories.choose

    def choose_with(directories: in_memory.WorkDirectories, size: int) -> object:
        answer = next(answers)
        with monkeypatch.context() as patch:
            patch.setattr(in_memory, "free_space", lambda path: answer)
            return choose(directories, size)

    monkeypatch.setattr(in_memory.WorkDirectories, "choose", choose_with)
    assert places(run) == ["memory", "disk", "memory"]


@pytest.fixture
def small(memory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a file system in memory, of 8 MiB and 80 files; 1 MiB or 20 files are little."""
    monkeypatch.undo()
    monkeypatch.delenv("TMPDIR", raising=False)
    for name, value in {"ROOM": 1 << 21, "FILES": 40, "SPARE": 1 << 20, "SPARE_FILES": 20}.items():
        monkeypatch.setattr(in_memory, name, value)
    with small_disk(1 << 23, "nr_inodes=80") as found:
        monkeypatch.setattr(in_memory, "MEMORY", str(found))
        yield found


FILLS = {
    "to the end": "head -c 9000000 /dev/zero > sample.big; true",
    "for a while": "head -c 9000000 /dev/zero > big; sleep 0.2; rm big; echo 1 > sample.n",
    "with files": "for i in $(seq 100); do echo 1 > sample.$i; done; true",
    "slowly, and waits": "head -c 7500000 /dev/zero > big; sleep 100",
}


@pytest.mark.parametrize("name", FILLS)
def test_memory_that_a_command_fills(name: str, run: Run, small: Path) -> None:
    """A command that leaves little memory is ended, and with it the run: it could ignore that there is none."""
    Path("in.tar").write_bytes(packed({"a.txt": b"a", "b.txt": b"b"}))
    ran = run("proc", "-c", FILLS[name], "in.tar", "-o", "disk/out.tar", "--on-error", "skip", exit=1)
    assert f"tarkit: {small} is nearly full, so that the command was ended" in ran.lines
    assert "hint: --tmpdir DIR names a directory with more space for its files" in ran.lines
    assert list(Path("disk").iterdir()) == []
    assert list(small.iterdir()) == []


def test_memory_that_is_enough(run: Run, small: Path) -> None:
    """Results that are large against the memory are whole: those that wait there make the next ones be on disk."""
    Path("in.tar").write_bytes(packed({f"{number}.txt": b"a" for number in range(9)}))
    run("proc", "-p", "2", "-c", "head -c 500000 /dev/zero > sample.big", "in.tar", "-o", "disk/out.tar")
    found = contents(Path("disk/out.tar").read_bytes())
    assert [len(data) for name, data in found if name.endswith(".big")] == [500_000] * 9


def test_memory_without_programs(run: Run, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system in memory from which no program can be started is not used."""
    for options, place in ((), "small"), (("noexec",), "disk"):
        with small_disk(1 << 22, *options) as found:
            monkeypatch.setattr(in_memory, "MEMORY", str(found))
            assert places(run) == [place] * 3
        Path("small").rmdir()


def test_a_directory_that_cannot_be_locked(run: Run, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory cannot be locked all directories are on disk, and nothing is left in memory, nor a descriptor."""
    before = descriptors()

    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(in_memory.fcntl, "flock", refuse)
    assert places(run) == ["disk"] * 3
    assert list(memory.iterdir()) == []
    assert descriptors() <= before


def test_directories_of_a_killed_process(run: Run, memory: Path) -> None:
    """What a killed process has left in memory is removed by the next one, and nothing else there."""
    Path("one.tar").write_bytes(packed({"a.txt": b"a"}))
    code = """if True:
        import sys
        from tarkit.cli import main
        from tarkit.proc import workdir as memory
        memory.MEMORY = sys.argv.pop(1)
        memory.free_space = lambda path: (1 << 40, 1 << 40, 1 << 40)
        main()
    """
    words = ["proc", "-c", "sleep 10", "one.tar", "-o", "/dev/null"]
    began = subprocess.Popen([sys.executable, "-c", code, str(memory), *words])
    others = [memory / ".tarkit-1-0", memory / "x"]
    try:
        assert happens(lambda: list(memory.glob(".tarkit-memory-*/*/sample.txt")))
        for each in others:
            each.mkdir()
        left = set(memory.iterdir())
        assert places(run) == ["memory"] * 3
        assert set(memory.iterdir()) == left, "its process lives"
    finally:
        began.kill()
        began.wait()
    assert set(memory.iterdir()) == left
    assert places(run) == ["memory"] * 3
    assert sorted(memory.iterdir()) == others
