"""A small server of S3 in memory, whose replies go wrong as a test says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from hashlib import md5
from threading import RLock
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.stores._http import Handler, listening

ERROR = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>We encountered an error</Message></Error>"


@dataclass
class Request:
    """A request. `what` is put, part, create, complete, abort, head, get, list or delete."""

    what: str
    key: str
    query: dict[str, str]
    body: bytes
    who: str
    headers: dict[str, str]


@dataclass
class S3Server:
    """The server, which has every bucket.

    Attributes:
        objects: bucket/name -> bytes, ETag, metadata.
        uploads: the parts of uploads that are not complete.
        log: the requests.
        fault: called with each request: None, or what happens in place of the reply: a status, `close` for a
            connection that is closed, `error` for a body of an error behind status 200; after `done` in front (such as
            `done 503`) all the same as when the request had succeeded.
        damage: called with each request and the body of its reply; returns what is sent, or a status in place of it.
        conditional: heed `If-None-Match: *` of `put` and `complete`.
        metadata: keep metadata.
        page: names on a page of a list.
        date: when all objects were written, in seconds since 1970.
        users: who may read and write; None for all.
    """

    objects: dict[str, tuple[bytes, str, dict[str, str]]] = field(default_factory=dict)
    uploads: dict[str, tuple[str, dict[str, str], dict[int, bytes]]] = field(default_factory=dict)
    log: list[Request] = field(default_factory=list)
    fault: Callable[[Request], str | None] = lambda request: None
    damage: Callable[[Request, bytes], bytes | int] = lambda request, body: body
    conditional: bool = True
    metadata: bool = True
    page: int = 1000
    date: int = 1_704_067_200
    users: set[str] | None = None
    url: str = ""
    lock: RLock = field(default_factory=RLock)

    def names(self, prefix: str = "") -> list[str]:
        """The names of the objects that begin so."""
        return sorted(name for name in self.objects if name.startswith(prefix))


@contextmanager
def s3_server() -> Iterator[S3Server]:
    found = S3Server()
    with listening(_Handler, s3=found) as found.url:
        yield found


class _Handler(Handler):
    s3: S3Server

    def do_GET(self) -> None:
        body = self.body()
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        key = unquote(parts.path.removeprefix("/"))
        headers = {name.lower().replace("x-goog-", "x-amz-"): value for name, value in self.headers.items()}
        if headers.get("x-amz-if-generation-match") == "0":
            headers["if-none-match"] = "*"
        signed = re.search("Credential=(.*)", headers.get("authorization", ""))
        who = signed[1] if signed else query.get("X-Amz-Credential", "")
        request = Request(self._what(query), key, query, body, who.partition("/")[0], headers)
        fault = self.s3.fault(request)
        with self.s3.lock:
            self.s3.log.append(request)
            if fault is not None and not fault.startswith("done "):
                self._go_wrong(fault)
                return
            if self.s3.users is not None and request.who not in self.s3.users:
                status, sent, body = 403, {}, b"<Error><Code>InvalidAccessKeyId</Code></Error>"
            elif key.startswith("no-such-bucket"):
                status, sent, body = self._missing("NoSuchBucket")
            else:
                status, sent, body = getattr(self, f"_{request.what}")(request)
        body_sent = self.s3.damage(request, body)
        if fault is not None or isinstance(body_sent, int):
            self._go_wrong((fault or str(body_sent)).removeprefix("done "))
        else:
            self.answer(status, sent, body_sent)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _what(self, query: dict[str, str]) -> str:
        if self.command == "GET":
            return "list" if "list-type" in query else "get"
        if self.command == "POST":
            return "create" if "uploads" in query else "complete"
        if self.command == "DELETE":
            return "abort" if "uploadId" in query else "delete"
        return "head" if self.command == "HEAD" else "part" if "partNumber" in query else "put"

    def _go_wrong(self, fault: str) -> None:
        if fault == "close":
            self.close_connection = True
        elif fault == "error":
            self.answer(200, {}, ERROR)
        else:
            self.answer(int(fault), {}, b"" if self.command == "HEAD" else ERROR)

    def _missing(self, code: str = "NoSuchKey") -> tuple[int, dict[str, str], bytes]:
        return 404, {}, f"<Error><Code>{code}</Code></Error>".encode()

    def _store(self, request: Request, data: bytes, metadata: dict[str, str], etag: str) -> bool:
        """Write an object, unless there is one, and the request has that condition."""
        if self.s3.conditional and request.headers.get("if-none-match") == "*" and request.key in self.s3.objects:
            return False
        self.s3.objects[request.key] = data, etag, metadata if self.s3.metadata else {}
        return True

    def _put(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        etag = f'"{md5(request.body).hexdigest()}"'
        if not self._store(request, request.body, _metadata(request), etag):
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        return 200, {"ETag": etag}, b""

    def _create(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        name = f"upload{len(self.s3.log)}"
        self.s3.uploads[name] = request.key, _metadata(request), {}
        text = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
        return 200, {}, text.encode()

    def _part(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        upload = self.s3.uploads.get(request.query["uploadId"])
        if upload is None:
            return self._missing("NoSuchUpload")
        upload[2][int(request.query["partNumber"])] = request.body
        return 200, {"ETag": f'"{md5(request.body).hexdigest()}"'}, b""

    def _complete(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        found = self.s3.uploads.get(request.query["uploadId"])
        if found is None:
            return self._missing("NoSuchUpload")
        numbers = [int(number) for number in re.findall(r"<PartNumber>(\d+)", request.body.decode())]
        data = b"".join(found[2][number] for number in numbers)
        etag = f'"{md5(data).hexdigest()}-{len(numbers)}"'
        if not self._store(request, data, found[1], etag):
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        del self.s3.uploads[request.query["uploadId"]]
        text = f"<CompleteMultipartUploadResult><ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>"
        return 200, {}, text.encode()

    def _abort(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        if self.s3.uploads.pop(request.query["uploadId"], None) is None:
            return self._missing("NoSuchUpload")
        return 204, {}, b""

    def _delete(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        self.s3.objects.pop(request.key, None)
        return 204, {}, b""

    def _head(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        found = self.s3.objects.get(request.key)
        if found is None:
            return 404, {}, b""
        data, etag, metadata = found
        headers = {f"x-amz-meta-{name}": value for name, value in metadata.items()}
        headers |= {"ETag": etag, "Last-Modified": formatdate(self.s3.date, usegmt=True)}
        return 200, {**headers, "Content-Length": str(len(data))}, b""

    def _get(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        found = self.s3.objects.get(request.key)
        if found is None:
            return self._missing()
        data, etag, _ = found
        headers = {"ETag": etag, "Last-Modified": formatdate(self.s3.date, usegmt=True)}
        part = self.wanted(len(data))
        if part is None:
            return 200, headers, data
        start, stop = part
        if start >= len(data):
            return 416, {}, b""
        return 206, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop]

    def _list(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        query, bucket = request.query, request.key.partition("/")[0]
        start = f"{bucket}/"
        after = unquote(query.get("continuation-token", "")) or query.get("start-after") or ""
        prefix = query.get("prefix", "")
        names = [name.removeprefix(start) for name in self.s3.objects if name.startswith(start + prefix)]
        names = sorted((name for name in names if name.encode() > after.encode()), key=str.encode)
        page, rest = names[: self.s3.page], names[self.s3.page :]
        url = query.get("encoding-type") == "url"
        rows = []
        for name in page:
            data, etag, _ = self.s3.objects[start + name]
            shown = quote(name) if url else "".join(c if c.isprintable() else f"&#{ord(c)};" for c in escape(name))
            time = f"<LastModified>{datetime.fromtimestamp(self.s3.date, UTC):%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            rows.append(
                f"<Contents><Key>{shown}</Key><Size>{len(data)}</Size>{time}<ETag>{escape(etag)}</ETag></Contents>"
            )
        token = f"<NextContinuationToken>{quote(page[-1])}</NextContinuationToken>" if rest else ""
        more = f"<IsTruncated>{'true' if rest else 'false'}</IsTruncated>{token}"
        text = f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{more}{"".join(rows)}</ListBucketResult>'
        return 200, {"Content-Type": "application/xml"}, text.encode()


def _metadata(request: Request) -> dict[str, str]:
    start = "x-amz-meta-"
    return {name.removeprefix(start): value for name, value in request.headers.items() if name.startswith(start)}


class Bucket:
    """A directory in the bucket of a server, and its objects as another program sees them."""

    def __init__(self, server: S3Server, prefix: str = "d/") -> None:
        self.server, self.prefix = server, prefix
        self.url = f"s3://bucket/{prefix}"

    def put(self, name: str, data: bytes | str) -> str:
        """Write an object; return its URL."""
        content = data.encode() if isinstance(data, str) else data
        self.server.objects[f"bucket/{self.prefix}{name}"] = content, f'"{md5(content).hexdigest()}"', {}
        return self.url + name

    def get(self, name: str) -> bytes:
        return self.server.objects[f"bucket/{self.prefix}{name}"][0]

    def text(self, name: str) -> str:
        return self.get(name).decode()

    def delete(self, name: str) -> None:
        del self.server.objects[f"bucket/{self.prefix}{name}"]

    def names(self, start: str = "") -> list[str]:
        """Return the names of the objects that begin so."""
        prefix = f"bucket/{self.prefix}"
        return [name.removeprefix(prefix) for name in self.server.names(prefix + start)]
