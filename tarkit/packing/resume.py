"""The shards that `shard --resume` keeps: those that would be written again with the same bytes.

There are two proofs. A journal beside the shards has a fingerprint of each complete shard: its rows in the plan, and
size, times and inode of every source, which every change of a file alters. Without an entry in it, the archive that
would be written is made, and compared with the existing one.
"""

from __future__ import annotations

import marshal
import os
import time
from contextlib import suppress
from typing import NamedTuple

from tarkit.errors import Problem, TarkitError
from tarkit.packing.plan import Plan, PlannedShard
from tarkit.packing.planned import parse_source
from tarkit.samples.dataset import open_source
from tarkit.shards.writer import Shard
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import parse_output
from tarkit.streams.sink import WriteOnlySink

RACY = 2_000_000_000  # nanoseconds: a file may change again within the resolution of its times
GONE = "gone"  # identity of a shard that was moved away by --post


class Differs(Exception):
    """A shard is not as planned; str(error) says why."""


class JournalEntry(NamedTuple):
    """A complete shard: lengths of its tar and of its file, checksum, `fingerprint` and `identity`, and whether a
    command was run for it."""

    size: int
    stored: int
    sha256: str
    fingerprint: str
    identity: str
    posted: bool


def fingerprint(plan: Plan, shard: PlannedShard, settings: str) -> str:
    """Return a digest of all that a shard is made from: its rows, the `settings` of the run, the state of each source.

    It is empty if that is not reliable: a source is missing, is an object, or was changed a moment ago.
    """
    import hashlib  # this and json take milliseconds to load, and only --resume needs them

    digest = hashlib.blake2b(settings.encode("utf-8", "surrogateescape"), digest_size=16)
    newest = 0
    start = time.time_ns()
    for batch in plan.batches(shard):
        states: list[tuple[int, ...]] = []
        for source in batch.sources:
            kind, path = parse_source(source)
            if kind == "url":
                return ""
            if kind == "path":
                try:
                    status = os.stat(path)
                except OSError:
                    return ""
                newest = max(newest, status.st_ctime_ns)
                states.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
        digest.update(marshal.dumps((batch.stops, batch.names, batch.sources, states), 2))
    return digest.hexdigest() if newest < start - RACY else ""


def identity(path: str) -> str:
    """Return size, time and inode of a file, or GONE."""
    try:
        status = os.stat(path)
    except OSError:
        return GONE
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"


class Journal:
    """The complete shards, a line for each, in the file `path`, which is removed when all are complete.

    Its name is `.FIRST.0.part`, as of an unfinished output of a process 0, which does not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> dict[str, JournalEntry]:
        """Return the entries by name of shard; incomplete lines are ignored."""
        import json

        entries: dict[str, JournalEntry] = {}
        try:
            with open(self._path, "rb") as file:
                for line in file:
                    try:
                        name, *entry = json.loads(line)
                        entries[name] = JournalEntry(*entry)
                    except (ValueError, TypeError):
                        continue
        except FileNotFoundError:
            pass
        return entries

    def add(self, shard: Shard, fingerprint: str, posted: bool) -> None:
        """Append a complete shard, for which a command was run or not."""
        import json

        entry = JournalEntry(shard.size, shard.stored, shard.sha256, fingerprint, identity(shard.name), posted)
        with open(self._path, "ab") as file:
            file.write(json.dumps((shard.name, *entry)).encode() + b"\n")

    def remove(self) -> None:
        """Remove the file."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)


class Existing(WriteOnlySink):
    """A sink that compares what is written with the archive `name`, decoded. Raises Differs."""

    def __init__(self, name: str, tmpdir: str | None = None, storage: StoreOptions | None = None) -> None:
        self.name = name
        self._position = 0
        self._source = open_source(parse_output(name, storage), tmpdir=tmpdir)

    def write(self, data: bytes | memoryview) -> None:
        """Compare the next bytes."""
        stop = self._position + len(data)
        try:
            there = self._source.peek(self._position, len(data))[: len(data)]
        except TarkitError as error:
            raise Differs(f"cannot be read: {error}") from None
        if there != data:
            raise Differs(f"at {self._position} of its archive it is not as planned")
        self._source.release(stop)
        self._position = stop

    def close(self) -> None:
        """Raise Differs if more bytes follow."""
        try:
            more = len(self._source.peek(self._position, 1))
        except Problem as error:
            raise Differs(str(error)) from None
        finally:
            self._source.close()
        if more:
            raise Differs(f"more follows after {self._position} of its archive")

    def abort(self) -> None:
        """Close the archive."""
        self._source.close()
