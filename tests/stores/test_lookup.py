"""Samples of objects, found by an index beside them: few requests, and never another sample than the one asked for."""

from __future__ import annotations

import os
import random
import tarfile
import time
from collections import Counter
from contextlib import suppress
from email.utils import formatdate
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("urllib3")

import tarkit
from tarkit.errors import TarkitError
from tests._tools import each_row
from tests.conftest import PAX, Archive, Content, Link, Run, tar
from tests.stores._http import HttpServer

BYTES = random.Random(7)
MEMBERS: list[tuple[str, Content]] = [
    (f"d/{n:02}.{field}", data)
    for n in range(40)
    for field, data in (("jpg", BYTES.randbytes(90_000)), ("cls", b"%d" % n))
]
FORMATS = {"dali": ".idx", "tsv": ".index.tsv", "webshart": ".json"}


def serve(
    server: HttpServer, run: Run, archive: Archive, members: object = MEMBERS, *formats: str, **how: object
) -> str:
    """Serve a shard and indexes of it; return its URL."""
    name = archive(members)  # type: ignore[arg-type]
    server.objects.clear()
    for format in formats:
        run("index", name, "--format", format, "--force")
        server.serve("/a" + FORMATS[format], Path(name.replace(".tar", FORMATS[format])).read_bytes())
    server.log.clear()
    return server.serve("/a.tar", Path(name).read_bytes(), **how)


def requests(server: HttpServer) -> dict[str, int]:
    """How often each object was requested since the last call."""
    found = Counter(path for _, path, _ in server.log)
    server.log.clear()
    return found


@each_row("format", FORMATS)
def test_one_request_for_the_index_and_two_for_the_shard(
    format: str, server: HttpServer, run: Run, archive: Archive
) -> None:
    url = serve(server, run, archive, MEMBERS, format)
    for place in (0, 17, 39):
        jpg = dict(MEMBERS)[f"d/{place:02}.jpg"]
        server.log.clear()
        ran = run("get", f"d/{place:02}.jpg", url, "-v")
        assert ran.stdout == jpg
        assert f"looked up in {server.url}/a{FORMATS[format]}" in ran.stderr
        found = requests(server)
        assert (found.pop("/a.tar"), found.pop("/a" + FORMATS[format])) == (2, 1)
        assert all(path not in server.objects for path in found)  # places where an index could have been
        assert run("get", f"d/{place:02}", url).stdout == tar(MEMBERS[2 * place : 2 * place + 2])
        sample = tarkit.open(url).get(f"d/{place:02}")
        assert dict(sample) == {"jpg": jpg, "cls": b"%d" % place}


def test_a_sample_at_the_start_takes_one_request(server: HttpServer, run: Run, archive: Archive) -> None:
    url = serve(server, run, archive, {f"{n}.cls": b"%d" % n for n in range(100)}, "dali")
    assert run("get", "1.cls", url).stdout == b"1"
    assert requests(server) == {"/a.tar": 1, "/a.idx": 1}


