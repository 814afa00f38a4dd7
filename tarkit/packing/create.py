"""Pack the entries that a recipe or a table lists into an archive."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from shlex import quote
from typing import Any, BinaryIO, Literal

from tarkit.arguments import checks_types, list_words
from tarkit.errors import TarkitError, Usage, spell
from tarkit.joining.options import check_words
from tarkit.options import Options, row
from tarkit.packing.table import LoadedRows, TableOrigin
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import Output, status_of
from tarkit.pipeline.rows import DEPFILE, MTIME, SET_MORE, parse_set
from tarkit.pipeline.run import Run
from tarkit.samples.sample import split_name
from tarkit.stores.schemes import refuse_url
from tarkit.stores.store import parse_options
from tarkit.streams.location import file_location, is_view
from tarkit.streams.text import create_file, open_file_or_stdin, seekable
from tarkit.tables.content import ContentLoader, loaded
from tarkit.tables.depfile import make_rule
from tarkit.tables.recipe import Row, read_recipe

RecipeFormat = Literal["tsv", "csv", "jsonl", "parquet"]


@checks_types
def create(
    recipe: str | os.PathLike[str],
    output: str | os.PathLike[str] | BinaryIO,
    *,
    format: RecipeFormat | None = None,
    columns: str | Sequence[str] | None = None,
    set: str | Iterable[str] = (),
    key: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    count: int | None = None,
    skip_missing: bool = False,
    group: bool = False,
    pipes: bool = False,
    mtime: int | None = 0,
    depfile: str | os.PathLike[str] | None = None,
    compress: str | None = None,
    fsync: bool = False,
    parallel: int = 1,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> int:
    """Pack the entries of a recipe into an archive.

    Args:
        recipe: a file with a line NAME SOURCE for each entry, or `"-"` for stdin. A source is a path, `file:PATH`,
            `text:LITERAL`, `hex:...`, `base64:...` or `pipe:COMMAND`.
        output, compress, fsync: as for `Dataset.write`.
        format: the recipe is a table with a row for each sample: a column `txt` is the content of that field, a column
            `@jpg` the source of the field `jpg`.
        columns: the names of the columns of a table without a header.
        set: the fields of a Parquet table, as for `tarkit.open`.
        key: keys for a table, `"{index:09d}"`, or a column. Default: the column `__key__`.
        directory: the directory of relative paths.
        count: the number of entries to pack at most.
        skip_missing: leave out entries whose file does not exist.
        group: gather the entries of each sample; else they must be adjacent.
        pipes: let sources run commands.
        mtime: the time of all entries in seconds since 1970; None is that of each file.
        depfile: a file for the dependencies of the output, for make.
        parallel: how many sources are read at a time.
        tmpdir: the directory of temporary files.
        storage_options: how URLs of the recipe, the sources and what is written are reached, as for `tarkit.open`.

    Returns:
        The number of samples.

    Raises:
        TarkitError: a line is invalid, or its source cannot be read: `RECIPE:LINE: MESSAGE`.

    >>> import tarkit
    >>> with open("recipe", "w") as file:
    ...     _ = file.write("a.jpg photos/cat/1.jpg\\na.cls text:3\\n")
    >>> tarkit.create("recipe", "new.tar")
    1
    """
    options = CreateOptions.of(locals())
    run = Run(tmpdir=tmpdir)
    pack_recipe(os.fspath(recipe), Output.from_argument(output, compress, fsync, options=options.storage), run, options)
    return run.samples


class CreateOptions(Options):
    """The options of `tarkit.create` and the command `create`.

    Attributes:
        pipes: whether sources may be commands.
    """

    directory: str | None = row(
        "Input", "-C", "--directory", metavar="DIR", help="Relative paths in the recipe begin at DIR.", parse=os.fspath
    )
    parallel: int = row(
        "Input", "-p", "--parallel", default=1, at_least=1, metavar="N", help="Read N sources at a time."
    )
    mtime: int | None = MTIME
    depfile: str | None = DEPFILE
    format: RecipeFormat | None = row(
        "Recipe",
        "--format",
        choices=RecipeFormat,
        metavar="FORMAT",
        help="RECIPE is a table: tsv, csv, jsonl or parquet.",
    )
    columns: str | Sequence[str] | None = row(
        "Recipe",
        "--columns",
        split=True,
        metavar="A,B",
        help="Names of columns, for a table without header.",
        parse=lambda columns: list_words(columns, "columns"),
    )
    set: str | Iterable[str] = row(
        "Recipe",
        "--set",
        default=(),
        metavar="FIELDS",
        help="Fields of a Parquet table: 'jpg:image cls:label'.",
        more=SET_MORE,
        parse=parse_set,
    )
    key: str | None = row(
        "Recipe",
        "--key",
        metavar="TEMPLATE",
        help="Key of a row, such as '{id}'.  [default: __key__]",
        more="'{id}' or id is the cell of the column id, '{index:09d}' the number of the row. The default is the "
        "column __key__.",
    )
    count: int | None = row("Recipe", "--count", at_least=0, metavar="N", help="Only the first N entries.")
    group: bool = row("Recipe", "--group", default=False, help="Gather the entries of each sample.")
    skip_missing: bool = row(
        "Problems",
        "--on-missing",
        default=False,
        choices=("error", "skip"),
        aliases={"error": False, "skip": True},
        help="For a file that is missing.",
        more="skip leaves its entry out.",
    )
    pipes: bool = False
    storage_options: Mapping[str, object] | None = None

    def check(self) -> None:
        if self.format is None and (self.columns or self.key is not None):
            raise Usage(f"columns and a key require {spell('format')}", "tsv, csv or jsonl")
        if self.format == "parquet":
            check_words(str(self.set), self.key)
            if self.columns:
                raise Usage("column names are for tsv and csv only", "a Parquet table has its own")
        elif self.set:
            raise Usage(f"{spell('set')} requires {spell('format', 'parquet')}")
        self.storage = parse_options(self.storage_options)


def pack_recipe(recipe: str, output: Output, run: Run, chosen: CreateOptions) -> None:
    """Write the entries of a recipe to an archive.

    Args:
        recipe: the path or URL of the recipe; `-` is stdin.
        run: where messages and counts go.
        chosen: how the recipe is read, and the headers of entries.
    """
    location = file_location(recipe)
    if chosen.depfile is not None and output.location.kind != "path":
        raise Usage(f"{spell('depfile')} requires an output file", "make needs its name")
    if recipe != "-":
        run.refuse([location], chosen.depfile)
    if output.location.kind in ("path", "url"):
        run.reserve(output.location.text, "the output")
    run.reserve(recipe, "the recipe", written=False)
    run.reserve(chosen.depfile, "the depfile")
    refuse_url(chosen.directory, "directory")
    if recipe == "-" and os.isatty(0):
        raise Usage("stdin is a terminal", "name the recipe, or pipe one to stdin")
    _refuse_directory(recipe)
    if chosen.format is None and is_view(location):
        raise Usage(f"{location.name}: a Parquet file is a table", f"{spell('format', 'parquet')} packs its rows")
    output.refuse_terminal()
    output.check_time(chosen.mtime)

    def missing(message: str) -> None:
        run.facts["missing"] = run.facts.get("missing", 0) + 1
        run.warn(f"{message}; its entry is left out")

    written = [path for path in (run.report, chosen.depfile) if path is not None]
    taken = list(filter(None, [output.status(), *map(status_of, written)]))
    skipped = missing if chosen.skip_missing else None
    sources: list[bytes] = [os.fsencode(location.text)] if location.kind == "path" else []

    def rows(tmpdir: str | None) -> LoadedRows:
        load = ContentLoader(chosen.directory, taken, tmpdir, chosen.storage, times=chosen.mtime is None)
        with open_file_or_stdin(recipe, chosen.storage) as lines:
            contents = loaded(_rows(lines, location.name, chosen, run.warn), load, chosen.parallel, skipped)
            if (first := next(contents, None)) is None:
                run.warn(f"{location.name}: no entry, so the archive is empty")
                return
            contents = chain((first,), contents)
            yield from contents if chosen.depfile is None else noted(contents)

    def noted(contents: LoadedRows) -> LoadedRows:
        for entry, content in contents:
            if entry.kind == "path":
                sources.append(os.path.join(os.fsencode(chosen.directory or ""), entry.value))
            yield entry, content

    repair = f"{spell('group')} gathers the entries of each sample"
    write_archive(Chain(TableOrigin(location, rows, repair, chosen.mtime, chosen.storage), lambda: run), output, run)
    if chosen.depfile is not None:
        with create_file(chosen.depfile, options=chosen.storage) as sink:
            sink.write(make_rule(output.location.text, sources))


def _refuse_directory(recipe: str) -> None:
    if os.path.isdir(recipe):
        hint = f"tarkit shard packs the files below it: tarkit shard {quote(recipe)}"
        raise TarkitError(f"{recipe}: Is a directory", hint)


def recipe_rows(recipe: str, chosen: CreateOptions) -> Iterator[Row]:
    """Yield the entries that a recipe lists, as far as they are packed. Raises TarkitError for what is no recipe."""
    with open_file_or_stdin(recipe, chosen.storage) as lines:
        yield from _rows(lines, file_location(recipe).name, chosen)


def _rows(
    lines: BinaryIO, name: str, chosen: CreateOptions, warn: Callable[[str], None] | None = None
) -> Iterator[Row]:
    """Return the entries that a recipe or a table lists, as far as they are packed; `name` is for messages."""
    rows: Iterator[Row]
    how: Any = {"pipes_allowed": chosen.pipes}
    if chosen.format == "parquet":
        from tarkit.tables.assignments import parse_assignments
        from tarkit.tables.columnar import ColumnarTable

        words = parse_assignments(str(chosen.set))
        rows = ColumnarTable(seekable(lines), name, words, chosen.key, warn=warn or (lambda text: None)).rows()
    elif chosen.format is None:
        rows = read_recipe(lines, name, **how)
    else:
        from tarkit.tables.reader import read_table

        rows = read_table(lines, chosen.format, name, key=chosen.key, columns=chosen.columns, warn=warn, **how)
    if chosen.group:
        rows = _grouped(rows)
    return rows if chosen.count is None else islice(rows, min(chosen.count, sys.maxsize))


def _grouped(rows: Iterable[Row]) -> Iterator[Row]:
    """Return the rows, those of each key together at the place of the first."""
    groups: dict[tuple[bool, bytes], list[Row]] = {}
    for entry in rows:
        parts = split_name(entry.name)
        groups.setdefault((True, parts[0]) if parts else (False, entry.name), []).append(entry)
    return (entry for group in groups.values() for entry in group)
