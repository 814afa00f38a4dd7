"""The output of commands that order samples: one archive, or shards if -c or --size limits their size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.command import option
from tarkit.cli.console import Run
from tarkit.cli.output import Output, numbered_output, open_output, status_of, total_size
from tarkit.errors import Usage
from tarkit.samples.sample import TarSample
from tarkit.shards.template import ShardTemplate, parse_size, parse_template, refuse_existing
from tarkit.shards.writer import Limits, SeriesWriter
from tarkit.streams.location import Location, parse_output
from tarkit.tar.writer import EntryWriter


@dataclass(frozen=True)
class OutputOptions:
    """The options of the output. It is not touched before `open`, since not every run writes one."""

    output: str | None = None
    template: Any = "auto"
    compress: str | None = None
    fsync: bool = False
    count: int | None = None
    size: str | None = None
    size_rule: Any = "tar"
    force: bool = False

    @property
    def given(self) -> bool:
        """Whether any option was given."""
        return self != OutputOptions()

    @property
    def cut(self) -> bool:
        """Whether shards are written."""
        return self.count is not None or self.size is not None

    def open(self, run: Run, locations: list[Location], name: str | None = None) -> Opened:
        """Check for existing output under the names that will be written, with `name` in place of --output.

        Raises:
            Usage: for an input, a terminal, or options that cannot be used together
            TarkitError: for existing shards
        """
        name = self.output if name is None else name
        if not self.cut:
            if self.force or self.size_rule != "tar" or self.template != "auto":
                raise Usage("--force, --size-rule and --template require -c or --size")
            output = open_output(name, self.compress, self.fsync, "-c N or --size SIZE cuts shards")
            if output.location.kind == "path":
                run.reserve(output.location.text, "the output")
            return Opened(output, locations)
        if name is None or name == "-":
            raise Usage("-c and --size cut shards, which are files", "name them with -o 'out-%06d.tar'")
        output = numbered_output(name, self.compress, self.fsync)
        limits = Limits(self.count, None if self.size is None else parse_size(self.size, "-c"), self.size_rule)
        return Opened(output, locations, parse_template(name, self.template), limits, self.force)


class Opened:
    """An output whose names have been checked. It is written once."""

    def __init__(
        self,
        output: Output,
        locations: list[Location],
        template: ShardTemplate | None = None,
        limits: Limits | None = None,
        force: bool = False,
    ) -> None:
        self.output = output
        self.locations = locations
        self.template = template
        self._limits = limits or Limits()
        self._force = force
        self._existing = [] if template is None else template.existing()
        if template is not None:
            if not force:
                refuse_existing([path for _, path in self._existing], "--force replaces them")
            refuse_inputs(self._existing, locations)

    def reserved(self, run: Run) -> None:
        """Raise Usage when another file that is read or written has a name that the shards may get."""
        if self.template is not None:
            for what, _, path in run.places.values():
                if self.template.matches(path) is not None:
                    raise Usage(f"{path} is {what}, and has a name that the shards may get")

    def write(self, run: Run, samples: Iterator[TarSample], check: Callable[[], None] = lambda: None) -> None:
        """Write all samples; `check` is called after the last one, and an error that it raises discards the output."""
        total = total_size(self.locations)
        if self.template is not None:
            self.reserved(run)
            self._write_shards(run, self.template, samples, total, check)
            return

        def written(writer: EntryWriter) -> Iterator[int]:
            for sample in samples:
                sample.write(writer)
                yield sample.key is not None

        self.write_all(run, written, check)

    def write_all(
        self, run: Run, write: Callable[[EntryWriter], Iterator[int]], check: Callable[[], None] = lambda: None
    ) -> None:
        """Write one archive, to which `write` appends samples; it yields the number of samples after each step."""
        self.reserved(run)
        with EntryWriter(self.output.open(self.locations)) as writer:
            base = run.bytes
            counts = write(writer)
            if run.shows_progress:
                counts = run.draw(
                    counts, lambda: base + writer.position, lambda: run.samples, total_size(self.locations)
                )
            for count in counts:
                run.samples += count
            check()
            writer.finish()
        run.bytes += writer.position

    def _write_shards(
        self,
        run: Run,
        template: ShardTemplate,
        samples: Iterator[TarSample],
        total: int | None,
        check: Callable[[], None],
    ) -> None:
        shards = SeriesWriter(
            template,
            lambda name: self.output.open_named(parse_output(name).text, not self._force),
            self._limits,
            announce=lambda shard, why: run.note(
                f"{shard.name}: {shard.samples} samples, {shard.size} bytes, closed by {why}"
            ),
        )
        try:
            for sample in run.watch(samples, lambda: shards.position, total):
                if sample.key is not None:
                    shards.add(sample)
                else:
                    run.warn(f"{sample.source.name}: no sample; {len(sample.entries)} entries without key are left out")
            check()
            shards.close()
        except BaseException:
            shards.abort()
            raise
        made = {shard.name for shard in shards.done}
        run.remove_others([path for _, path in self._existing if path not in made])
        if not made:
            run.tell("no sample, so no shard")
        run.shards += len(made)
        run.bytes += sum(shard.size for shard in shards.done)


def refuse_inputs(existing: list[tuple[int, str]], locations: list[Location]) -> None:
    """Raise Usage when an input has one of the names that the shards may get."""
    if existing:
        there = {(status.st_dev, status.st_ino) for status in map(status_of, (path for _, path in existing)) if status}
        for location in locations:
            if location.kind in ("path", "stdin"):
                status = os.fstat(0) if location.kind == "stdin" else os.stat(location.text)
                if (status.st_dev, status.st_ino) in there:
                    raise Usage(f"{location.name} is an input, and has a name that the shards may get")


target = options.group(
    "target",
    OutputOptions,
    options.OUT,
    options.TEMPLATE,
    options.COMPRESS,
    options.FSYNC,
    options.FORCE,
    option(
        "Shards", "-c", "--count", type=click.IntRange(1), metavar="N", help="N samples per shard; OUT: 'out-%06d.tar'."
    ),
    option("Shards", "--size", metavar="SIZE", help="At most SIZE bytes per shard: 500M, 16MiB."),
    options.SIZE_RULE,
)
