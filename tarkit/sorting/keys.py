"""Sort keys: the rank of a sample as bytes, from the fields that the user names.

A field is as in `values`: the content of a field, a path into its JSON, `size`, `size.FIELD` and so on; or
`__key__`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn

from tarkit.errors import Problem, TarkitError, show, spell, spell_open, unreadable
from tarkit.problems import Policy
from tarkit.samples.columns import groups_of
from tarkit.samples.lookup import FieldLookup, Number
from tarkit.samples.sample import SampleBatch, TarSample
from tarkit.samples.values import MISFITS, Name
from tarkit.sorting import encoding
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file
from tarkit.tables.recipe import without_bom, without_end
from tarkit.tables.vectors import EXACT, FAILURES

SortType = Literal["auto", "str", "int", "float", "natural"]

CONTENT_LIMIT = 1 << 20  # maximum of bytes of a field to sort by
_SHOWN = 60  # bytes of a value in a message

_CODES: dict[str, Callable[[bytes], bytes | None]] = {
    "str": encoding.text,
    "int": encoding.integer,
    "float": encoding.real,
    "natural": encoding.natural,
    "auto": encoding.auto,
}
_WORDS = {"int": "whole number", "float": "number"}


def _size_option(fields: Sequence[str]) -> str | None:
    """Return the hint for a field that looks like the size of a shard, as of -s in other commands."""
    size = next((word for word in fields if re.fullmatch(r"[0-9.]+([kKMGT]i?[bB]?)?", word)), None)
    if size is None or spell("by") != "-s":
        return None
    return f"-s takes fields: {spell('count' if size.isdigit() else 'size', size)} cuts shards"


@dataclass(eq=False, repr=False)
class SortKey:
    """The rank of a sample: bytes in the order of the values of `fields`, one after the other; `reverse` is descending.

    Called with a sample whose bytes can be read, and its ordinal, which is not used. Returns None when a field is
    missing: see `absent`. Entries without a key come first, in either direction. By `type`:

    - `str`: by bytes. `natural`: by bytes, but runs of digits by value; equal values by bytes again.
    - `int`, `float`: by the exact value, whatever the length; white space around it is ignored. `float` has inf,
      -inf and nan, which comes after all others.
    - `auto`: each value by itself: decimal numbers, by value, come before all else, by bytes. In JSON null, false,
      true, numbers, strings, arrays, objects come in this order, and a string is text even if it looks like a number.
      Keys and names are text.

    Raises:
        Problem: by `absent`, for `missing-field`, `bad-field` and `sparse-entry`, unless `policy` allows or skips it.
        TarkitError: a value that is not of the type.
    """

    fields: Sequence[str] = ("__key__",)
    type: SortType = "auto"
    reverse: bool = False

    def __post_init__(self) -> None:
        names = list(self.fields)
        self._plain = names == ["__key__"] and self.type in ("auto", "str")
        self._encode = _CODES[self.type]
        self._names = [Name(name) for name in names]
        self._field = self._names[0].field if len(names) == 1 and names[0] != "__key__" else None
        self.wanted = self._field if self._names[0].is_field else None  # whose contents batches bring

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the options; objects made from them cannot be pickled."""
        return SortKey, (self.fields, self.type, self.reverse)

    def __call__(self, sample: TarSample, ordinal: int = 0) -> bytes | None:
        """Return the rank; None when a field is missing."""
        if sample.key is None:
            return b""
        if self._plain:
            return encoding.reverse(encoding.text(sample.key)) if self.reverse else sample.key
        if self._field is not None and sample.plain and sample.row is None:
            code = self._quick(sample, len(sample.key) + 1, self._field)
            if code is not None:
                return encoding.reverse(code) if self.reverse else code
        try:
            return self._rank(sample)
        except Problem as problem:
            if problem.name not in MISFITS:
                raise
            return None

    def ranks(self, batch: SampleBatch) -> Sequence[bytes] | None:
        """Return the ranks of samples that bring the contents of `wanted`; None leaves it to `__call__`."""
        if self._plain:
            keys: Sequence[bytes] = batch.keys  # type: ignore[assignment]
            return [encoding.reverse(encoding.text(key)) for key in keys] if self.reverse else keys
        if self.wanted is None or not batch.contents:
            return self._ranks_of_json(batch)
        codes = list(map(self._encode, batch.contents))
        if None in codes or max(map(len, batch.contents)) > CONTENT_LIMIT:
            return None
        return list(map(encoding.reverse, codes)) if self.reverse else codes  # type: ignore[arg-type, return-value]

    def _ranks_of_json(self, batch: SampleBatch) -> Sequence[bytes] | None:
        """Return the ranks of samples by one name, such as a path into JSON; None leaves it to `__call__`."""
        name = self._names[0]
        if len(self._names) > 1 or name.is_key or name.is_name or not name.columnar:
            return None
        groups = groups_of(batch)
        if groups is None or len(groups) > 1 or groups[0].find(name.field) is not None:
            return None
        try:
            values = groups[0].get(name, EXACT).values
            codes = [self._code_of(value, name) for value in values]
        except (*FAILURES, _NoCode):
            return None
        return list(map(encoding.reverse, codes)) if self.reverse else codes

    def _quick(self, sample: TarSample, length: int, field: bytes) -> bytes | None:
        """Return the code of a field of an ordinary sample, in half the time of `_rank`; None leaves it to that."""
        for name, _, start, size, _, _, _, real in sample.raw:
            if name[length:] == field:
                if real >= 0 or size > CONTENT_LIMIT:
                    return None
                return self._encode(sample.source.recent(start, start + size))
        return None

    def absent(self, sample: TarSample, policy: Policy) -> bytes | None:
        """Return the rank of a sample without a field, before those that have it; None to leave the sample out."""
        lacking: list[Problem] = []
        rank = self._rank(sample, lacking)
        if lacking:
            try:
                if policy.apply(lacking[0]) == "drop":
                    return None
            except Problem as problem:
                if problem.name != "sparse-entry":
                    skip, allow = spell_open("skip", problem.name), spell("allow", problem.name)
                    cuts = _size_option(self.fields)
                    problem.hint = cuts or f"{skip} leaves such samples out, {allow} puts them before the others"
                raise
        return rank

    def _rank(self, sample: TarSample, lacking: list[Problem] | None = None) -> bytes:
        """Return the rank. A missing field raises Problem, or is appended to `lacking`."""
        lookup = FieldLookup(sample, exact=True)
        codes = []
        for name in self._names:
            try:
                codes.append(self._code(name, lookup))
            except Problem as problem:
                if lacking is None or problem.name not in MISFITS:
                    raise
                lacking.append(problem)
                codes.append(encoding.MISSING)
        rank = b"".join(codes)
        return encoding.reverse(rank) if self.reverse else rank

    def _code(self, name: Name, lookup: FieldLookup) -> bytes:
        value = lookup.sample.key or b"" if name.text == "__key__" else name.cell(lookup, CONTENT_LIMIT)
        try:
            return self._code_of(value, name)
        except _NoCode as error:
            raw, type_ = error.args
        cut = show(raw[:_SHOWN]) + ("..." if len(raw) > _SHOWN else "")
        words = f"the field {show(name.text)} of {show(lookup.sample.key or b'')} is {cut}, not a {_WORDS[type_]}"
        hint = f"{spell('type', 'auto')} takes all values: numbers first, by value, then text"
        raise TarkitError(f"{lookup.sample.source.name}: at {lookup.sample.start}: {words}", hint)

    def _code_of(self, value: Any, name: Name) -> bytes:
        """Return the code of the value of a name. Raises _NoCode if it is not of the type."""
        type_ = self.type
        if type(value) in (int, float):  # a size, or the value of a view
            value = Number(repr(value).encode())
        if type_ == "auto":
            if not isinstance(value, bytes):
                return _code_of_json(value)
            of_name = name.text == "__key__" or name.is_name
            type_ = "float" if isinstance(value, Number) else "str" if of_name else "auto"
        raw = value if isinstance(value, bytes) else _as_text(value)
        code = _CODES[type_](raw)
        if code is None:
            raise _NoCode(raw, type_)
        return code


