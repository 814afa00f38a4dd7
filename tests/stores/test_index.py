"""Indexes of objects: written beside them, verified, and the same as those of files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("obstore")

from tests._tools import each_row
from tests.conftest import Ran, tar, tarkit
from tests.stores._http import HttpServer
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


def run(*words: str, exit: int = 0) -> Ran:
    return tarkit(*(word.replace("BUCKET", "s3://bucket/d") for word in words), exit=exit)


@each_row("processes", ["1", "3"])
def test_indexes_are_written_beside_the_objects(processes: str, bucket: Bucket) -> None:
    """The same bytes as beside files, and no fault in them."""
    formats = ",".join(LOCAL)
    run("index", "BUCKET/train-*.tar", "--format", formats, "--md5", "-p", processes)
    run("index", *SHARDS, "--format", formats, "--md5")
    written = {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    assert {name: bucket.get(name) for name in bucket.names()} == written
    for words in ([], ["--format", formats]):
        assert run("index", "BUCKET/train-*.tar", "--verify", "-p", processes, *words).stdout == b""


def test_faults_of_indexes_of_objects(bucket: Bucket) -> None:
    assert "no index to verify" in run("index", "BUCKET/train-0.tar", "--verify", exit=1).stderr
    run("index", "BUCKET/train-0.tar", "BUCKET/train-1.tar", "--format", "dali,wids")
    bucket.put("train-0.tar", SHARDS["train-1.tar"])
    found = run("index", "BUCKET/train-0.tar", "BUCKET/train-2.tar", "--verify", exit=1).stdout
    assert b"/train-0.idx: sample 0: " in found
    assert b"/shardindex.json: train-2.tar is not in the index" in found
    assert b"no index" in run("index", "BUCKET/train-2.tar", "--format", "dali", "--verify", exit=1).stdout


def test_other_objects_are_not_replaced(bucket: Bucket) -> None:
    bucket.put("train-0.idx", b"my notes")
    said = run("index", "BUCKET/train-0.tar", "--format", "dali", exit=1).stderr
    assert "train-0.idx: the object exists and is not a dali index" in said
    assert bucket.get("train-0.idx") == b"my notes"
    for _ in range(2):
        run("index", "BUCKET/train-0.tar", "--format", "dali", "--force")
    assert bucket.get("train-0.idx").startswith(b"v1.2 30\n")
    run("index", "BUCKET/train-0.tar", "--format", "dali")


def test_places_of_indexes(bucket: Bucket) -> None:
    """One index by its name, several in a directory of a store or of this machine."""
    run("index", "train-0.tar", "--format", "tsv", "-o", "BUCKET/x.tsv")
    run("index", "BUCKET/train-0.tar", "--format", "tsv", "-o", "x.tsv")
    assert bucket.get("x.tsv") == Path("x.tsv").read_bytes()
    run("index", "BUCKET/train-0.tar", "BUCKET/train-1.tar", "--format", "dali", "-o", "BUCKET/idx/")
    assert {"idx/train-0.idx", "idx/train-1.idx"} <= set(bucket.names())
    Path("here").mkdir()
    run("index", "BUCKET/train-0.tar", "--format", "dali", "-o", "here/")
    assert Path("here/train-0.idx").read_bytes() == bucket.get("idx/train-0.idx")


def test_what_cannot_be_written_is_an_error(server: HttpServer, here: Path) -> None:
    url = server.serve("/a.tar", SHARDS["train-0.tar"])
    assert "objects of this store cannot be written" in run("index", url, "--format", "dali", exit=1).stderr
    Path("here").mkdir()
    run("index", url, "--format", "dali", "-o", "here/")
    assert Path("here/a.idx").read_bytes().startswith(b"v1.2 30\n")


def test_verify_reads_a_shard_once_for_all_formats(bucket: Bucket) -> None:
    """Several formats take as many requests for the shard as one."""
    formats = ",".join(LOCAL)
    run("index", "BUCKET/train-0.tar", "--format", formats)
    counts, log = [], bucket.server.log
    for chosen in ("dali", "wids", formats):
        log.clear()
        run("index", "BUCKET/train-0.tar", "--verify", "--format", chosen)
        counts.append(sum(request.key.endswith("train-0.tar") for request in log))
    assert counts[0] == counts[1] == counts[2] > 0
