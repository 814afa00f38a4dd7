"""Records by key, any number of them, to be found in any order: in memory, or in a table of SQLite."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from tarkit.errors import TarkitError
from tarkit.streams.tempfile import FALLBACK, open_by_path

MEMORY = 64 << 20  # bytes of records, and later of the table, that are in memory
OVERHEAD = 250  # bytes that a record in memory takes beside its key and itself
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

    As long as 64 MB hold them they are in memory. More go to a table of SQLite in a temporary file: they are appended
    as they come, and keys sorted once all are there, so that their order does not matter; 64 MB at most are in memory.
    10 million records of 50 bytes take 4 microseconds of CPU each. To find a record takes 5 to 10 microseconds, 0.3 in
    memory. For records that are read grouped by key use `Multimap`.

    A record may have a tail too, which others may share.

    Attributes:
        added: the number of the last record.

    Raises:
        TarkitError: temporary space is full.
    """

    def __init__(self, tmpdir: str | None, on_repeated: str = "error") -> None:
        """`on_repeated` says which of the records with one key stays: the `first` or `last`; or two are an `error`."""
        self.added = 0
        self._tmpdir, self._on_repeated = tmpdir, on_repeated
        self._records: _HeldRecords | _StoredRecords = _HeldRecords(on_repeated)

    def add(self, key: bytes, record: bytes, tail: bytes = b"") -> None:
        """Add a record."""
        self.added += 1
        records = self._records
        records.add(self.added, key, record, tail)
        if records.size > MEMORY and isinstance(records, _HeldRecords):
            self._records = records.moved(_StoredRecords(self._tmpdir, self._on_repeated))

    def complete(self) -> None:
        """End adding, after the last record; then records can be found.

        Raises:
            RepeatedRecord: the first one whose key another has before it.
        """
        self._records.complete()

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._records)

    def find(self, key: bytes) -> tuple[int, bytes] | None:
        """Return number and record of a key; None if it is not there."""
        return self._records.find(key)

    def find_all(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, bytes]]:
        """Return number and record of each of some keys that is there."""
        return self._records.find_all(keys)

    def with_tail(self, tails: Sequence[bytes], limit: int) -> list[tuple[int, bytes]]:
        """Return number and key of the first `limit` records that have one of some tails."""
        return self._records.with_tail(tails, limit)

    def record(self, number: int) -> bytes:
        """Return the record with a number."""
        return self._records.record(number)

    def all_records(self) -> Iterator[bytes]:
        """Yield each record, by number."""
        return self._records.all_records()

    def numbered_keys(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and key of each record, by number."""
        return self._records.numbered_keys()


class _HeldRecords:
    """Records in memory; `size` is about how many bytes they take."""

    def __init__(self, on_repeated: str) -> None:
        self.size = 0
        self._on_repeated = on_repeated
        self._numbers: dict[bytes, int] = {}
        self._records: dict[int, tuple[bytes, bytes]] = {}  # keys and records, in the order of their numbers
        self._tails: dict[bytes, list[int]] = {}
        self._repeated: tuple[bytes, int] | None = None  # the first error

    def add(self, number: int, key: bytes, record: bytes, tail: bytes) -> None:
        before = self._numbers.setdefault(key, number)
        if before != number:
            if self._on_repeated == "first":
                return
            if self._on_repeated == "last":
                del self._records[before]
                self._numbers[key] = number
            else:
                self._repeated = self._repeated or (key, number)
        self._records[number] = key, record
        self.size += len(key) + len(record) + OVERHEAD
        if tail:
            self._tails.setdefault(tail, []).append(number)

    def moved(self, stored: _StoredRecords) -> _StoredRecords:
        """Return the table that gets the records."""
        tails = {number: tail for tail, numbers in self._tails.items() for number in numbers}
        for number, (key, record) in self._records.items():
            stored.add(number, key, record, tails.get(number, b""))
        return stored

    def complete(self) -> None:
        if self._repeated is not None:
            raise RepeatedRecord(*self._repeated)

    def __len__(self) -> int:
        return len(self._numbers)

    def find(self, key: bytes) -> tuple[int, bytes] | None:
        number = self._numbers.get(key)
        return None if number is None else (number, self._records[number][1])

    def find_all(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, bytes]]:
        numbers, records = self._numbers, self._records
        return {key: (number, records[number][1]) for key in keys if (number := numbers.get(key)) is not None}

    def with_tail(self, tails: Sequence[bytes], limit: int) -> list[tuple[int, bytes]]:
        numbers = {number for tail in tails for number in self._tails.get(tail, ()) if number in self._records}
        return [(number, self._records[number][0]) for number in sorted(numbers)[:limit]]

    def record(self, number: int) -> bytes:
        return self._records[number][1]

    def all_records(self) -> Iterator[bytes]:
        return (record for _, record in self._records.values())

    def numbered_keys(self) -> Iterator[tuple[int, bytes]]:
        return ((number, key) for number, (key, _) in self._records.items())


class _StoredRecords:
    """Records in a table of SQLite in a temporary file, of one process."""

    size = 0

    def __init__(self, tmpdir: str | None, on_repeated: str) -> None:
        import sqlite3  # takes 5 ms

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

    def add(self, number: int, key: bytes, record: bytes, tail: bytes) -> None:
        self._pending.append((number, key, record))
        if tail:
            self._tails.append((tail, number))
        if len(self._pending) >= BATCH:
            self._flush()

    def complete(self) -> None:
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
        [(count,)] = self._do("SELECT count(*) FROM records").fetchall()
        return int(count)

    def find(self, key: bytes) -> tuple[int, bytes] | None:
        row = self._do("SELECT number, record FROM records WHERE key = ?", (key,)).fetchone()
        return None if row is None else (row[0], row[1])

    def find_all(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, bytes]]:
        question = f"SELECT key, number, record FROM records WHERE key IN ({_marks(keys)})"
        return {key: (number, record) for key, number, record in self._do(question, keys)}

    def with_tail(self, tails: Sequence[bytes], limit: int) -> list[tuple[int, bytes]]:
        if not self._has_tails:
            return []
        question = (
            f"SELECT DISTINCT number, key FROM tails JOIN records USING (number) WHERE tail IN ({_marks(tails)}) "
            f"ORDER BY number LIMIT {limit}"
        )
        return list(self._do(question, tails))

    def record(self, number: int) -> bytes:
        [(record,)] = self._do("SELECT record FROM records WHERE number = ?", (number,)).fetchall()
        return bytes(record)

    def all_records(self) -> Iterator[bytes]:
        return (record for (record,) in self._do("SELECT record FROM records ORDER BY number"))

    def numbered_keys(self) -> Iterator[tuple[int, bytes]]:
        return iter(self._do("SELECT number, key FROM records ORDER BY number"))

    def _do(self, text: str, values: Sequence[Any] = (), many: bool = False) -> Any:
        assert os.getpid() == self._pid, "a table of SQLite is of one process"
        try:
            return self._database.executemany(text, values) if many else self._database.execute(text, values)
        except self._error as error:
            raise TarkitError(f"temporary space in {self._directory}: {error}") from None


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
