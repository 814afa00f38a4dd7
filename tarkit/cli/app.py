"""The command `tarkit`: the table of commands, each imported when it is called, and the exit status of errors.

Exit status: 0 done, 1 failed, 2 usage. After a signal, tarkit cleans up and terminates itself by the same signal.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from tarkit import __version__, errors
from tarkit.cli.color import write_help
from tarkit.cli.command import REMOVED, action, common_options, write_sections
from tarkit.cli.messages import say
from tarkit.errors import Interrupted, TarkitError, describe_limit, system_hint
from tarkit.signals import catch_signals, clean_up, die, raise_delayed, release_signals
from tarkit.threads import has_threads

COMMANDS = {
    "create": "Pack what a recipe lists into an archive.",
    "shard": "Pack a tree of files into shards, sample by sample.",
    "split": "Cut archives into shards by number of samples or size.",
    "sort": "Put samples in order, by key or by what is in them.",
    "shuffle": "Put all samples into a uniformly random order.",
    "cat": "Concatenate archives; choose samples and fields on the way.",
    "mix": "Draw from several sources by their weights.",
    "proc": "Run a command, a function or a program over samples.",
    "show": "Show the contents of archives: fields, sizes, texts, pictures.",
    "get": "Write one field, or one sample, found by its key.",
    "extract": "Unpack samples into a directory, and nowhere else.",
    "tsv": "Write a table with a row for each sample; also named table.",
    "sql": "Run a query of SQL over archives, views and tables.",
    "stats": "Count samples, fields, sizes and classes.",
    "check": "Find what is wrong with shards, and write a clean copy.",
    "index": "Write index files that other tools read.",
    "each": "Run a command line for each of many values, in parallel.",
    "completion": "Print the script for completion in bash, zsh or fish.",
}

ALIASES = {"table": "tsv"}
"""Second names of commands."""

HEAP = 1 << 20
"""Bytes of a block that is allocated and freed at the start. From then on glibc keeps twice as much freed memory
(M_TRIM_THRESHOLD in mallopt(3)); otherwise the pages of each buffer that is read would be mapped again."""


class Commands(click.Group):
    """The table of commands, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table, and the second names."""
        return [*COMMANDS, *ALIASES]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        name = ALIASES.get(name, name)
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"tarkit.commands.{name}"), name)
        if not gc.isenabled():  # `__main__` has disabled it
            gc.freeze()  # what was loaded stays: it need not be looked at again
            gc.enable()
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command that the first word names; for one that does not exist, suggest those spelled like it."""
        args = [ALIASES.get(args[0], args[0]), *args[1:]]
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        if name == "help":
            return self._help_of(ctx, [word for word in args[1:] if word not in ("help", "-h", "--help")])
        from tarkit.cli.words import no_command

        raise no_command(name, COMMANDS)

    def _help_of(self, ctx: click.Context, words: list[str]) -> Any:
        """Return the command that is to print its help; without one print that of all."""
        if words and not words[0].startswith("-"):
            return self.resolve_command(ctx, [*words, "--help"])
        write_help(ctx, 1)
        raise click.exceptions.Exit

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, without importing a command, then the options of every command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        write_sections(self, ctx, formatter)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **settings: Any) -> NoReturn:  # type: ignore[override]
        """Run a command line and exit. click's own `main` would turn EOFError and EPIPE into messages of its own."""
        name = prog_name or "tarkit"
        if instruction := os.environ.get("_TARKIT_COMPLETE"):
            from click.shell_completion import add_completion_class, shell_complete

            from tarkit.cli.complete import SHELLS

            for shell in SHELLS:
                add_completion_class(shell)
            sys.exit(shell_complete(self, {}, name, "_TARKIT_COMPLETE", instruction))
        sys.exit(guarded(self._run, name, list(sys.argv[1:] if args is None else args)))

    def _run(self, name: str, args: list[str]) -> int:
        """Parse and run a command line; return its exit status, 2 after a message on what cannot be parsed."""
        before, errors.command_line = errors.command_line, {}
        try:
            with self.make_context(name, args) as ctx:
                self.invoke(ctx)
            return 0
        except click.exceptions.Exit as done:
            return done.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            write_help(error.ctx, 2)
        except click.ClickException as error:
            path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else name
            words = path.partition(" ")[2]
            hint = f"see {path} --help"
            if isinstance(error, click.NoSuchOption) and (other := self._other_way(words, error)):
                error, hint = click.NoSuchOption(error.option_name, ctx=error.ctx), other  # without similar ones
            message = " ".join(error.format_message().split())  # click's lists of choices have a line for each
            say(f"{words}: {message}" if words else message, hint, "error")
        finally:
            errors.command_line = before
        return 2

    def _other_way(self, words: str, error: click.NoSuchOption) -> str | None:
        """Return the hint for an option that a command does not have: what does it there, or which commands have it."""
        from tarkit.cli.words import answer
        from tarkit.sizes import and_more

        option = error.option_name
        if gone := {**REMOVED[""], **REMOVED.get(words, {})}.get(option):
            return gone
        if not words or error.ctx is None or not option.startswith("--"):
            return None if words else answer(option)
        if any(other.startswith(option) for other in error.possibilities or ()):
            return None
        commands = [command for name in COMMANDS if (command := self.get_command(error.ctx, name)) is not None]
        names = [str(command.name) for command in commands if any(option in param.opts for param in command.params)]
        return f"{option} is an option of {and_more(names, 4)}; see tarkit {words} --help" if names else None


