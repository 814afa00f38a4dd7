"""The interface of a store: operations on an object, and failures of requests.

A store makes single requests. `reading` and `upload` add the parts that all stores share: retries, resuming at the byte
where a connection broke, several ranges in flight, uploads that are checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tarkit.errors import TarkitError, Unsupported, Usage, spell, warn
from tarkit.options import Options, row
from tarkit.redaction import SECRET
from tarkit.sizes import parse_size
from tarkit.stores.schemes import public_name, refuse_url

if TYPE_CHECKING:
    from tarkit.stores.checksum import Checksum


GAP = 1 << 20
"""Bytes that arrive while one reply is waited for: a gap of so many between two ranges is read through, and dropped.

A reply begins after 10 to 50 ms in the region of a store, and a connection brings 40 to 100 MB/s there: 0.4 to 5 MB.
The lower end costs a fast network little, and is the right one for a slow network. It bounds what is read in vain:
1 MiB for each request that is saved, and no byte twice.

It is not measured. The product of latency and rate of the first replies follows their size, since connections start
slowly: with 100 ms a reply 0.2 MB after 1 MiB, 0.9 MB after 8 MiB. Without a slow start, with 1 ms, 4 to 10 MB in
three runs. Where gaps are larger than this, no reply is large enough to measure a rate.
"""

LEAST = 1 << 12
"""Bytes that are read at least where a header is."""


def silent(line: str) -> None:
    """Print nothing."""


PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Statuses of replies to requests that may be made again (RFC 9110 15.5.9, 15.6; RFC 8470; RFC 6585)."""


class Info(NamedTuple):
    """An object as its store describes it.

    Attributes:
        size: its length in bytes; None if the store does not say.
        version: its ETag, or its time of modification; None if the store does not say.
        ranges: whether parts of it can be read.
        modified: when it was written, in nanoseconds since 1970; None if the store does not say.
        checksum: that of all its bytes; None if the reply does not name one that is known.
        ends: whether a connection that ends early is noticed; not of a reply without a length, whose end is that of the
            connection.
        mark: the name of the upload that wrote it (see `Upload`), in replies to `head` of stores that keep it.
    """

    url: str
    size: int | None
    version: str | None
    ranges: bool = True
    modified: int | None = None
    checksum: Checksum | None = None
    ends: bool = True
    mark: str | None = None


class Reply(Protocol):
    """The bytes of one reply, in order."""

    info: Info
    """The object, as the reply describes it."""

    def read(self, n: int, /) -> bytes | memoryview:
        """Return up to `n` bytes, at least one before the end, b"" at the end.

        Raises:
            TryAgain: the connection broke, or the reply ended early.
        """

    def close(self) -> None:
        """Give up the bytes that were not read; a `read` in another thread ends, at once or with its piece."""


class PieceReply(Reply):
    """A reply whose bytes come in pieces of a size that the store chooses.

    They are handed on without a copy: 256 MiB of s3:// on loopback take 0.2 s in place of 0.45.
    """

    _rest = memoryview(b"")

    def read(self, n: int) -> memoryview:
        if not self._rest:
            self._rest = memoryview(self._next_piece())
        data, self._rest = self._rest[:n], self._rest[n:]
        return data

    def _next_piece(self) -> Any:
        """Return the bytes that follow, b"" at the end."""
        raise NotImplementedError


class Upload(Protocol):
    """An object that is being written: it exists once `close` returns, and not before.

    The errors of its methods are those of a `Store`. A thread may call `close`, which makes the requests that remain,
    while others write other objects.

    Attributes:
        mark: metadata that distinguish the object from an equal one; None if the store keeps none.
        version: that of the object, if the reply that completed it said so.
    """

    mark: str | None = None
    version: str | None = None

    def write(self, data: bytes | memoryview, /) -> object:
        """Write all of `data`."""

    def close(self) -> None:
        """Complete the object. After an error `abort` is called.

        The object does not exist then; if it does, or this is unknown, the error is `Unconfirmed`.
        """

    def abort(self) -> None:
        """Remove the written bytes; called instead of `close`, or after an error, and perhaps twice."""


