"""Fields that samples get from a table, by key (--join TABLE:COLUMN), or from directories (--label-from-dir).

Cells of a column are the content of the field with its name; those of a column `@FIELD` are sources, as in `create`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.joining.edit import assigned
from tarkit.joining.set_fields import column_assignments, no_column
from tarkit.joining.spec import JoinSpec
from tarkit.joining.table import JoinCounts, JoinTable
from tarkit.packing.planned import PlannedFile, PlannedSample
from tarkit.pipeline.run import Run
from tarkit.sizes import plural
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file
from tarkit.tables.assignments import Assignment, columns_of
from tarkit.tables.recipe import MalformedRow, parse_source, path_source, text_source, without_bom, without_end


class FieldsOfTable:
    """Fields that samples get from the rows of a table. Entries are made of them, no field of a file is replaced."""

    def __init__(self, spec: JoinSpec, assignments: Sequence[Assignment] | None, run: Run, tmpdir: str | None) -> None:
        """Read the table; `assignments` is what is set, None for all columns. Raises TarkitError."""
        self.counts = JoinCounts(JoinTable(spec, tmpdir, run.warn), run.report is not None)
        self._assignments = assignments
        self._by_names: dict[tuple[str, ...], Sequence[Assignment]] = {}

    def close(self) -> None:
        """Check after the last sample. Raises TarkitError if no sample has a row."""
        self.counts.ended = True
        self.counts.check()

    def fields(self, key: bytes, files: Sequence[PlannedFile]) -> list[PlannedFile]:
        """Return the fields for a sample, by their names; none if the table has no row for it."""
        place = self.counts.find(key, lambda: [name for name, _, _ in files])
        if place is None:
            return []
        table = self.counts.table
        names, cells, line, _ = table.row(place)
        assignments = self._by_names.get(names)
        if assignments is None:
            assignments = self._assignments
            if assignments is None:
                assignments = column_assignments(names, table.column)
            elif lacking := [
                column for column in columns_of(assignments) if not {column, f"@{column}"} & {*table.names}
            ]:
                raise no_column(table.name, lacking[0], table.names)
            self._by_names[names] = assignments
        row = dict(zip(names, cells, strict=True))
        try:
            made: dict[str, PlannedFile | None] = {}
            for one in assignments:
                if (column := _source_column(row, one.column)) is not None:
                    made[one.field] = _planned(one.field, row[column])
            rest = [one for one in assignments if one.field not in made]
            for one, content in assigned(rest, row.get, lambda field: {}):
                if content is not None:
                    made[one.field] = os.fsencode(one.field), len(content), text_source(content)
            return [planned for one in assignments if (planned := made.get(one.field)) is not None]
        except MalformedRow as error:
            raise TarkitError(f"{table.name}:{line}: {error}", error.hint) from None


def _source_column(row: dict[str, Any], column: str) -> str | None:
    """Return the column `@FIELD` that has the source of a field; None if a column has its content."""
    if column.startswith("@"):
        return column
    return f"@{column}" if column not in row and f"@{column}" in row else None


def _planned(field: str, source: Any) -> PlannedFile | None:
    """Return the entry of a field for a source; None for null and an empty cell.

    Raises:
        MalformedRow: it is no file.
    """
    if not source:
        return None
    name = os.fsencode(field)
    kind, value = parse_source(source if isinstance(source, bytes) else os.fsencode(str(source)), pipes_allowed=False)
    if kind == "data":
        return name, len(value), text_source(value)
    if kind != "path":
        raise MalformedRow(f"{show(value)}: sources in a joined table are paths")
    return name, os.stat(value).st_size, path_source(value)


# ---- Classes by directory: the fields of --label-from-dir, and the numbers of classes

MIXED = 5  # depths that an error shows
_LATER = -2  # the size of a number that is not known yet; the source is the class then


class LabelField(NamedTuple):
    """A field with the class of a sample: its number, or its name.

    The class is the directory at `level`: from 1 counted from the root of the tree, from -1 from the innermost one.
    """

    field: bytes
    by_name: bool
    level: int = 1


_LEVEL = re.compile("-?[1-9][0-9]{0,5}")


def parse_label(word: str) -> LabelField:
    """Return the field of --label-from-dir, FIELD[:LEVEL][:name]. Raises Usage."""
    field, *rest = word.split(":")
    levels = [int(part) for part in rest if _LEVEL.fullmatch(part)]
    kinds = [part for part in rest if part in ("name", "number")]
    if not field or "/" in field or len(rest) > len(levels) + len(kinds) or len(levels) > 1 or len(kinds) > 1:
        message = f"{spell('label_from_dir')} {show(word)}: not FIELD, FIELD:LEVEL or FIELD:LEVEL:name"
        raise Usage(
            message, "for example cls, class.txt:name or cls:-1; LEVEL counts directories, from 1 or back from -1"
        )
    return LabelField(os.fsencode(field.removeprefix(".")), "name" in kinds, *levels)


def parse_labels(words: Sequence[str]) -> list[LabelField]:
    """Return the fields of --label-from-dir. Raises Usage for numbers of directories of two levels."""
    fields = [parse_label(word) for word in words]
    if len({field.level for field in fields if not field.by_name}) > 1:
        message = f"{spell('label_from_dir')}: numbers of two levels would need two lists of classes"
        raise Usage(message, "add the name of one of them: FIELD:LEVEL:name")
    return fields


class Classes:
    """The `names` of the classes, in byte order, or in the order of a file: those of the level with numbers."""

    def __init__(
        self,
        fields: Sequence[LabelField],
        path: str | None = None,
        storage: StoreOptions | None = None,
    ) -> None:
        """Read the classes from `path`, one per line; without it they are those of the samples."""
        self.fields = fields
        self.path = None if path is None else file_label(path)
        self.names: list[bytes] = []
        self.counts: dict[bytes, int] = {}
        self._innermost = spell("label_from_dir", f"{os.fsdecode(fields[0].field)}:-1")
        self._level = next((field.level for field in fields if not field.by_name), fields[0].level)
        self._examples: dict[int, bytes] = {}  # by number of directories: a file below so many
        self._shallow: tuple[int, bytes] | None = None  # a level, and a file that is not below so many directories
        if path is not None:
            with open_file(path, storage) as file:
                self.names = [name for line in without_bom(file) if (name := without_end(line))]
            if len(set(self.names)) < len(self.names) or not self.names:
                raise TarkitError(
                    f"{self.path}: no class in it, or one twice", "one class per line: the first is number 0"
                )
        self._numbers = {name: b"%d" % number for number, name in enumerate(self.names)}

    @property
    def open(self) -> bool:
        """Whether numbers are known only after the last sample."""
        return self.path is None and not all(field.by_name for field in self.fields)

    def of(self, files: Sequence[PlannedFile]) -> dict[int, bytes]:
        """Return the directory of a sample at each level of a field. Raises TarkitError for two."""
        labels = {level: self._at(level, files) for level in {field.level for field in self.fields}}
        label = labels[self._level]
        if self.path is not None and label and label not in self._numbers:
            raise TarkitError(f"{show(files[0][0])}: the class {show(label)} is not in {self.path}")
        self.counts[label] = self.counts.get(label, 0) + 1
        return labels

    def _at(self, level: int, files: Iterable[PlannedFile]) -> bytes:
        """Return the directory at a level; empty without one, an error that `check` raises."""
        names: dict[bytes, bytes] = {}
        for name, _, _ in files:
            above = name.split(b"/")[:-1]
            if level > 0:
                self._examples.setdefault(len(above), name)
            place = level - 1 if level > 0 else level + len(above)
            if not 0 <= place < len(above):
                self._shallow = self._shallow or (level, name)
                return b""
            names.setdefault(above[place], name)
        if len(names) > 1:
            (one, first), (other, second) = list(names.items())[:2]
            raise TarkitError(
                f"{show(first)} and {show(second)} are of one sample, but in directories {show(one)} and {show(other)}",
                f"{spell('label_from_dir')} requires one directory for all files of a sample: "
                f"another level, such as {self._innermost}, may have one",
            )
        return next(iter(names))

    def check(self) -> None:
        """Raise TarkitError, after the last sample, for directories of mixed depth, or none at a level."""
        if len(self._examples) > 1:
            shown = [show(self._examples[depth]) for depth in sorted(self._examples)]
            more = f" and {plural(len(shown) - MIXED, 'more depth')}" if len(shown) > MIXED else ""
            files = ", ".join(shown[:MIXED]) + more
            message = f"{spell('label_from_dir')}: directories of mixed depth: {files}"
            others = f"{spell('match')} and {spell('exclude')} leave files out"
            raise TarkitError(message, f"{self._innermost} takes the innermost directory, whatever its depth; {others}")
        if self._shallow is not None:
            level, name = self._shallow
            where = "" if abs(level) == 1 else f" at level {level}"
            message = f"{show(name)} is in no directory that could be its class{where}"
            raise TarkitError(message, f"{spell('match')} and {spell('exclude')} leave files out")

    def labels(self, key: bytes, labels: dict[int, bytes]) -> Iterator[PlannedFile]:
        """Yield the entries with the class; `key` is that of the sample's first entry, `labels` its directories."""
        for field, by_name, level in self.fields:
            name, label = key + b"." + field, labels[level]
            if by_name:
                yield name, len(label), text_source(label)
            elif self.open:
                yield name, _LATER, label
            else:
                number = self._numbers.get(label, b"")  # nothing in the place of a class that `check` refuses
                yield name, len(number), b"text:" + number

    def close(self) -> None:
        """Number the classes, after the last sample."""
        if self.path is None:
            self.names = sorted(self.counts)
            self._numbers = {name: b"%d" % number for number, name in enumerate(self.names)}

    def lines(self) -> bytes:
        """Return the names, one per line. Raises TarkitError for a name that is not a line."""
        for name in self.names:
            if b"\n" in name or name.endswith(b"\r") or not name:
                raise TarkitError(
                    f"the class {show(name)} cannot be a line of a list of classes", "rename its directory"
                )
        return b"".join(name + b"\n" for name in self.names)

    def filled(self, samples: Iterable[PlannedSample]) -> Iterator[PlannedSample]:
        """Yield the samples with the numbers of their classes."""
        for key, files, category in samples:
            for place, (name, size, source) in enumerate(files):
                if size == _LATER:
                    number = self._numbers[source]
                    files[place] = name, len(number), b"text:" + number
            yield key, files, category
