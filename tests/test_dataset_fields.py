"""Which entries, in what order and under what name: fields.py. What comes of it is in test_cmd_cat.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.dataset.fields import Fields, parse_fields, stem
from tarkit.errors import Usage


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jpg", [(None, "jpg")]),
        ("jpg json", [(None, "jpg"), (None, "json")]),
        ("  seg.png\tcls\n", [(None, "seg.png"), (None, "cls")]),
        ("png,jpg", "'png,jpg': a comma means the first that is there"),
        ("image:png,jpg", [("image", "png jpg")]),
        ("image=png,jpg label=cls", [("image", "png jpg"), ("label", "cls")]),
        ("a:b=c", [("a", "b=c")]),
        ("é:\udce9", [("é", "\udce9")]),
        ("", "no field is named"),
        ("  ", "no field is named"),
        ("a:", "'a:': a field is NAME, NEW:OLD or NEW:OLD1,OLD2"),
        ("=b", "'=b': a field is NAME, NEW:OLD or NEW:OLD1,OLD2"),
        ("a,", "'a,': a field is NAME, NEW:OLD or NEW:OLD1,OLD2"),
        ("x,,y", "'x,,y': a field is NAME, NEW:OLD or NEW:OLD1,OLD2"),
        ("d/a", "'d/a': the name of a field has no slash"),
    ],
)
def test_parse_fields(text: str, expected: list[tuple[str | None, str]] | str) -> None:
    """Blanks separate fields, : or = renames, commas are alternatives."""
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


@pytest.mark.parametrize(
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
    """A shard's name without folders and suffixes; never nothing."""
    assert stem(name) == expected


def test_all() -> None:
    """Whether anything changes is known before."""
    assert Fields().all
    assert Fields(on_missing="skip").all
    assert not Fields(parse_fields("jpg")).all
    assert not Fields(drop=("x",)).all
    assert not Fields(require=[(b"x",)]).all
    assert not Fields(rekey="#").all


@given(st.text("#{}:!.key[]09d ", max_size=12))
def test_any_template_is_good_or_refused(text: str) -> None:
    """A template for keys is taken or refused with a reason, before anything is read; nothing else is raised."""
    try:
        Fields(rekey=text)
    except Usage as error:
        message = str(error)
    else:
        message = "--rekey is fine"
    assert message.startswith("--rekey ")
