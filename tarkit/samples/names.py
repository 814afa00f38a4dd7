"""The names of fields as users write them: case does not matter, and the name as it is written comes first.

This is the one rule for all names of fields: a name means the field that is spelled so, else the first field of the
sample whose name differs only in the case of ASCII letters. `-f` and `select` write a field under the name that they
were given; all other names that are written to an archive keep their case.

`sample.split_name` divides the name of an entry into key and field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, AnyStr, Self

_NOT_GIVEN = object()


def spelled(names: Collection[AnyStr], name: AnyStr) -> AnyStr | None:
    """Return which of `names` a name means: that name itself, else the first that differs only in case, else None.

    >>> spelled(["JPG", "jpg"], "jpg"), spelled(["JPG", "Jpg"], "jpg"), spelled(["JPG"], "png")
    ('jpg', 'JPG', None)
    """
    if name in names:
        return name
    for other in names:
        if len(other) == len(name) and fold(other) == fold(name):
            return other
    return None


def fold(name: AnyStr) -> AnyStr:
    """Return a name with its ASCII letters in lower case."""
    if isinstance(name, bytes) or name.isascii():
        return name.lower()
    return name.encode("utf-8", "surrogateescape").lower().decode("utf-8", "surrogateescape")


def other_form(names: Iterable[bytes], name: bytes) -> bytes | None:
    """Return the first of `names` that is `name` in another Unicode normal form, such as NFD, which macOS writes."""
    if name.isascii():
        return None
    form = composed(name)
    return next((other for other in names if other != name and not other.isascii() and composed(other) == form), None)


def composed(name: bytes) -> str:
    """Return a name in the Unicode normal form NFC."""
    from unicodedata import normalize

    return normalize("NFC", name.decode("utf-8", "surrogateescape"))


def form_words(name: bytes) -> str:
    """Return words about a name that differs from a requested one in its Unicode normal form alone."""
    from unicodedata import is_normalized

    form = "NFC, composed" if is_normalized("NFC", name.decode("utf-8", "surrogateescape")) else "NFD, decomposed"
    return f"in another Unicode form ({form}), of which the bytes differ"


@lru_cache(64)  # samples that are left out have a message too
def near_field(names: tuple[bytes, ...], name: bytes) -> bytes | None:
    """Return the field that is spelled most like `name`, if one is; where only digits differ they are two fields."""
    return _spelled_like(names, name)


class NearKeys:
    """Keys of samples: which one is meant by another key, of which there is no sample?"""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = sorted(keys, reverse=True)
        self._bases = {_base(key): key for key in self._keys}
        self._plain = {_plain(key): key for key in self._keys}

    def find(self, key: bytes) -> bytes | None:
        """Return the first key that differs only in its directory, in case, or in zeros before a number."""
        return self._bases.get(_base(key)) or self._plain.get(_plain(key))

    def spelled_like(self, key: bytes) -> bytes | None:
        """Return the key that is spelled most like `key`, if one is; where only digits differ they are two samples."""
        return _spelled_like(self._keys, key)


def _base(key: bytes) -> bytes:
    return key.rpartition(b"/")[2]


def _plain(key: bytes) -> bytes:
    return re.sub(rb"(?<![0-9])0+(?=[0-9])", b"", fold(_base(key)))


def _spelled_like(names: Iterable[bytes], name: bytes) -> bytes | None:
    from difflib import get_close_matches

    letters = name.translate(None, b"0123456789")
    others = [other.decode("latin-1") for other in names if other.translate(None, b"0123456789") != letters]
    return next((near.encode("latin-1") for near in get_close_matches(name.decode("latin-1"), others, 1, 0.75)), None)


class FieldDict(dict[str, Any]):
    """A sample as a dict of its fields: a name is looked up, replaced and removed by `spelled`.

    Iterating gives the names as the archive has them; a copy by `dict(...)` or `{**...}` knows only these. The key is
    the item `__key__`, and the attribute `key`.
    """

    __slots__ = ()

    @property
    def key(self) -> str:
        """The key. Raises AttributeError if the item `__key__` was removed."""
        try:
            return str(self["__key__"])
        except KeyError:
            raise AttributeError("key") from None

    def __missing__(self, name: str) -> Any:
        spelling = spelled(self.keys(), name) if isinstance(name, str) else None
        if spelling is None:
            raise KeyError(name)
        return dict.__getitem__(self, spelling)

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, self._spelled(name))

    def __setitem__(self, name: str, value: Any) -> None:
        dict.__setitem__(self, self._spelled(name), value)

    def __delitem__(self, name: str) -> None:
        dict.__delitem__(self, self._spelled(name))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the items: names that differ only in case are different ones."""
        return FieldDict, (dict(self),)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or the default."""
        return dict.get(self, self._spelled(name), default)

    def pop(self, name: str, default: Any = _NOT_GIVEN) -> Any:
        """Remove a field and return its value, or the default."""
        name = self._spelled(name)
        return dict.pop(self, name) if default is _NOT_GIVEN else dict.pop(self, name, default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, which is set to the default if there is none."""
        return dict.setdefault(self, self._spelled(name), default)

    def update(  # type: ignore[override]
        self, other: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any
    ) -> None:
        """Set fields."""
        for name, value in {**dict(other), **more}.items():
            self[name] = value

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def copy(self) -> FieldDict:
        """Return a copy."""
        return FieldDict(self)

    def _spelled(self, name: Any) -> Any:
        if dict.__contains__(self, name) or not isinstance(name, str):
            return name
        spelling = spelled(self.keys(), name)
        return name if spelling is None else spelling
