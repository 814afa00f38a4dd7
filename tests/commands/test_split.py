"""tarkit split: where shards end, their names, and the files after success and after failure."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import shlex
from pathlib import Path

from tests._feeds import in_turn
from tests._tools import each_row
from tests.conftest import Archive, Content, Feed, Run, each_feed, entries, keys, pick, tar

TEN: dict[str, Content] = {f"{number}.cls": b"%d" % number for number in range(10)}  # 1024 bytes each
REMOVED = "removed: --force leaves no other shards of this name"


def shards(pattern: str = "out-*") -> dict[str, str]:
    """Return the keys in each matching file."""
    return {path.name: keys(path) for path in sorted(Path.cwd().glob(pattern))}


def numbered(*groups: str) -> dict[str, str]:
    """Return shards out-0.tar ... with these keys."""
    return {f"out-{number}.tar": group for number, group in enumerate(groups)}


# ---- the end of a shard


@each_row(
    ("options", "expected", "feed"),
    in_turn(
        [
            ("-c 4", ["0 1 2 3", "4 5 6 7", "8 9"]),
            ("--count 5", ["0 1 2 3 4", "5 6 7 8 9"]),
            ("-c 10", ["0 1 2 3 4 5 6 7 8 9"]),
            ("-c 9223372036854775807", ["0 1 2 3 4 5 6 7 8 9"]),
            ("-s 1G", ["0 1 2 3 4 5 6 7 8 9"]),
            ("-c 4 -s 1G", ["0 1 2 3", "4 5 6 7", "8 9"]),
            ("-c 9 -s 512", ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]),
            ("-n 1", ["0 1 2 3 4 5 6 7 8 9"]),
            ("-n 5", ["0 1", "2 3", "4 5", "6 7", "8 9"]),
            ("-n 4", ["0 1 2", "3 4 5", "6 7", "8 9"]),
            ("--shards 3 --remainder spread", ["0 1 2 3", "4 5 6", "7 8 9"]),
            ("-n 3 --remainder drop", ["0 1 2", "3 4 5", "6 7 8"]),
            ("-n 3 --remainder repeat", ["0 1 2 3", "4 5 6 7", "8 9 0 1"]),
            ("-n 5 --remainder repeat", ["0 1", "2 3", "4 5", "6 7", "8 9"]),
            ("-n 12 --remainder repeat", ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "1"]),
            ("-n 3 --match [0-3] --remainder drop", ["0", "1", "2"]),
            ("-n 2 --max-shards 1", ["0 1 2 3 4"]),
            ("-c 3 --max-shards 2", ["0 1 2", "3 4 5"]),
            ("-c 5 --maxshards 2", ["0 1 2 3 4", "5 6 7 8 9"]),
            ("-c 5 --max-shards 9", ["0 1 2 3 4", "5 6 7 8 9"]),
            # selection is applied first
            ("-c 2 --slice 1:8:2", ["1 3", "5 7"]),
            ("-c 2 --shard-slice :3", ["0 1", "2"]),
            ("-c 4 --match x", []),
        ]
    ),
)
def test_limits(options: str, expected: list[str], run: Run, archive: Archive, feed: Feed) -> None:
    """A shard ends at a limit; each is a complete archive, and samples keep their headers."""
    run("split", feed(archive(TEN)), *options.split(), "-o", "out-%d.tar")
    made = {path.name: path.read_bytes() for path in Path.cwd().glob("out-*")}
    assert made == {f"out-{number}.tar": tar(pick(TEN, group)) for number, group in enumerate(expected)}


def members(*sizes: int) -> dict[str, Content]:
    """Return samples a, b, c ... that take these numbers of KiB in a tar."""
    return {f"{key}.bin": b"x" * (1024 * size - 512) for key, size in zip("abcdefgh", sizes, strict=False)}


@each_feed
def test_several_inputs(run: Run, archive: Archive, feed: Feed) -> None:
    """A shard continues across inputs."""
    words = [feed(archive([*TEN.items()][at : at + 3], f"{at}.tar")) for at in (0, 3, 6)]
    run("split", *words, "-c", "4", "-o", "out-%d.tar")
    assert shards() == numbered("0 1 2 3", "4 5 6 7", "8")
    ran = run("split", *words, "-n", "2", "-o", "n-%d.tar")
    assert ran.stderr == ""  # a second pass is not a second input
    assert [*shards("n-*").values()] == ["0 1 2 3 4", "5 6 7 8"]


def test_no_limit(run: Run, archive: Archive) -> None:
    """The default limit is 1G, which is printed."""
    ran = run("split", archive(TEN))
    assert ran.lines == ["tarkit: no limit is given: shards of at most 1G (10^9 bytes); -c and -s set others"]
    assert shards("split-*") == {"split-000000.tar": "0 1 2 3 4 5 6 7 8 9"}
    assert ran.stdout == b""


def test_require_all(run: Run, archive: Archive) -> None:
    """A requested key that is missing ends the run before the last shard is complete."""
    Path("list").write_text("1\n2\n3\nnone\n")
    options = ("--keys-from", "list", "-c", "2", "-o", "out-%d.tar", "--manifest", "m.tsv")
    ran = run("split", archive(TEN), *options, "--require-all", exit=1)
    assert ran.lines == [
        "tarkit: list: 4 keys requested, 3 found, 1 missing, the first of them 'none'",
        "hint: 1 complete shard stays: --force replaces it",
    ]
    assert shards() == numbered("1 2")
    assert not Path("m.tsv").exists()
    run("split", "in.tar", *options, "--force")
    assert shards() == numbered("1 2", "3")


def test_no_sample_no_shard(run: Run, archive: Archive) -> None:
    """An archive without samples has no shard and a message, and is no error."""
    for rows, said in (({}, 0), ([("README", b"1"), ("d", None)], 1)):
        word = archive(rows)
        ran = run("split", word, "-c", "1", "--manifest", "m.tsv")
        assert ran.lines[said:] == ["tarkit: no sample, so no shard"]
        assert said == 0 or "2 entries without a key are left out" in ran.lines[0]
        assert shards("split-*") == {}
        assert Path("m.tsv").read_text() == "shard\tsamples\tbytes\tsha256\tfirst\tlast\n"
        assert run("split", word, "-n", "3").lines[-1] == "tarkit: no sample, so no shard"


# ---- messages of -n and --max-shards


@each_feed
def test_what_is_left_is_told(run: Run, archive: Archive, feed: Feed) -> None:
    """Samples that are left out or repeated are printed and reported; so is a stop at --max-shards, with status 0."""
    word = feed(archive(TEN))
    report = ("--report", "r.json")
    ran = run("split", word, "-n", "3", "--remainder", "drop", "-o", "a-%d.tar", *report)
    assert ran.lines == ["tarkit: the last 1 of 10 samples is left out: --remainder drop"]
    assert json.loads(Path("r.json").read_text())["left_out"] == 1
    ran = run("split", word, "-n", "4", "--remainder", "repeat", "-o", "b-%d.tar", *report)
    assert ran.lines == ["tarkit: 2 samples come twice: --remainder repeat"]
    assert json.loads(Path("r.json").read_text())["repeated"] == 2
    ran = run("split", word, "-c", "4", "--max-shards", "2", "-o", "c-%d.tar", *report)
    assert ran.lines == ["tarkit: stopped at --max-shards 2: 2 samples not written"]
    facts = json.loads(Path("r.json").read_text())
    assert (facts["not_written"], facts["samples"], facts["shards"]) == (2, 8, 2)
    assert run("split", word, "-c", "5", "--max-shards", "2", "-o", "d-%d.tar").lines == []
    ran = run("split", word, "-c", "3", "--max-shards", "3", "-o", "e-%d.tar")
    assert ran.lines == ["tarkit: stopped at --max-shards 3: 1 sample not written"]
    ran = run("split", word, "-n", "5", "--even", "size", "--max-shards", "2", "-o", "f-%d.tar", *report)
    assert ran.lines == ["tarkit: stopped at --max-shards 2: 4 samples not written"]
    assert shards("f-*") == {"f-0.tar": "0 1 2", "f-1.tar": "3 4 5"}
    ran = run("split", word, "--match", "[0-6]", "-c", "2", "--max-shards", "1", "-o", "g-%d.tar")
    assert ran.lines == ["tarkit: stopped at --max-shards 1: 5 samples not written"]


@each_feed
def test_what_is_left_is_not_judged(run: Run, archive: Archive, feed: Feed) -> None:
    """Damage after the last written sample ends the count; shards and found keys are those that were written."""
    members = {**TEN, "big.bin": b"x" * (17 << 20), "z.cls": b"", "zz.cls": b""}
    words = ("-c", "2", "--max-shards", "2", "-o", "a-%d.tar", "--manifest", "m.tsv")
    ran = run("split", feed(archive(members)), *words)
    assert ran.lines == ["tarkit: stopped at --max-shards 2: 9 samples not written"]
    made = {"a-0.tar": "0 1", "a-1.tar": "2 3"}
    assert shards("a-*") == made
    ran = run("split", feed(archive(tar(members)[: 8 * 1024 + 700], "short.tar")), *words, "--force")
    least = 3 if feed.kind == "file" else 4  # if a header is read ahead, the sample before the damage is incomplete
    what = f"stopped at --max-shards 2: at least {least} samples not written; the count ended at "
    assert ran.lines[0].startswith(f"tarkit: {what}")
    assert ran.lines[0].endswith("[truncated]")
    assert shards("a-*") == made
    assert len(Path("m.tsv").read_bytes().splitlines()) == 3
    Path("list").write_text("0\n1\n9\n")
    ran = run("split", feed("in.tar"), "-c", "1", "--max-shards", "1", "--keys-from", "list", "-o", "b-%d.tar")
    assert ran.lines[0] == "tarkit: list: 3 keys requested, 2 found, 1 not reached, the first of them '9'"
    assert ran.lines[-1] == "tarkit: stopped at --max-shards 1: 2 samples not written"


def test_more_samples_than_were_counted(run: Run, archive: Archive) -> None:
    """An input that grows between the two passes of -n is an error, not a stop."""
    archive(pick(TEN, "0 1 2 3"), "a.tar")
    archive(pick(TEN, "4 5"), "b.tar")
    archive(pick(TEN, "4 5 6"), "longer")
    words = ["split", "a.tar", "b.tar", "-n", "3", "-o", "out-%d.tar", "--force"]
    ran = run(*words, "--post", "cp longer b.tar", exit=1)
    assert ran.lines[0] == "tarkit: b.tar: the file was changed while it was read"
    archive(pick(TEN, "4 5"), "b.tar")
    os.utime("b.tar", (1, 1))  # and so that its length and time do not tell
    ran = run(*words, "--post", "cp longer b.tar; touch -d @1 b.tar", exit=1)
    assert ran.lines == ["tarkit: an input has changed: it has more samples than in the pass that counted them"]


EQUAL = {
    "-n 3 --remainder spread": "0 1 2/3 4 5/6 7",
    "-n 3 --remainder drop": "0 1/2 3/4 5",
    "-n 3 --remainder repeat": "0 1 2/3 4 5/6 7 0",
    "-n 4 --even size": "0 1 2/3 4 5/6 7",
}


@each_row(("options", "feed"), in_turn(EQUAL, 1))
def test_equal_shards_of_a_damaged_archive(options: str, run: Run, archive: Archive, feed: Feed) -> None:
    """The samples that were counted are written: each pass has the same policy, and only one prints."""
    word = feed(archive(tar(TEN)[:9300]))
    for number, policy in enumerate((["--maxerr", "1"], ["--skip", "truncated"])):
        ran = run("split", word, *options.split(), *policy, "-o", f"{number}out-%d.tar", "--report", "r.json")
        assert [*shards(f"{number}out-*").values()] == EQUAL[options].split("/")
        reads = "drop" not in options  # the sample before the damage
        assert sum("[truncated]" in line for line in ran.lines) == reads
        assert json.loads(Path("r.json").read_text())["skipped"] == ({"truncated": 1} if reads else {})


# ---- names


@each_row(
    ("template", "names"),
    [
        ("-o x.tar --start 9", "x-000009.tar x-000010.tar x-000011.tar"),
        ("-o x-{5..9}.tar --start 1", "x-6.tar x-7.tar x-8.tar"),
        ("-o sub/", "sub/split-000000.tar sub/split-000001.tar sub/split-000002.tar"),
        ("-o {x..y}/%d", "{x..y}/0 {x..y}/1 {x..y}/2"),
        ("", "split-000000.tar split-000001.tar split-000002.tar"),
    ],
)
def test_templates(template: str, names: str, run: Run, archive: Archive) -> None:
    """Numbers are in the last component of the path; tests/shards/test_template.py has all notations."""
    archive(TEN, "a.in")
    os.mkdir("sub")
    os.mkdir("{x..y}")
    run("split", "a.in", "-c", "4", *shlex.split(template))
    found = {str(path.relative_to(Path.cwd())): keys(path) for path in Path.cwd().rglob("*") if path.is_file()}
    assert found.pop("a.in")
    assert found == dict(zip(names.split(), ["0 1 2 3", "4 5 6 7", "8 9"], strict=True))


def test_a_template_of_commands(run: Run, archive: Archive) -> None:
    """pipe: with a number is a command for each shard; one that fails ends the run."""
    word = archive(TEN)
    run("split", word, "-c", "4", "-o", "pipe:gzip > out-%02d.tar.gz")
    assert shards() == {"out-00.tar.gz": "0 1 2 3", "out-01.tar.gz": "4 5 6 7", "out-02.tar.gz": "8 9"}
    ran = run("split", word, "-c", "4", "-o", "pipe:n=%d; cat > cmd-$n.tar; test $n != 1", exit=1)
    assert ran.lines == ["tarkit: command ended with status 1: n=1; cat > cmd-$n.tar; test $n != 1"]
    assert shards("cmd-*") == {"cmd-0.tar": "0 1 2 3", "cmd-1.tar": "4 5 6 7"}


@each_row("codec", ["gz", "zst"])  # tests/laws/test_oracle.py has the others
def test_compressed_shards(codec: str, run: Run, archive: Archive) -> None:
    """The suffix of the template compresses each shard, --compress overrides it."""
    word = archive(TEN)
    run("split", word, "-c", "5", "-o", f"out-%d.tar.{codec}")
    assert run("cat", f"out-*.tar.{codec}").stdout == tar(TEN)
    assert Path(f"out-0.tar.{codec}").read_bytes() != tar(pick(TEN, "0 1 2 3 4"))
    run("split", word, "-c", "5", "-o", f"plain-%d.tar.{codec}", "--compress", "none")
    assert Path(f"plain-0.tar.{codec}").read_bytes() == tar(pick(TEN, "0 1 2 3 4"))
    run("split", word, "-c", "5", "-o", "packed-%d.tar", "--compress", codec)
    assert Path("packed-0.tar").read_bytes() == Path(f"out-0.tar.{codec}").read_bytes()


# ---- existing shards


def test_existing_shards_are_refused(run: Run, archive: Archive) -> None:
    """Existing shards are an error that names the first, and they are unchanged."""
    word = archive(TEN)
    for number in (3, 4):
        Path(f"out-{number}.tar").write_text("old")
    ran = run("split", word, "-c", "4", "-o", "out-%d.tar", exit=1)
    assert ran.lines == [
        "tarkit: out-3.tar and 1 more: there are shards of this name",
        "hint: --force replaces them; --append keeps them, and appends all inputs after them",
    ]
    os.unlink("out-4.tar")
    ran = run("split", word, "-c", "4", "-o", "out-%d.tar", "--start", "9", exit=1)
    assert ran.lines[0] == "tarkit: out-3.tar: there are shards of this name"
    assert [path.name for path in Path.cwd().glob("out-*")] == ["out-3.tar"]
    assert Path("out-3.tar").read_text() == "old"


def test_append(run: Run, archive: Archive) -> None:
    """--append continues after the last number, with or without gaps; the first number is 0."""
    first = archive(pick(TEN, "0 1 2"), "1.tar")
    second = archive(pick(TEN, "3 4 5"), "2.tar")
    run("split", first, "-c", "2", "-o", "out-%d.tar", "--append")
    assert shards() == numbered("0 1", "2")
    os.rename("out-1.tar", "out-4.tar")
    run("split", second, "-c", "2", "-o", "out-%d.tar", "--append")
    assert shards() == {"out-0.tar": "0 1", "out-4.tar": "2", "out-5.tar": "3 4", "out-6.tar": "5"}


def test_force(run: Run, archive: Archive) -> None:
    """--force replaces shards one by one; old ones are removed after the last new one is complete."""
    word = archive(TEN)
    for number in (0, 2, 7):
        Path(f"out-{number}.tar").write_text("old")
    Path("out-x.tar").write_text("not ours")
    os.symlink("nowhere", "out-1.tar")
    post = "ls out-*.tar | tr '\\n' ' ' >> seen; echo >> seen"
    ran = run("-v", "split", word, "-c", "5", "-o", "out-%d.tar", "--force", "--post", post)
    assert Path("seen").read_text().split("\n") == [
        "out-0.tar out-1.tar out-2.tar out-7.tar out-x.tar ",
        "out-0.tar out-1.tar out-2.tar out-7.tar out-x.tar ",
        "",
    ]
    assert Path("out-x.tar").read_text() == "not ours"
    os.unlink("out-x.tar")
    assert shards() == numbered("0 1 2 3 4", "5 6 7 8 9")
    assert f"tarkit: out-7.tar: {REMOVED}" in ran.lines


FORCE = [
    # the numbers of old shards, options, the new shards, and those that are said to be removed
    ("1 4 5 9", "-c 3", ["0 1 2", "3 4 5", "6 7 8", "9"], ["out-4.tar and 2 more"]),
    ("1 4 5 9", "-c 3 -v", ["0 1 2", "3 4 5", "6 7 8", "9"], ["out-4.tar", "out-5.tar", "out-9.tar"]),
    ("1 4 5 9", "-c 3 -q", ["0 1 2", "3 4 5", "6 7 8", "9"], []),
    ("", "-c 3", ["0 1 2", "3 4 5", "6 7 8", "9"], []),
    ("0 1 2 3 7", "-c 5 --start 2", ["old0", "old1", "0 1 2 3 4", "5 6 7 8 9"], ["out-7.tar"]),
]


@each_row(("old", "options", "new", "removed"), FORCE)
def test_force_says_what_it_removes(
    old: str, options: str, new: list[str], removed: list[str], run: Run, archive: Archive
) -> None:
    """Removed shards are printed in one line, with -v in one line each; those with numbers below --start are kept."""
    for number in old.split():
        Path(f"out-{number}.tar").write_bytes(tar({f"old{number}.x": b""}))
    ran = run("split", archive(TEN), *options.split(), "-o", "out-%d.tar", "--force")
    assert [line for line in ran.lines if "removed" in line] == [f"tarkit: {name}: {REMOVED}" for name in removed]
    assert shards() == numbered(*new)


@each_feed
def test_force_that_fails_leaves_what_it_did_not_replace(run: Run, archive: Archive, feed: Feed) -> None:
    """After an error complete shards are new, the others old, and none is partial."""
    for number in range(4):
        Path(f"out-{number}.tar").write_text("old")
    run("split", feed(archive(tar(TEN)[:6000])), "-c", "2", "-o", "out-%d.tar", "--force", exit=1)
    assert keys("out-0.tar") == "0 1"
    assert [Path(f"out-{number}.tar").read_text() for number in (2, 3)] == ["old", "old"]


@each_row("option", ["--force", "--append", "-q"])
def test_an_input_is_never_overwritten(option: str, run: Run, archive: Archive) -> None:
    """An input with a possible name of a shard is refused, also under another name and on stdin; it is unchanged."""
    archive(TEN, "out-0.tar")
    os.symlink("out-0.tar", "other.tar")
    refused = 2 if option != "-q" else 1
    for words in (["out-0.tar"], ["other.tar"], ["pipe:cat out-0.tar", "other.tar"]):
        run("split", *words, "-c", "1", "-o", "out-%d.tar", option, exit=refused)
    ran = run("split", "-c", "1", "-o", "out-%d.tar", option, stdin=Path("out-0.tar"), exit=refused)
    if refused == 2:
        assert ran.lines[0] == "tarkit: stdin is an input, and has a name that the shards may get"
    assert Path("out-0.tar").read_bytes() == tar(TEN)


# ---- failures


@each_feed
def test_what_was_complete_stays(run: Run, archive: Archive, feed: Feed) -> None:
    """An error ends the run with its message; complete shards are kept, the open one is removed."""
    word = feed(archive(tar(TEN)[:4200]))
    ran = run("split", word, "-c", "2", "-o", "out-%d.tar", "--manifest", "m.tsv", "--report", "r.json", exit=1)
    assert ran.lines[0] == f"tarkit: {word}: at 4200: the input ends inside a header after '3.cls' [truncated]"
    assert shards() in (numbered("0 1"), numbered("0 1", "2 3"))
    assert not Path("m.tsv").exists()
    run("split", word, "-c", "2", "-o", "max-%d.tar", "--maxerr", "1")
    assert [*shards("max-*").values()] == ["0 1", "2"]


def test_an_error_says_what_stays(run: Run, archive: Archive) -> None:
    """The hint of an error has the number of the complete shards, and what to do about them."""
    archive({**{f"{n}.cls": b"1" for n in range(4)}, "4.jpg": b"x"})
    words = ["split", "in.tar", "-o", "{part}-%d.tar", "--parts", "a,b=0.5", "--stratify", "cls"]
    hint = "--skip missing-field leaves such samples out, --allow puts them into one group"
    [_, said] = run(*words, "-c", "1", exit=1).lines
    assert said == f"hint: {hint}; {len(shards('?-?.tar'))} complete shards stay: --force replaces them"
    assert run(*words, "-c", "1", "--force", exit=1).lines[1].endswith("--force replaces them")
    archive(tar(TEN)[:4200], "cut.tar")
    [_, hint] = run("split", "cut.tar", "-c", "2", "-o", "o-%d.tar", exit=1).lines
    repair = "hint: fetch the shard again; --skip truncated keeps the whole samples before the cut"
    assert hint == f"{repair}; 1 complete shard stays: --force replaces it"
    [_, hint] = run("split", "cut.tar", "-c", "2", "-o", "o-%d.tar", "--append", exit=1).lines
    assert hint == f"{repair}; 1 complete shard stays: remove it before --append"
    [_, hint] = run("split", "cut.tar", "-c", "9", "-o", "x-%d.tar", exit=1).lines
    assert hint == repair


def test_a_full_disk_says_what_stays(run: Run, archive: Archive) -> None:
    """An error of the system has it too."""
    os.mkdir("o-2.tar")
    [line, hint] = run("split", archive(TEN), "-c", "4", "-o", "o-%d.tar", exit=1).lines
    assert line.startswith("tarkit: o-2.tar: ")
    assert hint.endswith("2 complete shards stay: --force replaces them")


@each_feed
def test_a_key_of_two_inputs(run: Run, archive: Archive, feed: Feed) -> None:
    """In shards a repeated key is a warning; a skipped sample is neither written nor a neighbour."""
    words = [feed(archive({"a.x": b"1", "b.x": b"2"}, f"{number}.tar")) for number in (1, 2)]
    for options in ("-c 1", "-n 2"):
        ran = run("split", *words, *options.split(), "--force", "-o", "out-%d.tar")
        assert ran.lines[:2] == [
            f"tarkit: warning: {words[1]}: at {at}: the key '{key}' is already in the output [repeated-key]"
            for at, key in ((0, "a"), (1024, "b"))
        ]
        assert [key for shard in shards().values() for key in shard.split()] == ["a", "b", "a", "b"]
        ran = run("split", *words, *options.split(), "--force", "-o", "out-%d.tar", "--allow", "repeated-key")
        assert ran.stderr == ""
        run("split", *words, *options.split(), "--force", "-o", "out-%d.tar", "--skip", "repeated-key")
        assert [key for shard in shards().values() for key in shard.split()] == ["a", "b"]


@each_feed
def test_joined_samples_are_one_sample_for_the_limits(run: Run, archive: Archive, feed: Feed) -> None:
    """A joined sample is never split."""
    one = feed(archive({"a.jpg": b"1", "b.jpg": b"2"}, "1.tar"))
    two = feed(archive({"b.cls": b"3", "c.jpg": b"4"}, "2.tar"))
    run("split", one, two, "-c", "1", "--allow", "joined-sample,repeated-key", "-o", "out-%d.tar")
    assert entries("out-1.tar") == [("b.jpg", b"2"), ("b.cls", b"3")]
    assert shards() == numbered("a", "b", "c")


# ---- after each shard


@each_row(
    ("command", "seen", "feed"),
    in_turn(
        [
            ("cp {} copy", "copy"),
            ("cp %s copy", "copy"),
            ("cp {} '%s'", "%s"),
            ('cp "$TARKIT_SHARD" copy', "copy"),
            ("mv {} copy", "copy"),
            ("test {} = {} && cp {} copy", "copy"),
        ],
        0,
    ),
)
def test_post(command: str, seen: str, run: Run, archive: Archive, feed: Feed) -> None:
    """COMMAND runs after each shard is complete; {} is its quoted name, or %s without {}; it may move the shard."""
    name = "it's a shard; touch oops $(touch oops) %%-%d.tar"
    run("split", feed(archive(TEN)), "-c", "10", "-o", name, "-p", command)
    assert keys(seen) == "0 1 2 3 4 5 6 7 8 9"
    assert not Path("oops").exists()


def test_post_that_fails(run: Run, archive: Archive) -> None:
    """A command that fails ends the run: its shard is kept, and no further one is written."""
    ran = run("split", archive(TEN), "-c", "4", "-o", "out-%d.tar", "--post", "test {} != out-1.tar", exit=1)
    assert ran.lines == [
        "tarkit: command ended with status 1: test out-1.tar != out-1.tar",
        "hint: the shard out-1.tar is complete; for those after it the command was not run",
    ]
    assert shards() == numbered("0 1 2 3", "4 5 6 7")
    run("split", "in.tar", "-c", "9", "-o", "x-%d.tar", "--post", "false | true", exit=1)


def test_post_reads_nothing_of_ours(run: Run, archive: Archive) -> None:
    """The stdin of the command is empty, even if the archive comes from stdin."""
    run("split", "-c", "4", "-o", "out-%d.tar", "--post", "cat", stdin=Path(archive(TEN)))
    assert shards() == numbered("0 1 2 3", "4 5 6 7", "8 9")


# ---- manifest


def test_manifest(run: Run, archive: Archive) -> None:
    """There is one line for each shard: name, samples, bytes of the file, checksum, first and last key."""
    rows = {"a\tb.x": b"1", "a\\.x": b"2", "c.x": b"3", "\udce9.x": b"4"}
    word = archive(rows)
    for suffix in ("tar", "tar.gz"):
        run("split", word, "-c", "3", "-o", f"out-%d.{suffix}", "--manifest", "m.tsv")
        lines = [line.split(b"\t") for line in Path("m.tsv").read_bytes().splitlines()]
        assert lines[0] == b"shard samples bytes sha256 first last".split()
        for number, (count, first, last) in enumerate([(b"3", b"a\\tb", b"c"), (b"1", b"\xe9", b"\xe9")]):
            data = Path(f"out-{number}.{suffix}").read_bytes()
            digest = hashlib.sha256(data).hexdigest().encode()
            name = f"out-{number}.{suffix}".encode()
            assert lines[number + 1] == [name, count, b"%d" % len(data), digest, first, last]
        assert len(lines) == 3


def test_manifest_and_post(run: Run, archive: Archive) -> None:
    """The manifest has the shards as they were written, for any effect of --post; until the end it is the old one."""
    words = ["split", archive(TEN), "-c", "5", "-o", "out-%d.tar", "--manifest", "m.tsv", "--post"]
    Path("m.tsv").write_text("old")
    run(*words, "cat m.tsv >> seen; rm {}")
    assert Path("seen").read_text() == "oldold"
    lines = Path("m.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines[1:]] == ["out-0.tar", "out-1.tar"]
    assert hashlib.sha256(tar(pick(TEN, "5 6 7 8 9"))).hexdigest() in lines[2]
    run(*words, "false", exit=1)
    assert Path("m.tsv").read_text().splitlines() == lines


# ---- common options


@each_feed
def test_verbose_quiet_and_report(run: Run, archive: Archive, feed: Feed) -> None:
    """-v prints each shard and why it closed, -q nothing, --report writes JSON."""
    word = feed(archive(members(1, 1, 1, 30, 1)))

    def called(*options: str) -> list[str]:
        return run("split", word, *options, "-c", "2", "-s", "10240", "-o", "out-%d.tar", "--force").lines

    lines = called("-v", "--report", "r.json")
    assert lines[:-1] == [
        f"tarkit: reading {word}",
        "tarkit: out-0.tar: 2 samples, 10240 bytes, closed by count",
        "tarkit: out-1.tar: 1 sample, 10240 bytes, closed by size",
        "tarkit: out-2.tar: 1 sample, 40960 bytes, closed by size",
        "tarkit: out-3.tar: 1 sample, 10240 bytes, closed by end",
    ]
    assert lines[-1].startswith("tarkit: split: 5 samples, 71680 bytes, 4 shards, 0.")
    report = json.loads(Path("r.json").read_text())
    assert report.pop("seconds") < 60
    assert report == {"command": "split", "samples": 5, "bytes": 71680, "shards": 4, "problems": {}, "skipped": {}}
    assert called("-q") == []
    assert called() == []


# ---- samples larger than memory


def big(*sizes: int, seed: int = 1) -> dict[str, Content]:
    """Return the sample `big`, with entries of these sizes."""
    draw = random.Random(seed)
    return {f"big.{number}": draw.randbytes(size) for number, size in enumerate(sizes)}


def test_a_huge_sample(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """A sample over 16 MiB is written while it is read; one that exceeds the shard moves to the next."""
    huge = {"a.x": b"1", **big(9 << 20, 9 << 20), "c.x": b"2"}  # the sample is over 16 MiB, its entries are not
    run("split", feeds[1](archive(huge)), "-s", "5M", "-o", "out-%d.tar")
    assert [*shards()] == ["out-0.tar", "out-1.tar", "out-2.tar"]
    for number, group in enumerate(["a", "big", "c"]):
        assert Path(f"out-{number}.tar").read_bytes() == tar(pick(huge, group))


SMALLER = {"a.x": b"1", "b.x": b"2", **big(2_200, 47_000, 24_500, 0, 5), "c.x": b"3", "d.x": b"4"}
AHEAD = [
    ("-s 20K", ["a b", "big", "c d"]),
    ("-s 81919", ["a b", "big", "c d"]),  # of 82 432 bytes, with the end
    ("-s 81920", ["a b big c", "d"]),
    ("-s 92159", ["a b big c", "d"]),
    ("-s 92160", ["a b big c d"]),
    ("-s 93000 -c 3", ["a b big", "c d"]),
    ("-s 20K --max-shards 1", ["a b"]),
    ("-s 20K --max-shards 2", ["a b", "big"]),
    ("-s 20K --size-rule content", ["a b big", "c d"]),
    ("-c 2", ["a b", "big c", "d"]),
    ("-c 1", ["a", "b", "big", "c", "d"]),
    ("-n 2", ["a b big", "c d"]),
    ("-s 20K --match big", ["big"]),
    ("-s 20K --match [abcd]$", ["a b c d"]),
    ("-s 20K --skip all", ["a b", "big", "c d"]),
    ("-s 20K --allow joined-sample", ["a b", "big", "c d"]),
]


@each_row(("options", "expected", "feed"), in_turn(AHEAD, 5))
def test_what_is_written_ahead(
    options: str, expected: list[str], run: Run, archive: Archive, feed: Feed, small_memory: None
) -> None:
    """Samples whose end is not known yet have the same shards as from a file."""
    run("split", feed(archive(SMALLER)), *options.split(), "-o", "out-%d.tar")
    found = [path.read_bytes() for path in sorted(Path.cwd().glob("out-*"))]
    assert found == [tar(pick(SMALLER, group)) for group in expected]


@each_row(
    ("template", "options", "expected", "feed"),
    in_turn(
        [
            *(("out-%d.tar.gz", *row) for row in AHEAD[:5]),
            *(("pipe:gzip -1 > out-%d.tar.gz", *row) for row in AHEAD[1:3]),
        ],
        3,
    ),
)
def test_what_cannot_be_written_ahead(
    template: str, options: str, expected: list[str], run: Run, archive: Archive, feed: Feed, small_memory: None
) -> None:
    """If an output cannot be truncated, samples wait until their end is known."""
    run("split", feed(archive(SMALLER)), *options.split(), "-o", template)
    found = [gzip.decompress(path.read_bytes()) for path in sorted(Path.cwd().glob("out-*"))]
    assert found == [tar(pick(SMALLER, group)) for group in expected]


@each_row(("cut", "feed"), in_turn([20_000, 60_000, 78_800, 4_000]))
def test_a_cut_inside_of_what_is_written_ahead(
    cut: int, run: Run, archive: Archive, feed: Feed, small_memory: None
) -> None:
    """If the input ends inside a sample that is written, no shard has a part of it."""
    word = feed(archive(tar(SMALLER)[:cut]))
    run("split", word, "-s", "20K", "-o", "out-%d.tar", exit=1)
    assert set(shards().values()) <= {"a b"}
    run("split", word, "-s", "20K", "-o", "skip-%d.tar", "--skip", "truncated")
    assert [*shards("skip-*").values()] == ["a b"]
    run("split", word, "-s", "20K", "-c", "1", "-o", "c-%d.tar", exit=1)
    assert [*shards("c-*").values()] == ["a", "b"][: len(shards("c-*"))]
    allowed = [name for name, _ in entries(run("cat", word, "--allow", "truncated").stdout)]
    assert allowed == [*SMALLER][: len(allowed)]


def test_temporary_space_is_where_it_was_asked_for(run: Run, archive: Archive, small_memory: None) -> None:
    """--tmpdir is used and left empty; a missing one is an error when it is needed."""
    os.mkdir("space")
    archive(SMALLER)
    run("split", "pipe:cat in.tar", "-s", "20K", "-o", "out-%d.tar.gz", "--tmpdir", "space")
    assert os.listdir("space") == []
    ran = run("split", "pipe:cat in.tar", "-s", "20K", "-o", "no-%d.tar.gz", "--tmpdir", "none", exit=1)
    assert "none" in ran.lines[0]
    assert "No such file or directory" in ran.lines[0]


def test_an_entry_without_key_before_an_entry_that_is_cut(run: Run) -> None:
    """The sample before it is in a shard already when a stream turns out to be cut: what is left out is said."""
    data = tar({"a.x": b"1", "README": b"2", "b.x": b"3" * 600})[:2600]
    ran = run("split", "-", "-c", "1", "--allow", "truncated", "-o", "s-%d.tar", stdin=gzip.compress(data))
    assert entries(Path("s-0.tar").read_bytes()) == [("a.x", b"1")]
    assert ran.lines[1] == "tarkit: warning: stdin: 1 entry without a key is left out: it is in no sample"