def guarded(function: Callable[..., int], *args: Any) -> int:
    """Call a function that returns an exit status; turn the errors of tarkit and of the system into one."""
    try:
        try:
            return function(*args)
        except Exception:  # perhaps of an input that ended together with this process
            raise_delayed()
            raise
    except TarkitError as error:
        from tarkit.problems import usual_hint

        about_file = any(words in str(error) for words in _NO_FILE)
        hint = (_lost_directory(str(error)) if about_file else None) or error.hint or usual_hint(error)
        say(str(error), hint, "error")
        return error.exit_code
    except BrokenPipeError as error:
        if error.filename in (None, "stdout"):
            die(signal.SIGPIPE)
        say(f"{error.filename}: {error.strerror}", role="error")
    except (KeyboardInterrupt, Interrupted) as error:
        die(error.signum if isinstance(error, Interrupted) else signal.SIGINT)
    except OSError as error:
        name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else None
        hints = [_lost_directory(name) or _lost_tmpdir(name) or system_hint(error), *getattr(error, "__notes__", [])]
        hint = "; ".join(filter(None, hints)) or None
        say(f"{name}: {error.strerror}" if name else str(error.strerror or error), hint, "error")
    except Exception as error:
        if (limit := describe_limit(error)) is None:
            raise
        say(*limit, "error")
    return 1


_NO_FILE = ("No such file", "no such file", "matches no archive", "no archives")


