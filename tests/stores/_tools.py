"""Objects written and read by a store, in pieces that fit neither its ranges nor its parts; views of objects."""

from __future__ import annotations

from typing import Any

import pytest

from tarkit.stores import reading
from tarkit.stores.reading import RemoteObject
from tarkit.stores.schemes import public_name
from tarkit.stores.store import Store
from tarkit.stores.upload import RemoteUpload
from tests.conftest import Run


def put(store: Store, url: str, data: bytes, fresh: bool = False) -> None:
    upload = RemoteUpload(store, url, public_name(url), store.options, fresh)
    for start in range(0, len(data), 70_000):
        upload.write(memoryview(data)[start : start + 70_000])
    upload.close()


def view_rows(run: Run, archive: str, url: str) -> list[dict[str, Any]]:
    """Return the rows of a view of an archive, with the URL that it has in a store."""
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    run("cat", archive, "-o", "rows.parquet")
    return [{**row, "__shard__": url} for row in parquet.read_table("rows.parquet").to_pylist()]


def write_view(name: str, rows: list[dict[str, Any]], **how: Any) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), name, **how)


def opened(store: Store, url: str) -> RemoteObject:
    return RemoteObject(store, url, public_name(url), store.options, reading.FIRST)


def whole(store: Store, url: str) -> bytes:
    with opened(store, url).stream() as stream:
        return b"".join(iter(lambda: stream.read(70_000), b""))
