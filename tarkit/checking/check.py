"""Check shards: faults of each and of all together, clean copies, comparison of two sets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tarkit.arguments import split_names
from tarkit.checking.across import Against, Manifest, SetCheck, Unique, joined, mixed, read_manifest
from tarkit.checking.compare import Sameness, SampleSets
from tarkit.checking.decode import parse_decoded, unused_words
from tarkit.checking.diff import By, Diff, Difference
from tarkit.checking.diff_table import written
from tarkit.checking.findings import FINDINGS, Finding, ShardReport
from tarkit.checking.fix import Fix, rejects_output
from tarkit.checking.shard import Item, OptionalChecks, Rejected
from tarkit.checking.targets import TARGETS, Target
from tarkit.checking.view import check_shard
from tarkit.errors import Usage, spell
from tarkit.export.table import TableOptions
from tarkit.options import Options, row
from tarkit.pipeline.chain import locate, refuse_twice
from tarkit.pipeline.output import Output, refuse_overwrite, status_of, text_output, total_size
from tarkit.pipeline.rows import processes_row
from tarkit.pipeline.run import Run
from tarkit.problems import PROBLEMS
from tarkit.samples.keys import read_keys
from tarkit.sizes import plural
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.location import Location, is_view
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Input


@dataclass(repr=False)
class Report:
    """The result of `tarkit.check`: iterate over the findings.

    Attributes:
        findings: each has `name`, `shard`, `offset`, `key`, `detail`, `level` ("error" or "note") and `hint`.
        shards: one for each shard, with `shard`, `samples`, `entries`, `size` and `bad`.
        same: whether the two sets of `same_as` or `diff` have the same samples, in any order; None if they were not
            compared.
        differences: those of `diff`, each with `change`, `key`, `fields`, and `old` and `new`, its places in both sets.
        complete: whether all samples are in the clean copy; None without `fix`.
        strict: whether notes count as errors.
    """

    findings: list[Finding] = field(default_factory=list)
    shards: list[ShardReport] = field(default_factory=list)
    same: bool | None = None
    complete: bool | None = None
    strict: bool = False
    differences: list[Difference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(finding.level == "error" or self.strict for finding in self.findings)

    @property
    def bad(self) -> list[str]:
        """The names of the shards that have errors."""
        return [shard.shard for shard in self.shards if shard.bad]

    @property
    def decoded(self) -> dict[str, int] | None:
        """The number of contents that were decoded, by field; None without `decode`."""
        counts = [shard.decoded for shard in self.shards if shard.decoded is not None]
        total = Counter[str]()
        for count in counts:
            total.update(count)
        return dict(total) if counts else None

    @property
    def samples(self) -> int:
        """The number of samples in all shards."""
        return sum(shard.samples for shard in self.shards)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __repr__(self) -> str:
        return f"<tarkit.Report: {len(self.bad)} of {plural(len(self.shards), 'shard')} bad>"


def check(
    inputs: Input | Iterable[Input],
    *,
    require: str | Iterable[str] = (),
    unique: bool = False,
    against: str | None = None,
    manifest: str | None = None,
    target: Target | None = None,
    decode: str | Iterable[str] | None = None,
    same_as: Input | Iterable[Input] | None = None,
    diff: Input | Iterable[Input] | None = None,
    by: By | None = None,
    output: str | None = None,
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
        inputs: as for `tarkit.open`; so are tmpdir and storage_options, which all URLs of the call share.
        require: fields that each sample has; `"jpg|png"` asks for either.
        unique: no key may be in two shards.
        against: a file with keys, one a line or in its column `__key__`, that are compared with those of the shards.
        manifest: a file as `split --manifest` writes it, to compare the shards with.
        target: a reader whose rules are applied: `"webdataset"`, `"dali"`, `"hf"` and others.
        decode: fields whose content is decoded, such as `"jpg json png:mask"`; `"all"` for all with a decoder.
        same_as: other shards that are to hold the same samples, in any order. It goes with no other check.
        diff: other shards, whose differences from these are listed: samples removed, added, renamed, changed or moved.
        by: samples of `diff` are matched by `"key"`, or by `"content"`, so that renamed ones are seen.
        output: a table of the differences: .csv, .tsv, .jsonl, .parquet.
        fix: write a clean copy: to a file, a directory, or a copy of each to `"clean-%06d.tar"`.
        rejects: write samples that the clean copy leaves out to this archive; without `fix` those with bad content.
        allow, strict: names of problems that are notes; whether notes are errors.
        processes: how many shards are read at a time; 0 is one per CPU.

    >>> import tarkit
    >>> report = tarkit.check("train-*.tar", require=["jpg"])
    >>> report.ok, report.samples
    (True, 3)
    """
    options = CheckOptions.of(locals())
    storage = parse_options(storage_options)
    other = same_as if diff is None else diff
    others = None if other is None else locate(other, storage)
    return ShardsCheck(Run(tmpdir=tmpdir), locate(inputs, storage), options, others, storage=storage).collect()


