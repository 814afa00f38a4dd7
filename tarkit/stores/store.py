"""The interface of a store: what can be done with an object, and how a request fails.

A store makes single requests. `transfer` builds on it what all stores share: retries, resuming at the byte where a
connection broke, several ranges in flight, uploads in parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tarkit.errors import TarkitError, spell


class Info(NamedTuple):
    """An object as its store describes it.

    Attributes:
        url: its URL.
        size: its length in bytes; None if the store does not say.
        version: its ETag, or its time of modification; None if the store does not say.
        ranges: whether parts of it can be read.
        modified: when it was written, in nanoseconds since 1970; None if the store does not say.
    """

    url: str
    size: int | None
    version: str | None
    ranges: bool = True
    modified: int | None = None


class Reply(Protocol):
    """The bytes of one reply, in order."""

    info: Info
    """The object, as the reply describes it."""

    def read(self, n: int, /) -> bytes:
        """Return up to `n` bytes, at least one before the end, b"" at the end.

        Raises:
            ConnectionLost: the connection broke, or the reply ended early.
        """

    def close(self) -> None:
        """Give up what was not read; a `read` in another thread ends."""


class Upload(Protocol):
    """An object that is being written: it exists once `close` returns, and not before."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Write all of `data`."""

    def close(self) -> None:
        """Complete the object; after an error it does not exist."""

    def abort(self) -> None:
        """Remove what was written; called instead of `close`."""


class Store(Protocol):
    """The operations on objects of one kind of URL. All raise `ConnectionLost`, TarkitError or OSError."""

    def head(self, url: str, /) -> Info:
        """Return the description of an object. Raises FileNotFoundError."""

    def get(self, url: str, start: int, stop: int | None, /) -> Reply:
        """Request bytes [start, stop) of an object, to its end for None. Raises FileNotFoundError."""

    def put(self, url: str, fresh: bool, /) -> Upload:
        """Begin to write an object; with `fresh` one that exists is an error."""

    def delete(self, url: str, /) -> None:
        """Remove an object."""

    def list(self, url: str, after: str | None, depth: int | None = None, /) -> Iterator[Info]:
        """Yield the objects whose URL begins with `url`, by name, those behind the URL `after`; requested in pages.

        `depth` is how many directories deep the caller looks, 0 for those in the directory of `url` alone, None for
        all; a store may yield what lies deeper.
        """


class ConnectionLost(Exception):
    """A request that failed for a reason that may pass; it can be made again.

    Attributes:
        wait: seconds after which the server wants to be asked again, if it says so.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class StoreOptions:
    """How stores are reached, and how patiently.

    Attributes:
        endpoint_url: the server of s3, gs and az URLs in place of that of the provider.
        anonymous: send no credentials.
        retries: failures in a row, without a byte of progress, after which a transfer is given up.
        timeout: seconds without a byte after which a connection counts as broken.
        storage: settings of the library that serves the scheme, such as `region`.
    """

    endpoint_url: str | None = None
    anonymous: bool = False
    retries: int = 5
    timeout: float = 60.0
    storage: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.endpoint_url, self.anonymous, self.retries, self.timeout, *sorted(self.storage.items())))


def missing(url: str) -> FileNotFoundError:
    """Return the error for an object that does not exist."""
    return FileNotFoundError(2, os.strerror(2), url)


def denied(url: str, detail: str, hint: str | None) -> TarkitError:
    """Return the error for an object that may not be read or written with the credentials at hand."""
    return TarkitError(f"{url}: permission denied: {detail}", hint)


def taken(name: str) -> TarkitError:
    """Return the error for an object that exists and may not be replaced."""
    return TarkitError(f"{name}: this object exists", f"{spell('force')} replaces it")
