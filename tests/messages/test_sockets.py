"""Samples through sockets of ZeroMQ, between processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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

    def __call__(self, *words: str, pass_fds: Sequence[int] = ()) -> Any:
        """Start `tarkit WORDS`."""
        pipe, fds = subprocess.PIPE, {fd: fd for fd in (0, 1, 2, *pass_fds)}
        started = start_process(*words, fds=fds, stdout=pipe, stderr=pipe, text=True)
        self.running.append(started)
        return started

    def ends(self, process: subprocess.Popen[str], status: int = 0) -> str:
        """Wait for the end of a process, check its status and return its messages."""
        _, said = process.communicate(timeout=60)
        assert process.returncode == status, said
        assert "Traceback" not in said
        return said


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


def is_bound(number: int) -> bool:
    """Return whether a port of this machine is taken."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", number)) == 0


PAIRS = [("zpush", "zpull"), ("zrpush", "zrpull"), ("zpub", "zsub"), ("zrpub", "zrsub")]


@each_row(
    "sends,receives,first",
    [(*pair, first) for pair, first in (*zip(PAIRS, ["sender", "receiver"] * 2, strict=True), (PAIRS[0], "receiver"))],
)
def test_pair(sends: str, receives: str, first: str, here: Path) -> None:
    """One sender and one receiver, whichever starts first: the archive arrives byte for byte."""
    make("a.tar", range(MANY))
    place = f"127.0.0.1:{free_port()}"
    processes = Processes()
    commands = [["cat", "a.tar", "-o", f"{sends}://{place}"], ["cat", f"{receives}://{place}", "-o", "b.tar"]]
    for words in commands if first == "sender" else commands[::-1]:
        processes(*words)
    for process in processes.running:
        assert all("waiting for" in line for line in processes.ends(process).splitlines())
    assert Path("b.tar").read_bytes() == Path("a.tar").read_bytes()


def test_ipc(start: Processes, data: Any) -> None:
    """A socket of this machine, in a directory; a path may look like a file of messages."""
    Path("d").mkdir()
    for sends, receives in (("zpush", "zpull"), ("zrpush", "zrpull")):
        receiver = start("cat", f"{receives}+ipc://d/s.mp", "-o", "b.tar")
        start.ends(start("cat", "a.tar", "-o", f"{sends}+ipc://d/s.mp"))
        start.ends(receiver)
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
    lost.wait()
    assert Path("s").is_socket()
    receiver = start("cat", "zpull+ipc://s", "-o", "c.tar")
    assert happens(lambda: reaches("s"))
    assert "another process has bound it" in start.ends(start("cat", "zpull+ipc://s", "-o", "d.tar"), 1)
    start.ends(start("cat", "a.tar", "-o", "zpush+ipc://s"))
    start.ends(receiver)
    assert Path("c.tar").read_bytes() == Path("a.tar").read_bytes()
    assert not os.path.lexists("s")


