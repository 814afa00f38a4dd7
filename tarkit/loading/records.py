"""Samples as training code gets them: dicts, perhaps with decoded values, perhaps in batches."""

from __future__ import annotations

from typing import Any

from tarkit.errors import Problem, TarkitError, show
from tarkit.loading.settings import Record
from tarkit.pipeline.sample import Sample
from tarkit.problems import Policy
from tarkit.samples.names import FieldDict
from tarkit.samples.values import MISFITS


def as_record(sample: Sample, policy: Policy) -> Record | None:
    """Return the fields of a sample as a dict, with its key as `__key__` and the name of its shard as `__url__`.

    Return None for a sample that the policy leaves out, since a field cannot be decoded or has no content.

    Raises:
        Problem: there is such a field, and the policy does not leave the sample out.
        TarkitError: the name of a field is one of these two.
    """
    try:
        fields = (sample._small() if type(sample) is Sample else None) or dict(sample.items())
    except Problem as problem:
        allowed = problem.name in policy.allowed  # no other value could stand in for it
        if problem.name not in MISFITS or allowed or policy.apply(problem) == "keep":
            raise
        return None
    record = FieldDict({"__key__": sample.key, "__url__": sample.shard, **fields})
    if len(record) != len(fields) + 2:
        words = "has a field __key__ or __url__, the names for its key and its shard"
        raise TarkitError(f"{sample.shard}: the sample {show(sample.key)} {words}", "select other fields")
    return record


def collate_lists(records: list[Record]) -> dict[str, list[Any]]:
    """Return a dict with a list for each field. Raises TarkitError if the samples have different fields."""
    first = records[0]
    for record in records:
        if record.keys() != first.keys():
            differ = ", ".join(map(show, sorted(record.keys() ^ first.keys())))
            message = f"{show(first['__key__'])} and {show(record['__key__'])} cannot be in one batch"
            raise TarkitError(
                f"{message}: one of them lacks {differ}", "select the fields that all have, or give collate"
            )
    return {field: [record[field] for record in records] for field in first}
