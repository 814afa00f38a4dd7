"""The output of commands that order samples: one archive, or shards if -c or --size limits their size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tarkit.cli import options
from tarkit.cli.console import ConsoleRun
from tarkit.dataset import Dataset
from tarkit.errors import Usage
from tarkit.options import row
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.output import Output, archive_output, archives_output
from tarkit.pipeline.rows import COMPRESS, FSYNC, OUT
from tarkit.pipeline.template import parse_template
from tarkit.shards.rows import FORCE, SIZE_RULE, SeriesOptions

if TYPE_CHECKING:
    from tarkit.shards.limits import SizeRule
    from tarkit.shards.output import ShardsOutput


class OutputOptions(SeriesOptions):
    """The options of the output. It is not touched before `open`, since not every run writes one."""

    output: str | None = OUT
    compress: str | None = COMPRESS
    fsync: bool = FSYNC
    force: bool = FORCE
    count: int | None = row(
        "Shards", "-c", "--count", at_least=1, metavar="N", help="N samples per shard, with OUT 'x-%06d.tar'."
    )
    size: str | None = row("Shards", "--size", metavar="SIZE", help="At most SIZE bytes per shard: 500M, 16MiB.")
    size_rule: SizeRule = SIZE_RULE

    @property
    def cut(self) -> bool:
        """Whether shards are written."""
        return self.count is not None or self.size is not None

    def open(self, run: ConsoleRun, name: str | None = None) -> Output | ShardsOutput:
        """Check for existing output under the names that will be written, with `name` in place of --output.

        Raises Usage when it is a terminal or the options do not go together; TarkitError when there are shards.
        """
        name = self.output if name is None else name
        if not self.cut:
            if self.force or self.size_rule != "tar":
                raise Usage("--force and --size-rule require -c or --size")
            hint = "-c N or --size SIZE cuts shards"
            if name != self.output:
                hint += "; -o 'e{epoch}.tar' writes one file for each epoch"
            output = archive_output(name, self.compress, self.fsync, hint)
            run.reserve_output(output)
            return output
        if name is None or name == "-":
            raise Usage("-c and --size cut shards, which are files", "name them with -o 'out-%06d.tar'")
        from tarkit.shards.limits import Limits
        from tarkit.shards.output import ShardsOutput
        from tarkit.shards.series import SeriesSpec

        output = archives_output(name, self.compress, self.fsync)
        limits = Limits.of(self.count, self.size, self.size_rule)
        shards = ShardsOutput(output, limits, options=self, series=[SeriesSpec("", parse_template(name))])
        shards.refuse_places(run)
        return shards


def write(data: Dataset, target: Output | ShardsOutput, run: ConsoleRun) -> None:
    """Write a dataset to one archive, or to shards."""
    if isinstance(target, Output):
        write_archive(data, target, run)
    else:
        target.write(data, run)


target = options.rows(OutputOptions, "target")
