"""tarkit create: pack an archive by a recipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, BinaryIO

import click

from tarkit.cli import options
from tarkit.cli.command import Command, choice, option
from tarkit.cli.console import Run, current
from tarkit.cli.output import Output, status_of
from tarkit.errors import TarkitError, Usage, show
from tarkit.samples.sample import split_name
from tarkit.samples.validate import NameChecks
from tarkit.stores import schemes
from tarkit.streams.copy import Short
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink
from tarkit.tables.content import ContentLoader, EntryContent, loaded
from tarkit.tables.depfile import make_rule
from tarkit.tables.recipe import MalformedRow, Row, read_recipe
from tarkit.tar.header import encode, encoder
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.tables.reader import Format

EXAMPLES = (
    "tarkit create recipe -o data.tar",
    "printf 'a.txt text:hello\\na.cls text:1\\n' | tarkit create | tar tf -",
    "tarkit create table.csv --format csv -o data.tar --depfile data.d",
)
COST = "One pass over the recipe and its sources; memory does not grow with them. --group holds the recipe."


@dataclass
class CreateOptions:
    """How the recipe is read and what the entries get."""

    format: Format | None = None
    columns: list[str] | None = None
    key: str | None = None
    folder: str | None = None
    ahead: int = 1
    count: int | None = None
    skip_missing: bool = False
    group: bool = False
    pipes: bool = True
    mtime: int | None = 0
    depfile: str | None = None
    depfile_target: str | None = None


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("recipe", default="-")
@option("Input", "-C", "--directory", metavar="DIR", help="Directory of relative paths in the recipe.")
@options.parallel("Read N sources at a time.")
@options.output
@options.mtime
@options.DEPFILE
@options.DEPFILE_TARGET
@option(
    "Recipe",
    "--format",
    type=click.Choice(["tsv", "csv", "jsonl"]),
    help="RECIPE is a table: its columns are fields.",
)
@option("Recipe", "--columns", metavar="A,B", help="Names of columns, for a table without header.")
@option("Recipe", "--key", metavar="TEMPLATE", help="Keys: '{index:09d}', '{id}'.  [default: __key__]")
@option("Recipe", "--count", type=click.IntRange(0), metavar="N", help="Only the first N entries.")
@option("Recipe", "--group", is_flag=True, help="Gather the entries of each sample.")
@option("Recipe", "--no-pipe", is_flag=True, help="Refuse sources that run a command.")
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
    format: Format | None,
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

    A line of RECIPE is NAME SOURCE, split at the first tab, else at the first white space. Blank lines and lines that
    begin with '# ' are skipped. A SOURCE is a path, file:PATH, text:LITERAL, hex:.., base64:.. or pipe:COMMAND. The
    entries of a sample must be adjacent, unless --group gathers them.

    With --format, RECIPE is a table with a row for each sample: a cell of column txt is the content of field txt, a
    cell of column @jpg is a source of field jpg.
    """
    if format is None and (columns is not None or key is not None):
        raise Usage("--columns and --key require --format tsv, csv or jsonl")
    if depfile is not None and depfile_target is None and output.location.kind != "path":
        raise Usage("--depfile needs the name of the output: --depfile-target NAME")
    names = None if columns is None else columns.replace(",", " ").split()
    skip = on_missing == "skip"
    chosen = CreateOptions(
        format, names, key, directory, parallel, count, skip, group, not no_pipe, mtime, depfile, depfile_target
    )
    run_create(current(), recipe, output, chosen)


