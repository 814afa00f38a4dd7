"""Draw from several sources by their weights. Each source is an iterator, read as it is drawn.

The algorithm: the next source is `random.Random(seed).choices(sources, weights)`, one at a time, with one generator for
the whole run. A source that is exhausted when it is drawn ends the run (`first`), or is removed from the list, which
keeps its order, and another is drawn (`all`), or begins again (`repeat`). So draws are independent of each other and of
the sizes of the sources. A sample of a source with a probability less than 1 must also pass
`Random(derived(seed, "probability")).random() < probability`; else a source is drawn again. The share of a source is
therefore its weight times its probability.
"""

from __future__ import annotations

import os
import random
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, Literal, TypeVar

from tarkit.errors import TarkitError, show
from tarkit.mixing.spec import NUMBER, SourceSpec
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location, expand_inputs

Item = TypeVar("Item")
Until = Literal["first", "all", "never"]


def derived(seed: int, *words: str | int) -> int:
    """Return a seed for a part of the run, independent of those for other words."""
    return random.Random(" ".join(map(str, (seed, *words)))).getrandbits(64)


class Stock(Generic[Item]):
    """The items of one source, to draw from.

    `begin` returns its items from the start, and is called again when it begins again; `change` is applied to the items
    of all laps together. `yielded` counts the items of the mix, `passed_over` those that were drawn and not kept,
    `laps` the complete iterations.
    """

    def __init__(
        self,
        name: str,
        weight: float,
        begin: Callable[[], Iterator[Item]],
        probability: float = 1.0,
        change: Callable[[Iterator[Item]], Iterator[Item]] = lambda items: items,
    ) -> None:
        self.name = name
        self.weight = weight
        self.probability = probability
        self.yielded = 0
        self.passed_over = 0
        self.laps = 0
        self._begin = begin
        self._change = change
        self._items: Iterator[Item] = iter(())
        self._head: list[Item] = []  # the item that was read ahead
        self._looked = 0

    @property
    def exhausted(self) -> bool:
        return self.laps > 0

    def open(self, repeat: bool) -> None:
        """Begin. Raises TarkitError for an empty source."""
        self._items = self._change(self._all(repeat))
        if not self.more():
            raise TarkitError(f"{self.name}: no sample to draw", "leave the source out, or check its selection")

    def more(self) -> bool:
        """Return whether an item is left. Invalidates the last item of a stream."""
        if not self._head:
            for item in self._items:
                self._head.append(item)
                self._looked += 1
                break
        return bool(self._head)

    def take(self) -> list[Item]:
        """Return the next item in a list, which is empty when none is left."""
        self.more()
        head, self._head = self._head, []
        return head

    def close(self) -> None:
        """End the iteration, and close its inputs: commands, connections, files."""
        self._items = iter(())

    def _all(self, repeat: bool) -> Iterator[Item]:
        while True:
            before = self._looked
            yield from self._begin()
            if self._looked == before and self.laps:
                raise TarkitError(f"{self.name}: no sample to draw when it began again")
            self.laps += 1
            if self._looked == before or not repeat:
                return


class Mix(Generic[Item]):
    """Draw from `stocks`, at most `total` items, until the first or all of them are exhausted.

    With `repeat`, an exhausted one begins again: `until` is then all (every one was exhausted at least once) or never.
    Afterwards `ended` is the stock that ended the mix, None when that was `total`.

    Raises TarkitError for an empty stock, before anything is drawn.
    """

    def __init__(
        self, stocks: Sequence[Stock[Item]], seed: int, *, total: int | None = None, until: Until, repeat: bool = False
    ) -> None:
        self.stocks = stocks
        self.seed = seed
        self.total = total
        self.until = until
        self.repeat = repeat
        self.yielded = 0
        self.ended: Stock[Item] | None = None

    def __iter__(self) -> Iterator[Item]:
        for stock in self.stocks:
            stock.open(self.repeat)
        draw, passes = random.Random(self.seed).random, random.Random(derived(self.seed, "probability")).random
        live = list(self.stocks)
        bounds = list(accumulate(stock.weight for stock in live))
        while self.total is None or self.yielded < self.total:
            place = bisect(bounds, draw() * bounds[-1], 0, len(bounds) - 1)
            stock = live[place]
            before = stock.laps
            drawn = stock.take()
            if stock.laps > before and self._over(stock):
                return
            if not drawn:
                del live[place]
                bounds = list(accumulate(stock.weight for stock in live))
            elif stock.probability < 1 and passes() >= stock.probability:
                stock.passed_over += 1
            else:
                stock.yielded += 1
                self.yielded += 1
                yield drawn[0]

    def close(self) -> None:
        """End the iterations of all stocks."""
        for stock in self.stocks:
            stock.close()

    def _over(self, stock: Stock[Item]) -> bool:
        """Return whether the mix ends now that `stock` is exhausted."""
        if self.until == "first" or (self.until == "all" and all(other.exhausted for other in self.stocks)):
            self.ended = stock
            return True
        return False

    def asked(self) -> list[float]:
        """Return the share of each stock by weight."""
        weights = [stock.weight * stock.probability for stock in self.stocks]
        return [weight / sum(weights) for weight in weights]

    def got(self) -> list[float]:
        """Return the share of each stock in the items that were yielded."""
        return [stock.yielded / self.yielded if self.yielded else 0.0 for stock in self.stocks]


# ---- The inputs of a source


def locate(
    spec: SourceSpec, tell: Callable[[str], None], options: StoreOptions | None = None, missing: bool = False
) -> list[Location]:
    """Return the inputs of a source. With its `allow_missing`, `tell` is called with the number of missing files.

    `options` are those of URLs. With `missing`, files that do not exist are left out when they are read.

    Raises TarkitError for a missing file, or if all are missing.
    """
    if not spec.allow_missing:
        try:
            locations = expand_inputs(spec.words, options=options, missing=missing)
        except TarkitError as error:
            error.hint = _weight_hint(spec.words) or error.hint
            raise
    else:
        named = expand_inputs(spec.words, options=options, missing="all")
        locations = [location for location in named if location.kind != "path" or os.path.lexists(location.text)]
        if not locations:
            raise TarkitError(f"{spec.name}: none of its files exists")
        if len(locations) < len(named):
            tell(f"{spec.name}: {len(named) - len(locations)} of {len(named)} are missing, and left out")
    return locations


def _weight_hint(words: Sequence[str]) -> str | None:
    """Return a hint for a word that is not an input: a number after its colon may be meant as a weight."""
    for word in words:
        name, _, weight = word.rpartition(":")
        if name and NUMBER.fullmatch(weight) and not word.startswith("pipe:"):
            return f"a weight follows an @: {show(f'{name}@{weight}')}"
        name, _, weight = word.rpartition("@")
        if name and "." not in weight and not word.startswith("pipe:"):
            return f"weights look like {show(f'{name}@3')}"
    return None
