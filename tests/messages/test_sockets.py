"""Samples through sockets of ZeroMQ, between processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgpack
import pytest
import zmq

import tarkit
from tarkit.errors import Problem, Usage
from tarkit.messages import sockets
from tarkit.messages.sockets import Sockets, parse_address
from tests._tools import ROUNDS, each_row, free_port, happens
from tests._tools import process as start_process
from tests.conftest import Run, entries

pytestmark = pytest.mark.forks
MANY = 300
TOO_LATE = "a sender has connected after the end of the others, while this socket was closed"


class Processes:
    """Processes of tarkit, which are ended with the test."""

    def __init__(self) -> None:
        self.running: list[Any] = []

    def __call__(self, *words: str) -> Any:
        """Start `tarkit WORDS`."""
        pipe = subprocess.PIPE
        started = start_process(*words, stdout=pipe, stderr=pipe, text=True)
        self.running.append(started)
        return started

    def ends(self, process: subprocess.Popen[str], status: int = 0, timeout: float = 60) -> str:
        """Wait for the end of a process, check its status and return its messages."""
        _, said = process.communicate(timeout=timeout)
        self.running.remove(process)
        assert process.returncode == status, said
        assert "Traceback" not in said
        return said

    def all_end(self) -> list[str]:
        """Wait for the end of all that run, with status 0, and return the messages of each."""
        return [self.ends(process) for process in [*self.running]]


@pytest.fixture
def start(here: Path) -> Iterator[Processes]:
    processes = Processes()
    yield processes
    for process in processes.running:
        process.kill()
        process.communicate()


@pytest.fixture
def data(here: Path) -> list[tuple[str, bytes]]:
    """Write a.tar, and return its entries."""
    return make("a.tar", range(MANY))


def make(name: str, numbers: range, size: int = 2000) -> list[tuple[str, bytes]]:
    """Write an archive of samples with these numbers, and return its entries."""
    with tarkit.TarWriter(name) as out:
        for number in numbers:
            out.write(f"d/{number:04d}", {"cls": number, "bin": bytes([number % 256]) * size})
    return entries(name)


def total(*names: str) -> list[tuple[str, bytes]]:
    """Return the entries of several archives, sorted by name."""
    return sorted(pair for name in names for pair in entries(name))


def new_place() -> str:
    """Return an address of this machine that is free."""
    return f"127.0.0.1:{free_port()}"


def is_bound(place: str) -> bool:
    """Return whether a process has bound the socket at an address, or at a path."""
    host, _, port = place.partition(":")
    with socket.socket(socket.AF_INET if port else socket.AF_UNIX) as probe:
        return probe.connect_ex((host, int(port)) if port else place) == 0


@contextmanager
def pushing(*places: str) -> Iterator[list[Any]]:
    """Connect sockets of ZeroMQ that send to these places, whichever program listens there."""
    with zmq.Context() as context, ExitStack() as stack:
        sockets = [stack.enter_context(context.socket(zmq.PUSH)) for _ in places]
        for sender, place in zip(sockets, places, strict=True):
            sender.linger, sender.immediate = 5000, 1
            sender.connect(place)
        yield sockets


def push(sender: Any, *maps: object) -> None:
    """Send maps as MessagePack, a message each."""
    for each in maps:
        sender.send(msgpack.packb(each))


END = {"__EOF__": b"true"}


PAIRS = [("zpush", "zpull"), ("zrpush", "zrpull"), ("zpub", "zsub"), ("zrpub", "zrsub")]


@each_row(
    "sends,receives,first",
    [(*pair, first) for pair, first in (*zip(PAIRS, ["sender", "receiver"] * 2, strict=True), (PAIRS[0], "receiver"))],
)
def test_pair(sends: str, receives: str, first: str, start: Processes, here: Path) -> None:
    """One sender and one receiver, whichever starts first: the archive arrives byte for byte."""
    make("a.tar", range(MANY))
    place = new_place()
    commands = [["cat", "a.tar", "-o", f"{sends}://{place}"], ["cat", f"{receives}://{place}", "-o", "b.tar"]]
    for words in commands if first == "sender" else commands[::-1]:
        start(*words)
    assert all("waiting for" in line for said in start.all_end() for line in said.splitlines())
    assert Path("b.tar").read_bytes() == Path("a.tar").read_bytes()


def test_ipc(start: Processes, data: Any) -> None:
    """A socket of this machine, in a directory; a path may look like a file of messages."""
    Path("d").mkdir()
    for sends, receives in (("zpush", "zpull"), ("zrpush", "zrpull")):
        start("cat", f"{receives}+ipc://d/s.mp", "-o", "b.tar")
        start("cat", "a.tar", "-o", f"{sends}+ipc://d/s.mp")
        start.all_end()
        assert Path("b.tar").read_bytes() == Path("a.tar").read_bytes()
        assert os.listdir("d") == []


IPC = [
    ("zrpush", ["cat", "a.tar", "-o", "{}"]),
    ("zpub", ["cat", "a.tar", "-o", "{}"]),
    ("zpull", ["cat", "{}", "-o", "o.tar"]),
    ("zpush", ["cat", "a.tar", "-o", "{}"]),
    ("zrpull", ["cat", "{}", "-o", "o.tar"]),
]


@each_row("scheme,words,kind", [(*row, kind) for row in IPC for kind in ("file", "directory", "link")])
def test_ipc_over_a_file(scheme: str, words: list[str], kind: str, run: Run, here: Path) -> None:
    """A path where there is something else than a socket is refused, and that stays as it is."""
    make("a.tar", range(3))
    place = {"file": Path("a.tar"), "directory": Path("d"), "link": Path("l")}[kind]
    Path("d").mkdir()
    Path("l").symlink_to("a.tar")
    before = Path("a.tar").read_bytes()
    said = run(*(word.format(f"{scheme}+ipc://{place}?timeout=1") for word in words), exit=1).stderr
    assert f"'{place}' exists and is not a socket" in said
    assert sorted(os.listdir()) == ["a.tar", "d", "l"]
    assert Path("l").is_symlink()
    assert Path("a.tar").read_bytes() == before


def test_ipc_is_bound(start: Processes, data: Any) -> None:
    """A socket that another process has bound is not taken from it; one that a killed process left is."""
    lost = start("cat", "zpull+ipc://s", "-o", "b.tar")
    assert happens(lambda: Path("s").is_socket())
    lost.kill()
    start.ends(lost, -signal.SIGKILL)
    assert Path("s").is_socket()
    start("cat", "zpull+ipc://s", "-o", "c.tar")
    assert happens(lambda: is_bound("s"))
    assert "another process has bound it" in start.ends(start("cat", "zpull+ipc://s", "-o", "d.tar"), 1)
    start("cat", "a.tar", "-o", "zpush+ipc://s")
    start.all_end()
    assert Path("c.tar").read_bytes() == Path("a.tar").read_bytes()
    assert not os.path.lexists("s")


@each_row("scheme,words", IPC)
def test_ipc_too_long(scheme: str, words: list[str], run: Run, here: Path) -> None:
    """A path that is too long for a socket is an error on one line."""
    make("a.tar", range(3))
    said = run(*(word.format(f"{scheme}+ipc://{'x' * 200}") for word in words), exit=1).stderr
    assert "the path of a socket has at most" in said
    assert len(said.splitlines()) == 2


@each_row("sends,receives,count", [(*pair, count) for pair, count in zip(PAIRS, (2, 4, 2, 3), strict=True)])
def test_several_receivers(sends: str, receives: str, count: int, start: Processes, here: Path) -> None:
    """Of push each sample comes to one of them, of pub to all, also to a slow one with a full queue; all end."""
    sent, connects = make("a.tar", range(100), 50_000), sends in ("zpush", "zrpub")
    places = [new_place() for _ in range(count if connects else 1)]
    start("cat", "a.tar", "-o", f"{sends}://{','.join(places)}?queue=2" + f"&receivers={count}" * (not connects))
    for number in range(count):
        words = ("cat",) if number else ("proc", "-p", "1", "-c", "sleep 0.01")
        start(*words, f"{receives}://{places[number % len(places)]}?queue=2", "-o", f"{number}.tar")
    start.all_end()
    names = [f"{number}.tar" for number in range(count)]
    if "pub" in sends:
        assert [entries(name) for name in names] == [sent] * count
    else:
        assert total(*names) == sorted(sent)
        assert all(map(entries, names))


@each_row("sends,receives", [("zpush", "zpull"), ("zrpush", "zrpull")])
def test_two_senders(sends: str, receives: str, start: Processes, here: Path) -> None:
    """A receiver of two senders, which run one after the other, ends after both."""
    sent = make("a.tar", range(50)) + make("b.tar", range(50, 90))
    places = [new_place(), new_place()]
    joined = f"{places[0]}?senders=2" if sends == "zpush" else ",".join(places)
    receiver = start("cat", f"{receives}://{joined}", "-o", "c.tar")
    for number, name in enumerate(("a.tar", "b.tar")):
        place = places[0 if sends == "zpush" else number]
        start.ends(start("cat", name, "-o", f"{sends}://{place}"))
    start.ends(receiver)
    assert total("c.tar") == sorted(sent)


@each_row("transport", ["ipc", "tcp"])
def test_more_senders_than_named(transport: str, start: Processes, here: Path) -> None:
    """A receiver waits for the end of each sender that has connected, also without `senders=2`."""
    place = "ipc://s" if transport == "ipc" else f"tcp://{new_place()}"
    receiver = start("cat", f"zpull+{place}", "-o", "b.tar")
    with pushing(place, place) as (first, second):
        push(first, {"__key__": "k0", "x": b"1"})
        push(second, {"__key__": "k1", "x": b"1"})
        push(first, END)
        first.close()
        with pytest.raises(subprocess.TimeoutExpired):
            receiver.wait(0.5)
        push(second, {"__key__": "l", "x": b"1"}, END)
        second.close()
        start.ends(receiver)
    assert sorted(name for name, _ in entries("b.tar")) == ["k0.x", "k1.x", "l.x"]


def test_senders_at_random(start: Processes, here: Path) -> None:
    """Of three senders at once, all samples of those that succeed arrive where the receiver does; others say so."""
    names = ["a.tar", "b.tar", "c.tar"]
    for number, name in enumerate(names):
        make(name, range(50 * number, 50 * number + 50))
    received = 0
    for _ in range(2 * ROUNDS):
        receiver = start("cat", "zpull+ipc://s", "-o", "o.tar")
        senders = [start("cat", name, "-o", "zpush+ipc://s?timeout=3") for name in names]
        said, *_ = [process.communicate(timeout=60)[1] for process in (receiver, *senders)]
        if receiver.returncode != 0:  # a sender came in the moment in which the address was closed
            assert (receiver.returncode, TOO_LATE in said) == (1, True), said
            assert not Path("o.tar").exists()
            continue
        received += 1
        sent = [name for name, sender in zip(names, senders, strict=True) if sender.returncode == 0]
        assert total("o.tar") == total(*sent)
        Path("o.tar").unlink()
    assert received


def test_a_sender_in_the_moment_of_the_end(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that connects between the last look at the senders and the end of the socket is an error."""
    stop = Sockets.stop

    def stop_late(sockets: Sockets) -> None:
        late.connect("ipc://s")
        assert happens(lambda: sockets.peers == 2)
        stop(sockets)

    monkeypatch.setattr(Sockets, "stop", stop_late)
    with zmq.Context() as context, context.socket(zmq.PUSH) as first, context.socket(zmq.PUSH) as late:
        first.linger, late.linger = 5000, 0
        first.connect("ipc://s")
        push(first, {"__key__": "k", "x": b"1"}, END)
        first.close()
        with pytest.raises(Problem, match=TOO_LATE):
            tarkit.open("zpull+ipc://s").write("o.tar")
    assert not Path("o.tar").exists()


