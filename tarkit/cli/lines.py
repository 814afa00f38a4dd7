"""Command lines of jobs: their steps of tarkit as click's parser finds them, and what these read and write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tarkit.cli.command import long_name, store_settings
from tarkit.errors import Usage
from tarkit.pipeline.template import epoch_names, parse_template, split_last, template_sign
from tarkit.streams.braces import expand_braces
from tarkit.streams.location import parse_output

if TYPE_CHECKING:
    from tarkit.pipeline.template import ShardTemplate
    from tarkit.stores.store import StoreOptions

OUTPUTS = ("output", "template", "directory", "fix", "rejects")  # parameters that name outputs
FILES = ("classes", "manifest", "order_file")
"""Parameters of options that name a file that is read; `manifest` is one in `check` alone."""
COLUMNS = ("against", "join", "keys_from")
"""Those that name a file, or `FILE:COLUMN`."""
INPUTS = ("same_as",)
"""Those that name inputs."""
FUNCTIONS = ("init", "map_")
"""Those that name a function of Python."""
MAPS = ("map",)
"""Those that name a file, or are JSON."""
READ = (*FILES, *COLUMNS, *INPUTS, *FUNCTIONS, *MAPS)


class WrittenOption(NamedTuple):
    """An option as it stands on a command line: its parameter, and its word, None for a flag."""

    param: click.Option
    word: str | None
    flag: Any = None

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return self.param.name or ""

    def words(self) -> list[str]:
        """Return the words of the option."""
        if self.word is None:
            negative = self.flag is False and self.param.secondary_opts
            return [self.param.secondary_opts[0] if negative else long_name(self.param)]
        return [long_name(self.param), self.word]


class TarkitStep(NamedTuple):
    """A command of tarkit with its options in their order, and its other words."""

    command: click.Command
    options: Sequence[WrittenOption]
    words: Sequence[str]

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.command.name or ""

    def filled(self, fill: Callable[[str], str]) -> TarkitStep:
        """Return the step with the values in place of placeholders."""
        options = [each._replace(word=None if each.word is None else fill(each.word)) for each in self.options]
        return TarkitStep(self.command, options, [fill(word) for word in self.words])

    def given(self) -> dict[str, str]:
        """Return the words of its options, by parameter; "" for a flag."""
        return {each.name: each.word or "" for each in self.options}

    def outputs(self) -> Iterator[str]:
        """Yield the words that name outputs."""
        for option in self.options:
            if option.word and option.name in OUTPUTS and (option.name != "directory" or self.name == "extract"):
                yield option.word

    def inputs(self) -> Iterator[str]:
        """Yield the files and objects that its words name, before globs are expanded, and those that options read."""
        for word in self.words:
            names = [word] if os.path.lexists(word) else expand_braces(word)
            yield from (name for name in names if name != "-" and not name.startswith("pipe:"))
        for option in self.options:
            if option.name in READ and (word := option.word or ""):
                file = word.rpartition(":")[0]  # of FILE:COLUMN, FILE.py:FUNCTION or MODULE:FUNCTION
                yield from filter(os.path.isfile, (word, file, file.replace(".", "/") + ".py"))

    def series(self) -> tuple[ShardTemplate, ...]:
        """Return the templates of the shards that it writes, and can replace."""
        given = self.given()
        params = {each.name for each in self.command.params}
        if "append" in given or "force" not in params:
            return ()
        counted = "size_rule" in params and not given.keys().isdisjoint(("count", "size", "epochs"))
        words = [word for word in self.outputs() if counted or is_series(word)]
        if self.name == "shard":
            from tarkit.packing.names import with_suffix

            words = [with_suffix(word) for word in words]
        return tuple(template for word in words for template in _templates(word, given))

    def storage(self) -> StoreOptions:
        """Return how it reaches URLs, by its options."""
        from tarkit.stores.store import StoreOptions

        values: dict[str, Any] = {each.name: True if each.word is None else each.word for each in self.options}
        try:
            return StoreOptions(**store_settings(values))
        except (ValueError, Usage):  # the step fails, and says why
            return StoreOptions()


def parse_step(command: click.Command, ctx: click.Context, args: Sequence[str]) -> TarkitStep:
    """Return the options of a command line and its other words; nothing is converted.

    Raises:
        click.UsageError: an option does not exist, or lacks its value.
    """
    values, _, order = command.make_parser(ctx).parse_args(args=list(args))
    left = {name: list(value) if isinstance(value, (list, tuple)) else value for name, value in values.items()}
    options = []
    for param in order:
        if isinstance(param, click.Option):
            value = left[param.name or ""]
            if param.is_flag or param.count:
                options.append(WrittenOption(param, None, value))
            else:
                options.append(WrittenOption(param, value.pop(0)))
    arguments = [values.get(each.name) for each in command.params if isinstance(each, click.Argument)]
    lists = [[each] if isinstance(each, str) else each for each in arguments if isinstance(each, (str, tuple, list))]
    return TarkitStep(command, options, [word for words in lists for word in words if isinstance(word, str)])


class LineFiles(NamedTuple):
    """What the steps of a job read and write: fields of its `ValueJob`."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    series: tuple[ShardTemplate, ...]


def files_of(steps: Sequence[TarkitStep], last: TarkitStep | None) -> LineFiles:
    """Return what steps read and write; `last` is the last step of the job, if it is one of tarkit."""
    inputs = (name for step in steps for name in step.inputs())
    outputs = (word for step in steps for word in step.outputs())
    return LineFiles(tuple(inputs), known_outputs(outputs), () if last is None else last.series())


def is_series(word: str) -> bool:
    """Return whether the name of an output has the number of a shard."""
    return not word.startswith("file:") and template_sign(split_last(word)[1]) is not None


def known_outputs(words: Iterable[str]) -> tuple[str, ...]:
    """Return the files, directories and objects among the names of outputs; a series of shards is not known."""
    locations = (parse_output(word) for word in words if word and not is_series(word))
    return tuple(location.text for location in locations if location.kind in ("path", "url"))


def _templates(output: str, given: Mapping[str, Any]) -> tuple[ShardTemplate, ...]:
    try:
        names = epoch_names(output, int(given["epochs"])) if given.get("epochs") else [output]
        return tuple(parse_template(name) for name in names)
    except (Usage, ValueError):
        return ()  # the job will fail, and say why
