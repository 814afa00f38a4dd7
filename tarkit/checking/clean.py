"""Write the clean copy that a plan describes, and account for every entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarkit.checking.salvage import Kept, Lost, Salvage
from tarkit.errors import show
from tarkit.samples.sample import Source
from tarkit.tar import block
from tarkit.tar.header import rename
from tarkit.tar.reader import Raw
from tarkit.tar.writer import Writer


@dataclass
class Tally:
    """What became of the entries of an input: `entries` is the sum of the four that follow. `samples` are of the copy.

    `why` counts the samples that were left out, by problem.
    """

    shard: str
    output: str | None = None
    samples: int = 0
    entries: int = 0
    kept: int = 0
    renamed: int = 0
    dropped: int = 0
    rejected: int = 0
    why: Counter[str] = field(default_factory=Counter)
    names: list[tuple[bytes, bytes]] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether every sample is in the copy."""
        return not self.rejected and not self.lost

    @property
    def lines(self) -> Iterator[str]:
        """For people: the sum, the names that changed, the ranges that are lost."""
        where = f" -> {self.output}" if self.output else ": nothing is left for a copy"
        yield (
            f"{self.shard}{where}: {self.entries} entries = {self.kept} kept + {self.renamed} renamed"
            f" + {self.dropped} dropped + {self.rejected} rejected; {self.samples} samples"
        )
        if self.why:
            counts = ", ".join(f"{number} for {name}" for name, number in self.why.items())
            yield f"{self.shard}: samples left out: {counts}"
        for old, new in self.names:
            yield f"{self.shard}: {show(old)} is called {show(new)}"
        for start, stop, problem in self.lost:
            what = f"bytes {start} to {stop} are lost, {stop - start} bytes" if stop else "there is nothing in it"
            yield f"{self.shard}: {what} [{problem}]"

    @property
    def record(self) -> dict[str, Any]:
        """For programs."""
        numbers = {
            name: getattr(self, name) for name in ("samples", "entries", "kept", "renamed", "dropped", "rejected")
        }
        return {
            "type": "fix",
            "shard": self.shard,
            "output": self.output,
            **numbers,
            "why": dict(self.why),
            "names": [[show(old)[1:-1], show(new)[1:-1]] for old, new in self.names],
            "lost": [{"start": start, "stop": stop, "problem": problem} for start, stop, problem in self.lost],
        }


class AnyOf:
    """Keys of several plans."""

    def __init__(self, parts: Sequence[Container[bytes]]) -> None:
        self.parts = parts

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self.parts)


def write_clean(
    plan: Salvage,
    tally: Tally,
    copy: Callable[[], Writer],
    rejects: Writer | None,
    taken: set[bytes],
    known: Container[bytes],
    before: bytes | None = None,
) -> bytes | None:
    """Write what is kept of an archive to what `copy` hands over, if there is any, and the rest to `rejects`.

    `taken`, `known` and `before` are for new names (`Salvage.samples`). The key of the last sample of the copy.
    """
    source = plan.source
    tally.entries, tally.lost = plan.entries, plan.lost
    last = None
    for item in plan.samples(taken, known, before):
        if isinstance(item, Kept):
            _write(item, source, copy(), tally)
            last = item.key or item.old
            continue
        why, _, entries = item
        tally.why[why] += 1
        tally.rejected += len(entries)
        _append(rejects, source, entries)
    tally.dropped += len(plan.strays)
    _append(rejects, source, [entry for entry in plan.strays if entry[5] != block.PAX_GLOBAL])
    tally.rejected += plan.unread
    if plan.unread:
        tally.why["unmovable-entry"] += 1
    if tally.entries != tally.kept + tally.renamed + tally.dropped + tally.rejected:
        raise AssertionError(f"{tally.shard}: entries are not accounted for: {tally}")
    return last


def _write(item: Kept, source: Source, writer: Writer, tally: Tally) -> None:
    tally.samples += 1
    if item.entries is None:
        for part in item.parts:
            writer.append(source, part.start, part.stop)
            tally.kept += part.count
        return
    if item.key is None:
        _append(writer, source, item.entries)
        tally.kept += len(item.entries)
        return
    tally.names.append((item.old, item.key))
    cut = len(item.old)
    for entry in item.entries:
        header = rename(source.read(entry[1], entry[2]), item.key + entry[0][cut:])
        writer.raw((header,), len(header))
        if entry[4] > entry[2]:
            writer.append(source, entry[2], entry[4])
    tally.renamed += len(item.entries)


def _append(writer: Writer | None, source: Source, entries: list[Raw]) -> None:
    if writer is not None:
        for entry in entries:
            writer.append(source, entry[1], entry[4])
