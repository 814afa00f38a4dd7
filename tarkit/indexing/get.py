"""Get one sample by its key, or the content of one field: the first in the order of the inputs.

An index next to a shard is used to find the sample, if it matches the shard (see `tarkit.indexing.lookup`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from tarkit.choosing.key_list import OTHERS
from tarkit.errors import MissingKey, Problem, TarkitError, show
from tarkit.indexing.search import KeySearch
from tarkit.pipeline.chain import Chain
from tarkit.pipeline.output import Output, refuse_overwrite
from tarkit.pipeline.run import Run
from tarkit.pipeline.sample import WHOLE, Sample
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.items import SampleItems, describe_sample
from tarkit.samples.lookup import column_words, missing_field
from tarkit.samples.names import NearKeys, composed, fold, form_words, near_field, other_form
from tarkit.samples.sample import TarSample, key_of, singly
from tarkit.sizes import plural
from tarkit.streams.location import Location
from tarkit.tar import block
from tarkit.tar.reader import Entry
from tarkit.tar.writer import EntryWriter

NAMED = 5  # keys in the message about a missing one
SHOWN = 1 << 20  # maximum size of a field that is written to a terminal, in bytes

_NO_CONTENT = {
    block.HARD_LINK: "a hard link to {}: get that instead",
    block.SYMLINK: "a symbolic link to {}",
    block.CHAR: "a device",
    block.BLOCK_DEVICE: "a device",
    block.FIFO: "a FIFO",
}


class _KeySamples:
    """The samples of a dataset with a key, or all samples with keys without one.

    Attributes:
        flow: the state of the run.
        others: the first keys of other samples, and those that are the key in another Unicode form.
    """

    def __init__(self, data: Chain, key: bytes | None, run: Run, *, moves: bool, directory: str | None = None) -> None:
        self.data = data
        self.key = key
        self.others: list[bytes] = []
        self._search: KeySearch | None = None
        batches, self.flow = data.batches(run, moves=moves, contents=False, directory=directory)
        self._samples = singly(batches)
        inputs = self.flow.inputs
        if key is not None and data.unchanged and isinstance(inputs, DatasetReader) and inputs.interleave == 1:
            search = KeySearch(key, run.policy, moves=moves, tmpdir=inputs.tmpdir, note=run.note)
            inputs.search = self._search = search
            self._samples = iter(inputs)

    def __iter__(self) -> Iterator[TarSample]:
        key, others = self.key, self.others
        form = None if key is None or key.isascii() else composed(key)
        for sample in self._samples:
            if sample.key is not None and key in (None, sample.key):
                yield sample
            elif sample.key is not None and (len(others) < OTHERS or (form and composed(sample.key) == form)):
                others.append(sample.key)

    def missing(self, hint: str | None = None) -> MissingKey:
        assert self.key is not None
        by_index = self._search.passed_over if self._search is not None else 0
        message = f"no sample {show(self.key)}: {self.searched}" + (
            f", {by_index} of them by an index" if by_index else ""
        )
        if (same := other_form(self.others, self.key)) is not None:
            hint = f"{show(same)} is that key {form_words(same)}"
        else:
            keys = NearKeys(self.others)
            near = keys.find(self.key) or keys.spelled_like(self.key)
            hint = hint if near is None else f"did you mean {show(near)}?"
        return MissingKey(message, hint)

    @property
    def searched(self) -> str:
        return f"searched {plural(len(self.data.locations), 'input')}"


def get(data: Chain, key: str, view: Callable[[TarSample, bytes | None], Sample] = Sample) -> Sample:
    """Return the first sample with a key; see `Dataset.get`. `view` makes a sample of one and its bytes."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, not {type(key).__name__}")
    samples = _KeySamples(data, key.encode("utf-8", "surrogateescape"), data.new_run(), moves=False)
    with samples.flow:
        sample = next(iter(samples), None)
        if sample is None:
            first = ", ".join(map(show, samples.others[:NAMED]))
            raise samples.missing(f"the first keys are {first}" if first else None)
        sample.complete()
        source = sample.source
        held = sample.stop - sample.start <= WHOLE or not source.seekable
        content = source.recent(sample.start, sample.stop) if held else None
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

    def write(sample: TarSample, entry: Entry | None) -> None:
        if entry is None:
            output.refuse_terminal()
            with EntryWriter(output.open(data.locations)) as writer:
                sample.write(writer)
                writer.finish()
            run.bytes = writer.position
        else:
            _write_content(sample, entry, output._replace(codec=("none", None)), data.locations)
            run.bytes = entry.size

    _use_found(_KeySamples(data, key, run, moves=not fields, directory=output.directory), fields, run, write)


