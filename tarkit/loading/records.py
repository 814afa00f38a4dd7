"""Samples as training code gets them: dicts, perhaps with decoded values, perhaps in batches."""

from __future__ import annotations

from typing import Any

from tarkit.errors import Problem, TarkitError, show
from tarkit.loading.settings import Record
from tarkit.pipeline.sample import Sample
from tarkit.problems import Policy
from tarkit.samples.names import FieldDict
from tarkit.samples.values import MISFITS


def as_record(sample: Sample) -> Record | Problem:
    """Return the fields of a sample as a dict, with its key as `__key__` and the name of its shard as `__url__`.

    Return the problem of a field that cannot be decoded, or has no content: `check_left_out` decides about it.

    Raises:
        Problem: any other.
        TarkitError: the name of a field is one of these two.
    """
    try:
        fields = (sample._small() if type(sample) is Sample else None) or dict(sample.items())
    except Problem as problem:
        return unread(problem)
    record = FieldDict({"__key__": sample.key, "__url__": sample.shard, **fields})
    if len(record) != len(fields) + 2:
        words = "has a field __key__ or __url__, the names for its key and its shard"
        raise TarkitError(f"{sample.shard}: the sample {show(sample.key)} {words}", "select other fields")
    return record


def unread(error: Exception) -> Problem:
    """Return the problem of a field; raise any other error."""
    if isinstance(error, Problem) and error.name in MISFITS:
        return error
    raise error


def check_left_out(problem: Problem, policy: Policy) -> None:
    """Raise the problem of a sample, unless the policy leaves the sample out."""
    if problem.name in policy.allowed or policy.apply(problem) == "keep":  # no other value could stand in for it
        raise problem


def as_tuple(record: Record, fields: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the values of these fields. Raises TarkitError if the sample lacks one."""
    try:
        return tuple([record[name] for name in fields])
    except KeyError as error:
        message = f"{record['__url__']}: {show(record['__key__'])} has no {show(error.args[0])}, a part of its tuple"
        raise TarkitError(message, "without as_tuple samples may lack fields") from None


def collate_lists(items: list[Any]) -> Any:
    """Return a dict with a list for each field, for tuples a tuple of lists; other values stay a list.

    Raises:
        TarkitError: samples have different fields, or tuples different lengths.
    """
    first = items[0]
    if all(isinstance(item, dict) for item in items):
        for item in items:
            if item.keys() != first.keys():
                differ = ", ".join(map(show, sorted(item.keys() ^ first.keys())))
                names = " and ".join(show(each.get("__key__", "a dict")) for each in (first, item))
                raise TarkitError(
                    f"{names} cannot be in one batch: one of them lacks {differ}",
                    "select the fields that all have, or give collate",
                )
        return {field: [item[field] for item in items] for field in first}
    if all(type(item) is tuple for item in items):
        if len(lengths := {len(item) for item in items}) > 1:
            raise TarkitError(
                f"tuples of different lengths cannot be in one batch: {min(lengths)}, {max(lengths)}", "give collate"
            )
        return tuple(map(list, zip(*items, strict=True)))
    return items
