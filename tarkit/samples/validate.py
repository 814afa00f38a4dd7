"""Checks of the names of entries to write: safe, unique, entries of one key together."""

from __future__ import annotations

from tarkit.errors import show
from tarkit.samples.sample import REMEMBERED, Recent, is_safe
from tarkit.tables.recipe import MalformedRow


class NameChecks:
    """Checks that the names of an archive are safe and unique, and those of one key adjacent.

    At least the last `limit` keys are remembered, None: all of them. `repair` is the hint for a scattered sample.
    `samples` counts the samples so far; `first` and `last` are the first and the last key.
    """

    def __init__(self, repair: str | None = None, limit: int | None = REMEMBERED) -> None:
        self.samples = 0
        self.first: bytes | None = None
        self.last: bytes | None = None
        self._repair = repair
        self._fields: set[bytes] = set()
        self._keys = Recent(limit)
        self._others = Recent(limit)

    def check(self, name: bytes) -> None:
        """Raise MalformedRow if `name` cannot follow the names before it."""
        dot = name.find(b".", (slash := name.rfind(b"/") + 1))
        if not is_safe(name) or slash == len(name) > 0:
            what = "is the name of a directory" if name.endswith(b"/") else "is absolute, or has .. or a NUL in it"
            raise MalformedRow(f"the name {show(name)} {what} [unsafe-name]")
        if dot <= slash:  # no key: see `split_name`, which this is without a call and a tuple for each
            if self._others.add(name):
                raise MalformedRow(f"{show(name)} occurs twice [duplicate-entry]")
            return
        key, field = name[:dot], name[dot + 1 :]
        if key != self.last:
            if self._keys.add(key):
                what = f"{show(name)} belongs to a sample that ended before [scattered-sample]"
                raise MalformedRow(what, hint=self._repair)
            if self.last is None:
                self.first = key
            self.last = key
            self._fields = set()
            self.samples += 1
        if field in self._fields:
            raise MalformedRow(f"{show(name)} occurs twice [duplicate-entry]")
        self._fields.add(field)
