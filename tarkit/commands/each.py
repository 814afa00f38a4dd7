"""tarkit each: one command line for each of many values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tarkit.cli import options
from tarkit.cli.command import Command
from tarkit.cli.jobs import JobOptions, job_options, run_all
from tarkit.cli.map import files_read, known_outputs, templates, written_options
from tarkit.errors import Usage, show
from tarkit.pipeline.template import split_last, template_sign
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.streams.location import expand_braces

if TYPE_CHECKING:
    from tarkit.cli.reads import Reads
    from tarkit.jobs.job import ValueJob
    from tarkit.jobs.journal import FileStates
    from tarkit.jobs.values import Value
    from tarkit.pipeline.template import ShardTemplate

EXAMPLES = (
    "tarkit each '{000..099}' -- sort in-{}.tar -o out-{}.tar",
    "tarkit each 'raw/*.tar' -- cat {} -f jpg + split -o 's/{stem}-%03d.tar'",
    "tarkit each -T names --journal j --resume -- curl -fO https://host/{}",
)
COST = (
    "One pass over the values. A job of a command of tarkit is a copy of this process, which takes 10 ms to start; "
    "others are new processes. Memory grows with -j, by 100 bytes for each value, and with --resume by 150 bytes "
    "for each line of the journal. What jobs write to stdout is kept in temporary space until its turn."
)
OUTPUTS = ("output", "template", "directory", "fix", "rejects")  # parameters that name outputs


class EachCommand(Command):
    """A command whose words after `--` are a command line."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += job_options()

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
def each(values: tuple[str, ...], files_from: tuple[str, ...], null: bool) -> None:
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

    --journal records each job: value, command, start, seconds, status, samples, bytes, attempt, host. --resume leaves
    out what is done. A job is done again if its command line has changed, or a file or object that it reads or writes:
    of commands of tarkit their inputs and outputs, and files such as those of --keys-from and --map, of other programs
    the words with placeholders that name files. URLs of other programs are not requested. What cannot be compared, such
    as pipe:COMMAND, is done again. Shards that an attempt left which did not end are replaced.

    At the end a table has the jobs that failed, and the command that repeats each. The exit status is 1 if one failed.
    """
    from tarkit.jobs.values import expand_values, make_values

    ctx = click.get_current_context()
    given = JobOptions.given(ctx)
    line: list[str] = ctx.meta["tarkit.line"]
    if not line:
        raise Usage("the command line is missing", "it follows --: tarkit each '{0..9}' -- COMMAND...")
    if not values and not files_from:
        raise Usage("there are no values", "tarkit each '{0..9}' -- COMMAND, or -T LIST")
    texts = expand_values(values, files_from, null)
    template = _LineTemplate(ctx, line)
    template.check(texts)
    if given.emit is not None:
        from tarkit.cli.emit import ValueWords, emit

        def expand(words: Sequence[str], lists: Sequence[str]) -> list[str]:
            return expand_values(words, lists, null)

        inputs = ValueWords(values, files_from, null, texts, expand)
        emit(ctx, given, inputs, [], ["--", *line], map(template.job, make_values(texts)))
        return
    part = given.part()
    run_all(map(template.job, make_values(texts, part)), len(range(len(texts))[part]), given)


class _LineTemplate:
    """A command line with placeholders."""

    def __init__(self, ctx: click.Context, line: Sequence[str]) -> None:
        self.steps = [_completed(words) for words in _steps(line)]
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.named: list[str] = []  # words of other programs that may name files
        self.read: list[str] = []
        self.reads: list[Reads] = []
        self.nested = False  # whether a step runs jobs of its own, of which nothing is known
        self.last: dict[str, str] = {}  # the options of the last step, if it can replace shards
        for step in self.steps:
            if step[0] == "tarkit":
                self._look(ctx, step[1:])
            else:
                self.named += [word for word in step if "{" in word]
                self.last = {}

    def _look(self, ctx: click.Context, words: Sequence[str]) -> None:
        """Take note of the inputs and outputs of a command of tarkit. Raises a usage error for unknown options."""
        from tarkit.cli.reads import READ, step_reads

        self.last = {}
        group: Any = ctx.find_root().command
        name = words[0] if words else ""
        command = group.get_command(ctx, name) if not name.startswith("-") else None
        if command is None:
            if not name.startswith("-"):
                raise Usage(f"tarkit {name}: there is no such command" if name else "the step is empty")
            return
        inner = click.Context(command, info_name=name, parent=ctx.find_root())
        if name == "each":
            self.nested = True
            return
        written, rest = written_options(command, inner, words[1:])
        self.reads.append(step_reads(command, written, rest))
        self.inputs += rest
        outputs = [each for each in OUTPUTS if each != "directory" or name == "extract"]
        self.outputs += [option.word for option in written if option.word and option.param.name in outputs]
        self.read += [option.word for option in written if option.word and option.param.name in READ]
        given = {option.param.name or "": option.word or "" for option in written}
        if name == "shard":
            given.setdefault("ext", "tar")
        if "append" not in given and "force" in {each.name for each in command.params}:
            self.last = given

    def check(self, texts: Sequence[str]) -> None:
        """Raise Usage for unknown placeholders, and for an output that two jobs would write."""
        from tarkit.jobs.values import fill, is_unique, make_values

        for value in make_values(texts[:1]):
            self.job(value)
        outputs = self.outputs
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
        """Return the job for a value."""
        from tarkit.jobs.job import ValueJob
        from tarkit.jobs.values import fill

        steps = tuple(tuple(fill(word, value) for word in step) for step in self.steps)
        inputs = [name for word in self.inputs for name in expand_braces(fill(word, value))]
        known = [name for name in inputs if name != "-" and not name.startswith("pipe:")]
        known += files_read(fill(word, value) for word in self.read)
        outputs = known_outputs([fill(word, value) for word in self.outputs])
        return ValueJob(
            value,
            steps,
            tuple(known),
            (*outputs, *self._files(value)),
            partial(self._states, value),
            self.reads[-1].storage if self.reads else None,
            self._series(value),
        )

    def _states(self, value: Value) -> FileStates:
        """Return the states of what the steps of tarkit read."""
        from tarkit.jobs.journal import UNKNOWN
        from tarkit.jobs.values import fill

        found: FileStates = {"each": UNKNOWN} if self.nested else {}
        for reads in self.reads:
            found |= reads.states(lambda word: fill(word, value))
        return found

    def _files(self, value: Value) -> list[str]:
        """Return the paths that words of other programs may name: the value too. URLs are not looked at."""
        from tarkit.jobs.values import fill

        words = [fill(word, value) for word in self.named]
        named = [each for word in words if not scheme_of(word) for each in (word, word.partition("=")[2])]
        named += [value.text] if any("{}" in word for word in self.named) else []
        return list(dict.fromkeys(each for each in named if each and not scheme_of(each)))

    def _series(self, value: Value) -> tuple[ShardTemplate, ...]:
        from tarkit.jobs.values import fill

        outputs = (fill(word, value) for name, word in self.last.items() if name in OUTPUTS)
        found = [word for word in outputs if template_sign(split_last(word)[1]) is not None]
        if (suffix := self.last.get("ext")) is not None:
            from tarkit.packing.tree_names import with_suffix

            found = [with_suffix(word, f".{suffix.removeprefix('.')}") for word in found]
        return tuple(each for word in found for each in templates(word, self.last))


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
