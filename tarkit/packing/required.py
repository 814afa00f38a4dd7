"""Fields that samples must have, and no others: --require of `shard` (ishard-spec 2.9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tarkit.errors import TarkitError, Usage, show
from tarkit.packing.batch import File

OnMissing = Literal["error", "warn", "keep", "exclude"]

TOLD = 20  # warnings, of which there may be one for each file


@dataclass
class Required:
    """The fields, each a choice of names in lower case, and what becomes of samples that have others or lack some.

    error: the first ends the run. warn: it is told, and all stay. keep: all stay. exclude: files of other fields go,
    and so do samples that lack one. A second file of one field is neither too much nor too little. `last_dot` says that
    a name may end in a field, which need not begin at its first dot. `lacking` and `others` count samples and files.
    """

    names: Sequence[tuple[bytes, ...]]
    action: OnMissing
    last_dot: bool
    warn: Callable[[str], None] = lambda text: None
    lacking: int = 0
    others: int = 0
    _told: int = field(default=0, repr=False)

    def __call__(self, key: bytes, files: list[File], given: Sequence[bytes]) -> list[File] | None:
        """The files that stay, None if the sample goes; `given` are fields that it has besides. Raises TarkitError."""
        known = [name for names in self.names for name in names]
        present = {name.lower() for name in given}
        kept = []
        for file in files:
            here = [name for name in known if self._has(file[0], name)]
            present.update(here)
            if here:
                kept.append(file)
            elif self.action != "keep":
                self.others += 1
                self._tell(f"sample {show(key)} has {show(file[0])}, a field that --require does not name")
        missing = [names for names in self.names if present.isdisjoint(names)]
        if missing and self.action != "keep":
            self.lacking += 1
            what = " and no ".join(b"|".join(names).decode("utf-8", "backslashreplace") for names in missing)
            self._tell(f"sample {show(key)} has no {what}")
        if self.action != "exclude":
            return files
        return None if missing else kept

    def _has(self, name: bytes, field_: bytes) -> bool:
        base = name[name.rfind(b"/") + 1 :].lower()
        if self.last_dot:
            return base.endswith(b"." + field_)
        return base.partition(b".")[2] == field_

    def _tell(self, what: str) -> None:
        if self.action == "error":
            raise TarkitError(
                f"{what} [missing-field]", "--on-missing-field exclude leaves such out, warn and keep pack"
            )
        if self.action == "warn":
            self._told += 1
            if self._told <= TOLD:
                self.warn(what)
            elif self._told == TOLD + 1:
                self.warn("there are more such samples, which are counted and not named")


def parse_required(words: Sequence[str]) -> list[tuple[bytes, ...]]:
    """The fields of `jpg,json` or `.jpg|.png json`, dots in front or not; raises Usage for one without a name."""
    found = []
    for word in words:
        for part in (part for chunk in word.split(",") for part in chunk.split() or [""]):
            names = tuple(each.removeprefix(".").lower().encode("utf-8", "surrogateescape") for each in part.split("|"))
            if not all(names):
                raise Usage(f"--require {show(word)}: an empty name of a field", "for example --require jpg,json")
            if names not in found:
                found.append(names)
    return found
