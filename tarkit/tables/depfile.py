"""Dependencies for make: a rule for the output, and an empty rule for each of its sources (as gcc -MP writes)."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tarkit.errors import TarkitError, show

_ESCAPES = ((b"$", b"$$"), (b"#", b"\\#"), (b" ", b"\\ "), (b"\t", b"\\\t"), (b":", b"\\:"))


def make_rule(target: str, sources: Iterable[bytes]) -> bytes:
    """Return the text of a depfile.

    Raises:
        TarkitError: a name contains a newline, which make cannot represent.
    """
    names = list(dict.fromkeys(sources))
    escaped = [_escape(name) for name in names]
    rule = b" \\\n  ".join([_escape(os.fsencode(target)) + b":", *escaped])
    return rule + b"\n" + b"".join(b"\n%b:\n" % name for name in escaped)


def _escape(name: bytes) -> bytes:
    if b"\n" in name:
        raise TarkitError(f"{show(name)}: a depfile cannot represent a name with a newline")
    for char, with_ in _ESCAPES:
        name = name.replace(char, with_)
    return name
