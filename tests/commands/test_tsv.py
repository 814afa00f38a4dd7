"""tarkit tsv: every kind of column and format, missing values, and tables that are read back to the last byte."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tarkit.export import parquet
from tests._feeds import in_turn
from tests._tools import each_row
from tests.conftest import Archive, Content, Feed, Link, Run, each_feed, entries, on_terminal, tar, tarkit

ROWS: dict[str, Content] = {
    "d/a.cls": b"3\n",  # header at 0
    "d/a.json": b'{"label": "x\\ty", "n": [1, 2.5, {"z": null}], "q": null, "ok": true}',  # at 1024
    "d/a.jpg": b"\xff\xd8\xff\0\t\n\r\\",  # at 2048
    "README": b"r",
    "d/b.cls": b"",  # at 4096; its sample begins at 3072
    "d/b.JSON": b'{"label": "\xc3\xa9", "n": 12345678901234567890, "q": {}, "ok": false}',
    "d/b.txt": b"b\\N",
}


@each_row(
    ("columns", "expected", "feed"),
    in_turn(
        [
            ("cls", ["cls", "3\\n", ""]),
            ("CLS", ["CLS", "3\\n", ""]),
            ("json.label json.ok", ["json.label\tjson.ok", "x\\ty\ttrue", "é\tfalse"]),
            ("json.n", ["json.n", '[1,2.5,{"z":null}]', "12345678901234567890"]),
            ("json.q", ["json.q", "null", "{}"]),
            ("size", ["size", "78", "67"]),
            ("size.cls size.json", ["size.cls\tsize.json", "2\t68", "0\t64"]),
            ("offset offset.cls header.cls", ["offset\toffset.cls\theader.cls", "0\t512\t0", "3072\t4608\t4096"]),
            ("shard", ["shard", "in.tar", "in.tar"]),
            ("txt;cls", ["txt", "3\\n", "b\\\\N"]),
            ("t:txt,cls c=cls", ["t\tc", "3\\n\t3\\n", "b\\\\N\t"]),
            ("j:json.zz;json.label", ["j", "x\\ty", "é"]),
            ("s:size.txt;size.jpg", ["s", "8", "3"]),
        ]
    ),
)
def test_columns(columns: str, expected: list[str], run: Run, archive: Archive, feed: Feed) -> None:
    """There is a row for each sample, in order, from every feed."""
    word = feed(archive(ROWS))
    out = run("tsv", word, "--no-key", "-f", columns).stdout.decode()
    assert out.replace(f"{word}\n", "in.tar\n") == "".join(f"{line}\n" for line in expected)


def test_key_and_header(run: Run, archive: Archive) -> None:
    """The key comes first and the header has the names of columns, unless options change that."""
    name = archive(ROWS)
    assert run("tsv", name, "-f", "cls").stdout == b"__key__\tcls\nd/a\t3\\n\nd/b\t\n"
    assert run("tsv", name, "-f", "cls", "--no-header").stdout == b"d/a\t3\\n\nd/b\t\n"
    assert run("tsv", name, "-f", "cls __key__").stdout == b"cls\t__key__\n3\\n\td/a\n\td/b\n"
    assert run("tsv", name, "-f", "cls k:__key__", "--no-key").stdout == b"cls\tk\n3\\n\td/a\n\td/b\n"
    assert run("tsv", name, "-f", "cls", "--no-key", "--no-header").stdout == b"3\\n\n\n"


@each_feed
def test_without_columns(run: Run, archive: Archive, feed: Feed) -> None:
    """Default columns are short texts of the first sample and sizes of other fields; a warning names missing fields."""
    ran = run("tsv", feed(archive({**ROWS, "c.x": b"1"})))
    lines = ran.stdout.decode().splitlines()
    assert lines[0] == "__key__\tcls\tjson\tsize.jpg"
    assert lines[1].endswith("\t8")
    assert lines[2].endswith("\t\\N")
    assert lines[3] == "c\t\\N\t\\N\t\\N"
    [line] = ran.lines
    assert line.startswith("tarkit: warning: 2 of 3 samples have fields that the table has not, such as 'txt' of 'd/b'")
    assert run("tsv", feed(archive({}, "no.tar"))).stdout == b"__key__\n"


def test_changed_samples(run: Run, archive: Archive) -> None:
    """Keys and fields may be changed before the table; --require names what each row needs."""
    name = archive({f"{n}.cls": str(n).encode() for n in range(9)})
    words = ["-f", "cls", "--where", "cls > 3", "-c", "2", "-R", "k{index}", "--no-header"]
    assert run("tsv", name, *words).stdout == b"k0\t4\nk1\t5\n"
    assert run("tsv", archive(ROWS, "r.tar"), "--drop", "j*", "-c", "1").stdout == b"__key__\tcls\nd/a\t3\\n\n"
    assert "[missing-field]" in run("tsv", name, "-f", "cls", "--require", "txt", exit=1).stderr


# ---- formats

PIXELS = b"\xff\xd8\xff\0\t\n\r\\"
OBJECTS = [
    {"__key__": "d/a", "cls": "3\n", "json.label": "x\ty", "json.n": [1, 2.5, {"z": None}], "json.q": None,
     "@jpg": "base64:" + base64.b64encode(PIXELS).decode(), "size.cls": 2},
    {"__key__": "d/b", "cls": "", "json.label": "é", "json.n": 12345678901234567890, "json.q": {}, "jpg": None,
     "size.cls": 0},
]  # fmt: skip
COLUMNS = ["-f", "cls json.label json.n json.q jpg size.cls", "--on-missing-field", "keep"]


@each_feed
def test_a_key_of_two_inputs(run: Run, archive: Archive, feed: Feed) -> None:
    """Two rows with one key are a warning, adjacent or not; samples that were not selected have no row."""
    words = [feed(archive({"a.x": b"1", "b.x": b"2"}, "1.tar")), feed(archive({"b.x": b"3", "a.x": b"4"}, "2.tar"))]
    ran = run("tsv", *words, "-f", "x", "--no-header")
    assert ran.stdout == b"a\t1\nb\t2\nb\t3\na\t4\n"
    assert ran.lines == [
        f"tarkit: warning: {words[1]}: at {at}: the key '{key}' is already in the output [repeated-key]"
        for at, key in ((0, "b"), (1024, "a"))
    ]
    assert run("tsv", *words, "-f", "x", "--no-header", "--skip", "repeated-key").stdout == b"a\t1\nb\t2\n"
    assert run("tsv", *words, "-f", "x", "--shard-slice", "0:1").stderr == ""


def test_json(run: Run, archive: Archive) -> None:
    """Content is a string, or a source in base64; the value of a path is the JSON value."""
    name = archive(ROWS)
    lines = run("tsv", name, *COLUMNS, "--format", "jsonl").stdout.decode().splitlines()
    assert [json.loads(line) for line in lines] == OBJECTS
    assert json.loads(run("tsv", name, *COLUMNS, "--format", "json").stdout) == OBJECTS
    for format, empty in (("jsonl", b""), ("json", b"[]\n"), ("yaml", b"[]\n"), ("csv", b"__key__,cls\n")):
        ran = run("tsv", name, "-f", "cls", "--match", "zz", "--format", format)
        assert ran.stdout == empty


def test_csv(run: Run, archive: Archive) -> None:
    """Values are quoted if necessary, bytes are unchanged, missing values are empty."""
    out = run("tsv", archive(ROWS), "-f", "cls json.label jpg", "--format", "csv", *COLUMNS[2:]).stdout
    assert out == b'__key__,cls,json.label,jpg\nd/a,"3\n",x\ty,"\xff\xd8\xff\0\t\n\r\\"\nd/b,,\xc3\xa9,\n'


def test_yaml(run: Run, archive: Archive) -> None:
    """Values that are no text are binary."""
    yaml = pytest.importorskip("yaml")
    out = run("tsv", archive(ROWS), *COLUMNS, "--format", "yaml").stdout
    expected: list[dict[str, Any]] = [dict(row) for row in OBJECTS]
    expected[0]["jpg"] = b"\xff\xd8\xff\0\t\n\r\\"
    del expected[0]["@jpg"]
    assert yaml.safe_load(out) == expected


def test_by_suffix(run: Run, archive: Archive) -> None:
    """The suffix of the output determines the format."""
    name = archive(ROWS)
    begins = {"csv": b"__key__,cls\n", "jsonl": b'{"__key__"', "json": b"[\n", "tsv": b"__key__\tcls"}
    for suffix, begin in begins.items():
        run("tsv", name, "-f", "cls", "-o", f"t.{suffix}")
        assert Path(f"t.{suffix}").read_bytes().startswith(begin)
    run("tsv", name, "-f", "cls", "-o", "t.xls", "--format", "tsv")
    run("tsv", name, "-f", "cls", "-o", "t.csv.gz")
    assert Path("t.csv.gz").read_bytes()[:2] == b"\x1f\x8b"


STRUCT = "struct<bytes: binary, path: string>"


def test_parquet(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows determine the types of columns; a later value that does not fit is an error without a file."""
    pyarrow = pytest.importorskip("pyarrow.parquet")
    run("tsv", archive(ROWS), *COLUMNS, "-o", "t.parquet")
    found = pyarrow.read_table("t.parquet")
    assert [str(kind) for kind in found.schema.types] == [*["string"] * 5, STRUCT, "int64"]
    assert found.to_pylist()[0]["jpg"] == {"bytes": b"\xff\xd8\xff\0\t\n\r\\", "path": "d/a.jpg"}
    assert [row["json.n"] for row in found.to_pylist()] == ['[1, 2.5, {"z": null}]', "12345678901234567890"]
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    rows = {f"{n}.json": json.dumps({"a": n, "b": n / 2 if n else 1, "c": n > 1}).encode() for n in range(5)}
    run("tsv", archive(rows, "n.tar"), "-f", "json.a json.b json.c json", "-o", "n.parquet")
    assert [(row["json.a"], row["json.b"], row["json.c"]) for row in pyarrow.read_table("n.parquet").to_pylist()] == [
        (n, n / 2 if n else 1, n > 1) for n in range(5)
    ]
    rows["9.json"] = b'{"a": "x"}'
    line = run("tsv", archive(rows, "x.tar"), "-f", "json.a", "-o", "x.parquet", exit=1).lines[0]
    assert line == "tarkit: column 'json.a': a value in rows 5 to 6 is not int64, the type of the first rows"
    assert not Path("x.parquet").exists()
    run("tsv", archive({}, "no.tar"), "-f", "cls", "-o", "no.parquet")
    assert pyarrow.read_table("no.parquet").num_rows == 0


