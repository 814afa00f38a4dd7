"""The user's function, in the process that calls it: found, called with samples, its answers checked.

A sample is a dict of field -> bytes, with its key as `__key__`. What the function hands back is a dict of this form, an
iterable of such dicts, or None for no sample. Names of the form `__x__` are not for fields. With `decode` the values
are those of `tarkit.media.coding`, without it bytes or str.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType, TracebackType
from typing import Any

from tarkit.errors import MissingLibrary, TarkitError, show

KEY = "__key__"
TAIL = 2000  # bytes of a traceback that are kept

Field = tuple[str, bytes]
Made = tuple[str, list[tuple[str, bytes | None]]]  # a key, and fields; None: what the input has under this name


class Rubbish(Exception):
    """What the function handed back cannot be a sample; says what it did: `handed back an int`."""


def split_spec(spec: str) -> tuple[str, str]:
    """MODULE and FUNCTION, or FILE.py and FUNCTION; raises ValueError for what is not of this form."""
    where, _, name = spec.rpartition(":")
    if not where or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(spec)
    return where, name


def is_file(where: str) -> bool:
    """Whether this is the path of a file rather than the name of a module."""
    return where.endswith(".py") or "/" in where


class FunctionLoader:
    """Finds functions. A file is executed once, however many functions of it are asked for."""

    def __init__(self) -> None:
        self._files: dict[str, ModuleType] = {}

    def __call__(self, spec: str) -> Callable[..., Any]:
        """The function that `MODULE:FUNCTION` or `FILE.py:FUNCTION` names; raises TarkitError in one line."""
        where, name = split_spec(spec)
        try:
            found: Any = self._file(where) if is_file(where) else self._module(where)
        except TarkitError:
            raise
        except BaseException as error:
            raise TarkitError(f"{where} cannot be imported: {in_words(error)}") from error
        for part in name.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise TarkitError(f"{where} has no {name}") from None
        if not callable(found):
            raise TarkitError(f"{spec} is {_a(found)}, not a function")
        function: Callable[..., Any] = found
        return function

    def _file(self, path: str) -> ModuleType:
        path = os.path.realpath(path)
        if path not in self._files:
            if not os.path.exists(path):
                raise TarkitError(f"{path}: there is no such file")
            sys.path.insert(0, os.path.dirname(path))
            name = os.path.splitext(os.path.basename(path))[0]
            if name in sys.modules:  # a library is in use under this name
                name = f"tarkit_map_{name}"
            spec = spec_from_file_location(name, path)
            if spec is None or spec.loader is None:
                raise TarkitError(f"{path} is no Python file")
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
                    f"there is no module {error.name}, in this folder or where Python looks",
                    "a file is named with its suffix: FILE.py:FUNCTION",
                ) from None
            raise


class FunctionCaller:
    """Calls the function. `coder`, if there is one, decodes what it gets and encodes what it hands back."""

    def __init__(self, function: Callable[..., Any], coder: Any = None) -> None:
        self.function = function
        self.coder = coder

    def one(self, key: str, fields: list[Field]) -> list[Made]:
        """The samples that the function makes of one. Raises Rubbish, and whatever the function does."""
        sample, raw, encode = self._sample(key, fields)
        return _made(self.function(sample), key, raw, encode)

    def many(self, samples: list[tuple[str, list[Field]]]) -> list[list[Made] | Rubbish]:
        """The same for a batch: a list goes in, and one of the same length comes back.

        Each item is what a call with that sample alone may hand back. Raises Rubbish for what is no such list.
        """
        given = [self._sample(*each) for each in samples]
        returned = self.function([sample for sample, _, _ in given])
        if isinstance(returned, Mapping) or not _iterable(returned):
            raise Rubbish(f"handed back {_a(returned)} for a batch, not a list")
        done: list[list[Made] | Rubbish] = []
        for item in returned:
            if len(done) < len(given):
                (key, _), (_, raw, encode) = samples[len(done)], given[len(done)]
                try:
                    done.append(_made(item, key, raw, encode))
                except Rubbish as error:
                    done.append(error)
            else:
                raise Rubbish(f"handed back more items than the batch of {len(given)} has")
        if len(done) < len(given):
            raise Rubbish(f"handed back {len(done)} items for a batch of {len(given)}")
        return done

    def _sample(
        self, key: str, fields: list[Field]
    ) -> tuple[dict[str, Any], dict[str, bytes], Callable[[str, Any], bytes]]:
        raw = dict(fields)
        if self.coder is None:
            return {KEY: key, **raw}, raw, _plain
        from tarkit.media.coding import Coded

        try:
            coded = Coded(self.coder, raw)
        except MissingLibrary:
            raise
        except TarkitError as error:
            raise Rubbish(str(error)) from None
        return {KEY: key, **coded.values}, raw, coded.encode


def _made(returned: Any, key: str, raw: dict[str, bytes], encode: Callable[[str, Any], bytes]) -> list[Made]:
    """What the function handed back for one sample, item by item as a generator makes them."""
    if returned is None:
        return []
    if isinstance(returned, Mapping):
        return [_one(returned, key, raw, encode)]
    if not _iterable(returned):
        raise Rubbish(f"handed back {_a(returned)}, not a dict, several dicts or None")
    made: dict[str, Made] = {}
    for item in returned:
        if not isinstance(item, Mapping):
            raise Rubbish(f"handed back {_a(item)} among several, not a dict")
        one = _one(item, key, raw, encode)
        if made.setdefault(one[0], one) is not one:
            raise Rubbish(f"handed back two samples with the key {show(one[0])}: set another {KEY} for each")
    return list(made.values())


def _one(item: Mapping[Any, Any], key: str, raw: dict[str, bytes], encode: Callable[[str, Any], bytes]) -> Made:
    fields: list[tuple[str, bytes | None]] = []
    for field, value in item.items():
        if field == KEY:
            if type(value) is not str:
                raise Rubbish(f"handed back {_a(value)} as {KEY}, not a str")
            key = value
            continue
        known = raw.get(field)
        if value is known and known is not None:
            fields.append((field, None))
            continue
        if known is None:
            _check_field(field)
        try:
            data = encode(field, value)
        except MissingLibrary:
            raise
        except TarkitError as error:
            raise Rubbish(f"{error} ({error.hint})" if error.hint else str(error)) from None
        fields.append((field, None if data is known else data))
    if not fields:
        raise Rubbish("handed back a sample without any field; for no sample it is None")
    return key, fields


def _check_field(field: Any) -> None:
    if not isinstance(field, str):
        raise Rubbish(f"handed back a field whose name is {_a(field)}, not a str")
    if not field or "/" in field or "\0" in field:
        raise Rubbish(f"handed back a field named {show(field)}, which cannot be one")
    if field.startswith("__") and field.endswith("__"):
        raise Rubbish(f"handed back a field named {show(field)}; of such names there is {KEY} alone")


def _plain(field: str, value: Any) -> bytes:
    """The bytes of a value without --decode."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise Rubbish(f"field {show(field)}: {error}") from None
    what = f"field {show(field)} is {_a(value)}, not bytes or str"
    raise Rubbish(what if value is None else f"{what}; --decode encodes other values by the name of the field")


