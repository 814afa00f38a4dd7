"""Write the samples of a run to one or several series of numbered shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from itertools import count as counting
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from tarkit import errors
from tarkit.api.archive import apart
from tarkit.api.arguments import check_at_least, check_choice
from tarkit.api.output import Output, numbered_output, status_of, total_size
from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.samples.pipeline import neighbours, without_strays
from tarkit.samples.sample import TarSample
from tarkit.shards.limits import DEFAULT_SIZE, Limits, SizeRule, no_limit, parse_size
from tarkit.shards.template import (
    AS_IT_IS,
    DEFAULT_NAME,
    Notation,
    ShardTemplate,
    parse_template,
    refuse_existing,
    split_last,
)
from tarkit.shards.writer import OpenShards, Series, SeriesWriter, write_manifest
from tarkit.streams.codecs.registry import CODECS, ZIP, codec_by_suffix
from tarkit.streams.files import allow_files
from tarkit.streams.location import Location, parse_output
from tarkit.streams.sink import open_sink

if TYPE_CHECKING:
    from fractions import Fraction

    from tarkit.api.chain import Chain
    from tarkit.api.run import Run
    from tarkit.api.steps import Flow
    from tarkit.problems import Policy
    from tarkit.shards.categories import Map
    from tarkit.shards.partition import Part

PART = "{part}"
OPEN_EACH = 18  # files that one series may have open: a shard, an input, and those that a copying thread has queued
HEAVY = {"xz": 95 << 20, "bz2": 8 << 20, "zst": 3 << 20}  # memory of an encoder at its default level, about, in bytes
Even = Literal["count", "size"]
Remainder = Literal["spread", "drop", "repeat"]
Reaction = Literal["error", "warn", "skip"]


class Lot(NamedTuple):
    """One series of shards; `share` is its share of the samples, if one is given."""

    name: str
    template: ShardTemplate
    share: Fraction | None = None


@dataclass
class ShardsOutput:
    """Series of shards to write; existing files of their names are looked up first.

    Attributes:
        output: how each shard is written.
        lots: the series: one, or one for each part or category.
        limits: when a shard is full.
        assign: the number of the series that a sample goes to, None for no series.
        start: the number of the first shard of each; with `append` it follows the shards that are there.
        force: whether shards that are there are replaced.
        post: a command that runs after each shard.
        digest: whether checksums are made.
        there: the hint for shards that are there and may not be.
        sizes: how many samples each shard gets, in place of the limits.
        existing: of each series, the shards that are there, by number.
        starts: of each series, the number of its first shard.

    Raises:
        TarkitError: there are shards of these names, and neither `append` nor `force`.
    """

    output: Output
    lots: Sequence[Lot]
    limits: Limits
    assign: Callable[[TarSample], int | None] | None = None
    start: int | None = None
    append: bool = False
    force: bool = False
    post: str | None = None
    digest: bool = False
    there: str | None = None
    sizes: Iterator[int] | None = field(init=False, default=None)
    existing: list[list[tuple[int, str]]] = field(init=False)
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.existing = [lot.template.existing() for lot in self.lots]
        self.starts = [self._first(found) for found in self.existing]
        for lot, start in zip(self.lots, self.starts, strict=True):
            lot.template.name(start)  # raises if there is no such name

    def _first(self, existing: list[tuple[int, str]]) -> int:
        """Return the number of the first shard of a series."""
        if existing and self.append:
            return existing[-1][0] + 1
        if not self.force:
            refuse_existing([path for _, path in existing], self.there or f"{spell('force')} replaces them")
        return self.start or 0

    def matches(self, path: str) -> bool:
        """Return whether a path is one of the names that shards may get."""
        return any(lot.template.matches(path) is not None for lot in self.lots)

    def refuse_inputs(self, locations: Sequence[Location]) -> None:
        """Raise Usage when an input has one of the names that the shards may get."""
        taken = {path for found in self.existing for _, path in found}
        there = {(status.st_dev, status.st_ino) for status in map(status_of, taken) if status}
        for location in locations if taken else ():
            found = location.kind == "url" and location.text in taken
            if there and location.kind in ("path", "stdin"):
                status = os.fstat(0) if location.kind == "stdin" else os.stat(location.text)
                found = (status.st_dev, status.st_ino) in there
            if found:
                raise Usage(f"{location.name} is an input, and has a name that the shards may get")

    def series(self, run: Run) -> Series:
        """Return the series, open for samples."""
        opened = OpenShards(lambda name: self.output.open_named(parse_output(name).text, not self.force))
        return Series(
            [
                SeriesWriter(
                    lot.template,
                    opened,
                    self.limits,
                    start=start,
                    sizes=self.sizes,
                    post=self.post,
                    digest=self.digest,
                    announce=lambda shard, why: run.note(
                        f"{shard.name}: {shard.samples} samples, {shard.size} bytes, closed by {why}"
                    ),
                )
                for lot, start in zip(self.lots, self.starts, strict=True)
            ],
            self.assign,
            run.policy,
        )

    def write(self, data: Chain, run: Run) -> Series:
        """Write all samples of a dataset; return the series."""
        self.refuse_inputs(data.inputs)
        samples, flow = data.samples(run, directory=self.output.directory)
        return self.write_samples(without_strays(apart(samples, flow), run.policy), flow)

    def write_samples(self, samples: Iterator[TarSample], flow: Flow) -> Series:
        """Write samples of a run, all of which have keys; return the series."""
        run, total = flow.run, total_size(flow.inputs.locations)
        before = run.samples
        full = False
        with flow:
            for what, _, path in run.places.values():
                if what != "the output" and self.matches(path):
                    raise Usage(f"{path} is {what}, and has a name that the shards may get")
            series = self.series(run)
            try:
                for sample in run.watch(samples, lambda: series.position, total):
                    if not series.add(sample):
                        run.samples -= 1
                        full = True
                        break
                flow.finish()
                series.close(run.samples - before)
            except BaseException:
                series.abort()
                raise
            if full:
                self._count_rest(run, samples)
        self._finish(run, series)
        return series

    def _count_rest(self, run: Run, samples: Iterator[TarSample]) -> None:
        """Report how many samples are not written because the last shard is full.

        They are counted by their headers. The shards are complete, so a fault in what is left ends the count alone.
        """
        if self.limits.shards is None:
            raise TarkitError("an input has changed: it has more samples than in the pass that counted them")
        count, fault = 1, ""
        try:
            for _ in samples:
                count += 1
        except TarkitError as error:
            fault = f"; the count ended at {error}"
        words = f"{'at least ' if fault else ''}{count} sample{'' if count == 1 else 's'}"
        run.tell(f"stopped at {spell('max_shards', self.limits.shards)}: {words} not written{fault}")
        run.facts["not_written"] = count

    def _finish(self, run: Run, series: Series) -> None:
        """Remove shards of an earlier run that `force` replaces, and count."""
        shards = series.done
        if self.force:
            made = {shard.name for shard in shards}
            numbered = zip(self.starts, self.existing, strict=True)
            found = ((path, index >= start) for start, each in numbered for index, path in each)
            run.remove_others([path for path, behind in found if behind and path not in made])
        empty = [lot.name for lot, samples in zip(self.lots, series.samples, strict=True) if not samples]
        if not shards:
            run.tell("no sample, so no shard")
        elif empty:
            more = f" and {len(empty) - 3} more" if len(empty) > 3 else ""
            run.warn(f"no sample for {', '.join(empty[:3])}{more}, so no shard")
        run.samples -= series.left_out
        run.shards += len(shards)
        run.bytes += sum(shard.size for shard in shards)


# ---- Parts, such as train and val, each of which is a series of shards


@dataclass(frozen=True)
class Parts:
    """Parts of a dataset with their shares, and what decides to which part a sample goes.

    Attributes:
        group: samples stay together whose keys match this regular expression with the same text in its group.
        group_field: samples stay together that have the same value of this field.
        salt: changes the hash that decides.
        stratify: a field; each part gets its share of each of its values, and no hash is used.
    """

    parts: Sequence[Part]
    group: str | None = None
    group_field: str | None = None
    salt: str | None = None
    stratify: str | None = None

    def lots(self, words: str, parse: Callable[[str], ShardTemplate]) -> list[Lot]:
        """Return the series: the name of a part replaces `{part}` in `words`, or comes before the name of the file."""
        from tarkit.shards.categories import check_apart

        if PART not in words:
            directory, name = split_last(words)
            words = f"{directory}{PART}-{name or '%06d.tar'}"
        lots = [Lot(part.name, parse(words.replace(PART, part.name)), part.share) for part in self.parts]
        check_apart([lot.template for lot in lots])
        return lots

    def assign(self, policy: Policy) -> Callable[[TarSample], int | None]:
        """Return the function that returns the number of the part of a sample."""
        from tarkit.shards.partition import ByHash, Dealer, FieldValue, KeyGroup

        if self.stratify is not None:
            return Dealer(self.parts, FieldValue(self.stratify, policy))
        group: Callable[[TarSample], bytes | None] | None = None
        if self.group is not None:
            group = KeyGroup(self.group)
        elif self.group_field is not None:
            group = FieldValue(self.group_field, policy)
        return ByHash(self.parts, self.salt or "", group)


# ---- Categories, each of which is a series of shards that a map names


class CategoryArguments(TypedDict, total=False):
    """Arguments of a map besides `map` itself, as the options of `tarkit split`."""

    map_sep: str | None
    first_match: bool
    unmatched: str | None
    on_unmatched: Reaction
    on_bad_line: Reaction


@dataclass(frozen=True)
class MapOptions:
    """A map from names to categories, and how it is read.

    Attributes:
        map: its file, its JSON, or a dict; None without a map.
        map_sep: the separator of the columns in the file.
        first_match: whether the first of several categories is taken.
        unmatched: the template of samples in no category.
        on_unmatched: what becomes of these samples without such a template.
        on_bad_line: what becomes of invalid lines.

    Raises:
        Usage: there is no map, but other options are given.
    """

    map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = None
    map_sep: str | None = None
    first_match: bool = False
    unmatched: str | None = None
    on_unmatched: Reaction = "warn"
    on_bad_line: Reaction = "error"

    def __post_init__(self) -> None:
        check_choice("on_unmatched", self.on_unmatched, Reaction)
        check_choice("on_bad_line", self.on_bad_line, Reaction)
        given = (self.map_sep, self.first_match, self.unmatched, self.on_unmatched, self.on_bad_line)
        if self.map is None and given != (None, False, None, "warn", "error"):
            *most, last = map(spell, ("map_sep", "first_match", "unmatched", "on_unmatched", "on_bad_line"))
            raise Usage(f"{', '.join(most)} and {last} require {spell('map')}")
        if self.unmatched is not None and self.on_unmatched != "warn":
            raise Usage(f"{spell('unmatched')} and {spell('on_unmatched')}: choose one")

    @property
    def text(self) -> str | None:
        """The name of the file, or JSON."""
        if isinstance(self.map, Mapping):
            import json

            return json.dumps(dict(self.map))
        return None if self.map is None else os.fspath(self.map)

    def read(self, run: Run, directory: str = "", extension: str = ".tar", notation: Notation = "auto") -> Map:
        """Read the map; its templates are relative to `directory`."""
        from tarkit.shards.categories import read_map

        text = self.text
        assert text is not None
        if os.path.isfile(text):
            run.reserve(text, "the map", written=False)
        return read_map(
            text,
            unmatched=self.unmatched,
            first_match=self.first_match,
            sep=self.map_sep,
            extension=extension,
            directory=directory,
            notation=notation,
            bad_line={"error": None, "warn": run.warn, "skip": lambda line: None}[self.on_bad_line],
        )


def check_lots(lots: Sequence[Lot], output: Output, inputs: int, what: str) -> None:
    """Check that several series can be written at once, before the first is begun.

    Raises:
        TarkitError: a directory does not exist, or the system does not allow so many open files.
    """
    if output.location.kind == "path":
        directories = dict.fromkeys(lot.template.directory for lot in lots)
        missing = [directory.rstrip("/") for directory in directories if directory and not os.path.isdir(directory)]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise TarkitError(f"{missing[0]}{more}: no such directory", f"mkdir -p {' '.join(missing[:9])}")
    most = allow_files(OPEN_EACH * len(lots) + inputs)
    if most < len(lots):
        words = f"{what}: {len(lots)} shards at once, but the system allows {most} to be open"
        raise TarkitError(words, "raise the limit with ulimit -n, or write some of them in each of several runs")


# ---- Equal shards, which take two passes: equal in number of samples, or about equal in bytes


def _write_equal(data: Chain, output: ShardsOutput, run: Run, chosen: SplitOptions) -> Series:
    """Write a dataset to a number of shards, equal in number of samples or about equal in bytes.

    Raises:
        TarkitError: there are fewer samples than shards, or the template has too few names.
    """
    template = output.lots[0].template
    shards = chosen.number(template)
    template.name(output.starts[0] + shards - 1)  # raises if there is no such name
    output.refuse_inputs(data.inputs)
    samples, flow = data.samples(run, directory=output.output.directory, spool=True)
    with flow:
        samples = without_strays(apart(samples, flow), run.policy)
        if chosen.even == "count":
            return output.write_samples(_sized(run, output, samples, flow, shards, chosen), flow)
        size = _closing_size(run, _reread(flow), shards)
        output.limits = replace(output.limits, size=size, rule="content")
        series = output.write_samples(samples, flow)
    if 0 < len(series.done) < shards and len(series.done) != output.limits.shards:
        run.tell(f"{len(series.done)} shards and no more: so large are some samples")
    return series


def _reread(flow: Flow) -> Iterator[TarSample]:
    """Read again the samples that are written, without warnings."""
    policy = flow.run.policy.silent()
    return without_strays(neighbours(flow.reread(policy), policy, flow.inputs.tmpdir, flow.keys_may_repeat), policy)


def _sized(
    run: Run, output: ShardsOutput, samples: Iterator[TarSample], flow: Flow, shards: int, chosen: SplitOptions
) -> Iterator[TarSample]:
    """Count the samples and set how many each shard gets; return the samples to write."""
    remainder = chosen.remainder
    total = sum(1 for _ in _reread(flow))
    each, rest = divmod(total, shards)
    run.note(f"{total} samples for {shards} shards")
    if total == 0 or (each == 0 and remainder != "repeat"):
        if total:
            hint = f"{spell('remainder', 'repeat')} uses some again"
            raise TarkitError(f"{total} samples cannot fill {shards} shards", hint)
        output.sizes = iter(())
        return iter(())
    if remainder == "spread":
        output.sizes = (each + (index < rest) for index in range(shards))
        return samples
    if remainder == "drop":
        if rest:
            run.tell(f"the last {rest} of {total} samples are left out: {spell('remainder', 'drop')}")
            run.facts["left_out"] = rest
        output.sizes = repeat(each, shards)
        return islice(samples, each * shards)
    each += rest > 0
    again = each * shards - total
    if again:
        run.tell(f"{again} samples come twice: {spell('remainder', 'repeat')}")
        run.facts["repeated"] = again
    output.sizes = repeat(each, shards)
    return chain(samples, islice(chain.from_iterable(_reread(flow) for _ in counting(1)), again))


def _closing_size(run: Run, samples: Iterator[TarSample], shards: int) -> int:
    """Return the size at which a shard closes, as in dSort's equal division: (1 + bytes of all contents) / shards."""
    total = sum(sample.content for sample in samples)
    size = -(-(1 + total) // shards)
    run.note(f"{total} bytes of content for {shards} shards, each closes at {size}")
    return size


# ---- All of it: `Dataset.split` and the command `split`


class SeriesPlan(NamedTuple):
    """The series that options request, and what decides to which of them a sample goes."""

    output: Output
    lots: list[Lot]
    assign: Callable[[TarSample], int | None] | None = None


@dataclass(frozen=True)
class SplitOptions:
    """The arguments of `Dataset.split`, which are the options of the command `split`.

    Raises:
        Usage: some are invalid, or do not go together.
    """

    output: str | os.PathLike[str] | None = None
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
    salt: str | None = None
    stratify: str | None = None
    categories: MapOptions = MapOptions()
    start: int | None = None
    append: bool = False
    force: bool = False
    post: str | None = None
    manifest: str | None = None
    template: Notation = "auto"
    compress: str | None = None
    fsync: bool = False

    def __post_init__(self) -> None:
        size = None if isinstance(self.size, str) else self.size
        check_at_least(1, count=self.count, size=size, max_shards=self.max_shards, shards=self.shards)
        check_at_least(0, start=self.start)
        check_choice("size_rule", self.size_rule, SizeRule)
        check_choice("even", self.even, Even)
        check_choice("remainder", self.remainder, Remainder)
        check_choice("notation", self.template, Notation)
        self._check_series()
        self._check_equal()
        if self.append and self.force:
            raise Usage(f"{spell('append')} keeps what is there, {spell('force')} replaces it: choose one")
        if self.append and self.start is not None:
            what = f"{spell('append')} continues after the last shard: it cannot be used with {spell('start')}"
            raise Usage(what)
        _ = self.limits, self.divided  # raises

    def _check_series(self) -> None:
        if self.categories.map is not None and self.parts is not None:
            raise Usage(f"{spell('map')} and {self.parts_option} cannot be used together")
        rules = ("group", "group_field", "salt", "stratify")
        given = [name for name in rules if getattr(self, name) is not None]
        if given and self.parts is None:
            raise Usage(f"{spell(given[0])} requires {self.parts_option}")
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
        if self.several and (self.equal or self.max_shards is not None):
            what = spell("max_shards") if self.max_shards else what
            raise Usage(f"{what} cannot be used with {self.several}: it needs one series of shards")

    @property
    def equal(self) -> bool:
        """Whether equal shards are requested."""
        return self.shards is not None or self.even == "size"

    @property
    def several(self) -> str | None:
        """The option that requests several series, if any."""
        if self.categories.map is not None:
            return spell("map")
        return None if self.parts is None else self.parts_option

    @property
    def parts_option(self) -> str:
        """What messages call `parts`: for the command line it is --parts or --folds."""
        if not errors.command_line or isinstance(self.parts, str):
            return spell("parts")
        return "--parts or --folds" if self.parts is None else "--folds"

    @property
    def limited(self) -> bool:
        """Whether a size or number of shards is given."""
        return self.equal or not (self.count is None and self.size is None)

    @property
    def limits(self) -> Limits:
        """When a shard is full; without a limit it has at most DEFAULT_SIZE bytes."""
        size = self.size if self.limited else DEFAULT_SIZE
        size = None if size is None else parse_size(str(size), spell("count"))
        return Limits(self.count, size, self.size_rule, self.max_shards)

    @property
    def divided(self) -> Parts | None:
        """The parts, if any."""
        from tarkit.shards.partition import folds, parse_parts

        parts = self.parts
        if parts is None:
            return None
        if isinstance(parts, Mapping):
            parts = ",".join(name if share is None else f"{name}={share}" for name, share in parts.items())
        if isinstance(parts, str):
            found = parse_parts(parts)
        else:
            check_at_least(2, parts=parts)
            found = folds(parts)
        return Parts(found, self.group, self.group_field, self.salt, self.stratify)

    def number(self, template: ShardTemplate) -> int:
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
        plan = self._plan(run)
        several = self.several
        if several:
            check_lots(plan.lots, plan.output, len(inputs), several)
            _warn_of_memory(run, plan)
        run.refuse(inputs, self.manifest)
        run.reserve(self.manifest, "the manifest")
        there = f"{spell('force')} replaces them; {spell('append')} keeps them, and appends all inputs after them"
        how = (self.start, self.append, self.force, self.post, digest, there)
        output = ShardsOutput(plan.output, plan.lots, self.limits, plan.assign, *how)
        if self.manifest is not None and output.output.location.kind not in ("path", "url"):
            raise Usage(f"{spell('manifest')} needs shards that are files or objects")
        for what, _, path in run.places.values():
            if what != "the output" and output.matches(path):
                option = f"{spell('manifest')} " if path == self.manifest else ""
                raise Usage(f"{option}{path}: the shards may get this name")
        return output

    def _plan(self, run: Run) -> SeriesPlan:
        """Return the series."""
        if self.categories.map is not None:
            return self._mapped(run)
        parts = self.divided
        default = DEFAULT_NAME if parts is None else f"{PART}-%06d.tar"
        words = default if self.output is None else os.fspath(self.output)
        output = self._opened(words)
        if parts is None:
            if PART in words:
                raise Usage(f"{PART} in a name needs {self.parts_option}")
            return SeriesPlan(output, [Lot("", self._parse(words))])
        if PART not in words and output.location.kind == "pipe":
            raise Usage(f"a command for several parts must contain {PART}")
        lots = parts.lots(words, lambda name: self._parse(name, f"{PART} is the name of the part"))
        if PART not in words:
            more = f" and {len(lots) - 9} more" if len(lots) > 9 else ""
            run.tell(f"writes {', '.join(lot.template.text for lot in lots[:9])}{more}")
        return SeriesPlan(output, lots, parts.assign(run.policy))

    def _mapped(self, run: Run) -> SeriesPlan:
        """Return a series for each category."""
        from tarkit.shards.partition import ByMap

        directory = os.fspath(self.output or "")
        if directory and not directory.endswith("/"):
            if directory != "-" and not os.path.isdir(directory):
                what = f"with {spell('map')}, {spell('template')} is a directory: the map has the names of shards"
                raise Usage(what, f"{spell('template')} '{directory}/'")
            directory += "/" * (directory != "-")
        output = self._opened(directory + DEFAULT_NAME if directory != "-" else directory)
        if output.location.kind != "path":
            raise Usage(f"{spell('map')} requires shards that are files")
        codec = None if output.codec is None else {**CODECS, "zip": ZIP}.get(output.codec[0])
        extension = codec.suffixes[0] if codec else ".tar"
        found = self.categories.read(run, directory.removeprefix("file:"), extension, self.template)
        lots = [Lot(category.text, category.template) for category in found.categories]
        return SeriesPlan(output, lots, ByMap(found, self.categories.on_unmatched))

    def _opened(self, words: str) -> Output:
        if words == "-":
            hint = f"name them with {spell('template', 'out-%06d.tar')}"
            raise Usage("split writes numbered files, not stdout", hint)
        return numbered_output(words, self.compress, self.fsync)

    def _parse(self, words: str, hint: str | None = AS_IT_IS) -> ShardTemplate:
        return parse_template(words, self.template, hint)


def write_split(data: Chain, run: Run, chosen: SplitOptions, digest: bool = True) -> Series:
    """Write the samples of a dataset to shards; return the series, whose `done` has the shards, part by part.

    Args:
        digest: whether checksums are made.
    """
    if not chosen.limited:
        run.tell(no_limit())
    output = chosen.open(run, data.locations, digest)
    series = _write_equal(data, output, run, chosen) if chosen.equal else output.write(data, run)
    if chosen.manifest is not None:
        with open_sink("path", chosen.manifest) as sink:
            write_manifest(sink, series.done)
    if output.assign is not None:
        _report_series(run, output, series)
    return series


def _warn_of_memory(run: Run, plan: SeriesPlan) -> None:
    """Warn when the encoders of all series take much memory."""
    from tarkit.sorting.memory import parse_memory

    chosen = None if plan.output.codec is None else plan.output.codec[0]
    codecs = [chosen or codec_by_suffix(lot.template.text) for lot in plan.lots]
    needed = sum(HEAVY.get(codec, 1 << 20) for codec in codecs if codec and codec != "none")
    if needed > parse_memory(None):
        run.warn(f"{len(plan.lots)} compressed shards at once take about {needed >> 20} MiB of memory")


def _report_series(run: Run, output: ShardsOutput, series: Series) -> None:
    """Report the samples and shards of each series, and samples in no category."""
    from tarkit.shards.partition import ByMap

    total = sum(series.samples)
    facts = run.facts["parts"] = {}
    for lot, samples, shards in zip(output.lots, series.samples, series.shards, strict=True):
        row: dict[str, Any] = {"samples": samples, "shards": len(shards.done)}
        row |= {"bytes": sum(shard.size for shard in shards.done), "got": samples / total if total else 0.0}
        facts[lot.name] = row if lot.share is None else {**row, "asked": float(lot.share)}
    found = output.assign
    if isinstance(found, ByMap):
        run.facts["unmatched"] = found.unmatched
        if found.unmatched and found.on_unmatched == "warn":
            what = "1 sample is" if found.unmatched == 1 else f"{found.unmatched} samples are"
            run.warn(f"{what} in no category of {found.map.name} and left out, {show(found.first)} first")
