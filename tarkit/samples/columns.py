"""Values of many samples of a batch at once: what `values.Name` gives for each of them, in columns.

The samples of a batch with the same fields in the same order are a group, so that a name is resolved once for all of
them. What a name is not made for, or what may be a problem of a sample, raises one of the errors that a part of an
expression may raise; then the samples are looked at one by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, compress, pairwise, repeat
from operator import add, itemgetter
from typing import Any

from tarkit.errors import Problem
from tarkit.samples.lookup import (
    JSON,
    SMALL,
    TEXT_FIELDS,
    is_unicode,
    json_decoder,
    may_have_surrogates,
    number_or_text,
)
from tarkit.samples.names import spelled
from tarkit.samples.properties import PROPERTIES
from tarkit.samples.sample import OPEN, Condition, SampleBatch, TarSample, field_names
from tarkit.samples.values import Name, step_into
from tarkit.streams.ranges import HeldRange
from tarkit.tables.vectors import (
    CELL,
    EXACT,
    FAILURES,
    NUMBERS,
    PRESENT,
    TEXT,
    TEXTS,
    TRUTHS,
    Columns,
    Vector,
    vector_like,
)
from tarkit.tar.fast import EntryColumns

TOGETHER = 1 << 22  # bytes of a batch that are read as a whole for contents

Fields = tuple[bytes, ...]  # of a sample, in order


class _Shared:
    """What the groups of a batch share: its entries, and its bytes once some are needed."""

    def __init__(self, batch: SampleBatch) -> None:
        self.samples = batch
        self.entries: EntryColumns | None = None if batch.entries_held is None else batch.entries_held.columns
        self._bytes: bytes | None = None

    @cached_property
    def sizes_before(self) -> list[int]:
        """Of each entry the bytes of all before it, and at the end those of all entries."""
        assert self.entries is not None
        return [0, *accumulate(self.entries.sizes)]

    def pieces(self, starts: Iterable[int], stops: Iterable[int]) -> list[bytes]:
        """Return ranges of the archive."""
        source, begin, end = self.samples.source, self.samples.start, self.samples.stop
        if end - begin > TOGETHER:
            return list(map(source.recent, starts, stops))
        if self._bytes is None:
            self._bytes = source.recent(begin, end)
        held = self._bytes
        return [held[start - begin : stop - begin] for start, stop in zip(starts, stops, strict=True)]

    def views(self, starts: Iterable[int], stops: Iterable[int]) -> Iterable[bytes | memoryview]:
        """Return the same without copies, each valid until the next one is taken."""
        source, begin, end = self.samples.source, self.samples.start, self.samples.stop
        if end - begin > TOGETHER:
            return map(source.view, starts, stops)
        held = source.view(begin, end)
        return [held[start - begin : stop - begin] for start, stop in zip(starts, stops, strict=True)]


class SameFields(Columns):
    """Samples of a batch with the same fields in the same order.

    Attributes:
        fields: their fields.
        numbers: the numbers of the samples in the batch.
        entries: the number of the first entry of each.
    """

    def __init__(self, batch: _Shared, fields: Fields, numbers: Sequence[int], entries: Sequence[int]) -> None:
        self.count = len(numbers)
        self.batch, self.fields, self.numbers, self.entries = batch, fields, numbers, entries
        self._forms: dict[tuple[Any, str], Vector] = {}

    def get(self, name: Any, form: str = "value") -> Vector:
        """Return the values of a name. Raises KeyError, ValueError and others if one may not have a value."""
        known = self._forms.get((name, form))
        if known is None:
            known = self._forms[name, form] = self._vector(name, form)
        return known

    def chosen(self, flags: Sequence[Any]) -> SameFields:
        """Return the samples whose flag is true."""
        return SameFields(
            self.batch, self.fields, list(compress(self.numbers, flags)), list(compress(self.entries, flags))
        )

    def first(self) -> TarSample:
        """Return the first sample of the batch; this is the first of its groups."""
        columns, samples = self.batch.entries, self.batch.samples
        assert columns is not None
        some = slice(self.entries[0], self.entries[0] + len(self.fields))
        parts = [column[some] for column in columns[:5]]
        rows = list(zip(*parts, repeat(b"0"), repeat(b""), repeat(-1), strict=False))
        return TarSample(samples.keys[0], samples.source, rows, samples.start, samples.stops[0])

    def has(self, name: Name) -> bool:
        """Return whether all samples have a value; False: none has. Raises ValueError if they differ in that."""
        return bool(next(iter(self.get(name, PRESENT).values)))

    def find(self, field: bytes) -> int | None:
        """Return the place of a field among those of a sample, of equal ones the first; None without it."""
        name = spelled(self.fields, field)
        return None if name is None else self.fields.index(name)

    def of(self, column: Sequence[Any], place: int) -> Sequence[Any]:
        """Return a column of the entries of one field."""
        entries = self.entries
        if isinstance(entries, range):
            return column[entries.start + place : entries.stop : entries.step]
        return [column[number + place] for number in entries]

    def contents(self, place: int) -> list[bytes]:
        """Return the contents of a field. Raises ValueError if one is long."""
        return self.batch.pieces(*self._ranges(place))

    def _ranges(self, place: int) -> tuple[Iterable[int], Iterable[int]]:
        """Return where the contents of a field begin and end. Raises ValueError if one is long."""
        columns = self.batch.entries
        assert columns is not None
        data, sizes = self.of(columns.data, place), self.of(columns.sizes, place)
        if max(sizes, default=0) > SMALL:
            raise ValueError
        return data, map(add, data, sizes)

    def _vector(self, name: Name, form: str) -> Vector:
        if name.is_key:
            return Vector(TRUTHS, [True] * self.count) if form == PRESENT else self._keys(form)
        place = self.find(name.field)
        if place is None:
            return self._other(name, form)
        if form == PRESENT:
            return Vector(TRUTHS, [True] * self.count)
        contents = self.contents(place)
        if form in (CELL, EXACT):
            return Vector("", contents)
        return _texts(contents) if form == TEXT else _values(name.field, contents)

    def _keys(self, form: str) -> Vector:
        keys: Sequence[bytes] = self.batch.samples.keys  # type: ignore[assignment]
        if len(self.numbers) < len(keys):
            keys = list(map(keys.__getitem__, self.numbers))
        if form in (CELL, EXACT):
            return Vector("", keys)
        joined = os.fsdecode(b"\0".join(keys))
        if not is_unicode(joined):
            raise ValueError
        return Vector(TEXTS, joined.split("\0"))

    def _other(self, name: Name, form: str) -> Vector:
        """Return the values of a word, or of a path into JSON."""
        if name.has_word:
            word, field = name.word
            if form != PRESENT:
                return self._word(word, field, form)
            return Vector(TRUTHS, [not field or self.find(field) is not None] * self.count)
        for document, path in name.paths:
            place = self.find(document)
            if place is not None:
                values = _documents(self.contents(place), form == EXACT)
                try:
                    for step in path:
                        values = _members(values, step)
                except KeyError:
                    if form == PRESENT:
                        raise ValueError from None
                    raise
                return Vector(TRUTHS, [True] * self.count) if form == PRESENT else vector_like(values)
        if form == PRESENT:
            return Vector(TRUTHS, [False] * self.count)
        raise KeyError(name.text)

    def _word(self, word: str, field: bytes, form: str) -> Vector:
        if field:
            place = self.find(field)
            columns = self.batch.entries
            if place is None or columns is None:
                raise KeyError(field)
            if (of_contents := PROPERTIES[word].of_contents) is not None:
                return vector_like(list(map(of_contents(), self.batch.views(*self._ranges(place)))))
            column = {"size": columns.sizes, "offset": columns.data, "header": columns.starts}[word]
            return Vector(NUMBERS, self.of(column, place))
        samples = self.batch.samples
        if word == "offset":
            return Vector(NUMBERS, [samples.start_of(number) for number in self.numbers])
        if word == "shard":
            if form in (CELL, EXACT):
                return Vector("", [os.fsencode(samples.source.name)] * self.count)
            if not is_unicode(samples.source.name):
                raise ValueError
            return Vector(TEXTS, [samples.source.name] * self.count)
        return Vector(NUMBERS, self._sizes())

    def _sizes(self) -> list[int]:
        before, width = self.batch.sizes_before, len(self.fields)
        return [before[first + width] - before[first] for first in self.entries]


def groups_of(batch: SampleBatch) -> list[SameFields] | None:
    """Return the groups of a batch of plain samples in a row; None if its entries are not known, or it is of a view."""
    if not batch.plain or batch.entries_held is None or batch.rows is not None or batch.places is not None:
        return None
    shared = _Shared(batch)
    return [SameFields(shared, *group) for group in _groups(batch, batch.entries_held.columns)]


def _groups(batch: SampleBatch, columns: EntryColumns) -> Iterable[tuple[Fields, Sequence[int], Sequence[int]]]:
    """Return fields that samples have, each with the numbers of the samples, and of the first entry of each."""
    keys, count = batch.keys, batch.count
    begin = columns.ends[batch.first - 1] if batch.first else 0
    ends = columns.ends[batch.first : batch.first + count]
    names = columns.names[begin : ends[-1]]
    width, cut = ends[0] - begin, len(keys[0] or b"") + 1
    if width * count == len(names) and ends == list(range(begin + width, ends[-1] + 1, width)):
        fields = tuple(name[cut:] for name in names[:width])
        if all(
            list(map(add, keys, repeat(b"." + field))) == list(names[place::width])
            for place, field in enumerate(fields)
        ):
            return [(fields, range(count), range(begin, ends[-1], width))]
    places: dict[Fields, tuple[list[int], list[int]]] = {}
    for number, (key, (low, high)) in enumerate(zip(keys, pairwise((begin, *ends)), strict=True)):
        cut = len(key or b"") + 1
        fields = tuple([name[cut:] for name in columns.names[low:high]])
        numbers, firsts = places.setdefault(fields, ([], []))
        numbers.append(number)
        firsts.append(low)
    return [(fields, *some) for fields, some in places.items()]


Contents = tuple[tuple[str, ...], tuple[bytes, ...]]
"""The names of the fields of a sample, and their contents."""


def contents_held(batch: SampleBatch) -> list[Contents]:
    """Return the contents of each of plain samples whose bytes are in memory; nothing for others.

    Samples with the same fields have the same tuple of names.
    """
    source, held = batch.source, batch.entries_held
    if held is None or not isinstance(source, HeldRange):
        return []
    columns, result = held.columns, list[Contents]([((), ())] * batch.count)
    data, base = source.data, source.start
    for fields, numbers, entries in _groups(batch, columns):
        names, parts = tuple(map(field_names.__getitem__, fields)), list[list[bytes]]()
        for place in range(len(fields)):
            numbers_of = [entry + place for entry in entries]
            starts = [columns.data[entry] - base for entry in numbers_of]
            stops = map(add, starts, map(columns.sizes.__getitem__, numbers_of))
            parts.append([bytes(data[start:stop]) for start, stop in zip(starts, stops, strict=True)])
        for number, contents in zip(numbers, zip(*parts, strict=True), strict=True):
            result[number] = names, contents
    return result


def cells_of(batch: SampleBatch, name: Name) -> list[Any] | None:
    """Return the cell of each sample; None if one may be a problem, or without groups."""
    groups, cells = groups_of(batch) if name.columnar else None, list[Any](repeat(None, batch.count))
    try:
        for group in groups or ():
            for number, cell in zip(group.numbers, group.get(name, CELL).values, strict=True):
                cells[number] = cell
    except (*FAILURES, Problem):
        return None
    return None if groups is None else cells


def flags_of(batch: SampleBatch, condition: Condition) -> bytearray | None:
    """Return for each sample 1 if it is selected, else 0, or OPEN where it may be a problem; None without groups.

    An expression of keys alone needs no groups, since a batch has its keys before its entries are known.
    """
    of_keys = condition.names == {"__key__"}
    groups = [SameFields(_Shared(batch), (), range(batch.count), ())] if of_keys else groups_of(batch)
    if groups is None:
        return None
    result = bytearray((OPEN,)) * batch.count
    for group in groups:
        flags = condition.flags(group)
        if flags is None:
            continue
        if len(groups) == 1:
            return bytearray(flags)
        for number, flag in zip(group.numbers, flags, strict=True):
            result[number] = flag
    return result


def _texts(contents: Sequence[bytes]) -> Vector:
    """Return contents as `FieldLookup.text` does. Raises ValueError for what is no text."""
    texts = list(map(bytes.decode, contents))
    return Vector(TEXTS, [text.removesuffix("\n").removesuffix("\r") for text in texts])


def _values(field: bytes, contents: Sequence[bytes]) -> Vector:
    """Return the values of a field as `FieldLookup.parsed` does. Raises ValueError if one has none."""
    kind = field.rpartition(b".")[2].lower()
    if kind in JSON:
        return vector_like(_documents(contents))
    if kind in TEXT_FIELDS:
        return _texts(contents)
    digits = list(map(bytes.strip, contents))
    if all(map(bytes.isdigit, digits)) and max(map(len, digits), default=0) <= 300:
        return Vector(NUMBERS, list(map(int, digits)))
    return vector_like(list(map(number_or_text, _texts(contents).values)))


def _documents(contents: Sequence[bytes], exact: bool = False) -> list[Any]:
    """Return the values of JSON in UTF-8, with `exact` its numbers as written.

    Raises:
        ValueError: other content, or what may be no Unicode text.
    """
    decode: Callable[[str], Any] = json_decoder(exact).decode
    texts = list(map(bytes.decode, contents))
    if any(map(may_have_surrogates, texts)) or not all(text[:1] in "{[" and text[1:2] > "\0" for text in texts):
        raise ValueError
    return list(map(decode, texts))


def _members(values: Sequence[Any], step: Any) -> list[Any]:
    """Return of each value the member or element at a step. Raises KeyError if one has none."""
    if type(step) is str and set(map(type, values)) == {dict}:
        return list(map(itemgetter(step), values))
    return [step_into(value, step) for value in values]
