"""Functions by their names, MODULE:FUNCTION or FILE.py:FUNCTION, and messages about their exceptions."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from tarkit.errors import TarkitError, show
from tarkit.proc.job import TAIL
from tarkit.samples.names import FieldDict


def split_spec(spec: str) -> tuple[str, str]:
    """Split MODULE:FUNCTION or FILE.py:FUNCTION. Raises TarkitError for another form."""
    where, _, name = spec.rpartition(":")
    if not where or not all(part.isidentifier() for part in name.split(".")):
        hint = "names are package.module:function or file.py:function"
        raise TarkitError(f"{show(spec)} is not the name of a function", hint)
    return where, name


def is_file(where: str) -> bool:
    """Return whether this is the path of a file rather than the name of a module."""
    return where.endswith(".py") or "/" in where


class FunctionLoader:
    """Finds functions by name. A file is executed once, for all of its functions."""

    def __init__(self) -> None:
        self._files: dict[str, ModuleType] = {}

    def __call__(self, spec: str) -> Callable[..., Any]:
        """Return the function that `MODULE:FUNCTION` or `FILE.py:FUNCTION` names. Raises TarkitError, in one line."""
        where, name = split_spec(spec)
        try:
            value: Any = self._file(where) if is_file(where) else self._module(where)
        except TarkitError:
            raise
        except BaseException as error:
            raise TarkitError(f"{where} cannot be imported: {in_words(error)}") from error
        for part in name.split("."):
            try:
                value = getattr(value, part)
            except AttributeError:
                raise TarkitError(f"{where} has no {name}") from None
        if not callable(value):
            raise TarkitError(f"{spec} is {type_with_article(value)}, not a function")
        function: Callable[..., Any] = value
        return function

    def _file(self, path: str) -> ModuleType:
        path = os.path.realpath(path)
        if path not in self._files:
            if not os.path.exists(path):
                raise TarkitError(f"{path}: no such file")
            sys.path.insert(0, os.path.dirname(path))
            name = os.path.splitext(os.path.basename(path))[0]
            if name in sys.modules:  # a library of this name is loaded
                name = f"tarkit_map_{name}"
            spec = spec_from_file_location(name, path)
            if spec is None or spec.loader is None:
                raise TarkitError(f"{path} is not a Python file")
            module = sys.modules[name] = self._files[path] = module_from_spec(spec)
            spec.loader.exec_module(module)
        return self._files[path]

    def _module(self, name: str) -> ModuleType:
        here = os.getcwd()
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and f"{name}.".startswith(f"{error.name}."):
                raise TarkitError(
                    f"no module {error.name} in the current directory or on Python's path",
                    "name a file with its suffix: FILE.py:FUNCTION",
                ) from None
            raise


# ---- Exceptions of the user's code


def in_words(error: BaseException) -> str:
    """Return what the user's code raised, and where, on one line."""
    text = " ".join(str(error).split())[:500]
    if isinstance(error, SyntaxError) and error.filename:
        return f"SyntaxError in {os.path.basename(error.filename)}, line {error.lineno}: {error.msg}"
    return f"{kind_of(error)}{': ' if text else ''}{text}"


def kind_of(error: BaseException) -> str:
    """Return the type of what the user's code raised, and where."""
    places: list[tuple[str, int]] = []
    trace = error.__traceback__
    while trace is not None:
        if not _is_ours(trace.tb_frame.f_code.co_filename):
            places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    own = [line for name, line in places if name == places[0][0]]  # the last frame in the user's own file
    return (
        f"{type(error).__name__} in {os.path.basename(places[0][0])}, line {own[-1]}" if own else type(error).__name__
    )


def tail_of(error: BaseException) -> bytes:
    """Return the last lines of the traceback of the user's code, without frames of tarkit."""
    import traceback

    own = error.__traceback__
    while own is not None and _is_ours(own.tb_frame.f_code.co_filename):
        own = own.tb_next
    trace = traceback.TracebackException(type(error), error, own)
    while trace.stack and _is_ours(trace.stack[-1].filename):  # what the user's code called
        trace.stack.pop()
    text = "".join(trace.format())
    lines = [line for line in text.splitlines(keepends=True) if line.strip(" ~^\n")]
    data = b""
    for line in reversed(lines):
        raw = line.encode("utf-8", "backslashreplace")
        if len(data) + len(raw) > TAIL:
            return data or raw[-TAIL:]
        data = raw + data
    return data


def _is_ours(name: str) -> bool:
    return name.startswith((_OURS, "<frozen importlib")) or name == importlib.__file__


_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep


def type_with_article(value: object) -> str:
    """Return the type of a value with its article, for a message."""
    name = "dict" if isinstance(value, FieldDict) else type(value).__name__
    return "None" if value is None else f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
