"""Request many objects in the order in which they are needed: several are requested ahead, small ones whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tarkit.stores import connect
from tarkit.threads import ThreadCall

if TYPE_CHECKING:
    from tarkit.stores.reading import RemoteObject, Stream
    from tarkit.stores.store import Info, StoreOptions

REQUESTS = 32
"""Objects that are requested, or wait for their turn, at a time."""

MEMORY = 20 << 20
"""Bytes of these objects from which on no more are requested. A large object in its turn has those of a stream as well:
(FLIGHT + 1) * LARGEST of `reading`."""

WHOLE = 4 << 20
"""Bytes of the largest object that one request reads; of a larger one the first request only opens it."""

UNSIZED = 1 << 20
"""Bytes that the first request asks for where the length is not known, or larger than WHOLE."""

OPENED = 16
"""Objects that are opened before their turn, with up to 1 MiB of each."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Wanted = tuple[str, int | None]
"""The URL of an object, and its length in bytes if it is known."""
Opened = tuple[str, "StoreOptions | None"]
"""The URL of an object, and how it is reached."""


def prefetch_objects(
    items: Iterable[Item], wanted_of: Callable[[Item], Wanted | None], read: Callable[[str, int | None], Result]
) -> Iterator[tuple[Item, ThreadCall[Result] | None]]:
    """Yield each item with the request of its object, in order; None for an item that `wanted_of` gives no object.

    `read` is called in threads. `result()` of a request waits for it, and raises its error. Up to REQUESTS items are
    taken ahead, while objects among them are requested.
    """
    waiting: deque[tuple[Item, ThreadCall[Result] | None, int]] = deque()
    requested = held = 0
    for item in items:
        wanted = wanted_of(item)
        if wanted is None:
            waiting.append((item, None, 0))
        else:
            cost = UNSIZED if wanted[1] is None else min(wanted[1], WHOLE)
            waiting.append((item, ThreadCall(partial(read, *wanted)), cost))
            requested += 1
            held += cost
        while waiting and (not requested or len(waiting) >= REQUESTS or held >= MEMORY):
            first, request, cost = waiting.popleft()
            requested -= request is not None
            held -= cost
            yield first, request
    while waiting:
        yield waiting.popleft()[:2]


def open_ahead(
    items: Iterable[Item], object_of: Callable[[Item], Opened | None], whole: bool = False
) -> Iterator[Item]:
    """Yield items in order, while threads open the objects of the next ones: `connect.open_object` returns these.

    `object_of` returns the object of an item, None for none. Nothing is opened before the second item is asked for, so
    that the first costs no other; then one object, and twice as many after each, up to OPENED. `whole` says that all of
    each object is read.
    """
    waiting: deque[tuple[Item, Callable[[], object]]] = deque()
    rest, allowed = iter(items), 0
    try:
        while True:
            for item in islice(rest, allowed + 1 - len(waiting)):
                place = object_of(item) if waiting else None  # the caller opens the first of them
                waiting.append((item, bool if place is None else connect.expect_object(*place, whole)))
            if not waiting:
                return
            item, give_up = waiting[0]
            yield item
            waiting.popleft()
            give_up()
            allowed = min(2 * allowed or 1, OPENED)
    finally:
        for _, give_up in waiting:
            give_up()


class Fetched(NamedTuple):
    """An object: its content if one request reads it, else None; then `stream` reads it."""

    info: Info
    data: bytes | None
    remote: RemoteObject | None = None

    def stream(self) -> Stream:
        """Return a reader of an object that is not read, which the caller closes."""
        assert self.remote is not None
        return self.remote.stream()


def fetch(url: str, size: int | None = None, options: StoreOptions | None = None) -> Fetched:
    """Request an object and read it if it is small; `size` is its expected length. Raises FileNotFoundError."""
    if size == 0:
        return Fetched(connect.head_object(url, options), b"")
    first = UNSIZED if size is None or size > WHOLE else size
    remote = connect.open_object(url, options, first)
    info = remote.info
    if info.size is None or info.size > first or not info.ranges:
        return Fetched(info, None, remote)
    return Fetched(info, remote.read_all(), remote)