class CheckOptions(Options):
    """The options of `tarkit.check` and the command `check`.

    Attributes:
        allowed: the problems that are notes.
        decoded: the fields whose content is decoded; None for none.
        json, list_bad: the format that the command prints.
    """

    json: bool = row("Output", "--json", default=False, help="Print one JSON object a line.")
    list_bad: bool = row("Output", "--list-bad", default=False, help="Print only the names of bad shards.")
    fix: str | None = row(
        "Output",
        "--fix",
        metavar="OUT",
        role="output",
        help="Write a clean copy.",
        more="OUT is a file, a directory/ that exists or, for one copy of each input, a template such as "
        "'out-%06d.tar'. No file is replaced.",
    )
    rejects: str | None = row(
        "Output",
        "--rejects",
        metavar="FILE",
        role="output",
        help="Write what --fix leaves out to this archive.",
        more="Without --fix it has the samples with content that --decode finds bad.",
    )
    unique: bool = row("Checks", "--unique", default=False, help="Require that no key is in two shards.")
    require: str | Iterable[str] = row(
        "Checks",
        "--require",
        complete="fields",
        default=(),
        split=True,
        parse=split_names,
        metavar="F1,F2",
        help="Require these fields in each sample; a|b is either.",
    )
    against: str | None = row(
        "Checks",
        "--against",
        metavar="TABLE",
        role="column",
        help="Compare keys with those of a table.",
        more="TABLE has one key per line, or a column __key__, or is FILE:COLUMN.",
    )
    manifest: str | None = row(
        "Checks",
        "--manifest",
        metavar="FILE",
        role="file",
        help="Compare with what --manifest of split or shard wrote.",
        more="The default INPUT is the shards that it lists.",
    )
    target: Target | None = row(
        "Checks",
        "--target",
        choices=Target,
        metavar="READER",
        help=f"Problems for {', '.join(TARGETS)}.",
        more="Find what this reader would refuse or misread.",
    )
    decode: str | Iterable[str] | None = row(
        "Checks",
        "--decode",
        complete="fields",
        many=True,
        metavar="FIELDS",
        help="Decode these fields: 'jpg json png:mask'.",
        more="Content that is cut, damaged or of another kind is bad. png:mask decodes the field mask as png; all "
        "decodes all fields that have a decoder.",
    )
    same_as: Any = row(
        "Checks",
        "--same-as",
        many=True,
        metavar="OTHER...",
        role="inputs",
        help="Compare with the samples of OTHER, in any order.",
        words=False,
    )
    diff: Any = row(
        "Checks",
        "--diff",
        many=True,
        metavar="OTHER...",
        role="inputs",
        help="List how the samples of OTHER differ.",
        more="Samples are removed, added, renamed, changed (in which fields) or moved to another shard or place.",
        words=False,
    )
    by: By | None = row(
        "Checks",
        "--by",
        choices=By,
        metavar="BY",
        help="Match samples of --diff by key or content.",
        more="By content, a sample of another key with the same fields is renamed. The default is key.",
    )
    output: str | None = row(
        "Output",
        "-o",
        "--output",
        metavar="TABLE",
        role="side",
        help="Write the differences of --diff to this table.",
        more="The suffix is .csv, .tsv, .jsonl, .json, .yaml or .parquet. --keys-from TABLE:__key__ takes its keys.",
    )
    allow: str | Iterable[str] = row(
        "Problems",
        "--allow",
        default=(),
        parse=split_names,
        metavar="PROBLEM",
        help="Treat this problem as a note.",
        more="It is printed, but the shard is not bad for it.",
    )
    strict: bool = row("Problems", "--strict", default=False, help="Treat notes as problems.")
    processes: int = processes_row("Input", "Check N shards at a time")

    def check(self) -> None:
        """Raise Usage for options that do not go together."""
        self.allowed = frozenset(self.allow)
        for name in sorted(self.allowed - PROBLEMS.keys() - FINDINGS.keys()):
            problems = ", ".join([*PROBLEMS, *FINDINGS])
            raise Usage(f"{spell('allow', name)}: unknown problem; the problems are: {problems}")
        if self.json and self.list_bad:
            raise Usage(f"{spell('json')} and {spell('list_bad')}: choose one")
        self.decoded = None if self.decode is None else parse_decoded(" ".join(self.decode))
        if self.rejects is not None and self.fix is None and self.decoded is None:
            raise Usage(f"{spell('rejects')} requires {spell('fix')} or {spell('decode')}")
        if self.fix is not None and self.processes > 1:
            raise Usage(f"{spell('fix')} cannot be used with {spell('processes')}: it reads one input at a time")
        for name in ("by", "output"):
            if getattr(self, name) is not None and not self.diff:
                raise Usage(f"{spell(name)} requires {spell('diff')}")
        for compared in ("same_as", "diff"):
            others = ("unique", "require", "against", "manifest", "target", "decode", "fix", "list_bad")
            for name in (*others, "diff") if compared == "same_as" else others:
                if getattr(self, compared) and getattr(self, name):
                    raise Usage(f"{spell(compared)} cannot be used with {spell(name)}")