@each_row(
    ("numbers", "expected"),
    [
        ([1, 2**64 + 1], ["1", str(2**64 + 1)]),
        ([2**53 + 1, 0.5], [str(2**53 + 1), "0.5"]),
        ([10**400, None], [str(10**400), None]),
        ([2**53, 0.5], [2.0**53, 0.5]),
        ([1, 0.5, 2**53 + 1], "float64"),
        ([1, 2, 2**63], "int64"),
        ([1, 2, 1.5], "int64"),
        ([0.5, 1, 10**400], "float64"),
    ],
)
def test_no_number_is_rounded(numbers: list[Any], expected: Any, run: Run, archive: Archive, monkeypatch: Any) -> None:
    """No number is rounded: a large integer is text in the first rows; what does not fit later is an error."""
    pyarrow = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    name = archive({f"{at}.json": json.dumps({"n": number}).encode() for at, number in enumerate(numbers)})
    ran = run("tsv", name, "-f", "json.n", "-o", "t.parquet", exit=None)
    if isinstance(expected, str):
        what = f"a value in rows 3 to 3 is not {expected}, the type of the first rows"
        assert ran.lines[0] == f"tarkit: column 'json.n': {what}"
    else:
        assert pyarrow.read_table("t.parquet").column("json.n").to_pylist() == expected


