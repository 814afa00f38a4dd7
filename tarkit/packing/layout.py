"""A layout: which sample goes to which shard, complete before anything is written, and in bounded memory."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tarkit.errors import TarkitError, show, spell
from tarkit.packing.batch import SAMPLES, Batch, Extent, RowBatch, load_rows, together
from tarkit.packing.files import is_remote
from tarkit.packing.plan import Planned
from tarkit.packing.tree import Tree
from tarkit.pipeline.template import ShardTemplate
from tarkit.stores.schemes import scheme_of
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tar.header import end_of_archive

_EACH = 6  # numbers for a shard: category, index, samples, bytes of content and of entries in a tar, last batch


class ShardLayout(NamedTuple):
    """A planned shard: its name, number of samples, bytes of their content, length of its tar."""

    name: str
    samples: int
    content: int
    tar: int


class PackLayout:
    """The samples of each shard in order, in a temporary file; iterate over it for the rows of the plan.

    Each of the `templates` counts its own shards, from the index in `first` on. A template without a name for a shard
    raises TarkitError, before anything is written. `repair` is the hint for a sample that readers would find twice in a
    shard.
    """

    def __init__(
        self,
        tree: Tree,
        templates: Sequence[ShardTemplate],
        first: Sequence[int],
        tmpdir: str | None,
        repair: str | None = None,
    ) -> None:
        self.tree = tree
        self.repair = repair
        self.samples = self.content = 0
        self.file = TemporaryFile(tmpdir)
        self._templates = templates
        self._next = list(first)
        self._shards = array("Q")
        self._ends = array("Q", [0])  # of the batches in the file, none of which is in two shards
        self._waiting: list[Batch] = []
        self._waits = 0  # samples in them
        self._flushed = 0  # samples of the current shard in the file

    @property
    def sized(self) -> bool:
        """Whether the sizes of files are known."""
        return self.tree.sized

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._shards) // _EACH

    def extend(self, batch: Batch) -> None:
        """Add samples to the current shard."""
        self._waiting.append(batch)
        self._waits += len(batch.keys)
        if self._waits >= SAMPLES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batch = together(self._waiting)
        name = os.fsencode(self._templates[batch.category].name(self._next[batch.category]))
        numbers = list(range(self._flushed, self._flushed + len(batch.keys)))
        tree = self.tree
        sources = None
        if batch.sources:
            sources = [source or tree.source(name) for name, source in zip(batch.names, batch.sources, strict=True)]
        rows = RowBatch(name, numbers, batch.stops, batch.names, batch.sizes, sources, tree.mark, tree.skip)
        data = rows._replace(keys=batch.keys, newest=tree.newest, versions=tree.versions(rows)).dump()
        self.file.write(data)
        self._ends.append(self._ends[-1] + len(data))
        self._flushed += len(numbers)
        self._waiting, self._waits = [], 0

    def close(self, category: int, samples: int, content: int, tar: int) -> None:
        """End the current shard."""
        self._flush()
        index = self._next[category]
        self._templates[category].name(index)  # raises if there is no such name
        self._next[category] += 1
        self._flushed = 0
        self._shards.extend((category, index, samples, content, tar, len(self._ends) - 1))
        self.samples += samples
        self.content += content

    def shards(self) -> Iterator[tuple[ShardLayout, Iterator[RowBatch]]]:
        """Yield each shard and its rows."""
        first = 0
        for at in range(0, len(self._shards), _EACH):
            category, index, samples, content, tar, stop = self._shards[at : at + _EACH]
            shard = ShardLayout(self._templates[category].name(index), samples, content, tar + len(end_of_archive(tar)))
            yield shard, load_rows(self.file.read, pairwise(self._ends[first : stop + 1]))
            first = stop

    def batches(self) -> Iterator[tuple[RowBatch, Extent]]:
        """Yield the rows, shard after shard, and where they are in `file`."""
        for extent in pairwise(self._ends):
            yield RowBatch.load(self.file.read(*extent)), extent

    def __iter__(self) -> Iterator[Planned]:
        """Yield the rows of the plan."""
        return (row for batch, _ in self.batches() for row in batch.rows())


def recipe_line(row: Planned) -> bytes:
    """Return a row as a line of a recipe for `create`. Raises TarkitError if it is not a line."""
    line = b"%b\t%b" % (row.name, row.source)
    if b"\n" in line or line.count(b"\t") > 1 or line.endswith(b"\r") or line.startswith(b"# "):
        hint = f"{spell('save')} writes a table, which can have any name"
        raise TarkitError(f"{show(row.name)} cannot be a line of a recipe", hint)
    return line + b"\n"


# ---- Files that a run writes into the directory that it packs: no shard may contain itself, or its plan

Test = Callable[[bytes], bool]

_PART = re.compile(rb"\.(.+?)\.[0-9]+(?:\.[0-9]+)?\.part", re.DOTALL)


def hidden(root: str, templates: Iterable[ShardTemplate], files: Iterable[str | None]) -> dict[bytes, Test]:
    """Return tests for base names of written files, by directory below `root`: shards of any index, and other files."""
    remote = is_remote(root)
    top = root if remote else os.path.realpath(root)
    front = top.rstrip("/") + "/"
    tests: dict[bytes, list[Test]] = {}

    def below(directory: str) -> bytes | None:
        if remote or scheme_of(directory):
            path = directory.rstrip("/") + "/"
            return os.fsencode(path[len(front) :]) if path.startswith(front) else None
        path = os.path.realpath(directory or ".")
        if path == top:
            return b""
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
        part = _PART.fullmatch(base)  # left by a run that was killed
        return template.matches(template.directory + os.fsdecode(part[1] if part else base)) is not None

    return named


def _any(tests: Sequence[Test]) -> Test:
    return lambda base: any(test(base) for test in tests)
