"""Run a query of SQL over archives, views and tables, and write its result."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import chain
from typing import Any, BinaryIO

from tarkit.align import align
from tarkit.arguments import checks_types
from tarkit.errors import TarkitError, Usage, printable, show
from tarkit.export.columns import MISSING, Column, Row, TableFormat, check_heads
from tarkit.export.table import TableOptions
from tarkit.export.writer import gathered, pieces
from tarkit.options import Options, row
from tarkit.pipeline.locator import directory_of
from tarkit.pipeline.output import Output
from tarkit.pipeline.run import Run
from tarkit.pipeline.selection import ProblemOptions
from tarkit.query.engine import Engine
from tarkit.samples.values import Name
from tarkit.sizes import plural
from tarkit.stores.schemes import scheme_of
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.tempfile import temporary_directory
from tarkit.tables.parquet import PyarrowFile, load_pyarrow, plain_values, table_writer
from tarkit.views.names import MORE, REQUIRED, SHARD

ROWS = 1024  # of the result that are held at a time
WIDEST = 60  # characters of a cell on a terminal
VIEW = ".view.parquet"


class SqlOptions(Options):
    """The options of `tarkit.sql` and the command `sql`."""

    format: TableFormat | None = row(
        "Output",
        "--format",
        choices=TableFormat,
        metavar="FORMAT",
        help="Write tsv, csv, jsonl, json, yaml or parquet.",
        more="The default follows the suffix of OUT; else it is tsv, on a terminal columns in line.",
    )
    header: bool = row("Output", "--no-header", "--noheader", default=True, help="No header line, in TSV and CSV.")


@checks_types
def sql(
    query: str,
    output: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    format: TableFormat | None = None,
    header: bool = True,
    allow: str | Iterable[str] = (),
    skip: str | Iterable[str] = (),
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Any:
    """Run a query of SQL over archives, views and tables, whose names stand in quotes where tables do.

    Requires `tarkit[sql]`. Archives have the columns `__key__`, `__shard__`, `__start__` and `__stop__`, and all values
    that expressions have: fields, paths into JSON, `size.jpg` and so on. Other tables are Parquet, csv, tsv and jsonl.

    Args:
        query: a SELECT statement, as DuckDB has them.
        output: a path, a URL, `"-"` for stdout, or a binary file object; None to return the result.
        format: by default that of the suffix, else tsv.
        header: whether tsv and csv begin with the names of the columns.
        allow, skip, on_problem, tmpdir: as for `tarkit.open`.
        storage_options: how URLs are reached, as for `tarkit.open`.

    Returns:
        A table of pyarrow; with an output the number of rows.

    Raises:
        TarkitError: the query is invalid, or what it names cannot be read.

    >>> import tarkit
    >>> tarkit.sql("select cls, count(*) as n from 'train-*.tar' group by cls order by cls").to_pylist()
    [{'cls': 1, 'n': 1}, {'cls': 3, 'n': 2}]
    """
    given = locals()
    problems, options = ProblemOptions.of(given), SqlOptions.of(given)
    run, storage = problems.new_run(on_problem, tmpdir), parse_options(storage_options)
    if output is None:
        with _engine(query, run, None, storage) as engine, engine.errors():
            return engine.result().to_arrow_table()
    write_query(query, Output.text_from_argument(output, storage_options), run, options, storage)
    return run.facts["rows"]


@contextmanager
def _engine(query: str, run: Run, directory: str | None, storage: StoreOptions | None) -> Iterator[Engine]:
    with temporary_directory(run.scratch(directory)) as tmpdir:
        engine = Engine(query, run, tmpdir, storage)
        try:
            yield engine
        finally:
            engine.close()


def write_query(query: str, output: Output, run: Run, options: SqlOptions, storage: StoreOptions | None = None) -> None:
    """Run a query and write its result. A result with the columns of a view is one, if the output is Parquet."""
    format = TableOptions(format=options.format).format_of(output)
    shown = output.is_terminal and options.format is None
    if format == "parquet":
        output.refuse_terminal("Parquet")
    run.facts["rows"] = 0
    with _engine(query, run, output.directory, storage) as engine:
        run.refuse(engine.locations)
        result = engine.result()
        if twice := {name for name in result.columns if result.columns.count(name) > 1}:
            raise Usage(f"two columns are named {show(min(twice))}", "AS gives one another name")
        columns = [Column(name, (Name(name, exact=True),)) for name in result.columns]
        check_heads(columns, format)
        _check_view(output, [column.head for column in columns])
        with engine.errors():
            reader = (getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader)(ROWS)  # before DuckDB 1.5
            _check_types(reader.schema, format)
        with engine.errors(), output.open(engine.locations) as sink:
            batches = _counted(reader, run)
            if format == "parquet":
                parts = _parquet(batches, output)
            elif shown:
                parts = _aligned(batches, options.header)
            else:
                parts = pieces(format, columns, ([row] for batch in batches for row in _rows(batch)), options.header)
            for piece in gathered(parts):
                sink.write(piece)
                run.bytes += len(piece)


def _check_view(output: Output, columns: Sequence[str]) -> None:
    missing = [name for name in REQUIRED if name not in columns]
    if missing and output.location.text.lower().endswith(VIEW):
        words = f"{output.location.name}: a view has the columns {', '.join(REQUIRED)}; missing: {', '.join(missing)}"
        raise Usage(words, "select them, or name the output NAME.parquet")


def _check_types(schema: Any, format: str) -> None:
    """Raise Usage for a column with a type that pyarrow does not write: a union, in Parquet an interval."""
    arrow, parquet = load_pyarrow("SQL")
    for field in schema:
        try:
            arrow.schema([field]).empty_table()
            if format == "parquet":
                parquet.write_metadata(_plain_schema(arrow, [field]), BytesIO())
        except arrow.ArrowNotImplementedError:
            words = f"the column {show(field.name)} has a type that is not written: {field.type}"
            raise Usage(words, f"cast it: {show(field.name)}::varchar") from None


def _counted(reader: Any, run: Run) -> Iterator[Any]:
    """Yield batches, and at the end an empty one, whose schema is that of all."""
    for batch in reader:
        run.facts["rows"] += batch.num_rows
        yield batch
    yield reader.schema.empty_table()


def _rows(batch: Any) -> Iterator[Row]:
    columns = [_cells(batch.column(number)) for number in range(batch.num_columns)]
    return (list(cells) for cells in zip(*columns, strict=True))


def _cells(column: Any) -> list[Any]:
    """Return values: bytes and numbers as they are, text, and what JSON has for others."""
    arrow, _ = load_pyarrow("SQL")
    kind = column.type
    if arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind):
        values = column.to_pylist()
    elif arrow.types.is_decimal(kind) and kind.scale == 0:  # of sums
        values = [None if value is None else int(value) for value in column.to_pylist()]
    else:
        try:
            values = plain_values(column)
        except (ValueError, OverflowError, NotImplementedError):
            values = [None if value is None else _spelled(value) for value in column.to_pylist()]
    return [MISSING if value is None else value for value in values]


def _spelled(value: Any) -> Any:
    """Return a value as JSON has it: bytes that are not UTF-8 as `base64:...`, other kinds as text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except ValueError:
            return f"base64:{b64encode(value).decode()}"
    if isinstance(value, (list, tuple)):
        return list(map(_spelled, value))
    if isinstance(value, dict):
        return {name: _spelled(item) for name, item in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _aligned(batches: Iterable[Any], header: bool) -> Iterator[bytes]:
    """Yield rows with columns in line, each as wide as the rows need that are shown together."""
    for batch in batches:
        if not batch.num_rows and not header:
            continue
        types = batch.schema.types
        right = {number for number, kind in enumerate(types) if str(kind).startswith(("int", "uint", "dec", "double"))}
        rows = [[_shown(cell) for cell in row] for row in _rows(batch)]
        lines = align([*([list(map(printable, batch.schema.names))] if header else []), *rows], right)
        header = False
        yield "".join(f"{line}\n" for line in lines).encode()


def _shown(cell: Any) -> str:
    if cell is MISSING:
        return "NULL"
    if isinstance(cell, bytes):
        return f"<{plural(len(cell), 'byte')}>"
    text = printable(cell if isinstance(cell, str) else _json(cell))
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _parquet(batches: Iterator[Any], output: Output) -> Iterator[bytes]:
    """Yield a Parquet file. Sums are int64; shards are named as the output sees them."""
    arrow, _ = load_pyarrow("SQL")
    file = PyarrowFile()
    first = next(batches)
    schema = _plain_schema(arrow, first.schema)
    is_view = {*REQUIRED} <= {*schema.names}
    writer: Any = None
    for batch in chain([first], batches):
        table = arrow.table(batch) if not hasattr(batch, "cast") else batch
        try:
            table = arrow.table([table.column(number) for number in range(table.num_columns)], names=schema.names)
            table = table.cast(schema)
        except arrow.ArrowInvalid as error:
            raise TarkitError(f"a sum does not fit into 64 bits: {error}", "cast it: sum(x)::double") from None
        if is_view:
            table = _seen_from(arrow, table, output)
        writer = writer or table_writer(file, table)
        if table.num_rows:
            writer.write_table(table)
        yield file.take()
    writer.close()
    yield file.take()


def _plain_schema(arrow: Any, schema: Any) -> Any:
    def plain(kind: Any) -> Any:
        return arrow.int64() if arrow.types.is_decimal(kind) and kind.scale == 0 else kind

    return arrow.schema([arrow.field(field.name, plain(field.type)) for field in schema])


def _seen_from(arrow: Any, table: Any, output: Output) -> Any:
    """Return rows of a view with paths of archives as seen from the directory of the output."""
    directory = directory_of(output) if output.location.kind in ("path", "url") else os.path.realpath(".")
    names: dict[str | None, str | None] = {None: None}

    def seen(shard: str | None) -> str | None:
        if shard not in names:
            names[shard] = _relative(str(shard), directory)
        return names[shard]

    for name in (SHARD, MORE):
        if name not in table.schema.names:
            continue
        place = table.schema.names.index(name)
        field, values = table.schema.field(place), table.column(place).to_pylist()
        if name == SHARD:
            changed: list[Any] = list(map(seen, values))
        else:
            changed = [ranges and [{**each, "shard": seen(each["shard"])} for each in ranges] for ranges in values]
        table = table.set_column(place, field, arrow.array(changed, field.type))
    return table


def _relative(shard: str, directory: str | None) -> str:
    if scheme_of(shard):
        return shard
    if directory is None:
        raise Usage(f"{show(shard)}: a view at a URL cannot name a local file", "copy the archive there first")
    above, name = os.path.split(shard)
    return os.path.join(os.path.relpath(os.path.realpath(above), directory), name).removeprefix("./")
