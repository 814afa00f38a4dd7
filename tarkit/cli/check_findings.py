"""Print the findings of `check`: lines of text by kind, JSON objects, or only the names of bad shards."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tarkit.checking.diff import Difference
from tarkit.checking.findings import Finding, ShardReport
from tarkit.cli.color import Role, has_colors, painted
from tarkit.cli.console import ConsoleRun
from tarkit.errors import printable, show
from tarkit.problems import SHOWN
from tarkit.sizes import plural
from tarkit.streams.sink import open_sink

Form = Literal["text", "json", "names"]

LINES = 10  # errors of a kind, and verdicts, that have a line each
ALIKE = 3  # notes of a name that have a line each; kinds of its notes that have one where there are more
_BUFFER = 1 << 16  # bytes of lines that are written together


@dataclass
class _Kind:
    """Findings of one kind: the first ones, and how many there are.

    Attributes:
        first: those that have a line each.
        concerned: the number of samples or entries that they are about.
        shards: the shards that they are in, each with their number.
    """

    first: list[Finding] = field(default_factory=list)
    findings: int = 0
    concerned: int = 0
    shards: Counter[str] = field(default_factory=Counter)

    def add(self, finding: Finding, lines: int) -> None:
        """Count a finding; keep it if it is one of the first: `lines` in all, and `SHOWN` of one shard."""
        self.findings += 1
        self.concerned += finding.concerned
        self.shards[finding.shard] += 1
        if len(self.first) < lines and self.shards[finding.shard] <= SHOWN:
            self.first.append(finding)

    def more(self, name: str, front: str = "", kind: str = "") -> str:
        """Return the line for those without a line."""
        rest = self.shards - Counter(finding.shard for finding in self.first)
        shards = f" in {plural(len(rest), 'shard')}" if len(self.shards) > 1 else ""
        about = f": {kind}" if kind else ""
        return f"{front}{self.findings - len(self.first)} more{shards}{about} [{name}]; -v prints all"

    def example(self) -> str:
        """Return the line for all of them: how many shards and samples, and the first one."""
        first = self.first[0]
        counts = plural(len(self.shards), "shard")
        if first.name.endswith("-entry"):
            counts += f", {plural(self.concerned, 'entry')}"
        elif first.key is not None:
            counts += f", {plural(self.concerned, 'sample')}"
        return f"note: {counts}, such as {first.line}; -v prints all"


def _kind_of(finding: Finding) -> str:
    """Return what findings of one kind have in common: their text without numbers, and quoted words with the key."""
    if finding.name.startswith("reader"):
        return re.sub(r"(?<!\w)'.*?'(, '.*?')*", "...", finding.detail)
    if finding.level == "error":
        return ""
    text = finding.detail
    if finding.key is not None:
        text = re.sub(rf"'{re.escape(show(finding.key)[1:-1])}(?=['.])", "'...", text)
    return re.sub(r"[0-9]+", "#", text)


class Printer:
    """Print findings and verdicts: notes and good shards first, errors and bad shards last.

    With --verbose each finding is printed immediately, else the text has one line for notes of one kind of all shards,
    the first errors of each kind, and how many there are.

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
        self._notes: dict[str, dict[str, _Kind]] = {}  # by name and kind
        self._errors: dict[tuple[str, str, bool], _Kind] = {}  # by name and kind, and whether they are notes
        self._hinted: set[str] = set()
        self._colors = form == "text" and has_colors(1)
        self._sink = open_sink("stdout", "-")
        self._lines: list[bytes] = []
        self._size = 0

    def finding(self, finding: Finding) -> None:
        """Print a finding, or keep it for the end."""
        wrong = finding.level == "error" or self._strict
        if self.form == "json":
            self.record(finding.record)
        elif self.form == "text" and (wrong or not self.run.quiet):
            if self.run.verbose:
                self._finding(finding)
            elif wrong:
                place = finding.name, _kind_of(finding), finding.level == "note"
                self._errors.setdefault(place, _Kind()).add(finding, LINES)
            else:
                kinds = self._notes.setdefault(finding.name, {})
                kind = _kind_of(finding)
                kinds.setdefault(kind if kind in kinds or len(kinds) < ALIKE else "", _Kind()).add(finding, ALIKE)

    def difference(self, difference: Difference) -> None:
        """Print a difference between two sets."""
        if self.form == "json":
            self.record(difference.record)
        else:
            role: Role = {"added": "ok", "removed": "error"}.get(difference.change, "warning")  # type: ignore[assignment]
            self.line(difference.line, role, f"{difference.change}:")

    def _finding(self, finding: Finding) -> None:
        line = f"{'note: ' if finding.level == 'note' else ''}{finding.line}"
        self.line(line, "warning" if finding.level == "note" else "error", f"[{finding.name}]")
        self._hint(finding)

    def _hint(self, finding: Finding) -> None:
        if finding.hint and finding.name not in self._hinted:
            self._hinted.add(finding.name)
            self.line(f"hint: {finding.hint}", "hint", "hint:")

    def rest(self) -> None:
        """Print the findings that were kept, errors last."""
        self.notes()
        self.errors()

    def notes(self) -> None:
        """Print the notes that were kept, one line for those of one kind."""
        notes, self._notes = self._notes, {}
        for name, kinds in notes.items():
            if sum(kind.findings for kind in kinds.values()) <= ALIKE:
                for kind in kinds.values():
                    for finding in kind.first:
                        self._finding(finding)
                continue
            rest = kinds.pop("", None)
            for kind in kinds.values():
                if kind.findings > 1:
                    self.line(kind.example(), "warning", f"[{name}]")
                    self._hint(kind.first[0])
                else:
                    self._finding(kind.first[0])
            if rest is not None:
                rest.first = []
                self.line(rest.more(name, "note: "), "warning", f"[{name}]")

    def errors(self) -> None:
        """Print the errors that were kept, the first of each kind."""
        errors, self._errors = self._errors, {}
        for (name, text, note), kind in errors.items():
            for finding in kind.first:
                self._finding(finding)
            if kind.findings > len(kind.first):
                self.line(kind.more(name, "note: " if note else "", text), "error", f"[{name}]")

    def verdicts(self, reports: Iterable[ShardReport]) -> None:
        """Print what was kept, and a verdict for each shard; many good ones, and many bad ones, have one together."""
        if self.form == "json":
            for report in reports:
                self.record(report.record)
        elif self.form == "names":
            for report in reports:
                if report.bad:
                    self._write(os.fsencode(report.shard) + self._end)
        elif self.run.verbose:
            for report in reports:
                if report.bad or not self.run.quiet:
                    self._verdict(report)
        else:
            good, bad = list[ShardReport](), list[ShardReport]()
            for report in reports:
                (bad if report.bad else good).append(report)
            self.notes()
            self._good([] if self.run.quiet else good)
            self.errors()
            for report in bad[:LINES]:
                self._verdict(report)
            if len(bad) > LINES:
                more = plural(len(bad) - LINES, "more shard is", "more shards are")
                self.line(f"{more} bad; --list-bad prints all", "error", "bad")

    def _good(self, reports: Sequence[ShardReport]) -> None:
        if len(reports) <= LINES:
            for report in reports:
                self._verdict(report)
        else:
            total = ShardReport(plural(len(reports), "shard"))
            for report in reports:
                total.samples += report.samples
                total.entries += report.entries
                total.size += report.size
                total.notes += report.notes
            self.line(f"{total.line}; -v prints all", "ok", "ok:")

    def _verdict(self, report: ShardReport) -> None:
        if report.bad:
            self.line(report.line, "error", "bad:")
        else:
            self.line(report.line, "ok", "ok:")

    def line(self, text: str, role: Role | None = None, word: str = "") -> None:
        """Print a line of text; on a terminal the last such word in it has a colour."""
        text = printable(text)
        if role is not None and self._colors:
            before, word, after = text.rpartition(word)
            text = before + painted(word, role) + after
        self._write(text.encode() + b"\n")

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
