"""Objects at http:// and https:// URLs: read by GET with ranges, and never written.

Follows RFC 9110 (ranges: 14, redirects: 15.4) by urllib3. Credentials come from the URL (`https://user:password@host/`)
or from the file that $NETRC names, else ~/.netrc; proxies from `http_proxy`, `https_proxy` and `no_proxy`.
"""

from __future__ import annotations

import json
import netrc
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from tarkit.errors import MissingLibrary, TarkitError, Unsupported, Usage, printable, spell
from tarkit.sizes import plural
from tarkit.stores.checksum import named_by
from tarkit.stores.schemes import public_name
from tarkit.stores.store import (
    PASSING,
    Info,
    Reply,
    Store,
    StoreOptions,
    TryAgain,
    Upload,
    denied_error,
    not_found_error,
    proxy_login_error,
)

try:
    import urllib3
    from urllib3.exceptions import (
        HTTPError,
        LocationValueError,
        MaxRetryError,
        NameResolutionError,
        NewConnectionError,
        ProxyError,
        SSLError,
    )
except ImportError:
    raise MissingLibrary("reading http://, https://, hf:// and ais://", "urllib3", "s3") from None

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

_GIVE_LOGIN = "it is read from the URL or from ~/.netrc"
_REDIRECTS = 10
_NUMBER = re.compile(r"[0-9]{1,18}")  # of bytes, or of seconds
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_BEHIND = re.compile(r"bytes \*/([0-9]{1,18})")  # the Content-Range of a reply that the object ends before the range
_HEADER = re.compile(r"[\t -~\x80-\xff]*")  # the value of a header that can be sent (RFC 9110 5.5)
_SHOWN = 200  # characters of a reply in a message
_NO_TLS = {
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
}  # messages of OpenSSL for a reply that is not TLS, by version
_MISSING = (404, 410)
_DENIED = (401, 403)
_TUNNEL = re.compile(r"^Tunnel connection failed: (\d{3})\b")


class HttpStore(Store):
    """Objects of web servers."""

    def head(self, url: str) -> Info:
        """Return the description of an object, by a GET of its first byte: not every server answers HEAD."""
        body = self.get(url, 0, 1)
        body.close()
        return body.info

    def get(self, url: str, start: int, stop: int | None) -> HttpReply:
        plain, login = _without_login(url)
        credentials = {} if self.options.anonymous else login
        reply = send(self.options, "GET", plain, {**credentials, **range_header(start, stop)}, name=url)
        if not sent_range(reply):
            reply.close()
            raise error_for_reply(url, reply, bool(credentials), self.options.anonymous)
        with closed_on_error(reply):
            return HttpReply(url, reply, start, stop)

    def put(self, url: str, fresh: bool) -> Upload:
        """Raise Unsupported: no standard defines the effect of a PUT that ends early."""
        raise Unsupported(
            f"{public_name(url)}: writing to http:// and https:// is not supported",
            "write a file, then upload it: curl -T FILE URL",
        )

    def list(self, url: str, depth: int | None = None) -> Iterator[Info]:
        """Raise Unsupported: web servers have no standard for lists of files."""
        raise Unsupported(
            f"{public_name(url)}: a web server cannot be asked for names", "give each URL, or a list with -T"
        )


