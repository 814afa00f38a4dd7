"""Files of the Hugging Face Hub: `hf://datasets/ORG/NAME@REVISION/PATH`, read over its HTTP API.

`hf://ORG/NAME/PATH` is a model, `hf://spaces/ORG/NAME/PATH` a space; without a revision `main` is read. A revision is
looked up once in a process and becomes a commit, so that all files of a run are of one state of the repository.

The requests and headers are those of the client library `huggingface_hub` (`get_hf_file_metadata`, `list_repo_tree`,
`repo_info`). `HF_ENDPOINT` names another server; the token is `HF_TOKEN`, else that in the file of `hf auth login`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from tarkit.errors import TarkitError, Unsupported, Usage
from tarkit.sizes import plural
from tarkit.stores.checksum import Checksum
from tarkit.stores.http import (
    HttpReply,
    closed_on_error,
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
from tarkit.stores.names import check_name, is_text
from tarkit.stores.retry import list_pages, request_again
from tarkit.stores.schemes import public_name
from tarkit.stores.store import Info, Store, StoreOptions, TryAgain, Upload, denied_error, not_found_error, unquote_etag

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

_KINDS = "models|datasets|spaces"
_URL = re.compile(
    rf"(?i:hf)://(?:({_KINDS})/|(?!(?:{_KINDS}|buckets|kernels)/))([\w.-]+/[\w.-]+)"
    r"(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?/(.*)",
    re.DOTALL,
)
_FORM = "hf://datasets/ORG/NAME/PATH or hf://datasets/ORG/NAME@REVISION/PATH; ORG/NAME without datasets/ is a model"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NEXT = re.compile(r'<([^>]*)>[^,]*;\s*rel="?next"?')  # of a header Link (RFC 8288)
_RESET = re.compile(r";\s*r=0\s*;\s*t=(\d+)")  # of a header RateLimit: nothing left for t seconds
_REDIRECTS = 10
_KNOWN = 4096  # addresses of files that are kept

_commits: dict[tuple[str, str], str] = {}  # (endpoint, URL of a repository with its revision) -> commit
_lookup = threading.Lock()


def _renew_lookup() -> None:
    global _lookup  # noqa: PLW0603
    _lookup = threading.Lock()


os.register_at_fork(after_in_child=_renew_lookup)  # the thread that holds it is not there


class HubPath(NamedTuple):
    """A file of the Hub, as a URL names it.

    Attributes:
        root: the URL up to the path of the file, as it was given.
        kind: models, datasets or spaces.
        repository: ORG/NAME.
        revision: a branch, a tag or a commit.
        path: of the file in the repository.
    """

    root: str
    kind: str
    repository: str
    revision: str
    path: str


class Located(NamedTuple):
    """Where the bytes of a file are, and the headers that describe it."""

    address: str
    version: str | None
    size: int | None


class HubStore(Store):
    """Files in the repositories of the Hub."""

    def __init__(self, options: StoreOptions) -> None:
        super().__init__(options)
        self.endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        if not is_address(self.endpoint):
            raise Usage("HF_ENDPOINT is not a URL", "such as https://huggingface.co")
        token = None if options.anonymous else options.setting("token") or _token()
        self._login = {"Authorization": f"Bearer {token}"} if token else {}
        self._located: dict[str, Located] = {}

    def head(self, url: str) -> Info:
        located = self._located.get(url) or self._locate(url)
        return Info(url, located.size, located.version)

    def get(self, url: str, start: int, stop: int | None) -> HttpReply:
        located = self._located.get(url)
        cached = located is not None
        located = located or self._locate(url)
        reply = self._send("GET", located.address, url, range_header(start, stop))
        if not sent_range(reply):
            self._located.pop(url, None)
            reply.close()
            if cached and 400 <= reply.status < 500:  # addresses are valid for an hour or so
                return self.get(url, start, stop)
            raise self._error_for(url, reply)
        with closed_on_error(reply):
            body = HttpReply(url, reply, start, stop, located.size)
            if located.size is not None and body.info.size not in (None, located.size):
                words = f"the server sends {plural(body.info.size, 'byte')}, the Hub says {located.size}"
                raise TarkitError(f"{public_name(url)}: {words}")
        checksum = None
        if located.version is not None and _SHA256.fullmatch(located.version):  # of a file in LFS
            checksum = Checksum("sha256", bytes.fromhex(located.version))
        body.info = body.info._replace(version=located.version, modified=None, checksum=checksum)
        return body

    def put(self, url: str, fresh: bool) -> Upload:
        """Raise Unsupported: a change of a repository is a commit of all its files."""
        parsed = split_url(url)
        kind = parsed.kind.removesuffix("s")
        raise Unsupported(
            f"{public_name(url)}: writing to hf:// is not supported",
            f"write files, then upload them in one commit: hf upload {parsed.repository} DIRECTORY --repo-type {kind}",
        )

    def list(self, url: str, depth: int | None = None) -> Iterator[Info]:
        """Yield the files whose URL begins with `url`, in the order of the Hub."""
        parsed = split_url(url)
        directory = parsed.path.rpartition("/")[0]
        commit = request_again(partial(self._commit, url, parsed), public_name(url), self.options)
        address = f"{self.endpoint}/api/{parsed.kind}/{parsed.repository}/tree/{commit}"
        if directory:
            address += f"/{quote(directory, safe='', errors='surrogateescape')}"
        first = f"{address}?recursive={'false' if depth == 0 else 'true'}&expand=false"
        for entry in list_pages(url, self.options, partial(self._page, url), first):
            path, size, version = _file(url, entry)
            if path is not None and path.startswith(parsed.path):
                yield Info(parsed.root + path, size, version)

    def server(self, url: str) -> tuple[str, ...]:
        return (self.endpoint,)

    def _page(self, url: str, page: str) -> tuple[Sequence[Any], str | None]:
        """Return the entries of a page of a list, and the URL of the next one."""
        reply = self._send("GET", page, url)
        if reply.status == 404 and reply.headers.get("X-Error-Code") == "EntryNotFound":
            reply.close()
            return [], None
        entries = self._json(url, reply)
        if not isinstance(entries, list):
            raise _list_error(url)
        following = _NEXT.search(reply.headers.get("Link", ""))
        return entries, linked_address(page, following[1], url) if following else None

    def _commit(self, url: str, parsed: HubPath) -> str:
        """Return the commit of a revision, the same for all files of this process."""
        if _COMMIT.fullmatch(parsed.revision):
            return parsed.revision
        with _lookup:
            key = (self.endpoint, f"{parsed.kind}/{parsed.repository}@{parsed.revision}")
            if key not in _commits:
                revision = quote(parsed.revision, safe="", errors="surrogateescape")
                address = f"{self.endpoint}/api/{parsed.kind}/{parsed.repository}/revision/{revision}"
                described = self._json(url, self._send("GET", address, url))
                commit = described.get("sha") if isinstance(described, dict) else None
                if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
                    raise TarkitError(f"{public_name(url)}: the Hub names no commit for {parsed.revision}")
                _commits[key] = commit
            return _commits[key]

    def _locate(self, url: str) -> Located:
        """Ask the Hub where the bytes of a file are. Redirects are followed while they lead to the Hub itself."""
        parsed = split_url(url, whole=True)
        if not parsed.path or parsed.path.endswith("/"):
            raise Usage(f"{public_name(url)}: the name of the file is missing", _FORM)
        prefix = "" if parsed.kind == "models" else f"{parsed.kind}/"
        commit = self._commit(url, parsed)
        path = quote(parsed.path, errors="surrogateescape")
        address = f"{self.endpoint}/{prefix}{parsed.repository}/resolve/{commit}/{path}"
        for _ in range(_REDIRECTS):
            reply = self._send("HEAD", address, url)
            reply.close()
            if reply.status >= 400:
                raise self._error_for(url, reply)
            target = reply.headers.get("Location") if reply.status >= 300 else None
            address = linked_address(address, target, url) if target else address
            if target is None or not self._own(address):
                break
        else:
            raise TarkitError(f"{public_name(url)}: more than {_REDIRECTS} redirects")
        size = reply.headers.get("X-Linked-Size") or (None if target else reply.headers.get("Content-Length"))
        version = unquote_etag(reply.headers.get("X-Linked-ETag") or reply.headers.get("ETag"))
        located = Located(address, version, number(size))
        if len(self._located) >= _KNOWN:
            self._located.clear()
        self._located[url] = located
        return located

    def _send(self, method: str, address: str, url: str, headers: Mapping[str, str] | None = None) -> BaseHTTPResponse:
        """Send a request, with the token if it goes to the Hub itself; redirects of GET are followed, without it."""
        headers = {**(self._login if self._own(address) else {}), **(headers or {})}
        return send(self.options, method, address, headers, name=url, redirect=method == "GET")

    def _own(self, address: str) -> bool:
        ours, theirs = urlsplit(self.endpoint), urlsplit(address)
        return (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)

    def _json(self, url: str, reply: BaseHTTPResponse) -> Any:
        if not succeeded(reply):
            reply.close()
            raise self._error_for(url, reply)
        return read_json(reply, url)

    def _error_for(self, url: str, reply: BaseHTTPResponse) -> Exception:
        """Return the exception for a reply of the Hub; `X-Error-Code` names the missing thing."""
        name, parsed, code = public_name(url), split_url(url), reply.headers.get("X-Error-Code")
        login = token_hint(bool(self._login), self.options.anonymous, "HF_TOKEN, or hf auth login")
        if code == "EntryNotFound" or (code is None and reply.status == 404):
            return not_found_error(name)
        if code == "RevisionNotFound":
            return TarkitError(f"{name}: {parsed.repository} has no revision {parsed.revision}")
        if code == "GatedRepo":
            return denied_error(name, "access must be requested", f"{login}; ask for access on the repository's page")
        if code == "RepoNotFound" or (reply.status == 401 and not self._login):
            words = f"there is no repository {parsed.repository} among {parsed.kind}, or it is private"
            return TarkitError(f"{name}: {words}", login)
        if reply.status in (401, 403):
            return denied_error(name, f"the Hub answers {reply.status} {reply.reason or ''}".strip(), login)
        if reply.status == 429 and (reset := _RESET.search(reply.headers.get("RateLimit", ""))):
            return TryAgain("the Hub answers 429: too many requests", float(reset[1]))
        return error_for_reply(url, reply, bool(self._login))


def split_url(url: str, whole: bool = False) -> HubPath:
    """Return the parts of a URL, whose path is that of a file if `whole`, else how paths begin."""
    match = _URL.fullmatch(url)
    if match is None:
        raise Usage(f"{public_name(url)}: this is not the URL of a file on the Hub", _FORM)
    kind, repository, revision, path = match.groups()
    revision = unquote(revision or "main")
    check_name(url, repository)
    check_name(url, revision)
    check_name(url, path, whole)
    return HubPath(url[: match.start(4)], kind or "models", repository, revision, path)


def _token() -> str | None:
    """Return the token of the environment, else of the file that the Hub's own tools write."""
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    if not token and os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() not in ("1", "ON", "YES", "TRUE"):
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        home = os.environ.get("HF_HOME") or os.path.join(cache, "huggingface")
        path = os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")
        try:
            with open(os.path.expandvars(os.path.expanduser(path)), encoding="utf-8") as file:
                token = file.read()
        except (OSError, UnicodeDecodeError):
            return None
    return "".join((token or "").split()) or None


def _file(url: str, entry: object) -> tuple[str | None, int, str | None]:
    """Return path, length and ETag of an entry of a list; the path is None for a directory.

    The ETag is the SHA-256 of a file that is stored outside of the repository, else its Git blob.
    """
    match entry:
        case {"type": "file", "path": path, "size": size} if is_text(path) and type(size) is int and size >= 0:
            match entry:
                case {"lfs": {"oid": str(version)}} | {"oid": str(version)}:
                    return path, size, version
            return path, size, None
        case {"type": "directory"}:
            return None, 0, None
    raise _list_error(url)


def _list_error(url: str) -> TarkitError:
    return TarkitError(f"{public_name(url)}: the Hub sends what is no list of files", "is HF_ENDPOINT the Hub's?")
