"""Find a sample by its key in many shards, in order, by the indexes next to them; objects are looked at ahead."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from tarkit.errors import show
from tarkit.indexing import lookup
from tarkit.indexing.files import IndexFile
from tarkit.problems import Policy
from tarkit.samples.dataset import ABSENT, open_source
from tarkit.samples.sample import TarSample
from tarkit.stores import connect
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import Location
from tarkit.streams.source import Source, StreamSource, WindowSource
from tarkit.threads import ThreadCall

AHEAD = 16
"""Objects that are looked at ahead of their turn at most: one at first, then twice as many after each."""


class _Answer(NamedTuple):
    """Answer of the next index of a shard about the key; the last answer, without an index, is the shard itself.

    Attributes:
        lines: messages about indexes since the answer before, and whether each is a warning.
        result: its row of the key, or that the shard lacks it.
    """

    source: WindowSource | StreamSource
    lines: list[tuple[bool, str]]
    file: IndexFile | None = None
    result: lookup.Lookup | None = None


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
        note: Callable[[str], None],
    ) -> None:
        """Prepare the search.

        Args:
            policy: decides about problems of the sample; its `warn` gets those of indexes.
            moves: whether the sample is copied to another archive.
            note: called with messages about indexes.
        """
        self.passed_over = 0
        self._key = key
        self._policy = policy
        self._moves = moves
        self._tmpdir = tmpdir
        self._note = note
        self._ended, self._parsing = threading.Event(), threading.Lock()

    def __call__(self, locations: Sequence[Location]) -> Iterator[Source | TarSample]:
        """Yield samples that an index finds, and shards to be read, in order."""
        self._ended = ended = threading.Event()
        waiting: deque[tuple[Location, Iterator[_Answer], Callable[[], _Answer]]] = deque()
        rest, allowed = iter(locations), 1
        try:
            while True:
                for location in islice(rest, max(allowed - len(waiting), 0)):
                    answers = self._answers(location)
                    waiting.append((location, answers, self._begin(location, partial(next, answers))))
                if not waiting:
                    return
                location, answers, wait = waiting.popleft()
                try:
                    first = wait()
                except ABSENT as error:
                    self._policy.leave_out(location.name, error, alone=len(locations) == 1)
                    continue
                allowed = 1 if isinstance(first.source, StreamSource) else min(2 * allowed, AHEAD)
                yield from self._find(first, answers)
        finally:
            ended.set()

    def _begin(self, location: Location, look: Callable[[], _Answer]) -> Callable[[], _Answer]:
        """Begin to look at an object in a thread; return the wait for it. Others are opened in their turn."""
        if location.kind != "url" or connect.cache_of(location.options) or codec_by_suffix(location.text):
            return look  # it would be fetched: a compressed object is a stream
        return ThreadCall(look).result

    def _answers(self, location: Location) -> Iterator[_Answer]:
        """Yield the answers of indexes that list the key, or show that the shard lacks it; at last the shard."""
        source = open_source(location, tmpdir=self._tmpdir)
        lines: list[tuple[bool, str]] = []
        for index in lookup.indexes(source) if isinstance(source, WindowSource) else ():
            if self._ended.is_set():  # the sample was found in a shard before
                break
            try:
                result = lookup.look_up(source, index, self._key, self._parsing)  # type: ignore[arg-type]
            except FileNotFoundError:
                continue
            except lookup.Stale as error:
                lines.append((not isinstance(error, lookup.Unreadable), lookup.not_used(index, error)))
                continue
            if result.row is None:
                lines.append((False, f"{index.name}: the index does not list {show(self._key)}"))
            if result.row is not None or result.absent:
                yield _Answer(source, lines, index, result)
                lines = []
        if self._ended.is_set():
            source.close()
        yield _Answer(source, lines)

    def _find(self, answer: _Answer, others: Iterator[_Answer]) -> Iterator[Source | TarSample]:
        """Yield the sample of a shard, or the shard itself, or nothing if the key is not in it."""
        for source, lines, index, result in chain((answer,), others):
            for wrong, line in lines:
                (self._policy.warn if wrong else self._note)(line)
            if index is None or result is None or not isinstance(source, WindowSource):
                yield source
                return
            if result.absent:
                self.passed_over += 1
                source.close()
                return
            try:
                sample = lookup.sample_of(result, source, self._policy, self._moves)
            except lookup.Stale as error:
                self._policy.warn(lookup.not_used(index, error))
                continue
            self._note(f"{source.name}: looked up in {index.name}")
            yield sample
            return
