"""Open objects by their URLs: the store of a scheme is imported when the first of its URLs is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from tarkit.errors import Usage, spell
from tarkit.sizes import parse_size
from tarkit.stores.rewrite import by_ais, check_rules
from tarkit.stores.schemes import SCHEMES, module_of, public_name, scheme_of, unknown
from tarkit.stores.store import OPTION_KEYS, Info, Store, StoreOptions, TryAgain, Upload

if TYPE_CHECKING:
    from tarkit.stores.cache import CachedFile, ObjectCache
    from tarkit.stores.transfer import RemoteObject


_options = StoreOptions()


def configure(options: StoreOptions) -> None:
    """Set the options of URLs that have none of their own. Raises Usage for an invalid rule."""
    global _options  # noqa: PLW0603
    check_rules(options.rewrite)
    _options = options


def options_of(options: StoreOptions | None) -> StoreOptions:
    """Return the options of a URL, those of the process for None."""
    return _options if options is None else options


def check_settings(url: str, options: StoreOptions) -> None:
    """Raise Usage for a setting that the library that serves a URL does not take; nothing is connected."""
    module = _module_of(url)
    if module is None or not options.storage:
        return
    known: frozenset[str] | None = cast(Any, import_module(module)).settings(scheme_of(url))
    unknown_ones = [] if known is None else [name for name in options.storage if name not in known]
    if unknown_ones:
        what = f"storage_options: {scheme_of(url)}:// has no option {unknown_ones[0]!r}"
        raise Usage(what, f"there are {', '.join([*OPTION_KEYS, *sorted(known or ())])}")


def open_object(url: str, options: StoreOptions | None = None, first: int | None = None) -> RemoteObject:
    """Open an object for reading; the first request asks for `first` bytes, by default the first range of a stream."""
    from tarkit.stores.transfer import FIRST, RemoteObject

    options = options_of(options)
    return RemoteObject(store_of(url, options), url, public_name(url), options, options.tell, first or FIRST)


def head_object(url: str, options: StoreOptions | None = None) -> Info:
    """Return the description of an object. Raises FileNotFoundError."""
    from tarkit.stores.transfer import Patience, awaited

    options = options_of(options)
    head = partial(store_of(url, options).head, url)
    return Patience(options, options.tell).repeat(f"{public_name(url)}: ", lambda: awaited(head))


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
    options = options_of(options)
    directory = os.environ.get("WDS_CACHE") if options.cache is None else options.cache
    if not directory:
        return None
    name, size = spell("cache_size"), options.cache_size
    if size is None:
        name, size = "WDS_CACHE_SIZE", os.environ.get("WDS_CACHE_SIZE")
    try:
        cache = _cache_in(directory, parse_size(size) if size else None, options.tell)
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

    options = options_of(options)
    store = store_of(url, options, writing=True)
    return Patience(options, options.tell).repeat(f"{public_name(url)}: ", lambda: store.put(url, fresh))


def delete_object(url: str, options: StoreOptions | None = None) -> None:
    """Remove an object."""
    from tarkit.stores.transfer import Patience, ThreadCall

    options = options_of(options)
    delete = partial(store_of(url, options, writing=True).delete, url)
    Patience(options, options.tell).repeat(f"{public_name(url)}: ", lambda: ThreadCall(delete).result())


def list_objects(url: str, options: StoreOptions | None = None, depth: int | None = None) -> Iterator[Info]:
    """Yield the objects whose URLs begin with `url`; after a failure the list is continued behind the last of them.

    With `depth`, objects that lie more than so many directories deeper may be left out.
    """
    from tarkit.stores.transfer import Patience

    options = options_of(options)
    store, patience, last = store_of(url, options), Patience(options, options.tell), None
    while True:
        try:
            for info in store.list(url, last, depth):
                yield info
                last, patience.failures = info.url, 0
            return
        except TryAgain as failure:
            patience.count(f"{public_name(url)}: ", failure)
            patience.pause(f"{public_name(url)}: ", failure)


def store_of(url: str, options: StoreOptions, writing: bool = False) -> Store:
    """Return the store of a URL; that of ais:// also for schemes of USE_AIS_FOR. Raises Usage for an unknown scheme."""
    module = _module_of(url)
    if module is None:
        raise unknown(url, writing)
    check_settings(url, options)
    return _store(module, options)


def _module_of(url: str) -> str | None:
    return SCHEMES["ais"] if by_ais(scheme_of(url) or "") else module_of(url)


@lru_cache(maxsize=4)
def _cache_in(directory: str, size: int | None, tell: Callable[[str], None]) -> ObjectCache:
    from tarkit.stores.cache import ObjectCache

    return ObjectCache(directory, size, tell)


@lru_cache(maxsize=16)
def _store(module: str, options: StoreOptions) -> Store:
    return cast(Store, cast(Any, import_module(module)).open_store(options))
