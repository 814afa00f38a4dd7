"""Write samples as files in a directory: the file of each entry, and checks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tarkit.errors import Problem, TarkitError, show
from tarkit.extraction.folder import Exists, OutputDirectory, Unsafe, check_target, components
from tarkit.problems import Policy
from tarkit.samples.sample import TarSample
from tarkit.tar import block
from tarkit.tar.header import mode_and_time
from tarkit.tar.reader import Entry

SMALL = 1 << 18  # bytes of a file that is written at once
READ = 1 << 20  # bytes of a sample that are read at once

_FILES = frozenset((block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS))
_FOLDERS = frozenset((block.DIRECTORY, block.GNU_DUMPDIR))
_NOTHING = frozenset((block.PAX_GLOBAL, block.GNU_VOLUME))
_REFUSED = {block.CHAR: "a character device", block.BLOCK_DEVICE: "a block device", block.FIFO: "a FIFO"}


@dataclass
class Extraction:
    """Puts samples into a folder; `time` is that of the files in nanoseconds, None for now, -1 for the entry's own.

    `plan` looks at a sample first, without writing; `write` writes it. Either way a sample with something unsafe in it
    is an error, or left out whole by `policy`, and two entries of one name are an error. Afterwards `existing` is how
    many files are in the way of those that were planned, and `first` the first of them.
    """

    folder: OutputDirectory
    policy: Policy
    time: int | None = -1
    files: int = 0
    written: int = 0  # bytes
    existing: int = 0
    reserved: bytes | None = None  # a path that is for something else
    first: bytes = b""
    _above: list[bytes] = field(default_factory=list)
    _seen: dict[int, bool] = field(default_factory=dict)  # by the hash of a path, whether a link may lead there

    def plan(self, sample: TarSample) -> None:
        """Check whether the entries of a sample can be written."""
        for entry, parts in self._safe(sample, sample.entries):
            found = None if not parts else self._look(sample, entry, parts)
            if found and not self.existing:
                self.first = b"/".join(parts)
            self.existing += found or False

    def begin(self) -> None:
        """Forget the planned paths before they are written."""
        self._seen.clear()
        self._above = []
        self.folder.make()

    def write(self, sample: TarSample) -> None:
        """Write the entries of a sample; one whose end is not known is read meanwhile."""
        self._write_entries(sample, sample.entries)
        while sample.more is not None:
            known = len(sample.entries)
            sample.source.release(sample.stop)
            sample.more()
            self._write_entries(sample, sample.entries[known:])

    def _write_entries(self, sample: TarSample, entries: Sequence[Entry]) -> None:
        chosen = list(self._safe(sample, entries))
        if not chosen:
            return
        source = sample.source
        start = min(entry.start for entry, _ in chosen)
        stop = max(entry.stop for entry, _ in chosen)
        blob = memoryview(source.read(start, stop)) if stop - start <= READ else None
        for entry, parts in chosen:
            try:
                if blob is not None:
                    header = bytes(blob[entry.start - start : entry.data - start])
                    self._write(sample, entry, parts, header, blob[entry.data - start :][: entry.size])
                else:
                    self._write(sample, entry, parts, source.read(entry.start, entry.data), None)
            except Exists as error:
                raise TarkitError(f"{_path(self.folder, error.name)}: it is there already", _FORCE) from None
            except Unsafe as error:
                raise self._unsafe(sample, entry, error) from None
            except OSError as error:
                if error.filename != source.name:
                    error.filename, error.filename2 = _path(self.folder, b"/".join(parts)), None
                raise

    def _write(
        self, sample: TarSample, entry: Entry, parts: list[bytes], header: bytes, content: memoryview | None
    ) -> None:
        if _is_folder(entry):
            self.folder.folder(parts)
        elif entry.type == block.SYMLINK:
            self.folder.symlink(parts, entry.link)
            self.files += 1
        elif entry.type == block.HARD_LINK:
            self.folder.hard_link(parts, components(entry.link))
            self.files += 1
        else:
            mode, time = mode_and_time(header)
            time_ = time if self.time == -1 else self.time
            source = sample.source
            if content is None and entry.size <= SMALL:
                content = memoryview(source.read(entry.data, entry.data + entry.size))
            if content is not None and entry.size <= SMALL:
                self.folder.small(parts, content, mode | 0o600, time_)
            else:
                start, stop = entry.data, entry.data + entry.size
                self.folder.large(parts, lambda sink: source.send(start, stop, sink), mode | 0o600, time_)
            self.files += 1
            self.written += entry.size

    def _safe(self, sample: TarSample, entries: Sequence[Entry]) -> Iterator[tuple[Entry, list[bytes]]]:
        """The entries to write, each with the parts of its path; none when the sample is left out."""
        chosen = []
        good = True
        for entry in entries:
            if entry.type in _NOTHING:
                continue
            try:
                parts = self._parts(entry)
            except Unsafe as error:
                if self.policy.judge(self._unsafe(sample, entry, error)) == "drop":
                    good = False
                    break
                continue
            if entry.sparse:
                what = f"{show(entry.name)} is sparse: its content is not stored as it is"
                hint = "GNU tar unpacks it"
                if self.policy.judge(Problem("sparse-entry", sample.source.name, entry.start, what, hint)) == "drop":
                    good = False
                    break
                continue
            chosen.append((entry, parts))
        for entry, parts in chosen if good else []:
            self._once(sample, entry, parts)
            if parts:
                yield entry, parts

    def _parts(self, entry: Entry) -> list[bytes]:
        """The path of an entry. Raises Unsafe for an entry that is not extracted."""
        parts = components(entry.name)
        if not parts and not _is_folder(entry):
            raise Unsafe(f"the name {show(entry.name)} is not one of a file")
        if entry.type == block.SYMLINK:
            check_target(parts, entry.link)
        elif entry.type == block.HARD_LINK:
            target = components(entry.link)
            if target == parts or not target:
                raise Unsafe(f"{show(entry.name)} is a hard link to itself")
        elif entry.type not in _FILES and not _is_folder(entry) and not entry.sparse:
            what = _REFUSED.get(entry.type, f"an entry of the unknown type {show(entry.type)}")
            raise Unsafe(f"{show(entry.name)} is {what}, which is not extracted")
        return parts

    def _once(self, sample: TarSample, entry: Entry, parts: list[bytes]) -> None:
        """Note a path. Raises Problem when it was there before, or a hard link leads to what was not."""
        if entry.type == block.HARD_LINK and not self._seen.get(hash(b"/".join(components(entry.link)))):
            what = f"{show(entry.name)} is a hard link to {show(entry.link)}, which was not extracted before it"
            raise Problem("unsafe-name", sample.source.name, entry.start, what)
        if parts[:-1] != self._above:
            self._check_above(sample, entry, parts)
            self._above = parts[:-1]
        if _is_folder(entry):
            return
        if self.reserved is not None and b"/".join(parts) == self.reserved:
            raise TarkitError(f"{show(entry.name)} would be written where the report goes")
        number = hash(b"/".join(parts))
        if number in self._seen:
            what = f"{show(entry.name)} was in an earlier entry, and would be written twice"
            raise Problem("duplicate-entry", sample.source.name, entry.start, what, "unpack them into several folders")
        self._seen[number] = entry.type != block.SYMLINK

    def _check_above(self, sample: TarSample, entry: Entry, parts: list[bytes]) -> None:
        """Raises Problem when what should be a folder above an entry is an earlier entry, a file or a link."""
        for count in range(1, len(parts)):
            if hash(b"/".join(parts[:count])) in self._seen:
                what = f"{show(b'/'.join(parts[:count]))} is no folder, and nothing is written through it"
                raise Problem("unsafe-name", sample.source.name, entry.start, what)

    def _look(self, sample: TarSample, entry: Entry, parts: list[bytes]) -> bool:
        """Whether something is in the way of an entry. Raises Problem when force cannot help."""
        try:
            there = self.folder.existing(parts)
        except Unsafe as error:
            raise self._unsafe(sample, entry, error) from None
        return there is not None and not _is_folder(entry)

    def _unsafe(self, sample: TarSample, entry: Entry, error: Unsafe) -> Problem:
        return Problem("unsafe-name", sample.source.name, entry.start, str(error), _SKIP)


_FORCE = "--force replaces files that are there"
_SKIP = "--skip unsafe-name leaves such samples out"


def _is_folder(entry: Entry) -> bool:
    return entry.type in _FOLDERS or (entry.type in _FILES and entry.name.endswith(b"/") and not entry.size)


def _path(folder: OutputDirectory, name: bytes) -> str:
    return os.fsdecode(os.path.join(folder.path, name))