def reaches(path: str) -> bool:
    """Return whether a process has bound the socket at a path."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@each_row("scheme,words", IPC)
def test_ipc_too_long(scheme: str, words: list[str], run: Run, here: Path) -> None:
    """A path that is too long for a socket is an error on one line."""
    make("a.tar", range(3))
    said = run(*(word.format(f"{scheme}+ipc://{'x' * 200}") for word in words), exit=1).stderr
    assert "the path of a socket has at most" in said
    assert len(said.splitlines()) == 2


def test_two_receivers(start: Processes, data: Any) -> None:
    """A sender with two receivers that are bound: each sample comes to one of them, and both end."""
    first, second = free_port(), free_port()
    receivers = [start("cat", f"zpull://127.0.0.1:{each}", "-o", f"{each}.tar") for each in (first, second)]
    start.ends(start("cat", "a.tar", "-o", f"zpush://127.0.0.1:{first},127.0.0.1:{second}"))
    for receiver in receivers:
        start.ends(receiver)
    assert total(f"{first}.tar", f"{second}.tar") == sorted(data)
    assert min(len(entries(f"{each}.tar")) for each in (first, second)) > 0


def test_all_of_several_receivers(here: Path) -> None:
    """Where pub connects to several receivers, each gets all samples, also the slow one."""
    sent = make("a.tar", range(60), 100_000)
    processes, places = Processes(), [f"127.0.0.1:{free_port()}" for _ in range(3)]
    urls = [f"zrsub://{place}?queue=1" for place in places]
    receivers = [processes("cat", url, "-o", f"{number}.tar") for number, url in enumerate(urls[1:], 1)]
    receivers.append(processes("proc", "-p", "1", "-c", "sleep 0.01", urls[0], "-o", "0.tar"))
    processes.ends(processes("cat", "a.tar", "-o", f"zrpub://{','.join(places)}?queue=1"))
    for receiver in receivers:
        processes.ends(receiver)
    assert [entries(f"{number}.tar") for number in range(3)] == [sent] * 3


def test_many_receivers(here: Path) -> None:
    """A sender that is bound gives an end to each of four receivers, also to one whose queue is full."""
    sent = make("a.tar", range(MANY), 20_000)
    processes, place = Processes(), f"127.0.0.1:{free_port()}"
    sender = processes("cat", "a.tar", "-o", f"zrpush://{place}?receivers=4&queue=2")
    receivers = [processes("cat", f"zrpull://{place}?queue=2", "-o", f"{each}.tar") for each in range(3)]
    receivers.append(processes("proc", "-c", "sleep 0.02", f"zrpull://{place}?queue=2", "-o", "3.tar"))
    processes.ends(sender)
    for receiver in receivers:
        processes.ends(receiver)
    names = [f"{each}.tar" for each in range(4)]
    assert total(*names) == sorted(sent)


def test_all_receivers(start: Processes, data: Any) -> None:
    """pub waits for its receivers, and each gets all samples, a slow one too."""
    place = f"127.0.0.1:{free_port()}"
    sender = start("cat", "a.tar", "-o", f"zpub://{place}?receivers=2&queue=5")
    fast = start("cat", f"zsub://{place}?queue=5", "-o", "0.tar")
    slow = start("proc", "-p", "1", "-c", "true", f"zsub://{place}?queue=5", "-o", "1.tar")
    for process in (sender, fast, slow):
        start.ends(process)
    assert entries("0.tar") == data
    assert entries("1.tar") == data


@each_row("sends,receives", [("zpush", "zpull"), ("zrpush", "zrpull")])
def test_two_senders(sends: str, receives: str, here: Path) -> None:
    """A receiver of two senders, which run one after the other, ends after both."""
    sent = make("a.tar", range(50)) + make("b.tar", range(50, 90))
    processes = Processes()
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    joined = f"{places[0]}?senders=2" if sends == "zpush" else ",".join(places)
    receiver = processes("cat", f"{receives}://{joined}", "-o", "c.tar")
    for number, name in enumerate(("a.tar", "b.tar")):
        place = places[0 if sends == "zpush" else number]
        processes.ends(processes("cat", name, "-o", f"{sends}://{place}"))
    processes.ends(receiver)
    assert total("c.tar") == sorted(sent)


@each_row("transport", ["ipc", "tcp"])
def test_more_senders_than_named(transport: str, here: Path) -> None:
    """A receiver waits for the end of each sender that has connected, also without `senders=2`."""
    place = "ipc://s" if transport == "ipc" else f"tcp://127.0.0.1:{free_port()}"
    processes = Processes()
    receiver = processes("cat", f"zpull+{place}", "-o", "b.tar")
    with zmq.Context() as context, context.socket(zmq.PUSH) as first, context.socket(zmq.PUSH) as second:
        for number, sender in enumerate((first, second)):
            sender.linger, sender.immediate = 5000, 1
            sender.connect(place)
            sender.send(msgpack.packb({"__key__": f"k{number}", "x": b"1"}))
        first.send(msgpack.packb({"__EOF__": b"true"}))
        first.close()
        with pytest.raises(subprocess.TimeoutExpired):
            receiver.wait(0.5)
        second.send(msgpack.packb({"__key__": "l", "x": b"1"}))
        second.send(msgpack.packb({"__EOF__": b"true"}))
        second.close()
        processes.ends(receiver)
    assert sorted(name for name, _ in entries("b.tar")) == ["k0.x", "k1.x", "l.x"]


def test_senders_at_random(here: Path) -> None:
    """Of three senders at once, all samples of those that succeed arrive where the receiver does; others say so."""
    names = ["a.tar", "b.tar", "c.tar"]
    for number, name in enumerate(names):
        make(name, range(50 * number, 50 * number + 50))
    received = 0
    for _ in range(2 * ROUNDS):
        processes = Processes()
        receiver = processes("cat", "zpull+ipc://s", "-o", "o.tar")
        senders = [processes("cat", name, "-o", "zpush+ipc://s?timeout=3") for name in names]
        said, *_ = [process.communicate(timeout=60)[1] for process in processes.running]
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
        first.send(msgpack.packb({"__key__": "k", "x": b"1"}))
        first.send(msgpack.packb({"__EOF__": b"true"}))
        first.close()
        with pytest.raises(Problem, match=TOO_LATE):
            tarkit.open("zpull+ipc://s").write("o.tar")
    assert not Path("o.tar").exists()


def test_more_receivers_than_named(start: Processes, here: Path) -> None:
    """A sender that is bound gives an end to each receiver of push that has come; to those of pub that came in time."""
    sent = make("a.tar", range(300), 100_000)
    slow = ("proc", "-p", "1", "-c", f"touch {here}/begun; sleep 0.01")
    sender = start("cat", "a.tar", "-o", "zrpush+ipc://s?queue=2")
    first = start(*slow, "zrpull+ipc://s?queue=2", "-o", "1.tar")
    assert happens(lambda: Path("begun").exists())
    second = start("cat", "zrpull+ipc://s?queue=2", "-o", "2.tar")
    for process in (sender, first, second):
        start.ends(process)
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
    first.wait()
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


def test_receiver_dies(start: Processes, here: Path) -> None:
    """Where a receiver dies before the end, the sender fails: what it has not read is lost."""
    make("a.tar", range(40), 1_000_000)
    number = free_port()
    reader, writer = os.pipe()  # nobody reads: the receiver is slow
    receiver = start("cat", f"zpull://127.0.0.1:{number}?queue=5", "-o", f"/dev/fd/{writer}", pass_fds=(writer,))
    assert happens(lambda: is_bound(number))
    sender = start("cat", "a.tar", "-o", f"zpush://127.0.0.1:{number}?queue=5")
    assert os.read(reader, 1)  # it has received
    with pytest.raises(subprocess.TimeoutExpired):
        sender.wait(0.5)
    receiver.kill()
    assert "a receiver has closed its connection before the end" in start.ends(sender, 1)
    os.close(reader)
    os.close(writer)


@each_row("sends,receives", [("zpush", "zpull"), ("zpub", "zsub")])
def test_one_of_two_receivers_dies(sends: str, receives: str, here: Path) -> None:
    """Where one of several receivers dies, the others learn of it too: there is no end for them."""
    make("a.tar", range(40), 1_000_000)
    processes, here, (first, second) = Processes(), Path.cwd(), (free_port(), free_port())
    if sends == "zpush":
        output, inputs = f"127.0.0.1:{first},127.0.0.1:{second}?queue=2", [first, second]
    else:
        output, inputs = f"127.0.0.1:{first}?receivers=2&queue=2", [first, first]
    commands = [f"touch {here}/0; sleep 5", f"touch {here}/1; until [ -e {here}/go ]; do sleep 0.05; done"]
    dies, stays = (
        processes("proc", "-p", "1", "-c", command, f"{receives}://127.0.0.1:{number}?queue=2", "-o", f"{index}.tar")
        for index, (command, number) in enumerate(zip(commands, inputs, strict=True))
    )
    sender = processes("cat", "a.tar", "-o", f"{sends}://{output}")
    assert happens(lambda: Path("0").exists() and Path("1").exists())
    dies.kill()
    Path("go").touch()
    assert "a receiver has closed its connection" in processes.ends(sender, 1)
    assert "before the end of its samples [truncated]" in processes.ends(stays, 1)
    assert not os.path.exists("1.tar")


@each_row("sends,receives", [PAIRS[0], PAIRS[3]])
def test_sender_dies(sends: str, receives: str, here: Path) -> None:
    """Where a sender fails, its receivers do: an archive with a fault at its end makes no whole one."""
    make("a.tar", range(300), 100_000)
    Path("cut.tar").write_bytes(Path("a.tar").read_bytes()[:-12000])
    processes, place = Processes(), f"127.0.0.1:{free_port()}"
    receiver = processes("cat", f"{receives}://{place}", "-o", "b.tar")
    assert "[truncated]" in processes.ends(processes("cat", "cut.tar", "-o", f"{sends}://{place}"), 1)
    assert "a sender has closed its connection before the end" in processes.ends(receiver, 1)
    assert not os.path.exists("b.tar")


def test_time_out(run: Run, data: Any) -> None:
    """Without a sample for that time, either side fails; a receiver without an end keeps the samples if told so."""
    place = f"127.0.0.1:{free_port()}"
    for words, what in (
        (["cat", f"zpull://{place}?timeout=0.1"], "no sample came for 0.1 s [truncated]"),
        (["cat", f"zrpull://{place}?timeout=0.1"], "no sample came for 0.1 s [truncated]"),
        (["cat", "a.tar", "-o", f"zpush://{place}?timeout=0.1"], "not all receivers have come within 0.1 s"),
        (["cat", "a.tar", "-o", f"zrpush://{place}?timeout=0.1"], "not all receivers have come within 0.1 s"),
        (["cat", "a.tar", "-o", f"zpub://{place}?receivers=3&timeout=0.1"], "not all receivers have come within 0.1 s"),
    ):
        assert what in run(*words, exit=1).stderr


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


def test_second_receiver(start: Processes, run: Run, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender without `receivers=2` is done after one: the other one says that it waits."""
    monkeypatch.setattr(sockets, "PATIENCE", 0.05)
    sender = start("cat", "a.tar", "-o", "zrpush+ipc://n")
    start.ends(start("cat", "zrpull+ipc://n", "-o", "1.tar"))
    start.ends(sender)
    assert "waiting for a sender at ipc://n\n" in run("cat", "zrpull+ipc://n?timeout=0.2", "-o", "2.tar", exit=1).stderr
    assert entries("1.tar") == data


