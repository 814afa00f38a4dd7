"""What one can sort a sample by: names, contents of fields, sizes, and what JSON has under a path."""

from __future__ import annotations

import json
from typing import Any

from tarkit.dataset import ordered
from tarkit.dataset.sample import Sample, key_of
from tarkit.errors import Problem, TarkitError, show
from tarkit.tar.walk import Entry

CONTENT_LIMIT = 1 << 20  # bytes of a field that one can sort by


class Number(bytes):
    """A number as it is written, so that none is too long and none is rounded."""


class Missing(Exception):
    """A sample lacks what it is to be sorted by, or that cannot be read: the problem that this is."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Values:
    """What can be sorted by in one sample."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self._entries: dict[bytes, Entry] = {}
        for entry in sample.entries:
            name = field_of(entry)
            if name is not None:
                self._entries.setdefault(name.lower(), entry)
        self._parsed: dict[bytes, Any] = {}

    def get(self, name: bytes) -> Any:
        """A value: bytes of a name, of content, or of a number; or what JSON has; raises Missing."""
        sample = self.sample
        if name == b"__key__":
            return sample.key
        if name == b"__name__":
            return next(entry.name for entry in sample.entries if key_of(entry) is not None)
        if name == b"__md5__":
            from hashlib import md5

            return md5(sample.key or b"", usedforsecurity=False).digest()
        entry = self._entries.get(name.lower())
        if entry is not None:
            return self._content(entry)
        if name == b"size":
            return Number(b"%d" % sum(entry.size for entry in sample.entries if key_of(entry) is not None))
        if name.startswith(b"size.") and (entry := self._entries.get(name[5:].lower())) is not None:
            return Number(b"%d" % entry.size)
        cut = len(name)
        while (cut := name.rfind(b".", 0, cut)) > 0:
            entry = self._entries.get(name[:cut].lower())
            if entry is not None:
                return self._inside(entry, name[cut + 1 :], name)
        raise self._missing(f"field {show(name)}")

    def _missing(self, what: str) -> Missing:
        sample = self.sample
        have = ", ".join(show(name) for name in map(field_of, sample.entries) if name is not None)
        text = f"{show(sample.key or b'')} has no {what} to sort by, it has {have}"
        hint = "--skip missing-field leaves such samples out, --allow missing-field puts them before the others"
        return Missing(Problem("missing-field", sample.source.name, sample.start, text, hint))

    def _content(self, entry: Entry) -> bytes:
        sample = self.sample
        if entry.sparse:
            what = f"{show(entry.name)} is a sparse file, and to sort by its content that would be needed"
            raise Missing(Problem("sparse-entry", sample.source.name, entry.start, what))
        if entry.size > CONTENT_LIMIT:
            what = f"{show(entry.name)} has {entry.size} bytes: too long to sort by"
            raise TarkitError(
                f"{sample.source.name}: at {entry.start}: {what}",
                f"the content of a field can have {CONTENT_LIMIT} bytes; to sort by how long it is, use size.FIELD",
            )
        return sample.source.read(entry.data, entry.data + entry.size)

    def _inside(self, entry: Entry, path: bytes, name: bytes) -> Any:
        """What a path leads to in the JSON of an entry; the numbers of a path count in arrays."""
        if entry.name not in self._parsed:
            try:
                self._parsed[entry.name] = json.loads(
                    self._content(entry), parse_int=_verbatim, parse_float=_verbatim, parse_constant=_verbatim
                )
            except (ValueError, RecursionError):
                what = f"{show(entry.name)} is no JSON, so there is no {show(name)} in it"
                raise TarkitError(f"{self.sample.source.name}: at {entry.start}: {what}") from None
        value = self._parsed[entry.name]
        for step in path.decode("utf-8", "surrogateescape").split("."):
            if isinstance(value, dict) and step in value:
                value = value[step]
            elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step[:9]) < len(value):
                value = value[int(step[:9])]
            else:
                raise self._missing(f"{show(name)} in its JSON")
        return value


def _verbatim(number: str) -> Number:
    return Number(number.encode())


def field_of(entry: Entry) -> bytes | None:
    """The field that an entry is; None when it has no key."""
    key = key_of(entry)
    return None if key is None else entry.name[len(key) + 1 :]


def code_of_json(value: Any) -> bytes:
    """The code of a value of JSON, with its kind in front."""
    if value is None:
        return ordered.MISSING
    if isinstance(value, bool):
        return ordered.TRUE if value else ordered.FALSE
    if isinstance(value, str):
        return ordered.text(as_text(value))
    return ordered.text(as_text(value), ordered.LIST if isinstance(value, list) else ordered.OBJECT)


def as_text(value: Any) -> bytes:
    """A value of JSON as text: strings as they are, the rest as the shortest JSON with the names in order."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=bytes.decode)
    raw: bytes = value.encode("utf-8", "surrogatepass")
    return raw
