"""Feeds (file, pipe, gzip) for the rows of tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.conftest import KINDS, Feed


def in_turn(rows: Iterable[Any], wholly: int = 2) -> list[tuple[Any, ...]]:
    """Append a feed to each row of a table: the feeds take turns, and the first `wholly` rows get all three.

    For tables about operations on samples, which do not depend on how the bytes arrive; tests with `each_feed` cover
    that.
    """
    dealt: list[tuple[Any, ...]] = []
    for number, row in enumerate(rows):
        kinds = KINDS if number < wholly else [KINDS[number % len(KINDS)]]
        dealt += [(*(row if isinstance(row, tuple) else (row,)), Feed(kind)) for kind in kinds]
    return dealt
