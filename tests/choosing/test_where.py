"""--where: which samples an expression selects, errors in samples, and refused expressions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tarkit.choosing.syntax import LONGEST
from tarkit.choosing.where import Where
from tarkit.errors import Usage
from tarkit.samples import lookup, reader
from tarkit.streams import source as sources
from tests._tools import each_row
from tests.conftest import KINDS, Archive, Content, Feed, Link, Run, each_feed, keys, tar

ROWS: dict[str, Content] = {
    "d/a.cls": b"3\n",
    "d/a.json": b'{"width": 600, "tags": ["x", "y"], "o": {"n": null, "t": "cat"}, "ok": true}',
    "d/a.jpg": b"J" * 2000,
    "d/a.txt": b"a cat sat\n",
    "d/b.cls": b"-7",
    "d/b.json": b'{"width": 512, "tags": [], "o": {"n": 5, "t": "dog"}, "ok": false}',
    "d/b.JPG": b"J" * 100,
    "d/b.txt": b"a dog",
    "d/b.json.width": b"9",
    "c.cls": b" 0.5 ",
    "c.json": b'{"width": 1e3, "tags": ["x"], "o": {"n": 1, "t": "cat"}, "ok": true}',
    "c.jpg": b"",
    "c.txt": "é".encode(),
    "c.seg.png": b"\xff",
    "c.0 (x).mp3": b"007",
}


CHOSEN = [
    ("cls == 3", "d/a"),
    ("CLS == 3", "d/a"),
    ("cls != 3", "d/b c"),
    ("cls in (3, 0.5)", "d/a c"),
    ("cls not in [3, 0.5]", "d/b"),
    ("cls in {3}", "d/a"),
    ("-8 < cls < 1", "d/b c"),
    ("cls == 3 and json.width > 512", "d/a"),
    ("json.width > 512", "d/a c"),  # b has a field with exactly this name, and its value is 9
    ("json.width == 9", "d/b"),
    ("json.tags[0] == 'x' if json.tags else False", "d/a c"),
    ("json.tags and json.tags[-1] == 'y'", "d/a"),
    ("len(json.tags) == 0", "d/b"),
    ("'x' in json.tags", "d/a c"),
    ("'t' in json.o", "d/a d/b c"),
    ("json.o.t == 'cat'", "d/a c"),
    ("json['o']['t'] == 'cat'", "d/a c"),
    ("json['o'].t == 'cat'", "d/a c"),
    ("json.o.n is None", "d/a"),
    ("json.o.n is not None and json.o.n > 2", "d/b"),
    ("json.ok", "d/a c"),
    ("not json.ok", "d/b"),
    ("json.ok is True", "d/a c"),
    ("size.jpg > 100", "d/a"),
    ("size.JPG == 100", "d/b"),
    ("size < 1000", "d/b c"),
    ("'cat' in txt", "d/a"),
    ("txt == 'a cat sat'", "d/a"),
    ("txt == 'é'", "c"),
    ("lower(txt) == 'a dog' or upper(txt) == 'É'", "d/b c"),
    ("match('^a (cat|dog)', txt)", "d/a d/b"),
    ("startswith(txt, 'a') and endswith(txt, 'g')", "d/b"),
    ("txt[0] == 'a'", "d/a d/b"),
    ("txt[2:5] == 'cat'", "d/a"),
    ("has.seg.png", "c"),
    ("has.json.width and cls > 0", "d/a c"),
    ("not has.nothing", "d/a d/b c"),
    ("has.json.o.zz or has.seg.png", "c"),
    ("has.json.tags.1", "d/a"),
    ("has(json.tags[1]) and json.tags.1 == 'y'", "d/a"),
    ("json.o.n == null or json.ok == false and true", "d/a d/b"),
    ("json.o.n is null and json.ok is true", "d/a"),
    ("has('json.tags.1')", "d/a"),
    ("has(seg.png)", "c"),
    ("has('0 (x).mp3') and field('0 (x).mp3') == 7", "c"),
    ("has('0 (x).mp3') and str(cls) == ' 0.5 '", "c"),
    ("str(cls) == '3'", "d/a"),
    ("__key__ == 'd/a'", "d/a"),
    ("startswith(__key__, 'd/')", "d/a d/b"),
    ("endswith(shard, 'in.tar') or True", "d/a d/b c"),
    ("offset == 0", "d/a"),
    ("header.cls == 0 and offset.cls == 512", "d/a"),
    ("cls * 2 + 1 == 7", "d/a"),
    ("cls // 2 == 1 and cls % 2 == 1 and cls / 2 == 1.5", "d/a"),
    ("abs(cls) >= 3 and round(cls) <= max(2, 3) and min(1, 2) == 1", "d/a d/b"),
    ("float(str(cls)) == int(cls)", "d/a d/b"),
    ("txt + '!' == 'a dog!'", "d/b"),
    ("'x' if True else __key__ or 1", "d/a d/b c"),  # a part that no sample needs
    ("True", "d/a d/b c"),
    ("''", ""),
    ("  cls == 3 ", "d/a"),
]


@each_row(("feed", "expression", "expected"), [(Feed(KINDS[number % 3]), *row) for number, row in enumerate(CHOSEN)])
def test_selected_samples(feed: Feed, expression: str, expected: str | None, run: Run, archive: Archive) -> None:
    """Fields are numbers, text or JSON; sizes, offsets and keys have names. Each feed has a third of the rows."""
    ran = run("cat", feed(archive(ROWS)), "--where", expression, exit=2 if expected is None else 0)
    assert expected is None or keys(ran.stdout) == expected


ACCENTS: dict[str, Content] = {
    "a.e\u0301": b"1",  # decomposed, as macOS writes it
    "b.\xe9": b"1",
    "c.json": '{"e\u0301": 1}'.encode(),
    "d.json": '{"\xe9": 1, "x": {"\ufb01": 2}}'.encode(),
    "e.\ufb01.txt": b"1",
    "f.fi.txt": b"1",
    "g.\uff4c\uff45\uff4e": b"1",
}


@each_row(
    ("expression", "expected"),
    [
        ("has.e\u0301", "a"),
        ("has.\xe9", "b"),
        ("has(e\u0301) or has('\xe9')", "a b"),
        ("has.e\u0301 and e\u0301 == 1", "a"),
        ("has.\xe9 and \xe9 == 1 and str(\xe9) == '1' and size.\xe9 == 1", "b"),
        ("has.json.e\u0301 and json.e\u0301 == 1", "c"),
        ("has.json.e\u0301 and json['e\u0301'] == 1 and field('json').e\u0301 == 1", None),
        ("has.json and 'e\u0301' in json and json['e\u0301'] == 1", "c"),
        ("has.json.\xe9 and json.\xe9 == 1", "d"),
        ("has.json.x.\ufb01 and json['x'].\ufb01 == 2", "d"),
        ("has.json.x.fi", ""),
        ("has.\ufb01.txt", "e"),
        ("has.fi.txt", "f"),
        ("(has\n.\ufb01 . # why not\n txt)", "e"),
        ("'\U0001f642\xe9' != '' and has.e\u0301", "a"),  # offsets are bytes
        ("has.\uff4c\uff45\uff4e and \uff4c\uff45\uff4e == 1", "g"),
        ("\uff4c\uff45\uff4e('a') == 1", None),
    ],
)
def test_names_are_not_normalised(expression: str, expected: str | None, run: Run, archive: Archive) -> None:
    """Names match as they are written, as in -f, although Python normalizes identifiers."""
    ran = run("cat", archive(ACCENTS), "--where", expression, exit=2 if expected is None else 0)
    assert expected is None or keys(ran.stdout) == expected


def test_positions_are_characters() -> None:
    """Positions in messages count characters, although the parser counts bytes."""
    for expression, place in (("'\xe9' == 3j", 8), ("\xe9 and len == 3", 7), ("(\xe9 and\nlen == 3)", 8)):
        with pytest.raises(Usage, match=f"(?m) at character {place}$"):
            Where(expression)


def test_order_of_selections(run: Run, archive: Archive) -> None:
    """--where applies after --match and --keys-from, before --slice and --count; split applies it as well."""
    name = archive({f"{n:02}.cls": str(n % 3).encode() for n in range(30)})
    ran = run("cat", name, "--match", "[0-4]$", "--where", "cls == 1", "--slice", "1:", "--count", "2")
    assert keys(ran.stdout) == "04 10"
    run("split", name, "--where", "cls == 1", "-n", "2", "-o", "s-%d.tar")
    assert [keys(Path(f"s-{n}.tar")) for n in range(2)] == ["01 04 07 10 13", "16 19 22 25 28"]


BAD: dict[str, Content] = {
    "a.json": b'{"w": 1, "s": "x", "n": null}',
    "a.bad": b"{",
    "a.bin": b"\xff",
    "a.avif": b"\0\0\0\x1cftypavif" + bytes(20),
    "a.bad.json": b"{]",
    "a.deep.json": b"[" * 100_000,
    "a.zero": b"0",
    "a.link": Link("elsewhere"),
    "a.same": Link("a.zero"),
    "a.sym": Link("a.zero", b"2"),
}
HAS = ", ".join(f"'{name[2:]}'" for name in BAD)
ONE_BAD = tar({**BAD, "b.json": b'{"w": 2, "s": "y", "n": 1}'})


@each_row(
    ("expression", "problem", "message"),
    [
        ("jsn > 1", "missing-field", f"'a' has no field 'jsn', it has {HAS}"),
        ("size.jpg > 1", "missing-field", f"'a' has no field 'jpg', it has {HAS}"),
        ("json.x > 1", "missing-field", "'a' has no 'x' in its field 'json'"),
        ("json.w.x > 1", "missing-field", "'a' has no 'w.x' in its field 'json'"),
        ("json['x'] > 1", "missing-field", "where 'json['x']' for 'a': no 'x'"),
        ("json.s > 1", "bad-field", "where 'json.s > 1' for 'a': the text 'x' and the number 1"),
        ("json.n > 1", "bad-field", "where 'json.n > 1' for 'a': null and the number 1"),
        ("zero == '0'", "bad-field", "'0'; str(NAME) takes a field as text, int(NAME) as a number ["),
        ("zero < '-.5'", "bad-field", "'-.5'; str(NAME) takes a field as text, float(NAME) as a number ["),
        ("zero == '1.2.3'", "bad-field", "the text '1.2.3'; str(NAME) takes a field as text ["),
        ("zero < 'x'", "bad-field", "the number 0 and the text 'x' ["),
        ("zero in ('0', '1')", "bad-field", "the number 0 and the text '0'; str(NAME) takes a field as text"),
        ("json.s == 3", "bad-field", "the text 'x' and the number 3 are never equal"),
        ("1 / zero > 1", "bad-field", "where '1 / zero' for 'a': division by zero"),
        ("json.s * 3 == 'x'", "bad-field", "where 'json.s * 3' for 'a': the text 'x' and the number 3"),
        ("int(json.s) == 3", "bad-field", "where 'int(json.s)' for 'a': invalid literal for int()"),
        ("match(json.s + '(', json.s)", "bad-field", "where 'match(json.s + '(', json.s)' for 'a': missing )"),
        ("lower(zero) == 'a'", "bad-field", "for 'a': expected text, not the number 0; str(NAME) takes a field"),
        ("startswith(json.s, 1)", "bad-field", "for 'a': expected text, not the number 1"),
        ("max(zero, 'a') == 1", "bad-field", "for 'a': expected numbers only or texts only"),
        ("min([zero, json.s]) == 1", "bad-field", "for 'a': expected numbers only or texts only"),
        ("bad.x == 1", "bad-field", "the field 'bad' of 'a' is not JSON: Expecting property name"),
        ("field('bad.json') == 1", "bad-field", "the field 'bad.json' of 'a' is not JSON: Expecting"),
        ("field('deep.json') == 1", "bad-field", "the field 'deep.json' of 'a' is JSON that is nested too deeply"),
        ("bin == 1", "bad-field", "the field 'bin' of 'a' is not text"),
        ("width.bin == 1", "bad-field", "the field 'bin' of 'a' is not a picture of a known format"),
        ("width.avif == 1", "bad-field", "the field 'avif' of 'a' is avif whose header has no size that can be read"),
        (
            "link == 1",
            "bad-field",
            "the field 'link' of 'a' is a hard link to 'elsewhere', which is not a file of the sample",
        ),
        ("sym == 1", "bad-field", "the field 'sym' of 'a' is not a regular file"),
    ],
)
def test_errors_in_samples(expression: str, problem: str, message: str, run: Run, archive: Archive) -> None:
    """The message has the sample and the field; --skip drops the sample, --allow keeps it."""
    name = archive(ONE_BAD)
    allow = ["--allow", "unmovable-entry"]
    ran = run("cat", name, "--where", expression, *allow, "-o", "out.tar", exit=1)
    line = next(line for line in ran.lines if "warning" not in line)
    assert line.startswith(f"tarkit: {name}: at 0: ")
    assert message in line
    assert line.endswith(f"[{problem}]")
    assert ran.lines[-1].startswith("hint: ")
    assert not Path("out.tar").exists()
    ran = run("cat", name, "--where", f"__key__ == 'b' or {expression}", *allow, "--skip", problem)
    assert keys(ran.stdout) == "b"
    assert "skipped for" in ran.lines[-1]
    ran = run("cat", name, "--where", f"__key__ != 'b' and {expression}", "--allow", f"unmovable-entry,{problem}")
    assert keys(ran.stdout) == "a"


@each_row("comparison", ["== 1", "> 0"])
def test_numbers_that_a_table_has_as_text(comparison: str, run: Run, archive: Archive) -> None:
    """A field is text in a table of Parquet: the error names the function that gives a number, of shards too."""
    pytest.importorskip("pyarrow")
    name = archive({"a.cls": b"0", "b.cls": b"1"})
    run("tsv", name, "-f", "cls", "-o", "t.parquet")
    line = run("cat", "t.parquet", "--where", f"cls {comparison}", exit=1).lines[0]
    assert "int(NAME) as a number [bad-field]" in line
    for word in (name, "t.parquet"):
        assert keys(run("cat", word, "--where", f"int(cls) {comparison}").stdout) == "b"


@each_feed
def test_large_fields_are_not_decoded(feed: Feed, run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field over 1 MiB is an error with field and sample; its size can be used, and samples may have any size."""
    monkeypatch.setattr(sources, "HELD", 2 << 20)
    monkeypatch.setattr(reader, "LARGE", 2 << 20)
    most = lookup.SMALL
    name = archive({"a.txt": b"x" * most, "b.txt": b"x" * (most + 1), "c.bin": bytes(3 << 20), "c.txt": b"x"})
    line = run("cat", feed(name), "--where", "'x' in txt", exit=1).lines[0]
    message = f"the field 'txt' of 'b' has {most + 1} bytes, the limit is {most} [bad-field]"
    assert line.endswith(message)
    assert keys(run("cat", feed(name), "--where", f"size.txt > {most} or size > 2500000").stdout) == "b c"
    assert keys(run("cat", feed(name), "--where", "has.bin and 'x' in txt").stdout) == "c"


