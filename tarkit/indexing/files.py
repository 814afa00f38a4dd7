"""Index files as places: files beside shards, objects beside objects, and other outputs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from io import BytesIO
from typing import BinaryIO, NamedTuple

from tarkit.errors import TarkitError, Usage, spell
from tarkit.stores import connect
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location, portable_location


class IndexFile(NamedTuple):
    """An index of one format: a file, an object, or another output.

    Attributes:
        format: its format.
        path: its path, its URL, or the text of another output.
        kind: the kind of output: path, url, stdout, pipe.
        options: how a URL is reached; None for the options of the process.
        label: its name for messages, if that is not the path.
    """

    format: str
    path: str
    kind: str = "path"
    options: StoreOptions | None = None
    label: str | None = None

    @classmethod
    def at(cls, format: str, path: str, options: StoreOptions | None = None) -> IndexFile:
        """Return that of a path or a URL."""
        return cls(format, path, "url" if scheme_of(path) else "path", options)

    @property
    def name(self) -> str:
        """Its name for messages."""
        return self.label or (public_name(self.path) if self.kind == "url" else self.path)

    def sent(self) -> IndexFile:
        """Return it as other machines find it. Raises Usage for another output than a file or an object."""
        place = portable_location(Location(self.kind, self.path, self.name, options=self.options))  # type: ignore[arg-type]
        if place.kind == "pipe":
            raise Usage(f"{self.name}: other machines cannot use it", "name a directory or a URL")
        return self._replace(path=place.text, options=place.options, label=self.name)

    def beside(self, name: str) -> IndexFile:
        """Return another file of the same directory."""
        return self._replace(path=os.path.join(os.path.dirname(self.path), name))

    def exists(self) -> bool:
        """Return whether there is such a file or object."""
        if self.kind != "url":
            return os.path.exists(self.path)
        try:
            connect.open_object(self.path, self.options, first=1).close()
        except FileNotFoundError:
            return False
        return True

    def read(self) -> tuple[bytes, int | None]:
        """Return its bytes, and when it was written: nanoseconds since 1970, None if the store does not say.

        Raises:
            FileNotFoundError: there is none.
            TarkitError: the store does not give it.
        """
        if self.kind == "url":
            data, info = connect.read_object(self.path, self.options)
            return data, info.modified
        with open(self.path, "rb") as file:
            return file.read(), os.fstat(file.fileno()).st_mtime_ns

    def refuse_other(self, recognised: Callable[[BinaryIO], bool]) -> None:
        """Raise TarkitError when there is a file or object that is not recognised as an index of the format."""
        try:
            if self.kind == "url":
                data, _ = self.read()
                good = not data or recognised(BytesIO(data))
            elif not stat.S_ISREG((status := os.stat(self.path)).st_mode) or not status.st_size:
                good = True
            else:
                with open(self.path, "rb") as file:
                    good = recognised(file)
        except FileNotFoundError:
            return
        if not good:
            what = "object" if self.kind == "url" else "file"
            hint = f"{spell('force')} replaces it"
            raise TarkitError(f"{self.name}: the {what} exists and is not a {self.format} index", hint)
