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

TARKIT = "tarkit"
STDOUT = "stdout"  # the file for stdout, among the outputs
MIB = 1 << 20
MOVED = "MiB read and written"
NOTHING = Content(0, 0)


class BenchError(Exception):
    """A command failed, or its output is wrong."""


class Cost(NamedTuple):
    """The cost of one run."""

    seconds: float
    mib: float  # peak resident set of the watched process
    moved: float = 0  # MiB read and written by it, cached or not; 0 if the system does not report it


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
    """`faster` times as fast as `peer`, or at most `within` times its time; without a peer at most `within` MiB."""

    peer: str = ""
    faster: float = 0
    within: float = 0

    def __str__(self) -> str:
        if not self.peer:
            return f"{self.within:g} MiB"
        if self.within == 1:
            return f"not slower than {self.peer}"
        return f"{self.faster:g} x {self.peer}" if self.faster else f"within {self.within:g} x of {self.peer}"

    def reached(self, medians: Mapping[str, float]) -> bool | None:
        """Return whether the aim is reached, to the one decimal that is shown; None if there is nothing to compare."""
        if TARKIT not in medians or (self.peer and self.peer not in medians):
            return None
        mine = medians[TARKIT]
        if not self.peer:
            return mine <= self.within
        peer = medians[self.peer]
        return round(peer / mine, 1) >= self.faster if self.faster else round(mine / peer, 1) <= self.within


@dataclass
class Row:
    """One piece of work, done by all candidates."""

    name: str
    data: str  # name of the set that it needs, or empty
    ways: list[Way]
    aim: Aim | None = None
    content: Content = NOTHING  # expected content, if it is not that of the set
    repeat: int = 1  # runs in a round; 0: the first run, which is also the check, is the result
    unit: str = "s"
    values: dict[str, list[float]] = field(default_factory=dict)

    @property
    def medians(self) -> dict[str, float]:
        """Return the median of each candidate."""
        return {who: median(values) for who, values in self.values.items()}


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
        self.checked: dict[str, Cost] = {}  # the first run of each candidate

    def row(self, row: Row, expected: Content, rounds: int) -> None:
        """Run each candidate once and check it, which also warms the page cache; then all in turn, in rounds."""
        row.values = {way.who: [self._value(row, way, expected)] for way in row.ways}
        turns = rounds * row.repeat if row.ways else 0
        if turns:
            row.values = {way.who: [] for way in row.ways}
        for turn in range(turns):
            first = turn % len(row.ways)
            for way in row.ways[first:] + row.ways[:first]:
                row.values[way.who].append(self._value(row, way))

    def _value(self, row: Row, way: Way, expected: Content | None = None) -> float:
        cost = self.checked.get(str(way.stages)) if expected else None
        if cost is None:
            try:
                cost = self._cost(way, expected)
            except (BenchError, ValueError) as error:
                raise BenchError(f"{row.name}: {way.who}: {error}") from error
        if expected:
            self.checked[str(way.stages)] = cost
        return {"s": cost.seconds, "MiB": cost.mib, MOVED: cost.moved}[row.unit]

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
            moved = moved_by(children[way.watch].pid)
            ends = [os.wait4(child.pid, 0) for child in children]
            seconds = time.perf_counter() - began
            for child, (_, status, _) in zip(children, ends, strict=True):
                child.returncode = os.waitstatus_to_exitcode(status)
            failed = blame(way, [child.returncode for child in children])
            if failed is not None:
                errors.seek(0)
                said = errors.read()[-4000:].decode(errors="replace")
                raise BenchError(f"{way.stages[failed][0]}: exit status {children[failed].returncode}\n{said}")
            if way.inside:
                stdout.seek(0)
                seconds = float(stdout.read().split()[0])
            return Cost(seconds, resident(ends[way.watch][2].ru_maxrss), moved)

    def _start(self, way: Way, errors: IO[bytes], stdout: IO[bytes]) -> list[subprocess.Popen[bytes]]:
        children: list[subprocess.Popen[bytes]] = []
        for index, stage in enumerate(way.stages):
            last = index == len(way.stages) - 1
            source = children[-1].stdout if children else subprocess.DEVNULL
            sink = stdout if last else subprocess.PIPE
            child = subprocess.Popen(stage, stdin=source, stdout=sink, stderr=errors, env=self.environ)
            if children and children[-1].stdout:
                children[-1].stdout.close()
            children.append(child)
        return children


def blame(way: Way, statuses: Sequence[int]) -> int | None:
    """Return the stage that made the run fail, or None: not one that ended by a broken pipe of another.

    A peer may stop reading at the end of an archive, as in a shell; tarkit must read all of its input.
    """
    failed = [index for index, status in enumerate(statuses) if status]
    first = next((index for index in failed if statuses[index] != -signal.SIGPIPE), None)
    if first is None and failed and way.who == TARKIT:
        return failed[0]
    return first


def moved_by(pid: int) -> float:
    """Return MiB read and written by a process that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar"))) / MIB


def resident(maxrss: int) -> float:
    """Return MiB of a maxrss of getrusage: bytes on macOS, else KiB."""
    return maxrss / (MIB if sys.platform == "darwin" else 1024)


def holds(out: Path, expected: Content) -> None:
    """Check that the archives in the directory have the expected content together."""
    found = [content(path) for path in out.rglob("*") if path.stat().st_size]
    total = Content(sum(each.entries for each in found), sum(each.size for each in found))
    if total != expected:
        raise BenchError(f"wrote {total}, should be {expected}")


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


def table(rows: Sequence[Row], unit: str) -> str:
    """Return the rows of this unit as a Markdown table; memory up to the benchmark's own is marked as a bound."""
    lines = [f"| work | tarkit {unit} | against | aim | reached? |", "|---|---:|---|---|---|"]
    for row in rows:
        medians = row.medians
        mine = medians.get(TARKIT)
        against = "; ".join(
            f"{who} {_show(value, unit)}{_versus(mine, value, unit)}" for who, value in medians.items() if who != TARKIT
        )
        reached = row.aim.reached(medians) if row.aim else None
        verdict = "-" if reached is None else "yes" if reached else "no"
        shown = "absent" if mine is None else _show(mine, unit)
        lines.append(f"| {row.name} | {shown} | {against} | {row.aim or '-'} | {verdict} |")
    return "\n".join(lines)


def _show(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.2f}" if value >= 1 else f"{value:.3f}"
    return f"{value:.0f}" if unit == MOVED or _seen(value) else f"≤ {value:.0f}"


def _seen(mib: float) -> bool:
    return mib > own() + 1


def own() -> float:
    """Return the peak MiB of the benchmark itself: a child starts as its fork, so its peak is at least that."""
    import resource

    return resident(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _versus(mine: float | None, peer: float, unit: str) -> str:
    if not mine or (unit == "MiB" and not (_seen(mine) and _seen(peer))):
        return ""
    better, worse = ("faster", "slower") if unit == "s" else ("less", "more")
    ratio = peer / mine
    return f" ({ratio:.1f} x {better})" if ratio >= 1 else f" ({1 / ratio:.1f} x {worse})"