def test_stopped_receiver(start: Processes, here: Path) -> None:
    """A receiver that does not read any more: the sender waits, up to its time-out."""
    make("a.tar", range(40), 1_000_000)
    place = f"127.0.0.1:{free_port()}"
    once = f"mkdir {os.getcwd()}/once 2>/dev/null && kill -STOP $PPID; true"
    receiver = start("proc", "-p", "1", "-c", once, f"zpull://{place}?queue=2", "-o", "b.tar")
    sender = start("cat", "a.tar", "-o", f"zpush://{place}?queue=2&timeout=1.5")
    assert "no receiver took a sample for 1.5 s" in start.ends(sender, 1)
    receiver.send_signal(signal.SIGCONT)
    assert "before the end of its samples [truncated]" in start.ends(receiver, 1)


def test_noeof(start: Processes, data: Any) -> None:
    """Without ends, senders may come and go, and the receiver ends by its time-out."""
    place = f"127.0.0.1:{free_port()}"
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
        receiver = start("cat", "zpull+ipc://s", option, "truncated", "-o", f"{option}.tar")
        start.ends(start("cat", "a.tar", "-o", "zpush+ipc://s?noeof"))
        start.ends(receiver)
        assert len(entries(f"{option}.tar")) == 2 * count


def test_signals(here: Path) -> None:
    """A signal ends a socket that waits, at once: for a sender, for a receiver, for the end."""
    make("a.tar", range(10))
    processes, place, other = Processes(), free_port(), free_port()
    waiting = [
        processes("cat", f"zpull://127.0.0.1:{place}", "-o", "b.tar"),
        processes("cat", "a.tar", "-o", f"zrpush://127.0.0.1:{other}"),
        processes("cat", "zpull+ipc://in", "-o", "c.tar"),
        processes("cat", "a.tar", "-o", "zrpush+ipc://out"),
    ]
    assert happens(lambda: is_bound(place) and is_bound(other) and reaches("in") and reaches("out"))
    for process, number in zip(waiting, [signal.SIGINT, signal.SIGTERM] * 2, strict=True):
        process.send_signal(number)
        _, said = process.communicate(timeout=5)
        assert process.returncode == -number, said
    assert os.listdir() == ["a.tar"]


