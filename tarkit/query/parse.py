"""What a query names: its tables, and the columns that it refers to. DuckDB parses it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, Usage

NESTED = 'a name with dots, in double quotes, is a column of its own: "size.jpg"'


class Query(NamedTuple):
    """A query.

    Attributes:
        parsed: it as DuckDB has parsed it.
        text: the query.
        tables: the names of tables, each once; without those that the query itself defines.
        aliases: other names of these in the query, and which tables have them.
        references: columns that are referred to, by the words between their dots.
    """

    text: str
    parsed: dict[str, Any]
    tables: tuple[str, ...]
    aliases: dict[str, list[str]]
    references: tuple[tuple[str, ...], ...]


def parse_query(connection: Any, text: str) -> Query:
    """Return what a query names.

    Raises:
        Usage: it is no query, more than one, or a statement that changes something.
    """
    [[dump]] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
    parsed = json.loads(dump)
    if parsed["error"]:
        if parsed["error_type"] == "not implemented":
            raise Usage("a query is a SELECT statement: nothing else is done", "-o writes the result to a file")
        raise Usage(f"invalid query: {parsed['error_message']}")
    if len(parsed["statements"]) != 1:
        raise Usage(f"{len(parsed['statements'])} queries: one is needed")
    nodes = list(_nodes(parsed["statements"]))
    own = {pair["key"] for node in nodes for pair in (node.get("cte_map") or {}).get("map", ())}
    tables: dict[str, None] = {}
    aliases: dict[str, list[str]] = {}
    for node in nodes:
        if node.get("type") == "BASE_TABLE" and not node.get("schema_name") and node["table_name"] not in own:
            name = node["table_name"]
            tables[name] = None
            for alias in {node.get("alias") or name, name}:
                aliases.setdefault(alias.lower(), []).append(name)
    references = dict.fromkeys(tuple(node["column_names"]) for node in nodes if node.get("class") == "COLUMN_REF")
    return Query(text, parsed, tuple(tables), aliases, tuple(references))


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _nodes(item)


def without_asked(connection: Any, query: Query, asked: Mapping[str, Iterable[str]]) -> str:
    """Return the text of a query in which `*` of its table leaves out what is asked for, which is a column of it too.

    Args:
        connection: that of DuckDB.
        query: the query.
        asked: these columns of tables.
    """
    changed = False
    node = query.parsed["statements"][0]["node"]  # inside of it `*` may have more, which goes where it is asked for
    table = node.get("from_table") or {}
    names = list(asked.get(table.get("table_name", ""), ())) if table.get("type") == "BASE_TABLE" else []
    for star in node["select_list"] if names and node.get("type") == "SELECT_NODE" else []:
        own = {"", (table.get("alias") or table["table_name"]).lower()}
        if star["class"] != "STAR" or star["columns"] or star["relation_name"].lower() not in own:
            continue
        replaced = {pair["key"] for pair in star["replace_list"]} | {*star["exclude_list"]}
        star["exclude_list"] += [name for name in names if name not in replaced]
        changed = True
    if not changed:
        return query.text
    [[text]] = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(query.parsed)]).fetchall()
    return str(text)


def missing_columns(query: Query, error: Exception) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """Yield the columns that DuckDB may miss: the table, None if any may have it, and the words of the column.

    The message names the first word, or the table and the column, in most cases in quotes.
    """
    message = str(error).partition("\n")[0].lower()
    quoted = {*re.findall(r'"((?:[^"]|"")+)"', message)} or {*message.split()}
    for words in query.references:
        first, *rest = words
        owners = query.aliases.get(first.lower(), [None]) if rest else []
        if rest and {first.lower(), rest[0].lower()} <= quoted:  # of a table, or of a subquery
            yield owners[0], tuple(rest)
        elif owners in ([], [None]) and first.lower() in quoted:
            yield None, words


def as_error(error: Exception) -> TarkitError:
    """Return an error of DuckDB in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    cut = next((number for number, line in enumerate(lines) if line.startswith("LINE ")), len(lines))
    first, *more = [line for line in lines[:cut] if line] or [type(error).__name__]
    hint = " ".join(more) or None
    if "Cannot extract field" in first:
        hint = NESTED
    return TarkitError(f"sql: {first}", hint)