class HttpReply(Reply):
    """The body of a reply to a GET.

    Attributes:
        info: the object, as the reply describes it.
    """

    def __init__(
        self, url: str, reply: BaseHTTPResponse, start: int, stop: int | None, expected: int | None = None
    ) -> None:
        """Check that the reply has the bytes that were requested. `expected` is the length of the object, if known.

        Raises:
            Unsupported: the server sends the whole object where a later part was requested.
            TarkitError: it sends another part.
        """
        self._reply = reply
        self._url = url
        name, status = public_name(url), reply.status
        length = size = content_length(reply, url)
        self._remaining: int | None = None  # bytes that follow, if it is known
        if status == HTTPStatus.PARTIAL_CONTENT:
            end, size = self._range(reply, start, stop)
            if length not in (None, end - start):
                words = f"the server sent {plural(length, 'byte')}, and says they are bytes {start} to {end - 1}"
                raise TarkitError(f"{name}: {words}")
            ranges, self._remaining = True, end - start
        elif status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            behind = _BEHIND.fullmatch(reply.headers.get("Content-Range", ""))
            if behind is None or int(behind[1]) > start:
                raise TarkitError(f"{name}: the server does not send bytes {start} and following")
            size, ranges, self._remaining = int(behind[1]), True, 0
            reply.drain_conn()
        elif status != HTTPStatus.OK:
            raise TarkitError(f"{name}: the server answers {status}, which is no object")
        elif start:
            raise Unsupported(f"{name}: the server does not send parts of this object")
        else:
            self._remaining = size = expected if size is None else size
            ignored = stop is not None and (size is None or size > stop)  # the range, which was requested
            ranges = "bytes" in reply.headers.get("Accept-Ranges", "") and not ignored
        date = reply.headers.get("Last-Modified")
        version = reply.headers.get("ETag") or date
        checksum = named_by(reply.headers, whole=status == HTTPStatus.OK)
        ends = size is not None or reply.headers.get("Transfer-Encoding", "").lower() == "chunked"
        self.info = Info(url, size, version, ranges, _time(date), checksum, ends)

    def _range(self, reply: BaseHTTPResponse, start: int, stop: int | None) -> tuple[int, int | None]:
        """Return the end of the range that a reply has, and the length of the object, if the reply says it."""
        text = reply.headers.get("Content-Range", "no Content-Range")
        match = _CONTENT_RANGE.fullmatch(text)
        if match is not None:
            first, last = int(match[1]), int(match[2])
            size = None if match[3] == "*" else int(match[3])
            ends = [end for end in (stop, size) if end is not None]
            if first == start and first <= last < min(ends, default=last + 1):
                if not ends:
                    raise TarkitError(f"{public_name(self._url)}: the server does not say how long this object is")
                return last + 1, size
        words = f"the server sent another range than requested: {_shown(text)}"
        raise TarkitError(f"{public_name(self._url)}: {words}")

    def read(self, n: int) -> bytes:
        n = n if self._remaining is None else min(n, self._remaining)
        try:
            data: bytes = self._reply.read(n)
        except HTTPError as error:
            raise _error_for(self._url, error) from error
        except (OSError, ValueError, AttributeError) as error:  # closed by another thread
            raise TryAgain(f"the connection was closed: {error}") from error
        if self._remaining is not None:
            self._remaining -= len(data)
            if not data and n:
                raise TryAgain(f"the reply ended {plural(self._remaining, 'byte')} early")
        return data

    def close(self) -> None:
        try:
            self._reply.shutdown()
        except (RuntimeError, ValueError, OSError, AttributeError):
            pass  # closed already, or read to its end and its connection in use again
        self._reply.close()


@contextmanager
def closed_on_error(reply: BaseHTTPResponse) -> Iterator[None]:
    """Close the connection of a reply after an error."""
    try:
        yield
    except BaseException:
        reply.close()
        raise


def proxy_of(url: str) -> str | None:
    """Return the proxy for a URL, by the environment; without a scheme it is http, as for curl."""
    proxies, parts = getproxies(), urlsplit(url)
    if not proxies or proxy_bypass(parts.hostname or ""):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def send(
    options: StoreOptions,
    method: str,
    url: str,
    headers: Mapping[str, str],
    *,
    name: str,
    body: bytes | memoryview | None = None,
    redirect: bool = True,
) -> BaseHTTPResponse:
    """Send a request; return the reply, of whatever status, before its body is read.

    Redirects to another host, port or scheme are followed without `Authorization`; with `redirect` False none is. The
    URL for messages is `name`.
    """
    if not all(map(_HEADER.fullmatch, headers.values())):  # no text of theirs in the message
        raise TarkitError(f"{public_name(name)}: a header is not valid", "has the token or login a line end?")
    pool = _pool(options.timeout, proxy_of(url))
    retries = urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=_REDIRECTS)
    headers = {"Accept-Encoding": "identity", "User-Agent": "tarkit", **headers}
    arguments = {"preload_content": False, "decode_content": False, "redirect": redirect, "retries": retries}
    try:
        reply: BaseHTTPResponse = pool.request(method, url, body=body, headers=headers, **arguments)
    except HTTPError as error:
        raise _error_for(name, error) from error
    except ValueError as error:
        raise _address_error(name) from error
    return reply


def is_address(url: str) -> bool:
    """Whether a URL can be requested: its scheme is http or https, and its host and port are valid."""
    try:
        urlsplit(url)
        parts = urllib3.util.parse_url(url)
    except (HTTPError, ValueError):
        return False
    return parts.scheme in ("http", "https") and bool(parts.host)