def test_leaves_early(start: Processes, data: Any) -> None:
    """A receiver that takes the first samples alone closes its connection: for the sender that is an error."""
    make("a.tar", range(300), 100_000)
    place = f"127.0.0.1:{free_port()}"
    sender = start("cat", "a.tar", "-o", f"zrpush://{place}")
    start.ends(start("cat", f"zrpull://{place}", "-c", "3", "-o", "b.tar"))
    assert "a receiver has closed" in start.ends(sender, 1)
    assert len(entries("b.tar")) == 6


def test_scanner(start: Processes, data: Any) -> None:
    """A connection that is not one of ZeroMQ, such as that of a port scanner, is neither a sender nor a receiver."""
    number = free_port()
    receiver = start("cat", f"zpull://127.0.0.1:{number}", "-o", "b.tar")
    assert happens(lambda: is_bound(number))
    assert is_bound(number)
    start.ends(start("cat", "a.tar", "-o", f"zpush://127.0.0.1:{number}"))
    start.ends(receiver)
    assert entries("b.tar") == data


FRAMES: list[tuple[list[bytes], str]] = [
    ([b"garbage"], "cannot be read"),
    ([msgpack.packb([1])], "a list, not a map"),
    ([msgpack.packb({"x": b"1"})], "no __key__"),
    ([msgpack.packb({"__key__": b"a", "x": b"1"}), b""], "a message of 2 frames"),
]


