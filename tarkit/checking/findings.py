"""Findings of `check`: a problem at an offset of a shard, and the report on a shard."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tarkit.errors import Problem, TarkitError, respell
from tarkit.problems import PROBLEMS, Action, Policy, ProblemKind
from tarkit.sizes import plural

Level = Literal["error", "note"]

FINDINGS: dict[str, ProblemKind] = {
    "unreadable-shard": ProblemKind(
        "error",
        "a shard cannot be opened or read: it does not exist, permission is denied, or a server fails",
        "",
        "",
        "check that it exists and is readable",
    ),
    "reader-refuses": ProblemKind("error", "the reader of --target raises an error", "", ""),
    "reader-misreads": ProblemKind("error", "the reader of --target returns other data than the archive has", "", ""),
    "reader-unchecked": ProblemKind("note", "the reader of --target decodes contents that check does not read", "", ""),
    "bad-content": ProblemKind(
        "error",
        "the content of a field of --decode cannot be decoded, or not all of it: it is cut, damaged, or of another kind"
        " than its name says",
        "",
        "",
        "fetch the shard again, or pack the files again; --fix leaves such samples to --rejects",
    ),
    "unchecked-content": ProblemKind(
        "error",
        "a field of --decode is not decoded: it is too large, or a pickle; a note for links, and for fields without a"
        " decoder",
        "",
        "",
    ),
    "form-variant": ProblemKind(
        "note",
        "two keys or two fields differ only in their Unicode normal form (NFC, NFD), as names from macOS can",
        "",
        "",
        "give all names one form and pack the files again: convmv --nfc, for example",
    ),
    "odd-end": ProblemKind(
        "note", "an unusual number of zeros at the end", "", "", "compare its length with the original"
    ),
    "missing-sample": ProblemKind("error", "a sample of --against or --same-as is missing in the shards", "", ""),
    "extra-sample": ProblemKind("error", "a sample of the shards is not one of --against or --same-as", "", ""),
    "changed-sample": ProblemKind("error", "a sample has other contents than in --same-as", "", ""),
    "leak": ProblemKind(
        "error",
        "a sample has the value of --by that a sample of --leak has: the same content, or a picture that looks alike",
        "",
        "",
        "leave such samples out of one set: --json names both of each pair, tarkit cat --exclude-keys-from takes keys",
    ),
    "duplicate-sample": ProblemKind(
        "error",
        "a sample has the value of --by that an earlier one has, where --unique is asked for",
        "",
        "",
        "leave such samples out: --json names both of each pair, tarkit cat --exclude-keys-from takes keys",
    ),
    "extra-shard": ProblemKind("error", "the --manifest does not list a shard", "", ""),
    "changed-shard": ProblemKind(
        "error",
        "a shard differs from its row in the --manifest: samples, bytes, SHA-256, first or last key",
        "",
        "",
        "fetch it again",
    ),
}
"""Problems that only `check` finds, in addition to those of all commands."""

GATHERS = "--fix or tarkit sort gathers each sample"
GLOBAL_REPAIR = (
    "pack the files again without tar's --pax-option; --fix leaves out the entries that the header applies to"
)

_REPAIRS = {
    "truncated": "fetch the shard again; --fix keeps the samples that are whole",
    "zero-filled": "fetch the shard again; --fix keeps the samples before the last one",
    "no-end-marker": "fetch the shard again; if it is known to be whole, --allow no-end-marker",
    "bad-header": "fetch the shard again; --fix keeps the samples that are whole",
    "bad-data": "fetch the shard again; --fix keeps verified samples: some of a zip, else none without --allow",
    "trailing-data": "--fix makes one archive of concatenated ones, and leaves other data out",
    "scattered-sample": GATHERS,
    "duplicate-entry": "--fix moves duplicate entries to samples KEY~2, KEY~3",
    "repeated-key": "tarkit cat --rekey '{stem}/{key}' makes keys differ; --fix with --unique makes KEY~2, KEY~3",
    "unsafe-name": "--fix leaves such samples to --rejects",
    "unmovable-entry": "pack the files again with tar --hard-dereference; --fix leaves such samples to --rejects",
    "missing-field": "tarkit cat --require FIELDS --on-missing-field skip leaves such samples out",
}


class OtherSample(NamedTuple):
    """The other sample of a finding about two: `bits` is the number of bits in which their hashes differ."""

    shard: str
    offset: int | None
    key: bytes
    bits: int

    @property
    def record(self) -> dict[str, Any]:
        """The sample as JSON."""
        return {**self._asdict(), "key": os.fsdecode(self.key)}


class Finding(NamedTuple):
    """One problem: the shard, the offset in its archive, the key, and `detail`, the text of the message.

    `concerned` is the number of samples, or entries, that it is about; `other` another sample that it is about.
    """

    name: str
    shard: str
    offset: int | None
    key: bytes | None
    detail: str
    level: Level = "error"
    repair: str | None = None
    concerned: int = 1
    other: OtherSample | None = None

    @property
    def line(self) -> str:
        """The finding as a line of text: `SHARD: at OFFSET: DETAIL [NAME]`."""
        where = self.shard if self.offset is None else f"{self.shard}: at {self.offset}"
        return f"{where}: {self.detail} [{self.name}]"

    @property
    def hint(self) -> str | None:
        """How to repair it."""
        kind = PROBLEMS.get(self.name) or FINDINGS[self.name]
        return respell(self.repair or _REPAIRS.get(self.name) or kind.repair)

    @property
    def record(self) -> dict[str, Any]:
        """The finding as JSON; bytes that are not UTF-8 are lone surrogates, as of `os.fsdecode`."""
        return {
            "type": "problem",
            "problem": self.name,
            "level": self.level,
            "shard": self.shard,
            "offset": self.offset,
            "key": None if self.key is None else os.fsdecode(self.key),
            "detail": self.detail,
            "repair": self.hint,
            **({} if self.other is None else {"other": self.other.record}),
        }


def unreadable_shard(name: str, error: TarkitError) -> Finding:
    """Return the finding for a shard of this name that cannot be opened or read to its end."""
    detail = str(error).removeprefix(f"{name}: ")
    return Finding("unreadable-shard", name, None, None, detail, "error", error.hint)


class FindingPolicy(Policy):
    """Takes the problems of samples of an input as findings, and leaves these samples out.

    With `located` offsets are those in the input; else it is a view, which has the places of samples in archives.
    """

    def __init__(self, shard: str, located: bool = True) -> None:
        super().__init__()
        self.findings: list[Finding] = []
        self._shard, self._located = shard, located

    def apply(self, problem: Problem) -> Action:
        offset, detail = problem.offset, problem.detail or ""
        if not self._located:
            place = problem.archive if offset is None else f"{problem.archive} at {offset}"
            row = re.match(rf"(row [0-9]+) of {re.escape(self._shard)}: ", detail)
            detail = f"{place}: {detail}" if row is None else f"{row[1]}, {place}: {detail[row.end() :]}"
            offset = None
        level: Level = "note" if PROBLEMS[problem.name].default == "note" else "error"
        self.findings.append(Finding(problem.name, self._shard, offset, None, detail, level, problem.hint))
        return "drop"


@dataclass
class ShardReport:
    """The report on a shard.

    Attributes:
        samples, entries: the number of its samples and entries.
        size: the length of its archive, decompressed, in bytes.
        is_made: the archive is made of samples in messages, whose length is another one.
        first, last: its first and its last key.
        stored, sha256: length in bytes and hash of the file, if requested.
        located: its samples have offsets in it; those of a view have not.
        readable: it could be opened and read.
        fields: the most frequent set of fields, in lower case, and the number of its samples.
        decoded: the number of contents that were decoded, by field; None without `--decode`.
        problems, notes: the number of findings by name.
        strict: whether notes make it bad.
    """

    shard: str
    samples: int = 0
    entries: int = 0
    size: int = 0
    is_made: bool = False
    first: bytes | None = None
    last: bytes | None = None
    stored: int | None = None
    sha256: str | None = None
    located: bool = True
    readable: bool = True
    fields: dict[frozenset[bytes], int] = field(default_factory=dict)
    decoded: Counter[str] | None = None
    problems: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    strict: bool = False

    @property
    def bad(self) -> bool:
        """Whether there are problems, or notes if these count."""
        return self.problems.total() > 0 or (self.strict and self.notes.total() > 0)

    @property
    def line(self) -> str:
        """The verdict as text."""
        counts = [plural(number, "problem") for number in [self.problems.total()] if number]
        counts += [plural(number, "note") for number in [self.notes.total()] if number]
        size = f"{plural(self.samples, 'sample')}, {plural(self.entries, 'entry')}, {plural(self.size, 'byte')}"
        size += " as tar" if self.is_made else ""
        return f"{self.shard}: {', '.join([f'bad: {size}' if self.bad else f'ok: {size}', *counts])}"

    @property
    def record(self) -> dict[str, Any]:
        """The verdict as JSON."""
        return {
            "type": "shard",
            "shard": self.shard,
            "verdict": "bad" if self.bad else "ok",
            "samples": self.samples,
            "entries": self.entries,
            "bytes": self.size,
            "problems": dict(self.problems),
            "notes": dict(self.notes),
            **({} if self.decoded is None else {"decoded": dict(self.decoded)}),
        }
