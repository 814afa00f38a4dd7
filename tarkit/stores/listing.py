"""Globs over the objects of a store: `s3://bucket/train-*.tar`, `gs://bucket/**/*.tar`, a directory `az://container/x/`."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from signal import SIGKILL
from typing import Any, TypeVar
from warnings import WarningMessage, catch_warnings, simplefilter

from tarkit.errors import TarkitError, warn
from tarkit.stores.connect import head_object, list_objects
from tarkit.stores.schemes import find_scheme, public_name
from tarkit.stores.store import Denied, StoreOptions
from tarkit.threads import has_native_threads, has_threads

Result = TypeVar("Result")

_SPECIAL = re.compile(r"[*?[]")
_PIECES = re.compile(r"(\*\*/)|(\*\*)|(\*)|(\?)|\[(!?)([^\]/]+)\]")


def all_matching(pattern: str, options: StoreOptions | None = None) -> list[str]:
    """Return the URLs of the objects that a pattern names, or of those directly in a directory."""
    return list(children(pattern, options) if pattern.endswith("/") else named(pattern, options))


def matching(pattern: str, options: StoreOptions | None = None) -> Iterator[str]:
    """Yield the URLs of the objects that a pattern matches, in the order of the store.

    `*`, `?` and `[...]` match within one component and no leading dot, `**` matches any number of directories, as in
    `glob`. Only names that begin like the pattern up to its first wildcard are requested.
    """
    special = _SPECIAL.search(pattern)
    matches = re.compile(_translate(pattern), re.DOTALL).fullmatch
    rest = pattern[special.start() :] if special else ""
    depth = None if "**" in rest else rest.count("/")
    seen: set[str] = set()
    for info in list_objects(pattern[: special.start()] if special else pattern, options, depth):
        if matches(info.url):
            if info.url in seen:
                if info.size == 0:  # objects that consoles make for a directory
                    continue
                raise slash_error(info.url)
            seen.add(info.url)
            yield info.url


def named(pattern: str, options: StoreOptions | None = None) -> Iterator[str]:
    """Yield the URL of the object of exactly this name, if it exists, else the URLs that the pattern matches."""
    try:
        head_object(pattern, options)
    except (OSError, Denied):  # where objects may be listed, and not read
        yield from matching(pattern, options)
    else:
        yield pattern


def slash_error(url: str) -> TarkitError:
    """Return the error for a name that is in a list twice: the library leaves out slashes at the end of names."""
    message = f"{public_name(url)}: there is an object of this name with a slash at its end as well"
    return TarkitError(message, "the library does not tell them apart: remove that one, or name each object")


def children(directory: str, options: StoreOptions | None = None) -> Iterator[str]:
    """Yield the URLs of the objects directly in a directory, whose URL ends in a slash."""
    from glob import escape

    return matching(f"{escape(directory)}*", options)


def _translate(pattern: str) -> str:
    parts, at = [], 0
    for match in _PIECES.finditer(pattern):
        begins = pattern[: match.start()].endswith("/")  # a component begins here
        parts.append(re.escape(pattern[at : match.start()]))
        directories, anything, star, one, negated, choice = match.groups()
        if directories:
            parts.append(r"(?:(?!\.)[^/]+/)*")
        elif anything:
            parts.append(".*")
        elif star or one:
            parts.append(("(?!\\.)" if begins else "") + ("[^/]*" if star else "[^/]"))
        else:
            chars = re.sub(r"([\\\[\]^&~|])", r"\\\1", choice)
            parts.append(f"[{'^/' if negated else ''}{chars}]")
        at = match.end()
    return "".join(parts) + re.escape(pattern[at:])


def in_child(url: str, work: Callable[[], Result]) -> Result:
    """Return the result of a function that reads `url`, in a process of its own if its library starts threads."""
    scheme = find_scheme(url)
    if scheme is None or not scheme.threads:
        return work()  # and its results, such as the commit of a revision, are still cached
    return without_threads(work)


def without_threads(work: Callable[[], Result], library: str = "obstore") -> Result:
    """Return the result of a function for which a library starts threads, in a process of its own.

    A process with threads cannot be forked for the workers of `-p`, or of a DataLoader. One that has those of the
    library calls the function itself; one that has others starts a new interpreter, if the function can be pickled.
    """
    if has_native_threads(library):
        return work()
    source, result = os.pipe()
    started = has_threads()
    pid = _start(work, result) if started else os.fork()
    if not pid and not started:
        _answer(work, result)
    os.close(result)
    try:
        with open(source, "rb") as pipe:
            data = pipe.read()
    except BaseException:
        if pid:
            os.kill(pid, SIGKILL)
        raise
    finally:
        if pid:
            os.waitpid(pid, 0)
    if not data and started:  # or there is something in the function that the other interpreter cannot have
        return work()
    if not data:
        raise TarkitError("the process that reads objects ended early")
    answer: tuple[Result, Exception | None, list[str]] = pickle.loads(data)
    value, error, warnings = answer
    for text in warnings:
        warn(text)
    if error is not None:
        raise error
    return value


def _start(work: Callable[[], Any], result: int) -> int:
    """Start an interpreter that calls a function and writes the result; return its number, 0 if it cannot do that."""
    try:
        call = pickle.dumps(work)
    except Exception:  # it has a function of the user that has no name
        return 0
    if b"__main__" in call:  # which is another module there
        return 0
    begin, send = os.pipe()
    code = f"import sys; sys.path[:] = {sys.path!r}; from tarkit.stores.listing import answer; answer()"
    moved = [(os.POSIX_SPAWN_DUP2, begin, 0), (os.POSIX_SPAWN_DUP2, result, 1)]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ, file_actions=moved)
    os.close(begin)
    with open(send, "wb") as pipe, suppress(BrokenPipeError):
        pipe.write(call)
    return pid


def answer() -> None:
    """Call the function that stdin has, and write its result to stdout; what it prints goes to stderr."""
    result = os.dup(1)
    os.dup2(2, 1)
    with open(0, "rb") as pipe:
        try:
            work = pickle.load(pipe)
        except Exception:  # a module of the user that cannot be imported here
            os._exit(1)
    _answer(work, result)


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
        pickle.dump((value, error, [str(warning.message) for warning in caught]), pipe)
    os._exit(0)
