"""The writing half of `shard`: a plan is saved, or read again, and its shards are written.

@pack_options                         hands over `pack`, a PackOptions
plan = saved_plan(run, pack)          the rows of --from-plan, when that was given
run_pack(run, plan, output, pack, template)
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from tarkit.commands import _options as options
from tarkit.commands._output import Output, status_of
from tarkit.commands._run import Run
from tarkit.dataset.depfile import make_rule
from tarkit.dataset.names import Template
from tarkit.dataset.packer import Packed, Packing, Task, pack_all, progress
from tarkit.dataset.packer_resume import Journal, Known, identity
from tarkit.dataset.packer_spool import PlannedShard, Spool
from tarkit.dataset.plan import Planned, SavedPlan, write_plan
from tarkit.dataset.shards import Shard, run_post, write_manifest
from tarkit.errors import TarkitError, Usage, show
from tarkit.streams.location import parse_output
from tarkit.streams.scratch import Scratch
from tarkit.streams.sink import Sink, open_sink


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


def saved_plan(run: Run, chosen: PackOptions) -> Iterable[Planned]:
    """The rows of --from-plan, for `run_pack`, which reads them. Raises TarkitError `FILE:LINE: reason` then."""
    path = chosen.from_plan
    assert path is not None
    if path == "-":
        if os.isatty(0):
            raise Usage("stdin is a terminal", "name the plan, or send one in")
        return SavedPlan(open(0, "rb", closefd=False), "stdin")
    run.reserve(path, "the plan", written=False)
    return SavedPlan(open(path, "rb"), path)


def run_pack(
    run: Run, plan: Iterable[Planned], output: Output, chosen: PackOptions, template: Template | None = None
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
    written = [path for _, own, path in run.places.values() if own]
    spool = Spool(
        run.scratch(output),
        plan_name=plan.name if isinstance(plan, SavedPlan) else None,
        refused=filter(None, map(status_of, [*existing, *written])),
        agrees=isinstance(plan, SavedPlan),
        missing=chosen.skip_missing,
    )
    shards = spool.fill(plan)
    names = [os.fsdecode(shard.name) for shard in shards]
    _check_names(run, names, spool.plan_name)
    existing += [name for name in names if name not in set(existing) and os.path.exists(name)]
    _check_existing(existing, set(names), chosen)
    packer = _Packer(run, output, chosen, spool, shards)
    packer.write()
    _wind_up(run, packer, existing, set(names))


def _save(run: Run, plan: Iterable[Planned], path: str) -> None:
    """Write the plan in place of its shards."""
    run.reserve(path, "the plan")
    count = size = 0

    def counted() -> Iterator[Planned]:
        nonlocal count, size
        for row in plan:
            count += 1
            size += row.size
            yield row

    with open_sink(*(("stdout", "-") if path == "-" else ("path", path))) as sink:
        write_plan(sink, counted())
    run.facts["rows"] = count
    run.bytes = size
    run.finish()


def _check_names(run: Run, names: list[str], plan_name: str | None) -> None:
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


class _Packer:
    """Writes all shards and remembers what is to be said of them."""

    def __init__(self, run: Run, output: Output, chosen: PackOptions, spool: Spool, shards: list[PlannedShard]) -> None:
        self.run, self.chosen, self.spool, self.shards = run, chosen, spool, shards
        self.done: list[Shard] = []
        self.total = sum(shard.size for shard in shards)
        self.journal: Journal | None = None
        if chosen.resume and shards:
            folder, base = os.path.split(os.fsdecode(shards[0].name))
            self.journal = Journal(os.path.join(folder, f".{base}.resume"))
        self.counters = Scratch(run.scratch(output)) if run.shows_progress else None
        settings = f"{chosen.mtime} {output.codec} {chosen.post is not None}"
        self.packing = Packing(
            spool.file.fd,
            partial(_open_shard, output),
            counters=self.counters.fd if self.counters else -1,
            plan_name=spool.plan_name,
            mtime=chosen.mtime,
            skip=chosen.skip_missing,
            resume=chosen.resume,
            replace=chosen.force,
            digest=chosen.manifest is not None,
            posted=chosen.post is not None,
            settings=settings,
            tmpdir=run.scratch(output),
        )

    def write(self) -> None:
        """Write them; what is complete is noted as soon as that is known."""
        counters, count = self.counters, len(self.shards)
        known = self.journal.read() if self.journal else {}
        tasks = (Task(number, shard, known.get(os.fsdecode(shard.name))) for number, shard in enumerate(self.shards))
        processes = min(self.chosen.parallel or os.cpu_count() or 1, count)
        results = pack_all(self.packing, tasks, processes)
        if counters:
            counters.write(bytes(8 * count))
            position = partial(progress, counters.fd, count)
            results = self.run.draw(results, position, lambda: self.run.samples, self.total)
        try:
            for packed in results:
                if packed is not None:
                    self._complete(packed)
        finally:
            if self.journal:
                self.journal.close(False)

    def _complete(self, packed: Packed) -> None:
        run, chosen, shard = self.run, self.chosen, packed.shard
        run.samples += packed.planned
        _add(run.facts, "entries", packed.rows)
        for what in packed.skipped:
            run.warn(what)
        if packed.skipped:
            _add(run.facts, "missing", len(packed.skipped))
        if shard is None:
            return
        self.done.append(shard)
        if packed.kept:
            _add(run.facts, "kept", 1)
        words = "kept, it is as planned" if packed.kept else f"{packed.planned} samples, {shard.size} bytes"
        run.note(f"{shard.name}: {words}")
        if chosen.post is not None and not packed.known:
            run_post(chosen.post, shard.name)
        if self.journal and packed.fingerprint and not packed.known and not packed.skipped:
            numbers = (packed.planned, packed.content, packed.rows)
            self.journal.add(Known(packed.fingerprint, identity(shard.name), shard, *numbers))


def _open_shard(output: Output, name: str) -> Sink:
    """Open a shard by its name: in a process of its own, perhaps."""
    location = parse_output(name)
    return replace(output, location=location).open_named(location.text)


def _add(facts: dict[str, Any], name: str, count: int) -> None:
    facts[name] = facts.get(name, 0) + count


def _wind_up(run: Run, packer: _Packer, existing: list[str], planned: set[str]) -> None:
    """What comes after the last shard: stale ones go, depfile and manifest, the summary."""
    chosen, done = packer.chosen, packer.done
    made = {shard.name for shard in done}
    if chosen.force:
        for path in existing:
            if path not in made:
                run.note(f"{path}: removed, it is of an earlier run")
                os.unlink(path)
    if chosen.depfile is not None:
        target = chosen.depfile_target or (done[0].name if done else "")
        with open_sink("path", chosen.depfile) as sink:
            sink.write(make_rule(target, packer.spool.sources(packer.shards)))
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