def _iterable(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _a(value: object) -> str:
    """What a value is, for a message."""
    return "None" if value is None else f"{'an' if type(value).__name__[:1] in 'aeiou' else 'a'} {type(value).__name__}"


def in_words(error: BaseException) -> str:
    """What the user's code raised, and where in it, on one line."""
    text = " ".join(str(error).split())[:500]
    if isinstance(error, SyntaxError) and error.filename:
        return f"SyntaxError in {os.path.basename(error.filename)}, line {error.lineno}: {error.msg}"
    return f"{kind_of(error)}{': ' if text else ''}{text}"


def kind_of(error: BaseException) -> str:
    """The type of what the user's code raised, and where in it."""
    places: list[tuple[str, int]] = []
    trace = error.__traceback__
    while trace is not None:
        if not _is_ours(trace):
            places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    own = [line for name, line in places if name == places[0][0]]  # the last one in the user's own file
    return (
        f"{type(error).__name__} in {os.path.basename(places[0][0])}, line {own[-1]}" if own else type(error).__name__
    )


def tail_of(error: BaseException) -> bytes:
    """The last lines of the traceback of the user's code, without frames of ours."""
    import traceback

    own = error.__traceback__
    while own is not None and _is_ours(own):
        own = own.tb_next
    text = "".join(traceback.format_exception(type(error), error, own))
    lines = [line for line in text.splitlines(keepends=True) if line.strip(" ~^\n")]
    data = b""
    for line in reversed(lines):
        raw = line.encode("utf-8", "backslashreplace")
        if len(data) + len(raw) > TAIL:
            return data or raw[-TAIL:]
        data = raw + data
    return data


def _is_ours(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_code.co_filename
    return name.startswith((_OURS, "<frozen importlib")) or name == importlib.__file__


_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
