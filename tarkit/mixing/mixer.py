"""Draw from several sources by their weights. Iterators in, iterator out; what there is of a source is read as drawn.

The algorithm: the next source is what `random.Random(seed).choices(sources, weights)` gives, asked for one at a time
with one generator for the whole run. A source that has nothing left when it is drawn ends the run (`first`), or is
taken out of the list, which keeps its order, and another is drawn (`all`), or begins again (`repeat`). So each draw is
independent of the others, whatever the sources hold. Of a source with a probability less than 1, each sample that is
drawn must also pass `Random(derived(seed, "probability")).random() < probability`; else all is drawn anew, the source
too. Its share is therefore its weight times its probability.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, Literal, TypeVar

from tarkit.errors import TarkitError

Item = TypeVar("Item")
Until = Literal["first", "all", "never"]


def derived(seed: int, *words: str | int) -> int:
    """A seed for a part of the run, independent of those for other words; the same for ever."""
    return random.Random(" ".join(map(str, (seed, *words)))).getrandbits(64)


class Stock(Generic[Item]):
    """What there is of one source, to draw from.

    `begin` gives its items from the start, and is called again when it begins again; `change` is applied to all that
    comes of it, one lap after another. `given` counts the items that the mix gave out, `passed_over` those that were
    drawn and not kept, `laps` how often `begin` came to its end; by then the source is `exhausted`.
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
        self.given = 0
        self.passed_over = 0
        self.laps = 0
        self._begin = begin
        self._change = change
        self._items: Iterator[Item] = iter(())
        self._head: list[Item] = []  # what was looked at and not taken
        self._looked = 0

    @property
    def exhausted(self) -> bool:
        """Whether all of it was drawn at least once and then more was asked for."""
        return self.laps > 0

    def open(self, repeat: bool) -> None:
        """Begin; raises TarkitError when there is nothing at all."""
        self._items = self._change(self._all(repeat))
        if not self.more():
            raise TarkitError(f"{self.name}: no sample to draw", "leave the source out, or see what is selected of it")

    def more(self) -> bool:
        """Whether there is something left. A stream's last item is good no longer."""
        if not self._head:
            for item in self._items:
                self._head.append(item)
                self._looked += 1
                break
        return bool(self._head)

    def take(self) -> list[Item]:
        """The next item in a list, which is empty when there is none left."""
        self.more()
        head, self._head = self._head, []
        return head

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
    """Iterate over what is drawn from `stocks`, at most `total` items, until the first or all of them are exhausted.

    With `repeat`, one that is exhausted begins again: `until` is then all (every one was exhausted at least once) or
    never. Afterwards `ended` is the stock that ended the mix, None when that was `total`.

    Raises TarkitError for a stock that has nothing, before anything is drawn.
    """

    def __init__(
        self, stocks: Sequence[Stock[Item]], seed: int, *, total: int | None = None, until: Until, repeat: bool = False
    ) -> None:
        self.stocks = stocks
        self.seed = seed
        self.total = total
        self.until = until
        self.repeat = repeat
        self.given = 0
        self.ended: Stock[Item] | None = None

    def __iter__(self) -> Iterator[Item]:
        """Draw."""
        for stock in self.stocks:
            stock.open(self.repeat)
        draw, passes = random.Random(self.seed).random, random.Random(derived(self.seed, "probability")).random
        live = list(self.stocks)
        bounds = list(accumulate(stock.weight for stock in live))
        while self.total is None or self.given < self.total:
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
                stock.given += 1
                self.given += 1
                yield drawn[0]

    def _over(self, stock: Stock[Item]) -> bool:
        """Whether the mix is at its end now that `stock` was exhausted."""
        if self.until == "first" or (self.until == "all" and all(each.exhausted for each in self.stocks)):
            self.ended = stock
            return True
        return False

    def asked(self) -> list[float]:
        """The share of each stock that the weights ask for."""
        weights = [stock.weight * stock.probability for stock in self.stocks]
        return [weight / sum(weights) for weight in weights]

    def got(self) -> list[float]:
        """The share of each stock in what was given."""
        return [stock.given / self.given if self.given else 0.0 for stock in self.stocks]
