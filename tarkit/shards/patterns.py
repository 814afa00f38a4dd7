"""Regular expressions of Python, and globs of paths, over names.

Names are matched as text, undecodable bytes as surrogates, so that `.` is a character of UTF-8 and not a byte. `\\d \\w
\\s \\b` match ASCII.
"""

from __future__ import annotations

import re
import warnings

GLOB = "glob:"


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression, or a glob after `glob:`. Raises `re.error`."""
    return compile_glob(text[len(GLOB) :]) if text.startswith(GLOB) else compile_regex(text)


def compile_regex(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raises `re.error`, also for the classes of RE2 and POSIX that Python lacks."""
    if named := re.search(r"\[:\^?[a-z]+:\]", text):
        raise re.error(f"unknown class {named[0]}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # for brackets whose meaning may change
        return re.compile(text, re.ASCII)


def compile_glob(text: str) -> re.Pattern[str]:
    """Compile a glob for whole paths: `*` and `?` match within a directory, `**` any path, and `[a-z]`, `[!a-z]`.

    `**/` also matches no directory at all. A `[` that is not closed is literal.
    """
    parts, position = ["(?s:\\A"], 0
    while position < len(text):
        char = text[position]
        if text.startswith("**/", position) and text[position - 1 : position] in ("", "/"):
            parts.append("(?:.*/)?")
            position += 3
        elif char == "*":
            stop = len(text) - len(text[position:].lstrip("*"))
            parts.append("[^/]*" if stop - position == 1 else ".*")
            position = stop
        elif char == "[" and (stop := text.find("]", position + 2 + text.startswith("!", position + 1))) > 0:
            inside = text[position + 1 : stop].replace("\\", "\\\\").replace("[", "\\[")
            parts.append("(?!/)[" + ("^" + inside[1:] if inside[0] == "!" else inside.replace("^", "\\^", 1)) + "]")
            position = stop + 1
        else:
            parts.append("[^/]" if char == "?" else re.escape(char))
            position += 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile("".join(parts) + ")\\Z")
