"""Options of a verb, each declared once: a row of its class of options.

A row says how the option is written on the command line, what its help is, and which values it takes. From the rows
follow the options of the command (`cli.options.rows`) and the checks of values, which are the same for a command and
for Python. A function of the Python API has an argument of the same name and default for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self, dataclass_transform, get_args

from tarkit.arguments import check_at_least, check_duration, list_words
from tarkit.errors import Usage

Role = Literal["", "output", "side", "file", "column", "inputs", "function", "map"]
"""What a value names. Files that are written: an output, or a file besides it (`side`). What is read: a file; a file or
`FILE:COLUMN`; inputs; a function of Python; a map, which is a file or JSON."""


class OptionRow:
    """An option: how it is written, its help, and its values.

    Args:
        section: the section of the help.
        names: as they are on the command line; first the one in messages.
        help: one line.
        more: further help, of `--help-all` and the manual page.
        metavar: the word for the value.
        detail: whether only these list it.
        default: that of its value; False for a flag.
        required: whether the command line must have it.
        type: that of its value on the command line, if it is neither text nor follows from the other arguments.
        complete: returns the words to which a shell may complete a word.
        many: it may be given several times; so it is with the default ().
        words: with `many`, whether values are words; Python may give something else otherwise.
        at_least: it is a whole number, and not less.
        seconds: it is a time, more than 0.
        choices: a Literal, or words: it is one of these words.
        aliases: words that the command line takes too, and what they stand for.
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
        required: bool = False,
        type: type[Any] | None = None,
        complete: Callable[..., Any] | None = None,
        at_least: int | None = None,
        seconds: bool = False,
        choices: Any = (),
        aliases: Mapping[str, str] = {},
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
        self.required = required
        self.type = type
        self.complete = complete
        self.at_least = at_least
        self.seconds = seconds
        self.choices: tuple[str, ...] = choices if isinstance(choices, tuple) else get_args(choices)
        self.aliases = aliases
        self.role = role
        self.parse = parse

    @property
    def parameter(self) -> str:
        """Its name for click: that of the first long option."""
        return next(name for name in self.names if name.startswith("--"))[2:].replace("-", "_")

    def accept(self, name: str, value: Any) -> Any:
        """Return the value of the option `name`; raise Usage or TypeError for one that it does not take."""
        if value is None:
            return None
        if self.many and self.words:
            value = list_words(value, name)
        if self.at_least is not None:
            check_at_least(self.at_least, **{name: value})
        if self.seconds:
            check_duration(**{name: value})
        if self.choices and value not in self.choices and not isinstance(self.default, bool):
            raise Usage(f"{name}={value!r}: it is one of {', '.join(self.choices)}")
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

    def __init_subclass__(cls) -> None:
        declared = {name: vars(cls)[name] for name in cls.__annotations__ if name in vars(cls)}
        cls.rows = {name: value for name, value in declared.items() if isinstance(value, OptionRow)} | cls.rows
        defaults = {name: value.default if isinstance(value, OptionRow) else value for name, value in declared.items()}
        cls.defaults = cls.defaults | defaults

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - self.defaults.keys():
            raise TypeError(f"{type(self).__name__} has no options {', '.join(sorted(unknown))}")
        vars(self).update(self.defaults, **values)
        for name, row in self.rows.items():
            setattr(self, name, row.accept(name, getattr(self, name)))
        self.check()

    def check(self) -> None:
        """Raise Usage for options that do not go together; set the values derived from them."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the options among the arguments of a function, which are its `locals()` at the start."""
        return cls(**{name: arguments[name] for name in cls.defaults if name in arguments})

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of options that have not their default."""
        return tuple(name for name, default in self.defaults.items() if getattr(self, name) != default)
