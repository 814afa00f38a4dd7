"""Objects in buckets of AIStore: `ais://BUCKET/NAME`, `ais://@UUID#NAMESPACE/BUCKET/NAME`, by its own HTTP API.

`AIS_ENDPOINT` names a gateway of the cluster, `AIS_AUTHN_TOKEN` (or the file of `ais auth login`) is the token.
Gateways redirect requests for objects to the target that stores them. The token is sent to the gateway alone.

The calls are those of AIStore's Python client: `/v1/objects/BUCKET/NAME` by GET, HEAD and PUT, multipart uploads by
POST and DELETE (from AIStore 4.0 on), lists by GET and settings by HEAD of `/v1/buckets/BUCKET`.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from threading import Event
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import quote, urlencode

from tarkit.errors import TarkitError, Usage, printable
from tarkit.stores.http import (
    HttpReply,
    closed_on_error,
    content,
    content_length,
    error_for_reply,
    is_address,
    linked_address,
    number,
    range_header,
    read_json,
    send,
    sent_range,
    succeeded,
    token_hint,
)
from tarkit.stores.names import check_name, is_text, name_fault, warn_of_names
from tarkit.stores.retry import RetryPolicy, list_pages
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import (
    PASSING,
    Info,
    Store,
    StoreOptions,
    TryAgain,
    Upload,
    denied_error,
    not_found_error,
    unquote_etag,
)
from tarkit.threads import ThreadCall

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

_T = TypeVar("_T")

PROVIDERS = {"ais": "ais", "s3": "aws", "gs": "gcp", "az": "azure"}
"""Scheme -> the name of the provider of its buckets."""

PART = 16 << 20
"""Bytes of a part of an upload; a smaller object is written by one request."""

PARTS = 4
"""Parts of one upload that are sent at a time."""

_ENDPOINT = "such as http://HOST:51080"
_UPLOAD = re.compile(r"[!-~]{1,200}")  # the identifier of an upload
_REDIRECTS = (301, 302, 307, 308)
_ETAG = re.compile(r"\bETag=([^,]+)")
_NO_BUCKET = re.compile(r'bucket "[^"]*" does not exist')
_CONFLICT = 409  # another client is writing the object


class AisStore(Store):
    """Objects of an AIStore cluster."""

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options)
        self.endpoint = (options.setting("endpoint") or os.environ.get("AIS_ENDPOINT") or "").rstrip("/")
        if self.endpoint and "://" not in self.endpoint:
            self.endpoint = f"http://{self.endpoint}"
        if self.endpoint and not is_address(self.endpoint):
            raise Usage("AIS_ENDPOINT is not a URL", _ENDPOINT)
        token = None if options.anonymous else options.setting("token") or _token()
        self._login = {"Authorization": f"Bearer {token}"} if token else {}
        self._checksums: dict[str, bool] = {}  # URL of a bucket -> whether all replies have checksums of whole objects

    def head(self, url: str) -> Info:
        reply = self._request("HEAD", url, {"props": "name,size,version,checksum,custom"}, {})
        reply.close()
        if reply.status != HTTPStatus.OK:
            self._raise_for(url, reply)
        size = content_length(reply, url) or 0  # left out by older ones for an empty object
        return Info(url, size, self._version(url, reply.headers))

    def get(self, url: str, start: int, stop: int | None) -> HttpReply:
        reply = self._request("GET", url, {}, range_header(start, stop))
        with closed_on_error(reply):
            body = HttpReply(url, reply, start, stop)
            version = self._version(url, reply.headers)
        body.info = body.info._replace(version=version, checksum=None)
        return body

    def _version(self, url: str, headers: Mapping[str, str]) -> str | None:
        """Return the version of an object, else its ETag, which HEAD has among the metadata of the provider."""
        etag = headers.get("ETag") or next(iter(_ETAG.findall(headers.get("Ais-Custom-Md", ""))), "")
        version = headers.get("Ais-Version") or unquote_etag(etag)
        return self._with_checksum(url, version, headers.get("Ais-Checksum-Value"))

    def _with_checksum(self, url: str, version: str | None, checksum: str | None) -> str | None:
        """Return a version with a checksum: versions begin anew when an object is deleted and written again."""
        return f"{version or ''} {checksum}" if checksum and self._has_checksums(url) else version

    def _has_checksums(self, url: str) -> bool:
        """Whether all replies have the checksum of the whole object.

        Those with a range have that of the range, by a setting of the bucket, which is asked for it once; objects that
        the cluster has yet to fetch from elsewhere may have none.
        """
        root, bucket, _, query = split_url(url)
        if not _is_local(query):
            return False
        if root not in self._checksums:
            address = self._address(url, f"/v1/buckets/{quote(bucket)}", query)
            reply = send(self.options, "HEAD", address, self._login, name=url)
            reply.close()
            if reply.status in PASSING:
                raise TryAgain(f"the cluster answers {reply.status}")
            try:
                settings = json.loads(reply.headers.get("Ais-Bucket-Props", ""))
                self._checksums[root] = settings["checksum"]["enable_read_range"] is False
            except (ValueError, LookupError, TypeError, RecursionError):
                self._checksums[root] = False
        return self._checksums[root]

    def put(self, url: str, fresh: bool) -> AisUpload:
        return AisUpload(self, url)

    def delete(self, url: str) -> None:
        self._request("DELETE", url, {}, {}).close()

    def list(self, url: str, depth: int | None = None) -> Iterator[Info]:
        root, bucket, prefix, query = split_url(url)
        refused: list[str] = []
        page = partial(self._page, url, bucket, query, prefix)
        for entry in list_pages(url, self.options, page, ("", "")):
            name, size, version, checksum = _object(url, entry)
            if name_fault(name.removesuffix("/")) is not None:
                refused.append(name)
            elif name.startswith(prefix):
                # those of other clouds have other versions in lists until they are in the cluster
                sure = self._with_checksum(url, version, checksum) if _is_local(query) else None
                yield Info(root + name, size, sure)
        warn_of_names(url, refused, self.options)

    def server(self, url: str) -> tuple[str, ...]:
        return ("ais", self.endpoint)

    def _page(
        self, url: str, bucket: str, query: Mapping[str, str], prefix: str, place: tuple[str, str]
    ) -> tuple[Sequence[Any], tuple[str, str] | None]:
        """Return the entries of a page of a list, and the place of the next one: a token, and the name of the list."""
        value = {"prefix": prefix, "props": "name,size,version,checksum", "pagesize": 0, "flags": "0"}
        value |= {"continuation_token": place[0], "uuid": place[1]} if place[0] else {}
        address = self._address(url, f"/v1/buckets/{quote(bucket)}", query)
        body = json.dumps({"action": "list", "name": "", "value": value}).encode()
        headers = {**self._login, "Content-Type": "application/json", "Accept": "application/json"}
        reply = send(self.options, "GET", address, headers, name=url, body=body)
        if not succeeded(reply):
            self._raise_for(url, reply)
        page = read_json(reply, url)
        if not isinstance(page, dict) or "uuid" not in page:  # which an empty list has too
            raise _list_error(url)
        entries, token = page.get("entries") or [], page.get("continuation_token") or ""
        if not isinstance(entries, list) or not isinstance(token, str):
            raise _list_error(url)
        return entries, (token, str(page.get("uuid", ""))) if token else None

    def _request(self, method: str, url: str, query: Mapping[str, str], headers: Mapping[str, str]) -> BaseHTTPResponse:
        """Request an object; return the reply of success."""
        reply = send(self.options, method, self.address(url, query), {**self._login, **headers}, name=url)
        if not sent_range(reply):
            self._raise_for(url, reply)
        return reply

    def act(self, method: str, url: str, action: str, query: Mapping[str, str], value: object = None) -> bytes:
        """Request an action on an object, which the gateway reads before it redirects; return the reply's body."""
        body = json.dumps({"action": action, "name": "", "value": value}).encode()
        headers = {**self._login, "Content-Type": "application/json"}
        reply = send(self.options, method, self.address(url, query), headers, name=url, body=body)
        if not succeeded(reply):
            self._raise_for(url, reply, writing=True)
        return content(reply, url)

    def upload(self, url: str, query: Mapping[str, str], data: bytes) -> None:
        """Send an object, or a part of one, to its target.

        The gateway is asked for it by the headers alone: it redirects without reading a body.
        """
        headers = {"Content-Length": str(len(data))}
        fields = {**self._login, **headers, "Connection": "close"}
        address = self.address(url, query)
        reply = send(self.options, "PUT", address, fields, name=url, redirect=False)
        target = reply.headers.get("Location")
        if reply.status not in _REDIRECTS or target is None:
            if succeeded(reply):
                reply.close()
                raise TarkitError(f"{public_name(url)}: the gateway names no target", "is AIS_ENDPOINT a gateway?")
            self._raise_for(url, reply, writing=True)
        reply.close()
        target = linked_address(address, target, url)
        reply = send(self.options, "PUT", target, headers, name=url, body=data, redirect=False)
        if not succeeded(reply):
            self._raise_for(url, reply, writing=True)
        content(reply, url)

    def address(self, url: str, query: Mapping[str, str]) -> str:
        """Return the address of an object at the gateway."""
        _, bucket, name, rest = split_url(url, whole=True)
        if not name:
            raise Usage(f"{public_name(url)}: the name of the object is missing", "ais://BUCKET/NAME")
        path = f"/v1/objects/{quote(bucket)}/{quote(name, errors='surrogateescape')}"
        return self._address(url, path, {**rest, **query})

    def _address(self, url: str, path: str, query: Mapping[str, str]) -> str:
        if not self.endpoint:
            raise Usage(f"{public_name(url)}: no cluster is named", f"set AIS_ENDPOINT, {_ENDPOINT}")
        return f"{self.endpoint}{path}?{urlencode(query)}"

    def _raise_for(self, url: str, reply: BaseHTTPResponse, writing: bool = False) -> NoReturn:
        """Raise the exception for a reply that is no success; its body says why, in JSON."""
        name = public_name(url)
        try:  # a reply to HEAD has the message in a header
            body = reply.headers.get("Hdr-Error") or content(reply, url)
            message = str(json.loads(body).get("message", ""))
        except (ValueError, AttributeError, RecursionError, TryAgain):
            message = ""
        message = printable(message.partition("\n")[0][:300])
        if reply.status == _CONFLICT:
            raise TryAgain(f"the cluster answers 409: {message}")
        if reply.status == 404 and _NO_BUCKET.search(message):
            raise TarkitError(f"{name}: there is no such bucket: {message}")
        if reply.status == 404 and not writing:
            raise not_found_error(name)
        if reply.status in (401, 403):
            hint = token_hint(bool(self._login), self.options.anonymous, "AIS_AUTHN_TOKEN, or from ais auth login")
            raise denied_error(name, message or str(reply.status), hint)
        error = error_for_reply(url, reply, bool(self._login))
        if isinstance(error, (TryAgain, FileNotFoundError)) or not message:
            raise error
        raise TarkitError(f"{error}: {message}")


