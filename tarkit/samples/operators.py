"""Operators and functions of expressions: Python's, but for values of one kind, and none that makes much of little.

Each raises TypeError or ValueError, in words that a message can end with, for values that it does not take.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from tarkit.errors import show


def _numbers(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`function` for numbers alone: with text, % formats and * repeats."""

    def checked(left: Any, right: Any) -> Any:
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
            raise TypeError(f"{_kind(left)} and {_kind(right)}")
        return function(left, right)

    return checked


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return f"the number {value if abs(value) < 1e18 else 'that is so large'}"
    if isinstance(value, str):
        return f"the text {show(value[:40])}"
    return "an object" if isinstance(value, dict) else "a list"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _comparable(left: Any, right: Any) -> None:
    """Raises TypeError where a number and text are held against each other: they are never equal, which misleads."""
    if (isinstance(left, str) and _is_number(right)) or (_is_number(left) and isinstance(right, str)):
        raise TypeError(f"{_kind(left)} and {_kind(right)}; str(NAME) takes a field as text")


def _ordered(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """`function` for two numbers or two texts."""

    def checked(left: Any, right: Any) -> bool:
        if not (_is_number(left) and _is_number(right)) and not (isinstance(left, str) and isinstance(right, str)):
            raise TypeError(f"{_kind(left)} and {_kind(right)}")
        return function(left, right)

    return checked


def _equal(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return bool(left == right)


def _within(left: Any, right: Any) -> bool:
    if isinstance(right, (tuple, list, set)):
        if right and all(type(each) is type(next(iter(right))) for each in right):
            _comparable(left, next(iter(right)))
        return any(left == each for each in right)
    if isinstance(right, str) and not isinstance(left, str):
        raise TypeError(f"{_kind(left)} in {_kind(right)}")
    if not isinstance(right, (str, dict)):
        raise TypeError(f"nothing is in {_kind(right)}")
    return left in right


def _join(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > 1 << 22:
            raise ValueError("the text becomes too long")
        return left + right
    return _numbers(operator.add)(left, right)


def _of_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` for texts alone."""

    def checked(*values: Any) -> Any:
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"it takes text, and this is {_kind(value)}; str(NAME) takes a field as text")
        return function(*values)

    return checked


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """`min` or `max` of several values, or of those in one list."""

    def checked(*values: Any) -> Any:
        several = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple, set)) else values
        kinds = {"number" if _is_number(each) else "text" if isinstance(each, str) else "other" for each in several}
        if not several or len(kinds) > 1 or "other" in kinds:
            raise TypeError("it takes numbers, or texts, and not both")
        return function(several)

    return checked


OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _join,
    ast.Sub: _numbers(operator.sub),
    ast.Mult: _numbers(operator.mul),
    ast.Div: _numbers(operator.truediv),
    ast.FloorDiv: _numbers(operator.floordiv),
    ast.Mod: _numbers(operator.mod),
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: _within,
    ast.NotIn: lambda left, right: not _within(left, right),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {  # with the least and most arguments
    "len": (len, 1, 1),
    "lower": (_of_text(str.lower), 1, 1),
    "upper": (_of_text(str.upper), 1, 1),
    "startswith": (_of_text(str.startswith), 2, 2),
    "endswith": (_of_text(str.endswith), 2, 2),
    "match": (_of_text(lambda pattern, text: re.search(pattern, text) is not None), 2, 2),
    "int": (int, 1, 1),
    "float": (float, 1, 1),
    "abs": (abs, 1, 1),
    "round": (round, 1, 1),
    "min": (_extreme(min), 1, 16),
    "max": (_extreme(max), 1, 16),
    "has": (bool, 1, 1),
    "field": (str, 1, 1),
    "str": (str, 1, 1),
}
