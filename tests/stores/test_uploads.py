"""Uploads to s3:// while other runs write and the server fails: one clear end, and nothing of others is touched.

A row with a seed draws a run: what is written, on which conditions, what goes wrong. The server knows who wrote what.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from tarkit.errors import TarkitError
from tarkit.stores import connect, objects
from tarkit.stores import upload as upload_module
from tarkit.stores.store import StoreOptions, Unconfirmed
from tests._tools import ROUNDS, TARKIT, archive, each_row
from tests.conftest import tarkit
from tests.stores._s3 import Request, S3Server

LARGE = random.Random(7).randbytes(12_000_000)
URL, NAME = "s3://bucket/a.tar", "bucket/a.tar"
STEPS = ("put", "create", "part", "complete", "abort", "head", "delete")
FAULTS = ("503", "500", "close", "error", "403", "404", "501", "done 503", "done 500", "done close", "done error")


@pytest.fixture
def server(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    monkeypatch.setattr(objects, "PART", 5 << 20)
    return s3


class Faults:
    """Faults of a few requests of some kinds."""

    def __init__(self, pick: random.Random) -> None:
        self.chosen = {step: pick.choice(FAULTS) for step in pick.sample(STEPS, pick.randrange(1, 3))}
        self.times = pick.choice([1, 1, 2, 99])

    def __call__(self, request: Request) -> str | None:
        if request.what not in self.chosen or self.times <= 0:
            return None
        self.times -= 1
        return self.chosen[request.what]


def write(server: S3Server, data: bytes, fresh: bool, retries: int = 2) -> upload_module.RemoteUpload:
    options = StoreOptions(endpoint_url=server.url, retries=retries, timeout=5, warn=lambda line: None)
    upload = connect.create_object(URL, fresh, options)
    for start in range(0, len(data), 1 << 20):
        upload.write(data[start : start + (1 << 20)])
    upload.close()
    return upload


def completes(request: Request) -> bool:
    """Whether a request is the one that makes an object appear."""
    return request.what in ("put", "complete")


def outcome(action: Callable[[], object]) -> BaseException | None:
    """The error of a write, which is one line."""
    found: BaseException | None = None
    try:
        action()
    except (TarkitError, OSError) as error:
        found = error
    for word in ("uploadId", "Debug source", "http://", "\n"):
        assert word not in str(found)
    return found


@each_row("seed", range(20 * ROUNDS))
def test_one_upload_under_faults(seed: int, server: S3Server) -> None:
    """An object is there if no error says otherwise; after an error nothing is, or the message says that it is."""
    pick = random.Random(seed)
    data = LARGE if pick.random() < 0.6 else LARGE[: pick.choice([0, 1000])]
    fresh, there = pick.random() < 0.6, pick.random() < 0.4
    server.objects.clear()
    server.uploads.clear()
    before = {NAME: (b"theirs", '"theirs"', {})} if there else {}
    server.objects |= before
    server.conditional, server.metadata = pick.random() < 0.8, pick.random() < 0.8
    server.fault = faults = Faults(pick)
    objects._creating.clear()
    error = outcome(lambda: write(server, data, fresh, pick.choice([0, 2])))
    found = server.objects.get(NAME)
    said = f"{faults.chosen}: {error}"
    if error is None:
        assert found is not None, said
        assert found[0] == data, said
        assert not (fresh and there), said
    elif found is not None and found[0] == data:
        assert isinstance(error, Unconfirmed), said
        assert "not written" not in str(error), said
    else:
        assert server.objects == (before if fresh or found is not None else {}), said
    if fresh and there:
        assert server.objects == before, said
    if "abort" not in faults.chosen and "complete" not in faults.chosen and "create" not in faults.chosen:
        assert not server.uploads, said


@each_row("lost,fresh,times", [("close", True, 1), ("503", True, 9), ("503", False, 1), ("close", False, 9)])
@each_row("size", [0, 1000, 12_000_000])
def test_a_lost_reply(size: int, lost: str, fresh: bool, times: int, server: S3Server) -> None:
    """What was written is there, although the server said so to nobody, or says that it exists."""
    replies: list[str] = []

    def lose(request: Request) -> str | None:
        if not completes(request) or len(replies) == times:
            return None
        replies.append(request.key)
        return f"done {lost}"

    server.objects.clear()
    server.fault = lose
    write(server, LARGE[:size], fresh)
    assert replies
    assert server.objects[NAME][0] == LARGE[:size]


@each_row("first", ["", "head"])
def test_parts_that_replace_an_object(first: str, server: S3Server) -> None:
    """An object of the same length that was there before is not taken for what was written."""
    server.objects[NAME] = before = (bytes(len(LARGE)), '"theirs"', {})
    refused: list[str] = []

    def refuse(request: Request) -> str | None:
        if not completes(request) and (refused or request.what != first):
            return None
        refused.append(request.what)
        return "503"

    server.fault = refuse
    error = outcome(lambda: write(server, LARGE, False))
    assert "the server answers 503" in str(error)
    assert refused
    assert server.objects[NAME] == before


@each_row("size", [0, len(LARGE)])
@each_row("stored", [None, b"less"])
def test_a_server_that_stores_something_else(size: int, stored: bytes | None, server: S3Server) -> None:
    """Nothing, or another object; it answers 200 all the same."""
    done: list[str] = []

    def forget(request: Request) -> None:
        done.append(request.what)
        if request.what == "head" and {"put", "complete"} & set(done):
            server.objects.clear()
            server.objects |= {} if stored is None else {NAME: (stored, '"other"', {})}

    server.objects.clear()
    server.fault = forget
    said = "the server does not find" if stored is None else f"4 bytes .* {size} were sent; it is there"
    with pytest.raises(Unconfirmed, match=said):
        write(server, LARGE[:size], True)


@each_row("large", [False, True])
@each_row("theirs", [b"other", LARGE[::-1]])
def test_another_writer_is_first(large: bool, theirs: bytes, server: S3Server) -> None:
    """Between the look for an object and the request that completes: theirs stays, with parts too."""
    data = LARGE if large else LARGE[:1000]

    def intrude(request: Request) -> None:
        if request.what == ("complete" if large else "put"):
            server.objects.setdefault(request.key, (theirs, '"theirs"', {}))

    server.objects.clear()
    server.fault = intrude
    error = outcome(lambda: write(server, data, True))
    assert str(error) == f"{URL}: this object exists"
    assert server.objects[NAME][0] == theirs
    assert not server.uploads


@each_row("refused", ["create", "part", "abort"])
def test_a_server_without_conditions_for_parts(refused: str, server: S3Server) -> None:
    """It refuses the header that only the last request needs: parts are sent without it."""
    objects._creating.clear()
    server.objects.clear()
    server.log.clear()
    server.fault = lambda request: "501" if request.what == refused and "if-none-match" in request.headers else None
    write(server, LARGE, True, 0)
    assert server.objects[NAME][0] == LARGE
    assert [request.headers.get("if-none-match") for request in server.log if request.what == "complete"] == [None]
    server.log.clear()
    del server.objects[NAME]
    write(server, LARGE, True, 0)
    assert sum(request.what == "create" for request in server.log) == 1
    assert server.objects.pop(NAME)[0] == LARGE


def test_what_another_writer_wrote_is_not_removed(server: S3Server) -> None:
    """`withdraw` removes one's own alone, also where both have the same bytes."""
    for data in (LARGE[:1000], LARGE):
        for replaced in (None, data, b"other"):
            server.objects.clear()
            upload = write(server, data, True, 0)
            if replaced is not None:
                other = write(server, replaced, False, 0)
                assert upload.withdraw() is False
                assert server.objects[NAME][0] == replaced
                upload = other
            assert upload.withdraw() is True
            assert not server.objects


