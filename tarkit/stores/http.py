"""Objects at http:// and https:// URLs: read by GET with ranges, and never written.

Follows RFC 9110 (ranges: 14, redirects: 15.4) by urllib3. Credentials come from the URL (`https://user:password@host/`)
or from the file that $NETRC names, else ~/.netrc; proxies from `http_proxy`, `https_proxy` and `no_proxy`.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from tarkit.errors import MissingLibrary, TarkitError, Unsupported, Usage, spell
from tarkit.stores.checksum import named_by
from tarkit.stores.schemes import public_name
from tarkit.stores.store import PASSING, Info, StoreOptions, TryAgain, Upload, denied_error, not_found_error

try:
    import urllib3
    from urllib3.exceptions import HTTPError, MaxRetryError, NameResolutionError, NewConnectionError, SSLError
except ImportError:
    raise MissingLibrary("reading http://, https://, hf:// and ais://", "urllib3", "s3") from None

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

_GIVE_LOGIN = "it is read from the URL or from ~/.netrc"
_REDIRECTS = 10
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_BEHIND = re.compile(r"bytes \*/(\d+)")  # the Content-Range of a reply that the object ends before the range
_MISSING = (404, 410)
_DENIED = (401, 403, 407)


class HttpStore:
    """Objects of web servers."""

    def __init__(self, options: StoreOptions) -> None:
        self.options = options

    def head(self, url: str) -> Info:
        """Return the description of an object, by a GET of its first byte: not every server answers HEAD."""
        body = self.get(url, 0, 1)
        body.close()
        return body.info

    def get(self, url: str, start: int, stop: int | None) -> HttpReply:
        """Request bytes [start, stop) of an object."""
        body = self._get(url, start, stop)
        info = body.info
        if start == 0 and (info.version is None or info.size is None):
            # later parts could be of another version, or missing: all of it in one reply
            if body.partial:
                body.close()
                body = self._get(url, 0, None)
            body.info = body.info._replace(ranges=False)
        return body

    def _get(self, url: str, start: int, stop: int | None) -> HttpReply:
        plain, login = _without_login(url)
        credentials = {} if self.options.anonymous else login
        reply = send(self.options, "GET", plain, {**credentials, **range_header(start, stop)}, name=url)
        if not sent_range(reply):
            reply.close()
            raise error_for_reply(url, reply, bool(credentials), self.options.anonymous)
        try:
            return HttpReply(url, reply, start, stop)
        except BaseException:
            reply.close()
            raise

    def put(self, url: str, fresh: bool) -> Upload:
        """Raise Unsupported: no standard says what becomes of a PUT that ends early."""
        raise Unsupported(
            f"{public_name(url)}: writing to http:// and https:// is not supported",
            "write a file, then upload it: curl -T FILE URL",
        )

    def delete(self, url: str) -> None:
        """Raise Unsupported, as for writing."""
        raise Unsupported(f"{public_name(url)}: an object at http:// and https:// cannot be removed")

    def list(self, url: str, after: str | None, depth: int | None = None) -> Iterator[Info]:
        """Raise Unsupported: web servers have no standard for lists of files."""
        raise Unsupported(
            f"{public_name(url)}: a web server cannot be asked for names", "give each URL, or a list with -T"
        )


class HttpReply:
    """The body of a reply to a GET.

    Attributes:
        info: the object, as the reply describes it.
        partial: whether the reply has a range of the object.
    """

    def __init__(
        self, url: str, reply: BaseHTTPResponse, start: int, stop: int | None, known: int | None = None
    ) -> None:
        """Check that the reply has the bytes that were requested. `known` is the length of the object, if known.

        Raises:
            Unsupported: the server sends the whole object where a later part was requested.
            TarkitError: it sends another part.
        """
        self._reply = reply
        self._url = url
        self.partial = reply.status == HTTPStatus.PARTIAL_CONTENT
        length = reply.headers.get("Content-Length")
        size: int | None = int(length) if length is not None and length.isdigit() else None
        ranges = "bytes" in reply.headers.get("Accept-Ranges", "")
        if self.partial:
            found = _CONTENT_RANGE.fullmatch(reply.headers.get("Content-Range", ""))
            if found is None or int(found[1]) != start or (stop is not None and int(found[2]) >= stop):
                got = reply.headers.get("Content-Range", "no Content-Range")
                raise TarkitError(f"{public_name(url)}: the server sent another range than requested: {got}")
            if found[3] == "*" and stop is None:
                raise TarkitError(f"{public_name(url)}: the server does not say how long this object is")
            size = None if found[3] == "*" else int(found[3])
            ranges, self._left = True, int(found[2]) + 1 - start
        elif reply.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            behind = _BEHIND.fullmatch(reply.headers.get("Content-Range", ""))
            if behind is None or int(behind[1]) > start:
                raise TarkitError(f"{public_name(url)}: the server does not send bytes {start} and following")
            size, ranges, self._left = int(behind[1]), True, 0
            reply.drain_conn()
        else:
            if reply.status != HTTPStatus.OK:
                raise TarkitError(f"{public_name(url)}: the server answers {reply.status}, which is no object")
            if start:
                raise Unsupported(f"{public_name(url)}: the server does not send parts of this object")
            size = known if size is None else size
            self._left = -1 if size is None else size
        date = reply.headers.get("Last-Modified")
        version = reply.headers.get("ETag") or date
        checksum = named_by(reply.headers, whole=reply.status == HTTPStatus.OK)
        self.info = Info(url, size, version, ranges and size is not None, _time(date), checksum)

    def read(self, n: int) -> bytes:
        """Return up to `n` bytes, b"" at the end; raises TryAgain."""
        try:
            data: bytes = self._reply.read(n)
        except HTTPError as error:
            raise _error_for(self._url, self._url, error) from error
        except (OSError, ValueError, AttributeError) as error:  # closed by another thread
            raise TryAgain(f"the connection was closed: {error}") from error
        if self._left >= 0:
            self._left -= len(data)
            if not data and n and self._left > 0:
                raise TryAgain(f"the reply ended {self._left} bytes early")
        return data

    def close(self) -> None:
        """Close the connection; a `read` in another thread ends."""
        try:
            self._reply.shutdown()
        except (RuntimeError, ValueError, OSError, AttributeError):
            pass  # closed already, or read to its end and its connection in use again
        self._reply.close()


def open_store(options: StoreOptions) -> HttpStore:
    """Return the store of http and https."""
    return HttpStore(options)


def settings(scheme: str) -> frozenset[str]:
    """Return the names of settings for a scheme."""
    return frozenset()


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

    Redirects to another host, port or scheme are followed without `Authorization`; with `redirect` False none is.

    Args:
        options: the time-out of the request.
        method: the method.
        url: where to, without a login.
        headers: its headers.
        name: the URL for messages.
        body: what is sent.
        redirect: follow redirects.
    """
    pool = _pool(options.timeout, _proxy(url))
    retries = urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=_REDIRECTS)
    try:
        reply: BaseHTTPResponse = pool.request(
            method,
            url,
            body=body,
            headers={"Accept-Encoding": "identity", "User-Agent": "tarkit", **headers},
            preload_content=False,
            decode_content=False,
            redirect=redirect,
            retries=retries,
        )
    except HTTPError as error:
        raise _error_for(name, url, error) from error
    except ValueError:  # its text has the header
        raise TarkitError(f"{public_name(name)}: a header is not valid", "has the token or login a line end?") from None
    return reply


