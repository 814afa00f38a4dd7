"""Files of a tree as samples: those of one key together, where the first of them is; any number in bounded memory."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
    append = files.append
    key: bytes = b""
    where: bytes | None = None
    stem: bytes | None = None
    for folder, names, sizes in chunks:
        if folder != where:
            where, stem = folder, None
        for base, size in zip(names, sizes):  # noqa: B905  the tree made them; this is the innermost loop
            name = folder + base
            dot = base.rfind(b".") if last_dot else base.find(b".")
            if dot < 1 and base.find(b".") < 1:
                keyless.first = keyless.first if keyless.count else name
                keyless.count += 1
            here = base[:dot] if dot >= 0 else base
            if here == stem:
                append((name, size, b""))
                continue
            if files:
                yield key, files, 0
            stem = here
            key = folder + here
            files = [(name, size, b"")]
            append = files.append
    if files:
        yield key, files, 0


def by_key(chunks: Iterable[Chunk], rule: KeyRule, keyless: Keyless, tmpdir: str | None) -> Iterator[Group]:
    """The samples for keys that are spread over folders: sorted by key, then by where the first file was."""
    found = Runs(Places(tmpdir), MEMORY)
    ordinal = 0
    key_of = rule.key
    for folder, names, sizes in chunks:
        keys, places = [], []
        for base, size in zip(names, sizes):  # noqa: B905
            name = folder + base
            if base.find(b".") < 1:
                keyless.first = keyless.first if keyless.count else name
                keyless.count += 1
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
