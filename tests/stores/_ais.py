"""A stub of an AIStore cluster on loopback: a gateway, which redirects, and a target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from threading import Lock
from urllib.parse import parse_qs, unquote, urlsplit

from tests.stores._http import Handler, listening

Place = tuple[str, str, str, str]  # provider, namespace, bucket, name


class AisCluster:
    """The cluster.

    Attributes:
        buckets: provider, namespace and name of the buckets that exist.
        objects: data and version of the objects.
        uploads: the parts of uploads that are not complete.
        log: the requests: of the gateway or of the target, method, path, headers.
        token: the token that the gateway wants.
        page: entries of a page of a list.
        statuses: statuses of the next replies of the target, in place of the right ones.
        short: drop the last byte of what is written.
        read_range: whether the buckets have the setting that replies with a range have its checksum; None for a server
            that does not show it.
        change: called before each reply of the target.
    """

    def __init__(self) -> None:
        self.buckets = {("ais", "", "b"), ("ais", "@uuid#ns", "b"), ("aws", "", "b")}
        self.objects: dict[Place, tuple[bytes, int]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.log: list[tuple[str, str, str, dict[str, str]]] = []
        self.token: str | None = None
        self.page = 3
        self.statuses: list[int] = []
        self.short = False
        self.read_range: bool | None = False
        self.change: Callable[[], None] = lambda: None
        self.number = 0
        self.lock = Lock()
        self.target = self.url = ""


@contextmanager
def ais_cluster() -> Iterator[AisCluster]:
    cluster = AisCluster()
    with (
        listening(_Handler, cluster=cluster, role="target") as cluster.target,
        listening(_Handler, cluster=cluster, role="gateway") as cluster.url,
    ):
        yield cluster


class _Handler(Handler):
    cluster: AisCluster
    role: str

    def do_GET(self) -> None:
        cluster = self.cluster
        with cluster.lock:
            cluster.log.append((self.role, self.command, self.path, dict(self.headers)))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        words = [unquote(word) for word in parts.path.split("/")[3:]]
        bucket = (query.get("provider", "ais"), query.get("namespace", ""), words[0])
        # a gateway redirects a PUT that asks to close the connection before it has a body
        closing = self.role == "gateway" and self.headers.get("Connection") == "close"
        body = b"" if closing else self.body()
        if self.role == "gateway" and cluster.token and self.headers.get("Authorization") != f"Bearer {cluster.token}":
            self._refuse(401, "token required")
        elif bucket not in cluster.buckets:
            self._refuse(404, f'bucket "{bucket[0]}://{bucket[2]}" does not exist')
        elif parts.path.startswith("/v1/buckets/") and self.command == "HEAD":
            known = {"type": "md5"} if cluster.read_range is None else {"enable_read_range": cluster.read_range}
            self.answer(200, {"Ais-Bucket-Props": json.dumps({"provider": bucket[0], "checksum": known})})
        elif parts.path.startswith("/v1/buckets/"):
            self._list(bucket, json.loads(body)["value"])
        elif self.role == "gateway":
            self.answer(307, {"Location": f"{cluster.target}{self.path}&pid=p1&vmd=s1gned"})
        elif query.get("vmd") != "s1gned":
            self._refuse(400, "this is not a redirect of a gateway")
        elif cluster.statuses:
            self._refuse(cluster.statuses.pop(0), "told so")
        else:
            with cluster.lock:
                cluster.change()
                {"GET": self._get, "HEAD": self._get, "PUT": self._put, "POST": self._post, "DELETE": self._delete}[
                    self.command
                ]((*bucket, "/".join(words[1:])), query, body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _get(self, place: Place, query: dict[str, str], body: bytes) -> None:
        if place not in self.cluster.objects:
            self._refuse(404, f"object {place[2]}/{place[3]} does not exist")
            return
        data, version = self.cluster.objects[place]
        headers = {"Ais-Version": str(version), "Ais-Checksum-Type": "md5", "Ais-Present": "true"}
        headers["Ais-Checksum-Value"] = md5(data).hexdigest()
        part = self.wanted(len(data))
        if part and self.cluster.read_range:
            headers["Ais-Checksum-Value"] = md5(data[slice(*part)]).hexdigest()
        self.send_part(data, {**headers, "Accept-Ranges": "bytes"})

    def _put(self, place: Place, query: dict[str, str], body: bytes) -> None:
        upload = query.get("uploadId")
        if upload is None:
            self._store(place, body)
        elif upload not in self.cluster.uploads:
            self._refuse(404, "no such upload")
            return
        else:
            self.cluster.uploads[upload][int(query["partNumber"])] = body
        self.answer(200, {})

    def _post(self, place: Place, query: dict[str, str], body: bytes) -> None:
        message = json.loads(body)
        if message["action"] == "mpt-upload":
            self.cluster.number += 1
            self.cluster.uploads[f"u{self.cluster.number}"] = {}
            self.answer(200, {}, f"u{self.cluster.number}".encode())
        elif message["action"] == "mpt-complete":
            parts = self.cluster.uploads.pop(query["uploadId"])
            self._store(place, b"".join(parts[each["part-number"]] for each in message["value"]))
            self.answer(200, {})
        else:
            self._refuse(400, "invalid action")

    def _delete(self, place: Place, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            del self.cluster.uploads[query["uploadId"]]
        elif self.cluster.objects.pop(place, None) is None:
            self._refuse(404, f"object {place[2]}/{place[3]} does not exist")
            return
        self.answer(200, {})

    def _store(self, place: Place, data: bytes) -> None:
        version = self.cluster.objects.get(place, (b"", 0))[1] + 1
        self.cluster.objects[place] = (data[:-1] if self.cluster.short else data, version)

    def _list(self, bucket: tuple[str, str, str], value: dict[str, str]) -> None:
        after = value.get("continuation_token") or value.get("start_after") or ""
        if value.get("continuation_token") and value.get("uuid") != "l1st":
            self._refuse(400, "no such list")
            return
        found = {place[3]: each for place, each in self.cluster.objects.items() if place[:3] == bucket}
        names = sorted(name for name in found if name.startswith(value.get("prefix", "")) and name > after)
        page, rest = names[: self.cluster.page], names[self.cluster.page :]
        token = page[-1] if rest else ""
        if "msgpack" in self.headers.get("Accept", ""):
            import msgspec

            packed = [{"n": name, "s": len(found[name][0]), "v": str(found[name][1])} for name in page]
            lists = {"UUID": "l1st", "ContinuationToken": token, "Flags": 0, "Entries": packed}
            self.answer(200, {"Content-Type": "application/msgpack"}, msgspec.msgpack.encode(lists))
            return
        entries = [
            {"name": name, "version": str(found[name][1]), "checksum": md5(found[name][0]).hexdigest()}
            | ({"size": str(size)} if (size := len(found[name][0])) else {})
            for name in page
        ]
        answer = {"uuid": "l1st", "continuation_token": token, "entries": entries or None, "flags": 0}
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"status": status, "message": message, "method": self.command}).encode()
        said = {"Hdr-Error": body.decode()} if self.command == "HEAD" else {}
        self.answer(status, {"Content-Type": "application/json", **said}, body)
