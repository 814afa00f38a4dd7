"""Jobs whose inputs and outputs are objects: what is done, what has changed, and what --emit prints for them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from tests._tools import TARKIT, program
from tests.conftest import tar
from tests.stores._s3 import Bucket
from tests.stores._servers import tarkit_run

SHARDS = "s3://bucket/d/in/{0..3}.tar"
LINES = {
    "map": ["cat", SHARDS, "-f", "txt", "-o", "s3://bucket/d/out/{stem}.tar"],
    "each": ["each", SHARDS, "{ARGS}", "--", "cat", "{}", "-f", "txt", "-o", "s3://bucket/d/out/{stem}.tar"],
}


def shard(number: int, text: str = "") -> bytes:
    """Return a shard with two samples."""
    return tar({f"{number}/{at}.{field}": f"{at}{text}".encode() for at in (0, 1) for field in ("cls", "txt")})


@pytest.fixture
def bucket(bucket: Bucket) -> Bucket:
    for number in range(4):
        bucket.put(f"in/{number}.tar", shard(number))
    return bucket


def outputs(bucket: Bucket) -> dict[str, bytes]:
    """Return the objects that the jobs have written."""
    return {name: bucket.get(name) for name in bucket.names("out/")}


def jobs(line: Sequence[str], *options: str) -> list[str]:
    """Run jobs with the journal `j`, and return the numbers of those that were done, not kept."""
    count = len(Path("j").read_text().splitlines()) if os.path.exists("j") else 0
    given = ["--journal", "j", "--resume", *options]
    words = [word for each in line for word in (given if each == "{ARGS}" else [each])]
    words += [] if "{ARGS}" in line else given
    tarkit_run(*words)
    records = [json.loads(each) for each in Path("j").read_text().splitlines()[count:]]
    assert {each["status"] for each in records} <= {0}
    return sorted(each["value"][-5] for each in records)


@pytest.mark.parametrize("kind", LINES)
def test_what_has_changed_is_done_again(bucket: Bucket, kind: str) -> None:
    """A job is done again when its input or output is another object, or its output is gone; no other one is."""
    line = LINES[kind]
    assert jobs(line, "-j", "2") == ["0", "1", "2", "3"]
    whole = outputs(bucket)
    assert sorted(whole) == [f"out/{number}.tar" for number in range(4)]
    bucket.delete("out/1.tar")
    bucket.put("out/2.tar", b"x" * len(whole["out/2.tar"]))
    assert jobs(line) == ["1", "2"]
    assert outputs(bucket) == whole
    bucket.put("in/3.tar", shard(3, "new"))
    assert jobs(line) == ["3"]
    assert b"1new" in outputs(bucket)["out/3.tar"]
    assert jobs(line) == []


def test_a_failed_job_leaves_no_object(bucket: Bucket) -> None:
    """A shard that is cut short has no output; all others have, and once it is repaired it alone is done."""
    bucket.put("in/2.tar", shard(2)[:700])
    words = [*LINES["map"], "--journal", "k", "--halt", "never"]
    ran = tarkit_run(*words, exit=1)
    assert "1 of 4 jobs failed" in ran.stderr
    assert sorted(outputs(bucket)) == ["out/0.tar", "out/1.tar", "out/3.tar"]
    os.rename("k", "j")
    bucket.put("in/2.tar", shard(2))
    assert jobs(LINES["map"]) == ["2"]


def test_scripts(here: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Makefile and an array script write the objects; a glob is what it finds when they are printed."""
    Path("bin").mkdir()
    Path("bin/tarkit").write_text(f'#!/bin/sh\nexec {" ".join(TARKIT)} "$@"\n')
    Path("bin/tarkit").chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}/bin:{os.environ['PATH']}")
    for engine, start in (("make", [program("make"), "-f", "script"]), ("slurm:1", ["bash", "script"])):
        for name in outputs(bucket):
            bucket.delete(name)
        words = ["cat", "s3://bucket/d/in/*.tar", "-f", "txt", "-o", "s3://bucket/d/out/{stem}.tar", "--emit", engine]
        Path("script").write_text(tarkit_run(*words).stdout)
        bucket.put("in/9.tar", b"not looked at")
        subprocess.run(start, check=True, env={**os.environ, "SLURM_ARRAY_TASK_ID": "0"})
        assert sorted(outputs(bucket)) == [f"out/{number}.tar" for number in range(4)]
        bucket.delete("in/9.tar")
    assert len(os.listdir("tarkit-cat.done")) == 4
