"""Memory of a sort: the limit, and whether the samples of files stay in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from tarkit import machine
from tarkit.options import row
from tarkit.pipeline.output import and_archives
from tarkit.sizes import parse_size
from tarkit.streams.location import Location

LEAST = 1_000_000  # minimum of --memory in bytes

MEMORY: Any = row(
    "Order",
    "--memory",
    at_least=LEAST,
    type=parse_size,
    metavar="SIZE",
    help="Use up to SIZE: 500M, 4GB.  [default: 1/4 of RAM]",
    hint="sizes look like 500M, 2GB or 16GiB",
)


def default_memory() -> int:
    """Return the bytes that may be held where the user does not say so: a quarter of the memory."""
    return max(machine.memory().total // 4, LEAST)


def in_place(locations: Sequence[Location], note: Callable[[str], None]) -> bool:
    """Return whether samples of files stay in place: if all fit into free memory. Else reading them would be seeks."""
    locations = and_archives(locations)
    files = [location.text for location in locations if location.kind == "path" and os.path.isfile(location.text)]
    total = sum(os.stat(path).st_size for path in files)
    free = machine.memory().free
    if total > free:
        note(f"files of {total} bytes are read in order and sorted in runs: {free} bytes of memory are free")
    elif total:
        note(f"samples of files are copied from their place: {total} bytes fit into free memory")
    return total <= free