def _lost_directory(name: str | None) -> str | None:
    """Return the hint for an error with a file, if the working directory was deleted and the name depends on it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        gone = "the working directory was deleted: change to another one with cd"
        return None if name is not None and os.path.isabs(name) else gone
    return None


def _lost_tmpdir(name: str | None) -> str | None:
    """Return the hint for an error with a file, if that is $TMPDIR or in it and there is no such directory."""
    directory = os.environ.get("TMPDIR")
    if not directory or name is None or os.path.isdir(directory) or directory not in (name, os.path.dirname(name)):
        return None
    return f"$TMPDIR is {directory}, which is no directory: make it, or name another one with --tmpdir"


def reserve_standard_descriptors() -> None:
    """Open /dev/null for stdin, stdout and stderr where they are closed, so that no other file gets their numbers.

    To use it is an error: stdin is opened for writing, stdout and stderr for reading.
    """
    for fd, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)
            if fd == 1:  # for the help; unbuffered, since a buffer would be flushed again at exit
                sys.stdout = io.TextIOWrapper(open(1, "wb", buffering=0, closefd=False), write_through=True)


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"tarkit {__version__}")
        ctx.exit()


version = action("--version", callback=_show_version, help="Show the version and exit.")


@click.group(cls=Commands, params=[*common_options(), version], add_help_option=False)
def group() -> None:
    """Make, change and check datasets for machine learning that are stored in tar archives.

    Such a dataset is a set of archives, its shards, as webdataset reads them. Files in an archive that are adjacent,
    and whose paths are equal up to the first dot after the last slash, are one sample: a/17.jpg and a/17.json are the
    fields jpg and json of the sample with the key a/17.

    \b
    tarkit shard pictures/ -c 1000 -o 'x-%d.tar'    # pack files into shards
    tarkit show x-0.tar                             # look at samples
    tarkit check 'x-*.tar'                          # is anything wrong?
    tarkit shuffle 'x-*.tar' -c 1000 -o 'y-%d.tar'  # random order
    tarkit cat 'x-*.tar' --match ^cat/ -o cats.tar  # choose samples
    tarkit shuffle --help                           # its options

    An INPUT is a file, a directory (its archives), - for stdin, pipe:COMMAND, a quoted 'glob*.tar' or names in braces:
    'train-{000..099}.tar'. Several are read in order; the default is stdin. Compression with gz, zst, lz4, xz or bz2 is
    detected by the first bytes. Inputs are never changed.

    An OUTPUT is a file, - for stdout, or pipe:COMMAND. A suffix such as .tar.gz or .tar.zst compresses. A file is
    renamed into place when it is complete: after an error there is none. Where one file is written, a name that looks
    like a template for shards ({..}, %06d, @ and digits) is an error; file:NAME is literal.

    Both may be URLs: s3://BUCKET/NAME, gs://, az://, ais://, and as inputs http://, https:// and hf:// too. So may
    lists, plans, manifests and other files that options name. --help-all of a command lists the options about them.

    A problem in an archive ends the run with a message that ends in the name of the problem, such as [truncated];
    --allow and --skip with that name continue.
    """


def main() -> None:
    """Run the command line of this process and exit."""
    threading.excepthook = _end_thread
    status = run_words()
    # A thread may block on opening a FIFO; and to free all memory takes 10 % of a start. `sys.exit` calls what is
    # registered for the end of the process.
    if has_threads() or not atexit._ncallbacks():
        if sys.stdout is not None:  # it is None if it was closed before the start
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def _end_thread(ended: threading.ExceptHookArgs) -> None:
    """Print the error that has ended a thread; a limit of the system is one line."""
    limit = None if ended.exc_value is None else describe_limit(ended.exc_value)
    if limit is None:
        threading.__excepthook__(ended)
    else:
        say(*limit, "error")


def run_words(words: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return its exit status."""
    try:
        try:
            status = _status(words)
        finally:
            release_signals()
    except Interrupted as error:  # by a signal before a command begins, or after its end
        die(error.signum)
    except BaseException as error:
        if (limit := describe_limit(error)) is None:  # a bug: Python prints its traceback
            raise
        say(*limit, "error")
        status = 1
    return status


def run_in_copy(words: Sequence[str]) -> int:
    """Run a command line in a copy of this process, and return its exit status."""
    from tarkit.cli.console import share_terminal

    share_terminal(False)
    status = run_words(words)
    if sys.stdout is not None:
        sys.stdout.flush()
    return status


def _status(words: Sequence[str] | None) -> int:
    try:
        catch_signals()
        bytes(HEAP)
        reserve_standard_descriptors()
        group(words, prog_name="tarkit")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    finally:
        clean_up()
    return 1
