"""Datasets: samples of one or many archives, and the steps that are applied to them when they are read.

`open` makes one. Each method that chooses, changes or orders samples returns a new dataset with one step more. To
iterate over it, or to call a method that writes, reads the archives and sends every sample through the steps. Memory
holds only what a step needs, and iterating again reads again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypedDict, Unpack, get_args, overload

from tarkit.arguments import (
    ask_for_buffer,
    check_at_least,
    check_choice,
    check_function,
    check_number,
    check_text,
    check_whole,
    checks_types,
    flatten_words,
    list_words,
    parse_slice,
    split_names,
)
from tarkit.choosing.select import PerClass, Select, Slice
from tarkit.errors import Unsupported, Usage
from tarkit.joining.options import TableInputOptions
from tarkit.joining.spec import OnDuplicate
from tarkit.pipeline.chain import Archives, Chain, locate
from tarkit.pipeline.run import Run
from tarkit.pipeline.sample import DecodedSample, Sample, wrap_samples
from tarkit.pipeline.selection import OnMissingShard, ProblemOptions, with_broken
from tarkit.pipeline.steps import BufferShuffle
from tarkit.samples.fields import Fields, OnMissing, parse_fields
from tarkit.samples.sample import singly
from tarkit.sizes import and_more, plural
from tarkit.stores.store import parse_options
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.checking.check import Report
    from tarkit.checking.targets import Target
    from tarkit.choosing.key_list import KeyList
    from tarkit.decoding.decoder import DecodeSpec, FieldDecoder
    from tarkit.display.classes import ClassNames
    from tarkit.display.inspect import Stats
    from tarkit.export.columns import TableFormat
    from tarkit.extraction.extract import FileTime
    from tarkit.indexing.indexed import DecodedIndex, IndexedDataset
    from tarkit.pipeline.chain import Input
    from tarkit.proc.step import WorkOptions
    from tarkit.samples.items import EntryName
    from tarkit.samples.sample import TarSample
    from tarkit.samples.text import Mode
    from tarkit.shards.limits import Even, Remainder, SizeRule
    from tarkit.shards.writer import Shard
    from tarkit.sorting.keys import Disorder, SortType


class OpenOptions(TypedDict, total=False):
    """Arguments of `tarkit.open` besides `inputs` and `decode`; it describes them."""

    allow_pickle: bool
    allow: str | Iterable[str]
    skip: str | Iterable[str]
    maxerr: int
    on_problem: Callable[[str], None] | None
    on_missing: OnMissingShard
    interleave: int
    prefetch: int
    shard_slice: slice | None
    mode: Mode
    format: str | None
    set: str | Iterable[str] | None
    key: str | None
    tmpdir: str | None
    storage_options: Mapping[str, object] | None


@overload
def open(inputs: Input | Iterable[Input], *, decode: None = None, **options: Unpack[OpenOptions]) -> Dataset: ...
@overload
def open(inputs: Input | Iterable[Input], *, decode: DecodeSpec, **options: Unpack[OpenOptions]) -> DecodedDataset: ...
@checks_types
def open(
    inputs: Input | Iterable[Input],
    *,
    decode: DecodeSpec | None = None,
    allow_pickle: bool = False,
    allow: str | Iterable[str] = (),
    skip: str | Iterable[str] = (),
    maxerr: int = 0,
    on_problem: Callable[[str], None] | None = None,
    on_missing: OnMissingShard = "error",
    interleave: int = 1,
    prefetch: int = 0,
    shard_slice: slice | None = None,
    mode: Mode = "tar",
    format: str | None = None,
    set: str | Iterable[str] | None = None,
    key: str | None = None,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Dataset:
    """Open archives as a dataset. Their names are looked up now; they are read when samples are requested.

    Args:
        inputs: a path, a directory (its archives), a glob, names in braces (`"train-{000..099}.tar"`), a URL,
            `"pipe:COMMAND"`, `"-"` for stdin, or a binary file object, which stays open; or several of these, read in
            turn. Pipes, and file objects that cannot seek, can be read once.
        decode: decode the fields of samples, as `Dataset.decode` does; None for bytes.
        allow_pickle: decode pickles too, which can run any code.
        allow: names of problems to ignore, keeping the entries concerned, or `"all"`.
        skip: names of problems to ignore, leaving out the samples concerned, or `"all"`.
        maxerr: how many problems of other names are treated like those of `skip`.
        on_problem: called with the message of each ignored problem, in place of `warnings.warn`.
        on_missing: `"warn"` goes on without missing shards, and without the samples that broken ones have lost: it adds
            `missing-shard`, `truncated`, `zero-filled`, `no-end-marker`, `bad-header`, `bad-data` and `trailing-data`
            to `skip`.
        interleave: how many archives are open at a time, giving a sample each in turn.
        prefetch: how many archives are opened ahead; streams among them are read in threads.
        shard_slice: which samples of each archive are taken: `slice(0, 100)` for the first hundred.
        mode: `"tar"` for archives. Of text, `"lines"` and `"pages"` (up to a form feed) make a sample of each, its
            field txt, and `"keys"` a sample without fields for each line, its key.
        format: `"tar"`, `"cbors"`, `"msgpack"`, `"tfrecord"` or `"mds"`; by default suffix and first bytes say which.
        set: fields of columns in Parquet, TFRecord and MDS, such as `"jpg:image cls:label"`; by default a column is the
            field of its name, a picture or a sound that of its format.
        key: the column with their keys, or a template such as `"{id:06d}"`; the default is `__key__`.
        tmpdir: the directory of temporary files.
        storage_options: how URLs are reached, such as `endpoint_url`.

    Raises TarkitError: an input does not exist, a pattern matches nothing, or there are no inputs.

    >>> import tarkit
    >>> with tarkit.open("train-*.tar") as data:
    ...     for sample in data:
    ...         print(sample.key, sorted(sample))
    a/0 ['cls', 'jpg']
    a/1 ['cls', 'jpg']
    b/0 ['cls', 'jpg']
    """
    problems = ProblemOptions.of({**locals(), "skip": with_broken(skip, on_missing)})
    check_at_least(1, interleave=interleave)
    check_at_least(0, prefetch=prefetch)
    if mode != "tar":
        from tarkit.samples.text import Mode

        check_choice("mode", mode, Mode)
        if interleave > 1 or prefetch:
            raise Usage("interleave and prefetch need archives: they cannot be used with mode")
    chosen = parse_slice(shard_slice), interleave, prefetch
    storage = parse_options(storage_options)
    locations = locate(inputs, storage, problems.skips_missing)
    if format is not None:
        from tarkit.pipeline.output import check_format

        locations = tuple(location._replace(format=check_format(format)) for location in locations)
    tables = TableInputOptions(set=set, key=key)
    locations = tuple(tables.applied(locations))
    archives = Archives(locations, *chosen, mode=mode, storage=storage)
    data = tables.with_fields(Dataset(archives, partial(problems.new_run, on_problem, tmpdir)))
    if decode is None:
        if allow_pickle:
            raise Usage("allow_pickle requires decode")
        return data
    return data.decode(decode, allow_pickle=allow_pickle)


def stats(
    inputs: Input | Iterable[Input],
    *,
    by: str | None = None,
    classes: ClassNames = None,
    world: int | None = None,
    workers: int | None = None,
    processes: int = 1,
    allow: str | Iterable[str] = (),
    skip: str | Iterable[str] = (),
    on_problem: Callable[[str], None] | None = None,
    tmpdir: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Stats:
    """Count samples, fields and sizes. Only headers are read, as far as inputs are plain archives.

    Args:
        inputs: as for `tarkit.open`; so are allow, skip, on_problem, tmpdir and storage_options.
        by: a field whose values are counted too: `"cls"`, or a path into JSON such as `"json.label"`.
        classes: names of numbered classes for the report, as a list or in a file with a name on each line; by default
            those in `classes.txt` beside an archive.
        world, workers: how many nodes, and data-loader workers on each, share the shards as webdataset divides them;
            `Stats.shares` has the samples of each.
        processes: how many archives are read at a time; 0 is one per CPU. Samples that went through steps are counted
            one after another.

    >>> import tarkit
    >>> found = tarkit.stats("train-*.tar", by="cls")
    >>> found.samples, found.fields["jpg"].count, found.classes
    (3, 3, {'3': 2, '1': 1})
    >>> [share.samples for share in tarkit.stats("train-*.tar", world=2).shares]
    [2, 1]
    """
    options = locals()
    from tarkit.display.inspect import StatsOptions, count_dataset

    data = open(inputs, allow=allow, skip=skip, on_problem=on_problem, tmpdir=tmpdir, storage_options=storage_options)
    return count_dataset(data, data.new_run(), StatsOptions.of(options))


def for_run(
    run: Run,
    locations: Iterable[Location],
    shard_slice: Slice | None = None,
    *,
    interleave: int = 1,
    prefetch: int = 0,
    spool: bool = False,
) -> Dataset:
    """Return a dataset that reports to `run`, for a command; other arguments are as for `open` and `Archives`."""
    return Dataset(Archives(tuple(locations), shard_slice, interleave, prefetch, spool), lambda: run)


def _key_list(keys: str | Iterable[str]) -> KeyList:
    from tarkit.choosing.key_list import KeyList

    return KeyList("keys", frozenset(key.encode("utf-8", "surrogateescape") for key in list_words(keys, "keys")))


class Dataset(Chain):
    """Samples of one or many archives, and the steps that are applied to them. `tarkit.open` makes one.

    It can be pickled, for workers in other processes, unless its inputs are file objects or stdin, or a function in it
    is a lambda or local.
    """

    # ---- Read

    def __iter__(self) -> Iterator[Sample]:
        """Read the samples, in order. Entries that belong to no sample are skipped."""
        batches, flow = self.batches(self.new_run(), moves=False)
        with flow:
            yield from wrap_samples(singly(batches), self._wrap)
            flow.finish()

    @property
    def _wrap(self) -> Callable[[TarSample, bytes | None], Sample]:
        """What makes a sample for Python of one and its bytes."""
        return Sample

    def head(self, count: int = 1) -> list[Sample]:
        """Return the first `count` samples; large ones of a stream are held in memory.

        >>> import tarkit
        >>> tarkit.open("a.tar").head(2)
        [<tarkit.Sample 'a/0': jpg, cls>, <tarkit.Sample 'a/1': jpg, cls>]
        """
        check_at_least(0, count=count)
        return [sample._keep() for sample in islice(self, count)]

    def __repr__(self) -> str:
        count = len(self.locations)
        steps = ", ".join(step.name for step in self._steps)
        inputs = plural(count, "input")
        return f"<tarkit.{type(self).__name__} of {inputs}{': ' if steps else ''}{steps}>"

    def __dir__(self) -> list[str]:
        """Return the public names: other attributes are for the package itself."""
        own = (kind for kind in type(self).__mro__ if issubclass(kind, Dataset))
        return sorted({name for kind in own for name in vars(kind) if not name.startswith("_")})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: no file is open between runs."""

    @checks_types
    def decode(self, how: DecodeSpec = True, *, allow_pickle: bool = False) -> DecodedDataset:
        """Decode the fields of samples when they are looked up, by their names.

        Samples become `tarkit.DecodedSample`. What is written, with `write`, `split` and so on, stays as it is.

        Args:
            how: True for the table of fields in the documentation, with pictures as Pillow images.
                A name for another form of pictures: `"pil"` (RGB), `"pill"`, `"pilrgba"`; `"rgb8"`, `"rgba8"`,
                `"l8"` for numpy arrays of uint8, height x width x channels (for `l8` height x width); `"rgb"`,
                `"rgba"`, `"l"` for float32 from 0 to 1; `"torchrgb"`, `"torchrgb8"` and so on for torch tensors,
                channels x height x width. A dict from the ends of names to such a name, a function of the bytes,
                True for the table, or None for bytes: `{"seg.png": "l8", "jpg png": function, "*": None}`, where
                `"*"` is for all other fields, which are by default decoded by the table. `tarkit.picture` makes a
                function for pictures of a size.
            allow_pickle: decode pickles too, which can run any code.

        Raises:
            Usage: an unknown name of a form, or two rules for one name.
            TarkitError: when a field is looked up that cannot be decoded, or that needs a library that is not
                installed.

        >>> import tarkit
        >>> [sample["cls"] for sample in tarkit.open("train-*.tar").decode()]
        [3, 1, 3]
        >>> [sample["jpg"] for sample in tarkit.open("a.tar").decode({"jpg": len})]
        [3, 3]
        """
        from tarkit.decoding.decoder import parse_decode

        return DecodedDataset._of(self, parse_decode(how, allow_pickle))

    # ---- Choose samples

    def where(self, expression: str) -> Self:
        """Keep samples for which an expression holds, such as `"cls == 3 and json.width > 512"`.

        Names in it are fields, paths into fields of JSON, `__key__`, `shard`, `size`, `size.FIELD`, `width.FIELD`,
        `height.FIELD`, `duration.FIELD`, `lines.FIELD`, `sha256.FIELD`, `phash.FIELD`, `ok.FIELD`;
        `has(FIELD)` says whether a field is there. It cannot call any other code.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").where("cls == 3 and size.jpg > 2")]
        ['a/0', 'b/0']
        """
        from tarkit.choosing.where import Where

        if not isinstance(expression, str):
            raise TypeError(
                f"where takes an expression as text, such as 'cls == 3', not {type(expression).__name__}; "
                "for a function use map, which leaves out a sample for None"
            )
        return self.filter_samples(Select(where=Where(expression)))

    def match(self, pattern: str) -> Self:
        """Keep samples in whose key a regular expression is found.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").match("^a/")]
        ['a/0', 'a/1']
        """
        check_text(pattern=pattern)
        return self.filter_samples(Select(match=pattern))

    def keys(self, keys: str | Iterable[str]) -> Self:
        """Keep samples that have one of these keys.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").keys(["b/0", "c/0"])]
        ['b/0']
        """
        return self.filter_samples(Select(keys=_key_list(keys)))

    def exclude_keys(self, keys: str | Iterable[str]) -> Self:
        """Leave out samples that have one of these keys.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").exclude_keys(["b/0", "c/0"])]
        ['a/0', 'a/1']
        """
        return self.filter_samples(Select(exclude_keys=_key_list(keys)))

    def unique_by(self, field: str) -> Self:
        """Keep the first sample of each value of a field, a path into JSON or another value, as `where` has them.

        White space around a value does not count. Up to a million values are in memory, more in temporary files.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").unique_by("cls")]
        ['a/0', 'a/1']
        """
        check_text(field=field)
        return self.filter_samples(Select(unique_by=field))

    def balance(self, field: str, per_class: PerClass = "min", *, seed: int) -> Self:
        """Keep as many samples of each value of a field, drawn at random, in the order that they have.

        All samples are read before the first comes out. Places of samples are kept, those of streams with contents, in
        temporary files where they are many.

        Args:
            field: a field, a path into JSON or another value, as `where` has them.
            per_class: how many: a number, or that of the value with the fewest samples (`"min"`), with the most
                (`"max"`), or in the middle (`"median"`). With `"max"` and `"median"` the samples of a value that has
                fewer are repeated: an archive then needs `rekey("{index:09d}-{key}")`, a view does not.
            seed: the same samples for the same seed.

        Raises:
            TarkitError: when it is read, for a value that has fewer samples than the number.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").balance("cls", seed=1)]
        ['a/0', 'a/1']
        """
        check_text(field=field)
        check_whole(seed=seed)
        if isinstance(per_class, str):
            check_choice("per_class", per_class, get_args(PerClass)[1])
        else:
            check_at_least(1, per_class=per_class)
        return self.filter_samples(Select(balance=field, per_class=per_class, seed=seed))

    def sample(self, share: float, seed: int) -> Self:
        """Keep some samples at random, in the order that they have; the same samples for the same `seed`.

        Args:
            share: an int is the number of samples: exactly so many, or all if there are fewer, with a warning. All
                samples are read before the first comes out. A float from 0.0 to 1.0 is the probability of each sample.
            seed: decides which.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").sample(2, seed=3)]
        ['a/1', 'b/0']
        """
        check_whole(seed=seed)
        if isinstance(share, int):
            check_at_least(0, share=share)
        else:
            check_number(share=share)
            if not 0 <= share <= 1:
                raise Usage(f"share={share}: it is a whole number of samples, or a share from 0.0 to 1.0")
        return self.filter_samples(Select(sample=share, seed=seed))

    def slice(self, start: int, stop: int | None = None, step: int = 1) -> Self:
        """Keep the samples `start`, `start + step` ... before `stop`, counted from 0 in the order that they have.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").slice(0, 3, 2)]
        ['a/0', 'b/0']
        """
        return self.filter_samples(Select(slice=parse_slice(slice(start, stop, step))))

    # ---- Choose and rename fields

    def select(self, *fields: str | Iterable[str]) -> Self:
        """Keep only these fields, in this order: `select("jpg cls")`, `select("jpg", "cls")` or a list.

        `"image:jpg,png"` is the first of jpg and png that a sample has, under the name image. A sample that lacks a
        field is a `missing-field` problem.

        >>> import tarkit
        >>> [dict(sample) for sample in tarkit.open("a.tar").select("label:cls")]
        [{'label': b'3'}, {'label': b'1'}]
        """
        return self.change(Fields(keep=parse_fields(" ".join(flatten_words(fields, "fields")))))

    def drop(self, *patterns: str | Iterable[str]) -> Self:
        """Leave out the fields that match one of these globs: `drop("*.png", "txt")`."""
        return self.change(Fields(drop=flatten_words(patterns, "patterns")))

    def require(self, *fields: str | Iterable[str], on_missing: OnMissing = "error") -> Self:
        """Require fields; `"jpg|png"` requires either. `on_missing` is the action for a sample that lacks one."""
        check_choice("on_missing", on_missing, OnMissing)
        required = [tuple(map(os.fsencode, each.split("|"))) for each in split_names(flatten_words(fields, "fields"))]
        return self.change(Fields(require=required, on_missing=on_missing))

    def rekey(self, template: str) -> Self:
        """Give each sample a new key.

        Args:
            template: the key, in which `{key}` is the one before, `{index}` or `{index:06d}` the number of the sample,
                `{shard}` the file name of its archive, `{stem}` that without suffixes, and `{dir}` its
                directory, relative to the one that all inputs have in common.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").rekey("{stem}/{index:02d}")]
        ['train-0/00', 'train-0/01', 'train-1/02']
        """
        check_text(template=template)
        return self.change(Fields(rekey=template))

    # ---- Join with a table

    @checks_types
    def join(
        self,
        table: str | os.PathLike[str] | Dataset,
        column: str = "__key__",
        *,
        by: str = "key",
        on_duplicate: OnDuplicate = "error",
    ) -> Self:
        """Give samples the rows of a table with their keys. Its columns are values then, before fields: see `set`.

        A second `join` makes fields of all columns of the first table, as `set()` does, and so does a loader, unless
        `set` was called; `set("")` makes none. A view that is written has the columns, an archive only those that `set`
        made fields of. Order and number of the samples stay. 64 MB of the table are in memory, the rest is in temporary
        space.

        Args:
            table: a file, by its suffix csv, tsv, jsonl or Parquet; a view; or archives (`tar`), or a dataset, of which
                a view is made when samples are read: its samples must be ranges of plain archives.
            column: the column that has the keys of samples, or the names of their files.
            by: `"stem"` compares the last parts of keys, names and cells too: `0001` of `train/0001`. Any other name,
                such as `"json.id"`, is that of a value of samples, which is compared with the cells of the column.
            on_duplicate: which of two rows of one sample counts: `"first"` or `"last"`; or it is an error.

        Raises:
            TarkitError: when samples are read: a row is malformed, two have one key, or no sample has a row. A loader,
                which may read some of the samples, warns of the last at the end of an epoch.

        >>> import tarkit
        >>> with open("scores.csv", "w") as file:
        ...     _ = file.write("id,score\\na/0,0.5\\na/1,0.75\\n")
        >>> data = tarkit.open("a.tar").join("scores.csv", "id")
        >>> [sample.key for sample in data.where("score > 0.6")]
        ['a/1']
        """
        from tarkit.joining.join import Join
        from tarkit.joining.set_fields import with_columns
        from tarkit.joining.spec import JoinSpec

        check_text(by=by)
        check_choice("on_duplicate", on_duplicate, OnDuplicate)
        if isinstance(table, Chain):
            name = and_more([location.name for location in table.locations])
            spec = JoinSpec(name, column, by, on_duplicate, table.storage, table)
        else:
            spec = JoinSpec.of(os.fspath(table), column, by, on_duplicate, self.storage)
        return with_columns(self).then(Join(spec))

    def set(self, *fields: str | Iterable[str]) -> Self:
        """Make fields of columns, of a table (`join`) or of a view: `set("cls txt:caption json:{a,b}")`.

        `FIELD:COLUMN` sets the content of a field, `json:{a,b:COLUMN}` and `json.a` members of its JSON; other members
        stay. Null in a cell removes the field. Without words all columns of the table become fields, which must be
        new; of a view that is joined, all fields of its samples. The columns are no values any more.

        >>> import tarkit
        >>> with open("labels.csv", "w") as file:
        ...     _ = file.write("__key__,label\\na/0,7\\n")
        >>> [sample["cls"] for sample in tarkit.open("a.tar").join("labels.csv").set("cls:label")]
        [b'7', b'1']
        """
        from tarkit.joining.set_fields import SetFields
        from tarkit.tables.assignments import parse_assignments

        words = flatten_words(fields, "fields")
        return self.then(SetFields(parse_assignments(" ".join(words)) if words else None))

    # ---- Order

    def sort(
        self,
        by: str | Sequence[str] = "__key__",
        type: SortType = "auto",
        *,
        reverse: bool = False,
        order_file: str | os.PathLike[str] | None = None,
        memory: int | None = None,
    ) -> Self:
        """Sort the samples by key or by values in them; equal ones keep their order.

        Scattered parts of a sample are joined.

        Args:
            by: a field, a path into JSON (`"json.label"`), `"size"`, `"size.jpg"`, `"width.jpg"`; or several.
            type: how values are compared; `"auto"` compares numbers by value, and puts them before text.
            reverse: sort in descending order.
            order_file: in place of these, a file with the keys in order, one a line. Another key is an error.
            memory: bytes that may be held, at least 1 MB; the rest is sorted in temporary files. The default is a
                quarter of the machine's.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("train-*.tar").sort(by="cls")]
        ['a/1', 'a/0', 'b/0']
        """
        given = locals()
        from tarkit.sorting.order import Order, SortOptions

        options = SortOptions.of(given)
        return self.then(Order(options.key(self.storage), memory=options.memory, gathers=True))

    @ask_for_buffer
    def shuffle(self, seed: int, *, epoch: int = 0, memory: int | None = None) -> Self:
        """Put all samples into a random order, the same for the same inputs, `seed` and `epoch`.

        The argument of webdataset's `shuffle` is the size of a buffer, for which there is `buffer_shuffle`: a round
        number such as `shuffle(1000)` warns, `shuffle(seed=1000)` does not.

        >>> import tarkit
        >>> tarkit.open("train-*.tar").shuffle(seed=7).write("shuffled.tar").samples
        3
        """
        given = locals()
        from tarkit.sorting.order import Order, Random, ShuffleOptions

        check_whole(seed=seed, epoch=epoch)
        return self.then(Order(random=Random(seed, epoch), memory=ShuffleOptions.of(given).memory))

    def buffer_shuffle(self, size: int, seed: int) -> Self:
        """Shuffle locally, through a buffer of `size` samples, in the order of webdataset's `shuffle(size)`."""
        check_at_least(1, size=size)
        check_whole(seed=seed)
        return self.then(BufferShuffle(size, seed))

    # ---- Change contents

    def map(
        self,
        function: Callable[..., Any],
        *,
        batch: int | None = None,
        init: Callable[[], Any] | None = None,
        decode: bool = False,
        allow_pickle: bool = False,
        **options: Unpack[WorkOptions],
    ) -> Self:
        """Replace each sample by what a function returns for it.

        Args:
            function: called with a `Sample`. It returns a mapping of fields to values (as `TarWriter.write` takes
                them; an item `__key__` is a new key), a list or an iterator of these, or None to leave the sample out.
                Fields that are not in the mapping are dropped.
            batch: call it with lists of so many samples; it returns a list with a result for each.
            init: called without arguments before the first sample, once in each process.
            decode: call it with a dict of values in place of a `Sample`: text, numbers, JSON, arrays by the names of
                the fields, and the key as `__key__`. Values that it changes are encoded likewise.
            allow_pickle: decode pickles too, which can run any code.
            options: processes, ordered, timeout, on_error, max_errors, rejects, retries and mtime, as
                `tarkit.WorkOptions` describes them.

        A process that ends early is not replaced. The sample that it worked on fails and is not tried again. Other
        processes do the rest of what was sent to it, until none is left; they call `function` again for the few samples
        whose results were lost.

        Raises:
            Usage: arguments that are out of range or do not go together.
            TarkitError: when the dataset is read, for a call that failed; its `__cause__` is the exception, if the
                function was called in this process.

        >>> import tarkit
        >>> data = tarkit.open("a.tar").map(lambda sample: {**sample, "size.txt": len(sample["jpg"])})
        >>> [(sample.key, list(sample)) for sample in data.head(1)]
        [('a/0', ['jpg', 'cls', 'size.txt'])]
        >>> data = tarkit.open("a.tar").select("cls").map(lambda values: {"cls": values["cls"] + 1}, decode=True)
        >>> [dict(sample) for sample in data.head(1)]
        [{'cls': b'4'}]
        """
        from tarkit.proc.function import CallFunction
        from tarkit.proc.step import parse_work_options

        check_function(function=function)
        if init is not None:
            check_function(init=init)
        how = parse_work_options("map", options, self.storage)
        return self.then(
            CallFunction(
                function=function,
                batch=batch,
                init=init,
                decode=decode,
                allow_pickle=allow_pickle,
                wrap=self._wrap,
                **how,
            )
        )

    @checks_types
    def proc(
        self,
        command: str,
        *,
        multi: bool = False,
        batch: int | None = None,
        keep_dir: bool = False,
        add_log: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> Self:
        """Run a shell command for each sample, in a directory where its fields are the files `sample.FIELD`.

        The files `sample.*` that it leaves there are the new sample; see `tarkit proc --help`. Its output is dropped;
        an error has the last lines of stderr. Directories of small samples are in `/dev/shm`, unless `tarkit.open` has
        a `tmpdir` or there is $TMPDIR.

        Args:
            command: the command.
            multi: it makes many samples, of files `sample-000000.FIELD`.
            batch: run it once for up to so many samples, of files `sample-000000.FIELD`, `sample-000001.FIELD` and so
                on. Not with `multi`.
            keep_dir: leave the directories of the samples, in the `tmpdir` of `tarkit.open`.
            add_log: a field for what the command prints: `COMMAND > sample.FIELD 2>&1`. Not with `multi`.
            options: see `tarkit.WorkOptions`.

        >>> import tarkit
        >>> data = tarkit.open("a.tar").proc("md5sum < sample.jpg > sample.md5", processes=2)
        >>> [(sample.key, sample["md5"][:6]) for sample in data]
        [('a/0', b'f97c5d'), ('a/1', b'b8a9f7')]
        """
        from tarkit.proc.shell import RunCommand, logged
        from tarkit.proc.step import parse_work_options

        check_text(command=command)
        command = command if add_log is None else logged(command, add_log, multi or batch is not None)
        how = parse_work_options("proc", options, self.storage)
        return self.then(RunCommand(command=command, multi=multi, batch=batch, keep_dir=keep_dir, **how))

    def worker(self, command: str, **options: Unpack[WorkOptions]) -> Self:
        """Send the samples to programs that read a tar stream and write one.

        Args:
            command: a shell command. It is started `processes` times, and each gets many samples. Results have the keys
                of their samples, in their order; a sample without a result is left out.
            options: see `tarkit.WorkOptions`.

        >>> import tarkit
        >>> [sample.key for sample in tarkit.open("a.tar").worker("cat")]
        ['a/0', 'a/1']
        """
        from tarkit.proc.program import RunProgram
        from tarkit.proc.step import parse_work_options

        check_text(command=command)
        return self.then(RunProgram(command=command, **parse_work_options("worker", options, self.storage)))

    # ---- Inspect

    def find_disorder(
        self,
        by: str | Sequence[str] = "__key__",
        type: SortType = "auto",
        *,
        reverse: bool = False,
        order_file: str | os.PathLike[str] | None = None,
    ) -> Disorder | None:
        """Return the first sample that is not in the order of `sort` with these arguments; None if all are.

        >>> import tarkit
        >>> tarkit.open("a.tar").find_disorder()
        >>> tarkit.open("a.tar").find_disorder(by="cls")
        Disorder(position=1, archive='a.tar', offset=2048, before=b'a/0', after=b'a/1')
        """
        options = locals()
        from tarkit.sorting.order import SortOptions, find_disorder

        return find_disorder(self, SortOptions.of(options).key(self.storage), self.new_run())

    def indexed(self) -> IndexedDataset:
        """Read all headers, for `len` and access by number and key.

        Raises:
            Unsupported: a shard that is compressed or a stream, or a dataset with steps other than `decode`: which
                samples there are, and what is in them, is that of the archives.

        >>> import tarkit
        >>> data = tarkit.open("train-*.tar").indexed()
        >>> len(data), data[-1].key, data["a/1"]["cls"]
        (3, 'b/0', b'1')
        """
        from tarkit.indexing.indexed import IndexedDataset

        self._check_indexed()
        return IndexedDataset(self.locations, self.new_run())

    def _check_indexed(self) -> None:
        """Raise Unsupported if there are steps, or not all samples are read."""
        if self.steps or not (isinstance(self.origin, Archives) and self.origin.reads_all(self.new_run().policy)):
            message = "indexed looks samples up in archives as they are"
            steps = ", ".join(step.name for step in self._steps)
            done = f", not behind steps: {steps}" if steps else ""
            raise Unsupported(f"{message}{done}", "write the dataset first, then open that")

    def get(self, key: str) -> Sample:
        """Return the first sample with a key. An index next to a shard finds it, else the archives are read up to it.

        An index (see `tarkit.index`; dali, tsv or webshart) is used if it lists the key, is not older than its shard,
        and agrees with it; it is not used after steps. For more than a few samples use `keys` or `indexed`.

        Raises:
            KeyError: no sample has this key. It is a TarkitError too, which names keys that there are.

        >>> import tarkit
        >>> tarkit.open("train-*.tar").get("b/0")["jpg"]
        b'two'
        """
        from tarkit.indexing.get import get

        return get(self, key, self._wrap)

    def entries(self) -> Iterator[EntryName]:
        """Read the names of all entries: path, key, field and size of each. No content of a plain archive is read.

        Entries without a key, which are no fields of a sample, are among them; their key and field are None.

        >>> import tarkit
        >>> for path, key, field, size in tarkit.open("a.tar").keys("a/0").entries():
        ...     print(path, "->", key, field, size)
        a/0.jpg -> a/0 jpg 3
        a/0.cls -> a/0 cls 1
        """
        from tarkit.samples.items import names_of

        batches, flow = self.batches(self.new_run(), moves=False, contents=False)
        with flow:
            for sample in singly(batches):
                yield from names_of(sample)
            flow.finish()

    def gallery(
        self,
        output: str | os.PathLike[str] | BinaryIO,
        *,
        by: str | None = None,
        classes: ClassNames = None,
        count: int | None = 200,
        storage_options: Mapping[str, object] | None = None,
    ) -> int:
        """Write a page of HTML that shows the first samples: pictures, sounds, texts, classes, histograms, search.

        Reducing large pictures requires `tarkit[images]`. A page whose pictures would have more than 8 MB leaves some
        of them out, with a warning.

        Args:
            output: a path, `"-"` for stdout, or a binary file object.
            by: the field with the class of a sample: `"cls"`, `"json.label"`; by default it is found by its name.
            classes: names of numbered classes, as for `tarkit.stats`.
            count: how many samples; None for all.
            storage_options: how a URL is reached, as for `tarkit.open`.

        Returns:
            The number of samples on the page.

        >>> import tarkit
        >>> tarkit.open("train-*.tar").gallery("gallery.html", by="cls")
        3
        """
        from tarkit.display.inspect import write_gallery
        from tarkit.pipeline.output import Output

        check_at_least(0, count=count)
        run = self.new_run()
        opened = Output.text_from_argument(output, storage_options)
        if left := write_gallery(self, opened, run, by, classes, count):
            what = plural(left, "picture or sound", "pictures and sounds")
            run.warn(f"{what} left out, the page is too large: show fewer samples with count")
        return run.samples

    def stats(
        self,
        by: str | None = None,
        *,
        classes: ClassNames = None,
        world: int | None = None,
        workers: int | None = None,
        processes: int = 1,
    ) -> Stats:
        """Count samples, fields and sizes; see `tarkit.stats`."""
        options = locals()
        from tarkit.display.inspect import StatsOptions, count_dataset

        return count_dataset(self, self.new_run(), StatsOptions.of(options))

    def check(
        self,
        *,
        require: str | Iterable[str] = (),
        unique: bool = False,
        target: Target | None = None,
        allow: str | Iterable[str] = (),
        strict: bool = False,
        processes: int = 1,
    ) -> Report:
        """Check the archives of this dataset; see `tarkit.check`, which has more options.

        Raises:
            Unsupported: the dataset has steps; archives are checked as they are.
        """
        options = locals()
        from tarkit.checking.check import ShardsCheck
        from tarkit.checking.options import CheckOptions

        if not self.unchanged:
            raise Unsupported("archives are checked as they are", "write the dataset, then check what was written")
        return ShardsCheck(self.new_run(), self.locations, CheckOptions.of(options)).collect()

    def table(
        self,
        output: str | os.PathLike[str] | BinaryIO,
        columns: str | Iterable[str] | None = None,
        *,
        format: TableFormat | None = None,
        key: bool = True,
        locate: bool | None = None,
        header: bool = True,
        on_missing: OnMissing = "error",
        storage_options: Mapping[str, object] | None = None,
    ) -> int:
        """Write a table with a row for each sample.

        Args:
            output: a path, `"-"` for stdout, or a binary file object.
            columns: `"cls json.label size.jpg width.jpg"`, or a list; `"new:a,b"` is the first of a and b that a sample
                has, under another name; `"*"` is all fields of the first sample. Without it they are the short texts of
                the first sample, and the sizes of the rest. In Parquet, contents of pictures and sounds are as those
                that `datasets` of Hugging Face writes.
            format: by default that of the suffix, else tsv.
            key: whether there is a column for the key.
            locate: whether columns `__shard__`, `__start__` and `__stop__` make it a view. By default a Parquet file
                has them if all inputs are plain archives or views, and no column has pictures or sounds or is `"*"`.
            header: whether tsv and csv begin with the names of the columns.
            on_missing: what to do with a sample that has no value for a column.
            storage_options: how a URL is reached, as for `tarkit.open`.

        Returns:
            The number of rows.

        >>> import tarkit
        >>> tarkit.open("train-*.tar").table("labels.csv", "cls size.jpg")
        3
        >>> with open("labels.csv") as file:
        ...     file.read().splitlines()
        ['__key__,cls,size.jpg', 'a/0,3,3', 'a/1,1,3', 'b/0,3,3']
        """
        options = locals()
        from tarkit.export.table import TableOptions, write_table
        from tarkit.pipeline.output import Output

        run, opened = self.new_run(), Output.text_from_argument(output, storage_options)
        write_table(self, opened, run, TableOptions.of(options))
        return run.samples

    def extract(
        self,
        directory: str | os.PathLike[str],
        *,
        force: bool = False,
        mtime: FileTime | int = "source",
    ) -> int:
        """Unpack all samples into a directory.

        Args:
            directory: the directory; it is created if it does not exist.
            force: replace existing files.
            mtime: the times of the files: those of their entries, the present, or seconds since 1970.

        Returns:
            The number of files.

        Raises:
            TarkitError: files of these names exist.
            Problem: `unsafe-name`, for a name or a link that leads out of the directory.

        >>> import tarkit
        >>> tarkit.open("train-*.tar").select("cls").extract("labels")
        3
        """
        options = locals()
        from tarkit.extraction.extract import ExtractOptions, extract

        return extract(self, self.new_run(), ExtractOptions.of(options))

    # ---- Write

    @checks_types
    def write(
        self,
        output: str | os.PathLike[str] | BinaryIO,
        *,
        compress: str | None = None,
        format: str | None = None,
        fsync: bool = False,
        progress: Callable[[int, int], None] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Shard:
        """Write one archive. The file gets its name when it is complete, so that after an error there is none.

        Columns of views are values, and are not written, unless `set` makes fields of them; a view keeps them.

        Args:
            output: a path, a URL, `"pipe:COMMAND"`, `"-"` for stdout, or a binary file object. `.tar.zst` and the
                like compress.
            compress: a codec, `"zst"` or `"gz:9"`, whatever the suffix.
            format: `"tar"`, or `"cbors"` or `"msgpack"` for a sequence of maps; by default the suffix says which.
            fsync: whether the file is on the disk before it gets its name.
            progress: called after each sample with the number of samples and of bytes of the tar so far.
            storage_options: how a URL is reached, as for `tarkit.open`; those of the inputs do not hold here.

        Returns:
            Its name, its number of samples, the size of its tar in bytes, its first and last key. Its file is not read
            again: `stored` is 0, and `sha256` is empty.

        Raises:
            Problem: an input has a fault that is not passed over, or two samples have one key.

        >>> import tarkit
        >>> shard = tarkit.open("train-*.tar").write("all.tar.gz")
        >>> shard.samples, shard.size
        (3, 10240)
        """
        from tarkit.pipeline.archive import write_archive
        from tarkit.pipeline.output import Output
        from tarkit.shards.writer import Shard

        if progress is not None:
            check_function(progress=progress)
        options = parse_options(storage_options)
        run, opened = self.new_run(), Output.from_argument(output, compress, fsync, options=options, format=format)
        each = None if progress is None else lambda position: progress(run.samples, position)
        first, last = write_archive(self, opened, run, each)
        return Shard(opened.location.name, run.samples, run.bytes, 0, first, last, "")

    def split(
        self,
        template: str | os.PathLike[str] | None = None,
        *,
        count: int | None = None,
        size: int | str | None = None,
        size_rule: SizeRule = "tar",
        max_shards: int | None = None,
        shards: int | None = None,
        even: Even = "count",
        remainder: Remainder = "spread",
        parts: str | Mapping[str, object] | int | None = None,
        group: str | None = None,
        group_field: str | None = None,
        seed: int | None = None,
        stratify: str | None = None,
        by: str | None = None,
        map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = None,
        map_sep: str | None = None,
        unmatched: str | None = None,
        names: str | None = None,
        start: int | None = None,
        append: bool = False,
        force: bool = False,
        post: str | None = None,
        manifest: str | os.PathLike[str] | None = None,
        compress: str | None = None,
        fsync: bool = False,
        storage_options: Mapping[str, object] | None = None,
    ) -> list[Shard]:
        """Write numbered shards. A sample stays whole, and a shard gets its name when it is complete.

        If the template is the name of a view (`"plan.view.parquet"`), no shard is written: the view has the samples,
        and in the column `__into__` the shard of each, by the template `names`; its `split(by="__into__")` writes them.

        Args:
            template: the names, `"train-%06d.tar"` or `"train-{000..099}.tar"`; with `map` the directory.
            count, size: samples and bytes (a number or `"500M"`) in a shard at most. Without a limit it is 1 GB.
            size_rule: `"tar"`: no tar exceeds `size`; `"content"`: a shard closes once its contents reach it.
            max_shards: the number of shards to write at most.
            shards: the number of shards, with equally many samples, or with `even="size"` about equally many bytes.
            parts: `{"train": 0.9, "val": 0.1}`, or a number of equal parts: a series for each. The name of a part
                replaces `{part}` in the template; without it, it is put before the name of the file.
            seed: with `parts`: another number gives other parts.
            by: a column of a view that has the names of the shards, below the directory `template`.
            map: a series for each category: `{"cats-%d.tar": ["cat/.*"]}`, or a file with such JSON, or with lines.
            start: the number of the first shard; `append` continues existing series, `force` replaces their shards.
            post, manifest: a command that runs after each shard; a file for a table of the shards.
            compress, fsync, storage_options: as for `write`.

        Other arguments are the options of `tarkit split`.

        Returns:
            The shards: name, samples, size of the tar in bytes, sha256, first and last key.

        Raises:
            TarkitError: shards of these names exist, and neither `append` nor `force`.

        >>> import tarkit
        >>> shards = tarkit.open("train-*.tar").split("part-%03d.tar", count=2)
        >>> [(shard.name, shard.samples) for shard in shards]
        [('part-000.tar', 2), ('part-001.tar', 1)]
        """
        options = locals()
        from tarkit.shards.split import SplitOptions, write_split

        return write_split(self, self.new_run(), SplitOptions.of(options)).done


class DecodedDataset(Dataset):
    """A dataset whose samples are decoded when fields of them are looked up; `Dataset.decode` makes one.

    Its steps and outputs are those of `Dataset`: `where` and `sort` see bytes, and what is written is not encoded anew.
    The function of `map` gets a `DecodedSample`; a value that it returns unchanged keeps its bytes.

    >>> import tarkit
    >>> data = tarkit.open("a.tar", decode=True).select("cls")
    >>> [dict(sample) for sample in data]
    [{'cls': 3}, {'cls': 1}]
    >>> [dict(sample) for sample in data.map(lambda sample: {"cls": sample["cls"] + 1})]
    [{'cls': 4}, {'cls': 2}]
    """

    _decoder: FieldDecoder

    @classmethod
    def _of(cls, data: Dataset, decoder: FieldDecoder) -> DecodedDataset:
        """Return the samples of a dataset, decoded."""
        made = cls.__new__(cls)
        vars(made).update(vars(data), _decoder=decoder)
        return made

    @property
    def _wrap(self) -> Callable[[TarSample, bytes | None], DecodedSample]:
        return partial(DecodedSample, decoder=self._decoder)

    def indexed(self) -> DecodedIndex:
        """Read all headers, for `len` and access by number and key; samples are decoded. See `Dataset.indexed`."""
        from tarkit.indexing.indexed import DecodedIndex

        self._check_indexed()
        return DecodedIndex(self.locations, self.new_run(), self._wrap)

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[DecodedSample]: ...
        def head(self, count: int = 1) -> list[DecodedSample]: ...  # type: ignore[override]
        def get(self, key: str) -> DecodedSample: ...
