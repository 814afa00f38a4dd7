"""tarkit each: one command line for each of many values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tarkit.cli import options
from tarkit.cli.command import Command, common
from tarkit.cli.jobs import given_options, make_job, run_values
from tarkit.cli.lines import TarkitStep, known_outputs, parse_step
from tarkit.cli.words import no_command
from tarkit.errors import Usage, show
from tarkit.jobs.options import JobOptions
from tarkit.pipeline.run import check_tmpdir
from tarkit.stores.schemes import public_name, scheme_of

if TYPE_CHECKING:
    from tarkit.cli.emit import ValueWords
    from tarkit.jobs.job import ValueJob
    from tarkit.jobs.values import Value

EXAMPLES = (
    "tarkit each '{000..099}' -- sort in-{}.tar -o out-{}.tar",
    "tarkit each 'raw/*.tar' -- cat {} -f jpg + split -o 's/{stem}-%03d.tar'",
    "tarkit each -T names --journal j --resume -- curl -fO https://host/{}",
)
COST = (
    "One pass over the values. Each job is a process of its own, for a command of tarkit a copy of this one. Memory "
    "grows with -j, by 100 bytes for each value, and with --resume by 150 bytes for each line of the journal. What "
    "jobs write to stdout is kept in temporary space until its turn."
)


class EachCommand(Command):
    """A command whose words after `--` are a command line."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += common(JobOptions)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set aside the words after `--`."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["tarkit.line"] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the pieces of the usage line."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


@click.command(cls=EachCommand, examples=EXAMPLES, cost=COST)
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@options.FILES_FROM
@options.null("Values in LIST end with NUL, and are not expanded.")
@options.json("An object on a line for each job that has ended.")
def each(values: tuple[str, ...], files_from: tuple[str, ...], null: bool, as_json: bool) -> None:
    """Run a command line for each of many values, in parallel.

    A VALUE is a word, 'name-{000..099}.tar' or a quoted 'glob*', also of URLs. In COMMAND, {} is the value, {name} the
    last component of its path, {stem} that without .tar and the like, {dir} its directory below the one that all
    values have in common, {index:05d} its number from 0. {{ and }} are braces.

    COMMAND is a command of tarkit, or any other program. Several steps, joined by a lone +, are piped. It runs without
    a shell: bash -c 'wc -c < "$1"' - {} is one with a shell.

    \f
    Ranges and lists such as {000..099} and {a,b} in COMMAND are left to it. A program that has the name of a command of
    tarkit is run by its path, or by env: env sort {}.

    Each line that a job writes to stderr is printed after its value. What a job writes to stdout is printed when it has
    succeeded, in the order of the values. The first step has an empty stdin. A job fails if a step ends with another
    status than 0. What a step leaves running in its process group is ended with it.

    --json prints the same of each attempt, and at last a summary; with it, and with --report -, what jobs write to
    stdout goes to stderr.

    --journal records each job: value, command, start, seconds, status, samples, bytes, attempt, host. --resume leaves
    out what is done. A job is done again if its command line has changed, or a file or object that it reads or writes:
    of commands of tarkit their inputs and outputs, and files such as those of --keys-from and --map, of other programs
    the words with placeholders that name files. URLs of other programs are not requested. What cannot be compared, such
    as pipe:COMMAND, is done again. Shards that an attempt left which did not end are replaced.

    At the end a table has the jobs that failed, and the command that repeats each. The exit status is 1 if one failed.
    """
    from tarkit.jobs.values import expand_values

    ctx = click.get_current_context()
    options = given_options(ctx)
    line: list[str] = ctx.meta["tarkit.line"]
    if not line:
        raise Usage("the command line is missing", "it follows --: tarkit each '{0..9}' -- COMMAND...")
    if not values and not files_from:
        raise Usage("there are no values", "tarkit each '{0..9}' -- COMMAND, or -T LIST")
    texts = expand_values(values, files_from, null)
    template = _LineTemplate(ctx, line)
    template.check(texts)

    def words() -> ValueWords:
        from tarkit.cli.emit import ValueWords

        return ValueWords(values, files_from, null, texts, partial(expand_values, nul=null), after=["--", *line])

    run_values(ctx, options, texts, template.job, words, as_json)


