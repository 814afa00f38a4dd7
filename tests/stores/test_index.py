"""Indexes of objects: written beside them, verified, and the same as those of files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore")
boto3 = pytest.importorskip("boto3")

from tests._tools import TARKIT, each_row
from tests.conftest import tar
from tests.stores._http import http_server
from tests.stores._servers import KEYS, forwarding, moto

FIELDS = {"jpg": bytes(9000), "cls": bytes(1)}
SHARDS = {
    f"train-{shard}.tar": tar(
        {f"{shard}{number:02}.{field}": data for number in range(30) for field, data in FIELDS.items()}
    )
    for shard in range(3)
}
LOCAL = ("dali", "energon", "webshart", "tsv", "wids")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto() as url:
        yield url


class Bucket:
    """The shards in a bucket, and commands over them."""

    def __init__(self, endpoint: str, directory: Path, prefix: str) -> None:
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="key",
            aws_secret_access_key="s3cret",
            region_name="us-east-1",
        )
        self.prefix, self.directory = prefix, directory
        self.environment = {**os.environ, **KEYS, "AWS_ENDPOINT_URL": endpoint, "HOME": str(directory)}
        for name, data in SHARDS.items():
            self.put(name, data)
            (directory / name).write_bytes(data)

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket="bucket", Key=f"{self.prefix}/{name}", Body=data)

    def get(self, name: str) -> bytes:
        body: bytes = self.client.get_object(Bucket="bucket", Key=f"{self.prefix}/{name}")["Body"].read()
        return body

    def names(self) -> list[str]:
        listed = self.client.list_objects_v2(Bucket="bucket", Prefix=f"{self.prefix}/")["Contents"]
        return [each["Key"].removeprefix(f"{self.prefix}/") for each in listed]

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        words = tuple(word.replace("BUCKET", f"s3://bucket/{self.prefix}") for word in words)
        return subprocess.run(
            [*TARKIT, *words], cwd=self.directory, env=self.environment, capture_output=True, timeout=60, check=False
        )


@pytest.fixture
def bucket(endpoint: str, tmp_path: Path) -> Bucket:
    return Bucket(endpoint, tmp_path, tmp_path.name)


@each_row("processes", ["1", "3"])
def test_indexes_are_written_beside_the_objects(processes: str, bucket: Bucket) -> None:
    """The same bytes as beside files, and no fault in them."""
    formats = ",".join(LOCAL)
    ran = bucket.run("index", "BUCKET/train-*.tar", "--format", formats, "--md5", "-p", processes)
    assert ran.returncode == 0, ran.stderr
    local = bucket.run("index", *SHARDS, "--format", formats, "--md5")
    assert local.returncode == 0, local.stderr
    written = {path.name: path.read_bytes() for path in bucket.directory.iterdir() if path.is_file()}
    assert {name: bucket.get(name) for name in bucket.names()} == written
    for words in ([], ["--format", formats]):
        ran = bucket.run("index", "BUCKET/train-*.tar", "--verify", "-p", processes, *words)
        assert (ran.returncode, ran.stdout) == (0, b""), ran.stderr


def test_faults_of_indexes_of_objects(bucket: Bucket) -> None:
    assert b"no index to verify" in bucket.run("index", "BUCKET/train-0.tar", "--verify").stderr
    bucket.run("index", "BUCKET/train-0.tar", "BUCKET/train-1.tar", "--format", "dali,wids")
    bucket.put("train-0.tar", SHARDS["train-1.tar"])
    ran = bucket.run("index", "BUCKET/train-0.tar", "BUCKET/train-2.tar", "--verify")
    assert ran.returncode == 1
    assert b"/train-0.idx: sample 0: " in ran.stdout
    assert b"/shardindex.json: train-2.tar is not in the index" in ran.stdout
    ran = bucket.run("index", "BUCKET/train-2.tar", "--format", "dali", "--verify")
    assert b"no index" in ran.stdout


def test_other_objects_are_not_replaced(bucket: Bucket) -> None:
    bucket.put("train-0.idx", b"my notes")
    ran = bucket.run("index", "BUCKET/train-0.tar", "--format", "dali")
    assert ran.returncode == 1
    assert b"train-0.idx: the object exists and is not a dali index" in ran.stderr
    assert bucket.get("train-0.idx") == b"my notes"
    for _ in range(2):
        assert bucket.run("index", "BUCKET/train-0.tar", "--format", "dali", "--force").returncode == 0
    assert bucket.get("train-0.idx").startswith(b"v1.2 30\n")
    assert bucket.run("index", "BUCKET/train-0.tar", "--format", "dali").returncode == 0


def test_places_of_indexes(bucket: Bucket) -> None:
    """One index by its name, several in a directory of a store or of this machine."""
    assert bucket.run("index", "train-0.tar", "--format", "tsv", "-o", "BUCKET/x.tsv").returncode == 0
    bucket.run("index", "BUCKET/train-0.tar", "--format", "tsv", "-o", "x.tsv")
    assert bucket.get("x.tsv") == (bucket.directory / "x.tsv").read_bytes()
    ran = bucket.run("index", "BUCKET/train-0.tar", "BUCKET/train-1.tar", "--format", "dali", "-o", "BUCKET/idx/")
    assert ran.returncode == 0, ran.stderr
    assert {"idx/train-0.idx", "idx/train-1.idx"} <= set(bucket.names())
    (bucket.directory / "here").mkdir()
    assert bucket.run("index", "BUCKET/train-0.tar", "--format", "dali", "-o", "here/").returncode == 0
    assert (bucket.directory / "here/train-0.idx").read_bytes() == bucket.get("idx/train-0.idx")


def test_a_damaged_object_gets_no_index(bucket: Bucket) -> None:
    bucket.put("train-0.tar", SHARDS["train-0.tar"][:100_000])
    assert bucket.run("index", "BUCKET/train-0.tar", "--format", "dali").returncode == 1
    assert "train-0.idx" not in bucket.names()


def test_a_wids_index_of_objects_lies_in_their_directory(bucket: Bucket) -> None:
    ran = bucket.run("index", "BUCKET/train-0.tar", "--format", "wids", "-o", "list.json")
    assert ran.returncode != 0
    bucket.run("index", "BUCKET/train-0.tar", "--format", "wids")
    assert [each["url"] for each in json.loads(bucket.get("shardindex.json"))["shardlist"]] == ["train-0.tar"]


def test_get_uses_the_index_of_an_object(bucket: Bucket) -> None:
    bucket.run("index", "BUCKET/train-1.tar", "--format", "dali")
    ran = bucket.run("get", "117.cls", "BUCKET/train-1.tar", "-v")
    assert (ran.stdout, ran.returncode) == (bytes(1), 0)
    assert b"looked up in s3://bucket/" in ran.stderr
    for words in (["shuffle", "--seed", "7"], ["sort", "--reverse"]):
        remote, local = (bucket.run(*words, name, "-o", "-") for name in ("BUCKET/train-1.tar", "train-1.tar"))
        assert remote.stdout == local.stdout


def test_what_cannot_be_written_is_an_error(bucket: Bucket) -> None:
    with http_server() as server:
        url = server.serve("/a.tar", SHARDS["train-0.tar"])
        ran = bucket.run("index", url, "--format", "dali")
        assert ran.returncode != 0
        assert b"objects of this store cannot be written" in ran.stderr
        (bucket.directory / "here").mkdir()
        assert bucket.run("index", url, "--format", "dali", "-o", "here/").returncode == 0
        assert (bucket.directory / "here/a.idx").read_bytes().startswith(b"v1.2 30\n")


def test_verify_reads_a_shard_once_for_all_formats(bucket: Bucket) -> None:
    """Several formats take as many requests for the shard as one."""
    formats = ",".join(LOCAL)
    assert bucket.run("index", "BUCKET/train-0.tar", "--format", formats).returncode == 0
    seen: list[str] = []

    def note(method: str, path: str) -> None:
        seen.append(path.partition("?")[0].rpartition("/")[2])

    counts = []
    with forwarding(bucket.environment["AWS_ENDPOINT_URL"], note) as url:
        bucket.environment["AWS_ENDPOINT_URL"] = url
        for chosen in ("dali", "wids", formats):
            seen.clear()
            assert bucket.run("index", "BUCKET/train-0.tar", "--verify", "--format", chosen).returncode == 0
            counts.append(seen.count("train-0.tar"))
    assert counts[0] == counts[1] == counts[2] > 0
