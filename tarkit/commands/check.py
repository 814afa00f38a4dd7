"""tarkit check: what is wrong with shards, a clean copy of them, and whether two sets are the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any

import click

from tarkit.checking import dataset as across
from tarkit.checking.compare import Sameness
from tarkit.checking.findings import FINDINGS, Finding, ShardReport
from tarkit.checking.manifest import Manifest, places, read_manifest
from tarkit.checking.shard import Asked, Item, check_shard
from tarkit.checking.targets import TARGETS
from tarkit.cli.app import Command
from tarkit.cli.check_findings import Form, Printer
from tarkit.cli.check_fix import Fix
from tarkit.cli.console import Run, current
from tarkit.errors import Usage
from tarkit.parallel import in_order
from tarkit.problems import PROBLEMS
from tarkit.samples.keys import read_table_keys
from tarkit.streams.location import Location, expand_each, expand_inputs

EXAMPLES = (
    "tarkit check 'train-{000..099}.tar' --unique --require jpg,cls -p 8",
    "tarkit check shards/ --fix clean/ --rejects left-out.tar",
    "tarkit check raw.tar --same-as 'shuffled-*.tar'",
    "tarkit check shards/ --list-bad -0 | xargs -0 ls -l",
)
COST = (
    "One pass over headers; contents are read with --manifest (sha256) and --same-as, and where a shard is compressed "
    "or a stream. Memory does not grow with the data: keys are sorted out in 64 MiB and then in temporary space, once "
    "written and once read. --fix keeps about 350 bytes for each sample of an input, of all inputs with one OUT or "
    "--unique, and copies streams and compressed inputs to temporary space; --against keeps the keys of the table."
)


@dataclass
class CheckOptions:
    """What `check` is to look for and what to do about it. `fix` is where the clean copy goes."""

    processes: int = 1
    unique: bool = False
    require: tuple[tuple[bytes, ...], ...] = ()
    against: str | None = None
    manifest: str | None = None
    target: str | None = None
    same_as: Sequence[Location] = ()
    names: tuple[str, str] = ("", "")  # what the two sets of --same-as were called
    fix: str | None = None
    rejects: str | None = None
    allowed: frozenset[str] = frozenset()
    strict: bool = False
    form: Form = "text"
    null: bool = False


class CheckCommand(Command):
    """Takes all words behind --same-as, up to the next option, for the other set."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat --same-as before each of its words."""
        words: list[str] = []
        other = False
        for word in args:
            if other and (word == "-" or not word.startswith("-")):
                if words[-1] != "--same-as":
                    words.append("--same-as")
            else:
                other = word.partition("=")[0] == "--same-as"
            words.append(word)
        return super().parse_args(ctx, words)


@click.command(cls=CheckCommand, examples=EXAMPLES, cost=COST)
@click.argument("words", nargs=-1, metavar="[INPUT]...")
@click.option("-T", "--files-from", multiple=True, metavar="LIST", help="Take more inputs from LIST, one a line.")
@click.option("-0", "--null", is_flag=True, help="The names in LIST, and those that --list-bad prints, end with NUL.")
@click.option("-p", "--parallel", type=click.IntRange(1), default=1, metavar="N", help="N shards at once.")
@click.option("--unique", is_flag=True, help="No key may be in two shards.")
@click.option("--require", multiple=True, metavar="F1,F2", help="Fields that each sample has; a|b asks for either.")
@click.option(
    "--against", metavar="TABLE", help="Compare keys: a file, one a line, its column __key__, or FILE:COLUMN."
)
@click.option(
    "--manifest",
    metavar="FILE",
    help="Compare with what --manifest of split or shard wrote; alone: check what it lists.",
)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    metavar="|".join(TARGETS),
    help="Find what this reader would refuse or misread.",
)
@click.option(
    "--same-as", multiple=True, metavar="OTHER...", help="Compare the samples with those of OTHER, in any order."
)
@click.option(
    "--fix", metavar="OUT", help="Write a clean copy: to a file, folder/, or a copy of each to 'out-%06d.tar'."
)
@click.option("--rejects", metavar="FILE", help="Write what --fix leaves out to this archive.")
@click.option("--allow", multiple=True, metavar="PROBLEM", help="Take this problem for a note.")
@click.option("--strict", is_flag=True, help="Notes are problems too.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object a line.")
@click.option("--list-bad", is_flag=True, help="Print the names of bad shards alone.")
def check(words: tuple[str, ...], files_from: tuple[str, ...], null: bool, **given: Any) -> None:
    """Find what is wrong with shards, and write a clean copy.

    INPUTs are files, directories, -, pipe:COMMAND, 'globs*' or 'names-{000..099}.tar'; none is stdin. All words behind
    --same-as, up to the next option, are the other set, so INPUTs stand before it.

    Each problem is a line that ends in its name, such as [bad-header]; the first of a kind is followed by a hint how to
    repair it. Reading goes on behind damage, and with the other shards where one cannot be read. Then each shard gets
    its verdict. Notes are no problems: entries without key, fields that differ between samples, odd names.

    With --json each line has a type: problem (problem, level, shard, offset, key, detail, repair), shard (shard,
    verdict, samples, entries, bytes, problems, notes), summary; fix and set for --fix and --same-as.

    --same-as compares keys, fields and contents, not order, shards, times, modes or owners. There is no verdict, and
    status 1, when a shard of either set cannot be read or is damaged; --allow PROBLEM compares what a damaged one has.

    --fix gathers scattered samples, names what has a key that is taken KEY~2, KEY~3, drops entries without key, and
    leaves out samples that touch damage; the sums it prints account for every entry. With one OUT, or --unique, no
    key comes twice in all copies.

    Exit status: 0 nothing is wrong, 1 something is, 2 usage. With --fix: 0 all samples are in the copy.
    """
    run = current()
    chosen = _options(given, null)
    locations = _locations(run, words, files_from, null, chosen.manifest)
    chosen.same_as = expand_each(given["same_as"]) if given["same_as"] else ()
    chosen.names = (_called(words or files_from or ("stdin",)), _called(given["same_as"]))
    run.refuse([*locations, *chosen.same_as], *([chosen.rejects] if chosen.rejects else []))
    passed = run_same_as(run, locations, chosen) if chosen.same_as else run_check(run, locations, chosen)
    if not passed:
        click.get_current_context().exit(1)


