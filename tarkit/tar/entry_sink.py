"""A sink that takes the bytes of an archive and passes its entries on, for outputs in other formats."""

from __future__ import annotations

from tarkit.errors import TarkitError, Unsupported, show
from tarkit.streams.sink import Sink, WriteOnlySink
from tarkit.tar import block as blocks
from tarkit.tar.block import BLOCK, padding
from tarkit.tar.reader import Entry, TarReader

STEP = 1 << 20  # bytes of one step of a large entry
GATHERED = 1 << 19  # bytes of small pieces that are written together
PIECES = 900  # and how many; below IOV_MAX

_KINDS = {
    blocks.HARD_LINK: "a hard link",
    blocks.SYMLINK: "a symbolic link",
    blocks.CHAR: "a device",
    blocks.BLOCK_DEVICE: "a device",
    blocks.FIFO: "a FIFO",
    blocks.GNU_VOLUME: "the label of a volume",
    blocks.GNU_DUMPDIR: "the list of an incremental archive",
    blocks.GNU_SPARSE: "a sparse file",
}


def kind_name(type_: bytes) -> str:
    """Return the kind of an entry, for a message that refuses it."""
    return _KINDS.get(type_, f"an entry of type {show(type_)}")


class _PendingBytes:
    """The bytes of the archive that are not passed on yet: a source for `TarReader`."""

    size: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = bytearray()
        self.base = 0  # position of the first

    def peek(self, pos: int, n: int) -> bytes:
        """Return the `n` bytes from `pos` on."""
        at = pos - self.base
        return bytes(self.held[at : at + n])

    def drop(self, pos: int) -> None:
        """Drop the bytes before `pos`."""
        del self.held[: pos - self.base]
        self.base = pos


class EntrySink(WriteOnlySink):
    """Take the bytes of an archive, divided anywhere, and call a method for each entry. `target` gets the output.

    A subclass has `take`, and `begin` and `proceed` for entries of more than `large` bytes; they `put` the output.
    Global PAX headers are left out: the reader applies the names and sizes in them.

    Attributes:
        format: the format of the output, for messages.
        large: bytes; a larger entry is passed on in steps.
        gathered: bytes of small pieces that are written together.
    """

    format = "an output"
    large = 16 << 20
    gathered = GATHERED

    def __init__(self, target: Sink) -> None:
        self.name, self.remote = target.name, target.remote
        self.target = target
        self._pieces: list[bytes] = []  # of the output
        self._size = 0
        self._pending = _PendingBytes(target.name)
        self._entries = TarReader(self._pending).raw()
        self._entry: Entry | None = None  # that was not passed on yet
        self._remaining: int | None = None  # bytes of the content of a large entry
        self._next = 0  # position of the next header
        self._ended = False

    def take(self, entry: Entry, content: bytes) -> None:
        """Take an entry with its content."""
        raise NotImplementedError

    def begin(self, entry: Entry) -> None:
        """Take a large entry without its content."""
        raise NotImplementedError

    def proceed(self, data: bytes, last: bool) -> None:
        """Take the next bytes of the content of a large entry."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write the bytes that follow the last entry."""

    def put(self, data: bytes) -> None:
        """Append to the output; small pieces are written together."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self.gathered or len(self._pieces) > PIECES:
            self.flush()

    def flush(self) -> None:
        """Write the entries so far."""
        pieces, self._pieces, self._size = self._pieces, [], 0
        self.target.writev(pieces)

    def refused(self, name: bytes, reason: str) -> Unsupported:
        """Return the error for an entry that the output cannot hold."""
        return Unsupported(f"{self.name}: {self.format} cannot hold {show(name)}: {reason}", "write a .tar")

    def header(self, entry: Entry) -> bytes:
        """Return the header of an entry that is being passed on, with its extensions."""
        return self._pending.peek(entry.start, entry.data - entry.start)

    def write(self, data: bytes | memoryview) -> None:
        """Write the next bytes of the archive, divided anywhere."""
        self._pending.held += data
        while self._step():
            pass

    def digest(self) -> tuple[str, int] | None:
        """Return those of the output."""
        return self.target.digest()

    def close(self) -> None:
        """Complete the output."""
        try:
            if not self._ended or self._entry is not None:
                raise TarkitError(f"{self.name}: the archive to be written as {self.format} has no end marker")
            self.finish()
        except BaseException:
            self.abort()
            raise
        self.target.close()

    def abort(self) -> None:
        self._pieces.clear()
        self.target.abort()

    def withdraw(self) -> bool:
        return self.target.withdraw()

    def _step(self) -> bool:
        """Pass on the next entry or part of one; False if more input is needed for it."""
        pending = self._pending
        if self._remaining is not None:
            return self._continue_large(self._remaining)
        if self._entry is None and not self._next_entry():
            return False
        entry = self._entry
        if entry is None:
            return True
        if entry.size > self.large:
            self.begin(entry)
            self._remaining = entry.size
            pending.drop(entry.data)
            return True
        if pending.base + len(pending.held) < entry.stop:
            return False
        self.take(entry, pending.peek(entry.data, entry.size))
        self._entry, self._next = None, entry.stop
        return True

    def _continue_large(self, remaining: int) -> bool:
        """Pass on the next step of a large entry; False if more input is needed for it."""
        pending, entry = self._pending, self._entry
        assert entry is not None
        size = min(remaining, STEP)
        if len(pending.held) < size:
            return False
        data = pending.peek(pending.base, size)
        pending.drop(pending.base + size)
        self._remaining = remaining - size
        self.proceed(data, not self._remaining)
        if not self._remaining:
            self._entry, self._remaining, self._next = None, None, entry.stop
        return True

    def _next_entry(self) -> bool:
        """Read the next header; False if it is not complete yet, or the archive has ended."""
        pending = self._pending
        if self._next > pending.base:
            if len(pending.held) < self._next - pending.base:
                return False
            pending.drop(self._next)
        if self._ended:
            if pending.held.count(0) != len(pending.held):
                raise TarkitError(f"{self.name}: {self.format} holds one archive, and another one follows")
            self._next += len(pending.held)
            return False
        if not self._header_is_here():
            return False
        entry = Entry._make(next(self._entries))
        if entry.type == blocks.PAX_GLOBAL:
            self._next = entry.stop
        else:
            self._entry = entry
        return True

    def _header_is_here(self) -> bool:
        """Whether the next header and its extensions are complete; False at the end of the archive."""
        held, at = self._pending.held, 0
        if (
            len(held) >= BLOCK and held[156:157] == blocks.REGULAR
        ):  # most are: with that of `ZipSink._record_for`, 10 % of a zip
            return True
        while len(held) >= at + BLOCK:
            block = bytes(held[at : at + BLOCK])
            if at == 0 and blocks.is_zero(block):
                self._ended = True
                return self._next_entry()
            type_ = block[156:157]
            if type_ == blocks.GNU_SPARSE:
                raise self.refused(blocks.name_of(block), kind_name(type_))
            if type_ not in blocks.EXTENSIONS:
                return True
            size = blocks.parse_number(block[124:136])
            at += BLOCK + size + padding(size)
            if type_ == blocks.PAX_GLOBAL:
                return len(held) >= at
        return False
