"""The views of `show`: lines and panels, names, JSON, pictures in the terminal, a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tarkit.cli.console import ConsoleRun
from tarkit.inspecting.item import describe_sample, read_names
from tarkit.samples.fields import Fields
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select, Slice
from tarkit.streams.location import Location
from tarkit.streams.sink import Sink

FEW, PAGE = 10, 200  # default numbers of samples: in lines, on a page
_BATCH = 1 << 16  # bytes that are written together

View = Literal["lines", "names", "json", "images", "html"]


@dataclass
class ShowOptions:
    """The options of `show`: `count` None is the default of the view, `every` means no limit."""

    select: Select
    fields: Fields
    view: View = "lines"
    shard_slice: Slice | None = None
    count: int | None = None
    every: bool = False
    nul: bool = False
    draw: str | None = None
    by: str | None = None
    class_names: Sequence[str] = ()

    @property
    def limit(self) -> int | None:
        """The maximum number of samples; None for all."""
        every = self.every or (self.select.keys is not None and self.select.keys.require_all)
        if every or self.count is not None:
            return self.count
        return {"names": None, "json": None, "html": PAGE}.get(self.view, FEW)


class Shown:
    """A view of samples. `end` is always called, `finish` only after the last sample without an error."""

    def __init__(self, chosen: ShowOptions, run: ConsoleRun, sink: Sink) -> None:
        self.chosen, self.run, self.sink = chosen, run, sink

    def add(self, sample: TarSample) -> None:
        """Show a sample."""
        raise NotImplementedError

    def end(self) -> None:
        """Write buffered output."""

    def finish(self) -> None:
        """Write output that needs all samples."""


class _Lines(Shown):
    """Panels in a terminal, plain lines elsewhere."""

    def add(self, sample: TarSample) -> None:
        from tarkit.cli.screen import screen

        seen, at = describe_sample(sample), screen()
        if at.terminal:
            from tarkit.views.terminal import panel

            text = panel(seen, at.width, at.rich_colors)
        else:
            from tarkit.views.text import sample_lines

            text = sample_lines(seen)
        self.sink.write(text.encode())


class _Batch(Shown):
    """Names and JSON, written in batches of lines."""

    def __init__(self, chosen: ShowOptions, run: ConsoleRun, sink: Sink) -> None:
        super().__init__(chosen, run, sink)
        self._held = bytearray()

    def add(self, sample: TarSample) -> None:
        from tarkit.views.text import json_line, name_lines

        if self.chosen.view == "names":
            read_names(sample)
            self._held += name_lines(sample, self.chosen.nul)
        else:
            self._held += json_line(describe_sample(sample)).encode()
        if len(self._held) >= _BATCH or os.isatty(1):
            self.end()

    def end(self) -> None:
        held, self._held = self._held, bytearray()
        if held:
            self.sink.write(bytes(held))


class _Images(Shown):
    """Rows of pictures in the terminal, with key, classes and caption below each."""

    def __init__(self, chosen: ShowOptions, run: ConsoleRun, sink: Sink) -> None:
        from tarkit.cli.screen import cell, how_to_draw, screen
        from tarkit.views.terminal import PictureRows

        super().__init__(chosen, run, sink)
        at = screen()
        how: Any = chosen.draw or (how_to_draw(os.environ) if at.terminal else "blocks")
        self._rows = PictureRows(at.width, how, at.colors, cell(), chosen.class_names)
        self._class = _ClassField(chosen.by, run)

    def add(self, sample: TarSample) -> None:
        by = self._class.of(sample)
        self.sink.write(self._rows.add(describe_sample(sample, self._rows.take), by).encode())

    def end(self) -> None:
        self.sink.write(self._rows.rest().encode())

    def finish(self) -> None:
        self._class.finish()
        if self._rows.without:
            self.run.tell(f"without a picture: {self._rows.without} of {self.run.samples} samples")


class _Page(Shown):
    """A page of HTML."""

    def __init__(self, chosen: ShowOptions, run: ConsoleRun, sink: Sink, locations: list[Location]) -> None:
        from tarkit.views.html import Gallery

        super().__init__(chosen, run, sink)
        self._gallery = Gallery(chosen.class_names)
        self._class = _ClassField(chosen.by, run)
        self._names = [location.name for location in locations]

    def add(self, sample: TarSample) -> None:
        by = self._class.of(sample)
        self._gallery.add(describe_sample(sample, self._gallery.take), by)

    def finish(self) -> None:
        self._class.finish()
        first, *rest = self._names
        title = first + (f" and {len(rest)} more" if rest else "")
        words = f"The first {self.run.samples} of the" if self.run.samples == self.chosen.limit else "All"
        words += " samples" if self.chosen.select.all and self.chosen.shard_slice is None else " selected samples"
        if left := self._gallery.left_out:
            self.run.tell(f"{left} pictures and sounds left out, the page is too large: show fewer samples with -c")
        self.sink.write(self._gallery.page(title, words))


class _ClassField:
    """The field of --by, and its value in each sample."""

    def __init__(self, field: str | None, run: ConsoleRun) -> None:
        from tarkit.samples.values import Name

        self._name = None if field is None else Name(field)
        self._run = run
        self._found = False

    def of(self, sample: TarSample) -> tuple[str, str] | None:
        """Return the field and its value; None without --by.

        Raises:
            Problem: the field cannot be read, unless the policy lets it pass.
        """
        if self._name is None:
            return None
        from tarkit.inspecting.classes import class_of

        value = class_of(self._name, sample, self._run.policy) if sample.key is not None else None
        self._found = self._found or value is not None
        return self._name.text, value or ""

    def finish(self) -> None:
        """Warn if no sample has the field."""
        if self._name is not None and self._run.samples and not self._found:
            self._run.warn(f"no sample has {self._name.text!r}")


def view(chosen: ShowOptions, run: ConsoleRun, sink: Sink, locations: list[Location]) -> Shown:
    """Return the view that the options choose."""
    if chosen.view == "html":
        return _Page(chosen, run, sink, locations)
    if chosen.view == "images":
        return _Images(chosen, run, sink)
    return (_Lines if chosen.view == "lines" else _Batch)(chosen, run, sink)
