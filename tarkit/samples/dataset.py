"""Open inputs, decode their compression or convert their zip, and iterate over their samples."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tarkit.bytereader import ByteReader
from tarkit.errors import Problem, Unsupported, Usage, unreadable
from tarkit.problems import Policy
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import SampleBatch, TarSample, key_of, singly, split_name
from tarkit.stores import connect
from tarkit.stores.object_prefetch import open_ahead
from tarkit.streams.background import ReadAhead
from tarkit.streams.codecs import (
    MESSAGES,
    codec_by_magic,
    decoder,
    foreign_codec,
    message_format,
    message_format_by_suffix,
    not_decoded,
)
from tarkit.streams.codecs.registry import DECODED, LZMA, ZIP
from tarkit.streams.command import CommandReader
from tarkit.streams.fileobjects import reader_of
from tarkit.streams.files import Descriptor, File, allow_files
from tarkit.streams.location import Location, is_view, numbered_keys, refuse_view
from tarkit.streams.ranges import CopiedStream, HeldRange, spooled
from tarkit.streams.readers import DescriptorReader, FileReader, Prepended
from tarkit.streams.source import FileSource, Source, StreamSource, WindowSource
from tarkit.tar import block
from tarkit.tar.mistaken import recognise
from tarkit.tar.reader import TarReader

if TYPE_CHECKING:
    from tarkit.stores.reading import RemoteObject
    from tarkit.stores.store import StoreOptions


SMALL = 1 << 12  # bytes of the first request for an object of which not all may be read
LARGE = 1 << 22
"""Bytes of a sample, as a mean, from which on objects are read by ranges where their samples change places.

