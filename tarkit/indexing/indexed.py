"""Access to samples: by number and key once all headers are read, or one sample by its key.

An index next to a shard is used to find one sample, if it is believed (see `tarkit.indexing.lookup`).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from operator import index as as_index
from typing import TYPE_CHECKING, NoReturn, overload

from tarkit.errors import MissingKey, Problem, TarkitError, Unsupported, show
from tarkit.indexing import lookup
from tarkit.indexing.files import IndexFile
from tarkit.indexing.search import KeySearch
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import Output, refuse_overwrite
from tarkit.pipeline.run import Run
from tarkit.pipeline.sample import WHOLE, DecodedSample, Sample
from tarkit.pipeline.steps import Flow
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader, open_source
from tarkit.samples.fields import missing_field
from tarkit.samples.names import composed, fold, form_words, other_form
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample, key_of
from tarkit.sizes import plural
from tarkit.streams.location import Location
from tarkit.streams.source import WindowSource
from tarkit.tar import block, pax
from tarkit.tar.reader import Entry
from tarkit.tar.writer import EntryWriter

NAMED = 5  # keys in the message about a missing one
END = block.RECORD + 2 * block.BLOCK  # bytes of the longest end of an archive, as most programs write it
RENEW = "tarkit index makes a new index"
SHOWN = 1 << 20  # maximum size of a field that is written to a terminal, in bytes

_NO_CONTENT = {
    block.HARD_LINK: "a hard link to {}: get that instead",
    block.SYMLINK: "a symbolic link to {}",
    block.CHAR: "a device",
    block.BLOCK_DEVICE: "a device",
    block.FIFO: "a FIFO",
}


class IndexedDataset(Sequence[Sample]):
    """Samples by number and by key: `len(data)`, `data[3]`, `data[-1]`, `data["a/17"]`, `"a/17" in data`.

    To make one reads the headers of all shards, which have to be plain archives in regular files, or objects of stores
    that send parts; of an object an index beside it is read instead if it is believed (see
    `tarkit.indexing.lookup`). It takes about 150 bytes of memory a sample. Looking a sample up reads its bytes alone.

    It can be pickled, for workers in other processes: the shards are opened again, and must not have changed. To decode
    the samples is a matter of the dataset: `tarkit.open(..., decode=True).indexed()`.
    """

    def __init__(
        self, locations: Sequence[Location], run: Run, view: Callable[[TarSample, bytes | None], Sample] = Sample
    ) -> None:
        """Read the headers. `tarkit.Dataset.indexed` is the way to call it. `view` makes a sample of one and its bytes.

        Raises:
            Unsupported: a shard that is compressed, or a stream.
            Problem: a fault that the policy of `run` does not let pass.
        """
        self._view = view
        self._sources: list[_OpenedShard] = []
        self._shards = array("L")
        self._starts = array("Q")
        self._stops = array("Q")
        self._numbers: dict[bytes, int] = {}
        self._by_index: set[int] = set()  # the shards whose headers were not read
        for location in locations:
            shard = _OpenedShard(location)
            source = shard.source()
            if not self._add_by_index(source, run):
                for sample in SampleReader(source, run.policy, moves=False):
                    if not sample.plain:
                        _refuse_globals(sample)
                    if sample.key is not None:
                        self._add(sample.key, sample.start, sample.stop)
            source.close()
            self._sources.append(shard)

    def _add(self, key: bytes, start: int, stop: int) -> None:
        """Add a sample of the shard that is added next."""
        self._numbers.setdefault(key, len(self._starts))
        self._shards.append(len(self._sources))
        self._starts.append(start)
        self._stops.append(stop)

    def _add_by_index(self, source: WindowSource, run: Run) -> bool:
        """Add the samples of an object by an index beside it; return False if there is none to be trusted."""

        def report(index: IndexFile, reason: lookup.Stale) -> None:
            tell = run.note if isinstance(reason, lookup.Unreadable) else run.warn
            tell(lookup.not_used(index, reason))

        known = lookup.covered(source, report) if source.url is not None else None
        if known is None:
            return False
        index, rows = known
        run.note(f"{source.name}: {len(rows)} samples by {index.name}")
        self._by_index.add(len(self._sources))
        start = 0
        for key, fields in rows:
            self._add(key, start, fields[-1].stop)
            start = fields[-1].stop
        return True

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def sources(self) -> list[WindowSource]:
        """The shards, in order; those that were closed are opened again."""
        return [shard.source() for shard in self._sources]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key.encode("utf-8", "surrogateescape") in self._numbers

    @overload
    def __getitem__(self, place: int | str) -> Sample: ...
    @overload
    def __getitem__(self, place: slice) -> list[Sample]: ...
    def __getitem__(self, place: int | str | slice) -> Sample | list[Sample]:
        """Return the sample of a number or a key, or those of a slice; of two with one key it is the first.

        Raises:
            IndexError: there are not so many samples.
            KeyError: no sample has this key. It is a TarkitError too.
        """
        if isinstance(place, slice):
            return [self._sample(number) for number in range(*place.indices(len(self)))]
        if isinstance(place, str):
            number = self._numbers.get(place.encode("utf-8", "surrogateescape"))
            if number is None:
                raise self._missing(place)
            return self._sample(number)
        number = as_index(place)
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no sample {number}: the dataset has {len(self)}")
        return self._sample(number % len(self))

    def __iter__(self) -> Iterator[Sample]:
        return map(self._sample, range(len(self)))

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError: methods of a dataset come before `indexed`, and of these `decode` alone."""
            if name == "decode":
                what = "decode comes before indexed: tarkit.open(..., decode=True).indexed()"
            else:
                what = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(what, name=name, obj=self)

    def keys(self) -> list[str]:
        """The keys, in the order of the samples; of a key that comes back, once."""
        return [key.decode("utf-8", "surrogateescape") for key in self._numbers]

    def _sample(self, number: int) -> Sample:
        start, stop, shard = self._starts[number], self._stops[number], self._sources[self._shards[number]].source()
        shard.unchanged()
        source, data = shard.another(), None  # threads may look up too
        if stop - start <= WHOLE:
            last = number + 1 == len(self) or self._shards[number + 1] != self._shards[number]
            behind = END if last else block.BLOCK  # the header behind it, or the end of the archive
            data = bytes(source.peek(start, stop + behind - start)[: stop - start])
        found = next(iter(SampleReader(source, Policy(allow=["all"]), moves=False, pos=start)), None)
        by_index = self._shards[number] in self._by_index
        if found is None or (found.start, found.stop) != (start, stop):
            what = "does not match the index beside it" if by_index else "has changed since its headers were read"
            raise Unsupported(f"{source.name}: the archive {what}", RENEW if by_index else None)
        if by_index and not self._lists(found.key, number):
            what = f"{source.name}: the index beside it does not match: it has another key for {show(found.key or b'')}"
            raise Unsupported(what, RENEW)
        source.close()
        shard.unchanged()
        return self._view(found, data)

    def _missing(self, key: str) -> MissingKey:
        """Return the error for a key that no sample has; it may be that of an index that does not match its shard."""
        count = len(self._by_index)
        if not count:
            return MissingKey(f"no sample {show(key)}")
        what = f"no sample {show(key)}: {count} of {len(self._sources)} shards were looked up in an index beside them"
        return MissingKey(what, "does it match its shard? tarkit index --verify compares them")

    def _lists(self, key: bytes | None, number: int) -> bool:
        """Return whether the sample of a number has this key; an index lists each key of its shard once."""
        first = -1 if key is None else self._numbers.get(key, -1)
        return first == number or (first >= 0 and self._shards[first] != self._shards[number])


