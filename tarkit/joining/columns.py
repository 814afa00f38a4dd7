"""The columns of a joined table as those of a view: their types, and their cells as arrays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any

from tarkit.errors import TarkitError, show
from tarkit.tables.parquet import held_type, load_pyarrow, typed_array

if TYPE_CHECKING:
    from tarkit.joining.table import JoinTable

Kind = str | tuple[Any, ...] | None
"""The kind of cells: a name of Arrow; `("list", kind)`; `("struct", names, kinds)`; None for null.

Integers that a double has exactly are `short`. Of different kinds, and of others, is `json`: text of JSON."""

_SHORT, _LONG = 1 << 53, 1 << 63
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_FRACTION = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?")


class JoinedColumns:
    """A table whose columns a view has: `pipeline.view_rows.ValueTable`.

    Columns of Parquet have their types. In CSV and TSV a column is numbers if all cells are such, as JSON writes them:
    integers, or doubles if one has a fraction; any other is text. In JSON lines columns have the types of their values;
    lists have one if all items have the same, objects if all have the same members; what is left is text of JSON, in
    which text has its quotes.

    Attributes:
        table: the table.
    """

    def __init__(self, table: JoinTable) -> None:
        self.table = table
        self.name, self.row_size = table.name, table.row_size

    def schema(self) -> Any:
        """Return the schema of the columns, without those that say where samples of a view lie."""
        from tarkit.views.names import PLACES

        arrow, _ = load_pyarrow("a view")
        if self.table.stored is not None:
            fields = [(field.name, held_type(field.type)) for field in self.table.stored]
        else:
            fields = [(name, _type_of(arrow, kind)) for name, kind in self._kinds.items()]
        for name, _ in fields:
            try:
                name.encode()
            except UnicodeEncodeError:
                raise TarkitError(
                    f"{self.name}: the column {show(name)} is not UTF-8, as those of a view are"
                ) from None
        types = arrow.types
        return arrow.schema(
            [
                (name, kind.value_type if types.is_dictionary(kind) else kind)
                for name, kind in fields
                if name not in PLACES
            ]
        )

    def array(self, column: str, cells: Sequence[Any], kind: Any) -> Any:
        """Return cells of a column as an array of a type; see `ValueTable`."""
        arrow, _ = load_pyarrow("a view")
        try:
            if self.table.stored is not None:
                own = held_type(self.table.stored.field(column).type)
                made = typed_array(cells, own.value_type if arrow.types.is_dictionary(own) else own)
            else:
                of_cell = _reader(self._kinds[column], self.table.format != "jsonl")
                values = [None if cell is None else of_cell(cell) for cell in cells]
                made = arrow.array(values, _type_of(arrow, self._kinds[column]))
            return made if made.type == kind else made.cast(kind)
        except (ValueError, TypeError, OverflowError, arrow.ArrowException) as error:
            words = f"{self.name}: the column {show(column)} has values that cannot be {kind}, its type in the view"
            raise TarkitError(f"{words}: {error}", "another name in the table makes it another column") from None

    @cached_property
    def _kinds(self) -> dict[str, Kind]:
        """The kinds of all columns, of all of their cells."""
        of_cell, others = (_kind, "json") if self.table.format == "jsonl" else (_kind_of_text, "string")
        kinds: dict[str, Kind] = dict.fromkeys(self.table.names)
        for row in self.table.all_rows():
            for name, cell in zip(row.names, row.cells, strict=True):
                if cell is not None and (before := kinds[name]) not in ("json", "string"):
                    merged = _merged(before, of_cell(cell))
                    kinds[name] = others if merged == "json" else merged
                elif cell is not None and before == "string" and not isinstance(cell, (str, bytes)):
                    kinds[name] = "json"
        return kinds


def _kind_of_text(cell: bytes) -> Kind:
    """Return the kind of a cell of TSV or CSV: a number only if it is written in the way of JSON."""
    text = cell.decode("utf-8", "replace")
    if _WHOLE.fullmatch(text):
        return _kind(int(text))
    return "float64" if _FRACTION.fullmatch(text) and repr(float(text)) == text else "string"


def _kind(cell: Any) -> Kind:
    """Return the kind of a value of JSON."""
    if isinstance(cell, bool):
        return "bool_"
    if isinstance(cell, int):
        return "short" if abs(cell) <= _SHORT else "int64" if -_LONG <= cell < _LONG else "json"
    if isinstance(cell, float):
        return "float64"
    if isinstance(cell, str):
        return "string"
    if isinstance(cell, list):
        kind = reduce(_merged, map(_kind, cell), None)
        return "json" if kind == "json" else ("list", kind)
    if isinstance(cell, dict) and cell:
        kinds = tuple(map(_kind, cell.values()))
        return "json" if "json" in kinds else ("struct", tuple(cell), kinds)
    return None if cell is None else "json"


def _merged(one: Kind, other: Kind) -> Kind:
    """Return the kind of values of two kinds."""
    if one is None or one == other:
        return other
    if other is None:
        return one
    if {one, other} == {"short", "float64"}:
        return "float64"
    if {one, other} == {"short", "int64"}:
        return "int64"
    if isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0]:
        if one[0] == "list":
            kind = _merged(one[1], other[1])
            return "json" if kind == "json" else ("list", kind)
        if one[1] == other[1]:
            kinds = tuple(map(_merged, one[2], other[2]))
            return "json" if "json" in kinds else ("struct", one[1], kinds)
    return "json"


def _type_of(arrow: Any, kind: Kind) -> Any:
    if isinstance(kind, tuple):
        if kind[0] == "list":
            return arrow.list_(_type_of(arrow, kind[1]))
        return arrow.struct([(name, _type_of(arrow, of_name)) for name, of_name in zip(*kind[1:], strict=True)])
    name = {"short": "int64", "json": "string", None: "string"}.get(kind, kind)
    return getattr(arrow, str(name))()


def _reader(kind: Kind, from_text: bool) -> Callable[[Any], Any]:
    """Return the function that makes a value of a cell, other than null."""
    if from_text:
        return {"short": int, "int64": int, "float64": float}.get(str(kind), bytes.decode)
    return partial(json.dumps, ensure_ascii=False, separators=(",", ":")) if kind == "json" else lambda cell: cell
