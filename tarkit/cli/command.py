"""A command and its options: the sections of the help, the options that all commands have, what may be given twice.

Each option is declared with the section that it belongs to. `--help` and the man pages list the sections in one order:
Input, Output, those of the command itself, Select, Fields, Problems, Jobs, URLs, Messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from tarkit import errors
from tarkit.cli.messages import say
from tarkit.errors import Usage
from tarkit.sizes import LARGEST, LONGEST

if TYPE_CHECKING:
    from tarkit.options import OptionRow, Role

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

FIRST = ("Input", "Output")  # then the sections of the command itself
LAST = ("Select", "Fields", "Problems", "Jobs", "URLs", "Messages")
_NOEOF = "the URL says it: zpush://HOST:PORT?noeof"
_TEMPLATE = {"--template": "numbers in -o are %06d, {000..099} or @00099"}
_MAP = {
    "--first-match": "make the patterns of the map exclusive",
    "--on-unmatched": "--unmatched TEMPLATE writes samples in no category; without it they are counted",
    "--on-bad-line": "correct the line, or begin it with '# '",
}
_PROC = {
    "--add-log": "-c 'COMMAND > sample.log 2>&1' makes a field of what it prints",
    "--base": "files are sample.FIELD: rename them in the command",
    "--mode": "create NAME --format tsv --columns txt makes a sample of each line",
    "--redo": "run it over the rejects with --drop __error__.json, then sort both outputs together",
    "--script": '-c "$PWD/FILE" runs an executable file',
    "--shell": '-c \'SHELL -c "COMMAND"\', or -c "$PWD/FILE" with a first line #!',
    "--subdirs": "-m makes samples of files sample-000000.FIELD: move them there",
}
_SHARD = {
    "--depfile-target": "the target is the first shard",
    "--ext": "the suffix of -o is that of all shards: -o 'shard-%06d.tgz'",
    "--from-plan": "--recipe FILE writes a recipe, which create packs",
    "--json": "--dry-run --show-keys prints the plan; --report and --manifest write what was done",
    "--keep-root": "name the directory above, and --match '^NAME/'",
    "--plan": "--recipe FILE writes a recipe, which create packs",
    "--prefix": "--match '^TEXT'",
}
REMOVED: dict[str, dict[str, str]] = {
    "": {"--rewrite": "the variable WDS_REWRITE has rules: FROM=TO;FROM=TO", "--noeof": _NOEOF, "-E": _NOEOF},
    "proc": _PROC | {"-S": _PROC["--subdirs"]},
    "create": {"--depfile-target": "the target is the output"},
    "shard": _TEMPLATE | _MAP | _SHARD,
    "show": {"--draw": "--images detects what the terminal can draw"},
    "shuffle": _TEMPLATE
    | {"--rng": "the order is that of --seed", "--initial": "--buffer N begins with 100 samples, as in webdataset"},
    "sort": _TEMPLATE,
    "split": _TEMPLATE | _MAP | {"--folds": "--parts K is K equal parts", "--salt": "--seed S changes the hash"},
    "tsv": {"--available": "tarkit stats lists the fields"},
}
"""Options that commands had, and the other way: hints of the errors. Those of all commands are in the row ""."""
WHOLE_RUN = ("progress", "report")  # common options that are for a whole run of jobs
_WHOLE = "tarkit.whole_help"  # in the context: the help is printed by --help-all


class Option(click.Option):
    """An option with its section of the help. One that takes a value, and not several, refuses to be given twice.

    Args:
        section: what it is listed under
        more: what --help-all and the man page say after `help`, which is one line
        detail: whether only these list it
        role: what its value names, as of an `OptionRow`

    Attributes:
        spelled: the name in messages, the first
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        section: str,
        more: str = "",
        detail: bool = False,
        role: Role = "",
        **settings: Any,
    ) -> None:
        super().__init__(sorted(names, key=lambda name: name.startswith("--")), **settings)
        self.spelled = names[0]
        self.role = role
        self.section = section
        self.more = more
        self.detail = detail

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Make the parser keep every value, where it would keep the last one."""
        if self.is_flag or self.count or self.multiple:
            super().add_to_parser(parser, ctx)
        else:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append", nargs=self.nargs)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the value; raise Usage for a second one."""
        if isinstance(value, list) and not self.multiple:
            if len(value) > 1:
                raise Usage(f"{self.spellings(whole=False)[-1]} is given twice")
            value = value[0]
        return super().type_cast_value(ctx, value)

    def spellings(self, whole: bool) -> list[str]:
        """Return the names, short ones first; of the long ones the first, or all: the others are of other tools."""
        short = sum(not name.startswith("--") for name in self.opts)
        return [*(self.opts if whole else self.opts[: short + 1]), *self.secondary_opts]

    def text(self, whole: bool) -> str:
        """Return the help, with `more` before the default."""
        text, default, value = (self.help or "").partition("  [default:")
        return f"{text} {self.more}".rstrip() + default + value if whole else self.help or ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the two columns of the help."""
        whole = _WHOLE in ctx.meta
        names = ", ".join(self.spellings(whole))
        value = "" if self.is_flag or self.count else f" {self.make_metavar(ctx)}"
        return None if self.hidden or (self.detail and not whole) else (names + value, self.text(whole))


class InputArgument(click.Argument):
    """The argument for archives. The help of a command that has it says what an INPUT is."""

    text = (
        "INPUT is a file, directory, URL (s3:// gs:// az:// https:// hf:// ais:// zpull://), -, pipe:COMMAND, 'glob*' "
        "or 'name-{000..099}.tar'; the default is stdin. A file is tar, zip, .cbors or .mp."
    )


class AliasedChoice(click.Choice[str]):
    """A choice of words; aliases, which are the words of other tools, are converted to them."""

    def __init__(self, choices: Sequence[str], aliases: Mapping[str, str]) -> None:
        super().__init__([*choices, *aliases])
        self.aliases = aliases

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word itself, or the one that it stands for."""
        word = super().convert(value, param, ctx)
        return self.aliases.get(word, word)


