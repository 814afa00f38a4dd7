"""The library of Parquet files, and file objects for it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tarkit.bytereader import SeekableFile
from tarkit.errors import TarkitError, load_library, show
from tarkit.streams.source import Source
from tarkit.threads import mark_native_threads

if TYPE_CHECKING:
    from decimal import Decimal

SAMPLED = 4096  # rows by which a column has a dictionary or not, if its type is one of these
_COUNTED = ("is_integer", "is_floating", "is_string", "is_large_string", "is_binary", "is_large_binary")


def load_pyarrow(purpose: str) -> tuple[Any, Any]:
    """Return the libraries pyarrow and pyarrow.parquet, which `purpose` needs. Raises MissingLibrary."""
    pyarrow = load_library("pyarrow", purpose, "pyarrow", "parquet")
    mark_native_threads("pyarrow")
    return pyarrow, load_library("pyarrow.parquet", purpose, "pyarrow", "parquet")


def load_compute() -> Any:
    """Return pyarrow.compute, where pyarrow is loaded."""
    return load_library("pyarrow.compute", "a view", "pyarrow", "parquet")


@contextmanager
def value_errors(name: str, column: str) -> Iterator[None]:
    """Raise TarkitError for values of a column that are none of tarkit, and for text that is not UTF-8."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise TarkitError(f"{name}: the column {show(column)} has no values for tarkit: {error}") from None


