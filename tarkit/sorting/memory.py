"""How much memory an order may take, whether files are read where they lie, and what is not looked at for garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tarkit.errors import Usage
from tarkit.shards.limits import parse_size
from tarkit.streams.location import Location

LEAST = 1_000_000  # bytes of memory with which there is still something to be done


def parse_memory(text: str | None) -> int:
    """Bytes of --memory, a quarter of what the machine has if nothing is said. Raises Usage."""
    if text is None:
        return max(memory_of_machine()[0] // 4, LEAST)
    size = parse_size(text)
    if size < LEAST:
        raise Usage(
            f"--memory {text}: with less than 1 MB nothing can be done", "1M is the least; 500M, 2GB, 16GiB are sizes"
        )
    return size


def in_place(locations: Sequence[Location], note: Callable[[str], None]) -> bool:
    """Whether the samples of files are to stay where they are: these fit into free memory, else that would be seeks."""
    files = [each.text for each in locations if each.kind == "path" and os.path.isfile(each.text)]
    total = sum(os.stat(path).st_size for path in files)
    free = memory_of_machine()[1]
    if total > free:
        note(f"files of {total} bytes are read in order and sorted in runs: {free} bytes of memory are free")
    elif total:
        note(f"samples of files are copied from where they are: {total} bytes fit into free memory")
    return total <= free


def memory_of_machine() -> tuple[int, int]:
    """Bytes of memory that there are, and that are free or easily made so."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return total, int(line.split()[1]) << 10
    except OSError:
        pass
    return total, total // 2


@contextmanager
def no_collections() -> Iterator[None]:
    """Meanwhile Python does not look for cycles of garbage, again and again, among millions of tuples without any."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
