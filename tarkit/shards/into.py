"""The column `__into__` of a view has the shard of each sample: `split` writes it, and writes the shards by it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.pipeline.stages import neighbours
from tarkit.pipeline.steps import Flow, Step
from tarkit.pipeline.template import ShardTemplate, existing_among
from tarkit.pipeline.view_rows import view_file
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.sizes import and_more
from tarkit.sorting.memory import default_memory
from tarkit.sorting.sorter import Sorter
from tarkit.stores.schemes import scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location, is_view


class ShardNames(ShardTemplate):
    """The names of shards in a column, in the order in which they come first.

    Attributes:
        names: the names.
        together: whether the rows of each shard follow each other.
    """

    def __init__(self, names: Sequence[str], together: bool, directory: str) -> None:
        self.names, self.together, self.directory = names, together, directory
        self.text = ""
        self.count = len(names)

    def name(self, index: int) -> str:
        """Return a name."""
        return self.names[index]

    def matches(self, path: str) -> int | None:
        """Return the number of a name; None if it is no shard."""
        return self.names.index(path) if path in self.names else None

    def existing(self, options: StoreOptions | None = None) -> list[tuple[int, str]]:
        """Return the number and the name of each shard that exists."""
        there = set(existing_among(self.names, options))
        return [(number, name) for number, name in enumerate(self.names) if name in there]


def read_names(views: Iterable[Location], column: str, directory: str) -> ShardNames:
    """Read the names of shards in a column of views; a name is a path below `directory`.

    Raises:
        Usage: an input is no view, or has no such column; a name is no path below the directory.
        TarkitError: a row has no name.
    """
    found: dict[str, None] = {}
    last: str | None = None
    together = True
    for location in views:
        if not is_view(location):
            raise Usage(f"{location.name}: {spell('by')} names a column of a view, and this is an archive")
        file = view_file(location)
        for name in file.runs(column):
            if name == last:
                continue
            together = together and name not in found
            found[name], last = None, name
    for name in found:
        if name.startswith(("/", "pipe:", "file:")) or scheme_of(name) or ".." in name.split("/") or "\0" in name:
            raise Usage(f"the shard {show(name)} in {column} is not a path below the directory of the shards")
        if name.endswith("/") or name.strip() in ("", ".", "-") or is_view(Location("path", name, name)):
            raise Usage(f"{show(name)} in {column} is not the name of a shard", "for example train-000000.tar")
    names = [directory + name for name in found]
    if not scheme_of(directory):
        files: dict[str, str] = {}
        for name in found:
            if (other := files.setdefault(os.path.normpath(name), name)) != name:
                raise Usage(f"{show(other)} and {show(name)} in {column} are names of one file")
        missing = sorted({os.path.dirname(name) for name in names if not os.path.isdir(os.path.dirname(name) or ".")})
        if missing:
            raise TarkitError(f"{and_more(missing)}: no such directory", f"mkdir -p {' '.join(missing[:9])}")
    return ShardNames(names, together, directory)


def name_of(column: str, directory: str) -> Callable[[TarSample], str]:
    """Return the function that gives the name of the shard of a sample."""

    def name(sample: TarSample) -> str:
        assert sample.row is not None
        return f"{directory}{sample.row.value(column)}"

    return name


class ShardOrder(Step):
    """The samples of each shard together, the shards in the order in which they come first."""

    name = "split"
    scope = "all"
    permutes = True

    def __init__(self, names: ShardNames, name_of: Callable[[TarSample], str]) -> None:
        self._numbers = {name: b"%016x" % number for number, name in enumerate(names.names)}
        self._name_of = name_of

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        """Return the samples in this order; repeated keys are found in the order that they have before."""
        run, tmpdir = flow.run, flow.inputs.tmpdir
        checked = neighbours(batches, run.policy, tmpdir, flow.keys_may_repeat, flow.is_repeated)
        flow.keys_may_repeat = False
        sorter = Sorter(
            run.watch_input("reading", checked, None),
            lambda sample, ordinal: self._numbers[self._name_of(sample)],
            default_memory(),
            tmpdir=tmpdir,
            note=run.note,
        )
        flow.at_end.append(sorter.unchanged)
        return sorter.batches()
