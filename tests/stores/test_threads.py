"""A process that has threads of a library is not copied."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("urllib3")

from tests._tools import each_row
from tests.api.test_pickle import FOUND, MEMBERS, work
from tests.conftest import tar
from tests.stores._http import http_server
from tests.stores._hub import Repository, hub_server
from tests.stores._s3 import Bucket, S3Server


def test_native_threads_are_known() -> None:
    """A process that has those of obstore is not copied; the count of Python's threads stays right."""
    program = """
import threading
from tarkit.parallel import in_order
from tarkit.stores import connect
from tarkit.stores.store import StoreOptions
from tarkit.threads import has_threads
import os

def processes():
    return {pid for pids in in_order(range(9), lambda job: iter([os.getpid()]), 2) for pid in pids}

print(has_threads(), processes() == {os.getpid()})
store = connect.store_of("s3://bucket/a", StoreOptions(anonymous=True))
store._bucket_of("s3://bucket/a")
print(has_threads(), processes() == {os.getpid()})
print(threading.active_count())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("False False\nTrue True\n1\n", "")


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """A bucket with the object s3://bucket/in.tar."""
    bucket = Bucket(s3, "")
    bucket.put("in.tar", tar(MEMBERS))
    return bucket


def printed(program: str, *words: str) -> list[str]:
    """Run a program; return the lines that it prints, and the last one of its errors."""
    ran = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=120, check=False
    )
    return [*ran.stdout.splitlines(), *ran.stderr.splitlines()[-1:]]


@each_row("method", ["spawn", "forkserver"])
def test_other_processes_read_the_same_objects(method: str, bucket: Bucket) -> None:
    """A program that has used a store gives its datasets to processes that it starts anew."""
    assert work("s3://bucket/in.tar", method, env=os.environ) == FOUND


def test_a_copy_of_a_process_that_used_a_store_is_refused(bucket: Bucket) -> None:
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
        lines = printed(program, server.serve("/in.tar", tar(MEMBERS)))
    assert (lines[0], lines[-2:]) == ("6 6", ["6", "6"]), lines
    assert len(lines) == 6
    refused = "cannot be used in this process: it is a copy (fork) of one that used them"
    assert all(refused in line and "'spawn' or 'forkserver'" in line for line in lines[1:4])


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
        assert printed(program, server.serve("/in.tar", tar(MEMBERS))) == ["True [0, 0, 0]"]


LOOKED_UP = """
import os, signal, sys, tarkit
from tarkit.stores import hub

hub._lookup.acquire()  # as by another thread
child = os.fork()
if not child:
    signal.alarm(20)
    print(len(list(tarkit.open("hf://datasets/org/name/in.tar"))), flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_copy_of_a_process_that_looks_up_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks for itself, and does not wait for a thread that it does not have."""
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        repository = server.repositories["datasets/org/name"] = Repository()
        repository.commit({"in.tar": tar(MEMBERS)})
        assert printed(LOOKED_UP) == ["6", "0"]


FORK = """
import json, os, sys, tarkit

def forked(work):
    read, write = os.pipe()
    if not os.fork():
        try:
            answer = work()
        except tarkit.TarkitError as error:
            answer = [str(error)]
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        answer = json.load(pipe)
    os.wait()
    return answer

def keys(samples):
    return [sample["__key__"] for sample in samples]
"""
"""The start of programs: a function that has work done in a copy of the process."""

COUNTED = """
if sys.argv[1:]:  # a thread of the program
    import threading
    end = threading.Event()
    threading.Thread(target=end.wait, daemon=True).start()

for equal, shuffle in (("drop", 0), ("repeat", 5), (None, "full")):
    loaders = [
        tarkit.loader("s3://bucket/p*.tar", equal=equal, shuffle=shuffle, worker=worker, workers=2)
        for worker in range(2)
    ]
    print(equal, shuffle, *sorted(sum((forked(lambda: keys(loader)) for loader in loaders), [])))
data = tarkit.open("s3://bucket/p*.tar").where("cls == 1").map(dict)
loader = tarkit.loader(data, equal="drop")
print(len(loader))
try:
    tarkit.loader("s3://bucket/broken.tar", equal="drop")
except tarkit.Problem as error:
    print(error.name, error.archive)
"""


