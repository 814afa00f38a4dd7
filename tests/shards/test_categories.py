"""Maps from names to categories, and patterns, with the examples of ishard and dSort."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import TarkitError, Usage
from tarkit.pipeline.template import parse_template
from tarkit.shards.categories import Map, check_apart, read_map
from tarkit.shards.patterns import compile_glob, compile_regex
from tests._tools import each_row

FISH = {"fish-%d.tar": ["train/n01440764.*", "train/n01443537.*"], "dog-%d.tar": ["train/n02084071.*"]}
CATS = "cat_0.txt shard-cats-%d\ndog_0.txt shard-dogs-%d\ncat_1.txt shard-cats-%d\ndog_1.txt shard-dogs-%d\n"
A_AND_B = {"a-%d.tar": ["x/.*"], "b-%d.tar": [".*[.]txt"]}


def category(found: Map, *names: str, key: str | None = None) -> str | None:
    own = found.category([os.fsencode(name) for name in names], None if key is None else os.fsencode(key))
    return None if own is None else own.text


def category_or_error(text: str, names: list[str], **options: Any) -> str | None:
    """Return the category of a sample with these names, or the error."""
    try:
        return category(read_map(text, **options), *names)
    except TarkitError as error:
        return f"error: {error}"


ROWS: list[tuple[str, object, dict[str, Any], dict[str, str | None]]] = [
    # name of the example, the map (JSON, or lines), options, names of one sample and its category
    # tests/commands/test_split_series.py has the examples of ishard and dSort
    ("Ex-EKM-a", CATS, {"sep": " "}, {"cat_1.txt": "shard-cats-%d", "dog_1.txt dog_1.jpg": "shard-dogs-%d"}),
    ("Ex-EKM-d, collected", CATS, {"unmatched": "rest"}, {"bird.txt": "rest", "dog_0.txt": "shard-dogs-%d"}),
    # DS-EKM-3: the exact name first, then the whole name, then a part of it
    ("exact", "1.txt\ta-%d\n11.txt\tb-%d", {}, {"1.txt": "a-%d", "11.txt": "b-%d", "x/1.txt": "a-%d"}),
    ("exact in JSON", {"a-%d": ["1.txt"], "b-%d": ["11.txt"]}, {}, {"1.txt": "a-%d", "11.txt": "b-%d"}),
    ("whole", "cat_[0-9]+.txt a\nblack_cat_[0-9]+.txt b", {}, {"cat_7.txt": "a", "black_cat_7.txt": "b"}),
    ("three of two", "cat a\nwhite_cat_.*t b\nwhite_cat_1.* b", {}, {"white_cat_1.txt": "b"}),
    (
        "whole does not go before a part in JSON",
        {"a-%d": ["cat_[0-9]+.txt"], "b-%d": ["black_cat_[0-9]+.txt"]},
        {},
        {"black_cat_7.txt": "error: map: 'black_cat_7.txt' is of 'a-%d' and of 'b-%d'"},
    ),
    (
        "what matches all is not whole",
        "val/ v\n.* t",
        {},
        {"val/1.jpg": "error: map: 'val/1.jpg' is of 'v' and of 't'", "1.jpg": "t"},
    ),
    ("two wholes", "c.*t a\nc.*xt b", {}, {"cat.txt": "error: map: 'cat.txt' is of 'a' and of 'b'"}),
    # samples of several files
    (
        "files agree",
        A_AND_B,
        {},
        {
            "x/1.jpg x/1.cls": "a-%d.tar",
            "y/1.txt y/1.jpg": "b-%d.tar",  # a sample without a category follows the one before it
            "y/1.jpg y/1.txt": "b-%d.tar",
            "y/1.jpg y/1.cls": None,
            "x/1.txt": "error: map: 'x/1.txt' is of 'a-%d.tar' and of 'b-%d.tar'",
        },
    ),
    (
        "files that do not",
        {"a-%d.tar": ["[.]jpg$"], "b-%d.tar": ["[.]txt$"]},
        {},
        {"1.txt 1.jpg": "error: map: '1.txt' is of 'b-%d.tar', '1.jpg' of 'a-%d.tar', and both are of one sample"},
    ),
    (
        "globs",
        {"a-%d": ["glob:x/*.jpg"], "b-%d": ["glob:x/**/*.txt"]},
        {},
        {"x/1.jpg": "a-%d", "x/y/1.jpg": None, "z/x/1.jpg": None, "x/y/1.txt": "b-%d", "x/1.txt": "b-%d"},
    ),
    ("no UTF-8", {"a-%d": ["\udce9."], "b-%d": ["^é[.]"]}, {}, {"\udce9.jpg": "a-%d", "é.jpg": "b-%d"}),
    ("the end", {"a-%d": ["jpg$"]}, {}, {"1.jpg": "a-%d", "1.jpgs": None}),
    ("comments", '{ // one\n "a//b-%d": ["#x", /* two */ "y",], # three\n}', {}, {"y": "a//b-%d", "#x.a": "a//b-%d"}),
]


def map_argument(given: object, tmp_path: Path) -> str:
    """Return the argument of map: JSON itself, or a file of lines."""
    if isinstance(given, dict):
        return json.dumps(given)
    assert isinstance(given, str)
    if given.startswith("{"):
        return given
    (tmp_path / "map").write_text(given)
    return "map"


@each_row(("given", "options", "expected"), [row[1:] for row in ROWS])
def test_categories(
    given: object,
    options: dict[str, Any],
    expected: dict[str, str | None],
    here: Path,
) -> None:
    text = map_argument(given, here)
    assert {names: category_or_error(text, names.split(" "), **options) for names in expected} == expected


def test_keys_match_like_names(tmp_path: Path) -> None:
    """A list of keys is a map; an expression applies to names of files only."""
    (tmp_path / "map").write_text("x/cat_1\ta\nx/cat_11\tb\nx/dog$\tc\n")
    found = read_map(str(tmp_path / "map"))
    assert category(found, "x/cat_1.jpg", key="x/cat_1") == "a"
    assert category(found, "x/cat_11.jpg", key="x/cat_11") == "b"
    assert category(found, "x/dog.jpg", key="x/dog") is None


@each_row(
    ("template", "names"),
    [
        ("shard-%06d-cars", "shard-000000-cars.tar shard-000001-cars.tar shard-000002-cars.tar"),
        ("shard-%d.tar.gz", "shard-0.tar.gz shard-1.tar.gz shard-2.tar.gz"),
        ("shard-%d.ZIP", "shard-0.ZIP shard-1.ZIP shard-2.ZIP"),
        ("cats", "cats-000000.tar cats-000001.tar cats-000002.tar"),
        ("pets/cats-%d", "pets/cats-0.tar pets/cats-1.tar pets/cats-2.tar"),
    ],
)
def test_templates(template: str, names: str) -> None:
    """Each template is completed, and is relative to the directory."""
    [own] = read_map(json.dumps({template: ["cat"]})).categories
    assert [own.template.name(index) for index in range(3)] == names.split()
    [own] = read_map(json.dumps({"x-%d": ["cat"]}), extension=".tgz", directory="out/").categories
    assert own.template.name(0) == "out/x-0.tgz"


ERRORS = [
    ('{"a-%d": ["*.jpg"]}', "map: 'a-%d': invalid regular expression '*.jpg': nothing to repeat at position 0"),
    ('{"a-%d": [""]}', "map: 'a-%d': invalid regular expression '': it is empty"),
    ('{"a-%d": ["\\ud800"]}', "map: 'a-%d': invalid regular expression '\\xed\\xa0\\x80': "),
    ('{"a-%d": ["[[:alpa:]]"]}', "map: 'a-%d': invalid regular expression '[[:alpa:]]': unknown class [:alpa:]"),
    ('{"a-%d": ["x", "x"]}', "map: 'a-%d': 'x' occurs twice, first at map: 'a-%d'"),
    ('{"a-%d": ["x"], "b-%d": ["x"]}', "map: 'b-%d': 'x' occurs twice, first at map: 'a-%d'"),
    ('{"a-%d": ["x"], "a-%d": ["y"]}', "map: invalid JSON: 'a-%d' occurs twice"),
    ('{"a-%d": "x"}', "map: 'a-%d': patterns are a list of strings"),
    ('{"a-%d": [1]}', "map: 'a-%d': patterns are a list of strings"),
    ('{"a-%d": {}}', "map: 'a-%d': patterns are a list of strings"),
    ('{"a-%d": ["x"]', "map: invalid JSON: Expecting ',' delimiter: line 1 column 15"),
    ('{"a-%d": []}', "map: no pattern in this map"),
    ("{}", "map: no pattern in this map"),
    ('{"a-%d-%d": ["x"]}', "map: 'a-%d-%d': 'a-%d-%d.tar': more than one number"),
    (
        '{"../a-%d": ["x"]}',
        "map: '../a-%d': '../a-%d': a template in a map is a path below the directory of the shards",
    ),
    *(
        (f'{{"{template}": ["x"]}}', f"map: '{template}': '{template}': a template in a map is a path below")
        for template in ("/a-%d", "pipe:cat > %d", "s3://bucket/a-%d", "a/../../b-%d", "file:a-%d")
    ),
    ('{"a/": ["x"]}', "map: 'a/': invalid template 'a/'"),
    ('{"a-%d": ["x"], "a-%d.tar": ["y"]}', "'a-%d.tar' and 'a-%d.tar' both have a shard 'a-0.tar'"),
    ('{"a-%d": ["x"], "a-1%d": ["y"]}', "'a-%d.tar' and 'a-1%d.tar' both have a shard 'a-10.tar'"),
    ('{"a-%d": ["x"], "a-{5..7}": ["y"]}', "'a-%d.tar' and 'a-{5..7}.tar' both have a shard 'a-5.tar'"),
    ("# x\n\na\tb\n  cat_0.txt  \n", "map:4: a line is PATTERN TEMPLATE, and this one has 1 field"),
    ("a b c\n", "map:1: a line is PATTERN TEMPLATE, and this one has 3 fields"),
    ("a\tb\tc\n", "map:1: a line is PATTERN TEMPLATE, and this one has 3 fields"),
    ("a b\na b\n", "map:2: 'a' occurs twice, first at map:1"),
    ("a b\n\na c\n", "map:3: 'a' occurs twice, first at map:1"),
    ("a x\n( b\n", "map:2: invalid regular expression '(': missing ), unterminated subpattern"),
    ("a x\nb y-%x\n", "map:2: 'y-%x.tar': numbers are %d or %06d"),
    ("a\0b\n", "map: invalid map: it has NUL bytes"),
    ("", "map: no pattern in this map"),
    ("\n# nothing\n", "map: no pattern in this map"),
    (None, "map: No such file or directory"),
]


@each_row(("given", "message"), ERRORS)
def test_errors(given: str | None, message: str, here: Path) -> None:
    """An error is one line with the position, before anything is written."""
    if given is not None and not given.startswith("{"):
        (here / "map").write_text(given)
        given = None
    with pytest.raises(TarkitError) as caught:
        read_map(given or "map")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_format_is_detected_by_content(tmp_path: Path) -> None:
    """JSON is recognized under any name, with a byte order mark; a .json file is never read as lines."""
    for name, text in (("m.txt", '\ufeff// x\n{"a-%d": ["x"],}'), ("m.map", "\ufeffx\ta-%d\r\n"), ("m", "x,a-%d")):
        (tmp_path / name).write_text(text, "utf-8")
        found = read_map(str(tmp_path / name), sep="," if name == "m" else None)
        assert category(found, "x.jpg") == "a-%d"
    (tmp_path / "m.json").write_text("x a-%d\n")
    with pytest.raises(TarkitError, match=r"m.json: invalid JSON: Expecting value"):
        read_map(str(tmp_path / "m.json"))


def test_unmatched_may_be_a_category_of_the_map() -> None:
    found = read_map(json.dumps(FISH), unmatched="dog-%d.tar")
    assert found.unmatched is found.categories[1]
    assert len(found.categories) == 2
    with pytest.raises(TarkitError, match=r"unmatched: '/x': a template in a map"):
        read_map(json.dumps(FISH), unmatched="/x")


def test_names_of_several_templates() -> None:
    check_apart([parse_template(text) for text in ("a-%d.tar", "b-%d.tar", "x/a-%d.tar", "a-%06d.tgz")])
    with pytest.raises(Usage, match="both have a shard 'a-100"):
        check_apart([parse_template("a-%03d.tar"), parse_template("a-{100..101}.tar")])


REGEXES = [
    # expression, names that match, names that do not
    (r"a$", ["a", "ba"], ["ab"]),
    (r"^\d$", ["1"], ["٣"]),
    (r"^\w$", ["a"], ["é"]),
    (r"^.$", ["é", "日"], ["ab"]),
    (r"^[éx]$", ["é", "x"], ["\udcc3"]),
    (r"^[[a]$", ["[", "a"], ["]"]),
    (r"(?i)^jpg$", ["JPG"], ["jp"]),
    (r"^[a&&b]$", ["&"], ["c"]),
]


@each_row(("regex", "found", "missed"), REGEXES)
@pytest.mark.filterwarnings("error")
def test_regexes(regex: str, found: list[str], missed: list[str]) -> None:
    pattern = compile_regex(regex)
    assert [name for name in [*found, *missed] if pattern.search(name)] == found


@each_row("regex", [r"\pL", r"\Qa\E", r"\C", "a(?i)b", "(", "[z-a]", "a**", "[[:x:]]", "[^[:digit:]_]", "\\"])
def test_unsupported_regexes(regex: str) -> None:
    """What RE2 has and Python lacks is an error, where it could mean something else."""
    with pytest.raises(re.error):
        compile_regex(regex)


GLOBS = [
    ("*.jpg", ["a.jpg", ".jpg"], ["x/a.jpg", "a.jpg\n", "ajpg"]),
    ("x/*", ["x/a", "x/"], ["x/y/a", "x"]),
    ("x/**", ["x/a", "x/y/a"], ["y/x/a"]),
    ("**/a", ["a", "x/a", "x/y/a"], ["ba", "x/ba"]),
    ("x/**/a", ["x/a", "x/y/a", "x/y/z/a"], ["x/ya", "xa"]),
    ("x**a", ["xa", "x/y/a"], ["x"]),
    ("?", ["a", "é"], ["/", "ab"]),
    ("[a-c]", ["a", "b"], ["d", "-"]),
    ("[!a]", ["b", "!"], ["a", "/"]),
    ("[^a]", ["^", "a"], ["b"]),
    ("[]]", ["]"], ["["]),
    ("[!]]", ["a"], ["]"]),
    ("[[a]", ["[", "a"], ["]"]),
    ("[a", ["[a"], ["a"]),
    ("a.b+(c)$", ["a.b+(c)$"], ["axbb(c)"]),
    ("[\\d]", ["\\", "d"], ["1"]),
]


@each_row(("glob", "found", "missed"), GLOBS)
@pytest.mark.filterwarnings("error")
def test_globs(glob: str, found: list[str], missed: list[str]) -> None:
    pattern = compile_glob(glob)
    assert [name for name in [*found, *missed] if pattern.search(name)] == found