def test_more_receivers_than_named(start: Processes, here: Path) -> None:
    """A sender that is bound gives an end to each receiver of push that has come; to those of pub that came in time."""
    sent = make("a.tar", range(300), 100_000)
    slow = ("proc", "-p", "1", "-c", f"touch {here}/begun; sleep 0.01")
    start("cat", "a.tar", "-o", "zrpush+ipc://s?queue=2")
    start(*slow, "zrpull+ipc://s?queue=2", "-o", "1.tar")
    assert happens(lambda: Path("begun").exists())
    start("cat", "zrpull+ipc://s?queue=2", "-o", "2.tar")
    start.all_end()
    assert total("1.tar", "2.tar") == sorted(sent)
    assert len(entries("2.tar")) > 0

    Path("begun").unlink()
    sender = start("cat", "a.tar", "-o", "zpub+ipc://s?queue=2")
    first = start(*slow, "zsub+ipc://s?queue=2", "-o", "3.tar")
    assert happens(lambda: Path("begun").exists())
    late = start("cat", "zsub+ipc://s?queue=2", "-o", "4.tar")
    assert "1 of 2 receivers came after the start, and get nothing: receivers=2 waits" in start.ends(sender)
    start.ends(first)
    assert "before the end of its samples [truncated]" in start.ends(late, 1)
    assert entries("3.tar") == sent
    assert not os.path.exists("4.tar")