def describe_found(data: Chain, run: Run, key: bytes | None, fields: Sequence[bytes] = ()) -> SampleItems:
    """Return the description of the sample with a key, or of the sample with its first field of `fields` alone.

    The arguments and errors are those of `write_found`.
    """
    found: list[SampleItems] = []

    def describe(sample: TarSample, entry: Entry | None) -> None:
        seen = describe_sample(sample)
        if entry is not None:
            seen.items = [item for item in seen.items if item.name == entry.name]
        found.append(seen)

    _use_found(_KeySamples(data, key, run, moves=False), fields, run, describe)
    return found[0]


def _use_found(
    samples: _KeySamples, fields: Sequence[bytes], run: Run, use: Callable[[TarSample, Entry | None], None]
) -> None:
    """Call `use` with the first of the samples and its entry of the first field; with None if there are no fields."""
    lacking: TarSample | None = None
    with samples.flow:
        for sample in samples:
            entry = _entry(sample, fields) if fields else None
            if entry is not None or not fields:
                use(sample, entry)
                break
            lacking = lacking or sample
        else:
            named = samples.key is not None
            raise samples.missing() if lacking is None and named else _no_field(samples, fields, lacking)
        run.samples = 1
        for final in samples.flow.at_end:  # samples that the search left out are not counted
            final()


def _no_field(samples: _KeySamples, fields: Sequence[bytes], lacking: TarSample | None) -> TarkitError:
    """Return the error of a search; `lacking` is the first sample that has none of the fields."""
    hint = None
    if lacking is not None:
        if samples.key is not None:
            problem = missing_field(lacking, tuple(fields))
            problem.hint = "tarkit show lists fields"
            return problem
        cut = len(lacking.key or b"") + 1
        names = tuple(entry.name[cut:] for entry in lacking.entries if key_of(entry) is not None)
        hint = f"{show(lacking.key or b'')} has {', '.join(map(show, names))}"
        hint += column_words(lacking, map(os.fsdecode, fields))
        if near := next(filter(None, (near_field(names, field) for field in fields)), None):
            hint += f"; did you mean {show(near)}?"
    return TarkitError(f"no selected sample has a field {' or '.join(map(show, fields))}: {samples.searched}", hint)


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
    cut, checked, best, chosen = len(sample.key) + 1, 0, 2 * len(fields), None
    while True:
        for entry in sample.entries[checked:]:
            field = entry.name[cut:]
            rank = min(ranks.get(field, best), folded.get(fold(field), best))
            if rank < best and key_of(entry) is not None:
                best, chosen = rank, entry
        checked = len(sample.entries)
        if best == 0 or sample.more is None:
            return chosen
        sample.source.release(sample.stop if chosen is None else chosen.start)
        sample.more()


def _write_content(sample: TarSample, entry: Entry, output: Output, inputs: Sequence[Location]) -> None:
    """Write the content of an entry; raise Usage when the output is one of the inputs."""
    source = sample.source
    if entry.sparse:
        message = f"{show(entry.name)} is a sparse file, stored without its holes"
        raise Problem("sparse-entry", source.name, entry.start, message, "extract it with tar, which fills the holes")
    if entry.type in _NO_CONTENT:
        words = _NO_CONTENT[entry.type].format(show(entry.link))
        raise TarkitError(f"{source.name}: at {entry.start}: {show(entry.name)} has no content: it is {words}")
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
