"""Text in the place of an archive is named: pages of servers, answers of stores, pointers of git."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from pathlib import Path

import pytest

from tarkit.tar.mistaken import recognise
from tests._tools import each_row
from tests.conftest import Run

TEXTS = {
    "an HTML page": [b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n",
        b"<!doctype HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>", b"\xef\xbb\xbf\r\n <html lang=en>",
        b"<HTML><HEAD><TITLE>404</TITLE></HEAD></HTML>",
        b"<?xml version='1.0'?>\n<!DOCTYPE html><html xmlns='http://www.w3.org/1999/xhtml'>",
        b"<!-- saved --><html>"],
    "XML": [b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>',
        b"<Error><Code>NoSuchKey</Code></Error>", b"<!DOCTYPE svg><svg/>"],
    "JSON": [b'{"error": "denied"}', b'[{"a": 1}]', b"{}", b'\n{\n  "message": "Not found"\n}', b"[1, 2]"],
    "a Git LFS pointer": [b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"],
    "a git-annex pointer": [b"/annex/objects/SHA256E-s1048576--4d7a.tar\n"],
}  # fmt: skip


@each_row("seed", range(40))
def test_named(seed: int, run: Run, here: Path) -> None:
    """Text of any length, compressed or not, under any name, is named by every command, with the repair."""
    rng = random.Random(seed)
    what = rng.choice(list(TEXTS))
    data = rng.choice(TEXTS[what]) + rng.choice((b"", b"\n" * 600, b" more <p> text" * 300))
    compressed = rng.random() < 0.3
    name = rng.choice(("a.tar", "a.tar.gz", "a.zip", "a.mp", "a.tar.zst", "noname"))
    compressed = compressed and name != "a.mp"  # what is compressed there is no map for its reader
    Path(name).write_bytes(gzip.compress(data) if compressed else data)
    words = rng.choice((["cat", "-o", "o.tar"], ["stats"], ["sort", "-o", "o.tar"], ["check"], ["extract", "-C", "o"]))
    words += rng.choice(([], ["--skip", "all"], ["--allow", "all"])) if words[0] != "check" else []
    stdin = Path(name).read_bytes() if rng.random() < 0.3 and name.endswith(("tar", "gz")) else None
    ran = run(words[0], name if stdin is None else "-", *words[1:], stdin=stdin, exit=1)
    text = ran.stderr + ran.stdout.decode()
    assert f"this is {what}, no archive: " in text, (name, words)
    assert "hint: " in text


@each_row("head", [b"", b"x" * 512, b"version 2\n", b"/annex", b"{x}", b"[x]", b"< 3", b"{" + bytes(9)])
def test_not_named(head: bytes) -> None:
    assert recognise(head) is None


@pytest.mark.parametrize("name", ["<html>", '{"a": 1}', "version https:"])
def test_archives_with_such_names(name: str, run: Run) -> None:
    """A valid header has precedence."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as out:
        entry = tarfile.TarInfo(f"{name}.txt")
        entry.size = 1
        out.addfile(entry, io.BytesIO(b"1"))
    assert run("stats", "-", "--total", stdin=data.getvalue()).stdout == b"1\n"
