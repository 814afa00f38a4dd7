"""Options of the steps that many verbs begin with: which samples, which of their fields, and what about problems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from tarkit.arguments import check_choice, split_names
from tarkit.choosing.select import PerClass, Select, parse_slice
from tarkit.errors import Usage, spell
from tarkit.options import Options, row
from tarkit.pipeline.run import Run
from tarkit.problems import BROKEN_SHARDS, PROBLEMS, Policy
from tarkit.samples.fields import Fields, OnMissing, parse_fields
from tarkit.sizes import parse_count
from tarkit.streams.text import split_column

if TYPE_CHECKING:
    from tarkit.choosing.key_list import KeyList

SEVERAL = ("min", "max", "median")


def _read_sample(text: str) -> int | float:
    """Return a number of samples, or the probability of each, for `500`, `0.1`, `10%`. Raises Usage."""
    if (number := parse_count(text)) is not None:
        return number
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise Usage(
            f"{spell('sample', text)}: a whole number of samples, or a share from 0.0 to 1.0 or 100%, is needed"
        )
    return share


def _read_per_class(text: str) -> PerClass:
    """Return a number, or one of the words for one. Raises Usage."""
    number = text if text in SEVERAL else parse_count(text)
    if not number:
        raise Usage(f"{spell('per_class', text)}: it is a number from 1 on, or one of {', '.join(SEVERAL)}")
    return number  # type: ignore[return-value]


class SelectOptions(Options):
    """Which samples: the options of a `Select`, and `Dataset.match`, `where` and so on."""

    match: str | None = row("Select", "--match", metavar="REGEX", help="Only samples whose key contains REGEX.")
    keys: str | None = row(
        "Select",
        "--keys-from",
        metavar="FILE[:COLUMN]",
        role="column",
        help="Only keys listed in FILE, or in its COLUMN.",
        more="FILE has a key on each line, or is a table (TSV, CSV, JSON lines, Parquet) or a view, with the column "
        "__key__ unless COLUMN is named. Up to a million keys are in memory, more in temporary space.",
    )
    exclude_keys: str | None = row(
        "Select",
        "--exclude-keys-from",
        metavar="FILE",
        role="column",
        help="Only keys that are not listed in FILE.",
        more="FILE is as for --keys-from.",
    )
    require_all: bool = row(
        "Select", "--require-all", default=False, detail=True, help="A missing key of --keys-from is an error."
    )
    where: str | None = row(
        "Select",
        "--where",
        complete="where",
        metavar="EXPR",
        help="Only samples for which EXPR is true.",
        more="It compares fields, as in 'cls == 3 and json.width > 512' or 'size.jpg > 10000'.",
    )
    unique_by: str | None = row(
        "Select",
        "--unique-by",
        complete="values",
        metavar="FIELD",
        help="The first sample of each value of FIELD.",
        more="White space around a value does not count. Up to a million values are in memory, more in temporary "
        "space.",
    )
    balance: str | None = row(
        "Select",
        "--balance",
        complete="values",
        metavar="FIELD",
        help="As many samples of each value of FIELD.",
        more="They are drawn at random, and keep their order.",
    )
    per_class: Any = row(
        "Select",
        "--per-class",
        parse=_read_per_class,
        metavar="N",
        help="How many: N, min, max, median.  [default: min]",
        more="min, max and median are of the numbers of samples that the values have. A value that has fewer is an "
        "error with N; with max and median its samples are repeated, for which an archive needs --rekey.",
    )
    sample: Any = row(
        "Select",
        "--sample",
        parse=_read_sample,
        metavar="N|P",
        help="N samples, or each with probability P.",
        more="P is 0.1 or 10%. 1 is one sample, and 1.0 or 100% are all. If there are fewer than N, all are taken, "
        "with a warning.",
    )
    seed: int | None = row("Select", "--seed", type=int, metavar="S", help="Random seed.  [default: drawn and printed]")
    slice: str | None = row(
        "Select", "--slice", metavar="LO:HI:STEP", help="Only these of the samples selected so far."
    )

    def check(self) -> None:
        """Raise Usage for an option that needs another."""
        if self.require_all and self.keys is None:
            raise Usage(f"{spell('require_all')} requires {spell('keys')}")
        if self.per_class is not None and self.balance is None:
            raise Usage(f"{spell('per_class')} requires {spell('balance')}")

    def select(self, run: Run, draw_seed: Callable[[int | None], int]) -> Select:
        """Return the selection; `draw_seed` returns the seed, a new one for None."""
        select = Select(
            match=self.match,
            keys=None if self.keys is None else self._keys(self.keys, run, self.require_all),
            exclude_keys=None if self.exclude_keys is None else self._keys(self.exclude_keys, run),
            unique_by=self.unique_by,
            balance=self.balance,
            per_class=self.per_class or "min",
            sample=self.sample,
            seed=self.seed,
            slice=None if self.slice is None else parse_slice(self.slice),
            policy=lambda: run.policy,
        )
        if self.where is not None:
            from tarkit.choosing.where import Where

            select.where = Where(self.where)
        if select.is_random:
            select.seed = draw_seed(self.seed)
        return select

    def _keys(self, keys: str, run: Run, require_all: bool = False) -> KeyList:
        from tarkit.choosing.keys import read_keys

        run.reserve(split_column(keys)[0], "the list of keys", written=False)
        return read_keys(keys, require_all, tmpdir=run.scratch(None))


class ChangeOptions(Options):
    """Which fields, where others are chosen in another way."""

    drop: tuple[str, ...] = row(
        "Fields",
        "--drop",
        default=(),
        complete="fields",
        metavar="GLOB",
        help="Drop fields that match GLOB.",
        more="The options under Select, and a sort, see them before. Columns of a view stay.",
    )
    require: tuple[str, ...] = row(
        "Fields",
        "--require",
        default=(),
        complete="fields",
        metavar="F1,F2",
        help="Fields that must exist; a|b is either.",
    )
    on_missing: OnMissing = row(
        "Fields",
        "--on-missing-field",
        choices=OnMissing,
        default="error",
        aliases={"abort": "error", "exclude": "skip", "ignore": "keep"},
        metavar="HOW",
        help="One of error, warn, skip, keep.",
        more="What to do with a sample that lacks a field of -f or --require: error ends the run, skip drops it, keep "
        "keeps it, warn keeps it with a warning.",
    )
    rekey: str | None = row(
        "Fields",
        "--rekey",
        "-R",
        metavar="SPEC",
        help="New keys: '{stem}/{key}', '{index:06d}'.",
        more="Each # is the index with nine digits.",
    )
    fields: tuple[str, ...] = ()

    @property
    def change(self) -> Fields:
        """What changes the fields of samples."""
        required = [word.split("|") for word in split_words(self.require)]
        return Fields(
            parse_fields(" ".join(self.fields)) if self.fields else [],
            tuple(split_words(self.drop)),
            [tuple(map(os.fsencode, names)) for names in required],
            self.on_missing,
            self.rekey,
        )


class FieldOptions(ChangeOptions):
    """Which fields: the options of a `Fields`, and `Dataset.select`, `drop` and so on."""

    fields: tuple[str, ...] = row(
        "Fields",
        "-f",
        "--fields",
        "--field",
        default=(),
        complete="fields",
        metavar="FIELDS",
        help="Only these, in this order: 'png new:old1,old2'.",
        more="A field that differs from its name here only in case gets this name.",
    )


def split_words(words: Iterable[str]) -> list[str]:
    """Return the words of a repeatable option, which are separated by commas and blanks."""
    return " ".join(words).replace(",", " ").split()


def _complete_problem(ctx: Any, param: Any, incomplete: str) -> list[str]:
    return [name for name in (*PROBLEMS, "all") if name.startswith(incomplete)]


OnMissingShard = Literal["error", "warn"]


def with_broken(skip: str | Iterable[str], on_missing: OnMissingShard) -> list[str]:
    """Return names of problems to skip, with those of shards that are missing or broken for `on_missing="warn"`."""
    check_choice("on_missing", on_missing, OnMissingShard)
    names = list(split_names(skip, "skip"))
    return names if on_missing == "error" else [*names, *BROKEN_SHARDS]


class ProblemOptions(Options):
    """What about problems: the options of a `Policy`, and `tarkit.open`.

    Attributes:
        skips_missing: whether shards that do not exist are left out.
    """

    allow: str | Iterable[str] = row(
        "Problems",
        "--allow",
        default=(),
        metavar="PROBLEM",
        complete=_complete_problem,
        parse=split_names,
        help="Continue and keep samples with this problem (or all).",
    )
    skip: str | Iterable[str] = row(
        "Problems",
        "--skip",
        default=(),
        metavar="PROBLEM",
        complete=_complete_problem,
        parse=split_names,
        help="Continue without samples with this problem (or all).",
    )
    maxerr: int = row(
        "Problems",
        "--maxerr",
        at_least=0,
        default=0,
        metavar="N",
        help="Skip the first N problems; the next ends the run.",
        more="Problems that --allow or --skip name are not counted.",
    )

    def check(self) -> None:
        """Raise Usage for names that are no problems."""
        self.skips_missing = Policy(self.allow, self.skip).skips_missing

    def policy(self, run: Run) -> Policy:
        """Return the policy of a run."""
        run.policy = Policy(self.allow, self.skip, self.maxerr, run.warn)
        return run.policy

    def new_run(self, on_problem: Callable[[str], None] | None, tmpdir: str | None) -> Run:
        """Return a new run over a dataset; the arguments are those of `tarkit.open`."""
        run = Run(tmpdir=tmpdir, on_problem=on_problem)
        self.policy(run)
        return run
