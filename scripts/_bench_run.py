"""Measurements of the benchmark: whole processes, interleaved candidates, medians of rounds, and a table of results."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from _bench_data import BLOCK, RECORD, Content, content

TARKIT = "tarkit"  # with the accelerator, if it is compiled
PURE = "pure"  # without it
STDOUT = "stdout"  # the file for stdout, among the outputs
MIB = 1 << 20
NOTHING = Content(0, 0)


class BenchError(Exception):
    """A command failed, or its output is wrong."""


class Cost(NamedTuple):
    """The cost of one run."""

    wall: float  # seconds
    cpu: float  # seconds, user and system, of all processes and of their children
    user: float
    mib: float  # peak resident set of the watched process
    read: float  # MiB read by it, cached or not; 0 if the system does not report it
    moved: float  # MiB read and written by it


Stage = Sequence[str | Path]
Check = Callable[[Path, Content], None]  # checks the directory of outputs against the content of the data


@dataclass(frozen=True)
class Way:
    """One candidate: its name, and its processes, each of which writes to the next."""

    who: str
    stages: Sequence[Stage]
    check: Check | None = None
    watch: int = -1  # the stage whose memory is measured
    inside: bool = False  # the process measures the time itself and prints it to stdout


@dataclass(frozen=True)
class Aim:
    """`faster` times as fast as `peer`, or at most `within` times its figure; without a peer at most `within` MiB."""

    peer: str = ""
    faster: float = 0
    within: float = 0

    def __str__(self) -> str:
        if not self.peer:
            return f"{self.within:.0f} MiB"
        if self.within == 1:
            return f"not slower than {self.peer}"
        return f"{self.faster:g} x faster than {self.peer}" if self.faster else f"{self.within:g} x {self.peer}"

    def reached(self, mine: float, figures: Mapping[str, float]) -> bool | None:
        """Return whether the aim is reached, to the digits that are shown; None if there is nothing to compare."""
        if not self.peer:
            return mine <= self.within
        if not figures.get(self.peer):
            return None
        peer = figures[self.peer]
        return round(peer / mine, 1) >= self.faster if self.faster else round(mine / peer, 1) <= self.within


Aims = dict[str, Aim]  # of tarkit, and of tarkit without the accelerator


def within(peer: str, fast: float, pure: float = 0) -> Aims:
    """Return the aims of at most so many times the figure of a peer; 0: none."""
    return {who: Aim(peer, within=value) for who, value in ((TARKIT, fast), (PURE, pure)) if value}


def faster(peer: str, fast: float, pure: float) -> Aims:
    """Return the aims of being so many times as fast as a peer."""
    return {TARKIT: Aim(peer, faster=fast), PURE: Aim(peer, faster=pure)}


@dataclass
class Row:
    """One piece of work, done by all candidates."""

    name: str
    data: str  # name of the set that it needs, or empty
    ways: list[Way]
    aims: Aims = field(default_factory=dict)
    content: Content = NOTHING  # expected content, if it is not that of the set
    repeat: int = 1  # runs in a round; 0: the first run, which is also the check, is the result
    by: str = "cpu"  # the figure of Cost that is compared
    cold: Path | None = None  # a directory whose files are dropped from the page cache before each run
    values: dict[str, list[Cost]] = field(default_factory=dict)

    def medians(self, figure: str = "") -> dict[str, float]:
        """Return the median of a figure for each candidate; without a name of the one that is compared."""
        name = figure or self.by
        return {who: median([getattr(cost, name) for cost in costs]) for who, costs in self.values.items()}


def median(values: Sequence[float]) -> float:
    """Return the median; importing `statistics` would raise the benchmark's memory, the least that can be measured."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


