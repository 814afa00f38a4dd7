"""Records by key, any number of them, to be found in any order: a table of SQLite in a temporary file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from tarkit.errors import TarkitError
from tarkit.streams.tempfile import FALLBACK, open_by_path

MEMORY = 64 << 20  # bytes of the table that are in memory
BATCH = 1000  # records that are added together


class RepeatedRecord(Exception):
    """A key is there twice.

    Attributes:
        key: the key.
        number: the number of the second record.
    """

    def __init__(self, key: bytes, number: int) -> None:
        super().__init__(key, number)
        self.key = key
        self.number = number


class KeyedRecords:
    """Records, each with a key of its own, and the number by which it was added, from 1 on.

    Records are appended as they come, and keys sorted once all are there, so that their order does not matter; 64 MB at
    most are in memory. 10 million records of 50 bytes take 4 microseconds of CPU each. To find a record takes 5 to 10
    microseconds. For records that are read grouped by key use `Multimap`.

    A record may have a tail too, which others may share.

    Attributes:
        added: the number of the last record.

    Raises:
        TarkitError: temporary space is full.
    """

    def __init__(self, tmpdir: str | None, on_repeated: str = "error") -> None:
        """`on_repeated` says which of the records with one key stays: the `first` or `last`; or two are an `error`."""
        import sqlite3  # takes 5 ms

        self.added = 0
        self._error = sqlite3.Error
        self._directory = tmpdir or FALLBACK
        self._on_repeated = on_repeated
        self._tails: list[tuple[bytes, int]] = []
        self._has_tails = False
        self._pending: list[tuple[int, bytes, bytes]] = []
        self._pid = os.getpid()
        self._database = self._open(sqlite3)

    def _open(self, sqlite3: Any) -> Any:
        def opened(path: str) -> Any:
            database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # a database of one process that nobody opens again: it needs no journal
            for setting in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "temp_store=FILE"):
                database.execute(f"PRAGMA {setting}")
            quoted = self._directory.replace("'", "''")  # of files in which keys are sorted; they have no name either
            database.execute(f"PRAGMA temp_store_directory='{quoted}'")
            database.execute(f"PRAGMA cache_size=-{MEMORY >> 11}")  # a half, and as much to sort keys
            database.execute("BEGIN")
            database.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, key BLOB, record BLOB)")
            database.execute("CREATE TABLE tails (tail BLOB, number INTEGER)")
            return database

        return open_by_path(self._directory, opened)

    def add(self, key: bytes, record: bytes, tail: bytes = b"") -> None:
        """Add a record."""
        self.added += 1
        self._pending.append((self.added, key, record))
        if tail:
            self._tails.append((tail, self.added))
        if len(self._pending) >= BATCH:
            self._flush()

    def complete(self) -> None:
        """End adding, after the last record; then records can be found.

        Raises:
            RepeatedRecord: the first one whose key another has before it.
        """
        self._flush()
        self._do("CREATE INDEX tails_in_order ON tails (tail, number)")
        self._do("CREATE INDEX keys_in_order ON records (key)")
        if self._do("SELECT 1 FROM records GROUP BY key HAVING count(*) > 1 LIMIT 1").fetchone():
            self._remove_repeated()
        self._do("COMMIT")
        self._do(f"PRAGMA cache_size=-{MEMORY >> 10}")

    def _remove_repeated(self) -> None:
        """Remove records whose key another has, but for the one that stays. Raises RepeatedRecord."""
        beside = "lead" if self._on_repeated == "last" else "lag"
        with_other = f"SELECT number, key, {beside}(key) OVER (ORDER BY key, number) AS other FROM records"
        repeated = f"FROM ({with_other}) WHERE key = other"
        if self._on_repeated == "error":
            [(number, key)] = self._do(f"SELECT number, key {repeated} ORDER BY number LIMIT 1")
            raise RepeatedRecord(key, number)
        self._do(f"DELETE FROM records WHERE number IN (SELECT number {repeated})")

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._do("INSERT INTO records VALUES (?, ?, ?)", pending, many=True)
        if self._tails:
            self._do("INSERT INTO tails VALUES (?, ?)", self._tails, many=True)
            self._tails, self._has_tails = [], True

    def __len__(self) -> int:
        """Return the number of keys."""
        [(count,)] = self._do("SELECT count(*) FROM records").fetchall()
        return int(count)

    def find(self, key: bytes) -> tuple[int, bytes] | None:
        """Return number and record of a key; None if it is not there."""
        row = self._do("SELECT number, record FROM records WHERE key = ?", (key,)).fetchone()
        return None if row is None else (row[0], row[1])

    def find_all(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, bytes]]:
        """Return number and record of each of some keys that is there."""
        question = f"SELECT key, number, record FROM records WHERE key IN ({_marks(keys)})"
        return {key: (number, record) for key, number, record in self._do(question, keys)}

    def with_tail(self, tails: Sequence[bytes], limit: int) -> list[tuple[int, bytes]]:
        """Return number and key of the first `limit` records that have one of some tails."""
        if not self._has_tails:
            return []
        question = (
            f"SELECT DISTINCT number, key FROM tails JOIN records USING (number) WHERE tail IN ({_marks(tails)}) "
            f"ORDER BY number LIMIT {limit}"
        )
        return list(self._do(question, tails))

    def record(self, number: int) -> bytes:
        """Return the record with a number."""
        [(record,)] = self._do("SELECT record FROM records WHERE number = ?", (number,)).fetchall()
        return bytes(record)

    def all_records(self) -> Iterator[bytes]:
        """Yield each record, by number."""
        return (record for (record,) in self._do("SELECT record FROM records ORDER BY number"))

    def numbered_keys(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and key of each record, by number."""
        return iter(self._do("SELECT number, key FROM records ORDER BY number"))

    def _do(self, text: str, values: Sequence[Any] = (), many: bool = False) -> Any:
        assert os.getpid() == self._pid, "a table of SQLite is of one process"
        try:
            return self._database.executemany(text, values) if many else self._database.execute(text, values)
        except self._error as error:
            raise TarkitError(f"temporary space in {self._directory}: {error}") from None


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
