"""The argument `storage_options`: each call has its own server, credentials and cache."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")

import tarkit
from tarkit.errors import TarkitError, Usage
from tarkit.stores import connect
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.location import expand_inputs
from tests._tools import each_row
from tests.conftest import tar
from tests.stores._http import HttpServer
from tests.stores._s3 import Bucket, s3_server
from tests.stores._servers import tarkit_run

PROGRAM = """
import sys, tarkit
from tarkit import TarkitError, Usage
one = {"endpoint_url": sys.argv[1], "access_key_id": "one", "secret_access_key": "1secret", "net_retries": 0}
two = {"endpoint_url": sys.argv[2], "access_key_id": "two", "secret_access_key": "2secret", "net_retries": 0}
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    """Two servers, each with a user of its own."""
    with s3_server() as one, s3_server() as two:
        one.users, two.users = {"one"}, {"two"}
        yield one.url, two.url


def run(servers: tuple[str, str], program: str, **variables: str) -> str:
    """Run a program in a process of its own, which may have the threads of obstore; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "WDS_"))}
    words = [sys.executable, "-W", "error", "-c", PROGRAM + program, *servers]
    ran = subprocess.run(words, capture_output=True, text=True, env={**environment, **variables}, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_each_call_has_its_own_server_and_keys(servers: tuple[str, str]) -> None:
    """Also within one chain; the variables of the environment hold for calls without the argument alone."""
    program = """
with tarkit.TarWriter("s3://bucket/a.tar", storage_options=one) as out:
    for n in range(4):
        out.write(f"{n}", {"txt": f"text {n}"})
data = tarkit.open("s3://bucket/a.tar", storage_options=one)
print(data.write("s3://bucket/b.tar", storage_options=two).samples)
other = tarkit.open("s3://bucket/*.tar", storage_options=two)
print(len(other.locations), len(list(tarkit.mix([data, other], 7, until="all"))))
for wrong in ({**one, "access_key_id": "zzz"}, {**one, "access_key_id": "two"}, None):
    try:
        list(tarkit.open("s3://bucket/a.tar", storage_options=wrong))
        print("read")
    except TarkitError as error:
        print(type(error).__name__, "secret" in str(error), "zzz" in str(error))
print("secret" in repr(data), "secret" in repr(data.locations))
"""
    keys = {"AWS_ACCESS_KEY_ID": "one", "AWS_SECRET_ACCESS_KEY": "1secret"}
    printed = run(servers, program, AWS_ENDPOINT_URL=servers[0], **keys)
    assert printed.splitlines() == ["4", "1 8", "Denied False False", "Denied False False", "read", "False False"]


@pytest.mark.forks
def test_files_that_a_call_names(here: Path) -> None:
    """A map, classes, a table to join and a recipe have the options of the call that reads them."""
    Path("t").mkdir()
    Path("t", "a.txt").write_text("x")
    Path("in.tar").write_bytes(tar({"a.txt": b"x"}))
    url = "http://127.0.0.1:1/a.csv"
    how = {"token": "s3cret"}
    for call in (
        lambda: tarkit.open("in.tar").split("out/", map=url, storage_options=how),
        lambda: tarkit.shard("t", map=url, storage_options=how),
        lambda: tarkit.shard("t", label_from_dir="cls", classes=url, storage_options=how),
        lambda: tarkit.shard("t", join=f"{url}:key", storage_options=how),
        lambda: tarkit.create(url, "c.tar", storage_options=how),
    ):
        with pytest.raises(Usage, match="has no option 'token'"):
            call()


def test_a_manifest_with_options_of_another_store(bucket: Bucket) -> None:
    """It is refused before a shard is written."""
    Path("a.tar").write_bytes(tar({"a.txt": b"x"}))
    how = {"endpoint_url": bucket.server.url, "access_key_id": "one", "secret_access_key": "1secret"}
    where = {"manifest": "hf://datasets/a/b/list.tsv", "storage_options": how}
    with pytest.raises(Usage, match="hf:// has no option 'access_key_id'"):
        tarkit.open("a.tar").split(f"{bucket.url}s-%d.tar", count=1, **where)
    assert bucket.names() == []


def test_the_session_of_the_environment_is_not_that_of_other_keys(servers: tuple[str, str]) -> None:
    program = """
with tarkit.TarWriter("s3://bucket/session.tar", storage_options=one) as out:
    out.write("a", {"txt": "x"})
