"""Braces in names and commands: counted first, then expanded by the package `braceexpand`.

They follow bash's rules (`{000..099}`, `{0..9..3}`, `{a..e}`, `{x,y{1..3}}`, padding kept), but a backslash is an
ordinary character, and an argument whose braces do not match is plain text.

In a COMMAND most braces belong to the shell or another program: `${X}`, `{ a; b; }`, awk '{print $1, $2}', jq
'{id,url}', sed 's/a{1,3}//'. Expanding one of these would run the command twice and silently double the data. So a
group in a command is expanded only if it is or contains a range `{A..B}`, no `$` precedes it, and nothing in it is
blank, quoted or special to the shell.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import NamedTuple

from tarkit.errors import Usage, show

MAX_NAMES = 10_000_000
"""Names that the braces of one argument may expand to, as in ishard."""

MAX_DEPTH = 50
"""Levels of nested braces; `braceexpand` is recursive."""

_RANGE = r"(?:(-?\d+)\.\.(-?\d+)|([A-Za-z])\.\.([A-Za-z]))(?:\.\.-?(\d+))?\n?"
_IN_BRACES = r"\{(?:-?\d+\.\.-?\d+|[A-Za-z]\.\.[A-Za-z])(?:\.\.-?\d+)?\}"
_SHELL = r"[\s'\"`$;|&<>()\\]"
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # the order of braceexpand


class Group(NamedTuple):
    """A matched pair of braces: its position, how many names it expands to, and whether it is a range or a list."""

    start: int
    stop: int
    names: int
    expands: bool


class _Open:
    """An unclosed brace. `before` counts the names of the alternatives so far, `names` those of the current one."""

    __slots__ = ("before", "commas", "names", "start")

    def __init__(self, start: int) -> None:
        self.start, self.names, self.before, self.commas = start, 1, 0, False


def expand_braces(word: str) -> list[str]:
    """Return the names that `word` expands to, or itself. Raises Usage for too many."""
    if "{" not in word:
        return [word]
    count, _ = scan(word)
    if count is None:
        return [word]
    _check(count, word)
    return _brace_expansion(word)


def _brace_expansion(text: str) -> list[str]:
    from braceexpand import braceexpand

    return list(braceexpand(text, escape=False))


def expand_command(command: str) -> list[str]:
    """Return the commands that `command` expands to (see above which of its groups are expanded)."""
    groups = _groups_to_expand(command)
    _check(prod(group.names for group in groups), command)
    pieces: list[list[str]] = []
    position = 0
    for group in groups:
        pieces.append([command[position : group.start]])
        pieces.append(_brace_expansion(command[group.start : group.stop]))
        position = group.stop
    pieces.append([command[position:]])
    return ["".join(choice) for choice in product(*pieces)]


def scan(text: str) -> tuple[int | None, list[Group]]:
    """Return how many names `text` expands to, None if its braces do not match, and its groups, inner ones first."""
    stack = [_Open(0)]
    groups: list[Group] = []
    debt = 0
    for position, char in enumerate(text):
        if char == "{":
            if debt:  # as in braceexpand, a `}` without partner and a later `{` are both plain text
                debt -= 1
            else:
                stack.append(_Open(position))
        elif char == "}":
            if len(stack) == 1:
                debt += 1
            else:
                group = _closed(stack.pop(), text, position)
                groups.append(group)
                stack[-1].names *= group.names
        elif char == "," and len(stack) > 1:
            top = stack[-1]
            top.before, top.names, top.commas = top.before + top.names, 1, True
        if len(stack) > MAX_DEPTH:
            raise Usage(f"{show(text)}: braces are nested more than {MAX_DEPTH} deep")
    return (None if debt or len(stack) > 1 else stack[0].names), groups


def _closed(opened: _Open, text: str, position: int) -> Group:
    span = _range_size(text[opened.start + 1 : position])
    names = span or opened.before + opened.names
    return Group(opened.start, position + 1, names, bool(span) or opened.commas)


def _range_size(text: str) -> int:
    """Return how many names the range `A..B[..STEP]` has, 0 if `text` is no range."""
    match = re.fullmatch(_RANGE, text)
    if not match:
        return 0
    low, high, first, last, step = match.groups()
    try:
        length = abs(int(high) - int(low)) if low else abs(_ALPHABET.index(last) - _ALPHABET.index(first))
        return length // (int(step or 1) or 1) + 1
    except ValueError:  # Python does not convert numbers of thousands of digits
        return MAX_NAMES + 1


def _check(count: int, word: str) -> None:
    if count > MAX_NAMES:
        raise Usage(f"{show(word)}: the braces expand to more than {MAX_NAMES:,} names")


def _groups_to_expand(command: str) -> list[Group]:
    """Return the outermost groups of a command that are expanded, from left to right."""
    outermost: list[Group] = []
    shell_ends = 0
    for group in sorted(scan(command)[1]):
        text = command[group.start : group.stop]
        if command[group.start - 1 : group.start] == "$":
            shell_ends = max(shell_ends, group.stop)
        elif group.start < shell_ends or (outermost and group.start < outermost[-1].stop):
            continue
        elif group.expands and re.search(_IN_BRACES, text) and not re.search(_SHELL, text):
            outermost.append(group)
    return outermost