def run_create(run: Run, recipe: str, output: Output, chosen: CreateOptions) -> None:
    """Write the entries of a recipe to an archive."""
    location = Location("stdin", "-", "stdin") if recipe == "-" else Location("path", recipe, recipe)
    if recipe == "-" and os.isatty(0):
        raise Usage("stdin is a terminal", "name the recipe, or pipe one to stdin")
    _refuse_other_sources(recipe)
    run.refuse([location], chosen.depfile)
    run.reserve(recipe, "the recipe", written=False)
    run.reserve(chosen.depfile, "the depfile")
    output.check_time(chosen.mtime)
    missing = _Missing(run) if chosen.skip_missing else None
    outputs = [output.status(), *map(status_of, (run.report, chosen.depfile))]
    load = ContentLoader(chosen.folder, filter(None, outputs), run.scratch(output), missing, times=chosen.mtime is None)
    names = NameChecks("--group gathers the entries of each sample")
    sources: list[bytes] = [] if recipe == "-" else [os.fsencode(recipe)]
    with (
        open(0 if recipe == "-" else recipe, "rb", closefd=recipe != "-") as lines,
        EntryWriter(output.open([location])) as writer,
    ):
        contents = loaded(_rows(lines, location.name, chosen), load, chosen.ahead)
        if run.shows_progress:
            contents = run.draw(contents, lambda: writer.position, lambda: names.samples)
        encode_next = None if chosen.mtime is None else encoder(chosen.mtime)
        for row, content in contents:
            if content is None:
                continue
            try:
                names.check(row[0])
            except MalformedRow as error:
                raise TarkitError(f"{row.where}: {error}", error.hint) from None
            _add(writer, row, content, encode_next)
            if chosen.depfile is not None and row.kind == "path":
                sources.append(os.path.join(os.fsencode(chosen.folder or ""), row.value))
        writer.finish()
        if chosen.depfile is not None:
            with open_sink("path", chosen.depfile) as sink:
                sink.write(make_rule(chosen.depfile_target or output.location.text, sources))
    run.samples, run.bytes = names.samples, writer.position
    run.finish()


def _refuse_other_sources(recipe: str) -> None:
    """Raise an error for what may be packed but is no recipe."""
    if os.path.isdir(recipe):
        hint = f"tarkit shard packs the files below it: tarkit shard {quote(recipe)}"
        raise TarkitError(f"{recipe}: Is a directory", hint)
    if schemes.scheme_of(recipe) and not os.path.lexists(recipe):
        hint = f"{schemes.command_for(recipe)} | tarkit create -"
        raise Usage(f"{schemes.public_name(recipe)}: a recipe is a file or stdin", hint)


def _rows(lines: BinaryIO, name: str, chosen: CreateOptions) -> Iterator[Row]:
    rows: Iterator[Row]
    if chosen.format is None:
        rows = read_recipe(lines, name, pipes_allowed=chosen.pipes)
    else:
        from tarkit.tables.reader import read_table

        rows = read_table(
            lines, chosen.format, name, key=chosen.key, columns=chosen.columns, pipes_allowed=chosen.pipes
        )
    if chosen.group:
        rows = _grouped(rows)
    return rows if chosen.count is None else islice(rows, min(chosen.count, sys.maxsize))


def _grouped(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of each key together, at the place of the first."""
    groups: dict[tuple[bool, bytes], list[Row]] = {}
    for row in rows:
        parts = split_name(row.name)
        groups.setdefault((True, parts[0]) if parts else (False, row.name), []).append(row)
    return (row for group in groups.values() for row in group)


def _add(
    writer: EntryWriter, row: Row, content: EntryContent, encode_next: Callable[[bytes, int], bytes] | None
) -> None:
    """Write an entry; its header is by `encode_next`, or has the content's time."""
    try:
        header = encode_next(row[0], content[2]) if encode_next else encode(row[0], content[2], mtime=content.mtime)
    except ValueError as error:
        raise TarkitError(f"{row.where}: {error}") from None
    if content[1] < 0:
        writer.add(header, content[0])
        return
    try:
        writer.add_file(header, content.fd, content.size)
    except Short:
        raise TarkitError(f"{row.where}: {show(row.value)} became shorter while it was read") from None
    finally:
        os.close(content.fd)


class _Missing:
    """Says what was left out since it is not there."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __call__(self, what: str) -> None:
        self.run.facts["missing"] = self.run.facts.get("missing", 0) + 1
        self.run.warn(f"{what}; its entry is left out")
