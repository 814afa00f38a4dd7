"""Options that are declared once: a function of the API has an argument for each, with the same default."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tarkit
from tarkit.checking.options import CheckOptions
from tarkit.display.inspect import StatsOptions
from tarkit.errors import Usage
from tarkit.export.table import TableOptions
from tarkit.extraction.extract import ExtractOptions
from tarkit.indexing.index import IndexOptions
from tarkit.jobs.options import JobOptions
from tarkit.mixing.mix import MixOptions
from tarkit.options import OptionRow, Options
from tarkit.packing.create import CreateOptions
from tarkit.packing.options import ShardOptions
from tarkit.pipeline.selection import ProblemOptions
from tarkit.proc.function import CallFunction
from tarkit.proc.shell import RunCommand
from tarkit.proc.step import SampleWork, WorkOptions
from tarkit.shards.split import SplitOptions
from tarkit.sorting.order import ShuffleOptions, SortOptions
from tarkit.stores.store import StoreOptions
from tests._tools import each_row

COMMAND_ONLY = {
    CheckOptions: {"json", "list_bad"},
    IndexOptions: {"verify"},
    JobOptions: {"timeout", "dry_run", "shard_index", "emit"},
    SortOptions: {"check_only"},
    ShuffleOptions: {"epochs", "buffer"},
    ShardOptions: {"show_keys", "draw_seed"},
    StatsOptions: {"total", "json", "html"},
}
"""Options that a command has, and no function."""


@each_row(
    ("function", "kind"),
    [
        (tarkit.Dataset.split, SplitOptions),
        (tarkit.Dataset.sort, SortOptions),
        (tarkit.Dataset.extract, ExtractOptions),
        (tarkit.Dataset.table, TableOptions),
        (tarkit.Dataset.shuffle, ShuffleOptions),
        (tarkit.Dataset.stats, StatsOptions),
        (tarkit.stats, StatsOptions),
        (tarkit.check, CheckOptions),
        (tarkit.create, CreateOptions),
        (tarkit.index, IndexOptions),
        (tarkit.map_shards, JobOptions),
        (tarkit.mix, MixOptions),
        (tarkit.open, ProblemOptions),
        (tarkit.shard, ShardOptions),
    ],
)
def test_arguments(function: Callable[..., Any], kind: type[Options]) -> None:
    """Each option is an argument with the same default."""
    parameters = inspect.signature(function).parameters
    options = {name: value for name, value in kind.defaults.items() if name not in COMMAND_ONLY.get(kind, ())}
    assert options.keys() <= parameters.keys()
    for name, default in options.items():
        if parameters[name].default is not inspect.Parameter.empty:
            assert parameters[name].default == default, name


def test_work_options() -> None:
    """Arguments of a step that processes samples are keywords of `map`, `proc` and `worker`."""
    assert WorkOptions.__annotations__.keys() == {*SampleWork.defaults, "storage_options"}
    for function, kind in ((tarkit.Dataset.map, CallFunction), (tarkit.Dataset.proc, RunCommand)):
        own = kind.rows.keys() - SampleWork.rows.keys()
        assert own <= inspect.signature(function).parameters.keys()


def test_an_unknown_option() -> None:
    with pytest.raises(TypeError, match="IndexOptions has no options other, some"):
        IndexOptions(some=1, other=2)  # type: ignore[call-arg]


def test_values_of_python() -> None:
    """A value is checked in the same way, whether it is that of an argument or of `storage_options`."""
    with pytest.raises(Usage, match=r"few=0: it is at least 1"):
        OptionRow("Section", "--few", help="Help.", at_least=1).accept("few", 0)
    with pytest.raises(TypeError, match=r"storage_options\['net_retries'\]='x': a whole number is needed, not str"):
        StoreOptions(retries="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"storage_options\['anonymous'\]='yes': True or False is needed, not str"):
        StoreOptions(anonymous="yes")  # type: ignore[arg-type]
    assert StoreOptions(retries=1) == StoreOptions().replace(retries=1) != StoreOptions()
