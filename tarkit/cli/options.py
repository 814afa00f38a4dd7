"""Options that several commands share. A group of options is declared once and passed as one object.

`@inputs` passes `inputs`, a list of locations; `@output` an Output; `@select` a Select; `@fields` a Fields; `@problems`
sets the policy of the run.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Callable, Sequence
from functools import partial, wraps
from itertools import dropwhile, takewhile
from typing import Any, TypeVar

import click

from tarkit.choosing.select import parse_slice
from tarkit.cli.command import Decorator, Function, InputArgument, declare, option
from tarkit.cli.console import current
from tarkit.errors import MissingFile, TarkitError, Usage, hint_without_missing, show
from tarkit.joining.options import JoinOptions, TableInputOptions
from tarkit.options import Options
from tarkit.pipeline import rows as shared
from tarkit.pipeline.output import Output, archive_output
from tarkit.pipeline.output import text_output as open_text
from tarkit.pipeline.selection import ChangeOptions, FieldOptions, ProblemOptions, SelectOptions
from tarkit.problems import Policy
from tarkit.sizes import EARLIEST, LATEST
from tarkit.streams.codecs.registry import FORMAT_ALIASES, MESSAGES
from tarkit.streams.location import Location, expand_inputs

Kind = TypeVar("Kind", bound=Options)


def group(name: str, build: Function, *options: Decorator, taken: Sequence[str] = ()) -> Decorator:
    """Return a decorator that declares `options`, and passes what `build` makes of them as argument `name`.

    `build` is a function or a class whose parameters have the names of the options; those by keyword alone are no
    options. `taken` has the names where the parameters do not. Without a `name` nothing is passed.
    """
    if not taken:
        parameters = inspect.signature(build).parameters
        taken = [each for each, parameter in parameters.items() if parameter.kind is not parameter.KEYWORD_ONLY]

    def decorate(function: Function) -> Function:
        @wraps(function)
        def called(**given: Any) -> Any:
            value = build(**{each: given.pop(each) for each in taken})
            return function(**({name: value} if name else {}), **given)

        decorated: Function = called
        for option_ in reversed(options):
            decorated = option_(decorated)
        return decorated

    return decorate


def rows(kind: type[Options], argument: str = "options", **words: Callable[[Any], Any]) -> Decorator:
    """Return a decorator that declares the options of a verb, and passes them as an argument.

    The argument is the class of options with the values of the command line; to call it is to check them, together
    with what the command adds.

    Args:
        words: for options whose values have another form on the command line, a function that converts them.
    """

    def build(**values: Any) -> Callable[..., Options]:
        return partial(kind, **_said(values) | {name: convert(values[name]) for name, convert in words.items()})

    return _declared(kind, argument, build)


def made(kind: type[Kind], argument: str, make: Callable[[Kind], Any]) -> Decorator:
    """Return a decorator that declares the options of a step, and passes what `make` returns for them."""
    return _declared(kind, argument, lambda **values: make(kind(**_said(values))))


def _said(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of options, but for the empty ones of those that may be given several times."""
    return {name: value for name, value in values.items() if value != ()}


def _declared(kind: type[Options], argument: str, build: Function) -> Decorator:
    return group(argument, build, *(declare(row, name) for name, row in kind.rows.items()), taken=list(kind.rows))


def find_inputs(
    words: tuple[str, ...], files_from: tuple[str, ...], null: bool, source_format: str | None, load: bool = False
) -> list[Location]:
    """Return the inputs that the words name; raise Usage for one that the command also writes."""
    try:
        locations = expand_inputs(words, files_from, null, load, missing=_skips_missing())
    except TarkitError as error:
        error.hint = error.hint or _maybe_output(words) or _maybe_command(words)
        if isinstance(error, MissingFile) and len(words) > 1 and ".tar" in error.filename:
            error.hint = error.hint or hint_without_missing()
        raise
    locations = in_format(locations, source_format)
    current().refuse(locations)
    for path in (*files_from, *(words if load else ())):
        current().reserve(path, "a list of inputs", written=False)
    return locations


def _skips_missing() -> bool:
    """Return whether the options of the command say to continue without inputs that do not exist."""
    given = click.get_current_context().params
    return Policy(given.get("allow") or (), given.get("skip") or ()).skips_missing


def _maybe_output(words: tuple[str, ...]) -> str | None:
    """Return the hint about an input that is not there, where the command writes a series and the word may name it."""
    name = next(
        (word for word in words if re.search(r"%0?\d*d|\{.*\.\..*\}", word) and not os.path.lexists(word)), None
    )
    params = {param.name for param in click.get_current_context().command.params}
    if name is None or not params & {"template", "size_rule"}:
        return None
    return f"shards are written with -o: -o {show(name)}"


def _maybe_command(words: tuple[str, ...]) -> str | None:
    """Return the hint about an input that is not there, where the command runs another and the word may name it."""
    from shutil import which

    missing = list(takewhile(lambda word: not os.path.lexists(word), dropwhile(os.path.lexists, words)))
    if not missing or "multi" not in {param.name for param in click.get_current_context().command.params}:
        return None
    if which(missing[0].partition(" ")[0]) is None:
        return None
    return f"a command is the value of -c: -c {show(' '.join(missing))}"


def in_format(locations: list[Location], source_format: str | None) -> list[Location]:
    """Return inputs with the format of --from."""
    return locations if source_format is None else [each._replace(format=source_format) for each in locations]


