"""Group the files of a tree into samples by key, each where its first file is, in bounded memory."""

from __future__ import annotations

import marshal
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Literal

from tarkit.errors import Usage, show, spell
from tarkit.packing.planned import PlannedBatch, PlannedFile, PlannedSample, ends_of_runs, together
from tarkit.packing.tree import Chunk, CountedNames
from tarkit.shards.patterns import compile_regex
from tarkit.sizes import plural
from tarkit.spill.multimap import Multimap
from tarkit.spill.records import by_rank

# ---- Keys of files in a tree: which of them are one sample, as in ishard (docs/formats)
# A name is divided into the base of its key and its field: at the first dot of its last component, as by readers of
# shards, or at the last dot, as by ishard. A leading dot is not special: `.hidden` is the field `hidden` of a sample
# whose key has an empty last component.
#
# - full: the path. base: its last component. flat: the path without its slashes.
# - an expression: each match in the whole name is replaced by its first group, or removed without one. Then the field
#   is removed, unless the end of the result comes from elsewhere in the name. (ishard compares texts alone, and
#   removes the `.0` of the directory `v1.0` of a file `a.0`.)

Kind = Literal["full", "base", "flat", "regex"]

_KINDS: dict[str, Kind] = {
    "full": "full",
    "full_name": "full",
    "base": "base",
    "base_name": "base",
    "base_filename": "base",
    "base_file_name": "base",
    "flat": "flat",
    "collapse_all_dir": "flat",
}
"""The kinds of keys, with their names in ishard, its README and its authors' blog."""


def cut_first(name: bytes) -> tuple[bytes, bytes]:
    """Divide a name at the first dot of its last component."""
    dot = name.find(b".", name.rfind(b"/") + 1)
    return (name, b"") if dot < 0 else (name[:dot], name[dot + 1 :])


def cut_last(name: bytes) -> tuple[bytes, bytes]:
    """Divide a name at the last dot of its last component."""
    dot = name.rfind(b".", name.rfind(b"/") + 1)
    return (name, b"") if dot < 0 else (name[:dot], name[dot + 1 :])


@dataclass
class KeyRule:
    """How keys are made: `kind`, the expression of a regex, and whether names are divided at the last dot.

    `unmatched` counts names that the expression does not match: their key is the name.
    """

    kind: Kind = "full"
    pattern: re.Pattern[str] | None = None
    last_dot: bool = False
    unmatched: int = 0

    def __post_init__(self) -> None:
        self.cut: Callable[[bytes], tuple[bytes, bytes]] = cut_last if self.last_dot else cut_first

    @property
    def may_have_dots(self) -> bool:
        """Whether a dot may be in the last component of a key, where readers of shards would end it."""
        return self.kind == "regex" or self.last_dot

    @property
    def as_readers(self) -> bool:
        """Whether readers of shards see the same samples, unless entries are renamed."""
        return self.kind == "full" and not self.last_dot

    def stem(self, base: bytes) -> bytes:
        """Return the part of a base name that files of one sample have in common, if keys are paths."""
        return self.cut(base)[0]

    def key(self, name: bytes) -> bytes:
        """Return the key of a name."""
        if self.pattern is not None:
            return self._replaced(name, self.pattern)
        stem = self.cut(name)[0]
        if self.kind == "base":
            return stem[stem.rfind(b"/") + 1 :]
        return stem.replace(b"/", b"") if self.kind == "flat" else stem

    def field(self, name: bytes) -> bytes:
        """Return the field of a name, empty without a dot."""
        return self.cut(name)[1]

    def _replaced(self, name: bytes, pattern: re.Pattern[str]) -> bytes:
        text = os.fsdecode(name)
        last: re.Match[str] | None = None

        def first_group(match: re.Match[str]) -> str:
            nonlocal last
            last = match
            return (match[1] or "") if pattern.groups else ""

        key = os.fsencode(pattern.sub(first_group, text))
        field = self.field(name)
        suffix = b"." + field if len(self.cut(name)[0]) < len(name) else b""
        if last is None:
            self.unmatched += 1
        elif last.end() == len(text) and not (pattern.groups and last.end(1) == len(text)):
            return key
        return key.removesuffix(suffix)