def option(section: str, *names: str, **settings: Any) -> Decorator:
    """Return a decorator that declares an option of a command alone, in this section of its help.

    The other arguments are those of a row, a `options.OptionRow`.
    """
    from tarkit.options import OptionRow

    return declare(OptionRow(section, *names, **settings))


def declare(row: OptionRow, *name: str) -> Decorator:
    """Return a decorator that declares the option of a row, perhaps with another name of its parameter."""
    return click.option(*row.names, *name, cls=Option, section=row.section, **settings_of(row))


def settings_of(row: OptionRow) -> dict[str, Any]:
    """Return the arguments of click's option for a row, besides its names."""
    settings = {name: getattr(row, name) for name in ("help", "more", "metavar", "detail", "required", "role")}
    if row.complete is not None:
        settings["shell_complete"] = row.complete
    if row.many:
        return {**settings, "multiple": True}
    if row.choices:
        default = row.choices[0] if isinstance(row.default, bool) else row.default
        settings["metavar"] = row.metavar or "|".join(row.choices)
        settings["help"] += f"  [default: {default}]" if default else ""
        return {**settings, "type": AliasedChoice(row.choices, row.aliases), "default": default}
    if isinstance(row.default, bool):
        return {**settings, "is_flag": True, "flag_value": not row.default, "default": row.default}
    if isinstance(row.default, str):
        settings["default"] = row.default
    if row.seconds:
        settings["type"] = RealNumber(0, LONGEST, min_open=True)
    elif row.at_least is not None:
        settings |= {"type": WholeNumber(row.at_least), "default": row.default}
    elif row.type is not None:
        settings["type"] = RealNumber() if row.type is float else row.type
    return settings


def sections(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the options of a command by section, in the order of the help."""
    found: dict[str, list[click.Option]] = {}
    for param in command.get_params(ctx):
        if isinstance(param, Option):
            found.setdefault(param.section, []).append(param)
    own = [name for name in found if name not in FIRST + LAST]
    return {name: found[name] for name in (*FIRST, *own, *LAST) if name in found}


def description(command: click.Command) -> str:
    """Return the description of a command: its summary, what an INPUT is if it takes archives, and the rest."""
    summary, *rest = inspect.cleandoc(command.help or "").split("\n\n")
    about = [param.text for param in command.params if isinstance(param, InputArgument)]
    return "\n\n".join([summary, *about, *rest])


def shown(text: str, ctx: click.Context) -> str:
    """Return what the help shows of a text: --help ends at a form feed, --help-all and man pages continue."""
    return text.replace("\f", "") if _WHOLE in ctx.meta else text.partition("\f")[0].rstrip()


def write_sections(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the options of a command, section by section."""
    for name, options in sections(command, ctx).items():
        if records := [record for each in options if (record := each.get_help_record(ctx))]:
            with formatter.section(name):
                formatter.write_dl(records)


def remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Store the value of an option that may be given before and after the command word; the later one counts."""
    source = ctx.get_parameter_source(param.name or "")
    if source is not click.core.ParameterSource.DEFAULT:
        ctx.meta[f"tarkit.{param.name}"] = value


def show_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the help, with --help-all also what --help leaves to the man page, and exit."""
    if value and not ctx.resilient_parsing:
        if param.name == "help_all":
            ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help())
        ctx.exit()


def help_options() -> list[Option]:
    """Return the options that print the help. The one of click's own would load translations."""

    def option(*names: str, **settings: Any) -> Option:
        return common(*names, is_flag=True, is_eager=True, callback=show_help, **settings)

    return [
        option("--help-all", help="Show all details, as the man page does."),
        option("-h", "--help", help="Show this message and exit."),
    ]