class Runner:
    """Runs candidates one at a time, each with an empty directory for its outputs."""

    def __init__(self, out: Path, environ: Mapping[str, str]) -> None:
        self.out = out
        self.environ = environ
        self.checked: dict[tuple[bool, str], Cost] = {}  # the first run of each candidate

    def row(self, row: Row, expected: Content, rounds: int) -> None:
        """Run each candidate once and check it, which also warms the page cache; then all in turn, in rounds."""
        for way in row.ways:
            known = (way.who == PURE, str(way.stages))
            if row.repeat or known not in self.checked:
                self.checked[known] = self._try(row, way, expected)
            row.values[way.who] = [] if row.repeat else [self.checked[known]]
        for turn in range(rounds * row.repeat if row.ways else 0):
            first = turn % len(row.ways)
            for way in row.ways[first:] + row.ways[:first]:
                row.values[way.who].append(self._try(row, way))

    def _try(self, row: Row, way: Way, expected: Content | None = None) -> Cost:
        try:
            if row.cold is not None:
                evict(row.cold)
            return self._cost(way, expected)
        except (BenchError, ValueError) as error:
            raise BenchError(f"{row.name}: {way.who}: {error}") from error

    def _cost(self, way: Way, expected: Content | None) -> Cost:
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        try:
            cost = self._run(way)
            if expected and way.check:
                way.check(self.out, expected)
            return cost
        finally:
            shutil.rmtree(self.out, ignore_errors=True)

    def _run(self, way: Way) -> Cost:
        with tempfile.TemporaryFile() as errors, (self.out / STDOUT).open("w+b") as stdout:
            began = time.perf_counter()
            children = self._start(way, errors, stdout)
            os.waitid(os.P_PID, children[way.watch].pid, os.WEXITED | os.WNOWAIT)
            read, written = moved_by(children[way.watch].pid)
            ends = [os.wait4(child.pid, 0) for child in children]
            wall = time.perf_counter() - began
            for child, (_, status, _) in zip(children, ends, strict=True):
                child.returncode = os.waitstatus_to_exitcode(status)
            failed = blame(way, [child.returncode for child in children])
            if failed is not None:
                errors.seek(0)
                said = errors.read()[-4000:].decode(errors="replace")
                raise BenchError(f"{way.stages[failed][0]}: exit status {children[failed].returncode}\n{said}")
            user = sum(usage.ru_utime for _, _, usage in ends)
            cpu = user + sum(usage.ru_stime for _, _, usage in ends)
            if way.inside:
                stdout.seek(0)
                wall, cpu, user = map(float, stdout.read().split()[:3])
            return Cost(wall, cpu, user, resident(ends[way.watch][2].ru_maxrss), read, read + written)

    def _start(self, way: Way, errors: IO[bytes], stdout: IO[bytes]) -> list[subprocess.Popen[bytes]]:
        children: list[subprocess.Popen[bytes]] = []
        environ = {**self.environ, "TARKIT_PURE": "1" if way.who == PURE else "0"}
        for index, stage in enumerate(way.stages):
            last = index == len(way.stages) - 1
            source = children[-1].stdout if children else subprocess.DEVNULL
            sink = stdout if last else subprocess.PIPE
            child = subprocess.Popen(stage, stdin=source, stdout=sink, stderr=errors, env=environ)
            if children and children[-1].stdout:
                children[-1].stdout.close()
            children.append(child)
        return children


def evict(directory: Path) -> None:
    """Drop the files below a directory from the page cache, where the system can."""
    os.sync()  # what is not on the disk stays
    for path in directory.rglob("*") if hasattr(os, "posix_fadvise") else ():
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def blame(way: Way, statuses: Sequence[int]) -> int | None:
    """Return the stage that made the run fail, or None: not one that ended by a broken pipe of another.

    A peer may stop reading at the end of an archive, as in a shell; tarkit must read all of its input.
    """
    failed = [index for index, status in enumerate(statuses) if status]
    first = next((index for index in failed if statuses[index] != -signal.SIGPIPE), None)
    if first is None and failed and way.who in (TARKIT, PURE):
        return failed[0]
    return first


def moved_by(pid: int) -> tuple[float, float]:
    """Return MiB read and MiB written by a process that has just ended."""
    try:
        words = Path(f"/proc/{pid}/io").read_text().split()
    except OSError:
        return 0, 0
    return int(words[words.index("rchar:") + 1]) / MIB, int(words[words.index("wchar:") + 1]) / MIB


def resident(maxrss: int) -> float:
    """Return MiB of a maxrss of getrusage: bytes on macOS, else KiB."""
    return maxrss / (MIB if sys.platform == "darwin" else 1024)


def holds(out: Path, expected: Content) -> None:
    """Check that the archives in the directory have the expected content together."""
    found = [content(path) for path in out.rglob("*") if path.stat().st_size]
    total = Content(sum(each.entries for each in found), sum(each.size for each in found))
    if total != expected:
        raise BenchError(f"wrote {total}, should be {expected}")


def unpacks(out: Path, expected: Content) -> None:
    """Check that the compressed archive has the expected content."""
    for path in out.glob("b.tar.*"):
        subprocess.run(["zstd", "-dq", "--rm", path] if path.suffix == ".zst" else ["gzip", "-d", path], check=True)
    holds(out, expected)


def samples(out: Path, expected: Content) -> None:
    """Check that the archive has the expected number of entries."""
    _same(content(out / "b.tar").entries, expected.entries)


