"""Options that several commands share. Each group is declared once and arrives as one object of its name.

`@inputs` hands over `inputs`, a list of locations; `@output` an Output; `@select` a Select; `@fields` a Fields;
`@problems` the Policy, as `policy`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from tarkit.cli.app import Word
from tarkit.cli.console import Run, current
from tarkit.cli.output import Output, file_name, open_output
from tarkit.cli.output import text_output as open_text
from tarkit.errors import TarkitError, Usage, show
from tarkit.problems import PROBLEMS, Policy
from tarkit.samples.fields import Fields, OnMissing, parse_fields
from tarkit.samples.select import KeyList, Select, Slice, parse_slice
from tarkit.streams.location import Location, expand_inputs
from tarkit.tar.block import EARLIEST, LATEST

if TYPE_CHECKING:
    from tarkit.samples.where import Where

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

_OLD_WORDS: dict[str, OnMissing] = {"abort": "error", "exclude": "skip", "ignore": "keep"}


class _Written(Word):
    """The name of one file that a command writes besides its output; `file:NAME` takes a name as it is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a name that looks like a template."""
        return file_name(super().convert(value, param, ctx))


class _Post(Word):
    """A command that runs after each shard."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a number, which is no command."""
        command: str = super().convert(value, param, ctx)
        if re.fullmatch("[0-9]+", command.strip()):
            raise Usage(
                f"--post {command}: a number is not a command",
                "was parallel work meant? --post is for a command that runs after each shard",
            )
        return command


WRITTEN = _Written()


def post(*names: str) -> Decorator:
    """The option for a command that runs after each shard."""
    text = "Run COMMAND after each shard, which it may move; {} is its name."
    return click.option(*names, type=_Post(), metavar="COMMAND", help=text)


def group(name: str, build: Function, *options: Decorator) -> Decorator:
    """A decorator that declares `options` and hands over what `build` makes of them as the one argument `name`."""
    taken = build.__code__.co_varnames[: build.__code__.co_argcount]

    def decorate(function: Function) -> Function:
        @wraps(function)
        def called(**given: Any) -> Any:
            own = {each: given.pop(each) for each in taken}
            return function(**{name: build(**own)}, **given)

        decorated: Function = called
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def find_inputs(words: tuple[str, ...], files_from: tuple[str, ...], null: bool, load: bool = False) -> list[Location]:
    """The inputs that the words of a command line name; a file that the command writes is none of them."""
    locations = expand_inputs(words, files_from, null, load)
    current().refuse(locations)
    for path in (*files_from, *(words if load else ())):
        current().reserve(path, "a list of inputs", written=False)
    return locations


def _memory(memory: str | None) -> int:
    from tarkit.sorting.memory import parse_memory

    return parse_memory(memory)


def _output(output: str | None, compress: str | None, fsync: bool) -> Output:
    opened = open_output(output, compress, fsync)
    if opened.location.kind == "path":
        current().reserve(opened.location.text, "the output")
    return opened


def _text_output(output: str | None, compress: str | None, fsync: bool) -> Output:
    opened = open_text(output, compress, fsync)
    if opened.location.kind == "path":
        current().reserve(opened.location.text, "the output")
    return opened


def _select(
    match: str | None,
    keys_from: str | None,
    require_all: bool,
    where: str | None,
    sample: float | None,
    seed: int | None,
    slice_: str | None,
) -> Select:
    if require_all and keys_from is None:
        raise Usage("--require-all is about the keys of --keys-from")
    select = Select(
        match=match,
        keys=_keys(keys_from, require_all) if keys_from is not None else None,
        where=_where(where) if where is not None else None,
        sample=sample,
        seed=seed,
        slice=parse_slice(slice_) if slice_ is not None else None,
    )
    run = current()
    select.policy = lambda: run.policy
    if sample is not None:
        select.seed = draw_seed(seed)
    return select


def _where(text: str) -> Where:
    from tarkit.samples.where import Where

    return Where(text)


