"""Options, each declared once: a row of a class of options.

A row says how the option is written on the command line, what its help is, and which values it takes. From the rows
follow the options of the command (`cli.options.rows`), and the checks of values, which are the same for a command and
for Python. A function of the Python API that takes such a class has an argument of the same name and default for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self, dataclass_transform, get_args

from tarkit.arguments import (
    check_at_least,
    check_duration,
    check_number,
    check_type,
    check_whole,
    list_words,
    plain_types,
)
from tarkit.errors import Usage, spell

Role = Literal["", "output", "side", "file", "column", "inputs", "function", "map"]
"""What a value names. Files that are written: an output, or a file besides it (`side`). What is read: a file; a file or
`FILE:COLUMN`; inputs; a function of Python; a map, which is a file or JSON."""

Names = Literal["fields", "values", "where"]
"""What a value names in the data: fields; fields, paths into JSON and sizes; an expression of these."""

_NONE = re.compile(r"\b(None|Any)\b")  # in the type of an option that may be None


class OptionRow:
    """An option: how it is written, its help, and its values.

    Args:
        section: the section of the help.
        names: as they are on the command line; first the one in messages.
        help: one line.
        more: further help, of `--help-all` and the manual page.
        metavar: the word for the value.
        detail: whether only these list it.
        default: that of its value. A bool makes the option a flag, which gives the other one.
        required: whether the command line must have it.
        type: int or float, for any such number; or a function that reads another word for one, and raises Usage.
        complete: returns the words to which a shell may complete a word; or which names of the data it takes.
        many: it may be given several times; so it is with the default ().
        words: with `many`, whether values are words; Python may give something else otherwise.
        split: on the command line a value is a list of words, which blanks or commas separate.
        at_least: it is a whole number, and not less.
        hint: what to do about a value on the command line that is no number, or out of range.
        seconds: it is a time, more than 0.
        choices: a Literal, or words: it is one of these words.
        aliases: what words of the command line stand for: those of other tools, or choices that are no words in Python.
        role: what its value names: jobs compare what a command line reads, and tell which outputs it writes.
        parse: called with a value that is not None; returns the attribute, or raises Usage.
    """

    def __init__(
        self,
        section: str,
        *names: str,
        help: str,
        more: str = "",
        metavar: str | None = None,
        detail: bool = False,
        default: Any = None,
        many: bool = False,
        words: bool = True,
        split: bool = False,
        required: bool = False,
        type: Callable[[str], Any] | None = None,
        complete: Callable[..., Any] | Names | None = None,
        at_least: int | None = None,
        hint: str | None = None,
        seconds: bool = False,
        choices: Any = (),
        aliases: Mapping[str, Any] = {},
        role: Role = "",
        parse: Callable[[Any], Any] | None = None,
    ) -> None:
        self.section = section
        self.names = names
        self.help = help
        self.more = more
        self.metavar = metavar
        self.detail = detail
        self.default = default
        self.many = many or default == ()
        self.words = words
        self.split = split
        self.required = required
        self.type = type or (int if at_least is not None else float if seconds else None)
        self.complete = complete
        self.at_least = at_least
        self.hint = hint
        self.seconds = seconds
        self.choices: tuple[str, ...] = choices if isinstance(choices, tuple) else get_args(choices)
        self.aliases = aliases
        self.role = role
        self.parse = parse

    @property
    def parameter(self) -> str:
        """Its name for click: that of the first long option."""
        name = next(name for name in self.names if name.startswith("--"))
        return name[2:].partition("/")[0].replace("-", "_")

    @property
    def flag(self) -> bool:
        """Whether it takes no value."""
        return isinstance(self.default, bool) and not self.choices

    def read(self, name: str, word: str) -> Any:
        """Return the value of a word of the command line. Raises Usage."""
        if self.choices:
            if word not in self.choices and word not in self.aliases:
                raise Usage(f"{spell(name, word)}: it is one of {', '.join(self.choices)}")
            return self.aliases.get(word, word)
        if self.split:
            return word.replace(",", " ").split()
        if self.type is None:
            return word
        try:
            value = self.type(word)
            self.check(name, value)
        except ValueError:
            kind = "whole number" if self.type is int else "number"
            raise Usage(f"{spell(name, word)}: a {kind} is needed", self.hint) from None
        except Usage as error:
            error.hint = error.hint or self.hint
            raise
        return value

    def check(self, name: str, value: Any) -> None:
        """Raise Usage or TypeError for a value of the option `name` that it does not take."""
        if self.at_least is not None:
            check_at_least(self.at_least, **{name: value})
        elif self.seconds:
            check_duration(**{name: value})
        elif self.type is not None:
            (check_number if self.type is float else check_whole)(**{name: value})
        if self.choices and value not in (values := [self.aliases.get(word, word) for word in self.choices]):
            raise Usage(f"{spell(name, value)}: it is one of {', '.join(map(str, values))}")

    def accept(self, name: str, value: Any) -> Any:
        """Return the attribute for a value of the option `name`. Raises Usage or TypeError."""
        if value is None:
            return None
        if self.many and self.words:
            value = list_words(value, name)
        self.check(name, value)
        return value if self.parse is None else self.parse(value)


def row(section: str, *names: str, **settings: Any) -> Any:
    """Return an `OptionRow`, for an attribute of a class of options."""
    return OptionRow(section, *names, **settings)


@dataclass_transform(kw_only_default=True)
class Options:
    """The options of a verb. A subclass has a row for each, or a plain default for an argument of Python alone. Its
    rows come before those of its base.

    Raises:
        Usage: a value is invalid, or some do not go together.
        TypeError: a value has the wrong type.
    """

    rows: ClassVar[dict[str, OptionRow]] = {}
    defaults: ClassVar[dict[str, Any]] = {}
    never_none: ClassVar[frozenset[str]] = frozenset()  # options whose value is not None, by their type
    types: ClassVar[dict[str, tuple[str, ...]]] = {}  # those of options that have plain ones

    def __init_subclass__(cls) -> None:
        declared = {name: vars(cls)[name] for name in cls.__annotations__ if name in vars(cls)}
        cls.rows = {name: value for name, value in declared.items() if isinstance(value, OptionRow)} | cls.rows
        defaults = {name: value.default if isinstance(value, OptionRow) else value for name, value in declared.items()}
        cls.defaults = cls.defaults | defaults
        cls.types = cls.types | plain_types({name: cls.__annotations__[name] for name in declared})
        cls.never_none = cls.never_none - declared.keys() | {
            name
            for name in declared
            if not isinstance(defaults[name], bool | None) and not _NONE.search(cls.__annotations__[name])
        }

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - self.defaults.keys():
            raise TypeError(f"{type(self).__name__} has no options {', '.join(sorted(unknown))}")
        vars(self).update(self.defaults, **values)
        for name in self.never_none:
            if getattr(self, name) is None:
                raise TypeError(f"{self.argument(name)}=None: without it the default is {self.defaults[name]!r}")
        for name, kinds in self.types.items():
            if (value := getattr(self, name)) is not self.defaults[name]:
                check_type(self.argument(name), value, kinds)
        for name, row in self.rows.items():
            setattr(self, name, row.accept(self.argument(name), getattr(self, name)))
        self.check()

    def argument(self, name: str) -> str:
        """Return how Python gives an option."""
        return name

    def check(self) -> None:
        """Raise Usage for options that do not go together; set the values derived from them."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the options among the arguments of a function, which are its `locals()` at the start."""
        return cls(**{name: arguments[name] for name in cls.defaults if name in arguments})

    @classmethod
    def by_parameter(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options among values that have the names of the command line, such as `net_retries`."""
        return {name: values[row.parameter] for name, row in cls.rows.items() if row.parameter in values}

    def replace(self, **changes: Any) -> Self:
        """Return the same options with other values of some."""
        return type(self)(**{name: getattr(self, name) for name in self.defaults} | changes)

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of options that have not their default."""
        return tuple(name for name, default in self.defaults.items() if getattr(self, name) != default)
