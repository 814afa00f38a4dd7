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

    64 MB at most are in memory. 10 million records of 50 bytes in random order take 95 MB and 15 microseconds of CPU
    each, and write 8 GB, since pages of the index come and go; the order of their keys takes half the time. To find a
    record takes 5 to 10 microseconds. For records that are read grouped by key use `Multimap`.

    A record may have a tail too, which others may share.

    Attributes:
        added: the number of the last record.

    Raises:
        TarkitError: temporary space is full.
    """

    def __init__(self, tmpdir: str | None, on_repeated: str = "error") -> None:
        """`on_repeated` says which of two records with one key stays: the `first` or `last`; or it is an `error`."""
        import sqlite3  # takes 5 ms

        self.added = 0
        self._error = sqlite3.Error
        self._directory = tmpdir or FALLBACK
        self._refuses = on_repeated == "error"
        self._tails: list[tuple[bytes, int]] = []
        self._has_tails = False
        self._insert = f"INSERT OR {'REPLACE' if on_repeated == 'last' else 'IGNORE'} INTO records VALUES (?, ?, ?)"
        self._pending: list[tuple[int, bytes, bytes]] = []
        self._pid = os.getpid()
        self._database = self._open(sqlite3)

    def _open(self, sqlite3: Any) -> Any:
        def opened(path: str) -> Any:
            database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # a database of one process that nobody opens again: it needs no journal
            for setting in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "temp_store=MEMORY"):
                database.execute(f"PRAGMA {setting}")
            database.execute(f"PRAGMA cache_size=-{MEMORY >> 10}")
            database.execute("BEGIN")
            database.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, key BLOB UNIQUE, record BLOB)")
            database.execute("CREATE TABLE tails (tail BLOB, number INTEGER, PRIMARY KEY (tail, number)) WITHOUT ROWID")
            return database

        return open_by_path(self._directory, opened)

    def add(self, key: bytes, record: bytes, tail: bytes = b"") -> None:
        """Add a record. Raises RepeatedRecord, perhaps for one of the last `BATCH` records."""
        self.added += 1
        self._pending.append((self.added, key, record))
        if tail:
            self._tails.append((tail, self.added))
        if len(self._pending) >= BATCH:
            self._flush()

    def complete(self) -> None:
        """End adding, after the last record. Raises RepeatedRecord."""
        self._flush()
        self._do("COMMIT")

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        before = self._database.total_changes
        self._do(self._insert, pending, many=True)
        if self._tails:
            self._do("INSERT INTO tails VALUES (?, ?)", self._tails, many=True)
            self._tails, self._has_tails = [], True
        if self._refuses and self._database.total_changes - before < len(pending):
            for number, key, _ in pending:
                if (found := self.find(key)) is None or found[0] != number:
                    raise RepeatedRecord(key, number)

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