def common(*names: str, section: str = "Messages", callback: Any = remember, **settings: Any) -> Option:
    """Return an option whose value is stored in the context, as `tarkit.NAME`."""
    return Option(names, section=section, expose_value=False, callback=callback, **settings)


def url_options() -> list[Option]:
    """Return the options of every command about URLs."""

    def option(*names: str, **settings: Any) -> Option:
        return common(*names, section="URLs", detail=True, **settings)

    return [
        option(
            "--endpoint-url",
            metavar="URL",
            help="Server of s3://, gs:// and az:// URLs.",
            more="Also AWS_ENDPOINT_URL.",
        ),
        option("--anonymous", is_flag=True, help="Send no credentials, for public data."),
        option(
            "--net-retries",
            type=WholeNumber(0),
            metavar="N",
            help="Give up after N failures in a row.  [default: 5]",
            more="A transfer goes on at the byte where its connection broke; any progress starts the count anew.",
        ),
        option(
            "--net-timeout",
            type=RealNumber(0, LONGEST, min_open=True),
            metavar="S",
            help="A connection is broken after S seconds without a byte.  [default: 60]",
        ),
        option(
            "--cache",
            metavar="DIR",
            help="Keep objects that are read in files in DIR.",
            more="Each is fetched once, by one of many processes, and again when it has changed. Also WDS_CACHE; "
            "'' is none.",
        ),
        option(
            "--cache-size",
            metavar="SIZE",
            help="Maximum of all files in --cache, such as 50G.",
            more="Those that were opened longest ago are removed. Also WDS_CACHE_SIZE; the default is no limit.",
        ),
    ]


def common_options() -> list[Option]:
    """Return the options of every command, which may be given before the command word too."""
    return [
        *url_options(),
        common("-v", "--verbose", is_flag=True, help="Print each shard, and a summary."),
        common("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        common("--progress/--no-progress", default=None, help="Show a progress bar.  [default: on a terminal]"),
        common("--report", metavar="FILE", role="side", help="Write the summary to FILE as JSON."),
        common(
            "--tmpdir",
            metavar="DIR",
            help="Directory for temporary files.",
            more="The default is $TMPDIR, else the directory of the output; for proc -c also /dev/shm.",
        ),
        *help_options(),
    ]


def long_name(param: click.Option) -> str:
    """Return the name of an option that begins with two dashes, if it has one."""
    return next((name for name in param.opts if name.startswith("--")), param.opts[0])


def store_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `StoreOptions` among values, or words, by the parameters of options."""
    from tarkit.stores.store import OPTION_KEYS

    convert: dict[str, Callable[[Any], Any]] = {"net_retries": int, "net_timeout": float}
    settings = {name: values[name] for name in OPTION_KEYS if values.get(name) is not None}
    return {
        name.removeprefix("net_"): convert[name](value) if name in convert else value
        for name, value in settings.items()
    }


def given_words(ctx: click.Context, options: Iterable[Option], but: Sequence[str]) -> list[str]:
    """Return the words of those of these options that are given, wherever they were, but for some."""
    words: list[str] = []
    for each in options:
        value = ctx.meta.get(f"tarkit.{each.name}")
        if value is None or value is False or value == () or each.name in but:
            continue
        if each.is_flag:
            words.append(long_name(each))
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [long_name(each), str(one)]
    return words


class Word(click.types.StringParamType):
    """Text, which a shell completes to a file name."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Leave the completion of file names to the shell."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class WholeNumber(click.IntRange):
    """A whole number in a range, up to LARGEST."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if number > LARGEST:
            self.fail(f"{value!r} is more than {LARGEST}", param, ctx)
        return super().convert(value, param, ctx)


class RealNumber(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Command(click.Command):
    """A command with the common options, and with examples and cost in its help.

    Args:
        runs: whether it has messages and a report; else the options for these are left out
    """

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), cost: str = "", runs: bool = True, **kwargs: Any
    ) -> None:
        kwargs["add_help_option"] = False
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.cost = cost
        self.params += common_options() if runs else help_options()
        for param in self.params:
            if param.type is click.STRING:
                param.type = Word()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with what the options say about URLs."""
        from tarkit.stores import connect
        from tarkit.stores.store import StoreOptions, silent

        chosen = store_settings({key.removeprefix("tarkit."): value for key, value in ctx.meta.items()})
        tell = silent if ctx.meta.get("tarkit.quiet") else say
        note = tell if ctx.meta.get("tarkit.verbose") else silent
        connect.configure(StoreOptions(**chosen, tell=tell, note=note, warn=tell))
        return self.run(ctx)

    def run(self, ctx: click.Context) -> Any:
        """Call the function of the command."""
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; errors get the context of this command, and name its options as it has them."""
        errors.command_line = {param.name or "": param.spelled for param in self.params if isinstance(param, Option)}
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(shown(description(self), ctx))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in their sections."""
        write_sections(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the cost."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        if self.cost:
            with formatter.section("Cost"):
                formatter.write_text(shown(self.cost, ctx))
