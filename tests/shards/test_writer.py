"""Writing shards: shards/writer.py. tests/commands/test_split.py tests where shards end."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from itertools import count as numbers
from itertools import islice
from pathlib import Path
from typing import Any

from tarkit.pipeline.output import archives_output
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import parse_template
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample
from tarkit.shards.limits import Limits
from tarkit.shards.series import ShardsPlan
from tarkit.shards.writer import Shard, ShardsWriter, run_post
from tarkit.streams.ranges import HeldRange
from tests._tools import batch_of, each_row
from tests.conftest import tar


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
    assert one.position == other.position == sum(shard.size for shard in shards)
    assert one.samples == other.samples == [len(several) - unwritten]


@each_row("name", ["plain", "two words", "it's", '"', "$HOME", "a;b", "-n", "\udce9", "{}", "%s", "\n"])
def test_post_quotes_the_name(name: str, here: Path) -> None:
    """The command gets exactly the name of the shard, and no part of the name is run."""
    Path("seen").write_text("")
    for command in ("printf %s {} > seen", "printf %''s %s > seen", "printf %''s \"$TARKIT_SHARD\" > seen"):
        run_post(command, name)
        assert Path("seen").read_bytes() == name.encode("utf-8", "surrogateescape")
