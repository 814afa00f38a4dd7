"""A table that is one test: every row runs, every failure is named."""

from __future__ import annotations

import pytest
from _tools import each_row


def test_every_row_runs_and_every_failure_has_its_row() -> None:
    """Also after failures of all kinds, and with tables in tables."""
    ran = []

    @each_row("second", ["x", "y"])
    @each_row(("first", "odd"), [(1, True), (2, False), (3, True)])
    def check(first: int, odd: bool, second: str) -> None:
        ran.append((first, second))
        if odd and second == "y":
            if first == 1:
                pytest.fail("no")
            raise ValueError(first)

    with pytest.raises(ExceptionGroup) as caught:
        check()
    assert ran == [(first, second) for second in "xy" for first in (1, 2, 3)]
    [inner] = caught.value.exceptions
    assert inner.__notes__ == ["in row 1: 'y'"]
    assert isinstance(inner, ExceptionGroup)
    assert [each.__notes__ for each in inner.exceptions] == [["in row 0: (1, True)"], ["in row 2: (3, True)"]]


def test_a_table_without_rows_is_none() -> None:
    """It would prove nothing."""
    with pytest.raises(AssertionError, match="no rows"):
        each_row("x", [])(lambda x: None)
