"""tarkit show: the output from files, pipes and compressed files; early ends; damage."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.streams import source
from tests._feeds import in_turn
from tests._tools import each_row
from tests.conftest import PAX, Archive, Content, Feed, Link, Run, each_feed, on_terminal, tar

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\2\0\0\0" + bytes(500)
AB: dict[str, Content] = {
    "d/a.png": PNG,
    "d/a.cls": b"7\n",
    "d/a.json": b'{"label": "cat"}',
    "d/b.jpg": PNG,
    "d/b.npy": b"\x93NUMPY\1\0\x3a\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"[:58] + bytes(8),
    "d/b.pyd": b"cos\nsystem\n(S'touch owned'\ntR.",
}
SHOWN = [
    "d/a  in.tar at 0",
    "  png   529  png   640 x 480",
    "  cls     2  text  7",
    '  json   16  json  {"label": "cat"}',
    "d/b  in.tar at 3584",
    "  jpg  529  png     640 x 480, but named jpg",
    "  npy   76  npy     float32 [2]",
    "  pyd   30  pickle  not opened",
]


def many(count: int) -> dict[str, Content]:
    """Return samples of one short text."""
    return {f"{number:03d}.txt": b"%d" % number for number in range(count)}


def shown_keys(out: bytes) -> str:
    """Return the keys of the samples in plain lines."""
    return " ".join(line.split()[0] for line in out.decode().splitlines() if not line.startswith(" "))


def from_feed(out: bytes, word: str) -> list[str]:
    """Return the lines, with the name of the archive as a file."""
    return out.decode().replace(word, "in.tar").splitlines()


# ---- lines


@each_feed
def test_lines(run: Run, archive: Archive, feed: Feed) -> None:
    """There is a line for each entry, with the facts of its first bytes and header. Pickles are not opened."""
    word = feed(archive(AB))
    ran = run("show", word)
    assert from_feed(ran.stdout, word) == SHOWN
    assert ran.stderr == ""
    assert not Path("owned").exists()


def test_several_inputs(run: Run, archive: Archive) -> None:
    """Several inputs are shown in sequence; stdin; a key in two inputs is no problem here."""
    first, second = archive(AB, "1.tar"), archive(AB, "2.tar")
    assert shown_keys(run("show", first, second, "-c", "3").stdout) == "d/a d/b d/a"
    assert run("show", "--all", stdin=tar(AB)).stdout.decode().splitlines()[0] == "d/a  stdin at 0"


@each_row(
    ("words", "keys", "said", "feed"),
    in_turn(
        [
            ([], range(10), ["tarkit: the first 10 samples; -c N shows N, --all shows all"]),
            (["-q"], range(10), []), (["-c", "3"], range(3), []), (["--count", "12"], range(12), []),
            (["--all"], range(15), []), (["-c", "0"], (), ["tarkit: no sample selected"]),
            (["--match", "4$"], (4, 14), []), (["--match", "x"], (), ["tarkit: no sample selected"]),
            (["--keys-from", "list"], (3, 14),
                ["tarkit: list: 3 keys requested, 2 found, 1 missing, the first of them 'x'"]),
            (["--keys-from", "list", "-c", "1"], (3,), []),
        ]
    ),
)  # fmt: skip
def test_which(words: list[str], keys: range, said: list[str], run: Run, archive: Archive, feed: Feed) -> None:
    """Ten samples are the default, which is printed; selection is as in cat. After an early end no key is missing."""
    Path("list").write_text("003\n014\nx\n")
    ran = run("show", feed(archive(many(15))), *words)
    assert shown_keys(ran.stdout) == " ".join(f"{key:03d}" for key in keys)
    assert ran.lines == said


def test_all_keys_required(run: Run, archive: Archive) -> None:
    """With --require-all everything is read, and a missing key is an error after the found ones are shown."""
    Path("list").write_text("\n".join([*(f"{number:03d}" for number in range(15)), "x"]))
    ran = run("show", archive(many(15)), "--keys-from", "list", "--require-all", exit=1)
    assert len(ran.stdout.splitlines()) == 30
    assert ran.lines == ["tarkit: list: 16 keys requested, 15 found, 1 missing, the first of them 'x'"]


def test_a_missing_field(run: Run, archive: Archive) -> None:
    """Samples before it are shown."""
    ran = run("show", archive(AB), "-f", "cls", exit=1)
    assert len(ran.stdout.splitlines()) == 2
    assert "[missing-field]" in ran.stderr


@each_feed
def test_what_is_no_regular_file(run: Run, archive: Archive, feed: Feed) -> None:
    """Links, directories and entries without a key are shown."""
    word = feed(archive([("d", None), ("d/a.txt", b"x"), ("d/a.ln", Link("d/a.txt", tarfile.SYMTYPE)), ("d/.x", b"")]))
    assert from_feed(run("show", word).stdout, word) == [
        "d/a  in.tar at 0",
        "  d/    0  directory      no key",
        "  txt   1  text           x",
        "  ln    0  symbolic link  to d/a.txt",
        "  d/.x  0  empty          no key",
    ]


def test_sparse_files(run: Run) -> None:
    """Sparse files are shown with their names."""
    golden = sorted((Path(__file__).parents[1] / "data").glob("*sparse*.tar"))
    assert golden
    for path in golden:
        assert b"  sparse file  content not read" in run("show", str(path)).stdout


@each_feed
def test_no_sample(run: Run, archive: Archive, feed: Feed) -> None:
    """Entries are shown, with the reason why a loader finds no sample."""
    why = "tarkit: no sample found: samples are entries with a dot in their file names, which ends the key"
    word = feed(archive({"README": b"x"}))
    ran = run("show", word)
    assert from_feed(ran.stdout, word) == ["(no sample)  in.tar at 0", "  README  1  text  x  (no key)"]
    assert ran.lines == [why]
    empty = run("show", feed(archive({})))
    assert (empty.stdout, empty.lines) == (b"", [why])


# ---- formats for programs


@each_feed
def test_json(run: Run, archive: Archive, feed: Feed) -> None:
    """All samples are JSON objects, one a line."""
    word = feed(archive(AB | {"e\udcff\\.t": b"x"}))
    lines = from_feed(run("show", word, "--json").stdout, word)
    found = [json.loads(line) for line in lines]
    assert [(each["key"], each["archive"], each["offset"]) for each in found] == [
        ("d/a", "in.tar", 0), ("d/b", "in.tar", 3584), ("e\\xff\\\\", "in.tar", 7168)
    ]  # fmt: skip
    assert found[0]["fields"][0] == {
        "name": "d/a.png", "field": "png", "size": 529, "kind": "png", "width": 640, "height": 480
    }  # fmt: skip
    assert found[2]["fields"] == [
        {"name": "e\\xff\\\\.t", "field": "t", "size": 1, "kind": "text", "text": "x", "cut": False}
    ]
    assert len(run("show", feed(archive(many(15))), "--json").stdout.splitlines()) == 15


@each_feed
def test_names(run: Run, archive: Archive, feed: Feed) -> None:
    """There is every path with its key and field; separated by NULs paths are raw."""
    word = feed(archive([("d/README", b"12"), ("d/a.seg.png", PNG), ("d/\udcff\n.cls", b"1")]))
    ran = run("show", word, "--names")
    assert ran.stdout.decode().splitlines() == [
        "         2  d/README -> no key",
        "       529  d/a.seg.png -> d/a | seg.png",
        "         1  d/\\xff\\x0a.cls -> d/\\xff\\x0a | cls",
    ]
    raw = b"d/README\0\0\x002\0d/a.seg.png\0d/a\0seg.png\x00529\0d/\xff\n.cls\0d/\xff\n\0cls\x001\0"
    assert run("show", word, "--names", "-0").stdout == raw


@each_feed
def test_names_without_global_headers(run: Run, archive: Archive, feed: Feed) -> None:
    """A global header, as git archive writes it, has no path and no row."""
    word = feed(archive(tar([("d/a.txt", b"1"), ("d/README", b"12")], PAX, pax_headers={"comment": "0" * 40})))
    assert run("show", word, "--names").stdout == b"         1  d/a.txt -> d/a | txt\n         2  d/README -> no key\n"
    assert run("show", word, "--names", "-0").stdout == b"d/a.txt\0d/a\0txt\x001\0d/README\0\0\x002\0"


def test_names_read_no_payload(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only headers are read."""
    monkeypatch.setattr(source.FileSource, "read", None)
    assert run("show", archive(AB), "--names").stdout.count(b"\n") == 6


