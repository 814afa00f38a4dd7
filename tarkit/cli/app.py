"""The command `tarkit`: a table of commands, each loaded when it is called, and the one place where errors end.

Exit status: 0 done, 1 failed, 2 usage. A signal is answered by cleaning up and dying of it.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click

from tarkit import __version__
from tarkit.errors import Interrupted, Problem, TarkitError, Usage, printable, system_hint
from tarkit.signals import catch_signals, clean_up, die, release_signals

Result = TypeVar("Result")

COMMANDS = {
    "create": "Pack what a recipe lists into an archive.",
    "shard": "Pack a tree of files into shards, sample by sample.",
    "split": "Cut archives into shards by number of samples or size.",
    "sort": "Put samples in order, by key or by what is in them.",
    "shuffle": "Put all samples into a random order, each as likely as any other.",
    "cat": "Concatenate archives; choose samples and fields on the way.",
    "mix": "Draw from several sources by their weights.",
    "proc": "Run a command, a function or a program over samples.",
    "show": "Look into archives: fields, kinds, sizes, texts, pictures.",
    "get": "Write one field, or one sample, found by its key.",
    "extract": "Unpack samples into a folder, and nowhere else.",
    "tsv": "Write a table with a row for each sample.",
    "stats": "Count samples, fields and sizes by the headers alone.",
    "check": "Find what is wrong with shards, and write a clean copy.",
    "index": "Write index files that other tools read.",
    "completion": "Print the script for completion in bash, zsh or fish.",
}

HEAP = 1 << 20
"""Bytes of a block that is freed at once. From then on glibc keeps twice as much of what is freed (mallopt(3),
M_TRIM_THRESHOLD): else it would have each page of what is read for one write after the other mapped again."""

bars: list[Any] = []  # the progress bar that is on the screen, if there is one


def remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep the value of an option that may stand before and after the command word; the later one counts."""
    source = ctx.get_parameter_source(param.name or "")
    if source is not click.core.ParameterSource.DEFAULT:
        ctx.meta[f"tarkit.{param.name}"] = value


def common_options() -> list[click.Option]:
    """The options of every command, which may stand before the command word too."""

    def option(*names: str, **settings: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=remember, **settings)

    return [
        option("-v", "--verbose", is_flag=True, help="Name shards as they open and close; print a summary."),
        option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        option("--progress/--no-progress", default=None, help="Show progress (default: on a terminal)."),
        option("--report", metavar="FILE", help="Write the summary to FILE as JSON."),
        option("--tmpdir", metavar="DIR", help="Where temporary files go (default: $TMPDIR, the output's folder)."),
    ]


class Word(click.types.StringParamType):
    """Text, which a shell completes to the name of a file."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Leave it to the shell."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


def refuse_twice(parsed: Any) -> Any:
    """What a parser has found, as it is; raise Usage for an option given twice that would keep only its last value."""
    seen = set()
    for param in parsed[2]:
        if isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count):
            if param in seen:
                raise Usage(f"{min(param.opts, key=lambda word: not word.startswith('--'))} is given twice")
            seen.add(param)
    return parsed


def match_long(match: Callable[..., None], word: str, *rest: Any) -> None:
    """Match a long option; for a short one click would first look, with difflib, for long ones like it.

    The text, which nobody sees, is given: click would look for its translation on the disk.
    """
    if word[:2] != "--":
        raise click.NoSuchOption(word, "not a long one")
    match(word, *rest)


class Command(click.Command):
    """A command with the common options, and with examples and a line on its cost in its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), cost: str = "", **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.cost = cost
        self.params += common_options()
        for param in self.params:
            if param.type is click.STRING:
                param.type = Word()

    def make_parser(self, ctx: click.Context) -> Any:
        """A parser for which an option that takes one value has no second."""
        parse = (parser := super().make_parser(ctx)).parse_args
        parser.parse_args = lambda args: refuse_twice(parse(args))  # type: ignore[method-assign]
        parser._match_long_opt = partial(match_long, parser._match_long_opt)  # type: ignore[method-assign]
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; errors know which command they are about."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the cost."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        if self.cost:
            with formatter.section("Cost"):
                formatter.write_text(self.cost)


