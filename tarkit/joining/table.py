"""A table whose rows are found by the keys of samples, or by the names of their files (`--join`).

It is read once and kept in temporary space (`spill.keyed`), so that memory does not grow with its rows. A view is such
a table too: beside its columns its rows have the fields of the samples that they place.
"""

from __future__ import annotations

import json
import marshal
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import TarkitError, show, spell
from tarkit.joining.spec import KEY_COLUMN, JoinSpec
from tarkit.sizes import plural
from tarkit.spill.keyed import KeyedRecords, RepeatedRecord
from tarkit.tables.reader import TableRow
from tarkit.tables.recipe import MalformedRow
from tarkit.tables.rows import NumberList, content_of, number_types, parquet_schema, read_rows, table_format

if TYPE_CHECKING:
    from tarkit.pipeline.view_rows import ViewFile

SAME_TAIL = 1000  # rows whose cells may have one last part in common, for a sample that no other cell matches
NAMED = 100_000  # keys without a row, and rows without a sample, that the report lists


class FoundRow(NamedTuple):
    """A row of a table: its columns and cells, its line, and its place if it is one of a view."""

    names: tuple[str, ...]
    cells: Sequence[Any]
    line: int
    place: Any


new_tuple: Callable[..., Any] = tuple.__new__
"""Makes a named tuple in half of the time of its class, which matters for one a sample."""


