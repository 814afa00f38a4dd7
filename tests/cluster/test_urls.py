"""Inputs, spill and outputs in a bucket."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

if not all(map(importlib.util.find_spec, ("distributed", "obstore"))):
    pytest.skip("distributed or obstore is not installed", allow_module_level=True)

from tests._dask import Cluster
from tests._tools import tarkit
from tests.cluster._tools import inputs
from tests.stores._s3 import Bucket, S3Server, s3_server
from tests.stores._servers import KEYS, tarkit_run


@pytest.fixture
def server() -> Iterator[S3Server]:
    """A server that has the bucket `bucket`."""
    with s3_server() as running:
        yield running


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose workers have credentials."""
    with ExitStack() as stack:
        made = Cluster(tmp_path_factory.mktemp("cluster"), stack).begin(0)
        for _ in range(2):
            made.add(env=KEYS)
        yield made


def test_a_shuffle_in_a_bucket(server: S3Server, cluster: Cluster, here: Path) -> None:
    inputs(20, most=20)
    tarkit("shuffle", "in-*.tar", "--seed", "7", "-c", "9", "-o", "b-%03d.tar")
    tarkit("sort", "in-*.tar", "-o", "all.tar.gz")
    bucket = Bucket(server, "")
    for path in Path().glob("in-*.tar"):
        bucket.put(path.name, path.read_bytes())
    how = ("--dask", cluster.address, "--spill", "s3://bucket/tmp", "--endpoint-url", server.url)
    words = ("shuffle", "s3://bucket/in-*.tar", "--seed", "7", "-c", "9", "-o", "s3://bucket/b-%03d.tar")
    env = {**os.environ, **KEYS}
    tarkit_run(*words, *how, env=env)
    pytest.importorskip("pyarrow", reason="views are Parquet files")
    tarkit("cat", "in-*.tar", "-o", "all.tar.parquet")
    bucket.put("all.tar.parquet", Path("all.tar.parquet").read_bytes())
    cached = {**env, "WDS_CACHE": os.fspath(here / "cache")}  # workers have no cache
    tarkit_run("sort", "s3://bucket/all.tar.parquet", "-o", "s3://bucket/all.tar.gz", *how, env=cached)
    assert os.listdir("cache")
    expected = {path.name: path.read_bytes() for path in Path().glob("*.tar*")}
    assert {name: bucket.get(name) for name in bucket.names()} == expected
    ran = tarkit_run(*words, *how, env=env, exit=1)
    assert "there are shards of this name" in ran.stderr
    assert set(bucket.names()) == set(expected)
