"""Mix datasets: draw samples from several by their weights. The command `mix` and `tarkit.mix` make a `Mixture`."""

from __future__ import annotations

import os
import random
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal, TypedDict, Unpack

from tarkit.arguments import check_function, check_whole
from tarkit.dataset import Dataset, open
from tarkit.errors import Usage, show, spell
from tarkit.mixing.mixer import Mix, Stock, Until, derived, locate
from tarkit.mixing.spec import SUFFIXES, MixSpec, SourceSpec, parse_mapping, read_spec
from tarkit.options import Options, row
from tarkit.pipeline.chain import refuse_twice
from tarkit.pipeline.run import Run
from tarkit.pipeline.selection import OnMissingShard, ProblemOptions, with_broken
from tarkit.pipeline.stages import buffer_shuffle, without_strays
from tarkit.pipeline.steps import Flow, Step
from tarkit.problems import Policy
from tarkit.samples.dataset import InputReader
from tarkit.samples.fields import Fields
from tarkit.samples.sample import SampleBatch, TarSample, singly
from tarkit.sizes import parse_count, parse_size, plural
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.fileobjects import FileObjectInput
from tarkit.streams.files import allow_files
from tarkit.streams.location import Location

Ends = Literal["first", "all"]


class OpenArguments(TypedDict, total=False):
    """Arguments of `tarkit.open`, for sources that are names."""

    allow: str | Iterable[str]
    skip: str | Iterable[str]
    maxerr: int
    on_problem: Callable[[str], None] | None
    on_missing: OnMissingShard
    prefetch: int
    shard_slice: slice | None
    tmpdir: str | None
    storage_options: Mapping[str, object] | None


def mix(
    sources: str | os.PathLike[str] | Sequence[Dataset | tuple[Dataset, float] | Mapping[str, Any]],
    seed: int = 0,
    *,
    temperature: float = 1.0,
    total: int | None = None,
    until: Ends | None = None,
    repeat: bool = False,
    each: Callable[[Dataset], Dataset] | None = None,
    **reading: Unpack[OpenArguments],
) -> Dataset:
    """Draw samples from several datasets: each draw chooses one at random, by weight, and takes its next sample.

    Args:
        sources: datasets, each with its weight, or 1; or the path of a file that describes a mix, in YAML or JSON, see
            `tarkit mix --help-all`. A source may also be a dict with the keys that it has in such a file: `shards`
            (names, or a dataset), `weight`, `probability`, `nrepeats`, `shuffle` and so on.
        seed: decides the draw. A loader does not need it: it draws by a schedule, in which shares are those of the
            weights at any time, and its own seed decides the order in each source.
        temperature: the weights are taken to the power of 1/temperature: above 1 they come closer to each other, which
            evens out sources whose weights are their sizes.
        total: how many samples are drawn at most.
        until: when the mix ends: once the `"first"` dataset has no more, or `"all"` of them; by default the first, with
            `repeat` after `total` samples.
        repeat: whether a dataset that has no more begins again, up to `total`, or until all came to their end once. A
            sample that comes for the second time has `~2` after its key, then `~3` and so on.
        each: called with the dataset of each source; returns it with the steps that choose samples before the draw.
        reading: `allow`, `skip`, `maxerr`, `on_problem`, `on_missing`, `prefetch`, `shard_slice`, `tmpdir`,
            `storage_options` as for `tarkit.open`, for sources that are names.

    In `tarkit.loader` each worker draws from its part of each source. A source that ends and is drawn again begins
    another pass over its shards, in another order; keys stay as they are. With `until="all"` and `repeat`, the shorter
    sources come again until the longest ends; with `length` or `equal` of the loader any source comes again until the
    worker has its number of samples. The next epoch begins all sources anew. `total` is for all workers together.

    Raises:
        Usage: datasets whose `allow`, `skip`, `maxerr` or `on_missing` differ.
        TarkitError: when the mix is read, for a dataset without samples.

    >>> import tarkit
    >>> cats, dogs = tarkit.open("cats.tar"), tarkit.open("dogs.tar")
    >>> [sample.key for sample in tarkit.mix([(cats, 2), dogs], seed=9, until="all")]
    ['cat/0', 'cat/1', 'cat/2', 'dog/0', 'cat/3', 'dog/1']
    """
    options = MixOptions.of(locals())
    check_whole(seed=seed)
    storage = parse_options(reading.get("storage_options"))
    spec, datasets = _described(sources, Run(on_problem=reading.get("on_problem")).warn, storage)
    if reading and None not in datasets:
        raise Usage(f"{next(iter(reading))}: it is for sources that are names", "give it to tarkit.open")
    opened = open_sources(
        spec,
        lambda locations, interleave: open(locations, interleave=interleave, **reading),
        datasets,
        options=storage,
        missing=ProblemOptions.of(
            {**reading, "skip": with_broken(reading.get("skip", ()), reading.get("on_missing", "error"))}
        ).skips_missing,
    )
    if each is not None:
        check_function(each=each)
        for source in opened:
            source.data = each(source.data)
            if not isinstance(source.data, Dataset):
                raise TypeError(f"each returns a dataset, not {type(source.data).__name__}")
    return Mixture(opened, seed, options).dataset(spec.shuffle)