def _keys(keys_from: str, require_all: bool) -> KeyList:
    from tarkit.samples.keys import read_keys

    for path in (keys_from, keys_from.rpartition(":")[0]):
        if os.path.isfile(path):
            current().reserve(path, "the list of keys", written=False)
            break
    return read_keys(keys_from, require_all)


def _fields_without_choice(
    drop: tuple[str, ...], require: tuple[str, ...], on_missing_field: str, rekey: str | None
) -> Fields:
    return _fields((), drop, require, on_missing_field, rekey)


def _fields(
    fields: tuple[str, ...],
    drop: tuple[str, ...],
    require: tuple[str, ...],
    on_missing_field: str,
    rekey: str | None,
) -> Fields:
    needed = [word.split("|") for word in _words(require)]
    return Fields(
        parse_fields(" ".join(fields)) if fields else [],
        tuple(_words(drop)),
        [tuple(os.fsencode(name) for name in names) for names in needed],
        _OLD_WORDS.get(on_missing_field, on_missing_field),  # type: ignore[arg-type]
        rekey,
    )


def _words(given: tuple[str, ...]) -> list[str]:
    """The words of an option that may be given several times, between commas and blanks."""
    return " ".join(given).replace(",", " ").split()


def _policy(allow: tuple[str, ...], skip: tuple[str, ...], maxerr: int) -> Policy:
    run = current()
    run.policy = Policy(allow, skip, maxerr, run.warn)
    return run.policy


def _complete_problem(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in (*PROBLEMS, "all") if name.startswith(incomplete)]


def _slice(shard_slice: str | None) -> Slice | None:
    return parse_slice(shard_slice) if shard_slice is not None else None