def test_end_that_is_lost(start: Processes, data: Any) -> None:
    """An end frame that goes to a receiver that is leaving, as ZeroMQ may give it, is sent again to the others."""
    sender = start("cat", "a.tar", "-o", "zrpush+ipc://s?receivers=3")
    with zmq.Context() as context, ThreadPoolExecutor() as pool:
        ends = SimpleQueue[int]()

        def receive() -> int:
            """Receive samples up to an end, and drop the second end that the sender sends."""
            with context.socket(zmq.PULL) as socket:
                socket.rcvtimeo = 60_000
                socket.connect("ipc://s")
                count = 0
                while True:
                    if b"__EOF__" not in socket.recv()[:20]:
                        count += 1
                        continue
                    ends.put(1)
                    if ends.qsize() != 2:
                        return count

        counts = [pool.submit(receive) for _ in range(3)]
        start.ends(sender)
        assert sum(count.result() for count in counts) == MANY
    assert ends.qsize() > 3


def test_restarts(start: Processes, here: Path) -> None:
    """A side that is started again in the middle gets no whole stream: it says so, as the other one does."""
    make("a.tar", range(300), 100_000)
    slow = ("proc", "-p", "1", "-c", f"touch {here}/begun; sleep 0.01", "zpull+ipc://s?queue=2")
    first = start(*slow, "-o", "1.tar")
    sender = start("cat", "a.tar", "-o", "zpush+ipc://s?queue=2")
    assert happens(lambda: Path("begun").exists())
    first.kill()
    start.ends(first, -signal.SIGKILL)
    second = start("cat", "zpull+ipc://s?timeout=3", "-o", "2.tar")
    assert "a receiver has closed its connection before the end" in start.ends(sender, 1)
    assert "[truncated]" in start.ends(second, 1)
    Path("begun").unlink()

    receiver = start(*slow, "-o", "3.tar")
    sender = start("cat", "a.tar", "-o", "zpush+ipc://s?queue=2")
    assert happens(lambda: Path("begun").exists())
    sender.kill()
    make("b.tar", range(300, 310))
    start("cat", "b.tar", "-o", "zpush+ipc://s?queue=2&timeout=3")
    assert "a sender has closed its connection before the end" in start.ends(receiver, 1)
    assert not [name for name in os.listdir() if name in ("1.tar", "2.tar", "3.tar")]


