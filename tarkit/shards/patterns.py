r"""Regular expressions with the syntax of Go (RE2), and globs of paths, over names.

Names are matched as text, undecodable bytes as surrogates, so that `.` is a character of UTF-8 and not a byte. Where
Python and RE2 (https://github.com/google/re2/wiki/Syntax) differ, the meaning is that of RE2:

- `$` is the end of the name and nothing else, Python's `\Z`; after `(?m)` also the end of a line. So is `\z`.
- `\d \w \s \b` match ASCII.
- `[[:alpha:]]` and the like are classes; a `[` in brackets is literal.

What only one of them has is an error, or that of Python: `\pL`, `\Q..\E`, `\C` and flags such as `(?i)` after the start
are errors; `(?i)` ignores the case of ASCII letters alone; `\s` is also a vertical tab. Look-ahead and back-references,
which RE2 does not have, work.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t-\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
GLOB = "glob:"
_PLAIN = re.compile(r"[A-Za-z0-9_./ -]*[A-Za-z0-9_/ -][A-Za-z0-9_./ -]*")  # as most names: only dots are special
_GRAM = 8  # maximum of characters by which such a pattern is looked up
_CLASS = re.compile(r"\[:([a-z]+):\]")
_LINES = re.compile(r"\(\?[a-zA-Z]*m")  # the flag that makes `$` the end of a line


def compile_regex(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raises `re.error`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # for brackets whose meaning may change
        return re.compile(_from_re2(text), re.ASCII)


def compile_glob(text: str) -> re.Pattern[str]:
    """Compile a glob for whole paths: `*` and `?` match within a directory, `**` any path, and `[a-z]`, `[!a-z]`.

    `**/` also matches no directory at all. A `[` that is not closed is literal.
    """
    found, position = ["(?s:\\A"], 0
    while position < len(text):
        char = text[position]
        if text.startswith("**/", position) and text[position - 1 : position] in ("", "/"):
            found.append("(?:.*/)?")
            position += 3
        elif char == "*":
            stop = len(text) - len(text[position:].lstrip("*"))
            found.append("[^/]*" if stop - position == 1 else ".*")
            position = stop
        elif char == "[" and (stop := text.find("]", position + 2 + text.startswith("!", position + 1))) > 0:
            inside = text[position + 1 : stop].replace("\\", "\\\\").replace("[", "\\[")
            found.append("(?!/)[" + ("^" + inside[1:] if inside[0] == "!" else inside.replace("^", "\\^", 1)) + "]")
            position = stop + 1
        else:
            found.append("[^/]" if char == "?" else re.escape(char))
            position += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile("".join(found) + ")\\Z")


class Finder:
    """Find which of many patterns match in a name; the numbers count the calls of `add`.

    A million names can be patterns: a pattern that looks like a name is looked up by a few of its characters, and
    compiled only when a name has these.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._others: dict[int, re.Pattern[str]] = {}
        self._grams: dict[int, dict[str, list[int]]] = {}

    def add(self, text: str) -> None:
        """Add a regular expression, or a glob after `glob:`. Raises `re.error`, ValueError."""
        number = len(self._texts)
        if _PLAIN.fullmatch(text):
            piece = max(text.split("."), key=len)
            size = min(len(piece), _GRAM)
            grams = self._grams.setdefault(size, {})
            parts = (piece[start : start + size] for start in range(len(piece) - size + 1))
            rarest = min(parts, key=lambda gram: len(grams.get(gram, ())))
            grams.setdefault(rarest, []).append(number)
        else:
            self._others[number] = compile_glob(text[len(GLOB) :]) if text.startswith(GLOB) else compile_regex(text)
        self._texts.append(text)

    def find(self, name: str) -> list[int]:
        """Return the numbers of all patterns that match in `name`, in order."""
        found = [number for number, pattern in self._others.items() if pattern.search(name)]
        near: set[int] = set()
        for size, grams in self._grams.items():
            for start in range(len(name) - size + 1):
                near.update(grams.get(name[start : start + size], ()))
        found += [number for number in near if self._pattern(number).search(name)]
        return sorted(found)

    def anything(self, number: int) -> bool:
        """Return whether a pattern matches any whole name, as `.*` and `.+` do; names `` and `/` decide."""
        pattern = self._others.get(number)
        return pattern is not None and any(pattern.fullmatch(name) for name in ("", "/"))

    def whole(self, number: int, name: str) -> bool:
        """Return whether a pattern matches the whole of `name`."""
        return self._pattern(number).fullmatch(name) is not None

    def _pattern(self, number: int) -> re.Pattern[str]:
        return self._others.get(number) or _compiled_plain(self._texts[number])


_compiled_plain = lru_cache(4096)(re.compile)


def _from_re2(text: str) -> str:
    """Return the expression in the syntax of Python."""
    end = "$" if _LINES.search(text) else "\\Z"
    found, position, inside = list[str](), 0, False
    while position < len(text):
        char = text[position]
        step = 1
        if char == "\\":
            step = 2
            char = text[position : position + 2]
            char = "\\Z" if char == "\\z" else char
        elif inside and char == "[":
            named = _CLASS.match(text, position)
            if named and named[1] in _CLASSES:
                char, step = _CLASSES[named[1]], len(named[0])
            elif named:
                raise re.error(f"unknown class {named[0]}")
            else:
                char = "\\["
        elif inside:
            inside = char != "]"
        elif char == "[":
            inside = True
            opening = re.match(r"\[\^?\]?", text[position:])
            assert opening
            char, step = opening[0], len(opening[0])
        elif char == "$":
            char = end
        found.append(char)
        position += step
    return "".join(found)