def linked_address(address: str, link: str, name: str) -> str:
    """Return the address that a reply from `address` refers to by a header Location or Link (RFC 3986, 5).

    Raises:
        TarkitError: it cannot be requested; `name` is the URL for the message.
    """
    try:
        target = urljoin(address, link)
    except ValueError:
        target = ""
    if not is_address(target):
        raise _address_error(name)
    return target


def _address_error(name: str) -> TarkitError:
    return TarkitError(f"{public_name(name)}: the server redirects to what is no valid http:// or https:// URL")


def range_header(start: int, stop: int | None) -> dict[str, str]:
    """Return the header that requests bytes [start, stop); {} for all of an object (RFC 9110 14.2)."""
    return {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"} if start or stop is not None else {}


def number(text: str | None) -> int | None:
    """Return the number of bytes in a header; None if the header is missing or invalid."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def content_length(reply: BaseHTTPResponse, name: str) -> int | None:
    """Return the length of the body of a reply; None if the reply does not say it (RFC 9112 6.3).

    Raises:
        TarkitError: the end of the body is unknown; `name` is the URL for the message.
    """
    coding = reply.headers.get("Transfer-Encoding", "identity").lower()
    length = reply.headers.get("Content-Length")
    if coding not in ("identity", "chunked"):
        raise TarkitError(f"{public_name(name)}: the server sends a coding that was not requested: {_shown(coding)}")
    if length is None or coding == "chunked":
        return None
    if (size := number(length.strip())) is None:
        raise TarkitError(f"{public_name(name)}: the server sends an invalid Content-Length: {_shown(length)}")
    return size


def succeeded(reply: BaseHTTPResponse) -> bool:
    """Whether a reply is that of success."""
    return 200 <= reply.status < 300


def sent_range(reply: BaseHTTPResponse) -> bool:
    """Whether a reply to a GET is one for `HttpReply`: of success, or that the range is behind the end."""
    return succeeded(reply) or reply.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


def token_hint(sent: bool, anonymous: bool, source: str) -> str:
    """Return the hint for a reply that wants a token, which is read from `source`."""
    if anonymous:
        return f"no token was sent, because of {spell('anonymous')}"
    return "the token was sent" if sent else f"no token was sent: it is read from {source}"


def content(reply: BaseHTTPResponse, name: str) -> bytes:
    """Return the body of a short reply, such as JSON; `name` is the URL for messages."""
    try:
        data: bytes = reply.read()
    except HTTPError as error:
        raise _error_for(name, error) from error
    finally:
        reply.release_conn()
    return data


def read_json(reply: BaseHTTPResponse, name: str) -> Any:
    """Return the value of a reply in JSON. Raises TryAgain for another one, such as a page of a proxy."""
    try:
        return json.loads(content(reply, name))
    except (ValueError, RecursionError):
        raise TryAgain("the reply of the server is not JSON") from None


@lru_cache(maxsize=16)
def _pool(timeout: float, proxy: str | None) -> Any:
    limits = urllib3.Timeout(connect=timeout, read=timeout)
    if proxy is None:
        return urllib3.PoolManager(timeout=limits, maxsize=16)
    try:
        login = urllib3.util.parse_url(proxy).auth
        login = login + ":" if login and ":" not in login else login
        headers = urllib3.make_headers(proxy_basic_auth=unquote(login, "latin-1")) if login else None
        return urllib3.ProxyManager(proxy, timeout=limits, maxsize=16, proxy_headers=headers)
    except (HTTPError, ValueError):  # no text of theirs: it may have the login
        hint = "http_proxy, https_proxy and all_proxy are http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"
        raise Usage("the proxy that the environment names cannot be used", hint) from None


os.register_at_fork(after_in_child=_pool.cache_clear)  # connections are of one process


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the header that sends them: of the URL, else of a netrc file."""
    if not is_address(url):
        raise Usage(f"{public_name(url)}: not a valid URL", "http://HOST/NAME or http://HOST:PORT/NAME")
    parts = urlsplit(url)
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
    else:
        path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
        try:
            user, _, password = netrc.netrc(path).authenticators(parts.hostname or "") or ("", "", "")
        except (OSError, netrc.NetrcParseError):
            return plain, {}
        if not user:
            return plain, {}
    return plain, {"Authorization": "Basic " + b64encode(f"{user}:{password or ''}".encode()).decode()}


def _error_for(name: str, error: HTTPError) -> Exception:
    """Return the exception for a request that got no reply, or a body that broke."""
    cause: BaseException = error
    while isinstance(cause, MaxRetryError) and cause.reason is not None:
        cause = cause.reason
    if isinstance(cause, LocationValueError):
        return _address_error(name)
    pool = error.pool if isinstance(error, MaxRetryError) else None
    host = getattr(pool, "host", None)  # after redirects another one than that of the URL
    if isinstance(cause, SSLError):
        if _NO_TLS.intersection(getattr(part, "reason", None) or "" for part in cause.args):
            words = f"the server at {host}:{getattr(pool, 'port', None)} speaks plain HTTP: use http://"
            return TarkitError(f"{public_name(name)}: {words}")
        return TarkitError(
            f"{public_name(name)}: TLS error: {_shown(str(cause))}",
            "is the certificate valid, and SSL_CERT_FILE right?",
        )
    if isinstance(cause, ProxyError):
        return _proxy_error(name, pool, cause)
    if isinstance(cause, NameResolutionError):
        return TryAgain(f"the name of the host {host} cannot be resolved")
    if isinstance(cause, NewConnectionError):
        return TryAgain(f"no connection to {host}: {_reason(cause)}")
    if isinstance(error, MaxRetryError) and isinstance(cause, urllib3.exceptions.ResponseError):
        return TarkitError(f"{public_name(name)}: more than {_REDIRECTS} redirects")
    return TryAgain(_reason(cause))


def _proxy_error(name: str, pool: Any, error: ProxyError) -> Exception:
    """Return the exception for a proxy that cannot be reached, or does not connect to the server."""
    proxy = getattr(pool, "proxy", None)
    shown = f"the proxy {proxy.host}:{proxy.port}" if proxy is not None else "the proxy"
    inner = error.original_error
    if refused := _TUNNEL.search(str(inner)):  # an OSError of http.client, which has the status in its text alone
        if int(refused[1]) == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return proxy_login_error(public_name(name))
        return TryAgain(f"{shown} answers {refused[1]}")
    if isinstance(inner, NameResolutionError):
        return TryAgain(f"the name of {shown} cannot be resolved")
    return TryAgain(f"no connection to {shown}: {_reason(inner)}")


def _shown(text: str) -> str:
    return printable(text[:_SHOWN])


def _reason(error: BaseException) -> str:
    """Return the cause of an error of urllib3, in few words."""
    inner = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], BaseException) else error.__cause__
    if isinstance(inner, NewConnectionError):  # which is a TimeoutError for urllib3, whatever it is
        return _reason(inner)
    for failure in (inner, error):
        if isinstance(failure, (urllib3.exceptions.TimeoutError, TimeoutError)):
            return "no byte came within the time-out"
        if isinstance(failure, urllib3.exceptions.IncompleteRead):
            return "the reply ended early"
        if isinstance(failure, OSError) and failure.strerror:
            return failure.strerror
    return _shown(str(inner or error))


