"""Find a sample by its key in many shards, in order, by the indexes next to them; objects are looked at ahead."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from tarkit.errors import show
from tarkit.indexing import lookup
from tarkit.indexing.files import IndexFile
from tarkit.problems import Policy
from tarkit.samples.dataset import open_source
from tarkit.samples.sample import TarSample
from tarkit.stores import connect
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import Location
from tarkit.streams.source import Source, StreamSource, WindowSource
from tarkit.threads import ThreadCall

AHEAD = 16
"""Objects that are looked at ahead of their turn at most: one at first, then twice as many after each."""


class KeySearch:
    """The search for a sample in the inputs of a run; `samples.dataset.DatasetReader.search` calls it.

    Of an object, the index and a few headers are requested by a thread before its turn. A shard whose index cannot be
    used is left to be read, and one that lacks the key for certain is passed over.

    Attributes:
        passed_over: the number of shards that were not read, since their indexes lack the key.
    """

    def __init__(
        self,
        key: bytes,
        policy: Policy,
        *,
        moves: bool,
        tmpdir: str | None,
        cache: str | None,
        note: Callable[[str], None],
    ) -> None:
        """Prepare the search.

        Args:
            key: the key.
            policy: what to do about problems of the sample; its `warn` gets those of indexes.
            moves: whether the sample is copied to another archive.
            tmpdir: the directory of temporary files.
            cache: the directory of the cache for objects whose options name none, if there is one.
            note: called with messages about indexes.
        """
        self.passed_over = 0
        self._key = key
        self._policy = policy
        self._moves = moves
        self._tmpdir = tmpdir
        self._cache = cache
        self._note = note

    def __call__(self, locations: Sequence[Location]) -> Iterator[Source | TarSample]:
        """Yield what an index finds, and the shards to be read, in order."""
        ended, parsing = threading.Event(), threading.Lock()
        waiting: deque[tuple[_Shard, Callable[[], None]]] = deque()
        rest, allowed = iter(locations), 1
        try:
            while True:
                for location in islice(rest, max(allowed - len(waiting), 0)):
                    shard = _Shard(location, self._key, self._tmpdir, ended, parsing)
                    waiting.append((shard, self._begin(shard)))
                if not waiting:
                    return
                shard, wait = waiting.popleft()
                wait()
                allowed = 1 if isinstance(shard.source, StreamSource) else min(2 * allowed, AHEAD)
                yield from self._found(shard)
        finally:
            ended.set()

    def _begin(self, shard: _Shard) -> Callable[[], None]:
        """Begin to look at an object in a thread; return what waits for the end. Others are opened in their turn."""
        location = shard.location
        chosen = connect.options_of(location.options).cache
        cached = bool(self._cache if chosen is None else chosen)  # to open an object is to fetch all of it
        if location.kind != "url" or cached or codec_by_suffix(location.text):  # what is compressed is a stream
            return shard.look
        return ThreadCall(shard.look).result

    def _found(self, shard: _Shard) -> Iterator[Source | TarSample]:
        """Yield the sample of a shard, or the shard itself, or nothing if the key is not in it."""
        while True:
            for wrong, line in shard.lines:
                (self._policy.warn if wrong else self._note)(line)
            shard.lines.clear()
            source, index, found = shard.source, shard.index, shard.found
            if index is None or found is None or not isinstance(source, WindowSource):
                assert source is not None
                yield source
                return
            if found.absent:
                self.passed_over += 1
                source.close()
                return
            try:
                sample = lookup.sample_of(found, source, self._policy, self._moves)
            except lookup.Stale as error:
                self._policy.warn(lookup.not_used(index, error))
                shard.look()
                continue
            self._note(f"{source.name}: looked up in {index.name}")
            yield sample
            return


class _Shard:
    """A shard, and what an index says of a key.

    Attributes:
        source: the shard, once it is open.
        index: the index that has an answer; None if there is none.
        found: the answer.
        lines: messages, and whether each is a warning.
    """

    def __init__(
        self, location: Location, key: bytes, tmpdir: str | None, ended: threading.Event, parsing: threading.Lock
    ) -> None:
        self.location = location
        self.source: WindowSource | StreamSource | None = None
        self.index: IndexFile | None = None
        self.found: lookup.Lookup | None = None
        self.lines: list[tuple[bool, str]] = []
        self._key = key
        self._tmpdir = tmpdir
        self._ended = ended
        self._parsing = parsing
        self._indexes: Iterator[IndexFile] = iter(())

    def look(self) -> None:
        """Look into the next indexes, until one has an answer."""
        if self.source is None:
            self.source = open_source(self.location, tmpdir=self._tmpdir)
            if isinstance(self.source, WindowSource):
                self._indexes = lookup.indexes(self.source)
        self.index = self.found = None
        for index in self._indexes:
            if self._ended.is_set() or self._answers(index):
                break
        if self._ended.is_set():  # the sample was found in a shard before
            self.source.close()

    def _answers(self, index: IndexFile) -> bool:
        """Return whether an index lists the key, or shows that the shard lacks it."""
        assert isinstance(self.source, WindowSource)
        try:
            found = lookup.look_up(self.source, index, self._key, self._parsing)
        except FileNotFoundError:
            return False
        except lookup.Stale as error:
            self.lines.append((not isinstance(error, lookup.Unreadable), lookup.not_used(index, error)))
            return False
        if found.row is None:
            self.lines.append((False, f"{index.name}: the index does not list {show(self._key)}"))
        if found.row is None and not found.absent:
            return False
        self.index, self.found = index, found
        return True