class DecodedIndex(IndexedDataset):
    """Samples by number and by key, whose values are decoded; see `IndexedDataset`."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        def __getitem__(self, place: int | str) -> DecodedSample: ...
        @overload
        def __getitem__(self, place: slice) -> list[DecodedSample]: ...
        def __getitem__(self, place: int | str | slice) -> DecodedSample | list[DecodedSample]: ...
        def __iter__(self) -> Iterator[DecodedSample]: ...


class _OpenedShard:
    """A shard in which samples are looked up. A pickled one is opened again, and must be as it was."""

    def __init__(self, location: Location, state: tuple[object, ...] | None = None) -> None:
        self._location = location
        self._state = state  # its size and version, once it was opened
        self._source: WindowSource | None = None

    def source(self) -> WindowSource:
        """Return the shard; open it if it is not. Raises Unsupported for a stream, and for one that has changed."""
        if self._source is not None:
            return self._source
        location = self._location
        source = open_source(location) if location.kind in ("path", "stdin", "url") else None
        if not isinstance(source, WindowSource):
            if source is not None:
                source.close()
            what = f"{location.name}: samples are looked up in plain archives that can be read in any order"
            raise Unsupported(what, "make a plain file: tarkit cat SHARD -o PLAIN.tar")
        state = (source.size, source.version)
        if self._state not in (None, state):
            raise Unsupported(f"{location.name}: the archive has changed since its headers were read", "open it again")
        self._state, self._source = state, source
        return source

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle where it is, and its version. Raises TypeError for stdin."""
        if self._location.kind == "stdin":
            raise TypeError("cannot pickle a dataset of stdin: name a file or a URL")
        return _OpenedShard, (self._location, self._state)