# ---- bytes read


def test_a_stream_is_not_read_behind_the_last_sample(run: Run, archive: Archive) -> None:
    """Bytes after the last sample may be damaged or missing."""
    data = tar(many(3))[: 3 * 1024]
    Path("bad").write_bytes(data + b"\xff" * 512)
    for word in ("bad", "pipe:cat bad; sleep 100"):
        assert shown_keys(run("show", word, "-c", "2").stdout) == "000 001"
    Path("two.tar").write_bytes(tar(many(2)))
    assert shown_keys(run("show", "two.tar", "bad", "pipe:exit 3", "-c", "2").stdout) == "000 001"


@each_feed
def test_large_entries_are_not_held(run: Run, archive: Archive, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large member only the head is read; a stream skips the rest."""
    for name in ("CHUNK", "HELD"):
        monkeypatch.setattr(source, name, 1 << 16)
    monkeypatch.setattr("tarkit.samples.groups.LARGE", 1 << 16)
    reads: list[int] = []
    for each in (source.FileSource, source.StreamSource):
        original = each.read

        def read(self: object, start: int, stop: int, original: object = original) -> bytes:
            reads.append(stop - start)
            return original(self, start, stop)  # type: ignore[operator,no-any-return]

        monkeypatch.setattr(each, "read", read)
    word = feed(archive({"a.txt": b"x" * (5 << 16), "a.png": PNG + bytes(5 << 16), "a.cls": b"1", "b.cls": b"2"}))
    lines = from_feed(run("show", word).stdout, word)
    assert lines[1:4] == [
        "  txt  327680  text  " + "x" * 79 + "\u2026",
        "  png  328209  png   640 x 480",
        "  cls       1  text  1",
    ]
    assert lines[5] == "  cls  1  text  2"
    assert max(reads) <= 8192
    assert run("show", word, "--names").stdout.count(b"\n") == 4


# ---- damage


CUTS = [
    (lambda data: data[: 2 * 1024 + 600], "000 001", "truncated"),
    (lambda data: data[: 3 * 1024], "000 001 002", "no-end-marker"),
    (lambda data: data[:2048] + b"\xff" * 512 + data[2560:], "000 001", "bad-header"),
    (lambda data: data[:2048] + bytes(1024) + data[2048:], "000 001", "trailing-data"),
    (lambda data: data[:300], "", "truncated"),
]


@each_row(
    ("view", "cut", "keys", "problem", "feed"),
    in_turn(((view, *row) for view in ((), ("--json",), ("--names",)) for row in CUTS), len(CUTS)),
)
def test_damage(
    view: tuple[str, ...],
    cut: Callable[[bytes], bytes],
    keys: str,
    problem: str,
    run: Run,
    archive: Archive,
    feed: Feed,
) -> None:
    """Samples before the damage are shown, then one line with the problem, and exit status 1."""
    ran = run("show", feed(archive(cut(tar(many(4))))), *view, exit=1)
    found = re.findall(rb"^(?:\d{3})(?=  )|(?<=\"key\": \")\d{3}|\d{3}(?= \|)", ran.stdout, re.M)
    assert b" ".join(found).decode() == keys
    assert len([line for line in ran.lines if not line.startswith("hint: ")]) == 1
    assert f"[{problem}]" in ran.lines[0]


@each_feed
def test_damage_inside_a_sample(run: Run, archive: Archive, feed: Feed) -> None:
    """Complete entries of the last sample are shown as well. --skip drops it; with --allow there is no error."""
    word = feed(archive(tar(AB)[: 3584 + 1536 + 512 + 40]))
    ran = run("show", word, exit=1)
    assert from_feed(ran.stdout, word) == [*SHOWN[:5], "  jpg  529  png  640 x 480, but named jpg"]
    assert shown_keys(run("show", word, "--skip", "truncated").stdout) == "d/a"
    assert shown_keys(run("show", word, "--allow", "truncated").stdout) == "d/a d/b"


def test_damaged_compression(run: Run, archive: Archive) -> None:
    """A truncated compressed file has the same effect."""
    data = tar({f"{number}.x": os.urandom(3000) for number in range(100)})
    Path("in.tar.gz").write_bytes(gzip.compress(data, 1)[:200_000])
    ran = run("show", "in.tar.gz", "--all", exit=1)
    assert 50 < len(ran.stdout.splitlines()) // 2 < 70
    assert "[truncated]" in ran.stderr


def test_the_first_of_two_inputs_is_damaged(run: Run, archive: Archive) -> None:
    """The second input is not opened."""
    first, second = archive(tar(many(2))[:2048], "1.tar"), archive(AB, "2.tar")
    ran = run("show", first, second, exit=1)
    assert shown_keys(ran.stdout) == "000 001"
    assert shown_keys(run("show", first, second, "--allow", "no-end-marker").stdout) == "000 001 d/a d/b"


# ---- pictures and pages


def real_picture(color: str = "red") -> bytes:
    """Return a PNG that can be drawn."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    out = io.BytesIO()
    images.new("RGB", (480, 400), color).save(out, "PNG")
    return out.getvalue()


def test_images(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are as wide as the terminal, with key, class and caption below; samples without a picture are counted."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    white = real_picture("white")
    name = archive(
        {"a.png": white, "a.cls": b"1", "a.txt": b"A white square.", "b.txt": b"x", "c.png": PNG, "d.png": white}
    )
    Path("classes.txt").write_text("cat\ndog\n")
    ran = run("show", name, "--images")
    block = ["@" * 29] * 12
    assert ran.stdout.decode().splitlines() == [
        *block,
        "a                              c",
        "dog                            png: it cannot be decoded",
        "A white square.",
        "png 480 x 400",
        "",
        *block,
        "d",
        "png 480 x 400",
        "",
    ]
    assert ran.lines == ["tarkit: without a picture: 1 of 4 samples"]
    out = run("show", name, "--images", "--by", "size.png", "-c", "1").stdout.decode().splitlines()
    assert out[12:14] == ["a", str(len(white))]


def test_images_before_damage(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """An incomplete row is drawn before the error."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    data = tar({"a.png": real_picture("white"), "b.png": real_picture("white")})
    ran = run("show", archive(data[: data.rindex(b"b.png") + 600]), "--images", exit=1)
    assert ran.stdout.decode().splitlines()[0] == "@" * 38
    assert "[truncated]" in ran.stderr


@each_feed
def test_html(run: Run, archive: Archive, feed: Feed) -> None:
    """One file is written when all is read; a second run writes the same bytes."""
    word = feed(archive(AB | many(3)))
    ran = run("show", word, "--html", "page.html")
    assert ran.stdout == b""
    page = Path("page.html").read_text()
    assert re.findall('data-key="(.*?)"', page) == ["d/a", "d/b", "000", "001", "002"]
    assert "<p>All samples</p>" in page
    assert run("show", word, "--html", "-").stdout.decode() == page
    run("show", word, "--html", "page.html", "--match", "d", "-c", "1")
    page = Path("page.html").read_text()
    assert re.findall('data-key="(.*?)"', page) == ["d/a"]
    assert "<p>The first 1 of the selected samples</p>" in page


def test_classes(run: Run, archive: Archive) -> None:
    """Names of numbered classes are in classes.txt beside the shards, or in the file of --classes."""
    Path("shards").mkdir()
    name = archive({f"{i}.cls": b"%d" % (i % 3) for i in range(6)} | {"6.cls": b"9"}, "shards/a.tar")

    def chips(*words: str) -> list[str]:
        run("show", name, "--html", "page.html", *words)
        return re.findall('class="chip[^s][^>]*>(.*?)<', Path("page.html").read_text())

    assert chips() == ["0", "1", "2", "0", "1", "2", "9"]
    Path("shards/classes.txt").write_bytes(b"\xef\xbb\xbfcat\r\n\n<b>\r\n\xe7\x8a\xac\r\n")
    assert chips() == ["cat", "&lt;b&gt;", "\u72ac"] * 2 + ["9"]
    Path("mine").write_text("zero\n")
    assert chips("--classes", "mine") == ["zero", "1", "2", "zero", "1", "2", "9"]
    assert chips("--by", "size.cls") == ["&lt;b&gt;"] * 7
    assert chips("--by", "nothing") == []
    run("show", name, "--html", "page.html", "--classes", "nowhere", exit=1)


def test_html_of_many(run: Run, archive: Archive) -> None:
    """200 samples are the default, which is stated on the page and on stderr."""
    ran = run("show", archive(many(300)), "--html", "page.html")
    assert ran.lines == ["tarkit: the first 200 samples; -c N shows N, --all shows all"]
    page = Path("page.html").read_text()
    assert page.count("<article") == 200
    assert "<p>The first 200 of the samples</p>" in page
    run("show", "in.tar", "--html", "page.html", "--all")
    assert Path("page.html").read_text().count("<article") == 300


@each_feed
def test_no_page_of_a_damaged_archive(run: Run, archive: Archive, feed: Feed) -> None:
    """There is no page without all samples, which could be taken for a complete one."""
    word = feed(archive(tar(many(3))[:3000]))
    run("show", word, "--html", "page.html", exit=1)
    assert not Path("page.html").exists()
    run("show", word, "--html", "page.html", "--skip", "truncated")
    assert Path("page.html").exists()


def test_hostile_page(run: Run, archive: Archive) -> None:
    """Names and contents that would be scripts are text."""
    name = "<script>alert(1)<\\script>\"'&"
    run("show", archive({f"{name}.txt": f"{name} ".encode() * 9, f"{name}.json": json.dumps({name: name}).encode()}),
        "--html", "page.html")  # fmt: skip
    page = Path("page.html").read_text()
    assert page.count("<script>") == page.count("</script>") == 1
    assert "&lt;script&gt;alert(1)" in page


# ---- terminals, closed pipes


def test_in_a_terminal(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a panel for each sample, with colours unless NO_COLOR is set."""
    name = archive({"d/a.cls": b"7", "d/a.txt": b"\x1b[2Jx"})
    for variable, value in (("COLUMNS", "60"), ("TERM", "xterm-256color"), ("COLORTERM", ""), ("NO_COLOR", "1")):
        monkeypatch.setenv(variable, value)
    shown, ran = on_terminal("show", name)
    assert ran.stderr == ""
    assert shown.splitlines() == [
        "\u256d\u2500 d/a " + "\u2500" * 52 + "\u256e",
        "\u2502 " + "cls  1 B  text  7".ljust(56) + " \u2502",
        "\u2502 " + "txt  5 B  text  \\x1b[2Jx".ljust(56) + " \u2502",
        "\u2570" + "\u2500" * 44 + " in.tar at 0 \u2500\u256f",
    ]
    monkeypatch.setenv("NO_COLOR", "")
    coloured, _ = on_terminal("show", name)
    assert "\x1b[32m" in coloured
    assert "\x1b[2J" not in coloured


def test_what_is_loaded(archive: Archive) -> None:
    """Lines in a pipe load neither rich nor Pillow."""
    code = (
        "import sys; from tarkit.cli.app import group\n"
        f"try: group(['show', {archive(AB)!r}], prog_name='tarkit')\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(' '.join(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert loaded.isdisjoint({"rich", "PIL", "tqdm", "numpy", "pickle"})
    assert len(done.stdout.splitlines()) == 8


def test_by_a_field_that_no_sample_has(run: Run, archive: Archive) -> None:
    """A field that no sample has is a warning, as in stats; one that some samples have is not."""
    archive({"a.txt": b"x", "b.cls": b"1"})
    for view in (["--html", "a.html"], ["--images"]):
        assert "tarkit: warning: no sample has 'class'" in run("show", "in.tar", "--by", "class", *view).lines
        assert "warning" not in run("show", "in.tar", "--by", "cls", *view).stderr


# ---- values of tenbin, msgpack and CBOR


def described(**fields: Any) -> dict[str, dict[str, Any]]:
    """Return what `show` says of the fields of a sample, by their names."""
    for library in ("numpy", "msgpack", "cbor2"):
        pytest.importorskip(library)
    with tarkit.TarWriter("in.tar") as out:
        out.write("k", fields)
    return {field["field"]: field for field in tarkit.open("in.tar").head()[0].describe()["fields"]}


def test_values(here: Path) -> None:
    """Values are shown as Python writes them, arrays by type and shape."""
    numpy = pytest.importorskip("numpy")
    arrays = [numpy.ones((2, 3), "float32"), numpy.array(1)]
    seen = described(mp={"a": [1, b"x"]}, cbor={1: "\u00e9"}, ten=arrays)
    assert (seen["mp"]["kind"], seen["mp"]["text"], seen["mp"]["cut"]) == ("msgpack", "{'a': [1, b'x']}", False)
    assert (seen["cbor"]["kind"], seen["cbor"]["text"]) == ("cbor", "{1: '\u00e9'}")
    assert seen["ten"]["arrays"] == [
        {"name": "0", "dtype": "float32", "shape": [2, 3]}, {"name": "1", "dtype": "int64", "shape": []}
    ]  # fmt: skip


def test_values_that_cannot_be_shown(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage, length and a library that is not there are notes."""
    seen = described(mp=b"\xc1", msg=list(range(40_000)), ten=b"~TenBin~xx")
    notes = {name: field["note"] for name, field in seen.items()}
    assert notes == {"mp": "cannot be decoded", "msg": "too long to be decoded", "ten": "invalid header"}
    long = described(mp=["x" * 5000])["mp"]
    assert (len(long["text"]), long["cut"]) == (4096, True)
    described(mp=b"\x01")
    monkeypatch.setitem(sys.modules, "msgpack", None)
    [field] = tarkit.open("in.tar").head()[0].describe()["fields"]
    assert field["note"] == "not decoded: that requires tarkit[msgpack]"