class ShardsCheck:
    """A check of shards: iterate once over the findings of each shard and a report after them, then those of all.

    Args:
        run: counts samples, bytes, shards and findings, and shows progress.
        locations: the shards.
        options: the checks to make.
        others: those of `same_as` or `diff`.
        names: names of the two sets in messages.
        storage: how the URLs of the manifest and of the table of keys are reached.

    Attributes:
        report: the result, without the findings; complete at the end.
        failed: whether there was an error.
        fix: the clean copies, if they are written.
        compared: the comparison with `others`: a `Sameness` or a `Diff`.
    """

    def __init__(
        self,
        run: Run,
        locations: Sequence[Location],
        options: CheckOptions,
        others: Sequence[Location] | None = None,
        names: tuple[str, str] = ("this set", "the other"),
        storage: StoreOptions | None = None,
    ) -> None:
        self.run, self.locations, self.options, self.storage = run, locations, options, storage
        self.report, self.failed = Report(strict=options.strict), False
        self._unique = options.unique or options.target == "energon"
        self._counts: dict[str, tuple[Counter[str], Counter[str]]] = {}  # problems and notes of each shard
        self.fix: Fix | None = None
        if options.fix is not None:
            allowed = options.allowed
            self.fix = Fix(
                run, locations, options.fix, options.rejects, together=self._unique, allowed=allowed, options=storage
            )
        self._rejects: Output | None = None
        if options.fix is None and options.rejects is not None:
            self._rejects = rejects_output(run, locations, options.rejects, storage)
        if options.decoded is not None:
            options.decoded.load()
        for name in ("fix", "target"):
            if getattr(options, name) is not None and (view := next(filter(is_view, locations), None)) is not None:
                message = f"{view.name}: {spell(name)} needs archives, and this is a view"
                raise Usage(message, f"tarkit cat {view.name} -o NAME.tar makes an archive")
        tmpdir = run.scratch(None if self.fix is None else self.fix.output.directory)
        self.compared: SampleSets | None = None
        if others is not None:
            refuse_twice((*locations, *others))
            self._others = others
            self._table = None if options.output is None else self._table_output(options.output)
            self.compared = Diff(tmpdir, names, options.by or "key") if options.diff else Sameness(tmpdir, names)
            self._checks = OptionalChecks(contents=True, tmpdir=tmpdir)
            return
        fields = tuple(tuple(os.fsencode(name).lower() for name in word.split("|")) for word in options.require)
        keys, digest = self._unique or options.against is not None, options.manifest is not None
        self._checks = OptionalChecks(
            fields,
            options.target,
            keys,
            digest=digest,
            decode=options.decoded,
            rejects=self._rejects is not None,
            tmpdir=tmpdir,
        )

    def collect(self) -> Report:
        """Check, and return the report with all findings."""
        for item in self:
            if isinstance(item, Finding):
                self.report.findings.append(item)
            elif isinstance(item, Difference):
                self.report.differences.append(item)
        return self.report

    def _table_output(self, word: str) -> Output:
        output = text_output(word, options=self.storage)
        locations = [*self.locations, *self._others]
        if output.location.kind == "path":
            refuse_overwrite(status_of(output.location.text), locations)
            self.run.reserve(output.location.text, "the table of differences")
        try:
            TableOptions().format_of(output)
        except Usage as error:
            raise Usage(str(error), "the suffix is .csv, .tsv, .jsonl, .json, .yaml or .parquet") from None
        return output

    def __iter__(self) -> Iterator[Finding | ShardReport | Difference]:
        report, run = self.report, self.run
        for item in self._checked() if self.compared is None else self._compared(self.compared):
            if isinstance(item, Difference):
                yield item
                continue
            if isinstance(item, Finding):
                if item.level == "error" and item.name in self.options.allowed:
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
        run, shards, checks, options = self.run, self.report.shards, list[SetCheck](), self.options
        if self._unique:
            checks.append(Unique(self._checks.tmpdir))
        if options.against is not None:
            checks.append(Against(read_keys(options.against, options=self.storage)))
        if options.manifest is not None:
            checks.append(Manifest(options.manifest, read_manifest(options.manifest, self.storage)))
        with ExitStack() as stack:
            if self.fix is not None:
                self.fix.start(stack, len(self.locations))
            rejects = None if self._rejects is None else stack.enter_context(EntryWriter(self._rejects.open()))
            for index, item in run.draw(
                "", self._items(), lambda: run.bytes, lambda: run.samples, total_size(self.locations)
            ):
                if isinstance(item, (Finding, ShardReport)):
                    yield item
                elif isinstance(item, Rejected) and rejects is not None:
                    rejects.raw((item.data,), len(item.data))
                for check in checks:
                    yield from check.add(index, self.locations[index], item)
        last = [check.findings(shards) for check in checks]
        if options.decoded is not None and run.samples:
            last.append(unused_words(options.decoded, self.report.decoded or {}))
        for findings in (joined(shards), mixed(shards), *last):
            yield from findings

    def _items(self) -> Iterator[tuple[int, Item]]:
        """Yield findings with the number of the shard; after each shard its clean copy is written."""
        jobs = list(enumerate(map(self.run.sent, self.locations)))
        work = partial(_check_one, self._checks) if self.fix is None else partial(_fix_one, self._checks, self.fix)
        results = self.run.in_order(work, jobs, self.options.processes, self._checks.tmpdir)
        for (index, location), items in zip(jobs, results, strict=True):
            self.run.note(f"reading {location.name}")
            for item in items:
                yield index, item
            if self.fix is not None:
                self.fix.write(last=index == len(jobs) - 1)

    def _compared(self, compared: SampleSets) -> Iterator[Finding | ShardReport | Difference]:
        reports: tuple[list[ShardReport], list[ShardReport]] = ([], [])
        sets = [list(enumerate(map(self.run.sent, locations))) for locations in (self.locations, self._others)]
        jobs = [job for jobs in sets for job in jobs]
        results = self.run.in_order(
            partial(_check_one, self._checks), jobs, self.options.processes, self._checks.tmpdir
        )
        for number, ((index, _), items) in enumerate(zip(jobs, results, strict=True)):
            side = int(number >= len(sets[0]))
            for item in items:
                if isinstance(item, Finding):
                    yield item
                elif isinstance(item, ShardReport):
                    reports[side].append(item)
                    yield item
                elif not isinstance(item, Rejected):
                    compared.add(side, index, item)
        if all(report.readable for report in self.report.shards):
            self.report.same = None if self.failed else compared.same  # after damage there is no verdict
            if isinstance(compared, Sameness):
                yield from compared.findings(*reports)
            elif isinstance(compared, Diff):
                differences = compared.differences(*reports)
                inputs = [*self.locations, *self._others]
                yield from differences if self._table is None else written(differences, self._table, inputs)


def _check_one(checks: OptionalChecks, job: tuple[int, Location]) -> Iterator[Item]:
    return check_shard(job[1], job[0], checks)


def _fix_one(checks: OptionalChecks, fix: Fix, job: tuple[int, Location]) -> Iterator[Item]:
    return fix.read(job[1], job[0], checks)
