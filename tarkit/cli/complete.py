"""Completion from data: fields, values and keys that are in the archives which a command line names.

Regular files alone are read, of this machine: their indexes for keys, else their first samples. It takes LIMIT seconds
at most, prints nothing but words, and gives no words where something fails. Without inputs on the line, the archives
of the working directory are read.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete, split_arg_string

from tarkit.errors import TarkitError

LIMIT = 0.1  # seconds
FIRST = 100  # samples whose fields are offered
MOST = 1000  # keys that are offered
SMALL = 1 << 16  # bytes of a JSON document
LARGE = 1 << 24  # bytes of an index that is not read
DEEP = 3  # levels of paths into JSON

_PLAIN = re.compile(r"[\w./+@%,-]+")  # needs no quotes in a shell
_STEP = re.compile(r"[^\W0-9]\w*")  # may follow a dot in a path
_line: list[str] = []  # the words of the command line, with that which is completed, as far as the shell tells


class _OutOfTime(BaseException):
    """The time for a completion is over."""


class _Bash(BashComplete):
    """Completion for bash, which puts a newline between words; a word may be empty."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words = [" ".join(split_arg_string(word)) for word in os.environ["COMP_WORDS"].split("\n")]
        return _noted(words, int(os.environ["COMP_CWORD"]))


class _Zsh(ZshComplete):
    """Completion for zsh."""

    def get_completion_args(self) -> tuple[list[str], str]:
        return _noted(split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"]))


class _Fish(FishComplete):
    """Completion for fish, which passes the words up to the cursor."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return _noted(["", *args, incomplete], len(args) + 1)


def _noted(words: list[str], at: int) -> tuple[list[str], str]:
    """Return the words before the one that is completed, and that word; keep the line."""
    incomplete = "".join(words[at : at + 1])
    _line[:] = [*words[1:at], incomplete, *words[at + 1 :]]
    return words[1:at], incomplete


SHELLS = (_Bash, _Zsh, _Fish)


def complete_names(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem[str]]:
    """Return the words for the value of an option.

    Args:
        kind: what the option takes: `fields`, names of fields; `values`, also paths into JSON; `where`, an expression.
        incomplete: the word so far, of which the last name is completed.
    """
    head, tail = _split(kind, incomplete)
    names = _in_time(lambda: _names(_inputs(ctx), paths=kind != "fields"))
    fitting = [head + name for name in names if name.startswith(tail) and (head or _PLAIN.fullmatch(name))]
    if kind == "where" and len(fitting) == 1:
        fitting.append(f"{fitting[0]} ==")  # so that the shell does not end the word
    return list(map(CompletionItem, fitting))


def complete_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the words for KEY or KEY.FIELD of `get`; behind it and with -f they are names of files."""
    if ctx.params.get("words") or ctx.params.get("field") is not None:
        return [CompletionItem(incomplete, type="file")]
    fields: dict[str, list[str]] = {}

    def keys() -> Iterator[str]:
        for key, names in _keys(_inputs(ctx, skip=1)):
            if key.startswith(incomplete) or incomplete.startswith(f"{key}."):
                fields[key] = names
                yield key

    found = [key for key in _in_time(lambda: islice(keys(), MOST)) if _PLAIN.fullmatch(key)]
    if len(found) == 1:
        found += [f"{found[0]}.{name}" for name in fields[found[0]] if _PLAIN.fullmatch(name)]
    return [CompletionItem(word) for word in found if word.startswith(incomplete)]


def _split(kind: str, text: str) -> tuple[str, str]:
    """Return what stays of a word, and the beginning of the name at its end."""
    from tarkit.samples.properties import PROPERTIES

    if kind == "where":
        at = len(text) - len((re.search(r"[^\W0-9][\w.]*$", text) or [""])[0])
    else:
        at = max(map(text.rfind, " ,:;=|")) + 1
    for function in ("has.", *(f"{word}." for word in PROPERTIES)) if kind != "fields" else ():
        at += len(function) if text.startswith(function, at) else 0
    return text[:at], text[at:]


def _in_time(words: Callable[[], Iterator[str]]) -> list[str]:
    """Return different words, as many as there are in time, in their order."""
    found: dict[str, None] = {}

    def end(number: int, frame: object) -> None:
        raise _OutOfTime

    signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        for word in words():
            found[word] = None
    except (_OutOfTime, Exception):  # a shell shows what is printed amid the line
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return list(found)


def _inputs(ctx: click.Context, skip: int = 0) -> Iterator[str]:
    """Yield paths of the archives that the command line names, without its first `skip` words."""
    from tarkit.stores.schemes import scheme_of
    from tarkit.streams.location import expand_inputs

    root = ctx.find_root()
    _, rest, _ = root.command.make_parser(root).parse_args(list(_line))
    values, _, _ = ctx.command.make_parser(ctx).parse_args(list(rest[1:]))
    given = values.get("words")
    words = list(given)[skip:] if isinstance(given, (tuple, list)) else []
    for word in filter(None, words) if any(words) else ["."]:
        path = os.path.expanduser(word)
        if scheme_of(path) or path.startswith(("pipe:", "-")):
            continue
        try:
            locations = expand_inputs((path,), (), False)
        except TarkitError:
            continue
        yield from (each.text for each in locations if each.kind == "path" and os.path.isfile(each.text))


def _samples(path: str) -> Iterator[Any]:
    """Yield the samples of an archive; what is wrong with it is passed over."""
    from tarkit.dataset import open as open_archives

    with open_archives(f"file:{path}", skip="all", on_problem=lambda message: None) as data:
        yield from data


def _names(archives: Iterator[str], paths: bool) -> Iterator[str]:
    """Yield the fields of the first samples, and `paths` into their JSON."""
    import json

    for path in archives:
        for sample in islice(_samples(path), FIRST):
            for field in sample:
                yield field
                if paths and f".{field}".endswith(".json"):
                    data = sample[field]
                    yield from _steps(field, json.loads(data) if len(data) <= SMALL else None)


def _steps(name: str, value: object, level: int = 0) -> Iterator[str]:
    """Yield the paths into a value of JSON."""
    for step in value if isinstance(value, dict) and level < DEEP else ():
        if _STEP.fullmatch(step):
            yield f"{name}.{step}"
            yield from _steps(f"{name}.{step}", value[step], level + 1)  # type: ignore[index]


def _keys(archives: Iterator[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the keys of samples with their fields, from an index if there is one, not older than its archive."""
    from tarkit.indexing.formats import LAYOUTS, index_path

    for path in archives:
        for format in ("tsv", "dali"):
            index = index_path(format, path)
            if not os.path.isfile(index) or os.path.getmtime(index) < os.path.getmtime(path):
                continue
            if os.path.getsize(index) <= LARGE:
                with open(index, "rb") as file:
                    for key, fields in LAYOUTS[format].decode(file.read()):
                        yield os.fsdecode(key), [os.fsdecode(field.name) for field in fields]
                break
        else:
            yield from ((sample.key, list(sample)) for sample in _samples(path))
