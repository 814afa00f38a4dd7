"""Files that options name from a server that sends no length: none that is cut short is used without a word."""

from __future__ import annotations

import io
import random
import warnings
from pathlib import Path

import pytest

pytest.importorskip("urllib3")

import tarkit
from tarkit.errors import TarkitError
from tarkit.stores import connect
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import open_file
from tests._tools import archive, each_row
from tests.conftest import tarkit as tarkit_command
from tests.stores._http import HttpServer

SEEDS = range(60)


def sent(data: bytes, *, chunked: bool = False, end: bool = True) -> bytes:
    """A reply whose body ends with the connection, or with a last chunk if there is an `end`."""
    if not chunked:
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + data
    body = b"%x\r\n%b\r\n" % (len(data), data) + (b"0\r\n\r\n" if end else b"") if data else b"0\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


def opened(url: str) -> tuple[bytes | None, list[str]]:
    """What a file has, None for an error, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        connect.configure(StoreOptions())  # which commands that ran in this process have changed
        try:
            with open_file(url) as file:
                data: bytes | None = file.read()
        except TarkitError:
            data = None
    return data, [str(each.message) for each in caught if each.category is tarkit.TarkitWarning]


@each_row("seed", SEEDS)
def test_a_file_that_is_cut_anywhere(seed: int, server: HttpServer) -> None:
    """At the end of a line there is a warning, elsewhere an error; a last chunk proves the end."""
    pick = random.Random(seed)
    end = pick.choice([b"\n", b"\r\n", b"\0"])
    lines = [pick.randbytes(pick.randrange(1, 30)).hex().encode() + end for _ in range(pick.randrange(1, 20))]
    whole = b"".join(lines)
    cut = pick.choice([len(whole), len(b"".join(lines[: pick.randrange(len(lines))])), pick.randrange(len(whole) + 1)])
    data, said = opened(server.serve("/list", raw=sent(whole[:cut])))
    if whole[:cut].endswith((b"\n", b"\0")):
        assert data == whole[:cut]
        assert len(said) == 1
        assert "/list: the server does not say how long this file is: nothing proves that it is complete" in said[0]
    else:
        assert (data, said) == (None, [])
    server.serve("/list", raw=sent(whole, chunked=True))
    assert opened(server.url + "/list") == (whole, [])
    server.serve("/list", whole)
    assert opened(server.url + "/list") == (whole, [])


@each_row("seed", SEEDS[:6])
def test_chunks_without_a_last_one(seed: int, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"line\n" * (seed + 1)
    url = server.serve("/list", raw=sent(data, chunked=True, end=False))
    assert opened(url) == (None, [])


def test_a_table_of_parquet_says_where_it_ends(server: HttpServer) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = io.BytesIO()
    parquet.write_table(pytest.importorskip("pyarrow").table({"a": ["x"]}), table)
    assert opened(server.serve("/t.parquet", raw=sent(table.getvalue()))) == (table.getvalue(), [])


def test_sources_of_a_recipe(server: HttpServer, here: Path) -> None:
    """One warning for a server."""
    urls = [server.serve(f"/{n}", raw=sent(b"content")) for n in range(3)]
    (here / "recipe").write_text("".join(f"{n}.txt {url}\n" for n, url in enumerate(urls)))
    ran = tarkit_command("create", "recipe", "-o", "x.tar")
    assert ran.stderr.count("nothing proves") == 1
    assert f"nothing proves that {urls[0]} is complete" in ran.stderr


LISTS = {
    "stats -T {url}": "a.tar\nb.tar\n",
    "create {url} -o x.tar": "a.txt text:1\nb.txt text:2\n",
    "create {url} --format csv -o x.tar": "__key__,txt\na,1\nb,2\n",
    "cat a.tar --keys-from {url} -o x.tar": "a\nb\n",
    "sort a.tar --order-file {url} -o x.tar": "b\na\n",
    "check a.tar --against {url}": "__key__\na\nb\n",
    "check --manifest {url}": "shard\tsamples\na.tar\t2\nb.tar\t2\n",
    "stats a.tar --by txt --classes {url}": "cat\ndog\n",
}


@each_row("words", sorted(LISTS))
def test_each_option_says_so(words: str, server: HttpServer, here: Path) -> None:
    for name in ("a.tar", "b.tar"):
        (here / name).write_bytes(archive([("a.txt", b"1"), ("b.txt", b"2")]))
    whole = LISTS[words].encode()
    for data in (whole[:-1], whole[: whole.rindex(b"\n", 0, -1) + 1], whole):
        url = server.serve("/list", raw=sent(data))
        ran = tarkit_command(*words.format(url=url).split(), exit=None)
        assert f"{url}: the server does not say how long this file is" in ran.stderr, (data, ran)
        assert ran.status == 1 or data.endswith(b"\n"), data
