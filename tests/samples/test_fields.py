"""Which entries, in which order and under which name: samples/fields.py; see also tests/commands/test_cat.py."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Problem, Usage
from tarkit.problems import Policy
from tarkit.samples.fields import Fields, parse_fields, stem
from tarkit.samples.reader import SampleReader
from tarkit.tar.writer import EntryWriter
from tests._tools import SOURCES, Log, each_row
from tests.conftest import GNU, PAX, USTAR, Content, entries, tar


@each_row(
    ("text", "expected"),
    [
        ("jpg", [(None, "jpg")]),
        ("jpg json", [(None, "jpg"), (None, "json")]),
        ("  seg.png\tcls\n", [(None, "seg.png"), (None, "cls")]),
        ("png,jpg", "'png,jpg': a comma separates alternatives, of which the first present one is used"),
        ("image:png,jpg", [("image", "png jpg")]),
        ("image=png,jpg label=cls", [("image", "png jpg"), ("label", "cls")]),
        ("a:b=c", [("a", "b=c")]),
        ("é:\udce9", [("é", "\udce9")]),
        ("", "no field given"),
        ("  ", "no field given"),
        ("a:", "invalid field 'a:': it must be NAME, NEW:OLD or NEW:OLD1,OLD2"),
        ("=b", "invalid field '=b': it must be NAME, NEW:OLD or NEW:OLD1,OLD2"),
        ("a,", "invalid field 'a,': it must be NAME, NEW:OLD or NEW:OLD1,OLD2"),
        ("x,,y", "invalid field 'x,,y': it must be NAME, NEW:OLD or NEW:OLD1,OLD2"),
        ("d/a", "invalid field name 'd/a': it contains a slash"),
    ],
)
def test_parse_fields(text: str, expected: list[tuple[str | None, str]] | str) -> None:
    """Spaces separate fields, : or = renames, commas separate alternatives."""
    result: list[tuple[str | None, str]] | str
    try:
        result = [
            (
                None if want.new is None else want.new.decode("utf-8", "surrogateescape"),
                b" ".join(want.old).decode("utf-8", "surrogateescape"),
            )
            for want in parse_fields(text)
        ]
    except Usage as error:
        result = str(error)
    assert result == expected


@each_row(
    ("name", "expected"),
    [
        ("train-000001.tar", "train-000001"),
        ("d/e/x.tar", "x"),
        ("x.tar.gz", "x"),
        ("x.tgz", "x"),
        ("x.tar.zst", "x"),
        ("x.tzst", "x"),
        ("x.tar.lz4", "x"),
        ("x.txz", "x"),
        ("x.tbz2", "x"),
        ("x.bz2", "x"),
        ("x.y.tar", "x.y"),
        ("x", "x"),
        (".tar", ".tar"),
        ("stdin", "stdin"),
        ("pipe:cat /data/x.tar", "x"),
    ],
)
def test_stem(name: str, expected: str) -> None:
    """The stem is the name of a shard without directories and suffixes; it is never empty."""
    assert stem(name) == expected


@settings(max_examples=25)
@given(st.text("#{}:!.key[]09d ", max_size=12))
def test_any_template_is_accepted_or_refused(text: str) -> None:
    """A template for keys is accepted, or refused with a reason before anything is read; no other error is raised."""
    try:
        Fields(rekey=text)
    except Usage as error:
        message = str(error)
    else:
        message = "rekey is fine"
    assert message.startswith("rekey ")


# ---- several changes in sequence


TWO: dict[str, Content] = {"a.jpg": b"A" * 600, "a.cls": b"1", "b.JPG": b"B" * 600, "b.seg.png": b"", "b.cls": b"2"}


def changed(data: bytes, *changes: Fields, kind: str = "file") -> bytes:
    """Return an archive of the samples of `data` after all the changes."""
    policy, sink = Policy(), Log()
    samples = iter(SampleReader(SOURCES[kind](data), policy))
    for change in changes:
        samples = change(samples, policy)
    with EntryWriter(sink) as writer:
        for sample in samples:
            sample.write(writer)
    return bytes(sink.data)


@each_row("kind", SOURCES)
@each_row("format", [USTAR, GNU, PAX])
def test_changes_add_up(kind: str, format: int) -> None:
    """A name that one change sets is kept by those that follow, even if they leave the field unchanged."""
    long = "k" * 120
    changes = [
        Fields(rekey=f"{long}/{{key}}~2"),
        Fields(drop=("cls",)),
        Fields(rename=((b"jpg", b"jpeg"), (b"seg.png", b""))),
        Fields(require=[(b"jpeg",)]),
    ]
    rows: list[list[tuple[str, Content]]] = [[*TWO.items()]]
    rows.append([(f"{long}/{name[0]}~2{name[1:]}", content) for name, content in rows[0]])
    rows.append([row for row in rows[1] if not row[0].endswith("cls")])
    rows += [[(f"{long}/a~2.jpeg", TWO["a.jpg"]), (f"{long}/b~2.jpeg", TWO["b.JPG"])]] * 2
    for count, expected in enumerate(rows):
        assert entries(changed(tar(TWO, format), *changes[:count], kind=kind)) == expected


def test_rename() -> None:
    """Old names match in any case, the others are unchanged; two fields with the same new name are an error."""
    swap = Fields(rename=((b"JPG", b"cls"), (b"cls", b"jpg"), (b"none", b"x")))
    assert [name for name, _ in entries(changed(tar(TWO), swap))] == ["a.cls", "a.jpg", "b.cls", "b.seg.png", "b.jpg"]
    with pytest.raises(Problem, match=r"two fields of 'a' get the same name \[duplicate-entry\]"):
        changed(tar(TWO), Fields(rename=((b"jpg", b"cls"),)))
