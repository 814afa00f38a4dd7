"""Maps of other programs as samples: which fields their values are, and what is the key.

A map has values under names: bytes, text, numbers, lists. With assignments (`--set`) these say which are fields. Else a
map with `__key__` is a sample as it is. In any other each value is the field of its name, with `.` in place of `/`, but
for pictures and sounds under a name that is no format: if one value of the first map is such it is the field of its
format, such as `jpg`, and if several are, `image.jpg` and `mask.png`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tarkit.errors import show, spell
from tarkit.media.coding import Coder
from tarkit.media.kinds import HEAD, kind_of
from tarkit.tables.assignments import Assignment, columns_of, parse_assignments
from tarkit.tables.columnar import ContentCell, FieldColumn, field_of, is_format
from tarkit.tables.reader import RUNNING_KEY, KeyTemplate
from tarkit.tables.recipe import MalformedRow
from tarkit.tables.rows import NumberList, content_of

KEY = "__key__"
_CODER = Coder()


def keys_hint() -> str:
    """Return the hint for rows whose keys are equal."""
    return f"{spell('key', 'COLUMN')} names another column, {spell('key', '{index:09d}')} numbers rows"


class NoContent(NamedTuple):
    """A value that is no content, and why: an error if a field or a key needs it."""

    reason: str


class MapFields:
    """The samples that maps are.

    Args:
        words: the fields, in the words of `--set`; empty for all values.
        key: the template of keys, or a name; None for `__key__`, where it is missing for `numbered`.
        numbered: the template of keys of maps without that name.
    """

    def __init__(self, words: str = "", key: str | None = None, numbered: str = RUNNING_KEY) -> None:
        self._assignments = parse_assignments(words)
        self._key = None if key is None else KeyTemplate(key)
        self._own, self._numbered = KeyTemplate(f"{{{KEY}}}"), KeyTemplate(numbered)
        self._media: dict[str, FieldColumn] | None = None  # of the first map: names of pictures and sounds
        self._unseen = {*columns_of(self._assignments)}
        self._names: list[str] = []  # those of the first map

    def sample(self, item: Mapping[str, Any], index: int) -> dict[str, bytes]:
        """Return the key and the contents of the fields of a map with this index.

        Raises:
            MalformedRow: a value has no content for its field, or the map has no key, or no field.
        """
        values = {name: value for name, value in item.items() if value is not None}
        self._names = self._names or list(item)
        self._unseen.difference_update(values)
        key = self._key_of(values, index)
        if self._assignments:
            fields = {}
            for one in self._assignments:
                if (content := _assigned(one, values)) is not None:
                    fields[one.field] = content
        else:
            fields = self._usual(values, key)
        if not fields and self._unseen:
            self.check()
        if not fields:
            raise MalformedRow("it has no value that is a field", hint=f"it has {', '.join(item) or 'no value at all'}")
        return {KEY: key, **fields}

    def check(self) -> None:
        """Raise MalformedRow if no map had a value that is assigned to a field."""
        if self._unseen and self._names:
            raise MalformedRow(f"there is no column {show(min(self._unseen))}", hint=f"it has {', '.join(self._names)}")

    def _key_of(self, values: Mapping[str, Any], index: int) -> bytes:
        template = self._key or (self._own if KEY in values else self._numbered)
        names = tuple(name for name in template.columns if name in values)
        return template.checked(index, names, [_content(values[name], "txt") for name in names])

    def _usual(self, values: Mapping[str, Any], key: bytes) -> dict[str, bytes]:
        """Return the fields without assignments."""
        own = KEY in values
        media = {} if own else self._media_of(values)
        fields: dict[str, bytes] = {}
        for name, value in values.items():
            if name == KEY:
                continue
            column, field = media.get(name), name.replace("/", ".")
            if column is not None and isinstance(value, bytes):
                field = field_of(column, key + b".", ContentCell(value), {})
            if field in fields:
                raise MalformedRow(f"two values are the field {show(field)}", hint=f"{spell('set')} chooses values")
            fields[field] = _content(value, field)
        return fields

    def _media_of(self, values: Mapping[str, Any]) -> dict[str, FieldColumn]:
        if self._media is None:
            names = [name for name, value in values.items() if not is_format(name) and _is_medium(value)]
            dotted = [name.replace("/", ".") for name in names]
            columns = [FieldColumn(each, "", f"{each}." if len(names) > 1 else "") for each in dotted]
            self._media = dict(zip(names, columns, strict=True))
        return self._media


def _is_medium(value: object) -> bool:
    return isinstance(value, bytes) and is_format(kind_of(value[:HEAD], b"", len(value)))


def _assigned(one: Assignment, values: Mapping[str, Any]) -> bytes | None:
    """Return the content that a field is set to; None for none."""
    if not one.members:
        value = values.get(one.column)
        return None if value is None else _content(value, one.field)
    document: dict[str, Any] = {}
    for member in one.members:
        value = values.get(member.column)
        if value is not None:
            inner = document
            for name in member.path[:-1]:
                inner = inner.setdefault(name, {})
            inner[member.path[-1]] = _text(value, member.column) if isinstance(value, bytes) else value
    return _content(document, one.field) if document else None


def _text(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except ValueError:
        raise MalformedRow(f"the value {show(name)} is not UTF-8, which a member of JSON is") from None


def _content(value: Any, field: str) -> bytes:
    """Return the content of a field, bytes as they are. JSON has no NaN: a list or an object with one is an error."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, NoContent):
        raise MalformedRow(value.reason, hint=f"{spell('set', 'FIELD:COLUMN')} chooses other columns")
    kind = _CODER.kind(field)
    is_array = kind is not None and kind.name in ("array", "tenbin")
    if is_array and isinstance(value, (int, float)):
        value = NumberList([value], "int64" if isinstance(value, int) else "float32")
    if isinstance(value, (list, dict)) and not is_array:
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            hint = f"{spell('set', 'npy:COLUMN')} makes an array of numbers"
            raise MalformedRow(f"the field {show(field)} has NaN or Infinity, which JSON has not", hint=hint) from None
    return content_of(value, field)
