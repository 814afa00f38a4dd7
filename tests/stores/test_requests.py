"""How many requests commands make, and how many bytes come: neighbours in one request, no byte twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("urllib3")

import tarkit
from tarkit.streams import prefetch
from tarkit.streams.remote import RemoteSource
from tests._tools import each_row
from tests.conftest import Content, Run, tar
from tests.stores._http import HttpServer, Served
from tests.stores._tools import view_rows, write_view

BYTES = random.Random(5)


def members(count: int, size: int) -> list[tuple[str, Content]]:
    """Return the entries of samples with a field of so many bytes and a short one."""
    return [
        (f"{number:05}.{field}", content)
        for number in range(count)
        for field, content in (("bin", BYTES.randbytes(size)), ("cls", b"%d" % number))
    ]


MANY = tar(members(150, 40_000))  # 6 MB
LARGE = tar(members(6, 1_200_000))


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


def serve_many(server: HttpServer, run: Run) -> Served:
    """Serve MANY, and write a.tar, the same archive, and v.parquet, a view of the object."""
    Path("a.tar").write_bytes(MANY)
    write_view("v.parquet", view_rows(run, "a.tar", server.serve("/a.tar", MANY)))
    return server.objects["/a.tar"]


@each_row("how", [{"etag": None}, {"ranges": False}])
def test_a_view_of_an_object_without_parts(how: dict[str, Any], server: HttpServer, run: Run, here: Path) -> None:
    """The error says what the server lacks."""
    Path("a.tar").write_bytes(LARGE)
    write_view("remote.parquet", view_rows(run, "a.tar", server.serve("/a.tar", LARGE, **how)))
    assert "or does not name its version" in run("cat", "remote.parquet", "-o", "-", exit=1).stderr


Rows = list[dict[str, Any]]
ORDERS: dict[str, tuple[Callable[[Rows], Rows], int, float]] = {  # requests, and bytes for each one of samples, at most
    "in order": (lambda rows: rows, 12, 1.01),
    "every second": (lambda rows: rows[::2], 12, 2.1),
    "in reverse": (lambda rows: rows[::-1], 12, 1.01),
    "shuffled": (lambda rows: random.Random(3).sample(rows, 150), 120, 2.0),
    "each twice": (lambda rows: rows * 2, 24, 2.1),
    "a few": (lambda rows: random.Random(3).sample(rows, 8), 10, 1.5),
}


@each_row("order", ORDERS)
def test_a_view_of_an_object(order: str, server: HttpServer, run: Run, here: Path) -> None:
    """The same archive as of a view of a file, with few requests for neighbours, and bytes that are used."""
    choose, requests, share = ORDERS[order]
    Path("a.tar").write_bytes(MANY)
    rows = choose(view_rows(run, "a.tar", server.serve("/a.tar", MANY)))
    write_view("remote.parquet", rows)
    write_view("local.parquet", [{**row, "__shard__": "a.tar"} for row in rows])
    keys = ["--rekey", "{index}-{key}"] if order == "each twice" else []
    local = run("cat", "local.parquet", *keys, "-o", "-").stdout
    assert run("cat", "remote.parquet", *keys, "-o", "-").stdout == local
    served = server.objects["/a.tar"]
    assert served.requests <= requests
    assert served.sent <= share * len(local) + (1 << 16)
    served.requests = served.sent = 0
    if not keys:
        run("sort", "remote.parquet", "-o", "x.tar")
        assert served.requests <= requests
        served.requests = 0
    run("stats", "remote.parquet", "--total")
    assert served.requests <= requests


def test_a_few_samples_of_many_objects(server: HttpServer, run: Run, here: Path) -> None:
    """Each object is opened by one request and read by another, many at a time."""
    shards = [tar([(f"{number:02}-{name}", data) for name, data in members(3, 9_000)]) for number in range(100)]
    Path("a.tar").write_bytes(shards[0])
    row = view_rows(run, "a.tar", "")[1]  # those of the others differ in names alone
    urls = [server.serve(f"/{number}.tar", data) for number, data in enumerate(shards)]
    rows = [{**row, "__shard__": url, "__key__": f"{number:02}-00001"} for number, url in enumerate(urls)]
    random.Random(1).shuffle(rows)
    write_view("x.parquet", rows)
    ran = run("cat", "x.parquet", "-o", "-")
    assert len(ran.stdout) > 100 * 9_000
    assert sum(served.requests for served in server.objects.values()) <= 200


ALL: dict[str, list[str]] = {
    "stats": ["stats", "--json"],
    "check": ["check"],
    "check of contents": ["check", "--same-as", "a.tar", "-q"],
    "tsv": ["tsv", "-f", "cls"],
    "cat": ["cat", "-o", "-"],
    "sort": ["sort", "-o", "-"],
    "index": ["index", "--format", "dali", "-o", "x/"],
}


@each_row("command", ALL)
def test_many_small_objects(command: str, server: HttpServer, run: Run, here: Path) -> None:
    """Each is read by one request, that is made before its turn; results are in order, and as of files."""
    Path("x").mkdir()
    Path("a.tar").write_bytes(tar(members(1, 10)))
    for number in range(20):
        data = tar([(f"{number:02}-{name}", content) for name, content in members(3, 9_000)])
        Path(f"{number:02}.tar").write_bytes(data)
        server.serve(f"/{number:02}.tar", data)
    words = ALL[command]
    remote = run(*words, f"{server.url}/{{00..19}}.tar", exit=None)
    requests = [served.requests for served in server.objects.values()]
    assert sum(requests) <= 20 + 2
    local = run(*words, "{00..19}.tar", exit=None)
    assert remote.status == local.status
    assert remote.stdout.replace(f"{server.url}/".encode(), b"") == local.stdout


def test_objects_behind_the_last_sample(server: HttpServer, run: Run, here: Path) -> None:
    """Where the first objects have all that is wanted, the others are not requested, or few of them."""
    for number in range(20):
        server.serve(f"/{number:02}.tar", tar([(f"{number:02}-{name}", data) for name, data in members(3, 9_000)]))
    for count, most in ((2, 1), (4, 3), (7, 5)):
        server.log.clear()
        run("show", f"{server.url}/{{00..19}}.tar", "-c", str(count))
        assert len({path for _, path, _ in server.log}) <= most


@each_row(
    "words", ["tsv -f cls", "cat -o o.tar", "stats", "index --format dali -o x/", "index --format dali,view -o x/"]
)
def test_objects_that_are_gone(words: str, server: HttpServer, run: Run, here: Path) -> None:
    """The error names the first, and how to go on, if it is not the only one; without them the others are read."""
    if "view" in words:
        pytest.importorskip("pyarrow")
    Path("x").mkdir()
    for number in (*range(5), 6, 8):
        server.serve(f"/{number}.tar", tar([(f"{number}-{name}", data) for name, data in members(3, 900)]))
    command, urls, gone = words.split(), f"{server.url}/{{0..8}}.tar", f"{server.url}/5.tar"
    error, hint = f"tarkit: {gone}: No such file or directory", "hint: --skip missing-shard goes on without it"
    assert run(*command, urls, exit=1).lines[:2] == [error, hint]
    assert run(*command, gone, exit=1).lines == [error]
    ran = run(*command, urls, "--skip", "missing-shard")
    assert ran.lines[0] == f"tarkit: warning: {gone}: No such file or directory [missing-shard]"
    assert ran.lines[-1].endswith(f"2 shards left out: {gone}, {server.url}/7.tar")
    if "index" in words:
        assert {path.name for path in Path("x").glob("*.idx")} == {f"{number}.idx" for number in (*range(5), 6, 8)}
    if "view" in words:
        assert run("stats", "x/all.view.parquet", "--total").stdout == b"21\n"


@each_row(
    ("words", "most"),
    [("--slice 0:3", 3), ("-c 60", 60), ("--slice 20:130:9 -c 3", 39), ("--slice 4:4", 0), ("-c 999", 150)],
)
def test_the_first_samples_of_a_view(words: str, most: int, server: HttpServer, run: Run, here: Path) -> None:
    """No sample is fetched behind the last one that is chosen."""
    served = serve_many(server, run)
    chosen = run("cat", "v.parquet", *words.split(), "-o", "-")
    assert served.sent <= most * len(MANY) // 150 + 8192
    assert chosen.stdout == run("cat", "a.tar", *words.split(), "-o", "-").stdout


GROUPS = 15
VIEWS: dict[str, tuple[list[str], int]] = {  # requests for each row group at most
    "copy": (["cat", "VIEW", "-o", "x.tar"], 2),
    "view": (["cat", "VIEW", "-o", "y.parquet"], 4),
    "values": (["cat", "VIEW", "--where", "cls < 3", "-o", "x.tar"], 3),
    "order": (["sort", "VIEW", "-s", "cls", "-o", "x.tar"], 3),
    "table": (["tsv", "VIEW", "-f", "cls", "-o", "x.tsv"], 3),
    "check": (["check", "VIEW"], 2),
}


@each_row("command", VIEWS)
def test_a_view_in_a_store(command: str, server: HttpServer, run: Run, here: Path) -> None:
    """It is opened once, and columns that are not asked for do not come."""
    Path("a.tar").write_bytes(MANY)
    server.serve("/a.tar", MANY)
    rows = view_rows(run, "a.tar", "a.tar")
    rows = [{**row, "cls": n % 9, "noise": BYTES.randbytes(20_000)} for n, row in enumerate(rows)]
    write_view("v.parquet", rows, row_group_size=150 // GROUPS)
    url = server.serve("/v.parquet", Path("v.parquet").read_bytes())
    words, most = VIEWS[command]
    server.log.clear()
    run(*(url if word == "VIEW" else word for word in words))
    served = server.objects["/v.parquet"]
    starts = [headers["Range"] for _, path, headers in server.log if path == "/v.parquet"]
    assert starts.count("bytes=0-4095") == 1
    assert served.requests <= 2 + most * GROUPS
    if command != "view":
        assert served.sent < 1 << 17


@each_row("index", [False, True])
def test_many_samples_that_are_looked_up(index: bool, server: HttpServer, run: Run, here: Path) -> None:
    """Slices, lists, iteration and the loader fetch many samples together; each is the one that was asked for."""
    Path("a.tar").write_bytes(MANY)
    url = server.serve("/a.tar", MANY)
    if index:
        run("index", "a.tar", "--format", "dali", "-o", "a.idx")
        server.serve("/a.idx", Path("a.idx").read_bytes())
    data, local = tarkit.open(url).indexed(), tarkit.open("a.tar").indexed()
    served = server.objects["/a.tar"]
    keys = random.Random(2).sample(local.keys(), 60)
    reads: dict[str, tuple[int, Callable[[Any], Any]]] = {
        "slice": (6, lambda data: data[20:140]),
        "steps": (60, lambda data: data[::-3]),
        "keys": (60, lambda data: data[keys]),
        "numbers": (4, lambda data: data[[3, -1, 4]]),
        "batch": (4, lambda data: data.__getitems__([5, 6, 7])),
        "all": (8, list),
    }
    for most, read in reads.values():
        served.requests = 0
        assert [dict(sample) for sample in read(data)] == [dict(sample) for sample in read(local)]
        assert served.requests <= most
    with pytest.raises(KeyError):
        data[["00001", "x"]]


def test_a_random_order_of_all_samples(server: HttpServer, here: Path) -> None:
    """A loader fetches them before their turn."""
    url = server.serve("/a.tar", MANY)
    found = [sample["__key__"] for sample in tarkit.loader(url, shuffle="full", seed=3)]
    assert sorted(found) == [f"{number:05}" for number in range(150)] != found
    assert server.objects["/a.tar"].requests <= 120


def test_ranges_that_are_merged() -> None:
    """Against a model: every range is in a piece, no piece has a large gap, and all gaps together are bounded."""
    sources: list[Any] = [object.__new__(RemoteSource) for _ in range(3)]
    sources[1].gap, sources[2].gap = 1 << 17, 0
    for seed in range(200):
        rng = random.Random(seed)
        spread = rng.choice([1 << 16, 1 << 20, 1 << 26])
        parts = []
        for _ in range(rng.randrange(60)):
            start = rng.randrange(spread)
            parts.append((rng.choice(sources), start, start + rng.choice([0, 512, 5000, 1 << 18, 9 << 20])))
        wanted = [part for part in parts if 0 < part[2] - part[1] <= prefetch.GROUP]
        pieces = prefetch.merged(parts)
        used = [
            next(at for at, (s, a, b) in enumerate(pieces) if s is source and a <= start and stop <= b)
            for source, start, stop in wanted
        ]
        assert list(dict.fromkeys(used)) == list(range(len(pieces)))
        gaps = 0
        for source, start, stop in pieces:
            at = start
            for low, high in sorted((a, b) for s, a, b in wanted if s is source and start <= a and b <= stop):
                assert low - at <= source.gap // prefetch.SHARE
                gaps += max(low - at, 0)
                at = max(at, high)
            assert at == stop
        assert gaps <= prefetch.GROUP


@each_row("output", ["o.tar", "o.parquet"])
def test_drawn_rows_of_a_view(output: str, server: HttpServer, run: Run, here: Path) -> None:
    """Samples that are not drawn are not fetched; the choice is that of the archive."""
    served = serve_many(server, run)
    for count in (5, 60):
        drawn = ("--sample", str(count), "--seed", "3", "--net-gap", "0")
        served.requests = served.sent = 0
        run("cat", "v.parquet", *drawn, "-o", output)
        assert served.requests <= count * (2 if output == "o.parquet" else 1) + 2  # headers alone, or all of each
        assert served.sent <= count * 45_000
        assert run("cat", output, "-o", "-").stdout == run("cat", "a.tar", *drawn, "-o", "-").stdout


@each_row("output", ["o.tar", "o.parquet"])
def test_listed_rows_of_a_view(output: str, server: HttpServer, run: Run, here: Path) -> None:
    """Of a view samples are fetched whose keys are listed, if they are few; the choice is that of the archive."""
    served = serve_many(server, run)
    for count in (5, 30, 100):
        keys = [*random.Random(count).sample(range(150), count), 999]
        Path("list").write_text("".join(f"{key:05}\n" for key in keys))
        words = ("--keys-from", "list", "--net-gap", "0")
        served.requests = served.sent = 0
        ran = run("cat", "v.parquet", *words, "-o", output)
        if count < 100:
            assert served.requests <= count + 2
            assert served.sent <= count * 45_000
        local = run("cat", "a.tar", *words, "-o", "-")
        assert (run("cat", output, "-o", "-").stdout, ran.stderr) == (local.stdout, local.stderr)
