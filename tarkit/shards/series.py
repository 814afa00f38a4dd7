"""Several series of shards that are written at once, one for each part or category."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tarkit.errors import TarkitError, show
from tarkit.problems import Policy
from tarkit.samples.pipeline import stays_apart
from tarkit.samples.sample import Sample
from tarkit.shards.writer import Shard, Shards
from tarkit.streams.sink import Sink
from tarkit.tar.writer import GATHERED

MEMORY = 64 << 20  # bytes that may wait in memory for all shards together


class Series:
    """Write each sample to the series that `assign` says by number; None leaves it out.

    Each of `shards` has one shard open at a time. `samples` counts what each got, `left_out` what none did. Samples of
    one key that were apart before may meet in a series: `policy` judges that as `joined-sample`.
    """

    def __init__(
        self,
        shards: Sequence[Shards],
        assign: Callable[[Sample], int | None] | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Without `assign` there is one series."""
        self.shards = shards
        self.samples = [0] * len(shards)
        self.left_out = 0
        self._assign = assign
        self._policy = policy or Policy()
        self._last: list[bytes | None] = [None] * len(shards)
        self._waits = MEMORY // len(shards)

    @property
    def position(self) -> int:
        """Bytes written so far, before compression."""
        return sum(shards.position for shards in self.shards)

    @property
    def done(self) -> list[Shard]:
        """The shards that are complete, series after series."""
        return [shard for shards in self.shards for shard in shards.done]

    def add(self, sample: Sample) -> bool:
        """Write a sample where it belongs; False when all shards that there may be are full."""
        number = 0
        if self._assign is not None:
            place = self._assign(sample)
            if place is None or (sample.key == self._last[place] and not self._meets(sample)):
                self.left_out += 1
                return True
            number = place
            self._last[number] = sample.key
        if not self.shards[number].add(sample):
            return False
        self.samples[number] += 1
        if self._waits < GATHERED:
            self.shards[number].relieve(self._waits)
        return True

    def _meets(self, sample: Sample) -> bool:
        """Whether a sample may stand behind one of its key: never, as that makes them one unless a shard ends there."""
        if stays_apart(sample, self._policy):
            what = f"{sample.source.name}: at {sample.start}: the sample before it in its part has the same key"
            raise TarkitError(
                f"{what} {show(sample.key or b'')}, and a shard may end between the two",
                "tarkit sort joins them before",
            )
        return False

    def close(self, samples: int) -> None:
        """Complete all last shards. `samples` is how many came in: each is in a shard or was counted as left out."""
        written = sum(shards.samples for shards in self.shards)
        if written + self.left_out != samples or written != sum(self.samples):
            raise AssertionError(f"of {samples} samples {written} were written and {self.left_out} left out")
        for shards in self.shards:
            shards.close()

    def abort(self) -> None:
        """Give the shards up that are not complete; the others stay."""
        for shards in self.shards:
            shards.abort()


class Names:
    """Open shards, each name once: templates that meet somewhere must not replace each other's shards."""

    def __init__(self, open_sink: Callable[[str], Sink]) -> None:
        self._open = open_sink
        self._made: set[str] = set()

    def __call__(self, name: str) -> Sink:
        """Open the shard of this name; raises TarkitError when this run has made one already."""
        if name in self._made:
            raise TarkitError(f"{show(name)} would be written twice: two templates have this name")
        self._made.add(name)
        return self._open(name)
