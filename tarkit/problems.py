"""The table of problems of archives: names, defaults, effects of --allow and --skip, repairs; and `Policy`.

What only `check` finds is in `tarkit.checking.findings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from tarkit.errors import (
    Problem,
    TarkitError,
    Usage,
    hint_without_missing,
    respell,
    show,
    spell,
    system_hint,
    unreadable,
)
from tarkit.sizes import and_more, plural

Action = Literal["keep", "drop"]


class ProblemKind(NamedTuple):
    """One row of the table: the meaning of a problem, the effects of --allow and --skip, and its repair."""

    default: Literal["error", "warning", "note"]
    meaning: str
    allow: str
    skip: str
    repair: str | None = None


PROBLEMS: dict[str, ProblemKind] = {
    "truncated": ProblemKind(
        "error",
        "the input ends inside an entry, or inside a frame of its compression, or is no multiple of 512 bytes long",
        "keeps all whole entries before it, even if the last sample is incomplete",
        "keeps the whole samples before it, without the last one",
        "fetch the shard again; --skip truncated keeps the whole samples before the cut",
    ),
    "zero-filled": ProblemKind(
        "error",
        "zeros for more than 1 MiB beyond the end marker, or a file of nothing but zeros longer than 10240 bytes: a"
        " download into space that was allocated before, which did not end",
        "takes the zeros as padding",
        "drops the last sample",
        "fetch the shard again; if it is known to be whole, --allow zero-filled",
    ),
    "no-end-marker": ProblemKind(
        "error",
        "the input ends between two entries, without the two zero blocks that end an archive",
        "accepts the end",
        "drops the last sample",
        "fetch the shard again; if it is known to be whole, --allow no-end-marker",
    ),
    "bad-header": ProblemKind(
        "error",
        "a header's checksum or numbers are wrong",
        "continues at the next valid header",
        "drops the samples it may affect and continues at the next valid header",
        "fetch the shard again; --skip bad-header continues at the next valid header",
    ),
    "bad-data": ProblemKind(
        "error",
        "compressed data cannot be decoded or do not match their checksum",
        "keeps all whole entries before it, even if the last sample is incomplete",
        "keeps the whole samples before it, without the last one; except in a zip, any of these may be wrong too",
        "fetch the shard again; --skip all keeps what can be read, but data before this place may be wrong too",
    ),
    "trailing-data": ProblemKind(
        "error",
        "data other than zeros follow the end marker",
        "reads the data as another archive",
        "stops at the end marker; where its zeros may be damage, the sample before them is dropped too",
        "for archives that were concatenated with cat, --allow trailing-data reads all of them",
    ),
    "scattered-sample": ProblemKind(
        "error",
        "a key occurs again later in the same input",
        "keeps both parts as two samples with the same key",
        "drops the later part",
        "tarkit sort puts the parts of each sample together",
    ),
    "joined-sample": ProblemKind(
        "error",
        "two samples with equal keys would be adjacent in the output, where readers take them for one sample",
        "joins them into one sample",
        "drops the later sample",
        "make the keys differ: --rekey '{stem}/{key}', or '{index:09d}-{key}' if a sample comes twice",
    ),
    "repeated-key": ProblemKind(
        "warning",
        "two inputs have the same key; an error where one archive is written, in which the sample would be scattered",
        "omits the warning",
        "drops the sample that is later in the output",
        "make the keys differ: --rekey '{stem}/{key}', or '{index:09d}-{key}' if a sample comes twice",
    ),
    "duplicate-entry": ProblemKind(
        "error",
        "a name occurs twice in one sample; entries without a key do not count and are copied as they are",
        "keeps both entries",
        "drops the sample",
    ),
    "unmovable-entry": ProblemKind(
        "error",
        "a hard link out of its sample, or a global PAX header with more than comments: both depend on their place",
        "copies it as it is",
        "drops the sample",
        "pack the files again without hard links: tar --hard-dereference",
    ),
    "changed-source": ProblemKind(
        "error",
        "a view names a range that is not one whole sample of its archive, which has changed since",
        "drops the sample",
        "drops the sample",
        "make the view again: tarkit cat SHARDS -o NAME.view.parquet",
    ),
    "foreign-source": ProblemKind(
        "error",
        "a view at a URL names an archive that is not below its own directory",
        "reads it",
        "ends the run",
        "--allow foreign-source if the view is trusted",
    ),
    "missing-shard": ProblemKind(
        "error",
        "an input, or an archive that a view or a --manifest names, does not exist, cannot be read or is no archive",
        "continues without it",
        "continues without it; the summary names it. `all` does not include it. If no input exists, the run ends",
        "fetch it again",
    ),
    "missing-field": ProblemKind(
        "error",
        "a sample lacks a required field",
        "keeps the sample",
        "drops the sample",
        "--on-missing-field skip drops such samples, keep keeps them",
    ),
    "bad-field": ProblemKind(
        "error",
        "a field is too large, or not of the type that an expression, a table or an order needs: JSON, text, a picture",
        "keeps the sample",
        "drops the sample",
        "--skip bad-field drops such samples",
    ),
    "sparse-entry": ProblemKind(
        "error",
        "the content of a sparse file is needed, but the archive stores it without its holes",
        "continues as if the sample had no such content",
        "drops the sample",
        "pack the file again without tar's --sparse",
    ),
    "unsafe-name": ProblemKind(
        "warning",
        "a name is absolute, has a '..' component or a NUL",
        "omits the warning",
        "drops the sample",
    ),
    "stray-entry": ProblemKind(
        "note",
        "an entry without a key: its file name has no dot, or begins with one",
        "omits the note",
        "changes nothing",
        "tarkit check --fix drops it; --target READER says what a reader makes of it",
    ),
    "case-variant": ProblemKind(
        "note",
        "a field is spelled in two ways, such as .JPG and .jpg",
        "omits the note",
        "changes nothing",
        "tarkit cat -f 'jpg txt' writes both as jpg; name all fields that are to stay",
    ),
    "mixed-fields": ProblemKind(
        "note",
        "some samples have other fields than most",
        "omits the note",
        "changes nothing",
        "tarkit cat --require FIELDS --on-missing-field skip drops incomplete samples",
    ),
    "odd-field": ProblemKind(
        "note",
        "a field name looks like part of a file name: the key may have ended at the wrong dot",
        "omits the note",
        "changes nothing",
        "the key ends at the first dot of the file's name: tarkit shard --last-dot --rename key packs it otherwise",
    ),
}


ALL = frozenset(PROBLEMS) - {"missing-shard"}
"""The problems that `all` stands for. That an input is not there is no problem of a sample, and has to be named."""

BROKEN_SHARDS = (
    *("missing-shard", "truncated", "zero-filled", "no-end-marker", "bad-header", "bad-data", "trailing-data"),
)
"""Problems of a shard that is missing or broken, which `on_missing="warn"` skips."""


class PolicyCounts(NamedTuple):
    """Counts of a `Policy.fork`, in a form that can be pickled; `Policy.absorb` takes it.

    Attributes:
        counts, dropped: problems, and samples that were dropped for them, by the name of the problem.
        passed: how many problems `--maxerr` let pass.
        warnings: the messages, each with the name of its problem, if it is of one.
        missing: the names of shards that were left out.
    """

    counts: Counter[str]
    dropped: Counter[str]
    passed: int
    warnings: list[tuple[str | None, str]]
    missing: dict[str, None]


_DAMAGE = ("truncated", "bad-header", "bad-data", "trailing-data")
ONE_ARCHIVE = frozenset(("repeated-key",))  # errors where one archive is written
NAMED = 20  # shards that are left out and named in one line
SHOWN = 3  # problems of each kind that get a line of their own


def usual_hint(error: TarkitError) -> str | None:
    """Return the hint for an error without one: that of its problem, or of the system error that caused it."""
    if isinstance(error, Problem):
        return PROBLEMS[error.name].repair
    behind = error.__cause__
    while behind is not None and not isinstance(behind, OSError):
        behind = behind.__cause__
    return None if behind is None else system_hint(behind)


class Policy:
    """Decides about each problem: by the defaults of the table, changed by --allow, --skip and --maxerr.

    Args:
        allow: problems to accept.
        skip: problems whose samples are dropped.
        maxerr: the number of further problems whose samples are dropped.
        warn: called with a line for each of the first three problems of a kind that do not end the run.
        strict: problems that are errors, whatever their default.

    `repairs` has hints of this run, by problem, in place of those of the table; `missing` the names of shards that were
    left out.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        skip: Iterable[str] = (),
        maxerr: int = 0,
        warn: Callable[[str], None] = lambda line: None,
        strict: frozenset[str] = frozenset(),
    ) -> None:
        allowed, skipped = _named(allow, spell("allow")), _named(skip, spell("skip"))
        both = allowed & skipped
        if both and len(skipped) < len(allowed) >= len(ALL):  # a name has precedence over `all`
            allowed -= skipped
        elif both and len(allowed) < len(skipped) >= len(ALL):
            skipped -= allowed
        elif both:
            raise Usage(f"{spell('allow')} and {spell('skip')} both name {', '.join(sorted(both))}")
        self.allowed = allowed
        self.skipped = skipped
        self.maxerr = maxerr
        self.warn = warn
        self.strict = strict
        self.repairs: dict[str, str] = {}
        self.scattered: set[int] = set()  # hashes of scattered keys that are allowed
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.missing: dict[str, None] = {}
        self._lines: Counter[str] = Counter()  # warnings of each problem, shown or not

    def silent(self) -> Policy:
        """Return the same policy without warnings, for another pass over the same inputs."""
        return Policy(self.allowed, self.skipped, self.maxerr, strict=self.strict)

    def fork(self) -> PolicyFork:
        """Return the same policy with counts of its own, for a job that may run in another process."""
        return PolicyFork(self.allowed, self.skipped, self.maxerr, strict=self.strict)

    def absorb(self, counted: PolicyCounts) -> None:
        """Add the counts of a fork, and give its warnings."""
        self.counts.update(counted.counts)
        self.dropped.update(counted.dropped)
        self.missing |= counted.missing
        self.maxerr -= counted.passed
        for name, line in counted.warnings:
            self.warn(line) if name is None else self._say(name, line)

    @property
    def rules(self) -> tuple[object, ...]:
        """What decides about problems, to be compared."""
        return self.allowed, self.skipped, self.maxerr, self.strict

    @property
    def lenient(self) -> bool:
        """Whether later damage can change a sample, so that no sample may be written before it is complete."""
        return bool(self.skipped) or self.maxerr > 0 or not self.allowed.isdisjoint(_DAMAGE)

    @property
    def skips_missing(self) -> bool:
        """Whether shards that do not exist are left out."""
        return "missing-shard" in self.skipped or "missing-shard" in self.allowed

    def leave_out(self, name: str, error: Exception, alone: bool = False) -> None:
        """Leave out a shard that cannot be opened, or raise the error; unless `alone`, with a hint how to go on."""
        if not self.skips_missing:
            if isinstance(error, FileNotFoundError) and not alone:
                missing = error if isinstance(error, TarkitError) else unreadable(name, error)
                missing.hint = missing.hint or hint_without_missing()
                raise missing from error.__cause__
            raise error
        reason = (isinstance(error, OSError) and error.strerror) or getattr(error, "detail", str(error)).removeprefix(
            f"{name}: "
        )
        self.apply(Problem("missing-shard", name, None, reason))
        self.missing[name] = None

    @property
    def missing_words(self) -> str:
        """The shards that were left out, for a message: `2 shards left out: a.tar, b.tar`; empty for none."""
        if not self.missing:
            return ""
        return f"{plural(len(self.missing), 'shard')} left out: {and_more(list(self.missing), NAMED)}"

    def apply(self, problem: Problem) -> Action:
        """Count a problem and return whether to keep or drop the sample that it affects.

        Raises:
            Problem: the problem, if it is an error.
        """
        name = problem.name
        kind = PROBLEMS[name]
        self.counts[name] += 1
        if name in self.allowed:
            if kind.default == "error" and name != "joined-sample":  # a joined sample is not a defect
                self.say(problem)
            return "keep"
        if name in self.skipped:
            return self._drop(problem)
        if kind.default != "error" and name not in self.strict:
            if kind.default == "warning":
                self.say(problem)
            return "keep"
        if self.maxerr > 0:
            self.maxerr -= 1
            return self._drop(problem)
        if problem.hint is None:
            problem.hint = respell(self.repairs.get(name, kind.repair))
        raise problem

    def _drop(self, problem: Problem) -> Action:
        self.dropped[problem.name] += 1
        self.say(problem)
        return "drop"

    def say(self, problem: Problem) -> None:
        """Warn about a problem that does not end the run, up to `SHOWN` times for each kind."""
        self._say(problem.name, str(problem))

    def _say(self, name: str, line: str) -> None:
        self._lines[name] += 1
        if self._lines[name] <= SHOWN:
            self.warn(line)
        elif self._lines[name] == SHOWN + 1:
            self.warn(f"more of [{name}] follow; they are only counted")


