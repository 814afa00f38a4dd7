"""DuckDB with the tables of a query: archives, views and other tables are temporary views of these names.

A query is bound first, with columns of nulls, to learn which values it asks for: each column that DuckDB misses is one.
Then these values are read, once for each table, and the query runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tarkit.errors import TarkitError, Unsupported, Usage, load_library, show
from tarkit.pipeline.run import Run
from tarkit.pipeline.view_rows import base_of
from tarkit.query.objects import ObjectTable
from tarkit.query.parse import NESTED, Query, as_error, missing_columns, parse_query, without_asked
from tarkit.query.samples import AskedColumn, SampleCounts, usual_columns, write_samples
from tarkit.sizes import plural
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location, expand_inputs, is_view
from tarkit.threads import mark_native_threads
from tarkit.views.names import MORE, SHARD, START, STOP

Words = tuple[str, ...]

FILES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
"""Suffixes of tables that DuckDB reads, perhaps with that of a compression."""

_COMPRESSED = ("", ".gz", ".zst")


class QueryTable:
    """A table of a query.

    Attributes:
        name: its name in the query.
        locations: the files, as far as tarkit knows them.
        asked: values of samples that are asked for, by the words between their dots.
        takes_more: whether it has samples, of which other values may be asked for.
    """

    def __init__(
        self, name: str, connection: Any, run: Run, storage: StoreOptions | None, counts: list[SampleCounts]
    ) -> None:
        self.name = name
        self.counts = SampleCounts(counts)
        self._objects: dict[str, ObjectTable] = {}  # Parquet files that are objects, by URL
        self.asked: dict[Words, None] = {}
        self._base = ""  # a query for the columns that it has without being asked
        self._files = self._is_parquet = False
        self._connection = connection
        if name.lower().endswith(tuple(f"{suffix}{packed}" for suffix in FILES for packed in _COMPRESSED)):
            self._files = True
            if scheme_of(name):
                raise Unsupported(
                    f"{public_name(name)}: csv and jsonl are read from files", "copy it, and name the copy"
                )
            self.locations = [Location("path", name, name)] if os.path.exists(name) else []
            suffix = name.lower().removesuffix(".gz").removesuffix(".zst")
            if suffix.endswith(".tsv"):
                form = f"read_csv({_text(name)}, delim='\t', quote='', escape='', nullstr='\\N')"
            else:
                form = f"{'read_csv' if suffix.endswith('.csv') else 'read_json_auto'}({_text(name)})"
            self._base = f"SELECT * FROM {form}"
        else:
            self.locations = expand_inputs([name], options=storage, missing=run.policy.skips_missing)
            self._is_parquet = all(map(is_view, self.locations))
            if self._is_parquet:
                self._base = " UNION ALL BY NAME ".join(map(self._of_parquet, self.locations))
            elif any(map(is_view, self.locations)):
                raise Usage(f"{show(name)}: archives and Parquet files are different tables")
            else:
                self._usual = usual_columns(self.locations)
        self.takes_more = not self._files and (not self._is_parquet or all(map(self._is_view, self.locations)))

    def _columns_of(self, location: Location) -> list[str]:
        if location.kind == "url":
            return self._object(location).columns
        rows = self._connection.execute(f"DESCRIBE SELECT * FROM read_parquet({_text(location.text)})").fetchall()
        return [row[0] for row in rows]

    def _object(self, location: Location) -> ObjectTable:
        """Return the table of an object, which is registered."""
        table = self._objects.get(location.text)
        if table is None:
            table = self._objects[location.text] = ObjectTable(location)
            self._connection.register(f"object {location.text}", table.dataset)
        return table

    def close(self) -> None:
        """Close the objects."""
        for table in self._objects.values():
            table.close()

    def _is_view(self, location: Location) -> bool:
        return {SHARD, START, STOP} <= {*self._columns_of(location)}

    def _of_parquet(self, location: Location) -> str:
        """Return a query for a Parquet file; shards of a view are seen from the present directory."""
        if location.kind not in ("path", "url"):
            raise Unsupported(f"{location.name}: Parquet is read from files and objects", "copy it, and name the copy")
        columns, directory = self._columns_of(location), base_of(public_name(location.text))
        source = _name(f"object {location.text}") if location.kind == "url" else f"read_parquet({_text(location.text)})"
        replaced = []
        if directory and {SHARD, START, STOP} <= {*columns}:
            replaced.append(f"{_seen('__shard__', directory)} AS __shard__")
            if MORE in columns:
                item = f"{{'shard': {_seen('x.shard', directory)}, 'start': x.start, 'stop': x.stop}}"
                replaced.append(f"list_transform({MORE}, lambda x : {item}) AS {MORE}")
        replace = f" REPLACE ({', '.join(replaced)})" if replaced else ""
        return f"SELECT *{replace} FROM {source}"

    def ask(self, columns: Sequence[Words]) -> bool:
        """Ask for values; return whether one is new."""
        new = [words for words in columns if words not in self.asked]
        self.asked |= dict.fromkeys(new)
        return bool(new)

    @property
    def columns(self) -> list[str]:
        """The columns that what is asked for is in."""
        return list(dict.fromkeys(words[0] for words in self.asked))

    def define(self, path: str | None, run: Run, tmpdir: str) -> None:
        """Make the table: with `path` its rows, of which those of samples are read, else without any."""
        names = list(dict.fromkeys(".".join(words) for words in self.asked))
        has_samples = not self._files and not self._is_parquet
        if path is not None and (names or has_samples):
            asked = list(map(AskedColumn, names))
            write_samples(path, self.locations, asked, run, has_samples, tmpdir, self.counts)
        source = f"read_parquet({_text(path or '')})"
        if has_samples:
            types = {START: "BIGINT", STOP: "BIGINT"}
            empty = [f"NULL::{types.get(name, 'VARCHAR')} AS {name}" for name in self._usual]
            query = f"SELECT {', '.join([*self._usual, *self._values(True)])} FROM {source}"
            if path is None:
                query = f"SELECT {', '.join([*empty, *self._values(False)])} WHERE false"
        elif not names:
            query = self._base
        elif path is None:
            query = f"SELECT base.*, {', '.join(self._values(False))} FROM ({self._base}) base WHERE false"
        else:
            self._check_rows(source)
            query = f"SELECT base.*, {', '.join(self._values(True))} FROM ({self._base}) base POSITIONAL JOIN {source}"
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {_name(self.name)} AS {query}")

    def _check_rows(self, source: str) -> None:
        """Raise TarkitError if samples were left out: values go with rows by their order."""
        query = f"SELECT (SELECT count(*) FROM ({self._base})), (SELECT count(*) FROM {source})"
        [[rows, samples]] = self._connection.execute(query).fetchall()
        if rows != samples:
            words = f"{show(self.name)}: {plural(rows, 'row')}, and {plural(samples, 'sample')}: some were left out"
            raise TarkitError(words, "write those that are good: tarkit cat --skip, to another view")

    def _values(self, read: bool) -> list[str]:
        """Return the columns that were asked for. Those with dots are members of structs too."""
        tree: dict[str, Any] = {}
        result = []
        for words in self.asked:
            column = _name(".".join(words)) if read else "NULL"
            if len(words) == 1:
                result.append(f"{column} AS {_name(words[0])}")
                continue
            inner = tree
            for word in words[:-1]:
                inner = inner.setdefault(word, {})
                if isinstance(inner, str):
                    inner = {}
                    break
            if not isinstance(inner, dict) or words[-1] in inner:
                raise Usage(f"{'.'.join(words)}: it is asked for, and a member of it", NESTED)
            inner[words[-1]] = column
        return result + [f"{_struct(member)} AS {_name(word)}" for word, member in tree.items()]


def _struct(member: str | dict[str, Any]) -> str:
    if isinstance(member, str):
        return member
    return f"struct_pack({', '.join(f'{_name(word)} := {_struct(inner)}' for word, inner in member.items())})"


def _seen(column: str, directory: str) -> str:
    """Return an expression for the path of an archive, which is relative to a directory, from the present one."""
    absolute = f"starts_with({column}, '/') OR contains({column}, '://')"
    return f"CASE WHEN {absolute} THEN {column} ELSE {_text(f'{directory}/')} || {column} END"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Engine:
    """DuckDB for one query, which reads what the query names, and writes in a directory of its own alone.

    Attributes:
        locations: the files that the query names.

    Raises:
        MissingLibrary: DuckDB is not installed.
        TarkitError: the query is invalid, or a table is not there.
    """

    def __init__(self, text: str, run: Run, tmpdir: str, storage: StoreOptions | None = None) -> None:
        self._duckdb = load_library("duckdb", "SQL", "DuckDB", "sql")
        mark_native_threads("duckdb")
        self._run, self._tmpdir = run, tmpdir
        off = ("autoinstall_known_extensions", "autoload_known_extensions")
        settings = {"temp_directory": os.path.join(tmpdir, "duckdb"), **dict.fromkeys(off, "false")}
        self._connection = self._duckdb.connect(":memory:", config=settings)
        self._connection.execute("SET python_enable_replacements = false")
        with self.errors():
            self._query: Query = parse_query(self._connection, text)
            names, counts = self._query.tables, list[SampleCounts]()
            self._tables = {name: QueryTable(name, self._connection, run, storage, counts) for name in names}
        self.locations = [location for table in self._tables.values() for location in table.locations]

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise TarkitError for errors of DuckDB."""
        try:
            yield
        except self._duckdb.Error as error:
            raise as_error(error) from None

    def result(self) -> Any:
        """Return the result as a relation of DuckDB. Raises TarkitError for what DuckDB refuses."""
        changed: Any = list(self._tables.values())
        while isinstance(changed, list):  # what is asked for
            for table in changed:
                with self.errors():
                    table.define(None, self._run, self._tmpdir)
            changed = self._missing()
        try:
            return self._read_result()
        finally:  # of samples that were read twice, the last time counts
            for table in self._tables.values():
                table.counts.count(self._run)

    def _read_result(self) -> Any:
        """Read the values that are asked for, and return the result."""
        changed: Any = list(self._tables.values())  # an error of types may come of nulls, and is seen again below
        while True:
            for table in changed:
                path = os.path.join(self._tmpdir, f"{list(self._tables).index(table.name)}.parquet")
                with self.errors():
                    table.define(path, self._run, self._tmpdir)
            changed = self._missing()
            if changed is None:
                asked = {table.name: table.columns for table in self._tables.values() if table.asked}
                with self.errors():
                    return self._connection.sql(without_asked(self._connection, self._query, asked))
            if not isinstance(changed, list):
                raise as_error(changed)

    def _missing(self) -> Any:
        """Bind the query; return the tables that got more columns to read, an error of binding, or None if it is bound.

        Raises:
            TarkitError: an error that is none of columns and types.
        """
        try:
            self._connection.execute(f"EXPLAIN {self._query.text}")
        except self._duckdb.BinderException as error:
            found = (self._ask(*column) for column in missing_columns(self._query, error))
            return next(filter(None, found), error)
        except self._duckdb.Error as error:
            raise as_error(error) from None
        return None

    def _ask(self, owner: str | None, words: Words) -> list[QueryTable]:
        """Ask tables for a column, and for all that begin with the same word; return those for which one is new."""
        columns = [words]
        for reference in self._query.references if len(words) > 1 else ():
            names = self._query.aliases.get(reference[0].lower(), []) if len(reference) > 1 else []
            rest = reference[1:] if names else reference
            if rest[0].lower() != words[0].lower() or (names and owner not in names):
                continue
            if len(rest) == 1:
                raise Usage(f"{words[0]} and {'.'.join(words)}: one is in the other", NESTED)
            columns.append(rest)
        owners = self._tables.values() if owner is None else [self._tables[owner]]
        return [table for table in owners if table.takes_more and table.ask(list(dict.fromkeys(columns)))]

    def close(self) -> None:
        """End DuckDB."""
        self._connection.close()
        for table in self._tables.values():
            table.close()
