"""The table of URL schemes. Each names a module, which is imported when one of its URLs is opened.

Such a module has `open_read(url) -> RemoteReader` and `open_write(url) -> RemoteWriter`. Both raise TarkitError, or an
OSError whose filename is `public_name(url)`.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Protocol, cast

from tarkit.errors import Usage, show

SCHEMES: dict[str, str] = {}
"""Scheme in lower case -> name of its module."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LOGIN = re.compile(r"(://)[^/?#]*@")
_SECRET = re.compile(r"([?&][^=&#]*(?:sig|token|secret|passw|key|credential)[^=&#]*=)[^&#]*", re.IGNORECASE)

# scheme -> commands that read to stdout and write from stdin, for hints only
_COMMANDS = {
    "s3": ("aws s3 cp {} -", "aws s3 cp - {}"),
    "gs": ("gcloud storage cat {}", "gcloud storage cp - {}"),
    "http": ("curl -fsSL {}", "curl -fsS -T - {}"),
    "https": ("curl -fsSL {}", "curl -fsS -T - {}"),
    "hdfs": ("hdfs dfs -cat {}", "hdfs dfs -put - {}"),
}


class RemoteReader(Protocol):
    """A remote object being read, from its first byte to its last."""

    def read(self, n: int, /) -> bytes:
        """Return at most `n` bytes, at least one before the end, b"" at the end."""

    def close(self) -> None:
        """Close the connection; allowed before the end and more than once."""


class RemoteWriter(Protocol):
    """A remote object being written; it exists from `close` on and not before."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Write all of `data`."""

    def close(self) -> None:
        """Complete the object; after an error it does not exist."""

    def abort(self) -> None:
        """Remove what was written; called instead of `close`."""


class Remote(Protocol):
    """The interface of a module in the table."""

    def open_read(self, url: str, /) -> RemoteReader:
        """Open `url` for reading."""

    def open_write(self, url: str, /) -> RemoteWriter:
        """Open `url` for writing."""


def scheme_of(text: str) -> str | None:
    """Return the scheme of `text` in lower case if it begins with `SCHEME://` (RFC 3986, 3.1), else None."""
    found = _SCHEME.match(text)
    return found[1].lower() if found else None


def open_read(url: str) -> RemoteReader:
    """Open `url` for reading. Raises Usage for an unknown scheme."""
    return _served(url).open_read(url)


def open_write(url: str) -> RemoteWriter:
    """Open `url` for writing. Raises Usage for an unknown scheme."""
    return _served(url, writing=True).open_write(url)


def unknown(url: str, writing: bool = False) -> Usage:
    """Return the error for a URL with an unknown scheme; its hint is a `pipe:` to use instead."""
    known = ", ".join(f"{each}://" for each in sorted(SCHEMES)) or "none is built in"
    what = f"{public_name(url)}: unknown scheme {scheme_of(url)}:// (known: {known})"
    return Usage(what, f"use a command: 'pipe:{command_for(url, writing)}'")


def command_for(url: str, writing: bool = False) -> str:
    """Return a command that reads `url` to stdout, or writes it from stdin, for hints."""
    commands = _COMMANDS.get(scheme_of(url) or "", ("COMMAND {}", "COMMAND {}"))
    return commands[writing].format(public_name(url))


def public_name(url: str) -> str:
    """Return `url` for a message: without login, with `***` for secrets in its query, printable and on one line."""
    name = _SECRET.sub(r"\1***", _LOGIN.sub(r"\1", url, count=1))
    return name if name.isprintable() else show(name)


def _served(url: str, writing: bool = False) -> Remote:
    module = SCHEMES.get(scheme_of(url) or "")
    if module is None:
        raise unknown(url, writing)
    return cast(Remote, import_module(module))
