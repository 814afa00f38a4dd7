"""Files in YAML or JSON that describe something: read them, and say where in them something is wrong."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarkit.errors import MissingLibrary, TarkitError, show

MOST = 1e100  # a weight; the sum of some is a number too
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def load(path: str) -> Any:
    """What a file says, in JSON if its name ends in .json, else in YAML, of which only plain data are read.

    Raises TarkitError with the line: it cannot be read, or a mapping has a key twice; and when PyYAML is missing.
    """
    try:
        with open(path, "rb") as file:
            text = file.read().decode()
    except OSError as error:
        raise TarkitError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TarkitError(f"{path}: at {error.start}: no UTF-8") from None
    if path.lower().endswith(".json"):
        try:
            return json.loads(text, object_pairs_hook=_pairs)
        except (ValueError, RecursionError) as error:
            raise TarkitError(f"{path}: no JSON: {error}") from None
    try:
        import yaml
    except ImportError:
        otherwise = ", or write the same as JSON, in a file that ends in .json"
        raise MissingLibrary(f"{path}: reading YAML", "PyYAML", "yaml", otherwise) from None
    try:
        _see_once(yaml, yaml.compose(text, Loader=yaml.SafeLoader))
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        raise TarkitError(f"{where}: no YAML: {what}") from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of JSON, which has each key once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{show(max(keys, key=keys.count))} is there twice")
    return found


def _see_once(yaml: Any, root: Any) -> None:
    """Raise for a mapping of YAML that has a key twice, of which the library would take the last."""
    seen, waiting = set[int](), [root]
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key, value in node.value:
                waiting += [key, value]
                if key.value in keys and keys.count(key.value) > 1:
                    what = f"{show(key.value)} is there twice"
                    raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


@dataclass
class Place:
    """Where in a file we are, to say so; its methods read what a mapping has there and raise TarkitError."""

    path: str
    where: list[str] = field(default_factory=list)

    def of(self, part: str) -> Place:
        """A place in it."""
        return Place(self.path, [*self.where, part])

    def wrong(self, what: str, hint: str | None = None) -> TarkitError:
        """An error, to raise: what is wrong here."""
        return TarkitError(": ".join([self.path, *self.where, what]), hint)

    def mapping(self, found: Any) -> None:
        """See that a source is a mapping."""
        if not isinstance(found, dict):
            raise self.wrong("no mapping with `shards`")

    def known(self, found: dict[str, Any], keys: Sequence[str], warn: Callable[[str], None] | None = None) -> None:
        """See that there are no other keys."""
        for key in found:
            if key not in keys and warn is not None:
                warn(f"{self.wrong(f'`{key}` means nothing here')}")
            elif key not in keys:
                hint = "proc converts" if key == "convert" else f"there are: {', '.join(keys)}"
                raise self.wrong(f"`{key}` means nothing here", hint)

    def listed(self, found: dict[str, Any], key: str) -> list[Any]:
        """A list of at least one."""
        values = found[key]
        if not isinstance(values, list) or not values:
            raise self.wrong(f"`{key}` is a list of at least one")
        return values

    def words(self, found: dict[str, Any], key: str, default: list[str] | None = None) -> list[str]:
        """One text or a list of some."""
        value = found.get(key, default)
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not values or not all(isinstance(each, str) for each in values):
            raise self.wrong(f"`{key}` is a name, or a list of names")
        return values

    def text(self, found: dict[str, Any], key: str, default: Any) -> Any:
        """Some text, or what stands for none."""
        value = found.get(key, default)
        if value is not default and not (isinstance(value, str) and value):
            raise self.wrong(f"`{key}` is text")
        return value

    def number(self, found: dict[str, Any], key: str) -> float:
        """A number over 0; YAML takes 1e3 for text."""
        value = found[key]
        if isinstance(value, str) and NUMBER.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"`{key}` is a number")
        if not 0 < value <= MOST:
            raise self.wrong(f"`{key}` is more than 0", "leave the source out if nothing is wanted of it")
        return float(value)

    def count(self, found: dict[str, Any], key: str, default: int, least: int = 1) -> int:
        """A whole number."""
        value = found.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(f"`{key}` is a whole number from {least} on")
        return value

    def renames(self, found: dict[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
        """Pairs of fields, old and new, of a mapping or of a list of {from: OLD, to: NEW}."""
        value = found.get("rename", {})
        if isinstance(value, list):
            if not all(isinstance(each, dict) and each.keys() == {"from", "to"} for each in value):
                raise self.wrong("`rename` is a mapping OLD: NEW, or a list of {from: OLD, to: NEW}")
            pairs = [(each["from"], each["to"]) for each in value]
        elif isinstance(value, dict):
            pairs = list(value.items())
        else:
            raise self.wrong("`rename` is a mapping OLD: NEW, or a list of {from: OLD, to: NEW}")
        for old, new in pairs:
            if not isinstance(old, str) or not isinstance(new, str) or not old or "/" in old + new or "\0" in new:
                raise self.wrong("`rename`: the name of a field is text without a slash")
        if len({old.lower() for old, _ in pairs}) < len(pairs):
            raise self.wrong("`rename`: one field gets two names")
        return tuple((os.fsencode(old), os.fsencode(new)) for old, new in pairs)
