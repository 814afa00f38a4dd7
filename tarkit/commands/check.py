"""tarkit check: find problems of shards, write a clean copy of them, compare two sets of shards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from tarkit.api.arguments import split_names
from tarkit.api.check import Checks, Comparison, iterate_findings
from tarkit.api.fix import Fix
from tarkit.api.output import total_size
from tarkit.checking.compare import Sameness
from tarkit.checking.findings import FINDINGS
from tarkit.checking.manifest import places, read_manifest
from tarkit.checking.shard import Item
from tarkit.checking.targets import TARGETS
from tarkit.cli import options
from tarkit.cli.check_findings import Form, Printer
from tarkit.cli.cluster import on_cluster
from tarkit.cli.command import option
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.map import MappedCommand
from tarkit.errors import Usage
from tarkit.problems import PROBLEMS
from tarkit.stores import schemes
from tarkit.streams.location import Location, expand_each, expand_inputs

EXAMPLES = (
    "tarkit check 'train-{000..099}.tar' --unique --require jpg,cls -p 8",
    "tarkit check shards/ --fix clean/ --rejects left-out.tar",
    "tarkit check raw.tar --same-as 'shuffled-*.tar'",
    "tarkit check shards/ --list-bad -0 | xargs -0 ls -l",
)
COST = (
    "One pass over headers; contents are read with --manifest (sha256) and --same-as, and where a shard is compressed "
    "or a stream. Memory does not grow with the data.\f Keys are sorted in 64 MiB, and then in temporary space, which "
    "is written once and read once. --fix keeps about 350 bytes for each sample of an input, of all inputs with one "
    "OUT or --unique, and copies streams, compressed inputs and URLs to temporary space; --against keeps the keys of "
    "the table."
)


@dataclass
class CheckOptions:
    """The options of `check`; `fix` is the output of the clean copy."""

    checks: Checks
    same_as: Sequence[Location] = ()
    names: tuple[str, str] = ("", "")  # names of the two sets of --same-as
    fix: str | None = None
    rejects: str | None = None
    allowed: frozenset[str] = frozenset()
    strict: bool = False
    form: Form = "text"
    null: bool = False


class CheckCommand(MappedCommand):
    """A command whose option --same-as takes all words up to the next option."""

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


@click.command(cls=CheckCommand, passes=True, maps="fix", also=("rejects",), examples=EXAMPLES, cost=COST)
@options.INPUTS
@options.FILES_FROM
@options.null("Names end with NUL: in LIST, and from --list-bad.")
@options.FROM
@options.parallel("Check N shards at a time.")
@option("Output", "--json", "json_", is_flag=True, help="Print one JSON object a line.")
@option("Output", "--list-bad", is_flag=True, help="Print only the names of bad shards.")
@option(
    "Output",
    "--fix",
    metavar="OUT",
    help="Write a clean copy.",
    more="OUT is a file, a directory/ that exists or, for one copy of each input, a template such as 'out-%06d.tar'. "
    "No file is replaced.",
)
@option("Output", "--rejects", metavar="FILE", help="Write what --fix leaves out to this archive.")
@option("Checks", "--unique", is_flag=True, help="Require that no key is in two shards.")
@option(
    "Checks", "--require", multiple=True, metavar="F1,F2", help="Require these fields in each sample; a|b is either."
)
@option(
    "Checks",
    "--against",
    metavar="TABLE",
    help="Compare keys with those of a table.",
    more="TABLE has one key per line, or a column __key__, or is FILE:COLUMN.",
)
@option(
    "Checks",
    "--manifest",
    metavar="FILE",
    help="Compare with what --manifest of split or shard wrote.",
    more="The default INPUT is the shards that it lists.",
)
@option(
    "Checks",
    "--target",
    type=click.Choice(TARGETS),
    metavar="READER",
    help=f"Problems for {', '.join(TARGETS)}.",
    more="Find what this reader would refuse or misread.",
)
@option(
    "Checks", "--same-as", multiple=True, metavar="OTHER...", help="Compare with the samples of OTHER, in any order."
)
@option(
    "Problems",
    "--allow",
    multiple=True,
    metavar="PROBLEM",
    help="Treat this problem as a note.",
    more="It is printed, but the shard is not bad for it.",
)
@option("Problems", "--strict", is_flag=True, help="Treat notes as problems.")
def check(
    words: tuple[str, ...], files_from: tuple[str, ...], null: bool, source_format: str | None, **given: Any
) -> None:
    """Find what is wrong with shards, and write a clean copy.

    All words after --same-as, up to the next option, are the other set.

    Each problem is a line that ends in its name, such as [bad-header]; each shard gets a verdict, ok or bad. Notes are
    not problems: entries without a key, fields that differ between samples, odd names. With -q neither notes nor the
    verdicts of good shards are printed.

    Exit status: 0 no problem, 1 problems, 2 usage error. With --fix: 0 if all samples are in the copy.

    \f
    The first problem of a kind is followed by a hint how to repair it. Of similar problems of a shard the first three
    are printed, and the number of the others; -v and --json print all. Reading continues after damage, and with the
    next shard if one cannot be read.

    With --json each line has a type: problem (problem, level, shard, offset, key, detail, repair), shard (shard,
    verdict, samples, entries, bytes, problems, notes), summary; fix and set for --fix and --same-as.

    --same-as compares keys, fields and contents, not order, shards, times, modes or owners. There is no verdict, and
    status 1, if a shard of either set cannot be read or is damaged; --allow PROBLEM compares the samples of a damaged
    shard.

    --fix gathers scattered samples, renames samples with duplicate keys to KEY~2, KEY~3, drops entries without a key,
    and leaves out samples that touch damage; the sums that it prints account for every entry. With one OUT, or
    --unique, keys are unique in all copies.
    """
    run = current()
    chosen = _options(given, null)
    locations = options.in_format(_locations(run, words, files_from, null, chosen.checks.manifest), source_format)
    chosen.same_as = options.in_format(expand_each(given["same_as"]) if given["same_as"] else [], source_format)
    chosen.names = (_name_of(words or files_from or ("stdin",)), _name_of(given["same_as"]))
    run.refuse([*locations, *chosen.same_as], *([chosen.rejects] if chosen.rejects else []))
    if chosen.fix is not None and "tarkit.dask" in click.get_current_context().meta:
        what = "--fix OUT reads one input after the other: it cannot be used with --dask"
        raise Usage(what, "--fix 'out/{stem}.tar' can")
    with on_cluster(run):
        passed = run_same_as(run, locations, chosen) if chosen.same_as else run_check(run, locations, chosen)
    if not passed:
        click.get_current_context().exit(1)


def _options(given: dict[str, Any], null: bool) -> CheckOptions:
    if given["json_"] and given["list_bad"]:
        raise Usage("--json and --list-bad: choose one")
    allowed = frozenset(split_names(given["allow"]))
    known = {*PROBLEMS, *FINDINGS}
    if unknown := sorted(allowed - known):
        raise Usage(f"--allow {unknown[0]}: unknown problem; the problems are: {', '.join([*PROBLEMS, *FINDINGS])}")
    if given["rejects"] is not None and given["fix"] is None:
        raise Usage("--rejects requires --fix")
    if given["fix"] is not None and given["parallel"] > 1:
        raise Usage("--fix cannot be used with -p: it reads one input at a time")
    for name in ("unique", "require", "against", "manifest", "target", "fix", "list_bad"):
        if given["same_as"] and given[name]:
            raise Usage(f"--same-as cannot be used with --{name.replace('_', '-')}")
    require = " ".join(given["require"]).replace(",", " ").split()
    checks = Checks(
        tuple(tuple(os.fsencode(name).lower() for name in word.split("|")) for word in require),
        given["unique"] or given["target"] == "energon",
        processes=given["parallel"],
        **{name: given[name] for name in ("against", "manifest", "target")},
    )
    return CheckOptions(
        checks,
        **{name: given[name] for name in ("fix", "rejects", "strict")},
        allowed=allowed,
        form="json" if given["json_"] else "names" if given["list_bad"] else "text",
        null=null,
    )


def _name_of(words: Sequence[str]) -> str:
    return f"{words[0]} and {len(words) - 1} more" if len(words) > 1 else "".join(words)


def _locations(
    run: ConsoleRun, words: tuple[str, ...], files_from: tuple[str, ...], null: bool, manifest: str | None
) -> list[Location]:
    for path in (*files_from, *([manifest] if manifest else [])):
        run.reserve(path, "a list of inputs", written=False)
    if manifest is not None and not words and not files_from:
        found = places(read_manifest(manifest), manifest)
        found = [path if schemes.scheme_of(path) else f"file:{path}" for path in found if _may_exist(path)]
        return expand_each(found) if found else []
    if not words and not files_from:
        return expand_inputs(())
    return expand_each(words, files_from, null)


def _may_exist(path: str) -> bool:
    """Return whether a shard of a manifest can be there; whether an object is, its store says when it is read."""
    return schemes.scheme_of(path) is not None or os.path.lexists(path)


def run_check(run: ConsoleRun, locations: Sequence[Location], chosen: CheckOptions) -> bool:
    """Check shards. Return whether there is no problem, or with --fix whether all samples are in the copy."""
    fix = None
    if chosen.fix is not None:
        together, allowed = chosen.checks.unique, chosen.allowed
        fix = Fix(run, locations, chosen.fix, chosen.rejects, together=together, allowed=allowed)
    printer = Printer(run, chosen.form, chosen.allowed, chosen.strict, chosen.null)

    total = total_size(locations)

    def watch(items: Iterator[tuple[int, Item]]) -> Iterator[tuple[int, Item]]:
        return run.draw(items, lambda: run.bytes, lambda: run.samples, total)

    for item in iterate_findings(run, locations, chosen.checks, fix, watch):
        printer.take(item)
    return _end(run, printer, fix)


def _end(run: ConsoleRun, printer: Printer, fix: Fix | None) -> bool:
    """Print verdicts, sums and the summary. Return as `run_check` does."""
    bad = printer.verdicts()
    passed = not printer.failed
    if fix is not None:
        for lines, record in fix.results(run.verbose):
            printer.say(lines, record)
        passed = fix.whole(run.policy.counts)
    facts = {"shards": run.shards, "bad": bad, "samples": run.samples, "found": dict(run.policy.counts)}
    run.facts["bad"] = bad
    if printer.form == "json":
        printer.record({"type": "summary", **facts})
    printer.close()
    run.tell(f"check: {_outcome(run.shards, bad, printer.failed)}")
    run.finish()
    return passed


def _outcome(shards: int, bad: int, failed: bool) -> str:
    """Return the words for how many shards are bad; problems may also be of the set, such as a missing shard."""
    many = "1 shard" if shards == 1 else f"{shards} shards"
    if bad:
        return f"{bad} of {many} bad"
    return f"{many} OK" + (", but the set has problems" if failed else "")


def run_same_as(run: ConsoleRun, locations: Sequence[Location], chosen: CheckOptions) -> bool:
    """Compare two sets of shards. Return whether they hold the same samples.

    There is no verdict if a shard has damage that is not allowed, or cannot be read.
    """
    printer = Printer(run, chosen.form, chosen.allowed, chosen.strict)
    compared = Comparison(
        run,
        locations,
        chosen.same_as,
        chosen.names,
        processes=chosen.checks.processes,
        allowed=chosen.allowed,
        strict=chosen.strict,
    )
    for item in compared:
        printer.take(item)
    unread, same = compared.unread, compared.same
    if not unread:
        _print_sets(printer, compared.sameness)
    if unread:
        words = f"no verdict: {_name_of(unread)} could not be read"
    elif same is None:
        words = "no verdict: some shards are damaged"
    else:
        words = "the same samples" if same else "not the same samples"
    printer.say([words], {"type": "summary", "same": same, "found": dict(run.policy.counts)})
    printer.close()
    run.facts["same"] = same
    run.finish()
    return same is True and not printer.failed


def _print_sets(printer: Printer, sameness: Sameness) -> None:
    """Print the fingerprint of each set."""
    printer.rest()
    for name, inputs, total in zip(("this set", "the other"), sameness.names, sameness.totals, strict=True):
        record = {"samples": total.samples, "entries": total.entries, "fingerprint": f"{total.value:032x}"}
        printer.say([f"{name}, {inputs}: {total}"], {"type": "set", "set": name, **record})
