"""Check shards: faults of each and of all together, clean copies, comparison of two sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from tarkit.api.arguments import check_choice, parse_processes, split_names
from tarkit.api.chain import locate, refuse_twice
from tarkit.api.fix import Fix
from tarkit.api.run import Run
from tarkit.checking import dataset
from tarkit.checking.compare import Sameness
from tarkit.checking.findings import FINDINGS, Finding, ShardReport
from tarkit.checking.manifest import Manifest, read_manifest
from tarkit.checking.shard import Asked, Item, check_shard
from tarkit.checking.targets import Target
from tarkit.errors import Usage
from tarkit.problems import PROBLEMS
from tarkit.samples.keys import read_table_keys
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.api.chain import Input

Watch = Callable[[Iterator[tuple[int, Item]]], Iterator[tuple[int, Item]]]


@dataclass(frozen=True)
class Checks:
    """The checks beyond faults of each archive.

    Attributes:
        require: fields, in lower case, that each sample has; each with its alternatives.
        unique: no key may be in two shards.
        against: a table of keys that are compared.
        manifest: what `split --manifest` wrote, to compare with.
        target: a reader, such as `dali`, whose rules are applied.
        processes: how many shards are read at a time.
        storage: how the URLs of the manifest and of the table of keys are reached.
    """

    require: tuple[tuple[bytes, ...], ...] = ()
    unique: bool = False
    against: str | None = None
    manifest: str | None = None
    target: str | None = None
    processes: int = 1
    storage: StoreOptions | None = None


def iterate_findings(
    run: Run,
    locations: Sequence[Location],
    checks: Checks,
    fix: Fix | None = None,
    watch: Watch = lambda items: items,
) -> Iterator[Finding | ShardReport]:
    """Yield the findings of each shard and a report after them; then the findings that concern several shards.

    Args:
        fix: writes clean copies on the way.
        watch: wraps the iterator of findings, to show progress.
    """
    storage, table, manifest = checks.storage, None, None
    if checks.against is not None:
        table = dataset.Against(read_table_keys(checks.against, storage))
    if checks.manifest is not None:
        manifest = Manifest(checks.manifest, read_manifest(checks.manifest, storage))
    tmpdir = run.scratch(None if fix is None else fix.output.directory)
    keys = checks.unique or table is not None
    asked = Asked(checks.require, checks.target, keys, digest=manifest is not None, tmpdir=tmpdir)
    unique = dataset.Unique(tmpdir) if checks.unique else None
    shards: list[ShardReport] = []
    with ExitStack() as stack:
        if fix is not None:
            fix.start(stack, len(locations))
        for index, item in watch(_items(run, locations, asked, checks.processes, fix)):
            if isinstance(item, Finding):
                yield item
            elif isinstance(item, ShardReport):
                shards.append(item)
                yield item
                if manifest is not None:
                    yield from manifest.compare(item, locations[index].text)
            else:
                if unique is not None:
                    unique.add(index, item)
                if table is not None:
                    yield from table.add(locations[index].name, item)
    found = [dataset.joined(shards), dataset.mixed(shards)]
    found += [unique.findings(shards)] if unique is not None else []
    found += [each.findings() for each in (table, manifest) if each is not None]
    yield from chain.from_iterable(found)


def _items(
    run: Run, locations: Sequence[Location], asked: Asked, processes: int, fix: Fix | None
) -> Iterator[tuple[int, Item]]:
    """Yield findings with the number of the shard; after each shard its clean copy is written."""
    jobs = list(enumerate(map(run.sent, locations)))
    work = partial(_check_one, asked) if fix is None else partial(_fix_one, asked, fix)
    for (index, location), found in zip(jobs, run.in_order(work, jobs, processes, asked.tmpdir), strict=True):
        run.note(f"reading {location.name}")
        for item in found:
            yield index, item
        if fix is not None:
            fix.write(last=index == len(locations) - 1)


def _check_one(asked: Asked, job: tuple[int, Location]) -> Iterator[Item]:
    index, location = job
    return check_shard(location, index, asked)


def _fix_one(asked: Asked, fix: Fix, job: tuple[int, Location]) -> Iterator[Item]:
    index, location = job
    return fix.read(location, index, asked)


def _compare_one(asked: Asked, job: tuple[int, int, Location]) -> Iterator[Item]:
    _, index, location = job
    return check_shard(location, index, asked)


class Comparison:
    """Compare the samples of two sets of shards: keys, fields and contents, in any order.

    Attributes:
        unread: the names of shards that cannot be read: then nothing is compared.
        same: whether both have the same samples, once all findings were taken; None if a shard cannot be read or is
            damaged.
    """

    def __init__(
        self,
        run: Run,
        locations: Sequence[Location],
        others: Sequence[Location],
        names: tuple[str, str] = ("this set", "the other"),
        *,
        processes: int = 1,
        allowed: frozenset[str] = frozenset(),
        strict: bool = False,
    ) -> None:
        """`names` are what the sets are called in messages; problems in `allowed` are no damage, notes if `strict`."""
        self.sets = (locations, others)
        refuse_twice((*locations, *others))
        self._run = run
        self._tmpdir = run.scratch(None)
        self._processes = processes
        self.sameness = Sameness(self._tmpdir, names)
        self._allowed, self._strict = allowed, strict
        self.unread: list[str] = []
        self.same: bool | None = None

    def __iter__(self) -> Iterator[Finding | ShardReport]:
        """Yield the findings of the shards, a report after each, and then the differences."""
        reports: tuple[list[ShardReport], list[ShardReport]] = ([], [])
        asked = Asked(contents=True, tmpdir=self._tmpdir)
        damaged = False
        jobs = [
            (which, index, location)
            for which, each in enumerate(self.sets)
            for index, location in enumerate(map(self._run.sent, each))
        ]
        results = self._run.in_order(partial(_compare_one, asked), jobs, self._processes, self._tmpdir)
        for (which, index, _), found in zip(jobs, results, strict=True):
            for item in found:
                if isinstance(item, Finding):
                    damaged = damaged or self._strict or noted(item, self._allowed).level == "error"
                    yield item
                elif isinstance(item, ShardReport):
                    reports[which].append(item)
                    yield item
                else:
                    self.sameness.add(which, index, item)
        self.unread = [report.shard for report in (*reports[0], *reports[1]) if not report.readable]
        if not self.unread:
            self.same = None if damaged else self.sameness.same
            yield from self.sameness.findings(*reports)


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
        wrong = any(finding.level == "error" or self.strict for finding in self.findings)
        return not wrong

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
    return check_locations(
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
    )


def check_locations(
    run: Run,
    locations: Sequence[Location],
    *,
    require: str | Iterable[str] = (),
    unique: bool = False,
    against: str | None = None,
    manifest: str | None = None,
    target: Target | None = None,
    others: Sequence[Location] | None = None,
    fix: str | None = None,
    rejects: str | None = None,
    allow: str | Iterable[str] = (),
    strict: bool = False,
    processes: int = 1,
    options: StoreOptions | None = None,
) -> Report:
    """Check shards for a run; the arguments are as for `check`, `others` are the shards of `same_as`."""
    check_choice("target", target, Target)
    processes = parse_processes(processes)
    if (rejects is not None and fix is None) or (fix is not None and processes > 1):
        raise Usage("rejects requires fix" if fix is None else "fix reads one shard at a time: processes is 1")
    if others is not None and any((require, unique, against, manifest, target, fix)):
        raise Usage("same_as cannot be used with other checks or fix")
    report, allowed = Report(strict=strict), _allowed(allow)
    if others is not None:
        compared = Comparison(run, locations, others, processes=processes, allowed=allowed, strict=strict)
        _collect(report, compared, allowed)
        report.same = compared.same
        return report
    fields = tuple(tuple(os.fsencode(name).lower() for name in each.split("|")) for each in split_names(require))
    checks = Checks(fields, unique or target == "energon", against, manifest, target, processes, options)
    copies = None
    if fix is not None:
        copies = Fix(run, locations, fix, rejects, together=checks.unique, allowed=allowed, options=options)
    _collect(report, iterate_findings(run, locations, checks, copies), allowed)
    if copies is not None:
        for _ in copies.results():
            pass
        report.complete = copies.whole({finding.name for finding in report.findings})
    return report


def _allowed(allow: str | Iterable[str]) -> frozenset[str]:
    """Return the names of problems that are notes; raise Usage for an unknown one."""
    allowed = frozenset(split_names(allow))
    if unknown := sorted(allowed - PROBLEMS.keys() - FINDINGS.keys()):
        raise Usage(f"allow: {unknown[0]}: no such problem; there are: {', '.join([*PROBLEMS, *FINDINGS])}")
    return allowed


def _collect(report: Report, found: Iterable[Finding | ShardReport], allowed: frozenset[str]) -> None:
    for item in found:
        if isinstance(item, ShardReport):
            item.strict = report.strict
            report.shards.append(item)
        else:
            report.findings.append(noted(item, allowed))
    shards: dict[str, list[ShardReport]] = {}
    for shard in report.shards:
        shards.setdefault(shard.shard, []).append(shard)
    for finding in report.findings:
        for shard in shards.get(finding.shard, ()):
            shard.count(finding)


def noted(finding: Finding, allowed: frozenset[str]) -> Finding:
    """Return the finding, as a note if its problem is allowed."""
    return finding._replace(level="note") if finding.level == "error" and finding.name in allowed else finding
