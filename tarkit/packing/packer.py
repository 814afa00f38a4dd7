"""Write all shards of a plan: check names and existing files, choose the number of processes, keep the journal."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.packing.plan import Planned, SavedPlan
from tarkit.packing.resume import Journal, Known, identity
from tarkit.packing.spool import PlannedShard, RowSpool
from tarkit.packing.writer import Packed, Packing, Task, pack_all, progress
from tarkit.pipeline.template import ShardTemplate, existing_among, refuse_existing
from tarkit.shards.writer import Shard, run_post
from tarkit.stores.schemes import scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import parse_output
from tarkit.streams.sink import Sink, short_name
from tarkit.streams.tempfile import TemporaryFile

FEW = 20_000  # files from which on several processes write shards, MOST unless a number is given
MOST = 4
SHARE = 50_000  # files in the shards that a process gets at a time, if that leaves ROUNDS turns for each
ROUNDS = 2


@dataclass(frozen=True)
class PackOptions:
    """How the shards of a plan are written.

    `parallel` shards are written at a time; None: one, or up to MOST for many files. `force` replaces existing shards,
    `resume` keeps those that are as planned. With `skip_missing` samples with a missing file are left out. `mtime` is
    the time of entries in seconds, None for that of each file. `post` is a command that is run for each shard.
    `manifest` and `depfile` are files that are written after the last shard. `storage` says how all these are reached.
    """

    parallel: int | None = None
    force: bool = False
    resume: bool = False
    skip_missing: bool = False
    mtime: int | None = 0
    post: str | None = None
    manifest: str | None = None
    depfile: str | None = None
    depfile_target: str | None = None
    storage: StoreOptions | None = None


@dataclass
class Packer:
    """The shards of a plan, whose rows are read and checked at once; `check`, `write` and `finish` come next.

    Args:
        plan: a layout, a saved plan, or rows in any order.
        options: how shards are written.
        open_shard: opens a shard by its name, perhaps in another process.
        template: files with a name of it are existing shards; None: files with a name of the plan are.
        codec: the compression, as text: a shard of another one is not kept by `resume`.
        digest: whether checksums are computed.
        counted: whether `position` is maintained.
        tmpdir: directory of temporary files.
        storage: how the sources are reached.
        note: called with a message for each shard.
        warn: called with a warning for each sample that is left out.

    Raises:
        TarkitError: a bad row, or two names of one file.
        Usage: a shard that is neither a file nor a URL.
        FileNotFoundError: the directory of a shard does not exist.

    Afterwards `done` has the shards, and `entries`, `missing` (samples left out) and `kept` (shards that were there)
    are counted.
    """

    plan: Iterable[Planned]
    options: PackOptions
    open_shard: Callable[[str], Sink]
    template: ShardTemplate | None = None
    codec: str = ""
    digest: bool = False
    counted: bool = False
    tmpdir: str | None = None
    storage: StoreOptions | None = None
    note: Callable[[str], None] = lambda text: None
    warn: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        plan, options = self.plan, self.options
        saved = isinstance(plan, SavedPlan)
        self.plan_name = plan.name if isinstance(plan, SavedPlan) else None
        self.spool = RowSpool(self.tmpdir, plan_name=self.plan_name, agrees=saved, missing=options.skip_missing)
        self.shards = self.spool.fill(plan)
        self.names = [os.fsdecode(shard.name) for shard in self.shards]
        self.content = sum(shard.size for shard in self.shards)
        self.done: list[Shard] = []
        self.entries = self.missing = self.kept = self._planned = 0
        self._check_names()
        self._existing = (
            [path for _, path in self.template.existing(options.storage)] if self.template is not None else []
        )
        others = [name for name in self.names if self.template is None or self.template.matches(name) is None]
        self._existing += existing_among(others, options.storage)
        self._journal: Journal | None = None
        if options.resume and self.shards and not scheme_of(self.names[0]):
            directory, base = os.path.split(self.names[0])
            self._journal = Journal(os.path.join(directory, f".{short_name(base)}.0.part"))
        self._counters = TemporaryFile(self.tmpdir) if self.counted else None
        self._processes, share = workers(options, self.shards)
        self._packing = Packing(
            self.spool.file.fd,
            self.open_shard,
            counters=self._counters.fd if self._counters else -1,
            plan_name=self.plan_name,
            mtime=options.mtime,
            skip=options.skip_missing,
            resume=options.resume,
            replace=options.force,
            digest=self.digest,
            posted=options.post is not None,
            settings=f"{options.mtime} {self.codec}",
            share=share,
            tmpdir=self.tmpdir,
            remote=any(map(scheme_of, self.names)),
            warn=self.warn,
            sources=self.storage,
            storage=options.storage,
        )

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for name in self.names:
            location = parse_output(name)
            if location.kind != "path":
                if location.kind != "url":
                    raise Usage(f"{name}: a shard must be a file or a URL")
                continue
            path = os.path.realpath(location.text)
            other = seen.setdefault(path, name)
            if other != name:
                raise TarkitError(f"{self.plan_name or 'the plan'}: {show(other)} and {show(name)} are the same file")
        for directory in {os.path.dirname(path) for path in seen}:
            if not os.path.isdir(directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)

    def check(self, written: Sequence[str] = ()) -> None:
        """Raise TarkitError when shards exist that may not be replaced, or a source is a shard or one of `written`."""
        existing, options = self._existing, self.options
        if options.resume and not options.force:
            hint = f"{spell('resume')} with {spell('force')} keeps what is as planned, and replaces the rest"
            refuse_existing(sorted(set(existing) - set(self.names)), hint, "exists, but is not in the plan")
        elif not options.force:
            hint = f"{spell('resume')} keeps those that are as planned, {spell('force')} replaces them"
            refuse_existing(existing, hint)
        statuses = []
        for path in (*existing, *written):
            try:
                statuses.append(os.stat(path))
            except OSError:
                continue
        urls = frozenset(os.fsencode(name) for name in self.names if scheme_of(name))
        self.spool.refuse(self.shards, statuses, urls)

    def in_several(self) -> tuple[int, bytes]:
        """Return how many samples of a saved plan are in more than one place, and the key of the first of them."""
        return (0, b"") if self.plan_name is None else self.spool.in_several(self.shards)

    def position(self) -> int:
        """Return the bytes of content that are written by now."""
        return progress(self._counters.fd, len(self.shards)) if self._counters else 0

    def write(self) -> Generator[int]:
        """Write the shards; yield the number of samples of each, and 0 from time to time."""
        known = self._journal.read() if self._journal else {}
        there = set(self._existing)
        tasks = (
            Task(number, shard, known.get(name), name in there)
            for number, (name, shard) in enumerate(zip(self.names, self.shards, strict=True))
        )
        if self._counters:
            self._counters.write(bytes(8 * len(self.shards)))
        yielded = 0
        try:
            with closing(pack_all(self._packing, tasks, self._processes, self._complete)) as steps:
                for _ in steps:
                    before, yielded = yielded, self._planned
                    yield yielded - before
            yield self._planned - yielded
        finally:
            if self._journal:
                self._journal.close(False)

    def _complete(self, packed: Packed) -> None:
        post, shard = self.options.post, packed.shard
        self._planned += packed.planned
        self.entries += packed.rows
        self.missing += len(packed.skipped)
        for what in packed.skipped:
            self.warn(what)
        if shard is None:
            return
        self.done.append(shard)
        self.kept += packed.kept
        words = "kept, it is as planned" if packed.kept else f"{packed.planned} samples, {shard.size} bytes"
        self.note(f"{shard.name}: {words}")
        if post is not None and not packed.known:
            run_post(post, shard.name)
        if self._journal and packed.fingerprint and not packed.known and not packed.skipped:
            numbers = (packed.planned, packed.content, packed.rows, post is not None)
            self._journal.add(Known(packed.fingerprint, identity(shard.name), shard, *numbers))

    @property
    def stale(self) -> list[str]:
        """The existing shards that were not written: with `force` they are to be removed."""
        made = {shard.name for shard in self.done}
        return [path for path in self._existing if path not in made]

    def finish(self) -> None:
        """Remove the journal, once all that belongs to the shards is complete."""
        if self._journal:
            self._journal.close(True)


def workers(options: PackOptions, shards: Sequence[PlannedShard]) -> tuple[int, int]:
    """Return the number of processes that write the shards, and the number of shards that one gets at a time."""
    count, rows = len(shards), sum(shard.rows for shard in shards)
    processes = options.parallel
    if processes is None:
        processes = min(os.cpu_count() or 1, MOST) if rows >= FEW and options.post is None else 1
    processes = max(1, min(processes, count))
    if options.resume or options.post is not None:
        return processes, 1  # a complete shard is reported at once
    return processes, max(1, min(-(-count // (ROUNDS * processes)), SHARE * count // max(1, rows)))


def check_templates(templates: Sequence[ShardTemplate], options: PackOptions, update: bool = False) -> None:
    """Raise TarkitError for existing shards, FileNotFoundError for a missing directory: before a tree is listed."""
    for template in templates:
        if template.directory and not scheme_of(template.directory) and not os.path.isdir(template.directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), template.name(0))
        if not (options.force or options.resume or update):
            resume, more, force = map(spell, ("resume", "update", "force"))
            hint = f"{resume} keeps those that are as planned, {more} packs what is new, {force} replaces them"
            refuse_existing([path for _, path in template.existing(options.storage)], hint)
