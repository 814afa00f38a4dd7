"""Braces in the words of a command line: counted first, then expanded by the package `braceexpand`.

A word's braces mean what they mean to `braceexpand` (bash's rules: `{000..099}`, `{0..9..3}`, `{a..e}`, `{x,y{1..3}}`,
padding kept), but a backslash is an ordinary character and a word whose braces do not match is plain text.

In a COMMAND most braces are the shell's or another program's: `${X}`, `{ a; b; }`, awk '{print $1, $2}', jq '{id,url}',
sed 's/a{1,3}//'. Taking one of these for a list would run the command twice and double the data without a word, so
there a group is ours only if it is or holds a range `{A..B}`, no `$` stands before it, and nothing in it is blank,
quoted or special to the shell.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import NamedTuple

from braceexpand import braceexpand

from tarkit.errors import Usage, show

MAX_NAMES = 10_000_000
"""Names that the braces of one word may stand for (ishard-spec TPL-9)."""

MAX_DEPTH = 50
"""How deep braces may be nested; `braceexpand` recurses."""

_RANGE = re.compile(r"(?:(-?\d+)\.\.(-?\d+)|([A-Za-z])\.\.([A-Za-z]))(?:\.\.-?(\d+))?\n?")
_IN_BRACES = re.compile(r"\{(?:-?\d+\.\.-?\d+|[A-Za-z]\.\.[A-Za-z])(?:\.\.-?\d+)?\}")
_SHELL = re.compile(r"[\s'\"`$;|&<>()\\]")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # the order of braceexpand


class Group(NamedTuple):
    """A matched pair of braces: where it is, how many names it stands for, and whether it is a range or a list."""

    start: int
    stop: int
    names: int
    expands: bool


class _Open:
    """A brace that waits for its partner. `before` sums up the alternatives so far, `names` is of the current one."""

    __slots__ = ("before", "commas", "names", "start")

    def __init__(self, start: int) -> None:
        self.start, self.names, self.before, self.commas = start, 1, 0, False


def expand(word: str) -> list[str]:
    """The names that `word` stands for, itself when there is nothing to expand; `Usage` for too many."""
    if "{" not in word:
        return [word]
    count, _ = scan(word)
    if count is None:
        return [word]
    _check(count, word)
    return list(braceexpand(word, escape=False))


def expand_command(command: str) -> list[str]:
    """The commands that `command` stands for: its groups that are ours, expanded (see above)."""
    groups = _ours(command)
    _check(prod(group.names for group in groups), command)
    pieces: list[list[str]] = []
    position = 0
    for group in groups:
        pieces.append([command[position : group.start]])
        pieces.append(list(braceexpand(command[group.start : group.stop], escape=False)))
        position = group.stop
    pieces.append([command[position:]])
    return ["".join(choice) for choice in product(*pieces)]


def scan(text: str) -> tuple[int | None, list[Group]]:
    """How many names `text` stands for (None: the braces do not match) and its groups, inner ones first."""
    stack = [_Open(0)]
    groups: list[Group] = []
    debt = 0
    for position, char in enumerate(text):
        if char == "{":
            if debt:  # as braceexpand counts: a `}` too many is made good by a later `{`, both plain
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
    """How many names the range `A..B[..STEP]` has, 0 if `text` is none; too many if its numbers are absurdly long."""
    found = _RANGE.fullmatch(text)
    if not found:
        return 0
    low, high, first, last, step = found.groups()
    try:
        length = abs(int(high) - int(low)) if low else abs(_ALPHABET.index(last) - _ALPHABET.index(first))
        return length // (int(step or 1) or 1) + 1
    except ValueError:  # Python refuses to convert thousands of digits
        return MAX_NAMES + 1


def _check(count: int, word: str) -> None:
    if count > MAX_NAMES:
        raise Usage(f"{show(word)}: the braces stand for more than {MAX_NAMES:,} names")


def _ours(command: str) -> list[Group]:
    """The outermost groups of a command that are ours, from left to right."""
    ours: list[Group] = []
    shell_ends = 0
    for group in sorted(scan(command)[1]):
        text = command[group.start : group.stop]
        if command[group.start - 1 : group.start] == "$":
            shell_ends = max(shell_ends, group.stop)
        elif group.start < shell_ends or (ours and group.start < ours[-1].stop):
            continue
        elif group.expands and _IN_BRACES.search(text) and not _SHELL.search(text):
            ours.append(group)
    return ours