@each_row("frames,what", FRAMES)
def test_no_samples(frames: list[bytes], what: str, here: Path) -> None:
    """A frame that is no sample is an error that says which one."""
    processes, number = Processes(), free_port()
    receiver = processes("cat", f"zpull://127.0.0.1:{number}")
    with zmq.Context() as context, context.socket(zmq.PUSH) as sender:
        sender.linger = 5000
        sender.connect(f"tcp://127.0.0.1:{number}")
        sender.send(msgpack.packb({"__key__": b"g", "x": b"1"}))
        sender.send_multipart(frames)
        said = processes.ends(receiver, 1)
    assert what in said
    assert "sample 2 cannot be read" in said
    assert "[bad-data]" in said


def test_frames(start: Processes, here: Path) -> None:
    """The frames are those of tarp: a map for each sample, bytes, and one with __EOF__ at the end; both are read."""
    with tarkit.TarWriter("a.tar") as out:
        out.write("k", {"cls": 3})
    number = free_port()
    with zmq.Context() as context, context.socket(zmq.PULL) as receiver:
        receiver.bind(f"tcp://127.0.0.1:{number}")
        sender = start("cat", "a.tar", "-o", f"zpush://127.0.0.1:{number}")
        assert msgpack.unpackb(receiver.recv()) == {"__key__": b"k", "cls": b"3"}
        assert msgpack.unpackb(receiver.recv()) == {"__EOF__": b"true"}
        start.ends(sender)
    taking = start("cat", f"zpull://127.0.0.1:{number}", "-o", "b.tar")
    with zmq.Context() as context, context.socket(zmq.PUSH) as other:
        other.linger = 5000
        other.connect(f"tcp://127.0.0.1:{number}")
        other.send(msgpack.packb({"__key__": b"k", "cls": b"3"}))
        other.send(msgpack.packb({"__EOF__": b"true"}))
    start.ends(taking)
    assert Path("b.tar").read_bytes() == Path("a.tar").read_bytes()


