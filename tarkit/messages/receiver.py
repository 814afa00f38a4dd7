"""Read the messages of sockets of ZeroMQ as a stream of the tar archive with their samples.

A receiver ends when it has an end frame of each sender: of as many as the URL says, and as have connected to a socket
that is bound. A sender whose connection closes before that is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import TypeGuard

from tarkit.errors import Problem, show
from tarkit.messages.encodings import load_encoding, unpack_frame
from tarkit.messages.maps import EncodeValue, MalformedMap, Split
from tarkit.messages.reader import MapArchive
from tarkit.messages.sockets import END, Link, SocketAddress, Sockets
from tarkit.sizes import plural

GRACE = 1.0
"""Seconds that a frame may take from the thread of ZeroMQ to here after the connection that it came from has closed."""

CLOSING = 5.0  # seconds that senders get to close their connections first, after the end


class SocketReader(MapArchive):
    """A ByteReader of the archive with the samples that come through sockets.

    Args:
        address: the address that the URL stands for.
        split, encode_value: as for `MapArchive`.
        tell: called with a line when senders have not come for a while.

    Raises:
        MissingLibrary: pyzmq or msgpack is not installed.
        TarkitError: the address cannot be bound.
    """

    def __init__(
        self, address: SocketAddress, split: Split, encode_value: EncodeValue, tell: Callable[[str], None]
    ) -> None:
        super().__init__(address.name, split, encode_value)
        load_encoding("msgpack", address.name, "zmq")
        self._address = address
        self._sockets = Sockets(address, tell)
        self._ended = 0  # end frames
        self._behind = False  # whether a sample came after the end of its sender

    def close(self) -> None:
        super().close()
        self._sockets.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield the samples. Raises Problem `truncated` for those that are lost; see `MapArchive` and `maps`."""
        yield from super().pieces()
        behind = [self._behind, *map(self._is_behind, self._sockets.links)]
        self._sockets.stop()
        if self._address.ends and self._sockets.peers > self._ended:
            message = (
                "a sender has connected after the end of the others, while this socket was closed: its samples are lost"
            )
            raise self._truncated(message, "senders=2 waits for the end of 2 senders")
        if any(behind):
            message = f"a sample came behind the end of its sender, after {plural(self.count, 'sample')}"
            raise self._truncated(message, "see what sends: an end frame is its last one")
        self._sockets.close()

    def _truncated(self, detail: str, hint: str) -> Problem:
        return Problem("truncated", self.name, None, detail, hint)

    def maps(self) -> Iterator[tuple[object] | None]:
        """Yield the maps up to the end, and None before it waits.

        Raises Problem `truncated` if a sender closes its connection before the end, or nothing comes for too long.
        """
        sockets, address = self._sockets, self._address
        since = monotonic()
        while not self._is_end():
            received, ended = False, self._ended
            for link in list(sockets.links):
                for item in self._waiting(link):
                    received = True
                    yield (item,)
                if link.ended and len(address.endpoints) > 1:  # it has one sender, which waits for this
                    self._behind |= self._is_behind(link)
                    sockets.links.remove(link)
                    link.close()
            if received or self._ended > ended:
                since = monotonic()
                continue
            yield None
            if sockets.departed and address.ends and any(link.departed > link.ended for link in sockets.links):
                if not self._comes():
                    message = f"a sender has closed its connection before the end of its samples{self._so_far()}"
                    raise self._truncated(message, "see what it printed, and run both again")
                continue
            remaining = None if address.timeout is None else address.timeout - (monotonic() - since)
            if not sockets.wait(remaining if remaining is None else max(remaining, 0)) and remaining is not None:
                message = f"no sample came for {address.timeout:g} s{self._so_far()}"
                raise self._truncated(message, "do the senders run, with this address?")

    def _is_end(self) -> bool:
        """Return whether the end of each sender has come; then they have closed their connections, or had the time to.

        A sender that connects takes a connection that closes before its own end for a receiver that died; one that
        binds waits until the receivers close theirs.
        """
        until = monotonic() + CLOSING
        while self._ended >= self._sockets.peers:
            remaining = until - monotonic()
            if not self._address.binds or self._sockets.departed >= self._ended or remaining <= 0:
                return True
            self._sockets.wait(remaining)
        return False

    def _so_far(self) -> str:
        peers = self._sockets.peers
        return f" ({self._ended} of {peers} senders are done)" if peers > 1 and self._address.ends else ""

    def _waiting(self, link: Link) -> Iterator[object]:
        """Yield the items that are there, up to an end. Raises MalformedMap for a message of several frames."""
        zmq, ended = self._sockets.zmq, link.ended
        while link.ended == ended:
            try:
                parts = link.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) > 1:
                raise MalformedMap(f"a message of {len(parts)} frames")
            item = unpack_frame(parts[0])
            if not _is_end(item):
                yield item
            elif more := [show(str(name)) for name in item if not str(name).lstrip("b'").startswith("__")]:
                raise MalformedMap(f"an end frame with fields of a sample: {', '.join(more[:3])}")
            elif self._address.ends:
                link.ended += 1
                self._ended += 1

    def _is_behind(self, link: Link) -> bool:
        """Return whether a sample follows the end; all messages behind the end are dropped."""
        zmq, behind = self._sockets.zmq, False
        while self._address.ends:
            try:
                parts = link.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return behind
            try:
                behind |= len(parts) > 1 or not _is_end(unpack_frame(parts[0]))
            except MalformedMap:
                behind = True
        return False

    def _comes(self) -> bool:
        zmq, poller = self._sockets.zmq, self._sockets.zmq.Poller()
        for link in self._sockets.links:
            poller.register(link.socket, zmq.POLLIN)
        return bool(poller.poll(1000 * GRACE))


def _is_end(item: object) -> TypeGuard[dict[object, object]]:
    return isinstance(item, dict) and (END in item or END.encode() in item)
