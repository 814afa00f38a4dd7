"""Tables of text in a terminal."""

from __future__ import annotations

from tarkit.align import align, cells
from tests._tools import each_row


@each_row(
    ("text", "columns"),
    [
        ("", 0),
        ("abc", 3),
        ("日本", 4),
        ("\uff46", 2),
        ("é", 1),
        ("e\u0301", 1),
        ("🐶", 2),
        ("한글", 4),
        ("a\u200bb", 2),
    ],
)
def test_columns_of_a_text(text: str, columns: int) -> None:
    """Wide characters have two columns, combining ones none."""
    assert cells(text) == columns


def test_columns_are_aligned() -> None:
    """Columns begin or end together, however wide their characters are."""
    rows = [("name", "size", "kind"), ("猫", "5", "日本"), ("e\u0301te\u0301", "12345", ""), ("🐶🐶🐶", "", "x")]
    lines = align(rows, right=(1,))
    assert lines == ["name     size  kind", "猫          5  日本", "e\u0301te\u0301     12345", "🐶🐶🐶         x"]
    assert [cells(line) for line in lines] == [19, 19, 13, 16]
