"""Open objects by their URLs: the store of a scheme is imported when the first of its URLs is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from tarkit.errors import Usage, spell, warn
from tarkit.sizes import parse_size
from tarkit.stores.schemes import Scheme, find_scheme, public_name, scheme_of, unknown_scheme_error
from tarkit.stores.store import GAP, LEAST, OPTION_KEYS, Info, Store, StoreOptions, TryAgain, parse_gap, silent
from tarkit.threads import ThreadCall

if TYPE_CHECKING:
    from tarkit.stores.cache import CachedFile, ObjectCache
    from tarkit.stores.reading import RemoteObject
    from tarkit.stores.upload import RemoteUpload

Result = TypeVar("Result")

_options = StoreOptions()
_expected: dict[tuple[str, StoreOptions], ThreadCall[RemoteObject]] = {}
"""Objects that are opened by threads before their turn."""


def configure(options: StoreOptions) -> None:
    """Set the options of URLs that have none of their own."""
    global _options  # noqa: PLW0603
    _options = options


def options_of(options: StoreOptions | None) -> StoreOptions:
    """Return the options of a URL, those of the process for None."""
    return _options if options is None else options


def portable_options(options: StoreOptions | None) -> StoreOptions:
    """Return options of URLs for other machines: without functions, and without a cache, which is a directory here."""
    return options_of(options).replace(tell=silent, note=silent, warn=warn, cache=None, cache_size=None)


def check_settings(url: str, options: StoreOptions) -> None:
    """Raise Usage for a setting that the library that serves a URL does not take; nothing is connected."""
    scheme = find_scheme(url)
    if scheme is None or scheme.settings is None:
        return
    settings = scheme.settings.split()
    unknown = [name for name in options.storage if name not in settings]
    if unknown:
        from difflib import get_close_matches

        keys = [*OPTION_KEYS, *sorted(settings)]
        near = get_close_matches(unknown[0].removeprefix("aws_").lower(), keys, 1)
        hint = f"{f'did you mean {near[0]!r}? ' if near else ''}there are {', '.join(keys)}"
        raise Usage(f"storage_options: {scheme_of(url)}:// has no option {unknown[0]!r}", hint)


def open_object(url: str, options: StoreOptions | None = None, first: int | None = None) -> RemoteObject:
    """Open an object for reading; the first request asks for `first` bytes, by default the first range of a stream."""
    options = options_of(options)
    expected = _expected.pop((url, options), None)
    if expected is not None and not expected.elsewhere:
        return expected.result()
    return _open(url, options, first)


def _open(url: str, options: StoreOptions, first: int | None = None) -> RemoteObject:
    from tarkit.stores.reading import FIRST, RemoteObject

    remote = RemoteObject(store_of(url, options), url, public_name(url), options, first or FIRST)
    if not remote.info.ranges:
        named = remote.info.version is not None and remote.info.size is not None
        _note_whole("/".join(remote.name.split("/", 3)[:3]), named, options)
    return remote


def expect_object(url: str, options: StoreOptions | None = None, whole: bool = False) -> Callable[[], object]:
    """Open an object in a thread, and read its first bytes: `open_object` returns it, once.

    These are FIRST bytes if it is read as a `whole`, else no more than those of a gap.

    Returns:
        A function that gives it up, if it was not opened.
    """
    from tarkit.stores.reading import FIRST

    chosen = options_of(options)
    first = FIRST if whole else min(max(gap_of(chosen), LEAST), FIRST)

    def opened() -> RemoteObject:
        remote = _open(url, chosen, first)
        if remote.info.ranges:
            remote.read(0, first)
        return remote

    call = _expected[url, chosen] = ThreadCall(opened)

    def give_up() -> None:
        if _expected.get((url, chosen)) is call:
            del _expected[url, chosen]

    return give_up


def head_object(url: str, options: StoreOptions | None = None) -> Info:
    """Return the description of an object. Raises FileNotFoundError."""
    return _request(store_of(url, options).head, url, options)


def read_object(url: str, options: StoreOptions | None = None) -> tuple[bytes, Info]:
    """Return all bytes of an object, and its description; small ones take one request. Raises FileNotFoundError."""
    remote = open_object(url, options)
    return remote.read_all(), remote.info


def cache_of(options: StoreOptions | None = None) -> str | None:
    """Return the directory of the cache, in which each object that is opened is fetched; None or empty for none."""
    options = options_of(options)
    return os.environ.get("WDS_CACHE") if options.cache is None else options.cache


def gap_of(options: StoreOptions | None = None) -> int:
    """Return the bytes of the largest gap between two ranges of an object that is read to save a request."""
    gap = options_of(options).gap
    if gap is not None:
        return int(gap)
    given = os.environ.get("TARKIT_NET_GAP")
    return parse_gap(given, "TARKIT_NET_GAP") if given else GAP


def open_cached(url: str, options: StoreOptions | None = None) -> CachedFile | None:
    """Return the file of the cache that has an object; None if there is no cache, or the object is read without it."""
    options = options_of(options)
    directory = cache_of(options)
    if not directory:
        return None
    name, size = spell("cache_size"), options.cache_size
    if size is None:
        name, size = "WDS_CACHE_SIZE", os.environ.get("WDS_CACHE_SIZE")
    try:
        cache = _cache_in(directory, parse_size(str(size)) if size else None, options.tell)
    except Usage as error:
        raise Usage(f"{name}: {error}", error.hint) from None
    remote = open_object(url, options, first=1)
    try:
        cached = cache.open(remote)
        return None if cached is None else cached._replace(version=remote.info.version)
    finally:
        remote.close()


def create_object(url: str, fresh: bool = False, options: StoreOptions | None = None) -> RemoteUpload:
    """Begin to write an object; with `fresh` one that exists when it is completed is an error."""
    from tarkit.stores.upload import RemoteUpload

    options = options_of(options)
    return RemoteUpload(store_of(url, options, writing=True), url, public_name(url), options, fresh)


def delete_object(url: str, options: StoreOptions | None = None) -> None:
    """Remove an object."""
    _request(store_of(url, options, writing=True).delete, url, options)


def list_objects(url: str, options: StoreOptions | None = None, depth: int | None = None) -> Iterator[Info]:
    """Yield the objects whose URLs begin with `url`.

    With `depth`, objects that lie more than so many directories deeper may be left out.
    """
    from tarkit.stores.retry import exhausted_error

    try:
        yield from store_of(url, options).list(url, depth)
    except TryAgain as failure:  # of a request that the library has repeated, if that could help
        raise exhausted_error(public_name(url), failure) from failure


def store_of(url: str, options: StoreOptions | None, writing: bool = False) -> Store:
    """Return the store of a URL; nothing is connected. Raises Usage for an unknown scheme, or setting."""
    scheme = find_scheme(url)
    if scheme is None:
        raise unknown_scheme_error(url, writing)
    options = options_of(options)
    check_settings(url, options)
    return _store(scheme, options)


def _request(request: Callable[[str], Result], url: str, options: StoreOptions | None) -> Result:
    from tarkit.stores.retry import request_again

    return request_again(partial(request, url), public_name(url), options_of(options))


@lru_cache(maxsize=64)  # so that there is one line for each store
def _note_whole(store: str, named: bool, options: StoreOptions) -> None:
    why = "sends no parts of objects" if named else "does not name version and length of objects"
    options.note(f"{store}: the server {why}: each is read whole, by one request")


@lru_cache(maxsize=4)
def _cache_in(directory: str, size: int | None, tell: Callable[[str], None]) -> ObjectCache:
    from tarkit.stores.cache import ObjectCache

    return ObjectCache(directory, size, tell)


@lru_cache(maxsize=16)
def _store(scheme: Scheme, options: StoreOptions) -> Store:
    store: Store = getattr(import_module(scheme.module), scheme.store)(options)
    return store