def test_pictures_and_sounds_in_parquet(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are structs of bytes and path, which the metadata of Hugging Face name; all other columns are as before."""
    pyarrow = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet, "GROUP_BYTES", 20)
    rows: dict[str, Content] = {"d/a.jpg": b"\xff" * 15, "d/a.cls": b"1", "d/b.PNG": b"\x89" * 15, "d/b.flac": b"f"}
    words = ["-f", "image:jpg,png seg:seg.png flac cls x:jpg;cls n:size.jpg", "--on-missing-field", "keep"]
    run("tsv", archive({"\udce9.wav": b"", "\udce9.jpg": b"z", **rows}), *words, "-o", "t.parquet")
    found = pyarrow.ParquetFile("t.parquet")
    assert [str(kind) for kind in found.schema_arrow.types[:6]] == ["binary", *[STRUCT] * 3, "string", "binary"]
    features = json.loads(found.schema_arrow.metadata[b"huggingface"])["info"]["features"]
    assert features == {"image": {"_type": "Image"}, "seg": {"_type": "Image"}, "flac": {"_type": "Audio"}}
    assert [found.metadata.row_group(number).num_rows for number in range(found.num_row_groups)] == [2, 1]
    third, first, second = found.read().to_pylist()
    assert (first["image"], first["seg"]) == ({"bytes": b"\xff" * 15, "path": "d/a.jpg"}, None)
    assert (second["image"], second["flac"]["path"]) == ({"bytes": b"\x89" * 15, "path": "d/b.PNG"}, "d/b.flac")
    assert third["image"] == {"bytes": b"z", "path": None}


def test_all_fields(run: Run, archive: Archive) -> None:
    """`*` is all fields of the first sample, with contents; a field that it has not, or not so spelled, is an error."""
    rows: dict[str, Content] = {"a.txt": b"x", "a.JPG": b"y", "a.seg.png": b"", "b.txt": b"z", "b.JPG": b"\xff"}
    assert run("tsv", archive(rows), "-f", "size.txt * e:txt").stdout == (
        b"__key__\tsize.txt\ttxt\tJPG\tseg.png\te\na\t1\tx\ty\t\tx\nb\t1\tz\t\xff\t\\N\tz\n"
    )
    for other in ("cls", "TXT", "jpg"):
        ran = run("tsv", archive({**rows, f"c.{other}": b""}), "-f", "*", "-o", "t.tsv", exit=1)
        assert ran.stderr == (
            f"tarkit: in.tar: 'c' has the field '{other}', "
            "which the first sample has not: * is the fields of that one\n"
            "hint: -f FIELDS with --on-missing-field keep: tarkit stats names all fields\n"
        )
    assert run("tsv", archive({"a.@x": b""}), "-f", "*", exit=1).lines[0].endswith("'@x': no column can have this name")
    assert run("tsv", archive({}), "-f", "*").stdout == b"__key__\n"


# ---- missing and invalid values


def test_missing(run: Run, archive: Archive) -> None:
    """A missing field is an error, a warning, a dropped row, or a marked cell that differs from an empty one."""
    name = archive(ROWS)
    ran = run("tsv", name, "-f", "txt", "-o", "t.tsv", exit=1)
    what = "'d/a' has no field 'txt', it has 'cls', 'json', 'jpg' [missing-field]"
    assert ran.lines[0] == f"tarkit: {name}: at 0: {what}"
    assert not Path("t.tsv").exists()
    for words in (["--on-missing-field", "keep"], ["--on-missing-field", "warn"], ["--allow", "missing-field"]):
        ran = run("tsv", name, "-f", "txt", *words)
        assert ran.stdout == b"__key__\ttxt\nd/a\t\\N\nd/b\tb\\\\N\n"
        assert ("[missing-field]" in ran.stderr) == (words[-1] != "keep")
    for words in (["--on-missing-field", "skip"], ["--skip", "missing-field"]):
        ran = run("tsv", name, "-f", "txt", *words, "--report", "r.json")
        assert ran.stdout == b"__key__\ttxt\nd/b\tb\\\\N\n"
        assert json.loads(Path("r.json").read_text())["skipped"] == {"missing-field": 1}
    assert "'d/a' has no 'x' in its field 'json'" in run("tsv", name, "-f", "json.x", exit=1).stderr


def test_invalid_values(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid JSON, no picture, a large field and a sparse file are errors, unless --allow or --skip is given."""
    monkeypatch.setattr("tarkit.export.columns.CELL", 1000)
    monkeypatch.setattr("tarkit.samples.columns.SMALL", 1000)
    rows = {"a.json": b"{", "a.jpg": b"x" * 1001, "b.json": b'{"x": 1}', "b.jpg": b"x" * 1000}
    name = archive(rows)
    for column, message in (
        ("json.x", "the field 'json' of 'a' is not JSON"),
        ("width.jpg", "the field 'jpg' of 'a' is not a picture of a known format"),
        ("jpg", "the field 'jpg' of 'a' has 1001 bytes, the limit is 1000"),
    ):
        line = run("tsv", name, "-f", column, "-o", "t.tsv", exit=1).lines[0]
        assert line.startswith(f"tarkit: {name}: at 0: {message}")
        assert line.endswith(" [bad-field]")
        assert run("tsv", name, "-f", column, "--allow", "bad-field").stdout.splitlines()[1] == b"a\t\\N"
    assert run("tsv", name, "-f", "json.x", "--skip", "bad-field").stdout == b"__key__\tjson.x\nb\t1\n"


def test_values_that_a_format_cannot_store(run: Run, archive: Archive) -> None:
    """A value that a format cannot store is an error with the sample; it is not replaced by another value."""
    name = archive({"a.json": b'{"x": 1e999, "y": NaN}', "a.deep.json": b'{"x": ' + b"[" * 900 + b"]" * 900 + b"}"})
    for column in ("json.x", "json.y"):
        for format in ("json", "jsonl"):
            ran = run("tsv", name, "-f", column, "--format", format, "-o", "t", exit=1)
            assert ran.lines == ["tarkit: the row of 'a' has a number that JSON cannot represent, NaN or Infinity"]
    pytest.importorskip("yaml")
    ran = run("tsv", name, "-f", "d:deep.json.x", "--format", "yaml", "-o", "t", exit=1)
    assert ran.lines == ["tarkit: the row of 'a' has a value that is nested too deeply for YAML"]
    assert not Path("t").exists()


@each_feed
def test_hard_links(run: Run, archive: Archive, feed: Feed) -> None:
    """A link to an entry of the sample has its content."""
    name = feed(archive({"a.x": b"12", "a.y": Link("a.x"), "b.x": b"3", "b.y": b""}))
    assert run("tsv", name, "-f", "x y size.y").stdout == b"__key__\tx\ty\tsize.y\na\t12\t12\t2\nb\t3\t\t0\n"


# ---- round trips

CONTENT = st.one_of(
    st.binary(max_size=6),
    st.text(max_size=5).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"\\N", b"\\", b"\t", b"\r", b"\n", b"\r\n", b'"', b",", b"\0", b"\xef\xbb\xbf", b"null", b" x "]),
)
NAMES = ["cls", "JPG", "seg.png", "\udce9"]
KEYS = ["a", "d.1/b", "\udce9", "é", "x\ty", "n\nn", "r\rr", "b\\n", '"q",', "\ufeffk"]


