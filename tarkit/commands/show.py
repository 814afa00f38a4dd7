"""tarkit show: show the contents of archives."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import click

from tarkit.api.output import Output, text_output
from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.show_views import ShowOptions, view
from tarkit.errors import Usage
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.fields import Fields
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit show train-000000.tar",
    "tarkit show shards/ --match '^dog/' --images",
    "tarkit show 'train-{000..009}.tar' --html gallery.html",
)
COST = (
    "One pass, which ends with the last sample that is shown. A few kilobytes of each entry are read into memory; "
    "with --images and --html whole pictures of up to 16 MiB; with --names nothing. Temporary space is used only for "
    "-f and for streams with samples of over 16 MiB."
)

_NO_SAMPLE = "no sample found: no entry has a dot in its file name, which ends the key"


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.archives(options.null("Names in LIST, and of --names, end with NUL."))
@options.shard_slice
@options.select
@option(
    "Select",
    "-c",
    "--count",
    type=click.IntRange(0),
    metavar="N",
    help="The first N of these.  [default: 10, see above]",
)
@option("Select", "--all", "every", is_flag=True, help="All of them.")
@options.fields
@option("Show", "--names", is_flag=True, help="Print names: PATH -> KEY | FIELD; with -0 raw.")
@option("Output", "--json", "as_json", is_flag=True, help="An object on a line for each sample.")
@option("Show", "--images", is_flag=True, help="Draw the pictures in the terminal (requires tarkit[images]).")
@option(
    "Show",
    "--draw",
    type=click.Choice(["kitty", "iterm", "sixel", "blocks"]),
    metavar="HOW",
    help="As kitty, iterm, sixel or blocks.  [default: detected]",
)
@option("Output", "--html", metavar="FILE", help="Write a page with pictures, search and histograms to FILE.")
@option("Show", "--by", metavar="FIELD", help="The class, for --html and --images: cls, json.label.")
@option("Show", "--classes", metavar="FILE", help="Names of numbered classes.  [default: classes.txt]")
@options.problems
def show(
    inputs: list[Location],
    shard_slice: Slice | None,
    select: Select,
    count: int | None,
    every: bool,
    fields: Fields,
    names: bool,
    as_json: bool,
    images: bool,
    draw: str | None,
    html: str | None,
    by: str | None,
    classes: str | None,
    policy: Policy,
) -> None:
    """Show the contents of archives: fields, sizes, texts, pictures.

    INPUT is a file, a directory, -, pipe:COMMAND, 'glob*' or 'name-{000..099}.tar'; the default is stdin.

    The output is a panel for each sample in a terminal, plain lines in a pipe. The kind of a field is detected by its
    first bytes; pickles are never opened. Without -c and --all the first 10 samples are shown, 200 on a page of --html,
    and all with --names and --json. Nothing after them is read.

    \f
    Names are escaped: \\\\ is a backslash, \\xNN a byte that is not printable text. With --names and -0 they are raw:
    path, key, field and size of an entry, each ended by NUL.

    The page of --html is one file that needs no network: pictures with their captions and classes, sounds, videos,
    arrays. Reducing pictures of over 64 KiB requires tarkit[images]; without it, only pictures of up to 32 KiB are
    shown. Without --by, classes are in fields or members of JSON named cls, class, label or category.
    """
    chosen = [
        name for name, on in (("names", names), ("json", as_json), ("images", images or draw), ("html", html)) if on
    ]
    if len(chosen) > 1:
        raise Usage(f"--{chosen[0]} and --{chosen[1]} exclude each other", "choose one view")
    if every and count is not None:
        raise Usage("--all and --count exclude each other")
    nul = bool(click.get_current_context().params.get("null")) and names
    view_: Any = chosen[0] if chosen else "lines"
    if (by or classes) and view_ not in ("html", "images"):
        raise Usage("--by and --classes require --html or --images")
    run = current()
    run.reserve(classes, "the class names", written=False)
    class_names: Sequence[str] = ()
    if view_ in ("html", "images"):
        from tarkit.inspecting.classes import find_class_names

        class_names = find_class_names(classes, inputs)
    options_ = ShowOptions(select, fields, view_, shard_slice, count, every, nul, draw, by, class_names)
    run_show(run, inputs, options_, policy, html)


def run_show(
    run: ConsoleRun, locations: list[Location], chosen: ShowOptions, policy: Policy, html: str | None = None
) -> None:
    """Show the selected samples, also those before an error; a page is written only without an error."""
    output = text_output() if html is None else _page(run, html)
    if chosen.view == "images":
        from tarkit.views.pictures import require

        require()
    if html is None and os.isatty(1):
        run.progress = False  # the samples are on the same terminal
    inputs = DatasetReader(
        locations,
        policy,
        moves=False,
        partial=html is None,
        shard_slice=chosen.shard_slice,
        tmpdir=run.scratch(output.directory),
        announce=lambda name: run.note(f"reading {name}"),
    )
    samples = chosen.fields(chosen.select(iter(inputs)), policy)
    with output.open(locations) as sink:
        shown = view(chosen, run, sink, locations)
        try:
            for sample in run.watch(_first(samples, chosen.limit), lambda: run.bytes, None):
                shown.add(sample)
                run.bytes += sample.content
        finally:
            shown.end()
        keys = chosen.select.keys
        if run.samples != chosen.limit or (keys and keys.require_all):  # else reading ended early
            options.report_keys(run, chosen.select)
        shown.finish()
    if run.samples == 0:
        run.tell(_NO_SAMPLE if chosen.select.all and chosen.limit != 0 else "no sample selected")
    elif run.samples == chosen.limit and chosen.count is None:
        run.tell(f"the first {run.samples} samples; -c N shows N, --all shows all")
    run.dropped = inputs.dropped
    run.finish()


def _page(run: ConsoleRun, html: str) -> Output:
    output = text_output(html)
    if output.location.kind == "stdout" and os.isatty(1):
        raise Usage("refusing to write a page to a terminal", "name a file: --html gallery.html")
    if output.location.kind == "path":
        run.reserve(output.location.text, "the page")
    return output


def _first(samples: Iterator[TarSample], limit: int | None) -> Iterator[TarSample]:
    """Return the first samples. Nothing after the last of them is read."""
    return samples if limit is None else islice(samples, limit)
