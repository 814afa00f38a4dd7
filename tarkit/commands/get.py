"""tarkit get: one field or one sample, by its key."""

from __future__ import annotations

import os
from collections.abc import Sequence
from shlex import join, quote
from typing import Any

import click

from tarkit.cli import options
from tarkit.cli.choice import SampleChoice, choice
from tarkit.cli.command import Command, InputArgument, option
from tarkit.cli.console import current
from tarkit.errors import MissingKey, TarkitError, Usage, show, spell
from tarkit.indexing.get import describe_found, write_found
from tarkit.pipeline.output import BY_NAME, Output, any_output
from tarkit.pipeline.rows import OUT_HELP, WRITABLE
from tarkit.pipeline.template import refuse_template
from tarkit.samples.sample import split_name
from tarkit.streams.location import ARCHIVE_SUFFIXES
from tarkit.streams.sink import open_sink

EXAMPLES = (
    "tarkit get a/17.jpg shards/ -o 17.jpg",
    "tarkit get a/17 'train-{000..099}.tar' | tar tv",
    "tarkit get -f json big.tar | jq .",
)
COST = (
    "If an index next to the shard lists the key, a few headers are read (tarkit index writes it: --format dali, tsv "
    "or webshart); else one pass over the headers, up to the sample. Contents of any size are not held in memory."
)
LISTED = "a key includes the directories of its path: tarkit show --names lists keys"

target = options.group(
    "output",
    any_output,
    option("Output", "-o", "--output", metavar="OUT", help=OUT_HELP, more=WRITABLE, role="output"),
    option("Output", "--compress", metavar="CODEC[:LEVEL]", help="For a whole sample.  [default: by suffix]"),
    options.FSYNC,
)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from tarkit.cli.complete import complete_key

    return complete_key(ctx, param, incomplete)


@click.command(cls=Command, examples=EXAMPLES, cost=COST)
@click.argument("words", nargs=-1, cls=InputArgument, metavar="KEY[.FIELD] [INPUT]...", shell_complete=_complete)
@options.FILES_FROM
@options.FROM
@options.NULL
@target
@option(
    "Field",
    "-f",
    "--field",
    complete="fields",
    metavar="F1,F2",
    help="F1, else F2, of the first sample that has one.",
    more="Without KEY: all words are inputs.",
)
@options.json("Print what and where it is: one object.")
@choice()
def get(
    words: tuple[str, ...],
    files_from: tuple[str, ...],
    null: bool,
    source_format: str | None,
    output: Output,
    field: str | None,
    as_json: bool,
    choice: SampleChoice,
) -> None:
    """Write one field, or one sample, found by its key.

    KEY.FIELD is the content of that field, to the last byte; KEY alone is the whole sample, as an archive. A key ends
    at the first dot after the last slash: a.b/17.jpg is the field jpg of the sample a.b/17. With -f there is no KEY:
    all words are inputs, and the first selected sample with the field is used.

    Inputs are searched in order up to the first sample with the key. An index next to a shard is used if it lists the
    key, is not older than the shard, and fits its length. Only text is written to a terminal.
    """
    for name in ("balance", "unique_by"):
        if getattr(choice.select, name) is not None:
            hint = f"tarkit cat INPUT... {spell(name, 'FIELD')}"
            raise Usage(f"get writes one sample: it cannot be used with {spell(name)}", hint)
    key, fields, original = None, field.split(",") if field is not None else [], words
    if field is None:
        if not words:
            raise Usage("no KEY", "tarkit get KEY.FIELD INPUT..., or -f FIELD for the first sample that has it")
        try:
            key, fields = _parse(words[0])
        except Usage as error:
            error.hint = _hint_behind(words) or error.hint
            raise
        words = words[1:]
    elif not all(fields) or "/" in field:
        raise Usage(f"invalid field {show(field)} for -f: it takes field names separated by commas")
    if fields and output.codec is not None:
        raise Usage("--compress is for a whole sample; a field is written as it is")
    if not fields:  # a field may be written to a file of any name
        refuse_template(click.get_current_context().params["output"])
        output = output._replace(format=BY_NAME)
    current().reserve_output(output)
    if as_json and (output.location.kind != "stdout" or output.codec is not None):
        raise Usage(
            "--json prints to stdout: it cannot be used with -o or --compress", "without it get writes the content"
        )
    try:
        locations = options.find_inputs(words, files_from, null, source_format)
    except TarkitError as error:
        raise _misread(error, original, field, fields) from None
    run = current()
    data = choice.of(locations)
    named = [name.encode("utf-8", "surrogateescape") for name in fields]
    try:
        if as_json:
            from tarkit.samples.items_text import json_line

            line = json_line(describe_found(data, run, key, named))
            with open_sink("stdout", "-") as sink:
                sink.write(line.encode())
        else:
            write_found(data, output, run, key, named)
    except MissingKey as error:
        error.hint = error.hint or LISTED
        raise
    run.finish()


def _parse(word: str) -> tuple[bytes, list[str]]:
    raw = word.encode("utf-8", "surrogateescape")
    parts = split_name(raw)
    if parts is not None:
        return parts[0], [parts[1].decode("utf-8", "surrogateescape")]
    if not raw or raw.endswith(b"/") or b"." in raw.rpartition(b"/")[2]:
        raise Usage(f"invalid key {show(word)}", "a key is not empty and has no dot after its last slash")
    return raw, []


def _misread(error: TarkitError, words: Sequence[str], field: str | None, fields: Sequence[str]) -> TarkitError:
    """Return the error about a missing input, with a hint if KEY seems to be at the wrong place."""
    if field is None:
        hint = _hint_behind(words)
        return error if hint is None else TarkitError(str(error), hint)
    for word in (words[0], words[-1]) if words else ():
        if suggestion := _as_key(word, fields[0]):
            hint = f"the field of one sample is KEY.FIELD, without -f: tarkit get {quote(suggestion)} INPUT..."
            return TarkitError(f"{error}; with -f all words are inputs", hint)
    return error


def _hint_behind(words: Sequence[str]) -> str | None:
    """Return the hint for a KEY that comes behind the inputs; None if it does not seem so."""
    *inputs, last = words
    if not inputs or _as_key(words[0]) is not None or _as_key(last) is None:
        return None
    return f"KEY comes first: {join(['tarkit', 'get', last, *inputs[:2]])}{' ...' if len(inputs) > 2 else ''}"


def _as_key(word: str, field: str | None = None) -> str | None:
    """Return a word that may be a KEY, with the field added; None for the name of an input, existing or missing."""
    special = word == "-" or any(char in word for char in ":*?[{") or word.lower().endswith(ARCHIVE_SUFFIXES)
    if special or os.path.lexists(word):
        return None
    try:
        _, fields = _parse(word)
    except Usage:
        return None
    return word if fields or field is None else f"{word}.{field}"
