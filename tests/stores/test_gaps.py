"""Gaps between ranges: how many bytes come that are not needed, by the option `net_gap`, and what that takes."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("urllib3")

import tarkit
from tarkit.stores.connect import gap_of
from tarkit.stores.store import GAP, LEAST, StoreOptions
from tarkit.streams.remote import PADDING
from tests._tools import each_row
from tests.conftest import Content, Run, tar
from tests.stores._http import HttpServer
from tests.stores._tools import view_rows, write_view

BYTES = random.Random(11)
SIZE = 40_000
MEMBERS: list[tuple[str, Content]] = [(f"{n:03}.bin", BYTES.randbytes(SIZE)) for n in range(100)]
SAMPLES = tar(MEMBERS)
HEADS = 100 * LEAST

READS: dict[str, Callable[[str, dict[str, Any]], object]] = {
    "stats": lambda url, how: tarkit.stats(url, storage_options=how).samples,
    "check": lambda url, how: tarkit.check(url, storage_options=how).ok,
    "table": lambda url, how: tarkit.open(url, storage_options=how).table(io.BytesIO(), "size.bin"),
    "indexed": lambda url, how: tarkit.open(url, storage_options=how).indexed().keys(),
}


@each_row("read", READS)
@each_row("given", ["option", "variable"])
def test_no_gap(given: str, read: str, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents do not come, and each header takes a request; by default all bytes come, by few requests."""
    monkeypatch.delenv("TARKIT_NET_GAP", raising=False)
    url = server.serve("/a.tar", SAMPLES)
    served = server.objects["/a.tar"]
    expected = READS[read](url, {})
    assert served.requests <= 10
    assert served.sent > 0.99 * len(SAMPLES)
    served.requests = served.sent = 0
    if given == "variable":
        monkeypatch.setenv("TARKIT_NET_GAP", "0")
    assert READS[read](url, {"net_gap": 0} if given == "option" else {}) == expected
    assert served.sent <= HEADS + 2 * LEAST + PADDING
    assert served.requests <= 100 + 4


def jumps(starts: list[int], gap: int) -> int:
    return sum(b - a - 512 > gap for a, b in pairwise(starts))


