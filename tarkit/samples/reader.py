"""From entries to samples: one archive, read in order, with what its damage leaves of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter

from tarkit.errors import Problem, TarkitError, show
from tarkit.problems import Policy
from tarkit.samples.sample import KEYLESS, Recent, TarSample, is_safe, key_of
from tarkit.streams import source as streams
from tarkit.streams.source import Source
from tarkit.tar import block, pax
from tarkit.tar.reader import Entry, Raw, TarReader, find_entry

# ---- Checks on the entries of a sample: duplicate names, unsafe names, links outside the sample


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
            for entry in TarReader(source, start):
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


class EntryChecks:
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


# ---- Resume after damage


def find_beyond(source: Source, header: int, kept: int, passed: Callable[[int], None] | None) -> int | None:
    """Where it goes on behind the damaged header at `header`, as `find_entry` finds it; None if nowhere.

    Of a stream, so much is looked at that its bytes from `kept` on, which are still wanted, stay in memory with it.
    """
    reach = 1 << 62 if source.seekable else streams.HELD // 4 - (header - kept)
    return find_entry(source, header, reach, passed)


# ---- Group entries into samples

LARGE = 16 << 20  # bytes; a larger sample of a stream is passed on before its end is known

FEW = 64  # entries of a sample among which a name is simply looked for

_NOTHING = "--allow and --skip make no archive of what has no entry"
_NAME = itemgetter(0)
_PLAIN = frozenset((block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS))


def _never(key: bytes) -> bool:
    return False


class SampleReader:
    """Iterate over the samples of one archive, in order.

    `moves` says that samples will not stay where they are, which hard links cannot bear. `gather` says that somebody
    puts together what has one key, so that a key may come back. They begin at `pos`, the border of an entry. With
    `partial` what came before damage that ends the run is handed out first, also entries of the last sample. Afterwards
    `zeros` is the length of the end marker with its padding if the archive was read whole and without loss, else None,
    and `dropped` how many samples the policy left out.

    Raises:
        Problem: what `policy` does not let pass, and damage of an input without a whole entry, whatever it says.
    """

    partial = False

    def __init__(
        self,
        source: Source,
        policy: Policy,
        *,
        moves: bool = True,
        gather: bool = False,
        pos: int = 0,
    ) -> None:
        self.source = source
        self.policy = policy
        self._judge = EntryChecks(source, policy, moves)
        self._fatal: Problem | None = None
        self._first: Problem | None = None  # the first damage that the policy let pass
        self._found = False  # a whole entry, before the last time that the walk began anew
        self.zeros: int | None = None
        self.dropped = 0
        self._remember = _never if gather else Recent().add
        self._early = not source.seekable and not policy.lenient
        self._damaged = False
        self._glued = False  # another archive follows the end marker
        self._over = False
        self._opened: TarSample | None = None
        self._key: bytes | None = None  # of the current sample
        self._sample: list[Raw] = []  # its entries
        self._good = True
        self._doubt = False  # damage may have taken the first entries of the next sample
        self._strays: list[Raw] = []
        self._walk = TarReader(source, pos)
        self._walked = self._walk.raw()
        self._entries = self._walked  # perhaps with one in front that was read too early

    @property
    def marker(self) -> int | None:
        """Where the end marker is, once it was reached."""
        return self._walk.marker

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples."""
        while not self._over:
            try:
                yield from self._run()
            except Problem as problem:
                self._good = self._mend(problem) and self._good
        self._refuse_nothing()
        yield from self._last()
        if self._fatal is not None:
            raise self._fatal

    def _refuse_nothing(self) -> None:
        """Raise the damage that was let pass if there is no whole entry: it is no archive. Zero bytes may be one."""
        problem = self._first
        empty = self.source.size == 0 and self.source.failure is None
        if problem not in (None, self._fatal) and not empty and not self._found and not self._walk.found:
            what = f"no whole entry was found: {problem.detail}"
            raise Problem(problem.name, problem.archive, problem.offset, what, problem.hint or _NOTHING)

    def _run(self) -> Iterator[TarSample]:
        """Yield samples up to the end, to damage, or to one that is handed out before its end is known."""
        source, strays, remember, release = self.source, self._strays, self._remember, self.source.release
        room = LARGE if self._early and not self._damaged else 1 << 62
        walk, careful = self._walk, self._damaged
        key, entries, good = self._key, self._sample, self._good
        start, stop = (entries[0][1], entries[-1][4]) if entries else (0, 0)
        length, edge, prefix, last, plain = 0, start + room, b"", b"", False
        try:
            for entry in self._entries:
                name = entry[0]
                if length and name.startswith(prefix) and entry[5] == b"0" and name.find(b"/", length) < 0:
                    if strays or (name <= last and (name == last or len(entries) > 1)):
                        plain = plain and not strays and len(entries) < FEW and name not in map(_NAME, entries)
                        entries += strays
                        strays.clear()
                    if name > last:  # the greatest so far: beyond it none is there twice
                        last = name
                    entries.append(entry)
                else:
                    slash = name.rfind(b"/") + 1
                    dot = name.find(b".", slash)
                    if dot <= slash or entry[5] in KEYLESS:
                        strays.append(entry)
                        continue
                    base = name[:dot]
                    if base == key and not self._glued:
                        plain = False
                        entries += [*strays, entry]
                        strays.clear()
                    else:
                        if key is not None:
                            sample = TarSample(key, source, entries, start, stop)
                            sample.plain = plain and not walk.nul
                            if (sample.plain or self._examine(sample)) and good:
                                yield sample
                            else:
                                self.dropped += 1
                        entries = [*strays, entry]
                        start, plain = entries[0][1], not strays and entry[5] in _PLAIN and not self._damaged
                        strays.clear()
                        release(start)
                        key, last, prefix, edge = base, name, base + b".", start + room
                        length, good = len(prefix), True
                        known = remember(key)
                        if known or slash or careful or entry[2] - entry[1] > block.BLOCK:
                            good = self._open(key, Entry._make(entry), known)
                stop = entry[4]
                if stop > edge:
                    sample, key, entries = TarSample(key, source, entries, start, stop), None, []
                    self._key, self._sample = key, entries
                    yield from self._large(sample)
                    return
            self._end()
        finally:
            self._key, self._sample, self._good = key, entries, good

    def _last(self) -> Iterator[TarSample]:
        """The sample that the end of the archive closes, with the entries without key that follow it."""
        entries = self._sample + ([] if self._doubt else self._strays)
        if entries:
            sample = TarSample(self._key, self.source, entries, entries[0][1], entries[-1][4])
            if self._examine(sample) and self._good:
                yield sample
            else:
                self.dropped += 1
                self.zeros = None

    def _large(self, sample: TarSample) -> Iterator[TarSample]:
        """A sample of a stream that is handed out before its end is known; whoever gets it reads on."""
        self._judge.entries(sample.entries)
        sample.more = self._advance
        self._opened = sample
        yield sample
        while sample.more is not None:
            self.source.release(sample.stop)
            sample.more()

    def _open(self, key: bytes, entry: Entry, known: bool) -> bool:
        """Whether a sample that begins with `entry` is good, by its key, which may be known, and what went before."""
        good, self._glued = True, False
        if self._doubt:  # the rest of the sample that was damaged, or one that may have lost its first entries
            self._doubt = False
            what = "is left out: the damage before it may have taken entries of it"
            self.policy.warn(f"{self.source.name}: at {entry.start}: the sample {show(key)} {what}")
            return False
        if known:
            good = self._judge.scattered(key, entry.start)
        return (0 in entry.name or self._judge.name(entry)) and good  # a NUL is found when all are looked at

    def _examine(self, sample: TarSample) -> bool:
        """Whether no name is there twice, and all entries mean the same elsewhere."""
        if self._damaged:
            sample.leave_gaps()
        return self._judge.entries(sample.entries)

    def _advance(self) -> None:
        """Read on by one entry of the sample whose end is not known yet."""
        sample = self._opened
        assert sample is not None
        while (raw := self._following(sample)) is not None:
            entry = Entry._make(raw)
            key = key_of(entry)
            if key is None:
                self._strays.append(entry)
            elif key == sample.key and not self._glued:
                self._extend(sample, entry)
                return
            else:
                self._entries = chain((entry,), self._walked)
                break
        else:
            self._extend(sample)
        sample.more = None

    def _extend(self, sample: TarSample, *entries: Entry) -> None:
        more = [*map(Entry._make, self._strays), *entries]
        self._strays.clear()
        if more:
            self._judge.entries(more, more=True)
            sample.entries += more
            sample.stop = more[-1].stop

    def _following(self, sample: TarSample) -> Raw | None:
        """The next entry, None at the end."""
        while True:
            try:
                return next(self._entries, None)
            except Problem as problem:
                self._mend(problem)
                if self._over:
                    return None

    def _mend(self, problem: Problem) -> bool:
        """Do what the policy says about damage to the current sample, which keeps its good entries.

        Whether the sample is good; `_over` says that nothing follows.
        """
        problem = self.source.failure or problem
        walk = self._walk
        keep = self._survives(problem)
        self._damaged = True
        self._first = self._first or problem
        if problem.name == "trailing-data":
            self._over = not keep or problem in (self.source.failure, self._fatal)
            if not self._over:
                self._glued = True
                self._restart(walk.resume)
            return True
        entries, strays = self._sample, self._strays
        entries[:] = [entry for entry in entries if entry[1] < walk.broken]
        strays[:] = [entry for entry in strays if keep and entry[1] < walk.broken]
        if all(key_of(Entry._make(entry)) is None for entry in entries):  # what had the key is cut
            strays[:0] = entries if keep else []
            entries.clear()
            self._key = None
        if problem.name != "bad-header" or problem is self._fatal:
            self._over = True
            next_is_cut = (
                walk.cut is not None and problem.name == "truncated" and key_of(walk.cut) not in (None, self._key)
            )
            return keep or next_is_cut
        if not keep:
            self.dropped += bool(entries)
            self._key = None
            entries.clear()
            self._doubt = True
            self.source.release(walk.resume - block.BLOCK)
        wanted = [entry[1] for entry in (*entries[:1], *strays[:1])]
        if self._opened is not None and self._opened.more is not None:
            wanted.append(self._opened.start)
        header, passed = walk.resume - block.BLOCK, None if keep else self.source.release
        pos = find_beyond(self.source, header, min(wanted, default=header), passed)
        self._over = pos is None
        if pos is not None:
            self._restart(pos)
        elif self.source.failure is not None:  # what was looked for may be behind it
            return self.policy.judge(self.source.failure) == "keep"
        return True

    def _survives(self, problem: Problem) -> bool:
        """Whether what damage touches is kept. Damage that ends the run is noted where what came before is wanted."""
        try:
            return self.policy.judge(problem) == "keep"
        except Problem:
            if not self.partial:
                raise
            self._fatal = problem
            return True

    def _restart(self, pos: int) -> None:
        self._found = self._found or self._walk.found
        self._walk = TarReader(self.source, pos)
        self._entries = self._walked = self._walk.raw()

    def _end(self) -> None:
        self._over = True
        if self.source.failure is not None:
            self._walk.broken = self._walk.end or 0
            raise self.source.failure
        if not self._damaged and not self.dropped:
            assert self._walk.end is not None
            assert self._walk.marker is not None
            self.zeros = self._walk.end - self._walk.marker
