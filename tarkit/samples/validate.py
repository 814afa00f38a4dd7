"""Checks of the names of entries to write: safe, unique, entries of one key together."""

from __future__ import annotations

from itertools import compress
from operator import eq, ne

from tarkit.errors import show
from tarkit.samples.sample import REMEMBERED, Recent, is_safe
from tarkit.tables.recipe import MalformedRow

_ODD = (b"\0/", b"\0.", b"/.")  # between NULs: absolute; without a key, or a .. directory


class NameChecks:
    """Checks that the names of an archive are safe and unique, and those of one key adjacent.

    Args:
        repair: the hint for a scattered sample.
        limit: the number of keys that are remembered at least; None for all.

    Attributes:
        samples: the number of samples so far.
        first, last: the first and the last key.
    """

    def __init__(self, repair: str | None = None, limit: int | None = REMEMBERED) -> None:
        self.samples = 0
        self.first: bytes | None = None
        self.last: bytes | None = None
        self._repair = repair
        self._fields: set[bytes] = set()
        self._keys = Recent(limit)
        self._others = Recent(limit)

    def accept(self, names: list[bytes]) -> bool:
        """Check the next names together; return False, and change nothing, where `check` has to look at each.

        It does for names that are bad, without a key, in a directory whose name has a dot, or that continue a sample.
        """
        text = b"\0%b\0" % b"\0".join(names)
        keys = [name.partition(b".")[0] for name in names]
        if (
            text.count(b"\0") != len(names) + 1
            or text.count(b"/") != b"\0".join(keys).count(b"/")
            or any(map(text.__contains__, _ODD))
            or any(map(eq, keys, names))
            or len(set(names)) < len(names)
        ):
            return False
        samples = [keys[0], *compress(keys[1:], map(ne, keys, keys[1:]))]
        if not self._keys.extend(samples):
            return False
        if self.last is None:
            self.first = keys[0]
        self.last = keys[-1]
        self._fields = {name[len(self.last) + 1 :] for name in names[-keys.count(self.last) :]}
        self.samples += len(samples)
        return True

    def extend(self, names: list[bytes]) -> None:
        """Check the next names. Raises MalformedRow for the first that is bad."""
        if not self.accept(names):
            for name in names:
                self.check(name)

    def check(self, name: bytes) -> None:
        """Check the next name.

        Raises:
            MalformedRow: the name is unsafe or repeated, or its sample ended before.
        """
        dot = name.find(b".", (slash := name.rfind(b"/") + 1))
        directory = name[slash:] in (b"", b".")
        if directory or ((slash or 0 in name or b".." in name) and not is_safe(name)):
            words = "is the name of a directory" if directory else "is absolute, or contains .. or a NUL"
            raise MalformedRow(f"the name {show(name)} {words} [unsafe-name]")
        if dot <= slash:  # no key: inlined `split_name`
            if self._others.add(name):
                raise MalformedRow(f"{show(name)} occurs twice [duplicate-entry]")
            return
        key, field = name[:dot], name[dot + 1 :]
        if key != self.last:
            if self._keys.add(key):
                words = f"{show(name)} belongs to a sample that ended before [scattered-sample]"
                raise MalformedRow(words, hint=self._repair)
            if self.last is None:
                self.first = key
            self.last = key
            self._fields = set()
            self.samples += 1
        if field in self._fields:
            raise MalformedRow(f"{show(name)} occurs twice [duplicate-entry]")
        self._fields.add(field)
