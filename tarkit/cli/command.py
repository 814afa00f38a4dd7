"""A command and its options: the sections of the help, the options that all commands have, what may be given twice.

Each option is declared with the section that it belongs to. `--help` and the man pages list the sections in one order:
Input, Output, those of the command itself, Select, Fields, Problems, Jobs, URLs, Messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import click

from tarkit import errors
from tarkit.cli.color import write_help
from tarkit.cli.messages import say
from tarkit.errors import Usage
from tarkit.options import OptionRow, Options, row
from tarkit.stores.store import StoreOptions, silent

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

FIRST = ("Input", "Output")  # then the sections of the command itself
LAST = ("Select", "Fields", "Problems", "Jobs", "URLs", "Messages")
_NOEOF = "the URL says it: zpush://HOST:PORT?noeof"
_FILES = "-C DIR is the directory of the files"
_LEAK = "--leak OTHER --by sha256.jpg reports samples that are in both"
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
    "": {
        "--json": "--report - prints what was done as JSON",
        "--rewrite": "the variable WDS_REWRITE has rules: FROM=TO;FROM=TO",
        "--noeof": _NOEOF,
        "-E": _NOEOF,
    },
    "proc": _PROC | {"-S": _PROC["--subdirs"]},
    "check": {
        "--disjoint": _LEAK,
        "--overlap": _LEAK,
        "--skip": "check finds all problems; tarkit cat --skip NAME leaves such samples out",
    },
    "create": {"--depfile-target": "the target is the output"},
    "extract": {"--output": _FILES, "-o": _FILES},
    "shard": _TEMPLATE | _MAP | _SHARD,
    "show": {"--draw": "--images detects what the terminal can draw"},
    "shuffle": _TEMPLATE
    | {"--rng": "the order is that of --seed", "--initial": "--buffer N begins with 100 samples, as in webdataset"},
    "sort": _TEMPLATE,
    "split": _TEMPLATE | _MAP | {"--folds": "--parts K is K equal parts", "--salt": "--seed S changes the hash"},
    "tsv": {"--available": "tarkit stats lists the fields", "--json": "--format jsonl writes JSON, a sample a line"},
}
"""Options that commands had, or only others have, and the other way: hints of the errors. The row "" is for all."""
WHOLE_RUN = ("progress", "report")  # common options that are for a whole run of jobs
_WHOLE = "tarkit.whole_help"  # in the context: the help is printed by --help-all


class CommonOptions(Options):
    """The options of every command, besides those of URLs; they may be given before the command word too."""

    verbose: bool = row("Messages", "-v", "--verbose", default=False, help="Print each shard, and a summary.")
    quiet: bool = row("Messages", "-q", "--quiet", default=False, help="Print nothing but errors.")
    progress: bool | None = row(
        "Messages", "--progress/--no-progress", help="Show a progress bar.  [default: on a terminal]"
    )
    report: str | None = row(
        "Messages",
        "--report",
        metavar="FILE",
        role="side",
        help="Write the summary as JSON to FILE; - is stdout.",
        more="One object.",
    )
    tmpdir: str | None = row(
        "Messages",
        "--tmpdir",
        metavar="DIR",
        help="Directory for temporary files.",
        more="The default is $TMPDIR, else the directory of the output; for proc -c also /dev/shm.",
    )


class Option(click.Option):
    """An option of a row. One that takes a value, and not several, refuses to be given twice.

    Args:
        names: as they are on the command line, and perhaps one for its parameter.
        detail: whether only --help-all and man pages list it.

    Attributes:
        spelled: the name in messages, the first.
    """

    def __init__(self, names: Sequence[str], *, row: OptionRow, detail: bool = False, **settings: Any) -> None:
        self.row, self.role, self.section = row, row.role, row.section
        self.spelled = row.names[0].partition("/")[0]
        self.more, self.detail = row.more, detail or row.detail
        help, metavar = row.help, row.metavar
        if row.choices and not row.many:
            default = row.choices[0] if isinstance(row.default, bool) else row.default
            metavar = metavar or "|".join(row.choices)
            help += f"  [default: {default}]" if default else ""
        if row.flag:
            settings |= {"is_flag": True, "flag_value": not row.default, "default": row.default}
        elif row.many:
            settings |= {"multiple": True, "type": Word(row)}
        elif not any("/" in name for name in names):
            settings["type"] = Word(row)
            if row.default is not None and (row.type is not None or row.choices or isinstance(row.default, str)):
                settings["default"] = row.default
        else:
            settings["default"] = None
        super().__init__(
            sorted(names, key=lambda name: name.startswith("--")),
            help=help,
            metavar=metavar,
            required=row.required,
            shell_complete=row.complete if callable(row.complete) else None,
            **settings,
        )

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
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
        value = super().type_cast_value(ctx, value)
        return [word for words in value for word in words] if self.multiple and self.row.split else value

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
        "or 'name-{000..099}.tar'; the default is stdin. A file is tar, zip, .cbors, .mp, .tfrecord, .mds or .parquet."
    )


class Word(click.types.StringParamType):
    """The value of an option, which its row reads. A shell completes other text to a file name."""

    def __init__(self, row: OptionRow | None = None) -> None:
        self.row = row

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a word."""
        if self.row is None:
            return super().convert(value, param, ctx)
        if not isinstance(value, str):
            return value
        try:
            return self.row.read((param and param.name) or "", value)
        except Usage as error:
            if error.hint is not None:
                raise
            raise click.UsageError(str(error), ctx) from None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the choices that begin so, or leave the completion of file names to the shell."""
        from click.shell_completion import CompletionItem

        if self.row is not None and self.row.choices:
            return [CompletionItem(word) for word in self.row.choices if word.startswith(incomplete)]
        if self.row is not None and isinstance(self.row.complete, str):
            from tarkit.cli.complete import complete_names

            return complete_names(ctx, self.row.complete, incomplete)
        return [CompletionItem(incomplete, type="file")]


def option(section: str, *names: str, **settings: Any) -> Decorator:
    """Return a decorator that declares an option of a command alone. The arguments are those of a row."""
    return declare(OptionRow(section, *names, **settings))


def declare(row: OptionRow, *name: str) -> Decorator:
    """Return a decorator that declares the option of a row, perhaps with another name of its parameter."""
    return click.option(*row.names, *name, cls=Option, row=row)


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
        write_help(ctx, 1)
        ctx.exit()


def help_options() -> list[Option]:
    """Return the options that print the help. The one of click's own would load translations."""
    return [
        action("--help-all", callback=show_help, help="Show all details, as the man page does."),
        action("-h", "--help", callback=show_help, help="Show this message and exit."),
    ]


