"""Options of `split`: names of shards, several series at once (a map, parts, folds), and equal shards."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from tarkit.api.output import Output, numbered_output
from tarkit.api.shards import PART, Lot, Remainder, check_lots, make_parts, refuse_mixed
from tarkit.cli import options
from tarkit.cli.category_options import MapOptions, Unmatched, map_options
from tarkit.cli.command import choice, option
from tarkit.cli.console import ConsoleRun, aligned
from tarkit.errors import Usage
from tarkit.problems import Policy
from tarkit.samples.sample import TarSample
from tarkit.shards.template import AS_IT_IS, DEFAULT_NAME, Notation, ShardTemplate, parse_template
from tarkit.shards.writer import Series
from tarkit.streams.codecs.registry import CODECS, ZIP, codec_by_suffix

if TYPE_CHECKING:
    pass

HEAVY = {"xz": 95 << 20, "bz2": 8 << 20, "zst": 3 << 20}  # memory of an encoder at its default level, about, in bytes


class Naming(NamedTuple):
    """The options for names of shards, and for how shards are written."""

    output: str | None
    template: Notation
    compress: str | None
    fsync: bool

    def open_output(self, words: str) -> Output:
        """Return the output of this name."""
        if words == "-":
            raise Usage("split writes numbered files, not stdout", "name them with -o 'out-%06d.tar'")
        return numbered_output(words, self.compress, self.fsync)

    def parse(self, words: str, hint: str | None = AS_IT_IS) -> ShardTemplate:
        """Return the template of this text; `hint` is for names with a part that is not a number."""
        return parse_template(words, self.template, hint)


@dataclass
class SeriesPlan:
    """The series and the assignment of samples: `assign` returns the index of one of the `lots`, or None."""

    output: Output
    lots: list[Lot]
    assign: Callable[[TarSample], int | None] | None = None
    unmatched: Unmatched | None = None

    def codecs(self) -> list[str]:
        """Return the codec of each lot that is compressed."""
        asked = None if self.output.codec is None else self.output.codec[0]
        found = [asked or codec_by_suffix(lot.template.text) for lot in self.lots]
        return [codec for codec in found if codec and codec != "none"]

    def wind_up(self, run: ConsoleRun, series: Series) -> list[str]:
        """Report the samples of each lot; return the lines of a table."""
        if self.assign is None:
            return []
        total = sum(series.samples)
        rows = [("part", "asked", "got", "samples", "shards", "bytes")]
        facts = run.facts["parts"] = {}
        for lot, samples, shards in zip(self.lots, series.samples, series.shards, strict=True):
            size = sum(shard.size for shard in shards.done)
            asked = "" if lot.share is None else f"{float(lot.share):.2%}"
            got = samples / total if total else 0.0
            rows.append((lot.name, asked, f"{got:.2%}", str(samples), str(len(shards.done)), str(size)))
            facts[lot.name] = {"samples": samples, "shards": len(shards.done), "bytes": size, "got": got}
            if lot.share is not None:
                facts[lot.name]["asked"] = float(lot.share)
        if self.unmatched is not None:
            self.unmatched.tell(run)
        return aligned(rows)


@dataclass(frozen=True)
class Cuts:
    """The options of several series, with those of a map."""

    map_: MapOptions = field(default_factory=MapOptions)
    parts: str | None = None
    folds: int | None = None
    group: str | None = None
    group_field: str | None = None
    salt: str | None = None
    stratify: str | None = None

    def __post_init__(self) -> None:
        given = {"--map": self.map_.spec, "--parts": self.parts, "--folds": self.folds}
        chosen = [name for name, value in given.items() if value is not None]
        if len(chosen) > 1:
            raise Usage(f"{' and '.join(chosen)} cannot be used together")
        rules = dict(zip(("--group", "--group-field", "--salt", "--stratify"), self._rules, strict=True))
        refuse_mixed(rules, self.folds if self.parts is None else self.parts, "--parts or --folds")

    @property
    def _rules(self) -> tuple[str | None, str | None, str | None, str | None]:
        return self.group, self.group_field, self.salt, self.stratify

    @property
    def given(self) -> str | None:
        """The option that asks for several series, if any."""
        names = {"--map": self.map_.spec, "--parts": self.parts, "--folds": self.folds}
        return next((name for name, value in names.items() if value is not None), None)

    def plan(self, run: ConsoleRun, naming: Naming, policy: Policy, inputs: int) -> SeriesPlan:
        """Return all names before anything is read. Raise Usage; TarkitError for files that are wrong or missing."""
        if self.map_.spec is not None:
            plan = self._mapped(run, naming)
        elif self.given is not None:
            plan = self._parted(run, naming, policy)
        else:
            words = DEFAULT_NAME if naming.output is None else naming.output
            output = naming.open_output(words)
            if PART in words:
                raise Usage(f"{PART} in a name needs --parts or --folds")
            return SeriesPlan(output, [Lot("", naming.parse(words))])
        check_lots(plan.lots, plan.output, inputs, self.given or "")
        from tarkit.sorting.memory import parse_memory

        needed = sum(HEAVY.get(codec, 1 << 20) for codec in plan.codecs())
        if needed > parse_memory(None):
            run.warn(f"{len(plan.lots)} compressed shards at once take about {needed >> 20} MiB of memory")
        return plan

    def _mapped(self, run: ConsoleRun, naming: Naming) -> SeriesPlan:
        from tarkit.shards.partition import ByMap

        directory = naming.output or ""
        if directory and not directory.endswith("/"):
            if directory != "-" and not os.path.isdir(directory):
                raise Usage("with --map, -o is a directory: the map has the names of shards", f"-o '{directory}/'")
            directory += "/" * (directory != "-")
        output = naming.open_output(directory + DEFAULT_NAME if directory != "-" else directory)
        if output.location.kind != "path":
            raise Usage("--map requires shards that are files")
        codec = None if output.codec is None else {**CODECS, "zip": ZIP}.get(output.codec[0])
        extension = codec.suffixes[0] if codec else ".tar"
        found = self.map_.read(run, directory.removeprefix("file:"), extension, naming.template)
        unmatched = Unmatched(found.name, self.map_.on_unmatched)
        lots = [Lot(category.text, category.template) for category in found.categories]
        return SeriesPlan(output, lots, ByMap(found, unmatched), unmatched)

    def _parted(self, run: ConsoleRun, naming: Naming, policy: Policy) -> SeriesPlan:
        parts = make_parts(self.parts if self.folds is None else self.folds, *self._rules)
        assert parts is not None
        words = f"{PART}-%06d.tar" if naming.output is None else naming.output
        output = naming.open_output(words)
        if PART not in words and output.location.kind == "pipe":
            raise Usage(f"a command for several parts must contain {PART}")
        lots = parts.lots(words, partial(naming.parse, hint=f"{PART} is the name of the part"))
        if PART not in words:
            more = f" and {len(lots) - 9} more" if len(lots) > 9 else ""
            run.tell(f"writes {', '.join(lot.template.text for lot in lots[:9])}{more}")
        return SeriesPlan(output, lots, parts.assign(policy))


naming = options.group("naming", Naming, *options.shard_names(DEFAULT_NAME))
cuts = options.group(
    "cuts",
    Cuts,
    map_options,
    option(
        "Parts",
        "--parts",
        metavar="A=0.9,B=0.1",
        help="Parts by a hash of the key: {part}, or PART-TEMPLATE.",
        more="The name of a part, such as train, replaces {part} in TEMPLATE; without it, it is put before the name. "
        "Shares are 0.1, 1/10 or 10%, and a part without one gets the rest.",
    ),
    option("Parts", "--folds", type=click.IntRange(2, 9999), metavar="K", help="K equal parts: fold-0, fold-1 ..."),
    option(
        "Parts",
        "--group",
        metavar="REGEX",
        help="Keep keys with one match of REGEX together.",
        more="If REGEX has a group, keys in which it matched the same text.",
    ),
    option("Parts", "--group-field", metavar="FIELD", help="Keep samples with equal FIELD together."),
    option("Parts", "--salt", metavar="TEXT", help="Change the hash, to get other parts."),
    option(
        "Parts",
        "--stratify",
        metavar="FIELD",
        help="Give each part its share of each value of FIELD.",
        more="FIELD is a class, as in cls or json.label. Samples are dealt in order, without a hash.",
    ),
)


# ---- Equal shards: equally many samples, or about equally many bytes


@dataclass(frozen=True)
class Equal:
    """The number of shards, what is equal in them, and what becomes of samples that are left over."""

    shards: int | None = None
    even: Literal["count", "size"] = "count"
    remainder: Remainder = "spread"

    @property
    def given(self) -> bool:
        """Whether equal shards are requested."""
        return self.shards is not None or self.even == "size"

    def check(self, limited: bool) -> None:
        """Raise Usage for options that cannot be used together; `limited`: -c or -s is given."""
        if self.given and limited:
            raise Usage(f"{'-n' if self.shards else '--even'} cannot be used with -c or -s")
        if self.remainder != "spread" and (self.shards is None or self.even == "size"):
            raise Usage("--remainder requires -n" + (" and equal numbers of samples" if self.shards else ""))

    def number(self, template: ShardTemplate) -> int:
        """Return the number of shards: -n, else that of all names of the template. Raise Usage when it has no end."""
        number = template.count if self.shards is None else self.shards
        if number is None:
            raise Usage(
                "--even size requires a number of shards", "-n 64, or a template with an end: 'out-{00..63}.tar'"
            )
        return number


equal = options.group(
    "equal",
    Equal,
    option(
        "Shards",
        "-n",
        "--shards",
        type=click.IntRange(1),
        metavar="N",
        help="Number of shards, with equally many samples.",
    ),
    choice(
        "Shards",
        "--even",
        choices="count|size",
        help="What is equal in shards.",
        more="count: their numbers of samples. size: their bytes, about; without -n there are as many shards as "
        "TEMPLATE has names: 64 for 'x-{00..63}.tar'.",
    ),
    choice(
        "Shards",
        "--remainder",
        choices="spread|drop|repeat",
        metavar="HOW",
        help="Rest: spread, drop, repeat.",
        more="What to do with samples that are left over when their number is divided by N. spread: some shards have "
        "one sample more. drop: they are left out. repeat: some samples come twice, so that all shards are full.",
    ),
)
