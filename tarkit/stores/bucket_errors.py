"""The errors of obstore: their exceptions for users, and those that may pass.

An error of obstore is a class for a few kinds, and a text: a line for users, which has the method, the URL and the
status of the reply, and behind it the tree of causes as Rust prints it. The names of types in that tree say what
failed. Texts in it, such as the body of a reply, are left out: a server can write anything there.
"""

from __future__ import annotations

import os
import re
from typing import NoReturn
from urllib.parse import urlsplit

from tarkit.errors import TarkitError, spell
from tarkit.stores.buckets import login_hint, split_url
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import (
    PASSING,
    StoreOptions,
    TryAgain,
    denied_error,
    exists_error,
    not_found_error,
    proxy_login_error,
)

_TREE = "\nDebug source:\n"  # the text between the two
_SOURCE = re.compile(r"^Generic \w+ error: ")
_URL = re.compile(r"https?://\S+")
_REQUEST = re.compile(r"Error performing ([A-Z]+) (https?://\S+)")
_STATUS = re.compile(r" - Server returned non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_ROLE = re.compile(r"Error performing (token request|[A-Z]+ https?://(169\.254\.|metadata\.google))")  # of the machine
_PROVIDER = re.compile(r"External AWS credential provider: (?:TarkitError|Usage): (.*)")  # see `aws`
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_DNS = re.compile(r'\bConnectError\(\s*"dns error"')
_OS = re.compile(r"\bOs \{\s*code: (\d+),")
_ADDRESS = re.compile(r'\bConnectError\(\s*"[^"]*",\s*\S*:(\d+),')
_NOT_TLS = re.compile(r"\bInvalidMessage\(")
_TLS = re.compile(r"\b(InvalidCertificate|AlertReceived|PeerIncompatible|PeerMisbehaved|UnsupportedNameType)\b")

_CAUSES = (
    (re.compile(r"\bkind: Timeout\b|\bTimedOut\b"), "no byte came within the time-out"),
    (re.compile(r"\bTunnelUn"), "the proxy does not connect to the server; has it the right login?"),
    (re.compile(r"\b(IncompleteBody|UnexpectedEof)\b"), "the reply ended early"),
    (re.compile(r"\b(IncompleteMessage|ChannelClosed|Canceled)\b"), "the server closed the connection"),
    (re.compile(r"\bParse\("), "the server does not answer in HTTP"),
    (re.compile(r"\bInvalidListResponse\b"), "the server sends something else than a list of objects"),
    (re.compile(r"\bInvalidMultipartResponse\b"), "the server sends something else than a reply to an upload"),
)
_SYSTEM = {104: "the connection was reset", 111: "connection refused", 32: "the connection was closed"}


def status_of(text: str) -> int | None:
    """Return the status of the reply that the text of an error names; None if there was none."""
    match = _STATUS.search(text)
    return int(match[1]) if match else None


def first_line(error: BaseException | str) -> str:
    """Return the first line of an error, without the name of its store and without URLs, which may have secrets."""
    return _URL.sub("the server", _SOURCE.sub("", str(error).partition("\n")[0]))[:300]


def aborting(error: BaseException) -> bool:
    """Whether an error is that of the request that gives an upload of parts up."""
    match = _REQUEST.search(str(error))
    return match is not None and match[1] == "DELETE"


def is_lost(error: BaseException) -> bool:
    """Whether an error may be that of a second request to complete an upload, after the first reply was lost."""
    return status_of(str(error)) == 404 and "NoSuchUpload" in str(error)


def raise_for(url: str, error: BaseException, options: StoreOptions) -> NoReturn:
    """Raise the exception for an error of obstore."""
    panic = type(error).__name__ == "PanicException"  # of Rust: a BaseException that cannot be imported
    if isinstance(error, (TarkitError, TryAgain)) or not (panic or isinstance(error, Exception)):
        raise error
    name, text = public_name(url), str(error)
    if panic:
        raise TarkitError(f"{name}: the library failed: {first_line(error)}") from error
    status, code, match = status_of(text), _CODE.search(text), _MESSAGE.search(text)
    words = match[1].strip().partition("\n")[0].rstrip(".") if match else ""
    message = ": ".join(filter(None, (code[1] if code else "", words)))
    final = _final_error(url, error, message, status, options) or (None if status else _useless(name, text, options))
    if final is not None:
        raise final from error
    if status is not None:
        reason = f"the server answers {status}{': ' if message else ''}{message}"
    elif isinstance(error, OSError) or type(error).__name__ == "GenericError":
        reason = _cause(text)
    else:
        raise TarkitError(f"{name}: {first_line(error)}") from error
    raise TryAgain(reason) from error  # in no variable here: that is a cycle, which keeps all that callers hold


def _final_error(
    url: str, error: BaseException, message: str, status: int | None, options: StoreOptions
) -> Exception | None:
    """Return the exception for a reply that another request does not change; None for others."""
    name, scheme, kind = public_name(url), scheme_of(url) or "", type(error).__name__
    if message.startswith(("NoSuchBucket", "ContainerNotFound")):
        words = "container" if scheme == "az" else "bucket"
        return TarkitError(f"{scheme}://{split_url(url)[1]}: there is no such {words}")
    if message.startswith("NoSuchUpload"):
        return TarkitError(f"{name}: the server has not got this upload any more; the object was not written")
    if isinstance(error, FileNotFoundError):
        return not_found_error(name)
    if kind in ("AlreadyExistsError", "PreconditionError") or status == 412:  # all conditions are that there is none
        return exists_error(name)
    if status == 407:
        return proxy_login_error(name)
    if (refusal := _denied_error(url, error, message, status, options)) is not None:
        return refusal
    if status is not None and status not in PASSING:
        return TarkitError(f"{name}: the server answers {status}{': ' if message else ''}{message}")
    return None


def _useless(name: str, text: str, options: StoreOptions) -> TarkitError | None:
    """Return the exception for a connection that fails again and again; None for one that may not."""
    tree = _STRING.sub('""', text.partition(_TREE)[2])
    server = f"{spell('endpoint_url')} names the server"
    if "inner: BareRedirect" in tree or " - Received redirect without LOCATION" in text:
        words = "the server redirects without saying where to: is the bucket in another region?"
        region = "set AWS_REGION" if options.setting("region") is None else "check the option region"
        return TarkitError(f"{name}: {words}", f"{region}; {server}")
    if "ProxyAuthRequired" in tree:
        return proxy_login_error(name)
    if _NOT_TLS.search(tree):
        return TarkitError(f"{name}: TLS error: the server answers without TLS: is it http://?", server)
    if match := _TLS.search(tree):
        return TarkitError(f"{name}: TLS error: {match[1]}", f"is the certificate valid? {server}")
    if "kind: Builder" in tree:
        return TarkitError(f"{name}: the endpoint is not a valid URL", server)
    return None


def _cause(text: str) -> str:
    """Return why there was no reply, with the server."""
    line, _, raw = text.partition(_TREE)
    tree, request = _STRING.sub('""', raw), _REQUEST.search(line)
    server = ""
    if request is not None:
        from tarkit.stores.http import proxy_of  # slow to import

        parts = urlsplit(request[2])
        proxy, address = proxy_of(request[2]), _ADDRESS.search(raw)
        server = f" ({parts.netloc.rpartition('@')[2]})"
        if proxy is not None and address is not None and str(urlsplit(proxy).port or 80) == address[1]:
            server = f" (the proxy {urlsplit(proxy).netloc.rpartition('@')[2]})"
    if _DNS.search(raw):
        return f"the name of the host cannot be resolved{server}"
    for pattern, words in _CAUSES:
        if pattern.search(tree):
            return words + (server if "kind: Timeout" in tree else "")
    if match := _OS.search(tree):
        number = int(match[1])
        return f"{_SYSTEM.get(number) or os.strerror(number)}{server}"
    return "the connection failed" if " - HTTP error: " in line else first_line(text)


def _denied_error(
    url: str, error: BaseException, message: str, status: int | None, options: StoreOptions
) -> TarkitError | None:
    """Return the exception for credentials that are missing or not accepted, None for another error."""
    name, scheme = public_name(url), scheme_of(url) or ""
    if match := _PROVIDER.search(str(error).partition("\n")[0]):
        return TarkitError(f"{name}: {match[1]}", "does `aws sts get-caller-identity` find credentials?")
    unsent = bool(_ROLE.search(str(error).partition("\n")[0])) and status not in PASSING
    login = login_hint(scheme, options, sent=not unsent)
    hint = f"{login}; {spell('anonymous')} reads a public bucket"
    if unsent:
        return TarkitError(f"{name}: no credentials: none are set, and this machine has no role", hint)
    refused = type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403)
    if options.anonymous and (refused or status == 400):  # a server may say nothing better without a signature
        detail = f"no credentials were sent{': ' if message else ''}{message}"
        return denied_error(name, detail, f"without {spell('anonymous')} they are sent: {login}")
    return denied_error(name, message or "the credentials that were sent do not allow it", hint) if refused else None
