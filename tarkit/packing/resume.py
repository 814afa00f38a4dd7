"""The shards that `shard --resume` keeps: those that would be written again with the same bytes.

There are two proofs. A journal beside the shards has a fingerprint of each complete shard: its rows in the plan, and
size, times and inode of every source, which every change of a file alters. Without an entry in it, the archive that
would be written is made, and compared with the existing one.
"""

from __future__ import annotations

import marshal
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tarkit.errors import Problem, TarkitError, spell
from tarkit.packing.batch import load_rows
from tarkit.packing.plan import content_of
from tarkit.packing.spool import PlannedShard
from tarkit.pipeline.template import ShardTemplate
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader, open_source
from tarkit.shards.writer import Shard
from tarkit.stores.store import StoreOptions
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.copy import write_all
from tarkit.streams.location import parse_output
from tarkit.streams.sink import WriteOnlySink

RACY = 2_000_000_000  # nanoseconds: a file may change again within the resolution of its times
GONE = "gone"  # identity of a shard that was moved away by --post


class Differs(Exception):
    """A shard is not as planned; str(error) says why."""


class Known(NamedTuple):
    """A shard in the journal; `posted` says whether a command was run for it."""

    fingerprint: str
    identity: str
    shard: Shard
    planned: int
    content: int
    rows: int
    posted: bool


def fingerprint(read: Callable[[int, int], bytes], shard: PlannedShard, settings: str) -> str:
    """Return a digest of all that a shard is made from: its rows, the `settings` of the run, the state of each source.

    It is empty if that is not reliable: a source is missing, is an object, or was changed a moment ago.
    """
    import hashlib  # this and json take milliseconds to load, and only --resume needs them

    digest = hashlib.blake2b(settings.encode("utf-8", "surrogateescape"), digest_size=16)
    newest = 0
    start = time.time_ns()
    for batch in load_rows(read, shard.extents):
        states: list[tuple[int, ...]] = []
        for source in batch.sources:
            kind, path = content_of(source)
            if kind == "url":
                return ""
            if kind == "path":
                try:
                    status = os.stat(path)
                except OSError:
                    return ""
                newest = max(newest, status.st_ctime_ns)
                states.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
        digest.update(marshal.dumps((batch.positions, batch.names, batch.sources, states), 2))
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
        self.path = path
        self._fd = -1

    def read(self) -> dict[str, Known]:
        """Return the shards by name; incomplete lines are ignored."""
        import json

        known: dict[str, Known] = {}
        try:
            with open(self.path, "rb") as file:
                for line in file:
                    try:
                        words = json.loads(line)
                        first, last = (bytes.fromhex(word) for word in words["keys"])
                        name, samples, size, stored, sha256 = words["shard"]
                        numbers = words["numbers"]
                        shard = Shard(name, samples, size, stored, first, last, sha256)
                        known[name] = Known(words["fingerprint"], words["identity"], shard, *numbers)
                    except (ValueError, KeyError, TypeError):
                        continue
        except FileNotFoundError:
            pass
        return known

    def add(self, known: Known) -> None:
        """Append a complete shard."""
        import json

        if self._fd < 0:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        name, samples, size, stored, first, last, sha256 = known.shard
        words: dict[str, Any] = {
            "shard": [name, samples, size, stored, sha256],
            "keys": [first.hex(), last.hex()],
            "fingerprint": known.fingerprint,
            "identity": known.identity,
            "numbers": [known.planned, known.content, known.rows, known.posted],
        }
        write_all(self._fd, json.dumps(words).encode() + b"\n")

    def close(self, complete: bool) -> None:
        """Close the file; remove it when all is complete."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if complete:
            try:
                os.unlink(self.path)
            except FileNotFoundError:
                pass


class Existing(WriteOnlySink):
    """A sink that compares what is written with the archive `name`, decoded. Raises Differs."""

    def __init__(self, name: str, tmpdir: str | None = None, storage: StoreOptions | None = None) -> None:
        self.name = name
        self._position = 0
        self._source = open_source(parse_output(name, storage), tmpdir=tmpdir)
        self.codec: str | None = getattr(self._source, "codec", None)

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


# ---- The entries of existing shards, for --update

_APART = ("repeated-key", "joined-sample", "scattered-sample", "duplicate-entry")  # irrelevant to names


def next_shards(
    templates: Sequence[ShardTemplate], tmpdir: str | None, storage: StoreOptions | None = None
) -> tuple[list[int], dict[bytes, int]]:
    """Return the index of each template's next shard, and the entries of existing shards with their sizes.

    Raises:
        Problem: a shard cannot be read.
        TarkitError: a shard was compressed since it was written: under its new name it would not count.
    """
    existing = [template.existing(storage) for template in templates]
    for template in templates:
        _refuse_compressed(template, storage)
    try:
        known = entries_of([path for found in existing for _, path in found], tmpdir, storage)
    except Problem as problem:
        what = f"{spell('update')} reads the entries of each shard"
        problem.hint = f"{what}: repair it with check --fix, or write it again"
        raise
    return [found[-1][0] + 1 if found else 0 for found in existing], known


def _refuse_compressed(template: ShardTemplate, storage: StoreOptions | None) -> None:
    for path in template.neighbours(storage):
        base = path[len(template.directory) :]
        if (
            codec_by_suffix(base)
            and template.matches(path) is None
            and template.matches(path.rpartition(".")[0]) is not None
        ):
            what = f"{path}: {spell('update')} cannot read a shard that was compressed"
            raise TarkitError(what, "use the present names of the shards, or move it away")


def entries_of(shards: Sequence[str], tmpdir: str | None, storage: StoreOptions | None = None) -> dict[bytes, int]:
    """Return the names of the entries in shards, with bytes of content; about 150 bytes of memory each.

    Raises Problem for a shard that cannot be read.
    """
    known: dict[bytes, int] = {}
    if not shards:
        return known
    inputs = DatasetReader([parse_output(path, storage) for path in shards], Policy(_APART), tmpdir=tmpdir)
    for sample in inputs:
        sample.complete()
        known.update((entry[0], entry[3]) for entry in sample.raw)
    return known
