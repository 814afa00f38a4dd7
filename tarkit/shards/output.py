"""Write the samples of a dataset to one or several series of numbered shards.

A shard closes at its limits. Equal shards take two passes, the first of which counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from itertools import count as counting
from typing import TYPE_CHECKING, Any

from tarkit.errors import TarkitError, Usage, spell
from tarkit.pipeline.archive import check_keys
from tarkit.pipeline.output import and_archives, status_of, total_size
from tarkit.pipeline.stages import neighbours, without_strays
from tarkit.pipeline.template import refuse_existing
from tarkit.problems import usual_hint
from tarkit.samples.sample import SampleBatch, singly
from tarkit.shards.mds import base_name, index_path, read_entries, read_entry, write_index
from tarkit.shards.series import ShardsPlan
from tarkit.shards.writer import Shard, ShardsWriter
from tarkit.sizes import plural
from tarkit.streams.location import Location, anchored
from tarkit.streams.text import is_there

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Chain
    from tarkit.pipeline.output import Output
    from tarkit.pipeline.run import Run
    from tarkit.pipeline.steps import Flow
    from tarkit.pipeline.template import ShardTemplate
    from tarkit.pipeline.view_writer import ViewWriter
    from tarkit.shards.limits import Even, Remainder
    from tarkit.shards.series import SeriesSpec


@dataclass(eq=False, repr=False)
class ShardsOutput(ShardsPlan):
    """Series of shards to write; existing files of their names are looked up first.

    Attributes:
        series: the series: one, or one for each part or category.
        view: the view that gets the samples in place of shards, with the names of these in a column; else None.
        index: the index of MDS beside the shards; None for another format.
        listed: the entries of the index to which `append` adds, by the names of the shards.
        existing: of each series, the existing shards, and those that such an index names, by number.
        starts: of each series, the number of its first shard.
        place: where a shard is, whatever the present directory becomes.

    Raises:
        TarkitError: there are shards of these names, and neither `append` nor `force`.
    """

    indexed = True
    series: Sequence[SeriesSpec] = ()
    view: Output | None = None
    index: str | None = field(init=False, default=None)
    listed: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)
    existing: list[list[tuple[int, str]]] = field(init=False)
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._set_index()
        if any(spec.template.text.lower().endswith(".parquet") for spec in self.series):
            raise Usage("shards are archives, and a view is one file", f"{spell('template')} NAME.view.parquet")
        self.place = anchored()
        self.existing = [[] if self.view else self._existing(spec.template) for spec in self.series]
        self.starts = [self._first(shards) for shards in self.existing]
        for spec, start in zip(self.series, self.starts, strict=True):
            if spec.template.count != 0:
                spec.template.name(start)  # raises if there is no such name

    def _set_index(self) -> None:
        """Set the index of MDS. Raises Usage if it would be replaced, unless `append` or `force` says so."""
        names = [spec.template.text for spec in self.series]
        indexes = [index_path(name) for name in names if self.output.form_of(name) == "mds"]
        if len(indexes) > 1:
            raise Usage("MDS has an index for a directory, and these are several series", "write .tar, and split each")
        if not indexes or self.view is not None:
            return
        self.index, storage = indexes[0], self.output.location.options
        if self.options.append:
            self.listed = read_entries(self.index, storage)
        elif not self.options.force and is_there(self.index, storage):
            message = f"{self.index} is there already"
            raise Usage(message, f"{spell('force')} replaces it, {spell('append')} adds to it")

    def _existing(self, template: ShardTemplate) -> list[tuple[int, str]]:
        existing = set(template.existing(self.output.location.options))
        for path in (template.directory + name for name in self.listed):
            if (number := template.matches(path)) is not None:
                existing.add((number, path))
        return sorted(existing)

    def _kept(self) -> list[str]:
        """Return the existing shards before the first one of each series, which stay."""
        numbered = zip(self.starts, self.existing, strict=True)
        return [path for start, existing in numbered for number, path in existing if number < start]

    def write_index(self, writer: ShardsWriter) -> None:
        """Write the index of MDS, if there are shards: those that stay, and those of a writer that is closed."""
        if self.index is None:
            return
        storage, entries = self.output.location.options, dict(self.listed)
        for path in self._kept():
            if base_name(path) not in entries:
                entries[base_name(path)] = read_entry(self.place(path), storage)
        entries |= {base_name(shard.name): writer.entries[base_name(shard.name)] for shard in writer.done}
        if entries:
            write_index(self.place(self.index), entries.values(), storage)

    def _first(self, existing: list[tuple[int, str]]) -> int:
        if existing and self.options.append:
            return existing[-1][0] + 1
        if not self.options.force:
            refuse_existing([path for _, path in existing], self.options.repair)
        return self.options.start or 0

    def matches(self, path: str) -> bool:
        """Return whether a path is one of the names that shards may get."""
        return any(spec.template.matches(path) is not None for spec in self.series)

    def refuse_places(self, run: Run) -> None:
        """Raise Usage when another file of the run has one of the names that the shards may get."""
        for words, _, path in run.places.values():
            if words != "the output" and self.matches(path):
                raise Usage(f"{path} is {words}, and has a name that the shards may get")

    def refuse_inputs(self, locations: Sequence[Location]) -> None:
        """Raise Usage when an input has one of the names that the shards may get."""
        locations = and_archives(locations)
        taken = {path for shards in self.existing for _, path in shards}
        there = {(status.st_dev, status.st_ino) for status in map(status_of, taken) if status}
        for location in locations if taken else ():
            replaced = location.kind == "url" and location.text in taken
            if there and location.kind in ("path", "stdin"):
                status = os.fstat(0) if location.kind == "stdin" else os.stat(location.text)
                replaced = (status.st_dev, status.st_ino) in there
            if replaced:
                raise Usage(f"{location.name} is an input, and has a name that the shards may get")

    def open(self, run: Run, sizes: Iterator[int] | None = None, view: ViewWriter | None = None) -> ShardsWriter:
        """Return the writer of all series, or of a view of them.

        `sizes` are the numbers of samples of the shards, in place of a limit.
        """
        starts = zip(self.series, self.starts, strict=True)
        names = [islice(map(spec.template.name, counting(start)), self.limits.shards) for spec, start in starts]
        return ShardsWriter(run, self, names, sizes, self.place, view=view)

    def write(self, data: Chain, run: Run) -> ShardsWriter:
        """Write all samples of a dataset; return the writer, which has the shards."""
        self.refuse_inputs(data.locations)
        contents = self.view is None
        listed = not contents and self.assign is None and self.limits.rule == "tar"
        listed = listed and not any(step.permutes for step in data.steps)  # which find the keys that come again
        batches, flow = data.batches(
            run,
            contents=contents,
            listed=listed,
            as_view=self.view is not None,
            directory=self.output.directory,
            decode_ahead=True,
        )
        return self.write_samples(without_strays(check_keys(batches, data, flow), run.policy), flow)

    def write_samples(
        self, batches: Iterator[SampleBatch], flow: Flow, sizes: Iterator[int] | None = None
    ) -> ShardsWriter:
        """Write samples of a run, all of which have keys; return the writer. `sizes` are as for `open`."""
        run, total = flow.run, total_size(flow.inputs.locations)
        before = run.samples
        unwritten = 0  # samples for which there are no more shards
        with flow, self._open_view(flow) as view:
            self.refuse_places(run)
            writer = self.open(run, sizes, view)
            try:
                try:
                    for batch in run.watch("writing", batches, lambda: writer.position, total):
                        unwritten = writer.add(batch)
                        if unwritten:
                            run.samples -= unwritten
                            break
                    writer.wait()  # `finish` checks whether files have changed, and must not be early
                    flow.finish()
                except Exception:  # of the input, not of the shards before
                    writer.stop()
                    raise
                writer.close(run.samples - before)
                if view is not None:
                    view.finish()
            except BaseException as error:
                writer.abort()
                self._say_what_stays(error, len(writer.done))
                raise
            if unwritten:
                self._count_rest(run, batches, unwritten)
        self.write_index(writer)
        self.finish(run, writer.done, writer.samples)
        run.samples -= writer.left_out
        return writer

    def _open_view(self, flow: Flow) -> AbstractContextManager[ViewWriter | None]:
        if self.view is None:
            return nullcontext()
        from tarkit.pipeline.view_writer import open_view

        return open_view(self.view, flow.inputs.locations, flow, into=True)

    def _say_what_stays(self, error: BaseException, done: int) -> None:
        """Add to an error how many shards were complete before it; what commands did with them is not known."""
        commands = self.options.post is not None or self.output.location.kind == "pipe"
        commands = commands or self.view is not None
        if not done or commands or not isinstance(error, Exception):
            return
        stay = plural(done, "complete shard stays", "complete shards stay")
        them = "it" if done == 1 else "them"
        way = f"remove {them} before {spell('append')}" if self.options.append else f"{spell('force')} replaces {them}"
        text = f"{stay}: {way}"
        if isinstance(error, TarkitError):
            hint = error.hint or usual_hint(error)
            error.hint = text if hint is None else f"{hint}; {text}"
        else:
            error.add_note(text)

    def _count_rest(self, run: Run, batches: Iterator[SampleBatch], count: int) -> None:
        """Report how many samples are not written because the last shard is full: `count`, and those that follow.

        They are counted by their headers. The shards are complete, so a fault in what is left ends the count alone.
        """
        if self.limits.shards is None:
            raise TarkitError("an input has changed: it has more samples than in the pass that counted them")
        fault = ""
        try:
            for batch in batches:
                count += batch.count
        except TarkitError as error:
            fault = f"; the count ended at {error}"
        words = f"{'at least ' if fault else ''}{plural(count, 'sample')}"
        run.tell(f"stopped at {spell('max_shards', self.limits.shards)}: {words} not written{fault}")
        run.facts["not_written"] = count

    def finish(self, run: Run, shards: Sequence[Shard], samples: Sequence[int]) -> None:
        """Remove shards of an earlier run that `force` replaces, and count; `samples` has the number of each series."""
        if self.options.force:
            storage = self.output.location.options
            made = {shard.name for shard in shards}
            numbered = zip(self.starts, self.existing, strict=True)
            behind = (path for start, existing in numbered for index, path in existing if index >= start)
            others = [self.place(path) for path in behind if path not in made]
            if self.index is not None and not shards and not self._kept() and is_there(self.index, storage):
                others.append(self.place(self.index))
            run.remove_others(others, storage)
        empty = [spec.name for spec, count in zip(self.series, samples, strict=True) if not count]
        if not shards:
            run.tell("no sample, so no shard")
        elif empty:
            more = f" and {len(empty) - 3} more" if len(empty) > 3 else ""
            run.warn(f"no sample for {', '.join(empty[:3])}{more}, so no shard")
        run.shards += len(shards)
        run.bytes += sum(shard.size for shard in shards)


# ---- Equal shards: equal in number of samples, or about equal in bytes


def write_equal(
    data: Chain, output: ShardsOutput, run: Run, shards: int, even: Even, remainder: Remainder
) -> ShardsWriter:
    """Write a dataset to `shards` equal shards of one series; return the writer.

    Args:
        even: what is equal: the numbers of samples, or about the bytes.
        remainder: what becomes of samples that are left over, if the numbers are equal.

    Raises:
        TarkitError: there are fewer samples than shards, or the template has too few names.
    """
    output.series[0].template.name(output.starts[0] + shards - 1)  # raises if there is no such name
    output.refuse_inputs(data.locations)
    as_view = output.view is not None
    batches, flow = data.batches(
        run, contents=not as_view, as_view=as_view, directory=output.output.directory, spool=True
    )
    with flow:
        batches = without_strays(check_keys(batches, data, flow), run.policy)
        if even == "count":
            batches, sizes = _divide(batches, flow, shards, remainder)
            return output.write_samples(batches, flow, sizes)
        output.limits = replace(output.limits, size=_closing_size(flow, shards), rule="content")
        writer = output.write_samples(batches, flow)
    if 0 < len(writer.done) < shards and len(writer.done) != output.limits.shards:
        run.tell(f"{plural(len(writer.done), 'shard')} and no more: so large are some samples")
    return writer


def _reread(flow: Flow) -> Iterator[SampleBatch]:
    """Read again the samples that are written, without warnings."""
    policy = flow.run.policy.silent()
    batches = neighbours(flow.reread(policy), policy, flow.inputs.tmpdir, flow.keys_may_repeat)
    return flow.run.watch_input("counting", without_strays(batches, policy), total_size(flow.inputs.locations))


def _divide(
    batches: Iterator[SampleBatch], flow: Flow, shards: int, remainder: Remainder
) -> tuple[Iterator[SampleBatch], Iterator[int]]:
    """Count the samples; return those to write, and how many of them each shard gets."""
    run, total = flow.run, sum(batch.count for batch in _reread(flow))
    size, rest = divmod(total, shards)
    run.note(f"{plural(total, 'sample')} for {plural(shards, 'shard')}")
    if total == 0:
        return iter(()), iter(())
    if size == 0 and remainder != "repeat":
        hint = f"{spell('remainder', 'repeat')} uses some again"
        raise TarkitError(f"{plural(total, 'sample')} cannot fill {plural(shards, 'shard')}", hint)
    if remainder == "spread":
        return batches, (size + (index < rest) for index in range(shards))
    if remainder == "drop":
        if rest:
            words = f"the last {rest} of {total} samples {'is' if rest == 1 else 'are'} left out"
            run.tell(f"{words}: {spell('remainder', 'drop')}")
            run.facts["left_out"] = rest
        return islice(singly(batches), size * shards), repeat(size, shards)
    size += rest > 0
    again = size * shards - total
    if again:
        run.tell(f"{plural(again, 'sample comes', 'samples come')} twice: {spell('remainder', 'repeat')}")
        run.facts["repeated"] = again
    repeated = islice(chain.from_iterable(singly(_reread(flow)) for _ in counting(1)), again)
    return chain(batches, repeated), repeat(size, shards)


def _closing_size(flow: Flow, shards: int) -> int:
    """Return the size at which a shard closes, as in dSort's equal division: (1 + bytes of all contents) / shards."""
    total = sum(sample.content for sample in singly(_reread(flow)))
    size = -(-(1 + total) // shards)
    flow.run.note(f"{plural(total, 'byte')} of content for {plural(shards, 'shard')}, each closes at {size}")
    return size
