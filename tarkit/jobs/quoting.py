"""Words of command lines for a shell, each on one line."""

from __future__ import annotations

import os
import re
from shlex import quote

_ESCAPES = {"\n": r"\n", "\t": r"\t", "\\": r"\\", "'": r"\'"}
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\udc80-\udcff]")


def shell_word(word: str) -> str:
    """Return a word for bash: quoted, and with escapes (the form $'...') if it has what is not printable."""
    if not _UNPRINTABLE.search(word):
        return quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char)) if _UNPRINTABLE.match(char) else char
