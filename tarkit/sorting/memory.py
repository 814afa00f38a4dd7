"""Memory of a sort: the limit, and whether the samples of files stay in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from tarkit.errors import Usage, spell
from tarkit.sizes import parse_size
from tarkit.streams.location import Location

LEAST = 1_000_000  # minimum of --memory in bytes


def parse_memory(text: str | None) -> int:
    """Return the bytes of --memory; the default is a quarter of the machine's memory. Raises Usage."""
    if text is None:
        return max(memory_of_machine()[0] // 4, LEAST)
    size = parse_size(text)
    if size < LEAST:
        raise Usage(f"{spell('memory')} {text}: the minimum is 1 MB", "sizes look like 500M, 2GB or 16GiB")
    return size


def in_place(locations: Sequence[Location], note: Callable[[str], None]) -> bool:
    """Return whether samples of files stay in place: if all fit into free memory. Else reading them would be seeks."""
    files = [location.text for location in locations if location.kind == "path" and os.path.isfile(location.text)]
    total = sum(os.stat(path).st_size for path in files)
    free = memory_of_machine()[1]
    if total > free:
        note(f"files of {total} bytes are read in order and sorted in runs: {free} bytes of memory are free")
    elif total:
        note(f"samples of files are copied from their place: {total} bytes fit into free memory")
    return total <= free


def memory_of_machine() -> tuple[int, int]:
    """Return the bytes of memory, and how many of them are available."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return total, int(line.split()[1]) << 10
    except OSError:
        pass
    return total, total // 2