@each_row("seed", range(2 * ROUNDS))
def test_two_runs_of_one_series(seed: int, server: S3Server, here: Path) -> None:
    """The run that ends with status 0 has all its shards; the other removes none of them."""
    pick = random.Random(seed)
    same, size = pick.random() < 0.4, pick.choice([100, 9_000_000])
    for who in "ab":
        fill = random.Random("a" if same else who)
        (here / f"{who}.tar").write_bytes(archive([(f"{n}.bin", fill.randbytes(size)) for n in range(3)]))
    server.objects.clear()
    waits = pick.sample(range(3), 2)
    server.fault = lambda request: None
    slow = pick.choice(["put", "complete", "head", "create"])

    def fault(request: Request) -> str | None:
        if request.who == "b" and request.what == slow and any(f"s-{n}.tar" in request.key for n in waits):
            done["a"].wait(20)
        if request.who == "b" and request.what in ("put", "complete") and pick.random() < 0.2:
            return "503"
        return None

    server.fault = fault
    words = ("-c", "1", "-o", "s3://bucket/s-%d.tar", "--endpoint-url", server.url, "--net-retries", "0")
    done: dict[str, subprocess.Popen[str]] = {}
    for who in "ba":
        env = {**os.environ, "AWS_ACCESS_KEY_ID": who}
        command = [*TARKIT, "split", f"{who}.tar", *words]
        done[who] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    said = {who: process.communicate(timeout=60)[1] for who, process in done.items()}
    for who, process in done.items():
        assert "Traceback" not in said[who]
        if process.returncode == 0:
            tarkit("split", f"{who}.tar", "-c", "1", "-o", f"{who}-%d.tar")
            for n in range(3):
                found = server.objects.get(f"bucket/s-{n}.tar")
                assert found is not None, (said, slow)
                assert found[0] == (here / f"{who}-{n}.tar").read_bytes(), (said, slow)
