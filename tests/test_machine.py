"""The CPUs and the memory that a process may use: affinity, cgroups of both versions, `ulimit -v`."""

from __future__ import annotations

import itertools
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tarkit import machine
from tarkit.machine import Memory, cpus, memory
from tests._tools import each_row

GIB = 1 << 30
TOTAL = 64 * GIB  # of the machine, of which half is free
V1 = "31 23 0:1 {top} /cg/memory rw - cgroup cgroup rw,memory\n"
V1 += "32 23 0:2 {top} /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "33 23 0:3 {top} /cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the roots of systems with 16 CPUs and 64 GiB, in which a test writes the files of cgroups."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(16), raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": TOTAL // 4096}.__getitem__)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def roots() -> Iterator[Path]:
        for number in itertools.count():
            root = tmp_path / f"{number}"
            write(root, "proc/meminfo", f"MemTotal: {TOTAL >> 10} kB\nMemAvailable: {TOTAL >> 11} kB")
            yield root

    return roots()


def write(root: Path, path: str, text: object) -> None:
    """Write a file of a system below `root`."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")


UNLIMITED = 9223372036854771712  # of version 1
CASES = {
    "no cgroups": ("", "", {}, 16, TOTAL, TOTAL // 2),
    "version 2, in a container": (
        "0::/",
        V2.format(top="/"),
        {"cpu.max": "150000 100000", "memory.max": 4 * GIB, "memory.current": GIB,
         "memory.stat": f"anon 5\nactive_file {GIB // 2}"},
        2, 4 * GIB, 3 * GIB + GIB // 2,
    ),
    "version 2, a service, with a limit on what is above it": (
        "0::/system.slice/a.service",
        V2.format(top="/"),
        {"system.slice/a.service/cpu.max": "max 100000", "system.slice/a.service/memory.max": "max",
         "system.slice/a.service/memory.current": 5, "system.slice/cpu.max": "300000 100000",
         "system.slice/memory.max": "max", "system.slice/memory.high": GIB, "system.slice/memory.current": 2 * GIB},
        3, GIB, 0,
    ),
    "version 1, the path of the host": (
        "5:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab",
        V1.format(top="/docker/ab"),
        {"memory/memory.limit_in_bytes": 2 * GIB, "memory/memory.usage_in_bytes": GIB,
         "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 4}\ntotal_active_file {GIB // 4}",
         "cpu/cpu.cfs_quota_us": 50000, "cpu/cpu.cfs_period_us": 100000},
        1, 2 * GIB, GIB + GIB // 2,
    ),
    "version 1, a batch job without limits": (
        "5:memory:/slurm/job_7\n4:cpu,cpuacct:/slurm/job_7",
        V1.format(top="/"),
        {"memory/slurm/job_7/memory.limit_in_bytes": UNLIMITED, "memory/slurm/job_7/memory.usage_in_bytes": GIB,
         "cpu/slurm/job_7/cpu.cfs_quota_us": -1, "cpu/slurm/job_7/cpu.cfs_period_us": 100000},
        16, TOTAL, TOTAL // 2,
    ),
    "both versions, and a cgroup outside the mount": (
        "5:memory:/other\n0::/../elsewhere",
        V1.format(top="/mine") + V2.format(top="/"),
        {"memory/memory.limit_in_bytes": GIB, "memory/memory.usage_in_bytes": 0, "cpu.max": "700000 100000"},
        7, GIB, GIB,
    ),
    "what cannot be read": (
        "0::/", V2.format(top="/"), {"cpu.max": "?", "memory.max": "", "memory.current": "x"}, 16, TOTAL, TOTAL // 2
    ),
}  # fmt: skip


@each_row("name", [*CASES])
def test_limits(systems: Iterator[Path], name: str) -> None:
    """The smallest limit of the process's cgroup and of those above it counts; memory for the page cache is free."""
    system = next(systems)
    groups, mounts, files, count, total, free = CASES[name]
    write(system, "proc/self/cgroup", groups)
    write(system, "proc/self/mountinfo", f"22 1 8:1 / / rw - ext4 /dev/root rw\n{mounts}")
    for path, text in files.items():
        write(system, f"cg/{path}", text)
    assert (cpus(f"{system}"), memory(f"{system}")) == (count, Memory(total, free))


