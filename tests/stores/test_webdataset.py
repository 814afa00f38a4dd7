"""From a recipe to shards in a bucket, and back by webdataset and by `tarkit.open`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("boto3")
webdataset = pytest.importorskip("webdataset")

from tests._tools import TARKIT, program
from tests.stores._s3 import Bucket

SAMPLES = {f"{n:03d}": {"txt": f"text {n}".encode(), "cls": b"%d" % (n % 3)} for n in range(25)}
SHARDS = "s3://bucket/d/train-{000000..000002}.tar"

BOTO3 = """
import boto3, os, sys
client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
client.download_fileobj("bucket", sys.argv[1], sys.stdout.buffer)
"""


@pytest.fixture
def bucket(bucket: Bucket) -> Bucket:
    """Three shards in a bucket, made by two commands and a pipe."""
    rows = [f"{key}.{name}\ttext:{value.decode()}\n" for key, one in SAMPLES.items() for name, value in one.items()]
    Path("recipe").write_text("".join(rows))
    words = shlex.join(TARKIT)
    line = f"{words} create recipe -o - | {words} split - -o 's3://bucket/d/train-%06d.tar' -c 10"
    subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], check=True, capture_output=True)
    return bucket


def by_webdataset(urls: str) -> dict[str, dict[str, bytes]]:
    """Return all samples, read by webdataset."""
    found = webdataset.WebDataset(urls, shardshuffle=False, empty_check=False)
    return {
        sample["__key__"]: {field: value for field, value in sample.items() if not field.startswith("__")}
        for sample in found
    }


def test_webdataset_reads(bucket: Bucket, here: Path) -> None:
    """Through tarkit and through boto3."""
    assert by_webdataset(f"pipe:{shlex.join(TARKIT)} cat {SHARDS} -o -") == SAMPLES
    (here / "get.py").write_text(BOTO3)
    urls = SHARDS.removeprefix("s3://bucket/")
    assert by_webdataset(f"pipe:{shlex.quote(sys.executable)} get.py {urls}") == SAMPLES


def test_webdataset_reads_through_curl(bucket: Bucket) -> None:
    signed = "--aws-sigv4 aws:amz:us-east-1:s3 --user key:s3cret"
    urls = SHARDS.replace("s3:/", bucket.server.url)
    assert by_webdataset(f"pipe:{program('curl')} -fsSL {signed} {urls}") == SAMPLES
