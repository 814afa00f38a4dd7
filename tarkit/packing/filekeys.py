"""Keys of files in a tree: which of them are one sample (ishard-spec 2.3).

A name is cut into what its key is made of and its field: at the first dot of its last component, as readers of shards
do, or at the last dot, as ishard does. A dot in front is one like others: `.hidden` is the field `hidden` of a sample
whose key has nothing in its last component.

- full: the path. base: its last component. flat: the path without its slashes.
- an expression: each match in the name, field and all, is replaced by what its first group holds, or by nothing. Then
  the field goes, unless the end of the result comes from elsewhere in the name: ishard compares texts alone, and takes
  the `.0` off the folder `v1.0` of a file `a.0` (IS-KEY-9).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tarkit.errors import Usage, show
from tarkit.shards.patterns import compile_regex

Kind = Literal["full", "base", "flat", "regex"]

_KINDS: dict[str, Kind] = {
    "full": "full",
    "full_name": "full",
    "base": "base",
    "base_name": "base",
    "base_filename": "base",
    "base_file_name": "base",
    "flat": "flat",
    "collapse_all_dir": "flat",
}
"""The words for keys, with those of ishard, of its README and of its authors' blog."""


def cut_first(name: bytes) -> tuple[bytes, bytes]:
    """A name up to the first dot of its last component, and what follows that dot."""
    dot = name.find(b".", name.rfind(b"/") + 1)
    return (name, b"") if dot < 0 else (name[:dot], name[dot + 1 :])


def cut_last(name: bytes) -> tuple[bytes, bytes]:
    """A name up to the last dot of its last component, and what follows that dot."""
    dot = name.rfind(b".", name.rfind(b"/") + 1)
    return (name, b"") if dot < 0 else (name[:dot], name[dot + 1 :])


@dataclass
class KeyRule:
    """How keys are made: `kind`, the expression of a regex, and whether names are cut at the last dot.

    `unmatched` counts the names that the expression was not found in, which keep their own as key.
    """

    kind: Kind = "full"
    pattern: re.Pattern[str] | None = None
    last_dot: bool = False
    unmatched: int = 0

    def __post_init__(self) -> None:
        self.cut: Callable[[bytes], tuple[bytes, bytes]] = cut_last if self.last_dot else cut_first

    @property
    def streams(self) -> bool:
        """Whether the samples of a folder are known once its files are."""
        return self.kind == "full"

    @property
    def as_readers(self) -> bool:
        """Whether samples are those that readers of shards see, as long as names stay."""
        return self.kind == "full" and not self.last_dot

    def stem(self, base: bytes) -> bytes:
        """What the files of one sample in a folder have in common, where the whole path is the key."""
        return self.cut(base)[0]

    def key(self, name: bytes) -> bytes:
        """The key of a name."""
        if self.pattern is not None:
            return self._replaced(name, self.pattern)
        stem = self.cut(name)[0]
        if self.kind == "base":
            return stem[stem.rfind(b"/") + 1 :]
        return stem.replace(b"/", b"") if self.kind == "flat" else stem

    def field(self, name: bytes) -> bytes:
        """The field of a name, empty where it has no dot."""
        return self.cut(name)[1]

    def _replaced(self, name: bytes, pattern: re.Pattern[str]) -> bytes:
        text = os.fsdecode(name)
        last: re.Match[str] | None = None

        def first_group(found: re.Match[str]) -> str:
            nonlocal last
            last = found
            return (found[1] or "") if pattern.groups else ""

        key = os.fsencode(pattern.sub(first_group, text))
        field = self.field(name)
        suffix = b"." + field if len(self.cut(name)[0]) < len(name) else b""
        if last is None:
            self.unmatched += 1
        elif last.end() == len(text) and not (pattern.groups and last.end(1) == len(text)):
            return key
        return key.removesuffix(suffix)


def parse_key(text: str, last_dot: bool) -> KeyRule:
    """The rule that --key names; raises Usage for a bad expression."""
    kind = _KINDS.get(text)
    if kind is not None:
        return KeyRule(kind, None, last_dot)
    try:
        return KeyRule("regex", compile_regex(text), last_dot)
    except (re.error, RecursionError, OverflowError) as error:
        raise Usage(
            f"--key {show(text)}: {error}", "a key is full, base, flat or a regular expression with a group"
        ) from None