REFUSED = [
    (
        "match('(', txt)",
        "invalid regular expression '(': missing ), unterminated subpattern at position 0, at character",
    ),
    ("().__class__", "invalid attribute '.__class__' at character 1"),
    ("''.__class__.__mro__", "invalid attribute '.__mro__' at character 1"),
    ("json.__class__", "invalid field name 'json.__class__' at character 1"),
    ("json[0].__class__", "invalid attribute '.__class__' at character 1"),
    ("has.__class__", "invalid field name 'has.__class__' at character 1"),
    ("field('__builtins__')", "invalid field name '__builtins__' at character 7"),
    ("__import__('os').system('true')", "unknown function; the functions are"),
    ("eval('1')", "unknown function; the functions are"),
    ("txt.format(1)", "unknown function; the functions are"),
    ("open('/etc/passwd')", "unknown function; the functions are"),
    ("(lambda: 1)()", "unknown function; the functions are"),
    ("9**9**9", "Pow is not allowed at character 1"),
    ("1 << 99999999999", "LShift is not allowed"),
    ("[x for x in txt]", "ListComp is not allowed at character 1"),
    ("sum(x for x in txt)", "unknown function; the functions are"),
    ("len([x for x in txt])", "ListComp is not allowed at character 5"),
    ("{1: 2}", "Dict is not allowed"),
    ("f'{cls}'", "JoinedStr is not allowed"),
    ("(x := 3)", "NamedExpr is not allowed"),
    ("lambda: 1", "Lambda is not allowed"),
    ("b'x' == txt", "invalid literal at character 1"),
    ("cls == 3j", "invalid literal at character 8"),
    ("... == 3", "invalid literal at character 1"),
    ("len(*txt)", "Starred is not allowed"),
    ("len(txt, txt)", "len takes 1 arguments at character 1"),
    ("min()", "min takes 1 to 16 arguments"),
    ("round(cls, 999999999)", "round takes 1 arguments"),
    ("len(x=txt)", "len takes 1 arguments"),
    ("has(3)", "has takes a name, such as has('seg.png')"),
    ("field('')", "invalid field name ''"),
    ("len == 3", "len is a function, use len(...); a field of this name is field('len'), at character 1"),
    ("cls is 3", "'is' takes only None, True or False, use == instead, at character 1"),
    ("x" * (LONGEST + 1), f"the expression has {LONGEST + 1} characters, the limit is {LONGEST}"),
    ("(" * 1500 + "1" + ")" * 1500, ""),
    ("not " * 1000 + "1", ""),
    ("1" + "+1" * 1000, "the expression is nested too deeply"),
    ("a" + ".a" * 1000, "the expression is nested too deeply"),
    ("9" * 4000 + "*" + "9" * 90, None),
    ("9" * 5000, "the expression has"),
    ("cls = 3", "character"),
    ("cls == ", "invalid syntax"),
    ("cls == 3 3", "character 10"),
    ("", ""),
    ("cls == 'x", "character 8"),
    ("a\0b", ""),
    ("\udce9 == 3", ""),
    ("import os", "invalid syntax at character 1"),
    ("cls; cls", "invalid syntax at character 4"),
]