@pytest.mark.parametrize("words", [[], ["thread"]], ids=str)
def test_a_loader_that_counts_samples_of_a_store_before_it_is_copied(words: list[str], bucket: Bucket) -> None:
    """What it reads for that is read in a process of its own, so that workers can be forked; errors come out."""
    for n in range(2):
        bucket.put(f"p{n}.tar", tar({f"{n}{k}.cls": b"1" for k in range(4)}))
    bucket.put("broken.tar", bucket.get("p0.tar")[:700])
    every = " ".join(f"{n}{k}" for n in range(2) for k in range(4))
    assert printed(FORK + COUNTED, *words) == [
        *(f"{how} {every}" for how in ("drop 0", "repeat 5", "None full")),
        "8",
        "truncated s3://bucket/broken.tar",
    ]


VIEWED = """
names = "s3://bucket/all.view.parquet", "all.view.parquet", "s3://bucket/al*.view.parquet"
for name in names[:2]:
    forked(lambda: str(tarkit.open("s3://bucket/p*.tar").write(name)))
if sys.argv[1:]:  # the library of views is here before
    from tarkit.tables import parquet
    parquet.load_pyarrow("views")
for name in names:
    for options in ({"shuffle": "full"}, {"shuffle": 3}, {"equal": "drop"}, {"shuffle": "full", "equal": "repeat"}):
        loaders = [tarkit.loader(name, worker=worker, workers=2, **options) for worker in range(2)]
        print(*sorted(sum((forked(lambda: keys(loader)) for loader in loaders), [])))
"""


@pytest.mark.parametrize("words", [[], ["pyarrow"]], ids=str)
def test_a_loader_of_views_that_name_objects(words: list[str], bucket: Bucket, here: Path) -> None:
    """Views are read in a process of their own as well, in the bucket or beside the user."""
    pytest.importorskip("pyarrow")
    for n in range(2):
        bucket.put(f"p{n}.tar", tar({f"{n}{k}.cls": b"1" for k in range(4)}))
    assert printed(FORK + VIEWED, *words) == [" ".join(f"{n}{k}" for n in range(2) for k in range(4))] * 12


CONTINUED = """
def begun(worker):
    loader = tarkit.loader("s3://bucket/p*.tar", shuffle=shuffle, worker=worker, workers=2)
    samples = iter(loader)
    return [next(samples)["__key__"], loader.state_dict()]

for shuffle in (0, 3, "full"):
    first, states = zip(*[forked(lambda: begun(worker)) for worker in range(2)])
    again = tarkit.loader("s3://bucket/p*.tar", shuffle=shuffle, worker=0, workers=1)
    again.load_state_dict(states)
    print(*sorted([*first, *forked(lambda: keys(again))]))
"""


def test_a_loader_that_compares_objects_with_a_position_before_it_is_copied(bucket: Bucket) -> None:
    """Their versions are requested in a process of its own, so that workers can be forked."""
    for n in range(3):
        bucket.put(f"p{n}.tar", tar({f"{n}{k}.cls": b"1" for k in range(4)}))
    assert printed(FORK + CONTINUED) == [" ".join(f"{n}{k}" for n in range(3) for k in range(4))] * 3


COPIED = """
import os, signal, sys, tarkit

url, how = sys.argv[1:]
data = tarkit.open([url, url], prefetch=1 if how == "prefetch" else 0)
if how == "shuffle":
    data = data.buffer_shuffle(3, seed=1)
samples = iter(data)
got = [next(samples).key for _ in range(3)]
child = os.fork()
if not child:
    signal.alarm(20)
    try:
        list(samples)
        print("read")
    except tarkit.TarkitError as error:
        print(error)
    del samples
    print(len(list(data)) if url.startswith("http") else "-", flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print(len(got) + len(list(samples)))
"""


@pytest.mark.parametrize(
    ("how", "store", "name"),
    [
        ("plain", "http", "big.tar"),
        ("plain", "s3", "big.tar.gz"),
        ("prefetch", "s3", "big.tar"),
        ("shuffle", "http", "big.tar.gz"),
    ],
)
def test_a_copy_of_a_process_that_reads_an_object(how: str, store: str, name: str, bucket: Bucket) -> None:
    """The copy gets an error, at once, and its end leaves the connection of the other; it can begin to read anew."""
    content = random.Random(1)
    data = tar({f"{n:02}.bin": content.randbytes(300_000) for n in range(40)})
    data = gzip.compress(data, 1) if name.endswith(".gz") else data
    with http_server() as server:
        lines = printed(COPIED, server.serve(f"/{name}", data) if store == "http" else bucket.put(name, data), how)
    assert "is a copy (fork) of one" in lines[0]
    assert lines[1:] == ["80" if store == "http" else "-", "0", "80"]
