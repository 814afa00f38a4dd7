"""Fields that samples get from a table, by key (--join TABLE:COLUMN), or from directories (--label-from-dir).

Cells of a column are the content of the field with its name; those of a column `@FIELD` are sources, as in `create`.
The cell in COLUMN is the key of a sample, or the name of one of its files: without its directory if keys are base
names. The table is held in memory.
"""

from __future__ import annotations

import marshal
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.packing.planned import PlannedFile, PlannedSample
from tarkit.sizes import plural
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file, split_column
from tarkit.tables.reader import Format, TableRow, entry_columns, read_records
from tarkit.tables.recipe import MalformedRow, parse_source, path_source, text_source, without_bom, without_end

_FORMATS: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".txt": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


class Join:
    """The rows of a table; `with_row` and `without_row` count samples; `first` is the first without."""

    def __init__(
        self,
        spec: str,
        bases: bool = False,
        storage: StoreOptions | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Read `TABLE:COLUMN`; with `bases` also base names of files are looked up. `warn` gets messages about the
        form of the table. Raises Usage, TarkitError."""
        self._file, self.column = split_column(spec)
        self.name = file_label(self._file)
        if not self._file or not self.column:
            message = f"{spell('join')} {show(spec)}: not TABLE:COLUMN"
            raise Usage(message, "the column has the keys of samples, or file names")
        self.with_row = self.without_row = 0
        self.first = b""
        self._bases = bases
        self._storage = storage
        self._warn = warn
        self._places: dict[bytes, int] = {}
        self._rows: list[bytes] = []
        line = 0
        try:
            for record in self._records():
                line = record.line
                key, fields = self._parsed(record)
                if key in self._places:
                    raise MalformedRow(f"{show(key)} occurs twice in column {show(self.column)}")
                self._places[key] = len(self._rows)
                self._rows.append(marshal.dumps(fields, 2))
        except MalformedRow as error:
            raise TarkitError(f"{self.name}:{error.line or line}: {error}", error.hint) from None
        self._used = bytearray(len(self._rows))

    @property
    def unused(self) -> int:
        """The number of rows without a sample."""
        return self._used.count(0)

    @property
    def example(self) -> bytes:
        """The cell in COLUMN of the first row, empty without rows."""
        return next(iter(self._places), b"")

    def fields(self, key: bytes, files: Sequence[PlannedFile]) -> list[PlannedFile]:
        """Return the fields for a sample, by their names; none if the table has no row for it."""
        place = self._places.get(key)
        if place is None:
            place = next((self._places[name] for name, _, _ in files if name in self._places), None)
        if place is None and self._bases:
            bases = (name[name.rfind(b"/") + 1 :] for name, _, _ in files)
            place = next((self._places[base] for base in bases if base in self._places), None)
        if place is None:
            self.first = self.first if self.without_row else key
            self.without_row += 1
            return []
        self.with_row += 1
        self._used[place] = 1
        fields: list[Any] = marshal.loads(self._rows[place])
        return fields

    def no_row(self) -> TarkitError:
        """Return the error of a table that has no row for any sample."""
        words = f"column {show(self.column)} begins with {show(self.example)}, keys with {show(self.first)}"
        ways = f"{spell('key', 'base')} looks up names without their directories, and {spell('rename', 'key')} "
        hint = None if self._bases else f"{ways}writes them so"
        return TarkitError(f"{self.name}: no sample has a row: {words}", hint)

    def _records(self) -> Iterator[TableRow]:
        suffix = os.path.splitext(self.name)[1].lower()
        if suffix == ".parquet":
            from tarkit.export.parquet import read_parquet

            for number, (names, values) in enumerate(read_parquet(self._file, self._storage), 1):
                yield TableRow(number, names, values)
            return
        if suffix not in _FORMATS:
            suffixes = " ".join((*_FORMATS, ".parquet"))
            raise Usage(f"{spell('join')} {show(self.name)}: unknown kind of table", f"known suffixes: {suffixes}")
        with open_file(self._file, self._storage) as file:
            yield from read_records(file, _FORMATS[suffix], warn=lambda text: self._warn(f"{self.name}: {text}"))

    def _parsed(self, record: TableRow) -> tuple[bytes, list[PlannedFile]]:
        names = record.names
        if self.column not in names:
            raise MalformedRow(f"no column {show(self.column)}, there are {', '.join(map(show, names))}")
        key = record.values[names.index(self.column)]
        if not key:
            raise MalformedRow(f"empty cell in column {show(self.column)}")
        fields = []
        for position, suffix, is_source in entry_columns(names):
            value = record.values[position]
            if names[position] != self.column and value is not None and (value or not is_source):
                fields.append(_field(suffix[1:], value, is_source))
        return key, fields


def _field(name: bytes, value: bytes, is_source: bool) -> PlannedFile:
    if not is_source:
        return name, len(value), text_source(value)
    kind, content = parse_source(value, pipes_allowed=False)
    if kind == "data":
        return name, len(content), value
    if kind != "path":
        raise MalformedRow(f"{show(value)}: sources in a joined table are paths")
    return name, os.stat(content).st_size, path_source(content)


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
