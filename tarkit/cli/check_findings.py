"""Print the findings of `check`: lines of text, JSON objects, or only the names of bad shards."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from tarkit.checking.findings import Finding, ShardReport
from tarkit.cli.console import ConsoleRun
from tarkit.errors import printable
from tarkit.problems import SHOWN
from tarkit.streams.sink import open_sink

Form = Literal["text", "json", "names"]

_OF_THE_SET = (
    "reader-refuses",
    "reader-misreads",
    "missing-sample",
    "extra-sample",
    "changed-sample",
    "repeated-key",
)  # findings that are limited for all shards together, others for each shard
_BUFFER = 1 << 16  # bytes of lines that are written together


class _Similar(NamedTuple):
    """Findings of which only the first few are printed: of one name, shard, level and kind of text, if not for all."""

    name: str
    shard: str
    note: bool
    kind: str


class Printer:
    """Print findings immediately and the verdicts at the end.

    Args:
        run: the run of the command; with --quiet notes and the verdicts of good shards are not printed as text.
        form: the form of the output.
        strict: notes are problems.
        null: names end with NUL.
    """

    def __init__(self, run: ConsoleRun, form: Form, strict: bool, null: bool = False) -> None:
        self.run = run
        self.form = form
        self._strict = strict
        self._end = b"\0" if null else b"\n"
        self._similar: Counter[_Similar] = Counter()
        self._shard = ""  # of the last finding
        self._hinted: set[str] = set()
        self._sink = open_sink("stdout", "-")
        self._lines: list[bytes] = []
        self._size = 0

    def finding(self, finding: Finding) -> None:
        """Print a finding."""
        wrong = finding.level == "error" or self._strict
        if self.form == "json":
            self.record(finding.record)
        elif self.form == "text" and (wrong or not self.run.quiet) and self._shown(finding):
            self.line(f"{'note: ' if finding.level == 'note' else ''}{finding.line}")
            if finding.hint and finding.name not in self._hinted:
                self._hinted.add(finding.name)
                self.line(f"hint: {finding.hint}")

    def _shown(self, finding: Finding) -> bool:
        """Return whether to print a finding; of similar findings only the first three, with -v all.

        Those about readers are similar if their lines differ only in quoted text.
        """
        if self.run.verbose:
            return True
        if finding.shard != self._shard:
            self._rest([each for each in self._similar if each.shard])
            self._shard = finding.shard
        kind = re.sub(r"(?<!\w)'.*?'(, '.*?')*", "...", finding.detail) if finding.name.startswith("reader") else ""
        shard = "" if finding.name in _OF_THE_SET else finding.shard
        similar = _Similar(finding.name, shard, finding.level == "note", kind)
        self._similar[similar] += 1
        return self._similar[similar] <= SHOWN

    def rest(self) -> None:
        """Print the number of findings that were not printed."""
        self._rest(list(self._similar))

    def _rest(self, ended: Iterable[_Similar]) -> None:
        for similar in ended:
            more = self._similar.pop(similar) - SHOWN
            if more > 0:
                front = ("note: " if similar.note else "") + (f"{similar.shard}: " if similar.shard else "")
                words = f"{more} more: {similar.kind}" if similar.kind else f"{more} more"
                self.line(f"{front}{words} [{similar.name}]; -v prints all")

    def verdicts(self, reports: Iterable[ShardReport]) -> None:
        """Print a verdict for each shard."""
        self.rest()
        for report in reports:
            if self.form == "json":
                self.record(report.record)
            elif self.form == "text" and (report.bad or not self.run.quiet):
                self.line(report.line)
            elif self.form == "names" and report.bad:
                self._write(os.fsencode(report.shard) + self._end)

    def line(self, text: str) -> None:
        """Print a line of text."""
        self._write(printable(text).encode() + b"\n")

    def record(self, record: dict[str, Any]) -> None:
        """Print a JSON object."""
        self._write(json.dumps(record).encode() + b"\n")

    def say(self, lines: Iterable[str], record: dict[str, Any]) -> None:
        """Print lines of text or a JSON object, depending on the form."""
        if self.form == "json":
            self.record(record)
        elif self.form == "text":
            for line in lines:
                self.line(line)

    def close(self) -> None:
        """Write buffered lines and close the output."""
        self._flush()
        self._sink.close()

    def _flush(self) -> None:
        if self._lines:
            lines, self._lines, self._size = self._lines, [], 0
            self._sink.write(b"".join(lines))

    def _write(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size > _BUFFER:
            self._flush()
