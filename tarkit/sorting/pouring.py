"""Write very many samples in their order, as they are, without an object for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tarkit.samples.sample import Sample
from tarkit.sorting.ranges import WHOLE, Places, key_in, ranges_of, size_of, unpack_one
from tarkit.sorting.runs import Record
from tarkit.tar.writer import GATHERED, LONG, PIECES, SMALL, Writer

Wanted = Callable[[Sample, bool], bool]
Marks = bytearray | None  # a byte for each sample, by ordinal


def pour(
    records: Iterable[Record], places: Places, writer: Writer, wanted: Wanted, last: bytes | None, twins: Marks
) -> Iterator[int]:
    """Append samples to an archive; again and again it yields how many those were.

    `wanted` is asked about a sample whose key is that of the one before it (True), or is there more than once (False),
    as `twins` says by ordinal; `last` is the key before the first. Short ranges of files are read one by one and
    written many at a time; neighbours that stay so are one range, and long ranges are left to the writer.
    """
    files, unpack, raw = places.files, unpack_one, writer.raw
    pieces: list[bytes] = []
    count = gathered = 0
    file, start, stop = -1, 0, 0  # the range that waits for a neighbour
    for _, ordinal, place, blob in records:
        ranges, _, in_file, _, begin, size = unpack(place)
        key = place[WHOLE:] if ranges == 1 else key_in(place)
        near = key == last
        if (near or (twins and twins[ordinal])) and not wanted(places.sample(place, blob), near):
            last = last if near else None  # what follows is no neighbour of the one before this
            continue
        last = key
        count += 1
        if begin == stop and in_file == file and blob is None and ranges == 1 and stop - start < LONG:
            stop += size
            continue
        if start < stop:
            if stop - start > SMALL:
                raw(pieces, gathered)
                pieces, gathered = [], 0
                places.append(file, start, stop, writer)
            else:
                pieces.append(files[file].read(start, stop))
                gathered += stop - start
            start = stop
        if blob is not None:
            pieces.append(blob)
            gathered += len(blob)
        elif ranges == 1:
            file, start, stop = in_file, begin, begin + size
        elif size_of(place) <= SMALL:
            for in_file, begin, size in ranges_of(place):
                pieces.append(files[in_file].read(begin, begin + size))
                gathered += size
        else:
            raw(pieces, gathered)
            pieces, gathered = [], 0
            places.sample(place).write(writer)
        if gathered > GATHERED or len(pieces) >= PIECES:
            raw(pieces, gathered)
            pieces, gathered = [], 0
            yield count
            count = 0
    raw(pieces, gathered)
    if start < stop:
        places.append(file, start, stop, writer)
    yield count
