"""Stores for the contract: each with a server, or none, that has an empty place for a test."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from tarkit.stores.store import StoreOptions
from tests.stores._ais import ais_cluster
from tests.stores._http import http_server
from tests.stores._hub import Repository, hub_server
from tests.stores._s3 import Request, s3_server
from tests.stores._servers import AZURE_ACCOUNT, AZURE_KEY, KEYS, azurite, moto, rclone

NOBODY = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
OPTIONS = StoreOptions(retries=3, timeout=5)
_numbers = count()


@dataclass
class Backend:
    """A store.

    Attributes:
        place: the start of URLs; a test adds a directory of its own.
        options: how it is reached.
        environ: variables for it, with credentials.
        wrong: variables with credentials that it refuses; {} if it takes any.
        fill: writes an object as another program does; None where tarkit does it.
        refuse: has the next requests answered with 503; None where that cannot be told.
        parts: the uploads that are not complete.
        ranges: whether it sends parts of objects.
        missing: a URL whose bucket does not exist, "" if there are no buckets.
    """

    place: str
    options: StoreOptions = OPTIONS
    environ: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    fill: Callable[[str, bytes], None] | None = None
    refuse: Callable[[int], None] | None = None
    parts: Callable[[], object] = lambda: ()
    ranges: bool = True
    missing: str = ""

    def directory(self) -> str:
        return f"{self.place}{next(_numbers)}/"


class Busy:
    """Answers the next requests of a server of S3 with 503."""

    left = 0

    def __call__(self, request: Request) -> str | None:
        self.left -= 1
        return "503" if self.left >= 0 else None

    def refuse(self, times: int) -> None:
        self.left = times


@contextmanager
def s3(directory: Path) -> Iterator[Backend]:
    with s3_server() as server:
        server.fault = busy = Busy()
        server.users = {"key"}
        wrong = {**KEYS, "AWS_ACCESS_KEY_ID": "other"}
        options = OPTIONS.replace(endpoint_url=server.url)
        how = {"refuse": busy.refuse, "parts": lambda: server.uploads}
        yield Backend("s3://bucket/", options, KEYS, wrong, missing="s3://no-such-bucket/a", **how)


@contextmanager
def google(directory: Path) -> Iterator[Backend]:
    """Google's XML API in memory: that of S3 with other names of headers.

    https://cloud.google.com/storage/docs/xml-api/reference-headers
    """
    with s3_server() as server:
        server.fault = busy = Busy()
        environ = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(NOBODY)}
        options = OPTIONS.replace(endpoint_url=server.url)
        how = {"refuse": busy.refuse, "parts": lambda: server.uploads}
        yield Backend("gs://bucket/", options, environ, missing="gs://no-such-bucket/a", **how)


@contextmanager
def web(directory: Path) -> Iterator[Backend]:
    with http_server() as server:

        def fill(url: str, data: bytes) -> None:
            server.serve(quote(url.removeprefix(server.url)), data, etag=f'"{hash(data)}"')

        def refuse(times: int) -> None:
            for served in server.objects.values():
                served.statuses = [503] * times

        yield Backend(f"{server.url}/", fill=fill, refuse=refuse)


@contextmanager
def hub(directory: Path) -> Iterator[Backend]:
    """The Hugging Face Hub; each second file is in LFS."""
    place = "hf://datasets/org/name/"
    with hub_server() as server, pytest.MonkeyPatch.context() as patch:
        repository = server.repositories["datasets/org/name"] = Repository(token="t0ken")
        files: dict[str, bytes] = {}

        def fill(url: str, data: bytes) -> None:
            path = url.removeprefix(place)
            repository.lfs |= {path} if len(files) % 2 else set()
            files[path] = data
            repository.commit(dict(files))
            patch.setattr("tarkit.stores.hub._commits", {})

        def refuse(times: int) -> None:
            server.statuses = [(503, {})] * times
            for served in server.storage.objects.values():
                served.statuses = [503] * (times if times > 99 else 0)

        environ = {"HF_ENDPOINT": server.url, "HF_TOKEN": "t0ken"}
        yield Backend(place, OPTIONS, environ, {**environ, "HF_TOKEN": "wr0ngtoken"}, fill, refuse)


@contextmanager
def ais(directory: Path) -> Iterator[Backend]:
    with ais_cluster() as cluster:
        cluster.token = "t0ken"

        def refuse(times: int) -> None:
            cluster.statuses = [503] * times

        environ = {"AIS_ENDPOINT": cluster.url, "AIS_AUTHN_TOKEN": "t0ken"}
        wrong = {**environ, "AIS_AUTHN_TOKEN": "wr0ngtoken"}
        parts = lambda: cluster.uploads  # noqa: E731
        yield Backend("ais://b/", OPTIONS, environ, wrong, None, refuse, parts, missing="ais://none/a")


@contextmanager
def memory(directory: Path) -> Iterator[Backend]:
    pytest.importorskip("fsspec")
    yield Backend(f"memory://test{next(_numbers)}/")


@contextmanager
def local(directory: Path) -> Iterator[Backend]:
    pytest.importorskip("fsspec")
    yield Backend(f"local://{directory}/")


@contextmanager
def ftp(directory: Path) -> Iterator[Backend]:
    pytest.importorskip("pyftpdlib")
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import ThreadedFTPServer

    authorizer = DummyAuthorizer()
    authorizer.add_user("me", "s3cret", str(directory), perm="elradfmwMT")
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer, "auth_failed_timeout": 0})
    server = ThreadedFTPServer(("127.0.0.1", 0), handler)
    serve = {"timeout": 0.05, "handle_exit": False}
    threading.Thread(target=server.serve_forever, kwargs=serve, daemon=True).start()
    try:
        yield Backend(f"ftp://me:s3cret@127.0.0.1:{server.socket.getsockname()[1]}/")
    finally:
        server.close_all()


@contextmanager
def sftp(directory: Path) -> Iterator[Backend]:
    pytest.importorskip("paramiko")
    asyncssh = pytest.importorskip("asyncssh")

    class Server(asyncssh.SSHServer):  # type: ignore[misc]
        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == ("me", "s3cret")

    async def listen() -> int:
        found = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=Server, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=str(directory)),
        )  # fmt: skip
        return int(found.get_port())

    async def end() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield Backend(f"sftp://me:s3cret@127.0.0.1:{asyncio.run_coroutine_threadsafe(listen(), loop).result(10)}/")
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


def _buckets(endpoint: str, wrong: Mapping[str, str]) -> Backend:
    options = OPTIONS.replace(endpoint_url=endpoint)
    return Backend("s3://bucket/", options, KEYS, wrong, missing="s3://no-such-bucket/a")


@contextmanager
def moto_s3(directory: Path) -> Iterator[Backend]:
    with moto() as endpoint:
        yield _buckets(endpoint, {})


@contextmanager
def rclone_s3(directory: Path) -> Iterator[Backend]:
    with rclone(directory) as endpoint:
        yield replace(_buckets(endpoint, {**KEYS, "AWS_SECRET_ACCESS_KEY": "wr0ngsecret"}), ranges=False)


@contextmanager
def azure(directory: Path) -> Iterator[Backend]:
    with azurite(directory) as endpoint:
        environ = {"AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY}
        wrong = {**environ, "AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}
        options = OPTIONS.replace(endpoint_url=endpoint)
        yield Backend("az://bucket/", options, environ, wrong, missing="az://no-such-bucket/a")


LOOPBACK: dict[str, Callable[[Path], AbstractContextManager[Backend]]] = {
    "http": web, "hf": hub, "ais": ais, "s3": s3, "gs": google, "memory": memory, "local": local,
}  # fmt: skip
"""Stores that need no program besides the tests."""

SERVERS: dict[str, Callable[[Path], AbstractContextManager[Backend]]] = {
    "moto": moto_s3, "rclone": rclone_s3, "azurite": azure, "ftp": ftp, "sftp": sftp,
}  # fmt: skip
"""Those that need a server of the group `stores`."""
