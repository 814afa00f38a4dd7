"""Every public function that takes `storage_options` reaches all URLs so, and no other server."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")

import tarkit
from tests.conftest import tar
from tests.stores._http import HttpServer
from tests.stores._s3 import Bucket, s3_server
from tests.stores._servers import tarkit_run

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


def environment_of(url: str) -> dict[str, str]:
    """Return variables that name a server."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "WDS_"))}
    keys = {"AWS_ACCESS_KEY_ID": "no", "AWS_SECRET_ACCESS_KEY": "no", "AWS_REGION": "us-east-1"}
    return found | keys | {"AWS_ENDPOINT_URL": url}


def test_every_function_asks_the_server_of_its_options(here: Path, server: HttpServer) -> None:
    """The environment names another server, with other credentials, which gets no request from any of them."""
    with s3_server() as mine:
        words = [sys.executable, "-W", "ignore", "-c", CALLS, mine.url]
        ran = subprocess.run(words, capture_output=True, text=True, env=environment_of(server.url), check=False)
    assert ran.returncode == 0, ran.stderr
    assert set(json.loads(ran.stdout.splitlines()[-1])) == takers()
    assert server.log == []


def test_a_journal_asks_the_server_of_the_step(here: Path, server: HttpServer) -> None:
    """The options about URLs that a step has are those by which the journal looks at what it reads and writes."""
    with s3_server() as mine:
        objects = Bucket(mine, "")
        for name in ("a", "b"):
            objects.put(f"in/{name}.tar", tar({f"{name}.txt": b"x"}))
        step = ["cat", "s3://bucket/in/{}*.tar", "--endpoint-url", mine.url, "-o", "s3://bucket/out/{}.tar"]

        def done() -> list[str]:
            before = len(Path("j").read_text().splitlines()) if os.path.exists("j") else 0
            words = ("each", "a", "b", "--journal", "j", "--resume", "--", *step)
            tarkit_run(*words, env=environment_of(server.url))
            return sorted(json.loads(line)["value"] for line in Path("j").read_text().splitlines()[before:])

        assert [done(), done()] == [["a", "b"], []]
        objects.put("in/bb.tar", tar({"bb.txt": b"new"}))
        assert [done(), done()] == [["b"], []]
        objects.delete("out/a.tar")
        assert [done(), done()] == [["a"], []]
    assert server.log == []
