"""Files that options name: lists, recipes, plans, maps and manifests, at URLs and from commands as from paths."""

from __future__ import annotations

import io
import json
import random
import warnings
from pathlib import Path

import pytest

pytest.importorskip("obstore")

import tarkit
from tarkit.errors import TarkitError
from tarkit.stores import connect
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file, parse_file, split_column
from tests._tools import archive, each_row
from tests.conftest import tar
from tests.conftest import tarkit as tarkit_command
from tests.stores._http import HttpServer
from tests.stores._s3 import Bucket
from tests.stores._servers import tarkit_run as run


@pytest.fixture
def bucket(bucket: Bucket) -> Bucket:
    """A directory of a bucket, and an archive here."""
    Path("in.tar").write_bytes(tar({f"{n}.txt": b"%d" % n for n in range(4)}))
    return bucket


def keys(*words: str) -> list[str]:
    return run("show", *words, "--all", "-q", "--keys").stdout.split()


def test_lists_of_inputs(bucket: Bucket) -> None:
    """-T and --load, for commands in processes too; errors name the line."""
    run("cat", "in.tar", "-o", f"{bucket.url}a.tar")
    listed = bucket.put("list.txt", f"in.tar\n{bucket.url}a.tar\n")
    for words in (("-T", listed), ("-T", "pipe:printf 'in.tar\\nin.tar\\n'"), ("-T", listed, "-p", "2")):
        assert run("stats", *words, "--total").stdout == "8\n"
    wrong = bucket.put("wrong.txt", "in.tar\nnone.tar\n")
    assert f"{wrong}:2: none.tar: No such file" in run("stats", "-T", wrong, exit=1).stderr
    assert f"{bucket.url}none: No such file" in run("stats", "-T", f"{bucket.url}none", exit=1).stderr
    assert "status 3" in run("stats", "-T", "pipe:echo in.tar; exit 3", exit=1).stderr


def test_recipes_and_tables(bucket: Bucket) -> None:
    recipe = bucket.put("recipe", "a.txt text:1\nb.txt text:2\n")
    run("create", recipe, "-o", "a.tar", "--depfile", f"{bucket.url}a.d")
    assert run("stats", "a.tar", "--total").stdout == "2\n"
    assert bucket.text("a.d").startswith("a.tar:")
    table = bucket.put("t.tsv", "__key__\ttxt\nx\t1\n")
    run("create", table, "--format", "tsv", "-o", f"{bucket.url}t.tar")
    assert run("stats", f"{bucket.url}t.tar", "--total").stdout == "1\n"
    bad = bucket.put("bad", "a.txt hex:zz\n")
    assert f"{bad}:1: " in run("create", bad, "-o", "bad.tar", exit=1).stderr
    assert tarkit.create(recipe, "b.tar") == 2


def test_manifests(bucket: Bucket) -> None:
    manifest = f"{bucket.url}m.tsv"
    run("split", "in.tar", "-c", "2", "-o", f"{bucket.url}s-%d.tar", "--manifest", manifest)
    rows = [line.split("\t") for line in bucket.text("m.tsv").splitlines()]
    assert [row[0] for row in rows] == ["shard", f"{bucket.url}s-0.tar", f"{bucket.url}s-1.tar"]
    for words in ((), ("-p", "2"), ("--cache", "cache"), ("--fix", "clean-%d.tar")):
        run("check", "--manifest", manifest, *words)
    run("split", "in.tar", "-c", "2", "-o", "l-%d.tar", "--manifest", f"{bucket.url}l.tsv")
    run("check", "l-0.tar", "l-1.tar", "--manifest", f"{bucket.url}l.tsv")
    ran = run("check", "l-0.tar", "l-1.tar", "in.tar", "--manifest", f"{bucket.url}l.tsv", exit=1)
    assert f"{bucket.url}l.tsv does not list it" in ran.stdout
    run("split", "in.tar", "-c", "2", "-o", f"{bucket.url}z-%d.tgz", "--manifest", "z.tsv")
    run("check", "--manifest", "z.tsv", f"{bucket.url}z-0.tgz", f"{bucket.url}z-1.tgz")
    changed = bytearray(Path("l-1.tar").read_bytes())
    changed[512] ^= 1
    bucket.put("s-1.tar", bytes(changed) + bytes(512))
    said = run("check", "--manifest", manifest, exit=1).stdout
    assert said.count("[changed-shard]") == 2
    assert f"{bucket.url}s-1.tar: sha256: {rows[2][3]} in {manifest}, " in said
    assert f"{bucket.url}s-1.tar: bytes: {len(changed)} in {manifest}, {len(changed) + 512} in the shard" in said
    shards = tarkit.open("in.tar").split("p-%d.tar", count=2, manifest=f"{bucket.url}p.tsv")
    assert len(bucket.text("p.tsv").splitlines()) == 1 + len(shards)


