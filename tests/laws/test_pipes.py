"""A pipe gets the bytes that a file has when they are written to it, whatever happens before they are read."""

from __future__ import annotations

import fcntl
import os
import random
import shlex
import threading
import time
from pathlib import Path

import pytest

from tests._tools import each_row
from tests.conftest import Archive, Feed, Run

pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the system has no pipes of a megabyte")

MIB = 1 << 20
FILES = ["cat IN", "cat -", "cat IN -f bin", "sort IN", "shuffle --seed 1 IN", "mix IN --seed 1 --until all"]
FILES += ["create recipe", "proc -c true IN", "get b.bin IN"]


@each_row("words", FILES)
def test_a_file_that_is_rewritten_before_the_pipe_is_read(words: str, run: Run, archive: Archive) -> None:
    """All of the output fits into the pipe, and the command has ended."""
    name = archive({"a.bin": b"a" * 300_000, "b.bin": b"b" * 400_000})
    Path("recipe").write_text("a.bin file:source\n")
    Path("source").write_bytes(b"s" * 700_000)
    line, stdin = shlex.split(words.replace("IN", name)), Path(name) if words == "cat -" else None
    wanted = run(*line, stdin=stdin).stdout
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, MIB)
    run(*line, stdin=stdin, stdout=write)
    os.close(write)
    for changed in (name, "source"):
        with open(changed, "r+b") as file:
            file.write(b"X" * os.path.getsize(changed))
    with open(read, "rb") as file:
        assert file.read() == wanted


STREAMS = [
    "cat -s 3 --seed 1 IN",
    "cat -s 3 --seed 1 IN -o pipe:'dd bs=512 status=none of=out'",
    "cat IN next.tar --allow joined-sample",
    "shuffle --buffer 3 --seed 1 IN",
    "sort -r IN --memory 4M",
    "proc --worker cat IN",
]


@pytest.mark.slow
@each_row("words", STREAMS)
def test_a_slow_reader(words: str, run: Run, archive: Archive) -> None:
    """Samples of a stream that wait in temporary space, which is used again, arrive as they were."""
    chance = random.Random(words)
    name = archive({f"{n:02}.bin": bytes([65 + n]) * chance.randint(MIB, 3 * MIB // 2) for n in range(9)})

    wanted = Path("wanted.tar")
    archive({"08.txt": b"t" * MIB, "zz.bin": b"z" * MIB}, "next.tar")
    run(*_line(words.partition(" -o ")[0], name), "-o", wanted)
    read, write = os.pipe()
    received = bytearray()

    def drain() -> None:
        with open(read, "rb", buffering=0) as file:
            while data := file.read(chance.choice([1, 4096, 65536, 65536])):
                received.extend(data)
                time.sleep(chance.choice([0, 0, 0.001]))

    reader = threading.Thread(target=drain)
    reader.start()
    run(*_line(words, name), stdout=write)
    os.close(write)
    reader.join()
    arrived = Path("out").read_bytes() if "of=out" in words else bytes(received)
    assert arrived == wanted.read_bytes()


def _line(words: str, name: str) -> list[str]:
    feed = Feed("pipe")
    return [feed(name) if word == "IN" else word for word in shlex.split(words)]
