"""The ways to show samples: lines and panels, names, JSON, pictures in the terminal, a page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from tarkit.cli.console import Run
from tarkit.inspecting.item import Item, pass_by, see_sample
from tarkit.samples.fields import Fields
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location
from tarkit.streams.sink import Sink

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
        every = self.every or (self.select.keys is not None and self.select.keys.require_all)
        if every or self.count is not None:
            return self.count
        return {"names": None, "json": None, "html": PAGE}.get(self.view, FEW)


class Shown:
    """Takes samples one by one. `end` is called whatever happens, `finish` when all went well."""

    def __init__(self, chosen: ShowOptions, run: Run, sink: Sink) -> None:
        self.chosen, self.run, self.sink = chosen, run, sink

    def add(self, sample: TarSample) -> None:
        """Show a sample."""
        raise NotImplementedError

    def end(self) -> None:
        """Show what was held back."""

    def finish(self) -> None:
        """Say what is to be said at the end."""


class _Lines(Shown):
    """Panels for a terminal, plain lines for what is none."""

    def add(self, sample: TarSample) -> None:
        from tarkit.cli.screen import screen

        seen, at = see_sample(sample), screen()
        if at.terminal:
            from tarkit.views.terminal import panel

            text = panel(seen, at.width, at.rich_colors)
        else:
            from tarkit.views.text import sample_lines

            text = sample_lines(seen)
        self.sink.write(text.encode())


class _Batch(Shown):
    """Names and JSON, many lines at a time."""

    def __init__(self, chosen: ShowOptions, run: Run, sink: Sink) -> None:
        super().__init__(chosen, run, sink)
        self._held = bytearray()

    def add(self, sample: TarSample) -> None:
        from tarkit.views.text import json_line, name_lines

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


class _Images(Shown):
    """Rows of pictures in the terminal."""

    def __init__(self, chosen: ShowOptions, run: Run, sink: Sink) -> None:
        from tarkit.cli.screen import how_to_draw, screen
        from tarkit.views import pictures, terminal

        super().__init__(chosen, run, sink)
        self._screen, self._views, self._pictures = screen(), terminal, pictures
        how: Any = chosen.draw or (how_to_draw(os.environ) if self._screen.terminal else "blocks")
        self._how: terminal.How = how
        self._row: list[terminal.Drawn] = []
        self._without = 0

    def add(self, sample: TarSample) -> None:
        key = sample.key
        drawn = 0

        def visit(item: Item) -> None:
            nonlocal drawn
            if self._pictures.is_picture(item):
                drawn += 1
                self._draw(item, key or b"")

        see_sample(sample, visit)
        self._without += not drawn

    def _draw(self, item: Item, key: bytes) -> None:
        from tarkit.views.text import about_words, escaped, label_of

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


class _Page(Shown):
    """A page of HTML."""

    def __init__(self, chosen: ShowOptions, run: Run, sink: Sink, locations: list[Location]) -> None:
        from tarkit.views.html import Gallery

        super().__init__(chosen, run, sink)
        self._gallery = Gallery()
        self._names = [location.name for location in locations]

    def add(self, sample: TarSample) -> None:
        self._gallery.add(see_sample(sample, self._gallery.take))

    def finish(self) -> None:
        first, *rest = self._names
        title = first + (f" and {len(rest)} more" if rest else "")
        words = f"The first {self.run.samples} of the" if self.run.samples == self.chosen.limit else "All"
        words += " samples" if self.chosen.select.all and self.chosen.shard_slice is None else " chosen samples"
        if left := self._gallery.left_out:
            self.run.tell(f"the page has no room for {left} of the pictures: show fewer samples with -c")
        self.sink.write(self._gallery.page(title, words))


def view(chosen: ShowOptions, run: Run, sink: Sink, locations: list[Location]) -> Shown:
    """What shows samples as the options say."""
    if chosen.view == "html":
        return _Page(chosen, run, sink, locations)
    if chosen.view == "images":
        return _Images(chosen, run, sink)
    return (_Lines if chosen.view == "lines" else _Batch)(chosen, run, sink)
