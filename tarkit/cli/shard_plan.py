"""The second half of `shard`: a plan is saved or read, and its shards are written.

@pack_options                         hands over `pack`, a PackOptions
check_templates(templates, pack, update), existing_entries(templates, scratch)
                                      what is there under the names of the shards
plan = saved_plan(run, pack)          the rows of --from-plan, when that was given
run_pack(run, plan, output, pack, template)
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import click

from tarkit.api.output import Output, status_of
from tarkit.cli import options
from tarkit.cli.command import choice, option
from tarkit.cli.console import ConsoleRun
from tarkit.cli.shard_run import Packer, PackOptions
from tarkit.errors import Problem, TarkitError, Usage, show
from tarkit.packing.plan import Planned, SavedPlan, write_plan
from tarkit.packing.spool import RowSpool
from tarkit.shards.template import ShardTemplate, refuse_existing
from tarkit.shards.writer import write_manifest
from tarkit.sorting.memory import no_collections
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import parse_output
from tarkit.streams.sink import open_sink
from tarkit.tables.depfile import make_rule

__all__ = ["PackOptions", "check_templates", "existing_entries", "pack_options", "run_pack", "saved_plan"]


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
) -> PackOptions:
    writers = parallel if parallel is None else parallel or os.cpu_count() or 1
    time, skip = options.parse_mtime(mtime), on_missing == "skip"
    return PackOptions(plan, from_plan, writers, force, resume, skip, time, post, manifest, depfile, depfile_target)


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


def check_templates(templates: Sequence[ShardTemplate], pack: PackOptions, update: bool) -> None:
    """Look at the names of shards before the tree is listed, which may take long.

    Raises:
        FileNotFoundError: for a directory that does not exist
        TarkitError: for existing shards, unless an option says what to do about them
    """
    for template in templates:
        if template.directory and not os.path.isdir(template.directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), template.name(0))
        if not (pack.force or pack.resume or update):
            hint = "--resume keeps those that are as planned, --update packs what is new, --force replaces them"
            refuse_existing([path for _, path in template.existing()], hint)


def existing_entries(templates: Sequence[ShardTemplate], scratch: str | None) -> tuple[list[int], dict[bytes, int]]:
    """Return the number at which each template continues, and the entries of all existing shards with their sizes."""
    from tarkit.packing.resume import entries_of

    existing = [template.existing() for template in templates]
    for template in templates:
        _refuse_packed(template)
    try:
        known = entries_of([path for found in existing for _, path in found], scratch)
    except Problem as problem:
        problem.hint = "--update has to know what is in each shard: repair it with check --fix, or make it again"
        raise
    return [found[-1][0] + 1 if found else 0 for found in existing], known


def _refuse_packed(template: ShardTemplate) -> None:
    """Raise TarkitError for a shard that has a suffix of compression besides its name: --update would not see it."""
    if not os.path.isdir(template.directory or "."):
        return
    for base in sorted(os.listdir(template.directory or ".")):
        path = template.directory + base
        if (
            codec_by_suffix(base)
            and template.matches(path) is None
            and template.matches(path.rpartition(".")[0]) is not None
        ):
            raise TarkitError(
                f"{path}: --update cannot read a shard that was compressed",
                "use the present names of the shards, or move it away",
            )


def saved_plan(run: ConsoleRun, chosen: PackOptions) -> Iterable[Planned]:
    """Return the rows of --from-plan for `run_pack`; reading them may raise TarkitError `FILE:LINE: reason`."""
    path = chosen.from_plan
    assert path is not None
    if path == "-":
        if os.isatty(0):
            raise Usage("stdin is a terminal", "name the plan, or pipe one to stdin")
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
            run.warn(f"{name}: samples in several shards, or not contiguous: {several}, {show(first)} first")
    packer = Packer(run, output, chosen, spool, shards)
    packer.write()
    _wind_up(run, packer, existing)


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


def _check_names(run: ConsoleRun, names: list[str], plan_name: str | None) -> None:
    """Raise an error for names that shards cannot have."""
    seen: dict[str, str] = {}
    for name in names:
        location = parse_output(name)
        if location.kind != "path":
            if location.kind != "url":
                raise Usage(f"{name}: a shard must be a file or a URL")
            continue
        path = os.path.realpath(location.text)
        other = seen.setdefault(path, name)
        if other != name:
            raise TarkitError(f"{plan_name or 'the plan'}: {show(other)} and {show(name)} are the same file")
        if path in run.places:
            raise Usage(f"{run.places[path][2]} is {run.places[path][0]}, and has the name of a shard")
    for folder in {os.path.dirname(path) for path in seen}:
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)


def _check_existing(existing: list[str], planned: set[str], chosen: PackOptions) -> None:
    """Raise TarkitError for existing shards, unless an option says what to do about them."""
    if chosen.force:
        return
    if chosen.resume:
        others = [path for path in existing if path not in planned]
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise TarkitError(
                f"{others[0]}{more}: there, but not in the plan",
                "--resume with --force keeps what is as planned, and replaces the rest",
            )
        return
    refuse_existing(existing, "--resume keeps those that are as planned, --force replaces them")


def _wind_up(run: ConsoleRun, packer: Packer, existing: list[str]) -> None:
    """Finish the run: remove stale shards, write depfile and manifest, print the summary."""
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