def test_trees(bucket: Bucket, here: Path) -> None:
    """With processes, and with classes and tables that are objects."""
    for number in range(6):
        (here / "tree" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        (here / "tree" / str(number % 2) / f"{number}.txt").write_text(str(number))
    words = ("--label-from-dir", "cls", "--classes-out", f"{bucket.url}classes.txt")
    files = ("--manifest", f"{bucket.url}m.tsv", "--depfile", f"{bucket.url}m.d")
    run("shard", "tree", "-c", "2", "-o", "s-%d.tar", *words, "-p", "2", *files)
    assert bucket.text("classes.txt") == "0\n1\n"
    assert len(bucket.text("m.tsv").splitlines()) == 4
    assert bucket.text("m.d").startswith("s-0.tar: ")
    assert run("stats", "s-0.tar", "s-1.tar", "s-2.tar", "--total").stdout == "6\n"
    classes = f"{bucket.url}classes.txt"
    made = tarkit.shard("tree", "t-%d.tar", count=3, classes=classes, label_from_dir="cls")
    assert [shard.samples for shard in made] == [3, 3]
    table = bucket.put("join.csv", "id,caption\n" + "".join(f"{n % 2}/{n},c{n}\n" for n in range(6)))
    run("shard", "tree", "-c", "9", "-o", "j-%d.tar", "--join", f"{table}:id", "--recipe", f"{bucket.url}r")
    assert bucket.text("r").count("\n") == 12


def test_maps_orders_keys_and_classes(bucket: Bucket) -> None:
    order = bucket.put("order.txt", "3\n1\n0\n2\n")
    run("sort", "in.tar", "--order-file", order, "-o", "o.tar")
    assert [sample.key for sample in tarkit.open("o.tar")] == ["3", "1", "0", "2"]
    assert [sample.key for sample in tarkit.open("in.tar").sort(order_file=order)] == ["3", "1", "0", "2"]
    chosen = bucket.put("keys.tsv", "id\tx\n1\ta\n3\tb\n")
    run("cat", "in.tar", "--keys-from", f"{chosen}:id", "-o", "k.tar")
    assert [sample.key for sample in tarkit.open("k.tar")] == ["1", "3"]
    run("cat", "in.tar", "--keys-from", order, "-o", "k.tar")
    map_ = bucket.put("map.json", json.dumps({"low-%d.tar": ["^[01]"], "high-%d.tar": ["^[23]"]}))
    run("split", "in.tar", "--map", map_, "-c", "9")
    assert run("stats", "high-0.tar", "--total").stdout == "2\n"
    names = bucket.put("names.txt", "cat\ndog\n")
    assert "dog" in run("stats", "in.tar", "--by", "txt", "--classes", names).stdout
    table = bucket.put("against.tsv", "__key__\n0\n1\n2\n3\n")
    run("check", "in.tar", "--against", table)
    mix = bucket.put("mix.json", json.dumps({"sources": [{"shards": "in.tar"}]}))
    run("mix", mix, "-o", "mix.tar", "--seed", "1")
    assert run("stats", "mix.tar", "--total").stdout == "4\n"


def test_reports_and_pages(bucket: Bucket) -> None:
    run("cat", "in.tar", "-o", "x.tar", "--report", f"{bucket.url}report.json")
    assert json.loads(bucket.text("report.json"))["samples"] == 4
    run("stats", "in.tar", "--html", f"{bucket.url}page.html")
    assert "<html" in bucket.text("page.html")


def test_a_file_has_one_role(bucket: Bucket) -> None:
    """What is written is no input, and nothing else; nothing is changed."""
    listed = bucket.put("list.txt", "in.tar\n")
    data = f"{bucket.url}a.tar"
    run("cat", "in.tar", "-o", data)
    run("split", "in.tar", "-c", "4", "-o", f"{bucket.url}a-%d.tar")
    before = bucket.text("list.txt")
    for words in (
        ("cat", "-T", listed, "-o", listed),
        ("cat", "-T", listed, "-o", "x.tar", "--report", listed),
        ("cat", data, "-o", data),
        ("sort", f"{bucket.url}*.tar", "-o", data),
        ("cat", data, "-o", "x.tar", "--report", data),
        ("create", listed, "-o", listed),
        ("create", listed, "-o", "x.tar", "--depfile", listed),
        ("split", data, "-c", "1", "-o", "x-%d.tar", "--manifest", data),
        ("split", "in.tar", "-c", "1", "-o", f"{bucket.url}x-%d.tar", "--manifest", f"{bucket.url}x-0.tar"),
        ("split", "-T", listed, "-c", "1", "-o", "x-%d.tar", "--manifest", listed),
        ("split", f"{bucket.url}a-*.tar", "-c", "1", "-o", f"{bucket.url}a-%d.tar", "--force"),
        ("sort", "in.tar", "--order-file", listed, "-o", listed),
    ):
        said = run(*words, exit=2).stderr
        assert "both input and output" in said or " too" in said or "may get" in said, words
    assert "not a directory" in run("cat", data, "-o", bucket.url, exit=2).stderr
    assert bucket.text("list.txt") == before
    for name in (data, f"{bucket.url}a-*.tar"):
        assert run("stats", name, "--total").stdout == "4\n"


def test_what_is_local(here: Path) -> None:
    """Directories are, and say so."""
    (here / "in.tar").write_bytes(tar({}))
    (here / "recipe").touch()
    for words, option in (
        ("extract in.tar -C s3://b/x", "-C"),
        ("create recipe -C s3://b/x -o a.tar", "-C"),
        ("cat in.tar -o a.tar --tmpdir s3://b/x", "--tmpdir"),
        ("stats in.tar --cache s3://b/x", "--cache"),
    ):
        said = run(*words.split(), exit=2).stderr
        assert said == f"tarkit: s3://b/x: {option} is a local path, not a URL\n"
    assert sorted(path.name for path in here.iterdir()) == ["in.tar", "recipe"]


def test_names(here: Path) -> None:
    """An existing path is that path; a column is no part of a URL; logins are in no message."""
    (here / "a:b").write_text("x")
    assert parse_file("a:b") == ("path", "a:b")
    assert parse_file("file:s3://x") == ("path", "s3://x")
    assert split_column("a:b") == ("a:b", "")
    assert split_column("c:b") == ("c", "b")
    assert split_column("s3://b/c") == ("s3://b/c", "")
    assert split_column("s3://b/c:d") == ("s3://b/c", "d")
    assert file_label("https://me:secret@h/x?token=abc") == "https://h/x?token=***"
    with open_file("pipe:printf 'a\\nb\\n'") as lines:
        assert list(lines) == [b"a\n", b"b\n"]


# ---- From a server that sends no length: none that is cut short is used without a word

SEEDS = range(60)


def reply_without_length(data: bytes, *, chunked: bool = False, end: bool = True) -> bytes:
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
    data, said = opened(server.serve("/list", raw=reply_without_length(whole[:cut])))
    if whole[:cut].endswith((b"\n", b"\0")):
        assert data == whole[:cut]
        assert len(said) == 1
        assert "/list: the server does not say how long this file is: nothing proves that it is complete" in said[0]
    else:
        assert (data, said) == (None, [])
    server.serve("/list", raw=reply_without_length(whole, chunked=True))
    assert opened(server.url + "/list") == (whole, [])
    server.serve("/list", whole)
    assert opened(server.url + "/list") == (whole, [])


@each_row("seed", SEEDS[:6])
def test_chunks_without_a_last_one(seed: int, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"line\n" * (seed + 1)
    url = server.serve("/list", raw=reply_without_length(data, chunked=True, end=False))
    assert opened(url) == (None, [])


def test_a_table_of_parquet_says_where_it_ends(server: HttpServer) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = io.BytesIO()
    parquet.write_table(pytest.importorskip("pyarrow").table({"a": ["x"]}), table)
    assert opened(server.serve("/t.parquet", raw=reply_without_length(table.getvalue()))) == (table.getvalue(), [])


def test_sources_of_a_recipe(server: HttpServer, here: Path) -> None:
    """One warning for a server."""
    urls = [server.serve(f"/{n}", raw=reply_without_length(b"content")) for n in range(3)]
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
        url = server.serve("/list", raw=reply_without_length(data))
        ran = tarkit_command(*words.format(url=url).split(), exit=None)
        assert f"{url}: the server does not say how long this file is" in ran.stderr, (data, ran)
        assert ran.status == 1 or data.endswith(b"\n"), data
