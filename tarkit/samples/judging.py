"""What a policy has to say about the entries of samples: names that are there twice, or unsafe, or cannot move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tarkit.errors import Problem, TarkitError, show
from tarkit.problems import Policy
from tarkit.samples.sample import Source, is_safe, key_of
from tarkit.tar import block, pax
from tarkit.tar.reader import Entry, Raw, Walk


def twice(entries: Iterable[Entry], names: set[bytes]) -> Iterator[Entry]:
    """Find entries whose name is among `names`, those of their sample so far, to which each name is added.

    Entries without key do not count: they belong to no field, and are carried over as they are.
    """
    for entry in entries:
        if key_of(entry) is not None:
            if entry.name in names:
                yield entry
            names.add(entry.name)


def leading_out(entries: Iterable[Entry], names: set[bytes]) -> Iterator[Entry]:
    """Find hard links to what is not among `names`, those of their sample so far, to which each name is added."""
    for entry in entries:
        if entry.type == block.HARD_LINK and entry.link not in names:
            yield entry
        names.add(entry.name)


def says_more(source: Source, entry: Entry | Raw) -> bool:
    """Whether a global PAX header says more than a comment, as `git archive` writes it."""
    return any(keyword != b"comment" for keyword, _ in pax.parse_pairs(source.read(entry[2], entry[2] + entry[3])))


def said_twice(name: bytes) -> str:
    """What a message says of one of `twice`."""
    return f"{show(name)} is there twice"


def said_leading_out(entry: Entry) -> str:
    """What a message says of one of `leading_out`."""
    return f"{show(entry.name)} is a hard link to {show(entry.link)}, which may end up elsewhere"


GLOBAL = "a global PAX header is about all entries that follow it"
GLOBAL_HINT = "--allow unmovable-entry moves it as it is; without tar's --pax-option there is none"


_GATHER = "tarkit sort puts the parts of each sample together"
_AGAIN = "make it again with tarkit cat --rekey '{stem}/{key}', or let tarkit check --fix OUT name the later one KEY~2"
EQUAL_PARTS = f"the parts have equal names, so they are two samples: {_AGAIN}"


def equal_parts(source: Source, key: bytes, starts: Iterable[int]) -> bool | None:
    """Whether parts of a sample, each the first at or behind one of `starts`, have a name in common; None if unknown.

    Reads their headers once more, which a stream does not have any longer.
    """
    if not source.seekable:
        return None
    names: set[bytes] = set()
    try:
        for start in starts:
            begun = False
            for entry in Walk(source, start):
                own = key_of(entry)
                if own == key:
                    begun = True
                    if any(twice([entry], names)):
                        return True
                elif begun and own is not None:
                    break
    except TarkitError:
        return None
    return False


def scattered_hint(equal: bool | None, gather: str = _GATHER) -> str:
    """How a scattered sample is repaired whose parts have `equal` names; `gather` says how if they have not."""
    if equal is None:
        return f"{gather}; if they have equal names, {_AGAIN}"
    return EQUAL_PARTS if equal else gather


class Judge:
    """Judges entries of `source` by `policy`; `moves` says that samples will not stay where they are.

    Each method says whether what it was asked about is kept, or raises the Problem.
    """

    def __init__(self, source: Source, policy: Policy, moves: bool) -> None:
        self.source = source
        self.policy = policy
        self.moves = moves
        self._fields: set[bytes] = set()  # names of entries with a key, in the sample that was judged last
        self._names: set[bytes] = set()  # all names in it

    def __call__(self, problem: str, offset: int, what: str, hint: str | None = None) -> bool:
        """Judge a problem, of one of the names in PROBLEMS."""
        return self.policy.judge(Problem(problem, self.source.name, offset, what, hint)) == "keep"

    def scattered(self, key: bytes, start: int) -> bool:
        """Judge a sample whose key comes back, in an entry at `start`."""
        problem = Problem("scattered-sample", self.source.name, start, f"the key {show(key)} comes back")
        try:
            good = self.policy.judge(problem) == "keep"
        except Problem:
            problem.hint = scattered_hint(equal_parts(self.source, key, (0, start)))
            raise
        if good:
            self.policy.scattered.add(hash(key))
        return good

    def name(self, entry: Entry) -> bool:
        """Judge the name of an entry."""
        if is_safe(entry.name):
            return True
        return self("unsafe-name", entry.start, f"the name {show(entry.name)} is not safe to extract")

    def entries(self, entries: Sequence[Entry], more: bool = False) -> bool:
        """Judge entries of a sample; with `more` they follow those that were judged before."""
        if not more:
            self._fields, self._names = set(), set()
        good = True
        for entry in twice(entries, self._fields):
            good = self("duplicate-entry", entry.start, said_twice(entry.name)) and good
        for entry in leading_out(entries, self._names) if self.moves else ():
            good = self("unmovable-entry", entry.start, said_leading_out(entry)) and good
        for entry in entries:
            if self.moves and entry.type == block.PAX_GLOBAL and says_more(self.source, entry):
                good = self("unmovable-entry", entry.start, GLOBAL, GLOBAL_HINT) and good
            if 0 in entry.name or (key_of(entry) is None and entry.type != block.PAX_GLOBAL):
                good = self.name(entry) and good
        return good
