"""A sample as a dict."""

from __future__ import annotations

from typing import Any


class KeyedDict(dict[str, Any]):
    """The fields of a sample, and its key under `__key__`; the attribute `key` is the key too."""

    __slots__ = ()

    @property
    def key(self) -> str:
        """The key. Raises AttributeError if the item `__key__` was removed."""
        try:
            return str(self["__key__"])
        except KeyError:
            raise AttributeError("key") from None