class JoinTable:
    """The rows of a table, found by key.

    Attributes:
        name: its name for messages.
        column: the column of keys.
        names: the columns of all rows.
        example: the key of the first row; empty without rows.
        format: its format.
        is_view: whether it is a view.
        stored: the schema of a table that is Parquet, as Arrow has it; None for others.
        rows: the number of rows that can be found.
        repeated: the number of rows left out while the table is read, since another one has their key.
        shards: the archives that rows of a view place, by the names that they have there, with their numbers.
        digest: a hash of all rows as they were read, in which archives are their numbers.

    Raises:
        TarkitError: `TABLE:LINE: reason`: a row is malformed, or has the key of another one.
    """

    def __init__(
        self,
        spec: JoinSpec,
        tmpdir: str | None = None,
        warn: Callable[[str], None] = lambda text: None,
        view: ViewFile | None = None,
    ) -> None:
        """Read a table; `view` is its file if it is one."""
        self.spec, self.name, self.column = spec, spec.name, spec.column
        self.format = table_format(spec.word) if view is None else "parquet"
        self._size = 0
        self.names: dict[str, None] = {}
        self.example = b""
        self._records = KeyedRecords(tmpdir, spec.on_duplicate)
        self._shapes: dict[tuple[str, ...], int] = {}
        self._has_files = False  # whether a row has the name of a file: no key has a dot after its last slash
        self._dtypes: dict[str, str] = {}
        self.shards: dict[str, int] = {}
        self._hash = blake2b(digest_size=8)
        self._latest: tuple[int, FoundRow] = 0, FoundRow((), (), 0, None)
        self.stored, self.is_view = None, view is not None
        rows: Iterable[tuple[TableRow, Any]]
        if view is not None:
            self.stored, rows = view.value_schema(), view.table_rows()
        else:
            if self.format == "parquet":
                self.stored = parquet_schema(spec.word, spec.storage)
                self._dtypes = number_types(self.stored)
            said = read_rows(spec.word, self.format, spec.storage, lambda text: warn(f"{self.name}: {text}"))
            rows = ((row, None) for row in said)
        line = 0
        try:
            for row, place in rows:
                line = row.line
                self._add(row, place)
            self._columns = list(self._shapes)
            self._records.complete()
        except MalformedRow as error:
            raise TarkitError(f"{self.name}:{error.line or line}: {error}", error.hint) from None
        except RepeatedRecord as error:
            line = self.row(error.number).line
            words = f"{show(error.key)} occurs twice in column {show(self.column)}"
            raise TarkitError(f"{self.name}:{line}: {words}", _choose_one()) from None
        self._hash.update(repr((self._columns, self._dtypes)).encode("utf-8", "surrogateescape"))
        self.digest = self._hash.hexdigest()
        self.rows = len(self._records)
        self.repeated = self._records.added - self.rows

    def _add(self, row: TableRow, place: Any) -> None:
        names = row.names
        shape = self._shapes.get(names)
        if shape is None:
            shape = self._shapes[names] = len(self._shapes)
            self.names |= dict.fromkeys(names)
        if self.column not in names:
            hint = f"name the column with the keys: {self.spec.with_column}" if self.column == KEY_COLUMN else None
            line = row.line if self.format in ("jsonl", "parquet") else 1
            words = f"no column {show(self.column)}, the columns are {', '.join(map(show, names))}"
            raise MalformedRow(words, line, hint)
        key = _as_key(row.values[names.index(self.column)])
        if not key:
            raise MalformedRow(f"empty cell in column {show(self.column)}")
        tail = key[key.rfind(b"/") + 1 :]
        self._has_files = self._has_files or b"." in tail
        self.example = self.example or key
        cells = list(row.values)
        record = marshal.dumps((shape, cells, row.line, place), 2)
        self._size += len(record)
        self._hash.update(record if place is None else marshal.dumps((shape, cells, self._numbered(place)), 2))
        self._records.add(key, record, tail if self.spec.by == "stem" and tail != key else b"")

    def _numbered(self, place: Any) -> Any:
        """Return a place of a view with the numbers of archives in place of their names."""
        shard, start, stop, more, fields = place
        ranges = [(self._number(name), *rest) for name, *rest in more or ()]
        return self._number(shard), start, stop, ranges, fields

    def _number(self, shard: str) -> int:
        return self.shards.setdefault(shard, len(self.shards))

    @property
    def by_key(self) -> bool:
        """Whether rows are found by keys alone, as they are in the column."""
        return not self._has_files and self.spec.by != "stem"

    def find_all(self, keys: Sequence[bytes]) -> list[tuple[int, FoundRow] | None]:
        """Return number and row of each of these keys, where rows are found `by_key`; None without a row."""
        known = self._records.find_all(keys)
        pairs = list(map(known.get, keys))
        rows = self._loaded(pair[1] for pair in pairs if pair is not None)
        return [None if pair is None else (pair[0], next(rows)) for pair in pairs]

    def find(self, key: bytes, names: Callable[[], Iterable[bytes]]) -> tuple[int, list[int]] | None:
        """Return the number of the row of a sample, from 1, and those of other rows that match; None without a row.

        A cell that is the key or the name of an entry goes before one that is the last part of either; then come a path
        that ends with the key or the name, and one whose last part is that of either.

        Args:
            key: its key, or the value that rows are found by.
            names: returns the names of its entries; none with a value.

        Raises:
            TarkitError: `TABLE:LINE: reason`: two rows match equally well, and no option says which one counts.
        """
        exact = [key, *names()] if self._has_files else [key]
        if self.by_key:
            found = self._records.find(key)
            if found is None:
                return None
            self._latest = found[0], next(self._loaded((found[1],)))
            return found[0], []
        stems = [name[name.rfind(b"/") + 1 :] for name in exact] if self.spec.by == "stem" else []
        known = self._records.find_all([*exact, *stems])
        if len(known) == 1:
            [(number, record)] = known.values()
            self._latest = number, next(self._loaded((record,)))
            return number, []
        best = {known[name][0] for name in exact if name in known}
        best = best or {known[name][0] for name in stems if name in known}
        if not best and stems:
            best = self._by_tail(exact, stems)
        if not best:
            return None
        if len(best) > 1 and self.spec.on_duplicate == "error":
            raise self._two_rows(key, *sorted(best)[:2])
        number = max(best) if self.spec.on_duplicate == "last" else min(best)
        return number, [other for other in best.union(other for other, _ in known.values()) if other != number]

    def _by_tail(self, names: Sequence[bytes], stems: Sequence[bytes]) -> set[int]:
        """Return the numbers of rows whose cells are paths that match, with a whole name at the end if possible."""
        rows = self._records.with_tail(stems, SAME_TAIL + 1)
        if len(rows) > SAME_TAIL:
            words = f"{SAME_TAIL} cells and more have the last part of {show(names[0])}, such as {show(rows[0][1])}"
            raise TarkitError(f"{self.name}: {words}", "a column with the keys themselves can be joined")
        ends = tuple(b"/" + name.removeprefix(b"./") for name in names)
        return {number for number, cell in rows if cell.endswith(ends)} or {number for number, _ in rows}

    def _two_rows(self, key: bytes, first: int, second: int) -> TarkitError:
        (one, line), (other, later) = (
            (show(_as_key(row.cells[row.names.index(self.column)])), row.line) for row in map(self.row, (first, second))
        )
        words = f"{other} is a second row of the sample {show(key)}: {one} in line {line} is one too"
        return TarkitError(f"{self.name}:{later}: {words}", _choose_one())

    def row(self, number: int) -> FoundRow:
        """Return the row with a number."""
        if self._latest[0] != number:
            self._latest = number, next(self._loaded((self._records.record(number),)))
        return self._latest[1]

    def _loaded(self, records: Iterable[bytes]) -> Iterator[FoundRow]:
        for shape, cells, line, place in map(marshal.loads, records):
            names = self._columns[shape]
            if self._dtypes:
                for at, name in enumerate(names):
                    if name in self._dtypes and cells[at] is not None:
                        cells[at] = NumberList(cells[at], self._dtypes[name])
            yield new_tuple(FoundRow, (names, cells, line, place))

    @property
    def row_size(self) -> int:
        """The mean number of bytes of a row."""
        return self._size // max(self._records.added, 1)

    def all_rows(self) -> Iterator[FoundRow]:
        """Yield all rows."""
        return self._loaded(self._records.all_records())

    def numbered_keys(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and key of each row."""
        return self._records.numbered_keys()


def _choose_one() -> str:
    return f"{spell('on_duplicate', 'first')} takes the first of such rows, last the last"


def _as_key(cell: Any) -> bytes:
    if isinstance(cell, str):  # in a fifth of the time of all kinds of content
        return cell.encode("utf-8", "surrogateescape")
    if isinstance(cell, (dict, list)):  # members in any order are the same value, as for `FieldValue`
        return json.dumps(cell, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    return b"" if cell is None else content_of(cell, "")


class _Marks:
    """Marks of rows, by number."""

    def __init__(self, rows: int) -> None:
        self._bits = bytearray(rows // 8 + 1)

    def set(self, number: int) -> bool:
        """Mark a row; return whether it was marked before."""
        place, bit = number >> 3, 1 << (number & 7)
        if place >= len(self._bits):
            self._bits.extend(bytes(place - len(self._bits) + 1))
        before = bool(self._bits[place] & bit)
        self._bits[place] |= bit
        return before

    def __contains__(self, number: int) -> bool:
        return number >> 3 < len(self._bits) and bool(self._bits[number >> 3] & 1 << (number & 7))


class JoinCounts:
    """What became of the rows of a table, and of the samples.

    Attributes:
        with_row, without_row: numbers of samples.
        shared: the number of samples whose row another sample had before.
        example: the first value that a row was looked up by; empty for keys.
        missing: the first keys without a row: all of them up to a limit if they are listed.
        ended: all samples were read: rows that no sample has are unused.
    """

    def __init__(self, table: JoinTable, lists: bool = False) -> None:
        self.table = table
        self.with_row = self.without_row = self.shared = 0
        self.missing: list[bytes] = []
        self.example = b""
        self.ended = False
        self._limit = NAMED if lists else 1
        self._lists = lists
        self._used, self._passed = _Marks(table.rows), _Marks(table.rows)

    def find(self, key: bytes, names: Callable[[], Iterable[bytes]]) -> int | None:
        """Return the number of the row of a sample; None without a row."""
        return self.count(key, self.table.find(key, names))

    def find_by(self, value: bytes | None, key: bytes) -> int | None:
        """Return the number of the row that has a value of the sample with a key; None without a row, or a value."""
        self.example = self.example or value or b""
        return self.count(key, self.table.find(value, tuple) if value else None)

    def count(self, key: bytes, found: tuple[int, Sequence[int]] | None) -> int | None:
        """Count the row of a sample, with others that match; return its number."""
        if found is None:
            self.without_row += 1
            if len(self.missing) < self._limit:
                self.missing.append(key)
            return None
        self.with_row += 1
        number, others = found
        self.shared += self._used.set(number)
        for other in others:
            self._passed.set(other)
        return number

    def check(self) -> None:
        """Raise TarkitError, after the last sample, if no sample has a row."""
        if self.without_row and not self.with_row and self.ended:
            raise self._no_row()

    def summary(self) -> tuple[dict[str, Any], str]:
        """Return the numbers of samples and rows, as a dict and as text."""
        unused, count, repeated = list[bytes](), 0, self.table.repeated
        for number, key in self.table.numbered_keys():
            if number in self._used:
                continue
            if number in self._passed:
                repeated += 1
                continue
            count += 1
            if len(unused) < self._limit:
                unused.append(key)
        state = "unused" if self.ended else "not_reached"
        facts: dict[str, Any] = {"with_row": self.with_row, "without_row": self.without_row, state: count}
        if self.shared:
            facts["shared"] = self.shared
        if repeated:
            facts["repeated"] = repeated
        if self._lists:
            facts["keys_without_row"] = list(map(os.fsdecode, self.missing))
            facts[f"rows_{state}"] = list(map(os.fsdecode, unused))
        words = f"samples with a row: {self.with_row}, without: {_named(self.without_row, self.missing)}"
        if self.shared:
            words += f"; samples whose row an earlier sample has too: {self.shared}"
        words += f"; rows {'without a sample' if self.ended else 'not reached'}: {_named(count, unused)}"
        if repeated:
            words += f"; {plural(repeated, 'row')} left out, since another has the same key or sample"
        return facts, f"{self.table.name}: {words}"

    def _no_row(self) -> TarkitError:
        table, column = self.table, show(self.table.column)
        if not table.rows:
            return TarkitError(f"{table.name}: no sample has a row: the table has no rows")
        if table.spec.by_value:
            values = f"{table.spec.by} with {show(self.example)}" if self.example else f"no sample has {table.spec.by}"
            words = f"no sample has a row: column {column} begins with {show(table.example)}, {values}"
            return TarkitError(f"{table.name}: {words}")
        words = f"column {column} begins with {show(table.example)}, keys with {show(self.missing[0])}"
        stem = f"{spell('join_by', 'stem')} compares names, and cells, without directories"
        return TarkitError(f"{table.name}: no sample has a row: {words}", None if table.spec.by == "stem" else stem)


def _named(count: int, names: Sequence[bytes]) -> str:
    return f"{count} ({show(names[0])} first)" if count > 1 else f"{count} ({show(names[0])})" if count else "0"
