"""A process that has threads of a library is not copied."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("urllib3")

from tests._tools import each_row
from tests.api.test_pickle import FOUND, MEMBERS, work
from tests.conftest import tar
from tests.stores._http import http_server
from tests.stores._servers import KEYS, moto


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory of the test."""
    monkeypatch.chdir(tmp_path)


def test_native_threads_are_known() -> None:
    """A process that has those of obstore is not copied; the count of Python's threads stays right."""
    program = """
import threading
from tarkit.parallel import results_in_order
from tarkit.stores import connect
from tarkit.stores.store import StoreOptions
from tarkit.threads import has_threads
import os
print(has_threads(), set(results_in_order(lambda job: os.getpid(), range(9), 2)) == {os.getpid()})
store = connect.store_of("s3://bucket/a", StoreOptions(anonymous=True))
store._bucket_of("s3://bucket/a")
print(has_threads(), set(results_in_order(lambda job: os.getpid(), range(9), 2)) == {os.getpid()})
print(threading.active_count())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("False False\nTrue True\n1\n", "")


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Variables for a server with the object s3://bucket/in.tar."""
    import urllib3

    with moto() as url:
        headers = {"authorization": "AWS4-HMAC-SHA256 Credential=key/1/us-east-1/s3/x"}
        urllib3.request("PUT", f"{url}/bucket/in.tar", body=tar(MEMBERS), headers=headers)
        yield {**os.environ, **KEYS, "AWS_ENDPOINT_URL": url}


@each_row("method", ["spawn", "forkserver"])
@pytest.mark.usefixtures("here")
def test_other_processes_read_the_same_objects(method: str, environment: dict[str, str]) -> None:
    """A program that has used a store gives its datasets to processes that it starts anew."""
    assert work("s3://bucket/in.tar", method, env=environment) == FOUND


def test_a_copy_of_a_process_that_used_a_store_is_refused(environment: dict[str, str]) -> None:
    """At once, where it would wait for threads that it does not have; other stores can be used in it."""
    program = """
import os
import sys

import tarkit

data = tarkit.open("s3://bucket/in.tar")
indexed, other = data.indexed(), tarkit.open(sys.argv[1])
print(len(list(data)), len(list(other)), flush=True)
write = lambda: data.write("s3://bucket/out.tar")
for read in (lambda: len(list(data)), lambda: indexed[3], write, lambda: len(list(other))):
    if not os.fork():
        try:
            print(read(), flush=True)
        except tarkit.TarkitError as error:
            print(error, "|", error.hint, flush=True)
        os._exit(0)
    os.wait()
print(len(list(data)))
"""
    with http_server() as server:
        url = server.serve("/in.tar", tar(MEMBERS))
        ran = subprocess.run(
            [sys.executable, "-c", program, url],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    lines = ran.stdout.splitlines()
    assert (lines[0], lines[-2:]) == ("6 6", ["6", "6"]), ran
    assert len(lines) == 6
    assert all(
        "cannot be used in this process: it is a copy (fork) of one that used them" in each for each in lines[1:4]
    )
    assert all("'spawn' or 'forkserver'" in each for each in lines[1:4])


def test_a_copy_has_connections_of_its_own() -> None:
    """Processes that share connections would take each other's replies."""
    program = """
import os
import sys

import tarkit

data = tarkit.open([sys.argv[1]] * 20)
right = [dict(sample) for sample in data]
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        os._exit([dict(sample) for sample in data] != right)
    children.append(child)
good = [dict(sample) for sample in data] == right
print(good, [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""
    with http_server() as server:
        url = server.serve("/in.tar", tar(MEMBERS))
        words = [sys.executable, "-c", program, url]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("True [0, 0, 0]\n", "")