def _options(given: dict[str, Any], null: bool) -> CheckOptions:
    if given["json_"] and given["list_bad"]:
        raise Usage("--json and --list-bad: choose one")
    names = frozenset(name.strip() for word in given["allow"] for name in word.split(",") if name.strip())
    known = {*PROBLEMS, *FINDINGS}
    if unknown := sorted(names - known):
        raise Usage(f"--allow {unknown[0]}: no such problem; there are: {', '.join([*PROBLEMS, *FINDINGS])}")
    if given["rejects"] is not None and given["fix"] is None:
        raise Usage("--rejects is about --fix")
    if given["fix"] is not None and given["parallel"] > 1:
        raise Usage("--fix reads one input at a time: it does not go with -p")
    for name in ("unique", "require", "against", "manifest", "target", "fix", "list_bad"):
        if given["same_as"] and given[name]:
            raise Usage(f"--same-as asks another question: it does not go with --{name.replace('_', '-')}")
    require = " ".join(given["require"]).replace(",", " ").lower().split()
    return CheckOptions(
        processes=given["parallel"],
        unique=given["unique"] or given["target"] == "energon",
        require=tuple(tuple(os.fsencode(name) for name in word.split("|")) for word in require),
        **{name: given[name] for name in ("against", "manifest", "target", "fix", "rejects", "strict")},
        allowed=names,
        form="json" if given["json_"] else "names" if given["list_bad"] else "text",
        null=null,
    )


def _called(words: Sequence[str]) -> str:
    return f"{words[0]} and {len(words) - 1} more" if len(words) > 1 else "".join(words)


def _locations(
    run: Run, words: tuple[str, ...], files_from: tuple[str, ...], null: bool, manifest: str | None
) -> list[Location]:
    for path in (*files_from, *([manifest] if manifest else [])):
        run.reserve(path, "a list of inputs", written=False)
    if manifest is not None and not words and not files_from:
        return expand_each([f"file:{path}" for path in places(read_manifest(manifest), manifest)])
    if not words and not files_from:
        return expand_inputs(())
    return expand_each(words, files_from, null)


def run_check(run: Run, locations: Sequence[Location], chosen: CheckOptions) -> bool:
    """Check shards; whether nothing is wrong, or with --fix, whether all samples are in the copy."""
    table = None if chosen.against is None else across.Against(read_table_keys(chosen.against))
    manifest = None if chosen.manifest is None else Manifest(chosen.manifest, read_manifest(chosen.manifest))
    fix = None
    if chosen.fix is not None:
        fix = Fix(run, locations, chosen.fix, chosen.rejects, chosen.unique, chosen.allowed)
    tmpdir = run.tmpdir or os.environ.get("TMPDIR") if fix is None else run.scratch(fix.output)
    keys = chosen.unique or table is not None
    asked = Asked(chosen.require, chosen.target, keys, digest=manifest is not None, tmpdir=tmpdir)
    unique = across.Unique(tmpdir) if chosen.unique else None
    printer = Printer(run, chosen.form, chosen.allowed, chosen.strict, chosen.null)
    with ExitStack() as stack:
        if fix is not None:
            fix.start(stack, len(locations))
        for index, item in _items(run, locations, asked, chosen.processes, fix):
            if isinstance(item, Finding):
                printer.finding(item)
            elif isinstance(item, ShardReport):
                printer.report(item)
                if manifest is not None:
                    for finding in manifest.compare(item, locations[index].text):
                        printer.finding(finding)
            else:
                if unique is not None:
                    unique.add(index, item)
                for finding in table.add(locations[index].name, item) if table is not None else ():
                    printer.finding(finding)
    shards = printer.reports
    found = [across.joined(shards), across.mixed(shards)]
    found += [unique.findings(shards)] if unique is not None else []
    found += [each.findings() for each in (table, manifest) if each is not None]
    for finding in chain.from_iterable(found):
        printer.finding(finding)
    return _end(run, printer, fix)


