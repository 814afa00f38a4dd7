"""The values of jobs: words are expanded to values, and values are filled into words.

In a word `{}` is the value, `{name}` the last component of its path, `{stem}` that without suffixes of archives,
`{dir}` its directory relative to the one that all values have in common, `{index}` its number from 0 (`{index:05d}`
with leading zeros). `{{` and `}}` are braces. Braces with `..` or a comma in them are no placeholders: they are ranges
and lists of the command that gets them.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tarkit.errors import TarkitError, Usage, show
from tarkit.samples.fields import stem
from tarkit.stores import listing
from tarkit.stores.schemes import is_listed, public_name, scheme_of
from tarkit.streams.braces import expand_braces
from tarkit.streams.location import expand_lists, natural_key

PLACEHOLDERS = "{} {stem} {name} {dir} {index:05d}"
_KNOWN = r"\{(stem|name|dir|index)(?::0?([0-9]{1,2})d)?\}"
_PIECES = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]")
_ANY = re.compile(_KNOWN)
_GLOB = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class Value:
    """One of the values: its text, its number from 0, and the parts of its text (see above)."""

    text: str
    index: int
    stem: str
    name: str
    dir: str


def expand_values(words: Sequence[str], lists: Sequence[str] = (), nul: bool = False) -> list[str]:
    """Return the values that words stand for: braces and globs, also of URLs, are expanded; other words are values.

    Args:
        lists: files with one argument a line.
        nul: the arguments in the lists end with NUL and are values as they are.

    Raises:
        TarkitError: a glob matches nothing, or a list cannot be read.
    """
    values = [value for word in words for value in _expand(word)]
    return values + expand_lists(lists, nul, (lambda value: [value]) if nul else _expand)


def _expand(word: str) -> Iterable[str]:
    return [word] if os.path.lexists(word) else (value for name in expand_braces(word) for value in _matched(name))


def _matched(name: str) -> list[str]:
    if not _GLOB.search(name) or os.path.lexists(name) or (scheme_of(name) and not is_listed(name)):
        return [name]
    if scheme_of(name):
        matches = listing.in_child(name, lambda: sorted(listing.named(name), key=natural_key))
    else:
        matches = sorted(glob.glob(name, recursive=True), key=natural_key)
    if not matches:
        raise TarkitError(f"{show(public_name(name))}: matches nothing", "-0 with -T takes values as they are")
    return matches


def make_values(texts: Sequence[str], part: slice = slice(None)) -> Iterator[Value]:
    """Yield the values of these texts, or of a part of them."""
    directories: dict[str, list[str]] = {}

    def directory(text: str) -> list[str]:
        tail = text.rpartition("/")[2]
        if tail in ("", ".", "..") or scheme_of(text):
            return _directory(text)
        start = text[: len(text) - len(tail)]
        if start not in directories:
            directories[start] = _directory(text)
        return directories[start]

    common: list[str] | None = None
    for text in texts:
        parts = directory(text)
        common = parts if common is None else list(os.path.commonprefix([common, parts]))  # noqa: RUF071 - of lists
    for index in range(len(texts))[part]:
        text = texts[index]
        name = _path(text).rpartition("/")[2]
        below = directory(text)[len(common or ()) :]
        yield Value(text, index, stem(name), name, "/".join(below) or ".")


def _path(text: str) -> str:
    """Return a text without the query and fragment of a web address."""
    return text.partition("?")[0] if scheme_of(text) in ("http", "https") else text


def _directory(text: str) -> list[str]:
    """Return the components of the directory of a path or URL."""
    if scheme_of(text):
        return _path(text).split("/")[:-1]
    return os.path.dirname(os.path.abspath(text)).split("/")


# ---- Placeholders


def fill(word: str, value: Value) -> str:
    """Return a word with the value in place of its placeholders. Raises Usage for an unknown one."""

    def filled(match: re.Match[str]) -> str:
        piece = match[0]
        if piece in ("{{", "}}"):
            return piece[0]
        if piece == "{}":
            return value.text
        if placeholder := _ANY.fullmatch(piece):
            return _part(placeholder, value)
        if len(piece) > 1 and (".." in piece or "," in piece):
            return piece
        words = f"unknown placeholder {piece}" if len(piece) > 1 else "unmatched or nested braces"
        raise Usage(f"{show(word)}: {words}", f"there are {PLACEHOLDERS}; {{{{ and }}}} are braces")

    return _PIECES.sub(filled, word) if "{" in word or "}" in word else word


def has_placeholder(word: str) -> bool:
    """Return whether a word has a placeholder of a value, besides `{}`."""
    return _ANY.search(word) is not None


def fill_name(word: str, value: Value) -> str:
    """Return the name of an output with the value in place of its placeholders; other braces stay."""
    return _ANY.sub(lambda match: _part(match, value), word)


def is_unique(word: str) -> bool:
    """Return whether a word has another text for each other value: `{}` or `{index}` is the one placeholder in it."""
    placeholders = {piece for piece in _PIECES.findall(word) if piece not in ("{{", "}}")}
    return len(placeholders) == 1 and next(iter(placeholders)).startswith(("{}", "{index"))


def without_placeholders(word: str) -> str:
    """Return a name without its placeholders."""
    return _ANY.sub("", word)


def before_placeholders(word: str) -> str:
    """Return the part of a name before its first placeholder."""
    match = _ANY.search(word)
    return word if match is None else word[: match.start()]


def _part(match: re.Match[str], value: Value) -> str:
    name, width = match.groups()
    if name == "index":
        return str(value.index).zfill(int(width or 0))
    if width is not None:
        raise Usage(f"{match[0]}: only {{index}} is a number")
    text: str = getattr(value, name)
    return text
