"""The table of URL schemes, and names of URLs for messages. The store of a scheme is imported by `connect`."""

from __future__ import annotations

import os
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from tarkit.errors import MissingLibrary, Usage, show, spell

SCHEMES: dict[str, str] = {
    "s3": "tarkit.stores.objects",
    "gs": "tarkit.stores.objects",
    "az": "tarkit.stores.objects",
    "http": "tarkit.stores.http",
    "https": "tarkit.stores.http",
    "hf": "tarkit.stores.hub",
    "ais": "tarkit.stores.ais",
}
"""Scheme in lower case -> name of its module, which has `open_store(options) -> Store`."""

LISTED = frozenset(("s3", "gs", "az", "hf", "ais"))
"""Schemes of the table whose objects can be listed."""

READ_ONLY = frozenset(("http", "https", "hf"))
"""Schemes of the table whose objects cannot be written."""

OTHERS: str | None = "tarkit.stores.other"
"""The module for schemes that are not in the table, which has `knows(scheme) -> bool`; it needs fsspec."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_LOGIN = re.compile(r"(://)[^/?#]+@")
_SECRET = re.compile(r"([?&][^=&#]*(?:sig|token|secret|passw|key|credential)[^=&#]*=)[^&#]*", re.IGNORECASE)

# scheme -> commands that read to stdout and write from stdin, for hints only
_COMMANDS = {
    "s3": ("aws s3 cp {} -", "aws s3 cp - {}"),
    "gs": ("gcloud storage cat {}", "gcloud storage cp - {}"),
    "http": ("curl -fsSL {}", "curl -fsS -T - {}"),
    "https": ("curl -fsSL {}", "curl -fsS -T - {}"),
    "hdfs": ("hdfs dfs -cat {}", "hdfs dfs -put - {}"),
}


def scheme_of(text: str) -> str | None:
    """Return the scheme of `text` in lower case if it begins with `SCHEME://` (RFC 3986, 3.1), else None."""
    found = _SCHEME.match(text)
    return found[1].lower() if found else None


def module_of(url: str) -> str | None:
    """Return the name of the module for a URL: of the table, else the one for all others; None if none knows it."""
    scheme = scheme_of(url) or ""
    if scheme in SCHEMES or OTHERS is None:
        return SCHEMES.get(scheme)
    try:
        return OTHERS if cast(Any, import_module(OTHERS)).knows(scheme) else None
    except MissingLibrary:
        return None


def is_listed(url: str) -> bool:
    """Whether globs and directories in a URL can be listed."""
    scheme = scheme_of(url)
    return scheme is not None and (scheme in LISTED or (scheme not in SCHEMES and module_of(url) is not None))


def unknown(url: str, writing: bool = False) -> Usage:
    """Return the error for a URL with an unknown scheme; its hint is a `pipe:` to use instead."""
    known = ", ".join(f"{each}://" for each in sorted(SCHEMES)) or "none is built in"
    what = f"{public_name(url)}: unknown scheme {scheme_of(url)}:// (known: {known})"
    hint = f"use a command: 'pipe:{command_for(url, writing)}'"
    if OTHERS is not None and find_spec("fsspec") is None:
        hint += "; fsspec may know it: pip install 'tarkit[fsspec]'"
    return Usage(what, hint)


def refuse_url(word: str | None, argument: str) -> None:
    """Raise Usage when what is given for an option, or an argument of this name, is a URL, and not an existing path."""
    if word is not None and scheme_of(word) and not os.path.exists(word):
        raise Usage(f"{public_name(word)}: {spell(argument)} is a local path, not a URL")


def command_for(url: str, writing: bool = False) -> str:
    """Return a command that reads `url` to stdout, or writes it from stdin, for hints."""
    commands = _COMMANDS.get(scheme_of(url) or "", ("COMMAND {}", "COMMAND {}"))
    return commands[writing].format(public_name(url))


def public_name(url: str) -> str:
    """Return `url` for a message: without login, with `***` for secrets in its query, printable and on one line."""
    name = _SECRET.sub(r"\1***", _LOGIN.sub(r"\1", url, count=1))
    return name if name.isprintable() else show(name)
