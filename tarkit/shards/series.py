"""Series of shards as they are requested, before anything is written, and whether several can be written at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tarkit.errors import TarkitError
from tarkit.pipeline.template import ShardTemplate
from tarkit.samples.sample import TarSample
from tarkit.shards.rows import SeriesOptions
from tarkit.sizes import and_more, plural, size_words
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.files import allow_files

if TYPE_CHECKING:
    from fractions import Fraction

    from tarkit.pipeline.output import Output
    from tarkit.pipeline.run import Run
    from tarkit.shards.limits import Limits

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


@dataclass(eq=False, repr=False)
class ShardsPlan:
    """How shards are written.

    Attributes:
        output: how each shard is written.
        limits: when a shard is full, and how many there may be.
        assign: the number of the series that a sample goes to, None for none; without it there is one series.
        options: how they are written.
        digest: whether checksums are made.
        name_of: the name of the shard of a sample, in place of limits; the samples of each shard come together.
    """

    indexed: ClassVar[bool] = False  # whether an index of all shards is written, which MDS needs
    output: Output
    limits: Limits
    assign: Assign | None = None
    options: SeriesOptions = field(default_factory=SeriesOptions)
    digest: bool = False
    name_of: Callable[[TarSample], str] | None = None


def check_series(run: Run, output: Output, series: Sequence[SeriesSpec], inputs: int, option: str) -> None:
    """Check that several series can be written at once; warn when their encoders take much memory.

    Args:
        inputs: the number of inputs.
        option: the one that requests the series.

    Raises:
        TarkitError: a directory does not exist, or the system does not allow so many open files.
    """
    from tarkit.sorting.memory import default_memory

    directories = dict.fromkeys(spec.template.directory for spec in series) if output.location.kind == "path" else {}
    missing = [directory.rstrip("/") for directory in directories if directory and not os.path.isdir(directory)]
    if missing:
        raise TarkitError(f"{and_more(missing)}: no such directory", f"mkdir -p {' '.join(missing[:9])}")
    most = allow_files(OPEN_EACH * len(series) + inputs)
    if most < len(series):
        message = f"{option}: {plural(len(series), 'shard')} at once, but the system allows {most} to be open"
        raise TarkitError(message, "raise the limit with ulimit -n, or write some of them in each of several runs")
    codecs = [output.codec[0] if output.codec else codec_by_suffix(spec.template.text) for spec in series]
    needed = sum(HEAVY.get(codec, 1 << 20) for codec in codecs if codec and codec != "none")
    if needed > default_memory():
        take = plural(len(series), "compressed shard takes", "compressed shards at once take")
        run.warn(f"{take} about {size_words(needed)} of memory")
