"""tarkit create: pack an archive by a recipe."""

from __future__ import annotations

import click

from tarkit.cli import options
from tarkit.cli.command import Command, choice, option
from tarkit.cli.console import current
from tarkit.packing.create import CreateOptions, RecipeFormat, pack_recipe
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
@option("Input", "-C", "--directory", metavar="DIR", help="Relative paths in the recipe begin at DIR.")
@options.parallel("Read N sources at a time.")
@options.output
@options.mtime
@options.DEPFILE
@option(
    "Recipe",
    "--format",
    type=click.Choice(["tsv", "csv", "jsonl"]),
    help="RECIPE is a table: its columns are fields.",
)
@option("Recipe", "--columns", metavar="A,B", help="Names of columns, for a table without header.")
@option(
    "Recipe",
    "--key",
    metavar="TEMPLATE",
    help="Key of a row, such as '{id}'.  [default: __key__]",
    more="'{id}' is the cell of the column id, '{index:09d}' the number of the row. The default is the column __key__.",
)
@option("Recipe", "--count", type=click.IntRange(0), metavar="N", help="Only the first N entries.")
@option("Recipe", "--group", is_flag=True, help="Gather the entries of each sample.")
@choice(
    "Problems",
    "--on-missing",
    choices="error|skip",
    help="For a file that is missing.",
    more="skip leaves its entry out.",
)
def create(
    recipe: str,
    output: Output,
    format: RecipeFormat | None,
    columns: str | None,
    key: str | None,
    directory: str | None,
    parallel: int,
    count: int | None,
    on_missing: str,
    group: bool,
    mtime: int | None,
    depfile: str | None,
) -> None:
    """Pack what a recipe lists into an archive.

    A line of RECIPE is NAME SOURCE, split at the first tab, else at the first white space. Blank lines and lines that
    begin with '# ' are skipped. A SOURCE is a path, file:PATH, text:LITERAL, hex:.., base64:.. or pipe:COMMAND. The
    entries of a sample must be adjacent, unless --group gathers them.

    With --format, RECIPE is a table with a row for each sample: a cell of column txt is the content of field txt, a
    cell of column @jpg is a source of field jpg.
    """
    names = None if columns is None else columns.replace(",", " ").split()
    skip = on_missing == "skip"
    chosen = CreateOptions(format, names, key, directory, parallel, count, skip, group, True, mtime, depfile)
    run = current()
    pack_recipe(recipe, output, run, chosen)
    run.finish()
