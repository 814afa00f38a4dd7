"""Index files as places: files beside shards, objects beside objects, and other outputs."""

from __future__ import annotations

import os
from typing import NamedTuple

from tarkit.errors import Usage
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
        return cls(format, path, "url" if scheme_of(path) else "path", options)

    @property
    def name(self) -> str:
        return self.label or (public_name(self.path) if self.kind == "url" else self.path)

    def sent(self) -> IndexFile:
        """Return it as other machines find it. Raises Usage for another output than a file or an object."""
        place = portable_location(Location(self.kind, self.path, self.name, options=self.options))  # type: ignore[arg-type]
        if place.kind == "pipe":
            raise Usage(f"{self.name}: other machines cannot use it", "name a directory or a URL")
        return self._replace(path=place.text, options=place.options, label=self.name)

    def beside(self, name: str) -> IndexFile:
        return self._replace(path=os.path.join(os.path.dirname(self.path), name))

    def exists(self) -> bool:
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
