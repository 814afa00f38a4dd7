"""Words of command lines: for a shell, each on one line; and those that call a function of tarkit."""

from __future__ import annotations

import os
import re
import sys
from shlex import quote

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\\": r"\\", "'": r"\'"}
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\udc80-\udcff]")


def shell_word(word: str) -> str:
    """Return a word for bash: quoted, and with escapes (the form $'...') if it has unprintable characters."""
    if not _UNPRINTABLE.search(word):
        return quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char)) if _UNPRINTABLE.match(char) else char


def python_words(module: str, function: str, *arguments: object) -> tuple[str, ...]:
    """Return the words of a command line that calls a function of tarkit in a new process of Python."""
    call = f"from {module} import {function}; sys.path.remove({_ROOT!r}); {function}{arguments!r}"
    # -P: tarkit is imported before what is in the current directory
    return sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {_ROOT!r}); {call}"


TARKIT_WORDS = python_words("tarkit.__main__", "main")
