"""The values of a sample by name: fields, paths into JSON, sizes, offsets. The same in all commands.

A name is resolved in this order: `__key__`; the field of this name; one of the words below; a path into JSON
(`json.a.b`, `json.items.0` or `json.items[0]`, `json['a b']`), whose longest prefix that is a field names the field
with the document. A number counts elements of an array, with brackets also from its end: `json.items[-1]`.
Names of fields match by `names.spelled`.

    __key__   size   shard   offset          key, bytes of all fields, archive, offset of the sample in it
    size.F    offset.F   header.F            bytes of content of the field F, its offset, the offset of its headers
    width.F   height.F                       pixels of a picture, by its header
    sha256.F  phash.F                        hashes of the content; `properties` has all words before a field
    duration.F  lines.F  ok.F                seconds of a sound, lines of a text, whether the content is whole

The size of a sample excludes its entries without a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from tarkit.errors import Problem, show
from tarkit.samples.lookup import JSON, FieldLookup, is_unicode
from tarkit.samples.names import near_field, spelled
from tarkit.samples.properties import PROPERTIES
from tarkit.samples.sample import ABSENT
from tarkit.tar.reader import Raw

MISFITS = frozenset(("missing-field", "bad-field", "sparse-entry"))  # problems of a sample without the requested value


COLUMNAR = frozenset(("__key__", "size", "shard", "offset", "header"))
"""Words whose values are in headers."""


class Name:
    """A name that is resolved in one sample after another."""

    def __init__(self, text: str, exact: bool = False) -> None:
        """Parse a name; with `exact` it is always a field."""
        self.text = text
        self.field = os.fsencode(text)
        self.is_key = text == "__key__" and not exact
        if self.is_key:
            self.field = b"/"  # no field has a slash in its name
        self.needs_entries = not self.is_key  # whether more than the key of a sample is needed
        head, _, rest = text.partition(".")
        self.is_name = text in ("__key__", "shard")
        self._word = None if exact else (_WORDS.get(text) or _of_field(head, rest))
        # a word, and the field of which it is a property
        self.word = (text, b"") if text in _WORDS else (head, os.fsencode(rest))
        # whether `columns` has its values
        self.columnar = self._word is None or self.word[0] in COLUMNAR or PROPERTIES[head].of_contents is not None
        steps = [] if exact else parse_path(text)
        self.paths = [
            (os.fsencode(text[: steps[cut][0]]), [step for _, step in steps[cut:]])
            for cut in reversed(range(len(steps)))
        ]
        self.has_word = self._word is not None
        self.may_be_field = not self.is_key and self._word is None
        # whether it is never a path into JSON, or a property
        self.is_field = self.may_be_field and not self.paths

    def value(self, lookup: FieldLookup) -> Any:
        """Return the decoded value.

        Raises:
            Problem: `missing-field`, `bad-field`, `sparse-entry`.
        """
        if self.is_key:
            return os.fsdecode(lookup.sample.key or b"")
        if lookup.row is not None and (column := self._in_row(lookup)) is not None:
            return lookup.parsed(self.field, column) if isinstance(column, bytes) else column
        raw = lookup.find(self.field)
        return self._checked(lookup) if raw is None else lookup.decoded(self.field, raw)

    def words(self, lookup: FieldLookup) -> Any:
        """Return the value, of a field its text, even if that is a number. Raises Problem as `value` does."""
        if self.is_key:
            return os.fsdecode(lookup.sample.key or b"")
        if lookup.row is not None and (column := self._in_row(lookup)) is not None:
            return lookup.as_text(self.field, column) if isinstance(column, bytes) else column
        raw = lookup.find(self.field)
        return self._checked(lookup) if raw is None else lookup.text(self.field, raw)

    def cell(self, lookup: FieldLookup, limit: int) -> Any:
        """Return the value, of a field, a key and an archive's name the bytes, at most `limit`.

        Raises:
            Problem: as `value` does; `bad-field` for a field of more than `limit` bytes.
        """
        if self.is_key:
            return lookup.sample.key
        if lookup.row is not None and (column := self._in_row(lookup)) is not None:
            return os.fsencode(column) if isinstance(column, str) else column
        raw = lookup.find(self.field)
        if raw is not None:
            return lookup.content(self.field, raw, limit)
        value = self._checked(lookup)
        return os.fsencode(value) if self.is_name else value

    def present(self, lookup: FieldLookup) -> bool:
        """Return whether the sample has a value of this name."""
        if self.is_key or self._in_row(lookup) is not None:
            return True
        if lookup.find(self.field) is not None:
            return True
        try:
            self._other(lookup)
        except Problem as problem:
            if problem.name == "missing-field":
                return False
            raise
        return True

    def is_in(self, fields: Collection[bytes]) -> bool:
        """Return whether these fields may have a value of this name, such as a JSON that a path leads into."""
        names = [self.field, *(field for field, _ in self.paths), *([self.word[1]] if self.has_word else [])]
        return self.is_key or any(not name or spelled(fields, name) is not None for name in names)

    def _in_row(self, lookup: FieldLookup) -> Any:
        """Return the value that a row has, as bytes if it is the content of a field; None: the archive is asked."""
        row = lookup.row
        if self.is_key or row is None:
            return None
        value = row.value(self.text)
        if value is not ABSENT:
            return value
        for field, path in self.paths:
            value = row.value(os.fsdecode(field))
            if value is not ABSENT and value is not None:
                if isinstance(value, str) and field.rpartition(b".")[2].lower() in JSON:  # as tsv writes the field
                    value = value.encode("utf-8", "surrogateescape")
                value = lookup.parsed(field, value, as_json=True) if isinstance(value, bytes) else value
                with suppress(KeyError):
                    for step in path:
                        value = step_into(value, step)
                    return value
        return None

    def _checked(self, lookup: FieldLookup) -> Any:
        value, field = self._other(lookup)
        if field is not None:
            lookup.check_text(field, value)
        return value

    def _other(self, lookup: FieldLookup) -> tuple[Any, bytes | None]:
        """Return the value of a word or of a path into JSON, and the field with that JSON."""
        if self._word is not None:
            return self._word(lookup), None
        for field, path in self.paths:
            raw = lookup.find(field)
            if raw is not None:
                return _follow(lookup, field, self._document(lookup, field, raw), path), field
        raise lookup.missing(self.text)

    def _document(self, lookup: FieldLookup, field: bytes, raw: Raw) -> Any:
        try:
            return lookup.decoded(field, raw, as_json=True)
        except Problem as problem:
            name, _, word = self.text.rpartition(".")
            if word in PROPERTIES:
                problem.hint = f"{word}.{name} is the {PROPERTIES[word].meaning}"
            raise


PathStep = str | int  # of a path into JSON: a name or digits after a dot, or text in brackets

_INDEX = re.compile(r"""\[(?:(-?[0-9]{1,18})|'([^']*)'|"([^"]*)")\](?=[.\[]|$)""")


