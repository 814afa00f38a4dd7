"""The fields of one sample: their entries, bytes and decoded values, and the problems that they have.

JSON is UTF-8, with or without a byte order mark, UTF-16 or UTF-32, as Python's `json` accepts it. Text in JSON with a
lone surrogate (only an escape can represent one) is not Unicode text and has no encoding: `bad-field`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from tarkit import errors
from tarkit.errors import Problem, show, spell
from tarkit.samples.names import form_words, near_field, other_form, spelled
from tarkit.samples.sample import ABSENT, KEYLESS, TarSample, key_of
from tarkit.sizes import plural
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw

SMALL = 1 << 20  # bytes of a field that is decoded
PIECE = 1 << 20  # bytes of a field that are read at once
NO_TEXT = "text with a lone surrogate, which is not Unicode text"


_EMPTY = (block.SYMLINK, block.CHAR, block.BLOCK_DEVICE, block.FIFO)
JSON = frozenset((b"json", b"jsn"))
TEXT_FIELDS = frozenset((b"txt", b"text", b"transcript", b"html", b"htm"))
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
        return self.sample.source.recent(start, stop)  # to read again took 7 to 10 % of `tsv`, `stats --by`

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
            self._decoded[form] = self.parsed(field, self.content(field, raw, SMALL), as_json)
        return self._decoded[form]

    def text(self, field: bytes, raw: Raw) -> str:
        """Return a field as text, without its last line end.

        Raises:
            Problem: `bad-field`, `sparse-entry`.
        """
        return self.as_text(field, self.content(field, raw, SMALL))

    def as_text(self, field: bytes, content: bytes) -> str:
        """Return content as text, without its last line end. Raises Problem, `bad-field`, for other content."""
        try:
            return content.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except ValueError:
            raise self.bad(field, "is not text") from None

    def parsed(self, field: bytes, content: bytes, as_json: bool = False) -> Any:
        """Return the value of content, as `decoded` does. Raises Problem: `bad-field`."""
        kind = field.rpartition(b".")[2].lower()
        if as_json or kind in JSON:
            return self._json(field, content)
        text = self.as_text(field, content)
        if kind in TEXT_FIELDS:
            return text
        return number_or_text(text)

    def _json(self, field: bytes, content: bytes) -> Any:
        import json  # not loaded where a field is found by its name

        try:
            text = content.decode(json.detect_encoding(content))
            value = json_decoder(self.exact).decode(text)
        except RecursionError:
            raise self.bad(field, "is JSON that is nested too deeply") from None
        except ValueError as error:
            raise self.bad(field, f"is not JSON: {error}") from None
        if may_have_surrogates(text):
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
        joined = getattr(self.sample, "joined", None)
        if joined is not None and joined is not getattr(self.sample, "left_out", None):
            table, columns = joined
            more = f"no row of {table}" if name in columns else f"{table} has columns {', '.join(map(show, columns))}"
            problem = Problem(problem.name, problem.archive, problem.offset, f"{problem.detail}; {more}")
        problem.hint = "__key__ is the key" if name == "key" else None
        return problem

    def bad(self, field: bytes, detail: str) -> Problem:
        """Return the problem of a field that is not of the required type."""
        detail = f"the field {show(field)} of {show(self.sample.key or b'')} {detail}"
        return Problem("bad-field", self.sample.source.name, self.sample.start, detail)


def missing_field(sample: TarSample, names: tuple[bytes, ...]) -> Problem:
    """Return the problem of a sample that has none of these fields."""
    key = sample.key or b""
    fields = [entry.name[len(key) + 1 :] for entry in sample.entries if key_of(entry)]
    message = f"{show(key)} has no field {' or '.join(map(show, names))}, it has {', '.join(map(show, fields))}"
    if columns := column_words(sample, map(os.fsdecode, names)):
        message += columns
    elif same := next((form for name in names if (form := other_form(fields, name)) is not None), None):
        message += f"; {show(same)} is that name {form_words(same)}"
    elif near := next(filter(None, (near_field(tuple(fields), name) for name in names)), None):
        message += f"; did you mean {show(near)}?"
    return Problem("missing-field", sample.source.name, sample.start, message)


def column_words(sample: TarSample, names: Iterable[str]) -> str:
    """Return what a message about missing fields says if a view, or a joined table, has a column of such a name."""
    from shlex import quote

    row = sample.row
    names = tuple(names)
    column = next((name for name in names if row is not None and row.value(name) not in (ABSENT, None)), None)
    if column is None:
        table, columns = getattr(sample, "left_out", ("", ()))
        column = next((name for name in names if name in columns), None)
        return "" if column is None else f"; {show(column)} is a column of {table}, which {spell('set')} leaves out"
    way = f"set({column!r})" if errors.command_line is None else f"tarkit cat --set {quote(column)}"
    return f"; {show(column)} is a column, which {way} makes a field"


def number_or_text(text: str) -> int | float | str:
    """Return a text without blanks around it, as a number if it is one."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if any(char in ".eE" for char in text) else int(text)


def may_have_surrogates(text: str) -> bool:
    """Return whether text in JSON may have a lone surrogate, which only an escape can represent."""
    return "\\ud" in text or "\\uD" in text


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


def _verbatim(number: str) -> Number:
    return Number(number.encode())


@cache
def json_decoder(exact: bool) -> Any:
    """Return the decoder of JSON; with `exact` its numbers are `Number`."""
    import json

    arguments: dict[str, Any] = (
        {"parse_int": _verbatim, "parse_float": _verbatim, "parse_constant": _verbatim} if exact else {}
    )
    return json.JSONDecoder(**arguments)
