"""The list of shards that `--manifest` writes, read again and compared with the shards."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tarkit.checking.findings import Finding, ShardReport
from tarkit.errors import TarkitError, show
from tarkit.shards.writer import MANIFEST_COLUMNS
from tarkit.stores import schemes
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file, parse_file
from tarkit.tables.recipe import MalformedRow, without_bom, without_end
from tarkit.tables.tsv import unescape_tsv


class ManifestRow(NamedTuple):
    """A row of a manifest: `stored` is the length of the file in bytes."""

    shard: str
    samples: int
    stored: int
    sha256: str
    first: bytes
    last: bytes


def read_manifest(path: str, options: StoreOptions | None = None) -> list[ManifestRow]:
    """Return the rows of a manifest, which `options` say how to reach.

    Raises:
        TarkitError: `PATH:LINE: reason` for an invalid manifest.
    """
    header = "\t".join(MANIFEST_COLUMNS).encode()
    rows = []
    word, path = path, file_label(path)
    with open_file(word, options) as file:
        for number, line in enumerate(without_bom(file), 1):
            text = without_end(line)
            if number == 1 and text != header:
                raise TarkitError(f"{path}: not a manifest: its first line is not {show(header)}")
            if number > 1 and text:
                try:
                    shard, samples, stored, sha256, first, last = map(unescape_tsv, text.split(b"\t"))
                    keys = (first, last)
                    rows.append(ManifestRow(os.fsdecode(shard), int(samples), int(stored), sha256.decode(), *keys))
                except (ValueError, MalformedRow):
                    raise TarkitError(f"{path}:{number}: not a row of a manifest") from None
    if not rows:
        raise TarkitError(f"{path}: no shard found")
    return rows


def places(rows: Sequence[ManifestRow], manifest: str) -> list[str]:
    """Return the paths or URLs of the shards of a manifest: relative to it, or in its directory, else as listed.

    Those of a manifest at a URL are in its directory, unless URLs are listed; whether they are there is not looked up.
    """
    kind, place = parse_file(manifest)
    directory = "" if kind == "pipe" else os.path.dirname(place)
    names = Counter(os.path.basename(row.shard) for row in rows)
    found = []
    for row in rows:
        name = os.path.basename(row.shard)
        if kind == "url":
            listed = schemes.scheme_of(row.shard) is not None
            found.append(row.shard if listed else f"{directory}/{name if names[name] == 1 else row.shard}")
            continue
        near = [] if os.path.isabs(row.shard) else [os.path.join(directory, row.shard)]
        near += [os.path.join(directory, name)] if names[name] == 1 else []
        found.append(next(filter(os.path.exists, near), row.shard))
    return found


class Manifest:
    """The rows of a manifest, and which of them were compared. A shard is identified by its path, else by its name."""

    def __init__(self, path: str, rows: Sequence[ManifestRow]) -> None:
        self.path = file_label(path)
        self._left = dict(enumerate(rows))
        self._by_path = {os.path.realpath(place): number for number, place in enumerate(places(rows, path))}
        self._by_name: dict[str, int | None] = {}
        for number, row in enumerate(rows):
            name = os.path.basename(row.shard)
            self._by_name[name] = None if name in self._by_name else number

    def compare(self, report: ShardReport, path: str) -> Iterator[Finding]:
        """Yield the differences between a shard and its row."""
        number = self._by_path.get(os.path.realpath(path), self._by_name.get(os.path.basename(path)))
        row = None if number is None else self._left.pop(number, None)
        if row is None:
            yield Finding("extra-shard", report.shard, None, None, f"{self.path} does not list it")
            return
        if not report.readable:
            return
        have = (report.samples, report.stored, report.sha256, report.first or b"", report.last or b"")
        labels = ("samples", "bytes", "sha256", "first key", "last key")
        for label, listed, found in zip(labels, row[1:], have, strict=True):
            if found is None:
                yield Finding(
                    "changed-shard",
                    report.shard,
                    None,
                    None,
                    f"{label} cannot be compared: it is neither a file nor an object",
                )
            elif listed != found:
                words = [show(each) if isinstance(each, bytes) else str(each) for each in (listed, found)]
                what = f"{label}: {words[0]} in {self.path}, {words[1]} in the shard"
                yield Finding("changed-shard", report.shard, None, None, what)

    def findings(self) -> Iterator[Finding]:
        """Yield the shards that are listed but were not compared."""
        for row in self._left.values():
            yield Finding("missing-shard", row.shard, None, None, f"{self.path} lists it, but it does not exist")