A header costs the time of a reply, temporary space the time to write and to read. With 20 ms a reply, `shuffle` of
64 MiB takes 40 s by ranges and 0.4 s in order for samples of 64 KiB, 1.7 and 0.3 s for 1 MiB, 0.6 s either way for
4 MiB.
"""

SPARSE = 32  # rows of a view of files for each that is chosen: of more, all take less time than these one by one

SNIFFED = 512  # bytes by which the format is recognised

ABSENT = (FileNotFoundError, PermissionError, Unsupported)
"""Errors of opening a shard for which it is left out with `--skip missing-shard`; not those that any shard may have."""


def open_source(
    location: Location,
    *,
    ahead: bool = False,
    decode_ahead: bool = False,
    tmpdir: str | None = None,
    stream: bool = False,
    reordered: bool = False,
    table: bool = False,
) -> WindowSource | StreamSource:
    """Open one input. Compression and zip are detected by the first bytes and decoded to a stream.

    Args:
        location: the input.
        ahead: read a stream in a thread.
        decode_ahead: decode a compressed file in a thread.
        tmpdir: the directory of temporary files.
        stream: read files as streams too: in order, each byte once.
        reordered: contents will be read in another order: an object with large samples is no stream.
        table: it is the table of a view itself.

    Raises:
        OSError, CommandFailed: the input cannot be opened.
        Unsupported: there is no decoder for its compression; it is a view, where archives are read.
        Usage: stdin is a terminal, or the scheme of the URL is unknown.
    """
    if not table:
        refuse_view(location)
    fd, path, version = 0, location.text if location.kind == "path" else None, None
    if location.kind == "socket":
        return _open_socket(location, ahead, tmpdir)
    if location.kind == "pipe":
        return _stream(CommandReader(location.text), location, ahead, tmpdir)
    if location.kind == "url" and (cached := connect.open_cached(location.text, location.options)) is not None:
        fd, path, version = cached
    elif location.kind == "url":
        return _open_url(location, ahead, tmpdir, stream, reordered)
    if location.file is not None:
        return _stream(reader_of(location.file), location, ahead, tmpdir)
    if location.kind == "path":
        try:
            fd = os.open(location.text, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise unreadable(location.name, error) from error
    if os.isatty(fd):
        raise Usage(f"{location.name} is a terminal", "name the inputs, or pipe an archive to stdin")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return _stream(DescriptorReader(fd, location.name), location, ahead, tmpdir)
    offset = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        codec = _codec(os.pread(fd, SNIFFED, offset), location)
    except OSError as error:
        error.filename = location.name
        raise
    except Unsupported:
        if fd > 2:
            os.close(fd)
        raise
    file = File(Descriptor(fd), location.name, path)
    source: WindowSource | StreamSource
    if codec is None and not stream:
        source = FileSource(file, location.name, offset)
        source.location = location if location.kind in ("path", "url") else None
    else:
        ahead |= decode_ahead and codec in DECODED
        # other processes that share stdin continue at its offset
        reader = DescriptorReader(fd, location.name) if file.path is None else FileReader(file, offset)
        source = _stream(reader, location, ahead, tmpdir, None if offset else file)
    source.object_version = version
    return source


def without_missing(locations: Iterable[Location], policy: Policy) -> list[Location]:
    """Return inputs without the files that do not exist, which the policy leaves out. Raises MissingFile."""
    present = []
    for location in locations:
        if location.kind == "path" and not os.path.lexists(location.text):
            number = errno.ENOENT
            policy.leave_out(location.name, unreadable(location.name, OSError(number, os.strerror(number))))
        else:
            present.append(location)
    return present


def object_of(location: Location) -> tuple[str, StoreOptions | None] | None:
    """Return the object of a store that an input is, if it is worth opening before its turn; else None."""
    if location.kind != "url" or is_view(location) or connect.cache_of(location.options):
        return None  # a cache fetches all of it
    return location.text, location.options


def is_plain_file(location: Location) -> bool:
    """Return whether an input is a regular file with a plain archive, which can be read twice; stdin stays where it is.

    Raises:
        OSError: the file cannot be read.
        Unsupported: there is no decoder for its compression.
    """
    if location.kind == "path" and os.path.isfile(location.text):
        fd = os.open(location.text, os.O_RDONLY | os.O_CLOEXEC)
    elif location.kind == "stdin" and stat.S_ISREG(os.fstat(0).st_mode):
        fd = os.dup(0)
    else:
        return False
    try:
        return _codec(os.pread(fd, SNIFFED, os.lseek(fd, 0, os.SEEK_CUR)), location) is None
    finally:
        os.close(fd)


def _open_url(
    location: Location, ahead: bool, tmpdir: str | None, stream: bool, reordered: bool
) -> WindowSource | StreamSource:
    """Open an object of a store: by ranges, unless it is compressed, `stream` is set, or its store sends no parts."""
    from tarkit.streams.remote import RemoteSource

    remote = connect.open_object(location.text, location.options, first=None if stream else SMALL)
    if stream and reordered:
        stream = not _has_large_samples(remote, location)
    if not stream and remote.info.ranges:
        source = RemoteSource(remote, location.name)
        try:
            if _codec(bytes(source.peek(0, SNIFFED)[:SNIFFED]), location) is None:
                source.location = location
                return source
        except BaseException:
            source.close()
            raise
        source.close()
    read = _stream(remote.stream(), location, ahead, tmpdir)
    read.object_version = remote.info.version
    return read


def _has_large_samples(remote: RemoteObject, location: Location) -> bool:
    """Return whether the samples in the first bytes of an object, as a mean, have at least LARGE bytes.

    The object must be a plain archive, and each range of it known to be of the same version.
    """
    info = remote.info
    if not info.ranges or info.size is None or info.version is None:
        return False
    try:
        head = remote.read(0, info.size, 1)
        plain = _codec(head[:SNIFFED], location) is None
    except BaseException:
        remote.close()
        raise
    front = HeldRange(location.name, 0, head)
    front.size = info.size
    count, stop, last = 0, 0, None
    with suppress(Problem, Unsupported):  # the end of `head`, or damage
        for entry in TarReader(front):
            key, stop = key_of(entry), entry.stop
            count += key is not None and key != last
            last = key or last
    return plain and stop >= LARGE * max(count, 1)


def _stream(
    reader: ByteReader, location: Location, ahead: bool, tmpdir: str | None, file: File | None = None
) -> StreamSource:
    """Return the decoded stream of `reader`; `file` is the file that `reader` reads from its start, if any."""
    name, head = location.name, bytearray(SNIFFED)
    have = 0
    while have < SNIFFED and (count := reader.readinto(memoryview(head)[have:])):
        have += count
    reader = Prepended(bytes(head[:have]), reader)
    if location.sums is not None:
        from tarkit.streams.mds_index import SummedReader

        reader = SummedReader(reader, name, location.sums)
    try:
        codec = _codec(bytes(head[:have]), location)
    except Unsupported:
        reader.close()
        raise
    form = codec if codec in MESSAGES else None
    if codec == "zip":
        from tarkit.zip.reader import ZipReader

        reader = ZipReader(reader, name, tmpdir, file)
    elif codec in MESSAGES:
        reader = _messages(reader, location, codec)
    elif codec is not None:
        reader = decoder(codec, reader, name, None if file is None else lambda: FileReader(file))
        form = location.format or message_format_by_suffix(name)
        form = form if form in MESSAGES else None
        reader = reader if form is None else _messages(reader, location, form)
    source = _stream_source(reader, name, ahead, tmpdir, codec)
    source.form = form
    return source


def _stream_source(
    reader: ByteReader, name: str, ahead: bool, tmpdir: str | None, codec: str | None = None
) -> StreamSource:
    if ahead:
        reader = ReadAhead(reader)
    source = StreamSource(reader, name, tmpdir)
    source.codec = codec
    return source


def _open_socket(location: Location, ahead: bool, tmpdir: str | None) -> StreamSource:
    from tarkit.messages.receiver import SocketReader
    from tarkit.messages.sockets import parse_address
    from tarkit.samples.encoder import encode_value

    options = connect.options_of(location.options)
    address = parse_address(location.text, sends=False)
    reader = SocketReader(address, split_name, encode_value, options.tell)
    return _stream_source(reader, location.name, ahead, tmpdir, "msgpack")


def _messages(reader: ByteReader, location: Location, form: str) -> ByteReader:
    """Return a reader of the archive with the samples of a sequence of messages."""
    from tarkit.messages.reader import MessageReader
    from tarkit.samples.encoder import encode_value

    fields = None
    if MESSAGES[form].has_columns or location.table is not None:
        from tarkit.tables.map_fields import MapFields

        words, key = location.table or ("", None)
        fields = MapFields(words, key, numbered_keys(location))
    return MessageReader(reader, location.name, form, split_name, encode_value, fields)


def _codec(head: bytes, location: Location) -> str | None:
    """Return the codec, or the format of messages, of an input that begins with `head`; None for a plain archive.

    A valid tar header has precedence over any magic number. A zip may begin with other bytes than its magic number, and
    .lzma has other ones with unusual properties: they are recognised by their suffixes. So are messages, which may be
    empty.

    Raises:
        Unsupported: there is no decoder for the compression.
    """
    if len(head) == SNIFFED and block.checksum_ok(head):
        return None
    if location.name.lower().endswith(".mds"):
        return "mds"  # its first bytes are a number, which may look like any magic
    codec = codec_by_magic(head)
    if codec is None and location.format is None and recognise(head) is not None:
        return None  # the reader of the archive names it
    if codec is None and location.format != "tar" and (form := location.format or message_format(head, location.name)):
        return form
    if not head:
        return None
    for named in (ZIP, LZMA):
        if codec is None and any(head) and location.name.lower().endswith(named.suffixes):
            return named.name
    path = location.text if location.kind in ("path", "url") else None
    if codec is None and any(head) and (foreign := foreign_codec(head, path)) is not None:
        raise not_decoded(foreign, location.name)
    return codec


class DrawnRows:
    """The rows that are read of views: numbers from 0 in ascending order, which go on from one view to the next.

    Attributes:
        drawn_by: the step that draws them.
        total: the number of all rows.
    """

    def __init__(self, drawn_by: object, total: int) -> None:
        self.drawn_by = drawn_by
        self.total = total
        self.begin(())

    def begin(self, numbers: Iterable[int]) -> None:
        """Set the numbers before the views are read, again or for the first time."""
        self._numbers = iter(numbers)
        self._next = next(self._numbers, None)
        self._passed = 0

    def among(self, count: int) -> Iterator[int]:
        """Pass over the next `count` rows; yield which of them are read, each as its number among these."""
        begin, self._passed = self._passed, self._passed + count
        while self._next is not None and self._next < begin + count:
            yield self._next - begin
            self._next = next(self._numbers, None)


class ComingKeys:
    """Keys of samples that come next, as far as they are known: those of the latest batch that was taken apart.

    Steps may leave some of the samples out, or give them other keys.
    """

    def __init__(self) -> None:
        self.note(())

    def note(self, keys: Sequence[bytes | None]) -> None:
        """Set the keys, in order."""
        self._keys = keys
        self._places: dict[bytes | None, int] = {}  # the first of each key, once one is asked for

    def noted(self, batches: Iterable[SampleBatch]) -> Iterator[SampleBatch]:
        """Yield batches; the keys of one with several samples are noted before."""
        for batch in batches:
            if batch.count > 1:
                self.note(batch.keys)
            yield batch

    def following(self, key: bytes, most: int) -> Sequence[bytes]:
        """Return a key and those behind it, at most so many together; the key alone if it is not among those noted."""
        self._places = self._places or dict(zip(reversed(self._keys), reversed(range(len(self._keys))), strict=True))
        at = self._places.get(key)
        return (key,) if at is None else self._keys[at : at + most]  # type: ignore[return-value]


class ListedKeys(Protocol):
    """Keys of which samples are needed."""

    @property
    def wanted(self) -> Sized:
        """The keys."""

    def numbers_in(self, keys: Iterable[bytes]) -> Iterator[int]:
        """Yield the numbers of those of keys that are listed."""


@dataclass(eq=False, repr=False)
class InputReader:
    """The reader of the samples of a run. How it reads may be set until the reading begins.

    Attributes:
        locations: the inputs.
        policy: decides about problems; it may change between two passes.
        tmpdir: the directory of temporary files.
        moves: samples will be written elsewhere, so that hard links and global PAX headers are checked.
        contents: all contents will be read, so that objects of stores are read as streams, and not by ranges.
        unread: samples of views need not be read or checked: rows become rows again.
        drawn_rows: the rows of views, the only inputs, that are read; None for all.
        coming: where keys are noted of samples that come next; None if no step looks many of them up at once.
        listed: the keys of which samples are needed: of views others may be left unread. None for all.
        most: how many samples are needed, from the first on: of views others may be left unread. None for all.
        gather: the parts of scattered samples are put together later, so that a key may occur again.
        stream: read files as streams; not with `spool`, which would copy them.
        reordered: contents will be read in another order, once the headers are known: objects with large samples are
            read by ranges all the same.
        decode_ahead: decode compressed files in a thread, if one input is read at a time.
        partial: yield the samples before damage that ends the run.
        field: a field of which batches have the contents, as it is spelled.
        announce: called with the name of each input.
        begun: called with each input before its first sample.
        draws: it shows its progress itself.
        zeros: after the last sample the length of the end of the archive, if there is one input, read whole.
        dropped: how many samples the policy left out, in the last pass.
    """

    locations: Sequence[Location]
    policy: Policy
    tmpdir: str | None = None
    moves: bool = True
    contents: bool = True
    unread: bool = False
    drawn_rows: DrawnRows | None = None
    coming: ComingKeys | None = None
    listed: ListedKeys | None = None
    most: int | None = None
    gather: bool = False
    stream: bool = False
    reordered: bool = False
    decode_ahead: bool = False
    partial: bool = False
    field: bytes | None = None
    announce: Callable[[str], None] = lambda name: None
    begun: Callable[[Source], None] = lambda source: None
    zeros: int | None = None
    dropped: int = 0
    draws = False

    def batches(self) -> Iterator[SampleBatch]:
        """Read the samples."""
        raise NotImplementedError

    def unchanged(self) -> None:
        """Raise TarkitError if an input that was read has changed meanwhile; called once all copies are made."""


class BatchSource(Protocol):
    """An input that is no archive, but names samples of archives: a view."""

    name: str
    dropped: int

    def batches(self) -> Iterator[SampleBatch]:
        """Read the samples."""

    def unchanged(self) -> None:
        """Raise TarkitError if an archive has changed since it was opened."""

    def close(self) -> None:
        """Close the archives."""


@dataclass(eq=False, repr=False)
class DatasetReader(InputReader):
    """Iterate over the samples of all inputs, one input after another or several in turn.

    Attributes:
        shard_slice: (start, stop, step) of the samples of each input.
        interleave: the number of inputs that are read in turn.
        prefetch: the number of inputs that are opened in advance; streams are read in threads.
        spool: copy streams to temporary files, so that all inputs can be iterated over again.
        note: called with a message about the way that is taken.
        search: called in place of opening the inputs one by one. Yields sources still to be read, and samples that an
            index found.
        open_view: opens an input that is a view; returns None for others.
        opened: after the iteration the number of inputs.
    """

    shard_slice: tuple[int, int | None, int] | None = None
    interleave: int = 1
    prefetch: int = 0
    spool: bool = False
    note: Callable[[str], None] = lambda text: None
    search: Callable[[Sequence[Location]], Iterator[Source | TarSample]] | None = None
    open_view: Callable[[Location, InputReader], BatchSource | None] = lambda location, inputs: None
    opened: int = 0

    def __post_init__(self) -> None:
        self._again: list[WindowSource | BatchSource] = []
        # the file that was read last, until the next one or the end
        self._last: WindowSource | BatchSource | None = None

    @property
    def may_choose(self) -> bool:
        """Whether samples may be left unread: none is counted, or may be a problem about which the policy decides."""
        return self.shard_slice is None and self.interleave == 1 and not (self.policy.lenient or self.policy.allowed)

    def __iter__(self) -> Iterator[TarSample]:
        """Yield the samples one by one."""
        return singly(self.batches())

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the samples, in batches where all of an input are read before the next."""
        allow_files(len(self.locations))
        if self.search is not None:
            self.dropped = 0
            results = self.search(self.locations)
            return (sample for result in results for sample in self._read_result(result))
        sources = self._sources()
        if self.interleave > 1:
            return self._round_robin(sources)
        return (batch for source in sources for batch in self._read(source))

    def unchanged(self) -> None:
        """Raise TarkitError if the last file was changed since it was opened, with `spool` any file.

        It is called once all copies are made; each file is looked at when its last sample was taken as well.
        """
        opened = self._again or ([] if self._last is None else [self._last])
        self._last = None
        for source in opened:
            source.unchanged()

    def _read_result(self, result: Source | TarSample) -> Iterator[SampleBatch]:
        return iter((result,)) if isinstance(result, TarSample) else self._read(result)

    def _read(self, source: Source | BatchSource) -> Iterator[SampleBatch]:
        """Yield the samples of an input, or those that `shard_slice` chooses."""
        self._last = None
        self.announce(source.name)
        if not isinstance(source, Source):
            yield from self._read_view(source)
            return
        self.begun(source)
        self.opened += 1
        gather = self.gather and self.shard_slice is None
        samples = SampleReader(
            source, self.policy, moves=self.moves, gather=gather, field=self.field, partial=self.partial
        )
        try:
            yield from samples.batches() if self.shard_slice is None else islice(samples, *self.shard_slice)
        finally:
            self.dropped += samples.dropped
            source.close()
        if isinstance(source, WindowSource):
            source.unchanged()
            self._last = source
        if len(self.locations) == 1 and self.shard_slice is None:
            self.zeros = samples.zeros

    def _read_view(self, view: BatchSource) -> Iterator[SampleBatch]:
        self.opened += 1
        try:
            yield from view.batches() if self.shard_slice is None else islice(singly(view.batches()), *self.shard_slice)
        finally:
            self.dropped += view.dropped
            view.close()
        view.unchanged()
        self._last = view

    def _sources(self) -> Iterator[Source | BatchSource]:
        self.dropped = 0  # when the pass begins: it may be prepared before another one ends
        if self._again:
            yield from self._again
            return
        waiting: deque[WindowSource | StreamSource | BatchSource] = deque()
        try:
            yield from self._opened_ahead(waiting)
        finally:
            for source in waiting:  # those that were opened ahead when the reading ended early
                source.close()

    def _opened_ahead(
        self, waiting: deque[WindowSource | StreamSource | BatchSource]
    ) -> Iterator[Source | BatchSource]:
        """Yield the inputs; `waiting` has those that were opened and not yielded yet."""
        copy: CopiedStream | None = None
        rest = open_ahead(self.locations, object_of, whole=self.contents)
        while True:
            while len(waiting) <= self.prefetch and (location := next(rest, None)) is not None:
                stream = (self.stream and self.contents and not self.spool) or (
                    self.contents and location.kind == "url"
                )
                reordered = self.reordered and location.kind == "url"
                try:
                    source = self.open_view(location, self) or open_source(
                        location,
                        ahead=self.prefetch > 0,
                        decode_ahead=self.decode_ahead and self.interleave == 1,
                        tmpdir=self.tmpdir,
                        stream=stream,
                        reordered=reordered,
                    )
                except ABSENT as error:
                    self.policy.leave_out(location.name, error, alone=len(self.locations) == 1)
                    continue
                if reordered and stream and isinstance(source, Source):
                    ways = "read in order, from its start", "headers are read first, then each sample by its range"
                    self.note(f"{location.name}: {ways[source.seekable]}")
                if self.prefetch and isinstance(source, FileSource):
                    source.will_need()
                waiting.append(source)
            if not waiting:
                return
            source = waiting.popleft()
            if self.spool:
                if isinstance(source, StreamSource):
                    source = copy = spooled(source, copy)
                self._again.append(source)
            yield source

    def _round_robin(self, sources: Iterator[Source | BatchSource]) -> Iterator[TarSample]:
        turns = deque(singly(self._read(source)) for source in islice(sources, self.interleave))
        while turns:
            samples = turns.popleft()
            sample = next(samples, None)
            if sample is not None:
                yield sample
                turns.append(samples)
            else:
                turns.extendleft(singly(self._read(source)) for source in islice(sources, 1))
