"""tarkit check: find problems of shards, write a clean copy of them, compare two sets of shards."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from tarkit.checking.across import places, read_manifest
from tarkit.checking.check import ShardsCheck
from tarkit.checking.compare import SampleSets
from tarkit.checking.diff import Diff, Difference
from tarkit.checking.findings import Finding
from tarkit.checking.leaks import Leaks
from tarkit.checking.options import CheckOptions
from tarkit.cli import options as shared
from tarkit.cli.check_findings import Form, Printer
from tarkit.cli.cluster import on_cluster
from tarkit.cli.console import ConsoleRun, current
from tarkit.cli.map import MappedCommand
from tarkit.errors import Usage
from tarkit.sizes import and_more, plural
from tarkit.stores import schemes
from tarkit.streams.location import Location, expand_inputs

EXAMPLES = (
    "tarkit check 'train-{000..099}.tar' --unique --require jpg,cls -p 8",
    "tarkit check shards/ --fix clean/ --rejects left-out.tar",
    "tarkit check shards/ --decode 'jpg json' --rejects bad.tar -p 8",
    "tarkit check raw.tar --same-as 'shuffled-*.tar'",
    "tarkit check 'train-*.tar' --leak 'val-*.tar' --by phash.jpg -p 8",
    "tarkit check shards/ --unique --by sha256.jpg",
    "tarkit check old/ --diff new/ --by content -o diff.csv",
    "tarkit check shards/ --list-bad -0 | xargs -0 ls -l",
)
COST = (
    "One pass over headers; contents are read with --manifest (sha256), --decode, --same-as, --diff and --by, and "
    "where a shard is compressed or a stream. Memory does not grow with the data.\f Keys and values are sorted in 64 "
    "MiB, and then in temporary space, which is written once and read once; --diff takes twice as much. --fix keeps "
    "about 350 bytes for each sample of an input, of all inputs with one OUT or --unique, and copies streams, "
    "compressed inputs and URLs to temporary space; --against keeps the keys of the table, --by phash.FIELD 30 bytes "
    "for each different hash."
)


class CheckCommand(MappedCommand):
    """A command whose options --same-as, --diff and --leak take all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat such an option before each of its words."""
        words: list[str] = []
        other = ""
        for word in args:
            if other and (word == "-" or not word.startswith("-")):
                if words[-1] != other:
                    words.append(other)
            else:
                other = name if (name := word.partition("=")[0]) in ("--same-as", "--diff", "--leak") else ""
            words.append(word)
        return super().parse_args(ctx, words)


@click.command(cls=CheckCommand, passes=True, examples=EXAMPLES, cost=COST)
@shared.INPUTS
@shared.FILES_FROM
@shared.null("Names end with NUL: in LIST, and from --list-bad.")
@shared.FROM
@shared.rows(CheckOptions)
def check(
    words: tuple[str, ...],
    files_from: tuple[str, ...],
    null: bool,
    source_format: str | None,
    options: Callable[..., CheckOptions],
) -> None:
    """Find what is wrong with shards, and write a clean copy.

    All words after --same-as, --diff or --leak, up to the next option, are the other set.

    Each problem is a line that ends in its name, such as [bad-header]; each shard gets a verdict, ok or bad. Notes are
    not problems: entries without a key, fields that differ between samples, odd names. With -q neither notes nor the
    verdicts of good shards are printed.

    Exit status: 0 no problem, 1 problems, 2 usage error. With --fix: 0 if all samples are in the copy.

    \f
    The first problem of a kind is followed by a hint how to repair it. Notes are before problems: one line for those of
    one kind, with the number of shards and an example, where there are more than three. Of the problems of a kind the
    first ten are printed, at most three of a shard, and the number of the others. More than ten good shards have one
    line, as do bad ones after the tenth. -v and --json print all, as they are found; --list-bad prints the
    names of all bad shards. Reading continues after damage, and with the next shard if one cannot be read.

    With --json each line has a type: problem (problem, level, shard, offset, key, detail, repair), shard (shard,
    verdict, samples, entries, bytes, problems, notes), summary; fix and set for --fix and --same-as.

    --same-as compares keys, fields and contents, not order, shards, times, modes or owners. There is no verdict, and
    status 1, if a shard of either set cannot be read or is damaged; --allow PROBLEM compares the samples of a damaged
    shard.

    --leak reports each sample of this set whose value --by is that of a sample of OTHER, also under another key, and
    --unique with --by each sample whose value an earlier one has. phash.FIELD:BITS finds all pairs of pictures whose
    hashes differ in at most BITS bits. With --json such a problem names the other sample (other: shard, offset, key,
    bits). A sample without the value is a problem: --allow missing-field, --allow bad-field.

    --fix gathers scattered samples, renames samples with duplicate keys to KEY~2, KEY~3, drops entries without a key,
    and leaves out samples that touch damage; the sums that it prints account for every entry. With one OUT, or
    --unique, keys are unique in all copies.
    """
    run = current()
    run.take_stdout("the list of findings")
    chosen = options()
    if chosen.fix is not None and "tarkit.dask" in click.get_current_context().meta:
        message = "--fix OUT reads one input after the other: it cannot be used with --dask"
        raise Usage(message, "--fix 'out/{stem}.tar' can")
    locations = shared.in_format(_locations(run, words, files_from, null, chosen.manifest), source_format)
    others, other_words = None, chosen.same_as or chosen.diff or chosen.leak or ()
    if other_words:
        others = shared.in_format(expand_inputs(other_words, missing="all"), source_format)
    run.refuse([*locations, *(others or [])], chosen.rejects, chosen.output)
    form: Form = "json" if chosen.json else "names" if chosen.list_bad else "text"
    names = and_more(words or files_from or ("stdin",)), and_more(other_words)
    with on_cluster(run):
        checked = ShardsCheck(run, locations, chosen, others, names)
        printer = Printer(run, form, chosen.strict, null)
        try:
            for item in checked:
                if isinstance(item, Finding):
                    printer.finding(item)
                elif isinstance(item, Difference) and (chosen.output is None or printer.form == "json"):
                    printer.rest()
                    printer.difference(item)
        except Exception:
            printer.rest()
            printer.close()
            raise
        if checked.compared is None or isinstance(checked.compared, Leaks):
            passed = _print_verdicts(run, checked, printer)
        elif isinstance(checked.compared, Diff):
            passed = _print_differences(run, checked, checked.compared, printer)
        else:
            passed = _print_comparison(run, checked, checked.compared, printer)
        run.finish()
    if not passed:
        click.get_current_context().exit(1)


def _locations(
    run: ConsoleRun, words: tuple[str, ...], files_from: tuple[str, ...], null: bool, manifest: str | None
) -> list[Location]:
    for path in (*files_from, *([manifest] if manifest else [])):
        run.reserve(path, "a list of inputs", written=False)
    if manifest is not None and not words and not files_from:
        paths = places(read_manifest(manifest), manifest)
        is_url = [schemes.scheme_of(path) is not None for path in paths]  # whether it is there, its store says later
        there = [
            path if url else f"file:{path}"
            for path, url in zip(paths, is_url, strict=True)
            if url or os.path.lexists(path)
        ]
        return expand_inputs(there, missing="all") if there else []
    return expand_inputs(words, files_from, null, missing="all")


def _print_verdicts(run: ConsoleRun, checked: ShardsCheck, printer: Printer) -> bool:
    """Print verdicts and sums. Return whether there is no problem; with --fix whether all samples are in the copy."""
    shards = checked.report.shards
    printer.verdicts(shards)
    if checked.fix is not None:
        for lines, record in checked.fix.results(run.verbose):
            printer.say(lines, record)
    decoded = checked.report.decoded
    if decoded is not None:
        run.facts["decoded"] = decoded
        if printer.form == "text" and not run.quiet:
            printer.line("decoded: " + (", ".join(f"{count} {name}" for name, count in decoded.items()) or "nothing"))
    if isinstance(checked.compared, Leaks):
        printer.say([str(checked.compared)], checked.compared.record)
    bad = run.facts["bad"] = sum(shard.bad for shard in shards)
    if printer.form == "json":
        counts = {"shards": run.shards, "bad": bad, "samples": run.samples, "found": dict(run.policy.counts)}
        if decoded is not None:
            counts["decoded"] = decoded
        printer.record({"type": "summary", **counts})
    printer.close()
    run.tell(f"check: {_outcome(run.shards, bad, checked.failed)}")
    return not checked.failed if checked.fix is None else checked.report.complete is True


def _outcome(shards: int, bad: int, failed: bool) -> str:
    """Return the words for how many shards are bad; problems may also be of the set, such as a missing shard."""
    if bad:
        return f"{bad} of {plural(shards, 'shard')} bad"
    return f"{plural(shards, 'shard')} OK" + (", but the set has problems" if failed else "")


def _print_comparison(run: ConsoleRun, checked: ShardsCheck, compared: SampleSets, printer: Printer) -> bool:
    """Print the fingerprint of each set, and whether they have the same samples, which it returns."""
    same = run.facts["same"] = checked.report.same
    printer.rest()
    if all(shard.readable for shard in checked.report.shards):
        for name, inputs, total in zip(("this set", "the other"), compared.names, compared.totals, strict=True):
            record = {"samples": total.samples, "entries": total.entries, "fingerprint": f"{total.value:032x}"}
            printer.say([f"{name}, {inputs}: {total}"], {"type": "set", "set": name, **record})
    words = _no_verdict(checked) or ("the same samples" if same else "not the same samples")
    printer.say([words], {"type": "summary", "same": same, "found": dict(run.policy.counts)})
    printer.close()
    return same is True and not checked.failed


def _no_verdict(checked: ShardsCheck) -> str:
    """Return why two sets cannot be compared; empty where they can."""
    if unread := [shard.shard for shard in checked.report.shards if not shard.readable]:
        return f"no verdict: {and_more(unread)} could not be read"
    return "no verdict: some shards are damaged" if checked.report.same is None else ""


def _print_differences(run: ConsoleRun, checked: ShardsCheck, diff: Diff, printer: Printer) -> bool:
    printer.rest()
    counts = run.facts["differences"] = dict(diff.counts)
    words = ", ".join(f"{count} {change}" for change, count in counts.items() if count and change != "same")
    same = plural(counts["same"], "sample is", "samples are") + " the same"
    line = _no_verdict(checked) or (f"{words}; {same}" if words else f"no differences: {same}")
    printer.say([line], {"type": "summary", "different": diff.different, **counts, "found": dict(run.policy.counts)})
    printer.close()
    return not diff.different and not checked.failed
