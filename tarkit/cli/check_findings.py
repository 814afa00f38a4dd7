"""Print what `check` finds: lines for people, objects for programs, or the names of bad shards alone."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from tarkit.api.check import noted
from tarkit.checking.findings import Finding, ShardReport
from tarkit.cli.console import ConsoleRun
from tarkit.errors import printable
from tarkit.problems import SHOWN
from tarkit.streams.sink import open_sink

Form = Literal["text", "json", "names"]

_CAPPED = (
    "reader-refuses",
    "reader-misreads",
    "missing-sample",
    "extra-sample",
    "changed-sample",
)  # may be each sample
_GATHERED = 1 << 16  # bytes of lines that go out together


class Printer:
    """Prints findings as they come and the verdicts at the end. `failed` says that something is wrong.

    What `allowed` names is a note; with `strict` notes are wrong too. With --quiet only what is wrong has lines.
    """

    def __init__(self, run: ConsoleRun, form: Form, allowed: frozenset[str], strict: bool, null: bool = False) -> None:
        self.run = run
        self.form = form
        self.failed = False
        self.reports: list[ShardReport] = []
        self._allowed = allowed
        self._strict = strict
        self._end = b"\0" if null else b"\n"
        self._alike: dict[str, Counter[str]] = {name: Counter() for name in _CAPPED}
        self._hinted: set[str] = set()
        self._sink = open_sink("stdout", "-")
        self._lines: list[bytes] = []
        self._size = 0
        self._pending: dict[str, list[Counter[str]]] = {}

    def take(self, item: Finding | ShardReport) -> None:
        """Print a finding; take note of the report of a shard."""
        if isinstance(item, Finding):
            self.finding(item)
        else:
            self.report(item)

    def finding(self, finding: Finding) -> None:
        """Print one, and count it for its shard."""
        finding = noted(finding, self._allowed)
        problems, notes = self._pending.setdefault(finding.shard, [Counter(), Counter()])
        (problems if finding.level == "error" else notes)[finding.name] += 1
        self.run.policy.counts[finding.name] += 1
        wrong = finding.level == "error" or self._strict
        self.failed = self.failed or wrong
        if self.form == "json":
            self.record(finding.record)
        elif self.form == "text" and (wrong or not self.run.quiet) and self._shown(finding):
            self.line(f"{'note: ' if finding.level == 'note' else ''}{finding.line}")
            if finding.hint and finding.name not in self._hinted:
                self._hinted.add(finding.name)
                self.line(f"hint: {finding.hint}")

    def _shown(self, finding: Finding) -> bool:
        """Whether it has a line of its own: the first three do of those that may be as many as samples, under -v all.
        Of what readers do, those are of one kind whose lines are equal but for what is in quotes."""
        alike = self._alike.get(finding.name)
        if alike is None or self.run.verbose:
            return True
        kind = re.sub(r"(?<!\w)'.*?'(, '.*?')*", "...", finding.detail) if finding.name.startswith("reader") else ""
        alike[kind] += 1
        return alike[kind] <= SHOWN

    def rest(self) -> None:
        """Say how many had no line."""
        for name, alike in self._alike.items():
            for kind, count in alike.items():
                if count > SHOWN:
                    what = f"{count - SHOWN} more: {kind} [{name}]" if kind else f"{count - SHOWN} more [{name}]"
                    self.line(f"{what}; -v names them all")
        self._alike = {name: Counter() for name in _CAPPED}

    def report(self, report: ShardReport) -> None:
        """Take note of a shard that was read."""
        self.reports.append(report)
        self.run.samples += report.samples
        self.run.bytes += report.size
        self.run.shards += 1

    def verdicts(self) -> int:
        """Print a verdict for each shard; how many are bad."""
        self.rest()
        bad = 0
        for report in self.reports:
            for kind, counts in zip((report.problems, report.notes), self._pending.get(report.shard, ()), strict=False):
                kind.update(counts)
            wrong = report.bad or (self._strict and report.notes.total() > 0)
            bad += wrong
            if self.form == "json":
                self.record(report.record)
            elif self.form == "text":
                if wrong or not self.run.quiet:
                    self.line(report.line)
            elif wrong:
                self._write(os.fsencode(report.shard) + self._end)
        return bad

    def line(self, text: str) -> None:
        """Print a line for people."""
        self._write(printable(text).encode() + b"\n")

    def record(self, record: dict[str, Any]) -> None:
        """Print an object for programs."""
        self._write(json.dumps(record).encode() + b"\n")

    def say(self, lines: Iterable[str], record: dict[str, Any]) -> None:
        """Print lines or an object."""
        if self.form == "json":
            self.record(record)
        elif self.form == "text":
            for line in lines:
                self.line(line)

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        self._sink.close()

    def flush(self) -> None:
        """Write what is gathered."""
        if self._lines:
            lines, self._lines, self._size = self._lines, [], 0
            self._sink.write(b"".join(lines))

    def _write(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size > _GATHERED:
            self.flush()
