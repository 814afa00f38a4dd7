"""The operators and functions of expressions.

Each raises TypeError or ValueError for invalid values, with a text that a message can end with.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from tarkit.errors import show
from tarkit.tables import vectors
from tarkit.tables.vectors import NUMBERS, TEXTS, TRUTHS


def _numbers(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Restrict `function` to numbers: for text, % would format and * would repeat."""

    def checked(left: Any, right: Any) -> Any:
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
            raise TypeError(f"{_kind(left)} and {_kind(right)}")
        return function(left, right)

    return checked


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return f"the number {value if abs(value) < 1e18 else f'{value:.3e}'}"
    if isinstance(value, str):
        return f"the text {show(value[:40])}"
    return "an object" if isinstance(value, dict) else "a list"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _comparable(left: Any, right: Any) -> None:
    """Raise TypeError for a comparison of a number with text, which are never equal."""
    if (isinstance(left, str) and _is_number(right)) or (_is_number(left) and isinstance(right, str)):
        raise TypeError(f"{_kind(left)} and {_kind(right)}{_conversions(left, right) or ' are never equal'}")


def _conversions(*values: Any) -> str:
    """Return words on functions that make values comparable, if one of two is a text like a number; else no words."""
    text = next((value for value in values if isinstance(value, str)), "")
    if not re.fullmatch(r"[-+]?[0-9.]+", text):
        return ""
    number = {0: "int", 1: "float"}.get(text.count("."))
    return "; str(NAME) takes a field as text" + (f", {number}(NAME) as a number" if number else "")


def _ordered(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Restrict `function` to two numbers or two texts."""

    def checked(left: Any, right: Any) -> bool:
        if not (_is_number(left) and _is_number(right)) and not (isinstance(left, str) and isinstance(right, str)):
            conversions = _conversions(left, right) if _is_number(left) or _is_number(right) else ""
            raise TypeError(f"{_kind(left)} and {_kind(right)}{conversions}")
        return function(left, right)

    return checked


def _equal(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return bool(left == right)


def _within(left: Any, right: Any) -> bool:
    if isinstance(right, (tuple, list, set)):
        if right and all(type(item) is type(next(iter(right))) for item in right):
            _comparable(left, next(iter(right)))
        return any(left == item for item in right)
    if isinstance(right, str) and not isinstance(left, str):
        raise TypeError(f"{_kind(left)} in {_kind(right)}")
    if not isinstance(right, (str, dict)):
        raise TypeError(f"{_kind(right)} is not a container")
    return left in right


def _join(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > 1 << 22:
            raise ValueError("the text is too long")
        return left + right
    return _numbers(operator.add)(left, right)


def _of_text(function: Callable[..., Any]) -> Callable[..., Any]:
    """Restrict `function` to texts."""

    def checked(*values: Any) -> Any:
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"expected text, not {_kind(value)}; str(NAME) takes a field as text")
        return function(*values)

    return checked


def length(value: Any) -> int:
    """Return the length of a text, a list or an object."""
    if not isinstance(value, (str, list, tuple, set, dict)):
        raise TypeError(f"expected text, a list or an object, not {_kind(value)}; str(NAME) takes a field as text")
    return len(value)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Restrict `min` or `max` to several values of one type, or those in one list."""

    def checked(*values: Any) -> Any:
        several = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple, set)) else values
        kinds = {"number" if _is_number(value) else "text" if isinstance(value, str) else "other" for value in several}
        if not several or len(kinds) > 1 or "other" in kinds:
            raise TypeError("expected numbers only or texts only")
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
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {  # with the minimum and maximum number of arguments
    "len": (length, 1, 1),
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

_ORDERS = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
_EQUALITIES = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
NATIVES: vectors.Natives = {  # those of Python, where a check of the types would find nothing
    **{
        (OPERATORS[sign], kind): (native, TRUTHS)
        for sign, native in {**_ORDERS, **_EQUALITIES}.items()
        for kind in (NUMBERS, TEXTS)
    },
    **{(OPERATORS[sign], NUMBERS): (native, NUMBERS) for sign, native in _ARITHMETIC.items()},
    **{(OPERATORS[sign], TRUTHS): (native, TRUTHS) for sign, native in _EQUALITIES.items()},
    **{(operator.not_, kind): (operator.not_, TRUTHS) for kind in (NUMBERS, TEXTS, TRUTHS)},
    (operator.neg, NUMBERS): (operator.neg, NUMBERS),
    (operator.pos, NUMBERS): (operator.pos, NUMBERS),
    (length, TEXTS): (len, NUMBERS),
}
