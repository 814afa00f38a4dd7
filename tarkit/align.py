"""Tables of text: columns as wide as a terminal shows them."""

from __future__ import annotations

from collections.abc import Container, Sequence


def cells(text: str) -> int:
    """Return the columns that a text takes in a terminal: wide characters have two, combining ones none."""
    if text.isascii() or all("▀" <= character <= "▟" or character == " " for character in text):  # bars have one
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def align(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return the lines of a table, two blanks between columns; those whose numbers are in `right` end together."""
    widths = [[cells(cell) for cell in row] for row in rows]
    columns = [max(column) for column in zip(*widths, strict=True)]
    lines = []
    for row, own in zip(rows, widths, strict=True):
        padded = []
        for place, (cell, has, column) in enumerate(zip(row, own, columns, strict=True)):
            blanks = " " * (column - has)
            padded.append(blanks + cell if place in right else cell + blanks)
        lines.append("  ".join(padded).rstrip())
    return lines
