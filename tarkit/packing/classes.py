"""Classes that folders stand for: the fields of --label-from-dir, and the numbers of classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tarkit.errors import TarkitError, Usage, show
from tarkit.packing.batch import File, Group
from tarkit.packing.labels import text_source
from tarkit.tables.recipe import without_bom, without_end

_LATER = -2  # the size of what is not known yet; the source has the class then


class LabelField(NamedTuple):
    """A field that says the class of a sample: by its number, or by its name."""

    field: bytes
    by_name: bool


def parse_label(word: str) -> LabelField:
    """What --label-from-dir names: FIELD for the number, FIELD:name for the name. Raises Usage."""
    field, colon, what = word.partition(":")
    if not field or "/" in field or (colon and what not in ("name", "number")):
        raise Usage(f"--label-from-dir {show(word)}: it is FIELD, or FIELD:name", "for example cls, or class.txt:name")
    return LabelField(os.fsencode(field.removeprefix(".")), what == "name")


class Classes:
    """The classes that there are: `names`, in byte order, or in the order of a file that had them."""

    def __init__(self, fields: Sequence[LabelField], path: str | None = None) -> None:
        """Read the classes from `path`, one a line, if it is given; else they are those that samples have."""
        self.fields = fields
        self.path = path
        self.names: list[bytes] = []
        self.counts: dict[bytes, int] = {}
        if path is not None:
            with open(path, "rb") as file:
                self.names = [name for line in without_bom(file) if (name := without_end(line))]
            if len(set(self.names)) < len(self.names) or not self.names:
                raise TarkitError(f"{path}: no class in it, or one twice", "one class a line: the first is number 0")
        self._numbers = {name: b"%d" % number for number, name in enumerate(self.names)}

    @property
    def open(self) -> bool:
        """Whether numbers are known only when all samples are."""
        return self.path is None and not all(field.by_name for field in self.fields)

    def of(self, files: Iterable[File]) -> bytes:
        """The class of a sample: the folder that its files are in. Raises TarkitError for two, or none."""
        found: dict[bytes, bytes] = {}
        for name, _, _ in files:
            folder = name.rpartition(b"/")[0].rpartition(b"/")[2]
            found.setdefault(folder, name)
        if len(found) > 1:
            (one, first), (other, second) = list(found.items())[:2]
            raise TarkitError(
                f"{show(first)} and {show(second)} are of one sample, and in folders {show(one)} and {show(other)}: "
                "which is its class?",
                "--label-from-dir wants the files of a sample in one folder, or in folders of one name",
            )
        [(label, name)] = found.items()
        if not label:
            raise TarkitError(
                f"{show(name)} is in no folder that could be its class", "--keep-root gives it the root's"
            )
        if self.path is not None and label not in self._numbers:
            raise TarkitError(f"{show(name)}: the class {show(label)} is not in {self.path}")
        self.counts[label] = self.counts.get(label, 0) + 1
        return label

    def labels(self, key: bytes, label: bytes) -> Iterator[File]:
        """The entries that say the class; their key is that of the sample's first entry."""
        for field, by_name in self.fields:
            name = key + b"." + field
            if by_name:
                yield name, len(label), text_source(label)
            elif self.open:
                yield name, _LATER, label
            else:
                number = self._numbers[label]
                yield name, len(number), b"text:" + number

    def close(self) -> None:
        """All samples have come by: the classes get their numbers."""
        if self.path is None:
            self.names = sorted(self.counts)
            self._numbers = {name: b"%d" % number for number, name in enumerate(self.names)}

    def lines(self) -> bytes:
        """The names, one a line, as they are read again. Raises TarkitError for one that is no line."""
        for name in self.names:
            if b"\n" in name or name.endswith(b"\r") or not name:
                raise TarkitError(f"the class {show(name)} cannot stand in a list of classes", "rename its folder")
        return b"".join(name + b"\n" for name in self.names)

    def filled(self, groups: Iterable[Group]) -> Iterator[Group]:
        """The samples with the numbers of their classes, once these are known."""
        for key, files, category in groups:
            for place, (name, size, source) in enumerate(files):
                if size == _LATER:
                    number = self._numbers[source]
                    files[place] = name, len(number), b"text:" + number
            yield key, files, category
