"""Run the blocks of documents: scripts/docs --outputs writes what they print, tests/test_readme.py compares it.

A block `text` directly below a block `sh` or `python` is its output, stdout and stderr; an empty one is filled. The
blocks of a section run one after the other in a directory of their own, with the files of tarkit/demo_recipes.py. The
pages of the Python guide are one program.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tarkit import demo_recipes

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_REFERENCE = ("datasets", "steps", "outputs", "samples", "work", "writers", "checks", "training", "jobs", "errors")
GUIDE = [ROOT / "docs/python.md", *(ROOT / f"docs/api/{name}.md" for name in _REFERENCE)]
ELSEWHERE = ("From directories of pictures to a trained model", "From a bucket to a trained model", "Examples")
"""Sections whose blocks are not run: tests/loading/test_training.py runs the first two; the last is of commands."""

# ---- Blocks


class Block(NamedTuple):
    """A fenced block: its section, its language, its text, and the output below it, None without one."""

    section: str
    language: str
    text: str
    shown: str | None
    start: int  # of the output, or where it would be
    stop: int


BLOCK = re.compile(r"^#+ (?P<section>[^\n]+)$|^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a document; the output of one is no block of its own."""
    at, section = 0, ""
    while found := BLOCK.search(text, at):
        at = found.end()
        if found["section"]:
            section = found["section"]
            continue
        shown = OUTPUT.match(text, at) if found["language"] in ("sh", "python") else None
        if shown:
            yield Block(section, found["language"], found["text"], shown[1], *shown.span(1))
            at = shown.end()
        else:
            yield Block(section, found["language"], found["text"], None, at, at)


MARK = "== end of a block =="


def run(section: list[Block], directory: Path, programs: str) -> list[str]:
    """Run blocks `sh` and `python` in one shell in `directory`; return what each prints, in whole lines.

    `programs` is the PATH.

    Raises:
        RuntimeError: a block fails.
    """
    scripts = [each.text if each.language == "sh" else f"python3 - <<'END'\n{each.text}END\n" for each in section]
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "".join(f"{script}echo '{MARK}'\n" for script in scripts)],
        cwd=directory,
        env={**os.environ, "PATH": programs},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{section[0].section!r} ended with status {ran.returncode}:\n{ran.stdout}")
    return [re.sub(r"(?<=[^\n])\Z", "\n", output) for output in ran.stdout.split(f"{MARK}\n")[:-1]]


def with_outputs(text: str, programs: str) -> str:
    """Return a document with the outputs of now."""
    every = [each for each in blocks(text) if each.language in ("sh", "python") and each.section not in ELSEWHERE]
    changes = []
    for title in dict.fromkeys(each.section for each in every if each.shown is not None):
        section = [each for each in every if each.section == title]
        with tempfile.TemporaryDirectory() as name:
            demo_recipes.write(Path(name))
            changes += zip(section, run(section, Path(name), programs), strict=True)
    return _replaced(text, changes)


def same(output: str) -> str:
    """Return an output without times, and without what depends on the library that compresses pictures."""
    output = re.sub(r"\b\d+\.\d+ s\b", "T s", output)
    return re.sub(r"\d{4,}", "N", output) if "zlib-ng" in zlib.ZLIB_RUNTIME_VERSION else output


def _replaced(text: str, changes: list[tuple[Block, str]]) -> str:
    """Return a document with other outputs in the place of those that are shown."""
    for block, output in sorted(changes, key=lambda change: -change[0].start):
        if block.shown is not None and same(block.shown) != same(output):
            text = text[: block.start] + output + text[block.stop :]
    return text


def program_of(texts: list[str]) -> list[list[Block]]:
    """Return the blocks of Python of each page of the guide, which are one program."""
    return [[each for each in blocks(text) if each.language == "python"] for text in texts]


def guide_with_outputs(texts: list[str], programs: str) -> list[str]:
    """Return the pages of the guide with the outputs of now."""
    pages = program_of(texts)
    whole = "".join(f"{each.text}print({MARK!r}, flush=True)\n" for page in pages for each in page)
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / ".guide.py").write_text(whole, encoding="utf-8")
        start = Block("Python", "sh", f"{sys.executable} .guide.py\n", None, 0, 0)
        outputs = iter(run([start], Path(name), programs)[:-1])
    return [_replaced(text, [(each, next(outputs)) for each in page]) for text, page in zip(texts, pages, strict=True)]
