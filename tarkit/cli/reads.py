"""What a command line of tarkit reads, as the journal of a run compares it: the files and objects that its words name.

Inputs are expanded as the command expands them: globs, lists, directories, recipes and the descriptions of mixes. No
command of the user is run. What cannot be compared, such as the output of `pipe:COMMAND`, is unknown.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder, all_suffixes
from typing import Any

from tarkit.cli.lines import READ, TarkitStep, WrittenOption
from tarkit.jobs.journal import UNKNOWN, FileStates, location_states, tree_states
from tarkit.proc.loader import is_file, split_spec
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location, expand_inputs, file_location
from tarkit.streams.text import split_column

CLASSES = "classes.txt"  # beside an archive: what `--classes` is by default


def states_of(steps: Sequence[TarkitStep]) -> FileStates:
    """Return the states of all that steps read."""
    states: FileStates = {}
    for step in steps:
        if step.name == "each":  # its jobs are not known
            states["each"] = UNKNOWN
            continue
        storage = step.storage
        states |= _of_command(step, storage)
        for option in step.options:
            if option.param.role in READ:
                states |= _of_option(option, storage)
    return states


def _of_option(option: WrittenOption, storage: StoreOptions | None) -> FileStates:
    role, word = option.param.role, option.word
    if role == "function":
        return _function_states(word)
    if role == "inputs":
        return location_states(expand_inputs([word], options=storage, missing="all"), storage)
    if role == "column":
        word = split_column(word)[0]
    if role == "map" and word.lstrip().startswith("{") and not os.path.lexists(word):
        return {}
    return location_states([file_location(word)], storage) if word else {}


def _of_command(step: TarkitStep, storage: StoreOptions | None) -> FileStates:
    if step.name in _OWN_INPUTS:
        return _OWN_INPUTS[step.name](step, storage)
    words = step.words[1:] if step.name == "get" and not step.has("field") else step.words
    lists = step.values("files_from")
    if step.has("load"):
        words, lists = (), [*words, *lists]
    if not step.takes("words") or (step.name == "check" and step.has("manifest") and not words and not lists):
        return {} if step.name == "completion" else {step.name: UNKNOWN}
    for name in lists:
        listed = file_location(name)
        if listed.kind not in ("path", "url"):
            return {listed.name: UNKNOWN}
    locations = expand_inputs(words, lists, step.has("null"), options=storage)
    beside: list[Location] = []
    if step.takes("classes") and not step.has("classes"):
        places = dict.fromkeys(os.path.dirname(location.text) for location in locations if location.kind == "path")
        beside = [Location("path", path, path) for path in (os.path.join(place, CLASSES) for place in places)]
    return location_states(beside, None) | location_states(locations, storage)


def _recipe_states(step: TarkitStep, storage: StoreOptions | None) -> FileStates:
    from tarkit.packing.create import CreateOptions, recipe_rows

    recipe = file_location(step.words[0] if step.words else "-")
    if recipe.kind not in ("path", "url"):
        return {recipe.name: UNKNOWN} if recipe.kind != "stdin" else {}
    given: dict[str, Any] = {option.name: option.word for option in step.options}
    columns = given["columns"].replace(",", " ").split() if "columns" in given else None
    chosen = CreateOptions(format=given.get("format"), columns=columns, key=given.get("key"), pipes=True)
    chosen.storage = storage
    states = location_states([recipe], storage)
    if chosen.format == "parquet":  # contents are in it
        return states
    sources = []
    for row in recipe_rows(step.words[0], chosen):
        value = os.fsdecode(row.value)
        if row.kind == "path":
            path = os.path.join(given.get("directory", ""), value)
            sources.append(Location("path", path, path))
        elif row.kind != "data":
            sources.append(Location(row.kind, value, value))
    return states | location_states(sources, storage)


def _mix_states(step: TarkitStep, storage: StoreOptions | None) -> FileStates:
    from tarkit.mixing.mixer import locate
    from tarkit.mixing.spec import parse_mix

    described = [file_location(word) for word in step.words if word.startswith("pipe:")]
    if described:  # a source, or a description: a command in any case
        return {each.name: UNKNOWN for each in described}
    spec = parse_mix(step.words, options=storage)
    found = {} if spec.path is None else location_states([file_location(spec.path)], storage)
    for source in spec.sources:
        found |= location_states(locate(source, lambda line: None, storage), storage)
    return found


_OWN_INPUTS: dict[str, Callable[[TarkitStep, StoreOptions | None], FileStates]] = {
    "create": _recipe_states,
    "mix": _mix_states,
    "shard": lambda step, storage: tree_states(step.words[0], storage) if step.words else {"shard": UNKNOWN},
}
"""Commands whose words are no archives."""


# ---- Functions of Python


def _function_states(spec: str) -> FileStates:
    """Return the state of the file of a function, and of the modules below its directory, or here, that it imports."""
    try:
        where, _ = split_spec(spec)
    except ValueError:
        return {}
    here = os.getcwd()
    if is_file(where):
        path = os.path.realpath(where)
        places, todo = [os.path.dirname(path), here], [path]
    else:
        places = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        todo = _module_files(where, places) or _installed(where)
    files = dict.fromkeys(todo)
    while todo:
        path = todo.pop()
        for level, name in _imports_of(path):
            above = os.path.normpath(os.path.join(path, *[os.pardir] * level))
            new = [file for file in _module_files(name, [above] if level else places) if file not in files]
            files |= dict.fromkeys(new)
            todo += new
    return location_states([Location("path", file, file) for file in files], None)


def _imports_of(path: str) -> tuple[tuple[int, str], ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return _imports(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1024)
def _imports(path: str, changed: int, size: int) -> tuple[tuple[int, str], ...]:
    """Return the modules that a file imports, with the number of dots before each name; none if it is not Python."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            names.append((node.level, start))
            names += [(node.level, f"{start}.{alias.name}".strip(".")) for alias in node.names]
    return tuple(dict.fromkeys(names))


def _module_files(name: str, places: Sequence[str]) -> list[str]:
    """Return the files of a module, and of the packages that it is in, in the first of these places that has it."""
    parts = name.split(".") if name else ["__init__"]
    paths = ([os.path.join(place, *parts[: depth + 1]) for depth in range(len(parts))] for place in places)
    return next(filter(None, ([file for path in each for file in _files_at(path)] for each in paths)), [])


def _files_at(path: str) -> Iterator[str]:
    starts = (path, os.path.join(path, "__init__"))
    return filter(os.path.isfile, (f"{start}{suffix}" for start in starts for suffix in all_suffixes()))


def _installed(name: str) -> list[str]:
    """Return the file of an installed module, by the name of its outermost package."""
    spec = PathFinder.find_spec(name.partition(".")[0])
    return [spec.origin] if spec is not None and spec.origin and os.path.isfile(spec.origin) else []
