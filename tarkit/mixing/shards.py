"""The shards of webdataset's `datasets` in the order in which webdataset reads them, without weights."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tarkit.errors import Usage
from tarkit.mixing.mixer import locate
from tarkit.mixing.spec import SourceSpec, read_spec
from tarkit.sizes import plural
from tarkit.streams.location import Location

SUFFIXES = (".yaml", ".yml")
"""Suffixes of specifications."""

_ORDINARY = SourceSpec("", [], None, any_order=True)
_LISTED = ("name", "words", "allow_missing", "choose", "resample")  # settings that a list of shards can express


def replace_specs(
    locations: Iterable[Location], seed: int, tell: Callable[[str], None], warn: Callable[[str], None]
) -> list[Location]:
    """Return the inputs with the shards of each specification in its place.

    As in `MultiShardSample` of webdataset 1.0.2 with `set_epoch(seed)`, those of all data sets are shuffled together,
    after `choose` and `resample`; the random numbers are the same.

    Raises:
        Usage: a data set has settings that concern its samples, such as a weight; the command mix has these.
        TarkitError: a specification is invalid, or a shard does not exist.
    """
    return [
        shard
        for location in locations
        for shard in (_shards(location.text, seed, tell, warn) if _is_spec(location) else [location])
    ]


def _is_spec(location: Location) -> bool:
    return location.kind == "path" and location.text.lower().endswith(SUFFIXES)


def _shards(path: str, seed: int, tell: Callable[[str], None], warn: Callable[[str], None]) -> list[Location]:
    order, shards = random.Random(seed), list[Location]()
    for spec in read_spec(path, warn).sources:
        for name, value in vars(_ORDINARY).items():
            if name not in _LISTED and getattr(spec, name) != value:
                message = f"{path}: {spec.name}: `{name}` concerns samples, and only shards are listed here"
                raise Usage(message, f"use the command mix: tarkit mix {path} -o OUT")
        locations = locate(spec, tell)
        if spec.choose > len(locations):
            raise Usage(f"{spec.name}: choose {spec.choose} of {plural(len(locations), 'shard')}")
        if spec.resample:
            locations = order.choices(locations, k=spec.resample)
        elif spec.choose:
            order.shuffle(locations)
            locations = locations[: spec.choose]
        shards += locations
    order.shuffle(shards)
    return shards
