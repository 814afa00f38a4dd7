"""Which samples of its inputs a command takes, and which fields of them: options that most commands have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import Any, NamedTuple

from tarkit.choosing.select import Select, Slice
from tarkit.cli import options
from tarkit.cli.command import Decorator, Function
from tarkit.cli.console import current
from tarkit.dataset import Dataset, for_run
from tarkit.joining.options import JoinOptions
from tarkit.samples.fields import Fields
from tarkit.streams.location import Location


class SampleChoice(NamedTuple):
    """What the options of Select and Fields say.

    Attributes:
        shard_slice: the samples of each input that are read.
        select: those of them that are taken.
        fields: their fields and keys.
    """

    shard_slice: Slice | None
    select: Select
    fields: Fields

    def of(self, inputs: Iterable[Location], joins: JoinOptions | None = None, **how: Any) -> Dataset:
        """Return the samples that are taken, with all fields, for the run of the command; `how` is as for `for_run`."""
        data = for_run(current(), inputs, self.shard_slice, **how)
        return (data if joins is None else joins.joined(data)).filter_samples(self.select)


def choice(*, count: Decorator | None = None, fields: Decorator | None = None) -> Decorator:
    """Return a decorator that declares what chooses samples, and passes a SampleChoice as argument `choice`.

    Args:
        count: the option for how many samples are taken, `options.count`.
        fields: the options for fields, `options.fields`.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def called(shard_slice: Slice | None, select: Select, **given: Any) -> Any:
            select.count = None if count is None else given.pop("count")
            change = Fields() if fields is None else given.pop("fields")
            return function(choice=SampleChoice(shard_slice, select, change), **given)

        decorated: Function = called
        for each in (options.problems, fields, count, options.select, options.shard_slice):
            decorated = decorated if each is None else each(decorated)
        return decorated

    return decorate