@each_row("sends,receives", [("zpush", "zpull"), ("zpub", "zsub")])
def test_one_of_two_receivers_dies(sends: str, receives: str, start: Processes, here: Path) -> None:
    """The sender fails, and the other receiver learns of it too: there is no end for it."""
    make("a.tar", range(40), 1_000_000)
    first, second = new_place(), new_place()
    if sends == "zpush":
        output, inputs = f"{first},{second}?queue=2", [first, second]
    else:
        output, inputs = f"{first}?receivers=2&queue=2", [first, first]
    commands = [f"touch {here}/0; sleep 5", f"touch {here}/1; until [ -e {here}/go ]; do sleep 0.05; done"]
    dies, stays = (
        start("proc", "-p", "1", "-c", command, f"{receives}://{place}?queue=2", "-o", f"{index}.tar")
        for index, (command, place) in enumerate(zip(commands, inputs, strict=True))
    )
    sender = start("cat", "a.tar", "-o", f"{sends}://{output}")
    assert happens(lambda: Path("0").exists() and Path("1").exists())
    dies.kill()
    Path("go").touch()
    assert "a receiver has closed its connection" in start.ends(sender, 1)
    assert "before the end of its samples [truncated]" in start.ends(stays, 1)
    assert not os.path.exists("1.tar")


