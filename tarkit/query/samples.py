"""Samples as a table for DuckDB: where they lie, and the values that a query asks for, in a temporary Parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from tarkit.errors import Problem, TarkitError
from tarkit.export.columns import CELL, KEY, MISSING, Column, Row
from tarkit.export.parquet import MixedColumn, parquet_pieces
from tarkit.export.table import is_plain_input
from tarkit.media.coding import Coder
from tarkit.pipeline.chain import Archives, Chain
from tarkit.pipeline.locator import Locator
from tarkit.pipeline.run import Run
from tarkit.pipeline.steps import Flow
from tarkit.pipeline.view_writer import ViewWriter
from tarkit.problems import PolicyCounts, PolicyFork
from tarkit.samples.lookup import FieldLookup
from tarkit.samples.sample import SampleBatch, TarSample, singly
from tarkit.samples.values import Name
from tarkit.streams.location import Location
from tarkit.streams.sink import open_sink
from tarkit.tables.parquet import load_pyarrow
from tarkit.views.names import SHARD, START, STOP

TEXTS = ("text", "integer", "json", "lines")  # kinds of fields that have a value; contents of others are bytes
_coder = Coder()


class AskedColumn:
    """A value that a query asks for.

    Attributes:
        name: its name.
        form: `value`; `text`, of fields as it is there; or `bytes`.
        present: whether a sample had it.
        missing: the problem of the first that had not.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.form: Literal["value", "text", "bytes"] = "value"
        self.present = False
        self.missing: Problem | None = None
        self._name = Name(name)
        kind = _coder.kind(name) if self._name.may_be_field else None
        self._may_have_bytes = kind is None and self._name.may_be_field
        if kind is not None and kind.name not in TEXTS:
            self.form = "bytes"

    def cell(self, lookup: FieldLookup) -> Any:
        """Return the value in a sample: numbers, text, or JSON; bytes of other contents; MISSING where it has none.

        Raises:
            Problem: `bad-field`, `sparse-entry`.
        """
        try:
            value = self._name.cell(lookup, CELL) if self.form == "bytes" else self._value(lookup)
        except Problem as problem:
            if problem.name != "missing-field":
                raise
            self.missing = self.missing or problem
            return MISSING
        self.present = True
        return MISSING if value is None else value

    def widen(self) -> bool:
        """Take a form that has more values; return False if there is none."""
        if self.form == "bytes" or (self.form == "text" and not self._may_have_bytes):
            return False
        self.form = "text" if self.form == "value" else "bytes"
        return True

    @property
    def column(self) -> Column:
        """The column of the temporary file."""
        kind = {"value": "", "text": "string", "bytes": "binary"}[self.form]
        return Column(self.name, (Name(self.name, exact=True),), kind=kind)

    def _value(self, lookup: FieldLookup) -> Any:
        try:
            return self._name.value(lookup) if self.form == "value" else self._name.words(lookup)
        except Problem as problem:
            if problem.name != "bad-field" or not self._may_have_bytes or lookup.find(self._name.field) is None:
                raise
        return self._name.cell(lookup, CELL)


class SampleCounts:
    """Samples and problems of a table, which may be read several times, of the last time.

    Args:
        others: the counts of all tables of the query, this one among them: `maxerr` is for all together.
    """

    def __init__(self, others: list[SampleCounts]) -> None:
        self._others = others
        others.append(self)
        self._samples = 0
        self._problems: PolicyCounts | None = None

    @contextmanager
    def anew(self, run: Run) -> Iterator[None]:
        """Count what is read in the block in place of what was read before."""
        policy, before = run.policy, run.samples - self._samples
        passed = sum(other._problems.passed for other in self._others if other is not self and other._problems)
        fork = PolicyFork(policy.allowed, policy.skipped, policy.maxerr - passed, strict=policy.strict)
        run.policy = fork
        run.samples = before
        try:
            yield
        finally:
            run.policy = policy
            self._samples, self._problems = run.samples - before, fork.counted

    def count(self, run: Run) -> None:
        """Add the problems to those of a run."""
        if self._problems is not None:
            run.policy.absorb(self._problems)
            self._problems = None