class PolicyFork(Policy):
    """A policy whose counts and warnings are brought back as a `PolicyCounts`; `Policy.fork` makes it."""

    def __init__(
        self, allow: Iterable[str], skip: Iterable[str], maxerr: int, *, strict: frozenset[str] = frozenset()
    ) -> None:
        self._warnings: list[tuple[str | None, str]] = []
        self._limit = maxerr
        super().__init__(allow, skip, maxerr, lambda line: self._warnings.append((None, line)), strict)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the rules without the counts."""
        return _fork, (self.allowed, self.skipped, self._limit, self.strict)

    def _say(self, name: str, line: str) -> None:
        self._lines[name] += 1
        if self._lines[name] <= SHOWN + 1:  # one more than is shown: for it, the run warns that more follow
            self._warnings.append((name, line))

    @property
    def counted(self) -> PolicyCounts:
        """The counts so far."""
        return PolicyCounts(self.counts, self.dropped, self._limit - self.maxerr, self._warnings, self.missing)


def _fork(allow: frozenset[str], skip: frozenset[str], maxerr: int, strict: frozenset[str]) -> PolicyFork:
    return PolicyFork(allow, skip, maxerr, strict=strict)


def _named(names: Iterable[str], option: str) -> frozenset[str]:
    chosen = {part.strip() for name in names for part in name.split(",") if part.strip()}
    unknown = sorted(chosen - PROBLEMS.keys() - {"all"})
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], [*PROBLEMS, "all"], 1)
        whole = f"{spell('where', 'ok.jpg')} chooses samples whose jpg is whole"
        alone = f"problems that check alone finds are none of these; {whole}"
        hint = f"did you mean {show(near[0])}?" if near else alone
        raise Usage(f"{option} {unknown[0]}: unknown problem; the problems are: all, {', '.join(PROBLEMS)}", hint)
    return ALL | (chosen - {"all"}) if "all" in chosen else frozenset(chosen)
