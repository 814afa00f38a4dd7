"""Contents of a dataset: counts of samples, fields and sizes, and a page of its first samples.

To count plain archives only headers are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from tarkit.arguments import check_text
from tarkit.display.census import OTHERS, Census, Share, count_input, shares_of
from tarkit.errors import Usage, show, spell
from tarkit.options import Options, row
from tarkit.pipeline.chain import Archives, Chain
from tarkit.pipeline.output import Output, total_size
from tarkit.pipeline.rows import file_row, processes_row
from tarkit.pipeline.run import Run
from tarkit.pipeline.view_index import view_parts
from tarkit.problems import Policy
from tarkit.samples.names import near_field
from tarkit.samples.sample import TarSample, singly
from tarkit.sizes import and_more, plural
from tarkit.streams.location import Location, is_view

if TYPE_CHECKING:
    from tarkit.display.classes import ClassCounts, ClassNames
    from tarkit.display.report import Balance, Section

MOST_SHARES = 1_000_000  # processes of a training run that share the samples
FEW, PAGE = 10, 200  # default numbers of samples: in lines, on a page


@dataclass(frozen=True)
class FieldStats:
    """Statistics of one field: the number of samples that have it, and the sizes of its contents in bytes.

    The median of an even number of sizes is the mean of the two in the middle; that of more than 65 536 different
    sizes is up to 1/256 off.
    """

    count: int
    bytes: int
    min: int
    median: float
    max: int


class Stats:
    """The result of `tarkit.stats`. As a str it is the report that the command `stats` prints.

    Attributes:
        samples: the number of samples.
        bytes: the length of all tars together.
        dropped: the number of samples that were left out because of a problem.
        shares: with `world` or `workers`, the samples that each node and each of its workers gets.
    """

    def __init__(self, shards: list[Census], balance: Balance | None, shares: list[Share], selected: bool) -> None:
        """Use `tarkit.stats`. `selected` says that samples were left out by choice."""
        self._shards, self._balance, self._selected = shards, balance, selected
        self._total = Census()
        for shard in shards:
            self._total.merge(shard)
        self.samples = self._total.samples
        self.bytes = self._total.size
        self.dropped = self._total.dropped
        self.shares = shares

    @cached_property
    def fields(self) -> dict[str, FieldStats]:
        """The fields, in lower case, the largest first; 4096 at most."""
        rows = sorted(self._total.fields.items(), key=lambda row: (-row[1].bytes, row[0]))
        return {
            name.decode("utf-8", "surrogateescape"): FieldStats(
                sizes.count, sizes.bytes, sizes.minimum, sizes.median, sizes.maximum
            )
            for name, sizes in rows
            if name != OTHERS
        }

    @property
    def shards(self) -> dict[str, int]:
        """The number of samples in each shard, by its name."""
        shards: dict[str, int] = {}
        for shard in self._shards:
            shards[shard.name] = shards.get(shard.name, 0) + shard.samples
        return shards

    @property
    def classes(self) -> dict[str, int]:
        """With `by`, the number of samples that have each value, the most frequent first."""
        from tarkit.display.classes import class_order

        return {} if self._balance is None else dict(class_order(self._balance.classes.counts))

    @property
    def missing(self) -> int:
        """With `by`, the number of samples without the field."""
        return 0 if self._balance is None else self._balance.classes.missing

    @property
    def others(self) -> int:
        """With `by`, the number of samples with values beyond the first 4096 different ones."""
        return 0 if self._balance is None else self._balance.classes.others

    def __repr__(self) -> str:
        counts = f"{plural(self.samples, 'sample')}, {plural(self.bytes, 'byte')}"
        return f"<tarkit.Stats of {plural(len(self._shards), 'shard')}: {counts}>"

    def __str__(self) -> str:
        from tarkit.display.text import report_lines

        return report_lines(self.sections()).removesuffix("\n")

    def describe(self) -> dict[str, Any]:
        """Return all counts as values of JSON, as `tarkit stats --json` prints them."""
        from tarkit.display.report import as_json

        return as_json(self._total, self._shards, self.shares, self._balance)

    def sections(self) -> list[Section]:
        """Return the tables of the report."""
        from tarkit.display.report import sections

        return sections(self._total, self._shards, self.shares, self._balance)

    def page(self) -> str:
        """Return the report as one page of HTML, which needs nothing else."""
        from tarkit.display.html import report_page

        title = and_more([shard.name for shard in self._shards]) or "no shards"
        scope = "selected" if self._selected else "all"
        return report_page(title, f"Statistics of {scope} samples", self.sections())

    def write_html(
        self, output: str | os.PathLike[str] | BinaryIO, *, storage_options: Mapping[str, object] | None = None
    ) -> None:
        """Write the page of `tarkit stats --html` to a path, `"-"` for stdout, or a binary file object.

        `storage_options` say how a URL is reached, as for `tarkit.open`.

        >>> import tarkit
        >>> tarkit.stats("train-*.tar", by="cls").write_html("stats.html")
        """
        with Output.text_from_argument(output, storage_options).open() as sink:
            sink.write(self.page().encode("utf-8", "surrogateescape"))


def _classes_row(section: str) -> Any:
    help = "Names of numbered classes.  [default: classes.txt]"
    return row(section, "--classes", metavar="FILE", role="file", help=help)


class StatsOptions(Options):
    """The options of `tarkit.stats` and the command `stats`."""

    total: bool = row("Output", "--total", default=False, help="Print only the number of samples.")
    json: bool = row("Output", "--json", default=False, help="Print everything as one JSON object.")
    html: str | None = file_row("Output", "--html", "Write one self-contained page to FILE instead.")
    by: str | None = row(
        "Stats", "--by", complete="values", metavar="FIELD", help="Count classes too: the values of cls, or json.label."
    )
    classes: ClassNames = _classes_row("Stats")
    world: int | None = row(
        "Stats", "--world", at_least=1, metavar="W", help="Samples that each of W training nodes would get."
    )
    workers: int | None = row(
        "Stats", "--workers", at_least=1, metavar="K", help="Same, for each of K data-loader workers on a node."
    )
    processes: int = processes_row("Input", "Count N inputs at a time")

    def check(self) -> None:
        if sum((self.total, self.json, self.html is not None)) > 1:
            raise Usage(
                f"{spell('total')}, {spell('json')} and {spell('html')} exclude each other", "choose one output"
            )
        if (self.world or 1) * (self.workers or 1) > MOST_SHARES:
            raise Usage(f"{spell('world')} times {spell('workers')} is at most {MOST_SHARES}")
        if self.total and (self.world or self.workers or self.by):
            others = f"{spell('world')}, {spell('workers')} or {spell('by')}"
            raise Usage(f"{spell('total')} cannot be used with {others}: it prints one number")
        if self.by is not None:
            check_text(by=self.by)
        elif self.classes is not None:
            raise Usage(f"{spell('classes')} requires {spell('by')}")


class ShowOptions(Options):
    """The options of the command `show`; `Dataset.gallery` has those of a page."""

    count: int | None = row(
        "Select", "--count", "-c", at_least=0, metavar="N", help="The first N of these.  [default: 10, see above]"
    )
    all: bool = row("Select", "--all", default=False, help="All of them.")
    names: bool = row("Show", "--names", default=False, help="Print names: PATH -> KEY | FIELD; with -0 raw.")
    json: bool = row("Output", "--json", default=False, help="An object on a line for each sample.")
    images: bool = row(
        "Show", "--images", default=False, help="Draw the pictures in the terminal (requires tarkit[images])."
    )
    html: str | None = row(
        "Output",
        "--html",
        metavar="FILE",
        role="side",
        help="Write a page with pictures, search and histograms to FILE.",
    )
    by: str | None = row(
        "Show", "--by", complete="values", metavar="FIELD", help="The class, for --html and --images: cls, json.label."
    )
    classes: str | None = _classes_row("Show")

    def check(self) -> None:
        forms = [name for name in ("names", "json", "images", "html") if getattr(self, name)]
        if len(forms) > 1:
            raise Usage(f"{spell(forms[0])} and {spell(forms[1])} exclude each other", "choose one of them")
        if self.all and self.count is not None:
            raise Usage(f"{spell('all')} and {spell('count')} exclude each other")
        if (self.by or self.classes) and forms not in (["html"], ["images"]):
            raise Usage(f"{spell('by')} and {spell('classes')} require {spell('html')} or {spell('images')}")

    def limit(self, all_keys: bool) -> int | None:
        """Return how many samples are shown at most; `all_keys` is for a list of keys, all of which are required."""
        if self.count is not None:
            return self.count
        unlimited = self.all or all_keys or self.names or self.json
        return None if unlimited else PAGE if self.html is not None else FEW


def count_dataset(data: Chain, run: Run, options: StatsOptions) -> Stats:
    """Count a dataset: whole archives several at a time, else sample by sample."""
    balance, by, world, workers = None, options.by, options.world, options.workers
    if by is not None:
        from tarkit.display.classes import ClassCounts, find_class_names
        from tarkit.display.report import Balance

        balance = Balance(by, ClassCounts(), find_class_names(options.classes, data.locations, data.storage))
    whole = data.of_archives and not data.steps and not data.leaves_out(Policy())
    apart = options.processes > 1 or run.executor is not None
    if data.unchanged:
        shards = _count_archives(data.locations, run, balance, options.processes)
    elif whole and apart:
        shards = _count_parts(data.locations, run, balance, options.processes)
    elif run.executor is not None:
        raise Usage(f"samples are selected: {spell('dask')} counts whole archives", f"run it without {spell('dask')}")
    else:
        visit = None if balance is None else balance.classes.counter(balance.field, run.policy)
        shards = _count_samples(data, run, visit)
        if shards:
            shards[-1].dropped = run.dropped
    shares: list[Share] = []
    if world is not None or workers is not None:
        shares = shares_of([shard.samples for shard in shards], world or 1, workers or 1)
    stats = Stats(shards, balance, shares, data.selected)
    run.samples, run.shards, run.bytes, run.dropped = stats.samples, len(shards), stats.bytes, stats.dropped
    if balance is not None and run.samples and not balance.classes.counts:
        near = near_field(tuple(map(os.fsencode, stats.fields)), os.fsencode(by or ""))
        run.warn(f"no sample has {by!r}" + (f"; did you mean {show(near)}?" if near else ""))
    return stats


def _count_archives(locations: Sequence[Location], run: Run, balance: Balance | None, processes: int) -> list[Census]:
    shards = []
    count = partial(_count_archive, run.tmpdir, None if balance is None else balance.field, len(locations) == 1)
    results = run.do_in_order(count, list(map(run.sent, locations)), processes)
    for census, classes in run.draw("", results, lambda: run.bytes, lambda: run.samples, total_size(locations)):
        run.note(f"{census.name}: {plural(census.samples, 'sample')}, {plural(census.size, 'byte')}")
        run.samples += census.samples
        run.bytes += census.size
        if census.name not in run.policy.missing:
            shards.append(census)
        if balance is not None and classes is not None:
            balance.classes.merge(classes)
    return shards


def _count_archive(
    tmpdir: str | None, by: str | None, alone: bool, location: Location, policy: Policy
) -> tuple[Census, ClassCounts | None]:
    if by is None:
        return count_input(location, policy, tmpdir, alone=alone), None
    from tarkit.display.classes import ClassCounts

    classes = ClassCounts()
    return count_input(location, policy, tmpdir, classes.counter(by, policy), alone), classes


def _count_parts(locations: Sequence[Location], run: Run, balance: Balance | None, processes: int) -> list[Census]:
    """Count views, and archives beside them, in parts."""
    count = partial(_count_part, run.tmpdir, None if balance is None else balance.field)
    sent = [part for parts in view_parts(list(map(run.sent, locations)), run, processes) for part in parts]
    shards: list[Census] = []
    named: dict[str, Census] = {}
    results = run.draw("", run.do_in_order(count, sent, processes), lambda: run.bytes, lambda: run.samples)
    for part, (counted, classes, dropped) in zip(sent, results, strict=True):
        for census in counted:
            if census.name not in named or not is_view(part):
                named[census.name] = Census(census.name)
                shards.append(named[census.name])
            named[census.name].merge(census)
            run.samples += census.samples
            run.bytes += census.size
        run.dropped += dropped
        if balance is not None and classes is not None:
            balance.classes.merge(classes)
    if shards:
        shards[-1].dropped = run.dropped
    return shards


def _count_part(
    tmpdir: str | None, by: str | None, location: Location, policy: Policy
) -> tuple[list[Census], ClassCounts | None, int]:
    run, classes = Run(policy, tmpdir), None
    if by is not None:
        from tarkit.display.classes import ClassCounts

        classes = ClassCounts()
    visit = None if classes is None or by is None else classes.counter(by, policy)
    return _count_samples(Chain(Archives((location,)), lambda: run), run, visit), classes, run.dropped


def _count_samples(data: Chain, run: Run, visit: Callable[[TarSample], None] | None) -> list[Census]:
    """Count the archives of samples one by one, and call `visit` with each sample."""
    batches, flow = data.batches(run, moves=False, contents=False)
    shards: list[Census] = []
    named: dict[str, Census] = {}

    def begin(name: str) -> None:
        named[name] = census = Census(name)
        shards.append(census)

    flow.inputs.begun = lambda source: begin(source.name)  # an archive without samples is counted too
    keyed: Iterator[TarSample] = (sample for sample in singly(batches) if sample.key is not None)
    with flow:
        for sample in run.watch("", keyed, lambda: sum(census.size for census in shards), total_size(data.locations)):
            if visit is not None:
                visit(sample)
            if sample.source.name not in named:
                begin(sample.source.name)
            named[sample.source.name].add(sample)
        flow.finish()
    return shards


# ---- The first samples


def first_samples(
    data: Chain,
    run: Run,
    limit: int | None,
    *,
    directory: str | None = None,
    all_keys: bool = False,
    partial: bool = False,
) -> Iterator[TarSample]:
    """Yield the first samples of a dataset. Nothing after the last of them is read.

    Args:
        limit: how many; None for all.
        directory: that of the output, for temporary files.
        all_keys: whether keys that were not found before the limit are reported too.
        partial: whether samples before damage that ends the run are yielded.
    """
    batches, flow = data.batches(run, moves=False, contents=False, directory=directory)
    flow.inputs.partial = partial
    with flow:
        for sample in run.watch("reading", islice(singly(batches), limit), lambda: run.bytes, None):
            yield sample
            run.bytes += sample.content
        if run.samples == limit and not all_keys:  # reading ended early
            flow.at_end.clear()
        flow.finish()


def with_classes(
    samples: Iterator[TarSample], by: str | None, run: Run
) -> Iterator[tuple[TarSample, tuple[str, str] | None]]:
    """Yield samples, each with the field `by` and its value there; None without `by`.

    Raises:
        Problem: the field cannot be read, unless the policy lets it pass.
    """
    if by is None:
        for sample in samples:
            yield sample, None
        return
    from tarkit.display.classes import class_of
    from tarkit.samples.values import Name

    name, seen = Name(by), False
    for sample in samples:
        value = class_of(name, sample, run.policy) if sample.key is not None else None
        seen = seen or value is not None
        yield sample, (by, value or "")
    if run.samples and not seen:
        run.warn(f"no sample has {by!r}")


def write_gallery(
    data: Chain,
    output: Output,
    run: Run,
    by: str | None = None,
    classes: ClassNames = None,
    count: int | None = None,
    *,
    all_keys: bool = False,
) -> int:
    """Write a page with the first `count` samples; see `Dataset.gallery` and `first_samples`.

    Returns:
        The number of pictures and sounds that were left out, since the page is full.
    """
    from tarkit.display.classes import find_class_names
    from tarkit.display.html import Gallery
    from tarkit.samples.items import describe_sample

    gallery = Gallery(find_class_names(classes, data.locations, data.storage))
    with output.open(data.locations) as sink:
        samples = first_samples(data, run, count, directory=output.directory, all_keys=all_keys)
        for sample, label in with_classes(samples, by, run):
            gallery.add(describe_sample(sample, gallery.take), label)
        title = and_more([location.name for location in data.locations])
        scope = f"The first {run.samples} of the" if run.samples == count else "All"
        sink.write(gallery.page(title, f"{scope} {'selected ' if data.selected else ''}samples"))
    return gallery.left_out