class AisUpload(Upload):
    """An object that is written: by one PUT if it is small, else in parts, several at a time."""

    def __init__(self, store: AisStore, url: str) -> None:
        self._store = store
        self._url = url
        self._buffer = bytearray()
        self._upload: dict[str, str] | None = None
        self._number = 0
        self._flight: deque[ThreadCall[None]] = deque()
        self._given_up = Event()
        store.address(url, {})

    def write(self, data: bytes | memoryview) -> None:
        self._buffer += data
        while len(self._buffer) >= PART:
            self._send_part()

    def close(self) -> None:
        if self._upload is None:
            self._repeat(partial(self._store.upload, self._url, {}, bytes(self._buffer)))
            return
        if self._buffer:
            self._send_part()
        while self._flight:
            self._flight.popleft().result()
        parts = [{"part-number": number, "etag": ""} for number in range(1, self._number + 1)]
        self._store.act("POST", self._url, "mpt-complete", self._upload, parts)
        self._upload = None

    def abort(self) -> None:
        self._given_up.set()
        upload, self._upload = self._upload, None
        self._buffer = bytearray()
        while self._flight:
            self._flight.popleft().wait()
        if upload is not None:
            try:
                self._store.act("DELETE", self._url, "mpt-abort", upload)
            except Exception:  # the reason for the abort is the error that is reported
                pass

    def _send_part(self) -> None:
        """Begin to send written bytes, up to PART; wait for an earlier part if enough are under way."""
        data = bytes(self._buffer[:PART])
        del self._buffer[:PART]
        if self._upload is None:
            reply = self._repeat(partial(self._store.act, "POST", self._url, "mpt-upload", {}))
            identifier = reply.decode(errors="replace").strip().strip('"')
            if not _UPLOAD.fullmatch(identifier):
                raise TarkitError(f"{public_name(self._url)}: the cluster begins no upload of parts")
            self._upload = {"uploadId": identifier}
        if len(self._flight) >= PARTS:
            self._flight.popleft().result()
        self._number += 1
        send_part = partial(self._store.upload, self._url, {**self._upload, "partNumber": str(self._number)}, data)
        self._flight.append(ThreadCall(partial(self._repeat, send_part)))

    def _repeat(self, request: Callable[[], _T]) -> _T:
        """Make a request, again after failures that may pass, and return its result."""
        return RetryPolicy(self._store.options, self._given_up).repeat(public_name(self._url), request)


