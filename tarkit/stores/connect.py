"""Open objects by their URLs: the store of a scheme is imported when the first of its URLs is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from tarkit.stores.rewrite import by_ais
from tarkit.stores.schemes import SCHEMES, public_name, scheme_of, unknown
from tarkit.stores.store import ConnectionLost, Info, Store, StoreOptions, Upload

if TYPE_CHECKING:
    from tarkit.stores.transfer import RemoteObject


def _silent(line: str) -> None:
    """Print nothing."""


_options = StoreOptions()
_tell: Callable[[str], None] = _silent


def configure(options: StoreOptions, tell: Callable[[str], None]) -> None:
    """Set the options of URLs that have none of their own, and where lines about broken connections go."""
    global _options, _tell
    _options, _tell = options, tell


def open_object(url: str, options: StoreOptions | None = None, first: int | None = None) -> RemoteObject:
    """Open an object for reading; the first request asks for `first` bytes, by default the first range of a stream."""
    from tarkit.stores.transfer import FIRST, RemoteObject

    options = options or _options
    return RemoteObject(store_of(url, options), url, public_name(url), options, _tell, first or FIRST)


def create_object(url: str, fresh: bool = False, options: StoreOptions | None = None) -> Upload:
    """Begin to write an object; with `fresh` one that exists is an error."""
    return store_of(url, options or _options, writing=True).put(url, fresh)


def list_objects(url: str, options: StoreOptions | None = None) -> Iterator[Info]:
    """Yield the objects whose URLs begin with `url`; after a failure the list is continued behind the last of them."""
    from tarkit.stores.transfer import Patience

    options = options or _options
    store, patience, last = store_of(url, options), Patience(options, _tell), None
    while True:
        try:
            for info in store.list(url, last):
                yield info
                last, patience.failures = info.url, 0
            return
        except ConnectionLost as lost:
            patience.count(f"{public_name(url)}: ", lost)
            patience.pause(f"{public_name(url)}: ", lost)


def store_of(url: str, options: StoreOptions, writing: bool = False) -> Store:
    """Return the store of a URL; that of ais:// also for schemes of USE_AIS_FOR. Raises Usage for an unknown scheme."""
    scheme = scheme_of(url) or ""
    module = SCHEMES.get("ais" if by_ais(scheme) else scheme)
    if module is None:
        raise unknown(url, writing)
    return _store(module, options)


@lru_cache(maxsize=16)
def _store(module: str, options: StoreOptions) -> Store:
    return cast(Store, cast(Any, import_module(module)).open_store(options))
