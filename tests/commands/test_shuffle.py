"""tarkit shuffle: every sample once, in an order that depends only on the inputs and the seed."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from tarkit.samples.sample import Recent
from tarkit.sizes import plural
from tarkit.sorting.shuffle import random_keys
from tests._tools import PATIENT, each_row, happens, process
from tests.conftest import KINDS, Archive, Content, Feed, Run, each_feed, entries, keys, pick, tar

TEN: dict[str, Content] = {
    f"{key}.{field}": f"{key}{field}".encode() * 9 for key in "abcdefghij" for field in ("cls", "jpg")
}
LETTERS = "a b c d e f g h i j"


def by_seed(words: str, seed: int, epoch: int = 0) -> str:
    """Return the order of a full shuffle, from the definition of the keys."""
    return " ".join(word for _, word in sorted(zip(random_keys(seed, epoch), words.split(), strict=False)))


def like_webdataset(words: str, seed: int, size: int) -> str:
    """Return the order of webdataset's own shuffle."""
    shuffle = pytest.importorskip("webdataset.filters", reason="webdataset is not installed")._shuffle
    return " ".join(shuffle(iter(words.split()), size, seed=seed))


# ---- the order


@each_row("seed", [0, 7, -3, 1 << 65])
def test_order(seed: int, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Whole samples are in the order of their random keys, with the same bytes from every feed."""
    expected = by_seed(LETTERS, seed)
    for feed in feeds:
        out = run("shuffle", feed(archive(TEN)), "--seed", str(seed)).stdout
        assert out == tar(pick(TEN, expected))


@each_feed
def test_several_inputs(run: Run, archive: Archive, feed: Feed) -> None:
    """Samples of all inputs are mixed."""
    words = [
        feed(archive(pick(TEN, part), f"{number}.tar")) for number, part in enumerate(("a b c", "", "d e f g", "h i j"))
    ]
    for option in ((), ("-p", "3")):
        assert keys(run("shuffle", *words, "--seed", "5", *option).stdout) == by_seed(LETTERS, 5)


@functools.cache
def many() -> dict[str, Content]:
    """Return samples of 2.8 MB; made on demand, since each fork copies existing memory."""
    return {f"{n:03}.bin": random.Random(n).randbytes(n * 700) for n in range(90)}


@each_row("memory", ["1M", "1G"])
def test_memory_does_not_change_the_output(memory: str, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """The bytes do not depend on the feed, the memory, or the directory of temporary files."""
    expected = tar(pick(many(), by_seed(" ".join(name[:3] for name in many()), 3)))
    Path("tmp").mkdir()
    for feed in feeds:
        ran = run("shuffle", feed(archive(many())), "--seed", "3", "--memory", memory, "--tmpdir", "tmp", "-v")
        assert ran.stdout == expected
        assert ("sorted in runs" in ran.stderr) == (memory == "1M" and feed.kind != "file")
    assert os.listdir("tmp") == []


# ---- through a buffer


@each_row(("seed", "size"), [(0, 4), (7, 1000), (7, 110), (7, 1), (7, 3)])
def test_buffer(seed: int, size: int, run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """The order equals webdataset's, for each size of the buffer, also that of cat -s."""
    numbers = " ".join(f"{number:03}" for number in range(120))
    members = {f"{key}.x": key.encode() for key in numbers.split()}
    expected = tar(pick(members, like_webdataset(numbers, seed, size)))
    archive(members)
    for feed in feeds if size == 3 else feeds[1:2]:
        ran = run("shuffle", feed("in.tar"), "--seed", str(seed), "--buffer", str(size))
        assert ran.stdout == expected
        what = f"a buffer of {plural(size, 'sample')} mixes locally only; without --buffer all are mixed with all"
        assert ran.lines == [f"tarkit: {what}"]
        assert run("cat", feed("in.tar"), "--seed", str(seed), "-s", str(size)).stdout == expected


# ---- entries without key, equal keys, links


@each_feed
def test_one_key_in_two_inputs(run: Run, archive: Archive, feed: Feed) -> None:
    """Neighbours with one key would be one sample: an error, unless it is allowed."""
    words = [feed(archive({"a.x": b"1"}, "1.tar")), feed(archive({"a.y": b"2"}, "2.tar"))]
    ran = run("shuffle", *words, "--seed", "1", "-o", "out.tar", exit=1)
    assert "[joined-sample]" in ran.stderr
    assert not Path("out.tar").exists()
    ran = run("shuffle", *words, "--seed", "1", "--allow", "joined-sample", "-q")
    assert sorted(entries(ran.stdout)) == [("a.x", b"1"), ("a.y", b"2")]
    out = run("shuffle", *words, "--seed", "1", "-R", "{stem}/{key}", "-q").stdout
    assert len(entries(out)) == 2


@pytest.mark.slow
@each_feed
def test_repeated_keys(run: Run, archive: Archive, feed: Feed) -> None:
    """A repeated key of two inputs is an error in one archive, a warning in shards."""
    rows = [f"{n:02}.x" for n in range(20)]
    one = feed(archive(dict.fromkeys(rows, b"1"), "1.tar"))
    two = feed(archive({"07.y": b"2", **dict.fromkeys([f"z{row}" for row in rows], b"3")}, "2.tar"))
    for command in ("shuffle", "shuffle --buffer 30", "sort -s __random__"):
        words = [*command.split(), one, two, "--seed", "1", "-q"]
        [line, hint] = run(*words, "-o", "out.tar", exit=1).lines
        assert line.endswith("the key '07' is already in the output [repeated-key]"), command
        assert (
            hint == "hint: make the keys differ: --rekey '{stem}/{key}', or '{index:09d}-{key}' if a sample comes twice"
        )
        assert not Path("out.tar").exists()
        out = entries(run(*words, "--allow", "repeated-key").stdout)
        assert sorted(name for name, _ in out) == sorted([*rows, "07.y", *(f"z{row}" for row in rows)])
        kept = entries(run(*words, "--skip", "repeated-key").stdout)
        seconds = [pair for pair in out if pair[0].startswith("07.")][1:]
        assert kept == [pair for pair in out if pair not in seconds]
        assert len(entries(run(*words, "-R", "{stem}/{key}").stdout)) == 41
        assert run(*words, "-R", "{key}", exit=1).lines[0].endswith("is already in the output [repeated-key]")
        if "buffer" not in command:
            ran = run(*command.split(), one, two, "--seed", "1", "-c", "50", "--force", "-o", "s-%d.tar")
            [warning] = [line for line in ran.lines if "warning" in line]
            assert warning.endswith("the key '07' is already in the output [repeated-key]")
    whole = [feed(archive(dict.fromkeys(rows, b"1"), f"{number}.tar")) for number in (1, 2)]
    for seed in range(5):  # neighbours with one key are another problem, and skipped samples cause none
        out = run("shuffle", *whole, "--seed", str(seed), "-q", "--skip", "repeated-key,joined-sample").stdout
        assert sorted(name for name, _ in entries(out)) == rows
    words = ["shuffle", one, two, "--seed", "1", "-q", "--epochs", "2", "-o", "e-{epoch}.tar"]
    assert "[repeated-key]" in run(*words, exit=1).stderr


def test_repeated_keys_at_any_distance(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Duplicate keys are known in advance, so none is missed, for any number of samples between them."""
    monkeypatch.setattr(Recent.__init__, "__defaults__", (2,))
    rows = [f"{number:02}.x" for number in range(40)]
    one = archive(dict.fromkeys(rows, b"1"), "1.tar")
    two = archive({"07.x": b"2", **dict.fromkeys([f"z{row}" for row in rows], b"3")}, "2.tar")
    for seed in range(5):
        for words in ([], ["-f", "x"]):
            ran = run("shuffle", one, two, "--seed", str(seed), *words, "-o", "out.tar", exit=1)
            assert ran.lines[0].endswith("the key '07' is already in the output [repeated-key]")


@each_feed
def test_repeated_keys_of_samples_without_the_field(run: Run, archive: Archive, feed: Feed) -> None:
    """A key is found again too where its sample has waited for a rank."""
    one = feed(archive({"00.y": b"1", "01.x": b"1", "02.x": b"2"}, "1.tar"))
    two = feed(archive({"00.x": b"3"}, "2.tar"))
    words = ["sort", "-s", "x", one, two]
    ran = run(*words, "--allow", "missing-field", "-o", "out.tar", exit=1)
    assert ran.lines[0].endswith("the key '00' was in an earlier input [joined-sample]")
    out = entries(run(*words, "--allow", "missing-field,joined-sample", "-q").stdout)
    assert out == [("01.x", b"1"), ("02.x", b"2"), ("00.y", b"1"), ("00.x", b"3")]


@each_feed
def test_new_keys_have_the_name_of_their_archive(run: Run, archive: Archive, feed: Feed) -> None:
    """{stem} is the archive of the sample, even if entries without a key of another archive come before it."""
    archive([("README", b""), ("k.x", b"1")], "1.tar")
    archive({"k.y": b"2"}, "2.tar")
    expected: list[tuple[str, Content]] = [("README", b""), ("1/k.x", b"1"), ("2/k.y", b"2")]
    for seed in "0123":
        words = [feed("1.tar"), feed("2.tar")]
        if feed.kind == "pipe":
            stems = [os.path.basename(word) for word in words]
            expected = [("README", b""), (f"{stems[0]}/k.x", b"1"), (f"{stems[1]}/k.y", b"2")]
        out = entries(run("shuffle", *words, "--seed", seed, "-R", "{stem}/{key}", "-q").stdout)
        assert sorted(out) == sorted(expected)
        assert out[0] == ("README", b"")


# ---- shards and epochs


@each_feed
def test_shards(run: Run, archive: Archive, feed: Feed) -> None:
    """-c and --size split the shuffled stream as split does."""
    word = feed(archive(TEN))
    order = by_seed(LETTERS, 2).split()
    run("shuffle", word, "--seed", "2", "-c", "4", "-o", "s-%d.tar")
    for number, part in enumerate((order[:4], order[4:8], order[8:])):
        assert Path(f"s-{number}.tar").read_bytes() == tar(pick(TEN, " ".join(part)))
    run("shuffle", feed("in.tar"), "--seed", "2", "-o", "whole.tar")
    run("split", "whole.tar", "-s", "20480", "-o", "x-{0..9}.tar")
    run("shuffle", feed("in.tar"), "--seed", "2", "--size", "20480", "-o", "y-{0..9}.tar")
    for path in Path().glob("x-*.tar"):
        assert path.read_bytes() == Path(path.name.replace("x", "y")).read_bytes()
    ran = run("shuffle", feed("in.tar"), "--seed", "2", "-c", "5", "-o", "s-%d.tar", exit=1)
    assert ran.lines == ["tarkit: s-0.tar and 2 more: there are shards of this name", "hint: --force replaces them"]
    ran = run("shuffle", feed("in.tar"), "--seed", "2", "-c", "5", "-o", "s-%d.tar", "--force")
    assert ran.lines == ["tarkit: s-2.tar: removed: --force leaves no other shards of this name"]
    assert sorted(path.name for path in Path().glob("s-*")) == ["s-0.tar", "s-1.tar"]


@each_row(("options", "feed"), [*(([], Feed(kind)) for kind in KINDS), (["--buffer", "5"], Feed("pipe"))])
def test_epochs(options: list[str], run: Run, archive: Archive, feed: Feed) -> None:
    """Each epoch has its own order; the first equals that of a single run; for shards and single archives."""
    buffered, options = bool(options), ["--seed", "6", *options]
    word = feed(archive(TEN))
    run("shuffle", word, *options, "--epochs", "3", "-o", "e{epoch}-%d.tar", "-c", "5", "--report", "r.json")
    report = json.loads(Path("r.json").read_text())
    assert (report["samples"], report["shards"], report["epochs"], report["seed"]) == (30, 6, 3, 6)
    orders = [f"{keys(Path(f'e{n}-0.tar'))} {keys(Path(f'e{n}-1.tar'))}" for n in range(3)]
    if buffered:  # as webdataset's detshuffle
        assert orders == [like_webdataset(LETTERS, 6 + epoch, 5) for epoch in range(3)]
    else:
        assert orders == [by_seed(LETTERS, 6, epoch) for epoch in range(3)]
    assert len(set(orders)) == 3
    assert orders[0] == keys(run("shuffle", feed("in.tar"), *options).stdout)
    run("shuffle", feed("in.tar"), *options, "--epochs", "2", "-o", "one.tar")
    assert [keys(Path(f"epoch{n}-one.tar")) for n in range(2)] == orders[:2]


@each_feed
def test_problems_are_printed_once(run: Run, archive: Archive, feed: Feed) -> None:
    """Problems are printed once for any number of passes."""
    word = feed(archive(tar(TEN)[: 512 * 2 * 19 + 100]))
    Path("list").write_text(LETTERS.replace(" ", "\n"))
    options = ["--epochs", "3", "--seed", "1", "--skip", "truncated", "--keys-from", "list"]
    ran = run("shuffle", word, *options, "-o", "e-{epoch}.tar", "--report", "r.json")
    assert ran.stderr.count("[truncated]") == 1
    assert ran.stderr.count("9 found, 1 missing") == 1
    assert json.loads(Path("r.json").read_text())["skipped"] == {"truncated": 1}
    for epoch in range(3):
        assert sorted(keys(Path(f"e-{epoch}.tar")).split()) == LETTERS.split()[:9]


@each_row(
    ("name", "expected"),
    [
        ("a/e{epoch}-x.tar", "a/e0-x.tar a/e1-x.tar"),
        ("e-{epoch:02d}.tar", "e-00.tar e-01.tar"),
        ("x.tar", "epoch0-x.tar epoch1-x.tar"),
        ("a/x.tar.gz", "a/epoch0-x.tar.gz a/epoch1-x.tar.gz"),
    ],
)
def test_names_of_epochs(name: str, expected: str, run: Run, archive: Archive) -> None:
    """{epoch} is the number, from 0; without it the number is a prefix of the name."""
    Path("a").mkdir()
    run("shuffle", archive(TEN), "--seed", "1", "--epochs", "2", "-o", name)
    found = {str(path) for path in Path().rglob("*.tar*")} - {"in.tar"}
    assert found == set(expected.split())


# ---- ends of a run


@each_row(
    "signum,options",
    [
        (signal.SIGTERM, "-o out.tar"),
        (signal.SIGINT, "-o s-%d.tar -c 2"),
        (signal.SIGTERM, "-o e{epoch}.tar --epochs 2"),
    ],
)
def test_signals(signum: int, options: str, run: Run, archive: Archive) -> None:
    """The process ends by the signal and leaves no file, while it reads or writes."""
    archive(many())
    Path("tmp").mkdir()
    words = ["shuffle", "-", "--seed", "1", "--memory", "1M", "--tmpdir", "tmp", *options.split()]
    data = Path("in.tar").read_bytes()
    with process(*words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdin
        assert started.stderr
        os.write(started.stdin.fileno(), data[: 1 << 16])
        started.stdin.write(data[1 << 16 : -(1 << 19)])  # more than memory holds, so that a run was written
        started.stdin.flush()
        started.send_signal(signum)
        assert started.wait(20) == -signum
        assert started.stderr.read() == b""
    assert os.listdir("tmp") == []
    assert sorted(os.listdir()) == ["in.tar", "tmp"]


@each_row("options", ["-c 1", "-c 4 --buffer 3", "-c 4 --memory 1M"])
def test_a_signal_while_it_writes(options: str, run: Run, archive: Archive) -> None:
    """Complete shards are kept, and nothing else."""
    archive(many())
    os.mkfifo("s-1.tar")  # without a reader, so that the command waits there
    words = ["shuffle", "in.tar", "--seed", "1", "-q", "--force", "-o", "s-%d.tar", *options.split()]
    with process(*words, stderr=subprocess.PIPE) as started:
        assert happens(lambda: os.path.exists("s-0.tar"))
        started.send_signal(signal.SIGTERM)
        assert started.wait(PATIENT) == -signal.SIGTERM
        assert started.stderr
        assert started.stderr.read() == b""
    assert sorted(os.listdir()) == ["in.tar", "s-0.tar", "s-1.tar"]
    assert len(keys(Path("s-0.tar")).split()) == int(options.split()[1])