def action(*names: str, callback: Any, help: str) -> Option:
    """Return an option that prints something and exits."""
    shown = OptionRow("Messages", *names, default=False, help=help)
    return Option(names, row=shown, is_eager=True, expose_value=False, callback=callback)


def common(kind: type[Options], detail: bool = False, names: Iterable[str] | None = None) -> list[Option]:
    """Return options that are no arguments of the function of a command: `given` has what the command line says.

    Args:
        kind: their class.
        detail: whether only --help-all and man pages list them.
        names: those to return; by default all.
    """
    chosen = kind.rows.values() if names is None else [kind.rows[name] for name in names]
    return [Option(row.names, row=row, detail=detail, expose_value=False, callback=remember) for row in chosen]


def given(kind: type[Options], ctx: click.Context) -> dict[str, Any]:
    """Return those options of a class that the command line has, wherever they were."""
    return kind.by_parameter({key.removeprefix("tarkit."): value for key, value in ctx.meta.items()})


def common_options() -> list[Option]:
    """Return the options of every command, which may be given before the command word too."""
    return [*common(StoreOptions), *common(CommonOptions), *help_options()]


def long_name(param: click.Option) -> str:
    """Return the name of an option that begins with two dashes, if it has one."""
    return next((name for name in param.opts if name.startswith("--")), param.opts[0])


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


def _match_long(match: Callable[..., None], name: str, *others: Any) -> None:
    """Match a long option; raise the error after which click looks for short ones."""
    if not name.startswith("--"):
        raise click.NoSuchOption(name, "")
    match(name, *others)


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

        tell = silent if ctx.meta.get("tarkit.quiet") else say
        note = tell if ctx.meta.get("tarkit.verbose") else silent
        connect.configure(StoreOptions(**given(StoreOptions, ctx), tell=tell, note=note, warn=tell))
        return self.run(ctx)

    def run(self, ctx: click.Context) -> Any:
        """Call the function of the command."""
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; errors get the context of this command, and name its options as it has them."""
        if not ctx.resilient_parsing:  # words that are completed have no errors
            errors.command_line = {
                param.name or "": param.spelled for param in self.params if isinstance(param, Option)
            }
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def make_parser(self, ctx: click.Context) -> Any:
        """Return a parser that does not look `-o` up among long options, whose error takes a while to make."""
        parser: Any = super().make_parser(ctx)
        if (long := getattr(parser, "_match_long_opt", None)) is not None:
            parser._match_long_opt = partial(_match_long, long)
        return parser

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
