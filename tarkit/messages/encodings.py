"""The encodings of maps: CBOR and MessagePack; TFRecord and MDS are in modules of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from tarkit.errors import load_library
from tarkit.messages.maps import LARGEST, LONGEST, Encoding, IncompleteMap, MalformedMap, Unpack
from tarkit.streams.codecs import MESSAGES
from tarkit.streams.copy import CHUNK


def load_encoding(form: str, purpose: str, extra: str | None = None) -> Encoding:
    """Return the functions of a format; `purpose` needs them, which is part of `extra`. Raises MissingLibrary."""
    library = MESSAGES[form].library
    if form == "tfrecord":
        from tarkit.messages.tfrecord import load_tfrecord

        return load_tfrecord(purpose)
    if form == "cbors":
        return Encoding(load_library("cbor2", purpose, library, extra or "cbor").dumps, _unpack_cbor)
    return Encoding(load_library("msgpack", purpose, library, extra or form).packb, _unpack_msgpack)


def load_unpack(form: str, purpose: str) -> Unpack:
    """Return the function that reads a format, also one whose files are written as a whole. Raises MissingLibrary."""
    if form == "mds":
        from tarkit.messages.mds import load_mds

        return load_mds(purpose)
    return load_encoding(form, purpose).unpack


def _too_large() -> MalformedMap:
    return MalformedMap(f"an item is larger than {LARGEST >> 30} GiB")


def _no_item(error: Exception) -> MalformedMap:
    return MalformedMap(" ".join(f"this is no item: {error}".split()))


class _Window:
    """A file for the decoder of CBOR: it reads ahead, and takes back what follows an item."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._source = read
        self._held = b""
        self._at = 0  # how many of the bytes held were read
        self._taken = 0  # bytes of the current item
        self.failure: Exception | None = None  # other than that of a decoder

    def begin(self) -> bool:
        """Begin an item. Returns False at the end."""
        self._taken = 0
        return self._has(1)

    def _has(self, size: int) -> bool:
        """Return whether so many bytes are held; read them."""
        while len(self._held) - self._at < size:
            try:
                data = self._source(CHUNK)
            except BaseException as error:
                self.failure = error if isinstance(error, Exception) else None
                raise
            if not data:
                return False
            self._held, self._at = self._held[self._at :] + data, 0
        return True

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes, fewer only at the end. Raises MalformedMap for an item that is too large."""
        self._taken += size
        if self._taken > LARGEST + CHUNK:
            self.failure = _too_large()
            raise self.failure
        self._has(size)
        data = self._held[self._at : self._at + size]
        self._at += len(data)
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        """Yes: by as much as was read last."""
        return True

    def seek(self, offset: int, whence: int, /) -> int:
        """Take back the last -`offset` bytes."""
        assert whence == 1
        assert 0 <= self._at + offset <= len(self._held)
        self._at += offset
        return self._at


def _unpack_cbor(read: Callable[[int], bytes]) -> Iterator[object]:
    """Yield the items of a CBOR sequence (RFC 8742)."""
    from cbor2 import CBORDecodeEOF, CBORDecoder

    window = _Window(read)
    decoder = CBORDecoder(cast(IO[bytes], window), allow_duplicate_keys=False)
    while window.begin():
        try:
            item = decoder.decode()
        except Exception as error:
            if window.failure is not None:
                raise window.failure from None
            if isinstance(error, CBORDecodeEOF):
                raise IncompleteMap from None
            raise _no_item(error) from None
        yield item


def _unpack_msgpack(read: Callable[[int], bytes]) -> Iterator[object]:
    from msgpack import Unpacker
    from msgpack.exceptions import BufferFull, OutOfData

    # lists and maps are allocated by the length that they claim
    unpacker = Unpacker(
        max_buffer_size=LARGEST,
        max_array_len=LONGEST,
        max_map_len=LONGEST,
        object_pairs_hook=_map_of_pairs,
        unicode_errors="surrogateescape",
    )
    total = complete = 0
    while data := read(CHUNK):
        total += len(data)
        try:
            unpacker.feed(data)
            while True:
                item = unpacker.unpack()
                complete = unpacker.tell()
                yield item
        except OutOfData:
            continue
        except BufferFull:
            raise _too_large() from None
        except MalformedMap:
            raise
        except Exception as error:
            raise _no_item(error) from None
    if complete != total:
        raise IncompleteMap


def unpack_frame(frame: bytes) -> object:
    """Return the item that a frame is, in MessagePack. Raises MalformedMap."""
    from msgpack import unpackb

    try:
        return unpackb(frame, object_pairs_hook=_map_of_pairs, unicode_errors="surrogateescape")
    except MalformedMap:
        raise
    except Exception as error:
        raise _no_item(error) from None


def _map_of_pairs(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise MalformedMap("a map has a name twice")
    return mapping
