"""The samples of one source of a mix, as often as they are wanted."""

from __future__ import annotations

import os
import random
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from tarkit.errors import TarkitError, Usage, show
from tarkit.mixing.described import NUMBER
from tarkit.mixing.mixer import derived
from tarkit.mixing.spec import SourceSpec
from tarkit.problems import Policy
from tarkit.samples.dataset import Inputs
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import buffer_shuffle, without_strays
from tarkit.samples.sample import Sample
from tarkit.samples.select import Select, Slice
from tarkit.stores import schemes
from tarkit.streams import braces
from tarkit.streams.location import Location, expand_inputs


def locate(spec: SourceSpec, tell: Callable[[str], None]) -> list[Location]:
    """The inputs of a source. With `allow_missing`, `tell` hears how many files are not there.

    Raises TarkitError for what is missing, or when all is, and when fewer are there than `choose` wants.
    """
    if not spec.allow_missing:
        try:
            found = expand_inputs(spec.words)
        except TarkitError as error:
            error.hint = _weight_hint(spec.words) or error.hint
            raise
    else:
        names = [name for word in spec.words for name in _names(word)]
        there = [name for name in names if name is not None]
        if not there:
            raise TarkitError(f"{spec.name}: none of its files is there")
        found = expand_inputs(there)
        if len(there) < len(names):
            tell(f"{spec.name}: {len(names) - len(there)} of {len(names)} are missing, and left out")
    if spec.choose > len(found):
        raise Usage(f"{spec.name}: choose {spec.choose} of {len(found)} shards")
    return found


def _weight_hint(words: Sequence[str]) -> str | None:
    """What to say of a word that is no input: that a number behind its colon may be meant for a weight."""
    for word in words:
        name, _, weight = word.rpartition(":")
        if name and NUMBER.fullmatch(weight) and not word.startswith("pipe:"):
            return f"a weight stands behind an @: {show(f'{name}@{weight}')}"
    return None


def _names(word: str) -> Iterator[str | None]:
    """The words that braces make of a word, None for a file that is not there."""
    if word == "-" or word.startswith(("file:", "pipe:")) or schemes.scheme_of(word) or os.path.lexists(word):
        yield word
        return
    for name in braces.expand(word):
        yield name if os.path.lexists(name) or any(letter in name for letter in "*?[") else None


@dataclass
class Laps:
    """Each call gives the samples of a source from the start, `spec.nrepeats` times, through its shuffle buffer.

    Samples that come for the second time have `~2` behind their key, then `~3` and so on: per shard, which `resample`
    may take several times. `again` says that more calls follow. Then inputs that can be read once only are kept in
    temporary files; others, also commands and URLs, are opened again. `repeated` says that some came again, `dropped`
    counts those that the policy left out.
    """

    spec: SourceSpec
    locations: list[Location]
    policy: Policy
    seed: int
    select: Select = field(default_factory=Select)
    shard_slice: Slice | None = None
    again: bool = False
    ahead: int = 0
    tmpdir: str | None = None
    announce: Callable[[str], None] = lambda name: None
    repeated: bool = False
    dropped: int = 0

    def __post_init__(self) -> None:
        self._seen: Counter[int] = Counter()
        self._order = random.Random(derived(self.seed, "order"))
        self._buffer = random.Random(derived(self.seed, "buffer"))
        self._kept: Inputs | None = None
        self._keeps = (self.again or self.spec.nrepeats > 1) and any(map(_reads_once, self.locations))
        if (self.spec.resample or self.spec.choose) and any(map(_reads_once, self.locations)):
            raise Usage(f"{self.spec.name}: choose and resample want inputs that can be read again")
        self._select = replace(self.select, seed=derived(self.seed, "sample"))

    def __call__(self) -> Iterator[Sample]:
        """The samples of one lap."""
        samples = (sample for _ in range(self.spec.nrepeats) for sample in self._pass())
        if self.spec.shuffle:
            size, seed = self.spec.shuffle, self._buffer.getrandbits(64)
            return buffer_shuffle(samples, size, size, seed, self.tmpdir)
        return samples

    @property
    def shards(self) -> int:
        """How many shards a pass takes."""
        return self.spec.choose or self.spec.resample or len(self.locations)

    def _pass(self) -> Iterator[Sample]:
        """All of it once: stretches of shards that come for the first time, for the second time and so on."""
        times = []
        for place in self._places():
            self._seen[place] += 1
            times.append((self._seen[place], place))
        for time, stretch in groupby(times, lambda pair: pair[0]):
            yield from self._stretch(time, [self.locations[place] for _, place in stretch])

    def _places(self) -> list[int]:
        places = list(range(len(self.locations)))
        if self.spec.resample:
            return self._order.choices(places, k=self.spec.resample)
        if self.spec.choose:
            return self._order.sample(places, self.spec.choose)
        if self.spec.any_order:
            self._order.shuffle(places)
        return places

    def _stretch(self, time: int, locations: list[Location]) -> Iterator[Sample]:
        inputs = self._kept or self._inputs(locations)
        if self._keeps:
            self._kept = inputs
        samples = self._select(without_strays(iter(inputs), self.policy))
        if time > 1:
            self.repeated = True
            samples = Fields(rekey=f"{{key}}~{time}")(samples, self.policy)
        yield from samples
        self.dropped += inputs.dropped

    def _inputs(self, locations: list[Location]) -> Inputs:
        return Inputs(
            locations,
            self.policy,
            shard_slice=self.shard_slice,
            mix=self.spec.nstreams,
            ahead=self.ahead,
            spool=self._keeps,
            tmpdir=self.tmpdir,
            announce=self.announce,
        )


def _reads_once(location: Location) -> bool:
    """Whether what is read of an input is gone."""
    if location.kind == "path":
        return not stat.S_ISREG(os.stat(location.text).st_mode)
    return location.kind == "stdin"
