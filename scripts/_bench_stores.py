"""The rows of `scripts/bench stores`: objects on a local server of S3, compared with other clients.

The server is `rclone serve s3` over the directory of the benchmark: its subdirectories are buckets, so that what is
written to the bucket `out` is checked and removed as other outputs are.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from _bench_data import dataset, make
from _bench_rows import INSIDE
from _bench_run import TARKIT, BenchError, Row, Stage, Way, holds, within

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_REGION": "us-east-1"}
LIBRARIES = ("boto3", "obstore")
SET = "npy"
SIZE = 1000  # samples of a shard


def rclone() -> str | None:
    """Return the path of rclone, which is a program or a package of Python."""
    return shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@contextmanager
def server(directory: Path, environ: MutableMapping[str, str], written: bool = True) -> Iterator[None]:
    """Run a server over a directory; set the variables that its clients need.

    Unless objects are `written`, it keeps what is in its directories, which it would list again for each request.
    """
    program = rclone()
    if program is None:
        raise BenchError("rclone, the local server, is not installed: its package is for Linux on x86-64 alone")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environ.update(KEYS, AWS_ENDPOINT_URL=url, RCLONE_CONFIG=os.devnull, RCLONE_CONFIG_BENCH_TYPE="s3")
    environ.update(RCLONE_CONFIG_BENCH_PROVIDER="Rclone", RCLONE_CONFIG_BENCH_ENDPOINT=url)
    environ.update(RCLONE_CONFIG_BENCH_ACCESS_KEY_ID="key", RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY="s3cret")
    words: Stage = [program, "serve", "s3", directory, "--addr", f"127.0.0.1:{port}", "--auth-key", "key,s3cret"]
    null = subprocess.DEVNULL
    with subprocess.Popen([*words, "--dir-cache-time", "0s" if written else "1h"], stdout=null, stderr=null) as process:
        try:
            for _ in range(200):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield
        finally:
            process.kill()


def store_rows(place: Path, part: int, scratch: Path, tarkit: list[str], python: str) -> Iterator[Row]:
    """Yield the rows, over objects in the bucket `in`, written to the bucket `out`."""
    make(place, SET, part)
    tar = dataset(place, SET, part).tar
    (scratch / "in").mkdir()
    os.link(tar, scratch / "in/all.tar")
    client = rclone() or "rclone"

    def ways(ours: Stage, theirs: Stage, mode: str, *before: Stage) -> list[Way]:
        others = [Way(who, [*before, [python, INSIDE, f"{mode}-{who}"]], holds) for who in LIBRARIES]
        return [Way(TARKIT, [*before, ours], holds), Way("rclone", [*before, theirs], holds), *others]

    url = "s3://in/all.tar"
    cat: Stage = ["cat", tar]
    aims = within("rclone", 1)
    read = ways([*tarkit, "cat", url, "-o", "-"], [client, "cat", "bench:in/all.tar"], "get")
    yield Row("cat s3://... -o -", SET, read, aims, by="wall")
    rcat = [client, "rcat", "bench:out/b.tar"]
    written = ways([*tarkit, "cat", "-", "-o", "s3://out/b.tar"], rcat, "put", cat)
    yield Row("cat - -o s3://...", SET, written, aims, by="wall")
    split = [*tarkit, "split", "-", "-c", str(SIZE), "-o", "s3://out/b-%03d.tar"]
    yield Row(f"split - -c {SIZE} -o s3://...", SET, ways(split, rcat, "put", cat), aims, by="wall")
