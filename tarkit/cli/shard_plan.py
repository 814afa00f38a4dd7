"""The writing half of `shard`: a plan is saved, or read again, and its shards are written.

@pack_options                         hands over `pack`, a PackOptions
plan = saved_plan(run, pack)          the rows of --from-plan, when that was given
run_pack(run, plan, output, pack, template)
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import click

from tarkit.api.output import Output, status_of
from tarkit.cli import options
from tarkit.cli.console import ConsoleRun
from tarkit.cli.shard_run import Packer, PackOptions
from tarkit.errors import TarkitError, Usage, show
from tarkit.packing.plan import Planned, SavedPlan, write_plan
from tarkit.packing.spool import RowSpool
from tarkit.shards.template import ShardTemplate
from tarkit.shards.writer import write_manifest
from tarkit.sorting.memory import no_collections
from tarkit.streams.location import parse_output
from tarkit.streams.sink import open_sink
from tarkit.tables.depfile import make_rule

__all__ = ["PackOptions", "pack_options", "run_pack", "saved_plan"]


def _pack(
    plan: str | None,
    from_plan: str | None,
    parallel: int | None,
    force: bool,
    resume: bool,
    on_missing: str,
    when: str | None,
    post: str | None,
    manifest: str | None,
    depfile: str | None,
    depfile_target: str | None,
) -> PackOptions:
    writers = parallel if parallel is None else parallel or os.cpu_count() or 1
    mtime, skip = options.parse_mtime(when), on_missing == "skip"
    return PackOptions(plan, from_plan, writers, force, resume, skip, mtime, post, manifest, depfile, depfile_target)


pack_options: Any = options.group(
    "pack",
    _pack,
    click.option(
        "--plan",
        type=options.WRITTEN,
        metavar="FILE",
        help="Save the plan to FILE, a table to be edited, and write no shard.",
    ),
    click.option("--from-plan", metavar="FILE", help="Write the shards of a plan that was saved; - is stdin."),
    click.option(
        "-p",
        "--parallel",
        type=click.IntRange(0),
        metavar="N",
        help="Write N shards at a time; 0: one a processor.  [default: 1; up to 4 for 20000 files and more]",
    ),
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
    options.post("--post"),
    click.option(
        "--manifest",
        type=options.WRITTEN,
        metavar="FILE",
        help="List the shards in FILE: samples, bytes, sha256, keys.",
    ),
    click.option(
        "--depfile", type=options.WRITTEN, metavar="FILE", help="Write what the shards depend on to FILE, for make."
    ),
    click.option("--depfile-target", metavar="NAME", help="What the depfile calls the shards.  [default: the first]"),
)


def saved_plan(run: ConsoleRun, chosen: PackOptions) -> Iterable[Planned]:
    """The rows of --from-plan, for `run_pack`, which reads them. Raises TarkitError `FILE:LINE: reason` then."""
    path = chosen.from_plan
    assert path is not None
    if path == "-":
        if os.isatty(0):
            raise Usage("stdin is a terminal", "name the plan, or send one in")
        return SavedPlan(open(0, "rb", closefd=False), "stdin")
    run.reserve(path, "the plan", written=False)
    return SavedPlan(open(path, "rb"), path)


@no_collections()
def run_pack(
    run: ConsoleRun, plan: Iterable[Planned], output: Output, chosen: PackOptions, template: ShardTemplate | None = None
) -> None:
    """Save the plan, with --plan, or write its shards.

    Rows may come in any order. Names of shards are complete paths or URLs, so of `output` only codec, --fsync and
    threads count. Files that match `template` count as shards that are there; without one those of the plan's names do.
    Everything that can be known is checked before the first shard is opened.
    """
    if chosen.plan is not None:
        _save(run, plan, chosen.plan)
        return
    for path, what in ((chosen.manifest, "the manifest"), (chosen.depfile, "the depfile")):
        run.reserve(path, what)
    existing = [path for _, path in template.existing()] if template is not None else []
    saved = isinstance(plan, SavedPlan)
    name = plan.name if isinstance(plan, SavedPlan) else None
    spool = RowSpool(run.scratch(output.folder), plan_name=name, agrees=saved, missing=chosen.skip_missing)
    shards = spool.fill(plan)
    names = [os.fsdecode(shard.name) for shard in shards]
    _check_names(run, names, spool.plan_name)
    for each in names:
        output.check_time(chosen.mtime, each)
    there = set(existing)
    existing += [name for name in names if name not in there and os.path.exists(name)]
    _check_existing(existing, set(names), chosen)
    written = [*existing, *(path for _, own, path in run.places.values() if own)]
    spool.refuse(shards, [status for status in map(status_of, written) if status])
    if saved:
        several, first = spool.in_several(shards)
        if several:
            run.warn(f"{name}: samples that are in several shards, or torn apart: {several}, {show(first)} first")
    packer = Packer(run, output, chosen, spool, shards)
    packer.write()
    _wind_up(run, packer, existing)


def _save(run: ConsoleRun, plan: Iterable[Planned], path: str) -> None:
    """Write the plan in place of its shards."""
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


def _check_names(run: ConsoleRun, names: list[str], plan_name: str | None) -> None:
    """Raise what stands in the way of shards of these names."""
    seen: dict[str, str] = {}
    for name in names:
        location = parse_output(name)
        if location.kind != "path":
            if location.kind != "url":
                raise Usage(f"{name}: a shard is a file or has a URL")
            continue
        path = os.path.realpath(location.text)
        other = seen.setdefault(path, name)
        if other != name:
            raise TarkitError(f"{plan_name or 'the plan'}: {show(other)} and {show(name)} are one file")
        if path in run.places:
            raise Usage(f"{run.places[path][2]} is {run.places[path][0]}, and has the name of a shard")
    for folder in {os.path.dirname(path) for path in seen}:
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)


def _check_existing(existing: list[str], planned: set[str], chosen: PackOptions) -> None:
    """Raise TarkitError when shards are there and nobody said what to do."""
    if not existing or chosen.force:
        return
    if chosen.resume:
        others = [path for path in existing if path not in planned]
        if others:
            what = f"{others[0]}{_more(others)}: there, but not in the plan"
            raise TarkitError(what, "--resume with --force keeps what is as planned, and replaces the rest")
        return
    what = f"{existing[0]}{_more(existing)}: there are shards of this name"
    raise TarkitError(what, "--resume keeps those that are as planned, --force replaces them")


def _more(paths: list[str]) -> str:
    return f" and {len(paths) - 1} more" if len(paths) > 1 else ""


def _wind_up(run: ConsoleRun, packer: Packer, existing: list[str]) -> None:
    """What comes after the last shard: stale ones go, depfile and manifest, the summary."""
    chosen, done = packer.chosen, packer.done
    made = {shard.name for shard in done}
    if chosen.force:
        run.remove_others([path for path in existing if path not in made])
    if chosen.depfile is not None:
        first = os.fsdecode(packer.shards[0].name) if packer.shards else ""
        own = [os.fsencode(chosen.from_plan)] if chosen.from_plan not in (None, "-") else []
        rule = make_rule(chosen.depfile_target or first, chain(own, packer.spool.sources(packer.shards)))
        with open_sink("path", chosen.depfile) as sink:
            sink.write(rule if packer.shards else b"")
    if chosen.manifest is not None:
        with open_sink("path", chosen.manifest) as sink:
            write_manifest(sink, done)
    if packer.journal:
        packer.journal.close(True)
    if not done:
        run.tell("no sample, so no shard")
    run.shards = len(done)
    run.bytes = sum(shard.size for shard in done)
    run.finish()
