"""Markup from templates: pages, and their parts in `parts.html`. What is filled in is escaped unless it is markup.

A Content-Security-Policy lets no other script, style or address into a page: what was not escaped by mistake would
still do nothing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import cache
from html import escape
from pkgutil import get_data
from string import Template


class Markup(str):
    """Text that is markup, and is not escaped."""

    __slots__ = ()


def part(name: str, /, **values: object) -> Markup:
    """Return a part of `parts.html` with these values."""
    return Markup(_parts()[name](**_escaped(values)))


def _escaped(values: dict[str, object]) -> dict[str, object]:
    for key, value in values.items():
        if type(value) is str:  # not Markup, not a number
            values[key] = escape(value)
    return values


def joined(pieces: Iterable[Markup], between: str = "") -> Markup:
    """Return several pieces of markup as one."""
    return Markup(between.join(pieces))


def page(template: str, title: str, script: str = "", **values: object) -> str:
    """Return a page whose body is made from a template; its own style and script are let in."""
    style = _file("page.css")
    allowed = f"style-src '{_hash(style)}'"
    if script:
        script = _file(script)
        allowed = f"img-src data:; media-src data:; {allowed}; script-src '{_hash(script)}'"
    values |= {"title": title, "script": Markup(script)}
    body = Template(_file(template)).substitute(_escaped(values))
    return Template(_file("page.html")).substitute(title=escape(title), allowed=allowed, style=style, body=body)


@cache
def _parts() -> dict[str, Callable[..., str]]:
    """Return what fills in each part: a part ends before the next line `## NAME`, without the end of its last line."""
    parts = {}
    for piece in _file("parts.html").removeprefix("## ").removesuffix("\n").split("\n## "):
        name, _, text = piece.partition("\n")
        parts[name] = text.format
    return parts


def _file(name: str) -> str:
    data = get_data("tarkit.views", name)
    assert data is not None
    return data.decode()


def _hash(text: str) -> str:
    from hashlib import sha256

    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
