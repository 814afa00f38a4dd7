"""What several tests of loaders share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def keys(items: Iterable[Any]) -> list[str]:
    """Return the keys of samples or batches."""
    found: list[str] = []
    for item in items:
        found += item["__key__"] if isinstance(item["__key__"], list) else [item["__key__"]]
    return found
