"""Checks of the entries of a sample: duplicate names, unsafe names, links that leave the sample, repeated keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tarkit.errors import Problem, TarkitError, show, spell
from tarkit.problems import Policy
from tarkit.samples.sample import is_safe, key_of
from tarkit.streams.codecs import MESSAGES
from tarkit.streams.source import Source
from tarkit.tar import block, pax
from tarkit.tar.reader import Entry, Raw, TarReader


def duplicate_entries(entries: Iterable[Entry], names: set[bytes]) -> Iterator[Entry]:
    """Yield the entries whose name is in `names` or has occurred before; each name is added to `names`.

    Entries without a key are ignored: they belong to no field and are copied as they are.
    """
    for entry in entries:
        if key_of(entry) is not None:
            if entry.name in names:
                yield entry
            names.add(entry.name)


def links_outside(entries: Iterable[Entry], names: set[bytes]) -> Iterator[Entry]:
    """Yield the hard links whose target is not in `names` and has not occurred; each name is added to `names`."""
    for entry in entries:
        if entry.type == block.HARD_LINK and entry.link not in names:
            yield entry
        names.add(entry.name)


def sets_attributes(source: Source, entry: Entry | Raw) -> bool:
    """Return whether a global PAX header has more than comments, which `git archive` writes."""
    return any(keyword != b"comment" for keyword, _ in pax.parse_pairs(source.read(entry[2], entry[2] + entry[3])))


def describe_duplicate(name: bytes) -> str:
    """Return the message about one of `duplicate_entries`."""
    return f"{show(name)} occurs twice"


def describe_link(entry: Entry) -> str:
    """Return the message about one of `links_outside`."""
    return f"{show(entry.name)} is a hard link to {show(entry.link)}, which is not in its sample"


GLOBAL = "a global PAX header applies to all entries that follow it"


_GATHER = "tarkit sort puts the parts of each sample together"
_REMAKE = "copy it with tarkit cat --rekey '{stem}/{key}', or let tarkit check --fix OUT rename the later one to KEY~2"
EQUAL_PARTS = f"the parts have equal names, so they are two samples: {_REMAKE}"


def equal_parts(source: Source, key: bytes, starts: Iterable[int]) -> bool | None:
    """Return whether parts of a sample have a name in common; None if that is unknown.

    Args:
        source: the archive. Headers are read again: of a stream the answer is None.
        key: the key of the sample.
        starts: offsets; the first entries of the key at or after each of them are a part.
    """
    if not source.seekable:
        return None
    names: set[bytes] = set()
    try:
        for start in starts:
            inside = False
            for entry in TarReader(source, start):
                entry_key = key_of(entry)
                if entry_key == key:
                    inside = True
                    if any(duplicate_entries([entry], names)):
                        return True
                elif inside and entry_key is not None:
                    break
    except TarkitError:
        return None
    return False


def scattered_hint(equal: bool | None, gather: str = _GATHER) -> str:
    """Return the hint for a scattered sample, for parts with `equal` names or for others (`gather`)."""
    if equal is None:
        return f"{gather}; if they have equal names, {_REMAKE}"
    return EQUAL_PARTS if equal else gather


class EntryChecks:
    """Checks of the entries of an archive. Each method returns whether the checked sample is kept.

    Args:
        source: the archive.
        policy: decides about problems.
        moves: samples will be written elsewhere, so that hard links and global PAX headers are checked.

    Raises:
        Problem: from each method, unless the policy lets it pass.
    """

    def __init__(self, source: Source, policy: Policy, moves: bool) -> None:
        self.source = source
        self.policy = policy
        self.moves = moves
        self._keyed_names: set[bytes] = set()  # names of entries with a key, in the sample that was checked last
        self._names: set[bytes] = set()  # all names in it

    def __call__(self, problem: str, offset: int, detail: str, hint: str | None = None) -> bool:
        """Apply the policy to a problem, named as in PROBLEMS."""
        return self.policy.apply(Problem(problem, self.source.name, offset, detail, hint)) == "keep"

    def scattered(self, key: bytes, start: int) -> bool:
        """Report a sample whose key occurs again, in an entry at `start`."""
        problem = Problem("scattered-sample", self.source.name, start, f"the key {show(key)} occurs again")
        try:
            good = self.policy.apply(problem) == "keep"
        except Problem:
            form = self.source.form
            if form is not None and MESSAGES[form].has_columns:
                from tarkit.tables.map_fields import keys_hint  # slow to import

                problem.hint = keys_hint()
            else:
                problem.hint = scattered_hint(equal_parts(self.source, key, (0, start)))
            raise
        if good:
            self.policy.scattered.add(hash(key))
        return good

    def name(self, entry: Entry) -> bool:
        """Check the name of an entry."""
        if is_safe(entry.name):
            return True
        return self("unsafe-name", entry.start, f"the name {show(entry.name)} is not safe to extract")

    def entries(self, entries: Sequence[Entry], more: bool = False) -> bool:
        """Check entries of a sample; with `more` they continue the sample of the last call."""
        if not more:
            self._keyed_names, self._names = set(), set()
        good = True
        for entry in duplicate_entries(entries, self._keyed_names):
            good = self("duplicate-entry", entry.start, describe_duplicate(entry.name)) and good
        for entry in links_outside(entries, self._names) if self.moves else ():
            good = self("unmovable-entry", entry.start, describe_link(entry)) and good
        for entry in entries:
            if self.moves and entry.type == block.PAX_GLOBAL and sets_attributes(self.source, entry):
                hint = f"{spell('allow', 'unmovable-entry')} copies it as it is; tar writes none without --pax-option"
                good = self("unmovable-entry", entry.start, GLOBAL, hint) and good
            if 0 in entry.name or (key_of(entry) is None and entry.type != block.PAX_GLOBAL):
                good = self.name(entry) and good
        return good
