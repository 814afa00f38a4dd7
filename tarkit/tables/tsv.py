r"""Cells of TSV files: one escape for each byte that would break the table, and so reversible.

Any other character after a backslash is an error: a file that was never escaped (Windows paths, LaTeX) must not change
silently. A cell that is `\N` alone is absent, unlike an empty cell.
"""

from __future__ import annotations

import re

from tarkit.tables.recipe import MalformedRow

ABSENT = b"\\N"
_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r"}
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}
_TO_ESCAPE = re.compile(rb"[\\\t\n\r]")
_ESCAPED = re.compile(rb"\\.?", re.DOTALL)


def escape_tsv(cell: bytes) -> bytes:
    r"""Return `cell` for a TSV file: tab, LF, CR and backslash as `\t`, `\n`, `\r` and `\\`."""
    return _TO_ESCAPE.sub(lambda match: _ESCAPES[match[0]], cell) if _TO_ESCAPE.search(cell) else cell


def unescape_tsv(cell: bytes) -> bytes:
    """Return the cell that `escape_tsv` escaped.

    Raises:
        MalformedRow: an escape that `escape_tsv` does not write.
    """
    return _ESCAPED.sub(_unescape, cell) if b"\\" in cell else cell


def _unescape(match: re.Match[bytes]) -> bytes:
    plain = _UNESCAPES.get(match[0])
    if plain is None:
        raise MalformedRow(f"unknown escape {match[0].decode('utf-8', 'backslashreplace')}: write a backslash twice")
    return plain


def parse_tsv(line: bytes) -> list[bytes | None]:
    """Return the cells of a line without its end; None for an absent cell. Raises MalformedRow."""
    cells = line.split(b"\t")
    if b"\\" not in line:
        return list(cells)
    return [None if cell == ABSENT else unescape_tsv(cell) for cell in cells]
