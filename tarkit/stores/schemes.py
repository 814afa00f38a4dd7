"""The table of URL schemes, and names of URLs for messages. The store of a scheme is imported by `connect`."""

from __future__ import annotations

import os
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

from tarkit.errors import MissingLibrary, Usage, show, spell
from tarkit.redaction import hide_secrets


class Scheme(NamedTuple):
    """A row of the table: the facts about a scheme that do not need its module.

    Attributes:
        module: the name of its module.
        store: the class there, a `store.Store`.
        settings: names of settings (`StoreOptions.storage`); None if any may be given.
        listed: whether its objects can be listed.
        writable: whether its objects can be written.
        threads: whether its library starts threads that stay, so that the process cannot be copied any more.
    """

    module: str
    store: str
    settings: str | None = ""
    listed: bool = True
    writable: bool = True
    threads: bool = False


def _bucket(settings: str) -> Scheme:
    return Scheme("tarkit.stores.objects", "ObjectStore", settings, threads=True)


_WEB = Scheme("tarkit.stores.http", "HttpStore", listed=False, writable=False)

SCHEMES: dict[str, Scheme] = {
    "s3": _bucket(
        "access_key_id secret_access_key session_token region request_payer virtual_hosted_style_request "
        "checksum_algorithm conditional_put disable_tagging metadata_endpoint role_arn role_session_name "
        "server_side_encryption sse_kms_key_id sse_bucket_key_enabled unsigned_payload web_identity_token_file"
    ),
    "gs": _bucket("service_account service_account_key application_credentials bearer_token"),
    "az": _bucket(
        "account_name account_key sas_key token client_id client_secret tenant_id authority_host msi_endpoint "
        "object_id msi_resource_id federated_token_file use_azure_cli use_emulator disable_tagging"
    ),
    "http": _WEB,
    "https": _WEB,
    "hf": Scheme("tarkit.stores.hub", "HubStore", "token", writable=False),
    "ais": Scheme("tarkit.stores.ais", "AisStore", "endpoint token"),
}
"""The table, by schemes in lower case. Settings of buckets are those of obstore, but for the server and the bucket."""

OTHER = Scheme("tarkit.stores.other", "OtherStore", None, threads=True)
"""The row of all schemes that are not in the table. Its module has `knows(scheme) -> bool` as well; it needs fsspec."""

_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*)://"
_COMMANDS = {"hdfs": ("hdfs dfs -cat", "hdfs dfs -put -")}  # that read to stdout, and write from stdin, for hints


def scheme_of(text: str) -> str | None:
    """Return the scheme of `text` in lower case if it begins with `SCHEME://` (RFC 3986, 3.1), else None."""
    match = re.match(_SCHEME, text)
    return match[1].lower() if match else None


def find_scheme(url: str) -> Scheme | None:
    """Return the store of a URL; None if no store serves it.

    That is AIStore for the schemes of USE_AIS_FOR (see `rewrite`), else the row of its scheme, else OTHER.
    """
    name = scheme_of(url)
    if name is None:
        return None
    if name in os.environ.get("USE_AIS_FOR", "").split(":"):
        return SCHEMES["ais"]
    if name in SCHEMES:
        return SCHEMES[name]
    try:
        return OTHER if cast(Any, import_module(OTHER.module)).knows(name) else None
    except MissingLibrary:
        return None


def is_listed(url: str) -> bool:
    """Whether globs and directories in a URL can be listed."""
    scheme = find_scheme(url)
    return scheme is not None and scheme.listed


def unknown_scheme_error(url: str, writing: bool = False) -> Usage:
    """Return the error for a URL with an unknown scheme; its hint is a `pipe:` to use instead."""
    name = scheme_of(url) or ""
    names = ", ".join(f"{scheme}://" for scheme in sorted(SCHEMES))
    command = _COMMANDS.get(name, ("COMMAND", "COMMAND"))[writing]
    hint = f"use a command: 'pipe:{command} {public_name(url)}'"
    if name.startswith("z"):
        hint += "; ZeroMQ is zpush://, zpull://, zpub:// and zsub://"
    if find_spec("fsspec") is None:
        hint += "; fsspec may know it: pip install 'tarkit[fsspec]'"
    return Usage(f"{public_name(url)}: unknown scheme {name}:// (known: {names})", hint)


def refuse_url(word: str | None, argument: str) -> None:
    """Raise Usage if the value of an option, or of an argument of this name, is a URL and not an existing path."""
    if word is not None and scheme_of(word) and not os.path.exists(word):
        raise Usage(f"{public_name(word)}: {spell(argument)} is a local path, not a URL")


def is_socket(url: str) -> bool:
    """Return whether this is an address of ZeroMQ, which is no URL of a store; see `tarkit.messages.sockets`."""
    return re.match(r"(?i)zr?(?:push|pull|pub|sub)(?:\+[a-z]+)?://", url) is not None


def public_name(url: str) -> str:
    """Return `url` for a message: without login, with `***` for secrets in parameters, printable and on one line."""
    name = hide_secrets(url, whole=True)
    return name if name.isprintable() else show(name)