def error_for_reply(url: str, reply: BaseHTTPResponse, logged_in: bool, anonymous: bool = False) -> Exception:
    """Return the exception for a reply other than success, to a request that had a login, or was to have none."""
    status, name = reply.status, public_name(url)
    words = _shown(f"{status} {reply.reason or ''}".strip())
    if status in PASSING:
        return TryAgain(f"the server answers {words}", _retry_after(reply.headers.get("Retry-After")))
    if status in _MISSING:
        if re.search(r"[*?\[]", urlsplit(url).path) or url.endswith("/"):
            hint = "a web server cannot be asked for names: give them in braces, such as 'train-{000..099}.tar'"
            return TarkitError(f"{name}: {os.strerror(2)}", hint)
        return not_found_error(name)
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return proxy_login_error(name)
    if status in _DENIED:
        hint = "the login was not accepted" if logged_in else f"no login was sent: {_GIVE_LOGIN}"
        if anonymous:
            hint = f"no login was sent: without {spell('anonymous')} {_GIVE_LOGIN}"
        return denied_error(name, f"the server answers {words}", hint)
    return TarkitError(f"{name}: the server answers {words}")


def _time(date: str | None) -> int | None:
    """Return the nanoseconds since 1970 of a date (RFC 9110 5.6.7); None if it is not one."""
    try:
        return None if date is None else int(parsedate_to_datetime(date).timestamp()) * 10**9
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError):  # there are many ways to be no date
        return None


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a header Retry-After (RFC 9110 10.2.3), a number or a date."""
    seconds, date = number(text), _time(text)
    if seconds is not None:
        return float(seconds)
    return None if date is None else max(date / 1e9 - time(), 0.0)
