"""Samples as nearly all of them are, without the detours that the others need: the fields are regular files that lie
one behind the other, with no other entry between them.

What comes out is what `tarkit.proc.result.Maker` makes, at a third of the time; where it would be anything else, the
answer is None, and the detours are taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.proc.job import Job
from tarkit.samples.sample import Sample
from tarkit.streams.ranges import HeldRange
from tarkit.tar import block
from tarkit.tar.block import padding
from tarkit.tar.header import encode
from tarkit.tar.reader import Raw

Fields = list[tuple[str, bytes]]

_FILES = (block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS)


def taken(key: bytes, entries: list[Raw], data: bytes, base: int) -> Fields | None:
    """The fields and contents of a sample whose archive has `data` at the offset `base`."""
    prefix = key + b"."
    skip = len(prefix)
    fields = []
    end = entries[0][1] if entries else 0
    for name, start, begin, size, stop, kind, _, real in entries:
        if start != end or kind not in _FILES or real >= 0 or not name.startswith(prefix) or name.find(b"/", skip) >= 0:
            return None
        end = stop
        fields.append((name[skip:].decode("utf-8", "surrogateescape"), data[begin - base : begin - base + size]))
    return fields if len(dict(fields)) == len(fields) else None


def given(
    key: bytes,
    entries: list[Raw],
    data: bytes,
    base: int,
    before: Fields,
    after: Sequence[tuple[str, bytes | None]],
    mtime: int,
) -> tuple[bytes, list[Raw], bytes] | None:
    """Key, entries and bytes of the sample with the fields `after` in place of those `before`; None in place of
    contents is what it was. None in place of all: nothing changed. Raises ValueError for what cannot be an entry."""
    wanted = dict(after)
    parts: list[bytes] = []
    made: list[Raw] = []
    pos = same = 0
    for (field, original), entry in zip(before, entries, strict=True):
        if field not in wanted:
            continue
        value = wanted.pop(field)
        name, start, begin, size, stop, kind, link, real = entry
        if value is None or value == original:
            same += 1
            parts.append(data[start - base : stop - base])
            shift = pos - start
            pos = stop + shift
            made.append((name, start + shift, begin + shift, size, pos, kind, link, real))
        else:
            pos = _add(name, value, mtime, pos, parts, made)
    if same == len(entries) and not wanted:
        return None
    if wanted:
        new = sorted((field.encode("utf-8", "surrogateescape"), value or b"") for field, value in wanted.items())
        for raw, content in new:
            pos = _add(key + b"." + raw, content, mtime, pos, parts, made)
    return key, made, b"".join(parts)


def sample_of(shard: str, key: bytes, entries: list[Raw], data: bytes) -> Sample:
    """The sample that has just these bytes."""
    sample = Sample(key, HeldRange(shard, 0, data), entries, 0, len(data))
    sample.parts = [data]
    return sample


def changed(job: Job, fields: Sequence[tuple[bytes, object]], mtime: int) -> Sample | None:
    """The sample of a job with other contents under its key; None where that takes the long way."""
    entries: list[Raw] = list(map(tuple, job.sample.entries))  # type: ignore[arg-type]
    low = entries[0][1] if entries else 0
    data = job.piece(low, entries[-1][4]) if entries else None
    before = None if data is None else taken(job.key, entries, data, low)
    after = {field.decode("utf-8", "surrogateescape"): content for field, content in fields}
    if data is None or before is None or len(after) < len(fields):
        return None
    contents = [(field, content) for field, content in after.items() if isinstance(content, bytes)]
    if len(contents) < len(after):
        return None
    try:
        made = given(job.key, entries, data, low, before, contents, mtime)
    except ValueError:
        return None
    return job.sample if made is None else sample_of(job.shard, *made)


def _add(name: bytes, content: bytes, mtime: int, pos: int, parts: list[bytes], made: list[Raw]) -> int:
    """A new entry at `pos`; where it ends."""
    size = len(content)
    header = encode(name, size, mtime=mtime)
    pad = padding(size)
    parts += (header, content, bytes(pad))
    begin = pos + len(header)
    made.append((name, pos, begin, size, begin + size + pad, block.REGULAR, b"", -1))
    return begin + size + pad
