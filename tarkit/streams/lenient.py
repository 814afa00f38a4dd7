"""Inputs of which some may be missing: for who wants to hear of all that are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tarkit.errors import TarkitError, Usage, show
from tarkit.stores import schemes
from tarkit.streams import braces
from tarkit.streams.location import STDIN, Location, expand_inputs, list_name, read_list


def expand_each(words: Sequence[str], files_from: Sequence[str] = (), nul: bool = False) -> list[Location]:
    """What `expand_inputs` makes of them, but a path that is not there stands for itself, also one of a word in braces.

    Raises as that, but for missing paths: `TarkitError` for a folder or a pattern without archives.
    """
    if not words and not files_from:
        return expand_inputs(())
    found = [location for word in words for location in _each(word)]
    for name in files_from:
        shown = list_name(name)
        for number, word in read_list(name, shown, nul):
            try:
                found += [_path(word)] if nul else _each(word)
            except TarkitError as error:
                raise type(error)(f"{shown}:{number}: {error}", error.hint) from error
    if sum(location == STDIN for location in found) + list(files_from).count("-") > 1:
        raise Usage("stdin is named more than once")
    return found


def _each(word: str) -> Iterator[Location]:
    try:
        yield from expand_inputs([word])
        return
    except Usage:
        raise
    except TarkitError:
        path = word.removeprefix("file:")
        if os.path.isdir(path) or word.startswith("pipe:") or schemes.scheme_of(word):
            raise
        names = [path] if path != word else braces.expand(word)
        if len(names) == 1 and any(char in path for char in "*?[") and path == word:
            raise
    if len(names) == 1:
        yield _path(names[0])
    else:
        for name in names:
            yield from _each(name)


def _path(text: str) -> Location:
    return Location("path", text, text if text.isprintable() else show(text))