def range_header(start: int, stop: int | None) -> dict[str, str]:
    """Return the header that requests bytes [start, stop); {} for all of an object (RFC 9110 14.2)."""
    return {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"} if start or stop is not None else {}


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
        raise _error_for(name, name, error) from error
    finally:
        reply.release_conn()
    return data


@lru_cache(maxsize=16)
def _pool(timeout: float, proxy: str | None) -> Any:
    limits = urllib3.Timeout(connect=timeout, read=timeout)
    if proxy is None:
        return urllib3.PoolManager(timeout=limits, maxsize=16)
    try:
        return urllib3.ProxyManager(proxy, timeout=limits, maxsize=16)
    except (HTTPError, ValueError):
        hint = "http_proxy, https_proxy and all_proxy are http://HOST:PORT"
        raise Usage(f"{public_name(proxy)}: not a proxy that can be used", hint) from None


def _proxy(url: str) -> str | None:
    """Return the proxy for a URL, by the environment; without a scheme it is http, as for curl."""
    from urllib.request import getproxies, proxy_bypass

    proxies, parts = getproxies(), urlsplit(url)
    if not proxies or proxy_bypass(parts.hostname or ""):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the header that sends them: of the URL, else of a netrc file."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    plain = urlunsplit(parts._replace(netloc=host, fragment=""))
    if parts.username is not None:
        return plain, _basic(unquote(parts.username), unquote(parts.password or ""))
    return plain, _netrc(parts.hostname or "")


def _basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def _netrc(host: str) -> dict[str, str]:
    import netrc

    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return {}
    return _basic(found[0], found[2] or "") if found and found[0] else {}


def _error_for(name: str, url: str, error: HTTPError) -> Exception:
    """Return the exception for a request to `url` that got no reply, or a body that broke."""
    cause: BaseException = error
    while isinstance(cause, MaxRetryError) and cause.reason is not None:
        cause = cause.reason
    if isinstance(cause, SSLError):
        return TarkitError(
            f"{public_name(name)}: TLS error: {cause}", "is the certificate valid, and SSL_CERT_FILE right?"
        )
    host = urlsplit(url).hostname
    if isinstance(cause, NameResolutionError):
        return TryAgain(f"the name of the host {host} cannot be resolved")
    if isinstance(cause, NewConnectionError):
        return TryAgain(f"no connection to {host}: {_reason(cause)}")
    if isinstance(error, MaxRetryError) and isinstance(cause, urllib3.exceptions.ResponseError):
        return TarkitError(f"{public_name(name)}: more than {_REDIRECTS} redirects")
    return TryAgain(_reason(cause))


def _reason(error: BaseException) -> str:
    """Return what an error of urllib3 comes from, in few words."""
    inner = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], BaseException) else error.__cause__
    for each in (inner, error):
        if isinstance(each, (urllib3.exceptions.TimeoutError, TimeoutError)):
            return "no byte came within the time-out"
        if isinstance(each, urllib3.exceptions.IncompleteRead):
            return "the reply ended early"
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
    return str(inner or error)


def error_for_reply(url: str, reply: BaseHTTPResponse, logged_in: bool, anonymous: bool = False) -> Exception:
    """Return the exception for a reply with a status other than success.

    Args:
        url: the object.
        reply: the reply.
        logged_in: whether credentials were sent.
        anonymous: whether none were to be sent.
    """
    status, name = reply.status, public_name(url)
    words = f"{status} {reply.reason or ''}".strip()
    if status in PASSING:
        return TryAgain(f"the server answers {words}", _retry_after(reply.headers.get("Retry-After")))
    if status in _MISSING:
        if re.search(r"[*?\[]", urlsplit(url).path) or url.endswith("/"):
            hint = "a web server cannot be asked for names: give them in braces, such as 'train-{000..099}.tar'"
            return TarkitError(f"{name}: {os.strerror(2)}", hint)
        return not_found_error(name)
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
    except (ValueError, OverflowError):
        return None


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a header Retry-After (RFC 9110 10.2.3), a number or a date."""
    if text is None:
        return None
    if text.isdigit():
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time(), 0.0)
    except ValueError:
        return None
