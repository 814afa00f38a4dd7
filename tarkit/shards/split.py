"""`Dataset.split` and the command `split`: their options, the series of shards that these request, and the report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from tarkit.errors import Usage, show, spell
from tarkit.pipeline.arguments import check_at_least, check_choice
from tarkit.pipeline.output import Output, archives_output
from tarkit.pipeline.template import SPLIT_NAME, ShardTemplate, parse_template
from tarkit.shards.limits import DEFAULT_SIZE, Even, Limits, Remainder, SizeRule, no_limit, parse_size
from tarkit.shards.output import ShardsOutput, write_equal
from tarkit.shards.series import PART, Assign, SeriesSpec, check_series
from tarkit.shards.writer import ShardsWriter, write_manifest
from tarkit.stores.schemes import scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.codecs.registry import CODECS, ZIP
from tarkit.streams.location import Location
from tarkit.streams.text import check_created, create_file

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Chain
    from tarkit.pipeline.run import Run
    from tarkit.shards.categories import Map
    from tarkit.shards.partition import Part

Plan = tuple[Output, list[SeriesSpec], Assign | None]
"""How shards are written, their series, and to which of these a sample goes."""


class CategoryArguments(TypedDict, total=False):
    """Arguments of a map besides `map` itself, as the options of `tarkit split`."""

    map_sep: str | None
    unmatched: str | None


@dataclass(frozen=True)
class MapOptions:
    """A map from names to categories, and how it is read.

    Attributes:
        map: its file, its JSON, or a dict; None without a map.
        map_sep: the separator of the columns in the file.
        unmatched: the template of samples in no category.

    Raises:
        Usage: there is no map, but other options are given.
    """

    map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = None
    map_sep: str | None = None
    unmatched: str | None = None

    def __post_init__(self) -> None:
        if self.map is None and (self.map_sep, self.unmatched) != (None, None):
            raise Usage(f"{spell('map_sep')} and {spell('unmatched')} require {spell('map')}")

    @property
    def spec(self) -> str | None:
        """The name of the file, or JSON."""
        if isinstance(self.map, Mapping):
            import json

            return json.dumps(dict(self.map))
        return None if self.map is None else os.fspath(self.map)

    def read(
        self,
        run: Run,
        directory: str = "",
        extension: str = ".tar",
        storage: StoreOptions | None = None,
    ) -> Map:
        """Read the map; its templates are relative to `directory`. `storage` says how its URL is reached."""
        from tarkit.shards.categories import read_map

        spec = self.spec
        assert spec is not None
        if os.path.isfile(spec) or scheme_of(spec):
            run.reserve(spec, "the map", written=False)
        return read_map(
            spec,
            unmatched=self.unmatched,
            sep=self.map_sep,
            extension=extension,
            directory=directory,
            storage=storage,
        )


@dataclass(eq=False, repr=False)
class SplitOptions:
    """The arguments of `Dataset.split`, which are the options of the command `split`.

    Attributes:
        limits: when a shard is full; without a limit it has at most DEFAULT_SIZE bytes.
        shares: the parts and their shares; empty without parts.

    Raises:
        Usage: some are invalid, or do not go together.
    """

    template: str | os.PathLike[str] | None = None
    count: int | None = None
    size: int | str | None = None
    size_rule: SizeRule = "tar"
    max_shards: int | None = None
    shards: int | None = None
    even: Even = "count"
    remainder: Remainder = "spread"
    parts: str | Mapping[str, object] | int | None = None
    group: str | None = None
    group_field: str | None = None
    seed: int | None = None
    stratify: str | None = None
    categories: MapOptions = MapOptions()
    start: int | None = None
    append: bool = False
    force: bool = False
    post: str | None = None
    manifest: str | None = None
    compress: str | None = None
    fsync: bool = False
    storage: StoreOptions | None = None
    limits: Limits = field(init=False)
    shares: list[Part] = field(init=False)

    def __post_init__(self) -> None:
        size = None if isinstance(self.size, str) else self.size
        check_at_least(1, count=self.count, size=size, max_shards=self.max_shards, shards=self.shards)
        check_at_least(0, start=self.start)
        check_choice("size_rule", self.size_rule, SizeRule)
        check_choice("even", self.even, Even)
        check_choice("remainder", self.remainder, Remainder)
        self._check_series()
        self._check_equal()
        if self.append and self.force:
            raise Usage(f"{spell('append')} keeps what is there, {spell('force')} replaces it: choose one")
        if self.append and self.start is not None:
            what = f"{spell('append')} continues after the last shard: it cannot be used with {spell('start')}"
            raise Usage(what)
        self.limits, self.shares = self._parse_limits(), self._parse_parts()

    def _check_series(self) -> None:
        if self.categories.map is not None and self.parts is not None:
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
        what = spell("shards" if self.shards else "even")
        if self.equal and not (self.count is None and self.size is None):
            raise Usage(f"{what} cannot be used with {spell('count')} or {spell('size')}")
        if self.remainder != "spread" and (self.shards is None or self.even == "size"):
            more = " and equal numbers of samples" if self.shards else ""
            raise Usage(f"{spell('remainder')} requires {spell('shards')}{more}")
        if self.series_option and (self.equal or self.max_shards is not None):
            what = spell("max_shards") if self.max_shards else what
            raise Usage(f"{what} cannot be used with {self.series_option}: it needs one series of shards")

    @property
    def equal(self) -> bool:
        """Whether equal shards are requested."""
        return self.shards is not None or self.even == "size"

    @property
    def series_option(self) -> str | None:
        """The option that requests several series, if any."""
        if self.categories.map is not None:
            return spell("map")
        return None if self.parts is None else spell("parts")

    @property
    def limited(self) -> bool:
        """Whether a size or number of shards is given."""
        return self.equal or not (self.count is None and self.size is None)

    def _parse_limits(self) -> Limits:
        size = self.size if self.limited else DEFAULT_SIZE
        size = None if size is None else parse_size(str(size), spell("count"))
        return Limits(self.count, size, self.size_rule, self.max_shards)

    def _parse_parts(self) -> list[Part]:
        parts = self.parts
        if parts is None:
            return []
        from tarkit.shards.partition import parse_parts

        if isinstance(parts, Mapping):
            parts = ",".join(name if share is None else f"{name}={share}" for name, share in parts.items())
        return parse_parts(str(parts))

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
        target, series, assign = self._plan(run)
        if self.series_option:
            check_series(run, target, series, len(inputs), self.series_option)
        run.refuse(inputs, self.manifest)
        run.reserve(self.manifest, "the manifest")
        check_created(self.manifest, self.storage)
        output = ShardsOutput(
            target,
            series,
            self.limits,
            assign,
            start=self.start,
            append=self.append,
            force=self.force,
            post=self.post,
            digest=digest,
            hint=f"{spell('force')} replaces them; {spell('append')} keeps them, and appends all inputs after them",
        )
        if self.manifest is not None and target.location.kind not in ("path", "url"):
            raise Usage(f"{spell('manifest')} needs shards that are files or objects")
        output.refuse_places(run)
        return output

    def _plan(self, run: Run) -> Plan:
        """Return the plan for one series, or one for each part or category."""
        if self.categories.map is not None:
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
        from tarkit.shards.partition import ByClass, ByHash, FieldValue, KeyGroup, part_series

        if PART not in template and output.location.kind == "pipe":
            raise Usage(f"a command for several parts must contain {PART}")
        hint = f"{PART} is the name of the part"
        series = part_series(self.shares, template, lambda text: parse_template(text, hint))
        if PART not in template:
            more = f" and {len(series) - 9} more" if len(series) > 9 else ""
            run.tell(f"writes {', '.join(spec.template.text for spec in series[:9])}{more}")
        if self.stratify is not None:
            return series, ByClass(self.shares, FieldValue(self.stratify, run.policy))
        group: KeyGroup | FieldValue | None = None if self.group is None else KeyGroup(self.group)
        if self.group_field is not None:
            group = FieldValue(self.group_field, run.policy)
        return series, ByHash(self.shares, "" if self.seed is None else str(self.seed), group)

    def _plan_categories(self, run: Run) -> Plan:
        from tarkit.shards.partition import ByMap

        directory = os.fspath(self.template or "")
        if directory and not directory.endswith("/"):
            if directory != "-" and not os.path.isdir(directory):
                what = f"with {spell('map')}, {spell('template')} is a directory: the map has the names of shards"
                raise Usage(what, f"{spell('template')} '{directory}/'")
            directory += "/" * (directory != "-")
        output = self._output(directory + SPLIT_NAME if directory != "-" else directory)
        if output.location.kind != "path":
            raise Usage(f"{spell('map')} requires shards that are files")
        codec = None if output.codec is None else {**CODECS, "zip": ZIP}.get(output.codec[0])
        extension = codec.suffixes[0] if codec else ".tar"
        found = self.categories.read(run, directory.removeprefix("file:"), extension, self.storage)
        series = [SeriesSpec(category.text, category.template) for category in found.categories]
        return output, series, ByMap(found)

    def _output(self, template: str) -> Output:
        """Return where shards are written and how. Raises Usage for stdout."""
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
        writer = output.write(data, run)
    if options.manifest is not None:
        with create_file(output.place(options.manifest), options=options.storage) as sink:
            write_manifest(sink, writer.done)
    if output.assign is not None:
        _report_series(run, output, writer)
    return writer


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
            what = "1 sample is" if assign.unmatched == 1 else f"{assign.unmatched} samples are"
            run.warn(f"{what} in no category of {assign.map.name} and left out, {show(assign.first)} first")
