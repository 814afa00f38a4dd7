"""Globs over the objects of a store: `s3://bucket/train-*.tar`, `gs://bucket/**/*.tar`, a directory `az://container/x/`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tarkit.stores.connect import list_objects

_SPECIAL = re.compile(r"[*?[]")
_PIECES = re.compile(r"(\*\*/)|(\*\*)|(\*)|(\?)|\[(!?)([^\]/]+)\]")


def matching(pattern: str) -> Iterator[str]:
    """Yield the URLs of the objects that a pattern matches, in the order of the store.

    `*`, `?` and `[...]` match within one component and no leading dot, `**` matches any number of directories, as in
    `glob`. Only names that begin like the pattern are requested. A directory is what its objects have in their names.
    """
    special = _SPECIAL.search(pattern)
    matches = re.compile(_translate(pattern), re.DOTALL).fullmatch
    rest = pattern[special.start() :] if special else ""
    depth = None if "**" in rest else rest.count("/")
    for info in list_objects(pattern[: special.start()] if special else pattern, depth=depth):
        if matches(info.url):
            yield info.url


def children(directory: str) -> Iterator[str]:
    """Yield the URLs of the objects directly in a directory, whose URL ends in a slash."""
    return matching(f"{_literal(directory)}*")


def _literal(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"[{found[0]}]", text)


def _translate(pattern: str) -> str:
    """Return the regular expression of a pattern."""
    parts, at = [], 0
    for found in _PIECES.finditer(pattern):
        begins = pattern[: found.start()].endswith("/")  # a component begins here
        parts.append(re.escape(pattern[at : found.start()]))
        directories, anything, star, one, negated, choice = found.groups()
        if directories:
            parts.append(r"(?:(?!\.)[^/]+/)*")
        elif anything:
            parts.append(".*")
        elif star or one:
            parts.append(("(?!\\.)" if begins else "") + ("[^/]*" if star else "[^/]"))
        else:
            chars = re.sub(r"([\\\[\]^&~|])", r"\\\1", choice)
            parts.append(f"[{'^/' if negated else ''}{chars}]")
        at = found.end()
    return "".join(parts) + re.escape(pattern[at:])
