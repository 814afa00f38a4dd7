"""A table whose rows are found by the keys of samples, or by the names of their files (`--join`).

It is read once and kept in temporary space (`spill.keyed`), so that memory does not grow with its rows. A view is such
a table too: beside its columns its rows have the fields of the samples that they place.
"""

from __future__ import annotations

import marshal
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, show, spell
from tarkit.joining.spec import KEY_COLUMN, JoinSpec
from tarkit.sizes import plural
from tarkit.spill.keyed import BATCH, KeyedRecords, RepeatedRecord
from tarkit.tables.reader import TableRow
from tarkit.tables.recipe import MalformedRow
from tarkit.tables.rows import NumberList, number_types, read_rows, table_format

NAMED = 100_000  # keys without a row, and rows without a sample, that the report lists


class FoundRow(NamedTuple):
    """A row of a table: its columns and cells, its line, and its place if it is one of a view."""

    names: tuple[str, ...]
    cells: Sequence[Any]
    line: int
    place: Any


class JoinTable:
    """The rows of a table, found by key.

    Attributes:
        name: its name for messages.
        column: the column of keys.
        names: the columns of all rows.
        example: the key of the first row; empty without rows.
        rows: the number of rows that can be found.
        repeated: the number of rows left out, since another one has their key.

    Raises:
        TarkitError: `TABLE:LINE: reason`: a row is malformed, or has the key of another one.
    """

    def __init__(
        self,
        spec: JoinSpec,
        tmpdir: str | None = None,
        warn: Callable[[str], None] = lambda text: None,
        rows: Iterable[tuple[TableRow, Any]] | None = None,
    ) -> None:
        """Read a table; `rows` are rows of a view, each with its place."""
        self.spec, self.name, self.column = spec, spec.name, spec.column
        self.names: dict[str, None] = {}
        self.example = b""
        self._records = KeyedRecords(tmpdir, spec.on_duplicate)
        self._shapes: dict[tuple[str, ...], int] = {}
        self._has_files = False  # whether a row has the name of a file: no key has a dot after its last slash
        self._dtypes: dict[str, str] = {}
        self._latest: tuple[int, FoundRow] = 0, FoundRow((), (), 0, None)
        lines: deque[int] = deque(maxlen=BATCH)
        if rows is None:
            if table_format(spec.word, "join") == "parquet":
                self._dtypes = number_types(spec.word, spec.storage)
            said = read_rows(
                spec.word, table_format(spec.word, "join"), spec.storage, lambda text: warn(f"{self.name}: {text}")
            )
            rows = ((row, None) for row in said)
        line = 0
        try:
            for row, place in rows:
                line = row.line
                lines.append(line)
                self._add(row, place)
            self._records.complete()
        except MalformedRow as error:
            raise TarkitError(f"{self.name}:{error.line or line}: {error}", error.hint) from None
        except RepeatedRecord as error:
            line = lines[error.number - self._records.added - 1]
            words = f"{show(error.key)} occurs twice in column {show(self.column)}"
            hint = f"{spell('on_duplicate', 'first')} takes the first of such rows, last the last"
            raise TarkitError(f"{self.name}:{line}: {words}", hint) from None
        self.rows = len(self._records)
        self.repeated = self._records.added - self.rows
        self._columns = list(self._shapes)

    def _add(self, row: TableRow, place: Any) -> None:
        names = row.names
        shape = self._shapes.get(names)
        if shape is None:
            shape = self._shapes[names] = len(self._shapes)
            self.names |= dict.fromkeys(names)
        if self.column not in names:
            hint = (
                f"{spell('join', f'{self.name}:COLUMN')} names the column with the keys"
                if self.column == KEY_COLUMN
                else None
            )
            raise MalformedRow(f"no column {show(self.column)}, there are {', '.join(map(show, names))}", hint=hint)
        key = _as_key(row.values[names.index(self.column)])
        if not key:
            raise MalformedRow(f"empty cell in column {show(self.column)}")
        self._has_files = self._has_files or key.find(b".", key.rfind(b"/") + 1) >= 0
        self.example = self.example or key
        self._records.add(key, marshal.dumps((shape, list(row.values), row.line, place), 2))

    def find(self, key: bytes, names: Callable[[], Iterable[bytes]]) -> int | None:
        """Return the number of the row of a sample, from 1; None without a row.

        Args:
            key: its key.
            names: returns the names of its entries.
        """
        keys = [key, *names()] if self._has_files else [key]
        if self.spec.by == "stem":
            keys += [name[name.rfind(b"/") + 1 :] for name in keys]
        found = self._records.find(keys)
        if found is None:
            return None
        self._latest = found[0], self._loaded(found[1])
        return found[0]

    def row(self, number: int) -> FoundRow:
        """Return the row with a number."""
        if self._latest[0] != number:
            self._latest = number, self._loaded(self._records.record(number))
        return self._latest[1]

    def _loaded(self, record: bytes) -> FoundRow:
        shape, cells, line, place = marshal.loads(record)
        names = self._columns[shape]
        for at, name in enumerate(names) if self._dtypes else ():
            if name in self._dtypes and cells[at] is not None:
                cells[at] = NumberList(cells[at], self._dtypes[name])
        return FoundRow(names, cells, line, place)

    def numbered_keys(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and key of each row."""
        return self._records.numbered_keys()


def _as_key(cell: Any) -> bytes:
    if cell is None or isinstance(cell, bytes):
        return cell or b""
    return cell.encode("utf-8", "surrogateescape") if isinstance(cell, str) else str(cell).encode()


class JoinCounts:
    """What became of the rows of a table, and of the samples.

    Attributes:
        with_row, without_row: numbers of samples.
        shared: the number of samples whose row another sample had before.
        missing: the first keys without a row: all of them up to a limit if they are listed.
        ended: all samples were read: rows that no sample has are unused.
    """

    def __init__(self, table: JoinTable, lists: bool = False) -> None:
        self.table = table
        self.with_row = self.without_row = self.shared = 0
        self.missing: list[bytes] = []
        self.ended = False
        self._limit = NAMED if lists else 1
        self._lists = lists
        self._used = bytearray(table.rows // 8 + 1)

    def find(self, key: bytes, names: Callable[[], Iterable[bytes]]) -> int | None:
        """Return the number of the row of a sample; None without a row."""
        number = self.table.find(key, names)
        if number is None:
            self.without_row += 1
            if len(self.missing) < self._limit:
                self.missing.append(key)
            return None
        self.with_row += 1
        place = number >> 3
        if place >= len(self._used):
            self._used.extend(bytes(place - len(self._used) + 1))
        self.shared += self._used[place] >> (number & 7) & 1
        self._used[place] |= 1 << (number & 7)
        return number

    def check(self) -> None:
        """Raise TarkitError, after the last sample, if no sample has a row."""
        if self.without_row and not self.with_row and self.ended:
            raise self._no_row()

    def summary(self) -> tuple[dict[str, Any], str]:
        """Return the numbers of samples and rows, as a dict and as text."""
        table, unused, count = self.table, list[bytes](), 0
        for number, key in table.numbered_keys():
            if number >> 3 >= len(self._used) or not self._used[number >> 3] & 1 << (number & 7):
                count += 1
                if len(unused) < self._limit:
                    unused.append(key)
        state = "unused" if self.ended else "not_reached"
        facts: dict[str, Any] = {"with_row": self.with_row, "without_row": self.without_row, state: count}
        if self.shared:
            facts["shared"] = self.shared
        if table.repeated:
            facts["repeated"] = table.repeated
        if self._lists:
            facts["keys_without_row"] = list(map(os.fsdecode, self.missing))
            facts[f"rows_{state}"] = list(map(os.fsdecode, unused))
        words = f"samples with a row: {self.with_row}, without: {_named(self.without_row, self.missing)}"
        if self.shared:
            words += f"; samples with the row of another sample: {self.shared}"
        words += f"; rows {'without a sample' if self.ended else 'not reached'}: {_named(count, unused)}"
        if table.repeated:
            words += f"; {plural(table.repeated, 'row')} left out, since another has the same key"
        return facts, f"{table.name}: {words}"

    def _no_row(self) -> TarkitError:
        table, column = self.table, show(self.table.column)
        words = f"column {column} begins with {show(table.example)}, keys with {show(self.missing[0])}"
        hint = (
            None if table.spec.by == "stem" else f"{spell('join_by', 'stem')} compares names without their directories"
        )
        return TarkitError(f"{table.name}: no sample has a row: {words}", hint)


def _named(count: int, names: Sequence[bytes]) -> str:
    return f"{count} ({show(names[0])} first)" if count > 1 else f"{count} ({show(names[0])})" if count else "0"
