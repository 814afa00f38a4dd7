"""Open objects by their URLs: the store of a scheme is imported when the first of its URLs is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from tarkit.errors import Usage, spell
from tarkit.sizes import parse_size
from tarkit.stores.rewrite import by_ais
from tarkit.stores.schemes import SCHEMES, module_of, public_name, scheme_of, unknown
from tarkit.stores.store import ConnectionLost, Info, Store, StoreOptions, Upload

if TYPE_CHECKING:
    from tarkit.stores.cache import CachedFile, ObjectCache
    from tarkit.stores.transfer import RemoteObject


def _silent(line: str) -> None:
    """Print nothing."""


_options = StoreOptions()
_tell: Callable[[str], None] = _silent
_cache: tuple[str | None, str | None] = None, None


def configure(
    options: StoreOptions, tell: Callable[[str], None], cache: str | None = None, cache_size: str | None = None
) -> None:
    """Set the options of URLs that have none of their own, and where lines about broken connections go.

    `cache` is the directory of a cache ("" for none) and `cache_size` its size; the defaults are those of webdataset,
    the environment variables WDS_CACHE and WDS_CACHE_SIZE. Raises Usage for an invalid size.
    """
    global _options, _tell, _cache
    if cache_size is not None:
        if not cache and not os.environ.get("WDS_CACHE"):
            raise Usage(f"{spell('cache_size')} requires {spell('cache')}")
        parse_size(cache_size)
    _options, _tell, _cache = options, tell, (cache, cache_size)


def open_object(url: str, options: StoreOptions | None = None, first: int | None = None) -> RemoteObject:
    """Open an object for reading; the first request asks for `first` bytes, by default the first range of a stream."""
    from tarkit.stores.transfer import FIRST, RemoteObject

    options = options or _options
    return RemoteObject(store_of(url, options), url, public_name(url), options, _tell, first or FIRST)


def read_object(url: str, options: StoreOptions | None = None) -> tuple[bytes, Info]:
    """Return all bytes of an object, and its description; small ones take one request. Raises FileNotFoundError."""
    from tarkit.stores.transfer import LARGEST

    remote = open_object(url, options)
    parts = []
    try:
        with remote.stream() as stream:
            while data := stream.read(LARGEST):
                parts.append(data)
    finally:
        remote.close()
    return b"".join(parts), remote.info


def open_cached(url: str, options: StoreOptions | None = None) -> CachedFile | None:
    """Return the file of the cache that has an object; None if there is no cache, or the object is read without it."""
    directory, size = _cache
    directory = os.environ.get("WDS_CACHE") if directory is None else directory
    if not directory:
        return None
    name = spell("cache_size") if size is not None else "WDS_CACHE_SIZE"
    size = os.environ.get("WDS_CACHE_SIZE") if size is None else size
    try:
        cache = _cache_in(directory, parse_size(size) if size else None, _tell)
    except Usage as error:
        raise Usage(f"{name}: {error}", error.hint) from None
    remote = open_object(url, options, first=1)
    try:
        return cache.open(remote)
    finally:
        remote.close()


def create_object(url: str, fresh: bool = False, options: StoreOptions | None = None) -> Upload:
    """Begin to write an object; with `fresh` one that exists is an error."""
    from tarkit.stores.transfer import Patience

    options = options or _options
    store = store_of(url, options, writing=True)
    return Patience(options, _tell).repeat(f"{public_name(url)}: ", lambda: store.put(url, fresh))


def delete_object(url: str, options: StoreOptions | None = None) -> None:
    """Remove an object."""
    from tarkit.stores.transfer import Patience, Request

    options = options or _options
    delete = partial(store_of(url, options, writing=True).delete, url)
    Patience(options, _tell).repeat(f"{public_name(url)}: ", lambda: Request(delete).result())


def list_objects(url: str, options: StoreOptions | None = None, depth: int | None = None) -> Iterator[Info]:
    """Yield the objects whose URLs begin with `url`; after a failure the list is continued behind the last of them.

    With `depth`, objects that lie more than so many directories deeper may be left out.
    """
    from tarkit.stores.transfer import Patience

    options = options or _options
    store, patience, last = store_of(url, options), Patience(options, _tell), None
    while True:
        try:
            for info in store.list(url, last, depth):
                yield info
                last, patience.failures = info.url, 0
            return
        except ConnectionLost as lost:
            patience.count(f"{public_name(url)}: ", lost)
            patience.pause(f"{public_name(url)}: ", lost)


def store_of(url: str, options: StoreOptions, writing: bool = False) -> Store:
    """Return the store of a URL; that of ais:// also for schemes of USE_AIS_FOR. Raises Usage for an unknown scheme."""
    module = SCHEMES["ais"] if by_ais(scheme_of(url) or "") else module_of(url)
    if module is None:
        raise unknown(url, writing)
    return _store(module, options)


@lru_cache(maxsize=4)
def _cache_in(directory: str, size: int | None, tell: Callable[[str], None]) -> ObjectCache:
    from tarkit.stores.cache import ObjectCache

    return ObjectCache(directory, size, tell)


@lru_cache(maxsize=16)
def _store(module: str, options: StoreOptions) -> Store:
    return cast(Store, cast(Any, import_module(module)).open_store(options))
