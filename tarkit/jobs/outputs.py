"""The outputs of jobs that have one input each: their names, and checks of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from tarkit.errors import Usage, show, spell
from tarkit.jobs import SIGNS
from tarkit.jobs.values import Value, before_placeholders, fill_name
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.streams.location import Location


def check_outputs(template: str, jobs: Sequence[tuple[Value, Location]]) -> None:
    """Raise Usage for outputs that cannot be written, before a job begins.

    The directory before the first placeholder does not exist; an input has no name; two inputs have one output; an
    output is an input.
    """
    if not scheme_of(template):
        above = os.path.dirname(before_placeholders(template))
        if above and not os.path.isdir(above):
            raise Usage(f"{show(template)}: there is no directory {above}", f"make it with mkdir -p {above}")
    for _, location in jobs:
        _check_input(template, location)
    names = {_identity(location.text): location for _, location in jobs if location.kind in ("path", "url")}
    seen: dict[str, Location] = {}
    for value, location in jobs:
        output = fill_name(template, value)
        identity = _identity(output)
        if identity in seen:
            raise Usage(
                f"{seen[identity].name} and {location.name} have one output: {public_name(output)}",
                "{index} is another for each input, {dir} its directory",
            )
        if identity in names:
            raise Usage(
                f"{names[identity].name} is an input, and the output of {location.name}", "write to another directory"
            )
        seen[identity] = location


def _check_input(template: str, location: Location) -> None:
    if location.kind in ("path", "url"):
        return
    if location.kind == "pipe":
        if any(sign in template for sign in SIGNS[:-1]):
            raise Usage(f"{location.name}: a command has no name for {show(template)}", "use {index}")
        return
    raise Usage(f"{show(template)}: {location.name} has no name", f"name the inputs, or write one {spell('output')}")


def _identity(name: str) -> str:
    return name if scheme_of(name) else os.path.abspath(name)


def parents_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the directories of files, which jobs make."""
    paths = (os.path.dirname(name.rstrip("/")) for name in names if not scheme_of(name))
    return tuple(dict.fromkeys(filter(None, paths)))
