"""Fill the indexes of a shard by one scan of its headers. Only regular files with a key are listed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from tarkit.errors import Problem, Unsupported, show
from tarkit.indexing.files import IndexFile
from tarkit.indexing.formats import LAYOUTS, IndexedField, Layout
from tarkit.problems import Policy
from tarkit.samples.dataset import open_source
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import TarSample
from tarkit.streams.codecs import MESSAGES, codec_by_suffix
from tarkit.streams.location import Location
from tarkit.streams.source import Source
from tarkit.tar import block

REGULAR = (*block.FILES, block.GNU_SPARSE)

Look = Callable[[Source, TarSample], None]


class Scanned(NamedTuple):
    """The results of a scan of a shard; `md5` is empty if not requested."""

    samples: int = 0
    size: int = 0
    dropped: int = 0
    md5: str = ""


def open_shard(location: Location) -> Source:
    """Open a shard that is a plain file, or an object that ranges can be read of.

    Raises:
        Unsupported: the shard is compressed or a stream, and so has no offsets.
    """
    if location.kind != "url" and not (location.kind == "path" and stat.S_ISREG(os.stat(location.text).st_mode)):
        raise Unsupported(f"{location.name}: an index needs a regular file")
    source = open_source(location)
    if source.seekable:
        return source
    source.close()
    if source.codec is None:
        message = f"{location.name}: an index needs a server that sends parts of an object"
        raise Unsupported(message, f"copy it to a file: tarkit cat {quote(location.name)} -o FILE.tar")
    codec, plain = codec_by_suffix(location.text), location.text
    while codec is not None and codec_by_suffix(plain):
        plain = os.path.splitext(plain)[0]
    plain = plain if plain.endswith(".tar") else f"{plain}.tar"
    if plain == location.text:
        plain = f"{plain.removesuffix('.tar')}.plain.tar"
    titles = {"zip": "a zip", **{name: form.title for name, form in MESSAGES.items()}}
    form = titles.get(source.codec, "a compressed archive")
    raise Unsupported(
        f"{location.name}: an index needs offsets in a plain archive, not {form}",
        f"make a plain archive: tarkit cat {quote(location.text)} -o {quote(plain)}",
    )


def fill_indexes(
    location: Location,
    files: Sequence[IndexFile],
    policy: Policy,
    tmpdir: str | None = None,
    *,
    strict: bool = False,
    look: Look | None = None,
) -> tuple[list[Layout], Scanned]:
    """Scan a shard once; return its indexes, not written yet. `look` is called with each sample.

    Raises:
        Problem: a problem that `policy` does not let pass.
        TarkitError: the file was changed meanwhile.
        Unsupported: with `strict`, a layout cannot represent the shard; else `Layout.error` says so.
    """
    source = open_shard(location)
    size = source.size or 0
    indexes = [LAYOUTS[file.format](file, location.text, source.name, size, tmpdir) for file in files]

    def check() -> None:
        for index in indexes:
            if strict and index.error is not None:
                raise index.error

    samples, count = SampleReader(source, policy, moves=False), 0
    try:
        for key, fields in _rows(samples, policy, look):
            count += 1
            for index in indexes:
                index.add(key, fields)
                if index.error is not None:
                    check()
        end = samples.marker if samples.zeros is not None else None
        for index in indexes:
            index.finish(count, end)
        check()
        source.unchanged()
    finally:
        source.close()
    return indexes, Scanned(count, size, samples.dropped)


def _rows(samples: SampleReader, policy: Policy, look: Look | None) -> Iterator[tuple[bytes, list[IndexedField]]]:
    """Yield the key and the fields of each sample in an index; `look` is called also with samples without a key.

    Raises:
        Problem: `sparse-entry`; problems of `samples`.
    """
    for sample in samples:
        if look is not None:
            look(samples.source, sample)
        if sample.key is None:
            continue
        fields, good = [], True
        prefix = sample.key + b"."
        cut = len(prefix)
        for name, start, data, size, _, type_, _, real in sample.entries:
            if type_ not in REGULAR or not name.startswith(prefix) or name.find(b"/", cut) >= 0:
                continue
            if real >= 0:
                message = f"{show(name)} is a sparse file, whose content has no single offset"
                problem = Problem("sparse-entry", samples.source.name, start, message)
                good = policy.apply(problem) == "keep" and good
                continue
            fields.append(IndexedField(name, data, size, start))
        if good and fields:
            yield sample.key, fields
