"""Every public function that takes `storage_options` reaches all URLs so, and no other server."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")

import tarkit
from tests.conftest import tar
from tests.stores._servers import KEYS, Server, client, moto, tarkit_run

CALLS = (Path(__file__).parent / "_every_call.py").read_text()


def takers() -> set[str]:
    """Return the names of the public functions and methods that take `storage_options`, as a keyword or a group."""
    found: set[str] = set()

    def look(name: str, thing: Any) -> None:
        if inspect.isclass(thing):
            for own, each in vars(thing).items():
                each = getattr(each, "__func__", each)
                if inspect.isfunction(each) and (own == "__init__" or not own.startswith("_")):
                    look(f"{name}.{own}", each)
        elif inspect.isfunction(thing):
            for each in inspect.signature(thing).parameters.values():
                if each.name == "storage_options" or each.kind is each.VAR_KEYWORD:
                    found.add(name.removesuffix(".__init__"))

    for name in tarkit.__all__:
        look(name, getattr(tarkit, name))
    return found


@pytest.fixture
def other() -> Iterator[tuple[str, list[str]]]:
    """A server that has nothing, and the requests that it gets."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(f"{self.command} {self.path}")
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def environment_of(url: str) -> dict[str, str]:
    """Return variables that name a server."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "WDS_"))}
    keys = {"AWS_ACCESS_KEY_ID": "no", "AWS_SECRET_ACCESS_KEY": "no", "AWS_REGION": "us-east-1"}
    return found | keys | {"AWS_ENDPOINT_URL": url}


def test_every_function_asks_the_server_of_its_options(here: Path, other: tuple[str, list[str]]) -> None:
    """The environment names another server, with other credentials, which gets no request from any of them."""
    url, asked = other
    with moto() as mine:
        words = [sys.executable, "-W", "ignore", "-c", CALLS, mine]
        ran = subprocess.run(words, capture_output=True, text=True, env=environment_of(url), check=False)
    assert ran.returncode == 0, ran.stderr
    assert set(json.loads(ran.stdout.splitlines()[-1])) == takers()
    assert asked == []


def test_a_journal_asks_the_server_of_the_step(here: Path, other: tuple[str, list[str]]) -> None:
    """The options about URLs that a step has are those by which the journal looks at what it reads and writes."""
    url, asked = other
    with moto() as mine:
        objects = client(Server("s3", mine, KEYS, s3=mine))
        for name in ("a", "b"):
            objects.put_object(Bucket="bucket", Key=f"in/{name}.tar", Body=tar({f"{name}.txt": b"x"}))
        step = ["cat", "s3://bucket/in/{}*.tar", "--endpoint-url", mine, "-o", "s3://bucket/out/{}.tar"]

        def done() -> list[str]:
            before = len(Path("j").read_text().splitlines()) if os.path.exists("j") else 0
            tarkit_run("each", "a", "b", "--journal", "j", "--resume", "--", *step, env=environment_of(url))
            return sorted(json.loads(line)["value"] for line in Path("j").read_text().splitlines()[before:])

        assert [done(), done()] == [["a", "b"], []]
        objects.put_object(Bucket="bucket", Key="in/bb.tar", Body=tar({"bb.txt": b"new"}))
        assert [done(), done()] == [["b"], []]
        objects.delete_object(Bucket="bucket", Key="out/a.tar")
        assert [done(), done()] == [["a"], []]
    assert asked == []
