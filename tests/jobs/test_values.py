"""Values of jobs: what words expand to, and how values are filled into words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarkit.errors import TarkitError, Usage
from tarkit.jobs.options import JobOptions
from tarkit.jobs.values import Value, expand_values, fill, fill_name, is_unique, make_values
from tests._tools import each_row

VALUE = Value("d/a.v1.tar.gz", 7, "a.v1", "a.v1.tar.gz", "d")


@each_row(
    "words,expected",
    [
        (["{000..002}"], ["000", "001", "002"]),
        (["a{x,y}", "b"], ["ax", "ay", "b"]),
        (["*.tar"], ["2.tar", "10.tar"]),
        (["**/c.tar"], ["d/c.tar"]),
        (["{d/*,x}"], ["d/c.tar", "x"]),
        (["[1].txt"], ["[1].txt"]),  # an existing file
        (["1", "1"], ["1", "1"]),
        (["https://host/a-{0..1}?b=c"], ["https://host/a-0?b=c", "https://host/a-1?b=c"]),
        ([], ["d/c.tar", "{1..2}.txt"]),
    ],
)
def test_expand(here: Path, words: list[str], expected: list[str]) -> None:
    """Braces and globs are expanded, in natural order; a file that exists is itself; lists with NUL are literal."""
    (here / "d").mkdir()
    for name in ("10.tar", "2.tar", "d/c.tar", "[1].txt", "{1..2}.txt"):
        (here / name).touch()
    (here / "list").write_bytes(b"d/c.tar\0{1..2}.txt\0")
    assert expand_values(words, [] if words else ["list"], not words) == expected


def test_a_list_has_a_value_a_line(here: Path) -> None:
    (here / "list").write_text("{1..2}\nx\n\n*.tar\n")
    with pytest.raises(TarkitError, match=r"(?m)^list:4: '\*\.tar': matches nothing$"):
        expand_values([], ["list"])
    (here / "list").write_text("{1..2}\nx\n")
    assert expand_values(["0"], ["list"]) == ["0", "1", "2", "x"]


@each_row(
    "texts,expected",
    [
        (["a.tar"], [("a", "a.tar", ".")]),
        (["x/a.tar", "x/y/b.tgz"], [("a", "a.tar", "."), ("b", "b.tgz", "y")]),
        (["x/1/a.tar", "x/2/a.tar"], [("a", "a.tar", "1"), ("a", "a.tar", "2")]),
        (["s3://b/x/a.tar", "s3://b/y/a.tar"], [("a", "a.tar", "x"), ("a", "a.tar", "y")]),
        (["http://h/x/a.tar?sig=1/2"], [("a", "a.tar", ".")]),
        (["0001", "0002"], [("0001", "0001", "."), ("0002", "0002", ".")]),
        (["a.jpg"], [("a.jpg", "a.jpg", ".")]),
    ],
)
def test_parts(texts: list[str], expected: list[tuple[str, str, str]]) -> None:
    """A value has a name, a stem, and a directory below the one that all have in common."""
    values = list(make_values(texts))
    assert [(value.stem, value.name, value.dir) for value in values] == expected
    assert [(value.text, value.index) for value in values] == [(text, at) for at, text in enumerate(texts)]


@each_row(
    "word,expected",
    [
        ("{}", "d/a.v1.tar.gz"),
        ("out/{stem}-{index:03d}.tar", "out/a.v1-007.tar"),
        ("{dir}/{name}:{index}", "d/a.v1.tar.gz:7"),
        ("{{print $1}}", "{print $1}"),
        ("{{}}", "{}"),
        ("in-{000..099}-{a,b}.tar", "in-{000..099}-{a,b}.tar"),
        ("plain", "plain"),
    ],
)
def test_fill(word: str, expected: str) -> None:
    """Placeholders are replaced, doubled braces are braces, ranges and lists stay."""
    assert fill(word, VALUE) == expected


@each_row("word", ["{part}", "{print $1}", "{", "}", "{}}", "{stem:03d}", '{"a": {"b": 1}}', "${HOME}"])
def test_unknown_placeholders_are_usage_errors(word: str) -> None:
    """Other braces are errors, which say what there is."""
    with pytest.raises(Usage) as error:
        fill(word, VALUE)
    assert error.value.hint is None or "{stem}" in error.value.hint


def test_names_keep_other_braces() -> None:
    """In names of outputs only the placeholders of values are replaced."""
    assert fill_name("{stem}-e{epoch}-{000..999}-{}.tar", VALUE) == "a.v1-e{epoch}-{000..999}-{}.tar"


@each_row("word", ["1", "2/2", "-1/2", "0/0", "a/b", "1/2/3"])
def test_parts_of_the_values(word: str) -> None:
    """A part is K/N with K from 0."""
    assert JobOptions(shard_index="1/2").part() == slice(1, None, 2)
    with pytest.raises(Usage):
        JobOptions(shard_index=word).part()


def test_a_part_of_the_values() -> None:
    """The values of a part are the same as among all."""
    texts = ["a/b/x.tar", "a/c.tgz", "a/b/..", "a/b/y", "/", "s3://b/k.tar", "z.tar.gz", "/z"]
    for use in (texts, texts[:4], texts[3:4] * 2):
        for step in (1, 2, 3):
            assert list(make_values(use, slice(1, None, step))) == list(make_values(use))[1::step]


@each_row(
    "word,expected",
    [
        ("out-{}.tar", True),
        ("{index:04d}", True),
        ("{{a}}{}{}", True),
        ("{}{stem}", False),
        ("{stem}", False),
        ("{name}{index}", False),
        ("{}-{0..3}", False),
        ("x", False),
    ],
)
def test_words_that_are_unique(word: str, expected: bool) -> None:
    """A word is certainly another one for each value if it has the value itself, or the number, alone."""
    assert is_unique(word) == expected
