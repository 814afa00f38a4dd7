"""A plan: the samples of each shard in order, complete before anything is written, and in bounded memory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from tarkit.errors import TarkitError, show
from tarkit.packing.grouping import DottedFields
from tarkit.packing.planned import SAMPLES, PlannedBatch, parse_source, together
from tarkit.packing.tree import CountedNames, Tree
from tarkit.pipeline.template import ShardTemplate
from tarkit.samples.validate import NameChecks
from tarkit.shards.writer import Shard
from tarkit.streams.tempfile import TemporaryFile
from tarkit.tables.content import UNSIZED
from tarkit.tables.recipe import MalformedRow
from tarkit.tar.header import end_of_archive


class PlannedShard(NamedTuple):
    """A shard to write.

    Attributes:
        name: its path or URL.
        start, stop: the range of its batches in the plan.
        samples: their number.
        files: the number of files.
        content: the bytes of their contents, 0 if sizes are not known.
        length: the bytes of its tar, without compression.
        reader_samples, first, last: the number of samples that readers find, and the first and the last key.
    """

    name: str
    start: int
    stop: int
    samples: int
    files: int
    content: int
    length: int
    reader_samples: int
    first: bytes
    last: bytes

    def written(self, size: int, stored: int = 0, sha256: str = "") -> Shard:
        """Return the shard of a tar of `size` bytes, in a file of `stored` bytes, as readers see it."""
        return Shard(self.name, self.reader_samples, size, stored, self.first, self.last, sha256)


class Plan:
    """The shards and, in a temporary file, their batches, none of which is in two shards.

    Each of the `templates` counts its own shards, from the index in `numbers` on. A template without a name for a shard
    raises TarkitError. `repair` is the hint for a sample that readers would find twice in a shard.

    Attributes:
        templates: those of the names.
        shards: the shards that are complete, in order.
        samples, content: the number of their samples, and the bytes of their contents.
        open_samples, open_content, open_entries: samples, and bytes of contents and of entries in a tar, of the shard
            that takes samples.
        error: the first name that no archive can have, or that readers would find twice in a shard.
        keyless, dotted: names that readers of shards do not see as the user may expect.
        class_list: the content of the file of `classes_out`.
    """

    def __init__(
        self,
        tree: Tree,
        templates: Sequence[ShardTemplate],
        numbers: Sequence[int],
        tmpdir: str | None,
        repair: str | None = None,
    ) -> None:
        self.tree = tree
        self.shards: list[PlannedShard] = []
        self.samples = self.content = 0
        self.error: TarkitError | None = None
        self.keyless, self.dotted = CountedNames(), DottedFields()
        self.class_list = b""
        self.tmpdir = tmpdir
        self._file = TemporaryFile(tmpdir)
        self.templates = templates
        self._numbers = list(numbers)
        self._repair = repair
        self._ends = array("Q", [0])  # of the batches in the file
        self._waiting: list[PlannedBatch] = []
        self._waiting_samples = 0
        self._category = 0
        self._begin()

    def _begin(self) -> None:
        self.open_samples = self.open_content = self.open_entries = 0
        self._start = len(self._ends) - 1
        self._files = 0
        self._names = NameChecks(self._repair, None)

    @property
    def sized(self) -> bool:
        """Whether the sizes of files are known."""
        return self.tree.sized

    def extend(self, batch: PlannedBatch, content: int = 0, entries: int = 0) -> None:
        """Add samples to the current shard, with the bytes of their contents and of their entries in a tar."""
        self._category = batch.category
        self.open_samples += len(batch.keys)
        self.open_content += content
        self.open_entries += entries
        self._waiting.append(batch)
        self._waiting_samples += len(batch.keys)
        if self._waiting_samples >= SAMPLES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batch = together(self._waiting)
        self._waiting, self._waiting_samples = [], 0
        if batch.sources:
            pairs = zip(batch.sources, batch.names, strict=True)
            batch = batch._replace(sources=[source or self.tree.source(name) for source, name in pairs])
        data = batch.dump()
        self._file.write(data)
        self._ends.append(self._ends[-1] + len(data))
        self._files += len(batch.names)
        if self.error is None:
            try:
                self._names.extend(batch.names)
            except MalformedRow as error:
                self.error = TarkitError(f"{self._name()}: {error}", error.hint)

    def _name(self) -> str:
        return self.templates[self._category].name(self._numbers[self._category])

    def close(self, content: int = 0, entries: int = 0) -> None:
        """End the current shard, unless it is empty; `content` and `entries` are as for `extend`."""
        if not self.open_samples:
            return
        self._flush()
        name, names = self._name(), self._names
        self._numbers[self._category] += 1
        content += self.open_content
        entries += self.open_entries
        length = entries + len(end_of_archive(entries))
        numbers = self._start, len(self._ends) - 1, self.open_samples, self._files, content, length, names.samples
        self.shards.append(PlannedShard(name, *numbers, names.first or b"", names.last or b""))
        self.samples += self.open_samples
        self.content += content
        self._begin()

    def batches(self, shard: PlannedShard) -> Iterator[PlannedBatch]:
        """Yield the samples of a shard, with the source of each file, as in a recipe."""
        mark = self.tree.mark
        for start, stop in pairwise(self._ends[shard.start : shard.stop + 1]):
            batch = PlannedBatch.load(self._file.read(start, stop))
            yield batch if batch.sources else batch._replace(sources=[mark + name for name in batch.names])

    def paths(self) -> Iterator[bytes]:
        """Yield the paths of the files that are packed, without objects and literals."""
        for batch in chain.from_iterable(map(self.batches, self.shards)):
            yield from (value for kind, value in map(parse_source, batch.sources) if kind == "path")

    def refuse(self, paths: dict[tuple[int, int], int], urls: frozenset[bytes]) -> None:
        """Raise TarkitError when a source is a file that is written, or an object.

        Args:
            paths: the sizes of files that are written, by device and inode.
            urls: the objects that are written.
        """
        sizes = {*paths.values(), UNSIZED}
        for shard in self.shards if paths or urls else ():
            for batch in self.batches(shard):
                for source, size in zip(batch.sources, batch.sizes, strict=True):
                    kind, value = parse_source(source)
                    written = source in urls
                    if kind == "path" and size in sizes:
                        try:
                            status = os.stat(value)
                        except OSError:
                            continue
                        written = (status.st_dev, status.st_ino) in paths
                    if written:
                        raise TarkitError(f"{shard.name}: {show(value)} is written too")
