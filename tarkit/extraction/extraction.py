"""Write samples as files in a directory: the file of each entry, and checks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tarkit.errors import Problem, TarkitError, show, spell
from tarkit.extraction.directory import Exists, InTheWay, OutputDirectory, Unsafe, check_target, components
from tarkit.problems import Policy
from tarkit.samples.sample import TarSample
from tarkit.tar import block
from tarkit.tar.header import mode_and_time
from tarkit.tar.reader import Entry

SMALL = 1 << 18  # bytes of a file that is written at once
READ = 1 << 20  # bytes of a sample that are read at once

_DIRECTORIES = frozenset((block.DIRECTORY, block.GNU_DUMPDIR))
_IGNORED = frozenset((block.PAX_GLOBAL, block.GNU_VOLUME))
_REFUSED = {block.CHAR: "a character device", block.BLOCK_DEVICE: "a block device", block.FIFO: "a FIFO"}


@dataclass
class Extraction:
    """Write samples to a directory.

    `plan` checks a sample without writing it; `write` checks and writes it. A sample with an unsafe entry is an error,
    or left out whole by `policy`; two entries of one name are an error.

    Attributes:
        policy: decides about problems.
        time: the modification time of the files in nanoseconds; None for now, -1 for that of the entry.
        files, written: how many files were written, and their size in bytes.
        existing: after `plan`, how many of the files exist already.
        reserved: a path that no entry may have.
        first: the first of the existing files.
    """

    directory: OutputDirectory
    policy: Policy
    time: int | None = -1
    files: int = 0
    written: int = 0
    existing: int = 0
    reserved: bytes | None = None
    first: bytes = b""
    _parent: list[bytes] = field(default_factory=list)
    _written: dict[int, bool] = field(default_factory=dict)  # hash of a path -> whether a hard link may point to it

    def plan(self, sample: TarSample) -> None:
        """Check whether the entries of a sample can be written."""
        for entry, parts in self._safe(sample, sample.entries):
            exists = None if not parts else self._exists(sample, entry, parts)
            if exists and not self.existing:
                self.first = b"/".join(parts)
            self.existing += exists or False

    def begin(self) -> None:
        """Forget the planned paths before they are written."""
        self._written.clear()
        self._parent = []
        self.directory.make()

    def write(self, sample: TarSample) -> None:
        """Write the entries of a sample; the rest of a sample whose end is not known is read meanwhile."""
        self._write_entries(sample, sample.entries)
        while sample.more is not None:
            written = len(sample.entries)
            sample.source.release(sample.stop)
            sample.more()
            self._write_entries(sample, sample.entries[written:])

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
                path = _path(self.directory, error.name)
                raise TarkitError(
                    f"{path}: the file exists", way_out(path, f"{spell('force')} replaces existing files")
                ) from None
            except Unsafe as error:
                raise self._unsafe(sample, entry, error) from None
            except OSError as error:
                if error.filename != source.name:
                    error.filename, error.filename2 = _path(self.directory, b"/".join(parts)), None
                raise

    def _write(
        self, sample: TarSample, entry: Entry, parts: list[bytes], header: bytes, content: memoryview | None
    ) -> None:
        if _is_directory(entry):
            self.directory.make_directory(parts)
        elif entry.type == block.SYMLINK:
            self.directory.symlink(parts, entry.link)
            self.files += 1
        elif entry.type == block.HARD_LINK:
            self.directory.hard_link(parts, components(entry.link))
            self.files += 1
        else:
            mode, time = mode_and_time(header)
            time_ = time if self.time == -1 else self.time
            source = sample.source
            if content is None and entry.size <= SMALL:
                content = memoryview(source.read(entry.data, entry.data + entry.size))
            if content is not None and entry.size <= SMALL:
                self.directory.small(parts, content, mode | 0o600, time_)
            else:
                start, stop = entry.data, entry.data + entry.size
                self.directory.large(parts, lambda sink: source.send(start, stop, sink), mode | 0o600, time_)
            self.files += 1
            self.written += entry.size

    def _safe(self, sample: TarSample, entries: Sequence[Entry]) -> Iterator[tuple[Entry, list[bytes]]]:
        """Yield the entries to write, each with the components of its path; none if the sample is left out."""
        chosen = []
        good = True
        for entry in entries:
            if entry.type in _IGNORED:
                continue
            try:
                parts = self._parts(entry)
            except Unsafe as error:
                if self.policy.apply(self._unsafe(sample, entry, error)) == "drop":
                    good = False
                    break
                continue
            if entry.sparse:
                message = f"{show(entry.name)} is a sparse file, stored without its holes"
                hint = "extract it with GNU tar"
                if self.policy.apply(Problem("sparse-entry", sample.source.name, entry.start, message, hint)) == "drop":
                    good = False
                    break
                continue
            chosen.append((entry, parts))
        for entry, parts in chosen if good else []:
            self._check_path(sample, entry, parts)
            if parts:
                yield entry, parts

    def _parts(self, entry: Entry) -> list[bytes]:
        """Return the components of an entry's path. Raises Unsafe for an entry that is not extracted."""
        parts = components(entry.name)
        if not parts and not _is_directory(entry):
            raise Unsafe(f"invalid file name {show(entry.name)}")
        if entry.type == block.SYMLINK:
            check_target(parts, entry.link)
        elif entry.type == block.HARD_LINK:
            target = components(entry.link)
            if target == parts or not target:
                raise Unsafe(f"{show(entry.name)} is a hard link to itself")
        elif entry.type not in block.FILES and not _is_directory(entry) and not entry.sparse:
            words = _REFUSED.get(entry.type, f"an entry of the unknown type {show(entry.type)}")
            raise Unsafe(f"{show(entry.name)} is {words}, which is not extracted")
        return parts

    def _check_path(self, sample: TarSample, entry: Entry, parts: list[bytes]) -> None:
        """Record the path of an entry.

        Raises:
            Problem: an earlier entry has this path, or no earlier entry has the target of a hard link.
            TarkitError: the path is reserved.
        """
        if entry.type == block.HARD_LINK and not self._written.get(hash(b"/".join(components(entry.link)))):
            message = f"{show(entry.name)} is a hard link to {show(entry.link)}, which was not extracted before it"
            raise Problem("unsafe-name", sample.source.name, entry.start, message)
        if parts[:-1] != self._parent:
            self._check_parents(sample, entry, parts)
            self._parent = parts[:-1]
        if _is_directory(entry):
            return
        if self.reserved is not None and b"/".join(parts) == self.reserved:
            raise TarkitError(f"{show(entry.name)} has the path of the report")
        number = hash(b"/".join(parts))
        if number in self._written:
            message = f"{show(entry.name)} would be written twice, an earlier entry has this name"
            raise Problem("duplicate-entry", sample.source.name, entry.start, message, "extract to several directories")
        self._written[number] = entry.type != block.SYMLINK

    def _check_parents(self, sample: TarSample, entry: Entry, parts: list[bytes]) -> None:
        """Raise Problem if a parent directory of an entry is an earlier entry, a file or a link."""
        for count in range(1, len(parts)):
            if hash(b"/".join(parts[:count])) in self._written:
                message = f"{show(entry.name)} is not extracted: {show(b'/'.join(parts[:count]))} is not a directory"
                raise Problem("unsafe-name", sample.source.name, entry.start, message)

    def _exists(self, sample: TarSample, entry: Entry, parts: list[bytes]) -> bool:
        """Return whether the file of an entry exists. Raises Problem for a path through a link or a file."""
        try:
            status = self.directory.existing(parts)
        except Unsafe as error:
            raise self._unsafe(sample, entry, error) from None
        return status is not None and not _is_directory(entry)

    def _unsafe(self, sample: TarSample, entry: Entry, error: Unsafe) -> Problem:
        hint = f"{spell('skip', 'unsafe-name')} leaves such samples out"
        if isinstance(error, InTheWay):
            hint = f"a link or a file is there: remove it, or name another directory with {spell('directory')}"
        return Problem("unsafe-name", sample.source.name, entry.start, str(error), hint)


def _is_directory(entry: Entry) -> bool:
    return entry.type in _DIRECTORIES or (entry.type in block.FILES and entry.name.endswith(b"/") and not entry.size)


def way_out(path: str, force: str) -> str:
    """Return the hint for an output that exists: `force`, if that replaces it."""
    if os.path.isdir(path) and not os.path.islink(path):
        return f"it is a directory: remove it, or name another directory with {spell('directory')}"
    return force


def _path(directory: OutputDirectory, name: bytes) -> str:
    return os.fsdecode(os.path.join(directory.path, name))
