"""Fixtures of the tests of stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarkit.stores import connect, retry
from tarkit.stores.store import StoreOptions
from tests.stores._http import HttpServer, http_server


@pytest.fixture(autouse=True)
def _own_settings() -> None:
    """Forget the options, and the stores with them, that a command in this process set before."""
    connect.configure(StoreOptions())
    connect._store.cache_clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HttpServer]:
    """A web server; with short pauses, and no settings of this machine."""
    monkeypatch.setattr(retry, "_PAUSE", 0.01)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("http_proxy", "https_proxy", "all_proxy", "WDS_CACHE", "WDS_CACHE_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with http_server() as found:
        yield found
