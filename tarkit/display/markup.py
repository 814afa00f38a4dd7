"""Markup from templates: pages, and their parts in `parts.html`, where all but `raw` markup is escaped.

A Content-Security-Policy lets no other script, style or address into a page: what was not escaped by mistake would
still do nothing.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from html import escape
from pkgutil import get_data
from string import Template
from typing import Any


def part(name: str, /, **values: Any) -> str:
    """Return a part of `parts.html` with these values: `{value}` is escaped there, `{value:raw}` is markup."""
    fill, texts = _parts()[name]
    for key in texts:
        values[key] = escape(values[key])
    return fill(**values)


def page(template: str, title: str, summary: str, script: str = "", **values: str) -> str:
    """Return a page whose body is made from a template and `values`, which are markup; only its own script runs."""
    style = _file("page.css")
    allowed = f"style-src '{_hash(style)}'"
    if script:
        script = _file(script)
        allowed = f"img-src data:; media-src data:; {allowed}; script-src '{_hash(script)}'"
    title = escape(title)
    body = Template(_file(template)).substitute(values, title=title, summary=escape(summary), script=script)
    return Template(_file("page.html")).substitute(title=title, allowed=allowed, style=style, body=body)


@cache
def _parts() -> dict[str, tuple[Callable[..., str], list[str]]]:
    """Return the template of each part, and the names of its values that are texts.

    A part ends before the next line `## NAME`, without the end of its last line.
    """
    parts = {}
    for piece in _file("parts.html").removeprefix("## ").removesuffix("\n").split("\n## "):
        name, _, text = piece.partition("\n")
        parts[name] = text.replace(":raw}", "}").format, list(dict.fromkeys(re.findall(r"\{(\w+)\}", text)))
    return parts


def _file(name: str) -> str:
    data = get_data("tarkit.display", name)
    assert data is not None
    return data.decode()


def _hash(text: str) -> str:
    from hashlib import sha256

    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
