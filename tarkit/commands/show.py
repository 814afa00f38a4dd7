"""tarkit show: show the contents of archives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from tarkit.cli import options as shared
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.command import Command
from tarkit.cli.console import ConsoleRun, current
from tarkit.dataset import Dataset
from tarkit.display.inspect import ShowOptions, first_samples, with_classes, write_gallery
from tarkit.errors import Usage
from tarkit.pipeline.output import text_output
from tarkit.samples.items import describe_sample, names_of
from tarkit.samples.sample import TarSample
from tarkit.sizes import plural
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

if TYPE_CHECKING:
    from tarkit.display.terminal import Graphics

BATCH = 1 << 16  # bytes that are written together

Write = Callable[[bytes], None]
Print = Callable[[Iterator[TarSample], Write], None]

_NO_SAMPLE = "no sample found: samples are entries with a dot in their file names, which ends the key"


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@shared.archives(shared.null("Names in LIST, and of --names, end with NUL."))
@choice(fields=shared.fields)
@shared.rows(ShowOptions)
def show(
    inputs: list[Location],
    choice: SampleChoice,
    options: Callable[..., ShowOptions],
) -> None:
    """Show the contents of archives: fields, sizes, texts, pictures.

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
    chosen, run = options(), current()
    run.reserve(chosen.classes, "the class names", written=False)
    keys = choice.select.keys
    all_keys = keys is not None and keys.require_all
    limit = chosen.limit(all_keys)
    data = choice.of(inputs).change(choice.fields)
    if chosen.html is not None:
        _write_page(run, data, chosen.html, chosen, limit, all_keys)
    else:
        nul = bool(click.get_current_context().params.get("null"))
        shown: Print = partial(_batches, as_json=chosen.json, nul=nul) if chosen.names or chosen.json else _lines
        if chosen.images:
            shown = _pictures(run, chosen, inputs)
        run.take_stdout("the output")
        if os.isatty(1):
            run.progress = False  # the samples are on the same terminal
        with text_output().open(inputs) as sink:
            shown(first_samples(data, run, limit, all_keys=all_keys, partial=True), sink.write)
    _report(run, limit, choice.select.all, by_default=chosen.count is None)


def _report(run: ConsoleRun, limit: int | None, every: bool, *, by_default: bool) -> None:
    """Print that there is no sample, or that there may be more; end the run."""
    if run.samples == 0:
        run.tell(_NO_SAMPLE if every and limit != 0 else "no sample selected")
    elif run.samples == limit and by_default:
        run.tell(f"the first {run.samples} samples; -c N shows N, --all shows all")
    run.finish()


def _write_page(
    run: ConsoleRun, data: Dataset, html: str, chosen: ShowOptions, limit: int | None, all_keys: bool
) -> None:
    output = text_output(html)
    if output.location.kind == "stdout" and os.isatty(1):
        raise Usage("refusing to write a page to a terminal", "name a file: --html gallery.html")
    if output.location.kind in ("path", "url"):
        run.reserve(output.location.text, "the page")
    else:
        run.reserve_output(output)
    if left := write_gallery(data, output, run, chosen.by, chosen.classes, limit, all_keys=all_keys):
        what = plural(left, "picture or sound", "pictures and sounds")
        run.tell(f"{what} left out, the page is too large: show fewer samples with -c")


def _lines(samples: Iterator[TarSample], write: Write) -> None:
    """Write panels to a terminal, plain lines elsewhere."""
    from tarkit.cli.screen import screen
    from tarkit.samples.items_text import sample_lines

    for sample in samples:
        seen, at = describe_sample(sample), screen()
        text = sample_lines(seen) if not at.terminal else ""
        if at.terminal:
            from tarkit.display.terminal import panel

            text = panel(seen, at.width, None if at.colors == "none" else at.colors)
        write(text.encode())


def _batches(samples: Iterator[TarSample], write: Write, *, as_json: bool, nul: bool) -> None:
    """Write lines of JSON, or names, many at a time."""
    from tarkit.samples.items_text import json_line, name_line

    held = bytearray()
    try:
        for sample in samples:
            if as_json:
                held += json_line(describe_sample(sample)).encode()
            else:
                for name in names_of(sample):
                    held += name_line(name, nul)
            if len(held) >= BATCH or os.isatty(1):
                full, held = bytes(held), bytearray()
                write(full)
    finally:
        if held:
            write(bytes(held))


def _pictures(run: ConsoleRun, chosen: ShowOptions, inputs: list[Location]) -> Print:
    """Return the function that draws rows of pictures in the terminal, with key, classes and caption below each."""
    from tarkit.cli.screen import cell, how_to_draw, screen
    from tarkit.display.classes import find_class_names
    from tarkit.display.pictures import require
    from tarkit.display.terminal import PictureRows

    require()
    at = screen()
    graphics: Graphics = how_to_draw(os.environ) if at.terminal else "blocks"
    rows = PictureRows(at.width, graphics, at.colors, cell(), find_class_names(chosen.classes, inputs))

    def shown(samples: Iterator[TarSample], write: Write) -> None:
        try:
            for sample, label in with_classes(samples, chosen.by, run):
                write(rows.add(describe_sample(sample, rows.take), label).encode())
        finally:
            write(rows.rest().encode())
        if rows.without:
            run.tell(f"without a picture: {rows.without} of {plural(run.samples, 'sample')}")

    return shown
