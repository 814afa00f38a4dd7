"""The passes of a sort or shuffle on many machines, as the client runs them.

1. scan: count the samples of each input; for a sort, draw some of their keys (`scan.scan_inputs`).
2. scatter: sort each group of inputs, so that the samples of each span are neighbours in its file
   (`scatter.scatter_group`).
3. order: merge the lists of all groups for each span (`merge.order_span`); compare keys (`merge.compare_keys`).
4. write: read the blocks of some shards, and write these (`write.write_samples`). Where shards begin, the client finds
   before (`find_starts`).

The order and the bytes are those of `sorting.order.Order` on one machine. Through the client go figures of inputs,
groups, spans and shards. Where shards are cut by their size, the sizes of samples do as well; where the output is one
archive, its bytes: the client reads the pieces that tasks have written to the spill, and writes them one after the
other.

Words of this package:

- pass: one of these steps. It has a task for each item, and the executor of the run does them.
- group: inputs that are neighbours; one task of scatter sorts them.
- part: rows of a view, an input of its own; those of a group that follow each other are read as one.
- rank: bytes by which samples are compared.
- span: a range of the order, from one rank to another ("range of the order" in messages); one task merges its lists.
- section: the part of the list of a group for one span, for the strays, or for one key part.
- key part: the keys with one remainder of their checksum; one task compares them.
- record: one sample in the order of a span. Samples of one key that are joined have a record each.
- block: samples that are neighbours in the file of a group; one task of write reads them.
- stray: an entry without a key. All of them come before the first sample.
- piece: the file that one task of write leaves in the spill where the output is one archive.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple
from zlib import crc32

from tarkit.cluster.call import Item, Result, TaskContext, Work, call_task
from tarkit.cluster.merge import SHOWN, KeyPlace, KeysItem, OrderItem, SpanFigures, compare_keys, order_span
from tarkit.cluster.plan import DRAWN, InputFigures, Ordering, TaskDivision
from tarkit.cluster.records import file_name
from tarkit.cluster.scan import ScanItem, ScanResult, choose_bounds, scan_inputs
from tarkit.cluster.scatter import GroupFigures, SampleSums, ScatterItem, random_bounds, scatter_group
from tarkit.cluster.shared import Blob, Spill
from tarkit.cluster.write import SpanRecords, WriteItem, WriteResult, write_samples
from tarkit.errors import Problem, TarkitError, Unsupported, show, spell
from tarkit.pipeline.output import Output, and_archives
from tarkit.pipeline.run import Run
from tarkit.pipeline.view_index import join_parts, parts_here
from tarkit.pipeline.view_rows import shared_views
from tarkit.shards.limits import Limits
from tarkit.shards.output import ShardsOutput
from tarkit.shards.series import SeriesSpec
from tarkit.shards.writer import Shard
from tarkit.sizes import plural
from tarkit.stores import connect
from tarkit.stores.schemes import scheme_of
from tarkit.streams.location import Location, portable_location
from tarkit.streams.sink import short_name
from tarkit.tar.writer import EntryWriter

MOMENT = 0.2  # seconds: a task that has seen that the run goes on gives its shard the name


@dataclass
class ClusterOutcome:
    """Counts of a run on a cluster, and its passes: name, tasks and seconds of each."""

    samples: int = 0
    sums: SampleSums = field(default_factory=SampleSums)
    shards: list[Shard] = field(default_factory=list)
    first: bytes = b""
    last: bytes = b""
    passes: list[tuple[str, int, float]] = field(default_factory=list)


class OrderingPasses:
    """The passes of an ordering, which `run` writes to an output: the figures that each pass leaves for the next."""

    def __init__(
        self,
        ordering: Ordering,
        output: Output | ShardsOutput,
        context: TaskContext,
        reports: Run,
        division: TaskDivision,
    ) -> None:
        self.ordering, self.output, self.context, self.division = ordering, output, context, division
        self.spill, self.reports = context.spill, reports
        self.locations = ordering.archives.locations
        self.parts: Sequence[Location] = ()  # of all inputs: views are divided
        self.names: Sequence[str] = ()  # of all inputs, and then of the archives that views name
        self.outcome = ClusterOutcome()
        self.inputs: list[InputFigures] = []
        self.scans: list[ScanResult] = []
        self.groups: list[GroupFigures] = []
        self.spans: list[SpanFigures] = []
        self.strays = SampleSums()
        self.key_parts = 0
        self.span_count = 1

    def run(self) -> ClusterOutcome:
        """Do all passes."""
        with shared_views(self.locations):
            self.names = [location.name for location in and_archives(self.locations)]
            self.parts = list(parts_here(self.locations))
        if self.ordering.archives.shard_slice is not None:
            self.parts = join_parts(self.parts)
        self._scan()
        self._scatter()
        group_table = self.spill.put(
            "groups", json.dumps([(group.sections_at, group.strays.samples > 0) for group in self.groups]).encode()
        )
        self._order(group_table)
        self._compare_keys(group_table)
        self._write(group_table)
        return self.outcome

    @property
    def _limits(self) -> Limits | None:
        return self.output.limits if isinstance(self.output, ShardsOutput) else None

    # ---- The passes

    def _scan(self) -> None:
        batches = list(self.division.batches(len(self.parts)))
        draw = 0 if self.ordering.order.key is None else max(16, min(1000, DRAWN // len(batches)))
        items = (ScanItem(tuple(self.parts[batch.start : batch.stop]), draw) for batch in batches)
        for scan in self.reports.draw(
            "scanning",
            self._pass("scan", scan_inputs, items),
            lambda: sum(figures.bytes for figures in self.inputs),
            lambda: sum(figures.samples for figures in self.inputs),
        ):
            self.scans.append(scan)
            self.inputs += scan.inputs

    def _scatter(self) -> None:
        ordering, groups = self.ordering, list(self.division.groups(self.inputs))
        total = sum(figures.samples for figures in self.inputs)
        self.span_count = self.division.spans(total)
        bounds = choose_bounds(self.scans, self.span_count) if ordering.order.key else random_bounds(self.span_count)
        self.scans = []
        self.span_count = len(bounds) + 1
        self.key_parts = self.division.spans(total) if ordering.compares_keys else 0
        stored = self.spill.put("bounds", json.dumps([bound.hex() for bound in bounds]).encode())
        inputs = self.spill.put("inputs", json.dumps(self.names).encode())
        firsts = [0, *accumulate(figures.samples for figures in self.inputs)]

        def items() -> Iterator[ScatterItem]:
            for number, group in enumerate(groups):
                start, stop = group.start, group.stop
                yield ScatterItem(
                    number,
                    inputs,
                    tuple(join_parts(self.parts[start:stop])),
                    firsts[start],
                    firsts[stop] - firsts[start],
                    stored,
                    self.key_parts,
                    self._limits is not None and self._limits.size is not None and self._limits.rule == "content",
                )

        sums, size = self.outcome.sums, sum(figures.bytes for figures in self.inputs)
        for group in self.reports.draw(
            "scattering", self._pass("scatter", scatter_group, items()), lambda: sums.size, lambda: sums.samples, size
        ):
            self.groups.append(group)
            self.outcome.sums.merge(group.sums)
            self.strays.merge(group.strays)
            self.reports.dropped += group.left_out + group.dropped

    def _order(self, group_table: Blob) -> None:
        joins, limits = self.ordering.joins, self._limits
        weights = joins or (limits is not None and limits.size is not None)
        items = (OrderItem(span, group_table, joins, weights) for span in range(self.span_count))
        for figures in self.reports.draw(
            "ordering",
            self._pass("order", order_span, items),
            lambda: sum(span.bytes for span in self.spans),
            lambda: sum(span.records for span in self.spans),
            self.outcome.sums.size,
        ):
            self.spans.append(figures)
        records = sum(span.records for span in self.spans)
        if records != self.outcome.sums.samples or sum(span.bytes for span in self.spans) != self.outcome.sums.size:
            raise AssertionError(f"{self.outcome.sums} were scattered, but {records} are in the ranges of the order")
        for span in self.spans:
            for place in span.shown:
                self._refuse_neighbour(place)
        filled = [span for span in self.spans if span.records]
        for span, following in pairwise(filled):
            last, first = span.last, following.first
            if last is not None and first is not None and last.key == first.key:
                if self.ordering.joins:
                    message = f"{show(first.key)}: two samples that would be joined are in two ranges of the order"
                    raise Unsupported(message, f"run it without {spell('dask')}")
                self._refuse_neighbour(first._replace(before=last.input))

    def _compare_keys(self, group_table: Blob) -> None:
        scattered = len(self.locations) if "scattered-sample" in self.reports.policy.allowed else 0
        items = [KeysItem(1 + self.span_count + part, group_table, scattered) for part in range(self.key_parts)]
        repeated, shown = 0, list[KeyPlace]()
        for repeats in self._pass("keys", compare_keys, items):
            repeated += repeats.repeated
            shown += repeats.shown[: max(0, SHOWN - len(shown))]
        policy = self.reports.policy
        for place in shown:
            if self.ordering.gathers:
                self._refuse_neighbour(place)
            name = self.names[place.input]
            message = f"the key {show(place.key)} is also in {self.names[place.before]}"
            policy.apply(Problem("repeated-key", name, place.start, message))
        if repeated > len(shown):
            policy.counts["repeated-key"] += repeated - len(shown)

    def _refuse_neighbour(self, place: KeyPlace) -> None:
        """Raise Problem for two samples of one key that would be neighbours, or parts of one sample."""
        key, hint = show(place.key), None
        message = f"the sample before it in the output has the same key {key}"
        if self.ordering.order.gathers and place.before != place.input:
            message = f"the key {key} was in an earlier input"
            joins = f"{spell('allow', 'joined-sample')} joins them; "
            hint = f"{joins}else first tarkit cat --rekey '{{stem}}/{{key}}' ... | tarkit sort -"
        problem = Problem("joined-sample", self.names[place.input], place.start, message, hint)
        self.reports.policy.apply(problem)

    def _write(self, group_table: Blob) -> None:
        limits = self._limits or self._pieces()
        samples = sum(span.samples for span in self.spans)
        starts = find_starts(self.spill, self.spans, limits, self.strays.weight)
        target = self._series(len(starts)) if isinstance(self.output, ShardsOutput) else None
        items = list(self._write_items(starts, samples, group_table, target))
        if isinstance(self.output, ShardsOutput):
            self._write_shards(self.output, items, len(starts))
        else:
            self._write_archive(self.output, items)

    def _pieces(self) -> Limits:
        """Return the limits of the pieces of one archive: as many samples as have the bytes of a task, as a mean."""
        sums = self.outcome.sums
        size = self.division.size(sums.size)
        return Limits(count=max(1, sum(span.samples for span in self.spans) * size // max(1, sums.size)))

    def _write_items(
        self,
        starts: Sequence[ShardStart],
        samples: int,
        group_table: Blob,
        target: tuple[SeriesSpec, Output] | None,
    ) -> Iterator[WriteItem]:
        """Yield the tasks: each has shards that are neighbours, and as many of them as a task may have bytes."""
        most = self.division.size(self.outcome.sums.size)
        end = ShardStart(len(self.spans), 0, samples)
        borders = [*starts, end]
        first = number = 0
        while first < len(starts) or (not starts and number == 0 and self.strays.samples and target is None):
            last = min(first + 1, len(starts))
            while last < len(starts) and self._bytes(borders[first], borders[last + 1]) <= most:
                last += 1
            counts = tuple(borders[index + 1].sample - borders[index].sample for index in range(first, last))
            records = tuple(self._records(borders[first], borders[last]))
            strays = number == 0 and self.strays.samples > 0
            if target is None:
                yield WriteItem(number, records, group_table, strays)
            else:
                assert isinstance(self.output, ShardsOutput)
                start, force = self.output.starts[0], self.output.options.force
                yield WriteItem(number, records, group_table, strays, counts, start + first, *target, force)
            first, number = last, number + 1

    def _records(self, start: ShardStart, stop: ShardStart) -> Iterator[SpanRecords]:
        for span in range(start.span, min(stop.span + 1, len(self.spans))):
            first = start.record if span == start.span else 0
            last = stop.record if span == stop.span else self.spans[span].records
            if first < last:
                yield SpanRecords(span, first, last)

    def _bytes(self, start: ShardStart, stop: ShardStart) -> float:
        """Return how many bytes are between two places of the order, about."""
        return sum(
            self.spans[part.span].bytes * (part.last - part.first) / self.spans[part.span].records
            for part in self._records(start, stop)
        )

    # ---- Outputs

    def _series(self, count: int) -> tuple[SeriesSpec, Output]:
        """Return the names of the shards, and how workers write them. Raises TarkitError if there are too few names."""
        assert isinstance(self.output, ShardsOutput)
        spec, output = self.output.series[0], self.output.output
        if count:
            spec.template.name(self.output.starts[0] + count - 1)
        template = copy(spec.template)
        if not scheme_of(template.directory):
            template.directory = f"{os.path.abspath(template.directory or '.').rstrip('/')}/"
        location = portable_location(output.location)
        return spec._replace(template=template), output._replace(location=location)

    def _write_shards(self, output: ShardsOutput, items: Sequence[WriteItem], count: int) -> None:
        template, start = output.series[0].template, output.starts[0]
        names = [template.name(start + number) for number in range(count)]
        if not items and self.strays.samples:
            self.reports.warn("no sample found; entries without a key are left out")
        try:
            shards = [shard for result in self._written(items) for shard in result.shards]
            self._account(len(shards) == count)
        except BaseException:
            self._discard(output, items)
            raise
        finally:
            _remove_parts(names)
        self.outcome.shards = [shard._replace(name=name) for shard, name in zip(shards, names, strict=True)]
        self.reports.samples += self.outcome.samples
        output.finish(self.reports, self.outcome.shards, [self.outcome.samples])

    def _discard(self, output: ShardsOutput, items: Sequence[WriteItem]) -> None:
        """Remove the shards that were completed before an error, except those that took the place of others.

        Tasks that still run complete no more of them: one may do so just now. Shards that no task has claimed are those
        of other runs.
        """
        with suppress(OSError, TarkitError):
            self.spill.end()
        time.sleep(MOMENT)
        before = {path for files in output.existing for _, path in files}
        template, options = output.series[0].template, output.output.location.options
        for item in items:
            with suppress(OSError, TarkitError):
                claimed = self.spill.has(file_name("claim", item.number))
                for number in range(len(item.shards)) if claimed else ():
                    path = template.name(item.first + number)
                    if path not in before:
                        with suppress(OSError, TarkitError):
                            connect.delete_object(path, options) if scheme_of(path) else os.unlink(path)

    def _write_archive(self, output: Output, items: Sequence[WriteItem]) -> None:
        pieces = [result.piece for result in self._written(items) if result.piece is not None]
        self._account(len(pieces) == len(items))
        with EntryWriter(output.open(self.locations)) as writer:
            for piece in pieces:
                checksum = 0
                for data in self.spill.stream(piece.name, 0, piece.length):
                    checksum = crc32(data, checksum)
                    writer.raw((data,), len(data))
                if checksum != piece.checksum:
                    raise self.spill.changed(piece.name, 0)
            writer.finish()
        self.reports.samples += self.outcome.samples
        self.reports.bytes += writer.position

    def _written(self, items: Sequence[WriteItem]) -> list[WriteResult]:
        run, total, done = self.reports, self.outcome.sums.size, SampleSums()
        written, strays = [], SampleSums()
        for result in run.draw(
            "writing", self._pass("write", write_samples, items), lambda: done.size, lambda: done.samples, total
        ):
            written.append(result)
            done.merge(result.sums)
            strays.merge(result.strays)
            self.outcome.samples += result.samples
            self.outcome.first = self.outcome.first or result.first
            self.outcome.last = result.last or self.outcome.last
        expected = sum(span.samples for span in self.spans)
        if not done.same(self.outcome.sums) or self.outcome.samples != expected:
            raise TarkitError(f"{self.outcome.sums} came in, but {done} went out: the output is not complete")
        if not strays.same(self.strays) and (items or not isinstance(self.output, ShardsOutput)):
            raise TarkitError(
                f"{plural(self.strays.samples, 'entry')} without a key came in, {strays.samples} went out"
            )
        return written

    def _account(self, complete: bool) -> None:
        """Report the numbers of samples; raise AssertionError if something is missing."""
        if not complete:
            raise AssertionError("some outputs are missing")
        taken, out = sum(figures.samples for figures in self.inputs), self.outcome.samples
        left_out = sum(group.left_out for group in self.groups)
        gathered = sum(group.joined for group in self.groups) + self.outcome.sums.samples - out
        if taken != gathered + left_out + out and not self.ordering.after:
            raise AssertionError(
                f"{plural(taken, 'sample')} came in, {gathered} became parts of others, {left_out} were left out, "
                f"but {out} came out"
            )
        facts = self.reports.facts
        facts["order"] = {"in": taken, "gathered": gathered, "left_out": left_out, "out": out}
        facts["fingerprint"] = f"{self.outcome.sums.fingerprint:032x}"
        facts["passes"] = [
            {"name": name, "tasks": tasks, "seconds": round(seconds, 3)} for name, tasks, seconds in self.outcome.passes
        ]

    def _pass(self, name: str, function: Work[Item, Result], items: Iterable[Item]) -> Iterator[Result]:
        """Do a task for each item, by the executor of the run; yield the results in order."""
        started, tasks = time.monotonic(), 0
        for result in self.reports.do_in_order(partial(call_task, function, self.context), items):
            tasks += 1
            yield result
        seconds = time.monotonic() - started
        self.outcome.passes.append((name, tasks, seconds))
        self.reports.note(f"{name}: {plural(tasks, 'task')}, {seconds:.2f} s")


def _remove_parts(names: Sequence[str]) -> None:
    """Remove temporary files that a killed worker left beside local shards."""
    directories: dict[str, set[str]] = {}
    for name in names:
        if not scheme_of(name):
            directory, base = os.path.split(os.path.abspath(name))
            directories.setdefault(directory, set()).add(f".{short_name(base)}.")
    for directory, begins in directories.items():
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in list(entries):
                stem = entry.name.removesuffix(".part").rstrip("0123456789.")
                if entry.name.endswith(".part") and f"{stem}." in begins:
                    with suppress(OSError):
                        os.unlink(entry.path)


# ---- Where shards begin in the order: the client finds it from the weights of samples that the third pass has written


class ShardStart(NamedTuple):
    """Where a shard begins: a span, a record in it, and the number of its first sample in the whole order."""

    span: int
    record: int
    sample: int


def find_starts(spill: Spill, spans: Sequence[SpanFigures], limits: Limits, ahead: int) -> list[ShardStart]:
    """Return where shards begin, in order; `ahead` is the weight of the entries before the first sample.

    Shards of equally many samples begin where the numbers of samples of the spans say. Others are found span after
    span, since a shard begins where the one before it is full; sums of weights take no time for each sample.
    """
    firsts = [0, *accumulate(span.samples for span in spans)]
    whole = all(span.samples == span.records for span in spans)
    if limits.size is None and limits.count is not None and whole:
        numbers = range(0, firsts[-1], limits.count)
        places = [(bisect_right(firsts, number) - 1, number) for number in numbers]
        return [ShardStart(span, number - firsts[span], number) for span, number in places]
    starts: list[ShardStart] = []
    samples, weight = 0, ahead  # of the shard that is open
    for span, figures in enumerate(spans):
        sums, records = _read_weights(spill, figures)
        at = before = 0
        while at < figures.samples:
            end = limits.end(sums, at, before, samples, weight)
            if not samples:
                starts.append(ShardStart(span, records[at] if records else at, firsts[span] + at))
            if end < figures.samples:
                samples, weight, at, before = 0, 0, end, sums[end - 1] if end else 0
            else:  # it goes on in the next span
                samples, weight = samples + figures.samples - at, weight + sums[-1] - before
                at = figures.samples
    return starts


def _read_weights(spill: Spill, figures: SpanFigures) -> tuple[Sequence[int], Sequence[int]]:
    """Return the sums of the weights of samples; and the first record of each, if some have several."""
    if figures.weights is None:
        return (), ()
    columns = memoryview(spill.get(figures.weights)).cast("Q")
    return array("Q", accumulate(columns[: figures.samples])), columns[figures.samples :]