def parse_key(text: str, last_dot: bool) -> KeyRule:
    """Return the rule of --key. Raises Usage for a bad expression."""
    kind = _KINDS.get(text)
    if kind is not None:
        return KeyRule(kind, None, last_dot)
    try:
        return KeyRule("regex", compile_regex(text), last_dot)
    except (re.error, RecursionError, OverflowError) as error:
        raise Usage(
            f"{spell('key')} {show(text)}: {error}", "a key is full, base, flat or a regular expression with a group"
        ) from None


_FILE = Struct(">Qq")  # number and size of a file


def has_key(name: bytes) -> bool:
    """Return whether readers of shards find a key in the name of an entry."""
    start = name.rfind(b"/") + 1
    return name.find(b".", start) > start


def is_sample(files: Iterable[PlannedFile]) -> bool:
    """Return whether readers of shards find a sample in entries."""
    return any(has_key(name) for name, _, _ in files)


def attach(
    batches: Iterable[PlannedBatch], may_lack: Callable[[], bool], left_out: CountedNames
) -> Iterator[PlannedBatch]:
    """Yield the samples, with files without a key in the next sample of their category, at its end in the last one.

    So these files count for no limit of samples. `may_lack` says whether there are any so far. In a category without
    samples they are left out, and counted in `left_out`.
    """
    held: PlannedBatch | None = None  # the last samples
    loose: PlannedBatch | None = None  # files without a key, after them

    def last() -> Iterator[PlannedBatch]:
        if held is not None and loose is not None:
            end = together((held, loose))
            end.stops[-1] = len(end.names)
            yield end
        elif held is not None:
            yield held
        elif loose is not None:
            left_out.add(loose.names[0], len(loose.names))

    for batch in batches:
        before = held or loose
        if before is not None and before.category != batch.category:
            yield from last()
            held = loose = None
        if loose is not None or may_lack():
            body, loose = _attached(batch if loose is None else together((loose, batch)))
        else:
            body = batch
        if body is not None:
            if held is not None:
                yield held
            held = body
    yield from last()


def _attached(batch: PlannedBatch) -> tuple[PlannedBatch | None, PlannedBatch | None]:
    """Return the samples of a batch, each with the files without a key before it, and the files after the last one."""
    names, keys, stops = batch.names, [], []
    start = 0
    for key, stop in zip(batch.keys, batch.stops, strict=True):
        if any(map(has_key, names[start:stop])):
            keys.append(key)
            stops.append(stop)
        start = stop
    end = stops[-1] if stops else 0
    sources = batch.sources
    body = PlannedBatch(keys, stops, names[:end], batch.sizes[:end], sources and sources[:end], batch.category)
    loose = PlannedBatch([], [], names[end:], batch.sizes[end:], sources and sources[end:], batch.category)
    return body if keys else None, loose if loose.names else None


DOTTED = 10_000  # fields that are remembered
_FEW = 4  # so many are no evidence yet


