"""Columns of the row groups of a Parquet file, each read when it is asked for, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock
from typing import Any

from tarkit.streams.ranges import MovedRange
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.parquet import PyarrowFile, SourceFile, held, load_pyarrow, plain_values

MEMORY = 32 << 20
"""Bytes of the columns in memory, beside the one that was read last; others are in temporary space."""

WINDOW = 1024  # values of a column that are converted together at most,
BYTES = 1 << 17  # and bytes of them
WINDOWS = 32  # of converted values that are kept

Place = tuple[int, str]  # the number of a row group, and a column


class StoredColumns:
    """The columns of a file; those that were not used for the longest time go to temporary space.

    Args:
        file: the file, as pyarrow has it.
        tmpdir: the directory of temporary files.

    Attributes:
        used: columns that were read of some group.
    """

    def __init__(self, file: Any, tmpdir: str | None = None) -> None:
        self.tmpdir = tmpdir
        self.used: set[str] = set()
        self._file = file
        self._held: OrderedDict[Place, Any] = OrderedDict()
        self._stored: dict[Place, Any] = {}  # readers of record batches of one column
        self._rows: dict[Place, int] = {}  # of a window
        self._windows: OrderedDict[tuple[int, str, int], list[Any]] = OrderedDict()
        self._size = 0
        self._space: TemporaryFile | None = None
        self._end = 0
        self._lock = RLock()

    def value(self, group: int, column: str, row: int) -> Any:
        """Return the value of a column in a row of a group, as JSON has it. Raises ValueError, OverflowError."""
        with self._lock:
            rows = self._rows.get((group, column)) or self._read(group, column)
            at = row // rows
            values = self._windows.get((group, column, at))
            if values is None:
                values = self._windows[group, column, at] = plain_values(self._window(group, column, at, rows))
                if len(self._windows) > WINDOWS:
                    self._windows.popitem(last=False)
            return values[row - at * rows]

    def column(self, group: int, column: str) -> Any:
        """Return a column of a group as a chunked array of Arrow."""
        with self._lock:
            if (group, column) not in self._rows:
                self._read(group, column)
            if (stored := self._stored.get((group, column))) is not None:
                return stored.read_all().column(0)
            self._held.move_to_end((group, column))
            return self._held[group, column]

    def _window(self, group: int, column: str, at: int, rows: int) -> Any:
        if (stored := self._stored.get((group, column))) is not None:
            return stored.get_batch(at).column(0)
        return self.column(group, column).slice(at * rows, rows)

    def _read(self, group: int, column: str) -> int:
        """Read a column; return the rows of its windows."""
        self.used.add(column)
        table = self._file.read_row_group(group, columns=[column], use_threads=False)
        array = held(table.column(column))  # there may be others, such as `a.b` with `a` that has a `b`
        each = max(array.nbytes // max(len(array), 1), 1)
        rows: int = max(min(WINDOW, BYTES // each), 1)
        self._rows[group, column] = rows
        self._held[group, column] = array
        self._size += array.nbytes
        while self._size > MEMORY and len(self._held) > 1:
            place, oldest = self._held.popitem(last=False)
            self._size -= oldest.nbytes
            self._stored[place] = self._store(place, oldest)
        return rows

    def _store(self, place: Place, array: Any) -> Any:
        """Write a column to temporary space, a record batch for each window; return the reader of it."""
        arrow, _ = load_pyarrow("a view")
        if self._space is None:
            self._space = TemporaryFile(self.tmpdir)
        array, rows = array.unify_dictionaries(), self._rows[place]
        made, start = PyarrowFile(), self._end
        with arrow.ipc.new_file(made, arrow.schema([(place[1], array.type)])) as writer:
            for at in range(0, len(array), rows):
                writer.write_batch(arrow.record_batch([array.slice(at, rows).combine_chunks()], names=[place[1]]))
                self._append(made.take())
        self._append(made.take())
        return arrow.ipc.open_file(SourceFile(MovedRange(self._space, self._space.name, 0, self._end - start, start)))

    def _append(self, data: bytes) -> None:
        assert self._space is not None
        self._space.write(data)
        self._end += len(data)
