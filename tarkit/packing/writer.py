"""Write the shards of a plan: each is opened, filled and completed by itself, so that processes can share the work."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tarkit.errors import TarkitError
from tarkit.packing.fill import Filler
from tarkit.packing.resume import GONE, Differs, Existing, Known, fingerprint, identity
from tarkit.packing.spool import PlannedShard
from tarkit.parallel import results_in_order
from tarkit.shards.writer import Shard
from tarkit.streams.sink_plain import Sink
from tarkit.tar.writer import Writer

_COUNTER = struct.Struct("=q")
_PULSE: Any = object()


@dataclass(frozen=True)
class Packing:
    """What is the same for all shards; it goes to processes, so descriptors stand for files.

    `spool` has the rows; in `counters`, unless that is -1, each shard has eight bytes that say how far it is. `mtime`
    None is each file's own. With `skip` a sample is left out when a file of it is gone. `resume` looks at what is there
    under the name of a shard, and with `replace` that is written again when it is not as planned. `digest` asks for
    checksums. `settings` is what else the bytes of a shard depend on; `posted` shards may have been moved away. A
    process gets `share` shards, one after the other.
    """

    spool: int
    open_sink: Callable[[str], Sink]
    counters: int = -1
    plan_name: str | None = None
    mtime: int | None = 0
    skip: bool = False
    resume: bool = False
    replace: bool = False
    digest: bool = False
    posted: bool = False
    settings: str = ""
    share: int = 1
    tmpdir: str | None = None

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of the spool."""
        return os.pread(self.spool, stop - start, start)


class Task(NamedTuple):
    """A shard to write, the how-manieth it is, and what the journal has of it."""

    number: int
    shard: PlannedShard
    known: Known | None = None


class Packed(NamedTuple):
    """What became of a planned shard: `shard` is None when all its samples were left out.

    `planned` samples, `rows` entries, `content` bytes are in it. `skipped` says which samples were left out and why.
    `kept` is whether it was there, `known` whether by the journal nothing is left to do. `fingerprint` is for that, and
    may be empty.
    """

    shard: Shard | None
    planned: int
    content: int
    rows: int
    skipped: list[str]
    kept: bool = False
    known: bool = False
    fingerprint: str = ""


def pack_all(packing: Packing, tasks: Iterable[Task], processes: int) -> Generator[Packed | None]:
    """Write shards, `processes` at a time; hand back what became of each, in order, and None now and then.

    Raises what stands in the way of one, when those before it are complete.
    """
    if processes > 1:
        work = partial(_packed, packing)
        for packed in results_in_order(work, tasks, processes, packing.tmpdir, share=packing.share, pulse=_PULSE):
            yield None if packed is _PULSE else packed
        return
    for task in tasks:
        yield (yield from _steps(packing, task))


def progress(counters: int, shards: int) -> int:
    """Bytes of content that are written by now, over all shards."""
    return sum(memoryview(os.pread(counters, _COUNTER.size * shards, 0)).cast("q"))


def _packed(packing: Packing, task: Task) -> Packed:
    steps = _steps(packing, task)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            packed: Packed = end.value
            return packed


def _steps(packing: Packing, task: Task) -> Generator[None, None, Packed]:
    """Write a shard, or find it there as planned; stops now and then."""
    name = os.fsdecode(task.shard.name)
    note = ""
    if packing.resume:
        note = fingerprint(packing.read, task.shard, packing.settings)
        if task.known and note and _same(packing, task.known, note, identity(name)):
            return _known(packing, task, task.known, note)
        if os.path.exists(name):
            try:
                return (yield from _write(packing, task, name, note, Existing(name, packing.tmpdir)))
            except Differs as error:
                if not packing.replace:
                    hint = "--resume with --force writes it again"
                    raise TarkitError(f"{name}: it is there and not as planned: {error}", hint) from None
    return (yield from _write(packing, task, name, note, packing.open_sink(name)))


def _same(packing: Packing, known: Known, note: str, there: str) -> bool:
    """Whether a shard is the one that the journal has, or --post has taken that away; and no fact of it is missing."""
    if (known.fingerprint, known.identity) != (note, there):
        return False
    return there != GONE or (packing.posted and known.posted and (bool(known.shard.sha256) or not packing.digest))


def _known(packing: Packing, task: Task, known: Known, note: str) -> Packed:
    """What the journal has of a shard."""
    _count(packing, task, known.content)
    shard = _described(known.shard, packing.digest and not known.shard.sha256)
    settled = known.posted or not packing.posted
    return Packed(shard, known.planned, known.content, known.rows, [], True, settled, note)


def _write(packing: Packing, task: Task, name: str, note: str, sink: Sink) -> Generator[None, None, Packed]:
    writer = Writer(sink)
    filler = Filler(
        task.shard,
        writer,
        packing.read,
        plan_name=packing.plan_name,
        mtime=packing.mtime,
        skip=packing.skip,
    )
    try:
        for content in filler.fill():
            _count(packing, task, content)
            yield
        writer.finish()
    except BaseException:
        writer.abort()
        raise
    if filler.rows:
        writer.close()
    else:
        writer.abort()
    _count(packing, task, filler.content)
    shard = None
    if filler.rows:
        shard = _described(
            Shard(name, filler.samples, writer.position, 0, filler.first, filler.last, ""), packing.digest
        )
    kept = isinstance(sink, Existing)
    return Packed(shard, filler.planned, filler.content, filler.rows, filler.skipped, kept, False, note)


def _described(shard: Shard, digest: bool) -> Shard:
    """The shard with the length of its file and, if wanted, its checksum."""
    if not digest:
        return shard
    import hashlib  # which takes milliseconds, and is for --manifest alone

    with open(shard.name, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return shard._replace(stored=os.fstat(file.fileno()).st_size, sha256=sha256)


def _count(packing: Packing, task: Task, content: int) -> None:
    if packing.counters >= 0:
        os.pwrite(packing.counters, _COUNTER.pack(content), _COUNTER.size * task.number)