class DottedFields:
    """The fields with a dot inside, and which of them are in one sample only.

    Fields occur in many samples. Where most of those with a dot do not, these are probably parts of names; so are
    fields with a dot that are many more than samples, such as those of `cat.0.jpg` to `dog.12499.jpg`.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, bytes | None] = {}  # by field: the key of its sample, None for several samples

    def watch(self, batches: Iterable[PlannedBatch]) -> Iterator[PlannedBatch]:
        """Yield the batches, after a look at the names that have two dots."""
        for batch in batches:
            for name in [name for name in batch.names if name.count(b".") > 1]:
                key, field = cut_first(name)
                if b"." not in field or (field not in self._keys and len(self._keys) >= DOTTED):
                    continue
                if self._keys.setdefault(field, key) != key:
                    self._keys[field] = None
            yield batch

    def parts_of_names(self, samples: int) -> tuple[str, bytes] | None:
        """Return which fields are probably parts of names, in words, and one of them; None without them.

        Args:
            samples: the number of all samples.
        """
        once = [field for field, key in self._keys.items() if key is not None]
        more = " or more" if len(self._keys) == DOTTED else ""
        if len(once) >= _FEW and 2 * len(once) > len(self._keys):
            return f"each in one sample only: {len(once)}{more}", once[0]
        if len(self._keys) >= _FEW * max(samples, 1):
            return f"many more than samples: {len(self._keys)}{more} in {plural(samples, 'sample')}", next(
                iter(self._keys)
            )
        return None


def in_directories(chunks: Iterable[Chunk], keyless: CountedNames, last_dot: bool) -> Iterator[PlannedBatch]:
    """Yield the samples if the whole path is the key.

    Files of one sample must follow each other: `Tree.together` is set.
    """
    last: PlannedBatch | None = None
    for directory, bases, sizes in chunks:
        stems, odd = _stems(bases, last_dot)
        if odd:
            keyless.add(directory + odd[0], len(odd))
        stops = ends_of_runs(stems)
        keys = [directory + stems[stop - 1] for stop in stops]
        batch = PlannedBatch(keys, stops, [directory + base for base in bases], list(sizes))
        if last is not None:
            batch = _joined(last, batch)
        end = len(batch.keys)
        if end > 1:
            yield batch.part(0, end - 1)
        last = batch.part(end - 1, end)  # it may go on
    if last is not None:
        yield last


def _joined(last: PlannedBatch, following: PlannedBatch) -> PlannedBatch:
    """Return `following` with the last sample of the batch before, which the first sample may continue."""
    if last.keys[0] != following.keys[0]:
        return together((last, following))
    count = len(last.names)
    stops = [count + stop for stop in following.stops]
    return PlannedBatch(following.keys, stops, last.names + following.names, last.sizes + following.sizes)


def _stems(names: list[bytes], last_dot: bool) -> tuple[list[bytes], list[bytes]]:
    """Return the part of each name before its dot, and the names without a key to readers of shards."""
    stems = [stem for name in names for stem, dot, _ in (name.partition(b"."),) if dot]
    odd = []
    if len(stems) < len(names) or b"" in stems:
        odd = [name for name in names if name.find(b".") < 1]
        stems = [name.partition(b".")[0] for name in names]
    if last_dot:
        stems = [name[:dot] if (dot := name.rfind(b".")) >= 0 else name for name in names]
    return stems, odd


def by_key(
    chunks: Iterable[Chunk], rule: KeyRule, keyless: CountedNames, tmpdir: str | None
) -> Iterator[PlannedSample]:
    """Yield the samples for keys that are spread over directories, each where its first file is."""
    files = Multimap(tmpdir)
    for directory, names, sizes in chunks:
        if odd := _stems(names, last_dot=False)[1]:
            keyless.add(directory + odd[0], len(odd))
        for base, size in zip(names, sizes):  # noqa: B905
            name = directory + base
            files.add(rule.key(name), _FILE.pack(files.count, size) + name)

    def groups() -> Iterator[tuple[bytes, PlannedSample]]:
        for key, values in files.groups():
            rows = [(value[_FILE.size :], _FILE.unpack_from(value)[1], b"") for value in values]
            yield values[0][:8], (key, rows, 0)

    return ranked(groups(), tmpdir)


def ranked(samples: Iterable[tuple[bytes, PlannedSample]], tmpdir: str | None) -> Iterator[PlannedSample]:
    """Yield samples in order of their ranks; the sort is stable."""
    pairs = ((rank, marshal.dumps(sample, 2)) for rank, sample in samples)
    return map(marshal.loads, by_rank(pairs, tmpdir))
