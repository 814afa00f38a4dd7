"""Names of inputs and outputs: streams/location.py and stores/schemes.py."""

import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from braceexpand import braceexpand
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import TarkitError, Usage
from tarkit.stores import schemes
from tarkit.streams import braces
from tarkit.streams.location import Location, expand_inputs, natural_key, parse_output
from tests._tools import each_row

KNOWN = ", ".join(f"{scheme}://" for scheme in sorted(schemes.SCHEMES))

FILES = """
    a.tar b.tar s-1.tar s-2.tar s-10.tar s-02.tar notes.txt p{1..2}.tar star*.tar pipe:x s3:y -
    d/1.tar d/10.tgz d/2.tar.gz d/.hidden.tar d/.9.tar.77.part d/x.tar.part d/readme d/UP.TAR empty.parquet/a.tar
    d/sub.tar/deep.tar d/low/deep.tar empty/readme mixed/x.tar mixed/none/readme f%20.tar new\nline.tar
""".replace("\n   ", " ").split(" ")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in filter(None, (name.rstrip("\n") for name in FILES)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name, target in (("link", "d"), ("gone", "nowhere"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paths(locations: list[Location]) -> str:
    assert {each.kind for each in locations} == {"path"}
    return " ".join(each.text for each in locations)


PATHS = [
    # name, what it expands to
    ("a.tar", "a.tar"),
    ("./a.tar", "./a.tar"),
    ("./-", "./-"),
    ("file:a.tar", "a.tar"),
    ("file:-", "-"),
    ("file:f%20.tar", "f%20.tar"),  # no percent decoding
    ("file:p{1..2}.tar", "p{1..2}.tar"),
    ("file:d", "d/1.tar d/2.tar.gz d/10.tgz d/UP.TAR"),
    # an existing name is never expanded and is no prefix
    ("p{1..2}.tar", "p{1..2}.tar"),
    ("star*.tar", "star*.tar"),
    ("pipe:x", "pipe:x"),
    ("s3:y", "s3:y"),
    # braces: in the given order, padding kept
    ("s-{1,2,10}.tar", "s-1.tar s-2.tar s-10.tar"),
    ("s-{2..1}.tar", "s-2.tar s-1.tar"),
    ("s-{01..02..5}.tar s-2.tar", None),
    ("s-{02..02}.tar", "s-02.tar"),
    ("{a,s-{1..2}}.tar", "a.tar s-1.tar s-2.tar"),
    ("{d,a.tar}", "d/1.tar d/2.tar.gz d/10.tgz d/UP.TAR a.tar"),
    # globs: natural order, each separately
    ("s-*.tar", "s-1.tar s-02.tar s-2.tar s-10.tar"),
    ("s-?.tar", "s-1.tar s-2.tar"),
    ("[ba].tar", "a.tar b.tar"),
    ("{b,a,s}*.tar", "b.tar a.tar s-1.tar s-02.tar s-2.tar s-10.tar star*.tar"),
    ("d/*.tar", "d/1.tar d/sub.tar/deep.tar"),
    ("d/**/*.tar", "d/1.tar d/low/deep.tar d/sub.tar/deep.tar"),
    ("mixed/*", "mixed/x.tar"),  # a directory that a glob matches may be without archives
    # directories: archives by suffix, no subdirectories, no hidden files
    ("d", "d/1.tar d/2.tar.gz d/10.tgz d/UP.TAR"),
    ("d/", "d/1.tar d/2.tar.gz d/10.tgz d/UP.TAR"),
    ("link", "link/1.tar link/2.tar.gz link/10.tgz link/UP.TAR"),
    ("fifo", "fifo"),
    ("gone", None),
    ("loop", "loop"),  # its error is left to the one that opens it
]

BAD = [
    # name, error, exit status, hint
    ("x.tar", "x.tar: No such file or directory", 1, None),
    ("a.tar/b", "a.tar/b: No such file or directory", 1, None),
    ("no/x", "no/x: No such file or directory", 1, None),
    ("y" * 300, f"{'y' * 300}: No such file or directory", 1, None),
    ("file:x*.tar", "x*.tar: No such file or directory", 1, "plain text"),
    ("s-{1..4}.tar", "s-3.tar: No such file or directory (2 of the 4 names of s-{1..4}.tar are missing)", 1, "warn"),
    ("s-{1..4.tar", "s-{1..4.tar: No such file or directory", 1, "do not match"),
    ("s-1..4}.tar", "s-1..4}.tar: No such file or directory", 1, "do not match"),
    ("s-{x}.tar", "s-{x}.tar: No such file or directory", 1, None),
    ("a.tar::z.tar", "z.tar: No such file or directory", 1, None),
    ("@list", "@list: No such file or directory", 1, "-T LIST"),
    ("z*.tar", "z*.tar: matches no archive", 1, "subdirectories"),
    ("{a,z}*.tar", "z*.tar: matches no archive", 1, "subdirectories"),
    ("empty", "empty: no archives in this directory", 1, "'empty/**/*.tar'"),
    ("empty.parquet", "empty.parquet: no parts of a table in this directory", 1, "'empty.parquet/*.tar'"),
    ("no\nsuch", "'no\\x0asuch': No such file or directory", 1, None),
    ("\udcff", "'\\xff': No such file or directory", 1, None),
    ("", "the name of an input is empty", 2, "shell variable"),
    ("file:", "file: without a name", 2, "shell variable"),
    ("pipe: ", "pipe: without a command", 2, None),
    ("nix://b/x", f"nix://b/x: unknown scheme nix:// (known: {KNOWN})", 2, "'pipe:COMMAND nix://b/x'"),
    ("zreq://b:1", f"zreq://b:1: unknown scheme zreq:// (known: {KNOWN})", 2, "; ZeroMQ is zpush://, zpull://"),
    ("foo://b", f"foo://b: unknown scheme foo:// (known: {KNOWN})", 2, "'pipe:COMMAND foo://b'"),
    ("{0..10000000}", "'{0..10000000}': the braces expand to more than 10,000,000 names", 2, None),
    ("{0..9999}{0..9999}", "'{0..9999}{0..9999}': the braces expand to more than 10,000,000 names", 2, None),
    ("{" * 51 + "}" * 51, "braces are nested more than 50 deep", 2, None),
    ("pipe:x {0..10000000}", "the braces expand to more than 10,000,000 names", 2, None),
]  # fmt: skip


@each_row(("word", "expected"), PATHS)
def test_paths(files: Path, word: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(TarkitError, match="No such file"):
            expand_inputs([word])
    else:
        assert paths(expand_inputs([word])) == expected


@each_row(("word", "message", "status", "hint"), BAD)
def test_bad_names(files: Path, word: str, message: str, status: int, hint: str | None) -> None:
    with pytest.raises(TarkitError) as caught:
        expand_inputs([word])
    assert message in str(caught.value)
    assert str(caught.value).count("\n") == 0
    assert caught.value.exit_code == status
    assert (caught.value.hint or "").find(hint or "") >= 0
    assert (caught.value.hint is None) == (hint is None)


COMMANDS = [
    # command, the commands it expands to
    ("cat a", ["cat a"]),
    ("cat s-{000..002}.tar", ["cat s-000.tar", "cat s-001.tar", "cat s-002.tar"]),
    ("{1..2} {1..2}", ["1 1", "1 2", "2 1", "2 2"]),
    ("curl h/{t-{0..1},v-{a..b}}.tar", ["curl h/t-0.tar", "curl h/t-1.tar", "curl h/v-a.tar", "curl h/v-b.tar"]),
    ("aws s3 cp 's3://b/{0..1}.tar' -", ["aws s3 cp 's3://b/0.tar' -", "aws s3 cp 's3://b/1.tar' -"]),
    ("{ cat {0..1}; }", ["{ cat 0; }", "{ cat 1; }"]),
    ("cat x\\{ {0..1}", ["cat x\\{ 0", "cat x\\{ 1"]),
    # braces of the shell
    ("cat ${X} ${X:-{1..2}} $HOME", None),
    ("cat ${1..2}", None),
    ("{ a; b; }", None),
    ("awk '{print $1, $2}'", None),
    ("sed -E 's/a{1,3}//'", None),
    ("jq '{id,url}'", None),
    ("cat {a,b}.tar", None),
    ("echo '{' a,{1,'{2..3}'}", ["echo '{' a,{1,'2'}", "echo '{' a,{1,'3'}"]),
]


@each_row(("command", "expected"), COMMANDS)
def test_commands(files: Path, command: str, expected: list[str] | None) -> None:
    found = expand_inputs([f"pipe:{command}"])
    assert [each.text for each in found] == (expected or [command])
    assert [each.name for each in found] == [f"pipe:{each}" for each in expected or [command]]


def test_names_for_messages(files: Path) -> None:
    assert expand_inputs([]) == expand_inputs(["-"]) == [Location("stdin", "-", "stdin")]
    assert expand_inputs(["new\nline.tar"]) == [Location("path", "new\nline.tar", "'new\\x0aline.tar'")]
    assert expand_inputs(["pipe:a\nb"]) == [Location("pipe", "a\nb", "'pipe:a\\x0ab'")]


LISTS = [
    # content, nul, result
    (b"a.tar\nb.tar\n", False, "a.tar b.tar"),
    (b"a.tar\r\n\r\n \nb.tar", False, "a.tar b.tar"),
    (b"s-{1..2}.tar\nd/*.tar.gz\n", False, "s-1.tar s-2.tar d/2.tar.gz"),
    (b"mixed\nfile:p{1..2}.tar\n", False, "mixed/x.tar p{1..2}.tar"),
    (b"p{1..2}.tar\0new\nline.tar\0-\0", True, "p{1..2}.tar new\nline.tar -"),
    (b"pipe:x\0\0a.tar", True, "pipe:x a.tar"),
    (b"\n\n", False, "LIST: an empty list of inputs"),
    (b"", True, "LIST: an empty list of inputs"),
    (b"a.tar\n\nx.tar\n", False, "LIST:3: x.tar: No such file or directory"),
    (b"a.tar\nnix://b/x\n", False, f"LIST:2: nix://b/x: unknown scheme nix:// (known: {KNOWN})"),
    (b"s-{1..2}.tar\0", True, "LIST:1: s-{1..2}.tar: No such file or directory"),
    (b"a.tar\0d\0", True, "LIST:2: d: Is a directory"),
    (b"a.tar\0b.tar\0", False, "LIST: a list of inputs with NUL bytes"),
]


@each_row(("content", "nul", "expected"), LISTS)
@each_row("load", [False, True])
def test_lists(files: Path, content: bytes, nul: bool, expected: str, load: bool) -> None:
    (files / "LIST").write_bytes(content)
    words, lists = (["LIST"], []) if load else ([], ["LIST"])
    try:
        result = paths(expand_inputs(words, lists, nul=nul, load=load))
    except TarkitError as error:
        result = str(error)
    assert result == expected


def test_names_come_before_lists(files: Path) -> None:
    (files / "one").write_text("b.tar\n")
    (files / "two").write_text("-\n")
    assert [each.text for each in expand_inputs(["a.tar"], ["one", "two"])] == ["a.tar", "b.tar", "-"]


@each_row(
    ("words", "lists", "load", "error"),
    [
        (["-", "-"], [], False, "stdin is named more than once"),
        (["-"], ["-"], False, "stdin is named more than once"),
        ([], ["-", "-"], False, "stdin is named more than once"),
        (["-"], ["dash"], False, "stdin is named more than once"),
        ([], [], True, "--load takes one argument, a list of inputs, not 0"),
        (["a.tar", "b.tar"], [], True, "--load takes one argument, a list of inputs, not 2"),
    ],
)
def test_usage(files: Path, words: list[str], lists: list[str], load: bool, error: str) -> None:
    (files / "dash").write_text("-\n")
    with pytest.raises(Usage, match=error):
        expand_inputs(words, lists, load=load)


@pytest.fixture
def stdin(files: Path) -> Iterator[Callable[[str], None]]:
    saved = os.dup(0)

    def holds(text: str) -> None:
        (files / "stdin").write_text(text)
        with open("stdin") as stream:
            os.dup2(stream.fileno(), 0)

    yield holds
    os.dup2(saved, 0)
    os.close(saved)


def test_list_from_stdin(stdin: Callable[[str], None]) -> None:
    stdin("a.tar\nb.tar\n")
    assert paths(expand_inputs([], ["-"])) == "a.tar b.tar"
    os.fstat(0)  # still open
    stdin("-\n")
    with pytest.raises(Usage, match="stdin is named more than once"):
        expand_inputs([], ["-"])
    stdin("a.tar\nx\n")
    with pytest.raises(TarkitError, match="stdin:2: x: No such file"):
        expand_inputs([], ["-"])
    stdin("\n")
    with pytest.raises(TarkitError, match="stdin: an empty list"):
        expand_inputs([], ["-"])


def test_unreadable_lists(files: Path) -> None:
    for name, message in [("nothing", "nothing: No such file or directory"), ("d", "d: Is a directory")]:
        with pytest.raises(TarkitError, match=message):
            expand_inputs([], [name])


OUTPUTS = [
    ("-", Location("stdout", "-", "stdout")),
    ("out.tar", Location("path", "out.tar", "out.tar")),
    ("out-{1..2}*.tar", Location("path", "out-{1..2}*.tar", "out-{1..2}*.tar")),
    ("file:s3://x", Location("path", "s3://x", "s3://x")),
    ("pipe:cat > {1..2}", Location("pipe", "cat > {1..2}", "pipe:cat > {1..2}")),
    ("pipe:x", Location("pipe", "x", "pipe:x")),  # even if such a file exists: one run must not change the next
    ("s3:y", Location("path", "s3:y", "s3:y")),
    ("", "the name of the output is empty"),
    ("pipe:", "pipe: without a command"),
    ("nix://b/x", f"nix://b/x: unknown scheme nix:// (known: {KNOWN})"),
]


@each_row(("word", "expected"), OUTPUTS)
def test_outputs(files: Path, word: str, expected: Location | str) -> None:
    result: Location | str
    try:
        result = parse_output(word)
    except Usage as error:
        result = str(error)
    assert result == expected


def test_the_hint_for_an_output_is_a_command_that_writes() -> None:
    for writing, command in ((True, "hdfs dfs -put -"), (False, "hdfs dfs -cat")):
        assert f"'pipe:{command} hdfs://b/x'" in str(schemes.unknown_scheme_error("hdfs://b/x", writing).hint)


def test_natural_order() -> None:
    """It is total."""
    ordered = ["", "01", "1", "9", "10", "a", "a9", "a9b2", "a9b10", "a10"]
    for one, other in product(ordered, ordered):
        assert (natural_key(one) < natural_key(other)) == (ordered.index(one) < ordered.index(other))


@given(st.text("{},.0129ab-\n", max_size=24))
def test_braces_are_counted_as_braceexpand_expands_them(word: str) -> None:
    count, _ = braces.scan(word)
    if count is None:
        with pytest.raises(ValueError, match="Unbalanced"):
            list(braceexpand(word, escape=False))
    elif count <= 1000:
        assert len(list(braceexpand(word, escape=False))) == count


def test_count_of_very_large_numbers() -> None:
    with pytest.raises(Usage, match="expand to more than"):
        braces.expand_braces("{1.." + "9" * 5000 + "}")


def test_known_scheme() -> None:
    found = expand_inputs(["http://b/{0..1}.tar?x=*"])
    assert [(each.kind, each.text) for each in found] == [("url", f"http://b/{n}.tar?x=*") for n in (0, 1)]
    assert parse_output("S3://b/1.tar").kind == "url"


@each_row(
    ("text", "scheme"),
    [("s3://b", "s3"), ("S3://b", "s3"), ("a+b.c-1://", "a+b.c-1"), ("s3:b", None), ("://b", None), ("1a://b", None),
     ("dir/s3://b", None), ("C:\\x", None), ("", None)],
)  # fmt: skip
def test_scheme_of(text: str, scheme: str | None) -> None:
    assert schemes.scheme_of(text) == scheme


def test_a_name_like_the_missing_one(files: Path) -> None:
    """The hint is the most similar name in the directory, if there is one."""
    Path("d/train-000.tar").write_bytes(b"")
    Path("d/gone-{0..1}.tar").symlink_to("train-001.tar")
    for word, hint in (
        ("d/trian-000.tar", "did you mean 'd/train-000.tar'?"),
        ("d/1.tra", None),
        ("none/train-000.tar", None),
        ("file:d/gone-{0..1}.tar", "it is a symbolic link to 'train-001.tar'"),
    ):
        with pytest.raises(TarkitError, match="No such file") as caught:
            expand_inputs([word])
        assert caught.value.hint == hint
