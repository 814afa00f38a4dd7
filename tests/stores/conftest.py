"""Fixtures of the tests of stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarkit.stores import connect, reading, retry
from tarkit.stores.store import StoreOptions
from tests.stores._http import HttpServer, http_server
from tests.stores._s3 import Bucket, S3Server, s3_server
from tests.stores._servers import KEYS

OURS = ("AWS_", "GOOGLE_", "AZURE_", "HF_", "HUGGING_FACE_", "AIS_", "WDS_", "GOPEN_", "USE_AIS_FOR", "TARKIT_NET_GAP")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have no settings of this machine, nor options and stores of a command before; pauses are short."""
    for name in [*os.environ]:
        if name.startswith(OURS) or name.lower() in PROXIES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    connect.configure(StoreOptions())
    connect._store.cache_clear()


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an object read by ranges of 100 000 bytes, 200 000, then 400 000 each."""
    monkeypatch.setattr(reading, "FIRST", 100_000)
    monkeypatch.setattr(reading, "LARGEST", 400_000)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as found:
        yield found


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, here: Path) -> Iterator[S3Server]:
    """A server of S3 in memory, which variables name, and its credentials."""
    with s3_server() as found:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": found.url}.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """A directory of its bucket."""
    return Bucket(s3)
