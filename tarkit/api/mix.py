"""Mix datasets: draw samples from several by their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from tarkit.api.chain import at_least, one_of, refuse_twice, whole
from tarkit.api.dataset import Dataset
from tarkit.api.run import Run
from tarkit.errors import Usage
from tarkit.mixing.mixer import Mix, Stock, Until
from tarkit.problems import Policy
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import without_strays
from tarkit.samples.sample import TarSample
from tarkit.streams.location import Location


def mix(
    sources: Sequence[Dataset | tuple[Dataset, float]],
    seed: int,
    *,
    total: int | None = None,
    until: Until = "first",
    repeat: bool = False,
) -> Dataset:
    """Draw samples from several datasets: each draw chooses one at random, by weight, and takes its next sample.

    Args:
        sources: datasets, each with its weight, or 1.
        seed: decides what is drawn.
        total: how many samples are drawn at most.
        until: when the mix ends: once the `"first"` dataset has no more, or `"all"` of them.
        repeat: whether a dataset that has no more begins again, up to `total`, or until all came to their end once. A
            sample that comes for the second time has `~2` after its key, then `~3` and so on.

    Raises:
        TarkitError: when the mix is read, for a dataset without samples.

    >>> import tarkit
    >>> cats, dogs = tarkit.open("cats.tar"), tarkit.open("dogs.tar")
    >>> [sample.key for sample in tarkit.mix([(cats, 2), dogs], seed=9, until="all")]
    ['cat/0', 'cat/1', 'cat/2', 'dog/0', 'cat/3', 'dog/1']
    """
    if isinstance(sources, (str, Dataset)) or not all(map(_is_source, sources)):
        raise TypeError("a mix is of datasets or pairs (dataset, weight): tarkit.mix([(tarkit.open('a.tar'), 2), ...])")
    whole(seed=seed)
    weighted = [(each, 1.0) if isinstance(each, Dataset) else each for each in sources]
    if not weighted or any(not 0 < weight < inf for _, weight in weighted):
        raise Usage("a mix is of at least one dataset, and weights are above 0")
    one_of("until", until, Until)
    at_least(0, total=total)
    if repeat and until == "first" and total is None:
        raise Usage("repeat has no end", "total=N draws so many, until='all' ends once each came to its end")
    if repeat and until == "first":
        until = "never"
    origin = Mixture(weighted, seed, total, until, repeat)
    refuse_twice(origin.locations)
    return Dataset(origin, weighted[0][0].start)


def _is_source(source: object) -> bool:
    """Whether it is a dataset, or a pair of a dataset and its weight."""
    if isinstance(source, (tuple, list)) and len(source) == 2:
        return isinstance(source[0], Dataset) and hasattr(source[1], "__float__")
    return isinstance(source, Dataset)


@dataclass
class Mixture:
    """The origin of a mixed dataset."""

    sources: Sequence[tuple[Dataset, float]]
    seed: int
    total: int | None
    until: Until
    repeat: bool
    whole = False

    @property
    def distinct(self) -> bool:
        """Whether there are several archives."""
        return len(self.locations) > 1

    @property
    def locations(self) -> tuple[Location, ...]:
        """All archives."""
        return tuple(location for data, _ in self.sources for location in data.locations)

    def open(self, run: Run, tmpdir: str | None, *, gather: bool, stream: bool, spool: bool) -> MixReader:
        """Begin to read for a run."""
        return MixReader(self, run, tmpdir)


class MixReader:
    """An iterator that draws the samples of one run."""

    def __init__(self, mixture: Mixture, run: Run, tmpdir: str | None) -> None:
        self.mixture = mixture
        self.locations: Sequence[Location] = mixture.locations
        self.run = run
        self.policy: Policy = run.policy
        self.moves = True
        self.tmpdir = tmpdir
        self.dropped = 0
        self.zeros: int | None = None

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples that are drawn."""
        mixture = self.mixture
        laps = [0] * len(mixture.sources)
        stocks = [
            Stock(data.locations[0].name, weight, partial(self._lap, laps, number))
            for number, (data, weight) in enumerate(mixture.sources)
        ]
        return iter(Mix(stocks, mixture.seed, total=mixture.total, until=mixture.until, repeat=mixture.repeat))

    def _lap(self, laps: list[int], number: int) -> Iterator[TarSample]:
        """Yield the samples of one source, from its first."""
        laps[number] += 1
        run = Run(self.policy, self.tmpdir)
        samples, flow = self.mixture.sources[number][0].samples(run, moves=self.moves, directory=self.tmpdir)
        samples = without_strays(samples, self.policy)
        if laps[number] > 1:
            samples = Fields(rekey=f"{{key}}~{laps[number]}")(samples, self.policy)
        with flow:
            yield from samples
            flow.finish()
        self.dropped += run.dropped
