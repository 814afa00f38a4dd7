"""tarkit mix: draw from several sources by their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from tarkit.align import align
from tarkit.cli import options as shared
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.command import Command
from tarkit.cli.console import ConsoleRun, current
from tarkit.dataset import Dataset, for_run
from tarkit.errors import TarkitError
from tarkit.mixing.mix import MixOptions, Mixture, open_sources
from tarkit.mixing.mixer import Mix, Stock, derived
from tarkit.mixing.spec import parse_mix
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.output import Output
from tarkit.pipeline.steps import ReportKeys
from tarkit.samples.fields import Fields
from tarkit.samples.sample import TarSample
from tarkit.sizes import plural
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit mix 'A-{000..099}.tar@1.45' B.tar@1 -o mixed.tar",
    "tarkit mix a.tar 'b*.tar@3' --repeat --total 1M | tarkit split -c 500",
    "tarkit mix mix.yaml --until all --rekey '{stem}/{key}' -o mixed.tar.zst",
)
COST = (
    "One pass: each drawn sample is read and written once, contents are not decoded. Memory does not grow with the "
    "data.\f "
    "Of each source one shard is open, or nstreams of them, and of each stream up to 16 MiB are in memory. A pipe that "
    "is read again is kept in temporary space; files, commands and URLs are opened again."
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("words", nargs=-1, metavar="SPEC.yaml | SOURCE[@WEIGHT]...")
@shared.parallel("Read N shards of each source ahead.")
@shared.output
@shared.rows(MixOptions)
@choice(fields=shared.fields)
def mix(
    words: tuple[str, ...],
    output: Output,
    options: Callable[..., MixOptions],
    choice: SampleChoice,
    parallel: int,
) -> None:
    """Draw from several sources by their weights.

    SOURCE is a file, a directory, a URL, -, pipe:COMMAND, a 'glob*' or 'names-{000..099}.tar', in quotes: all its
    shards are one source. WEIGHT is the number after its last @, else 1. A.tar@3 B.tar@1 takes three samples of A for
    each of B, on average. SPEC.yaml (or .json) describes a mix.

    The seed determines the draw. Options that select samples and fields act on each source, before the draw; --rekey
    acts on the mix. A sample that is drawn again gets ~2 after its key, then ~3 and so on.

    \f
    A file whose name ends in @ and a number has precedence over a weight. SPEC.yaml has a list `sources` with shards,
    weight, probability, nstreams, nrepeats, shuffle, allow_missing, rename and rekey for each, as in tarmix; or the
    `datasets` of webdataset.
    """
    run, select, fields = current(), choice.select, choice.fields
    chosen = options()
    spec = parse_mix(words, run.warn)
    run.reserve(spec.path, "the description of the mix", written=False)

    def opened(locations: list[Location], interleave: int) -> Dataset:
        return for_run(run, locations, choice.shard_slice, interleave=interleave, prefetch=parallel - 1)

    sources = open_sources(spec, opened, tell=run.tell, missing=run.policy.skips_missing)
    run.refuse([location for source in sources for location in source.data.locations])
    seed = shared.draw_seed(select.seed)
    for number, source in enumerate(sources):
        own = replace(select, seed=derived(derived(seed, number), "sample"))
        source.data = source.data.filter_samples(own, shared=True)
    mixture = Mixture(sources, seed, chosen, replace(fields, rekey=None), kept=True)
    data = mixture.dataset(spec.shuffle).change(Fields(rekey=fields.rekey)).then(ReportKeys(select))
    write_archive(data, output, run)
    assert mixture.reader is not None
    _report_end(run, mixture.reader.drawn)
    mixture.reader.drawn.close()
    if mixture.reader.repeated:
        run.tell("samples that were drawn again have ~2, ~3, ... after their keys")
    run.finish(_shares(run, mixture.reader.drawn))


def _report_end(run: ConsoleRun, drawn: Mix[TarSample]) -> None:
    """Print whether samples are left, or fewer were drawn than requested."""
    if drawn.ended is None and drawn.yielded == drawn.total:
        return
    left = [stock.name for stock in drawn.stocks if _has_more(stock)]
    if left and drawn.ended is not None:
        of = f"{len(left)} of {plural(len(drawn.stocks), 'source')}"
        run.tell(
            f"{drawn.ended.name} has no more samples, {of} have some left: "
            "--until all continues with these, --repeat reads it again"
        )
        run.facts["input_left"] = left
    if drawn.total is not None and drawn.yielded < drawn.total:
        why = "" if left else ": the sources have no more"
        run.tell(f"{plural(drawn.yielded, 'sample')} instead of {drawn.total}{why}")


def _has_more(stock: Stock[TarSample]) -> bool:
    """Return whether a source has samples that were not drawn; problems of these samples are ignored."""
    try:
        return not stock.exhausted and stock.more()
    except TarkitError:
        return True


def _shares(run: ConsoleRun, drawn: Mix[TarSample]) -> list[str]:
    """Return the lines of a table of requested and actual shares of the sources, and add them to the report."""
    rows = [("source", "weight", "asked", "got", "samples", "laps")]
    facts: list[dict[str, Any]] = []
    for stock, asked, got in zip(drawn.stocks, drawn.asked(), drawn.got(), strict=True):
        rows.append(
            (stock.name, f"{stock.weight:g}", f"{asked:.2%}", f"{got:.2%}", str(stock.yielded), str(stock.laps))
        )
        facts.append(
            {
                "source": stock.name,
                "weight": stock.weight,
                "probability": stock.probability,
                "asked": asked,
                "got": got,
                "samples": stock.yielded,
                "passed_over": stock.passed_over,
                "laps": stock.laps,
            }
        )
    run.facts["sources"] = facts
    return align(rows, right=range(1, len(rows[0])))