@each_row("sends,receives", [PAIRS[0], PAIRS[3]])
def test_sender_dies(sends: str, receives: str, start: Processes, here: Path) -> None:
    """Where a sender fails, its receivers do: an archive with a fault at its end makes no whole one."""
    make("a.tar", range(300), 100_000)
    Path("cut.tar").write_bytes(Path("a.tar").read_bytes()[:-12000])
    place = new_place()
    receiver = start("cat", f"{receives}://{place}", "-o", "b.tar")
    assert "[truncated]" in start.ends(start("cat", "cut.tar", "-o", f"{sends}://{place}"), 1)
    assert "a sender has closed its connection before the end" in start.ends(receiver, 1)
    assert not os.path.exists("b.tar")


def test_time_out(run: Run, data: Any) -> None:
    """Without a sample for that time, either side fails; a receiver without an end keeps the samples if told so."""
    place = new_place()
    for scheme in ("zpull", "zrpull"):
        said = run("cat", f"{scheme}://{place}?timeout=0.1", exit=1).stderr
        assert "no sample came for 0.1 s [truncated]" in said
    for scheme, count in (("zpush", 1), ("zrpush", 1), ("zpub", 3)):
        said = run("cat", "a.tar", "-o", f"{scheme}://{place}?receivers={count}&timeout=0.1", exit=1).stderr
        assert "not all receivers have come within 0.1 s" in said


WAITING = [
    (["cat", "zpull+ipc://s"], "waiting for a sender at ipc://s"),
    (["cat", "zrpull+ipc://s"], "waiting for a sender at ipc://s"),
    (["cat", "zpull+ipc://s?senders=3"], "waiting for 3 of 3 senders at ipc://s"),
    (["cat", "zrpull+ipc://s,t"], "waiting for 2 of 2 senders at ipc://s, ipc://t"),
    (["cat", "a.tar", "-o", "zrpush+ipc://s?receivers=2"], "waiting for 2 of 2 receivers at ipc://s"),
    (["cat", "a.tar", "-o", "zpush+ipc://s"], "waiting for a receiver at ipc://s"),
]