@each_row("seed", range(20))
def test_random_limits(systems: Iterator[Path], seed: int) -> None:
    """Limits anywhere above the process: the smallest one counts."""
    system = next(systems)
    draw = random.Random(seed)
    names = [f"g{number}" for number in range(draw.randint(1, 5))]
    write(system, "proc/self/cgroup", f"0::/{'/'.join(names)}")
    write(system, "proc/self/mountinfo", V2.format(top="/").strip())
    count, total, free = 16, TOTAL, TOTAL // 2
    for depth in range(len(names) + 1):
        directory = "/".join(("cg", *names[:depth]))
        if draw.random() < 0.5:
            limit, usage = draw.randrange(TOTAL * 2), draw.randrange(TOTAL)
            total, free = min(total, limit), min(free, max(limit - usage, 0))
            write(system, f"{directory}/memory.max", limit)
            write(system, f"{directory}/memory.current", usage)
        if draw.random() < 0.5:
            whole, part = draw.randrange(1, 20), draw.random() < 0.5
            count = min(count, whole + part)
            write(system, f"{directory}/cpu.max", f"{whole * 100000 + part * 50000} 100000")
    assert (cpus(f"{system}"), memory(f"{system}")) == (count, Memory(total, min(free, total)))


def test_elsewhere(systems: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without /proc and affinity, as macOS, has all its CPUs, and half of its memory counts as free."""
    system = next(systems)
    (system / "proc/meminfo").unlink()
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert (cpus(f"{system}"), memory(f"{system}")) == (12, Memory(TOTAL, TOTAL // 2))


PROGRAM = "from tarkit.machine import cpus, memory; print(cpus(), *memory())"


def ask(*before: str) -> list[int]:
    """Return the CPUs, the memory and the free memory of a new process, which the program of `before` starts."""
    environment = {**os.environ, "PYTHONPATH": str(Path(machine.__file__).parents[1])}
    command = [*before, sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [int(word) for word in ran.stdout.split()]


def test_this_machine() -> None:
    """A process of `ulimit -v` has that much memory at most."""
    count, total, free = ask()
    assert count >= 1
    assert 0 < free <= total
    assert ask("sh", "-c", f'ulimit -v {GIB >> 10}; exec "$@"', "sh")[1] == min(total, GIB)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_affinity() -> None:
    """A process that is bound to one CPU has one."""
    first = min(os.sched_getaffinity(0))
    bound = f"import os, sys; os.sched_setaffinity(0, {{{first}}}); os.execv(sys.argv[1], sys.argv[1:])"
    assert ask(sys.executable, "-c", bound)[0] == 1


@pytest.fixture
def cgroup() -> Iterator[dict[str, Path]]:
    """Return the directories of a new cgroup, by controller; skipped where none can be made."""
    top = Path("/sys/fs/cgroup")
    name = f"tarkit-{uuid4().hex}"
    groups = {kind: (top if (top / "cgroup.controllers").exists() else top / kind) / name for kind in ("cpu", "memory")}
    try:
        for path in groups.values():
            path.mkdir(exist_ok=True)
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    yield groups
    for path in dict.fromkeys(groups.values()):
        if path.exists():
            path.rmdir()


def test_cgroup(cgroup: dict[str, Path]) -> None:
    """A real cgroup of one CPU and 200 MB: what the process says, and the memory that a sort takes by itself."""
    second = (cgroup["memory"] / "memory.max").exists()
    try:
        if second:
            (cgroup["cpu"] / "cpu.max").write_text("100000 100000")
            (cgroup["memory"] / "memory.max").write_text(f"{200 << 20}")
        else:
            (cgroup["cpu"] / "cpu.cfs_quota_us").write_text("100000")
            (cgroup["memory"] / "memory.limit_in_bytes").write_text(f"{200 << 20}")
    except OSError as error:
        pytest.skip(f"the controllers of cpu and memory are not ours to set: {error}")
    joins = " && ".join(f"echo $$ >{path}/cgroup.procs" for path in dict.fromkeys(cgroup.values()))
    count, total, free = ask("sh", "-c", f'{joins} && exec "$@"', "sh")
    assert (count, total) == (1, 200 << 20)
    assert 100 << 20 < free <= 200 << 20
