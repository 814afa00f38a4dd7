"""tarkit create: pack an archive by a recipe."""

from __future__ import annotations

from collections.abc import Callable

import click

from tarkit.cli import options as shared
from tarkit.cli.command import Command
from tarkit.cli.console import current
from tarkit.packing.create import CreateOptions, pack_recipe
from tarkit.pipeline.output import Output

EXAMPLES = (
    "tarkit create recipe -o data.tar",
    "printf 'a.txt text:hello\\na.cls text:1\\n' | tarkit create | tar tf -",
    "tarkit create table.csv --format csv -o data.tar --depfile data.d",
)
COST = (
    "One pass over the recipe and its sources; memory does not grow with them. --group holds the recipe.\f A file that "
    "is changed while it is read is an error; of one up to 256 KiB only a change of its length is seen."
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("recipe", default="-")
@shared.output
@shared.rows(CreateOptions, mtime=shared.parse_mtime)
def create(recipe: str, output: Output, options: Callable[..., CreateOptions]) -> None:
    """Pack what a recipe lists into an archive.

    A line of RECIPE is NAME SOURCE, split at the first tab, else at the first white space. Blank lines and lines that
    begin with '# ' are skipped. A SOURCE is a path, file:PATH, text:LITERAL, hex:.., base64:.. or pipe:COMMAND. The
    entries of a sample must be adjacent, unless --group gathers them.

    With --format, RECIPE is a table with a row for each sample: a cell of column txt is the content of field txt, a
    cell of column @jpg is a source of field jpg. In Parquet, columns are fields as for cat.
    """
    run = current()
    pack_recipe(recipe, output, run, options(pipes=True))
    run.finish()
