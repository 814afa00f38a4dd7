"""What a policy has to say about the entries of samples: names that are there twice, or unsafe, or cannot move."""

from __future__ import annotations

from collections.abc import Iterable

from tarkit.dataset.sample import KEYLESS, Source, is_safe, key_of
from tarkit.errors import Problem, show
from tarkit.problems import Policy
from tarkit.tar import block, pax
from tarkit.tar.walk import Entry


class Judge:
    """Judges entries of `source` by `policy`; `moves` says that samples will not stay where they are.

    Each method says whether what it was asked about is kept, or raises the Problem.
    """

    def __init__(self, source: Source, policy: Policy, moves: bool) -> None:
        self.source = source
        self.policy = policy
        self.moves = moves

    def __call__(self, problem: str, offset: int, what: str, hint: str | None = None) -> bool:
        """Judge a problem, of one of the names in PROBLEMS."""
        return self.policy.judge(Problem(problem, self.source.name, offset, what, hint)) == "keep"

    def name(self, entry: Entry) -> bool:
        """Judge the name of an entry."""
        if is_safe(entry.name):
            return True
        return self("unsafe-name", entry.start, f"the name {show(entry.name)} is not safe to extract")

    def entries(self, entries: Iterable[Entry], names: set[bytes]) -> bool:
        """Judge some entries of a sample, whose `names` so far are given, and added to."""
        good = True
        for entry in entries:
            if entry.name in names and entry.type not in KEYLESS:
                good = self("duplicate-entry", entry.start, f"{show(entry.name)} is there twice") and good
            if self.moves and entry.type == block.HARD_LINK and entry.link not in names:
                what = f"{show(entry.name)} is a hard link to {show(entry.link)}, which may end up elsewhere"
                good = self("unmovable-entry", entry.start, what) and good
            if self.moves and entry.type == block.PAX_GLOBAL and self._says_more(entry):
                what = "a global PAX header is about all entries that follow it"
                hint = "--allow unmovable-entry moves it as it is; without tar's --pax-option there is none"
                good = self("unmovable-entry", entry.start, what, hint) and good
            if 0 in entry.name or (key_of(entry) is None and entry.type != block.PAX_GLOBAL):
                good = self.name(entry) and good
            names.add(entry.name)
        return good

    def _says_more(self, entry: Entry) -> bool:
        """Whether a global header says more than a comment, as `git archive` writes it."""
        payload = self.source.read(entry.data, entry.data + entry.size)
        return any(keyword != b"comment" for keyword, _ in pax.parse_pairs(payload))