_POWERS = {"k": 3, "K": 3, "M": 6, "G": 9}


def _read_total(text: str) -> int:
    """Return a number of samples, which may be 1e6 or 1M. Raises Usage."""
    try:
        if (number := parse_count(text)) is not None:
            return number
        match = re.fullmatch(r"[0-9]*(?:\.([0-9]*?)0*)?(?:e([0-9]{1,3})|([kKMG]))?", text)
        if match and len(match[1] or "") <= int(match[2] or _POWERS.get(match[3], 0)):
            return parse_size(text)
    except Usage:
        pass
    raise Usage(f"invalid {spell('total')} {show(text)}", "a number of samples, such as 5000, 1e6 or 1M")


class MixOptions(Options):
    """The options of `tarkit.mix` and the command `mix`.

    Attributes:
        end: when the mix ends.
    """

    total: int | None = row(
        "Mix", "--total", at_least=0, type=_read_total, metavar="N", help="Draw N samples: 5000, 1e6, 1M."
    )
    until: Ends | None = row(
        "Mix", "--until", choices=Ends, help="End when the first source ends, or all.  [default: first]"
    )
    repeat: bool = row(
        "Mix",
        "--repeat",
        default=False,
        help="Read a source again after its end.",
        more="It ends with --total or --until all.",
    )

    temperature: float = row(
        "Mix",
        "--temperature",
        type=float,
        default=1.0,
        metavar="T",
        help="Weights to the power of 1/T: above 1 they are more even.",
    )

    def flat(self, weight: float) -> float:
        """Return a weight at the temperature."""
        return weight if self.temperature == 1 else float(weight ** (1 / self.temperature))

    def check(self) -> None:
        """Raise Usage for a mix without an end."""
        if not 0.01 <= self.temperature <= 1e6:
            raise Usage(f"{spell('temperature', self.temperature)}: a number from 0.01 to 1000000")
        if self.repeat and self.until == "first":
            message = f"{spell('repeat')} cannot be used with {spell('until', 'first')}"
            raise Usage(f"{message}: it reads a source again after its end")
        if self.repeat and self.until is None and self.total is None:
            hint = f"use {spell('total', 'N')}, or {spell('until', 'all')} to end when each source was read once"
            raise Usage(f"{spell('repeat')} has no end", hint)
        self.end: Until = self.until or ("never" if self.repeat else "first")


def _described(
    sources: object, warn: Callable[[str], None], options: StoreOptions | None
) -> tuple[MixSpec, list[Dataset | None]]:
    """Return the description of a mix, and its datasets, with None for a source that is names."""
    if isinstance(sources, (str, os.PathLike)):
        path = os.fsdecode(sources)
        if not path.lower().endswith(SUFFIXES):
            raise Usage(f"{path}: a mix is described in a file {', '.join(SUFFIXES)}", "datasets are given as a list")
        spec = read_spec(path, warn, options)
        return spec, [None] * len(spec.sources)
    if isinstance(sources, (Dataset, Mapping)) or not isinstance(sources, Iterable):
        sources = (None,)
    pairs = [_source(f"sources[{number}]", source) for number, source in enumerate(sources)]
    if not pairs:
        raise Usage("a mix is of at least one dataset")
    return MixSpec([spec for spec, _ in pairs]), [data for _, data in pairs]


def _source(where: str, source: Any) -> tuple[SourceSpec, Dataset | None]:
    """Return the description of a source, and its dataset if it is one."""
    if isinstance(source, Dataset):
        source = {"shards": source}
    elif isinstance(source, (tuple, list)) and len(source) == 2 and isinstance(source[0], Dataset):
        source = {"shards": source[0], "weight": float(source[1])} if hasattr(source[1], "__float__") else None
    if not isinstance(source, Mapping):
        raise TypeError(
            "a mix is of datasets, pairs (dataset, weight) or dicts: tarkit.mix([(tarkit.open('a.tar'), 2), ...])"
        )
    data = source.get("shards")
    if not isinstance(data, Dataset):
        return parse_mapping(where, dict(source)), None
    for key in ("nstreams", "allow_missing"):
        if key in source:
            raise Usage(f"{where}: `{key}` is for shards that are names, not a dataset")
    return parse_mapping(where, {**source, "shards": data.locations[0].name}), data


