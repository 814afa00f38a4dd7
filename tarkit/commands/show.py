"""tarkit show: look into archives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import click

from tarkit.cli import Command
from tarkit.commands import _options as options
from tarkit.commands._run import Output, Run, current
from tarkit.dataset.fields import Fields
from tarkit.dataset.inputs import Inputs
from tarkit.dataset.look import Item, pass_by, see_sample
from tarkit.dataset.sample import Sample
from tarkit.dataset.select import Select, Slice
from tarkit.errors import Usage
from tarkit.problems import Policy
from tarkit.streams.location import STDOUT, Location, parse_output
from tarkit.streams.sink import Sink

EXAMPLES = (
    "tarkit show train-000000.tar",
    "tarkit show shards/ --match '^dog/' --images",
    "tarkit show 'train-{000..009}.tar' --html gallery.html",
)
COST = (
    "One pass, which ends with the last sample that is shown. Of each entry a few kilobytes are read into memory, "
    "with --images and --html whole pictures of up to 16 MiB, and nothing with --names; no temporary space, "
    "but for -f and streams with samples of over 16 MiB."
)
FEW, PAGE = 10, 200  # samples that are shown by default: in lines, on a page
_BATCH = 1 << 16  # bytes that are written at once

View = Literal["lines", "names", "json", "images", "html"]


@dataclass
class ShowOptions:
    """What `show` is to show, and how; `count` None is the default of the view, `every` has no limit."""

    select: Select
    fields: Fields
    view: View = "lines"
    shard_slice: Slice | None = None
    count: int | None = None
    every: bool = False
    nul: bool = False
    draw: str | None = None

    @property
    def limit(self) -> int | None:
        """How many samples are shown at most."""
        if self.every or self.count is not None:
            return self.count
        return {"names": None, "json": None, "html": PAGE}.get(self.view, FEW)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@options.inputs
@options.shard_slice
@options.select
@click.option(
    "-c", "--count", type=click.IntRange(0), metavar="N", help="The first N of those.  [default: 10, see above]"
)
@click.option("--all", "every", is_flag=True, help="All of them.")
@options.fields
@click.option("--names", is_flag=True, help="Names and what becomes of them: PATH -> KEY | FIELD; -0 for programs.")
@click.option("--json", "as_json", is_flag=True, help="An object on a line for each sample.")
@click.option("--images", is_flag=True, help="Draw the pictures in the terminal (needs tarkit[images]).")
@click.option(
    "--draw",
    type=click.Choice(["kitty", "iterm", "sixel", "blocks"]),
    metavar="HOW",
    help="Draw them so: kitty, iterm, sixel or blocks.  [default: what the terminal can]",
)
@click.option("--html", metavar="FILE", help="Write a page with thumbnails, search and histograms to FILE.")
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
    policy: Policy,
) -> None:
    """Look into archives: fields, kinds, sizes, texts, pictures.

    INPUTs are files, directories, -, pipe:COMMAND, 'globs*' or 'names-{000..099}.tar'; none is stdin.

    A terminal gets a panel for each sample, a pipe plain lines. What a field holds is told by its first bytes; pickles
    are never opened. Unless -c or --all says otherwise the first 10 samples are shown, 200 on a page of --html, and all
    with --names and --json. Nothing behind them is read.

    Names are written so that they can be read back: \\\\ is a backslash, \\xNN a byte that is no printable text. With
    --names and -0 they are raw: path, key, field and size of an entry, each ended by NUL.

    The page of --html is one file that needs no network. Thumbnails on it need tarkit[images]; without that, pictures
    of up to 32 KiB are taken as they are.
    """
    chosen = [
        name for name, on in (("names", names), ("json", as_json), ("images", images or draw), ("html", html)) if on
    ]
    if len(chosen) > 1:
        raise Usage(f"--{chosen[0]} and --{chosen[1]} are two ways to show samples", "choose one")
    if every and count is not None:
        raise Usage("--all and --count do not go together")
    nul = bool(click.get_current_context().params.get("null")) and names
    view: Any = chosen[0] if chosen else "lines"
    run_show(current(), inputs, ShowOptions(select, fields, view, shard_slice, count, every, nul, draw), policy, html)


def run_show(run: Run, locations: list[Location], chosen: ShowOptions, policy: Policy, html: str | None = None) -> None:
    """Show the samples that were chosen. What came before an error is shown, but a page is written whole or not."""
    output = Output(STDOUT if html is None else _page_name(run, html), None)
    if chosen.view == "images":
        from tarkit.views.pictures import require

        require()
    if html is None and os.isatty(1):
        run.progress = False  # a bar would stand between the samples
    inputs = Inputs(
        locations,
        policy,
        moves=False,
        distinct=False,
        shard_slice=chosen.shard_slice,
        tmpdir=run.scratch(output),
        announce=lambda name: run.note(f"reading {name}"),
    )
    samples = chosen.fields(chosen.select(iter(inputs)), policy)
    with output.open(locations) as sink:
        shown = _view(chosen, run, sink, locations)
        try:
            for sample in run.watch(_first(samples, chosen.limit), lambda: run.bytes, None):
                shown.add(sample)
                run.bytes += sample.content
        finally:
            shown.end()
        options.report_keys(run, chosen.select)
        shown.finish()
    if run.samples == 0:
        run.tell("no sample was chosen" if not chosen.select.all or chosen.limit == 0 else "there is no sample")
    elif run.samples == chosen.limit and chosen.count is None:
        run.tell(f"the first {run.samples} samples; -c N shows more, --all all of them")
    run.dropped = inputs.dropped
    run.finish()


def _page_name(run: Run, html: str) -> Location:
    location = parse_output(html)
    if location.kind == "stdout" and os.isatty(1):
        raise Usage("stdout is a terminal, and a page is for a browser", "name a file: --html gallery.html")
    if location.kind == "path":
        run.reserve(location.text, "the page")
    return location


def _first(samples: Iterator[Sample], limit: int | None) -> Iterator[Sample]:
    """The first samples; what has no key does not count, and what follows the last is not asked for."""
    return samples if limit is None else islice(samples, limit)


class _View:
    """Takes samples one by one. `end` is called whatever happens, `finish` when all went well."""

    def __init__(self, chosen: ShowOptions, run: Run, sink: Sink) -> None:
        self.chosen, self.run, self.sink = chosen, run, sink

    def add(self, sample: Sample) -> None:
        """Show a sample."""
        raise NotImplementedError

    def end(self) -> None:
        """Show what was held back."""

    def finish(self) -> None:
        """Say what is to be said at the end."""


class _Lines(_View):
    """Panels for a terminal, plain lines for what is none."""

    def add(self, sample: Sample) -> None:
        from tarkit.commands._screen import screen

        seen, at = see_sample(sample), screen()
        if at.terminal:
            from tarkit.views.panels import panel

            text = panel(seen, at.width, at.rich_colors)
        else:
            from tarkit.views.plain import plain

            text = plain(seen)
        self.sink.write(text.encode())


class _Batch(_View):
    """Names and JSON, many lines at a time."""

    def __init__(self, chosen: ShowOptions, run: Run, sink: Sink) -> None:
        super().__init__(chosen, run, sink)
        self._held = bytearray()

    def add(self, sample: Sample) -> None:
        from tarkit.views.plain import json_line, name_lines

        if self.chosen.view == "names":
            pass_by(sample)
            self._held += name_lines(sample, self.chosen.nul)
        else:
            self._held += json_line(see_sample(sample)).encode()
        if len(self._held) >= _BATCH or os.isatty(1):
            self.end()

    def end(self) -> None:
        held, self._held = self._held, bytearray()
        if held:
            self.sink.write(bytes(held))


class _Images(_View):
    """Rows of pictures in the terminal."""

    def __init__(self, chosen: ShowOptions, run: Run, sink: Sink) -> None:
        from tarkit.commands._screen import how_to_draw, screen
        from tarkit.views import pictures, terminal

        super().__init__(chosen, run, sink)
        self._screen, self._views, self._pictures = screen(), terminal, pictures
        how: Any = chosen.draw or (how_to_draw(os.environ) if self._screen.terminal else "blocks")
        self._how: terminal.How = how
        self._row: list[terminal.Drawn] = []
        self._without = 0

    def add(self, sample: Sample) -> None:
        before = len(self._row)
        key = sample.key
        drawn = 0

        def visit(item: Item) -> None:
            nonlocal drawn
            if self._pictures.is_picture(item):
                drawn += 1
                self._draw(item, key or b"")

        see_sample(sample, visit)
        del before
        self._without += not drawn

    def _draw(self, item: Item, key: bytes) -> None:
        from tarkit.views.words import about_words, escaped, label_of

        try:
            image = self._pictures.thumbnail(item, *self._views.room(self._how, self._screen.cell))
            says = f"{label_of(item)} {about_words(item)}"
        except self._pictures.Undrawn as error:
            image, says = None, f"{label_of(item)}: {error}"
        self._row.append(self._views.Drawn(image, (escaped(key), says)))
        if len(self._row) == self._views.per_row(self._screen.width):
            self.end()

    def end(self) -> None:
        row, self._row = self._row, []
        if row:
            self.sink.write(self._views.row(row, self._how, self._screen.colors, self._screen.cell).encode())

    def finish(self) -> None:
        if self._without:
            self.run.tell(f"without a picture: {self._without} of {self.run.samples} samples")


class _Page(_View):
    """A page of HTML."""

    def __init__(self, chosen: ShowOptions, run: Run, sink: Sink, locations: list[Location]) -> None:
        from tarkit.views.page import Gallery

        super().__init__(chosen, run, sink)
        self._gallery = Gallery()
        self._names = [location.name for location in locations]

    def add(self, sample: Sample) -> None:
        self._gallery.add(see_sample(sample, self._gallery.take))

    def finish(self) -> None:
        first, *rest = self._names
        title = first + (f" and {len(rest)} more" if rest else "")
        words = f"The first {self.run.samples} samples" if self.run.samples == self.chosen.limit else "All samples"
        if not (self.chosen.select.all and self.chosen.shard_slice is None):
            words += " of those that were chosen"
        if left := self._gallery.left_out:
            self.run.tell(f"the page has no room for {left} of the pictures: show fewer samples with -c")
        self.sink.write(self._gallery.page(title, words))


def _view(chosen: ShowOptions, run: Run, sink: Sink, locations: list[Location]) -> _View:
    if chosen.view == "html":
        return _Page(chosen, run, sink, locations)
    if chosen.view == "images":
        return _Images(chosen, run, sink)
    return (_Lines if chosen.view == "lines" else _Batch)(chosen, run, sink)
