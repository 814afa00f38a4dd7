"""tarkit get: one field or one sample, by its key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

import click

from tarkit.api.output import Output, named_output, refuse_overwrite
from tarkit.cli import options
from tarkit.cli.command import Command, option
from tarkit.cli.console import ConsoleRun, current
from tarkit.errors import Problem, TarkitError, Usage, show
from tarkit.indexing import lookup
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader, open_source
from tarkit.samples.sample import TarSample, key_of, split_name
from tarkit.samples.select import Select, Slice
from tarkit.shards.template import refuse_template
from tarkit.streams.location import ARCHIVE_SUFFIXES, Location
from tarkit.streams.sink import open_sink
from tarkit.streams.source import FileSource
from tarkit.tar import block
from tarkit.tar.reader import Entry
from tarkit.tar.writer import EntryWriter

EXAMPLES = (
    "tarkit get a/17.jpg shards/ -o 17.jpg",
    "tarkit get a/17 'train-{000..099}.tar' | tar tv",
    "tarkit get -f json big.tar | jq .",
)
COST = (
    "If an index next to the shard lists the key, a few headers are read (tarkit index writes it: --format dali, tsv "
    "or webshart); else one pass over the headers, up to the sample. Contents of any size are not held in memory."
)
SHOWN = 1 << 20  # maximum size of a field that is written to a terminal, in bytes

_NO_CONTENT = {
    block.HARD_LINK: "a hard link to {}: get that instead",
    block.SYMLINK: "a symbolic link to {}",
    block.CHAR: "a device",
    block.BLOCK_DEVICE: "a device",
    block.FIFO: "a FIFO",
}


@dataclass
class GetOptions:
    """The options of `get`: a key, perhaps with a field; or alternative fields of any sample."""

    key: bytes | None
    fields: Sequence[bytes]
    select: Select
    shard_slice: Slice | None = None


target = options.group(
    "output",
    named_output,
    option("Output", "-o", "--output", "word", metavar="OUT", help="File, - or pipe:COMMAND.  [default: -]"),
    option("Output", "--compress", metavar="CODEC[:LEVEL]", help="For a whole sample.  [default: by suffix]"),
    options.FSYNC,
)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("words", nargs=-1, metavar="KEY[.FIELD] [INPUT]...")
@options.FILES_FROM
@options.NULL
@target
@option(
    "Field",
    "-f",
    "--field",
    metavar="F1,F2",
    help="F1, else F2, of the first sample that has one.",
    more="Without KEY: all words are inputs.",
)
@options.shard_slice
@options.select
@options.problems
def get(
    words: tuple[str, ...],
    files_from: tuple[str, ...],
    null: bool,
    output: Output,
    field: str | None,
    shard_slice: Slice | None,
    select: Select,
    policy: Policy,
) -> None:
    """Write one field, or one sample, found by its key.

    KEY.FIELD is the content of that field, to the last byte; KEY alone is the whole sample, as an archive. A key ends
    at the first dot after the last slash: a.b/17.jpg is the field jpg of the sample a.b/17. With -f there is no KEY:
    all words are inputs, and the first selected sample with the field is used.

    Inputs are searched in order up to the first sample with the key; the default is stdin. An index next to a shard is
    used only if it lists the key, is not older than the shard, and agrees with it. Only text is written to a terminal.
    """
    key, fields = None, field.split(",") if field is not None else []
    if field is None:
        if not words:
            raise Usage("no KEY", "tarkit get KEY.FIELD INPUT..., or -f FIELD for the first sample that has it")
        key, fields, words = *_parse(words[0]), words[1:]
    elif not all(fields) or "/" in field:
        raise Usage(f"invalid field {show(field)} for -f: it takes field names separated by commas")
    if fields and output.codec is not None:
        raise Usage("--compress is for a whole sample; a field is written as it is")
    if not fields:  # a field may be written to a file of any name
        refuse_template(click.get_current_context().params["word"])
    if output.location.kind == "path":
        current().reserve(output.location.text, "the output")
    try:
        locations = options.find_inputs(words, files_from, null)
    except TarkitError as error:
        suggestion = _as_key(words[0], fields[0]) if field is not None and words else None
        if suggestion is None:
            raise
        hint = f"the field of one sample is KEY.FIELD, without -f: tarkit get {quote(suggestion)} INPUT..."
        raise TarkitError(f"{error}; with -f all words are inputs", hint) from None
    chosen = GetOptions(key, [name.encode("utf-8", "surrogateescape") for name in fields], select, shard_slice)
    run_get(current(), locations, output, chosen, policy)


def run_get(run: ConsoleRun, locations: list[Location], output: Output, chosen: GetOptions, policy: Policy) -> None:
    """Write the requested field or sample.

    Raises:
        TarkitError: there is none.
    """
    refuse_overwrite(output.status(), locations)
    lacking: TarSample | None = None
    for sample in _candidates(run, locations, chosen, policy, run.scratch(output.directory)):
        if not chosen.fields:
            output.refuse_terminal()
            with EntryWriter(output.open(locations)) as writer:
                sample.write(writer)
                writer.finish()
            run.bytes = writer.position
            break
        entry = _entry(sample, chosen.fields)
        if entry is not None:
            _write(sample, entry, output)
            run.bytes = entry.size
            break
        lacking = lacking or sample
    else:
        raise _not_found(chosen, len(locations), lacking)
    run.samples = 1
    options.report_keys(run, chosen.select)
    run.finish()


def _parse(word: str) -> tuple[bytes, list[str]]:
    """Return the key and the field of a word."""
    raw = word.encode("utf-8", "surrogateescape")
    parts = split_name(raw)
    if parts is not None:
        return parts[0], [parts[1].decode("utf-8", "surrogateescape")]
    if not raw or raw.endswith(b"/") or b"." in raw.rpartition(b"/")[2]:
        raise Usage(f"invalid key {show(word)}", "a key is not empty and has no dot after its last slash")
    return raw, []


def _as_key(word: str, field: str) -> str | None:
    """Return KEY.FIELD for a word that may be a KEY; None for the name of an input, existing or missing."""
    special = word == "-" or any(char in word for char in ":*?[{") or word.lower().endswith(ARCHIVE_SUFFIXES)
    if special or os.path.lexists(word):
        return None
    try:
        _, fields = _parse(word)
    except Usage:
        return None
    return word if fields else f"{word}.{field}"


def _candidates(
    run: ConsoleRun, locations: list[Location], chosen: GetOptions, policy: Policy, tmpdir: str | None
) -> Iterator[TarSample]:
    """Yield the samples with the key, or all selected samples without a key."""
    whole = not chosen.fields
    if chosen.key is None or not chosen.select.all or chosen.shard_slice is not None:
        inputs = DatasetReader(
            locations, policy, moves=whole, shard_slice=chosen.shard_slice, tmpdir=tmpdir,
            announce=lambda name: run.note(f"reading {name}"),
        )  # fmt: skip
        for sample in chosen.select(iter(inputs)):
            if sample.key is not None and chosen.key in (None, sample.key):
                yield sample
        return
    for location in locations:
        found = _by_index(run, location, chosen.key, policy, whole)
        if found is not None:
            yield found
            continue
        run.note(f"reading {location.name}")
        inputs = DatasetReader([location], policy, moves=whole, tmpdir=tmpdir)
        yield from (sample for sample in inputs if sample.key == chosen.key)


def _by_index(run: ConsoleRun, location: Location, key: bytes, policy: Policy, moves: bool) -> TarSample | None:
    """Return the sample with a key, by an index next to the shard; None if no index can be used."""
    if location.kind != "path":
        return None
    for name, path in lookup.indexes(location.text):
        source = open_source(location)
        try:
            if isinstance(source, FileSource):
                sample = lookup.look_up(source, path, name, key, policy, moves)
                if sample is not None:
                    run.note(f"{location.name}: looked up in {path}")
                    return sample
                run.note(f"{path}: the index does not list {show(key)}")
        except lookup.Stale as error:
            run.warn(f"{path}: index not used: {error}")
        finally:
            source.close()
    return None


def _entry(sample: TarSample, fields: Sequence[bytes]) -> Entry | None:
    """Return the entry of the first field present in the sample; an exact match has precedence over case.

    A sample whose end is not known is read until no later entry can have precedence over the one found.
    """
    assert sample.key is not None
    ranks: dict[bytes, int] = {}
    folded: dict[bytes, int] = {}
    for number, field in enumerate(fields):
        ranks.setdefault(field, 2 * number)
        folded.setdefault(field.lower(), 2 * number + 1)
    cut, known, best, found = len(sample.key) + 1, 0, 2 * len(fields), None
    while True:
        for entry in sample.entries[known:]:
            field = entry.name[cut:]
            rank = min(ranks.get(field, best), folded.get(field.lower(), best))
            if rank < best and key_of(entry) is not None:
                best, found = rank, entry
        known = len(sample.entries)
        if best == 0 or sample.more is None:
            return found
        sample.source.release(sample.stop if found is None else found.start)
        sample.more()


def _write(sample: TarSample, entry: Entry, output: Output) -> None:
    """Write the content of an entry."""
    source = sample.source
    if entry.sparse:
        what = f"{show(entry.name)} is a sparse file, stored without its holes"
        raise Problem("sparse-entry", source.name, entry.start, what, "extract it with tar, which fills the holes")
    if entry.type in _NO_CONTENT:
        what = _NO_CONTENT[entry.type].format(show(entry.link))
        raise TarkitError(f"{source.name}: at {entry.start}: {show(entry.name)} has no content: it is {what}")
    if output.is_terminal and not (entry.size <= SHOWN and _is_text(source.read(entry.data, entry.data + entry.size))):
        output.refuse_terminal(show(entry.name))
    with open_sink(output.location.kind, output.location.text, sync=output.sync) as sink:
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


LISTED = "a key includes the directories of its path: tarkit show --names lists keys"


def _not_found(chosen: GetOptions, searched: int, lacking: TarSample | None) -> TarkitError:
    inputs = "1 input" if searched == 1 else f"{searched} inputs"
    fields = " or ".join(map(show, chosen.fields))
    have = (
        ""
        if lacking is None
        else ", ".join(
            show(entry.name[len(lacking.key or b"") + 1 :]) for entry in lacking.entries if key_of(entry) is not None
        )
    )
    if chosen.key is None:
        hint = f"{show(lacking.key or b'')} has {have}" if lacking else None
        return TarkitError(f"no selected sample has a field {fields}: searched {inputs}", hint)
    if lacking is None:
        return TarkitError(f"no sample {show(chosen.key)}: searched {inputs}", LISTED)
    what = f"{show(chosen.key)} has no field {fields}, it has {have}"
    return Problem("missing-field", lacking.source.name, lacking.start, what, "tarkit show lists fields")
