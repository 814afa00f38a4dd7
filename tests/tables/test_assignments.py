"""The words of `--set`."""

from __future__ import annotations

import pytest

from tarkit.errors import Usage
from tarkit.tables.assignments import columns_of, parse_assignments
from tests._tools import each_row


@each_row(
    ("text", "expected"),
    [
        ("", []),
        ("cls", ["cls<cls"]),
        (" cls\ttxt:caption ", ["cls<cls", "txt<caption"]),
        ("txt=caption", ["txt<caption"]),
        ("seg.png:mask", ["seg.png<mask"]),
        ('txt:"a: {b}, c"', ["txt<a: {b}, c"]),
        ("json:meta", ["json<meta"]),
        ("json:{a,b}", ["json{a<a,b<b}"]),
        ("json:{ a , b:c } cls", ["json{a<a,b<c}", "cls<cls"]),
        ("json.score", ["json{score<json.score}"]),
        ("meta.json.a.b:c", ["meta.json{a.b<c}"]),
        ("json.a:{b,c:d}", ["json{a.b<b,a.c<d}"]),
        ("json.a cls json:{b}", ["json{a<json.a,b<b}", "cls<cls"]),
        ("META.JSON.a", ["META.JSON{a<META.JSON.a}"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    """A word names a field and a column, or members of JSON and their columns."""
    found = []
    for one in parse_assignments(text):
        members = ",".join(f"{'.'.join(member.path)}<{member.column}" for member in one.members)
        found.append(f"{one.field}{{{members}}}" if members else f"{one.field}<{one.column}")
    assert found == expected


@each_row(
    ("text", "message"),
    [
        ("cls,txt", "a word must be FIELD"),
        ("txt:", "a word must be FIELD"),
        (":a", "a word must be FIELD"),
        ("json:{}", "a word must be FIELD"),
        ("json:{a,}", "a word must be FIELD"),
        ("json:{a", "a word must be FIELD"),
        ("txt:a:b", "a word must be FIELD"),
        ('txt:"a: {b}, c" "x y".txt:d', "a word must be FIELD"),
        ('txt:"a', "a word must be FIELD"),
        ("txt:{a}", "an object is JSON"),
        ("a/b", "invalid name of a field 'a/b'"),
        (".txt", "invalid name of a field '.txt'"),
        ("__key__:id", "__key__ is no field"),
        ("cls cls:b", "'cls' is set twice"),
        ("json:a json:{b}", "'json' is set twice"),
        ("json:{a,a:b}", "a member is set twice"),
        ("json.a json.a.b", "'json' is set twice"),
        ("json.", "a member is set twice, or has no name"),
    ],
)
def test_refused_words(text: str, message: str) -> None:
    """Another form, a name that no field has, and a field that is set twice."""
    with pytest.raises(Usage, match=message):
        parse_assignments(text)


def test_columns() -> None:
    words = "cls txt:caption json:{a,b:caption} json.c"
    assert columns_of(parse_assignments(words)) == ["cls", "caption", "a", "json.c"]
