"""Names and sizes of shards: shards/template.py and shards/limits.py, with the examples of ishard."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Usage
from tarkit.pipeline.template import parse_template, refuse_template
from tarkit.sizes import parse_size
from tests._tools import each_row

SIZES = [
    # text, bytes or the error
    ("1000", 1000),
    ("1e9", 10**9),
    ("1E+9", 10**9),
    ("500M", 500 * 10**6),
    ("16MiB", 16_777_216),  # SIZE-2
    ("4KB", 4_000),  # SIZE-3; ishard's code: 4096
    ("1.5MiB", 1_572_864),  # SIZE-4
    ("100B", 100),  # SIZE-5
    ("3000000000", 3_000_000_000),  # SIZE-6: ishard warns of a count; here -c is the count
    ("1G", 10**9),
    ("1Gi", 2**30),
    ("2t", 2 * 10**12),
    ("1tIb", 2**40),
    ("1.5G", 1_500_000_000),
    ("0.1GiB", 107_374_182),  # fractions of a byte are dropped
    ("1.e3", 1000),
    ("1.5e3K", 1_500_000),
    ("0.0009765625MiB", 1024),
    ("9223372036854775807", 2**63 - 1),
    ("9223372036854775808", "invalid size '9223372036854775808': 8 EiB or more"),
    ("1e99T", "invalid size '1e99T': 8 EiB or more"),
    ("0", "invalid size '0': the minimum is 1 byte"),
    ("0.5", "invalid size '0.5': the minimum is 1 byte"),
    *(
        (bad, f"invalid size '{bad}'")
        for bad in ("", "16 MiB", "1PB", "abc", "MiB", "-1", "+1", "-1M", "1e-3", "1e", " 1")
    ),
    *(
        (bad, f"invalid size '{bad}'")
        for bad in ("1,5M", "1_000", "1.2.3", "0x10", "1MM", "1iB", "٣M", "1e9 ", ".", ".5G")
    ),
]


@each_row(("text", "expected"), SIZES)
def test_sizes(text: str, expected: int | str) -> None:
    result: int | str
    try:
        result = parse_size(text)
    except Usage as error:
        result = str(error)
    assert result == expected


@settings(max_examples=25)
@given(st.integers(1, 2**40), st.sampled_from(["", "K", "MB", "Ki", "MiB"]))
def test_spelling_of_a_size_does_not_matter(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}") == parse_size(f"{number}.0{unit.lower()}") == parse_size(f"{number}e0{unit}")


ENDLESS = None
TEMPLATES: list[tuple[str, str, int | None]] = [
    # text, first names, count
    # the templates of ishard
    ("prefix-{0000..4096..8}-suffix", "prefix-0000-suffix prefix-0008-suffix prefix-0016-suffix", 513),  # a
    ("prefix-%06d-suffix", "prefix-000000-suffix prefix-000001-suffix", ENDLESS),  # b
    ("p-@00001-gap-@100-s", "p-00000-gap-000-s p-00000-gap-001-s p-00000-gap-002-s", 202),  # c
    ("p-{0000..50..8}-s", "p-00-s p-08-s p-16-s p-24-s p-32-s p-40-s p-48-s", 7),  # d
    ("p-{0010..0013..2}-gap-{1..2}-s", "p-0010-gap-1-s p-0010-gap-2-s p-0012-gap-1-s p-0012-gap-2-s", 4),  # e
    ("p-{0010..0013..2}-gap-{1..2..3}-s", "p-0010-gap-1-s p-0012-gap-1-s", 2),  # f
    ("%00d", "0 1 2", ENDLESS),  # h
    # i and one of j; unlike ishard, a name without a range is completed
    ("plain", "plain-000000.tar plain-000001.tar", ENDLESS),  # i
    ("p-@-1", "p-@-1-000000.tar", ENDLESS),  # j
    # TPL-3: the shorter end determines the padding; TPL-10: braceexpand would write 08..100 as 008
    ("{08..100}", "08 09 10", 93), ("{9..011}", "9 10 11", 3), ("{5..5}", "5", 1), ("{0..9}{00..99}", "000 001", 1000),
    # printf
    ("100%%-%d.tar", "100%-0.tar 100%-1.tar", ENDLESS), ("100%%.tar", "100%-000000.tar", ENDLESS),
    ("a%%d-%d.tar", "a%d-0.tar a%d-1.tar", ENDLESS),
    # names without a range
    ("out.tar", "out-000000.tar out-000001.tar", ENDLESS), ("out.TAR.gz", "out-000000.TAR.gz", ENDLESS),
    ("a.b.tgz", "a.b-000000.tgz", ENDLESS), ("out.zip", "out-000000.zip", ENDLESS),
    ("out.npz", "out.npz-000000.tar", ENDLESS), (".tar", ".tar-000000.tar", ENDLESS),
    ("50%-@1.tar", "50%-0.tar 50%-1.tar", 2),
    # the last component only
    ("a%b/x{1..2}/@9/out-%d.tar", "a%b/x{1..2}/@9/out-0.tar a%b/x{1..2}/@9/out-1.tar", ENDLESS),
    ("x{1..2}/out.tar", "x{1..2}/out-000000.tar", ENDLESS), ("out/", "out/split-000000.tar", ENDLESS),
    ("out/..", "out/../split-000000.tar", ENDLESS), (".", "./split-000000.tar", ENDLESS),
    ("/", "/split-000000.tar", ENDLESS), ("/%d", "/0", ENDLESS),
    # other outputs
    ("file:out-%d.tar", "out-0.tar", ENDLESS), ("file:pipe:%d", "./pipe:0", ENDLESS),
    # after file: numbers need one notation, as in TPL-2, and the rest is literal
    ("file:s-{0..3}-%d", "s-0-%d s-1-%d s-2-%d s-3-%d", 4), ("file:s-{0..1}-@1", "s-0-@1 s-1-@1", 2),
    ("file:s-%d-@1", "s-0-@1 s-1-@1", ENDLESS),
    ("file:{1..02}}", "1} 2}", 2),  # g
    ("file:{x}{-%d", "{x}{-0", ENDLESS), ("file:@00001{.tar", "00000{.tar 00001{.tar", 2),
    ("s3://b%20c/x-{0..1}.tar", "s3://b%20c/x-0.tar s3://b%20c/x-1.tar", 2),
    ("pipe:xz > /d/x-%03d.xz; ls {1..2} /", "pipe:xz > /d/x-000.xz; ls {1..2} /", ENDLESS),
]  # fmt: skip


@each_row(("text", "names", "count"), TEMPLATES)
def test_templates(text: str, names: str, count: int | None) -> None:
    template = parse_template(text)
    assert template.count == count
    expected = names.split(" ") if not text.startswith("pipe:") else [names]
    assert [template.name(index) for index in range(len(expected))] == expected
    assert [template.matches(name) for name in expected] == list(range(len(expected)))
    if count is not None:
        assert template.matches(template.name(count - 1)) == count - 1


WRONG: list[tuple[str, str]] = [
    *((text, "invalid template") for text in ("", " ", "*")),  # TPL-1
    ("-", "shards cannot go to stdout"),
    *((text, "a range is") for text in ("p-{1..9..-1}", "{1,2}")),  # TPL-j
    *((text, "has no numbers") for text in ("p-{002..001}", "{1..2..0}")),  # TPL-j, TPL-3
    *((text, "a range is") for text in ("{a,b}", "{a..z}", "{-1..2}", "{1..}", "{..}")),
    *((text, "a range is") for text in ("{1..2..3..4}", "{1.. 2}", "{" + "1" * 19 + "..2}")),
    *((text, "unmatched or nested") for text in ("{1..2}{", "}{1..2}", "{1..2}}{3..4}", "{1..02}}")),
    *((text, "unmatched or nested") for text in ("a-{00..01", "{-%d")),
    *((text, "unmatched or nested") for text in ("{{1..2}}", "{1..2{3..4}}", "{{}}", "{%d}")),  # TPL-j
    *((text, "unknown placeholder {}") for text in ("{}", "{1..2}{}")),  # TPL-j
    *((text, "unmatched or nested") for text in ("a{", "a}", "a}-@1")),
    *((text, "unknown placeholder {x}") for text in ("{x}.tar", "{x}-%d", "d/{x}-{0..1}", "{0..1}-{x}")),
    # TPL-2; unlike ishard, two notations in one name are an error
    ("s-{0..3}-%d", "%d is not a number here"),
    *((text, "@1 is not a number here") for text in ("s-{0..1}-@1", "s-%d-@1")),
    *((text, "@ is followed by the last") for text in ("p-@-@1", "p-@@10", "a@-@1", "@" + "1" * 19)),  # TPL-j
    *((text, "numbers are %d") for text in ("%6d", "%0d", "%x", "%0-6d", "%", "50%.tar", "%0100d")),  # TPL-5
    ("%d-%d", "more than one number"),
    ("{0..999999999999}-{0..999999999999}", "too many names"),  # TPL-6
    *((text, "the same name") for text in ("{1..11}{1..11}", "{1..11}1{1..11}", "{1..11}{3..5}{1..11}")),
    ("pipe:cat > out.tar", "a command for shards needs a number"),
]  # fmt: skip


@each_row(("text", "message"), WRONG)
def test_wrong_templates(text: str, message: str) -> None:
    with pytest.raises(Usage, match=message):
        parse_template(text)


NUMBERS = {"x-%d.tar": "%d", "d/x-%06d.tar": "%06d", "x-{0..9}.tar": "{0..9}", "{a,b}.tar": "{a,b}"}
NUMBERS |= {"x-@00001": "@00001", "s3://b/x-%d": "%d"}
BRACES = {
    "{stem}.tar": "unknown placeholder {stem}",
    "{index:05d}.tar": "unknown placeholder {index:05d}",
    "x{}": "unknown placeholder {}",
    "{a{b}}": "unmatched or nested braces",
    "x{.tar": "unmatched or nested braces",
    "}{": "unmatched or nested braces",
}


@each_row(
    ("word", "what"),
    [
        *((word, f"{text} numbers a series of files, but only one is written") for word, text in NUMBERS.items()),
        *BRACES.items(),
    ],
)
def test_names_of_one_file(word: str, what: str) -> None:
    """Numbers of a series and braces are refused in the name of one file; the hint says how to write a series."""
    with pytest.raises(Usage) as caught:
        refuse_template(word, "see above")
    literal = f"; 'file:{word}' takes the name as it is" if "://" not in word else ""
    assert (str(caught.value), caught.value.hint) == (f"'{word}': {what}", f"see above{literal}")


def test_everything_else_is_a_name() -> None:
    for word in ("out.tar", "-", "50%.tar", "a%20d", "100%", "a@b", "me@", "%x", "%%s", "%s", "%5d", "a-%d/x.tar"):
        refuse_template(word, "see above")
    for name in ("{0..3}/x.tar", "@1/x", "{x}/", "file:x-%d{0..1}@1}", "pipe:awk '{print}' > x-%d", None):
        refuse_template(name, "see above")


def test_no_name_before_the_first() -> None:
    with pytest.raises(ValueError, match="-1"):
        parse_template("{1..2}").name(-1)


def test_secrets_of_a_url_are_not_shown() -> None:
    """The secrets are hidden in the name of one file and in a template."""
    for check in (refuse_template, parse_template):
        with pytest.raises(Usage, match=r"(?m)^'s3://b/\{x\}': unknown placeholder \{x\}$"):
            check("s3://me:secret@b/{x}")


@each_row(
    ("text", "others"),
    [
        ("out-%06d.tar", "out-1.tar out-00001.tar out-0000001.tar out-000001.tar.gz xout-000001.tar ./out-000001.tar"),
        ("out-%d.tar", "out-01.tar out-.tar out-x.tar out--1.tar out-1.tarx out-1+tar out-٣.tar"),
        ("d/{02..10..4}.tar", "d/03.tar d/2.tar d/14.tar e/02.tar 02.tar d/x/02.tar"),
        ("{1..11}-{1..2}", "1-3 01-1 12-1 111 1-1-1"),
    ],
)
def test_other_names_do_not_match(text: str, others: str) -> None:
    template = parse_template(text)
    assert [template.matches(name) for name in others.split(" ")] == [None] * len(others.split(" "))


ranges = st.tuples(
    st.integers(0, 120), st.integers(0, 30), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4)
).map(lambda r: f"{{{r[0]:0{r[3]}d}..{r[0] + r[1]:0{r[4]}d}..{r[2]}}}")
gaps = st.sampled_from(["", "-", "1", "07", ".", "a1", "%", "@3", "x 1"])


@settings(max_examples=25)
@given(st.lists(st.tuples(gaps, ranges), min_size=1, max_size=4), gaps, st.data())
def test_a_name_determines_its_index(parts: list[tuple[str, str]], end: str, data: st.DataObject) -> None:
    try:
        template = parse_template("file:d/" + "".join(a + b for a, b in parts) + end)
    except Usage as error:
        assert "the same name" in str(error)  # noqa: PT017
        return
    assert template.count is not None
    index = data.draw(st.integers(0, template.count - 1))
    assert template.matches(template.name(index)) == index


@settings(max_examples=25)
@given(st.integers(0, 10**15), st.integers(0, 12))
def test_a_printf_name_determines_its_index(index: int, width: int) -> None:
    template = parse_template(f"a1%0{width}d1")
    assert template.matches(template.name(index)) == index


def touch(directory: Path, names: str) -> None:
    for name in names.split(" "):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()


@each_row(
    ("text", "expected"),
    [
        ("out-%06d.tar", [(2, "out-000002.tar"), (10, "out-000010.tar")]),
        ("./out-%06d.tar", [(2, "./out-000002.tar"), (10, "./out-000010.tar")]),
        ("out.tar", [(2, "out-000002.tar"), (10, "out-000010.tar")]),
        ("out-%d.tar", [(1, "out-1.tar")]),
        ("d/{1..2}-{1..2}", [(0, "d/1-1"), (2, "d/2-1")]),
        ("nowhere/%d", []),
        ("http://b/%d", []),
        ("pipe:out-%06d.tar", []),
    ],
)
def test_existing(text: str, expected: list[tuple[int, str]], here: Path) -> None:
    touch(here, "out-000010.tar out-000002.tar out-1.tar .out-000003.tar.1.part d/2-1 d/1-1 d/3-1 out-000004.tar/x")
    (here / "out-000010.tar").unlink()
    (here / "out-000010.tar").symlink_to("nowhere")
    assert parse_template(text).existing() == expected
