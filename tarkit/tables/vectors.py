"""Values of many rows at once: lists in which each value is of a row, and functions of such lists.

A function is applied by `map`, so that the loop over rows is not one of Python; what it returns for a row, and what it
raises, is what it does for one value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, repeat
from typing import Any, Literal, NamedTuple, Protocol

from tarkit.tables.parquet import load_compute, load_pyarrow, plain_values

NUMBERS, TEXTS, TRUTHS, OTHERS = "numbers", "texts", "truths", ""
"""Kinds of vectors: all values are numbers but true and false, text, true or false, or of any type."""

_BUFFERS: dict[str, Literal["q", "d"]] = {"int64": "q", "double": "d"}  # types whose values are copied from memory
_OTHER_NUMBERS = frozenset(("int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float"))
_TEXT = frozenset(("string", "large_string"))


class Vector(NamedTuple):
    """Values, one of each row, to be iterated over once, and what all of them are."""

    kind: str
    values: Iterable[Any]


VALUE, TEXT, PRESENT, CELL, EXACT = "value", "text", "present", "cell", "exact"
"""What of a name is asked for: its value, its text, whether there is a value, its bytes and numbers, or the same with
numbers of JSON as they are written."""


FAILURES = (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, re.error)
"""What an expression raises for values that it is not made for."""


class ColumnName(Protocol):
    """A name of values."""

    @property
    def text(self) -> str:
        """The name as it is written."""


class Columns:
    """The columns of some rows, which have all values.

    Args:
        count: the number of rows.
        column: returns a column by its name, as a list.
    """

    def __init__(self, count: int, column: Callable[[str], Vector]) -> None:
        self.count = count
        self._column = column
        self._known: dict[str, Vector] = {}

    def get(self, name: ColumnName, form: str = VALUE) -> Vector:
        """Return a column, whose values may be iterated over again."""
        if form == PRESENT:
            return Vector(TRUTHS, [True] * self.count)
        return self._named(name.text)

    def _named(self, text: str) -> Vector:
        if text not in self._known:
            self._known[text] = self._column(text)
        return self._known[text]

    def chosen(self, flags: Sequence[Any]) -> Columns:
        """Return the columns of the rows whose flag is true."""

        def column(text: str) -> Vector:
            kind, values = self._named(text)
            return Vector(kind, list(compress(values, flags)))

        return Columns(sum(map(bool, flags)), column)


Vectorial = Callable[[Columns], Vector]
"""An expression over columns. It may raise what the same expression raises for one row, in any other row too."""

Natives = dict[tuple[Callable[..., Any], str], tuple[Callable[..., Any], str]]
"""By function and kind of all its arguments: one that does the same for these, and the kind of its results."""


def kind_of(value: object) -> str:
    """Return the kind of vectors with such values."""
    if isinstance(value, bool):
        return TRUTHS
    return NUMBERS if isinstance(value, (int, float)) else TEXTS if isinstance(value, str) else OTHERS


def vector_like(values: Sequence[Any]) -> Vector:
    """Return values of Python with their kind."""
    types = set(map(type, values))
    if types <= {int, float}:
        return Vector(NUMBERS, values)
    return Vector(TEXTS if types == {str} else TRUTHS if types == {bool} else OTHERS, values)


def constant(value: Any) -> Vectorial:
    """Return the expression that has one value in all rows."""
    kind = kind_of(value)
    return lambda columns: Vector(kind, repeat(value, columns.count))


def failing(columns: Columns) -> Vector:
    """Raise ValueError: the expression is evaluated for one row after the other."""
    raise ValueError("not for many rows at once")


def named(name: ColumnName, form: str = VALUE) -> Vectorial:
    """Return the expression that is a column."""
    return lambda columns: columns.get(name, form)


def applied(function: Callable[..., Any], operands: Sequence[Vectorial], natives: Natives) -> Vectorial:
    """Return the expression that applies a function to others."""

    def many(columns: Columns) -> Vector:
        if not operands:
            return Vector(OTHERS, [function() for _ in range(columns.count)])
        vectors = [operand(columns) for operand in operands]
        kinds = {vector.kind for vector in vectors}
        native, kind = (
            natives.get((function, kinds.pop()), (function, OTHERS)) if len(kinds) == 1 else (function, OTHERS)
        )
        return Vector(kind, map(native, *(vector.values for vector in vectors)))

    return many


def member(left: Vectorial, items: Sequence[Any], negated: bool, otherwise: Vectorial) -> Vectorial:
    """Return the expression that says which values are among some, or are not if it is `negated`.

    `otherwise` says the same, and is taken for values and items of several types.
    """
    kinds = set(map(kind_of, items))

    def many(columns: Columns) -> Vector:
        kind, values = left(columns)
        if kinds != {kind} or kind not in (NUMBERS, TEXTS):
            return otherwise(columns)
        among = map(frozenset(items).__contains__, values)
        return Vector(TRUTHS, map(operator.not_, among) if negated else among)

    return many


def either(wanted: bool, operands: Sequence[Vectorial]) -> Vectorial:
    """Return the expression of `or` (True) or `and` (False): later ones are evaluated where the result is open."""

    def many(columns: Columns) -> Vector:
        kind, values = operands[0](columns)
        kinds, result = {kind}, list(values)
        for operand in operands[1:]:
            flags = list(map(operator.not_, result)) if wanted else result
            if not any(flags):
                break
            kind, values = operand(columns.chosen(flags))
            following = iter(values)
            result = [next(following) if flag else value for value, flag in zip(result, flags, strict=True)]
            kinds.add(kind)
        return Vector(kinds.pop() if len(kinds) == 1 else OTHERS, result)

    return many


def conditional(test: Vectorial, body: Vectorial, other: Vectorial) -> Vectorial:
    """Return the expression that is `body` where `test` is true, else `other`."""

    def many(columns: Columns) -> Vector:
        flags = list(map(bool, test(columns).values))
        yes, no = (
            iter(part(columns.chosen(chosen)).values if any(chosen) else ())
            for part, chosen in ((body, flags), (other, list(map(operator.not_, flags))))
        )
        return Vector(OTHERS, [next(yes) if flag else next(no) for flag in flags])

    return many


def integers(array: Any) -> memoryview:
    """Return the values of an array of int64 without nulls, as they are in memory."""
    return buffer_numbers(array.buffers()[1], array.offset, len(array))


def buffer_numbers(buffer: Any, first: int, count: int, code: Literal["q", "Q", "d"] = "q") -> memoryview:
    """Return some numbers of 8 bytes of a buffer of Arrow, which has none if it is None; `code` is their type."""
    data: Any = memoryview(b"" if buffer is None else buffer).cast("B")
    numbers: memoryview = data.cast(code)[first : first + count]
    return numbers


def key_list(array: Any) -> list[bytes]:
    """Return keys as bytes, of an array of text without nulls: as one text in a fifth of the time of each alone."""
    arrow, _ = load_pyarrow("a view")
    keys = array.cast("binary")
    one = arrow.ListArray.from_arrays(arrow.array([0, len(keys)], arrow.int32()), keys)
    several: list[bytes] = load_compute().binary_join(one, b"\0")[0].as_py().split(b"\0")
    return several if len(several) == len(keys) else keys.to_pylist()  # none, or one that has a zero


def vector_of(array: Any) -> Vector:
    """Return the values of an array of Arrow without nulls, as `plain_values` does.

    Raises:
        ValueError, OverflowError: as `plain_values`; a null is among the values of a dictionary.
    """
    kind = str(array.type)
    if kind in _BUFFERS:
        numbers = buffer_numbers(array.buffers()[1], array.offset, len(array), _BUFFERS[kind])
        return Vector(NUMBERS, numbers.tolist())
    if kind in _OTHER_NUMBERS:
        return Vector(NUMBERS, array.to_pylist())
    if kind == "bool":
        return Vector(TRUTHS, array.to_pylist())
    if kind in _TEXT or (kind.startswith("dictionary<") and str(array.type.value_type) in _TEXT):
        if not kind.startswith("dictionary<"):  # equal texts are one object of Python
            array = array.dictionary_encode()
        words = array.dictionary.to_pylist()
        if None in words:
            raise ValueError("null in a dictionary")
        return Vector(TEXTS, list(map(words.__getitem__, vector_of(array.indices.cast("int64")).values)))
    return Vector(OTHERS, plain_values(array))
