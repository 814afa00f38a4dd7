"""Names of the archives, or of the shards, of each epoch."""

from __future__ import annotations

import re

from tarkit.errors import Usage, show
from tarkit.shards.template import split_last

_PLACE = re.compile(r"\{epoch(?::0?([0-9]{1,2})d)?\}")
_NUMBERS = frozenset("0123456789%{}@")


def refuse_epoch(text: str | None) -> None:
    """Raise Usage when the name of the only output has a place for the number of an epoch."""
    if text is not None and _PLACE.search(text) and not text.startswith(("file:", "pipe:")):
        raise Usage(f"{show(text)}: {{epoch}} needs --epochs N")


def epoch_names(text: str, epochs: int) -> list[str]:
    """The name or the template for each epoch, counted from 0.

    `{epoch}` and `{epoch:03d}` are its number; where there is neither, the last component of a path begins with
    `epoch0-`. Raises Usage when the number cannot be told from another one beside it, or has no place in a command.
    """
    places = list(_PLACE.finditer(text))
    if not places:
        if "{epoch" in text:
            raise Usage(f"{show(text)}: the number of the epoch is {{epoch}} or {{epoch:03d}}")
        if text == "-" or text.startswith("pipe:"):
            raise Usage(f"{show(text)}: where does each epoch go?", "name files, as in 'e{epoch}-%06d.tar'")
        folder, last = split_last(text)
        return [f"{folder}epoch{epoch}{last and '-'}{last}" for epoch in range(epochs)]
    for place in places:
        if {text[place.start() - 1 : place.start()], text[place.end() : place.end() + 1]} & _NUMBERS:
            raise Usage(f"{show(text)}: a number stands beside {place[0]}", "put a dash between them")
    return [_named(text, str(epoch)) for epoch in range(epochs)]


def _named(text: str, number: str) -> str:
    return _PLACE.sub(lambda place: number.zfill(int(place[1] or 0)), text)
