"""The values of a sample by name: fields, paths into JSON, sizes, offsets. The same in all commands.

A name is resolved in this order: `__key__`; the field of this name; one of the words below; a path into JSON
(`json.a.b`, `json.items.0` or `json.items[0]`, `json['a b']`), whose longest prefix that is a field names the field
with the document. A number counts elements of an array, with brackets also from its end: `json.items[-1]`.
Names of fields match by `names.spelled`.

    __key__   size   shard   offset          key, bytes of all fields, archive, offset of the sample in it
    size.F    offset.F   header.F            bytes of content of the field F, its offset, the offset of its headers
    width.F   height.F                       pixels of a picture, by its header
    sha256.F  phash.F                        hashes of the content; `properties` has all words before a field

The size of a sample excludes its entries without a key. JSON is UTF-8, with or without a byte order mark, UTF-16 or
UTF-32, as Python's `json` accepts it. Text in JSON with a lone surrogate (only an escape can represent one) is not
Unicode text and has no encoding: `bad-field`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

from tarkit.errors import Problem, show
from tarkit.samples.fields import missing_field
from tarkit.samples.names import near_field, spelled
from tarkit.samples.properties import PROPERTIES
from tarkit.samples.sample import ABSENT, KEYLESS, TarSample, ViewRow
from tarkit.sizes import plural
from tarkit.streams.source import WindowSource
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw

SMALL = 1 << 20  # bytes of a field that is decoded
PIECE = 1 << 20  # bytes of a field that are read at once
MISFITS = frozenset(("missing-field", "bad-field", "sparse-entry"))  # problems of a sample without the requested value
NO_TEXT = "text with a lone surrogate, which is not Unicode text"

_EMPTY = (block.SYMLINK, block.CHAR, block.BLOCK_DEVICE, block.FIFO)
_JSON = frozenset((b"json", b"jsn"))
_TEXT = frozenset((b"txt", b"text", b"transcript", b"html", b"htm"))
_NUMBER = re.compile(r"[+-]?([0-9]{1,300}|([0-9]{1,300}\.[0-9]{0,300}|\.?[0-9]{1,300})([eE][+-]?[0-9]{1,3})?)")


class Number(bytes):
    """A number as written in JSON: of any length, not rounded."""


class FieldLookup:
    """The fields of one sample, each read on first use. Valid as long as the sample is.

    With `exact` the numbers of JSON are `Number`. Use it in the thread that reads the samples.
    """

    __slots__ = ("_decoded", "_escapes", "exact", "fields", "row", "sample", "size")

    def __init__(self, sample: TarSample, complete: bool = True, exact: bool = False) -> None:
        """Read the fields of `sample`; without `complete` fields may be missing, which is enough for the key."""
        if complete and sample.more is not None:
            sample.complete()
        self.sample = sample
        self.row = sample.row
        self.exact = exact
        self._decoded: dict[tuple[bytes, bool], Any] | None = None
        self._escapes: frozenset[bytes] = frozenset()  # fields whose JSON may have a lone surrogate
        if self.row is None:
            self._list_fields()

    def __getattr__(self, name: str) -> Any:
        """Return the fields or their size, which are read when they are asked for if a row of a view has values."""
        if name not in ("fields", "size"):
            raise AttributeError(name)
        self._list_fields()
        return getattr(self, name)

    def _list_fields(self) -> None:
        sample = self.sample
        fields: dict[bytes, Raw] = {}  # by name as in the archive; of two equal names, the first
        self.fields = fields
        prefix = (sample.key or b"") + b"."
        length, size = len(prefix), 0
        for raw in sample.raw:  # numbers in place of names: 3 % of `cat --where`
            name = raw[0]
            if name.startswith(prefix) and name.find(b"/", length) < 0 and raw[5] not in KEYLESS:
                fields.setdefault(name[length:], raw)
                size += raw[3] if raw[7] < 0 else raw[7]
        self.size = size  # bytes of all fields

    def find(self, field: bytes) -> Raw | None:
        """Return the entry of the field that this name means, None if there is none."""
        raw = self.fields.get(field)
        if raw is None and (name := spelled(self.fields, field)) is not None:
            raw = self.fields[name]
        return raw

    def content(self, field: bytes, raw: Raw, limit: int) -> bytes:
        """Return the bytes of a field.

        Raises:
            Problem: `bad-field` for more than `limit` bytes, or an entry without content; `sparse-entry`.
        """
        _, _, start, size, _, kind, _, real = raw
        if kind != block.REGULAR or real >= 0:
            located = self.located(field, raw)
            start, size = located.data, located.size
        if size > limit:
            raise self.bad(field, f"has {plural(size, 'byte')}, the limit is {limit}")
        return self._bytes(start, start + size)

    def pieces(self, field: bytes, raw: Raw) -> Iterator[bytes]:
        """Yield the content of a field in pieces of at most 1 MiB. Raises Problem as `located` does."""
        located = self.located(field, raw)
        for start in range(located.data, located.data + located.size, PIECE):
            yield self._bytes(start, min(start + PIECE, located.data + located.size))

    def reader(self, field: bytes, raw: Raw) -> tuple[Callable[[int, int], bytes], int]:
        """Return a function of a position and a number that returns so many bytes of a field at most, and its size.

        Raises:
            Problem: as `located` does.
        """
        located, source = self.located(field, raw), self.sample.source
        data, size = located.data, located.size

        def read(pos: int, count: int) -> bytes:
            stop = min(pos + count, size)
            return source.read(data + pos, data + stop) if pos < stop else b""

        return read, size

    def _bytes(self, start: int, stop: int) -> bytes:
        source = self.sample.source
        if isinstance(source, WindowSource):  # bytes in memory are not read again: 7 to 10 % of `tsv`, `stats --by`
            return source.recent(start, stop)
        return source.read(start, stop)

    def located(self, field: bytes, raw: Raw) -> Entry:
        """Return the entry that has the content of a field; for a hard link, its target.

        Raises:
            Problem: `bad-field` for an entry without content, `sparse-entry`.
        """
        entry = Entry._make(raw)
        if entry.type == block.HARD_LINK:
            target = next((other for other in self.sample.entries if other.name == entry.link), entry)
            if target.type == block.HARD_LINK:
                raise self.bad(field, f"is a hard link to {show(entry.link)}, which is not a file of the sample")
            entry = target
        if entry.sparse:
            message = f"{show(entry.name)} is a sparse file, whose content cannot be read"
            raise Problem("sparse-entry", self.sample.source.name, entry.start, message)
        if entry.type in _EMPTY:
            raise self.bad(field, "is not a regular file")
        return entry

    def decoded(self, field: bytes, raw: Raw, as_json: bool = False) -> Any:
        """Return the value of a field: of JSON, text, or a number if the whole text is one.

        Raises:
            Problem: `bad-field`, `sparse-entry`.
        """
        if self._decoded is None:
            self._decoded = {}
        form = (field, as_json)
        if form not in self._decoded:
            self._decoded[form] = self._decode(field, raw, as_json)
        return self._decoded[form]

    def text(self, field: bytes, raw: Raw) -> str:
        """Return a field as text, without its last line end.

        Raises:
            Problem: `bad-field`, `sparse-entry`.
        """
        try:
            return self.content(field, raw, SMALL).decode("utf-8").removesuffix("\n").removesuffix("\r")
        except ValueError:
            raise self.bad(field, "is not text") from None

    def _decode(self, field: bytes, raw: Raw, as_json: bool) -> Any:
        kind = field.rpartition(b".")[2].lower()
        if as_json or kind in _JSON:
            return self._json(field, raw)
        text = self.text(field, raw)
        if kind in _TEXT:
            return text
        text = text.strip()
        if not _NUMBER.fullmatch(text):
            return text
        return float(text) if any(char in ".eE" for char in text) else int(text)

    def _json(self, field: bytes, raw: Raw) -> Any:
        import json  # not loaded where a field is found by its name

        content = self.content(field, raw, SMALL)
        try:
            text = content.decode(json.detect_encoding(content))
            value = _json_decoder(self.exact).decode(text)
        except RecursionError:
            raise self.bad(field, "is JSON that is nested too deeply") from None
        except ValueError as error:
            raise self.bad(field, f"is not JSON: {error}") from None
        if "\\ud" in text or "\\uD" in text:
            self._escapes |= {field}
        return value

    def check_text(self, field: bytes, value: Any) -> None:
        """Check the text in a value of the JSON of `field`.

        Raises:
            Problem: `bad-field` for text that is not valid Unicode.
        """
        if field in self._escapes and not is_unicode(value):
            raise self.bad(field, f"has {NO_TEXT}")

    def missing(self, name: str) -> Problem:
        """Return the problem of a sample without a value of this name."""
        problem = missing_field(self.sample, (os.fsencode(name),))
        problem.hint = "__key__ is the key" if name == "key" else None
        return problem

    def bad(self, field: bytes, detail: str) -> Problem:
        """Return the problem of a field that is not of the required type."""
        detail = f"the field {show(field)} of {show(self.sample.key or b'')} {detail}"
        return Problem("bad-field", self.sample.source.name, self.sample.start, detail)


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
        steps = [] if exact else parse_path(text)
        self._paths = [
            (os.fsencode(text[: steps[cut][0]]), [step for _, step in steps[cut:]])
            for cut in reversed(range(len(steps)))
        ]
        self.may_be_field = not self.is_key and self._word is None
        # whether it is never a path into JSON, or a property
        self.is_field = self.may_be_field and not self._paths

    def value(self, lookup: FieldLookup) -> Any:
        """Return the decoded value.

        Raises:
            Problem: `missing-field`, `bad-field`, `sparse-entry`.
        """
        if lookup.row is not None and (column := self._in_row(lookup.row)) is not None:
            return column
        raw = lookup.find(self.field)
        return self._checked(lookup) if raw is None else lookup.decoded(self.field, raw)

    def words(self, lookup: FieldLookup) -> Any:
        """Return the value, of a field its text, even if that is a number. Raises Problem as `value` does."""
        if lookup.row is not None and (column := self._in_row(lookup.row)) is not None:
            return column
        raw = lookup.find(self.field)
        return self._checked(lookup) if raw is None else lookup.text(self.field, raw)

    def cell(self, lookup: FieldLookup, limit: int) -> Any:
        """Return the value, of a field, a key and an archive's name the bytes, at most `limit`.

        Raises:
            Problem: as `value` does; `bad-field` for a field of more than `limit` bytes.
        """
        if self.is_key:
            return lookup.sample.key
        if lookup.row is not None and (column := self._in_row(lookup.row)) is not None:
            return os.fsencode(column) if isinstance(column, str) else column
        raw = lookup.find(self.field)
        if raw is not None:
            return lookup.content(self.field, raw, limit)
        value = self._checked(lookup)
        return os.fsencode(value) if self.is_name else value

    def present(self, lookup: FieldLookup) -> bool:
        """Return whether the sample has a value of this name."""
        if lookup.row is not None and self._in_row(lookup.row) is not None:
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

    def _in_row(self, row: ViewRow) -> Any:
        """Return the value that a row of a view has; None if the archive has to be asked."""
        if self.is_key:
            return None
        value = row.value(self.text)
        if value is not ABSENT:
            return value
        for field, path in self._paths:
            value = row.value(os.fsdecode(field))
            if value is not ABSENT and value is not None:
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
        for field, path in self._paths:
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


def is_unicode(value: Any) -> bool:
    """Return whether all text in a value of JSON can be encoded as UTF-8."""
    import json

    try:
        (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)).encode()
    except UnicodeEncodeError:
        return False
    except RecursionError:  # reported when it is written
        pass
    return True


_WORDS: dict[str, Callable[[FieldLookup], Any]] = {
    "__key__": lambda lookup: os.fsdecode(lookup.sample.key or b""),
    "size": lambda lookup: lookup.size,
    "shard": lambda lookup: lookup.sample.source.name,
    "offset": lambda lookup: lookup.sample.start,
}


def _verbatim(number: str) -> Number:
    return Number(number.encode())


@cache
def _json_decoder(exact: bool) -> Any:
    import json

    arguments: dict[str, Any] = (
        {"parse_int": _verbatim, "parse_float": _verbatim, "parse_constant": _verbatim} if exact else {}
    )
    return json.JSONDecoder(**arguments)


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
