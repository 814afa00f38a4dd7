"""Code that the benchmark runs in a new Python: `python _bench_inside.py MODE ARGUMENT`.

Each mode but `share`, `xargs` and those of STORES prints its times, without imports, and the number of entries; its
function returns the clock at the start and that number.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from typing import Any

Clock = tuple[float, ...]


def clock() -> Clock:
    """Return seconds: of the wall, of the CPU, and of the CPU as user; with those of children that have ended."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    user = sum(use.ru_utime for use in uses)
    return time.perf_counter(), user + sum(use.ru_stime for use in uses), user


def since(began: Clock, times: float = 1) -> str:
    """Return the seconds since then, multiplied, for the benchmark to read."""
    return " ".join(str((now - then) * times) for now, then in zip(clock(), began, strict=True))


def walk(path: str) -> tuple[Clock, int]:
    """Read the entries of an archive with tarkit's TarReader."""
    from tarkit.streams.source import FileSource
    from tarkit.tar.reader import TarReader

    fd = os.open(path, os.O_RDONLY)
    began = clock()
    count = 0
    for _ in TarReader(FileSource(fd, path)):
        count += 1
    return began, count


def tarfile(path: str) -> tuple[Clock, int]:
    """Read the entries of an archive with the standard library, as a stream."""
    import tarfile

    began = clock()
    count = 0
    with tarfile.open(path, "r|") as archive:
        for _ in archive:
            count += 1
    return began, count


def webdataset(path: str) -> tuple[Clock, int]:
    """Read the entries of all samples with webdataset, as bytes."""
    import webdataset

    began = clock()
    count = 0
    for sample in webdataset.WebDataset(path, shardshuffle=False):
        count += sum(not field.startswith("__") for field in sample)
    return began, count


def api(path: str) -> tuple[Clock, int]:
    """Read the entries of all samples with tarkit's Python API, as bytes."""
    import tarkit

    data = tarkit.open(path)
    data.head()  # modules are loaded on first use
    began = clock()
    count = 0
    for sample in data:
        count += len([*sample.values()])
    return began, count


def share(part: str, *command: str) -> None:
    """Run a command over many samples, and print the seconds that a `part` of them would take."""
    began = clock()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(since(began, float(part)))


def xargs(path: str, place: str, samples: str) -> None:
    """Unpack samples of two entries into a new directory, and print the times of `wc` for each of their first files."""
    import itertools
    import tarfile
    import tempfile

    with tempfile.TemporaryDirectory(dir=place) as directory, tarfile.open(path) as archive:
        entries = list(itertools.islice(archive, 2 * int(samples)))
        archive.extractall(directory, entries, filter="data")
        names = "\n".join(each.name for each in entries[::2]).encode()
        began = clock()
        command = ["xargs", "-P", "2", "-n", "1", "wc", "-c"]
        subprocess.run(command, check=True, cwd=directory, input=names, stdout=subprocess.DEVNULL)
        print(since(began))


def get_boto3() -> None:
    """Write an object to stdout with boto3."""
    import boto3

    boto3.client("s3").download_fileobj("in", "all.tar", sys.stdout.buffer)


def put_boto3() -> None:
    """Write stdin to an object with boto3."""
    import boto3

    boto3.client("s3").upload_fileobj(sys.stdin.buffer, "out", "b.tar")


def get_obstore() -> None:
    """Write an object to stdout with obstore."""
    import obstore

    for piece in obstore.get(_bucket("in"), "all.tar").stream():
        sys.stdout.buffer.write(piece)


def put_obstore() -> None:
    """Write stdin to an object with obstore."""
    import shutil

    import obstore

    with obstore.open_writer(_bucket("out"), "b.tar") as writer:
        shutil.copyfileobj(sys.stdin.buffer, writer, 1 << 20)


def _bucket(name: str) -> Any:
    from obstore.store import S3Store

    return S3Store(name, client_options={"allow_http": True})


STORES = {"get-boto3": get_boto3, "put-boto3": put_boto3, "get-obstore": get_obstore, "put-obstore": put_obstore}


def main(mode: str, *arguments: str) -> None:
    """Run one mode."""
    if mode in STORES:
        STORES[mode]()
        return
    argument = arguments[0]
    if mode in ("share", "xargs"):
        {"share": share, "xargs": xargs}[mode](*arguments)
        return
    began, count = {"walk": walk, "tarfile": tarfile, "webdataset": webdataset, "api": api}[mode](argument)
    print(since(began), count)


if __name__ == "__main__":
    main(*sys.argv[1:])
