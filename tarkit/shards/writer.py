"""Write samples to numbered shards, and their manifest."""

from __future__ import annotations

import os
import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tarkit.errors import CommandFailed, TarkitError, show
from tarkit.pipeline.stages import stays_apart
from tarkit.pipeline.template import ShardTemplate
from tarkit.problems import Policy
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.shards.limits import Limits
from tarkit.signals import uninterrupted
from tarkit.streams.command import call
from tarkit.streams.sink import FileSink, Sink
from tarkit.tables.tsv import escape_tsv
from tarkit.tar.block import BLOCK, RECORD
from tarkit.tar.header import end_of_archive
from tarkit.tar.writer import GATHERED, EntryWriter

if TYPE_CHECKING:
    from tarkit.streams.background_uploads import BackgroundUploads

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
class _Open:
    """A shard that is not complete. `content` counts bytes of payload; `why` says why it closed, with `size` bytes."""

    name: str
    writer: EntryWriter
    count: int | None
    samples: int = 0
    content: int = 0
    first: bytes | None = None
    last: bytes | None = None
    size: int = 0
    why: str = ""


class SeriesWriter:
    """Write one series of numbered shards, none of which is empty.

    Args:
        template: names of the shards.
        open_sink: opens a shard by its name.
        limits: when a shard closes.
        start: index of the first shard.
        sizes: the number of samples of each shard, in place of the limits.
        post: a command that is run for each complete shard, and may move it.
        digest: whether checksums are computed.
        place: where a shard is, by its name.
        announce: called with each complete shard and the reason why it closed.
        uploads: remote shards are completed there, in the background; `done` has those that are reported.
        overlap: whether the next shard begins while long copies of a local one are under way, in a thread.

    `full` is set when a sample was not written, since there may be no more shards.
    """

    def __init__(
        self,
        template: ShardTemplate,
        open_sink: Callable[[str], Sink],
        limits: Limits,
        *,
        start: int = 0,
        sizes: Iterator[int] | None = None,
        post: str | None = None,
        digest: bool = False,
        place: Callable[[str], str] = str,
        announce: Callable[[Shard, str], None] = lambda shard, why: None,
        uploads: BackgroundUploads | None = None,
        overlap: bool = False,
    ) -> None:
        self.done: list[Shard] = []
        self.full = False
        self._template = template
        self._open_sink = open_sink
        self._limits = limits
        self._content = limits.rule == "content" and limits.size is not None
        self._next = start
        self._end = None if limits.shards is None else start + limits.shards
        self._sizes = sizes
        self._post = post
        self._digest = digest
        self._place = place
        self._announce = announce
        self._uploads = uploads
        self._overlap = overlap
        self._open: _Open | None = None  # takes samples
        self._copying: _Open | None = None  # the one before, which has all its samples
        self._closed = self._closed_size = 0  # samples and bytes of the shards that are closed

    @property
    def position(self) -> int:
        """Bytes written so far, before compression."""
        return self._closed_size + (self._open.writer.position if self._open else 0)

    def add(self, batch: SampleBatch) -> int:
        """Write samples to the current shard and the next ones; return how many are left when all shards are full."""
        if self._copying is not None:
            self._settle(wait=False)
        if isinstance(batch, TarSample):
            return int(not self._add(batch))
        if self._content:
            samples = list(batch)
            return next((len(samples) - place for place, sample in enumerate(samples) if not self._add(sample)), 0)
        begin, stop = 0, len(batch.keys)
        while True:
            shard = self._open = self._open or self._begin()
            if shard is None:
                self.full = True
                return stop - begin
            end = self._fit(shard, batch, begin)
            if begin < end:
                batch.write(shard.writer, begin, end)
                shard.first = shard.first if shard.samples else batch.keys[begin]
                shard.samples += end - begin
                shard.last = batch.keys[end - 1]
            if end == stop:
                return 0
            begin = end
            self._finish("count" if shard.samples == shard.count else "size")

    def _add(self, sample: TarSample) -> bool:
        """Write one sample, whose end may not be known; return False when all shards that there may be are full."""
        shard = self._open
        if shard is not None and shard.samples:
            why = self._closes_before(shard, sample)
            if why:
                self._finish(why)
                shard = None
        if shard is None:
            shard = self._open = self._begin()
            if shard is None:
                self.full = True
                return False
        if sample.more is None:
            sample.write(shard.writer)
        elif not self._takes_unfinished(shard):
            sample.complete()
            return self._add(sample)
        else:
            before = shard.writer.position
            sample.write(shard.writer)
            if shard.samples and self._too_long(shard.writer.position):
                shard = self._move_tail(shard, before)
                if shard is None:
                    return False
        shard.samples += 1
        shard.last = sample.key
        if shard.samples == 1:
            shard.first = sample.key
        if self._content:
            shard.content += sample.content
        return True

    def _fit(self, shard: _Open, batch: SampleBatch, begin: int) -> int:
        """Return up to which sample of a batch, from `begin` on, a shard takes; an empty one takes at least one."""
        end = len(batch.keys) if shard.count is None else min(len(batch.keys), begin + shard.count - shard.samples)
        if self._limits.size is None:
            return end
        before = shard.writer.position - batch.start_of(begin)
        fit = bisect_left(batch.stops, True, begin, end, key=lambda stop: self._too_long(before + stop))
        return fit if shard.samples else max(fit, begin + 1)

    @property
    def samples(self) -> int:
        """The number of samples in all shards so far."""
        return self._closed + (self._open.samples if self._open else 0)

    def relieve(self, most: int) -> None:
        """Write buffered bytes if they are more than `most`."""
        if self._open is not None and self._open.writer.waiting > most:
            self._open.writer.flush()

    def close(self) -> None:
        """Complete the last shards."""
        if self._open is not None:
            self._finish("end")
        self._settle()

    def wait(self) -> None:
        """Wait until all that was added is copied from its sources."""
        for shard in (self._copying, self._open):
            if shard is not None:
                shard.writer.wait()

    def stop(self) -> None:
        """Discard the shard that takes samples, and complete the one before it: the input has failed, not that one."""
        self._discard_open()
        self._settle()

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

    def _settle(self, wait: bool = True) -> None:
        """Complete the shard that has all its samples, when its copies are made; without `wait`, if they are."""
        shard = self._copying
        if shard is None or (shard.writer.sink.busy and not wait):
            return
        try:
            shard.writer.close()
        finally:
            self._copying = None
        self._report(shard)

    def _closes_before(self, shard: _Open, sample: TarSample) -> str | None:
        if shard.count is not None and shard.samples >= shard.count:
            return "count"
        if self._limits.size is None:
            return None
        if self._content:
            return "size" if shard.content >= self._limits.size else None
        return "size" if self._too_long(shard.writer.position + sample.size) else None

    def _too_long(self, position: int) -> bool:
        """Return whether a tar with `position` bytes of entries, and its end, would exceed the limit."""
        size = self._limits.size
        return size is not None and self._limits.rule == "tar" and -(-(position + 2 * BLOCK) // RECORD) * RECORD > size

    def _takes_unfinished(self, shard: _Open) -> bool:
        """Return whether a sample may be written before its end is known: if it is too long it has to be moved."""
        bounded = self._limits.size is not None and self._limits.rule == "tar" and shard.samples > 0
        return not bounded or isinstance(shard.writer.sink, FileSink)

    def _begin(self) -> _Open | None:
        """Open the next shard; return None when there may be no more."""
        if self._next == self._end:
            return None
        count = self._limits.count if self._sizes is None else next(self._sizes, None)
        if count is None and self._sizes is not None:
            return None
        name = self._template.name(self._next)
        self._next += 1
        return _Open(name, EntryWriter(self._open_sink(name)), count)

    def _move_tail(self, shard: _Open, before: int) -> _Open | None:
        """Move the sample that begins at `before` to the next shard, since this one is too long with it."""
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
        self.full = following is None
        return following

    def _finish(self, why: str) -> None:
        shard = self._open
        assert shard is not None
        writer = shard.writer
        shard.size = writer.position + len(end_of_archive(writer.position))
        shard.why = why
        uploads = self._uploads if writer.sink.remote else None
        if uploads is not None:
            writer.finish()
            uploads.make_room(shard.size)
        else:
            writer.flush()
            self._settle()  # the one before
        with uninterrupted():
            self._open = None
            self._closed += shard.samples
            self._closed_size += shard.size
            if uploads is not None:
                uploads.add(writer.sink, writer.close, shard.size, partial(self._report, shard))
            else:
                self._copying = shard
        self._settle(wait=not self._overlap)

    def _report(self, shard: _Open) -> None:
        """Report a shard that is complete."""
        digest, stored = shard.writer.sink.digest() or ("", shard.size)
        path = self._place(shard.name)
        if self._digest and not digest and os.path.isfile(path):
            import hashlib

            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                stored = os.fstat(file.fileno()).st_size
        done = Shard(shard.name, shard.samples, shard.size, stored, shard.first or b"", shard.last or b"", digest)
        self._announce(done, shard.why)
        self.done.append(done)
        if self._post is not None:
            run_post(self._post, path)


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


# ---- Several series of shards at once, one for each part or category

MEMORY = 64 << 20  # buffered bytes of all shards together


class SplitWriter:
    """Write all series of a split: each sample to the series whose number `assign` returns; None leaves it out.

    In each series one shard at a time takes samples. `series` has their writers, `samples` counts the samples of each,
    `left_out` those of none. Samples of one key may become neighbours in a series: `policy` decides, as for
    `joined-sample`.
    """

    def __init__(
        self,
        series: Sequence[SeriesWriter],
        assign: Callable[[TarSample], int | None] | None = None,
        policy: Policy | None = None,
        uploads: BackgroundUploads | None = None,
    ) -> None:
        """Without `assign` all samples go to the first series. `uploads` are those of all series, if any."""
        self.series = series
        self._uploads = uploads
        self.samples = [0] * len(series)
        self.left_out = 0
        self._assign = assign
        self._policy = policy or Policy()
        self._last: list[bytes | None] = [None] * len(series)
        self._waits = MEMORY // len(series)

    @property
    def position(self) -> int:
        """Bytes written so far, before compression."""
        return sum(writer.position for writer in self.series)

    @property
    def done(self) -> list[Shard]:
        """The shards that are complete, series after series."""
        return [shard for writer in self.series for shard in writer.done]

    def add(self, batch: SampleBatch) -> int:
        """Write samples to their series; return how many are left when all shards that there may be are full."""
        if self._uploads is not None:
            self._uploads.report()
        if self._assign is None:
            left = self.series[0].add(batch)
            self.samples[0] += len(batch.keys) - left
            return left
        samples = list(batch)
        return next((len(samples) - place for place, sample in enumerate(samples) if not self._place(sample)), 0)

    def _place(self, sample: TarSample) -> bool:
        """Write a sample to the series that `assign` names; return False when all shards that there may be are full."""
        assert self._assign is not None
        number = self._assign(sample)
        if number is None or (sample.key == self._last[number] and not self._meets(sample)):
            self.left_out += 1
            return True
        self._last[number] = sample.key
        if self.series[number].add(sample):
            return False
        self.samples[number] += 1
        if self._waits < GATHERED:
            self.series[number].relieve(self._waits)
        return True

    def _meets(self, sample: TarSample) -> bool:
        """Return False for a sample that is skipped since the one before it has its key. Raise TarkitError if that is
        allowed: readers would join the two, unless a shard ends between them."""
        if stays_apart(sample, self._policy):
            what = f"{sample.source.name}: at {sample.start}: the sample before it in its part has the same key"
            raise TarkitError(
                f"{what} {show(sample.key or b'')}, and a shard may end between the two",
                "tarkit sort joins them before",
            )
        return False

    def wait(self) -> None:
        """Wait until all that was added is copied from its sources."""
        for writer in self.series:
            writer.wait()

    def stop(self) -> None:
        """Discard the shards that take samples, and complete those before them, unless they are in a store."""
        with ExitStack() as all_of_them:  # also after an error of one
            for writer in reversed(self.series):
                all_of_them.callback(writer.stop)

    def close(self, samples: int) -> None:
        """Complete the last shards. Raises AssertionError unless all `samples` were written or left out."""
        written = sum(writer.samples for writer in self.series)
        if written + self.left_out != samples or written != sum(self.samples):
            raise AssertionError(f"of {samples} samples {written} were written and {self.left_out} left out")
        for writer in self.series:
            writer.close()
        if self._uploads is not None:
            self._uploads.finish()

    def abort(self) -> None:
        """Discard the shards that are not complete, and those in stores that are not reported."""
        with ExitStack() as all_of_them:  # also after an error of one
            if self._uploads is not None:
                all_of_them.callback(self._uploads.abort)
            for writer in reversed(self.series):
                all_of_them.callback(writer.abort)


class ShardOpener:
    """Opens shards, each name once: templates with a name in common must not replace each other's shards."""

    def __init__(self, open_sink: Callable[[str], Sink]) -> None:
        self._open = open_sink
        self._made: set[str] = set()

    def __call__(self, name: str) -> Sink:
        """Open the shard of this name. Raises TarkitError when this run has opened it before."""
        if name in self._made:
            raise TarkitError(f"{show(name)} would be written twice: two templates have this name")
        self._made.add(name)
        return self._open(name)
