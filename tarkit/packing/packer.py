"""Write the shards of a plan: check existing files, choose the number of processes, keep complete shards.

Each shard is written by itself, so that processes can share the work.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from mmap import mmap
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.machine import cpus
from tarkit.packing.options import ShardOptions
from tarkit.packing.plan import Plan, PlannedShard
from tarkit.packing.resume import GONE, Differs, Existing, Journal, JournalEntry, fingerprint, identity
from tarkit.packing.tree_origin import TreeOrigin, TreeReader
from tarkit.parallel import PATIENCE, in_order
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import status_of
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import existing_among, refuse_existing
from tarkit.samples.sample import SampleBatch
from tarkit.shards.limits import Limits
from tarkit.shards.rows import SeriesOptions
from tarkit.shards.series import ShardsPlan
from tarkit.shards.writer import Shard, ShardsWriter, run_post
from tarkit.sizes import plural
from tarkit.stores.schemes import scheme_of
from tarkit.streams.location import parse_output
from tarkit.streams.sink import short_name
from tarkit.streams.text import sum_file
from tarkit.tar.writer import EntryWriter

FEW = 20_000  # files from which on several processes write shards, MOST unless a number is given
MOST = 4
SHARE = 50_000  # files in the shards that a process gets at a time, if that leaves ROUNDS turns for each
ROUNDS = 2

UPLOADS = 60.0
"""Seconds that a process has, after a signal, until its requests have ended and its uploads are removed."""

_PULSE: Any = False  # in place of a result: shows that work goes on


class Packed(NamedTuple):
    """The result of a planned shard.

    Attributes:
        planned: the planned shard, without the samples that were left out.
        skipped: a message for each of these.
        shard: the shard; None when all its samples were left out.
        fingerprint: that of `fingerprint`, or empty.
        kept: it existed before the run.
        recorded: the journal has it as complete.
    """

    planned: PlannedShard
    skipped: Sequence[str] = ()
    shard: Shard | None = None
    fingerprint: str = ""
    kept: bool = False
    recorded: bool = False


class Packer:
    """Write the shards of a plan; call `check` before, and `finish` when all that belongs to the shards is complete.

    Args:
        run: gets messages, and the number of samples.
        options: how shards are written.
        digest: whether checksums are computed.

    Attributes:
        done: the shards that are complete.
        facts: the number of entries in them, of samples that are missing, and of shards that were kept.
    """

    def __init__(self, run: Run, plan: Plan, options: ShardOptions, digest: bool) -> None:
        self.done: list[Shard] = []
        self.facts: Counter[str] = Counter()
        self._run = run
        self._plan = plan
        self._options = options
        self._digest = digest
        self._data = Chain(TreeOrigin(plan, plan.shards, options.mtime, options.skip_missing), lambda: run)
        self._names = [shard.name for shard in plan.shards]
        # existing shards: files with a name of the template; with several, or `update`, those with a name of the plan
        template = plan.templates[0] if len(plan.templates) == 1 and not options.update else None
        existing = [] if template is None else [path for _, path in template.existing(options.storage)]
        others = [name for name in self._names if template is None or template.matches(name) is None]
        existing += existing_among(others, options.storage)
        self._existing = dict.fromkeys(existing)
        self._remote = any(map(scheme_of, self._names))
        self._journal: Journal | None = None
        if options.resume and self._names and not self._remote:
            directory, base = os.path.split(self._names[0])
            self._journal = Journal(os.path.join(directory, f".{short_name(base)}.0.part"))
        self._entries: dict[str, JournalEntry] = {}
        self._alone = False  # whether this process writes all shards
        self._posted_again = 0  # shards that were kept, for which the command runs
        # of each shard the bytes of content that are written by now; all processes write to this memory
        self._contents = memoryview(mmap(-1, 8 * max(1, len(self._names)))).cast("q")

    def check(self) -> None:
        """Check what the run writes.

        Raises:
            TarkitError: shards exist that may not be replaced, two are the same file, or a source is written.
            Usage: a shard is another file of the run, or neither a file nor a URL.
        """
        self._check_names()
        existing, options = list(self._existing), self._options
        if options.resume and not options.force:
            hint = f"{spell('resume')} with {spell('force')} keeps what is as planned, and replaces the rest"
            refuse_existing(sorted(set(existing) - set(self._names)), hint, "exists, but is not in the plan")
        elif not options.force:
            hint = f"{spell('resume')} keeps those that are as planned, {spell('force')} replaces them"
            refuse_existing(existing, hint)
        written = (place.path for place in self._run.places.values() if place.written)
        statuses = filter(None, map(status_of, (*existing, *written)))
        sizes = {(status.st_dev, status.st_ino): status.st_size for status in statuses}
        self._plan.refuse(sizes, frozenset(os.fsencode(name) for name in self._names if scheme_of(name)))

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for name in self._names:
            location = parse_output(name)
            if location.kind not in ("path", "url"):
                raise Usage(f"{name}: a shard must be a file or a URL")
            path = os.path.realpath(location.text) if location.kind == "path" else location.text
            if (place := self._run.places.get(path)) is not None:
                raise Usage(f"{place.path} is {place.what}, and has the name of a shard")
            if path in seen:
                raise TarkitError(f"{show(seen[path])} and {show(name)} are the same file")
            seen[path] = name
            self._options.output.check_time(self._options.mtime, name)

    def write(self) -> None:
        """Write the shards, several at a time; with `force`, remove those that exist and are not in the plan.

        The error of a shard is raised when those before it are reported.
        """
        run, options = self._run, self._options
        if self._journal:
            self._entries = self._journal.read()
        with closing(self._results()) as results:
            for packed in run.draw(
                "writing", results, lambda: sum(self._contents), lambda: run.samples, self._plan.content
            ):
                if packed:
                    self._complete(packed)
        if options.force:
            done = {shard.name for shard in self.done}
            run.remove_others([path for path in self._existing if path not in done], options.storage)

    def _results(self) -> Generator[Packed]:
        """Write the shards in processes; yield their results."""
        processes, share = workers(self._options, self._plan.shards)
        self._alone = processes == 1
        numbers = range(len(self._names))
        shares = (numbers[start : start + share] for start in numbers[::share])
        how: Any = {"share": 1, "pulse": _PULSE, "patience": UPLOADS if self._remote else PATIENCE}
        with closing(in_order(shares, self._pack, processes, self._plan.tmpdir, **how)) as results:
            for of_share in results:
                yield from of_share

    def _complete(self, packed: Packed) -> None:
        post, planned, shard = self._options.post, packed.planned, packed.shard
        self._run.samples += planned.samples
        self.facts.update(entries=planned.files, missing=len(packed.skipped), kept=int(packed.kept))
        for message in packed.skipped:
            self._run.warn(message)
        if shard is None:
            return
        self.done.append(shard)
        words = (
            "kept, it is as planned"
            if packed.kept
            else f"{plural(planned.samples, 'sample')}, {plural(shard.size, 'byte')}"
        )
        self._run.note(f"{shard.name}: {words}")
        if post is not None and not packed.recorded:
            self._posted_again += packed.kept
            run_post(post, shard.name)
        if self._journal and packed.fingerprint and not packed.recorded and not packed.skipped:
            self._journal.add(shard, packed.fingerprint, post is not None)

    def finish(self) -> None:
        """Say which shards were kept, and remove the journal."""
        if kept := self.facts["kept"]:
            again = f"; {spell('post')} ran for {self._posted_again} of them: no record says that it ran before"
            self._run.tell(f"{spell('resume')}: shards kept, as planned: {kept}{again if self._posted_again else ''}")
        if self._journal:
            self._journal.remove()

    # ---- In a process that writes shards

    def _pack(self, numbers: Iterable[int]) -> Generator[Packed]:
        """Write shards, one after the other; yield each once it is complete, in order, and _PULSE from time to time."""
        options, samples, name = self._options, 0, ""
        settings = f"{options.mtime} {options.output.codec}"
        ended: deque[Packed] = deque()  # shards that are being completed
        ready: list[Packed] = []
        # at once in one process: after an error the writer removes the uploads that were not reported
        report = self._complete if self._alone else ready.append

        def complete(shard: Shard, _: str) -> None:
            packed = ended.popleft()
            report(packed._replace(shard=packed.planned.written(shard.size, shard.stored, shard.sha256)))

        names: Iterator[str] = iter(lambda: name, None)
        how = SeriesOptions(force=options.force)
        plan = ShardsPlan(options.output, Limits(), options=how, digest=self._digest)
        writer = ShardsWriter(self._run, plan, [names], complete=complete)
        try:
            for number in numbers:
                name = self._names[number]
                mark = fingerprint(self._plan, self._plan.shards[number], settings) if self._journal else ""
                packed = yield from self._keep(number, mark)
                if packed is None:
                    packed = yield from self._feed(number, writer.add)
                    samples += packed.planned.samples
                packed = packed._replace(fingerprint=mark)
                if packed.shard is None and packed.planned.files:
                    ended.append(packed)
                    writer.end()
                else:
                    writer.settle()
                    report(packed)
                yield from ready
                ready.clear()
            writer.close(samples)
        except BaseException as error:
            writer.abort()
            if isinstance(error, (TarkitError, OSError)):
                yield from ready
            raise
        yield from ready

    def _feed(self, number: int, add: Callable[[SampleBatch], object]) -> Generator[Packed, None, Packed]:
        """Pass the samples of a shard to `add`; return what was passed, without a shard. Yields from time to time."""
        batches, flow = self._data.only([number]).batches(self._run)
        planned, reader = self._plan.shards[number], flow.inputs
        assert isinstance(reader, TreeReader)
        with flow:
            for batch in batches:
                add(batch)
                self._contents[number] = reader.content
                yield _PULSE
            flow.finish()
        if reader.skipped:
            names = reader.names
            planned = planned._replace(samples=reader.samples, files=reader.files, reader_samples=names.samples)
            planned = planned._replace(first=names.first or b"", last=names.last or b"")
        return Packed(planned, reader.skipped)

    def _keep(self, number: int, mark: str) -> Generator[Packed, None, Packed | None]:
        """Return an existing shard that is as planned: one with this `mark` in the journal, else by comparison."""
        options, planned = self._options, self._plan.shards[number]
        name = planned.name
        entry = self._entries.get(name)
        if entry and self._is_as_planned(entry, mark, identity(name)):
            self._contents[number] = planned.content
            packed = Packed(planned, recorded=entry.posted or options.post is None)
            shard = planned.written(entry.size, entry.stored, entry.sha256)
        elif options.resume and name in self._existing:
            try:
                with EntryWriter(Existing(name, self._plan.tmpdir, options.storage)) as writer:
                    packed = yield from self._feed(number, lambda batch: batch.write(writer))
            except Differs as error:
                if options.force:
                    return None
                hint = f"{spell('resume')} with {spell('force')} writes it again"
                raise TarkitError(f"{name}: exists, but is not as planned: {error}", hint) from None
            shard = packed.planned.written(writer.position)
        else:
            return None
        if self._digest and not shard.sha256:
            sha256, stored = sum_file("url" if scheme_of(name) else "path", name, options.storage)
            shard = shard._replace(sha256=sha256, stored=stored)
        return packed._replace(shard=shard, kept=True)

    def _is_as_planned(self, entry: JournalEntry, mark: str, there: str) -> bool:
        """Return whether a shard is that of the journal, or --post has moved that, and nothing is missing in the
        journal."""
        if not mark or (entry.fingerprint, entry.identity) != (mark, there):
            return False
        posted = self._options.post is not None and entry.posted
        return there != GONE or (posted and (bool(entry.sha256) or not self._digest))


def workers(options: ShardOptions, shards: Sequence[PlannedShard]) -> tuple[int, int]:
    """Return the number of processes that write the shards, and the number of shards that one gets at a time."""
    count, files = len(shards), sum(shard.files for shard in shards)
    processes = options.processes
    if processes is None:
        processes = min(cpus(), MOST) if files >= FEW and options.post is None else 1
    processes = max(1, min(processes, count))
    if processes == 1:
        return 1, max(1, count)
    if options.resume or options.post is not None:
        return processes, 1  # a complete shard is reported at once
    return processes, max(1, min(-(-count // (ROUNDS * processes)), SHARE * count // max(1, files)))