# ---- Sources


@dataclass
class MixSource:
    """One source of a mix. The steps of `data` apply to each of its laps.

    Attributes:
        spec: its description: its weight, and how its shards are read.
        data: its samples.
        reads_once: whether one of its inputs can be read only once.
    """

    spec: SourceSpec
    data: Dataset

    def __post_init__(self) -> None:
        spec, locations = self.spec, self.data.locations
        self.reads_once = any(map(_reads_once, locations))
        if spec.choose > len(locations):
            raise Usage(f"{spec.name}: choose {spec.choose} of {plural(len(locations), 'shard')}")
        if (spec.resample or spec.choose) and self.reads_once:
            raise Usage(f"{spec.name}: choose and resample require inputs that can be read again")
        if (spec.resample or spec.choose or spec.any_order) and not self.data.of_archives:
            raise Usage(f"{spec.name}: a mix has no shards to choose or shuffle", "use its buffer_shuffle")

    @property
    def shards(self) -> int:
        """The number of shards in a pass."""
        return self.spec.choose or self.spec.resample or len(self.data.locations)

    @property
    def weight(self) -> float:
        """Its weight: by default the number of its shards."""
        return float(self.shards) if self.spec.weight is None else self.spec.weight


def _reads_once(location: Location) -> bool:
    if isinstance(location.file, FileObjectInput):
        return not location.file.seekable
    if location.kind == "path":
        return os.path.exists(location.text) and not stat.S_ISREG(os.stat(location.text).st_mode)
    return location.kind == "stdin"


class _LeaveOutStrays(Step):
    """Leave out the entries of archives without samples, with a warning: they cannot be drawn."""

    def leaves_out(self, policy: Policy) -> bool:
        """Return False: entries are left out, and no samples."""
        return False

    def __call__(self, batches: Iterator[SampleBatch], flow: Flow) -> Iterator[SampleBatch]:
        return without_strays(batches, flow.run.policy)


def open_sources(
    spec: MixSpec,
    open_shards: Callable[[list[Location], int], Dataset],
    datasets: Sequence[Dataset | None] = (),
    tell: Callable[[str], None] = lambda text: None,
    options: StoreOptions | None = None,
    missing: bool = False,
) -> list[MixSource]:
    """Return the sources of a mix.

    Args:
        spec: the description of the mix.
        open_shards: called with the archives of a source, and the number of those that take turns.
        datasets: datasets in place of names.
        tell: called with the number of missing files, where they are allowed.
        options: those of URLs.
        missing: whether files that do not exist are left out.
    """
    sources = []
    for source, data in zip(spec.sources, datasets or [None] * len(spec.sources), strict=True):
        opened = open_shards(locate(source, tell, options, missing), source.nstreams) if data is None else data
        sources.append(MixSource(source, opened.then(_LeaveOutStrays())))
    refuse_twice(location for source in sources for location in source.data.locations)
    return sources


# ---- The mix


