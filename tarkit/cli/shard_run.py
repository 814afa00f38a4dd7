"""The run of a plan whose rows are known: its shards are written, and what is to be said of them is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tarkit.cli.console import Run
from tarkit.cli.output import Output
from tarkit.errors import CommandFailed
from tarkit.packing.resume import Journal, Known, identity
from tarkit.packing.spool import PlannedShard, RowSpool
from tarkit.packing.writer import Packed, Packing, Task, pack_all, progress
from tarkit.shards.writer import Shard, run_post
from tarkit.streams.location import parse_output
from tarkit.streams.sink import Sink, short_name
from tarkit.streams.tempfile import TemporaryFile

FEW = 20_000  # files from which on several processes write shards, MOST at a time unless more are asked for
MOST = 4
SHARE = 50_000  # files in the shards that a process gets, if that leaves ROUNDS turns for each
ROUNDS = 2


@dataclass(frozen=True)
class PackOptions:
    """What becomes of a plan, and how its shards are written.

    `plan` is where it is saved in place of being run, `from_plan` where it was (- is stdin). `parallel` shards are
    written at a time, None: as many as is worth it. `mtime` None: each source's own time.
    """

    plan: str | None = None
    from_plan: str | None = None
    parallel: int | None = None
    force: bool = False
    resume: bool = False
    skip_missing: bool = False
    mtime: int | None = 0
    post: str | None = None
    manifest: str | None = None
    depfile: str | None = None
    depfile_target: str | None = None


class Packer:
    """Writes all shards and remembers what is to be said of them."""

    def __init__(
        self, run: Run, output: Output, chosen: PackOptions, spool: RowSpool, shards: list[PlannedShard]
    ) -> None:
        self.run, self.chosen, self.spool, self.shards = run, chosen, spool, shards
        self.done: list[Shard] = []
        self.total = sum(shard.size for shard in shards)
        self.journal: Journal | None = None
        if chosen.resume and shards:
            folder, base = os.path.split(os.fsdecode(shards[0].name))
            self.journal = Journal(os.path.join(folder, f".{short_name(base)}.0.part"))
        self.counters = TemporaryFile(run.scratch(output)) if run.shows_progress else None
        self.processes, share = _hands(chosen, shards)
        settings = f"{chosen.mtime} {output.codec}"
        self.packing = Packing(
            spool.file.fd,
            partial(_open_shard, output, not chosen.force),
            counters=self.counters.fd if self.counters else -1,
            plan_name=spool.plan_name,
            mtime=chosen.mtime,
            skip=chosen.skip_missing,
            resume=chosen.resume,
            replace=chosen.force,
            digest=chosen.manifest is not None,
            posted=chosen.post is not None,
            settings=settings,
            share=share,
            tmpdir=run.scratch(output),
        )

    def write(self) -> None:
        """Write them; what is complete is noted as soon as that is known."""
        counters, count = self.counters, len(self.shards)
        known = self.journal.read() if self.journal else {}
        tasks = (Task(number, shard, known.get(os.fsdecode(shard.name))) for number, shard in enumerate(self.shards))
        packing = pack_all(self.packing, tasks, self.processes)
        shown: Iterator[Packed | None] = packing
        if counters:
            counters.write(bytes(8 * count))
            position = partial(progress, counters.fd, count)
            shown = self.run.draw(packing, position, lambda: self.run.samples, self.total)
        try:
            for packed in shown:
                if packed is not None:
                    self._complete(packed)
        finally:
            packing.close()
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
            try:
                run_post(chosen.post, shard.name)
            except CommandFailed as error:
                error.hint = f"the shard {shard.name} is complete; for those after it the command was not run"
                raise
        if self.journal and packed.fingerprint and not packed.known and not packed.skipped:
            numbers = (packed.planned, packed.content, packed.rows, chosen.post is not None)
            self.journal.add(Known(packed.fingerprint, identity(shard.name), shard, *numbers))


def _hands(chosen: PackOptions, shards: list[PlannedShard]) -> tuple[int, int]:
    """How many processes write the shards, and how many shards one of them gets at a time."""
    count, rows = len(shards), sum(shard.rows for shard in shards)
    processes = chosen.parallel
    if processes is None:
        processes = min(os.cpu_count() or 1, MOST) if rows >= FEW and chosen.post is None else 1
    processes = max(1, min(processes, count))
    if chosen.resume or chosen.post is not None:
        return processes, 1  # what is complete is known at once
    return processes, max(1, min(-(-count // (ROUNDS * processes)), SHARE * count // max(1, rows)))


def _open_shard(output: Output, fresh: bool, name: str) -> Sink:
    """Open a shard by its name: in a process of its own, perhaps."""
    location = parse_output(name)
    return replace(output, location=location).open_named(location.text, fresh)


def _add(facts: dict[str, Any], name: str, count: int) -> None:
    facts[name] = facts.get(name, 0) + count
