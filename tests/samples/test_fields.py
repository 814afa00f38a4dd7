"""Which entries, in which order and under which name: samples/fields.py; see also tests/commands/test_cat.py."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Usage
from tarkit.samples.fields import Fields, parse_fields, stem
from tests._tools import each_row


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
