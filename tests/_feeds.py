"""Ways for archives to come in, dealt out to the rows of tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.conftest import KINDS, Feed


def in_turn(rows: Iterable[Any], wholly: int = 2) -> list[tuple[Any, ...]]:
    """The rows of a table with a feed for each behind its cells: file, pipe and gzip take turns, and the first rows,
    `wholly` of them, have all three.

    For tables about what is done with samples, which does not depend on how their bytes come in: the tests around them
    that are for `each_feed` see to that.
    """
    dealt: list[tuple[Any, ...]] = []
    for number, row in enumerate(rows):
        kinds = KINDS if number < wholly else [KINDS[number % len(KINDS)]]
        dealt += [(*(row if isinstance(row, tuple) else (row,)), Feed(kind)) for kind in kinds]
    return dealt