@dataclass
class Mixture:
    """The origin of a mixed dataset.

    Attributes:
        sources: the sources.
        seed: decides the draw.
        options: when it ends.
        fields: changes the samples of all sources.
        kept: whether the stocks stay open after a run, to look at what is left in them; the caller closes them.
        reader: the reader of the latest run, which has its counts.
    """

    sources: Sequence[MixSource]
    seed: int
    options: MixOptions
    fields: Fields = field(default_factory=Fields)
    kept: bool = False
    reader: MixReader | None = None
    whole = False
    keys_may_repeat = True

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what it was made of, without the latest run."""
        return Mixture, (self.sources, self.seed, self.options, self.fields)

    @property
    def locations(self) -> tuple[Location, ...]:
        """All archives."""
        return tuple(location for source in self.sources for location in source.data.locations)

    @property
    def storage(self) -> StoreOptions | None:
        """How URLs of other files are reached that steps read: as those of the first source."""
        return self.sources[0].data.storage

    def dataset(self, shuffle: int) -> Dataset:
        """Return the mix as a dataset, through a buffer of `shuffle` samples unless that is 0.

        Raises Usage for sources that treat problems in other ways: one policy decides about those of all.
        """
        first, *others = [source.data.new_run().policy for source in self.sources]
        for source, policy in zip(self.sources[1:], others, strict=True):
            if policy.rules != first.rules:
                message = f"{source.spec.name}: its allow, skip, maxerr or on_missing is not that of the first source"
                raise Usage(message, "open all sources of a mix with the same")
        data = Dataset(self, self.sources[0].data.new_run)
        return data.buffer_shuffle(shuffle, derived(self.seed, "shuffle")) if shuffle else data

    def open(self, run: Run, tmpdir: str | None, spool: bool) -> MixReader:
        """Begin to read for a run."""
        self.reader = MixReader(self, run, tmpdir)
        return self.reader


class MixReader(InputReader):
    """Draws the samples of one run."""

    def __init__(self, mixture: Mixture, run: Run, tmpdir: str | None) -> None:
        super().__init__(mixture.locations, run.policy, tmpdir)
        self.mixture = mixture
        self.run = run
        self.repeated = False
        self.drawn: Mix[TarSample]

    def batches(self) -> Iterator[TarSample]:
        """Yield the samples that are drawn."""
        mixture = self.mixture
        allow_files(len(self.locations))
        stocks = [
            self._stock(Laps(source, derived(mixture.seed, number), self))
            for number, source in enumerate(mixture.sources)
        ]
        options = mixture.options
        self.drawn = Mix(stocks, mixture.seed, total=options.total, until=options.end, repeat=options.repeat)
        try:
            yield from self.drawn
        finally:
            if not mixture.kept:
                self.drawn.close()

    def _stock(self, laps: Laps) -> Stock[TarSample]:
        """Return a source to draw from: its samples, with the fields of its own and the common ones."""
        spec, common, policy = laps.source.spec, self.mixture.fields, self.policy
        fields = Fields(rename=spec.rename, rekey=spec.rekey)
        weight = self.mixture.options.flat(laps.source.weight)

        def changed(samples: Iterator[TarSample]) -> Iterator[TarSample]:
            return singly(common(fields(samples, policy), policy))

        return Stock(spec.name, weight, laps, spec.probability, changed)


@dataclass
class Laps:
    """Each call returns the samples of a source from the start, `spec.nrepeats` times, through its shuffle buffer.

    Keys of repeated samples end in `~2`, `~3` and so on: per shard, which `resample` may choose several times. If more
    calls follow, inputs that can be read only once are kept in temporary files; others, also commands and URLs, are
    opened again.
    """

    source: MixSource
    seed: int
    reader: MixReader

    def __post_init__(self) -> None:
        self._spec = self.source.spec
        self._seen: Counter[int] = Counter()
        self._order = random.Random(derived(self.seed, "order"))
        self._buffer = random.Random(derived(self.seed, "buffer"))
        self._kept: InputReader | None = None
        again = self.reader.mixture.options.repeat or self._spec.nrepeats > 1
        self._keeps = again and self.source.reads_once

    def __call__(self) -> Iterator[TarSample]:
        """Return the samples of one lap."""
        samples = (sample for _ in range(self._spec.nrepeats) for sample in self._pass())
        if self._spec.shuffle:
            size, seed = self._spec.shuffle, self._buffer.getrandbits(64)
            return buffer_shuffle(samples, size, seed, self.reader.tmpdir)
        return samples

    def _pass(self) -> Iterator[TarSample]:
        """Yield all samples once: stretches of shards that come for the first time, the second time and so on."""
        times = []
        for place in self._places():
            self._seen[place] += 1
            times.append((self._seen[place], place))
        for time, stretch in groupby(times, lambda pair: pair[0]):
            yield from self._stretch(time, [place for _, place in stretch])

    def _places(self) -> list[int]:
        places = list(range(len(self.source.data.locations)))
        if self._spec.resample:
            return self._order.choices(places, k=self._spec.resample)
        if self._spec.choose:
            return self._order.sample(places, self._spec.choose)
        if self._spec.any_order:
            self._order.shuffle(places)
        return places

    def _stretch(self, time: int, places: list[int]) -> Iterator[TarSample]:
        reader, data = self.reader, self.source.data
        run = copy(reader.run)
        run.policy, run.facts, run.dropped = reader.policy, {}, 0
        if self._kept is None and places != list(range(len(data.locations))):
            data = data.only(places)
        batches, flow = data.batches(
            run,
            moves=reader.moves,
            contents=reader.contents,
            directory=reader.tmpdir,
            spool=self._keeps,
            inputs=self._kept,
        )
        self._kept = flow.inputs if self._keeps else None
        samples = singly(batches)
        if time > 1:
            reader.repeated = True
            samples = singly(Fields(rekey=f"{{key}}~{time}")(batches, reader.policy))
        with flow:
            yield from samples
            flow.finish()
        reader.dropped += run.dropped