class _LineTemplate:
    """A command line with placeholders."""

    def __init__(self, ctx: click.Context, line: Sequence[str]) -> None:
        self.lines = [_completed(words) for words in _steps(line)]
        self.steps = [_parsed(ctx, words) if words[0] == "tarkit" else None for words in self.lines]
        # words of other programs that may name files
        self.named = [word for words in self.lines if words[0] != "tarkit" for word in words if "{" in word]

    def check(self, texts: Sequence[str]) -> None:
        """Raise an error for unknown placeholders, a --tmpdir that is missing, and an output of two jobs."""
        from tarkit.jobs.values import fill, is_unique, make_values

        for value in make_values(texts[:1]):
            self.job(value)
        for word in (word for step in self.steps if step is not None for word in step.values("tmpdir")):
            if "{" not in word:
                check_tmpdir(word)
        outputs = [word for step in self.steps if step is not None for word in step.outputs()]
        if not outputs or (len(outputs) == 1 and is_unique(outputs[0])):
            return
        seen: dict[str, str] = {}
        for value in make_values(texts):
            for word in known_outputs([fill(word, value) for word in outputs]):
                if not scheme_of(word) and os.path.exists(word) and not os.path.isfile(word):
                    continue  # a directory or a device
                if word in seen and seen[word] != value.text:
                    raise Usage(
                        f"{show(seen[word])} and {show(value.text)} would write one output: {public_name(word)}",
                        "give its name a placeholder, such as {}",
                    )
                seen[word] = value.text

    def job(self, value: Value) -> ValueJob:
        from tarkit.jobs.values import fill

        def filled(word: str) -> str:
            return fill(word, value)

        steps = [None if step is None else step.filled(filled) for step in self.steps]
        lines = (map(filled, words) for words in self.lines)
        return make_job(value, lines, steps, self._files(value, list(map(filled, self.named))))

    def _files(self, value: Value, words: Sequence[str]) -> list[str]:
        """Return the paths that words of other programs may name: the value too. URLs are not looked at."""
        words = [word.removeprefix("file:") for word in words]
        named = [each for word in words if not scheme_of(word) for each in (word, word.partition("=")[2])]
        named += [value.text] if any("{}" in word for word in self.named) else []
        return list(dict.fromkeys(each for each in named if each and not scheme_of(each)))


def _parsed(ctx: click.Context, words: Sequence[str]) -> TarkitStep | None:
    """Return a step of tarkit, None if it has no command. Raises a usage error for unknown options."""
    root: Any = ctx.find_root()
    words = words[1:] or [""]
    _, rest, _ = root.command.make_parser(root).parse_args(list(words))
    if not rest:
        return None
    name, before = rest[0], words[: len(words) - len(rest)]
    command = root.command.get_command(ctx, name)
    if command is None:
        raise no_command(name, root.command.list_commands(ctx)) if name else Usage("the step is empty")
    if name == "each":
        return TarkitStep(command, [], [])
    return parse_step(command, click.Context(command, info_name=name, parent=root), [*before, *rest[1:]])


def _steps(line: Sequence[str]) -> list[list[str]]:
    """Split a command line at each lone `+`. Raises Usage for an empty step."""
    steps: list[list[str]] = [[]]
    for word in line:
        if word == "+":
            steps.append([])
        else:
            steps[-1].append(word)
    if not all(steps):
        raise Usage("there is no step before or after a +", "steps are joined as in: cat {} + split -o '{stem}-%d.tar'")
    return steps


def _completed(words: list[str]) -> list[str]:
    """Return the words of a step, which begin with `tarkit` if it is a command of tarkit."""
    group: Any = click.get_current_context().find_root().command
    known = words[0] in group.list_commands(click.get_current_context())
    return ["tarkit", *words] if known else words
