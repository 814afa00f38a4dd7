"""The options of `check`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

from tarkit.arguments import split_names
from tarkit.checking.diff import By
from tarkit.checking.findings import FINDINGS
from tarkit.checking.leaks import Compared, parse_compared
from tarkit.checking.targets import TARGETS, Target
from tarkit.errors import Usage, spell
from tarkit.options import Options, row
from tarkit.pipeline.rows import processes_row
from tarkit.problems import PROBLEMS

if TYPE_CHECKING:
    from tarkit.checking.decode import DecodedFields


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
        "'out-%06d.tar'. In a directory, and by a template, no file is replaced.",
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
    leak: Any = row(
        "Checks",
        "--leak",
        many=True,
        metavar="OTHER...",
        role="inputs",
        help="Require that no sample is in OTHER too, by --by.",
        words=False,
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
    by: str | None = row(
        "Checks",
        "--by",
        complete="values",
        metavar="BY",
        help="What --leak, --unique and --diff compare.",
        more="--leak compares any value of samples, and so does --unique within one set: sha256.FIELD is the same "
        "content, phash.FIELD pictures that look alike, whose hashes differ in at most 4 bits (phash.FIELD:2 in 2), "
        "__key__ the key. --diff matches samples by key, as usual, or by content: one of another key with the same "
        "fields is renamed.",
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
        self.allowed = frozenset(self.allow)
        for name in sorted(self.allowed - PROBLEMS.keys() - FINDINGS.keys()):
            problems = ", ".join([*PROBLEMS, *FINDINGS])
            raise Usage(f"{spell('allow', name)}: unknown problem; the problems are: {problems}")
        if self.json and self.list_bad:
            raise Usage(f"{spell('json')} and {spell('list_bad')}: choose one")
        self.decoded: DecodedFields | None = None
        if self.decode is not None:
            from tarkit.checking.decode import parse_decoded

            self.decoded = parse_decoded(" ".join(self.decode))
        if self.rejects is not None and self.fix is None and self.decoded is None:
            raise Usage(f"{spell('rejects')} requires {spell('fix')} or {spell('decode')}")
        if self.fix is not None and self.processes > 1:
            raise Usage(f"{spell('fix')} cannot be used with {spell('processes')}: it reads one input at a time")
        self.compared = self._compared_value()
        if self.output is not None and not self.diff:
            raise Usage(f"{spell('output')} requires {spell('diff')}")
        rest = ("require", "against", "manifest", "target", "decode", "fix")
        alone = {
            "same_as": ("unique", *rest, "list_bad", "diff", "leak"),
            "diff": ("unique", *rest, "list_bad", "leak"),
            "leak": ("unique", *rest),
            "by": rest,
        }
        for name, others in alone.items():
            for other in others if getattr(self, name) else ():
                if getattr(self, other):
                    raise Usage(f"{spell(name)} cannot be used with {spell(other)}")

    def _compared_value(self) -> Compared | None:
        """Return the value of `--by` that samples are compared by; None for a comparison of shards. Raises Usage."""
        if self.diff or self.by is None:
            if self.by not in (None, *get_args(By)):
                raise Usage(f"{spell('by', self.by)}: {spell('diff')} matches samples by {' or '.join(get_args(By))}")
            if self.leak:
                hint = "sha256.jpg is the content of a field, phash.jpg pictures that look alike, __key__ the key"
                raise Usage(f"{spell('leak')} requires {spell('by')}", hint)
            return None
        if not self.unique and not self.leak:
            other = f"{spell('same_as')} compares all contents; {spell('diff')} lists what differs"
            raise Usage(
                f"{spell('by')} requires {spell('leak')}, {spell('unique')} or {spell('diff')}",
                other if self.same_as else None,
            )
        return parse_compared(self.by)
