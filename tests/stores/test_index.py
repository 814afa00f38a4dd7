"""Indexes of objects: written beside them, verified, and the same as those of files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from tests._tools import TARKIT, each_row
from tests.conftest import tar
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


def run(*words: str) -> subprocess.CompletedProcess[bytes]:
    words = tuple(word.replace("BUCKET", "s3://bucket/d") for word in words)
    return subprocess.run([*TARKIT, *words], capture_output=True, timeout=60, check=False)


@each_row("processes", ["1", "3"])
def test_indexes_are_written_beside_the_objects(processes: str, bucket: Bucket) -> None:
    """The same bytes as beside files, and no fault in them."""
    formats = ",".join(LOCAL)
    ran = run("index", "BUCKET/train-*.tar", "--format", formats, "--md5", "-p", processes)
    assert ran.returncode == 0, ran.stderr
    local = run("index", *SHARDS, "--format", formats, "--md5")
    assert local.returncode == 0, local.stderr
    written = {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    assert {name: bucket.get(name) for name in bucket.names()} == written
    for words in ([], ["--format", formats]):
        ran = run("index", "BUCKET/train-*.tar", "--verify", "-p", processes, *words)
        assert (ran.returncode, ran.stdout) == (0, b""), ran.stderr


def test_faults_of_indexes_of_objects(bucket: Bucket) -> None:
    assert b"no index to verify" in run("index", "BUCKET/train-0.tar", "--verify").stderr
    run("index", "BUCKET/train-0.tar", "BUCKET/train-1.tar", "--format", "dali,wids")
    bucket.put("train-0.tar", SHARDS["train-1.tar"])
    ran = run("index", "BUCKET/train-0.tar", "BUCKET/train-2.tar", "--verify")
    assert ran.returncode == 1
    assert b"/train-0.idx: sample 0: " in ran.stdout
    assert b"/shardindex.json: train-2.tar is not in the index" in ran.stdout
    ran = run("index", "BUCKET/train-2.tar", "--format", "dali", "--verify")
    assert b"no index" in ran.stdout


def test_other_objects_are_not_replaced(bucket: Bucket) -> None:
    bucket.put("train-0.idx", b"my notes")
    ran = run("index", "BUCKET/train-0.tar", "--format", "dali")
    assert ran.returncode == 1
    assert b"train-0.idx: the object exists and is not a dali index" in ran.stderr
    assert bucket.get("train-0.idx") == b"my notes"
    for _ in range(2):
        assert run("index", "BUCKET/train-0.tar", "--format", "dali", "--force").returncode == 0
    assert bucket.get("train-0.idx").startswith(b"v1.2 30\n")
    assert run("index", "BUCKET/train-0.tar", "--format", "dali").returncode == 0


def test_places_of_indexes(bucket: Bucket) -> None:
    """One index by its name, several in a directory of a store or of this machine."""
    assert run("index", "train-0.tar", "--format", "tsv", "-o", "BUCKET/x.tsv").returncode == 0
    run("index", "BUCKET/train-0.tar", "--format", "tsv", "-o", "x.tsv")
    assert bucket.get("x.tsv") == (Path("x.tsv")).read_bytes()
    ran = run("index", "BUCKET/train-0.tar", "BUCKET/train-1.tar", "--format", "dali", "-o", "BUCKET/idx/")
    assert ran.returncode == 0, ran.stderr
    assert {"idx/train-0.idx", "idx/train-1.idx"} <= set(bucket.names())
    (Path("here")).mkdir()
    assert run("index", "BUCKET/train-0.tar", "--format", "dali", "-o", "here/").returncode == 0
    assert (Path() / "here/train-0.idx").read_bytes() == bucket.get("idx/train-0.idx")


def test_a_damaged_object_gets_no_index(bucket: Bucket) -> None:
    bucket.put("train-0.tar", SHARDS["train-0.tar"][:100_000])
    assert run("index", "BUCKET/train-0.tar", "--format", "dali").returncode == 1
    assert "train-0.idx" not in bucket.names()


def test_a_wids_index_of_objects_lies_in_their_directory(bucket: Bucket) -> None:
    ran = run("index", "BUCKET/train-0.tar", "--format", "wids", "-o", "list.json")
    assert ran.returncode != 0
    run("index", "BUCKET/train-0.tar", "--format", "wids")
    assert [each["url"] for each in json.loads(bucket.get("shardindex.json"))["shardlist"]] == ["train-0.tar"]


def test_get_uses_the_index_of_an_object(bucket: Bucket) -> None:
    run("index", "BUCKET/train-1.tar", "--format", "dali")
    ran = run("get", "117.cls", "BUCKET/train-1.tar", "-v")
    assert (ran.stdout, ran.returncode) == (bytes(1), 0)
    assert b"looked up in s3://bucket/" in ran.stderr
    for words in (["shuffle", "--seed", "7"], ["sort", "--reverse"]):
        remote, local = (run(*words, name, "-o", "-") for name in ("BUCKET/train-1.tar", "train-1.tar"))
        assert remote.stdout == local.stdout


def test_what_cannot_be_written_is_an_error(bucket: Bucket) -> None:
    with http_server() as server:
        url = server.serve("/a.tar", SHARDS["train-0.tar"])
        ran = run("index", url, "--format", "dali")
        assert ran.returncode != 0
        assert b"objects of this store cannot be written" in ran.stderr
        (Path("here")).mkdir()
        assert run("index", url, "--format", "dali", "-o", "here/").returncode == 0
        assert (Path() / "here/a.idx").read_bytes().startswith(b"v1.2 30\n")


def test_verify_reads_a_shard_once_for_all_formats(bucket: Bucket) -> None:
    """Several formats take as many requests for the shard as one."""
    formats = ",".join(LOCAL)
    assert run("index", "BUCKET/train-0.tar", "--format", formats).returncode == 0
    counts, log = [], bucket.server.log
    for chosen in ("dali", "wids", formats):
        log.clear()
        assert run("index", "BUCKET/train-0.tar", "--verify", "--format", chosen).returncode == 0
        counts.append(sum(request.key.endswith("train-0.tar") for request in log))
    assert counts[0] == counts[1] == counts[2] > 0