@pytest.mark.slow
@settings(deadline=None, max_examples=3)
@given(
    st.lists(st.tuples(*[st.one_of(CONTENT, st.none())] * len(NAMES)), min_size=1, max_size=len(KEYS)), st.booleans()
)
@example([(b"\xef\xbb\xbf", b"", None, b"\\N")], True)
@example([(None, None, None, None)], True)
def test_a_table_reads_back(rows: list[tuple[bytes | None, ...]], sparse: bool) -> None:
    """create restores samples from the table: from TSV and JSON lines with missing fields, from CSV with all fields."""
    samples: list[tuple[str, Content]] = []
    for key, contents in zip(KEYS, rows, strict=False):
        cells = [content if content is not None or sparse else b"" for content in contents]
        samples += [(f"{key}.{name}", cell) for name, cell in zip(NAMES, cells, strict=True) if cell is not None]
    with TemporaryDirectory() as directory:
        Path(directory, "in.tar").write_bytes(tar(samples))
        for format in ("tsv", "jsonl") if sparse else ("tsv", "jsonl", "csv"):
            table, again = f"{directory}/t.{format}", f"{directory}/again.tar"
            words = ["-f", " ".join(NAMES), "--on-missing-field", "keep", "--format", format]
            tarkit("tsv", f"{directory}/in.tar", *words, "-o", table)
            tarkit("create", "--format", format, table, "-o", again)
            assert entries(again) == samples
            words = ["cat", f"{directory}/in.tar", "--keys-from", f"{table}:__key__", "--require-all"]
            ran = tarkit(*words, exit=0 if samples else 1)  # a table without rows is not a list of keys
            assert ran.stdout == (tar(samples) if samples else b"")


