"""Contents that Hugging Face datasets refuses or changes: `check --target hf`.

The library decodes texts, numbers and JSON when it reads a shard. The types of a JSON field are those of the first five
samples, where null goes with any type, an empty array with any array, and members of objects add up; another difference
is an error. Later values are converted to these types: some are errors, some become other values, and members that the
first five do not have are dropped. Members that a value lacks are null. (datasets 5.2.0 `packaged_modules/webdataset`,
run without streaming; with it, a value where the first five have null alone is kept.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tarkit.checking.fieldsets import listed
from tarkit.checking.findings import Finding
from tarkit.errors import show
from tarkit.streams.source import Source
from tarkit.tar.reader import Entry

FIRST = 5  # samples from which columns and types are inferred
SMALL = 1 << 20  # bytes of a field that is read

_TEXTS = frozenset((b"txt", b"text", b"transcript"))
_NUMBERS = frozenset((b"cls", b"cls2", b"index", b"inx", b"id"))
_JSON = frozenset((b"json", b"jsn"))
_UNREAD = frozenset(
    (
        *(b"ten tb mp msg npy npz cbor pth gz bz2 xz zst lz4".split()),
        *(b"jpg jpeg png webp gif bmp tif tiff ppm".split()),
    )
) | frozenset(b"mp3 wav flac ogg opus mp4 avi mpeg mov".split())


class _Array(NamedTuple):
    item: Type


class _Object(NamedTuple):
    members: dict[str, Type]


Type = type | _Array | _Object | None  # None: null


class Misfit(Exception):
    """A value that the library refuses or changes, with `reader-refuses` or `reader-misreads`, and the reason."""

    def __init__(self, message: str, name: str = "reader-refuses") -> None:
        super().__init__(message)
        self.name = name


class HfContents:
    """Checks the fields of one shard, entry by entry; `index` is the index of the shard."""

    def __init__(self, shard: str, index: int) -> None:
        self.shard = shard
        self._first = index == 0
        self._types: dict[bytes, Type] = {}
        self._seen = 0
        self._key: bytes | None = None
        self._unread: set[bytes] = set()
        self._untyped: set[bytes] = set()

    def entry(self, key: bytes, entry: Entry, source: Source) -> Iterator[Finding]:
        """Yield findings about the content of a regular file."""
        if key != self._key:
            self._key = key
            self._seen += 1
        field = entry.name[len(key) + 1 :]
        last = field.lower().rpartition(b".")[2]
        typed = last in _TEXTS or last in _NUMBERS or last in _JSON
        if last in _UNREAD or (typed and entry.size > SMALL):
            self._unread.add(field)
        elif typed:
            try:
                self._check(field, last, source.read(entry.data, entry.data + entry.size))
            except Misfit as misfit:
                detail = f"the field {show(field)} of {show(key)} {misfit}"
                yield Finding(misfit.name, self.shard, entry.start, key, detail, "error")

    def closed(self) -> Iterator[Finding]:
        """Yield notes on fields that were not checked."""
        if self._unread:
            detail = f"hf decodes {listed(self._unread)}: such contents are not checked"
            yield Finding("reader-unchecked", self.shard, None, None, detail, "note")
        if self._untyped:
            detail = f"hf converts {listed(self._untyped)} to the types in the first shard, which are not compared"
            yield Finding("reader-unchecked", self.shard, None, None, detail, "note")

    def _check(self, field: bytes, last: bytes, data: bytes) -> None:
        if last in _TEXTS:
            try:
                data.decode()
            except UnicodeDecodeError:
                raise Misfit("is not UTF-8: hf refuses it") from None
        elif last in _NUMBERS:
            try:
                number = int(data)
            except ValueError:
                raise Misfit("is not an integer: hf refuses it") from None
            _check_scalar(number)
        else:
            self._check_json(field, data)

    def _check_json(self, field: bytes, data: bytes) -> None:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise Misfit("is not JSON: hf refuses it") from None
        try:
            if not self._first:
                self._untyped.add(field)
                type_of(value)
            elif self._seen <= FIRST:
                self._types[field] = merged(self._types.get(field), type_of(value))
            elif field in self._types:
                check_fit(self._types[field], value)
        except RecursionError:
            raise Misfit("is JSON that is nested too deeply: hf refuses it") from None


def type_of(value: Any) -> Type:
    """Return the type of a JSON value. Raises Misfit for a type that the library lacks."""
    if isinstance(value, list):
        item: Type = None
        for element in value:
            item = merged(item, type_of(element), numbers=True)
        return _Array(item)
    if isinstance(value, dict):
        for name in value:
            _check_scalar(name)
        return _Object({name: type_of(member) for name, member in value.items()})
    _check_scalar(value)
    return None if value is None else type(value)


def _check_scalar(value: Any) -> None:
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise Misfit("has an integer of more than 64 bits: hf refuses it")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit("has text with a lone surrogate: hf refuses it") from None


def merged(left: Type, right: Type, numbers: bool = False) -> Type:
    """Return the type of values of two types; `numbers` takes whole numbers among others. Raises Misfit."""
    if left is None or right is None or left == right:
        return right if left is None else left
    if isinstance(left, _Array) and isinstance(right, _Array):
        return _Array(merged(left.item, right.item, numbers))
    if isinstance(left, _Object) and isinstance(right, _Object):
        names = {**left.members, **right.members}
        return _Object({name: merged(left.members.get(name), right.members.get(name), numbers) for name in names})
    if numbers and (left, right) in ((int, float), (float, int)):
        return float
    where = "one array" if numbers else f"the first {FIRST} samples"
    raise Misfit(f"has {_word(left)} and {_word(right)} in {where}: hf refuses it")


def check_fit(kind: Type, value: Any) -> None:
    """Raise Misfit for a value that is refused or changed where others are of this type."""
    if value is None:
        return
    if kind is None:
        raise Misfit(f"has {_word(_outer(value))} where the first {FIRST} samples have null: hf refuses it")
    if isinstance(kind, _Array) and isinstance(value, list):
        for element in value:
            check_fit(kind.item, element)
    elif isinstance(kind, _Object) and isinstance(value, dict):
        for name, element in value.items():
            if name not in kind.members and element is not None:
                message = f"has the member {show(name)}, which the first {FIRST} samples do not have: hf drops it"
                raise Misfit(message, "reader-misreads")
            check_fit(kind.members.get(name), element)
    elif isinstance(kind, (_Array, _Object)) or not _equal_as(kind, value):
        message = f"has {_word(_outer(value))} where the first {FIRST} samples have {_word(kind)}"
        raise Misfit(f"{message}: hf refuses or converts it", "reader-misreads")
    elif kind is not float:
        _check_scalar(value)


def _equal_as(kind: type, value: Any) -> bool:
    if isinstance(value, (list, dict)) or isinstance(value, str) != (kind is str):
        return False
    try:
        return bool(kind(value) == value) or value != value
    except (ValueError, OverflowError):
        return False


def _outer(value: Any) -> Type:
    return _Array(None) if isinstance(value, list) else _Object({}) if isinstance(value, dict) else type(value)


def _word(kind: Type) -> str:
    if isinstance(kind, (_Array, _Object)):
        return "an array" if isinstance(kind, _Array) else "an object"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return "null" if kind is None else words[kind]
