"""Lists of keys: choosing/keys.py."""

from __future__ import annotations

from pathlib import Path

from tarkit.choosing.keys import read_keys
from tarkit.errors import TarkitError
from tests._tools import each_row

FILES = {
    "list": b"a\nb c\r\n\n\xe9\n",
    "last": b"a\nb",
    "bom": b"\xef\xbb\xbfa\n",
    "empty": b"\n\r\n",
    "odd:name": b"x\n",
    "t.tsv": b"n\t__key__\n1\ta\\tb\n2\tc\n3\n4\t\n5\td\t6\n",
    "t.txt": b"__key__\r\na\r\nb\r\n",
    "bom.csv": b"\xef\xbb\xbf__key__,n\na,1\n",
    "t.csv": b'n,__key__\n1,"a,\nb"\n2,c\n3\n4,\n',
    "t.CSV": b"k\na\n",
    "t.jsonl": b'{"k": "a", "n": 1}\n\n{"k": "\xc3\xa9"}\n{"n": 2}\n{"k": 7}\n{"k": null}\n{"k": ["x"]}\n',
    "bad.tsv": b"k\na\\x\n",
    "bad.csv": b'k\n"a\n',
    "bad.jsonl": b'{"k": "a"}\n{"k"\n',
    "array.ndjson": b'["k"]\n',
    "half.jsonl": b'{"k": "\\ud83d"}\n',
    "deep.jsonl": b"[" * 200_000,
}

HALF = "'utf-8' codec can't encode character '\\ud83d' in position 0: surrogates not allowed"


@each_row(
    ("spec", "expected"),
    [
        ("list", ["a", "b c", "\udce9"]),
        ("last", ["a", "b"]),
        ("bom", ["a"]),
        ("odd:name", ["x"]),
        ("t.tsv:__key__", ["a\tb", "c", "d"]),
        ("t.tsv:n", ["1", "2", "3", "4", "5"]),
        ("t.txt:__key__", ["a", "b"]),
        ("t.csv:__key__", ["a,\nb", "c"]),
        ("bom.csv:__key__", ["a"]),
        ("t.CSV:k", ["a"]),
        ("t.jsonl:k", ["7", '["x"]', "a", "é"]),
        ("empty", "empty: no key found"),
        ("none", "none: No such file or directory"),
        ("none:k", "none: No such file or directory"),
        ("list:k", "list: no column 'k'"),
        ("t.tsv:x", "t.tsv: no column 'x'"),
        ("t.jsonl:x", "t.jsonl: no key found"),
        ("bad.tsv:k", "bad.tsv:2: unknown escape \\x: write a backslash twice"),
        ("bad.csv:k", "bad.csv:2: unexpected end of data"),
        ("bad.jsonl:k", "bad.jsonl:2: bad JSON: Expecting ':' delimiter at column 1"),
        ("array.ndjson:k", "array.ndjson:1: bad JSON: not an object"),
        ("half.jsonl:k", f"half.jsonl:1: bad JSON: {HALF}"),
        ("deep.jsonl:k", "deep.jsonl:1: bad JSON: nested too deep"),
    ],
)
def test_read_keys(spec: str, expected: list[str] | str, here: Path) -> None:
    """FILE[:COLUMN] is one key a line, or a column of a TSV, CSV or JSON-lines table."""
    for name, data in FILES.items():
        Path(name).write_bytes(data)
    result: list[str] | str
    try:
        result = sorted(key.decode("utf-8", "surrogateescape") for key in read_keys(spec).wanted)
    except TarkitError as error:
        result = str(error)
    assert result == (sorted(expected) if isinstance(expected, list) else expected)