class Store:
    """The operations on objects of one kind of URL. All raise `TryAgain`, TarkitError or OSError.

    Nothing is connected before the first request.

    Attributes:
        read_in_a_row: by directory, the bytes of its last objects, if all of these were read, from first to last.
    """

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.read_in_a_row: dict[str, int] = {}

    def head(self, url: str) -> Info:
        """Return the description of an object. Raises FileNotFoundError."""
        raise NotImplementedError

    def get(self, url: str, start: int, stop: int | None) -> Reply:
        """Request bytes [start, stop) of an object, to its end for None. Raises FileNotFoundError."""
        raise NotImplementedError

    def put(self, url: str, fresh: bool) -> Upload:
        """Begin to write an object.

        With `fresh` one that exists is an error, if the store can refuse it in the request that completes an object;
        `upload.RemoteUpload` looks for one before.
        """
        raise NotImplementedError

    def delete(self, url: str) -> None:
        """Remove an object."""
        raise Unsupported(f"{public_name(url)}: an object at this URL cannot be removed")

    def list(self, url: str, depth: int | None = None) -> Iterator[Info]:
        """Yield the objects whose URL begins with `url`, by name; each page is requested again by the store itself.

        `depth` is how many directories deep the caller looks, 0 for those in the directory of `url` alone, None for
        all; a store may yield what lies deeper.
        """
        raise NotImplementedError

    def server(self, url: str) -> tuple[str, ...]:
        """Return a text that distinguishes servers and accounts that may have different objects at this URL."""
        return ()


class Unconfirmed(TarkitError):
    """An upload that failed although its object is there, or may be there."""


class Denied(TarkitError):
    """An object may not be read or written with the credentials at hand."""


