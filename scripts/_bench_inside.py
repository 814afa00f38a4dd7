"""Code that the benchmark runs in a new Python: `python _bench_inside.py MODE ARGUMENT`.

Each mode but `zeros`, `share` and those of STORES prints its seconds, without imports, and the number of entries; its
function returns the time of the start and that number.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from _bench_data import header, marker


def walk(path: str) -> tuple[float, int]:
    """Read the entries of an archive with tarkit's TarReader."""
    from tarkit.streams.source import FileSource
    from tarkit.tar.reader import TarReader

    fd = os.open(path, os.O_RDONLY)
    began = time.perf_counter()
    count = 0
    for _ in TarReader(FileSource(fd, path)):
        count += 1
    return began, count


def tarfile(path: str) -> tuple[float, int]:
    """Read the entries of an archive with the standard library, as a stream."""
    import tarfile

    began = time.perf_counter()
    count = 0
    with tarfile.open(path, "r|") as archive:
        for _ in archive:
            count += 1
    return began, count


def webdataset(path: str) -> tuple[float, int]:
    """Read the entries of all samples with webdataset, as bytes."""
    import webdataset

    began = time.perf_counter()
    count = 0
    for sample in webdataset.WebDataset(path, shardshuffle=False):
        count += sum(not field.startswith("__") for field in sample)
    return began, count


def api(path: str) -> tuple[float, int]:
    """Read the entries of all samples with tarkit's Python API, as bytes."""
    import tarkit

    data = tarkit.open(path)
    data.head()  # modules are loaded on first use
    began = time.perf_counter()
    count = 0
    for sample in data:
        count += len([*sample.values()])
    return began, count


def zeros(size: str) -> None:
    """Write an archive of one entry of `size` zeros to stdout."""
    total = int(size)
    sys.stdout.buffer.write(header("zeros.bin", total))
    chunk = bytes(1 << 20)
    for left in range(total, 0, -len(chunk)):
        sys.stdout.buffer.write(chunk[:left])
    padding = bytes(-total % 512)
    sys.stdout.buffer.write(padding + marker(512 + total + len(padding)))


def share(part: str, *command: str) -> None:
    """Run a command over many samples, and print the seconds that a `part` of them would take."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    print((time.perf_counter() - began) * float(part), 0)


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
    if mode == "zeros":
        zeros(argument)
        return
    if mode == "share":
        share(*arguments)
        return
    began, count = {"walk": walk, "tarfile": tarfile, "webdataset": webdataset, "api": api}[mode](argument)
    print(time.perf_counter() - began, count)


if __name__ == "__main__":
    main(*sys.argv[1:])
