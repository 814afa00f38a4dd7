"""A table that `create` reads: a row for each sample, a column for each field.

Cells hold the content of entries; those of a column `@FIELD` hold sources as in a recipe, such as a path. Column
`__key__` has the key of the sample; without it keys are consecutive numbers. `tsv` describes the cells of TSV.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from string import Formatter
from typing import Any, Literal, NamedTuple, TypeAlias

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.tables.recipe import Kind, MalformedRow, Row, parse_source, without_bom, without_end
from tarkit.tables.tsv import parse_tsv

Format = Literal["tsv", "csv", "jsonl"]

RUNNING_KEY = "{index:09d}"

CELL_LIMIT = 1 << 26  # bytes of a CSV cell: without a limit, an unclosed quote would read the rest of the file

Warn = Callable[[str], None]
Cells: TypeAlias = tuple[int, list[bytes | None]]  # the first line of a row, and its cells


class TableRow(NamedTuple):
    """A row: its first line, the names of the columns, and the cells; None for no entry."""

    line: int
    names: tuple[str, ...]
    values: Sequence[Any]  # bytes, or values of JSON where these are asked for


class EntryColumn(NamedTuple):
    """A column of entries: its index, the suffix after the key, and whether its cells are sources."""

    position: int
    suffix: bytes
    is_source: bool


def read_table(
    lines: Iterable[bytes],
    format: Format,
    recipe_name: str,
    *,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    pipes_allowed: bool,
    warn: Warn | None = None,
) -> Iterator[Row]:
    r"""Yield the entries of a table as rows of a recipe: for each row those of a sample, in the order of the columns.

    Formats: in tsv cells are unescaped, and `\N` is no entry; csv is as Python's module csv writes it, with commas, or
    where the first row has none with one of `; TAB |` that is in it; jsonl has an object per line, in which a string is
    its text, null is no entry, and other values are JSON text. Empty cells are empty entries, but in an `@` column no
    entries. An empty line is skipped, except in a TSV of one column.

    Args:
        lines: the lines of the table.
        format: its format.
        recipe_name: its name, for messages.
        key: a template of `{index}` (of the row, from 0) and of column names, with format specs (`{id:06d}`); the
            default is `{__key__}` if there is such a column, else `{index:09d}`.
        columns: the names of the columns of a table without a header.
        pipes_allowed: sources may be commands.
        warn: called with a message about a CSV whose cells are not separated by commas, or a table without keys.

    Raises:
        TarkitError: `RECIPE:LINE: reason` with the first line of the row.
        Usage: an invalid template or column name.
    """
    template = None if key is None else KeyTemplate(key)
    try:
        entry_columns(tuple(columns or ()))
    except MalformedRow as error:
        raise Usage(str(error)) from error
    if format == "jsonl" and columns is not None:
        raise Usage("column names are for tsv and csv only", "in jsonl each line has its own")
    told = None if warn is None else lambda text: warn(f"{recipe_name}: {text}")
    numbered = told if columns is None else None
    return _entries(read_records(lines, format, columns, told), recipe_name, template, pipes_allowed, numbered)


def read_records(
    lines: Iterable[bytes],
    format: Format,
    columns: Sequence[str] | None = None,
    warn: Warn | None = None,
    convert: Callable[[str, Any], Any] | None = None,
) -> Iterator[TableRow]:
    """Yield the rows of a table; `warn` is as for `read_table`. Raises MalformedRow, perhaps with the line.

    `convert` is called with the name and the value of each member of JSON lines; by default it makes bytes of them.
    """
    if format == "jsonl":
        return _jsonl_records(without_bom(lines), convert or _json_value)
    width = None if columns is None else len(columns)
    return _with_header(read_cells(lines, format, width, warn), columns, format)


def read_cells(
    lines: Iterable[bytes], format: Format, width: int | None = None, warn: Warn | None = None
) -> Iterator[Cells]:
    """Yield (line, cells) of each row of a TSV or CSV, the header included. Raises MalformedRow with the line.

    A row has `width` cells, if that is known: it says which separator a CSV has.
    """
    remaining = without_bom(lines)
    start = next(remaining, b"")
    if start.startswith(_UTF16):
        raise MalformedRow("the text is UTF-16", 1, "save the table as UTF-8")
    remaining = chain((start,), remaining) if start else remaining
    yield from _tsv_rows(remaining) if format == "tsv" else _csv_rows(remaining, width, warn)


class KeyTemplate:
    """A template for keys: `{index:09d}`, `{split}/{id}`. No attributes, no conversions, `d` specs take digits.

    A text without braces is the name of a column.

    Attributes:
        columns: the columns in it.
    """

    def __init__(self, text: str) -> None:
        """Parse a template.

        Raises:
            Usage: it is invalid, or would give all samples the same key.
        """
        try:
            bare = bool(text) and "{" not in text and "}" not in text
            pieces = [("", text, "", None)] if bare else list(Formatter().parse(text))
            for _, name, spec, _ in pieces:
                if name == "index":
                    format(0, spec or "")
        except ValueError as error:
            raise Usage(f"invalid template for keys {show(text)}: {error}") from error
        self._pieces = [(literal.encode(), name, spec or "") for literal, name, spec, _ in pieces]
        if not any(name for _, name, _ in self._pieces) or any(name == "" or mode for _, name, _, mode in pieces):
            raise Usage(f"invalid template for keys {show(text)}", f"for example '{RUNNING_KEY}' or '{{__key__}}'")
        self.columns = tuple(dict.fromkeys(name for _, name, _ in self._pieces if name and name != "index"))

    def checked(self, index: int, names: tuple[str, ...], values: Sequence[bytes | None]) -> bytes:
        """Return the key of a row. Raises MalformedRow as `key` does, and for a key that no sample has."""
        return _checked(self.key(index, names, values))

    def key(self, index: int, names: tuple[str, ...], values: Sequence[bytes | None]) -> bytes:
        """Return the key of a row.

        Raises:
            MalformedRow: a column of the template is missing, or has a value that does not fit its format spec.
        """
        key = b""
        for literal, name, spec in self._pieces:
            key += literal
            if name == "index":
                key += format(index, spec).encode()
            elif name is not None:
                value = values[names.index(name)] if name in names else None
                if name not in names:
                    raise MalformedRow(f"there is no column {show(name)}, which is in the key")
                if not value:
                    raise MalformedRow(f"column {show(name)} of the key is empty")
                key += _formatted(value, name, spec) if spec else value
        return key


def _formatted(value: bytes, name: str, spec: str) -> bytes:
    text = value.decode("utf-8", "surrogateescape")
    try:
        return format(int(text) if spec[-1] == "d" else text, spec).encode("utf-8", "surrogateescape")
    except ValueError as error:
        raise MalformedRow(f"column {show(name)} in the key: {error}") from error


_KEY_COLUMN = KeyTemplate("{__key__}")
_RUNNING = KeyTemplate(RUNNING_KEY)


def _entries(
    records: Iterator[TableRow], recipe: str, template: KeyTemplate | None, pipes_allowed: bool, warn: Warn | None
) -> Iterator[Row]:
    line, chosen = 0, template
    try:
        for index, (line, names, values) in enumerate(records):
            current = template or (_KEY_COLUMN if "__key__" in names else _RUNNING)
            if current is _RUNNING and chosen is None and warn is not None:
                warn(f"no column __key__: keys are the numbers of the rows; {spell('key', RUNNING_KEY)} says so")
            if chosen not in (None, current):
                raise MalformedRow("some rows have a __key__ and others do not")
            chosen = current
            key = _checked(current.key(index, names, values))
            for position, suffix, is_source in entry_columns(names):
                value = values[position]
                kind: Kind = "data"
                if value is None or (is_source and not value):
                    continue
                if is_source:
                    kind, value = parse_source(value, pipes_allowed)
                    if kind != "data" and (b"\0" in value or not value):
                        raise MalformedRow(f"column {show(names[position])}: invalid source")
                yield Row(key + suffix, kind, value, line, recipe)
    except MalformedRow as error:
        raise TarkitError(f"{recipe}:{error.line or line}: {error}", error.hint) from error


def _checked(key: bytes) -> bytes:
    last = key[key.rfind(b"/") + 1 :]
    if not last or b"\0" in key:
        raise MalformedRow(f"invalid key {show(key)}")
    if b"." in last:
        raise MalformedRow(f"invalid key {show(key)}: a dot after the last slash ends a key")
    return key


@lru_cache(maxsize=256)
def entry_columns(names: tuple[str, ...]) -> list[EntryColumn]:
    """Return the columns of entries. Cached, as each line of JSONL may have its own.

    Raises:
        MalformedRow: an invalid or repeated name.
    """
    columns = []
    seen = set()
    for position, name in enumerate(names):
        field = name.removeprefix("@")
        if not field or "/" in field or "\0" in field:
            hint = None if name else "pandas writes numbers of rows in such a column: to_csv(..., index=False) does not"
            raise MalformedRow(f"invalid column name {show(name)}", hint=hint)
        if field in seen:
            raise MalformedRow(f"two columns for {show(field)}")
        seen.add(field)
        if name != "__key__":
            columns.append(EntryColumn(position, b"." + field.encode("utf-8", "surrogateescape"), name != field))
    return columns


def _with_header(rows: Iterator[Cells], columns: Sequence[str] | None, format: Format) -> Iterator[TableRow]:
    names = None if columns is None else tuple(columns)
    for line, cells in rows:
        if cells == [b""] and (names is None or len(names) > 1):
            continue
        if names is None:
            names = tuple((cell or b"").decode("utf-8", "surrogateescape") for cell in cells)
            if format == "tsv" and len(names) == 1 and (separators := [char for char in ",;|" if char in names[0]]):
                message = f"the header is one cell with {' and '.join(separators)} in it: {show(names[0])}"
                raise MalformedRow(message, line, "a TSV has tabs between its cells; as CSV other separators are found")
            try:
                entry_columns(names)
            except MalformedRow as error:
                raise MalformedRow(str(error), line, error.hint) from error
        elif len(cells) != len(names):
            raise MalformedRow(f"cells in this row: {len(cells)}, columns: {len(names)}", line)
        else:
            yield TableRow(line, names, cells)


def _tsv_rows(lines: Iterator[bytes]) -> Iterator[Cells]:
    for number, line in enumerate(lines, 1):
        try:
            yield number, parse_tsv(without_end(line))
        except MalformedRow as error:
            raise MalformedRow(str(error), number) from error


def _csv_rows(lines: Iterator[bytes], width: int | None, warn: Warn | None) -> Iterator[Cells]:
    csv.field_size_limit(CELL_LIMIT)  # a setting of the whole process
    text = (line.decode("utf-8", "surrogateescape") for line in lines)
    head = []  # the first line with text, behind blank ones
    for line in text:
        head.append(line)
        if line.strip("\r\n"):
            break
    start = head[-1] if head else ""
    named = _NAMED.fullmatch(start) is not None
    separator = start[4] if named else _separator(start, width)
    if warn is not None and not named:
        _warn_of_separators(start, separator, width, warn)
    reader = csv.reader(chain(head, text), strict=True, delimiter=separator)
    first = 1
    try:
        for row in reader:
            if row and not named:
                yield first, [cell.encode("utf-8", "surrogateescape") for cell in row]
            named = named and not row
            first = reader.line_num + 1
    except csv.Error as error:
        raise MalformedRow(str(error), first) from error


_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SEPARATORS = {";": ";", "\t": "TAB", "|": "|"}
_NAMED = re.compile(r"sep=[,;|\t]\r?\n?", re.IGNORECASE)  # a first line by which spreadsheets name the separator


def _separator(line: str, width: int | None) -> str:
    """Return the separator of a CSV by its first line: a comma, or another separator if commas would give one cell.

    Raises MalformedRow when it may be one of several.
    """

    def cells(separator: str) -> int:
        try:
            return len(next(csv.reader([line], strict=True, delimiter=separator), ()))
        except csv.Error:
            return 0  # a quoted cell ends at another separator, or in another line

    if width == 1 or cells(",") > 1:
        return ","
    candidates = [separator for separator in _SEPARATORS if (count := cells(separator)) > 1 and width in (None, count)]
    if len(candidates) > 1:
        names = " and ".join(_SEPARATORS[separator] for separator in candidates)
        raise MalformedRow(f"the first row has no comma, but {names}", 1, "one of them may separate cells, or a comma")
    return candidates[0] if candidates else ","


def _warn_of_separators(line: str, separator: str, width: int | None, warn: Warn) -> None:
    """Warn of a CSV that is separated by something else than commas, or whose header looks so."""
    if separator != ",":
        warn(f"the first row has no comma: cells are separated by {_SEPARATORS[separator]}")
    elif (
        width is None
        and "," in line
        and (others := [name for separator, name in _SEPARATORS.items() if separator in line])
    ):
        names = " and ".join(others)
        message = f"a cell of the header has {names} in it, and commas separate cells"
        warn(f"{message}: if others do, say so by a first line such as sep={others[0]}")


def _jsonl_records(lines: Iterator[bytes], convert: Callable[[str, Any], Any]) -> Iterator[TableRow]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line.decode("utf-8"), object_pairs_hook=_distinct)
            if not isinstance(fields, dict):
                raise MalformedRow("not an object")
            values = [convert(name, value) for name, value in fields.items()]
        except json.JSONDecodeError as error:
            raise MalformedRow(f"bad JSON: {error.msg} at column {error.colno}", number) from error
        except RecursionError as error:
            raise MalformedRow("bad JSON: nested too deep", number) from error
        except ValueError as error:
            raise MalformedRow(f"bad JSON: {error}", number) from error
        yield TableRow(number, tuple(fields), values)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise MalformedRow("repeated name in an object")
    return fields


def _json_value(name: str, value: object) -> bytes | None:
    name.encode("utf-8", "surrogateescape")  # fails for a lone surrogate
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")  # surrogates encode names that are not UTF-8
    if name.startswith("@"):
        raise MalformedRow(f"{show(name)}: a source must be a string")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
