"""How many requests commands make, and how many bytes come: neighbours in one request, no byte twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("urllib3")

from tests._tools import each_row
from tests.conftest import Content, Run, tar
from tests.stores._http import HttpServer

BYTES = random.Random(5)


def members(count: int, size: int) -> list[tuple[str, Content]]:
    """Return the entries of samples with a field of so many bytes and a short one."""
    return [
        (f"{number:05}.{field}", content)
        for number in range(count)
        for field, content in (("bin", BYTES.randbytes(size)), ("cls", b"%d" % number))
    ]


MANY = tar(members(400, 40_000))  # 16 MB
LARGE = tar(members(6, 1_200_000))
HEADERS: dict[str, list[str]] = {
    "stats": ["stats", "--json", "{}"],
    "check": ["check", "{}"],
    "check of contents": ["check", "{}", "--same-as", "a.tar"],
    "tsv": ["tsv", "{}", "-f", "cls"],
    "index": ["index", "{}", "--format", "dali", "-o", "x.idx"],
    "get": ["get", "00399.cls", "{}"],
    "view": ["cat", "{}", "-o", "x.parquet"],
    "cat": ["cat", "{}", "-o", "x.tar"],
    "page": ["show", "{}", "--html", "x.html", "-c", "300"],
}


@each_row("command", HEADERS)
def test_one_object_in_order(command: str, server: HttpServer, run: Run, here: Path) -> None:
    """Headers of small samples are read through their contents: few requests, and each byte once."""
    if command == "view":
        pytest.importorskip("pyarrow")
    Path("a.tar").write_bytes(MANY)
    url = server.serve("/a.tar", MANY)
    run(*(url if word == "{}" else word for word in HEADERS[command]))
    served = server.objects["/a.tar"]
    assert served.requests <= 10
    assert served.sent <= len(MANY) + (1 << 18)


def test_headers_of_large_samples(server: HttpServer, run: Run, here: Path) -> None:
    """A gap of more than 1 MiB takes a request, and its bytes do not come."""
    url = server.serve("/a.tar", LARGE)
    run("stats", url, "--total")
    served = server.objects["/a.tar"]
    assert served.requests <= 2 + 2 * 6
    assert served.sent < 1 << 18


@each_row("count", [1, 20])
def test_first_samples_alone(count: int, server: HttpServer, run: Run, here: Path) -> None:
    """What is read in vain is at most what was read, and a few hundred KiB."""
    url = server.serve("/a.tar", MANY)
    run("show", url, "-c", str(count))
    assert server.objects["/a.tar"].sent < 2 * count * 41_000 + (2 << 20)
