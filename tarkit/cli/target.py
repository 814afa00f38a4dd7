"""Where commands that order samples write to: one archive, or shards, once -c or --size says how large these are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from tarkit.api.archive import write_archive
from tarkit.api.dataset import Dataset
from tarkit.api.output import Output, numbered_output, open_output
from tarkit.api.shards import Lot, ShardsOutput
from tarkit.cli import options
from tarkit.cli.console import ConsoleRun
from tarkit.errors import Usage
from tarkit.shards.template import parse_size, parse_template
from tarkit.shards.writer import Limits


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

    def open(self, run: ConsoleRun, name: str | None = None) -> Output | ShardsOutput:
        """Look at what is there under the names that will be written, `name` in place of --output.

        Raises Usage when it is a terminal or the options do not go together; TarkitError when there are shards.
        """
        name = self.output if name is None else name
        if not self.cut:
            if self.force or self.size_rule != "tar" or self.template != "auto":
                raise Usage("--force, --size-rule and --template are about shards", "-c or --size cuts some")
            output = open_output(name, self.compress, self.fsync, "-c N or --size SIZE cuts shards")
            if output.location.kind == "path":
                run.reserve(output.location.text, "the output")
            return output
        if name is None or name == "-":
            raise Usage("-c and --size cut shards, which are files", "name them with -o 'out-%06d.tar'")
        output = numbered_output(name, self.compress, self.fsync)
        limits = Limits(self.count, None if self.size is None else parse_size(self.size, "-c"), self.size_rule)
        shards = ShardsOutput(output, [Lot("", parse_template(name, self.template))], limits, force=self.force)
        for what, _, path in run.places.values():
            if shards.matches(path):
                raise Usage(f"{path} is {what}, and has a name that the shards may get")
        return shards


def write(data: Dataset, target: Output | ShardsOutput, run: ConsoleRun) -> None:
    """Write a dataset to one archive, or to shards."""
    if isinstance(target, ShardsOutput):
        target.write(data, run)
    else:
        write_archive(data, target, run)


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
