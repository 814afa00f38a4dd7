"""Write the shards of a plan: check existing files, choose the number of processes, keep complete shards.

Each shard is written by itself, so that processes can share the work.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.packing.filler import ShardFiller
from tarkit.packing.options import ShardOptions
from tarkit.packing.plan import Plan, PlannedShard
from tarkit.packing.resume import GONE, Differs, Existing, Journal, JournalEntry, Packed, fingerprint, identity
from tarkit.parallel import PATIENCE, in_order
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import existing_among, refuse_existing
from tarkit.shards.writer import Shard, run_post
from tarkit.signals import uninterrupted
from tarkit.stores.schemes import scheme_of
from tarkit.streams.location import parse_output
from tarkit.streams.sink import Sink, short_name
from tarkit.streams.tempfile import TemporaryFile
from tarkit.streams.text import sum_file
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.streams.background_uploads import BackgroundUploads

FEW = 20_000  # files from which on several processes write shards, MOST unless a number is given
MOST = 4
SHARE = 50_000  # files in the shards that a process gets at a time, if that leaves ROUNDS turns for each
ROUNDS = 2

UPLOADS = 60.0
"""Seconds that a process has, after a signal, until its requests have ended and its uploads are removed."""

_COUNTER = struct.Struct("=q")
_PULSE: Any = object()


class Packer:
    """Write the shards of a plan; call `check` before, and `finish` when all that belongs to the shards is complete.

    Args:
        run: gets messages, and the number of samples.
        plan: the plan.
        options: how shards are written.
        digest: whether checksums are computed.
        tmpdir: the directory of temporary files.

    Attributes:
        done: the shards that are complete.
        files, missing, kept: the files in them, samples that were left out, shards that existed.

    Raises:
        TarkitError: two names of one file.
        Usage: a shard that is neither a file nor a URL.
    """

    def __init__(self, run: Run, plan: Plan, options: ShardOptions, digest: bool, tmpdir: str | None) -> None:
        self.done: list[Shard] = []
        self.files = self.missing = self.kept = 0
        self._run = run
        self._plan = plan
        self._options = options
        self._output = options.names.output
        self._settings = f"{options.mtime} {self._output.codec}"  # a shard of other ones is not kept by `resume`
        self._digest = digest
        self._tmpdir = tmpdir
        self._names = [shard.name for shard in plan.shards]
        self._check_names()
        # existing shards: files with a name of the template; with several, or `update`, those with a name of the plan
        template = plan.templates[0] if len(plan.templates) == 1 and not options.update else None
        existing = [] if template is None else [path for _, path in template.existing(options.storage)]
        others = [name for name in self._names if template is None or template.matches(name) is None]
        existing += existing_among(others, options.storage)
        self._existing = dict.fromkeys(existing)
        self._journal: Journal | None = None
        self._entries: dict[str, JournalEntry] = {}
        if options.resume and self._names and not scheme_of(self._names[0]):
            directory, base = os.path.split(self._names[0])
            self._journal = Journal(os.path.join(directory, f".{short_name(base)}.0.part"))
        self._counters = TemporaryFile(tmpdir) if run.shows_progress else None  # eight bytes per shard: content so far
        self._remote = any(map(scheme_of, self._names))

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for name in self._names:
            location = parse_output(name)
            if location.kind not in ("path", "url"):
                raise Usage(f"{name}: a shard must be a file or a URL")
            path = os.path.realpath(location.text) if location.kind == "path" else location.text
            if path in seen:
                raise TarkitError(f"{show(seen[path])} and {show(name)} are the same file")
            seen[path] = name

    def check(self, written: Sequence[str] = ()) -> None:
        """Raise TarkitError when shards exist that may not be replaced, or a source is a shard or one of `written`."""
        existing, options = list(self._existing), self._options
        if options.resume and not options.force:
            hint = f"{spell('resume')} with {spell('force')} keeps what is as planned, and replaces the rest"
            refuse_existing(sorted(set(existing) - set(self._names)), hint, "exists, but is not in the plan")
        elif not options.force:
            hint = f"{spell('resume')} keeps those that are as planned, {spell('force')} replaces them"
            refuse_existing(existing, hint)
        sizes: dict[tuple[int, int], int] = {}
        for path in (*existing, *written):
            try:
                status = os.stat(path)
            except OSError:
                continue
            sizes[status.st_dev, status.st_ino] = status.st_size
        self._plan.refuse(sizes, frozenset(os.fsencode(name) for name in self._names if scheme_of(name)))

    def write(self) -> None:
        """Write the shards."""
        with closing(self._write_all()) as steps:
            for _ in self._run.draw(steps, self._position, lambda: self._run.samples, self._plan.content):
                pass

    def _position(self) -> int:
        """Return the bytes of content that are written by now, in all shards."""
        if self._counters is None:
            return 0
        return sum(memoryview(self._counters.read(0, _COUNTER.size * len(self._names))).cast("q"))

    def _count(self, number: int, content: int) -> None:
        if self._counters is not None:
            os.pwrite(self._counters.fd, _COUNTER.pack(content), _COUNTER.size * number)

    def _write_all(self) -> Generator[None]:
        """Write the shards, several at a time; yields from time to time.

        The error of a shard is raised when those before it are reported.
        """
        self._entries = self._journal.read() if self._journal else {}
        numbers = iter(range(len(self._plan.shards)))
        if self._counters:
            self._counters.write(bytes(_COUNTER.size * len(self._names)))
        processes, share = workers(self._options, self._plan.shards)
        try:
            if processes <= 1:
                yield from self._pack(numbers, self._complete)
            else:
                shares = iter(lambda: tuple(islice(numbers, share)), ())
                patience = UPLOADS if self._remote else PATIENCE
                how: Any = {"share": 1, "pulse": _PULSE, "patience": patience}
                with closing(in_order(shares, self._pack_share, processes, self._tmpdir, **how)) as results:
                    for some in results:
                        for packed in some:
                            if packed is not _PULSE:
                                self._complete(packed)
                            yield
            yield
        finally:
            if self._journal:
                self._journal.close(False)

    def _complete(self, packed: Packed) -> None:
        post, shard = self._options.post, packed.shard
        self._run.samples += packed.planned
        self.files += packed.files
        self.missing += len(packed.skipped)
        for what in packed.skipped:
            self._run.warn(what)
        if shard is None:
            return
        self.done.append(shard)
        self.kept += packed.kept
        words = "kept, it is as planned" if packed.kept else f"{packed.planned} samples, {shard.size} bytes"
        self._run.note(f"{shard.name}: {words}")
        if post is not None and not packed.known:
            run_post(post, shard.name)
        if self._journal and packed.fingerprint and not packed.known and not packed.skipped:
            self._journal.add(packed, post is not None)

    @property
    def stale(self) -> list[str]:
        """The existing shards that were not written: with `force` they are to be removed."""
        made = {shard.name for shard in self.done}
        return [path for path in self._existing if path not in made]

    def finish(self) -> None:
        """Remove the journal."""
        if self._journal:
            self._journal.close(True)

    # ---- In a process that writes shards

    def _pack_share(self, numbers: Iterable[int]) -> Generator[Packed]:
        ready: list[Packed] = []
        with closing(self._pack(numbers, ready.append)) as steps:
            try:
                for _ in steps:
                    yield from ready
                    ready.clear()
            except (TarkitError, OSError):
                yield from ready
                raise
        yield from ready

    def _pack(self, numbers: Iterable[int], report: Callable[[Packed], None]) -> Generator[None]:
        """Write shards, one after the other; report each once it is complete, in order.

        Those in stores are completed in the background, while the next ones are written.
        """
        from tarkit.streams.background_uploads import BackgroundUploads

        uploads = BackgroundUploads(self._options.force, self._run.warn)
        try:
            for number in numbers:
                yield from self._pack_one(number, uploads, report)
                uploads.report()
                yield
            uploads.finish()
        except BaseException:
            uploads.abort()
            raise

    def _pack_one(self, number: int, uploads: BackgroundUploads, report: Callable[[Packed], None]) -> Iterator[None]:
        """Write a shard, or find it as planned; yields from time to time."""
        shard, options, mark = self._plan.shards[number], self._options, ""
        name = shard.name
        if options.resume:
            mark = "" if scheme_of(name) else fingerprint(self._plan, shard, self._settings)
            entry = self._entries.get(name)
            if entry and mark and self._is_as_planned(entry, mark, identity(name)):
                uploads.finish()
                report(self._known(number, entry))
                return
            if name in self._existing:
                try:
                    existing = Existing(name, self._tmpdir, options.storage)
                    yield from self._write(number, mark, existing, uploads, report)
                    return
                except Differs as error:
                    if not options.force:
                        hint = f"{spell('resume')} with {spell('force')} writes it again"
                        raise TarkitError(f"{name}: exists, but is not as planned: {error}", hint) from None
        location = parse_output(name, options.storage)
        sink = self._output._replace(location=location).open_named(location.text, fresh=not options.force)
        yield from self._write(number, mark, sink, uploads, report)

    def _is_as_planned(self, entry: JournalEntry, mark: str, there: str) -> bool:
        """Return whether a shard is that of the journal, or --post has moved that, and nothing is missing in the
        journal."""
        shard = entry.packed.shard
        if (entry.packed.fingerprint, entry.identity) != (mark, there) or shard is None:
            return False
        posted = self._options.post is not None and entry.posted
        return there != GONE or (posted and (bool(shard.sha256) or not self._digest))

    def _known(self, number: int, entry: JournalEntry) -> Packed:
        packed = entry.packed
        self._count(number, packed.content)
        shard = packed.shard
        if shard is not None and not shard.sha256:
            shard = self._described(shard, None)
        return packed._replace(shard=shard, kept=True, known=entry.posted or self._options.post is None)

    def _write(
        self, number: int, mark: str, sink: Sink, uploads: BackgroundUploads, report: Callable[[Packed], None]
    ) -> Iterator[None]:
        """Write a shard, and report it when it is complete; yields from time to time."""
        options, writer, planned = self._options, EntryWriter(sink), self._plan.shards[number]
        filler = ShardFiller(self._plan, planned, writer, options.mtime, options.skip_missing)
        try:
            for content in filler.fill():
                self._count(number, content)
                yield
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        self._count(number, filler.content)
        counts = filler.planned, filler.files, filler.content, filler.skipped
        if not filler.files:
            writer.abort()
            uploads.finish()
            report(Packed(None, 0, 0, 0, filler.skipped))
            return

        def complete() -> None:
            samples, first, last = filler.keys
            shard = Shard(planned.name, samples, writer.position, 0, first, last, "")
            report(Packed(self._described(shard, sink.digest()), *counts, mark, isinstance(sink, Existing)))

        if not sink.remote:
            writer.close()
            uploads.finish()
            complete()
            return
        added = False
        try:
            uploads.make_room(writer.position)
            with uninterrupted():
                added = True
                uploads.add(sink, writer.close, writer.position, complete)
        except BaseException:
            if not added:
                writer.abort()
            raise

    def _described(self, shard: Shard, known: tuple[str, int] | None) -> Shard:
        """Return the shard with the checksum and the length of its file, if requested; they may be `known`."""
        if not self._digest:
            return shard
        kind = "url" if scheme_of(shard.name) else "path"
        sha256, stored = known or sum_file(kind, shard.name, self._options.storage)
        return shard._replace(sha256=sha256, stored=stored)


def workers(options: ShardOptions, shards: Sequence[PlannedShard]) -> tuple[int, int]:
    """Return the number of processes that write the shards, and the number of shards that one gets at a time."""
    count, files = len(shards), sum(shard.files for shard in shards)
    processes = options.processes
    if processes is None:
        processes = min(os.cpu_count() or 1, MOST) if files >= FEW and options.post is None else 1
    processes = max(1, min(processes, count))
    if options.resume or options.post is not None:
        return processes, 1  # a complete shard is reported at once
    return processes, max(1, min(-(-count // (ROUNDS * processes)), SHARE * count // max(1, files)))
