"""Send samples through sockets of ZeroMQ: the sink of frames.

The side that connects closes first. A sender that is bound sends an end frame, waits until a receiver closes its
connection, and sends the next one: so each receiver gets one. A sender that connects has a socket for each receiver; it
closes them when the system has taken all frames, on this machine when the receiver has. So a connection that is closed
before that is a receiver that died.

Samples that a dead receiver has not read are lost: there are no acknowledgements. It is an error here, unless the
system had taken the last frame already, or the queue of a sender that is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic

from tarkit.errors import TarkitError
from tarkit.messages.encodings import load_encoding
from tarkit.messages.sockets import END, PAUSE, TURN, SocketAddress, Sockets
from tarkit.streams.sink import WriteOnlySink

OFTEN = 64  # frames between two looks at the connections


class SocketSink(WriteOnlySink):
    """A sink of frames, one for each `write`.

    Args:
        address: the address that the URL stands for.
        tell: called with a line when receivers have not come for a while.

    Raises:
        MissingLibrary: pyzmq or msgpack is not installed.
        TarkitError: the address cannot be bound; a receiver closes its connection before the end; none takes a frame
            for too long.
    """

    def __init__(self, address: SocketAddress, tell: Callable[[str], None]) -> None:
        self.name = address.name
        self._address = address
        self._end = load_encoding("msgpack", address.name, "zmq").pack({END: b"true"})
        self._sockets = Sockets(address, tell)
        self._turn = 0  # the socket that is next
        self._unseen = 0  # frames since the last look
        self._ready = False  # whether all receivers are there
        self._ends = 0  # receivers that have an end frame, and so may leave
        self._last_end = 0.0  # when one was sent last
        self._tell = tell

    def write(self, data: bytes | memoryview) -> None:
        """Send a frame, on all sockets of pub or on one of push; wait until there is room for it."""
        self._await_receivers()
        self._unseen += 1
        if self._unseen >= OFTEN:
            self._look()
        count = len(self._sockets.links)
        if self._address.kind == "pub":
            for number in range(count):
                self._send(data, [number])
        else:
            self._turn = 1 + self._send(data, [(self._turn + step) % count for step in range(count)])

    def writev(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def close(self) -> None:
        try:
            self._look()
            self._await_receivers()
            if self._address.ends and self._address.binds:
                self._end_one_by_one()
            else:
                self._finish()
        finally:
            self._sockets.close()

    def abort(self) -> None:
        """Close the connections, without an end: the receivers take it for an error."""
        self._sockets.close()

    def _send(self, data: bytes | memoryview, turns: Sequence[int], allowed: int = 0) -> int:
        """Send a frame through the first of some sockets that takes it, and return which.

        Raises TarkitError when more than `allowed` receivers leave meanwhile, or none takes it for too long.
        """
        zmq, timeout = self._sockets.zmq, self._address.timeout
        since = None
        while True:
            for turn in turns:
                try:
                    self._sockets.links[turn].socket.send(data, zmq.NOBLOCK)
                    return turn
                except zmq.Again:
                    pass
            since = since or monotonic()
            remaining = None if timeout is None else max(0.0, timeout - (monotonic() - since))
            if remaining == 0:
                raise self._too_long("no receiver took a sample for")
            pause = PAUSE if self._address.kind == "pub" else remaining  # pub has no event for room in a slow receiver
            self._sockets.wait(pause, turns)
            if self._look(allowed) and not any(link.joined > link.departed for link in self._sockets.links):
                return turns[0]  # all have left, as they may

    def _too_long(self, words: str) -> TarkitError:
        text = f"{self.name}: {words} {self._address.timeout:g} s"
        return TarkitError(text, "do the receivers run, with this address?")

    def _await_receivers(self) -> None:
        """Wait until all receivers are there, so that push serves all, and none misses the start of pub."""
        if not self._ready:
            self._watch(self._have_joined, "not all receivers have come within")
            self._sockets.admit_no_more()
            self._ready = True

    def _have_joined(self) -> bool:
        self._look()
        return all(link.joined >= (self._address.peers if self._address.binds else 1) for link in self._sockets.links)

    def _look(self, allowed: int = 0) -> int:
        """Return how many receivers have closed their connections. Raises TarkitError if more than `allowed` have."""
        self._unseen = 0
        departed = self._sockets.departed
        if departed > allowed:
            raise self._receiver_left()
        return departed

    def _receiver_left(self) -> TarkitError:
        words = "a receiver has closed its connection before the end: samples that were sent to it may be lost"
        return TarkitError(f"{self.name}: {words}", "see what it printed, and run all again")

    def _end_one_by_one(self) -> None:
        """Send an end frame to each receiver in turn, which then closes its connection."""
        (link,), to_all = self._sockets.links, self._address.kind == "pub"
        if link.late:
            enough = self._address.peers + link.late
            self._tell(
                f"{link.late} of {enough} receivers came after the start, and get nothing: receivers={enough} waits"
            )
        while (departed := self._look(self._ends)) < link.joined:
            if not to_all or not self._ends:
                self._send(self._end, [0], self._ends)
                self._ends = link.joined if to_all else self._ends + 1
                self._last_end = monotonic()
            self._watch(partial(self._has_left, departed + 1))

    def _has_left(self, number: int) -> bool:
        """Return whether so many receivers have left; send the end again where it may have gone to one that has.

        For some microseconds ZeroMQ gives a frame to a receiver that has just left.
        """
        if self._look(self._ends) >= number:
            return True
        if number > 1 and self._address.kind == "push" and monotonic() >= self._last_end + TURN:
            self._last_end = monotonic()
            with suppress(self._sockets.zmq.Again):
                self._sockets.links[0].socket.send(self._end, self._sockets.zmq.NOBLOCK)
                self._ends += 1
        return False

    def _finish(self) -> None:
        """Send an end frame on each socket, or all on one; wait until the system has taken all frames."""
        links = self._sockets.links
        copies = 1 if self._address.kind == "pub" else self._address.peers // len(links)
        for number, link in enumerate(links):
            for _ in range(copies if self._address.ends else 0):
                self._send(self._end, [number])
            link.finish()
        self._watch(self._have_taken_all)

    def _have_taken_all(self) -> bool:
        self._look()
        try:
            return all(link.delivered for link in self._sockets.links)
        except ConnectionResetError:
            raise self._receiver_left() from None

    def _watch(self, done: Callable[[], bool], late: str = "the last samples were not taken within") -> None:
        """Wait until something is done. Raises TarkitError, with `late` in it, after the time-out."""
        since, timeout = monotonic(), self._address.timeout
        while not done():
            remaining = None if timeout is None else timeout - (monotonic() - since)
            if remaining is not None and remaining <= 0:
                raise self._too_long(late)
            self._sockets.wait(remaining)