@each_row(("expression", "message"), REFUSED)
def test_refused_expressions(expression: str, message: str | None, run: Run) -> None:
    """A refused expression is a usage error that shows the position, before anything is read: there is no input."""
    if message is None:
        Where(expression)
        return
    with pytest.raises(Usage) as error:
        Where(expression)
    assert message in str(error.value)
    if "\0" not in expression:
        ran = run("cat", "pipe:touch read", "--where", expression, exit=2)
        assert ran.lines[0].startswith("tarkit: --where")
        assert not Path("read").exists()


def test_text_does_not_grow(run: Run, archive: Archive) -> None:
    """Concatenated text has a limit."""
    name = archive({"a.txt": b"x" * lookup.SMALL})
    line = run("cat", name, "--where", "txt + txt + txt + txt + txt == ''", exit=1).lines[0]
    assert line.endswith("the text is too long [bad-field]")


def test_fields_are_read_on_demand(archive: Archive, run: Run) -> None:
    """A field that the expression does not reach is not read: here reading it would fail."""
    name = archive({"a.json": b"{", "a.cls": b"1", "b.json": json.dumps({"x": 1}).encode(), "b.cls": b"2"})
    assert keys(run("cat", name, "--where", "cls == 2 and json.x == 1").stdout) == "b"


def test_names_that_are_no_utf8(run: Run, archive: Archive) -> None:
    """Bytes that are no UTF-8 in a key or a field are kept."""
    name = archive({"\udce9.x": b"1", "b.\udce9": b"2"})
    assert keys(run("cat", name, "--where", "__key__ == 'b' and field('\\udce9') == 2").stdout) == "b"
