"""Jobs whose inputs and outputs are objects: what is done, what has changed, and what --emit prints for them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")

from tests._tools import TARKIT, each_row, program
from tests.conftest import tar
from tests.stores._servers import Server, client, serving, tarkit_run

SHARDS = "s3://bucket/in/{0..3}.tar"
LINES = {
    "map": ["cat", SHARDS, "-f", "txt", "-o", "s3://bucket/out/{stem}.tar"],
    "each": ["each", SHARDS, "{ARGS}", "--", "cat", "{}", "-f", "txt", "-o", "s3://bucket/out/{stem}.tar"],
}


@pytest.fixture(scope="module", params=["moto", "rclone"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of S3."""
    with serving(request.param, tmp_path_factory.mktemp("objects")) as found:
        yield found


def shard(number: int, text: str = "") -> bytes:
    """Return a shard with two samples."""
    return tar({f"{number}/{at}.{field}": f"{at}{text}".encode() for at in (0, 1) for field in ("cls", "txt")})


def fill(server: Server) -> Any:
    """Write the shards, and return a client."""
    objects = client(server)
    for number in range(4):
        objects.put_object(Bucket="bucket", Key=f"in/{number}.tar", Body=shard(number))
    return objects


def outputs(objects: Any) -> dict[str, bytes]:
    """Return the objects that the jobs have written."""
    listed = objects.list_objects_v2(Bucket="bucket", Prefix="out/").get("Contents", [])
    names = [each["Key"] for each in listed]
    return {name: objects.get_object(Bucket="bucket", Key=name)["Body"].read() for name in names}


def jobs(line: Sequence[str], server: Server, *options: str) -> list[str]:
    """Run jobs with the journal `j`, and return the numbers of those that were done, not kept."""
    count = len(Path("j").read_text().splitlines()) if os.path.exists("j") else 0
    given = ["--journal", "j", "--resume", *options]
    words = [word for each in line for word in (given if each == "{ARGS}" else [each])]
    words += [] if "{ARGS}" in line else given
    tarkit_run(*words, env={**os.environ, **server.environ, server.named: server.endpoint})
    records = [json.loads(each) for each in Path("j").read_text().splitlines()[count:]]
    assert {each["status"] for each in records} <= {0}
    return sorted(each["value"][-5] for each in records)


@each_row("kind", LINES)
def test_what_has_changed_is_done_again(here: Path, server: Server, kind: str) -> None:
    """A job is done again when its input or output is another object, or its output is gone; no other one is."""
    objects, line = fill(server), LINES[kind]
    assert jobs(line, server, "-j", "2") == ["0", "1", "2", "3"]
    whole = outputs(objects)
    assert sorted(whole) == [f"out/{number}.tar" for number in range(4)]
    assert jobs(line, server) == []
    objects.delete_object(Bucket="bucket", Key="out/1.tar")
    objects.put_object(Bucket="bucket", Key="out/2.tar", Body=b"x" * len(whole["out/2.tar"]))
    assert jobs(line, server) == ["1", "2"]
    assert outputs(objects) == whole
    objects.put_object(Bucket="bucket", Key="in/3.tar", Body=shard(3, "new"))
    assert jobs(line, server) == ["3"]
    assert b"1new" in outputs(objects)["out/3.tar"]
    assert jobs(line, server) == []


def test_a_failed_job_leaves_no_object(here: Path, server: Server) -> None:
    """A shard that is cut short has no output; all others have, and once it is repaired it alone is done."""
    objects = fill(server)
    objects.delete_object(Bucket="bucket", Key="out/2.tar")
    objects.put_object(Bucket="bucket", Key="in/2.tar", Body=shard(2)[:700])
    words = [*LINES["map"], "--journal", "k", "--halt", "never"]
    ran = tarkit_run(*words, exit=1, env={**os.environ, **server.environ, server.named: server.endpoint})
    assert "1 of 4 jobs failed" in ran.stderr
    assert sorted(outputs(objects)) == ["out/0.tar", "out/1.tar", "out/3.tar"]
    os.rename("k", "j")
    objects.put_object(Bucket="bucket", Key="in/2.tar", Body=shard(2))
    assert jobs(LINES["map"], server) == ["2"]


def test_scripts(here: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Makefile and an array script write the objects; a glob is what it finds when they are printed."""
    objects = fill(server)
    for name, value in {**server.environ, server.named: server.endpoint}.items():
        monkeypatch.setenv(name, value)
    Path("bin").mkdir()
    Path("bin/tarkit").write_text(f'#!/bin/sh\nexec {" ".join(TARKIT)} "$@"\n')
    Path("bin/tarkit").chmod(0o755)
    monkeypatch.setenv("PATH", f"{here}/bin:{os.environ['PATH']}")
    for engine, start in (("make", [program("make"), "-f", "script"]), ("slurm:1", ["bash", "script"])):
        for name in outputs(objects):
            objects.delete_object(Bucket="bucket", Key=name)
        words = ["cat", "s3://bucket/in/*.tar", "-f", "txt", "-o", "s3://bucket/out/{stem}.tar", "--emit", engine]
        Path("script").write_text(tarkit_run(*words).stdout)
        objects.put_object(Bucket="bucket", Key="in/9.tar", Body=b"not looked at")
        subprocess.run(start, check=True, env={**os.environ, "SLURM_ARRAY_TASK_ID": "0"})
        assert sorted(outputs(objects)) == [f"out/{number}.tar" for number in range(4)]
        objects.delete_object(Bucket="bucket", Key="in/9.tar")
    assert len(os.listdir("tarkit-cat.done")) == 4