def _refuse_globals(sample: TarSample) -> None:
    """Raise Unsupported for a global PAX header that changes the entries after it: a lookup does not see it."""
    for raw in sample.raw:
        if raw[5] == block.PAX_GLOBAL:
            payload = sample.source.read(raw[2], raw[2] + raw[3])
            if pax.Overrides.of(pax.parse_decisive(payload)).any:
                what = f"{sample.source.name}: at {raw[1]}: a global PAX header changes the entries that follow it"
                raise Unsupported(what, "iterate over the dataset")


# ---- One sample by its key


def get(data: Chain, key: str, view: Callable[[TarSample, bytes | None], Sample] = Sample) -> Sample:
    """Return the first sample with a key; see `Dataset.get`. `view` makes a sample of one and its bytes."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, not {type(key).__name__}")
    samples, flow, search, others = _find(data, key.encode("utf-8", "surrogateescape"), data.new_run(), moves=False)
    with flow:
        sample = next(samples, None)
        if sample is None:
            hint = f"the first keys are {', '.join(map(show, others))}" if others else None
            hint = _in_other_form(key.encode("utf-8", "surrogateescape"), others) or hint
            raise MissingKey(_no_sample(key, data, search), hint)
        sample.complete()
        source = sample.source
        held = sample.stop - sample.start <= WHOLE or not source.seekable
        read = source.recent if isinstance(source, WindowSource) else source.read
        content = read(sample.start, sample.stop) if held else None
        source.unchanged()
        return view(sample, content)


def write_found(data: Chain, output: Output, run: Run, key: bytes | None, fields: Sequence[bytes] = ()) -> None:
    """Write the sample with a key as an archive, or the content of its first field of `fields`.

    Without a key it is the first sample with such a field. Contents are not held in memory.

    Raises:
        MissingKey: no sample has the key.
        TarkitError: there is no such field, or it has no content.
        Usage: the output is an input, or a terminal and no text.
    """
    refuse_overwrite(output.status(), data.locations)
    samples, flow, search, others = _find(data, key, run, moves=not fields, directory=output.directory)
    lacking: TarSample | None = None
    with flow:
        for sample in samples:
            if not fields:
                output.refuse_terminal()
                with EntryWriter(output.open(data.locations)) as writer:
                    sample.write(writer)
                    writer.finish()
                run.bytes = writer.position
                break
            entry = _entry(sample, fields)
            if entry is not None:
                _write_content(sample, entry, output._replace(codec=("none", None)), data.locations)
                run.bytes = entry.size
                break
            lacking = lacking or sample
        else:
            if lacking is None and key is not None:
                raise MissingKey(_no_sample(key, data, search), _in_other_form(key, others))
            raise _not_found(data, key, fields, lacking)
        run.samples = 1
        for final in flow.at_end:  # what the search left out is not counted
            final()


def _find(
    data: Chain, key: bytes | None, run: Run, *, moves: bool, directory: str | None = None
) -> tuple[Iterator[TarSample], Flow, KeySearch | None, list[bytes]]:
    """Return the samples with a key, or all without one, the state of the run, and the first keys of other samples.

    An index next to a shard is used if it lists the key, else the shard is read: see `KeySearch`.
    """
    samples, flow = data.samples(run, moves=moves, contents=False, directory=directory)
    others: list[bytes] = []
    form = None if key is None or key.isascii() else composed(key)
    search = None
    if key is not None and data.unchanged and isinstance(flow.inputs, DatasetReader) and flow.inputs.interleave == 1:
        cache, tmpdir = os.environ.get("WDS_CACHE"), flow.inputs.tmpdir
        search = KeySearch(key, run.policy, moves=moves, tmpdir=tmpdir, cache=cache, note=run.note)
        flow.inputs.search = search
        samples = iter(flow.inputs)

    def chosen() -> Iterator[TarSample]:
        for sample in samples:
            if sample.key is not None and key in (None, sample.key):
                yield sample
            elif sample.key is not None and (len(others) < NAMED or (form and composed(sample.key) == form)):
                others.append(sample.key)

    return chosen(), flow, search, others


def _entry(sample: TarSample, fields: Sequence[bytes]) -> Entry | None:
    """Return the entry of the first field present in the sample, by the rule of `names.spelled`.

    A sample whose end is not known is read until no later entry can have precedence over the one found.
    """
    assert sample.key is not None
    ranks: dict[bytes, int] = {}
    folded: dict[bytes, int] = {}
    for number, field in enumerate(fields):
        ranks.setdefault(field, 2 * number)
        folded.setdefault(fold(field), 2 * number + 1)
    cut, known, best, found = len(sample.key) + 1, 0, 2 * len(fields), None
    while True:
        for entry in sample.entries[known:]:
            field = entry.name[cut:]
            rank = min(ranks.get(field, best), folded.get(fold(field), best))
            if rank < best and key_of(entry) is not None:
                best, found = rank, entry
        known = len(sample.entries)
        if best == 0 or sample.more is None:
            return found
        sample.source.release(sample.stop if found is None else found.start)
        sample.more()


def _write_content(sample: TarSample, entry: Entry, output: Output, inputs: Sequence[Location]) -> None:
    """Write the content of an entry; raise Usage when the output is one of the inputs."""
    source = sample.source
    if entry.sparse:
        what = f"{show(entry.name)} is a sparse file, stored without its holes"
        raise Problem("sparse-entry", source.name, entry.start, what, "extract it with tar, which fills the holes")
    if entry.type in _NO_CONTENT:
        what = _NO_CONTENT[entry.type].format(show(entry.link))
        raise TarkitError(f"{source.name}: at {entry.start}: {show(entry.name)} has no content: it is {what}")
    if output.is_terminal and not (entry.size <= SHOWN and _is_text(source.read(entry.data, entry.data + entry.size))):
        output.refuse_terminal(show(entry.name))
    with output.open(inputs) as sink:
        source.send(entry.data, entry.data + entry.size, sink)
        while sample.more is not None:  # later entries in a stream may reveal a problem of the sample
            source.release(sample.stop)
            sample.more()


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\n\r\t" for char in text)


def _no_sample(key: bytes | str, data: Chain, search: KeySearch | None) -> str:
    by_index = "" if search is None or not search.passed_over else f", {search.passed_over} of them by an index"
    return f"no sample {show(key)}: searched {plural(len(data.locations), 'input')}{by_index}"


def _in_other_form(key: bytes, others: Sequence[bytes]) -> str | None:
    same = other_form(others, key)
    return None if same is None else f"{show(same)} is that key {form_words(same)}"


def _not_found(data: Chain, key: bytes | None, fields: Sequence[bytes], lacking: TarSample | None) -> TarkitError:
    """Return the error of a search; `lacking` is the first sample that has none of the fields."""
    names, hint = " or ".join(map(show, fields)), None
    if lacking is not None:
        cut = len(lacking.key or b"") + 1
        have = ", ".join(show(entry.name[cut:]) for entry in lacking.entries if key_of(entry) is not None)
        if key is not None:
            problem = missing_field(lacking, tuple(fields))
            problem.hint = "tarkit show lists fields"
            return problem
        hint = f"{show(lacking.key or b'')} has {have}"
    return TarkitError(f"no selected sample has a field {names}: searched {plural(len(data.locations), 'input')}", hint)
