"""What the bench has `tarkit proc` do with samples: as a function for --map, and as a program for --worker."""

from __future__ import annotations

import io
import sys
import tarfile


def count(sample: dict[str, bytes]) -> dict[str, bytes]:
    """The size of a field becomes another one."""
    return {**sample, "size": b"%d" % len(sample["bin"])}


def main() -> None:
    """A tar stream in, one out."""
    with (
        tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as given,
        tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.USTAR_FORMAT) as made,
    ):
        for info in given:
            file = given.extractfile(info)
            made.addfile(info, io.BytesIO(file.read() if file else b""))


if __name__ == "__main__":
    main()
