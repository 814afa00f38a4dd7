"""The syntax of expressions: their text becomes a tree of `ast`, of which a part of all nodes is allowed."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from tarkit.errors import Usage, show, spell
from tarkit.sizes import plural

LITERALS = {"null": None, "true": True, "false": False}  # words of JSON, in addition to those of Python
LONGEST, DEEPEST = 4096, 64  # characters, levels
HINT = "for example 'cls == 3 and json.width > 512', \"size.jpg > 10000 and 'cat' in txt\", 'has.json'"

ALLOWED = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Load),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.IfExp, ast.Call),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Tuple, ast.List, ast.Set),
)

_STAND_INS = {ord(digit): chr(0x10330 + number) for number, digit in enumerate("0123456789")}
DIGITS = {ord(letter): digit for digit, letter in zip("0123456789", _STAND_INS.values(), strict=True)}
_DOTTED = re.compile(r"""#[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[0-9][\w.]*|((?:[^\W0-9]\w*|\])(?:\.\w+)+)""")


def with_steps(text: str) -> str:
    """Return the text with letters for the digits in `json.a.0`, which the parser takes for a number.

    A letter is one character, as a digit is: positions stay. Text that has such (Gothic) letters is not changed.
    """

    def lettered(match: re.Match[str]) -> str:
        return re.sub(r"\.[0-9]+(?!\w)", lambda step: step[0].translate(_STAND_INS), match[1]) if match[1] else match[0]

    return text if any(ord(char) in DIGITS for char in text) else _DOTTED.sub(lettered, text)


def parse(text: str, again: bool = False) -> ast.Expression:
    """Return the tree of an expression of limited length and depth; `text` is that of `_with_steps`.

    Args:
        text: the expression.
        again: it is what a hint may name.

    Raises:
        Usage: the expression is too long, nested too deeply, or not valid syntax.
    """
    if len(text) > LONGEST:
        raise Usage(f"{spell('where')}: the expression has {plural(len(text), 'character')}, the limit is {LONGEST}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        place = f" at character {error.offset}" if error.offset and error.lineno == 1 else ""
        from tarkit.choosing.where_hints import hint_for

        words = text.translate(DIGITS)
        hint = None if again else hint_for(words, lambda other: bool(parse(with_steps(other), again=True)))
        raise Usage(f"{spell('where')} {show(words)}: {error.msg}{place}", hint or HINT) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Usage(f"{spell('where')} {show(text[:80].translate(DIGITS))}: not an expression: {error}", HINT) from None
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise Usage(f"{spell('where')}: the expression is nested too deeply")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = _as_written(text, node)
        elif isinstance(node, ast.Attribute):
            node.attr = _as_written(text, node)
    return tree


def _as_written(text: str, node: ast.Name | ast.Attribute) -> str:
    """Return the last word of a name as in the text: the parser normalises words (NFKC), field names are bytes."""
    part = ast.get_source_segment(text, node) or ""
    start = len(part)
    while start and f"a{part[start - 1]}".isidentifier():
        start -= 1
    return part[start:].translate(DIGITS)


def character(text: str, node: ast.AST) -> int:
    """Return the position of a node in characters from 1; the parser counts bytes in a line."""
    lines = text.encode().splitlines(keepends=True)
    before = lines[: getattr(node, "lineno", 1) - 1]
    line = lines[len(before)] if len(before) < len(lines) else b""
    return len((b"".join(before) + line[: getattr(node, "col_offset", 0)]).decode()) + 1


def constant(node: ast.AST) -> Any:
    """Return the value of a literal; for other nodes a value that no literal has."""
    if isinstance(node, ast.Name):
        return LITERALS.get(node.id, ())
    return node.value if isinstance(node, ast.Constant) else ()


def dots(node: ast.AST, indexed: bool = False) -> str | None:
    """Return a name with dots, if `indexed` also with literals in brackets, as text; None for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (text := dots(node.value, indexed)) is not None:
        return f"{text}.{node.attr}"
    if indexed and isinstance(node, ast.Subscript) and (text := dots(node.value, indexed)) is not None:
        step = node.slice
        negative = isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
        value = constant(step.operand if isinstance(step, ast.UnaryOp) and negative else step)
        if type(value) is int or (type(value) is str and "'" not in value and not negative):
            return f"{text}[{'-' * negative}{value!r}]"
    return None
