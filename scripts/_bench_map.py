"""The work of `tarkit proc` in the benchmark: a function for --map, and a program for --worker."""

from __future__ import annotations

import io
import sys
import tarfile


def count(sample: dict[str, bytes]) -> dict[str, bytes]:
    """Add a field with the size of another."""
    return {**sample, "size": b"%d" % len(sample["bin"])}


def main() -> None:
    """Copy a tar stream from stdin to stdout."""
    with (
        tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as given,
        tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.USTAR_FORMAT) as made,
    ):
        for info in given:
            file = given.extractfile(info)
            made.addfile(info, io.BytesIO(file.read() if file else b""))


if __name__ == "__main__":
    main()
