"""Files of a tree as samples: those of one key together, where the first of them is; any number in bounded memory."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress, count, islice, repeat
from operator import ne

from tarkit.dataset.filekeys import KeyRule
from tarkit.dataset.passes import Runs
from tarkit.dataset.places import Places
from tarkit.dataset.tree import Chunk

MEMORY = 64 << 20  # bytes that a list to be sorted may take before it goes to temporary space

File = tuple[bytes, int, bytes]
"""Name of an entry, bytes of content, source; an empty source is the file of that name in the tree."""


Group = tuple[bytes, list[File], int]
"""A sample to be: its key, its files, the place of its category in a map."""


@dataclass
class Keyless:
    """How many files readers of shards find no key in, and the first of them."""

    count: int = 0
    first: bytes = b""


def in_folders(chunks: Iterable[Chunk], keyless: Keyless, last_dot: bool) -> Iterator[Group]:
    """The samples where the whole path is the key: files of one sample follow each other."""
    files: list[File] = []
    key = b""
    where: bytes | None = None
    stem: bytes | None = None
    for folder, names, sizes in chunks:
        _count_keyless(folder, names, keyless)
        stems = _stems(names, last_dot)
        found = list(zip([folder + base for base in names], sizes, repeat(b"")))
        start = 0
        for stop in _ends(stems):
            if start == 0 and stems[0] == stem and folder == where:
                files += found[:stop]
            else:
                if files:
                    yield key, files, 0
                key, files = folder + stems[start], found[start:stop]
            start = stop
        where, stem = folder, stems[-1]
    if files:
        yield key, files, 0


def _stems(names: list[bytes], last_dot: bool) -> list[bytes]:
    """What is in front of the dot, for names of files."""
    if last_dot:
        return [name[:dot] if (dot := name.rfind(b".")) >= 0 else name for name in names]
    return [name.partition(b".")[0] for name in names]


def _ends(stems: list[bytes]) -> Iterator[int]:
    """Where runs of one stem end."""
    yield from compress(count(1), map(ne, stems, islice(stems, 1, None)))
    yield len(stems)


def _count_keyless(folder: bytes, names: list[bytes], keyless: Keyless) -> None:
    odd = [name for name in names if name.find(b".") < 1]
    if odd:
        keyless.first = keyless.first if keyless.count else folder + odd[0]
        keyless.count += len(odd)


def by_key(chunks: Iterable[Chunk], rule: KeyRule, keyless: Keyless, tmpdir: str | None) -> Iterator[Group]:
    """The samples for keys that are spread over folders: sorted by key, then by where the first file was."""
    found = Runs(Places(tmpdir), MEMORY)
    ordinal = 0
    key_of = rule.key
    for folder, names, sizes in chunks:
        keys, places = [], []
        _count_keyless(folder, names, keyless)
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
