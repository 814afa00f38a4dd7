"""Writing shards: shards/writer.py. tests/commands/test_split.py tests where shards end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count as numbers
from itertools import islice
from pathlib import Path

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
from tests._tools import each_row
from tests.conftest import tar


def samples(count: int) -> list[TarSample]:
    data = tar({f"{number}.x": b"%d" % number for number in range(count)})
    return list(SampleReader(HeldRange("in.tar", 0, data), Policy()))


def writer(limits: Limits, complete: Callable[[Shard, str], None]) -> ShardsWriter:
    """Return the writer of a series."""
    output, template = archives_output("x-%d.tar", None, False), parse_template("x-%d.tar")
    names = islice(map(template.name, numbers()), limits.shards)
    return ShardsWriter(Run(), ShardsPlan(output, limits), [names], complete=complete)


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
        assert shards.position >= sum(shard.size for shard, _ in ended)
    shards.close(5)
    assert [(shard.name, shard.samples, why) for shard, why in ended] == [
        ("x-0.tar", 2, "end"),
        ("x-1.tar", 1, "end"),
        ("x-2.tar", 2, "end"),
    ]
    assert [shard for shard, _ in ended] == shards.done
    assert shards.position == sum(shard.size for shard in shards.done)


@each_row("name", ["plain", "two words", "it's", '"', "$HOME", "a;b", "-n", "\udce9", "{}", "%s", "\n"])
def test_post_quotes_the_name(name: str, here: Path) -> None:
    """The command gets exactly the name of the shard, and no part of the name is run."""
    Path("seen").write_text("")
    for command in ("printf %s {} > seen", "printf %''s %s > seen", "printf %''s \"$TARKIT_SHARD\" > seen"):
        run_post(command, name)
        assert Path("seen").read_bytes() == name.encode("utf-8", "surrogateescape")