def test_rows_of_one_column(run: Run, archive: Archive) -> None:
    """A column without keys may have empty values, or values that begin with a byte order mark."""
    for first in (b"", b"\xef\xbb\xbfx", b"\\N"):
        name = archive({"a.cls": first, "b.cls": b"", "c.cls": b"1"})
        for format in ("tsv", "csv"):
            run("tsv", name, "--no-key", "--no-header", "-f", "cls", "--format", format, "-o", "t")
            run("create", "--format", format, "t", "--columns", "cls", "-o", "again.tar")
            assert [content for _, content in entries("again.tar")] == [first, b"", b"1"]


def test_rows_are_written_as_they_are_read(run: Run, archive: Archive) -> None:
    """Rows are written as they are read: after a failure late in the table the first ones are in the output."""
    rows = {f"{n:02}.txt": b"x" * 10000 for n in range(100)}
    ran = run("tsv", archive({**rows, "z.x": b""}), "-f", "txt", exit=1)
    assert ran.stdout.count(b"\n") > 50


# ---- pictures

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes([0, 0, 2, 1, 0, 0, 1, 3]) + b"\x08\2\0\0\0"
JPEG = b"\xff\xd8\xff\xe1\x00\x08abcdef\xff\xff\xc2\0\x11\x08\x01\x03\x02\x01\3"
GIF = b"GIF89a\x01\x02\x03\x01"


