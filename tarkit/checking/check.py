"""Check shards: faults of each and of all together, clean copies, comparison of two sets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tarkit.checking.across import Against, Manifest, SetCheck, Unique, joined, mixed, read_manifest
from tarkit.checking.compare import Sameness
from tarkit.checking.findings import FINDINGS, Finding, ShardReport
from tarkit.checking.fix import Fix
from tarkit.checking.shard import Asked, Item, check_shard
from tarkit.checking.targets import Target
from tarkit.errors import Usage, spell
from tarkit.pipeline.arguments import check_choice, parse_processes, split_names
from tarkit.pipeline.chain import locate, refuse_twice
from tarkit.pipeline.output import total_size
from tarkit.pipeline.run import Run
from tarkit.problems import PROBLEMS
from tarkit.samples.keys import read_table_keys
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Input


@dataclass(repr=False)
class Report:
    """The result of `tarkit.check`: iterate over the findings.

    Attributes:
        findings: each has `name`, `shard`, `offset`, `key`, `detail`, `level` ("error" or "note") and `hint`.
        shards: one for each shard, with `shard`, `samples`, `entries`, `size` and `bad`.
        same: whether the two sets of `same_as` have the same samples; None if they were not compared.
        complete: whether all samples are in the clean copy; None without `fix`.
        strict: whether notes count as errors.
    """

    findings: list[Finding] = field(default_factory=list)
    shards: list[ShardReport] = field(default_factory=list)
    same: bool | None = None
    complete: bool | None = None
    strict: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(finding.level == "error" or self.strict for finding in self.findings)

    @property
    def bad(self) -> list[str]:
        """The names of the shards that have errors."""
        return [shard.shard for shard in self.shards if shard.bad]

    @property
    def samples(self) -> int:
        """The number of samples in all shards."""
        return sum(shard.samples for shard in self.shards)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __repr__(self) -> str:
        return f"<tarkit.Report: {len(self.bad)} of {len(self.shards)} shards bad>"


def check(
    inputs: Input | Iterable[Input],
    *,
    require: str | Iterable[str] = (),
    unique: bool = False,
    against: str | None = None,
    manifest: str | None = None,
    target: Target | None = None,
    same_as: Input | Iterable[Input] | None = None,
    fix: str | None = None,
    rejects: str | None = None,
    allow: str | Iterable[str] = (),
    strict: bool = False,
    processes: int = 1,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Report:
    """Check shards. Damage is a finding, not an exception, and reading continues after it.

    Args:
        inputs, tmpdir, storage_options: as for `tarkit.open`; all URLs are reached so.
        require: fields that each sample has; `"jpg|png"` asks for either.
        unique: no key may be in two shards.
        against: a file with keys, one a line or in its column `__key__`, that are compared with those of the shards.
        manifest: a file as `split --manifest` writes it, to compare the shards with.
        target: a reader whose rules are applied: `"webdataset"`, `"dali"`, `"hf"` and others.
        same_as: other shards that are to hold the same samples, in any order. It goes with no other check.
        fix: write a clean copy: to a file, a directory, or a copy of each to `"clean-%06d.tar"`.
        rejects: write what the clean copy leaves out to this archive.
        allow, strict: names of problems that are notes; whether notes are errors.
        processes: how many shards are read at a time; 0 is one per CPU.

    >>> import tarkit
    >>> report = tarkit.check("train-*.tar", require=["jpg"])
    >>> report.ok, report.samples
    (True, 3)
    """
    options = parse_options(storage_options)
    return ShardsCheck(
        Run(tmpdir=tmpdir),
        locate(inputs, options),
        require=require,
        unique=unique,
        against=against,
        manifest=manifest,
        target=target,
        others=None if same_as is None else locate(same_as, options),
        fix=fix,
        rejects=rejects,
        allow=allow,
        strict=strict,
        processes=processes,
        options=options,
    ).collect()


class ShardsCheck:
    """A check of shards: iterate once over the findings of each shard and a report after them, then those of all.

    Args:
        run: counts samples, bytes, shards and findings, and shows progress.
        locations: the shards.
        others: those of `same_as`.
        names: what the two sets are called in messages.
        options: how the URLs of the manifest and of the table of keys are reached.
        require, unique, against, manifest, target, fix, rejects, allow, strict, processes: as for `check`.

    Attributes:
        report: the result, without the findings; complete at the end.
        failed: whether there was an error.
        fix: the clean copies, if they are written.
        sameness: the comparison with `others`.

    Raises:
        Usage: arguments are invalid, or do not go together.
    """

    def __init__(
        self,
        run: Run,
        locations: Sequence[Location],
        *,
        require: str | Iterable[str] = (),
        unique: bool = False,
        against: str | None = None,
        manifest: str | None = None,
        target: Target | None = None,
        others: Sequence[Location] | None = None,
        names: tuple[str, str] = ("this set", "the other"),
        fix: str | None = None,
        rejects: str | None = None,
        allow: str | Iterable[str] = (),
        strict: bool = False,
        processes: int = 1,
        options: StoreOptions | None = None,
    ) -> None:
        check_choice("target", target, Target)
        processes = parse_processes(processes)
        allowed = frozenset(split_names(allow))
        for name in sorted(allowed - PROBLEMS.keys() - FINDINGS.keys()):
            problems = ", ".join([*PROBLEMS, *FINDINGS])
            raise Usage(f"{spell('allow', name)}: unknown problem; the problems are: {problems}")
        if rejects is not None and fix is None:
            raise Usage(f"{spell('rejects')} requires {spell('fix')}")
        if fix is not None and processes > 1:
            raise Usage(f"{spell('fix')} cannot be used with {spell('processes')}: it reads one input at a time")
        checks = {"unique": unique, "require": require, "against": against, "manifest": manifest, "target": target}
        for name, value in {**checks, "fix": fix}.items():
            if others is not None and value:
                raise Usage(f"{spell('same_as')} cannot be used with {spell(name)}")
        self.run, self.locations = run, locations
        self.report, self.failed = Report(strict=strict), False
        self._allowed, self._processes, self._options = allowed, processes, options
        self._against, self._manifest = against, manifest
        self._unique = unique or target == "energon"
        self._counts: dict[str, tuple[Counter[str], Counter[str]]] = {}  # problems and notes of each shard
        self.fix: Fix | None = None
        if fix is not None:
            self.fix = Fix(run, locations, fix, rejects, together=self._unique, allowed=allowed, options=options)
        tmpdir = run.scratch(None if self.fix is None else self.fix.output.directory)
        self.sameness: Sameness | None = None
        if others is not None:
            refuse_twice((*locations, *others))
            self._others = others
            self.sameness = Sameness(tmpdir, names)
            self._asked = Asked(contents=True, tmpdir=tmpdir)
            return
        fields = tuple(tuple(os.fsencode(name).lower() for name in word.split("|")) for word in split_names(require))
        keys, digest = self._unique or against is not None, manifest is not None
        self._asked = Asked(fields, target, keys, digest=digest, tmpdir=tmpdir)

    def collect(self) -> Report:
        """Check, and return the report with all findings."""
        self.report.findings = [item for item in self if isinstance(item, Finding)]
        return self.report

    def __iter__(self) -> Iterator[Finding | ShardReport]:
        report, run = self.report, self.run
        for item in self._checked() if self.sameness is None else self._compared(self.sameness):
            if isinstance(item, Finding):
                if item.level == "error" and item.name in self._allowed:
                    item = item._replace(level="note")
                problems, notes = self._counts_of(item.shard)
                (problems if item.level == "error" else notes)[item.name] += 1
                run.policy.counts[item.name] += 1
                self.failed = self.failed or report.strict or item.level == "error"
            else:
                item.strict = report.strict
                item.problems, item.notes = self._counts_of(item.shard)
                report.shards.append(item)
                run.samples += item.samples
                run.bytes += item.size
                run.shards += 1
            yield item
        if self.fix is not None:
            report.complete = self.fix.whole(run.policy.counts)

    def _counts_of(self, shard: str) -> tuple[Counter[str], Counter[str]]:
        return self._counts.setdefault(shard, (Counter(), Counter()))

    def _checked(self) -> Iterator[Finding | ShardReport]:
        """Yield the findings of each shard and a report after them; then the findings that concern several shards."""
        run, shards, checks = self.run, self.report.shards, list[SetCheck]()
        if self._unique:
            checks.append(Unique(self._asked.tmpdir))
        if self._against is not None:
            checks.append(Against(read_table_keys(self._against, self._options)))
        if self._manifest is not None:
            checks.append(Manifest(self._manifest, read_manifest(self._manifest, self._options)))
        with ExitStack() as stack:
            if self.fix is not None:
                self.fix.start(stack, len(self.locations))
            for index, item in run.draw(
                self._items(), lambda: run.bytes, lambda: run.samples, total_size(self.locations)
            ):
                if isinstance(item, (Finding, ShardReport)):
                    yield item
                for check in checks:
                    yield from check.add(index, self.locations[index], item)
        for findings in (joined(shards), mixed(shards), *(check.findings(shards) for check in checks)):
            yield from findings

    def _items(self) -> Iterator[tuple[int, Item]]:
        """Yield findings with the number of the shard; after each shard its clean copy is written."""
        jobs = list(enumerate(map(self.run.sent, self.locations)))
        work = partial(_check_one, self._asked) if self.fix is None else partial(_fix_one, self._asked, self.fix)
        results = self.run.in_order(work, jobs, self._processes, self._asked.tmpdir)
        for (index, location), items in zip(jobs, results, strict=True):
            self.run.note(f"reading {location.name}")
            for item in items:
                yield index, item
            if self.fix is not None:
                self.fix.write(last=index == len(jobs) - 1)

    def _compared(self, sameness: Sameness) -> Iterator[Finding | ShardReport]:
        reports: tuple[list[ShardReport], list[ShardReport]] = ([], [])
        sets = [list(enumerate(map(self.run.sent, locations))) for locations in (self.locations, self._others)]
        jobs = [job for jobs in sets for job in jobs]
        results = self.run.in_order(partial(_check_one, self._asked), jobs, self._processes, self._asked.tmpdir)
        for number, ((index, _), items) in enumerate(zip(jobs, results, strict=True)):
            which = int(number >= len(sets[0]))
            for item in items:
                if isinstance(item, Finding):
                    yield item
                elif isinstance(item, ShardReport):
                    reports[which].append(item)
                    yield item
                else:
                    sameness.add(which, index, item)
        if all(report.readable for report in self.report.shards):
            self.report.same = None if self.failed else sameness.same  # after damage there is no verdict
            yield from sameness.findings(*reports)


def _check_one(asked: Asked, job: tuple[int, Location]) -> Iterator[Item]:
    return check_shard(job[1], job[0], asked)


def _fix_one(asked: Asked, fix: Fix, job: tuple[int, Location]) -> Iterator[Item]:
    return fix.read(job[1], job[0], asked)
