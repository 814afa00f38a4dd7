r"""Regular expressions as the tools of Go read them (RE2), and globs of paths, over names.

Names are looked at as text, undecodable bytes as surrogates, so that `.` is a character of UTF-8 and not a byte. Where
Python reads an expression otherwise than RE2 (https://github.com/google/re2/wiki/Syntax), RE2's reading is taken:

- `$` is the end of the name and nothing else, Python's `\Z`; after `(?m)` also the end of a line. So is `\z`.
- `\d \w \s \b` are about ASCII.
- `[[:alpha:]]` and its like are classes; a `[` in brackets is a plain character.

What only one of them has is an error, or Python's: `\pL`, `\Q..\E`, `\C` and flags such as `(?i)` behind the start are
refused; `(?i)` makes no difference between letters of ASCII alone; `\s` is also a vertical tab. Look-ahead and
references to groups, which RE2 refuses, work.
"""

from __future__ import annotations

import re
import warnings

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
_CLASS = re.compile(r"\[:([a-z]+):\]")
_LINES = re.compile(r"\(\?[a-zA-Z]*m")  # the flag that makes `$` the end of a line


def compile_regex(text: str) -> re.Pattern[str]:
    """The expression `text`; raises `re.error`, whose message says what is wrong with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of brackets that may mean something else one day
        return re.compile(_from_re2(text), re.ASCII)


def compile_glob(text: str) -> re.Pattern[str]:
    """The glob `text`, for the whole of a path: `*` and `?` stay within a folder, `**` goes down, `[a-z]` and `[!a-z]`.

    `**/` also stands for no folder at all. A `[` that is not closed is a plain character.
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


def _from_re2(text: str) -> str:
    """The same in Python's words."""
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
