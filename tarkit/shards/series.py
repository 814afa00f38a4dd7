"""Series of shards as they are requested, before anything is written, and whether several can be written at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tarkit.errors import TarkitError
from tarkit.pipeline.template import ShardTemplate
from tarkit.samples.sample import TarSample
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.files import allow_files

if TYPE_CHECKING:
    from fractions import Fraction

PART = "{part}"  # in a template, the name of the part
OPEN_EACH = 18  # files that one series may have open: a shard, an input, and those that a copying thread has queued
HEAVY = {"xz": 95 << 20, "bz2": 8 << 20, "zst": 3 << 20}  # memory of an encoder at its default level, about, in bytes

Assign = Callable[[TarSample], int | None]
"""Returns the number of the series that a sample goes to, None for no series."""


class SeriesSpec(NamedTuple):
    """One series of shards: the name of its part or category, its template, and its share of the samples, if given."""

    name: str
    template: ShardTemplate
    share: Fraction | None = None


def check_directories(series: Sequence[SeriesSpec]) -> None:
    """Raise TarkitError when the directory of a series does not exist."""
    directories = dict.fromkeys(spec.template.directory for spec in series)
    missing = [directory.rstrip("/") for directory in directories if directory and not os.path.isdir(directory)]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise TarkitError(f"{missing[0]}{more}: no such directory", f"mkdir -p {' '.join(missing[:9])}")


def check_open_files(series: Sequence[SeriesSpec], inputs: int, option: str) -> None:
    """Raise TarkitError when the system does not allow so many open files: a shard of each series, and the inputs.

    `option` is the one that requests the series.
    """
    most = allow_files(OPEN_EACH * len(series) + inputs)
    if most < len(series):
        what = f"{option}: {len(series)} shards at once, but the system allows {most} to be open"
        raise TarkitError(what, "raise the limit with ulimit -n, or write some of them in each of several runs")


def encoder_memory(series: Sequence[SeriesSpec], codec: str | None) -> int:
    """Return how many bytes the encoders of all series take, about; without `codec` each is that of its suffix."""
    codecs = [codec or codec_by_suffix(spec.template.text) for spec in series]
    return sum(HEAVY.get(each, 1 << 20) for each in codecs if each and each != "none")
