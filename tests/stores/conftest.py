"""Fixtures of the tests of stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarkit.stores import connect, retry
from tarkit.stores.store import StoreOptions
from tests.stores._http import HttpServer, http_server
from tests.stores._s3 import Bucket, S3Server, s3_server
from tests.stores._servers import KEYS


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the options, and the stores with them, that a command in this process set before; pauses are short."""
    connect.configure(StoreOptions())
    connect._store.cache_clear()
    monkeypatch.setattr(retry, "_PAUSE", 0.01)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HttpServer]:
    """A web server, and no settings of this machine."""
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "WDS_CACHE", "WDS_CACHE_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with http_server() as found:
        yield found


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, here: Path) -> Iterator[S3Server]:
    """A server of S3 in memory, which variables name, and its credentials."""
    monkeypatch.setenv("HOME", str(here))
    with s3_server() as found:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": found.url}.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """A directory of its bucket."""
    return Bucket(s3)