def _archive(output: str | None, compress: str | None, fsync: bool, target_format: str | None) -> Output:
    return _reserved(partial(archive_output, format=target_format), output, compress, fsync)


def _reserved(open_: Callable[..., Output], output: str | None, compress: str | None, fsync: bool) -> Output:
    opened = open_(output, compress, fsync)
    current().reserve_output(opened)
    return opened


def parse_mtime(mtime: str | None) -> int | None:
    """Return the time of all entries in seconds since 1970, or None for that of each source.

    The default is SOURCE_DATE_EPOCH, else 0. Raises Usage for an invalid time, and for one outside the years 1 to 9999.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH") if mtime is None else None
    if mtime == "source":
        return None
    if mtime == "now":
        return int(time.time())
    said = f"SOURCE_DATE_EPOCH {show(epoch)}" if epoch else f"--mtime {show(mtime or '')}"
    found = re.fullmatch(r"@(-?)0*([0-9]+)", f"@{epoch or 0}" if mtime is None else mtime)
    if found is None:
        raise Usage(f"{said}: expected {'seconds since 1970' if epoch else 'source, now or @SECONDS'}")
    seconds = int(found[1] + found[2][:20])  # int() raises for thousands of digits
    if not EARLIEST <= seconds <= LATEST:
        raise Usage(f"{said}: must be from {EARLIEST} to {LATEST} seconds since 1970, the years 1 to 9999")
    return seconds


def json(help: str) -> Decorator:
    """Return the option for JSON on stdout, as argument `as_json`; the help says which objects there are."""
    return option("Output", "--json", "as_json", default=False, help=help)


def parallel(help: str) -> Decorator:
    """Return the option for how many inputs are read ahead."""
    return option("Input", "-p", "--parallel", at_least=1, default=1, metavar="N", help=help)


INPUTS = click.argument("words", nargs=-1, cls=InputArgument, metavar="[INPUT]...")
FILES_FROM = option(
    "Input", "--files-from", "-T", default=(), metavar="LIST", help="Read more inputs from LIST, one a line."
)


FROM = option(
    "Input",
    "--from",
    "source_format",
    choices=("tar", *MESSAGES),
    aliases=FORMAT_ALIASES,
    default=None,
    metavar="FORMAT",
    help="Format of INPUT.  [default: detected]",
    more="tar, cbors, msgpack, tfrecord or mds; by suffix (.cbors, .mp, .tfrecord, .mds, compressed too), else by the "
    "first bytes.",
    detail=True,
)


def null(help: str) -> Decorator:
    """Return the option for names that end with NUL."""
    return option("Input", "--null", "-0", default=False, help=help)


def archives(null: Decorator) -> Decorator:
    """Return the argument and the options for inputs, with the option -0 of a command."""
    return group(
        "inputs",
        find_inputs,
        INPUTS,
        FILES_FROM,
        null,
        FROM,
        option("Input", "-l", "--load", default=False, help="The one INPUT is such a list."),
    )


NULL = null("Names in LIST end with NUL.")
inputs = archives(NULL)

ARCHIVE_OUT = option(
    "Output",
    *("-o", "--output", "--outputs"),
    metavar="OUT",
    role="output",
    help="File, URL, zpush://, pipe:COMMAND.  [default: -]",
    more=f"{shared.WRITABLE} zpush:// and zpub:// send samples through ZeroMQ.",
)
TO = option(
    "Output",
    "--to",
    "target_format",
    choices=("tar", *MESSAGES),
    aliases=FORMAT_ALIASES,
    default=None,
    metavar="FORMAT",
    help="Format of OUT.  [default: by suffix]",
    more="tar, cbors, msgpack, tfrecord or mds. cbors and msgpack are sequences of maps, one for each sample, tfrecord "
    "of Examples, mds is shards with an index; their suffixes are .cbors, .mp, .tfrecord and .mds.",
)
OUT, COMPRESS = declare(shared.OUT, "output"), declare(shared.COMPRESS, "compress")
FSYNC = declare(shared.FSYNC, "fsync")
output = group("output", _archive, ARCHIVE_OUT, COMPRESS, FSYNC, TO)
text_output = group("output", partial(_reserved, open_text), OUT, COMPRESS, FSYNC)


shard_slice = group(
    "shard_slice",
    lambda shard_slice: None if shard_slice is None else parse_slice(shard_slice, "shard_slice"),
    option("Select", "--shard-slice", "--shardslice", metavar="LO:HI:STEP", help="Only these samples of each input."),
)
tables = made(TableInputOptions, "tables", lambda options: options)
select = made(SelectOptions, "select", lambda options: options.select(current(), draw_seed))


def first(*names: str) -> Decorator:
    """Return the option for how many samples are read."""
    return option("Select", *names, at_least=0, metavar="N", help="Only the first N of those.")


count = first("-c", "--count")
fields_without_choice = made(ChangeOptions, "fields", lambda options: options.change)
fields = made(FieldOptions, "fields", lambda options: options.change)
join = made(JoinOptions, "joins", lambda options: options)
problems = made(ProblemOptions, "", lambda options: options.policy(current()))


def draw_seed(given: int | None) -> int:
    """Return the seed that was given, or draw and print one; the report has it."""
    run = current()
    value = int.from_bytes(os.urandom(4), "big") if given is None else given
    run.facts["seed"] = value
    if given is None:
        run.tell(f"seed: {value}")
    return value