def test_a_large_sample_is_not_held_in_memory(
    server: HttpServer, run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarkit.indexing.lookup.AT_ONCE", 80_000)
    url = serve(server, run, archive, MEMBERS, "dali")
    assert run("get", "d/17.jpg", url).stdout == dict(MEMBERS)["d/17.jpg"]
    assert run("get", "d/17", url).stdout == tar(MEMBERS[34:36])


def test_a_missing_index_or_one_that_is_denied_is_no_error(server: HttpServer, run: Run, archive: Archive) -> None:
    url = serve(server, run, archive)
    assert run("get", "d/17.cls", url)[:2] == (b"17", "")
    server.serve("/a.idx", b"", statuses=[403])
    assert run("get", "d/17.cls", url)[:2] == (b"17", "")


def test_a_key_that_the_index_lacks_is_searched_in_the_shard(server: HttpServer, run: Run, archive: Archive) -> None:
    serve(server, run, archive, MEMBERS[:40], "dali")
    url = server.serve("/a.tar", tar(MEMBERS))
    assert run("get", "d/30.cls", url).stdout == b"30"


def _changed(how: str) -> bytes:
    """The archive of MEMBERS, changed so that an index of it does not describe it."""
    members = list(MEMBERS)
    if how == "longer":
        members.append(("e.jpg", bytes(20_000)))
    elif how == "shorter":
        del members[-2:]
    elif how == "moved":  # of equal length
        members[0], members[2] = ("d/00.jpg", bytes(85_000)), ("d/01.jpg", bytes(95_000))
        members[6], members[10] = ("d/03.jpg", bytes(95_000)), ("d/05.jpg", bytes(85_000))
    elif how == "reversed":
        members.reverse()
    elif how == "renamed":
        members = [(name.replace("/1", "/7"), data) for name, data in members]
        members[0] = ("d/17.cls", bytes(90_000))
    return tar(members)


@each_row("format", FORMATS)
@each_row("how", ["longer", "shorter", "moved", "reversed", "renamed"])
def test_a_stale_index_never_gives_a_wrong_sample(
    format: str, how: str, server: HttpServer, run: Run, archive: Archive
) -> None:
    """Whatever the index says, the result is that of a search in the shard as it is; of `indexed`, or an error."""
    serve(server, run, archive, MEMBERS, format)
    changed = _changed(how)
    url, path = server.serve("/a.tar", changed), archive(changed, "changed.tar")
    for key in ("d/04.jpg", "d/17.cls", "d/39", "d/00.jpg"):
        ran, expected = (run("get", key, name, exit=None) for name in (url, path))
        assert (ran.stdout, ran.status) == (expected.stdout, expected.status)
    how_read: dict[str, Any] = {"allow": ["all"], "on_problem": lambda text: None}
    right = {sample.key: dict(sample) for sample in tarkit.open(path, **how_read)}
    with suppress(TarkitError):
        data = tarkit.open(url, **how_read).indexed()
        keys = data.keys()
        for key in keys:
            with suppress(TarkitError):
                assert (data[key].key, dict(data[key])) == (key, right[key])


def test_times_are_compared_where_both_have_them(server: HttpServer, run: Run, archive: Archive) -> None:
    old, new = ({"Last-Modified": formatdate(at, usegmt=True)} for at in (1e9, 1e9 + 60))
    url = serve(server, run, archive, MEMBERS, "dali", headers=new)
    for headers, used in ((new, True), ({}, True), (old, False)):
        server.objects["/a.idx"].headers = headers
        ran = run("get", "d/17.cls", url, "-v")
        assert ran.stdout == b"17"
        assert ("looked up" in ran.stderr) == used
        assert ("older than the shard" in ran.stderr) != used


def test_the_index_of_a_url_with_a_query(server: HttpServer, run: Run, archive: Archive) -> None:
    url = serve(server, run, archive, MEMBERS, "dali")
    ran = run("get", "d/17.cls", url + "?token=secret", "-v")
    assert ran.stdout == b"17"
    assert "a.idx?token=***" in ran.stderr
    assert "secret" not in ran.stderr
    assert "/a.idx?token=secret" in requests(server)


@each_row(
    "text",
    [
        f"jpg {offset} {size} d/16.jpg"
        for offset, size in ((-4096, 9), (99999999999, 9), (512, 99999999999), (5, 7), (2**65, 9), (512, 2**63))
    ],
)
def test_offsets_that_cannot_be_are_not_used(text: str, server: HttpServer, run: Run, archive: Archive) -> None:
    url = serve(server, run, archive)
    size = 40 * 91_648
    last = f"jpg {size - 91_136 + 512} {91_648 - 1536} z/1.jpg"
    for rows in ([text, "cls 600 2 d/17.cls", last], [last, text.replace("16", "17").replace("jpg", "cls")]):
        server.serve("/a.idx", f"v1.2 {len(rows)}\n{chr(10).join(rows)}\n".encode())
        assert run("get", "d/17.cls", url).stdout == b"17"
        assert len(tarkit.open(url).indexed()) == 40


# ---- Many shards


def serve_many(server: HttpServer, run: Run, archive: Archive, format: str, count: int = 40) -> str:
    """Serve shards with a sample `NUMBER` each among others, and their indexes; return their URLs in braces."""
    server.objects.clear()
    for number in range(count):
        members: list[tuple[str, Content]] = [(f"{number:02}{part}.cls", b"%d" % number) for part in "abc"]
        name = archive([*members, (f"{number:02}.jpg", bytes(9000)), ("same.cls", b"%d" % number)], f"{number:02}.tar")
        run("index", name, "--format", format)
        index = name.replace(".tar", FORMATS[format])
        for each in (name, index):
            server.serve(f"/{each}", Path(each).read_bytes())
    server.log.clear()
    return f"{server.url}/{{00..{count - 1:02}}}.tar"


@each_row("format", FORMATS)
def test_a_key_of_many_indexed_shards(format: str, server: HttpServer, run: Run, archive: Archive) -> None:
    """The index and the end of each shard up to the right one; a few more that were requested ahead."""
    urls, suffix = serve_many(server, run, archive, format, 20), FORMATS[format]
    ran = run("get", "19b.cls", urls, "-v")
    assert ran.stdout == b"19"
    assert "looked up in" in ran.stderr
    found = requests(server)
    assert all(found[f"/{number:02}.tar"] <= 2 and found[f"/{number:02}{suffix}"] == 1 for number in range(20))
    ran = run("get", "none.cls", urls, exit=1)
    assert "no sample 'none': searched 20 inputs, 20 of them by an index" in ran.stderr
    found = requests(server)
    assert all(found[f"/{number:02}.tar"] <= 2 for number in range(20))
    with pytest.raises(KeyError, match="20 of them by an index"):
        tarkit.open(urls).get("none")


def test_the_search_ends_at_the_first_sample_in_order(server: HttpServer, run: Run, archive: Archive) -> None:
    """Whatever shard answers first. An object that is missing is an error in its turn, and not before."""
    urls = serve_many(server, run, archive, "dali")
    del server.objects["/08.tar"]
    for slow in ("/00.idx", "/02.tar"):
        server.objects[slow].change = lambda served, number: time.sleep(0.3)
    assert run("get", "same.cls", urls).stdout == b"0"
    assert set(requests(server)) == {"/00.tar", "/00.idx"}
    assert run("get", "03a.cls", urls).stdout == b"3"
    assert len(requests(server)) <= 2 * 16
    assert tarkit.open(urls).get("05c")["cls"] == b"5"
    assert "/08.tar: No such file" in run("get", "09a.cls", urls, exit=1).stderr


def test_shards_whose_index_does_not_settle_it_are_read(server: HttpServer, run: Run, archive: Archive) -> None:
    """Without an index, with one of another archive, and with one that does not list all entries."""
    urls = serve_many(server, run, archive, "dali", 4)
    del server.objects["/00.idx"]
    server.serve("/01.idx", server.objects["/03.idx"].data)
    link = Link("02d.cls", tarfile.SYMTYPE)
    name = archive([("02/", None), ("02d.cls", b"2"), ("02e.lnk", link), ("02f.cls", b"2")], "02.tar")
    run("index", name, "--format", "dali", "--force")
    for each in ("02.tar", "02.idx"):
        server.serve(f"/{each}", Path(each).read_bytes())
    for key in ("00b", "01b", "02d", "02e", "03b"):
        assert run("get", key, urls).stdout
        assert tarkit.open(urls, on_problem=lambda line: None).get(key).shard.endswith(f"/{key[:2]}.tar")
    assert "searched 4 inputs, 1 of them by an index" in run("get", "04b", urls, exit=1).stderr


def test_compressed_objects_among_others(server: HttpServer, run: Run, archive: Archive) -> None:
    """They are streams, whatever they are called, and are read one after another."""
    names = []
    for number in range(12):
        name = archive({f"{number:02}.cls": b"%d" % number}, f"{number:02}.tar")
        if number % 3 == 2:
            run("cat", name, "-o", f"z{name}.gz")
            name = f"z{name}.gz"
        suffix = "" if number % 2 else ".gz" * (number % 3 == 2)
        names.append(server.serve(f"/{number:02}.tar{suffix}", Path(name).read_bytes()))
    for number in (0, 2, 5, 8, 11):
        assert run("get", f"{number:02}.cls", *names).stdout == b"%d" % number
    assert "searched 12 inputs\n" in run("get", "12.cls", *names, exit=1).stderr


@each_row("seed", range(6))
def test_a_stale_index_never_takes_fields_from_a_sample(
    seed: int, server: HttpServer, run: Run, archive: Archive, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that were renamed, so that samples begin or end elsewhere: of files and objects, by key and by number."""
    draw = random.Random(seed)
    monkeypatch.setattr("tarkit.indexing.lookup.SHORT", draw.choice((1000, 1 << 16)))
    deep = "deep/" * 30 if draw.random() < 0.3 else ""  # a name that takes an extension header
    fields = [(number, name) for number in range(10, 50) for name in "abc"[: draw.randint(1, 3)]]
    sizes = [draw.choice((0, 30, 3000)) for _ in fields]

    def packed(keys: list[tuple[int, str]]) -> bytes:
        names = [f"{deep * (number % 5 == 0)}{number}.{name}" for number, name in keys]
        return tar([(name, bytes(size)) for name, size in zip(names, sizes, strict=True)], PAX)

    renamed = list(fields)
    for _ in range(draw.randint(1, 3)):  # the last entry of a sample becomes the first of the next one, or back
        at = draw.randrange(1, len(fields) - 1)
        renamed[at] = (renamed[at + draw.choice((-1, 1))][0], f"n{at}")
    samples = [(number, [name for _, name in each]) for number, each in groupby(renamed, lambda entry: entry[0])]
    often = Counter(number for number, _ in samples)
    right = {f"{deep * (number % 5 == 0)}{number}": names for number, names in samples if often[number] == 1}
    format = draw.choice(sorted(FORMATS))
    url = serve(server, run, archive, packed(fields), format)
    index = Path(f"in{FORMATS[format]}")
    changed = packed(renamed)
    server.serve("/a.tar", changed)
    archive(changed)
    os.utime(index, (future := time.time() + 60, future))
    for name in (url, "in.tar"):
        data = tarkit.open(name, allow=["all"], on_problem=lambda text: None)
        try:
            numbered = data.indexed()
        except TarkitError:
            numbered = None
        for key, names in right.items():
            found: list[list[str]] = []
            with suppress(TarkitError):
                found.append(list(data.get(key)))
            with suppress(TarkitError):
                found += [list(numbered[key])] if numbered is not None else []
            assert all(each == names for each in found), (name, key, names, found)


# ---- Access by number and key


@each_row("format", [None, *FORMATS])
def test_indexed(format: str | None, server: HttpServer, run: Run, archive: Archive) -> None:
    """The same samples with an index as by headers; with one, two requests for all, and one for each sample."""
    url = serve(server, run, archive, MEMBERS, *([format] if format else []))
    data = tarkit.open(url).indexed()
    if format:
        found = requests(server)
        assert (found["/a.tar"], found["/a" + FORMATS[format]]) == (1, 1)
    requests(server)
    assert (len(data), data.keys()) == (40, [f"d/{n:02}" for n in range(40)])
    assert [(each.key, dict(each)) for each in data[3:40:9]] == [
        (f"d/{n:02}", {"jpg": dict(MEMBERS)[f"d/{n:02}.jpg"], "cls": b"%d" % n}) for n in range(3, 40, 9)
    ]
    assert requests(server) == {"/a.tar": 5}
    assert data["d/21"]["cls"] == b"21"


def test_indexed_reads_headers_where_the_index_does_not_list_all(
    server: HttpServer, run: Run, archive: Archive
) -> None:
    """Entries without a key, a key that comes back, long names in formats that do not say where headers begin."""
    for members in (
        [*MEMBERS[:6], ("README", b"r"), *MEMBERS[6:]],
        [*MEMBERS[:6], (f"{'long/' * 30}a.cls", b"r"), *MEMBERS[6:]],
    ):
        url = serve(server, run, archive, tar(members, PAX), "dali")
        path = archive(tar(members, PAX))
        data, local = tarkit.open(url).indexed(), tarkit.open(path).indexed()
        assert [(each.key, dict(each)) for each in data] == [(each.key, dict(each)) for each in local]


def test_an_object_that_changes_after_it_was_indexed_is_an_error(
    server: HttpServer, run: Run, archive: Archive
) -> None:
    url = serve(server, run, archive)
    data = tarkit.open(url).indexed()
    server.serve("/a.tar", tar(MEMBERS), etag='"2"')
    with pytest.raises(TarkitError, match="has changed"):
        data[7]


def test_indexed_says_that_an_index_does_not_match(server: HttpServer, run: Run, archive: Archive) -> None:
    """One that is older than the object, or of another archive: the headers are read, and a warning says so."""
    old, new = ({"Last-Modified": formatdate(at, usegmt=True)} for at in (1e9, 1e9 + 60))
    reasons = {"older": "it is older than the shard", "longer": "its length differs", "reversed": "has changed since"}
    for how, reason in reasons.items():
        url = serve(server, run, archive, MEMBERS, "dali", headers=new if how == "older" else {})
        if how == "older":
            server.objects["/a.idx"].headers = old
        else:
            server.serve("/a.tar", _changed(how))
        said: list[str] = []
        data = tarkit.open(url, allow=["all"], on_problem=said.append).indexed()
        assert data["d/17"]["cls"] == b"17"
        assert [line for line in said if "a.idx: index not used: " in line and reason in line] == said[:1], said
        assert said[0].endswith("; tarkit index --format dali makes a new one")
        ran = run("get", "d/17.cls", url)
        assert ran.stdout == b"17"
        assert said[0] in ran.stderr


@each_row("second", [("a.txt", b"2" * 100), ("c.jpg", b"2" * 100)])
def test_indexed_by_the_index_of_an_archive_of_the_same_length(
    second: tuple[str, bytes], server: HttpServer, run: Run, archive: Archive
) -> None:
    """It is believed; a sample that is not that of the index is an error."""
    first, *rest = [(f"{key}.jpg", key.encode() * 100) for key in "ayz"]
    serve(server, run, archive, tar([first, ("b.jpg", b"2" * 100), *rest]), "dali")
    data = tarkit.open(server.serve("/a.tar", tar([first, second, *rest]))).indexed()
    assert data.keys() == ["a", "b", "y", "z"]  # of the index
    for place in (1, "b"):
        with pytest.raises(TarkitError, match="does not match") as raised:
            data[place]
        assert raised.value.hint == "tarkit index makes a new index"
    with pytest.raises(KeyError, match="no sample 'c': 1 of 1 shard was looked up in an index") as missing:
        data["c"]
    assert "tarkit index --verify" in missing.value.hint
    assert [data[key]["jpg"] for key in "yz"] == [b"y" * 100, b"z" * 100]


def test_missing_objects(server: HttpServer, run: Run, archive: Archive) -> None:
    """The error about an object that does not exist says how to go on, and so the sample is found in another one."""
    url = serve(server, run, archive)
    missing = f"{server.url}/none.tar"
    lines = run("get", "d/07.cls", missing, url, exit=1).lines
    assert lines == [f"tarkit: {missing}: No such file or directory", "hint: --skip missing-shard goes on without it"]
    ran = run("get", "d/07.cls", missing, url, "--skip", "missing-shard")
    assert ran.stdout == b"7"
    assert f"{missing}: No such file or directory [missing-shard]" in ran.stderr
    assert "hint" not in run("get", "d/07.cls", missing, exit=1).stderr