def lists(out: Path, expected: Content) -> None:
    """Check that stdout has a line for each entry."""
    _same((out / STDOUT).read_bytes().count(b"\n"), expected.entries)


def counts(out: Path, expected: Content) -> None:
    """Check that the last word on stdout is the number of entries."""
    _same(int((out / STDOUT).read_bytes().split()[-1]), expected.entries)


def summarises(out: Path, expected: Content) -> None:
    """Check that the summary has the number of entries, with spaces between the thousands."""
    said = (out / STDOUT).read_text().partition("\n  entries")[2].partition("\n")[0]
    _same(int(said.replace(" ", "")), expected.entries)


def rows(out: Path, expected: Content) -> None:
    """Check that stdout has a line for each sample of two entries, and a header line."""
    _same((out / STDOUT).read_bytes().count(b"\n"), expected.entries // 2 + 1)


def measures(out: Path, expected: Content) -> None:
    """Check that the last word on stdout is the length of an archive with this content in one entry."""
    size = BLOCK + expected.size + 2 * BLOCK
    _same(int((out / STDOUT).read_bytes().split()[-1]), size + -size % RECORD)


def _same(found: int, expected: int) -> None:
    if found != expected:
        raise BenchError(f"said {found}, should be {expected}")


TIMES = ("cpu", "wall", "user")
# the titles of the tables, and the figures of Cost that are compared in them
TABLES = {"wall / CPU s": TIMES, "peak MiB": ("mib",), "MiB read": ("read",), "MiB read and written": ("moved",)}


def tables(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table for each kind of figure; memory up to the benchmark's own is marked as a bound."""
    parts = ((title, [row for row in rows if row.by in figures]) for title, figures in TABLES.items())
    return [_table(part, title) for title, part in parts if part]


def _table(rows: Sequence[Row], title: str) -> str:
    both = any(PURE in row.values for row in rows)
    times = any(row.by in TIMES for row in rows)
    ours = [TARKIT, PURE] if both else [TARKIT]
    names = {TARKIT: "fast", PURE: "pure"} if both else {TARKIT: "tarkit"}
    heads = ["work", *(f"{names[who]}: {title}" for who in ours), f"against: {title}", *["by"] * times]
    heads += [word for who in ours for word in (f"aim, {names[who]}" if both else "aim", "reached?")]
    lines = [heads, ["---:" if head.endswith(title) and "against" not in head else "---" for head in heads]]
    for row in rows:
        cells = [row.name.replace("__", r"\_\_"), *(_cell(row, who) for who in ours)]
        cells.append("; ".join(_cell(row, who) + _versus(row, who) for who in row.values if who not in ours) or "-")
        cells += [{"cpu": "CPU"}.get(row.by, row.by)] * times
        figures = row.medians()
        for who in ours:
            aim = row.aims.get(who) if who in figures else None
            reached = aim.reached(figures[who], figures) if aim else None
            cells += [str(aim or "-"), "-" if reached is None else "yes" if reached else "no"]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(row: Row, who: str) -> str:
    """Return the figure of a candidate, with its name if it is a peer."""
    if who not in row.values:
        return "-" if who == PURE else "absent"
    if row.by not in TIMES:
        value = row.medians()[who]
        said = f"{value:.0f}" if row.by != "mib" or _seen(value) else f"≤ {value:.0f}"
    else:
        shown = ("wall", "user") if row.by == "user" else ("wall", "cpu")
        said = " / ".join(_seconds(row.medians(figure)[who]) for figure in shown)
    return said if who in (TARKIT, PURE) else f"{who} {said}"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _seen(mib: float) -> bool:
    return mib > own() + 1


def own() -> float:
    """Return the peak MiB of the benchmark itself: a child starts as its fork, so its peak is at least that."""
    import resource

    return resident(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _versus(row: Row, peer: str) -> str:
    """Return how much better or worse tarkit is than a peer, and without the accelerator."""
    figures, said = row.medians(), []
    better, worse = ("faster", "slower") if row.by in TIMES else ("less", "more")
    for who in (TARKIT, PURE):
        mine, other = figures.get(who), figures[peer]
        if not (mine and other) or (row.by == "mib" and not (_seen(mine) and _seen(other))):
            continue
        ratio = other / mine
        words = f"{ratio:.1f} x {better}" if ratio >= 1 else f"{1 / ratio:.1f} x {worse}"
        said.append(f"pure {words}" if who == PURE else words)
    return f" ({', '.join(said)})" if said else ""
