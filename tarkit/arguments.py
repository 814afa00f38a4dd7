"""Checks of arguments of the Python API: each raises an error that names the argument, before anything is read.

`check_...` takes the arguments by their names: `check_number(share=share)`. An argument of a wrong type is a TypeError,
a value that is out of range a Usage, as on the command line. The other functions return an argument in one form.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from math import isfinite
from typing import Any, ParamSpec, TypeVar, get_args

from tarkit.errors import Usage, spell, warn
from tarkit.sizes import EARLIEST, LARGEST, LATEST, LONGEST

Given = ParamSpec("Given")
Result = TypeVar("Result")


# How messages name a type, and whether a value has it.
_PLAIN: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", lambda value: hasattr(value, "__index__") and not isinstance(value, bool)),
    "float": ("a number", lambda value: hasattr(value, "__float__") and not isinstance(value, bool)),
    "bool": ("True or False", lambda value: type(value).__name__ in ("bool", "bool_")),
    "str": ("a str", lambda value: isinstance(value, (str, os.PathLike))),
    "None": ("None", lambda value: value is None),
}


def check_text(**arguments: str) -> None:
    """Raise TypeError for a value that is not a str."""
    _require("a str", lambda value: isinstance(value, str), arguments)


def check_path(**arguments: str | os.PathLike[str]) -> None:
    """Raise TypeError for a value that is neither a str nor an os.PathLike."""
    _require(*_PLAIN["str"], arguments)


def check_number(**arguments: float) -> None:
    """Raise TypeError for a value that is not a number, and Usage for NaN or infinity; a bool is not a number."""
    _require(*_PLAIN["float"], arguments)
    for name, value in arguments.items():
        if not isfinite(value):
            raise Usage(f"{spell(name, value)}: it is a finite number")


def check_whole(**arguments: int) -> None:
    """Raise TypeError for a value that is not a whole number; a bool is not."""
    _require(*_PLAIN["int"], arguments)


def check_function(**arguments: object) -> None:
    """Raise TypeError for a value that cannot be called."""
    _require("a function", callable, arguments)


def check_at_least(least: int, **arguments: int | None) -> None:
    """Raise TypeError for a value that is not a whole number, and Usage for one below `least` or above LARGEST.

    None is accepted.
    """
    for name, value in arguments.items():
        if value is not None:
            check_whole(**{name: value})
            if value < least:
                raise Usage(f"{spell(name, value)}: it is at least {least}")
            if value > LARGEST:
                raise Usage(f"{spell(name, value)}: it is at most {LARGEST}")


def check_duration(**arguments: float) -> None:
    """Raise TypeError for seconds that are not a number, and Usage for none, or more than LONGEST."""
    check_number(**arguments)
    for name, value in arguments.items():
        if not value > 0:
            raise Usage(f"{spell(name, value)}: it is more than 0 seconds")
        if value > LONGEST:
            raise Usage(f"{spell(name, value)}: it is at most {LONGEST} seconds")


def check_seconds(**arguments: int) -> None:
    """Raise TypeError for a time in seconds that is not a whole number, and Usage for one that no archive can have."""
    check_whole(**arguments)
    for name, value in arguments.items():
        if not EARLIEST <= value <= LATEST:
            raise Usage(f"{name}={value}: it is from {EARLIEST} to {LATEST} seconds since 1970, the years 1 to 9999")


def check_choice(name: str, value: object, choices: object) -> None:
    """Raise Usage for a value that is not one of the words of `choices`, a Literal."""
    if value not in get_args(choices):
        raise Usage(f"{spell(name, value)}: it is one of {', '.join(get_args(choices))}")


def list_words(value: str | Iterable[str], name: str = "") -> tuple[str, ...]:
    """Return the words of the argument `name`; a str is one word, not a list of its characters."""
    words = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    for word in words:
        if not isinstance(word, str):
            argument = f"{name}={value!r}: " if name else ""
            raise TypeError(f"{argument}a str or a list of str is needed, not {type(word).__name__}")
    return words


def flatten_words(arguments: Iterable[str | Iterable[str]], name: str) -> tuple[str, ...]:
    """Return the words of the arguments `*name`, each of which is a word or a list of words."""
    return tuple(word for argument in arguments for word in list_words(argument, name))


def split_names(value: str | Iterable[str], name: str = "") -> tuple[str, ...]:
    """Return the names of problems or fields in the argument `name`: commas separate them, as on the command line."""
    return tuple(part.strip() for word in list_words(value, name) for part in word.split(",") if part.strip())


def parse_processes(processes: int) -> int:
    """Return a number of processes: 0 is one per CPU. Raises TypeError or Usage for any other value."""
    from tarkit.machine import cpus  # 0.5 ms of a start

    check_at_least(0, processes=processes)
    return processes or cpus()


def parse_slice(shard_slice: slice | None) -> tuple[int, int | None, int] | None:
    """Return start, stop and step of a slice of samples; None for None.

    Raises:
        TypeError: it is no slice of whole numbers.
        Usage: it counts from the end, or backwards.
    """
    if shard_slice is None:
        return None
    if not isinstance(shard_slice, slice):
        raise TypeError(f"shard_slice={shard_slice!r}: a slice is needed, such as slice(0, 100)")
    start, stop, step = shard_slice.start, shard_slice.stop, shard_slice.step
    start, step = 0 if start is None else start, 1 if step is None else step
    check_whole(start=start, stop=start if stop is None else stop, step=step)
    if min(start, step - 1, start if stop is None else stop) < 0:
        raise Usage(f"{shard_slice}: a slice counts from the start, with a step of at least 1")
    check_at_least(0, start=start, stop=stop, step=step)
    return start, stop, step


def plain_types(annotations: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the types of the arguments that have plain ones: of `int | str | None`, int, str and None."""
    types = {name: tuple(annotation.split(" | ")) for name, annotation in annotations.items()}
    return {name: kinds for name, kinds in types.items() if _PLAIN.keys() >= set(kinds)}


