"""Stems and templates of keys: samples/fields.py; fields are in tests/commands, test_cat.py and test_usage.py."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Usage
from tarkit.samples.fields import Fields, stem
from tests._tools import each_row


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
