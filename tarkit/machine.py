"""What this process may use of the machine: CPUs by affinity, and the limits of its cgroups on CPUs and memory.

Formats: proc(5) for cgroup, mountinfo and meminfo; cgroup-v1 and cgroup-v2 in the admin guide of Linux. A container, a
job of a batch system and a service of systemd are cgroups. Elsewhere than on Linux there are none.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

MEMORY_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")  # the last is of version 1, as below
MEMORY_USAGE = ("memory.current", "memory.usage_in_bytes")
PAGE_CACHE = ("inactive_file", "active_file")  # in memory.stat: part of the usage, but given up for whoever needs it


class Memory(NamedTuple):
    """Bytes of memory: all, and those that are free or can be freed."""

    total: int
    free: int


@cache
def cpus(root: str = "") -> int:
    """Return how many CPUs the process can keep busy, at least 1; a quota of 1.5 CPUs counts as 2.

    Args:
        root: a directory with other `proc` and cgroups than those of the system.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for directory in _cgroups("cpu", root):
        quota, _, period = _read(f"{directory}/cpu.max").partition(" ")
        quota = quota or _read(f"{directory}/cpu.cfs_quota_us")
        period = period or _read(f"{directory}/cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            count = min(count, -(-int(quota) // int(period)))
    return max(count, 1)


def memory(root: str = "") -> Memory:
    """Return the memory that the process may use: that of the machine, of its cgroups, or of `ulimit -v`.

    Args:
        root: a directory with other `proc` and cgroups than those of the system.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = _fields(f"{root}/proc/meminfo").get("MemAvailable:", total // 2 >> 10) << 10
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        total = min(total, address_space)
    for directory in _cgroups("memory", root):
        limits = [int(text) for text in (_read(f"{directory}/{name}") for name in MEMORY_LIMITS) if text.isdigit()]
        usage = "".join(_read(f"{directory}/{name}") for name in MEMORY_USAGE)
        if limits and usage.isdigit():
            fields = _fields(f"{directory}/memory.stat")
            cached = sum(fields.get(f"total_{name}", fields.get(name, 0)) for name in PAGE_CACHE)
            total = min(total, *limits)
            free = min(free, max(min(limits) - int(usage) + cached, 0))
    return Memory(total, min(free, total))


def _cgroups(controller: str, root: str) -> Iterator[str]:
    """Yield the directories of the process's cgroups for a controller: its own, and those above that are visible."""
    paths = {}  # controller -> path; "" is version 2
    for line in _read(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    for line in _read(f"{root}/proc/self/mountinfo").splitlines():
        mount, _, system = line.partition(" - ")
        top, point = mount.split(" ")[3:5]
        words = system.split(" ")  # kind, source, options
        if words[0] == "cgroup2":
            path = paths.get("", "/")
        elif words[0] == "cgroup" and controller in words[-1].split(","):
            path = paths.get(controller, "/")
        else:
            continue
        # in a container the path may be one of the host: then the mount is the container's cgroup
        names = path.removeprefix(top.rstrip("/")).strip("/").split("/") if f"{path}/".startswith(top) else []
        for depth in range(len(names), -1, -1):
            yield "/".join((root + point, *names[:depth]))


def _read(path: str) -> str:
    """Return the text of a file without white space around it; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""


def _fields(path: str) -> dict[str, int]:
    """Return the numbers of a file of lines `NAME NUMBER ...`."""
    lines = (line.split() for line in _read(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
