"""Rows are found for many samples together, and fields set in plain samples, as the references do it."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import TarkitError
from tarkit.joining.join import Join
from tarkit.joining.set_fields import FieldSetter
from tarkit.joining.table import JoinTable

CASES = 60 * int(os.environ.get("TARKIT_TESTS_ROUNDS", "1"))
FIELDS = ["cls", "txt", "json", "bin"]
SETS = [
    (),
    ("cls",),
    ("txt",),
    ("new.txt:txt",),
    ("CLS:cls", "txt"),
    ("json.n:n",),
    ("json.n:n", "cls"),
    ("a.bin:txt",),
]


def content(draw: random.Random, field: str) -> bytes:
    """Return the content of a field; some are no value of it."""
    good = {"cls": b"%d" % draw.randrange(9), "json": json.dumps({"n": draw.randrange(9)}).encode()}
    return b"{x" if draw.random() < 0.02 else good.get(field, draw.randbytes(draw.choice((0, 5, 600))))


def write_archive(draw: random.Random, path: Path, prefix: str = "") -> list[str]:
    """Write samples, some with a link or entries without a key between them; return their keys."""
    layout, keys = (
        draw.sample(FIELDS, draw.randrange(1, 5)),
        [f"k{number:03}" for number in range(draw.choice((1, 40)))],
    )
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as file:
        for key in keys:
            some = layout if draw.random() < 0.8 else draw.sample(FIELDS, draw.randrange(1, 5))
            for field in some:
                info = tarfile.TarInfo(f"{key}.{prefix}{field}")
                data = content(draw, field)
                if draw.random() < 0.02:
                    info.type, info.linkname, data = tarfile.SYMTYPE, "other", b""
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
            if draw.random() < 0.05:
                file.addfile(tarfile.TarInfo("README"))
    return keys


def write_rows(draw: random.Random, path: Path, keys: list[str]) -> None:
    """Write rows for some of the keys, of which cells may be empty, and for others."""
    rows = [
        {
            "__key__": key,
            "cls": draw.choice((None, draw.randrange(99), "text" if draw.random() < 0.05 else 1)),
            "txt": draw.choice((None, "a", "two\nlines", "é")),
            "n": draw.choice((None, 3, 4.5)),
        }
        for key in [*keys, "none"]
        if draw.random() < 0.8 or key == "none"
    ]
    draw.shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def result(seed: int, here: Path) -> tuple[Any, ...]:
    """Return what an archive is joined to: the bytes of the output, messages, and the error."""
    draw, said = random.Random(seed), list[str]()
    keys = write_archive(draw, here / "a.tar")
    if draw.random() < 0.7:
        write_rows(draw, here / "t.jsonl", keys)
        joined, words = "t.jsonl", draw.choice(SETS)
    else:
        write_archive(draw, here / "b.tar", draw.choice(("b.", "")))
        joined, words = "b.tar", draw.choice(((), ("b.cls",), ("c.bin:b.cls",)))
    skip = draw.choice(((), ("bad-field", "missing-field", "unmovable-entry", "duplicate-entry")))
    error = ""
    try:
        data = tarkit.open(here / "a.tar", skip=skip, on_problem=said.append).join(here / joined).set(*words)
        if draw.random() < 0.3:
            found = [(sample.key, {name: bytes(sample[name]) for name in sample}) for sample in data]
            return found, said
        data.write(here / "out.tar")
    except TarkitError as problem:
        error = str(problem)
    return (here / "out.tar").read_bytes() if not error else b"", said, error


@pytest.mark.slow
def test_joins_are_those_of_the_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random archives, tables and fields."""
    counts = {"together": 0, "altered": 0}

    def counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            made = function(*arguments)
            counts[name] += made is not None
            return made

        return call

    failed = []
    for seed in range(CASES):
        here = tmp_path / str(seed)
        here.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(FieldSetter, "_altered", counted(FieldSetter._altered, "altered"))
            patch.setattr(Join, "_by_key", counted(Join._by_key, "together"))
            fast = result(seed, here)
        (here / "out.tar").unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            patch.setattr(FieldSetter, "_altered", lambda *arguments: None)
            patch.setattr(JoinTable, "by_key", False)
            plain = result(seed, here)
        if fast != plain:
            failed.append(f"{seed}\n  fast  {fast!r:.300}\n  plain {plain!r:.300}")
    assert not failed, "\n".join(failed[:5])
    assert counts["together"] > CASES // 4
    assert counts["altered"] > CASES