print(len(list(tarkit.open("s3://bucket/session.tar", storage_options=one))))
"""
    others = {"AWS_SESSION_TOKEN": "another", "AWS_ACCESS_KEY_ID": "no", "AWS_SECRET_ACCESS_KEY": "no"}
    assert run(servers, program, **others) == "1\n"


def test_caches_and_rules_of_one_call(server: HttpServer, here: Path) -> None:
    """They hold for the call alone."""
    url = server.serve("/a.tar", tar({"a.txt": b"x"}))
    how = {"cache": here / "cache", "cache_size": 10**6, "net_retries": 0, "net_timeout": 5}
    assert [sample.key for sample in tarkit.open(url, storage_options=how)] == ["a"]
    sent = server.objects["/a.tar"].sent
    assert [sample.key for sample in tarkit.open(url, storage_options=how)] == ["a"]
    assert server.objects["/a.tar"].sent <= sent + 1
    assert [sample.key for sample in tarkit.open(url)] == ["a"]
    assert server.objects["/a.tar"].sent > sent + 1000


@each_row(
    ("url", "key", "there"),
    [
        ("s3://bucket/a.tar", "regoin", "region"),
        ("s3://bucket/a-*.tar", "endpoint", "endpoint_url"),
        ("gs://bucket/a.tar", "region", "service_account"),
        ("az://bucket/a.tar", "region", "account_name"),
        ("http://127.0.0.1:1/a.tar", "token", "net_retries"),
        ("hf://datasets/a/b/c.tar", "region", "token"),
    ],
)
def test_an_unknown_key_is_named_with_those_that_there_are(url: str, key: str, there: str) -> None:
    for call in (tarkit.open, tarkit.stats, tarkit.check):
        with pytest.raises(Usage, match=f"no option '{key}'") as raised:
            call(url, storage_options={key: "s3cret"})  # type: ignore[operator]
        assert there in (raised.value.hint or "")
        assert "s3cret" not in f"{raised.value} {raised.value.hint}"
    if "*" not in url:
        with pytest.raises(Usage, match=f"no option '{key}'"):
            tarkit.TarWriter(url, storage_options={key: "x"})


@each_row(
    ("key", "near"),
    [("regoin", "region"), ("endpoint", "endpoint_url"), ("aws_access_key_id", "access_key_id"), ("Region", "region")]
    + [("acces_key", "access_key_id"), ("net_retry", "net_retries"), ("xyzzy", None)],
)
def test_near_names(key: str, near: str | None) -> None:
    with pytest.raises(Usage) as raised:
        connect.open_object("s3://bucket/a.tar", parse_options({key: "x"}))
    hint = raised.value.hint or ""
    assert hint.startswith(f"did you mean '{near}'? there are endpoint_url, " if near else "there are endpoint_url, ")


WRONG: list[tuple[str, str, object]] = [
    ("s3", "access_key_id", "s3cret\nx"), ("s3", "session_token", "s3cret\0"), ("s3", "region", "s3cret\r"),
    ("s3", "region", ["s3cret"]), ("s3", "role_arn", 5), ("s3", "role_arn", "s3cret\udc80"),
    ("s3", "request_payer", "s3cret"), ("s3", "checksum_algorithm", "S3cret"), ("s3", "conditional_put", "s3cret"),
    ("s3", "server_side_encryption", "s3cret"), ("s3", "metadata_endpoint", "s3cret"),
    ("s3", "sts_endpoint", "s3cret"), ("gs", "service_account", "/none/s3cret"),
    ("gs", "service_account_key", '"s3cret"'), ("gs", "application_credentials", "s3cret"),
    ("gs", "bearer_token", "s3cret\n"), ("az", "account_name", "s3cret\n"), ("az", "account_name", ""),
    ("az", "account_key", "s3cret"), ("az", "use_emulator", "s3cret"), ("az", "token", "s3cret\n"),
    ("az", "msi_endpoint", "http://s3cret:99999"),
]  # fmt: skip


@each_row(("scheme", "key", "value"), WRONG)
def test_wrong_values_are_named_and_not_shown(
    scheme: str, key: str, value: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As settings, and as variables of the environment where these are read; nothing else is printed."""
    name = f"{scheme}://bucket/a.tar"
    given = {"account_name": "a", "endpoint_url": "http://127.0.0.1:9", "net_retries": 0}
    others = {"access_key_id": "a", "secret_access_key": "b"} if scheme == "s3" else {}
    options = {**(given if scheme == "az" else {**given, "account_name": None}), **others, key: value}
    for call in (connect.open_object, connect.create_object):
        with pytest.raises(Usage) as raised:
            call(name, options=parse_options(options))
        text = f"{raised.value} {raised.value.hint}"
        assert "s3cret" not in text.lower()
        assert key in text or key in ("account_key", "service_account_key")
        assert "\n" not in text
    if isinstance(value, str) and not {"\0", "\udc80"}.intersection(value) and key != "sts_endpoint":
        variable = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_STORAGE_" if "account" in key else "AZURE_"}[scheme]
        monkeypatch.setenv(variable + key.upper(), value)
        plain = {key: each for key, each in given.items() if key not in ("access_key_id", "account_name")}
        with pytest.raises(Usage) as raised:
            connect.open_object(name, parse_options(plain))
        assert "s3cret" not in f"{raised.value} {raised.value.hint}".lower()
        monkeypatch.delenv(variable + key.upper())
    assert capfd.readouterr().err == ""


def test_invalid_values() -> None:
    for given in ({"anonymous": "yes"}, {"net_retries": True}, {"net_timeout": "9"}, "anonymous"):
        with pytest.raises(TypeError, match="storage_options"):
            parse_options(given)  # type: ignore[arg-type]
    for given in ({"net_retries": -1}, {"net_timeout": 0}, {"cache_size": "9Q", "cache": "x"}, {"cache_size": 9}):
        with pytest.raises(Usage):
            parse_options(given)
    assert parse_options(None) is None
    assert parse_options({"net_retries": None}) == StoreOptions()


def test_secrets_are_in_no_text() -> None:
    """Neither in a representation, nor in the message of a library."""
    pytest.importorskip("fsspec")
    given = {"password": "s3cret", "s3cret": 1, "net_retries": 0}
    with pytest.raises(TarkitError) as raised:
        list(tarkit.open("ftp://127.0.0.1:1/a.tar", storage_options=given))
    assert "s3cret" not in str(raised.value)
    options = parse_options({"secret_access_key": "s3cret", "endpoint_url": "http://user:s3cret@h"})
    [location] = expand_inputs(["s3://bucket/a.tar"], options=options)
    assert "s3cret" not in f"{options!r} {location!r}"
    assert len({options, options, StoreOptions()}) == 2


# ---- Every public function

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

        assert done() == ["a", "b"]
        objects.put("in/bb.tar", tar({"bb.txt": b"new"}))
        objects.delete("out/a.tar")
        assert [done(), done()] == [["a", "b"], []]
    assert server.log == []
