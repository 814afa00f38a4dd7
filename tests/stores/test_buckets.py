"""What is special about s3://, gs:// and az://; what all stores do alike is in `test_contract`."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("obstore")

import tarkit
from tarkit.errors import TarkitError
from tarkit.stores import connect
from tarkit.stores.store import StoreOptions
from tests._tools import each_row
from tests.conftest import tar
from tests.stores._http import HttpServer
from tests.stores._s3 import Bucket
from tests.stores._servers import tarkit_run

DATA = random.Random(7).randbytes(12_000_000)
DATE = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}


@each_row(("scheme", "accepted"), [("s3", "identity"), ("gs", "gzip")])
def test_an_object_with_an_encoding_is_read_as_it_is_stored(scheme: str, accepted: str, server: HttpServer) -> None:
    """`Content-Encoding: gzip` is that of the name of a shard, or of a program that uploaded it: nothing is decoded."""
    options = StoreOptions(endpoint_url=server.url, anonymous=True, retries=0, timeout=5)
    for size in (1000, 3_000_000):
        data = gzip.compress(DATA[:size], 0)
        server.serve("/bucket/a", data, headers={**DATE, "Content-Encoding": "gzip"})
        assert connect.read_object(f"{scheme}://bucket/a", options)[0] == data
    assert {headers["accept-encoding"] for _, _, headers in server.log} == {accepted}
    server.log.clear()


def test_a_reply_that_is_longer_than_it_says(server: HttpServer) -> None:
    """As of a server that decodes what it sends: an error, and never the first bytes of it."""
    head = 'HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-999/1000\r\nContent-Length: 1004\r\nETag: "1"\r\n'
    server.serve("/bucket/a", raw=f"{head}Last-Modified: {DATE['Last-Modified']}\r\n\r\n".encode() + bytes(1004))
    options = StoreOptions(endpoint_url=server.url, anonymous=True, retries=0, timeout=5)
    with pytest.raises(TarkitError, match="more bytes than it says"):
        connect.read_object("s3://bucket/a", options)


def test_anonymous_requests_to_google(bucket: Bucket) -> None:
    """They need no credentials, also to write."""
    nobody = StoreOptions(endpoint_url=bucket.server.url, anonymous=True, retries=0, timeout=5)
    for size in (10, 12_000_000):
        upload = connect.create_object(f"gs://bucket/{size}", options=nobody)
        upload.write(DATA[:size])
        upload.close()
        assert connect.read_object(f"gs://bucket/{size}", nobody)[0] == DATA[:size]


@each_row("url", ["s3://bucket/a.tar", "gs://bucket/a.tar", "az://bucket/a.tar"])
def test_no_credentials(url: str, server: HttpServer, here: Path) -> None:
    """They are missing, and not refused."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(here), "AZURE_STORAGE_ACCOUNT_NAME": "name"}
    for words in (["cat", url, "-o", "-"], ["cat", "-", "-o", url]):
        text = tar({"a.txt": b"x"}).decode()
        ran = tarkit_run(*words, "--endpoint-url", server.url, exit=1, env=environ, input=text)
        assert "no credentials" in ran.stderr
        assert "\nhint: set " in ran.stderr


def test_an_input_is_never_an_output(bucket: Bucket) -> None:
    """As with files: neither one object, nor the shards of a series, also with --force."""
    url = bucket.url
    Path("recipe").write_text("".join(f"{n}.txt text:{n}\n" for n in range(9)))
    tarkit_run("create", "recipe", "-o", f"{url}a.tar")
    tarkit_run("split", f"{url}a.tar", "-c", "4", "-o", f"{url}s-%d.tar")
    for words in (f"cat {url}a.tar -o {url}a.tar", f"sort {url}*.tar -o {url}s-1.tar"):
        said = tarkit_run(*words.split(), "--allow", "repeated-key", exit=2).stderr
        assert "is both input and output" in said
    words = f"split {url}s-*.tar -c 2 -o {url}s-%d.tar --force"
    assert "is an input, and has a name that the shards may get" in tarkit_run(*words.split(), exit=2).stderr
    assert tarkit_run("stats", f"{url}s-*.tar", "--total").stdout == "9\n"
    assert "not a directory" in tarkit_run("cat", f"{url}a.tar", "-o", url, exit=2).stderr


def test_shards_have_checksums(bucket: Bucket) -> None:
    """Those of the objects, in Python and in a manifest, plain and compressed."""
    connect.create_object(f"{bucket.url}x").close()  # the process has the threads of obstore: it lists without a copy
    Path("recipe").write_text("".join(f"{n}.txt text:{n}\n" for n in range(9)))
    tarkit_run("create", "recipe", "-o", "a.tar")
    for suffix in ("tar", "tar.zst", "zip"):
        shards = tarkit.open("a.tar").split(f"{bucket.url}s-%d.{suffix}", count=4)
        for shard in shards:
            data = bucket.get(shard.name.removeprefix(bucket.url))
            assert (shard.sha256, shard.stored) == (hashlib.sha256(data).hexdigest(), len(data))
        tarkit_run("split", "a.tar", "-c", "4", "-o", f"{bucket.url}m-%d.{suffix}", "--manifest", "m.tsv")
        rows = [line.split("\t") for line in Path("m.tsv").read_text().splitlines()[1:]]
        assert [(row[2], row[3]) for row in rows] == [(str(shard.stored), shard.sha256) for shard in shards]


def test_hints_for_objects_that_do_not_exist(bucket: Bucket) -> None:
    missing = f"tarkit: {bucket.url}none.tar: No such file or directory\n"
    assert tarkit_run("stats", f"{bucket.url}none.tar", exit=1).stderr == missing
    hint = f"hint: a directory ends in a slash: {bucket.url}none/\n"
    assert tarkit_run("stats", f"{bucket.url}none", exit=1).stderr.endswith(hint)


def test_credentials_that_may_write_and_not_read(bucket: Bucket) -> None:
    """Then nothing is compared."""
    bucket.server.fault = lambda request: "403" if request.what in ("head", "get") else None
    upload = connect.create_object(f"{bucket.url}a", options=replace(StoreOptions(), retries=0))
    upload.write(b"x")
    upload.close()
    assert bucket.get("a") == b"x"
