"""How a view names where samples lie: their ranges, and paths of archives as seen from its directory."""

from __future__ import annotations

import os

from tarkit.errors import TarkitError, Unsupported, Usage, show
from tarkit.pipeline.origins import origins_of
from tarkit.pipeline.output import Output
from tarkit.samples.sample import TarSample
from tarkit.stores.schemes import public_name
from tarkit.streams.ranges import JoinedSource
from tarkit.streams.source import Source


def directory_of(output: Output) -> str | None:
    """Return the directory from which an output sees archives; None for an object: it has their URLs."""
    return os.path.realpath(os.path.dirname(output.location.text)) if output.location.kind == "path" else None


class Locator:
    """Says where samples lie.

    Args:
        directory: paths of archives are relative to it; None for an object: they are URLs.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._names: dict[Source, str] = {}

    def ranges_of(self, sample: TarSample) -> tuple[list[tuple[Source, int, int]], str | None]:
        """Return the ranges of archives that a sample consists of, at least one, and its fields if they are renamed.

        Raises:
            TarkitError: it does not consist of ranges of plain archives that stay, or -f cannot say its fields.
        """
        source = sample.source
        if not isinstance(source, JoinedSource) and sample.start < sample.stop:  # its entries are adjacent
            return [(source, sample.start, sample.stop)], None
        named = origins_of(source, (), sample.entries)
        if named is None:
            raise _unnamed(source) if sample.entries else TarkitError(f"{show(sample.key or b'')} has no fields")
        return named

    def name(self, source: Source) -> str:
        """Return how an archive is named.

        Raises:
            TarkitError: it is no file or object, or its name is not UTF-8 or has a secret.
        """
        name = self._names.get(source)
        if name is None:
            name = self._names[source] = self._name_of(source)
        return name

    def _name_of(self, source: Source) -> str:
        location = source.location
        if location is None:
            raise _unnamed(source)
        if location.kind == "url":
            if public_name(location.text) != location.text:
                raise Usage(f"{location.name}: its URL has a secret, which a view would store")
            return location.text
        if self._directory is None:
            raise Usage(f"{location.name}: a view at a URL cannot name a local file", "copy the archive there first")
        above, name = os.path.split(location.text)
        path = os.path.join(os.path.relpath(os.path.realpath(above), self._directory), name)
        path = path.removeprefix("./")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise TarkitError(f"{location.name}: the path is not UTF-8, as the names in a view are") from None
        return path


def _unnamed(source: Source) -> Unsupported:
    changed = "its contents are new, or it is compressed, or a stream, or it has a name that -f cannot say"
    hint = "tarkit cat INPUT -o NAME.tar makes a plain archive, of which a view can be made"
    return Unsupported(f"{source.name}: a view names ranges of plain archives, and here {changed}", hint)
