"""Options about tables: those that samples are joined with, those that are inputs, and fields that columns become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tarkit.errors import Usage, spell, spell_from
from tarkit.joining.spec import JoinSpec, OnDuplicate
from tarkit.options import Options, row
from tarkit.pipeline.rows import parse_set
from tarkit.streams.location import Location, TableWords, has_columns, is_view

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Chain
    from tarkit.tables.assignments import Assignment

Joinable = TypeVar("Joinable", bound="Chain")


class JoinOptions(Options):
    """A table whose rows go with samples: `Dataset.join`.

    Attributes:
        spec: what is joined; None for nothing.
    """

    join: str | None = row(
        "Tables",
        "--join",
        metavar="TABLE[:COLUMN]",
        role="column",
        help="Join the rows of TABLE by key.",
        more="TABLE is csv, tsv, jsonl, Parquet, a view, or plain archives. COLUMN, by default __key__, has keys or "
        "file names. Other columns are values, as in --where, before fields; fields that they become, or a view or an "
        "archive adds, are not yet there.",
    )
    join_by: str = row(
        "Tables",
        "--join-by",
        default="key",
        detail=True,
        complete="values",
        metavar="VALUE",
        help="Look up the key, its stem, or json.id.",
        more="Any value of samples, as in -f of tsv: a field, a path into JSON, a column of a view. stem is the last "
        "part of a key, of the name of a file, and of the cell: 0001 of train/0001, 0001.jpg of /data/0001.jpg.",
    )
    on_duplicate: OnDuplicate = row(
        "Tables",
        "--on-duplicate",
        default="error",
        detail=True,
        choices=OnDuplicate,
        metavar="HOW",
        help="Of two rows: error, first, last.",
        more="What to do about two rows of one sample.",
    )

    def check(self) -> None:
        """Raise Usage for options that require another, and a table of another kind."""
        for name, default in (("join_by", "key"), ("on_duplicate", "error")):
            if self.join is None and getattr(self, name) != default:
                raise Usage(f"{spell(name)} requires {spell('join')}")
        self.spec: JoinSpec | None = None
        if self.join is not None:
            self.spec = JoinSpec.parse(self.join, self.join_by, self.on_duplicate)

    def joined(self, data: Joinable) -> Joinable:
        """Return the samples with the rows of the table."""
        if self.spec is None:
            return data
        from tarkit.joining.join import Join

        return data.then(Join(self.spec))


class TableInputOptions(Options):
    """Which fields columns become, and how rows of a Parquet table are samples that is an input in place of an archive.

    Attributes:
        assignments: the fields; None: by the columns.
    """

    set: str | Iterable[str] | None = row(
        "Tables",
        "--set",
        many=True,
        metavar="FIELDS",
        help="Set fields: 'jpg:image cls json:{a,b}'.",
        more="FIELD:COLUMN, of an INPUT in .parquet, .tfrecord or .mds, of a view, or of --join TABLE; json:{A,B} and "
        "json.A set members, the others stay. Null in a cell removes the field. By default a column of an INPUT is the "
        "field of its name, a picture or a sound that of its format, and the number of a class cls; columns of a "
        "joined table are fields, which must be new ('' for none), but values of an OUT that is a view; those of a "
        "view are values. Samples of archives beside such inputs stay as they are.",
        parse=parse_set,
    )
    key: str | None = row(
        "Tables",
        "--key",
        metavar="COLUMN",
        help="Column with keys, or '{id:06d}'.  [default: __key__]",
        more="A column of INPUT. Without it a key is the name of the file and the number of the row.",
    )

    def check(self) -> None:
        """Raise Usage for words, or a template of keys, of another form."""
        self.words = None if self.set is None else str(self.set)
        assignments = check_words(self.words or "", self.key) if self.words or self.key is not None else []
        self.assignments = None if self.words is None else assignments

    def applied(self, inputs: Sequence[Location], joins: JoinOptions | None = None) -> list[Location]:
        """Return inputs, tables among them with these options; the words are for a table that is joined.

        Raises:
            Usage: there is no table.
        """
        words = "" if joins is not None and joins.spec is not None else self.words or ""
        if not words and self.key is None:
            return list(inputs)
        if not any(map(has_columns, inputs)):
            others = f", and there is no {spell('join')}" if words and joins is not None else ""
            option = spell("set") if words else spell("key")
            message = f"{option} is for tables (.parquet, .tfrecord, .mds), and no input is one{others}"
            raise Usage(message, f"{spell_from('tfrecord')} says that an input is one")
        return [each._replace(table=TableWords(words, self.key)) for each in inputs]

    def with_fields(self, data: Joinable, joins: JoinOptions | None = None) -> Joinable:
        """Return the samples with the fields that columns become, of views, or of the table that is joined."""
        joined = joins is not None and joins.spec is not None
        if self.assignments == [] or not (joined or (self.assignments and any(map(is_view, data.locations)))):
            return data
        from tarkit.joining.set_fields import SetFields

        return data.then(SetFields(self.assignments))


def check_words(assignments: str, key: str | None) -> list[Assignment]:
    """Return what words of --set mean. Raises Usage for those, or a template of keys, that have another form."""
    from tarkit.tables.assignments import parse_assignments
    from tarkit.tables.reader import KeyTemplate

    if key is not None:
        KeyTemplate(key)
    return parse_assignments(assignments)
