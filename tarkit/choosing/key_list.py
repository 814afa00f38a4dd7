"""A list of keys, with which of them samples had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest

from tarkit.errors import show
from tarkit.samples.names import NearKeys, composed, form_words
from tarkit.samples.sample import split_name
from tarkit.sizes import plural
from tarkit.spill.sets import Marks, StoredSet

OTHERS = 10_000  # keys of other samples that are kept for suggestions


@dataclass(eq=False, repr=False)
class KeyList:
    """Keys to select or to leave out, read from the file `name`.

    Attributes:
        name: the file, for messages.
        wanted: the keys; more than `spill.sets.HELD` are in temporary space.
        require_all: a missing key is an error.
        present: those of them that samples had so far.
        ended: all samples were read: keys that were not found are missing.
        others: the first keys of samples that are not listed.
    """

    name: str
    wanted: frozenset[bytes] | StoredSet
    require_all: bool = False
    present: set[bytes] | Marks = field(init=False)
    ended: bool = False
    others: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.present = Marks(self.wanted) if isinstance(self.wanted, StoredSet) else set()

    def found(self, keys: Iterable[bytes]) -> Iterator[bool]:
        """Yield whether keys of samples are listed, and remember which of those listed were found."""
        for key in keys:
            if key in self.wanted:
                self.present.add(key)
                yield True
            else:
                if len(self.others) < OTHERS:
                    self.others.add(key)
                yield False

    def numbers_in(self, keys: Iterable[bytes]) -> Iterator[int]:
        """Yield the numbers of those of keys that are listed; of the others the first are remembered."""
        for number, key in enumerate(keys):
            if key in self.wanted:
                yield number
            elif len(self.others) < OTHERS:
                self.others.add(key)

    def anew(self) -> KeyList:
        """Return the same list, of which no key was found yet."""
        return KeyList(self.name, self.wanted, self.require_all)

    def hint(self) -> str | None:
        """Return a suggestion: a key in another Unicode form; if no key was found, a column, or a key that is similar
        to a file name or has another directory."""
        forms = {composed(key): key for key in self.others if not key.isascii()}
        missing = self._first_missing(OTHERS)
        for listed in missing if forms else ():
            if (same := forms.get(composed(listed))) is not None:
                return f"the key {show(listed)} is there {form_words(same)}"
        if self.present:
            return None
        table = self.name.lower().endswith((".csv", ".tsv"))
        if table and all(b"," in key or b"\t" in key for key in self.wanted):
            return f"the lines look like rows of a table: {self.name}:COLUMN takes the keys in a column"
        near = NearKeys(self.others)
        for listed in missing:
            named = split_name(listed)
            if (meant := near.find(listed if named is None else named[0])) is not None:
                return f"no sample has the key {show(listed)}; did you mean {show(meant)}?"
        return None

    def missing(self) -> Iterable[bytes]:
        """Return the keys that were not found, sorted."""
        if isinstance(self.present, set):
            return sorted(self.wanted - self.present)  # type: ignore[operator]
        from tarkit.spill.records import by_rank

        return by_rank(((key, key) for key in self.present.others()), self.present.tmpdir)

    def _first_missing(self, count: int) -> list[bytes]:
        """Return the first of the keys that were not found: of a list in memory all."""
        return sorted(self.missing()) if isinstance(self.present, set) else nsmallest(count, self.present.others())

    def summary(self, done: str = "requested") -> tuple[dict[str, int], str]:
        """Return the numbers of keys listed, found and missing, as a dict and as text. `done` says what is done."""
        missing = len(self.wanted) - len(self.present)
        state = "missing" if self.ended else "not_reached"
        facts = {"wanted": len(self.wanted), "found": len(self.present), "missing": 0, state: missing}
        text = f"{self.name}: {plural(len(self.wanted), 'key')} {done}, {len(self.present)} found"
        if self.ended or missing:
            text += f", {missing} {'missing' if self.ended else 'not reached'}"
        return facts, f"{text}, the first of them {show(self._first_missing(1)[0])}" if missing else text