class _NoCode(Exception):
    """A value, as bytes, is not of a type."""


def _code_of_json(value: Any) -> bytes:
    """Return the code of a JSON value, with its kind in front."""
    if value is None:
        return encoding.MISSING
    if isinstance(value, bool):
        return encoding.TRUE if value else encoding.FALSE
    if isinstance(value, str):
        return encoding.text(value.encode())
    return encoding.text(_as_text(value), encoding.LIST if isinstance(value, list) else encoding.OBJECT)


def _as_text(value: Any) -> bytes:
    """Return a JSON value as text: strings as they are, the rest as compact JSON with sorted names."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=bytes.decode)
    raw: bytes = value.encode()
    return raw


@dataclass(eq=False, repr=False)
class OrderFile:
    """The rank of a sample is the position of its key in the file `name`, one key per line.

    A key that is not listed is an error, as in dSort. The list is held in memory, about 150 bytes per key.
    """

    name: str
    places: dict[bytes, int] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    options: StoreOptions | None = None  # of a URL

    def __post_init__(self) -> None:
        word, self.name = self.name, file_label(self.name)
        try:
            with open_file(word, self.options) as file:
                for number, line in enumerate(without_bom(file), 1):
                    key = without_end(line)
                    if key and self.places.setdefault(key, number) != number:
                        first = self.places[key]
                        raise TarkitError(f"{self.name}:{number}: the key {show(key)} is in line {first} too")
        except OSError as error:
            raise unreadable(self.name, error) from error
        if not self.places:
            raise TarkitError(f"{self.name}: no key found")

    def __call__(self, sample: TarSample, ordinal: int = 0) -> bytes | None:
        """Return the rank; None when the key is not in the list."""
        if sample.key is None:
            return b""
        place = self.places.get(sample.key)
        if place is None:
            return None
        self.present.add(place)
        return place.to_bytes(8, "big")

    def absent(self, sample: TarSample, policy: Policy) -> NoReturn:
        """Raise TarkitError: the key of the sample is not in the list."""
        raise TarkitError(
            f"{sample.source.name}: at {sample.start}: {show(sample.key or b'')} is not in {self.name}",
            f"add it there, or choose those that are: {spell('keys')} {self.name}",
        )

    @property
    def missing(self) -> int:
        """The number of listed keys that no sample has."""
        return len(self.places) - len(self.present)


class Disorder(NamedTuple):
    """Two neighbours that are not in order: the position, archive and offset of the second, and both keys."""

    position: int
    archive: str
    offset: int
    before: bytes
    after: bytes


def check_order(samples: Iterator[TarSample], rank: Callable[[TarSample, int], bytes | None]) -> Disorder | None:
    """Return the first pair of neighbours that is out of order; None when all is in order. A sample without a rank is
    ignored. Only the last rank is held in memory."""
    last, before = b"", b""
    for ordinal, sample in enumerate(samples):
        current = None if sample.key is None else rank(sample, ordinal)
        if current is None or sample.key is None:
            continue
        if current < last:
            return Disorder(ordinal, sample.source.name, sample.start, before, sample.key)
        last, before = current, sample.key
    return None
