"""Arguments with a wrong or unclear meaning: none is ignored silently; tests/commands/test_usage.py has more rows."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from tests._tools import each_row, process
from tests.conftest import Archive, Content, Run, tar

AB: dict[str, Content] = {f"{key}.{field}": b"x" * 600 for key in "ab" for field in ("cls", "jpg", "txt")}
NO_TAR = "hint: it is not a tar archive; for a list of inputs use -T, for a recipe tarkit create"


@each_row(
    ("words", "fields"),
    [
        (["-f", "jpg", "-f", "cls"], ["jpg", "cls"]),
        (["-f", "jpg cls", "--field", "t:text,txt"], ["jpg", "cls", "t"]),
        (["--drop", "jpg,t*"], ["cls"]),
        (["--drop", "jpg txt"], ["cls"]),
        (["--drop", "jpg", "--drop", "cls"], ["txt"]),
        (["-q", "-q", "--fsync", "--fsync"], ["cls", "jpg", "txt"]),
    ],
)
def test_options_that_are_given_twice(words: list[str], fields: list[str], run: Run, archive: Archive) -> None:
    """-f, --drop and flags may be given several times, and --drop takes several names."""
    run("cat", archive(AB), *words, "-o", "out.tar")
    assert Path("out.tar").read_bytes() == tar({f"{key}.{field}": b"x" * 600 for key in "ab" for field in fields})


@each_row(
    ("content", "hint"),
    [
        (b"", "hint: it has 0 bytes: make or fetch it again"),
        (b"a.tar\n", NO_TAR),
        (b"a.jpg\tfile:a.jpg\n" * 99, NO_TAR),
    ],
)
def test_inputs_that_are_no_archives(content: bytes, hint: str, run: Run) -> None:
    """If nothing is a header, the hint is not to skip the damage."""
    Path("in.tar").write_bytes(content)
    assert run("cat", "in.tar", "-o", "out.tar", exit=1).lines[1:] == [hint]


def test_damage_later_keeps_its_hint(run: Run, archive: Archive) -> None:
    """An archive that ends in its second header is a truncated archive, and keeps that hint."""
    word = archive(AB)
    Path(word).write_bytes(Path(word).read_bytes()[:1700])
    assert "--skip truncated" in run("cat", word, "-o", "out.tar", exit=1).lines[1]


# ---- names that look like templates

ONE = "numbers a series of files, but only one is written"
SPLIT, CUT, EPOCHS, EACH, FOLDER = (
    f"hint: {words}; "
    for words in (
        "tarkit split writes a series of shards",
        "-c N or --size SIZE cuts shards",
        "-c N or --size SIZE cuts shards; -o 'e{epoch}.tar' writes one file for each epoch",
        "--fix 'clean-%06d.tar' writes a copy of each",
        "a directory that is there takes all: -o DIR/",
    )
)


@each_row(
    ("words", "name", "message", "hint"),
    [
        # one archive
        ("cat a.tar -o", "x-%04d.tar", f"%04d {ONE}", SPLIT),
        ("cat a.tar -o", "./x-{0..3}.tar.gz", f"{{0..3}} {ONE}", SPLIT),
        ("cat a.tar -o", "x-@00001.tar", f"@00001 {ONE}", SPLIT),
        ("cat a.tar -o", "{stim}.tar", "unknown placeholder {stim}", SPLIT),
        ("cat a.tar -o", "x{.tar", "unmatched or nested braces", SPLIT),
        ("proc a.tar -c true -o", "ocr-{0000..0003}.tar", f"{{0000..0003}} {ONE}", SPLIT),
        ("proc a.tar -c true -o out.tar --rejects", "r-%d.tar", f"%d {ONE}", SPLIT),
        ("create recipe -o", "x-%d.tar", f"%d {ONE}", SPLIT),
        ("mix a.tar -o", "x-{a,b}.tar", f"{{a,b}} {ONE}", SPLIT),
        ("sort a.tar -o", "x-%d.tar", f"%d {ONE}", CUT),
        ("shuffle a.tar --seed 1 -q -o", "x-@9.tar", f"@9 {ONE}", CUT),
        ("shuffle a.tar --seed 1 -q --epochs 2 -o", "e{epoch}-%d.tar", None, EPOCHS),
        ("get a a.tar -o", "x-%d.tar", f"%d {ONE}", "hint: "),
        ("check a.tar --fix", "x-@3.tar", f"@3 {ONE}", EACH),
        ("check a.tar --fix", "x-{stim}.tar", "unknown placeholder {stim}", EACH),
        ("check a.tar --fix x.tar --rejects", "r-%d.tar", f"%d {ONE}", SPLIT),
        # one table, page, list or report
        ("tsv a.tar -o", "out-%d.tsv", f"%d {ONE}", "hint: "),
        ("tsv a.tar -o", "out-{0..3}.parquet", f"{{0..3}} {ONE}", "hint: "),
        ("index a.tar --format dali -o", "x-%d.idx", f"%d {ONE}", FOLDER),
        ("show a.tar --html", "x-%d.html", f"%d {ONE}", "hint: "),
        ("stats a.tar --html", "{x}.html", "unknown placeholder {x}", "hint: "),
        ("split a.tar --manifest", "m-{0..3}.tsv", f"{{0..3}} {ONE}", "hint: "),
        ("cat a.tar -o out.tar --report", "r-%d.json", f"%d {ONE}", "hint: "),
        ("create recipe -o out.tar --depfile", "d-%d", f"%d {ONE}", "hint: "),
        ("shard tree --manifest", "m-%d.tsv", f"%d {ONE}", "hint: "),
        ("shard tree --depfile", "d-%d", f"%d {ONE}", "hint: "),
        ("shard tree --recipe", "r-%d", f"%d {ONE}", "hint: "),
        ("shard tree --label-from-dir cls --classes-out", "c-%d", f"%d {ONE}", "hint: "),
    ],
)
def test_names_that_look_like_templates(
    words: str, name: str, message: str | None, hint: str, run: Run, archive: Archive
) -> None:
    """For a single output, a name with a range or a placeholder is refused before anything is written."""
    there = _prepared(archive)
    ran = run(*words.split(), name, exit=2)
    if message is None:  # the name already has the number of the epoch
        name, message = "e0-%d.tar", f"%d {ONE}"
    assert ran.lines == [f"tarkit: '{name}': {message}", f"{hint}'file:{name}' takes the name as it is"]
    assert sorted(os.listdir()) == there


@pytest.mark.forks
def test_placeholders_of_each(run: Run, archive: Archive) -> None:
    """The hint for a placeholder of a map names the command that fills it in for commands that write series."""
    _prepared(archive)
    for sign in ("{stem}", "{index:05d}"):
        [_, hint] = run("split", "a.tar", "-q", "-o", f"x-{sign}-%d.tar", exit=2).lines
        assert hint.startswith("hint: tarkit each INPUT... -- COMMAND {} -o TEMPLATE fills it in")
    assert run("split", "a.tar", "-q", "-o", "x-{foo}-%d.tar", exit=2).lines[1].startswith("hint: file:NAME")
    run("each", "a.tar", "--", "split", "{}", "-c", "9", "-o", "{stem}-%d.tar")
    assert os.path.exists("a-0.tar")


@each_row(
    ("words", "made"),
    [
        ("cat a.tar -o file:x-%d{0..1}@3.tar", "x-%d{0..1}@3.tar"),
        ("cat a.tar -o file:{stem}", "{stem}"),
        ("sort a.tar -o file:x-%d.tar", "x-%d.tar"),
        ("sort a.tar -c 9 -o file:{x}-%d.tar", "{x}-0.tar"),
        ("shuffle a.tar --seed 1 --epochs 2 -o file:x@1.tar", "epoch0-x@1.tar epoch1-x@1.tar"),
        ("proc a.tar -c true -o out.tar --rejects file:r@1.tar", "out.tar r@1.tar"),
        ("create recipe -o file:x@1.tar --depfile file:d@1", "d@1 x@1.tar"),
        ("get a a.tar -o file:a@1.tar", "a@1.tar"),
        ("get a.jpg a.tar -o a@2x{1}.jpg", "a@2x{1}.jpg"),
        ("tsv a.tar -f cls -o file:t@1.parquet --format tsv", "t@1.parquet"),
        ("index a.tar --format dali -o file:x@1.idx", "x@1.idx"),
        ("show a.tar --html file:x@1.html", "x@1.html"),
        ("stats a.tar --html file:x@1.html", "x@1.html"),
        ("check a.tar --fix file:x-%d.tar --rejects file:r@1.tar", "r@1.tar x-%d.tar"),
        ("check a.tar --fix x-%d.tar", "x-0.tar"),
        ("split a.tar -o file:x@1.tar --manifest file:m@1 --report file:r@1", "m@1 r@1 x0.tar"),
        ("split a.tar --parts a=1 -o file:x@1-%d.tar", "a-x@1-0.tar"),
        ("shard tree -o file:x@1 --manifest file:m@1", "m@1 x0.tar"),
        ("shard tree --recipe file:r@1", "r@1"),
    ],
)
def test_literal_names(words: str, made: str, run: Run, archive: Archive) -> None:
    """With file: any name that is not a series is used literally; the file of a field may have any name."""
    there = _prepared(archive)
    run(*words.split())
    assert sorted(set(os.listdir()) - set(there)) == made.split()


def _prepared(archive: Archive) -> list[str]:
    """Write the files that the commands above read; return their names."""
    archive(AB, "a.tar")
    Path("recipe").write_text("a.txt text:x\n")
    os.mkdir("tree")
    Path("tree/a.txt").touch()
    return sorted(os.listdir())


# ---- files that are not there, or not to be read


@each_row(
    ("word", "hint"),
    [
        ("n-{0..3}.tar", "there are 'n-000.tar' and 4 more: 'n-{000..003}.tar' has as many digits"),
        ("n-{00..12..2}.tar", "there are 'n-000.tar' and 4 more: 'n-{000..012..2}.tar' has as many digits"),
        ("n-{007..009}.tar", "there are 'n-000.tar' and 4 more"),
        ("d/m-{0..1}-{0..1}.tar", "there are 'd/m-01-002.tar': 'd/m-{00..01}-{000..001}.tar' has as many digits"),
        ("n-%03d.tar", "there are 'n-000.tar' and 4 more: inputs are named with a glob or braces, 'n-*.tar'"),
        ("n-%d.tar", "there are 'n-000.tar' and 4 more: inputs are named with a glob or braces, 'n-*.tar'"),
        ("q-{0..3}.tar", None),
        ("q-%d.tar", None),
        ("none/q-{0..3}.tar", None),
        ("N-{000..003}.tar", "did you mean 'n-000.tar'?"),
    ],
)
@each_row("command", ["stats", "cat", "extract -C out", "tsv -f x", "show", "get x", "split", "sort -c 2"])
def test_names_of_other_digits(word: str, hint: str | None, command: str, run: Run, here: Path) -> None:
    """A hint names the files that exist; one about -o has a command alone that writes shards."""
    (here / "d").mkdir(exist_ok=True)
    for name in ("n-000.tar", "n-001.tar", "n-002.tar", "n-003.tar", "n-010.tar", "d/m-01-002.tar"):
        (here / name).touch()
    ran = run(*command.split(), word, exit=None)
    assert "No such file or directory" in ran.lines[0]
    writes = command.startswith(("split", "sort"))
    expected = f"shards are written with -o: -o '{word}'" if hint is None and writes else hint
    assert ran.lines[1:] == ([] if expected is None else [f"hint: {expected}"])


def as_anyone() -> None:
    """Give up the capabilities by which root reads files of any mode; status 99 says that the system refuses."""
    version, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0 and ctypes.CDLL(None).capset(version, none):
        os._exit(99)


@pytest.mark.forks
@each_row(
    ("words", "message", "there"),
    [
        ("cat no.tar", "no.tar: Permission denied", "no.tar"),
        ("stats no.tar", "no.tar: Permission denied", "no.tar"),
        ("get a no.tar", "no.tar: Permission denied", "no.tar"),
        ("cat -T no.tar", "no.tar: Permission denied", "no.tar"),
        ("cat a.tar --keys-from no.tar", "no.tar: Permission denied", "no.tar"),
        ("cat closed/a.tar", "closed/a.tar: Permission denied", "closed"),
        ("cat a.tar -o closed/b.tar", "closed/b.tar: Permission denied", "closed"),
        ("create no.tar", "no.tar: Permission denied", "no.tar"),
        ("create recipe -C closed", "recipe:1: 'closed/a.txt': Permission denied", "closed"),
        ("shard tree -q -o out", "out-000000.tar: 'tree/b.txt': Permission denied", "tree/b.txt"),
    ],
)
def test_files_that_cannot_be_read(words: str, message: str, there: str, run: Run, archive: Archive) -> None:
    """The hint names the file or directory that lacks the permission."""
    _prepared(archive)
    Path("recipe").write_text("a.txt a.txt\n")
    for path in map(Path, ("no.tar", "tree/b.txt")):
        path.write_bytes(b"x")
        path.chmod(0)
    os.mkdir("closed", 0)
    try:
        with process(*words.split(), first=as_anyone, stderr=subprocess.PIPE) as started:
            said = started.communicate()[1].decode()
    finally:
        os.chmod("closed", 0o700)
    if started.returncode == 99:
        pytest.skip("root cannot give up the right to read all files")
    assert started.returncode == 1
    assert said.splitlines() == [f"tarkit: {message}", f"hint: ls -ld {there} shows who may read and write it"]
