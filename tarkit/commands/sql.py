"""tarkit sql: a query over archives, views and tables."""

from __future__ import annotations

from collections.abc import Callable

import click

from tarkit.cli import options as shared
from tarkit.cli.command import Command
from tarkit.cli.console import current
from tarkit.errors import Usage
from tarkit.pipeline.output import Output
from tarkit.query.sql import SqlOptions, write_query

EXAMPLES = (
    """tarkit sql "select distinct cls from 'train-*.tar' order by cls\"""",
    """tarkit sql "from 'a.tar' where json.score > 0.5" -o a.view.parquet""",
    """tarkit sql "from 'a.tar' a join 'x.csv' x on x.id = a.cls" -o a.parquet""",
)
COST = (
    "One pass over the headers of each archive, and of the contents those that the query asks for. These go "
    "to temporary space, and so does what DuckDB cannot hold: memory does not grow with the data."
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("query")
@shared.text_output
@shared.rows(SqlOptions)
@shared.problems
def sql(query: str, output: Output, options: Callable[..., SqlOptions]) -> None:
    """Run a query of SQL over archives, views and tables.

    Names of archives, views and tables stand in quotes where SQL has tables: 'train-*.tar', 'shards/',
    's3://bucket/a.tar', 'x.csv', 'x.jsonl', 'x.parquet'. QUERY - is read from stdin.

    A row of an archive is a sample, with __key__, __shard__, __start__ and __stop__, and all values that --where has:
    fields (cls, txt), paths into JSON (json.label), size.jpg, width.jpg and so on, which are null where a sample has
    none. A view has its own columns too. A result with these four columns is a view, if OUT is NAME.parquet.

    \f
    Only what the query asks for is read. DuckDB runs it: a query is its SELECT statement, and no other is done. It
    writes nothing but the output. Text that is a number is a number, unless other samples have text there. Contents
    such as jpg are bytes. A name in double quotes with dots, "json.label", is a column of its own.
    """
    run = current()
    if query == "-":
        with open(0, encoding="utf-8", closefd=False) as file:
            query = file.read()
    if not query.strip():
        raise Usage("the query is empty", "for example: from 'a.tar'")
    write_query(query, output, run, options())
    run.extra = f", rows: {run.facts['rows']}"
    run.finish()
