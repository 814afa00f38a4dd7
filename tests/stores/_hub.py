"""A server on loopback that answers as the Hugging Face Hub does, for the requests of `huggingface_hub`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.stores._http import Handler, HttpServer, http_server, listening


@dataclass
class Repository:
    """A repository of the server.

    Attributes:
        commits: commit -> path -> bytes.
        revisions: branch or tag -> commit.
        lfs: paths that are stored elsewhere.
        token: the token that reads it, None for all.
        gated: it is seen without a token, not read.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    lfs: set[str] = field(default_factory=set)
    token: str | None = None
    gated: bool = False

    def commit(self, files: dict[str, bytes], revision: str = "main") -> str:
        """Commit files to a branch; return the commit."""
        sha = hashlib.sha1(repr((len(self.commits), sorted(files))).encode()).hexdigest()
        self.commits[sha] = files
        self.revisions[revision] = sha
        return sha


class HubServer:
    """The server, and `storage`, the other host that its files in LFS lie on.

    Attributes:
        repositories: by kind and name, such as `datasets/org/name`.
        log: the requests: method, path, headers.
        page: entries of a page of a list.
        statuses: statuses of the next replies, in place of the right ones.
    """

    def __init__(self, storage: HttpServer) -> None:
        self.repositories: dict[str, Repository] = {}
        self.storage = storage
        self.log: list[tuple[str, str, dict[str, str]]] = []
        self.page = 2
        self.statuses: list[tuple[int, dict[str, str]]] = []
        self.signatures = 0
        self.url = ""


@contextmanager
def hub_server() -> Iterator[HubServer]:
    with http_server() as storage:
        server = HubServer(storage)
        with listening(_Handler, hub=server) as server.url:
            yield server


class _Handler(Handler):
    hub: HubServer

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        """Answer a request for a repository, a list of files or a file."""
        self.hub.log.append((self.command, self.path, dict(self.headers)))
        if self.hub.statuses:
            status, headers = self.hub.statuses.pop(0)
            self.answer(status, headers)
            return
        parts = urlsplit(self.path)
        words = [unquote(each) for each in parts.path.strip("/").split("/")]
        if words[:2] == ["api", "resolve-cache"]:
            self._file("/".join(words[2:5]), words[5], "/".join(words[6:]), cached=True)
        elif words[0] == "api":
            self._api(words[1:], parse_qs(parts.query))
        else:
            words = words if words[0] in ("datasets", "spaces") else ["models", *words]
            self._file("/".join(words[:3]), words[4], "/".join(words[5:]))

    def _api(self, words: list[str], query: dict[str, list[str]]) -> None:
        found = self._repository("/".join(words[:3]))
        if found is None:
            return
        revision = words[4] if len(words) > 4 else "main"
        sha = found.revisions.get(revision, revision)
        if sha not in found.commits:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif words[3:4] == ["tree"]:
            recursive = query.get("recursive", ["false"])[0].lower() == "true"
            self._tree(found, sha, "/".join(words[5:]), recursive, int(query.get("cursor", ["0"])[0]))
        else:
            counts = {"tags": [], "siblings": [], "downloads": 0, "likes": 0}
            self._json({"_id": "1", "id": "/".join(words[1:3]), "sha": sha, "private": False, **counts})

    def _tree(self, found: Repository, sha: str, directory: str, recursive: bool, cursor: int) -> None:
        prefix = f"{directory}/" if directory else ""
        files = {path: data for path, data in found.commits[sha].items() if path.startswith(prefix)}
        if directory and not files:
            self._error(404, "EntryNotFound", f"{directory} does not exist on {sha}")
            return
        entries: dict[str, dict[str, Any]] = {}
        for path, data in files.items():
            rest = path.removeprefix(prefix).split("/")
            for end in range(1, len(rest)):
                if end == 1 or recursive:
                    above = prefix + "/".join(rest[:end])
                    entries[above] = {"type": "directory", "oid": "0" * 40, "size": 0, "path": above}
            if len(rest) == 1 or recursive:
                entries[path] = {"type": "file", "oid": _blob(data), "size": len(data), "path": path}
                if path in found.lfs:
                    entries[path]["lfs"] = {"oid": _sha256(data), "size": len(data), "pointerSize": 134}
        ordered = [entries[path] for path in sorted(entries)]
        headers = {}
        if cursor + self.hub.page < len(ordered):
            address = f"{self.hub.url}{self.path.partition('?')[0]}"
            rest_of = f"recursive={str(recursive).lower()}&expand=false&limit=1000&cursor={cursor + self.hub.page}"
            headers["Link"] = f'<{address}?{rest_of}>; rel="next"'
        self._json(ordered[cursor : cursor + self.hub.page], headers)

    def _file(self, name: str, revision: str, path: str, cached: bool = False) -> None:
        found = self._repository(name)
        if found is None:
            return
        sha = found.revisions.get(revision, revision)
        if sha not in found.commits:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        if path not in found.commits[sha]:
            self._error(404, "EntryNotFound", "Entry not found")
            return
        data = found.commits[sha][path]
        headers = {"X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        if path in found.lfs:
            self.hub.signatures += 1
            address = f"/{_sha256(data)}-{self.hub.signatures}"
            self.hub.storage.serve(address, data, etag='"of the storage"')
            there = self.hub.storage.url.replace("127.0.0.1", "localhost") + address
            headers |= {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{_sha256(data)}"'}
            self.answer(302, {**headers, "Location": f"{there}?X-Amz-Signature=s1gned"})
        elif not cached:
            where = f"/api/resolve-cache/{name}/{sha}/{quote(path)}?etag=%22{_blob(data)}%22"
            self.answer(307, {**headers, "Location": where, "X-Linked-ETag": f'"{_blob(data)}"'})
        else:
            self.send_part(data, {**headers, "ETag": f'"{_blob(data)}"'})

    def _repository(self, name: str) -> Repository | None:
        """Return a repository that this request may read; answer with an error if there is none."""
        found = self.hub.repositories.get(name)
        given = self.headers.get("Authorization")
        if given is not None and given not in ("Bearer t0ken", "Bearer other"):
            self._error(401, None, "Invalid credentials in Authorization header")
        elif found is None:
            known = given is not None
            self._error(404 if known else 401, "RepoNotFound", "Repository not found" if known else "Invalid username")
        elif found.token is not None and given != f"Bearer {found.token}":
            if found.gated:
                self._error(401 if given is None else 403, "GatedRepo", "Access to dataset is restricted")
            else:
                self._error(404 if given else 401, "RepoNotFound", "Repository not found")
        else:
            return found
        return None

    def _error(self, status: int, code: str | None, message: str) -> None:
        self.answer(status, {**({"X-Error-Code": code} if code else {}), "X-Error-Message": message})

    def _json(self, value: object, headers: dict[str, str] | None = None) -> None:
        self.answer(200, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data)).hexdigest()
