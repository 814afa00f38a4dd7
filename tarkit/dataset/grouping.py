"""From entries to samples: one archive, read in order, with what its damage leaves of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import itemgetter

from tarkit.dataset.sample import Recent, Sample, Source, is_safe, split_name
from tarkit.errors import Problem, show
from tarkit.problems import Policy
from tarkit.tar import block, pax
from tarkit.tar.walk import Entry, Raw, Walk, find_header

LARGE = 16 << 20  # bytes; a larger sample of a stream is passed on before its end is known

FEW = 64  # entries of a sample among which a name is simply looked for

_NAME = itemgetter(0)
_PLAIN = frozenset((block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS))
_KEYLESS = frozenset((block.DIRECTORY, block.PAX_GLOBAL, block.GNU_VOLUME, block.GNU_DUMPDIR))


class Samples:
    """Iterate over the samples of one archive, in order.

    `earlier` remembers the keys of all inputs, where there are several. `moves` says that samples will not stay where
    they are, which hard links cannot bear. Afterwards `zeros` is the length of the end marker with its padding if the
    archive was read whole and without loss, else None, and `dropped` how many samples the policy left out.

    Raises:
        Problem: what `policy` does not let pass.
    """

    def __init__(self, source: Source, policy: Policy, *, earlier: Recent | None = None, moves: bool = True) -> None:
        self.source = source
        self.policy = policy
        self.moves = moves
        self.zeros: int | None = None
        self.dropped = 0
        self._earlier = earlier
        self._recent = Recent()
        self._damaged = False
        self._glued = False  # another archive follows the end marker
        self._over = False
        self._opened: Sample | None = None
        self._doubt = False  # damage may have taken the first entries of the next sample
        self._strays: list[Raw] = []
        self._walk = Walk(source)
        self._entries: Iterator[Raw] = self._walk.raw()

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples."""
        source, strays, recent, release = self.source, self._strays, self._recent, self.source.release
        room = LARGE if not source.seekable and not self.policy.lenient else 1 << 62
        careful, ascending, highest = self._earlier is not None, True, b""
        key: bytes | None = None
        entries: list[Raw] = []
        start = stop = length = 0
        edge, prefix, last, good, plain = room, b"", b"", True, True
        while True:
            try:
                for entry in self._entries:
                    name = entry[0]
                    if length and name.startswith(prefix) and entry[5] == b"0" and name.find(b"/", length) < 0:
                        if strays or (name <= last and (name == last or len(entries) > 1)):
                            plain = plain and not strays and len(entries) < FEW and name not in map(_NAME, entries)
                            entries += strays
                            strays.clear()
                        last = name
                        entries.append(entry)
                    else:
                        folder, slash, base = name.rpartition(b"/")
                        base, dot, _ = base.partition(b".")
                        if not base or not dot or entry[5] in _KEYLESS:
                            strays.append(entry)
                            continue
                        base = folder + slash + base
                        if base == key and not self._glued:
                            plain = False
                            entries += [*strays, entry]
                            strays.clear()
                        else:
                            if key is not None:
                                sample = Sample(key, source, entries, start, stop)
                                if (plain or self._examine(sample)) and good:
                                    yield sample
                                else:
                                    self.dropped += 1
                            start = entry[1]
                            plain = entry[5] in _PLAIN and not self._damaged
                            entries = [entry]
                            if strays:
                                start, plain = strays[0][1], False
                                entries[:0] = strays
                                strays.clear()
                            release(start)
                            key, last, prefix, edge = base, name, base + b".", start + room
                            length, good = len(prefix), True
                            if ascending and key > highest:
                                recent.push(hash(key))
                                highest, known = key, False
                            else:
                                ascending, known = False, recent.add(key)
                            if known or slash or careful or entry[2] - entry[1] > block.BLOCK:
                                good = self._open(key, Entry._make(entry), known)
                    stop = entry[4]
                    if stop > edge:
                        break
                else:
                    self._end()
                    break
                assert key is not None
                yield from self._large(Sample(key, source, entries, start, stop))
                key, length, entries = None, 0, []
            except Problem as problem:
                good = self._mend(problem, entries, key) and good
                careful = True
                length = 0
                key, stop = (key, entries[-1][4]) if entries else (None, 0)
                if self._over:
                    break
        yield from self._last(key, entries, start, stop, good)

    def _last(self, key: bytes | None, entries: list[Raw], start: int, stop: int, good: bool) -> Iterator[Sample]:
        """The sample that the end of the archive closes, with the entries without key that follow it."""
        strays = [] if self._doubt else self._strays
        if strays:
            stop = strays[-1][4]
            if key is None:
                start = strays[0][1]
            entries = entries + strays
        if entries:
            sample = Sample(key, self.source, entries, start, stop)
            if self._examine(sample) and good:
                yield sample
            else:
                self.dropped += 1

    def _large(self, sample: Sample) -> Iterator[Sample]:
        """A sample of a stream that is handed out before its end is known; whoever gets it reads on."""
        self._examine(sample)
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
            return False
        if known:
            good = self._judge("scattered-sample", entry.start, f"the key {show(key)} comes back") and good
        elif self._earlier is not None and self._earlier.add(key):
            good = self._judge("repeated-key", entry.start, f"the key {show(key)} was in an earlier input") and good
        return self._check_name(entry) and good

    def _check_name(self, entry: Entry) -> bool:
        if is_safe(entry.name):
            return True
        return self._judge("unsafe-name", entry.start, f"the name {show(entry.name)} is not safe to extract")

    def _examine(self, sample: Sample) -> bool:
        """Whether no name is there twice, and all entries mean the same elsewhere."""
        good = True
        if self._damaged:
            sample.leave_gaps()
        names: set[bytes] = set()
        for entry in sample.entries:
            if entry.name in names and entry.type not in _KEYLESS:
                good = self._judge("duplicate-entry", entry.start, f"{show(entry.name)} is there twice") and good
            if self.moves and entry.type == block.HARD_LINK and entry.link not in names:
                what = f"{show(entry.name)} is a hard link to {show(entry.link)}, which may end up elsewhere"
                good = self._judge("unmovable-entry", entry.start, what) and good
            if self.moves and entry.type == block.PAX_GLOBAL and self._says_more(entry):
                what = "a global PAX header is about all entries that follow it"
                good = self._judge("unmovable-entry", entry.start, what) and good
            if _key(entry) is None and entry.type != block.PAX_GLOBAL:
                good = self._check_name(entry) and good
            names.add(entry.name)
        return good

    def _says_more(self, entry: Entry) -> bool:
        payload = self.source.read(entry.data, entry.data + entry.size)
        return any(keyword != b"comment" for keyword, _ in pax.parse_pairs(payload))

    def _judge(self, name: str, offset: int, what: str) -> bool:
        return self.policy.judge(Problem(name, self.source.name, offset, what)) == "keep"

    def _advance(self) -> None:
        """Read on by one entry of the sample whose end is not known yet."""
        sample = self._opened
        assert sample is not None
        while (raw := self._following(sample)) is not None:
            entry = Entry._make(raw)
            key = _key(entry)
            if key is None:
                self._strays.append(entry)
            elif key == sample.key and not self._glued:
                self._extend(sample, entry)
                self._examine(sample)
                return
            else:
                self._entries = chain((entry,), self._entries)
                break
        else:
            self._extend(sample)
        sample.more = None

    def _extend(self, sample: Sample, *entries: Entry) -> None:
        more = [*map(Entry._make, self._strays), *entries]
        self._strays.clear()
        if more:
            sample.entries += more
            sample.stop = more[-1].stop

    def _following(self, sample: Sample) -> Raw | None:
        """The next entry, None at the end."""
        while True:
            try:
                raw = next(self._entries, None)
            except Problem as problem:
                self._mend(problem, list(sample.entries), sample.key)
                if self._over:
                    return None
            else:
                if raw is None and self.source.failure is not None:
                    raise self.source.failure
                return raw

    def _mend(self, problem: Problem, entries: list[Raw], key: bytes | None) -> bool:
        """Do what the policy says about damage to the sample of `key` and `entries`, of which the good ones stay.

        Whether the sample is good; `_over` says that nothing follows.
        """
        problem = self.source.failure or problem
        walk = self._walk
        keep = self.policy.judge(problem) == "keep"
        self._damaged = True
        if problem.name == "trailing-data":
            self._over = not keep or problem is self.source.failure
            if not self._over:
                self._glued = True
                self._restart(walk.resume)
            return True
        entries[:] = [entry for entry in entries if entry[1] < walk.broken]
        self._strays[:] = [entry for entry in self._strays if entry[1] < walk.broken]
        if walk.cut is not None and problem.name == "truncated" and _key(walk.cut) not in (None, key):
            self._over = True  # what is cut is the next sample: this one is whole
            self._strays.clear()
            return True
        if not keep:
            self._strays.clear()
        if problem.name != "bad-header":
            self._over = True
            return keep
        if not keep:
            self.dropped += bool(entries)
            entries.clear()
            self._doubt = True
            self.source.release(walk.resume)
        pos = find_header(self.source, walk.resume)
        self._over = pos is None
        if pos is not None:
            self._restart(pos)
        return True

    def _restart(self, pos: int) -> None:
        self._walk = Walk(self.source, pos)
        self._entries = self._walk.raw()

    def _end(self) -> None:
        if self.source.failure is not None:
            self._walk.broken = self._walk.end or 0
            raise self.source.failure
        if not self._damaged and not self.dropped:
            assert self._walk.end is not None
            assert self._walk.marker is not None
            self.zeros = self._walk.end - self._walk.marker


def _key(entry: Entry) -> bytes | None:
    parts = None if entry.type in _KEYLESS else split_name(entry.name)
    return None if parts is None else parts[0]
