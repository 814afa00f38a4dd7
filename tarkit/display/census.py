"""Count the contents of archives by their headers: samples, fields with their sizes, sets of fields, overhead of tar.

Each archive is counted on its own, perhaps in another process, and the counts are merged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from tarkit.errors import Problem
from tarkit.problems import Policy
from tarkit.samples.checks import EntryChecks
from tarkit.samples.dataset import ABSENT, open_source
from tarkit.samples.groups import EntryGroups, plain_groups
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import KEYLESS, Recent, TarSample, key_of, split_name
from tarkit.streams.location import Location
from tarkit.streams.source import Source
from tarkit.tar.block import BLOCK, PAX_GLOBAL, SLASH
from tarkit.tar.reader import Entry, Raw, TarReader

# ---- The distribution of sizes: exact for few different sizes, then in narrow classes, so that memory is bounded

DISTINCT = 1 << 16  # maximum number of different sizes that are counted exactly
EVEN = 12  # maximum number of ranges of equal width
_ROUND = [first * 10**power for power in range(21) for first in (1, 2, 5)]
BITS = 8  # leading bits of a size that define its class: its width is at most 1/256 of the size


class Sizes:
    """Sizes in bytes: number, sum, minimum, maximum and distribution."""

    __slots__ = ("bytes", "count", "counts", "exact")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.counts: Counter[int] = Counter()
        self.exact = True

    def add(self, sizes: list[int]) -> None:
        """Count `sizes`."""
        self.count += len(sizes)
        self.bytes += sum(sizes)
        self._count(Counter(sizes).items())

    def merge(self, other: Sizes) -> None:
        """Add the counts of `other`."""
        self.count += other.count
        self.bytes += other.bytes
        if not other.exact:
            self._coarsen()
        self._count(other.counts.items())

    def _count(self, items: Iterable[tuple[int, int]]) -> None:
        counts = self.counts
        for size, count in items:
            counts[size if self.exact else _class(size)] += count
        if self.exact and len(counts) > DISTINCT:
            self._coarsen()

    def _coarsen(self) -> None:
        if self.exact:
            self.exact = False
            ends = (min(self.counts, default=0), max(self.counts, default=0))
            counts, self.counts = self.counts, Counter()
            for size, count in counts.items():
                self.counts[size if size in ends else _class(size)] += count

    @property
    def minimum(self) -> int:
        """The smallest size."""
        return min(self.counts, default=0)

    @property
    def maximum(self) -> int:
        """The largest size."""
        return max(self.counts, default=0)

    @property
    def median(self) -> float:
        """The median; with more than 65536 different sizes it is rounded down by at most 1/256."""
        sizes = sorted(self.counts)
        ends = list(accumulate(self.counts[size] for size in sizes))
        low, high = (sizes[bisect_right(ends, at)] if sizes else 0 for at in ((self.count - 1) // 2, self.count // 2))
        return mean_of(low, high)

    def bins(self) -> list[tuple[int, int, int]]:
        """Return the ranges of `round_bins`."""
        return round_bins(self.counts)


def mean_of(low: int, high: int) -> float:
    """Return the mean of two numbers, as an int if it is whole."""
    return (low + high) / 2 if (low + high) % 2 else (low + high) // 2


def round_bins(counts: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return (first size, last size, count) of adjacent ranges with round ends.

    Sizes of similar magnitude get ranges of equal width, others ranges that begin at 0, 1, 2, 5, 10, 20, 50, ... bytes.
    """
    low, high = min(counts, default=0), max(counts, default=0)
    if high - low < EVEN or high <= 10 * low:
        step = next(step for step in _ROUND if high // step - low // step < EVEN)
        edges = list(range(low // step * step, high + step + 1, step))
    else:
        edges = [0, *_ROUND]
    bins: Counter[int] = Counter()
    for size, count in counts.items():
        bins[bisect_right(edges, size) - 1] += count
    if not bins:
        return []
    return [(edges[place], edges[place + 1] - 1, bins[place]) for place in range(min(bins), max(bins) + 1)]


def _class(size: int) -> int:
    low = max(size.bit_length() - BITS - 1, 0)
    return size >> low << low


MOST = 4096  # maximum number of different fields, and of sets of fields, that are counted separately
OTHERS = b"/"  # all other fields: no field has a slash
PENDING = 1 << 16  # sizes that are counted together

Set = tuple[bytes, ...]


@dataclass
class Census:
    """The counts of one archive or of several. Sizes are in bytes of the decompressed archive."""

    name: str = ""
    samples: int = 0
    dropped: int = 0  # samples left out because of a problem
    entries: int = 0
    strays: int = 0  # entries without a key
    content: int = 0  # as stored
    headers: int = 0  # headers and their extensions
    extensions: int = 0  # the extensions alone
    padding: int = 0
    end: int = 0  # the end marker and the zeros after it
    fields: dict[bytes, Sizes] = field(default_factory=dict)
    sets: Counter[Set] = field(default_factory=Counter)

    @property
    def size(self) -> int:
        """The size of the archive."""
        return self.content + self.headers + self.padding + self.end

    @property
    def overhead(self) -> int:
        """The size of everything except content."""
        return self.size - self.content

    def merge(self, other: Census) -> None:
        """Add all counts of `other`."""
        for name in ("samples", "dropped", "entries", "strays", "content", "headers", "extensions", "padding", "end"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for field_name, sizes in other.fields.items():
            self.sizes(field_name).merge(sizes)
        for names, count in other.sets.items():
            self.add_set(names, count)

    def sizes(self, name: bytes) -> Sizes:
        """Return the sizes of a field; fields beyond `MOST` are counted together."""
        if name not in self.fields and len(self.fields) >= MOST:
            name = OTHERS
        return self.fields.setdefault(name, Sizes())

    def add_set(self, names: Set, count: int = 1) -> None:
        """Count samples with exactly these fields."""
        self.sets[names if names in self.sets or len(self.sets) < MOST else (OTHERS,)] += count

    def add(self, sample: TarSample) -> None:
        """Count a sample."""
        sample.complete()
        self.add_entries(sample.key, sample.raw)

    def add_entries(self, key: bytes | None, entries: Iterable[Raw]) -> None:
        """Count a sample of these entries; None is the key of the entries of an archive without samples."""
        names = []
        for raw in entries:
            self._add_entry(raw)
            name, _, _, size, _, kind, _, real = raw
            parts = None if kind in KEYLESS else split_name(name)
            if parts is None or parts[0] != key:
                self.strays += kind != PAX_GLOBAL
            else:
                names.append(parts[1])
                self.sizes(parts[1]).add([real if real >= 0 else size])
        if key is not None:
            self.samples += 1
            self.add_set(_set(names))

    def _add_entry(self, raw: Raw) -> None:
        _, start, data, size, stop, kind, _, _ = raw
        self.padding += stop - data - size
        if kind == PAX_GLOBAL:
            self.headers += data - start + size
            self.extensions += data - start + size
            return
        self.entries += 1
        self.content += size
        self.headers += data - start
        self.extensions += data - start - BLOCK


def _set(names: Iterable[bytes]) -> Set:
    return tuple(sorted(set(names)))


def count(source: Source, policy: Policy) -> Census:
    """Count a whole archive from its headers, without objects for samples; `policy` must not skip or allow problems.

    Raises:
        Problem: the first problem of the archive.
    """
    return _HeaderCount(source, policy).run()


class _HeaderCount:
    """A count of plain samples by their lists of fields, and of other samples entry by entry."""

    def __init__(self, source: Source, policy: Policy) -> None:
        self.source = source
        self.policy = policy
        self.checks = EntryChecks(source, policy, moves=False)
        self.census = Census()
        self.reader = TarReader(source)
        self.rows: dict[
            tuple[bytes, ...], list[int]
        ] = {}  # fields -> concatenated sizes of the samples with these fields
        self.pending = 0  # sizes in the rows
        self.recent = Recent()

    def run(self) -> Census:
        census = self.census
        try:
            self._read()
        except Problem as problem:
            self.policy.apply(self.source.failure or problem)
        if self.source.failure is not None:
            self.policy.apply(self.source.failure)
        self._flush()
        assert self.reader.marker is not None
        assert self.reader.end is not None
        census.end = self.reader.end - self.reader.marker
        census.headers = census.entries * BLOCK + census.extensions
        census.padding = self.reader.marker - census.headers - census.content
        return census

    def _read(self) -> None:
        groups, reader, census, rows, release = EntryGroups(), self.reader, self.census, self.rows, self.source.release
        is_repeated = self.recent.add
        for key, entries, plain in groups.read(
            reader.raw(), ahead=partial(plain_groups, reader) if reader.accelerated else None
        ):
            if not plain or reader.sparse or reader.nul:
                self._add(key, entries)
            else:
                repeated = is_repeated(key)
                if repeated or SLASH in key:
                    self._check_start(key, Entry._make(entries[0]), repeated)
                length = len(key) + 1
                fields = tuple([entry[0][length:] for entry in entries])
                sizes = [entry[3] for entry in entries]
                row = rows.get(fields)
                if row is None:
                    rows[fields] = sizes
                else:
                    row += sizes
                census.extensions += entries[-1][4] - entries[0][1]  # all bytes; `_flush` subtracts the others
                self.pending += len(entries)
                if self.pending >= PENDING:
                    self._flush()
            release(entries[-1][4])
        last, entries = groups.finish()
        self._add(last, entries)

    def _add(self, key: bytes | None, entries: list[Raw]) -> None:
        named = list(map(Entry._make, entries))
        if key is not None:
            first = next(entry for entry in named if key_of(entry) == key)
            self._check_start(key, first, self.recent.add(key))
        self.checks.entries(named)
        self._flush()  # keeps the order in which fields occur
        self.census.add_entries(key, entries)

    def _check_start(self, key: bytes, first: Entry, repeated: bool) -> None:
        if repeated:
            self.checks.scattered(key, first.start)
        if SLASH in key:
            self.checks.name(first)

    def _flush(self) -> None:
        census = self.census
        for names, sizes in self.rows.items():
            for at, name in enumerate(names):
                census.sizes(name).add(sizes[at :: len(names)])
            census.content += sum(sizes)
            census.entries += len(sizes)
            census.extensions -= BLOCK * len(sizes) + sum([size + 511 & -512 for size in sizes])
            samples = len(sizes) // len(names)
            census.samples += samples
            census.add_set(_set(names), samples)
        self.rows.clear()
        self.pending = 0


def count_samples(source: Source, policy: Policy, visit: Callable[[TarSample], None] | None = None) -> Census:
    """Count an archive sample by sample, with any policy.

    Args:
        policy: decides about problems.
        visit: called with each sample.

    Raises:
        Problem: a problem that `policy` does not let pass.
    """
    samples, census = SampleReader(source, policy, moves=False), Census()
    for sample in samples:
        if visit is not None and sample.key is not None:
            visit(sample)
        census.add(sample)
    census.end = samples.zeros or 0
    census.dropped = samples.dropped
    return census


def count_input(
    location: Location,
    policy: Policy,
    tmpdir: str | None = None,
    visit: Callable[[TarSample], None] | None = None,
    alone: bool = False,
) -> Census:
    """Count one input, perhaps `alone`, and call `visit` with each sample.

    Raises:
        TarkitError: as `count_samples` and `open_source` do; the file was changed meanwhile.
    """
    try:
        source = open_source(location, tmpdir=tmpdir)
    except ABSENT as error:
        policy.leave_out(location.name, error, alone)
        return Census(name=location.name)
    try:
        if visit is not None or policy.allowed or policy.skipped or policy.maxerr:
            census = count_samples(source, policy, visit)
        else:
            census = count(source, policy)
        source.unchanged()
    finally:
        source.close()
    census.name = source.name
    return census


# ---- Shards per node and worker
# Shard i goes to node i mod W; shard j of a node goes to its worker j mod K.


class Share(NamedTuple):
    """The share of one worker; `worker` is None for the sum of a node."""

    node: int
    worker: int | None
    shards: int
    samples: int


def shares_of(samples: Sequence[int], world: int, workers: int) -> list[Share]:
    """Return the shares of all nodes and workers, the sum of a node before its workers.

    Args:
        samples: the number of samples of each shard.
        workers: the number of workers of each node.
    """
    shares = []
    for node in range(world):
        mine = samples[node::world]
        shares.append(Share(node, None, len(mine), sum(mine)))
        for worker in range(workers if workers > 1 else 0):
            shares.append(Share(node, worker, len(mine[worker::workers]), sum(mine[worker::workers])))
    return shares
