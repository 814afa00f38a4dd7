"""What a run writes into the folder that it packs: no shard may hold itself, or the plan that it was made by."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

from tarkit.shards.template import Template

Test = Callable[[bytes], bool]

_PART = re.compile(rb"\.(.+?)\.[0-9]+(?:\.[0-9]+)?\.part", re.DOTALL)


def hidden(root: str, templates: Iterable[Template], files: Iterable[str | None]) -> dict[bytes, Test]:
    """Tests for base names of what is written, by folder below `root`: shards of any number, and other files."""
    top = os.path.realpath(root)
    tests: dict[bytes, list[Test]] = {}

    def below(folder: str) -> bytes | None:
        path = os.path.realpath(folder or ".")
        if path == top:
            return b""
        front = top.rstrip("/") + "/"
        return os.fsencode(path[len(front) :]) + b"/" if path.startswith(front) else None

    for template in templates:
        where = below(template.directory)
        if where is not None:
            tests.setdefault(where, []).append(_is_named(template))
    for path in files:
        where = None if path in (None, "-") else below(os.path.dirname(path or ""))
        if where is not None:
            tests.setdefault(where, []).append(os.fsencode(os.path.basename(path or "")).__eq__)
    return {where: _any(each) for where, each in tests.items()}


def _is_named(template: Template) -> Test:
    def named(base: bytes) -> bool:
        part = _PART.fullmatch(base)  # what a run that was killed left
        return template.matches(template.directory + os.fsdecode(part[1] if part else base)) is not None

    return named


def _any(tests: Sequence[Test]) -> Test:
    return lambda base: any(test(base) for test in tests)
