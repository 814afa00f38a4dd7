"""Sockets of ZeroMQ: their URLs, and events of their connections.

    zpush://HOST:PORT   zpull://HOST:PORT   zpub://HOST:PORT   zsub://HOST:PORT   zpush+ipc://PATH

push sends each sample to one receiver, pub to all. zpull and zpub bind the address, zpush and zsub connect to it; with
an r after the z it is the other way round. A message is one frame: the map of a sample in MessagePack, or one with the
name `__EOF__`, which ends the stream.

Sources: tarp's `dpipes/mpio.go` for schemes and frames; ZeroMQ RFC 30 (push and pull), 29 (pub and sub),
zmq_socket_monitor(3).
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import ECONNREFUSED, ENOENT
from fcntl import ioctl
from struct import unpack
from termios import TIOCOUTQ
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from tarkit.errors import TarkitError, Usage, load_library, show
from tarkit.messages.maps import LARGEST
from tarkit.signals import raise_swallowed
from tarkit.stores import schemes
from tarkit.threads import mark_native_threads

END = "__EOF__"
QUEUE = 100
"""Samples in the queue of a connection, at each end: a sender waits while it is full."""

PATIENCE = 5.0
"""Seconds after which a line says that peers have not come."""

PAUSE = 0.005
"""Seconds until to try again what ZeroMQ gives no event for."""

TURN = 0.5
"""Seconds that one wait of ZeroMQ takes at most: a signal that comes just before it does not end it."""

_SCHEME = re.compile(r"z(r?)(push|pull|pub|sub)(?:\+(tcp|ipc))?")
_BINDING = ("pull", "pub")
_SENDING = ("push", "pub")


class SocketAddress(NamedTuple):
    """An address, as a URL describes it.

    Attributes:
        name: the URL, for messages.
        kind: push, pull, pub or sub.
        binds: whether this side binds the address.
        endpoints: the addresses, as ZeroMQ has them; one if it binds.
        peers: how many receivers a sender has, or senders a receiver.
        timeout: seconds without a sample after which it is an error.
        ends: whether a sender sends end frames, and a receiver ends by them.
        queue: samples in the queue of a connection.
    """

    name: str
    kind: str
    binds: bool
    endpoints: tuple[str, ...]
    peers: int
    timeout: float | None
    ends: bool
    queue: int


def parse_address(url: str, sends: bool) -> SocketAddress:
    """Return the address in a URL, for a socket that sends or receives.

    Raises Usage.
    """
    name = schemes.public_name(url)
    match = _SCHEME.fullmatch(schemes.scheme_of(url) or "")
    if match is None:
        raise Usage(
            f"{name}: not an address of ZeroMQ", "zpush+ipc://PATH and zpush://HOST:PORT are; so for zpull, zpub, zsub"
        )
    reverse, kind, transport = match[1], match[2], match[3] or "tcp"
    if (kind in _SENDING) != sends:
        other = {"push": "pull", "pull": "push", "pub": "sub", "sub": "pub"}[kind]
        role = "an output" if sends else "an input"
        raise Usage(f"{name}: {kind} is no {role[3:]}", f"{role} is z{reverse}{other}://")
    binds = (kind in _BINDING) != bool(reverse)
    rest, _, query = url.partition("://")[2].partition("?")
    places = rest.split(",")
    for place in places:
        if not place or (transport == "tcp" and not re.fullmatch(r".+:([0-9]+|\*)", place)):
            raise Usage(f"{name}: {show(place)} is not {'a path' if transport == 'ipc' else 'HOST:PORT'}")
    if binds and len(places) > 1:
        raise Usage(
            f"{name}: one address can be bound, not {len(places)}", "several sockets connect to one that is bound"
        )
    word = "receivers" if sends else "senders"
    settings = _settings(name, query, word)
    peers = int(settings.get(word, len(places)))
    if len(places) > 1 and peers != len(places):
        raise Usage(f"{name}: {len(places)} addresses are as many {word}, not {peers}")
    timeout = settings.get("timeout")
    return SocketAddress(
        name,
        kind,
        binds,
        tuple(f"{transport}://{place}" for place in places),
        peers,
        None if timeout is None else float(timeout),
        "noeof" not in settings,
        int(settings.get("queue", QUEUE)),
    )


def _settings(name: str, query: str, word: str) -> dict[str, str]:
    """Return the settings in the query of a URL. Raises Usage for unknown and invalid ones."""
    settings = dict(parse_qsl(query, keep_blank_values=True))
    rules = {word: r"0*[1-9][0-9]{0,5}", "queue": r"0*[1-9][0-9]{0,5}", "timeout": r"[0-9]+(\.[0-9]+)?", "noeof": "1?"}
    for key, value in settings.items():
        if key not in rules:
            raise Usage(f"{name}: unknown setting {show(key)}", f"there are {', '.join(rules)}")
        if not re.fullmatch(rules[key], value):
            raise Usage(f"{name}: invalid {key}: {show(value)}")
    return settings


def _check_path(name: str, path: str, binds: bool, longest: int) -> None:
    """Raise TarkitError for the path of a socket that is too long, or taken: ZeroMQ would remove what it binds over.

    Args:
        name: the URL, for messages.
        path: the path; one that begins with `@` is in the abstract namespace of Linux and has no file.
        binds: whether this side binds it.
        longest: how many bytes it may have.
    """
    size = len(os.fsencode(path))
    if size > longest:
        words = f"the path of a socket has at most {longest} bytes, and this one {size}"
        raise TarkitError(f"{name}: {words}", "name it from the working directory, or in a shorter one, such as /tmp")
    try:
        mode = (os.lstat if binds else os.stat)(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise TarkitError(f"{name}: {show(path)} exists and is not a socket", "name a path where no file is")
    if binds:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            if probe.connect_ex(path) not in (ECONNREFUSED, ENOENT):  # else the process that bound it has ended
                words = "it cannot be bound: another process has bound it"
                raise TarkitError(f"{name}: {words}", "name another path; if none has, remove the socket")


_delivering: list[Any] = []  # contexts; the end of one would wait


class Link:
    """The socket of one address, and the events of its connections.

    Attributes:
        endpoint: the address, as ZeroMQ has it.
        connected: where it is bound, connections that were accepted, but for those that are none of ZeroMQ.
        joined: connections that were made; for pub, receivers that have subscribed.
        late: for pub, receivers that have subscribed after `admits` was unset, and get nothing.
        admits: for pub, whether receivers that subscribe get samples.
        departed: connections that were made and are closed.
        ended: end frames that came.
        stopped: whether the socket is closed; after `finish`, that all frames were given to the system.
    """

    def __init__(self, sockets: Sockets, endpoint: str) -> None:
        zmq, address = sockets.zmq, sockets.address
        self._zmq = zmq
        self.endpoint = endpoint
        kinds = {"push": zmq.PUSH, "pull": zmq.PULL, "pub": zmq.XPUB, "sub": zmq.SUB}
        self.socket = socket = sockets.context.socket(kinds[address.kind])
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = address.queue
        socket.immediate = 1  # nothing is queued for a receiver that is not there
        socket.maxmsgsize = LARGEST + (1 << 20)
        socket.handshake_ivl = 5000  # milliseconds until a silent connection is closed: it is not of ZeroMQ
        if address.kind == "pub":  # wait for slow receivers, and get an event for each
            socket.setsockopt(zmq.XPUB_NODROP, 1)
            socket.setsockopt(zmq.XPUB_MANUAL, 1)
        if address.kind == "sub":
            socket.subscribe(b"")
        self.connected = self.joined = self.late = self.departed = self.ended = 0
        self.admits = True
        self.stopped = self._finished = False
        self._subscribes = address.kind == "pub"
        self._failed = False  # the last event: a connection that was never made
        self._failures = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        self._binds = address.binds
        self._held = _HeldConnection() if address.kind in _SENDING and endpoint.startswith("ipc:") else None
        events = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(self._failures)
        events |= zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
        self._place = f"inproc://monitor-{id(self)}"
        socket.monitor(self._place, events)
        self.monitor = sockets.context.socket(zmq.PAIR)
        self.monitor.linger = 0
        self.monitor.connect(self._place)
        (socket.bind if address.binds else socket.connect)(endpoint)

    def look(self) -> None:
        """Take note of the events so far."""
        zmq = self._zmq
        while self.monitor.poll(0):
            event, value = unpack("<HI", self.monitor.recv_multipart()[0])
            failed = event in self._failures
            if event == zmq.EVENT_DISCONNECTED and not self._failed:
                self.departed += 1
            if event == zmq.EVENT_CONNECTED and self._held is not None:
                self._held.hold(value)
            self.connected += (event == zmq.EVENT_ACCEPTED) - (failed and self._binds)
            self.joined += event == zmq.EVENT_HANDSHAKE_SUCCEEDED and not self._subscribes
            self._failed = failed
            self.stopped = self.stopped or event == zmq.EVENT_MONITOR_STOPPED
        while self._subscribes and not self.socket.closed and self.socket.poll(0, zmq.POLLIN):
            if self.socket.recv()[:1] != b"\1":
                continue
            if self.admits:
                self.socket.subscribe(b"")  # the receiver whose message was read
            self.joined += self.admits
            self.late += not self.admits

    def finish(self) -> None:
        """Close the socket once all frames were given to the system; `look` says when."""
        self._finished = True
        self.socket.close(linger=-1)

    @property
    def delivering(self) -> bool:
        """Whether it is finished, and there are frames that the system has not taken."""
        return self._finished and not self.stopped

    @property
    def delivered(self) -> bool:
        """Whether all frames were given to the system, and a receiver on this machine has read them."""
        return self.stopped and (self._held is None or self._held.is_read())

    def close(self) -> None:
        """Close the socket at once."""
        self.socket.close(linger=0)

    def let_go(self) -> None:
        """Let go of the connection that is held."""
        if self._held is not None:
            self._held.close()


class _HeldConnection:
    """A second descriptor of a connection on this machine, which keeps it open until the receiver has read all.

    Where a connection of a Unix socket closes while the queue of the receiver is full, ZeroMQ drops what is still in
    the buffer of the system: of those, but not of TCP, poll(2) tells a hangup before the data was read.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def hold(self, descriptor: int) -> None:
        """Hold a connection that has been made, and no longer an earlier one."""
        self.close()
        with suppress(OSError):  # it is closed already, and so the sender fails
            self._socket = socket.fromfd(descriptor, socket.AF_UNIX, socket.SOCK_STREAM)

    def is_read(self) -> bool:
        """Return whether the receiver has read all; also where the system does not say (unix(7), SIOCOUTQ of Linux).

        Raises ConnectionResetError: it has closed the connection before.
        """
        if self._socket is None:
            return True
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise ConnectionResetError
        try:
            return not int.from_bytes(ioctl(self._socket, TIOCOUTQ, bytes(4)), sys.byteorder)
        except OSError:
            return True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Sockets:
    """The sockets of a URL: one that is bound, or one for each address that is connected to.

    Args:
        address: the address that the URL stands for.
        tell: called with a line, once, when peers have not come for a while.

    Raises:
        MissingLibrary: pyzmq or msgpack is not installed.
        TarkitError: an address cannot be bound, or is not valid.
    """

    def __init__(self, address: SocketAddress, tell: Callable[[str], None]) -> None:
        self.zmq = zmq = load_library("zmq", address.name, "pyzmq", "zmq")
        self.address = address
        self.context: Any = zmq.Context()
        mark_native_threads("zmq")
        self.links: list[Link] = []
        self._tell = tell
        self._due: float | None = monotonic() + PATIENCE  # when to look for peers that have not come
        self._file: str | None = None  # the socket of this machine that is bound
        try:
            for endpoint in address.endpoints:
                path = endpoint.removeprefix("ipc://")
                if path != endpoint:
                    _check_path(address.name, path, address.binds, zmq.IPC_PATH_MAX_LEN)
                self.links.append(Link(self, endpoint))
                if path != endpoint and address.binds and not path.startswith("@"):
                    self._file = os.path.abspath(path)
        except TarkitError:
            self.close()
            raise
        except zmq.ZMQError as error:
            self.close()
            words = "bound" if address.binds else "connected to"
            raise TarkitError(f"{address.name}: it cannot be {words}: {error.strerror}") from None

    @property
    def departed(self) -> int:
        """How many connections were made and are closed."""
        for link in self.links:
            link.look()
        return sum(link.departed for link in self.links)

    @property
    def peers(self) -> int:
        """How many peers there are: as many as the URL says, or as have come to a socket that is bound."""
        for link in self.links:
            link.look()
        return max(self.address.peers, *(link.connected for link in self.links), 0)

    def admit_no_more(self) -> None:
        """Send nothing to receivers of pub that connect from now on: they would miss the start without an error."""
        for link in self.links:
            link.look()
            link.admits = False

    def wait(self, seconds: float | None, writing: Sequence[int] = ()) -> bool:
        """Wait until something happens, or for a turn. Returns False when the time is up and nothing has happened.

        Args:
            seconds: how long at most; None without an end.
            writing: the sockets for one of which to wait until it takes a frame; for the others, until one has come.
        """
        raise_swallowed()
        poller, pub = self.zmq.Poller(), self.address.kind == "pub"
        if any(link.stopped for link in self.links):  # nothing tells that a receiver has read what the system has taken
            seconds = PAUSE if seconds is None else min(seconds, PAUSE)
        for number, link in enumerate(self.links):
            if not link.stopped:
                poller.register(link.monitor, self.zmq.POLLIN)
            if not link.socket.closed:  # to poll(2) pub can always write, also where a receiver is slow
                writes = number in writing and not pub
                poller.register(link.socket, self.zmq.POLLOUT if writes else self.zmq.POLLIN)
        if self._due is not None and monotonic() >= self._due:
            self._due = None
            self._tell_missing()
            return True
        turn = TURN if self._due is None else min(TURN, max(0.0, self._due - monotonic()))
        if seconds is None or seconds > turn:
            poller.poll(1000 * turn)
            return True
        return bool(poller.poll(1000 * seconds))

    def _tell_missing(self) -> None:
        address = self.address
        for link in self.links:
            link.look()
        absent = [link for link in self.links if link.joined < (address.peers if address.binds else 1)]
        if not absent:
            return
        missing, total = len(absent), len(self.links)
        if address.binds:
            missing, total = address.peers - absent[0].joined, address.peers
        role = "receiver" if address.kind in _SENDING else "sender"
        peers = f"a {role}" if total == 1 else f"{missing} of {total} {role}s"
        self._tell(f"waiting for {peers} at {', '.join(link.endpoint for link in absent)}")

    def stop(self) -> None:
        """Close all, and wait until no event can come any more: `peers` is final."""
        self._remove_file()
        for link in self.links:
            link.close()
        while not all(link.stopped for link in self.links):
            self.wait(None)
            for link in self.links:
                link.look()

    def close(self) -> None:
        """Close all at once; what is being delivered, while this process runs, cannot be stopped."""
        self._remove_file()
        for link in self.links:
            link.let_go()
        if any(link.delivering for link in self.links):
            _delivering.append(self.context)
        else:
            self.context.destroy(linger=0)

    def _remove_file(self) -> None:
        if self._file is not None:
            path, self._file = self._file, None
            with suppress(OSError):
                os.unlink(path)
