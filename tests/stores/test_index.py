"""Indexes of objects: written beside them, verified, and the same as those of files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("obstore")

from tests._tools import each_row
from tests.conftest import Ran, tar, tarkit
from tests.stores._http import http_server
from tests.stores._s3 import Bucket

FIELDS = {"jpg": bytes(9000), "cls": bytes(1)}
SHARDS = {
    f"train-{shard}.tar": tar(
        {f"{shard}{number:02}.{field}": data for number in range(30) for field, data in FIELDS.items()}
    )
    for shard in range(3)
}
LOCAL = ("dali", "energon", "webshart", "tsv", "wids")


@pytest.fixture
def bucket(bucket: Bucket) -> Bucket:
    """The shards in a bucket, and here."""
    for name, data in SHARDS.items():
        bucket.put(name, data)
        Path(name).write_bytes(data)
    return bucket


def run(*words: str) -> Ran:
    return tarkit(*(word.replace("BUCKET", "s3://bucket/d") for word in words), exit=None)


@each_row("processes", ["1", "3"])
def test_indexes_are_written_beside_the_objects(processes: str, bucket: Bucket) -> None:
    """The same bytes as beside files, and no fault in them."""
    formats = ",".join(LOCAL)
    ran = run("index", "BUCKET/train-*.tar", "--format", formats, "--md5", "-p", processes)
    assert ran.status == 0, ran.stderr
    local = run("index", *SHARDS, "--format", formats, "--md5")
    assert local.status == 0, local.stderr
    written = {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    assert {name: bucket.get(name) for name in bucket.names()} == written
    for words in ([], ["--format", formats]):
        ran = run("index", "BUCKET/train-*.tar", "--verify", "-p", processes, *words)
        assert (ran.status, ran.stdout) == (0, b""), ran.stderr


def test_faults_of_indexes_of_objects(bucket: Bucket) -> None:
    assert "no index to verify" in run("index", "BUCKET/train-0.tar", "--verify").stderr
    run("index", "BUCKET/train-0.tar", "BUCKET/train-1.tar", "--format", "dali,wids")
    bucket.put("train-0.tar", SHARDS["train-1.tar"])
    ran = run("index", "BUCKET/train-0.tar", "BUCKET/train-2.tar", "--verify")
    assert ran.status == 1
    assert b"/train-0.idx: sample 0: " in ran.stdout
    assert b"/shardindex.json: train-2.tar is not in the index" in ran.stdout
    ran = run("index", "BUCKET/train-2.tar", "--format", "dali", "--verify")
    assert b"no index" in ran.stdout


def test_other_objects_are_not_replaced(bucket: Bucket) -> None:
    bucket.put("train-0.idx", b"my notes")
    ran = run("index", "BUCKET/train-0.tar", "--format", "dali")
    assert ran.status == 1
    assert "train-0.idx: the object exists and is not a dali index" in ran.stderr
    assert bucket.get("train-0.idx") == b"my notes"
    for _ in range(2):
        assert run("index", "BUCKET/train-0.tar", "--format", "dali", "--force").status == 0
    assert bucket.get("train-0.idx").startswith(b"v1.2 30\n")
    assert run("index", "BUCKET/train-0.tar", "--format", "dali").status == 0


def test_places_of_indexes(bucket: Bucket) -> None:
    """One index by its name, several in a directory of a store or of this machine."""
    assert run("index", "train-0.tar", "--format", "tsv", "-o", "BUCKET/x.tsv").status == 0
    run("index", "BUCKET/train-0.tar", "--format", "tsv", "-o", "x.tsv")
    assert bucket.get("x.tsv") == (Path("x.tsv")).read_bytes()
    ran = run("index", "BUCKET/train-0.tar", "BUCKET/train-1.tar", "--format", "dali", "-o", "BUCKET/idx/")
    assert ran.status == 0, ran.stderr
    assert {"idx/train-0.idx", "idx/train-1.idx"} <= set(bucket.names())
    (Path("here")).mkdir()
    assert run("index", "BUCKET/train-0.tar", "--format", "dali", "-o", "here/").status == 0
    assert (Path() / "here/train-0.idx").read_bytes() == bucket.get("idx/train-0.idx")


def test_what_cannot_be_written_is_an_error(bucket: Bucket) -> None:
    with http_server() as server:
        url = server.serve("/a.tar", SHARDS["train-0.tar"])
        ran = run("index", url, "--format", "dali")
        assert ran.status != 0
        assert "objects of this store cannot be written" in ran.stderr
        (Path("here")).mkdir()
        assert run("index", url, "--format", "dali", "-o", "here/").status == 0
        assert (Path() / "here/a.idx").read_bytes().startswith(b"v1.2 30\n")


def test_verify_reads_a_shard_once_for_all_formats(bucket: Bucket) -> None:
    """Several formats take as many requests for the shard as one."""
    formats = ",".join(LOCAL)
    assert run("index", "BUCKET/train-0.tar", "--format", formats).status == 0
    counts, log = [], bucket.server.log
    for chosen in ("dali", "wids", formats):
        log.clear()
        assert run("index", "BUCKET/train-0.tar", "--verify", "--format", chosen).status == 0
        counts.append(sum(request.key.endswith("train-0.tar") for request in log))
    assert counts[0] == counts[1] == counts[2] > 0
