"""Hints for expressions of --where that cannot be parsed: signs of other languages, and fields named as keywords."""

from __future__ import annotations

import re
from collections.abc import Callable
from keyword import iskeyword

from tarkit.errors import Usage, show

_SIGNS = {"=": "==", "===": "==", "!==": "!=", "<>": "!=", "&&": " and ", "||": " or ", "!": "not "}
_SIGNS |= {"AND": "and", "OR": "or", "NOT": "not"}
_PARTS = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[=!<>]+|\s*(?:&&|\|\|)\s*|[^\W0-9]\w*(?:\.\w+)*"""
)  # texts, signs and names
_OPERATORS = frozenset(("and", "or", "not", "in", "is", "if", "else", "None", "True", "False"))


def hint_for(text: str, parse: Callable[[str], object]) -> str | None:
    """Return the hint with the expression that may be meant; None if there is none.

    Args:
        text: the expression.
        parse: raises Usage for what is no expression.
    """
    keywords: list[str] = []

    def written(match: re.Match[str]) -> str:
        word = match[0]
        first, *rest = parts = word.split(".")
        reserved = [part for part in parts if iskeyword(part) and (rest or part not in _OPERATORS)]
        if not reserved:
            return _SIGNS.get(word.strip(), word)
        keywords.extend(reserved)
        if first == "has":
            return f'has("{word[4:]}")'
        field = f'field("{first}")' if iskeyword(first) else first
        return field + "".join(f'["{part}"]' if iskeyword(part) else f".{part}" for part in rest)

    other = _PARTS.sub(written, text)
    try:
        parse(other)
    except Usage:
        return None
    hint = f"did you mean {_quoted(other)}?"
    if keywords:
        hint += f" {keywords[0]} is a keyword of Python"
        hint += ", the usual name of the field is cls" if 'field("class")' in other else ""
    return hint


def _quoted(text: str) -> str:
    """Return an expression in quotes for a shell."""
    return f'"{text}"' if "'" in text and '"' not in text else show(text)
