"""sort and shuffle of objects: the same bytes as of files, each read once, in bounded memory, or an error."""

from __future__ import annotations

import gzip
import random
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("urllib3")

import tarkit
from tarkit.samples import dataset
from tarkit.stores import reading
from tarkit.streams import prefetch
from tests._tools import each_row
from tests.conftest import PAX, Archive, Content, Run, entries, tar
from tests.stores._http import HttpServer, Served

BYTES = random.Random(7)
SIZE = 120_000  # of a large sample
MEMBERS: list[tuple[str, Content]] = [
    (f"{n:02}.{field}", data)
    for n in range(60)
    for field, data in (("jpg", BYTES.randbytes(SIZE)), ("cls", b"%d" % (n * 7 % 60)))
]
SMALL: list[tuple[str, Content]] = [(f"{n:04}.cls", b"%d" % (n * 7 % 3000)) for n in range(3000)]
RANGES = "then each sample by its range"
IN_ORDER = "read in order, from its start"


@pytest.fixture
def server(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> HttpServer:
    """A server, with low bounds of large samples, of gaps that are read through, and of what is fetched together."""
    monkeypatch.setattr(prefetch, "GROUP", 2 * SIZE)
    monkeypatch.setattr(reading, "FIRST", 1 << 18)
    monkeypatch.setenv("TARKIT_NET_GAP", str(1 << 14))
    monkeypatch.setattr(dataset, "LARGE", 1 << 16)
    return server


ORDERS: dict[str, list[str]] = {
    "sort": ["sort", "--reverse"],
    "sort by a field": ["sort", "-s", "cls"],
    "shuffle": ["shuffle", "--seed", "7"],
    "chosen": ["shuffle", "--seed", "7", "--where", "cls < 20"],
    "drawn": ["cat", "--seed", "7", "--sample", "20"],
    "balanced": ["cat", "--seed", "7", "--balance", "size.cls"],
}


@each_row("order", ORDERS)
def test_large_samples_are_read_by_ranges_once(order: str, server: HttpServer, run: Run, archive: Archive) -> None:
    names = [archive(MEMBERS[:60], "1.tar"), archive(MEMBERS[60:], "2.tar")]
    urls = [server.serve(f"/{name}", Path(name).read_bytes()) for name in names]
    words = ORDERS[order]
    local = run(*words, *names, "-o", "-").stdout
    ran = run(*words, *urls, "-o", "-", "-v")
    assert ran.stdout == local
    sent = sum(served.sent for served in server.objects.values())
    requests = sum(served.requests for served in server.objects.values())
    assert ran.stderr.count(RANGES) == 2
    headers = 4096 * 60
    assert sent < len(local) + 2 * reading.FIRST + 2 * headers + 100_000
    assert requests < 60 * 2 + 10


@each_row("order", ORDERS)
def test_small_samples_are_streamed_once(order: str, server: HttpServer, run: Run, archive: Archive) -> None:
    name = archive(SMALL)
    url = server.serve("/a.tar", Path(name).read_bytes())
    ran = run(*ORDERS[order], url, "-o", "-", "-v")
    assert ran.stdout == run(*ORDERS[order], name, "-o", "-").stdout
    assert RANGES not in ran.stderr
    served = server.objects["/a.tar"]
    assert served.sent == len(served.data)


SCATTERED = [("README", b"r"), *MEMBERS[:5], ("d/", None), *MEMBERS[5:20], ("00.txt", b"scattered"), ("END", b"e")]
OTHERS: dict[str, tuple[bytes, dict[str, object], list[str]]] = {
    "without parts": (tar(MEMBERS), {"ranges": False}, []),
    "without a version": (tar(MEMBERS), {"etag": None}, []),
    "compressed": (gzip.compress(tar(MEMBERS[:20]), 1), {}, []),
    "entries without a key, and scattered samples": (tar(SCATTERED, PAX), {}, ["--allow", "all"]),
    "larger than the bound": (tar([*MEMBERS[:20], ("big.bin", BYTES.randbytes(2_000_000)), *MEMBERS[20:40]]), {}, []),
    "cached": (tar(MEMBERS), {}, ["--cache", "cache"]),
}


@each_row("kind", OTHERS)
def test_other_objects(
    kind: str, server: HttpServer, run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose ranges cannot be trusted are streamed, a cached one is a file."""
    monkeypatch.setattr(prefetch, "GROUP", 150_000)
    data, how, more = OTHERS[kind]
    name, url = archive(data), server.serve("/a.tar", data, **how)
    for words in (["sort", "--reverse"], ["shuffle", "--seed", "7"]):
        ran = run(*words, *more, url, "-o", "-", "-v")
        assert ran.stdout == run(*words, *more, name, "-o", "-").stdout
        assert (IN_ORDER in ran.stderr) == kind.startswith(("without", "c"))
    assert kind != "cached" or server.objects["/a.tar"].sent <= len(data) + 2


@each_row("drop", [0, 1000, 50_000])
def test_connections_that_break(drop: int, server: HttpServer, run: Run, archive: Archive) -> None:
    """Each is taken up at its byte, and told of once."""
    name = archive([*MEMBERS, *((f"more-{name}", data) for name, data in MEMBERS[:60])])
    url = server.serve("/a.tar", Path(name).read_bytes())

    def change(served: Served, number: int) -> None:
        served.drop = None if number % 3 else drop

    server.objects["/a.tar"].change = change
    words = ["sort", "--reverse", "-o", "-"]
    ran = run(*words, url)
    assert ran.stdout == run(*words, name).stdout
    assert ran.stderr.count("trying again") == server.objects["/a.tar"].cut >= 20


def test_a_connection_that_stays_broken_is_an_error(server: HttpServer, run: Run) -> None:
    url = server.serve("/a.tar", tar(MEMBERS))

    def change(served: Served, number: int) -> None:
        served.drop = 10 if number > 80 else None

    server.objects["/a.tar"].change = change
    ran = run("sort", "--reverse", url, "-o", "x.tar", "--net-retries", "0", exit=None)
    assert ran.status == 1
    assert url in ran.stderr
    assert not Path("x.tar").exists()


@each_row("number", [30, 62, 75])
def test_an_object_that_changes_between_plan_and_fetch_is_an_error(number: int, server: HttpServer, run: Run) -> None:
    url = server.serve("/a.tar", tar(MEMBERS))

    def change(served: Served, count: int) -> None:
        if count == number:
            served.etag = '"2"'

    server.objects["/a.tar"].change = change
    ran = run("sort", "--reverse", url, "-o", "x.tar", exit=None)
    assert ran.status == 1
    assert "the object has changed while it was read" in ran.stderr
    assert not Path("x.tar").exists()


def test_many_requests_at_a_time_in_bounded_memory(server: HttpServer) -> None:
    """No more than two groups of up to two samples ahead of the one that is used, and none after the end."""
    url = server.serve("/a.tar", tar(MEMBERS))
    seen = []
    samples = iter(tarkit.open(url).shuffle(seed=7))
    for sample in samples:
        time.sleep(0.005)
        fetched = server.objects["/a.tar"].sent - len(seen) * SIZE - 60 * 4096 - 2 * reading.FIRST
        assert fetched <= 9 * SIZE
        seen.append(sample.key)
        if len(seen) == 40:
            break
    requests = server.objects["/a.tar"].requests
    samples.close()  # type: ignore[attr-defined]
    time.sleep(0.1)
    assert server.objects["/a.tar"].requests <= requests + 4  # those that were under way
    assert len(set(seen)) == 40


def test_requests_are_made_together(server: HttpServer, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies that take long overlap."""
    monkeypatch.setattr(prefetch, "GROUP", 8 << 20)
    url = server.serve("/a.tar", tar(MEMBERS))
    most, running, lock = 0, 0, threading.Lock()
    send = server.server.RequestHandlerClass._send  # type: ignore[attr-defined]

    def slow(handler: object, served: Served) -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        send(handler, served)
        with lock:
            running -= 1

    server.server.RequestHandlerClass._send = slow  # type: ignore[attr-defined]
    assert len(entries(run("shuffle", "--seed", "7", url, "-o", "-").stdout)) == 120
    assert 8 <= most <= prefetch.REQUESTS


def test_order_alone_reads_no_contents(server: HttpServer) -> None:
    """What is listed in another order needs headers."""
    url = server.serve("/a.tar", tar(MEMBERS))
    assert [sample.key for sample in tarkit.open(url).shuffle(seed=7).head(3)]
    sent = server.objects["/a.tar"].sent
    assert sent < len(server.objects["/a.tar"].data) // 2