@pytest.mark.parametrize("seed", range(12))
def test_bytes_in_vain(seed: int, server: HttpServer) -> None:
    """For any sizes: larger gaps do not come; behind what is read in a row, so many bytes more, or those of a gap."""
    rng = random.Random(seed)
    sizes = [rng.choice([10, 700, 9_000, 60_000, 300_000, 1_500_000]) for _ in range(rng.choice([20, 60]))]
    starts, total = [], 0
    for size in sizes:
        starts.append(total)
        total += 512 + size + -size % 512
    data = tar([(f"{n:03}.bin", bytes(size)) for n, size in enumerate(sizes)])
    url = server.serve("/a.tar", data)
    served = server.objects["/a.tar"]
    for gap in (0, 5_000, 100_000, 1 << 20, 4 << 20):
        served.requests = served.sent = 0
        assert tarkit.stats(url, storage_options={"net_gap": gap}).samples == len(sizes)
        rows, begin = [], 0
        for a, b in pairwise([*starts, total]):
            if b - a - 512 > gap:
                rows.append(a + 512 - begin)
                begin = b
        rows.append(len(data) - begin)
        assert served.sent <= sum(row + max(row, gap, LEAST) for row in rows)
        assert served.requests <= sum(6 + row // min(max(gap, LEAST), 1 << 20) for row in rows)


def third_view(run: Run, url: str) -> list[dict[str, Any]]:
    """Write v.parquet, a view of every third sample of an object, with others between them; return its rows."""
    Path("a.tar").write_bytes(SAMPLES)
    rows = view_rows(run, "a.tar", url)[::3]
    write_view("v.parquet", rows)
    return rows


def test_views(server: HttpServer, run: Run, here: Path) -> None:
    """Ranges that are known are one request across smaller gaps; with 0 nothing comes but the samples."""
    url = server.serve("/a.tar", SAMPLES)
    rows = third_view(run, url)
    needed = sum(row["__stop__"] - row["__start__"] for row in rows)
    served = server.objects["/a.tar"]
    outputs = []
    for gap, requests, sent in (("1M", 8, 3 * needed), ("0", len(rows) + 1, needed + LEAST)):
        served.requests = served.sent = 0
        outputs.append(run("cat", "v.parquet", "--net-gap", gap, "-o", "-").stdout)
        assert served.requests <= requests
        assert served.sent <= sent
    assert outputs[0] == outputs[1]


def test_headers_of_samples_of_a_view(server: HttpServer, run: Run, here: Path) -> None:
    """Where contents are not needed, those larger than a gap are not fetched."""
    url = server.serve("/a.tar", SAMPLES)
    rows = third_view(run, url)
    counted = run("stats", "v.parquet", "--total").stdout
    served = server.objects["/a.tar"]
    served.sent = 0
    assert run("stats", "v.parquet", "--total", "--net-gap", "8K").stdout == counted
    assert served.sent <= (len(rows) + 1) * LEAST


def test_headers_behind_contents(server: HttpServer, run: Run, here: Path) -> None:
    """Once some were requested one by one, those at the ends of samples are fetched before their turn."""
    data = tar([entry for name, content in MEMBERS for entry in ((name, content), (name[:3] + ".cls", b"1"))])
    Path("a.tar").write_bytes(data)
    url = server.serve("/a.tar", data)
    run("shuffle", url, "--seed", "1", "-o", "v.parquet")
    counted = run("stats", "a.tar", "--total").stdout
    server.log.clear()
    assert run("stats", "v.parquet", "--total", "--net-gap", "0").stdout == counted
    ranges = [headers["Range"].removeprefix("bytes=").split("-") for _, _, headers in server.log]
    assert len(ranges) <= 2 * 100 + 2
    size = len(data) // 100 // 512 * 512
    ends = {(n + 1) * size - 1 for n in range(100)}
    assert sum(int(last) in ends for _, last in ranges) > 20  # the first groups are without; neighbours are one
    found = sorted(run("tsv", "v.parquet", "-f", "cls", "--net-gap", "0").stdout.decode().splitlines()[1:])
    assert found == [f"{n:03}\t1" for n in range(100)]


def test_objects_that_are_opened_before_their_turn(server: HttpServer, run: Run, here: Path) -> None:
    """Their first bytes are no more than those of a gap; of one that is read whole they are."""
    for n in range(8):
        server.serve(f"/{n}.tar", tar([(f"{n}.bin", bytes(900_000))]))
    urls = f"{server.url}/{{0..7}}.tar"
    run("stats", urls, "--total", "--net-gap", "0")
    assert all(served.sent <= 2 * LEAST + PADDING for served in server.objects.values())
    for served in server.objects.values():
        served.requests = 0
    run("cat", urls, "--net-gap", "0", "-o", "x.tar")
    assert all(served.requests == 1 for served in server.objects.values())


def test_objects_in_a_row(server: HttpServer, run: Run, here: Path) -> None:
    """After one of which all bytes came, more of the next one is requested ahead; where it is another, little."""
    shards = [tar([(f"{n}-{name}", data) for name, data in MEMBERS]) for n in range(3)]
    large = tar([(f"{n}.bin", bytes(2_000_000)) for n in range(9)])
    for n, data in enumerate([*shards, large, large]):
        server.serve(f"/{n}.tar", data)
    run("stats", f"{server.url}/{{0..4}}.tar", "--total")
    sent = [server.objects[f"/{n}.tar"].sent for n in range(5)]
    assert sent[:3] == [*map(len, shards)]
    assert max(sent[3:]) < (1 << 20) + 18 * LEAST + (1 << 18)


@each_row(("value", "expected"), [("0", 0), ("64K", 64_000), ("1MiB", 1 << 20), (5, 5), (None, GAP)])
def test_values(value: Any, expected: int) -> None:
    assert gap_of(StoreOptions(gap=value)) == expected


def test_invalid_values(run: Run, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the option or the variable, and the option precedes."""
    url = server.serve("/a.tar", SAMPLES)
    assert "--net-gap: invalid size '9Q'" in run("stats", url, "--net-gap", "9Q", exit=2).stderr
    with pytest.raises(tarkit.Usage, match="net_gap: invalid size '-1'"):
        tarkit.open(url, storage_options={"net_gap": -1})
    monkeypatch.setenv("TARKIT_NET_GAP", "much")
    assert "TARKIT_NET_GAP: invalid size 'much'" in run("stats", url, exit=2).stderr
    run("stats", url, "--net-gap", "1M")
