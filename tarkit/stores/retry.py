"""Requests that are made again after failures that may pass, and lists in pages of such requests."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from tarkit.errors import TarkitError, spell
from tarkit.stores.schemes import public_name
from tarkit.stores.store import StoreOptions, TryAgain
from tarkit.threads import call_interruptibly

_PAUSE = 0.25  # seconds before the first repetition; twice as many before each next one
_LONGEST = 30.0  # seconds of the longest pause

Result = TypeVar("Result")
Page = TypeVar("Page", bound=Hashable)


class RetryPolicy:
    """When a request is made again: after up to `options.retries` failures in a row, with growing pauses.

    Attributes:
        failures: failures since the last progress.
    """

    def __init__(self, options: StoreOptions, closed: threading.Event | None = None) -> None:
        """`closed` ends a pause."""
        self.failures = 0
        self._options = options
        self._closed = closed or threading.Event()

    def pause(self, where: str, failure: TryAgain) -> None:
        """Report a failure, and wait before the next request: longer each time, and as long as the server says.

        Raises:
            TarkitError: it is one too many.
        """
        self.failures += 1
        if self.failures > self._options.retries:
            raise exhausted_error(where, failure, self.failures)
        self._options.tell(f"{where}: {failure}; trying again")
        pause = min(_PAUSE * 2 ** (self.failures - 1), _LONGEST) * random.uniform(0.5, 1.0)
        self._closed.wait(max(pause, min(failure.wait or 0.0, self._options.timeout)))

    def repeat(self, where: str, request: Callable[[], Result]) -> Result:
        """Return the result of a request, which is made again while it fails in a way that may pass.

        Raises:
            TryAgain: `closed` is set meanwhile.
            TarkitError: it failed too often.
        """
        while True:
            try:
                return request()
            except TryAgain as failure:
                self.pause(where, failure)
                if self._closed.is_set():
                    raise


def exhausted_error(where: str, failure: TryAgain, attempts: int = 1) -> TarkitError:
    """Return the error for a request that failed too often."""
    many = f" ({attempts} attempts)" if attempts > 1 else ""
    hint = f"{spell('net_retries')} and {spell('net_timeout')} set how long to try"
    return TarkitError(f"{where}: {failure}{many}", hint)


def request_again(request: Callable[[], Result], name: str, options: StoreOptions) -> Result:
    """Return the result of a request, which is made again after failures that may pass; a signal can interrupt it."""
    return RetryPolicy(options).repeat(name, partial(call_interruptibly, request))


def endless_error(url: str) -> TarkitError:
    """Return the error for a list whose pages begin anew."""
    return TarkitError(f"{public_name(url)}: the list has no end: a page follows itself")


def list_pages(
    url: str, options: StoreOptions, request: Callable[[Page], tuple[Sequence[Result], Page | None]], first: Page
) -> Iterator[Result]:
    """Yield the items of all pages of a list. `request` returns those of a page, and where the next one begins or None.

    Raises:
        TarkitError: a page follows itself.
    """
    pages = set[Page]()
    following: Page | None = first
    while following is not None:
        if following in pages:
            raise endless_error(url)
        pages.add(following)
        entries, following = request_again(partial(request, following), public_name(url), options)
        yield from entries
