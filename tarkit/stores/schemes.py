"""Table of URL schemes: each names a module, which is imported when one of its URLs is opened.

Such a module has `open_read(url) -> RemoteReader` and `open_write(url) -> RemoteWriter`. Both raise a `TarkitError`,
or an `OSError` that names the URL as `public_name` gives it.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Protocol, cast

from tarkit.errors import Usage, show

SCHEMES: dict[str, str] = {}
"""Scheme in lower case -> name of the module that serves it."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LOGIN = re.compile(r"(://)[^/?#]*@")
_SECRET = re.compile(r"([?&][^=&#]*(?:sig|token|secret|passw|key|credential)[^=&#]*=)[^&#]*", re.IGNORECASE)

# scheme -> commands that read to stdout and write from stdin, for hints alone
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
        """At most `n` bytes, at least one before the end, b"" at the end."""

    def close(self) -> None:
        """Give the connection back; allowed before the end and more than once."""


class RemoteWriter(Protocol):
    """A remote object being written; it appears under its name at `close` and not before."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Take all of `data`."""

    def close(self) -> None:
        """Complete the object; an error here means that it is not there."""

    def abort(self) -> None:
        """Leave nothing behind; called instead of `close`."""


class Remote(Protocol):
    """What a module of the table offers."""

    def open_read(self, url: str, /) -> RemoteReader:
        """Start to read `url`."""

    def open_write(self, url: str, /) -> RemoteWriter:
        """Start to write `url`."""


def scheme_of(text: str) -> str | None:
    """The scheme of `text`, in lower case, when it begins `SCHEME://` (RFC 3986, 3.1), known or not; else None."""
    found = _SCHEME.match(text)
    return found[1].lower() if found else None


def open_read(url: str) -> RemoteReader:
    """Open `url` for reading; `Usage` when nothing serves its scheme."""
    return _served(url).open_read(url)


def open_write(url: str) -> RemoteWriter:
    """Open `url` for writing; `Usage` when nothing serves its scheme."""
    return _served(url, writing=True).open_write(url)


def unknown(url: str, writing: bool = False) -> Usage:
    """The error for a URL of a scheme that is not in the table; its hint spells the `pipe:` that does the work."""
    known = ", ".join(f"{each}://" for each in sorted(SCHEMES)) or "none is built in"
    what = f"{public_name(url)}: unknown scheme {scheme_of(url)}:// (known: {known})"
    return Usage(what, f"let a command do it: 'pipe:{command_for(url, writing)}'")


def command_for(url: str, writing: bool = False) -> str:
    """A command that reads `url` to stdout, or writes it from stdin, for hints."""
    commands = _COMMANDS.get(scheme_of(url) or "", ("COMMAND {}", "COMMAND {}"))
    return commands[writing].format(public_name(url))


def public_name(url: str) -> str:
    """`url` for a message: without login, with secret values of its query as `***`, printable and on one line."""
    name = _SECRET.sub(r"\1***", _LOGIN.sub(r"\1", url, count=1))
    return name if name.isprintable() else show(name)


def _served(url: str, writing: bool = False) -> Remote:
    module = SCHEMES.get(scheme_of(url) or "")
    if module is None:
        raise unknown(url, writing)
    return cast(Remote, import_module(module))