class Commands(click.Group):
    """The table of commands, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"tarkit.commands.{name}"), name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that the first word names; one that does not exist may be another, misspelt."""
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = [repr(each) for each in get_close_matches(name, COMMANDS)]
        meant = f" (Did you mean {'one of: ' if len(near) > 1 else ''}{', '.join(sorted(near))}?)" if near else ""
        raise click.UsageError(f"No such command {name!r}.{meant}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse; --help and --version are printed here."""
        return guarded(super().make_context, *args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        return guarded(super().invoke, ctx)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Parse and run; what is wrong with the words of the command line is one line too."""
        kwargs["standalone_mode"] = False
        status: Any
        try:
            status = guarded(super().main, *args, **kwargs)
        except click.exceptions.Exit as done:
            status = done.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            status = 2
        except click.ClickException as error:
            path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "tarkit"
            words = path.partition(" ")[2]
            message = " ".join(error.format_message().split())  # click's lists of choices have a line for each
            say(f"{words}: {message}" if words else message, f"see {path} --help")
            status = 2
        sys.exit(status or 0)


def guarded(function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Call a function; turn errors into a line and an exit status, before click can make something else of them."""
    try:
        return function(*args, **kwargs)
    except TarkitError as error:
        fail(str(error), error.hint or usual_repair(error), error.exit_code)
    except BrokenPipeError as error:
        if error.filename not in (None, "stdout"):
            fail(f"{error.filename}: {error.strerror}")
        die(signal.SIGPIPE)
    except (KeyboardInterrupt, Interrupted) as error:
        die(error.signum if isinstance(error, Interrupted) else signal.SIGINT)
    except OSError as error:
        name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None
        fail(f"{name}: {error.strerror}" if name else str(error.strerror or error), system_hint(error))
    except (EOFError, click.Abort) as error:  # click would make `Aborted!` of it
        raise RuntimeError("an error that should have been converted") from error


def usual_repair(error: TarkitError) -> str | None:
    """The hint for an error without one: that of its name in the table of problems, or of the error behind it."""
    from tarkit.problems import PROBLEMS

    if isinstance(error, Problem):
        repair: str | None = PROBLEMS[error.name].repair
        return repair
    behind = error.__cause__
    while behind is not None and not isinstance(behind, OSError):
        behind = behind.__cause__
    return None if behind is None else system_hint(behind)


def say(message: str, hint: str | None = None) -> None:
    """A line on stderr, and one for the hint; a progress bar makes room for them."""
    text = f"tarkit: {printable(message)}\n" + (f"hint: {printable(hint)}\n" if hint else "")
    try:
        for bar in bars:
            bar.clear()
        os.write(2, text.encode())
        for bar in bars:
            bar.refresh()
    except OSError:
        pass


def fail(message: str, hint: str | None = None, status: int = 1) -> NoReturn:
    """Say what is wrong and end."""
    say(message, hint)
    raise click.exceptions.Exit(status)


def reserve_standard_descriptors() -> None:
    """Where stdin, stdout or stderr are closed, put something there: no file of ours may get their numbers.

    What is put there fails when it is used: stdin cannot be read, stdout and stderr cannot be written.
    """
    for fd, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)
            if fd == 1:  # for the help; without a buffer, which would be written once more at the end
                sys.stdout = io.TextIOWrapper(open(1, "wb", buffering=0, closefd=False), write_through=True)


@click.group(cls=Commands, params=common_options(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="tarkit", message="%(prog)s %(version)s")
def group() -> None:
    """Work on tar streams of machine-learning samples.

    Entries whose paths are equal up to the first dot after the last slash are one sample: a/17.jpg and a/17.json are
    the fields jpg and json of the sample with the key a/17. They stand together in the archive.

    An INPUT is a file, a directory (its archives), - for stdin, pipe:COMMAND, a quoted 'glob*.tar' or names in braces:
    'train-{000..099}.tar'. Several are read one after the other; without any it is stdin. What is compressed with gz,
    zst, lz4, xz or bz2 is recognised by its first bytes.

    An OUTPUT is a file, - for stdout, or pipe:COMMAND. A suffix such as .tar.gz or .tar.zst compresses. A file gets its
    name when it is complete, so that after an error there is none. No input is ever changed. Where one file is written,
    a name that looks like a template for shards ({..}, %06d, @ and digits) is an error; file:NAME takes it as it is.

    A fault in an archive ends the run with a message that ends in its name, such as [truncated]; --allow and --skip
    with that name go on.
    """


def main() -> None:
    """The entry point."""
    try:
        status = _status()
        release_signals()
    except Interrupted as error:  # a signal that came before a command began, or after it had ended
        die(error.signum)
    except BaseException:  # a bug, which shows
        release_signals()
        raise
    if threading.active_count() > 1:  # one may wait for a FIFO that nobody will ever open
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 1)
    sys.exit(status)


def _status() -> Any:
    """Run the command line; its exit status."""
    try:
        catch_signals()
        bytes(HEAP)
        reserve_standard_descriptors()
        group(prog_name="tarkit")
    except SystemExit as done:
        return done.code
    finally:
        clean_up()
    return 1