class TryAgain(Exception):
    """A request that failed for a reason that may pass; it can be made again.

    Attributes:
        wait: seconds after which the server wants to be asked again, if it says so.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


def parse_gap(value: int | str, name: str | None = None) -> int:
    """Return the bytes of a gap: 0, or a size. Raises Usage, which has the name of the variable that gave it."""
    try:
        return 0 if str(value) == "0" else parse_size(str(value))
    except Usage as error:
        raise Usage(f"{name or spell('net_gap')}: {error}", error.hint) from None


class StoreOptions(Options):
    """How stores are reached, and how often requests are repeated: what all commands have, and `storage_options`.

    Attributes:
        storage: settings of the library that serves the scheme, such as `region`; may contain secrets.
        tell: called with lines about broken connections, about the cache, and about peers that have not come.
        note: called with lines about how objects are read.
        warn: called with a message about a possible loss, after which the run goes on.
    """

    endpoint_url: str | None = row(
        "URLs",
        "--endpoint-url",
        detail=True,
        metavar="URL",
        help="Server of s3://, gs:// and az:// URLs.",
        more="Also AWS_ENDPOINT_URL.",
    )
    anonymous: bool = row(
        "URLs",
        "--anonymous",
        detail=True,
        default=False,
        help="Send no credentials, for public data.",
    )
    retries: int = row(
        "URLs",
        "--net-retries",
        detail=True,
        at_least=0,
        default=5,
        metavar="N",
        help="Give up after N failures in a row.  [default: 5]",
        more="A transfer goes on at the byte where its connection broke; any progress starts the count anew.",
    )
    timeout: float = row(
        "URLs",
        "--net-timeout",
        detail=True,
        seconds=True,
        default=60.0,
        metavar="S",
        help="A connection is broken after S seconds without a byte.  [default: 60]",
    )
    gap: int | str | None = row(
        "URLs",
        "--net-gap",
        detail=True,
        parse=parse_gap,
        metavar="SIZE",
        help="Save requests by reading gaps of up to SIZE.  [default: 1MiB]",
        more="Where bytes that leave a store are paid for, a smaller SIZE takes more requests and fewer bytes; with 0 "
        "no gap is read. Also TARKIT_NET_GAP.",
    )
    cache: str | None = row(
        "URLs",
        "--cache",
        detail=True,
        parse=os.fspath,
        metavar="DIR",
        help="Keep objects that are read in files in DIR.",
        more="Each is fetched once, by one of many processes, and again when it has changed. Also WDS_CACHE; "
        "'' is none.",
    )
    cache_size: int | str | None = row(
        "URLs",
        "--cache-size",
        detail=True,
        parse=str,
        metavar="SIZE",
        help="Maximum of all files in --cache, such as 50G.",
        more="Those that were opened longest ago are removed. Also WDS_CACHE_SIZE; the default is no limit.",
    )
    storage: Mapping[str, object] = {}
    tell: Callable[[str], None] = silent
    note: Callable[[str], None] = silent
    warn: Callable[[str], None] = warn

    def argument(self, name: str) -> str:
        """Return how Python gives an option: in a dict, by the name that it has on the command line."""
        return f"storage_options[{self.rows[name].parameter!r}]"

    def check(self) -> None:
        """Raise Usage for a cache that is a URL, and for a size without a cache."""
        refuse_url(self.cache, "cache")
        if self.cache_size is not None:
            if not self.cache and not os.environ.get("WDS_CACHE"):
                raise Usage(f"{spell('cache_size')} requires {spell('cache')}")
            parse_size(str(self.cache_size))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreOptions) and self._values == other._values

    def __hash__(self) -> int:
        return hash((*self._values[:-1], *sorted(self.storage)))

    @property
    def _values(self) -> tuple[object, ...]:
        return *(getattr(self, name) for name in self.rows), self.storage

    def setting(self, name: str) -> str | None:
        """Return the setting of this name as text, without blanks around it."""
        value = self.storage.get(name)
        return None if value is None else str(value).strip()

    @property
    def plain(self) -> dict[str, object]:
        """The settings that are no secrets, by their names."""
        return {name: value for name, value in self.storage.items() if not re.search(SECRET, name, re.IGNORECASE)}

    def without_secrets(self, text: str) -> str:
        """Return a text for a message, with `***` for secret settings."""
        for name in self.storage.keys() - self.plain.keys():
            text = text.replace(str(self.storage[name]) or "\0", "***")
        return text


OPTION_KEYS = tuple(row.parameter for row in StoreOptions.rows.values())
"""Keys of `storage_options` for all stores."""


def parse_options(storage_options: Mapping[str, object] | None) -> StoreOptions | None:
    """Return the options of the argument `storage_options`; None for None.

    Keys that are not in OPTION_KEYS are settings of the library that serves the scheme; `connect.check_settings` checks
    them. Messages have no values, which may be secret.

    Raises:
        TypeError: a value of the wrong type.
        Usage: an invalid value.
    """
    if storage_options is None:
        return None
    if not isinstance(storage_options, Mapping) or not all(isinstance(key, str) for key in storage_options):
        raise TypeError("storage_options is a dict of names and values")
    settings = {key: value for key, value in storage_options.items() if value is not None}
    own = {key: settings.pop(key) for key in OPTION_KEYS if key in settings}
    return StoreOptions(**StoreOptions.by_parameter(own), storage=settings)


def proxy_login_error(name: str) -> Denied:
    """Return the error for a proxy that wants a login, or another one."""
    hint = "http_proxy, https_proxy and all_proxy are http://USER:PASSWORD@HOST:PORT, percent-encoded"
    return denied_error(name, "the proxy wants a login, or another one", hint)


def not_found_error(name: str) -> FileNotFoundError:
    """Return the error for an object that does not exist."""
    return FileNotFoundError(2, os.strerror(2), name)


def denied_error(name: str, detail: str, hint: str | None) -> Denied:
    """Return the error for an object that may not be read or written with the credentials at hand."""
    return Denied(f"{name}: permission denied: {detail}", hint)


def exists_error(name: str) -> TarkitError:
    """Return the error for an object that exists and may not be replaced."""
    return TarkitError(f"{name}: this object exists", f"{spell('force')} replaces it")


def changed_error(name: str) -> TarkitError:
    """Return the error for an object that is not the one that was opened."""
    return TarkitError(f"{name}: the object has changed while it was read", "read it again from its start")


def unquote_etag(text: str | None) -> str | None:
    """Return an ETag without its quotes and the mark of a weak one: some stores leave them out in lists."""
    return text.removeprefix("W/").strip('"') or None if text else None