def _items(
    run: Run, locations: Sequence[Location], asked: Asked, processes: int, fix: Fix | None
) -> Iterator[tuple[int, Item]]:
    """What is found, with the number of the shard; after each shard what there is to fix is written."""

    def work(job: tuple[int, Location]) -> Iterator[Item]:
        index, location = job
        return check_shard(location, index, asked) if fix is None else fix.read(location, index, asked)

    def items() -> Iterator[tuple[int, Item]]:
        jobs = list(enumerate(locations))
        for (index, location), found in zip(jobs, in_order(jobs, work, processes, asked.tmpdir), strict=True):
            run.note(f"reading {location.name}")
            for item in found:
                yield index, item
            if fix is not None:
                fix.write(last=index == len(locations) - 1)

    if run.shows_progress:
        return run.draw(items(), lambda: run.bytes, lambda: run.samples)
    return items()


def _end(run: Run, printer: Printer, fix: Fix | None) -> bool:
    """Verdicts, sums, the summary."""
    bad = printer.verdicts()
    passed = not printer.failed
    if fix is not None:
        passed = fix.report(printer)
    facts = {"shards": run.shards, "bad": bad, "samples": run.samples, "found": dict(run.policy.counts)}
    run.facts["bad"] = bad
    if printer.form == "json":
        printer.record({"type": "summary", **facts})
    printer.close()
    run.tell(f"check: {bad} of {run.shards} shards bad")
    run.finish()
    return passed


def run_same_as(run: Run, locations: Sequence[Location], chosen: CheckOptions) -> bool:
    """Compare two sets of shards; whether they hold the same samples.

    A shard with damage that is not allowed leaves that open; after one that cannot be read nothing is compared.
    """
    tmpdir = run.tmpdir or os.environ.get("TMPDIR")
    sets = (locations, chosen.same_as)
    if sum(location.kind == "stdin" for each in sets for location in each) > 1:
        raise Usage("stdin is named more than once")
    printer = Printer(run, chosen.form, chosen.allowed, chosen.strict)
    sameness = Sameness(tmpdir, chosen.names)
    reports: tuple[list[ShardReport], list[ShardReport]] = ([], [])
    asked = Asked(contents=True, tmpdir=tmpdir)
    jobs = [(which, index, location) for which, each in enumerate(sets) for index, location in enumerate(each)]

    def work(job: tuple[int, int, Location]) -> Iterator[Item]:
        return check_shard(job[2], job[1], asked)

    for (which, index, _), found in zip(jobs, in_order(jobs, work, chosen.processes, tmpdir), strict=True):
        for item in found:
            if isinstance(item, Finding):
                printer.finding(item)
            elif isinstance(item, ShardReport):
                reports[which].append(item)
                printer.report(item)
            else:
                sameness.add(which, index, item)
    unread = [report.shard for report in (*reports[0], *reports[1]) if not report.readable]
    damaged = printer.failed
    if not unread:
        _compare(printer, sameness, reports)
    same = None if unread or damaged else sameness.same
    if unread:
        words = f"no verdict: {_called(unread)} could not be read"
    elif same is None:
        words = "no verdict: not every shard is whole"
    else:
        words = "the same samples" if same else "not the same samples"
    printer.say([words], {"type": "summary", "same": same, "found": dict(run.policy.counts)})
    printer.close()
    run.facts["same"] = same
    run.finish()
    return same is True and not printer.failed


def _compare(printer: Printer, sameness: Sameness, reports: tuple[list[ShardReport], list[ShardReport]]) -> None:
    """Print what differs between two sets, and the fingerprint of each."""
    for finding in sameness.findings(*reports):
        printer.finding(finding)
    printer.rest()
    for name, called, total in zip(("this set", "the other"), sameness.names, sameness.totals, strict=True):
        record = {"samples": total.samples, "entries": total.entries, "fingerprint": f"{total.value:032x}"}
        printer.say([f"{name}, {called}: {total}"], {"type": "set", "set": name, **record})
