"""The writing half of `shard`: a plan is saved, or read again, and its shards are written.

@pack_options                         hands over `pack`, a PackOptions
plan = saved_plan(run, pack)          the rows of --from-plan, when that was given
run_pack(run, plan, output, pack, template)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from tarkit.commands import _options as options
from tarkit.commands._output import Output
from tarkit.commands._run import Run
from tarkit.dataset.names import Template
from tarkit.dataset.plan import Planned


@dataclass(frozen=True)
class PackOptions:
    """What becomes of a plan, and how its shards are written.

    `plan` is where it is saved in place of being run, `from_plan` where it was (- is stdin). `parallel` shards are
    written at a time. `mtime` None: each source's own time.
    """

    plan: str | None = None
    from_plan: str | None = None
    parallel: int = 1
    force: bool = False
    resume: bool = False
    skip_missing: bool = False
    mtime: int | None = 0
    post: str | None = None
    manifest: str | None = None
    depfile: str | None = None
    depfile_target: str | None = None


def _pack(
    plan: str | None,
    from_plan: str | None,
    parallel: int,
    force: bool,
    resume: bool,
    on_missing: str,
    when: str | None,
    post: str | None,
    manifest: str | None,
    depfile: str | None,
    depfile_target: str | None,
) -> PackOptions:
    mtime = options.parse_mtime(when)
    skip = on_missing == "skip"
    return PackOptions(plan, from_plan, parallel, force, resume, skip, mtime, post, manifest, depfile, depfile_target)


pack_options: Any = options.group(
    "pack",
    _pack,
    click.option("--plan", metavar="FILE", help="Save the plan to FILE and write no shard."),
    click.option("--from-plan", metavar="FILE", help="Write the shards of a plan that was saved, edited perhaps."),
    click.option("-p", "--parallel", type=click.IntRange(1), default=1, metavar="N", help="Write N shards at a time."),
    click.option("--force", is_flag=True, help="Replace the shards that are there."),
    click.option("--resume", is_flag=True, help="Go on where a run ended: shards that are as planned stay."),
    click.option(
        "--on-missing",
        type=click.Choice(["error", "skip"]),
        default="error",
        metavar="error|skip",
        help="When a file is gone: end, or leave its sample out.  [default: error]",
    ),
    click.option(
        "--mtime",
        "when",
        metavar="WHEN",
        help="Time of the entries that are made: source, now or @SECONDS.  [default: @0]",
    ),
    click.option("--post", metavar="COMMAND", help="Run COMMAND after each shard, which it may move; {} is its name."),
    click.option("--manifest", metavar="FILE", help="List the shards in FILE: samples, bytes, sha256, keys."),
    click.option("--depfile", metavar="FILE", help="Write what the shards depend on to FILE, for make."),
    click.option("--depfile-target", metavar="NAME", help="What the depfile calls the shards.  [default: the first]"),
)


def saved_plan(run: Run, chosen: PackOptions) -> Iterator[Planned]:
    """The rows of --from-plan, each shard's together. Raises TarkitError `FILE:LINE: reason`."""
    raise NotImplementedError


def run_pack(
    run: Run, plan: Iterator[Planned], output: Output, chosen: PackOptions, template: Template | None = None
) -> None:
    """Save the plan, with --plan, or write its shards.

    Rows come shard by shard, in each in order of position; names of shards are complete paths or URLs, so of `output`
    only codec, --fsync and threads count. Files that match `template` count as shards that are there; without one those
    of the plan's names do. Everything that can be known is checked before the first shard is opened.
    """
    raise NotImplementedError
