"""Write samples to numbered shards, and their manifest."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import proxy

from tarkit.errors import CommandFailed, TarkitError, Unsupported, show
from tarkit.pipeline.stages import stays_apart
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.shards.listed import ListedShard
from tarkit.shards.mds import base_name
from tarkit.signals import uninterrupted
from tarkit.sizes import plural
from tarkit.streams.command import call
from tarkit.streams.location import parse_output
from tarkit.streams.sink import FileSink, Sink
from tarkit.streams.text import sum_file
from tarkit.tables.tsv import escape_tsv
from tarkit.tar.header import end_of_archive
from tarkit.tar.writer import EntryWriter
from tarkit.threads import codec_threads

if TYPE_CHECKING:
    from tarkit.pipeline.run import Run
    from tarkit.pipeline.view_writer import ViewWriter
    from tarkit.shards.limits import Limits
    from tarkit.shards.series import ShardsPlan
    from tarkit.streams.background_uploads import BackgroundUploads

MEMORY = 64 << 20  # buffered bytes of all shards of several series together
MANIFEST_COLUMNS = ("shard", "samples", "bytes", "sha256", "first", "last")


class Shard(NamedTuple):
    """A complete shard.

    Attributes:
        name: its name.
        samples: their number.
        size: the length of its tar in bytes.
        stored: the length of the file, which is only known with its hash.
        first, last: the first and the last key.
        sha256: the hash of the file; empty if it is not known.
    """

    name: str
    samples: int
    size: int
    stored: int
    first: bytes
    last: bytes
    sha256: str


@dataclass(eq=False, repr=False)
class _OpenShard:
    """A shard that is not complete; `content` is counted for limits of content. `why` it closed, with `size` bytes."""

    name: str
    writer: EntryWriter
    limits: Limits
    samples: int = 0
    content: int = 0
    first: bytes | None = None
    last: bytes | None = None
    size: int = 0
    why: str = ""

    def take(self, batch: SampleBatch, begin: int, end: int) -> None:
        """Write samples [begin, end) of a batch, or list them."""
        if isinstance(self.writer, ListedShard):
            self.writer.take(batch, begin, end)
        else:
            batch.write(self.writer, begin, end)


class ShardsWriter:
    """Write samples to numbered shards of one series or several, none of which is empty.

    Args:
        run: gets a note for each complete shard; its policy decides, as for `joined-sample`, about samples of one key
            that become neighbours in a series.
        plan: how shards are written.
        names: of each series, the names of its shards; there may be no more than these.
        sizes: the number of samples of each shard of one series, in place of a count in the limits.
        place: where a shard is, by its name.
        complete: called with each complete shard and the reason why it closed, in place of a note.
        view: the view that has the samples of the shards, in place of shards.

    Attributes:
        series: the writer of each series.
        left_out: the number of samples that went to no series.
        entries: what the index of MDS says of each complete shard, by its name in the directory.
    """

    def __init__(
        self,
        run: Run,
        plan: ShardsPlan,
        names: Sequence[Iterator[str]],
        sizes: Iterator[int] | None = None,
        place: Callable[[str], str] = str,
        complete: Callable[[Shard, str], None] | None = None,
        view: ViewWriter | None = None,
    ) -> None:
        if not plan.indexed and plan.output.form_of(plan.output.location.text) == "mds":
            hint = "write shards of tar; tarkit split makes MDS of them: -o 'DIRECTORY/shard.%05d.mds'"
            raise Unsupported(
                f"{plan.output.location.name}: MDS needs an index of all shards, which is not written here", hint
            )
        alone = len(names) == 1
        self.plan, self.sizes, self.place = plan, sizes, place
        # several series have a thread each; a command may make room for a shard
        self.overlaps = alone and plan.options.post is None
        self.uploads: BackgroundUploads | None = None
        self._view = view
        if plan.output.location.kind == "url" and view is None:
            from tarkit.streams.background_uploads import BackgroundUploads

            self.uploads = BackgroundUploads(plan.options.force, run.warn)
        self.left_out = 0
        self.entries: dict[str, dict[str, Any]] = {}
        self._complete = complete
        self._run = run
        # several series have an open shard each, with a codec each
        self._output = plan.output._replace(threads=codec_threads() if alone else 1)
        self._names: set[str] = set()
        self._name = ""  # of the shard that takes samples, if samples name it
        if plan.name_of is not None:
            writer = proxy(self)
            names = [iter(lambda: writer._name, None)]
        # in no cycle with it, so that what `complete` refers to is freed with it
        self.series = [_Series(proxy(self), names_of_one) for names_of_one in names]

    @property
    def samples(self) -> list[int]:
        """The number of samples of each series."""
        return [series.samples for series in self.series]

    @property
    def position(self) -> int:
        """Bytes written so far, before compression."""
        return sum(series.position for series in self.series)

    @property
    def done(self) -> list[Shard]:
        """The shards that are complete, series after series."""
        return [shard for series in self.series for shard in series.done]

    def add(self, batch: SampleBatch) -> int:
        """Write samples to their series; return how many are left when all shards that there may be are full."""
        if self.uploads is not None:
            self.uploads.report()
        if self.plan.name_of is not None:
            return self._add_named(batch, self.plan.name_of)
        if self.plan.assign is None:
            return self.series[0].add(batch)
        samples = list(batch)
        return next((len(samples) - number for number, sample in enumerate(samples) if self._place(sample)), 0)

    def _add_named(self, batch: SampleBatch, name_of: Callable[[TarSample], str]) -> int:
        """Write samples to the shards of these names, those of each of which follow each other; return 0."""
        names = list(map(name_of, batch))
        for part, name in [(batch, names[0])] if len(set(names)) == 1 else zip(batch, names, strict=True):
            if name != self._name:
                self.series[0].end()
                self._name = name
            self.series[0].add(part)
        return 0

    def _place(self, sample: TarSample) -> int:
        """Write a sample to the series that `assign` names; return 1 when all shards that there may be are full."""
        assert self.plan.assign is not None
        number = self.plan.assign(sample)
        if number is None or (sample.key == self.series[number].last and not self._meets(sample)):
            self.left_out += 1
            return 0
        series = self.series[number]
        if series.add(sample):
            return 1
        series.relieve(MEMORY // len(self.series))
        return 0

    def _meets(self, sample: TarSample) -> bool:
        """Return False for a sample that is skipped since the one before it has its key. Raise TarkitError if that is
        allowed: readers would join the two, unless a shard ends between them."""
        if stays_apart(sample, self._run.policy):
            message = f"{sample.source.name}: at {sample.start}: the sample before it in its part has the same key"
            raise TarkitError(
                f"{message} {show(sample.key or b'')}, and a shard may end between the two",
                "tarkit sort joins them before",
            )
        return False

    def open(self, name: str) -> EntryWriter:
        """Open a shard. Raises TarkitError when this run has opened it before, for another series."""
        if name in self._names:
            raise TarkitError(f"{show(name)} would be written twice: two templates have this name")
        self._names.add(name)
        if self._view is not None:
            return ListedShard(name, self._view)
        path = parse_output(self.place(name)).text
        return EntryWriter(self._output.open_named(path, fresh=not self.plan.options.force))

    def announce(self, shard: Shard, why: str) -> None:
        """Report a complete shard, and the reason why it closed."""
        if self._complete is not None:
            self._complete(shard, why)
        else:
            self._run.note(
                f"{shard.name}: {plural(shard.samples, 'sample')}, {plural(shard.size, 'byte')}, closed by {why}"
            )

    def wait(self) -> None:
        """Wait until all that was added is copied from its sources."""
        for series in self.series:
            series.wait()

    def stop(self) -> None:
        """Discard the shards that take samples, and complete those before them, unless they are in a store."""
        with ExitStack() as all_of_them:  # also after an error of one
            for series in reversed(self.series):
                all_of_them.callback(series.stop)

    def end(self) -> None:
        """End the shards that take samples: the next samples go to others."""
        for series in self.series:
            series.end()

    def settle(self) -> None:
        """Complete the shards that have ended."""
        for series in self.series:
            series.settle()
        if self.uploads is not None:
            self.uploads.finish()

    def close(self, samples: int) -> None:
        """Complete the last shards. Raises AssertionError unless all `samples` were written or left out."""
        written = sum(self.samples)
        if written + self.left_out != samples:
            raise AssertionError(f"of {plural(samples, 'sample')} {written} were written and {self.left_out} left out")
        self.end()
        self.settle()

    def abort(self) -> None:
        """Discard the shards that are not complete, and those in stores that are not reported."""
        with ExitStack() as all_of_them:  # also after an error of one
            if self.uploads is not None:
                all_of_them.callback(self.uploads.abort)
            for series in reversed(self.series):
                all_of_them.callback(series.abort)


class _Series:
    """The shards of one series: one takes samples, and the one before it may wait for its copies.

    Attributes:
        done: the shards that are complete, and reported.
        samples: how many samples were written.
        last: the key of the last one.
    """

    def __init__(self, writer: ShardsWriter, names: Iterator[str]) -> None:
        self.done: list[Shard] = []
        self.samples = 0
        self.last: bytes | None = None
        self._writer = writer
        self._names = names
        self._content = writer.plan.limits.rule == "content" and writer.plan.limits.size is not None
        self._open: _OpenShard | None = None  # takes samples
        self._copying: _OpenShard | None = None  # the one before, which has all its samples
        self._closed_size = 0  # bytes of the shards that are closed

    @property
    def position(self) -> int:
        """Bytes written so far, before compression."""
        return self._closed_size + (self._open.writer.position if self._open else 0)

    def add(self, batch: SampleBatch) -> int:
        """Write samples to the current shard and the next ones; return how many are left when all shards are full."""
        if self._copying is not None:
            self.settle(wait=False)
        begin, stop = 0, batch.count
        contents: Sequence[int] = ()
        if self._content:
            contents = (0,) if isinstance(batch, TarSample) else list(accumulate(sample.content for sample in batch))
        while True:
            shard = self._open = self._open or self._begin()
            if shard is None:
                return stop - begin
            if self._content:
                before = contents[begin - 1] if begin else 0
                end = shard.limits.end(contents, begin, before, shard.samples, shard.content)
            else:
                weight = shard.writer.position
                ends = range(stop) if shard.limits.size is None else batch.stops  # only sizes need the stops
                end = shard.limits.end(ends, begin, batch.start_of(begin), shard.samples, weight)
            if begin < end:
                if isinstance(batch, TarSample) and batch.more is not None:
                    if not self._takes_unfinished(shard):
                        batch.complete()
                        continue
                    moved = self._write_unfinished(shard, batch)
                    if moved is None:
                        return 1
                    shard = moved
                else:
                    shard.take(batch, begin, end)
                if self._content:
                    # the content of a sample that was being read is known now
                    shard.content += batch.content if isinstance(batch, TarSample) else contents[end - 1] - before
                shard.first = shard.first if shard.samples else batch.keys[begin]
                shard.samples += end - begin
                self.samples += end - begin
                self.last = shard.last = batch.keys[end - 1]
            if end == stop:
                return 0
            begin = end
            self._finish("count" if shard.samples == shard.limits.count else "size")

    def relieve(self, most: int) -> None:
        """Write buffered bytes if they are more than `most`."""
        if self._open is not None and self._open.writer.waiting > most:
            self._open.writer.flush()

    def end(self) -> None:
        """End the shard that takes samples."""
        if self._open is not None:
            self._finish("end")

    def wait(self) -> None:
        """Wait until all that was added is copied from its sources."""
        for shard in (self._copying, self._open):
            if shard is not None:
                shard.writer.wait()

    def stop(self) -> None:
        """Discard the shard that takes samples, and complete the one before it: the input has failed, not that one."""
        self._discard_open()
        self.settle()

    def abort(self) -> None:
        """Discard the shards that are not complete."""
        copying, self._copying = self._copying, None
        try:
            self._discard_open()
        finally:
            if copying is not None:
                copying.writer.abort()

    def _discard_open(self) -> None:
        shard, self._open = self._open, None
        if shard is not None:
            shard.writer.abort()

    def settle(self, wait: bool = True) -> None:
        """Complete the shard that has all its samples, when its copies are made; without `wait`, if they are."""
        shard = self._copying
        if shard is None or (shard.writer.sink.busy and not wait):
            return
        try:
            shard.writer.close()
        finally:
            self._copying = None
        self._report(shard)

    def _begin(self) -> _OpenShard | None:
        """Open the next shard; return None when there may be no more."""
        limits, sizes = self._writer.plan.limits, self._writer.sizes
        if sizes is not None:
            count = next(sizes, None)
            if count is None:
                return None
            limits = replace(limits, count=count)
        name = next(self._names, None)
        return None if name is None else _OpenShard(name, self._writer.open(name), limits)

    def _takes_unfinished(self, shard: _OpenShard) -> bool:
        """Return whether a sample may be written before its end is known: if it is too long it has to be moved."""
        if isinstance(shard.writer, ListedShard):
            return False
        return shard.limits.longest is None or not shard.samples or isinstance(shard.writer.sink, FileSink)

    def _write_unfinished(self, shard: _OpenShard, sample: TarSample) -> _OpenShard | None:
        """Write a sample whose end is not known; return the shard that has it, the next one if it was too long."""
        before, longest = shard.writer.position, shard.limits.longest
        sample.write(shard.writer)
        if longest is None or not shard.samples or shard.writer.position <= longest:
            return shard
        shard.writer.flush()
        sink, stop = shard.writer.sink, shard.writer.position
        assert isinstance(sink, FileSink)
        following = self._begin()
        try:
            if following is not None:
                following.writer.sink.copy(sink.fileno(), before, stop)
                following.writer.position = stop - before
            sink.cut(before)
            shard.writer.position = before
            self._finish("size")
        except BaseException:
            if following is not None:
                following.writer.abort()
            raise
        self._open = following
        return following

    def _finish(self, why: str) -> None:
        shard = self._open
        assert shard is not None
        writer = shard.writer
        shard.size = writer.position + len(end_of_archive(writer.position))
        shard.why = why
        uploads = self._writer.uploads if writer.sink.remote else None
        if uploads is not None:
            writer.finish()
            uploads.make_room(shard.size)
        else:
            writer.flush()
            self.settle()  # the one before
        with uninterrupted():
            self._open = None
            self._closed_size += shard.size
            if uploads is not None:
                uploads.add(writer.sink, writer.close, shard.size, partial(self._report, shard))
            else:
                self._copying = shard
        self.settle(wait=not self._writer.overlaps)

    def _report(self, shard: _OpenShard) -> None:
        digest, stored = shard.writer.sink.digest() or ("", shard.size)
        path = self._writer.place(shard.name)
        if self._writer.plan.digest and not digest and os.path.isfile(path):
            digest, stored = sum_file("path", path)
        done = Shard(shard.name, shard.samples, shard.size, stored, shard.first or b"", shard.last or b"", digest)
        self._writer.announce(done, shard.why)
        self.done.append(done)
        name = base_name(path)
        if (entry := shard.writer.sink.index_entry(name)) is not None:
            self._writer.entries[name] = entry
        if self._writer.plan.options.post is not None:
            run_post(self._writer.plan.options.post, path)


def run_post(command: str, name: str) -> None:
    """Run a command for a shard: `{}`, or else `%s`, is replaced by its quoted name; `$TARKIT_SHARD` is set to it.

    Raises CommandFailed unless its status is 0.
    """
    quoted = shlex.quote(name)
    text = command.replace("{}", quoted) if "{}" in command else command.replace("%s", quoted)
    status = call(text, TARKIT_SHARD=name)
    if status:
        raise CommandFailed(
            text, status, hint=f"the shard {name} is complete; for those after it the command was not run"
        )


def write_manifest(sink: Sink, shards: list[Shard]) -> None:
    """Write a TSV table of shards: name, samples, bytes of the file, sha256, first and last key."""
    lines = ["\t".join(MANIFEST_COLUMNS).encode()]
    for shard in shards:
        numbers = (str(shard.samples), str(shard.stored), shard.sha256)
        cells = [escape_tsv(os.fsencode(shard.name)), *(n.encode() for n in numbers)]
        lines.append(b"\t".join([*cells, escape_tsv(shard.first), escape_tsv(shard.last)]))
    sink.write(b"\n".join(lines) + b"\n")
