"""Writing shards: shards/writer.py. tests/commands/test_split.py tests where shards end."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from itertools import count as numbers
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import CommandFailed
from tarkit.pipeline.output import archives_output
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import parse_template
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample
from tarkit.shards.limits import Limits
from tarkit.shards.series import ShardsPlan
from tarkit.shards.writer import Shard, ShardsWriter, run_post, write_manifest
from tarkit.streams.ranges import HeldRange
from tarkit.streams.sink import open_sink
from tests._tools import batch_of, each_row
from tests.conftest import keys, tar


def samples(count: int) -> list[TarSample]:
    data = tar({f"{number}.x": b"%d" % number for number in range(count)})
    return list(SampleReader(HeldRange("in.tar", 0, data), Policy()))


def writer(
    limits: Limits,
    notes: list[str] | None = None,
    sizes: Iterator[int] | None = None,
    complete: Callable[[Shard, str], None] | None = None,
    **more: Any,
) -> ShardsWriter:
    """Return the writer of a series; `notes` gets what it reports."""
    run = Run()
    run.note = (lambda text: None) if notes is None else notes.append  # type: ignore[method-assign]
    output, template = archives_output("x-%d.tar", None, False), parse_template("x-%d.tar")
    names = islice(map(template.name, numbers()), limits.shards)
    return ShardsWriter(run, ShardsPlan(output, limits, **more), [names], sizes, complete=complete)


def test_shards_are_opened_when_they_get_a_sample(here: Path) -> None:
    """A shard is opened by its first sample and never empty; a finished one is announced with the reason."""
    notes: list[str] = []
    shards = writer(Limits(count=2), notes)
    assert os.listdir() == []
    several = samples(4)
    assert [shards.add(sample) for sample in several[:2]] == [0, 0]
    assert len(os.listdir()) == 1
    assert notes == []
    assert shards.position == 2048
    assert [shards.add(sample) for sample in several[2:]] == [0, 0]
    assert shards.position == 10240 + 2048
    shards.close(4)
    assert notes == [
        "x-0.tar: 2 samples, 10240 bytes, closed by count",
        "x-1.tar: 2 samples, 10240 bytes, closed by end",
    ]
    assert [(shard.first, shard.last, shard.size) for shard in shards.done] == [
        (b"0", b"1", 10240),
        (b"2", b"3", 10240),
    ]
    assert (keys("x-0.tar"), keys("x-1.tar")) == ("0 1", "2 3")


def test_maximum_number_of_shards(here: Path) -> None:
    """Beyond the maximum number of shards a sample is refused, and the last shard is complete."""
    shards = writer(Limits(count=1, shards=2))
    assert [shards.add(sample) for sample in samples(4)] == [0, 0, 1, 1]
    assert sorted(os.listdir()) == ["x-0.tar", "x-1.tar"]


def test_abort(here: Path) -> None:
    """Abort keeps complete shards and nothing else."""
    shards = writer(Limits(count=1))
    for sample in samples(2):
        shards.add(sample)
    shards.abort()
    shards.abort()
    assert os.listdir() == ["x-0.tar"]


def test_sizes(here: Path) -> None:
    """Each shard may have its own number of samples, instead of limits."""
    shards = writer(Limits(), sizes=iter([1, 3, 2]))
    assert [shards.add(sample) for sample in samples(7)] == [0] * 6 + [1]
    assert [shard.samples for shard in shards.done] == [1, 3, 2]


def test_ends_that_the_caller_decides(here: Path) -> None:
    """A shard ends before its limits, and the next sample opens the next one; no shard is empty."""
    ended: list[tuple[Shard, str]] = []
    shards = writer(Limits(count=3), complete=lambda shard, why: ended.append((shard, why)))
    several = samples(5)
    shards.end()
    for number, sample in enumerate(several):
        shards.add(sample)
        if number in (1, 2):
            shards.end()
            shards.settle()
            assert ended[-1][0].last == sample.key
    shards.close(5)
    assert [(shard.name, shard.samples, why) for shard, why in ended] == [
        ("x-0.tar", 2, "end"),
        ("x-1.tar", 1, "end"),
        ("x-2.tar", 2, "end"),
    ]
    assert [shard for shard, _ in ended] == shards.done


def test_ends() -> None:
    """A shard ends before what exceeds its limits, and takes one sample at least."""
    ends = [1024, 2048, 9216, 10240, 20480]
    assert Limits(count=2).end(ends, 1, 1024, 1, 0) == 2
    assert Limits(count=2).end(ends, 1, 1024, 2, 0) == 1
    assert Limits(size=10240).end(ends, 0, 0, 0, 0) == 3
    assert Limits(size=10240).end(ends, 1, 1024, 1, 9000) == 1
    assert Limits(size=10240).end(ends, 4, 10240, 0, 0) == 5
    assert Limits(size=2048, rule="content").end(ends, 0, 0, 0, 0) == 2
    assert Limits(size=2048, rule="content").end(ends, 2, 2048, 1, 2048) == 2
    assert Limits(size=2049, rule="content").end(ends, 2, 2048, 1, 2048) == 3
    assert Limits().end(ends, 1, 1024, 1, 1) == 5


@each_row("seed", range(60))
def test_runs(seed: int, here: Path) -> None:
    """Batches of any lengths, and samples between them, give the shards that their samples give one by one."""
    pick = random.Random(seed)
    data = tar({f"{number}.x": bytes(pick.choice([0, 10, 600, 30_000])) for number in range(pick.randint(1, 40))})
    several = list(SampleReader(HeldRange("in.tar", 0, data), Policy()))
    rule: Any = pick.choice(["tar", "content"])
    limits = Limits(
        count=pick.choice([None, 1, 2, 7, 100]),
        size=pick.choice([None, 512, 10_240, 20_480, 40_960]),
        rule=rule,
        shards=pick.choice([None, 1, 3]),
    )
    notes: tuple[list[str], list[str]] = [], []
    one = writer(limits, notes[0])
    unwritten = sum(one.add(sample) for sample in several)
    one.close(len(several) - unwritten)
    shards = one.done
    for shard in shards:
        os.unlink(shard.name)
    other = writer(limits, notes[1])
    number = full = 0
    while number < len(several) and not full:
        part = several[number : number + pick.randint(1, 12)]
        number += len(part)
        full = other.add(part[0] if len(part) == 1 and pick.getrandbits(1) else batch_of(part))
        assert other.samples == [number - full]
    other.close(number - full)
    assert notes[0] == notes[1]
    assert shards == other.done
    assert one.samples == other.samples == [len(several) - unwritten]


@each_row("name", ["plain", "two words", "it's", '"', "$HOME", "a;b", "-n", "\udce9", "{}", "%s", "\n"])
def test_post_quotes_the_name(name: str, here: Path) -> None:
    """The command gets exactly the name of the shard, and no part of the name is run."""
    Path("seen").write_text("")
    for command in ("printf %s {} > seen", "printf %''s %s > seen", "printf %''s \"$TARKIT_SHARD\" > seen"):
        run_post(command, name)
        assert Path("seen").read_bytes() == name.encode("utf-8", "surrogateescape")


def test_post_without_a_placeholder(here: Path) -> None:
    """%s is the name only without {}; stdin is empty."""
    run_post("cat > seen; printf X >> seen; test %s", "a b")
    assert Path("seen").read_text() == "X"
    run_post("echo {} '%s' > seen", "x y")
    assert Path("seen").read_text() == "x y %s\n"
    run_post("echo %s %s > seen", "x y")
    assert Path("seen").read_text() == "x y x y\n"
    run_post("echo none > seen", "x y")
    assert Path("seen").read_text() == "none\n"


def test_post_that_fails() -> None:
    """A status other than 0 anywhere in the pipeline is an error, with a hint which shard is complete."""
    with pytest.raises(CommandFailed, match=r"command ended with status 3: exit 3") as caught:
        run_post("exit 3", "x.tar")
    assert caught.value.hint == "the shard x.tar is complete; for those after it the command was not run"
    with pytest.raises(CommandFailed, match=r"SIGTERM"):
        run_post("kill -TERM $$", "x.tar")


def test_manifest(here: Path) -> None:
    """The manifest has one row for each shard; tabs, newlines and backslashes in names are escaped."""
    with open_sink("path", "m.tsv") as sink:
        write_manifest(sink, [Shard("a\tb\\.tar", 2, 10240, 77, b"k\n1", b"\xe9", "00ff")])
    assert Path("m.tsv").read_bytes() == (
        b"shard\tsamples\tbytes\tsha256\tfirst\tlast\na\\tb\\\\.tar\t2\t77\t00ff\tk\\n1\t\xe9\n"
    )
