"""Files of a tree as samples: those of one key together, where the first of them is; any number in bounded memory."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tarkit.packing.batch import Batch, File, Group, ends_of_runs, together
from tarkit.packing.filekeys import KeyRule
from tarkit.packing.tree import Chunk
from tarkit.sorting.ranges import Places
from tarkit.sorting.runs import Runs

MEMORY = 64 << 20  # bytes that a list to be sorted may take before it goes to temporary space


@dataclass
class Keyless:
    """How many files readers of shards find no key in, and the first of them."""

    count: int = 0
    first: bytes = b""

    def add(self, folder: bytes, names: list[bytes]) -> None:
        """Count these, of one folder."""
        if names:
            self.first = self.first if self.count else folder + names[0]
            self.count += len(names)


def in_folders(chunks: Iterable[Chunk], keyless: Keyless, last_dot: bool) -> Iterator[Batch]:
    """The samples where the whole path is the key: files of one sample follow each other."""
    last: Batch | None = None
    for folder, bases, sizes in chunks:
        stems, odd = _stems(bases, last_dot)
        keyless.add(folder, odd)
        stops = ends_of_runs(stems)
        keys = [folder + stems[stop - 1] for stop in stops]
        found = Batch(keys, stops, [folder + base for base in bases], list(sizes))
        if last is not None:
            found = _joined(last, found)
        end = len(found.keys)
        if end > 1:
            yield found.part(0, end - 1)
        last = found.part(end - 1, end)  # more of it may come
    if last is not None:
        yield last


def _joined(last: Batch, found: Batch) -> Batch:
    """What is found, behind the last sample before, of which the first one may be more."""
    if last.keys[0] != found.keys[0]:
        return together((last, found))
    count = len(last.names)
    stops = [count + stop for stop in found.stops]
    return Batch(found.keys, stops, last.names + found.names, last.sizes + found.sizes)


def _stems(names: list[bytes], last_dot: bool) -> tuple[list[bytes], list[bytes]]:
    """What is in front of the dot, for names of files; and those that readers of shards find no key in."""
    stems = [stem for name in names for stem, dot, _ in (name.partition(b"."),) if dot]
    odd = []
    if len(stems) < len(names) or b"" in stems:
        odd = [name for name in names if name.find(b".") < 1]
        stems = [name.partition(b".")[0] for name in names]
    if last_dot:
        stems = [name[:dot] if (dot := name.rfind(b".")) >= 0 else name for name in names]
    return stems, odd


def by_key(chunks: Iterable[Chunk], rule: KeyRule, keyless: Keyless, tmpdir: str | None) -> Iterator[Group]:
    """The samples for keys that are spread over folders: sorted by key, then by where the first file was."""
    found = Runs(Places(tmpdir), MEMORY)
    ordinal = 0
    key_of = rule.key
    for folder, names, sizes in chunks:
        keys, places = [], []
        keyless.add(folder, _stems(names, last_dot=False)[1])
        for base, size in zip(names, sizes):  # noqa: B905
            name = folder + base
            keys.append(key_of(name))
            places.append(b"%d/%b" % (size, name))
        found.extend(keys, ordinal, places)
        ordinal += len(names)
    groups = Runs(Places(tmpdir), MEMORY)
    key, first, files = b"", -1, list[File]()
    for rank, number, place, _ in found:
        if rank != key or first < 0:
            if files:
                groups.add(first.to_bytes(8, "big"), first, marshal.dumps((key, files, 0), 2))
            key, first, files = rank, number, []
        size_text, _, name = place.partition(b"/")
        files.append((name, int(size_text), b""))
    if files:
        groups.add(first.to_bytes(8, "big"), first, marshal.dumps((key, files, 0), 2))
    for _, _, place, _ in groups:
        yield marshal.loads(place)


def ranked(groups: Iterable[tuple[bytes, Group]], tmpdir: str | None) -> Iterator[Group]:
    """Samples in order of their ranks, those of one rank as they came."""
    runs = Runs(Places(tmpdir), MEMORY)
    for ordinal, (rank, group) in enumerate(groups):
        runs.add(rank, ordinal, marshal.dumps(group, 2))
    for _, _, place, _ in runs:
        yield marshal.loads(place)
