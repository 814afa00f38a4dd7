"""Globs over the objects of a store: `s3://bucket/train-*.tar`, `gs://bucket/**/*.tar`, a directory `az://container/x/`."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterator
from signal import SIGKILL
from typing import Any, TypeVar
from warnings import WarningMessage, catch_warnings, simplefilter

from tarkit.errors import TarkitError, warn
from tarkit.stores.connect import head_object, list_objects
from tarkit.stores.schemes import find_scheme, public_name
from tarkit.stores.store import Denied, StoreOptions
from tarkit.threads import has_threads

Result = TypeVar("Result")

_SPECIAL = re.compile(r"[*?[]")
_PIECES = re.compile(r"(\*\*/)|(\*\*)|(\*)|(\?)|\[(!?)([^\]/]+)\]")


def matching(pattern: str, options: StoreOptions | None = None) -> Iterator[str]:
    """Yield the URLs of the objects that a pattern matches, in the order of the store.

    `*`, `?` and `[...]` match within one component and no leading dot, `**` matches any number of directories, as in
    `glob`. Only names that begin like the pattern up to its first wildcard are requested.
    """
    special = _SPECIAL.search(pattern)
    matches = re.compile(_translate(pattern), re.DOTALL).fullmatch
    rest = pattern[special.start() :] if special else ""
    depth = None if "**" in rest else rest.count("/")
    known: set[str] = set()
    for info in list_objects(pattern[: special.start()] if special else pattern, options, depth):
        if matches(info.url):
            if info.url in known:
                if info.size == 0:  # what consoles make for a directory
                    continue
                raise slash_error(info.url)
            known.add(info.url)
            yield info.url


def named(pattern: str, options: StoreOptions | None = None) -> Iterator[str]:
    """Yield the URL of the object that has this very name, if there is one, else those that the pattern matches."""
    try:
        head_object(pattern, options)
    except (OSError, Denied):  # where objects may be listed, and not read
        yield from matching(pattern, options)
    else:
        yield pattern


def slash_error(url: str) -> TarkitError:
    """Return the error for a name that is in a list twice: the library leaves out slashes at the end of names."""
    what = f"{public_name(url)}: there is an object of this name with a slash at its end as well"
    return TarkitError(what, "the library does not tell them apart: remove that one, or name each object")


def beginning(prefix: str, options: StoreOptions | None = None) -> list[str]:
    """Return the URLs of the objects whose URLs begin with `prefix`."""
    return [info.url for info in list_objects(prefix, options)]


def children(directory: str, options: StoreOptions | None = None) -> Iterator[str]:
    """Yield the URLs of the objects directly in a directory, whose URL ends in a slash."""
    return matching(f"{_literal(directory)}*", options)


def _literal(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"[{found[0]}]", text)


def _translate(pattern: str) -> str:
    """Return the regular expression of a pattern."""
    parts, at = [], 0
    for found in _PIECES.finditer(pattern):
        begins = pattern[: found.start()].endswith("/")  # a component begins here
        parts.append(re.escape(pattern[at : found.start()]))
        directories, anything, star, one, negated, choice = found.groups()
        if directories:
            parts.append(r"(?:(?!\.)[^/]+/)*")
        elif anything:
            parts.append(".*")
        elif star or one:
            parts.append(("(?!\\.)" if begins else "") + ("[^/]*" if star else "[^/]"))
        else:
            chars = re.sub(r"([\\\[\]^&~|])", r"\\\1", choice)
            parts.append(f"[{'^/' if negated else ''}{chars}]")
        at = found.end()
    return "".join(parts) + re.escape(pattern[at:])


def in_child(url: str, work: Callable[[], Result]) -> Result:
    """Return what a function that reads `url` returns, called in a forked process if its library starts threads.

    A process with threads cannot be forked for the workers of `-p`. One that has threads calls the function itself.
    """
    scheme = find_scheme(url)
    if has_threads() or scheme is None or not scheme.threads:
        return work()  # and what it looked up, such as the commit of a revision, is still known
    found, result = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(work, result)
    os.close(result)
    try:
        with open(found, "rb") as pipe:
            data = pipe.read()
    except BaseException:
        os.kill(pid, SIGKILL)
        raise
    finally:
        os.waitpid(pid, 0)
    if not data:
        raise TarkitError("the process that reads objects ended early")
    answer: tuple[Result, Exception | None, list[str]] = pickle.loads(data)
    value, error, warnings = answer
    for text in warnings:
        warn(text)
    if error is not None:
        raise error
    return value


def _answer(work: Callable[[], Any], result: int) -> None:
    """Write the result, or the error, of a function to a pipe, with its warnings, and end the process."""
    value, error = None, None
    caught: list[WarningMessage] = []
    try:
        with catch_warnings(record=True) as caught:
            simplefilter("always")
            value = work()
    except (OSError, TarkitError) as failed:
        error = failed
    except BaseException as failed:
        error = TarkitError(f"{type(failed).__name__}: {failed}")
    with open(result, "wb") as pipe:
        pickle.dump((value, error, [str(each.message) for each in caught]), pipe)
    os._exit(0)