def split_url(url: str, whole: bool = False) -> tuple[str, str, str, dict[str, str]]:
    """Return the URL of a bucket with a slash, its name, that of the object, and the query that stands for the rest.

    The name is that of an object if `whole`, else how names begin.

    A first component with `@` or `#` is a namespace, of this cluster (`#NAMESPACE`) or of one attached to it.
    """
    scheme = scheme_of(url) or ""
    rest = url[len(scheme) + 3 :]
    query = {"provider": PROVIDERS.get(scheme, scheme)}
    if rest[:1] in ("@", "#"):
        namespace, _, rest = rest.partition("/")
        cluster, _, name = namespace.removeprefix("@").partition("#")
        query["namespace"] = f"@{cluster}#{name}"
    bucket, slash, name = rest.partition("/")
    if not bucket:
        raise Usage(f"{public_name(url)}: the bucket is missing", f"{scheme}://BUCKET/NAME")
    check_name(url, bucket)
    check_name(url, name, whole)
    return f"{url[: len(url) - len(name)]}{'' if slash else '/'}", bucket, name, query


def _is_local(query: Mapping[str, str]) -> bool:
    """Whether a bucket is one of the cluster itself, not of a cloud or of another cluster, by the query of its URL."""
    return query["provider"] == "ais" and query.get("namespace", "@#").startswith("@#")


def _token() -> str | None:
    """Return the token of the environment, else of the file that `ais auth login` writes."""
    token = os.environ.get("AIS_AUTHN_TOKEN")
    if not token:
        path = os.environ.get("AIS_AUTHN_TOKEN_FILE") or "~/.config/ais/cli/auth.token"
        try:
            with open(os.path.expanduser(path), encoding="utf-8") as file:
                token = json.load(file).get("token")
        except (OSError, ValueError, AttributeError):
            return None
    return token.strip() if isinstance(token, str) and token.strip() else None


def _object(url: str, entry: object) -> tuple[str, int, str | None, str | None]:
    """Return name, length, version and checksum of an entry of a list; lengths of 0 are left out."""
    match entry:
        case {"name": name, **rest} if is_text(name):
            size, version, checksum = number(str(rest.get("size", 0))), rest.get("version"), rest.get("checksum")
            if size is not None and isinstance(version, str | None) and isinstance(checksum, str | None):
                return name, size, version, checksum
    raise _list_error(url)


def _list_error(url: str) -> TarkitError:
    return TarkitError(
        f"{public_name(url)}: the cluster sends what is no list of objects", "is AIS_ENDPOINT a gateway?"
    )
