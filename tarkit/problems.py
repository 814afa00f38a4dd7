"""What can be wrong with an archive: one vocabulary, the defaults, what --allow and --skip do, how to repair it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from tarkit.errors import Problem, Usage

Verdict = Literal["keep", "drop"]


class ProblemKind(NamedTuple):
    """One row of the table: what a problem means and what can be done about it."""

    default: Literal["error", "warning", "note"]
    meaning: str
    allow: str
    skip: str
    repair: str | None = None


PROBLEMS: dict[str, ProblemKind] = {
    "truncated": ProblemKind(
        "error",
        "the input ends inside an entry, or inside a frame of its compression",
        "keeps the entries before it, also of the last sample",
        "keeps the whole samples before it, without the last one",
        "fetch the shard again; --skip truncated keeps the whole samples before the cut",
    ),
    "no-end-marker": ProblemKind(
        "error",
        "the input ends between two entries, without the two zero blocks that end an archive",
        "accepts the end",
        "drops the last sample",
        "if the archive is known to be whole, --allow no-end-marker accepts it",
    ),
    "bad-header": ProblemKind(
        "error",
        "a header's checksum or numbers are wrong",
        "goes on at the next valid header",
        "drops the sample it touches and goes on at the next valid header",
        "fetch the shard again; --skip bad-header goes on at the next valid header",
    ),
    "bad-data": ProblemKind(
        "error",
        "compressed data do not decode or fail their checksum",
        "keeps the entries before it, also of the last sample",
        "keeps the whole samples before it, without the last one; but for a zip, any may be wrong too",
        "fetch the shard again",
    ),
    "trailing-data": ProblemKind(
        "error",
        "there are data other than zeros after the end marker",
        "reads on as more archive",
        "stops at the end marker",
        "for archives that were glued together with cat, --allow trailing-data reads all of them",
    ),
    "scattered-sample": ProblemKind(
        "error",
        "a key comes back later in the same input",
        "keeps both parts, as two samples of one key",
        "drops the later part",
        "tarkit sort puts the parts of each sample together",
    ),
    "joined-sample": ProblemKind(
        "error",
        "two samples with equal keys would become neighbours in the output, and so one sample",
        "joins them on purpose",
        "drops the later one",
        "make the keys differ: --rekey '{stem}/{key}'",
    ),
    "repeated-key": ProblemKind(
        "warning",
        "one key in two inputs, not as neighbours; an error where one archive is written: it would be scattered there",
        "says nothing",
        "drops the later sample",
        "make the keys differ: --rekey '{stem}/{key}'",
    ),
    "duplicate-entry": ProblemKind(
        "error",
        "the same name twice in one sample; entries without key do not count, and are carried over as they are",
        "keeps both",
        "drops the sample",
    ),
    "unmovable-entry": ProblemKind(
        "error",
        "a hard link, or a global PAX header that says more than a comment, would change its meaning when it moves",
        "moves it all the same",
        "drops the sample",
        "pack the files again without hard links: tar --hard-dereference",
    ),
    "missing-field": ProblemKind(
        "error",
        "a sample lacks a field that was asked for",
        "keeps the sample",
        "drops the sample",
        "--on-missing-field skip leaves such samples out, keep lets them pass",
    ),
    "bad-field": ProblemKind(
        "error",
        "a field is not what an expression, a table or an order takes it for: no JSON, no text, no picture, too large",
        "keeps the sample",
        "drops the sample",
        "--skip bad-field leaves such samples out",
    ),
    "sparse-entry": ProblemKind(
        "error",
        "the content of a sparse file is needed, and the archive has it without its holes",
        "goes on as if that content were not there",
        "drops the sample",
        "pack the file again without --sparse",
    ),
    "unsafe-name": ProblemKind(
        "warning",
        "a name is absolute, has a '..' component or a NUL",
        "says nothing",
        "drops the sample",
    ),
    "stray-entry": ProblemKind(
        "note",
        "an entry without key: no dot in its name, or a name that begins with one",
        "says nothing",
        "changes nothing",
        "readers pass over it; tarkit check --fix leaves it out",
    ),
    "case-variant": ProblemKind(
        "note",
        "one field in two spellings, such as .JPG beside .jpg",
        "says nothing",
        "changes nothing",
        "give it one name: tarkit cat -f 'jpg ...'",
    ),
    "mixed-fields": ProblemKind(
        "note",
        "samples with other fields than most",
        "says nothing",
        "changes nothing",
        "tarkit cat --require FIELDS --on-missing-field skip leaves incomplete samples out",
    ),
    "odd-field": ProblemKind(
        "note",
        "a field that looks as if a dot in the name of the file was taken for its beginning",
        "says nothing",
        "changes nothing",
        "the key ends at the first dot of the file's name: rename the file, and pack it again",
    ),
}

_DAMAGE = ("truncated", "bad-header", "bad-data", "trailing-data")
ONE_ARCHIVE = frozenset(("repeated-key",))  # errors where one archive is written: its readers would find them
SHOWN = 3  # of each kind of problem, so many get a line of their own


class Policy:
    """What to do about each problem: the table's defaults, changed by --allow, --skip and --maxerr.

    `warn` gets one line for each of the first three problems of a kind that do not end the run.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        skip: Iterable[str] = (),
        maxerr: int = 0,
        warn: Callable[[str], None] = lambda line: None,
        strict: frozenset[str] = frozenset(),
    ) -> None:
        allowed, skipped = _named(allow, "--allow"), _named(skip, "--skip")
        both = allowed & skipped
        if both and len(skipped) < len(allowed) == len(PROBLEMS):  # the one that is named beats `all`
            allowed -= skipped
        elif both and len(allowed) < len(skipped) == len(PROBLEMS):
            skipped -= allowed
        elif both:
            raise Usage(f"--allow and --skip both name {', '.join(sorted(both))}")
        self.allowed = allowed
        self.skipped = skipped
        self.maxerr = maxerr
        self.warn = warn
        self.strict = strict  # problems that are errors here, whatever the table says
        self.scattered: set[int] = set()  # hashes of keys that came back in one input, and may
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def silent(self) -> Policy:
        """The same policy for another pass over the same inputs, which warns of nothing."""
        return Policy(self.allowed, self.skipped, self.maxerr, strict=self.strict)

    @property
    def lenient(self) -> bool:
        """Whether damage can change a sample after it has begun: then none may be written before it is complete."""
        return bool(self.skipped) or self.maxerr > 0 or not self.allowed.isdisjoint(_DAMAGE)

    def judge(self, problem: Problem) -> Verdict:
        """Keep or drop what the problem touches; raises the problem when it is an error."""
        name = problem.name
        kind = PROBLEMS[name]
        self.counts[name] += 1
        if name in self.allowed:
            if kind.default == "error" and name != "joined-sample":  # that is allowed on purpose
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
            problem.hint = kind.repair
        raise problem

    def _drop(self, problem: Problem) -> Verdict:
        self.dropped[problem.name] += 1
        self.say(problem)
        return "drop"

    def say(self, problem: Problem) -> None:
        """Warn of a problem that does not end the run, unless there were many of its kind."""
        count = self.counts[problem.name]
        if count <= SHOWN:
            self.warn(str(problem))
        elif count == SHOWN + 1:
            self.warn(f"more of [{problem.name}] follow; they are only counted")


def _named(names: Iterable[str], option: str) -> frozenset[str]:
    chosen = {part.strip() for name in names for part in name.split(",") if part.strip()}
    if "all" in chosen:
        return frozenset(PROBLEMS)
    unknown = sorted(chosen - PROBLEMS.keys())
    if unknown:
        raise Usage(f"{option} {unknown[0]}: no such problem; there are: all, {', '.join(PROBLEMS)}")
    return frozenset(chosen)
