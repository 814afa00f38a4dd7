"""Options of `shard` about a plan: it is saved, or read again, and its shards are written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import click

from tarkit.api.output import Output
from tarkit.api.plan import pack
from tarkit.cli import options
from tarkit.cli.command import choice, option
from tarkit.cli.console import ConsoleRun
from tarkit.errors import Usage
from tarkit.packing.packer import Packer, PackOptions
from tarkit.packing.plan import Planned, SavedPlan, write_plan
from tarkit.shards.template import ShardTemplate
from tarkit.shards.writer import write_manifest
from tarkit.streams.sink import open_sink
from tarkit.tables.depfile import make_rule


@dataclass(frozen=True)
class PlanOptions(PackOptions):
    """How shards are written, and other files: `plan` is saved in their place, `from_plan` is read (- is stdin)."""

    plan: str | None = None
    from_plan: str | None = None
    manifest: str | None = None
    depfile: str | None = None
    depfile_target: str | None = None


def _pack(
    plan: str | None,
    from_plan: str | None,
    parallel: int | None,
    force: bool,
    resume: bool,
    on_missing: str,
    mtime: str | None,
    post: str | None,
    manifest: str | None,
    depfile: str | None,
    depfile_target: str | None,
) -> PlanOptions:
    writers = parallel if parallel is None else parallel or os.cpu_count() or 1
    time, skip = options.parse_mtime(mtime), on_missing == "skip"
    return PlanOptions(writers, force, resume, skip, time, post, plan, from_plan, manifest, depfile, depfile_target)


pack_options = options.group(
    "pack",
    _pack,
    options.FORCE,
    option("Output", "--resume", is_flag=True, help="Continue a run: keep shards that are as planned."),
    options.MTIME,
    options.post("--post"),
    options.MANIFEST,
    options.DEPFILE,
    options.DEPFILE_TARGET,
    option(
        "Output",
        "-p",
        "--parallel",
        type=click.IntRange(0),
        metavar="N",
        help="Write N shards at a time; 0: one per CPU.",
        more="The default is 1, and up to 4 from 20000 files on.",
    ),
    options.written(
        "--plan", "Save the plan to FILE, and write no shard.", "FILE is a table, which may be edited.", "Plan"
    ),
    option("Plan", "--from-plan", metavar="FILE", help="Write the shards of a saved plan; - is stdin."),
    choice(
        "Problems",
        "--on-missing",
        choices="error|skip",
        help="For a file that is gone.",
        more="skip leaves its sample out.",
    ),
)


def saved_plan(run: ConsoleRun, chosen: PlanOptions) -> Iterable[Planned]:
    """Return the rows of --from-plan, which `run_pack` reads."""
    path = chosen.from_plan
    assert path is not None
    if path == "-":
        if os.isatty(0):
            raise Usage("stdin is a terminal", "name the plan, or pipe one to stdin")
        return SavedPlan(open(0, "rb", closefd=False), "stdin")
    run.reserve(path, "the plan", written=False)
    return SavedPlan(open(path, "rb"), path)


def run_pack(
    run: ConsoleRun, plan: Iterable[Planned], output: Output, chosen: PlanOptions, template: ShardTemplate | None = None
) -> None:
    """Save the plan, with --plan, or write its shards.

    Names of shards are complete paths or URLs, so of `output` only codec, --fsync and threads count. Files that match
    `template` count as existing shards; without one those of the plan's names do.
    """
    if chosen.plan is not None:
        _save(run, plan, chosen.plan)
        return
    for path, what in ((chosen.manifest, "the manifest"), (chosen.depfile, "the depfile")):
        run.reserve(path, what)

    def check(path: str) -> None:
        place = run.places.get(path)
        if place:
            raise Usage(f"{place[2]} is {place[0]}, and has the name of a shard")

    written = [path for _, own, path in run.places.values() if own]
    digest = chosen.manifest is not None
    packer = pack(run, plan, output, chosen, template, digest=digest, check=check, written=written)
    _finish(run, packer, chosen)


def _save(run: ConsoleRun, plan: Iterable[Planned], path: str) -> None:
    """Write the plan instead of its shards."""
    run.reserve(path, "the plan")
    count = 0
    last: tuple[bytes, int] | None = None

    def counted() -> Iterator[Planned]:
        nonlocal count, last
        for row in plan:
            count += 1
            run.bytes += row.size
            if (row.shard, row.position) != last:
                run.shards += last is None or last[0] != row.shard
                run.samples += 1
                last = row.shard, row.position
            yield row

    with open_sink(*(("stdout", "-") if path == "-" else ("path", path))) as sink:
        write_plan(sink, counted())
    run.facts["entries"] = count
    run.extra = " planned"
    run.finish()


def _finish(run: ConsoleRun, packer: Packer, chosen: PlanOptions) -> None:
    """Write depfile, manifest and summary, after the last shard."""
    if chosen.depfile is not None:
        first = packer.names[0] if packer.names else ""
        own = [os.fsencode(chosen.from_plan)] if chosen.from_plan not in (None, "-") else []
        rule = make_rule(chosen.depfile_target or first, chain(own, packer.spool.sources(packer.shards)))
        with open_sink("path", chosen.depfile) as sink:
            sink.write(rule if packer.shards else b"")
    if chosen.manifest is not None:
        with open_sink("path", chosen.manifest) as sink:
            write_manifest(sink, packer.done)
    packer.finish()
    run.finish()
