"""The table of URL schemes, and names of URLs for messages. No store is imported here; see `connect`."""

from __future__ import annotations

import re

from tarkit.errors import Usage, show

SCHEMES: dict[str, str] = {
    "s3": "tarkit.stores.objects",
    "gs": "tarkit.stores.objects",
    "az": "tarkit.stores.objects",
    "http": "tarkit.stores.http",
    "https": "tarkit.stores.http",
}
"""Scheme in lower case -> name of its module, which has `open_store(options) -> Store`."""

LISTED = frozenset(("s3", "gs", "az", "hf", "ais"))
"""Schemes whose objects can be listed."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LOGIN = re.compile(r"(://)[^/?#]*@")
_SECRET = re.compile(r"([?&][^=&#]*(?:sig|token|secret|passw|key|credential)[^=&#]*=)[^&#]*", re.IGNORECASE)

# scheme -> commands that read to stdout and write from stdin, for hints only
_COMMANDS = {"hdfs": ("hdfs dfs -cat {}", "hdfs dfs -put - {}")}


def scheme_of(text: str) -> str | None:
    """Return the scheme of `text` in lower case if it begins with `SCHEME://` (RFC 3986, 3.1), else None."""
    found = _SCHEME.match(text)
    return found[1].lower() if found else None


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
