"""What a command says about its numbers is what it did: summaries and reports, against a model."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
from pathlib import Path

import pytest

from tests._tools import each_row
from tests.conftest import Run, entries, keys, tar

COMMANDS = [
    "cat IN -o out.tar",
    "cat IN -o out.tar -m 2",
    "sort IN -o out.tar",
    "sort IN -o out.tar --memory 1M -r",
    "shuffle IN -o out.tar --seed 3",
    "shuffle IN -o out-{epoch}.tar --epochs 3 --seed 3",
    "split IN -c 3 -o out-%d.tar",
    "split IN -n 1 -o out-%d.tar",
    "proc IN -c true -o out.tar",
    "proc IN -c false --on-error skip --retries 2 -o out.tar",
    "tsv IN -f txt -o out.tsv",
    "stats IN",
    "extract IN -C out",
    "extract IN -C out --sample 1.0 --seed 1",
]


def grow(rng: random.Random, path: Path, suffix: str, first: int) -> tuple[list[str], int]:
    """Write an archive; return the keys of its good samples, and the number of others."""
    good, bad, text = [], 0, io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as out:
        for number in range(first, first + rng.randint(1, 8)):
            kind = rng.choice(("good", "good", "unsafe", "twice"))
            key = f"../{number:03}" if kind == "unsafe" else f"{number:03}"
            for name in (f"{key}.txt", f"{key}.cls", *([f"{key}.txt"] if kind == "twice" else [])):
                entry = tarfile.TarInfo(name)
                entry.size = 1
                out.addfile(entry, io.BytesIO(b"1"))
            if kind == "good":
                good.append(key)
            bad += kind != "good"
    path.write_bytes(gzip.compress(text.getvalue()) if suffix == "gz" else text.getvalue())
    return good, bad


@pytest.mark.slow
@each_row("command", COMMANDS)
def test_samples_and_those_left_out(command: str, run: Run, here: Path) -> None:
    """Random archives with samples that --skip leaves out: each is counted once, in plain and compressed files."""
    for seed in range(4):
        rng = random.Random(f"{seed} {command}")
        work = here / f"{abs(hash(command))}-{seed}"
        work.mkdir()
        suffix = rng.choice(("", "gz"))
        inputs, good, bad = [], [], 0
        for number in range(rng.randint(1, 3)):
            inputs.append(str(work / f"{number}.tar"))
            found, others = grow(rng, Path(inputs[-1]), suffix, 100 * number)
            good, bad = good + found, bad + others
        words = [str(work / word) if word.startswith("out") else word for word in command.split()]
        words[1:2] = inputs
        ran = run(*words, "--skip", "unsafe-name,duplicate-entry", "--report", str(work / "r"), exit=None)
        if "-n" in words and not good:
            continue
        assert ran.status == 0, ran.stderr
        report = json.loads((work / "r").read_text())
        failing = "false" in words
        times = report.get("epochs", 1)
        assert report["samples"] == (0 if failing else times * len(good)), (command, seed)
        assert report.get("dropped", 0) == bad
        if bad:
            assert f"({bad} sample{'s' * (bad != 1)} left out)" in ran.stderr


def test_an_archive_that_ends_early(run: Run, here: Path) -> None:
    """The copy of a truncated archive says that nobody knows what followed; of a whole one it does not."""
    run("create", "-o", "a.tar", stdin=b"".join(b"%d.txt text:%d\n" % (n, n) for n in range(50)))
    whole = Path("a.tar").read_bytes()
    ends = "a.tar: it ends early: what followed is lost as well, and not counted"
    for data, early in ((whole[:9999], True), (whole[:10240], True), (whole, False), (whole + b"x" * 512, False)):
        Path("a.tar").write_bytes(data)
        ran = run("check", "a.tar", "--fix", "b.tar", "--report", "r", exit=None)
        assert (ends in ran.stdout.decode().splitlines()) == early
        assert ("and what followed the end of 1 input" in ran.stdout.decode()) == early
        assert json.loads(Path("r").read_text())["fix"]["end_early"] == early


@pytest.mark.slow
@each_row(("codec", "trailer"), [("gz", 8), ("zst", 4), ("xz", 30), ("lz4", 4), ("bz2", 4)])
def test_what_follows_damage_of_the_compression(codec: str, trailer: int, run: Run, here: Path) -> None:
    """Where the rest of an archive cannot be decoded that is said, since its samples cannot be named and counted."""
    rng = random.Random(codec)
    names = [f"{number:03}.txt" for number in range(60)]
    Path("in.tar").write_bytes(tar({name: rng.randbytes(2000).hex().encode() for name in names}))
    run("cat", "in.tar", "-o", f"in.tar.{codec}", "--compress", f"{codec}:1")
    packed = Path(f"in.tar.{codec}").read_bytes()
    for at, policy in (
        (len(packed) // 3, "--skip"),
        (2 * len(packed) // 3, "--allow"),
        (len(packed) - trailer, "--skip"),
    ):
        Path("bad").write_bytes(packed[:at] + bytes([packed[at] ^ 255]) + packed[at + 1 :])
        ran = run("cat", "bad", policy, "all", "-o", "out.tar", exit=None)
        if ran.status == 0:
            kept = [name for name, _ in entries("out.tar")]
            rest = [line for line in ran.lines if line.endswith(": its samples are left out, and not counted")]
            named = [line for line in ran.lines if "the sample " in line]
            assert kept == names[: len(kept)]
            assert len(rest) == (len(kept) + len(named) < len(names))
            Path("out.tar").unlink()


@pytest.mark.forks
def test_keys_in_many_outputs(run: Run, here: Path) -> None:
    """One of many jobs says nothing of keys that are missing in all; one output for all does."""
    run("create", "-o", "a.tar", stdin=b"".join(b"%d.txt text:%d\n" % (n, n) for n in range(8)))
    run("split", "a.tar", "-c", "2", "-o", "s-%d.tar")
    Path("keys").write_text("0\n5\nx\n")
    ran = run("cat", "s-*.tar", "--keys-from", "keys", "-o", "c-{index}.tar")
    assert "keys" not in ran.stderr
    assert [keys(f"c-{index}.tar") for index in range(4)] == ["0", "", "5", ""]
    assert "3 keys requested, 2 found, 1 missing" in run("cat", "s-*.tar", "--keys-from", "keys", "-o", "d.tar").stderr
    words = ("--keys-from", "keys", "--require-all", "-o", "e-{index}.tar")
    assert "--require-all is for all inputs together" in run("cat", "s-*.tar", *words, exit=2).stderr


def test_hints_of_files_in_the_way(run: Run, here: Path) -> None:
    """What is in the way of an extraction is named with a repair that helps."""
    run("create", "-o", "a.tar", stdin=b"d/a.txt text:1\n")
    for name, make in (("link", lambda path: path.symlink_to("..")), ("file", lambda path: path.write_text(""))):
        Path(name).mkdir()
        make(Path(name, "d"))
        for words in ([], ["--force"], ["--skip", "unsafe-name"]):
            ran = run("extract", "a.tar", "-C", name, *words, exit=1)
            assert ran.lines[1] == "hint: a link or a file is there: remove it, or name another directory with -C"
    Path("folder/d/a.txt").mkdir(parents=True)
    ran = run("extract", "a.tar", "-C", "folder", exit=1)
    assert ran.lines[1] == "hint: it is a directory: remove it, or name another directory with -C"
    run("extract", "a.tar", "-C", "whole")
    assert entries("a.tar") == [("d/a.txt", Path("whole/d/a.txt").read_bytes())]
