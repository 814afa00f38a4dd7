"""Command lines of jobs: their steps of tarkit as click's parser finds them, and what these read and write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tarkit.cli.command import Option, long_name
from tarkit.errors import Usage
from tarkit.pipeline.template import epoch_names, parse_template, split_last, template_sign
from tarkit.streams.braces import expand_braces
from tarkit.streams.location import parse_output

if TYPE_CHECKING:
    from tarkit.options import Role
    from tarkit.pipeline.template import ShardTemplate
    from tarkit.stores.store import StoreOptions

READ: tuple[Role, ...] = ("file", "column", "inputs", "function", "map")
"""Roles of options whose values name what is read."""


class WrittenOption(NamedTuple):
    """An option as it stands on a command line; the word of a flag is empty."""

    param: Option
    word: str = ""

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return self.param.name or ""

    def words(self) -> list[str]:
        """Return the words of the option."""
        return [long_name(self.param)] if self.param.is_flag else [long_name(self.param), self.word]


@dataclass(frozen=True)
class TarkitStep:
    """A command of tarkit on a command line.

    Attributes:
        options: its options in their order.
        words: its other words.
        alone: whether it reaches URLs by its own options; else by those of this process.
    """

    command: click.Command
    options: Sequence[WrittenOption]
    words: Sequence[str]
    alone: bool = True

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.command.name or ""

    def values(self, name: str) -> list[str]:
        """Return the words of an option, by its parameter; there is none if it is not given."""
        return [option.word for option in self.options if option.name == name]

    def has(self, *names: str) -> bool:
        """Return whether one of these options is given."""
        return any(option.name in names for option in self.options)

    def takes(self, name: str) -> bool:
        """Return whether the command has a parameter."""
        return any(param.name == name for param in self.command.params)

    def filled(self, fill: Callable[[str], str]) -> TarkitStep:
        """Return the step with the values in place of placeholders."""
        options = [option._replace(word=fill(option.word)) for option in self.options]
        return replace(self, options=options, words=list(map(fill, self.words)))

    def outputs(self) -> Iterator[str]:
        """Yield the words that name outputs."""
        yield from (option.word for option in self.options if option.param.role == "output" and option.word)

    def inputs(self) -> Iterator[str]:
        """Yield the files and objects that its words name, before globs are expanded, and those that options read."""
        for word in self.words:
            names = [word] if os.path.lexists(word) else expand_braces(word)
            yield from (name for name in names if name != "-" and not name.startswith("pipe:"))
        for option in self.options:
            if option.param.role in READ:
                file = option.word.rpartition(":")[0]  # of FILE:COLUMN, FILE.py:FUNCTION or MODULE:FUNCTION
                yield from filter(os.path.isfile, (option.word, file, file.replace(".", "/") + ".py"))

    @property
    def writes_shards(self) -> bool:
        """Whether it writes shards wherever its output has a number."""
        return self.takes("size_rule") and self.has("count", "size", "epochs")

    def series(self) -> tuple[ShardTemplate, ...]:
        """Return the templates of the shards that it writes, and can replace; none if the step will fail."""
        if self.has("append") or not self.takes("force"):
            return ()
        names = [word for word in self.outputs() if self.writes_shards or is_series(word)]
        if self.name == "shard":
            from tarkit.packing.names import with_suffix

            names = [with_suffix(name) for name in names]
        templates: list[ShardTemplate] = []
        for name in names:
            try:
                epochs = [epoch_names(name, int(count)) for count in self.values("epochs")[-1:]]
                templates += map(parse_template, epochs[0] if epochs else [name])
            except (Usage, ValueError):
                pass
        return tuple(templates)

    @property
    def storage(self) -> StoreOptions | None:
        """How it reaches URLs."""
        from tarkit.stores.store import StoreOptions

        if not self.alone:
            return None
        values: dict[str, Any] = {
            option.name: option.param.is_flag or option.param.row.read(option.name, option.word)
            for option in self.options
            if option.param.section == "URLs"
        }
        try:
            return StoreOptions(**StoreOptions.by_parameter(values))
        except (ValueError, Usage):  # the step fails, and says why
            return StoreOptions()


def parse_step(command: click.Command, ctx: click.Context, args: Sequence[str]) -> TarkitStep:
    """Return the options of a command line and its other words; nothing is converted.

    Raises:
        click.UsageError: an option does not exist, or lacks its value.
    """
    values, _, order = command.make_parser(ctx).parse_args(args=list(args))
    words = {name: iter(value) for name, value in values.items() if isinstance(value, (list, tuple))}
    options = [
        WrittenOption(param) if param.is_flag else WrittenOption(param, next(words[param.name or ""]))
        for param in order
        if isinstance(param, Option)
    ]
    arguments = [values.get(param.name) for param in command.params if isinstance(param, click.Argument)]
    lists = [[each] if isinstance(each, str) else each for each in arguments if isinstance(each, (str, tuple, list))]
    return TarkitStep(command, options, [word for words in lists for word in words if isinstance(word, str)])


def is_series(word: str) -> bool:
    """Return whether the name of an output has the number of a shard."""
    return not word.startswith("file:") and template_sign(split_last(word)[1]) is not None


def known_outputs(words: Iterable[str]) -> tuple[str, ...]:
    """Return the files, directories and objects among the names of outputs; a series of shards is not known."""
    locations = (parse_output(word) for word in words if word and not is_series(word))
    return tuple(location.text for location in locations if location.kind in ("path", "url"))
