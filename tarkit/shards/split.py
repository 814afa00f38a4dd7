"""`Dataset.split` and the command `split`: their options, the series of shards that these request, and the report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tarkit.arguments import check_at_least
from tarkit.errors import Usage, show, spell
from tarkit.options import row
from tarkit.pipeline.output import Output, archives_output
from tarkit.pipeline.rows import COMPRESS, FSYNC
from tarkit.pipeline.template import SPLIT_NAME, ShardTemplate, parse_template, refuse_template
from tarkit.shards.limits import DEFAULT_SIZE, Even, Limits, Remainder, SizeRule, no_limit
from tarkit.shards.output import ShardsOutput, write_equal
from tarkit.shards.rows import (
    COUNT,
    FORCE,
    MANIFEST,
    MAP,
    MAP_SEP,
    SHARDS,
    SIZE_RULE,
    UNMATCHED,
    MapOptions,
    SeriesOptions,
    post_row,
    size_row,
    template_row,
)
from tarkit.shards.series import PART, Assign, SeriesSpec, check_series
from tarkit.shards.writer import ShardsWriter, write_manifest
from tarkit.sizes import plural
from tarkit.stores.store import parse_options
from tarkit.streams.codecs.registry import CODECS, ZIP
from tarkit.streams.location import Location, is_view, parse_output
from tarkit.streams.text import check_created, create_file
from tarkit.views.names import INTO

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Chain
    from tarkit.pipeline.run import Run
    from tarkit.shards.partition import Part

SplitTargets = tuple[Output, list[SeriesSpec], Assign | None]
"""How shards are written, their series, and to which of these a sample goes."""


class SplitOptions(SeriesOptions):
    """The options of `Dataset.split` and the command `split`.

    Attributes:
        categories: the map, if there is one.
        limits: when a shard is full; without a limit it has at most DEFAULT_SIZE bytes.
        shares: the parts and their shares; empty without parts.
        storage: how URLs that are written are reached.
    """

    template: str | os.PathLike[str] | None = template_row(SPLIT_NAME)
    compress: str | None = COMPRESS
    fsync: bool = FSYNC
    names: str | None = row(
        "Output",
        "--names",
        metavar="TEMPLATE",
        help="Names of the shards, if -o names a view.",
        more=f"-o NAME.view.parquet writes no shard, but a view with the shard of each sample in the column {INTO}.",
    )
    append: bool = row("Output", "--append", default=False, help="Continue the numbers of existing shards.")
    force: bool = FORCE
    post: str | None = post_row("--post", "-p")
    manifest: str | None = MANIFEST
    count: int | None = COUNT
    size: int | str | None = size_row(f"without -c: {DEFAULT_SIZE}")
    size_rule: SizeRule = SIZE_RULE
    shards: int | None = SHARDS
    even: Even = row(
        "Shards",
        "--even",
        default="count",
        choices=Even,
        help="What is equal in shards.",
        more="count: their numbers of samples. size: their bytes, about; without -n there are as many shards as "
        "TEMPLATE has names: 64 for 'x-{00..63}.tar'.",
    )
    remainder: Remainder = row(
        "Shards",
        "--remainder",
        default="spread",
        choices=Remainder,
        metavar="HOW",
        help="Spread, drop or repeat the rest.",
        more="The rest are the samples that are left over when their number is divided by N. spread: some shards have "
        "one sample more. drop: they are left out. repeat: some samples come twice, so that all shards are full.",
    )
    max_shards: int | None = row(
        "Shards",
        "--max-shards",
        "--maxshards",
        at_least=1,
        metavar="N",
        help="Stop after N shards.",
        more="What is left is counted, and not written.",
    )
    start: int | None = row(
        "Shards", "--start", at_least=0, metavar="N", help="Number of the first shard.  [default: 0]"
    )
    by: str | None = row(
        "Shards",
        "--by",
        metavar="COLUMN",
        complete="values",
        help=f"Shards by a column of a view: {INTO}.",
        more="It has the names of the shards, below the directory that -o names; -o NAME.view.parquet makes one.",
    )
    map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = MAP
    map_sep: str | None = MAP_SEP
    unmatched: str | None = UNMATCHED
    parts: str | Mapping[str, object] | int | None = row(
        "Parts",
        "--parts",
        metavar="A=0.9,B=0.1",
        help="Parts by a hash of the key: {part}, or PART-TEMPLATE.",
        more="The name of a part, such as train, replaces {part} in TEMPLATE; without it, it is put before the name. "
        "A number K is K parts, fold-0, fold-1 and so on, with equal shares of the hashes: about equally many samples; "
        "--stratify makes their numbers equal for each class. "
        "Shares are 0.1, 1/10 or 10%, and a part without one gets the rest.",
    )
    group: str | None = row(
        "Parts",
        "--group",
        metavar="REGEX",
        help="Keep keys with one match of REGEX together.",
        more="If REGEX has a group, keys in which it matched the same text.",
    )
    group_field: str | None = row(
        "Parts", "--group-field", complete="values", metavar="FIELD", help="Keep samples with equal FIELD together."
    )
    stratify: str | None = row(
        "Parts",
        "--stratify",
        complete="values",
        metavar="FIELD",
        help="Give each part its share of each value of FIELD.",
        more="FIELD is a class, as in cls or json.label. Samples are dealt in order, without a hash.",
    )
    seed: int | None = None  # on the command line that of the selection
    storage_options: Mapping[str, object] | None = None

    def check(self) -> None:
        """Raise Usage for options that do not go together; set categories, limits, shares and storage."""
        if self.size is not None and not isinstance(self.size, str):
            check_at_least(1, size=self.size)
        self.storage = parse_options(self.storage_options)
        self.view = self._parse_view()
        self.categories = MapOptions(self.map, self.map_sep, self.unmatched)
        self._check_series()
        self._check_equal()
        self._check_names()
        if self.append and self.force:
            raise Usage(f"{spell('append')} keeps what is there, {spell('force')} replaces it: choose one")
        if self.append and self.start is not None:
            message = f"{spell('append')} continues after the last shard: it cannot be used with {spell('start')}"
            raise Usage(message)
        size = self.size if self.limited else DEFAULT_SIZE
        self.limits = Limits.of(self.count, size, self.size_rule, self.max_shards)
        self.shares = self._parse_parts()

    def _check_series(self) -> None:
        if self.map is not None and self.parts is not None:
            raise Usage(f"{spell('map')} and {spell('parts')} cannot be used together")
        rules = ("group", "group_field", "seed", "stratify")
        given = [name for name in rules if getattr(self, name) is not None]
        if given and self.parts is None:
            raise Usage(f"{spell(given[0])} requires {spell('parts')}")
        if self.stratify is not None and len(given) > 1:
            raise Usage(f"{spell('stratify')} uses no hash: it cannot be used with {spell(given[0])}")
        if self.group is not None and self.group_field is not None:
            raise Usage(f"{spell('group')} and {spell('group_field')}: choose one")

    def _check_equal(self) -> None:
        message = spell("shards" if self.shards else "even")
        if self.equal and not (self.count is None and self.size is None):
            raise Usage(f"{message} cannot be used with {spell('count')} or {spell('size')}")
        if self.remainder != "spread" and (self.shards is None or self.even == "size"):
            more = " and equal numbers of samples" if self.shards else ""
            raise Usage(f"{spell('remainder')} requires {spell('shards')}{more}")
        if self.series_option and (self.equal or self.max_shards is not None):
            message = spell("max_shards") if self.max_shards else message
            raise Usage(f"{message} cannot be used with {self.series_option}: it needs one series of shards")

    def _parse_view(self) -> Output | None:
        """Return the view that is the output, if there is one; then `template` has the names of the shards."""
        if self.template is None or not is_view(parse_output(os.fspath(self.template), self.storage)):
            if self.names is not None:
                raise Usage(f"{spell('names')} requires a view", f"{spell('template')} NAME.view.parquet")
            return None
        name, self.template = os.fspath(self.template), self.names
        refuse_template(name, f"a view is one file, and the names of its shards are those of {spell('names')}")
        for option in ("append", "force", "post", "manifest", "compress", "by"):
            if getattr(self, option):
                raise Usage(f"{spell(option)} cannot be used with a view: it is one file, and has no shards")
        return Output.from_argument(name, None, self.fsync, options=self.storage)

    def _check_names(self) -> None:
        """Raise Usage for options that do not go with names of shards in a column."""
        limits = ("count", "size", "shards", "max_shards", "start", "append", "map", "parts")
        if self.by is not None and (given := next((name for name in limits if getattr(self, name)), None)):
            raise Usage(f"{spell('by')} cannot be used with {spell(given)}: the column says what is in which shard")
        if self.view is not None and self.map is not None and self.names is not None:
            raise Usage(f"{spell('names')} cannot be used with {spell('map')}, which has the names of shards")

    @property
    def equal(self) -> bool:
        """Whether equal shards are requested."""
        return self.shards is not None or self.even == "size"

    @property
    def series_option(self) -> str | None:
        """The option that requests several series, if any."""
        if self.map is not None:
            return spell("map")
        return None if self.parts is None else spell("parts")

    @property
    def limited(self) -> bool:
        """Whether a size or number of shards is given."""
        return self.equal or self.by is not None or not (self.count is None and self.size is None)

    def _parse_parts(self) -> list[Part]:
        parts = self.parts
        if parts is None:
            return []
        from tarkit.shards.partition import parse_parts

        if isinstance(parts, Mapping):
            parts = ",".join(name if share is None else f"{name}={share}" for name, share in parts.items())
        return parse_parts(str(parts))

    @property
    def repair(self) -> str:
        """What to do about existing shards."""
        if self.by is not None:
            return super().repair
        return f"{super().repair}; {spell('append')} keeps them, and appends all inputs after them"

    def count_shards(self, template: ShardTemplate) -> int:
        """Return the number of equal shards: that of `shards`, else of the names of a template. Raises Usage."""
        number = template.count if self.shards is None else self.shards
        if number is None:
            hint = f"{spell('shards', 64)}, or a template with an end: 'out-{{00..63}}.tar'"
            raise Usage(f"{spell('even', 'size')} requires a number of shards", hint)
        return number

    def open(self, run: Run, inputs: Sequence[Location] = (), digest: bool = True) -> ShardsOutput:
        """Look up all names before anything is read.

        Raises:
            Usage: a file would have two roles.
            TarkitError: there are shards of these names, a directory is missing, or a map is invalid.
        """
        target, series, assign = self._plan(run, inputs)
        if self.series_option:
            check_series(run, target, series, len(inputs), self.series_option)
        run.refuse(inputs, self.manifest)
        run.reserve(self.manifest, "the manifest")
        check_created(self.manifest, self.storage)
        output = ShardsOutput(target, self.limits, assign, self, digest, series=series, view=self.view)
        if self.manifest is not None and target.location.kind not in ("path", "url"):
            raise Usage(f"{spell('manifest')} needs shards that are files or objects")
        output.refuse_places(run)
        return output

    def _plan(self, run: Run, inputs: Sequence[Location]) -> SplitTargets:
        if self.by is not None:
            return self._plan_column(self.by, inputs)
        if self.map is not None:
            return self._plan_categories(run)
        default = f"{PART}-%06d.tar" if self.shares else SPLIT_NAME
        template = default if self.template is None else os.fspath(self.template)
        output = self._output(template)
        if self.shares:
            return output, *self._plan_parts(run, template, output)
        if PART in template:
            raise Usage(f"{PART} in a name needs {spell('parts')}")
        return output, [SeriesSpec("", parse_template(template))], None

    def _plan_parts(self, run: Run, template: str, output: Output) -> tuple[list[SeriesSpec], Assign]:
        from tarkit.samples.labels import FieldValue
        from tarkit.shards.partition import ByClass, ByHash, KeyGroup, part_series

        if PART not in template and output.location.kind == "pipe":
            raise Usage(f"a command for several parts must contain {PART}")
        hint = f"{PART} is the name of the part"
        series = part_series(self.shares, template, lambda text: parse_template(text, hint))
        if PART not in template and self.view is None:
            more = f" and {len(series) - 9} more" if len(series) > 9 else ""
            run.tell(f"writes {', '.join(spec.template.text for spec in series[:9])}{more}")
        if self.stratify is not None:
            return series, ByClass(self.shares, FieldValue(self.stratify, run.policy))
        group: KeyGroup | FieldValue | None = None if self.group is None else KeyGroup(self.group)
        if self.group_field is not None:
            group = FieldValue(self.group_field, run.policy)
        return series, ByHash(self.shares, "" if self.seed is None else str(self.seed), group)

    def _plan_column(self, column: str, inputs: Sequence[Location]) -> SplitTargets:
        from tarkit.shards.into import read_names

        directory = self._directory(spell("by"), "the column")
        names = read_names(inputs, column, directory.removeprefix("file:"))
        return self._output(directory + SPLIT_NAME), [SeriesSpec("", names)], None

    def _directory(self, option: str, names: str) -> str:
        """Return the directory that the output is, with a slash at its end; empty for the present one."""
        directory = os.fspath(self.template or "")
        if directory and not directory.endswith("/"):
            if directory != "-" and not os.path.isdir(directory):
                message = f"with {option}, {spell('template')} is a directory: {names} has the names of shards"
                raise Usage(message, f"{spell('template')} '{directory}/'")
            directory += "/" * (directory != "-")
        return directory

    def _plan_categories(self, run: Run) -> SplitTargets:
        from tarkit.shards.partition import ByMap

        directory = self._directory(spell("map"), "the map")
        output = self._output(directory + SPLIT_NAME if directory != "-" else directory)
        if output.location.kind != "path":
            raise Usage(f"{spell('map')} requires shards that are files")
        codec = None if output.codec is None else {**CODECS, "zip": ZIP}.get(output.codec[0])
        extension = codec.suffixes[0] if codec else ".tar"
        found = self.categories.read(run, directory.removeprefix("file:"), extension, self.storage)
        series = [SeriesSpec(category.text, category.template) for category in found.categories]
        return output, series, ByMap(found)

    def _output(self, template: str) -> Output:
        if template == "-":
            hint = f"name them with {spell('template', 'out-%06d.tar')}"
            raise Usage("split writes numbered files, not stdout", hint)
        return archives_output(template, self.compress, self.fsync, options=self.storage)


def write_split(data: Chain, run: Run, options: SplitOptions, digest: bool = True) -> ShardsWriter:
    """Write the samples of a dataset to shards; return the writer, whose `done` has the shards, part by part.

    Args:
        digest: whether checksums are made.
    """
    if not options.limited:
        run.tell(no_limit())
    output = options.open(run, data.locations, digest)
    if options.equal:
        shards = options.count_shards(output.series[0].template)
        writer = write_equal(data, output, run, shards, options.even, options.remainder)
    else:
        writer = output.write(_by_name(data, output, options), run)
    if options.manifest is not None:
        with create_file(output.place(options.manifest), options=options.storage) as sink:
            write_manifest(sink, writer.done)
    if output.assign is not None:
        _report_series(run, output, writer)
    return writer


def _by_name(data: Chain, output: ShardsOutput, options: SplitOptions) -> Chain:
    """Return the samples of shards that a column names, those of each shard together; all others as they are."""
    if options.by is None:
        return data
    from tarkit.shards.into import ShardNames, ShardOrder, name_of

    names = output.series[0].template
    assert isinstance(names, ShardNames)
    output.name_of = name_of(options.by, names.directory)
    return data if names.together else data.then(ShardOrder(names, output.name_of))


def _report_series(run: Run, output: ShardsOutput, writer: ShardsWriter) -> None:
    """Report the samples and shards of each series, and samples in no category."""
    from tarkit.shards.partition import ByMap

    total = sum(writer.samples)
    facts = run.facts["parts"] = {}
    for spec, samples, series in zip(output.series, writer.samples, writer.series, strict=True):
        row: dict[str, Any] = {"samples": samples, "shards": len(series.done)}
        row |= {"bytes": sum(shard.size for shard in series.done), "got": samples / total if total else 0.0}
        facts[spec.name] = row if spec.share is None else {**row, "asked": float(spec.share)}
    assign = output.assign
    if isinstance(assign, ByMap):
        run.facts["unmatched"] = assign.unmatched
        if assign.unmatched:
            message = plural(assign.unmatched, "sample is", "samples are")
            run.warn(f"{message} in no category of {assign.map.name} and left out, {show(assign.first)} first")
