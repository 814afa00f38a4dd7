"""A layout: which sample goes to which shard, complete before anything is written, and in bounded memory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tarkit.dataset.gathering import File, Group
from tarkit.dataset.names import Template
from tarkit.dataset.packing import tar_length
from tarkit.dataset.plan import Planned
from tarkit.dataset.records import Records
from tarkit.dataset.tree import Tree
from tarkit.errors import TarkitError, show

SAMPLES = 4000  # whose rows are made together

Row = tuple[bytes, int, bytes, bytes, int]
"""A Planned as a plain tuple."""

_EACH = 5  # numbers for a shard: category, index of its name, samples, bytes of contents, of entries in a tar


class Shard(NamedTuple):
    """A shard to be: its name, how many samples, bytes of their contents, length of its tar."""

    name: str
    samples: int
    content: int
    tar: int


class Layout:
    """Takes samples in order, and the ends of shards; gives the rows of a plan, as often as one likes.

    Each of the `templates` counts its own shards, from that of `first` on. A template without a name for a shard raises
    TarkitError here, before anything is written.
    """

    def __init__(self, tree: Tree, templates: Sequence[Template], first: Sequence[int], tmpdir: str | None) -> None:
        self.tree = tree
        self.samples = self.content = 0
        self._templates = templates
        self._next = list(first)
        self._records: Records[Group] = Records(tmpdir)
        self._shards = array("Q")
        self.add = self._records.append
        self.extend = self._records.extend

    @property
    def sized(self) -> bool:
        """Whether the sizes of files are known."""
        return self.tree.sized

    def __len__(self) -> int:
        """How many shards there are."""
        return len(self._shards) // _EACH

    def close(self, category: int, samples: int, content: int, tar: int) -> None:
        """End a shard."""
        index = self._next[category]
        self._templates[category].name(index)
        self._next[category] += 1
        self._shards.extend((category, index, samples, content, tar))
        self.samples += samples
        self.content += content

    def _described(self) -> Iterator[Shard]:
        numbers = self._shards
        for at in range(0, len(numbers), _EACH):
            category, index, samples, content, tar = numbers[at : at + _EACH]
            yield Shard(self._templates[category].name(index), samples, content, tar_length(tar))

    def shards(self) -> Iterator[tuple[Shard, Iterator[tuple[bytes, list[File]]]]]:
        """Each shard with its samples, keys and files with their sources; these before the next shard is asked for."""
        groups = iter(self._records)
        for shard in self._described():
            yield shard, self._samples(groups, shard.samples)

    def _samples(self, groups: Iterator[Group], count: int) -> Iterator[tuple[bytes, list[File]]]:
        mark, skip = self.tree.mark, self.tree.skip
        for _ in range(count):
            key, files, _ = next(groups)
            yield key, [(name, size, source or mark + name[skip:]) for name, size, source in files]

    def rows(self) -> Rows:
        """The rows of the plan."""
        return Rows(self._batches)

    def _batches(self) -> Iterator[tuple[bytes, list[Row]]]:
        groups = iter(self._records)
        mark, skip = self.tree.mark, self.tree.skip
        for shard in self._described():
            name = os.fsencode(shard.name)
            for start in range(0, shard.samples, SAMPLES):
                some = islice(groups, min(SAMPLES, shard.samples - start))
                rows = [
                    (name, position, entry, source or mark + entry[skip:], size)
                    for position, (_, files, _) in enumerate(some, start)
                    for entry, size, source in files
                ]
                yield name, rows


class Rows:
    """The rows of a layout, as often as one likes; `batches` hands them back as plain tuples, with the name of their
    shard and many at a time. Shards come one after the other, samples by position."""

    def __init__(self, batches: Callable[[], Iterator[tuple[bytes, list[Row]]]]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Planned]:
        """Yield them one by one."""
        return (Planned(*row) for _, rows in self.batches() for row in rows)


def recipe_line(row: Planned) -> bytes:
    """A row as a line of a recipe, which `create` reads. Raises TarkitError where it would not be one line."""
    line = b"%b\t%b" % (row.name, row.source)
    if b"\n" in line or line.count(b"\t") > 1 or line.endswith(b"\r") or line.startswith(b"# "):
        raise TarkitError(f"{show(row.name)} cannot stand in a recipe", "--plan writes a table, which takes any name")
    return line + b"\n"
