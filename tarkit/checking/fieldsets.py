"""The sets of fields of the samples of a shard, and notes on unusual ones."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tarkit.checking.findings import Finding
from tarkit.errors import show
from tarkit.samples.lookup import column_words
from tarkit.samples.names import composed, form_words
from tarkit.samples.sample import TarSample
from tarkit.sizes import plural

SETS = 4096  # distinct lists of fields of a shard that are remembered
LISTED = 10  # notes of one kind on a shard; further ones are only counted

_PLAIN = re.compile(rb"[A-Za-z][A-Za-z0-9_+-]*(\.[A-Za-z0-9_+-]+)*|[0-9][A-Za-z0-9_+-]*")
_IN_COMMAND = re.compile(rb"[A-Za-z0-9_.+-]+")


def is_odd(name: bytes) -> bool:
    """Return whether a field looks like part of a file name: blanks, brackets, an empty part, digits before a dot."""
    return _PLAIN.fullmatch(name) is None


@dataclass
class FieldSet:
    """The fields of some samples, in order; `first` is the offset and the key of the first of these samples.

    `number` counts the sets of a shard from 0; it is SETS for one that is not remembered.
    """

    names: tuple[bytes, ...]
    first: tuple[int, bytes]
    number: int
    count: int = 0
    lower: frozenset[bytes] = field(init=False)
    has_duplicates: bool = field(init=False)

    def __post_init__(self) -> None:
        self.lower = frozenset(map(bytes.lower, self.names))
        self.has_duplicates = len(set(self.names)) < len(self.names)

    def missing(
        self, required: Iterable[tuple[bytes, ...]], key: bytes, sample: TarSample | None = None
    ) -> Iterator[str]:
        """Yield messages about required fields, each a tuple of alternatives in lower case, that a sample lacks.

        The `sample` of a view may have columns of these names.
        """
        for names in required:
            if self.lower.isdisjoint(names):
                have = ", ".join(map(show, self.names))
                columns = "" if sample is None else column_words(sample, map(os.fsdecode, names))
                yield f"{show(key)} has no field {' or '.join(map(show, names))}, it has {have}{columns}"


class FieldSets:
    """The different field sets of a shard; those beyond the first `SETS` are only counted."""

    def __init__(self, shard: str) -> None:
        self.shard = shard
        self.by_names: dict[tuple[bytes, ...], FieldSet] = {}
        self.others = 0
        self._numbered: list[tuple[bytes, ...]] = []

    def of(self, names: tuple[bytes, ...], start: int, key: bytes) -> FieldSet:
        """Count a sample with these fields and return their set."""
        fieldset = self.by_names.get(names)
        if fieldset is None:
            fieldset = FieldSet(names, (start, key), len(self.by_names))
            if len(self.by_names) < SETS:
                self.by_names[names] = fieldset
                self._numbered.append(names)
            else:
                self.others += 1
        fieldset.count += 1
        return fieldset

    def have_equal_names(self, numbers: Iterable[int]) -> bool | None:
        """Return whether a field is in two of the sets with these numbers, or twice in one; None if that is unknown."""
        numbers = list(numbers)
        if SETS in numbers:
            return None
        names = [name for number in numbers for name in self._numbered[number]]
        return len(set(names)) < len(names)

    def counts(self) -> Counter[frozenset[bytes]]:
        """Return the number of samples by set of fields, in lower case."""
        counts: Counter[frozenset[bytes]] = Counter()
        for fieldset in self.by_names.values():
            counts[fieldset.lower] += fieldset.count
        return counts

    def notes(self) -> Iterator[Finding]:
        """Yield notes on unusual sets and names."""
        yield from self._variants()
        yield from self._forms()
        yield from self._mixed()
        yield from self._odd()

    def _first_of(self, sets: Iterable[FieldSet]) -> tuple[int, bytes]:
        return min(fieldset.first for fieldset in sets)

    def _note(self, name: str, sets: list[FieldSet], detail: str, repair: str | None = None) -> Finding:
        offset, key = self._first_of(sets)
        count = sum(fieldset.count for fieldset in sets)
        return Finding(name, self.shard, offset, key, detail, "note", repair, count)

    def _variants(self) -> Iterator[Finding]:
        spelled: dict[bytes, dict[bytes, list[FieldSet]]] = {}
        for fieldset in self.by_names.values():
            for name in dict.fromkeys(fieldset.names):
                spelled.setdefault(name.lower(), {}).setdefault(name, []).append(fieldset)
        most: dict[bytes, bytes] = {}
        variants = []
        for lower, spellings in spelled.items():
            counts = {name: sum(fieldset.count for fieldset in sets) for name, sets in spellings.items()}
            most[lower], *rest = sorted(counts, key=lambda name: (-counts[name], name != lower, name))
            if rest:
                words = ", ".join(f"{show(name)} (in {counts[name]})" for name in rest)
                sets = [fieldset for name in rest for fieldset in spellings[name]]
                where = plural(counts[most[lower]], "sample")
                detail = f"the field {show(most[lower])} (in {where}) is also spelled {words}"
                variants.append((lower, sets, detail))
        repair = self._one_spelling(most) if variants else None
        for _, sets, detail in sorted(variants):
            yield self._note("case-variant", sets, detail, repair)

    def _forms(self) -> Iterator[Finding]:
        """Yield notes on fields that differ only in their Unicode normal form."""
        first: dict[str, bytes] = {}
        for name in dict.fromkeys(
            name for fieldset in self.by_names.values() for name in fieldset.names if not name.isascii()
        ):
            other = first.setdefault(composed(name), name)
            if other != name:
                sets = [fieldset for fieldset in self.by_names.values() if name in fieldset.names]
                yield self._note("form-variant", sets, f"the field {show(name)} is also there {form_words(other)}")

    def _one_spelling(self, most: dict[bytes, bytes]) -> str | None:
        """Return how fields get their usual spelling, without loss of others; None if it is not known.

        Args:
            most: the usual spellings of all fields, by their names in lower case.
        """
        if any(len(fieldset.lower) < len(set(fieldset.names)) for fieldset in self.by_names.values()):
            return "a sample has both spellings, which are two fields: rename one of them"
        if self.others or len(most) > LISTED or not all(map(_IN_COMMAND.fullmatch, most.values())):
            return None
        words = " ".join(name.decode() for name in most.values())
        keep = any(fieldset.lower != most.keys() for fieldset in self.by_names.values())
        command = "tarkit cat --on-missing-field keep SHARD" if keep else "tarkit cat SHARD"
        return f"{command} -f '{words}' -o OUT gives them one spelling"

    def _mixed(self) -> Iterator[Finding]:
        counts = self.counts()
        if len(counts) < 2:
            return
        sets = {lower: [fieldset for fieldset in self.by_names.values() if fieldset.lower == lower] for lower in counts}
        most, *rest = sorted(counts, key=lambda lower: (-counts[lower], self._first_of(sets[lower])))
        rest.sort(key=lambda lower: self._first_of(sets[lower]))
        for lower in rest[:LISTED]:
            lacks, has = most - lower, lower - most
            words = [f"no {listed(lacks)}"] * bool(lacks) + [f"the additional {listed(has)}"] * bool(has)
            detail = f"{_samples(counts[lower])} {' and '.join(words)}, unlike most; the first is"
            _, key = self._first_of(sets[lower])
            yield self._note("mixed-fields", sets[lower], f"{detail} {show(key)}")
        if len(rest) > LISTED:
            further = [fieldset for lower in rest[LISTED:] for fieldset in sets[lower]]
            number = sum(fieldset.count for fieldset in further) + self.others
            note = self._note("mixed-fields", further, f"{_samples(number)} further sets of fields")
            yield note._replace(concerned=number)

    def _odd(self) -> Iterator[Finding]:
        odd: dict[bytes, list[FieldSet]] = {}
        for fieldset in self.by_names.values():
            for name in set(fieldset.names):
                if is_odd(name):
                    odd.setdefault(name, []).append(fieldset)
        names = sorted(odd, key=lambda name: (self._first_of(odd[name]), name))
        for name in names[:LISTED]:
            _, key = self._first_of(odd[name])
            detail = f"{show(key)} has the field {show(name)}, of a file named {show(key + b'.' + name)}"
            yield self._note("odd-field", odd[name], detail)
        if len(names) > LISTED:
            sets = [fieldset for name in names[LISTED:] for fieldset in odd[name]]
            yield self._note("odd-field", sets, plural(len(names) - LISTED, "more such field"))


def listed(names: Iterable[bytes]) -> str:
    """Return names for a message, in order."""
    return ", ".join(map(show, sorted(names)))


def _samples(count: int) -> str:
    return plural(count, "sample has", "samples have")
