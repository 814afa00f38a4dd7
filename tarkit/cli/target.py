"""Where commands that order samples write to: one archive, or shards, once -c or --size says how large these are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.console import Run
from tarkit.cli.output import Output, numbered_output, open_output, status_of, total_size
from tarkit.errors import Usage
from tarkit.samples.sample import TarSample
from tarkit.shards.limits import Limits, parse_size
from tarkit.shards.template import ShardTemplate, existing_shards, parse_template
from tarkit.shards.writer import SeriesWriter
from tarkit.streams.location import Location, parse_output
from tarkit.tar.writer import EntryWriter


@dataclass(frozen=True)
class OutputOptions:
    """What the options say about the output, which is not touched before `open`: not every run writes one."""

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
        """Whether something was said."""
        return self != OutputOptions()

    @property
    def cut(self) -> bool:
        """Whether there are to be shards."""
        return self.count is not None or self.size is not None

    def open(self, run: Run, locations: list[Location], name: str | None = None) -> Opened:
        """Look at what is there under the names that will be written, `name` in place of --output.

        Raises Usage when it is an input or a terminal, or the options do not go together; TarkitError when there are
        shards already.
        """
        name = self.output if name is None else name
        if not self.cut:
            if self.force or self.size_rule != "tar" or self.template != "auto":
                raise Usage("--force, --size-rule and --template are about shards", "-c or --size cuts some")
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
    """An output, whose names are looked at: to be written once."""

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
            if self._existing and not force:
                raise existing_shards([path for _, path in self._existing], hint="--force replaces them")
            refuse_inputs(self._existing, locations)

    def reserved(self, run: Run) -> None:
        """Raise Usage when a file that is read or written besides has a name that the shards may get."""
        if self.template is not None:
            for what, _, path in run.places.values():
                if self.template.matches(path) is not None:
                    raise Usage(f"{path} is {what}, and has a name that the shards may get")

    def write(self, run: Run, samples: Iterator[TarSample], check: Callable[[], None] = lambda: None) -> None:
        """Write all samples. `check` is called after the last; if it raises, the output is removed."""
        self.reserved(run)
        total = total_size(self.locations)
        if self.template is not None:
            self._write_shards(run, self.template, samples, total, check)
            return
        with EntryWriter(self.output.open(self.locations)) as writer:
            base = run.bytes
            for sample in run.watch(samples, lambda: base + writer.position, total):
                sample.write(writer)
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
    """Raises Usage when an input has one of the names that the shards may get."""
    if existing:
        there = {(status.st_dev, status.st_ino) for status in map(status_of, (path for _, path in existing)) if status}
        for location in locations:
            if location.kind in ("path", "stdin"):
                status = os.fstat(0) if location.kind == "stdin" else os.stat(location.text)
                if (status.st_dev, status.st_ino) in there:
                    raise Usage(f"{location.name} is an input, and has a name that the shards may get")


def _target(
    output: str | None,
    count: int | None,
    size: str | None,
    size_rule: Any,
    template: Any,
    force: bool,
    compress: str | None,
    fsync: bool,
) -> OutputOptions:
    return OutputOptions(output, template, compress, fsync, count, size, size_rule, force)


target = options.group(
    "target",
    _target,
    click.option(
        "-o", "--output", "--outputs", metavar="OUT", help="Write to file OUT, - or pipe:COMMAND.  [default: -]"
    ),
    click.option(
        "-c", "--count", type=click.IntRange(1), metavar="N", help="Cut shards of N samples: OUT is 'out-%06d.tar'."
    ),
    click.option("--size", metavar="SIZE", help="Cut shards of at most SIZE bytes: 500M, 16MiB, 1e9."),
    click.option(
        "--size-rule",
        type=click.Choice(["tar", "content"]),
        default="tar",
        metavar="tar|content",
        help="SIZE is what no tar exceeds, or what the contents reach.  [default: tar]",
    ),
    click.option(
        "--template",
        type=click.Choice(["auto", "printf", "bash", "at"]),
        default="auto",
        metavar="auto|printf|bash|at",
        help="How OUT counts shards, as in split.  [default: auto]",
    ),
    click.option("--force", is_flag=True, help="Replace the shards that are there."),
    click.option("--compress", metavar="CODEC[:LEVEL]", help="gz, zst, lz4, xz, bz2, zip, none.  [default: by suffix]"),
    click.option("--fsync", is_flag=True, help="Have the output on the disk before it gets its name."),
)
