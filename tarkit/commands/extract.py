"""tarkit extract: unpack samples into a directory."""

from __future__ import annotations

from collections.abc import Callable

import click

from tarkit.cli import options as shared
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.console import current
from tarkit.cli.map import MappedCommand
from tarkit.extraction.extract import ExtractOptions
from tarkit.extraction.extract import extract as unpack
from tarkit.streams.location import Location

EXAMPLES = (
    "tarkit extract a.tar -C out/",
    "tarkit extract 'train-{000..099}.tar' -C some/ --sample 0.01 --seed 1",
    "tarkit extract shards/ -C pictures/ -f jpg --match '^cat/'",
)
COST = (
    "Two passes over plain archives, the first over their headers alone, so that what is wrong shows before anything "
    "is written; one over streams and compressed ones. Memory: about 100 bytes for each entry; contents are not held."
)


def _file_time(word: str) -> str | int | None:
    return word if word in ("source", "now") else shared.parse_mtime(word)


@click.command(cls=MappedCommand, examples=EXAMPLES, cost=COST)
@shared.inputs
@shared.rows(ExtractOptions, mtime=_file_time)
@choice(count=shared.count, fields=shared.fields)
def extract(
    inputs: list[Location],
    options: Callable[..., ExtractOptions],
    choice: SampleChoice,
) -> None:
    """Unpack samples into a directory, and nowhere else.

    Each entry becomes the file DIR/NAME, which appears when it is complete. Existing files are kept: one is an error,
    unless --force replaces it. Unsafe names are errors [unsafe-name].

    \f
    A name is unsafe if it is absolute or has a '..'; so are links that lead out of DIR, or may, devices and FIFOs.
    Nothing is written through a link. Two entries of one name are an error.

    Files get the permissions of their entries, restricted by the umask, and are readable and writable for you; they are
    never setuid. Owners are not restored.
    """
    run = current()
    chosen = options()
    data = choice.of(inputs).change(choice.fields)
    unpack(data, run, chosen, reserved=[*run.places], report=None if run.report == "-" else run.report)
    if not run.samples and not (choice.select.all and choice.fields.all):
        run.warn("no sample selected")
    run.finish()
