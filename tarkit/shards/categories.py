r"""A map from names of files to names of shards, by category: the external key map of ishard and dSort.

There are two forms. JSON, an object from templates to lists of patterns; comments (`//`, `#` and `/* */`) and trailing
commas are allowed:

    {
      "fish-%d.tar": ["train/n01440764/.*", "glob:train/n01443537/*"],  // two patterns, one category
      "dog-%d.tar": ["train/n02084071/.*"],
    }

and lines `PATTERN TEMPLATE`, separated by a tab, or by blanks without a tab, or by `sep`. Blank lines and lines that
begin with `# ` are skipped.

A pattern is a regular expression (`patterns.py`) that is searched anywhere in the names of a sample's files, or, after
`glob:`, a glob of whole names. The category of a sample:

1. A pattern that equals its key, or a name of a file in it, decides: `1.txt` and `11.txt` can have a category each.
   Else each name is looked up by itself:
2. In lines, patterns that match a whole name precede those that match a part. Patterns that match anything, such as
   `.*`, do not.
3. All patterns that match must be of one category.
4. All names with a category must have the same, and names without one follow.

Each category has its own template and counts by itself; a template without a suffix gets one. The behaviour of ishard
and dSort, and the differences, are in docs/formats.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.pipeline.template import ShardTemplate, parse_template
from tarkit.shards.patterns import GLOB, compile_pattern
from tarkit.sizes import plural
from tarkit.stores import schemes
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import ARCHIVE_SUFFIXES
from tarkit.streams.text import file_label, open_file, unique_keys

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])', re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_./ -]+")  # as most names; a valid expression
_COMPARED = 1000  # names of all templates that are compared before anything is written


class Category(NamedTuple):
    """A category: its `place` in the map, `text` as in the map, the template of its shards."""

    place: int
    text: str
    template: ShardTemplate


@dataclass(eq=False)
class _Rule:
    """A pattern of a category; with `whole`, it precedes others where it matches a whole name.

    A million keys can be patterns: those that look like a name are compiled when a name is not among them.
    """

    text: str
    category: Category
    whole: bool

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return compile_pattern(self.text)

    def is_name(self, name: str) -> bool:
        """Return whether the pattern matches the whole of a name; one that matches anything, as `.*` does, does not."""
        anything = any(self.pattern.fullmatch(text) for text in ("", "/"))
        return self.whole and not anything and self.pattern.fullmatch(name) is not None


@dataclass
class Map:
    """A map from samples to categories, as `read_map` makes it; `name` is for messages.

    `categories` has all of them, `unmatched` too, in the order of the map.
    """

    name: str
    categories: list[Category] = field(default_factory=list)
    unmatched: Category | None = None
    _rules: dict[bytes, _Rule] = field(default_factory=dict)

    def category(self, names: Iterable[bytes], key: bytes | None = None) -> Category | None:
        """Return the category of a sample with files of these names; `unmatched`, which may be None, if none matches.

        Raises TarkitError when there are two.
        """
        names = list(names)
        keyed = names if key is None else [key, *names]
        rules = [(name, self._rules[name]) for name in keyed if name in self._rules]
        if not rules:
            rules = [(name, rule) for name in names if (rule := self._of_name(name)) is not None]
            if not rules:
                return self.unmatched
        first, rule = rules[0]
        for name, other in rules:
            if other.category is not rule.category:
                message = f"{show(first)} is of {show(rule.category.text)}, {show(name)} of {show(other.category.text)}"
                raise self._torn(f"{message}, and both are of one sample")
        return rule.category

    def _of_name(self, name: bytes) -> _Rule | None:
        text = os.fsdecode(name)
        hits = [rule for rule in self._rules.values() if rule.pattern.search(text)]
        if any(hit.category is not hits[0].category for hit in hits):
            hits = [hit for hit in hits if hit.is_name(text)] or hits
        for hit in hits:
            if hit.category is not hits[0].category:
                raise self._torn(f"{show(name)} is of {show(hits[0].category.text)} and of {show(hit.category.text)}")
        return hits[0] if hits else None

    def _torn(self, words: str) -> TarkitError:
        return TarkitError(f"{self.name}: {words}", "make the patterns exclusive")


def read_map(
    spec: str,
    *,
    unmatched: str | None = None,
    sep: str | None = None,
    extension: str = ".tar",
    directory: str = "",
    storage: StoreOptions | None = None,
) -> Map:
    """Read the map in the file `spec`, or in `spec` itself: JSON that begins with a brace, if no file has that name.

    Args:
        spec: path, URL or JSON.
        unmatched: template of samples in no category.
        sep: separator of the two fields of a line.
        extension: suffix for templates without one.
        directory: prefix of all templates, empty or with a slash at its end.
        storage: how a URL is reached.

    Raises:
        TarkitError: with the position: the file cannot be read, the map is invalid, an expression is invalid or comes
            twice, a template is invalid, or two categories would have a name of a shard in common.
    """
    name, text, lines = _text_of(spec, spell("map"), storage)
    category_map = Map(name)
    by_template: dict[str, Category] = {}
    seen: dict[str, str] = {}

    def category(where: str, template: str) -> Category:
        if template not in by_template:
            try:
                by_template[template] = Category(len(by_template), template, _template(directory, template, extension))
            except Usage as error:
                raise Usage(f"{where}: {error}", error.hint) from None
            category_map.categories.append(by_template[template])
        return by_template[template]

    for where, pattern, template in _lines(name, text, sep) if lines else _json(name, text):
        own = category(where, template)
        if pattern is None:
            continue
        if pattern in seen:
            raise TarkitError(f"{where}: {show(pattern)} occurs twice, first at {seen[pattern]}")
        seen[pattern] = where
        _check(where, pattern)
        category_map._rules[os.fsencode(pattern)] = _Rule(pattern, own, lines)
    if not seen:
        raise TarkitError(f"{name}: no pattern in this map")
    if unmatched is not None:
        category_map.unmatched = category(spell("unmatched"), unmatched)
    check_apart([category.template for category in category_map.categories])
    return category_map


def check_apart(templates: Sequence[ShardTemplate]) -> None:
    """Raise Usage when two templates have a name in common among their first thousand; writing finds the others."""
    taken: dict[str, str] = {}
    for template in templates if len(templates) > 1 else ():
        first = max(2, _COMPARED // len(templates))
        for index in range(first if template.count is None else min(first, template.count)):
            name = template.name(index)
            other = taken.setdefault(name, template.text)
            if other is not template.text:
                raise Usage(f"{show(other)} and {show(template.text)} both have a shard {show(name)}")


def _template(directory: str, text: str, extension: str) -> ShardTemplate:
    """Return the template of a category: a path that stays in its directory, with a suffix of archives."""
    if text.startswith(("/", "pipe:", "file:")) or schemes.scheme_of(text) or ".." in text.split("/"):
        raise Usage(f"{show(text)}: a template in a map is a path below the directory of the shards")
    if text.endswith("/") or text.strip() in ("", "-", ".") or "\0" in text:
        raise Usage(f"invalid template {show(text)}", "for example 'cats-%06d.tar'")
    suffix = "" if text.lower().endswith(ARCHIVE_SUFFIXES) else extension
    return parse_template(directory + text + suffix, hint=None)


def _check(where: str, pattern: str) -> None:
    try:
        if pattern in ("", GLOB):
            raise re.error("it is empty")
        os.fsencode(pattern)  # JSON can spell half a surrogate pair
        if not _PLAIN.fullmatch(pattern):
            compile_pattern(pattern)
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        hint = "a glob has the prefix glob:" if "*" in pattern else None
        raise TarkitError(f"{where}: invalid regular expression {show(pattern)}: {error}", hint) from None


def _text_of(spec: str, option: str, storage: StoreOptions | None) -> tuple[str, str, bool]:
    """Return the name of a map, for JSON that of its option, its text, and whether that has the form of lines."""
    if spec.lstrip().startswith("{") and not os.path.lexists(spec):
        return option, spec, False
    name = file_label(spec)
    try:
        with open_file(spec, storage) as file:
            data = file.read()
    except (OSError, ValueError) as error:
        raise TarkitError(f"{name}: {getattr(error, 'strerror', None) or error}") from error
    if b"\0" in data:
        raise TarkitError(f"{name}: invalid map: it has NUL bytes", "is it an archive?")
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    braced = _without_comments(text).lstrip().startswith("{")
    return name, text, not braced and not spec.lower().endswith(".json")


def _without_comments(text: str) -> str:
    """Replace comments and trailing commas in JSON by blanks, so that positions stay."""
    bare = _TOKEN.sub(lambda token: token[0] if token[0][0] == '"' else re.sub(r"[^\n]", " ", token[0]), text)
    return _TRAILING.sub(lambda token: token[1] or " ", bare)


def _json(name: str, text: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield position, pattern and template; the pattern is None for a category without any."""
    try:
        value = json.loads(_without_comments(text), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise TarkitError(f"{name}: invalid JSON: {error}") from None
    shape = 'a map looks like {"cats-%06d.tar": ["train/cat.*"]}'
    if not isinstance(value, dict):
        raise TarkitError(f"{name}: not a JSON object", shape)
    for template, patterns in value.items():
        where = f"{name}: {show(template)}"
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise TarkitError(f"{where}: patterns are a list of strings", shape)
        if not patterns:
            yield where, None, template
        for pattern in patterns:
            yield where, pattern, template


def _lines(name: str, text: str, sep: str | None) -> Iterator[tuple[str, str | None, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line == "#" or line.startswith("# "):
            continue
        parts = line.split(sep if sep is not None else "\t" if "\t" in line else None)
        fields = [part.strip() for part in parts]
        if len(fields) != 2 or not all(fields):
            message = f"{name}:{number}: a line is PATTERN TEMPLATE, and this one has {plural(len(fields), 'field')}"
            raise TarkitError(message, "a tab separates the two")
        yield f"{name}:{number}", fields[0], fields[1]