@each_row("words,said", WAITING)
def test_waiting(words: list[str], said: str, run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds a line says that the other side has not come, once, and not with --quiet."""
    monkeypatch.setattr(sockets, "PATIENCE", 0.05)
    make("a.tar", range(3))
    url = words[-1] + ("&" if "?" in words[-1] else "?") + "timeout=0.2"
    for quiet in ([], ["-q"]):
        lines = run(*quiet, *words[:-1], url, exit=1).lines
        assert (lines[0] == f"tarkit: {said}") is not bool(quiet)
        assert sum("waiting for" in line for line in lines) == (not quiet)


def test_stopped_receiver(start: Processes, here: Path) -> None:
    """A receiver that does not read any more: the sender waits, up to its time-out."""
    make("a.tar", range(40), 1_000_000)
    place = new_place()
    once = f"mkdir {os.getcwd()}/once 2>/dev/null && kill -STOP $PPID; true"
    receiver = start("proc", "-p", "1", "-c", once, f"zpull://{place}?queue=2", "-o", "b.tar")
    sender = start("cat", "a.tar", "-o", f"zpush://{place}?queue=2&timeout=1.5")
    assert "no receiver took a sample for 1.5 s" in start.ends(sender, 1)
    receiver.send_signal(signal.SIGCONT)
    assert "before the end of its samples [truncated]" in start.ends(receiver, 1)


def test_noeof(start: Processes, data: Any) -> None:
    """Without ends, senders may come and go, and the receiver ends by its time-out."""
    place = new_place()
    receiver = start("cat", f"zpull://{place}?timeout=2&noeof", "--allow", "truncated", "-o", "b.tar")
    make("b1.tar", range(1000, 1010))
    start.ends(start("cat", "a.tar", "-o", f"zpush://{place}?noeof"))
    start.ends(start("cat", "b1.tar", "-o", f"zpush://{place}?noeof"))
    start.ends(start("cat", "b1.tar", "--rekey", "x/{key}", "-o", f"zpush://{place}"))
    assert "no sample came for 2 s" in start.ends(receiver)
    assert len(entries("b.tar")) == len(data) + 40


def test_noeof_in_python(start: Processes, data: Any) -> None:
    """Of a dataset and of a writer."""
    place = "ipc://s"
    receiver = start("cat", f"zpull+{place}", "-o", "b.tar")
    tarkit.open("a.tar").write(f"zpush+{place}?noeof")
    assert "a sender has closed its connection before the end" in start.ends(receiver, 1)
    sender = start("cat", "a.tar", "-o", f"zpush+{place}")
    found: list[str] = []
    url = f"zpull+{place}?timeout=2&noeof"
    with tarkit.open(url, allow="truncated", on_problem=found.append) as samples:
        assert len([sample.key for sample in samples]) == MANY
    start.ends(sender)
    assert "no sample came for 2 s" in found[0]


def test_skip_of_a_sender_that_died(start: Processes, here: Path) -> None:
    """With --skip truncated the last sample that came is dropped as well, and --allow keeps it."""
    make("a.tar", range(3))
    for option, count in (("--allow", 3), ("--skip", 2)):
        start("cat", "zpull+ipc://s", option, "truncated", "-o", f"{option}.tar")
        start("cat", "a.tar", "-o", "zpush+ipc://s?noeof")
        start.all_end()
        assert len(entries(f"{option}.tar")) == 2 * count


def test_signals(start: Processes, here: Path) -> None:
    """A signal ends a socket that waits, at once: for a sender, for a receiver, for the end."""
    make("a.tar", range(10))
    places = [new_place(), new_place(), "in", "out"]
    waiting = [
        start("cat", f"zpull://{places[0]}", "-o", "b.tar"),
        start("cat", "a.tar", "-o", f"zrpush://{places[1]}"),
        start("cat", "zpull+ipc://in", "-o", "c.tar"),
        start("cat", "a.tar", "-o", "zrpush+ipc://out"),
    ]
    assert happens(lambda: all(map(is_bound, places)))
    for process, number in zip(waiting, [signal.SIGINT, signal.SIGTERM] * 2, strict=True):
        process.send_signal(number)
        start.ends(process, -number, timeout=5)
    assert os.listdir() == ["a.tar"]


def test_leaves_early(start: Processes, data: Any) -> None:
    """A receiver that takes the first samples alone closes its connection: for the sender that is an error."""
    make("a.tar", range(300), 100_000)
    place = new_place()
    sender = start("cat", "a.tar", "-o", f"zrpush://{place}")
    start.ends(start("cat", f"zrpull://{place}", "-c", "3", "-o", "b.tar"))
    assert "a receiver has closed" in start.ends(sender, 1)
    assert len(entries("b.tar")) == 6


def test_scanner(start: Processes, data: Any) -> None:
    """A connection that is not one of ZeroMQ, such as that of a port scanner, is neither a sender nor a receiver."""
    place = new_place()
    start("cat", f"zpull://{place}", "-o", "b.tar")
    assert happens(lambda: is_bound(place))  # which makes such a connection
    start("cat", "a.tar", "-o", f"zpush://{place}")
    start.all_end()
    assert entries("b.tar") == data


UNREADABLE = "sample 2 cannot be read: "
FRAMES: list[tuple[list[bytes], str]] = [
    ([b"garbage"], UNREADABLE),
    ([msgpack.packb([1])], f"{UNREADABLE}this is a list, not a map"),
    ([msgpack.packb({"x": b"1"})], f"{UNREADABLE}the map has no __key__"),
    ([msgpack.packb({"__key__": b"a", "x": b"1"}), b""], f"{UNREADABLE}a message of 2 frames"),
    ([msgpack.packb(END | {"x": b"1"})], f"{UNREADABLE}an end frame with fields of a sample: 'x'"),
    ([msgpack.packb(END | {"__key__": "b", "x": b"1"})], f"{UNREADABLE}an end frame with fields of a sample: 'x'"),
]


@each_row("frames,what", FRAMES)
def test_no_samples(frames: list[bytes], what: str, start: Processes, here: Path) -> None:
    """A message that is no sample is an error that says which one, and there is no output."""
    place = new_place()
    receiver = start("cat", f"zpull://{place}", "-o", "b.tar")
    with pushing(f"tcp://{place}") as [sender]:
        push(sender, {"__key__": b"g", "x": b"1"})
        sender.send_multipart(frames)
        said = start.ends(receiver, 1)
    assert what in said
    assert "[bad-data]" in said
    assert not os.path.exists("b.tar")


def test_samples_behind_an_end(start: Processes, here: Path) -> None:
    """They are an error, and not dropped."""
    place = new_place()
    with zmq.Context() as context, context.socket(zmq.PUSH) as sender:
        sender.bind(f"tcp://{place}")
        receiver = start("cat", f"zrpull://{place}", "-o", "b.tar")
        push(sender, {"__key__": "a", "txt": b"1"}, END, {"__key__": "b", "txt": b"2"})
        assert "behind the end" in start.ends(receiver, 1)
    assert not os.path.exists("b.tar")


def test_frames(start: Processes, here: Path) -> None:
    """The frames are those of tarp: a map for each sample, bytes, and one with __EOF__ at the end; both are read."""
    with tarkit.TarWriter("a.tar") as out:
        out.write("k", {"cls": 3})
    place, sample = new_place(), {"__key__": b"k", "cls": b"3"}
    with zmq.Context() as context, context.socket(zmq.PULL) as receiver:
        receiver.bind(f"tcp://{place}")
        start("cat", "a.tar", "-o", f"zpush://{place}")
        assert [msgpack.unpackb(receiver.recv()) for _ in range(2)] == [sample, END]
        start.all_end()
    start("cat", f"zpull://{place}", "-o", "b.tar")
    with pushing(f"tcp://{place}") as [sender]:
        push(sender, sample, END)
    start.all_end()
    assert Path("b.tar").read_bytes() == Path("a.tar").read_bytes()


def test_commands(start: Processes, data: Any) -> None:
    """Other commands take sockets: proc, split and stats of what comes, sort and the API."""
    place = new_place()
    start("sort", "a.tar", "-s", "cls", "-t", "int", "--reverse", "-o", f"zpush://{place}")
    start("split", f"zpull://{place}", "-c", "100", "-o", "s-%d.tar")
    start.all_end()
    assert sum(len(entries(f"s-{number}.tar")) for number in range(MANY // 100)) == len(data)
    start("cat", "a.tar", "-o", f"zpush://{place}")
    assert start("stats", "--total", f"zpull://{place}").communicate(timeout=60)[0] == f"{MANY}\n"
    start.all_end()


def test_functions(start: Processes, data: Any) -> None:
    """A function of Python in several processes, with a socket as input and another one as output."""
    Path("twice.py").write_text("def change(sample):\n    return {'cls': str(2 * int(sample['cls']))}\n")
    first, second = new_place(), new_place()
    start("cat", f"zpull://{second}", "-o", "b.tar")
    start("proc", "-p", "2", "--map", "twice.py:change", f"zpull://{first}", "-o", f"zpush://{second}")
    start("cat", "a.tar", "-o", f"zpush://{first}")
    start.all_end()
    assert [int(content) for name, content in entries("b.tar") if name.endswith("cls")] == list(range(0, 2 * MANY, 2))


def test_api(start: Processes, data: Any) -> None:
    place = new_place()
    start("cat", "a.tar", "-o", f"zpush://{place}")
    keys = [sample.key for sample in tarkit.open(f"zpull://{place}")]
    start.all_end()
    assert keys == [f"d/{each:04d}" for each in range(MANY)]
    start("cat", f"zpull://{place}", "-o", "b.tar")
    tarkit.open("a.tar").write(f"zpush://{place}")
    start.all_end()
    assert entries("b.tar") == data
    start("cat", f"zpull://{place}", "-o", "c.tar")
    with tarkit.TarWriter(f"zpush://{place}") as out:
        out.write("k", {"txt": "x"})
    start.all_end()
    assert entries("c.tar") == [("k.txt", b"x")]


WRONG = [
    ("zpull://h:1", True, "pull is no output"),
    ("zpush://h:1", False, "push is no input"),
    ("zpush://h", True, "not HOST:PORT"),
    ("zpush://", True, "not HOST:PORT"),
    ("zpush://h:1,", True, "not HOST:PORT"),
    ("zpush+ipc://", True, "not a path"),
    ("zpush+udp://h:1", True, "not an address"),
    ("zpull://h:1,h:2", False, "one address can be bound"),
    ("zpush://h:1?receivers=0", True, "invalid receivers"),
    ("zpush://h:1,h:2?receivers=3", True, "2 addresses are as many receivers, not 3"),
    ("zpush://h:1?senders=2", True, "unknown setting"),
    ("zpull://h:1?timeout=-1", False, "invalid timeout"),
    ("zpull://h:1?timeout=x", False, "invalid timeout"),
    ("zpull://h:1?foo=1", False, "unknown setting"),
]


@each_row("url,sends,what", WRONG)
def test_wrong_addresses(url: str, sends: bool, what: str) -> None:
    with pytest.raises(Usage, match=what):
        parse_address(url, sends)


def test_refused(run: Run, data: Any) -> None:
    """Text, compression, other formats and a port that is taken are errors."""
    number = free_port()
    url = f"zpush://127.0.0.1:{number}"
    for words in (["tsv"], ["cat", "--compress", "gz"], ["cat", "--to", "cbors"]):
        assert "takes samples alone" in run(*words, "a.tar", "-o", url, exit=2).stderr
    for words in (["split", "a.tar", "-c", "100"], ["shuffle", "a.tar", "-c", "9"], ["shard", ".", "-c", "100"]):
        assert "shards are files or objects" in run(*words, "-o", url, exit=2).stderr
    with pytest.raises(Usage, match="shards are files or objects"):
        tarkit.ShardWriter(url, count=100)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", number))
        taken.listen()
        said = run("cat", f"zpull://127.0.0.1:{number}", exit=1).stderr
    assert "it cannot be bound: Address already in use" in said