def usual_columns(locations: Sequence[Location]) -> list[str]:
    """Return the columns that archives have without being asked: the place of a sample, if all of them are plain."""
    return [KEY, SHARD, START, STOP] if all(map(is_plain_input, locations)) else [KEY]


def write_samples(
    path: str,
    locations: Sequence[Location],
    asked: Sequence[AskedColumn],
    run: Run,
    places: bool,
    tmpdir: str,
    counts: SampleCounts,
) -> None:
    """Write a row for each sample of archives or views, in order.

    Args:
        path: the Parquet file.
        locations: the archives or views.
        asked: the values.
        run: where problems and progress go.
        places: whether there are columns with the key and the place of a sample.
        tmpdir: the directory of temporary files.
        counts: those of the table, of the last time that it was read.

    Raises:
        TarkitError: no sample has one of the values.
    """
    while True:
        try:
            with counts.anew(run):
                _write(path, locations, asked, run, places, tmpdir)
            break
        except MixedColumn as error:  # such as numbers in the first rows, and text in later ones
            mixed = [one for one in asked if one.name == error.column and one.widen()]
            if not mixed or any(location.kind in ("stdin", "pipe", "object") for location in locations):
                raise
            run.note(f"{error.column}: values of several types: all are {mixed[0].form}")
    for one in asked:
        if not one.present and one.missing is not None:
            raise TarkitError(f"no sample has {one.name!r}: {one.missing.detail}", one.missing.hint)


def _write(
    path: str, locations: Sequence[Location], asked: Sequence[AskedColumn], run: Run, places: bool, tmpdir: str
) -> None:
    data = Chain(Archives(tuple(locations)), lambda: run)
    heads = usual_columns(locations) if places else []
    batches, flow = data.batches(run, moves=False, contents=False, directory=tmpdir)
    if len(heads) > 1 and not asked:
        _write_places(path, batches, flow, tmpdir)
        return
    kinds = {SHARD: "string", START: "int64", STOP: "int64"}
    columns = [Column(name, (Name(name),), kind=kinds.get(name, "")) for name in heads]
    locator = Locator(os.path.realpath("."))

    def rows() -> Iterator[Row]:
        for sample in singly(batches):
            if sample.key is not None:
                values = _values(sample, asked, run)
                run.samples += 1
                if values is not None:  # behind them a sample is complete
                    place = (sample.key, locator.name(sample.source), sample.start, sample.stop) if heads[1:] else ()
                    yield [*(place or (sample.key,) * len(heads)), *values]

    shown = run.draw("reading", rows(), lambda: run.bytes, lambda: run.samples)
    with flow, open(path, "wb") as file:
        for piece in parquet_pieces([*columns, *(one.column for one in asked)], shown):
            file.write(piece)
        flow.finish()


def _write_places(path: str, batches: Iterator[SampleBatch], flow: Flow, tmpdir: str) -> None:
    """Write where samples lie: batches become columns, at several times the speed of rows."""
    arrow, _ = load_pyarrow("SQL")
    sink = open_sink("path", path)
    with flow, ViewWriter(sink, os.path.realpath("."), arrow.schema([]), tmpdir) as writer:
        for batch in flow.run.watch("reading", batches, lambda: writer.position, None):
            if batch.key is not None:
                writer.add(batch)
        flow.finish()
        writer.finish()


def _values(sample: TarSample, asked: Sequence[AskedColumn], run: Run) -> Row | None:
    """Return the values of a sample; None if the policy leaves it out."""
    lookup = FieldLookup(sample)
    row: Row = []
    for one in asked:
        try:
            row.append(one.cell(lookup))
        except Problem as problem:
            if run.policy.apply(problem) == "drop":
                return None
            row.append(MISSING)
    return row
