"""Access to samples by number and by key: headers are read once, contents when they are requested."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from operator import index as as_index
from typing import overload

from tarkit.api.run import Run
from tarkit.api.sample import WHOLE, Sample
from tarkit.errors import Unsupported
from tarkit.problems import Policy
from tarkit.samples.dataset import open_source
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample
from tarkit.streams.location import Location
from tarkit.streams.source import FileSource
from tarkit.tar import block, pax


class IndexedDataset(Sequence[Sample]):
    """Samples by number and by key: `len(data)`, `data[3]`, `data[-1]`, `data["a/17"]`, `"a/17" in data`.

    To make one reads the headers of all shards, which have to be plain archives in regular files. It takes about 150
    bytes of memory a sample. Looking a sample up reads its bytes alone.
    """

    def __init__(self, locations: Sequence[Location], run: Run) -> None:
        """Read the headers. `tarkit.Dataset.indexed` is the way to call it.

        Raises:
            Unsupported: a shard that is compressed, or a stream.
            Problem: a fault that the policy of `run` does not let pass.
        """
        self._sources: list[FileSource] = []
        self._shards = array("L")
        self._starts = array("Q")
        self._numbers: dict[bytes, int] = {}
        for location in locations:
            source = open_source(location) if location.kind in ("path", "stdin", "url") else None
            if not isinstance(source, FileSource):
                if source is not None:
                    source.close()
                what = f"{location.name}: samples are looked up in plain archives that are files"
                raise Unsupported(what, "decompress it first: tarkit cat SHARD -o PLAIN.tar")
            for sample in SampleReader(source, run.policy, moves=False):
                if not sample.plain:
                    _refuse_globals(sample)
                if sample.key is not None:
                    self._numbers.setdefault(sample.key, len(self._starts))
                    self._shards.append(len(self._sources))
                    self._starts.append(sample.start)
            source.close()
            self._sources.append(source)

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.encode("utf-8", "surrogateescape") in self._numbers

    @overload
    def __getitem__(self, place: int | str) -> Sample: ...
    @overload
    def __getitem__(self, place: slice) -> list[Sample]: ...
    def __getitem__(self, place: int | str | slice) -> Sample | list[Sample]:
        """Return the sample of a number or a key, or those of a slice; of two with one key it is the first.

        Raises:
            IndexError: there are not so many samples.
            KeyError: no sample has this key.
        """
        if isinstance(place, slice):
            return [self._sample(number) for number in range(*place.indices(len(self)))]
        if isinstance(place, str):
            number = self._numbers.get(place.encode("utf-8", "surrogateescape"))
            if number is None:
                raise KeyError(place)
            return self._sample(number)
        number = as_index(place)
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no sample {number}: the dataset has {len(self)}")
        return self._sample(number % len(self))

    def __iter__(self) -> Iterator[Sample]:
        return map(self._sample, range(len(self)))

    def keys(self) -> list[str]:
        """The keys, in the order of the samples; of a key that comes back, once."""
        return [key.decode("utf-8", "surrogateescape") for key in self._numbers]

    def _sample(self, number: int) -> Sample:
        start, shard = self._starts[number], self._sources[self._shards[number]]
        shard.unchanged()
        source = FileSource(shard.file, shard.name, shard.offset)  # has a window of its own: threads may look up too
        found = next(iter(SampleReader(source, Policy(allow=["all"]), moves=False, pos=start)), None)
        source.close()
        if found is None or found.start != start:
            raise Unsupported(f"{source.name}: the file was changed while it was read")
        data = source.read(found.start, found.stop) if found.stop - found.start <= WHOLE else None
        shard.unchanged()
        return Sample(found, data)


def _refuse_globals(sample: TarSample) -> None:
    """Raise Unsupported for a global PAX header that changes the entries after it: a lookup does not see it."""
    for raw in sample.raw:
        if raw[5] == block.PAX_GLOBAL:
            payload = sample.source.read(raw[2], raw[2] + raw[3])
            if pax.Overrides.of(pax.parse_decisive(payload)).any:
                what = f"{sample.source.name}: at {raw[1]}: a global PAX header changes the entries that follow it"
                raise Unsupported(what, "iterate over the dataset")