def parse_path(text: str) -> list[tuple[int, PathStep]]:
    """Return the steps of `json.a[0].b` after its first word, each with its position.

    >>> parse_path("json.a[0]['b.c']")
    [(4, 'a'), (6, 0), (9, 'b.c')]
    """
    steps: list[tuple[int, PathStep]] = []
    start, at = -1, 0  # of the current word, at the dot before it; -1 for the first one
    while at < len(text):
        index = _INDEX.match(text, at)
        if text[at] != "." and index is None:
            at += 1
            continue
        if start >= 0:
            steps.append((start, text[start + 1 : at]))
        start = at
        if index is not None:
            number, *words = index.groups()
            steps.append((at, int(number) if number else next(word for word in words if word is not None)))
            start = -1
        at = at + 1 if index is None else index.end()
    if start >= 0:
        steps.append((start, text[start + 1 :]))
    return steps


def step_into(value: Any, step: PathStep) -> Any:
    """Return the member of a JSON object, or the element of an array. Raises KeyError if there is none."""
    if isinstance(value, dict):
        return value[str(step)]
    if isinstance(step, str) and step.isascii() and step.isdigit() and len(step) < 20:
        step = int(step)
    if isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
        return value[step]
    raise KeyError(step)


def _follow(lookup: FieldLookup, field: bytes, value: Any, path: list[PathStep]) -> Any:
    for place, step in enumerate(path):
        try:
            value = step_into(value, step)
        except KeyError:
            above, sample = "".join(f"{word}." for word in path[:place]), lookup.sample
            message = f"{show(sample.key or b'')} has no {show(f'{above}{step}')} in its field {show(field)}"
            names = tuple(os.fsencode(name) for name in value if is_unicode(name)) if isinstance(value, dict) else ()
            if is_unicode(step) and (near := near_field(names, os.fsencode(str(step)))):
                message += f"; did you mean {show(f'{above}{os.fsdecode(near)}')}?"
            raise Problem("missing-field", sample.source.name, sample.start, message) from None
    return value


_WORDS: dict[str, Callable[[FieldLookup], Any]] = {
    "__key__": lambda lookup: os.fsdecode(lookup.sample.key or b""),
    "size": lambda lookup: lookup.size,
    "shard": lambda lookup: lookup.sample.source.name,
    "offset": lambda lookup: lookup.sample.start,
}


def _of_field(word: str, field: str) -> Callable[[FieldLookup], Any] | None:
    """Return the function for the property `word` of the field; None for an unknown word."""
    name, known = os.fsencode(field), PROPERTIES.get(word)
    if known is None or not field:
        return None
    function = known.value

    def look(lookup: FieldLookup) -> Any:
        raw = lookup.find(name)
        if raw is None:
            raise lookup.missing(field)
        return function(lookup, name, raw)

    return look