def check_type(name: str, value: object, kinds: tuple[str, ...]) -> None:
    """Raise TypeError for the value of an argument that has none of its `plain_types`.

    Where a str is expected, a path passes: most are names of files. A number may be one of numpy, and True is none.
    """
    if not any(_PLAIN[kind][1](value) for kind in kinds):
        expected = " or ".join(_PLAIN[kind][0] for kind in kinds if kind != "None")
        _require(expected, lambda value: False, {name: value})


def checks_types(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function of the Python API: an argument that has not its plain type is a TypeError."""
    types = plain_types(function.__annotations__)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]

    @wraps(function)
    def checked(*args: Given.args, **arguments: Given.kwargs) -> Result:
        for name, value in (*zip(names, args, strict=False), *arguments.items()):
            if name in types:
                check_type(name, value, types[name])
        return function(*args, **arguments)

    return checked


def suggest_arguments(called: str, **names: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Return a decorator for a function, `called` so, for users of another package.

    Args:
        called: the name of the function in the message.
        names: arguments that others call so, each with its name here. Giving one is a TypeError that says so.
    """

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(function)
        def checked(*args: Given.args, **arguments: Given.kwargs) -> Result:
            for name in arguments.keys() & names.keys():
                raise TypeError(f"{called}() got an unexpected keyword argument {name!r}: it is {names[name]}=")
            return function(*args, **arguments)

        return checked

    return decorate


def ask_for_buffer(shuffle: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a method whose first argument is a seed: warn of one that looks like the size of a buffer."""
    buffers = {"bufsize": "size", "buffer_size": "size"}

    @wraps(shuffle)
    def asking(*args: Given.args, **arguments: Given.kwargs) -> Result:
        for name in arguments.keys() & buffers.keys():
            message = f"shuffle() got an unexpected keyword argument {name!r}"
            raise TypeError(f"{message}: a buffer is buffer_shuffle(size, seed), where it is {buffers[name]}=")
        seed = args[1] if len(args) > 1 else None
        if isinstance(seed, int) and seed >= 100 and (seed % 100 == 0 or seed & (seed - 1) == 0):
            warn(
                f"shuffle({seed}) shuffles all samples with the seed {seed}; is a buffer of {seed} samples meant? "
                f"That is buffer_shuffle({seed}, seed=...), and shuffle(seed={seed}) is for the seed"
            )
        return shuffle(*args, **arguments)

    return asking


def _require(expected: str, fits: Callable[[object], bool], arguments: Mapping[str, object]) -> None:
    """Raise TypeError for the first value that does not fit; `expected` says expected is needed."""
    for name, value in arguments.items():
        if not fits(value):
            raise TypeError(f"{name}={value!r}: {expected} is needed, not {type(value).__name__}")
