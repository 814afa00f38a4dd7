"""tarkit create: pack an archive by a recipe."""

from __future__ import annotations

import click

from tarkit.api.create import CreateOptions, RecipeFormat, write_recipe
from tarkit.api.output import Output
from tarkit.cli import options
from tarkit.cli.app import Command
from tarkit.cli.console import current
from tarkit.errors import Usage
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit create recipe -o data.tar",
    "printf 'a.txt text:hello\\na.cls text:1\\n' | tarkit create | tar tf -",
    "tarkit create table.csv --format csv -o data.tar --depfile data.d",
)
COST = "One pass over the recipe and its sources; memory does not grow with them. --group holds the recipe."


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("recipe", default="-")
@options.output
@click.option("--format", type=click.Choice(["tsv", "csv", "jsonl"]), help="RECIPE is a table: columns are fields.")
@click.option("--columns", metavar="A,B", help="The names of the columns of a table without a header.")
@click.option("--key", metavar="TEMPLATE", help="Keys for a table: '{index:09d}', '{id}'.  [default: column __key__]")
@click.option("-C", "--directory", metavar="DIR", help="Relative paths in the recipe start at DIR.")
@click.option("-p", "--parallel", type=click.IntRange(1), default=1, metavar="N", help="Read N sources at a time.")
@click.option("--count", type=click.IntRange(0), metavar="N", help="Only the first N entries.")
@click.option(
    "--on-missing",
    type=click.Choice(["error", "skip"]),
    default="error",
    metavar="error|skip",
    help="What to do when a file is not there: end, or leave its entry out.  [default: error]",
)
@click.option("--group", is_flag=True, help="Gather the entries of each sample, wherever they stand.")
@click.option("--no-pipe", is_flag=True, help="Refuse sources that run a command.")
@options.mtime
@click.option(
    "--depfile", type=options.WRITTEN, metavar="FILE", help="Write what the output depends on to FILE, for make."
)
@click.option("--depfile-target", metavar="NAME", help="What the depfile calls the output.")
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
    no_pipe: bool,
    mtime: int | None,
    depfile: str | None,
    depfile_target: str | None,
) -> None:
    """Pack what a recipe lists into an archive.

    A line of RECIPE is NAME SOURCE, split at the first tab, else at the first white space. Blank lines and those that
    begin with '# ' are skipped. A SOURCE is a path, file:PATH, text:LITERAL, hex:.., base64:.. or pipe:COMMAND. The
    entries of one sample stand together, or --group gathers them.

    With --format, RECIPE is a table with a row for each sample: cells of a column txt are what the field txt holds,
    cells of a column @jpg are sources of the field jpg.
    """
    if format is None and (columns is not None or key is not None):
        raise Usage("--columns and --key are about tables: say --format tsv, csv or jsonl")
    if depfile is not None and depfile_target is None and output.location.kind != "path":
        raise Usage("--depfile needs the name of the output: --depfile-target NAME")
    names = None if columns is None else columns.replace(",", " ").split()
    skip = on_missing == "skip"
    chosen = CreateOptions(
        format, names, key, directory, parallel, count, skip, group, not no_pipe, mtime, depfile, depfile_target
    )
    run = current()
    if recipe != "-":
        run.refuse([Location("path", recipe, recipe)], depfile)
    run.reserve(recipe, "the recipe", written=False)
    run.reserve(depfile, "the depfile")
    write_recipe(recipe, output, run, chosen, [path for path in (run.report, depfile) if path is not None])
    run.finish()