def test_commands(start: Processes, data: Any) -> None:
    """Other commands take sockets: proc, split and stats of what comes, sort and the API."""
    place = f"127.0.0.1:{free_port()}"
    sender = start("sort", "a.tar", "-s", "cls", "-t", "int", "--reverse", "-o", f"zpush://{place}")
    start.ends(start("split", f"zpull://{place}", "-c", "100", "-o", "s-%d.tar"))
    start.ends(sender)
    assert sum(len(entries(f"s-{number}.tar")) for number in range(MANY // 100)) == len(data)
    sender = start("cat", "a.tar", "-o", f"zpush://{place}")
    said, _ = start("stats", f"zpull://{place}").communicate(timeout=60)
    assert f"samples           {MANY}"[:8] in said
    start.ends(sender)


def test_functions(start: Processes, data: Any) -> None:
    """A function of Python in several processes, with a socket as input and another one as output."""
    Path("twice.py").write_text("def change(sample):\n    return {'cls': str(2 * int(sample['cls']))}\n")
    first, second = free_port(), free_port()
    receiver = start("cat", f"zpull://127.0.0.1:{second}", "-o", "b.tar")
    worker = start(
        *("proc", "-p", "2", "--map", "twice.py:change", f"zpull://127.0.0.1:{first}"),
        *("-o", f"zpush://127.0.0.1:{second}"),
    )
    start.ends(start("cat", "a.tar", "-o", f"zpush://127.0.0.1:{first}"))
    start.ends(worker)
    start.ends(receiver)
    assert [int(content) for name, content in entries("b.tar") if name.endswith("cls")] == list(range(0, 2 * MANY, 2))


def test_api(start: Processes, data: Any) -> None:
    """The Python API has them as inputs and outputs."""
    number = free_port()
    sender = start("cat", "a.tar", "-o", f"zpush://127.0.0.1:{number}")
    keys = [sample.key for sample in tarkit.open(f"zpull://127.0.0.1:{number}")]
    start.ends(sender)
    assert keys == [f"d/{each:04d}" for each in range(MANY)]
    receiver = start("cat", f"zpull://127.0.0.1:{number}", "-o", "b.tar")
    tarkit.open("a.tar").write(f"zpush://127.0.0.1:{number}")
    start.ends(receiver)
    assert entries("b.tar") == data
    receiver = start("cat", f"zpull://127.0.0.1:{number}", "-o", "c.tar")
    with tarkit.TarWriter(f"zpush://127.0.0.1:{number}") as out:
        out.write("k", {"txt": "x"})
    start.ends(receiver)
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
    """What an address cannot be is a usage error."""
    with pytest.raises(Usage, match=what):
        parse_address(url, sends)


def test_refused(run: Run, data: Any) -> None:
    """Text, compression, other formats and a port that is taken are errors."""
    number = free_port()
    url = f"zpush://127.0.0.1:{number}"
    for words in (["tsv", "a.tar", "-o", url], ["cat", "a.tar", "-o", url, "--compress", "gz"]):
        assert "takes samples alone" in run(*words, exit=2).stderr
    assert "takes samples alone" in run("cat", "a.tar", "-o", url, "--to", "cbors", exit=2).stderr
    for words in (["split", "a.tar", "-c", "100"], ["shuffle", "a.tar", "-c", "9"], ["shard", ".", "-c", "100"]):
        assert "shards are files or objects" in run(*words, "-o", url, exit=2).stderr
    with pytest.raises(Usage, match="shards are files or objects"):
        tarkit.ShardWriter(url, count=100)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", number))
        taken.listen()
        said = run("cat", f"zpull://127.0.0.1:{number}", exit=1).stderr
    assert "it cannot be bound: Address already in use" in said


@each_row(
    "frames,said",
    [
        ([{"__key__": "a", "txt": b"1"}, {"__EOF__": True}, {"__key__": "b", "txt": b"2"}], "behind the end"),
        ([{"__key__": "a", "txt": b"1"}, {"__EOF__": True, "__key__": "b", "txt": b"2"}], "fields of a sample: 'txt'"),
        ([{"__EOF__": True, "txt": b"2"}], "fields of a sample: 'txt'"),
    ],
)
def test_samples_behind_and_in_an_end_frame(here: Path, frames: list[dict[str, object]], said: str) -> None:
    """They are an error, and not dropped."""
    place = f"127.0.0.1:{free_port()}"
    processes = Processes()
    with zmq.Context() as context, context.socket(zmq.PUSH) as sender:
        sender.bind(f"tcp://{place}")
        receiver = processes("cat", f"zrpull://{place}", "-o", "b.tar")
        for frame in frames:
            sender.send(msgpack.packb(frame))
        assert said in processes.ends(receiver, 1)
    assert not os.path.exists("b.tar")