def parse_mtime(mtime: str | None) -> int | None:
    """Seconds since 1970 for all entries, None for each source's own time; SOURCE_DATE_EPOCH is the default.

    Raises Usage for what is no time, and for a time outside the years 1 to 9999.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH") if mtime is None else None
    if mtime == "source":
        return None
    if mtime == "now":
        return int(time.time())
    said = f"SOURCE_DATE_EPOCH {show(epoch)}" if epoch else f"--mtime {show(mtime or '')}"
    found = re.fullmatch(r"@(-?)0*([0-9]+)", f"@{epoch or 0}" if mtime is None else mtime)
    if found is None:
        raise Usage(f"{said}: it is {'seconds since 1970' if epoch else 'source, now or @SECONDS'}")
    seconds = int(found[1] + found[2][:20])  # Python refuses to read thousands of digits
    if not EARLIEST <= seconds <= LATEST:
        raise Usage(f"{said}: a time is from {EARLIEST} to {LATEST} seconds since 1970, the years 1 to 9999")
    return seconds


inputs = group(
    "inputs",
    find_inputs,
    click.argument("words", nargs=-1, metavar="[INPUT]..."),
    click.option("-T", "--files-from", multiple=True, metavar="LIST", help="Take more inputs from LIST, one a line."),
    click.option("-0", "--null", is_flag=True, help="The names in LIST end with NUL."),
    click.option("-l", "--load", is_flag=True, help="The one INPUT is such a list."),
)
_OUTPUT = (
    click.option(
        "-o", "--output", "--outputs", metavar="OUT", help="Write to file OUT, - or pipe:COMMAND.  [default: -]"
    ),
    click.option("--compress", metavar="CODEC[:LEVEL]", help="gz, zst, lz4, xz, bz2, zip, none.  [default: by suffix]"),
    click.option("--fsync", is_flag=True, help="Have the output on the disk before it gets its name."),
)
output = group("output", _output, *_OUTPUT)
text_output = group("output", _text_output, *_OUTPUT)
shard_slice = group(
    "shard_slice",
    _slice,
    click.option("--shard-slice", "--shardslice", metavar="LO:HI:STEP", help="Only these samples of each input."),
)
select = group(
    "select",
    _select,
    click.option("--match", metavar="REGEX", help="Only samples whose key has REGEX in it."),
    click.option("--keys-from", metavar="FILE[:COLUMN]", help="Only keys that FILE has, one a line, or in a column."),
    click.option("--require-all", is_flag=True, help="A key of --keys-from that is not found is an error."),
    click.option("--where", metavar="EXPR", help="Only where EXPR holds: 'cls == 3 and json.width > 512'."),
    click.option("--sample", type=float, metavar="P", help="Each sample with probability P."),
    click.option("--seed", type=int, metavar="S", help="Seed for what is random; without it one is drawn and printed."),
    click.option("--slice", "slice_", metavar="LO:HI:STEP", help="Only these of the samples that are left."),
)
memory = group(
    "memory",
    _memory,
    click.option(
        "--memory", metavar="SIZE", help="What may be held in memory: 500M, 4GB.  [default: a quarter of the machine's]"
    ),
)
count = click.option("-c", "--count", type=click.IntRange(0), metavar="N", help="Only the first N of those.")
_FIELDS = (
    click.option("--drop", multiple=True, metavar="GLOB", help="All but the fields that match GLOB."),
    click.option("--require", multiple=True, metavar="F1,F2", help="Fields that must be there; a|b asks for either."),
    click.option(
        "--on-missing-field",
        type=click.Choice(["error", "warn", "skip", "keep", *_OLD_WORDS]),
        default="error",
        metavar="error|warn|skip|keep",
        help="What to do with a sample that lacks one.  [default: error]",
    ),
    click.option("-R", "--rekey", metavar="SPEC", help="New keys: '{stem}/{key}', '{index:06d}', # for nine digits."),
)
fields_without_choice = group("fields", _fields_without_choice, *_FIELDS)
fields = group(
    "fields",
    _fields,
    click.option(
        "-f",
        "--fields",
        "--field",
        multiple=True,
        metavar="FIELDS",
        help="Only these, in this order: 'png new:old1,old2'.",
    ),
    *_FIELDS,
)
problems = group(
    "policy",
    _policy,
    click.option(
        "--allow",
        multiple=True,
        metavar="PROBLEM",
        shell_complete=_complete_problem,
        help="Go on and keep what has this problem (or all).",
    ),
    click.option(
        "--skip",
        multiple=True,
        metavar="PROBLEM",
        shell_complete=_complete_problem,
        help="Go on without what has this problem (or all).",
    ),
    click.option(
        "--maxerr", type=click.IntRange(0), default=0, metavar="N", help="Go on over N problems as --skip all."
    ),
)

mtime = group(
    "mtime",
    parse_mtime,
    click.option(
        "--mtime", metavar="WHEN", help="Time of the entries that are made: source, now or @SECONDS.  [default: @0]"
    ),
)


def draw_seed(given: int | None) -> int:
    """The seed that was given, or one that is drawn and printed; the report has it."""
    run = current()
    value = int.from_bytes(os.urandom(4), "big") if given is None else given
    run.facts["seed"] = value
    if given is None:
        run.tell(f"seed: {value}")
    return value


def report_keys(run: Run, select: Select) -> None:
    """Say how many of the keys that were wanted came by; raises TarkitError if one did not and all had to."""
    keys = select.keys
    if keys is None:
        return
    run.facts["keys"], text = keys.summary()
    if keys.require_all and len(keys.found) < len(keys.wanted):
        raise TarkitError(text, keys.hint())
    run.tell(text)
    if (hint := keys.hint()) is not None:
        run.warn(f"{keys.name}: {hint}")


def number_of_samples(words: str | None, option: str, example: str) -> int:
    """The number that an option has, 0 for none; raises Usage for what is no number, such as a size."""
    if words is None:
        return 0
    if not (words.isascii() and words.isdigit()):
        raise Usage(f"{option} {show(words)} is no number of samples", f"it counts samples, not bytes: {example}")
    return int(words)
