"""Objects written and read by a store, in pieces that fit neither its ranges nor its parts."""

from __future__ import annotations

from tarkit.stores import reading
from tarkit.stores.reading import RemoteObject
from tarkit.stores.schemes import public_name
from tarkit.stores.store import Store
from tarkit.stores.upload import RemoteUpload


def put(store: Store, url: str, data: bytes, fresh: bool = False) -> None:
    """Write an object."""
    upload = RemoteUpload(store, url, public_name(url), store.options, fresh)
    for start in range(0, len(data), 70_000):
        upload.write(memoryview(data)[start : start + 70_000])
    upload.close()


def opened(store: Store, url: str) -> RemoteObject:
    return RemoteObject(store, url, public_name(url), store.options, reading.FIRST)


def whole(store: Store, url: str) -> bytes:
    """Read an object."""
    with opened(store, url).stream() as stream:
        return b"".join(iter(lambda: stream.read(70_000), b""))