@contextmanager
def parquet_errors(name: str) -> Iterator[None]:
    """Raise TarkitError for what pyarrow raises where a file is damaged."""
    import pyarrow

    try:
        yield
    except pyarrow.ArrowException as error:
        raise TarkitError(f"{name}: damaged, or not a Parquet file: {_one_line(error)}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise TarkitError(f"{name}: damaged, or not a Parquet file: {_one_line(error)}") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


class PyarrowFile(io.RawIOBase):
    """A file object for pyarrow, whose bytes are taken out while it is written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        self._position += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._position

    def writable(self) -> bool:
        return True

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class SourceFile(SeekableFile):
    """A file object for pyarrow that reads a source, such as a file or an object of a store."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.read, source.size or 0)


def table_writer(file: Any, first: Any, **how: Any) -> Any:
    """Return a writer of compressed tables, of which `first` is one; `how` is for pyarrow.

    A column whose values seldom come again there has no dictionary: to make one takes longer than all the rest.
    """
    arrow, parquet = load_pyarrow("Parquet")
    few = first.slice(0, SAMPLED)
    single = {
        name
        for name, column in zip(few.schema.names, few.columns, strict=True)
        if any(is_kind(column.type) for is_kind in map(arrow.types.__getattribute__, _COUNTED))
        and 2 * len(column.unique()) > len(few)
    }
    made = io.BytesIO()
    parquet.write_metadata(first.schema, made)
    columns = parquet.read_metadata(made).schema
    paths = [columns.column(number).path for number in range(len(columns))]
    how = {"compression": "zstd", "use_dictionary": [path for path in paths if path not in single], **how}
    return parquet.ParquetWriter(file, first.schema, **how)


def dataset_of(source: Source, name: str) -> Any:
    """Return a Parquet file as a dataset of pyarrow, which reads neighbours of a source together; no column is encoded.

    Raises:
        TarkitError: it is no Parquet file.
    """
    arrow, _ = load_pyarrow("Parquet")
    dataset = load_library("pyarrow.dataset", "Parquet", "pyarrow", "parquet")
    options = dataset.ParquetFragmentScanOptions(pre_buffer=True)
    format = dataset.ParquetFileFormat(default_fragment_scan_options=options)
    with parquet_errors(name):
        part = format.make_fragment(arrow.PythonFile(SourceFile(source), mode="r"))
        schema = part.physical_schema
    plain = [(one.name, one.type.value_type if arrow.types.is_dictionary(one.type) else one.type) for one in schema]
    return dataset.FileSystemDataset([part], arrow.schema(plain), format)


def plain_values(column: Any) -> list[Any]:
    """Return values of a column as JSON has them: times are text, decimals numbers, bytes text in UTF-8.

    A map is a list of pairs. No value loses digits.

    Raises:
        ValueError: a value that cannot be one of these, such as a decimal with more digits than a number has.
    """
    arrow, _ = load_pyarrow("Parquet")
    kind = _plain_type(arrow, column.type)
    values = (column if kind == column.type else column.cast(kind)).to_pylist()
    return [_plain(value) for value in values] if "binary" in str(kind) or "decimal" in str(kind) else values


def typed_array(values: Sequence[Any], kind: Any) -> Any:
    """Return an array of a type, of values that are as those of `plain_values`.

    Raises:
        ValueError, TypeError, ArrowException: values that the type does not hold.
    """
    arrow, _ = load_pyarrow("Parquet")
    if arrow.types.is_decimal(kind):
        from decimal import Decimal

        values = [None if value is None else Decimal(repr(value)) for value in values]
    if arrow.types.is_time(kind):  # a part of a time stamp: text alone cannot be cast
        days = arrow.array([None if value is None else f"1970-01-01 {value}" for value in values], arrow.string())
        return days.cast(arrow.timestamp(kind.unit)).cast(kind)
    plain = _plain_type(arrow, kind)
    made = arrow.array(values, plain)
    return made if plain == kind else made.cast(kind)


def _plain_type(arrow: Any, kind: Any) -> Any:
    types = arrow.types
    if types.is_dictionary(kind):
        return _plain_type(arrow, kind.value_type)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return arrow.string()
    if types.is_duration(kind):
        return arrow.int64()
    if types.is_fixed_size_binary(kind):
        return arrow.binary()
    if types.is_map(kind):
        return arrow.map_(_plain_type(arrow, kind.key_type), _plain_type(arrow, kind.item_type))
    if _is_list(types, kind):
        return arrow.list_(_plain_type(arrow, kind.value_type))
    if types.is_struct(kind):
        members = [kind.field(number) for number in range(kind.num_fields)]
        return arrow.struct([arrow.field(member.name, _plain_type(arrow, member.type)) for member in members])
    return kind


def held_type(kind: Any) -> Any:
    """Return a type with text and bytes in one buffer: few functions of Arrow know views of pieces of several."""
    arrow, _ = load_pyarrow("Parquet")
    types = arrow.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return arrow.string() if types.is_string_view(kind) else arrow.binary()
    if "_view" not in str(kind):
        return kind
    if types.is_dictionary(kind):
        return arrow.dictionary(kind.index_type, held_type(kind.value_type), kind.ordered)
    if types.is_map(kind):
        return arrow.map_(held_type(kind.key_type), held_type(kind.item_type))
    if types.is_struct(kind):
        return arrow.struct([field.with_type(held_type(field.type)) for field in map(kind.field, range(len(kind)))])
    if _is_list(types, kind) and held_type(kind.value_type) != kind.value_type:
        return arrow.list_(kind.value_field.with_type(held_type(kind.value_type)))
    return kind


def held(column: Any) -> Any:
    """Return a column with the type of `held_type`."""
    kind = held_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _is_list(types: Any, kind: Any) -> bool:
    names = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")  # the last are of newer versions
    return any(getattr(types, f"is_{name}")(kind) for name in names if hasattr(types, f"is_{name}"))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if (decimal := sys.modules.get("decimal")) is not None and isinstance(value, decimal.Decimal):
        return _number(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _number(value: Decimal) -> int | float:
    if value == 0 or value.as_tuple().exponent >= 0:  # type: ignore[operator]
        return int(value)
    number = float(value)
    if type(value)(repr(number)) != value:
        raise ValueError(f"the decimal {value} has more digits than a number has")
    return number
