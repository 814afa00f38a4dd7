"""A layout: which sample goes to which shard, complete before anything is written, and in bounded memory."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tarkit.errors import TarkitError, show
from tarkit.packing.batch import SAMPLES, Batch, File, RowBatch, Rows, together
from tarkit.packing.divide import tar_length
from tarkit.packing.plan import Planned
from tarkit.packing.tree import Tree
from tarkit.shards.template import ShardTemplate
from tarkit.spill.records import Records

_EACH = 5  # numbers for a shard: category, index of its name, samples, bytes of contents, of entries in a tar


class ShardLayout(NamedTuple):
    """A shard to be: its name, how many samples, bytes of their contents, length of its tar."""

    name: str
    samples: int
    content: int
    tar: int


class PackLayout:
    """Takes samples in order, and the ends of shards; gives the rows of a plan, as often as one likes.

    Each of the `templates` counts its own shards, from that of `first` on. A template without a name for a shard raises
    TarkitError here, before anything is written.
    """

    def __init__(
        self, tree: Tree, templates: Sequence[ShardTemplate], first: Sequence[int], tmpdir: str | None
    ) -> None:
        self.tree = tree
        self.samples = self.content = 0
        self._templates = templates
        self._next = list(first)
        self._shards = array("Q")
        self._records: Records[tuple[object, ...]] = Records(tmpdir)  # batches, none of them over two shards
        self._waiting: list[Batch] = []
        self._samples = 0

    @property
    def sized(self) -> bool:
        """Whether the sizes of files are known."""
        return self.tree.sized

    def __len__(self) -> int:
        """How many shards there are."""
        return len(self._shards) // _EACH

    def extend(self, batch: Batch) -> None:
        """Take samples."""
        self._waiting.append(batch)
        self._samples += len(batch.keys)
        if self._samples >= SAMPLES:
            self._settle()

    def _settle(self) -> None:
        if self._waiting:
            self._records.append(tuple(together(self._waiting)), self._samples)
            self._waiting, self._samples = [], 0

    def close(self, category: int, samples: int, content: int, tar: int) -> None:
        """End a shard."""
        self._settle()
        index = self._next[category]
        self._templates[category].name(index)
        self._next[category] += 1
        self._shards.extend((category, index, samples, content, tar))
        self.samples += samples
        self.content += content

    def _described(self) -> Iterator[ShardLayout]:
        numbers = self._shards
        for at in range(0, len(numbers), _EACH):
            category, index, samples, content, tar = numbers[at : at + _EACH]
            yield ShardLayout(self._templates[category].name(index), samples, content, tar_length(tar))

    def _batches(self) -> Iterator[tuple[ShardLayout, Iterator[Batch]]]:
        """Each shard with its samples, which are to be used up before the next."""
        batches = map(Batch._make, self._records)

        def of(shard: ShardLayout) -> Iterator[Batch]:
            left = shard.samples
            while left:
                batch = next(batches)
                left -= len(batch.keys)
                yield batch

        for shard in self._described():
            yield shard, of(shard)

    def shards(self) -> Iterator[tuple[ShardLayout, Iterator[tuple[bytes, list[File]]]]]:
        """Each shard with its samples, keys and files with their sources; these before the next shard is asked for."""
        for shard, batches in self._batches():
            yield shard, self._sourced(batches)

    def _sourced(self, batches: Iterator[Batch]) -> Iterator[tuple[bytes, list[File]]]:
        for batch in batches:
            for key, files, _ in batch.groups():
                yield key, [(name, size, self._source(name, source)) for name, size, source in files]

    def rows(self) -> Rows:
        """The rows of the plan."""
        return Rows(self._rows)

    def _rows(self) -> Iterator[RowBatch]:
        for shard, batches in self._batches():
            name, start = os.fsencode(shard.name), 0
            for batch in batches:
                stop = start + len(batch.keys)
                sources = None
                if batch.sources:
                    sources = list(map(self._source, batch.names, batch.sources))
                front, skip = self.tree.mark, self.tree.skip
                numbers = list(range(start, stop))
                yield RowBatch(name, numbers, batch.stops, batch.names, batch.sizes, sources, front, skip)
                start = stop

    def _source(self, name: bytes, source: bytes) -> bytes:
        return source or self.tree.source(name)


def recipe_line(row: Planned) -> bytes:
    """A row as a line of a recipe, which `create` reads. Raises TarkitError where it would not be one line."""
    line = b"%b\t%b" % (row.name, row.source)
    if b"\n" in line or line.count(b"\t") > 1 or line.endswith(b"\r") or line.startswith(b"# "):
        raise TarkitError(f"{show(row.name)} cannot stand in a recipe", "--plan writes a table, which takes any name")
    return line + b"\n"


# ---- What a run writes into the folder that it packs: no shard may hold itself, or the plan that it was made by

Test = Callable[[bytes], bool]

_PART = re.compile(rb"\.(.+?)\.[0-9]+(?:\.[0-9]+)?\.part", re.DOTALL)


def hidden(root: str, templates: Iterable[ShardTemplate], files: Iterable[str | None]) -> dict[bytes, Test]:
    """Tests for base names of what is written, by folder below `root`: shards of any number, and other files."""
    top = os.path.realpath(root)
    tests: dict[bytes, list[Test]] = {}

    def below(folder: str) -> bytes | None:
        path = os.path.realpath(folder or ".")
        if path == top:
            return b""
        front = top.rstrip("/") + "/"
        return os.fsencode(path[len(front) :]) + b"/" if path.startswith(front) else None

    for template in templates:
        where = below(template.directory)
        if where is not None:
            tests.setdefault(where, []).append(_is_named(template))
    for path in files:
        where = None if path in (None, "-") else below(os.path.dirname(path or ""))
        if where is not None:
            tests.setdefault(where, []).append(os.fsencode(os.path.basename(path or "")).__eq__)
    return {where: _any(each) for where, each in tests.items()}


def _is_named(template: ShardTemplate) -> Test:
    def named(base: bytes) -> bool:
        part = _PART.fullmatch(base)  # what a run that was killed left
        return template.matches(template.directory + os.fsdecode(part[1] if part else base)) is not None

    return named


def _any(tests: Sequence[Test]) -> Test:
    return lambda base: any(test(base) for test in tests)