@each_feed
def test_pixels(run: Run, archive: Archive, feed: Feed) -> None:
    """A frame after a long comment is found."""
    far = b"\xff\xd8" + (b"\xff\xfe\xff\xff" + bytes(65533)) * 5 + JPEG[2:]
    name = feed(archive({"a.png": PNG, "a.jpg": far, "b.png": GIF, "b.jpg": JPEG}))
    out = run("tsv", name, "-f", "width.png height.png width.jpg height.jpg", "--no-header").stdout
    assert out == b"a\t513\t259\t513\t259\nb\t513\t259\t513\t259\n"


def test_pictures_of_a_library(run: Run, archive: Archive) -> None:
    """The size of a picture by Pillow is read."""
    image = pytest.importorskip("PIL.Image")
    pictures: dict[str, Content] = {}
    image.init()
    for kind in {"PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000"} & {*image.SAVE}:
        image.new("RGB", (513, 259), (7, 8, 9)).save(file := io.BytesIO(), kind)
        pictures[f"{kind}.x"] = file.getvalue()
    out = run("tsv", archive(pictures), "-f", "width.x height.x", "--no-key", "--no-header").stdout
    assert out == b"513\t259\n" * len(pictures)


def test_a_terminal(run: Run, archive: Archive) -> None:
    """Text tables may be written to a terminal, with escapes for control characters; others are refused."""
    name = archive({"k\x1b[2J.txt": b"a\x1b]0;x\x07b\tc\n\xff"})
    for words in (["--format", "parquet"], ["--compress", "gz"]):
        assert "refusing to write" in on_terminal("tsv", name, "-f", "txt", *words, exit=2)[1].stderr
    shown, _ = on_terminal("tsv", name, "-q", "-f", "txt")
    assert shown == "__key__\ttxt\nk\\x1b[2J\ta\\x1b]0;x\\x07b\\tc\\n\\xff\n"
    assert b"k\x1b[2J\ta\x1b]0;x\x07b\\tc\\n\xff\n" in run("tsv", name, "-f", "txt").stdout


@each_row(
    ("column", "hint"),
    [
        ("png.width", "width.png is the width of a picture"),
        ("PNG.height", "height.PNG is the height of a picture"),
        ("png.size", "size.png is the size of a field in bytes"),
        ("txt.a", "--skip bad-field drops such samples"),
        ("key", "__key__ is the key"),
        ("width", "--on-missing-field skip drops such samples, keep keeps them"),
    ],
)
def test_hints_of_columns(column: str, hint: str, run: Run, archive: Archive) -> None:
    """The hint has the correct column if the property follows the field, or the underscores of the key are missing."""
    ran = run("tsv", archive({"a.png": b"\x89PNG", "a.txt": b"x"}), "-f", column, exit=1)
    assert ran.lines[-1] == f"hint: {hint}"


@each_row("format", ["yaml", "parquet"])
def test_names_that_are_not_utf8(format: str, run: Run, archive: Archive) -> None:
    """YAML and Parquet have no such names; the other formats have."""
    name = archive({"a.\udce9": b"1"})
    ran = run("tsv", name, "--format", format, "-o", "t", exit=1)
    assert ran.stderr == (
        f"tarkit: column '\\xe9': its name is not UTF-8, as {format} requires\n"
        "hint: --format jsonl writes any name, -f chooses columns\n"
    )
    assert not Path("t").exists()
    assert run("tsv", name, "--format", "jsonl").stdout == b'{"__key__": "a", "\\udce9": "1"}\n'
