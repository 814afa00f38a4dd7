"""Maps, which are samples in messages, and their encodings.

A map has the key of the sample under `__key__`, and under the name of each field its content, as bytes. Names are text;
a name or key that is not UTF-8 is a byte string. Other names that begin with two underscores are those of other
programs, such as `__url__` of webdataset, and no fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, cast

from tarkit.errors import MissingLibrary, TarkitError, load_library, show
from tarkit.streams.codecs import MESSAGES
from tarkit.streams.copy import CHUNK
from tarkit.tar.block import padding
from tarkit.tar.header import encode

KEY = "__key__"
LARGEST = 1 << 30
"""Bytes of the largest map: it is in memory as a whole."""

LONGEST = 1 << 20  # items of a list

Split = Callable[[bytes], tuple[bytes, bytes] | None]
"""A function that returns the key and the field of the name of an entry, None if it has none."""

EncodeValue = Callable[[str, Any], bytes]
"""A function of a field's name and a value that returns its bytes; raises TypeError or TarkitError."""


class MalformedMap(TarkitError):
    """A message is no sample."""


class TarEntries(NamedTuple):
    """A sample as a part of an archive, with its key."""

    key: bytes
    archive: bytes


def map_to_entries(item: object, split: Split, encode_value: EncodeValue) -> TarEntries:
    """Return the entries of the sample that a map is. Raises MalformedMap."""
    if not isinstance(item, dict):
        raise MalformedMap(f"this is {_kind(item)}, not a map")
    if KEY in item and KEY.encode() in item:
        raise MalformedMap(f"the map has {KEY} twice, as text and as bytes")
    key = item.get(KEY, item.get(KEY.encode()))
    if key is None:
        raise MalformedMap(f"the map has no {KEY}", "is it a sample at all?")
    raw = _bytes("key", key)
    pieces: list[bytes] = []
    names = set()
    for field_name, value in item.items():
        field = _bytes("name of a field", field_name)
        if field.startswith(b"__"):
            continue
        name = raw + b"." + field
        if split(name) != (raw, field) or not field or field.startswith(b"."):
            raise MalformedMap(
                f"the key {show(raw)} with the field {show(field)} would be read as another sample",
                "a key is not empty and has no dot after its last slash; a field has no slash and no dot in front",
            )
        if name in names:
            raise MalformedMap(f"two fields of the sample {show(raw)} are called {show(field)}")
        names.add(name)
        content = value if type(value) is bytes else _encoded(raw, field, value, encode_value)
        try:
            pieces += (encode(name, len(content)), content, bytes(padding(len(content))))
        except ValueError as error:
            raise MalformedMap(f"the sample {show(raw)}: {error}") from None
    if not names:
        raise MalformedMap(f"the sample {show(raw)} has no field")
    return TarEntries(raw, b"".join(pieces))


def _bytes(role: str, name: object) -> bytes:
    if isinstance(name, bytes):
        return name
    if not isinstance(name, str):
        raise MalformedMap(f"the {role} is {_kind(name)}, not text or bytes")
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise MalformedMap(f"the {role} {show(name)} is no Unicode text") from None


def _encoded(key: bytes, field: bytes, value: object, encode_value: EncodeValue) -> bytes:
    """Return the bytes of a value that another program wrote as text, a number, a list or a map."""
    try:
        return encode_value(field.decode("utf-8", "surrogateescape"), value)
    except MissingLibrary:
        raise
    except TarkitError as error:
        raise MalformedMap(f"the sample {show(key)}: {error}", error.hint) from None
    except Exception as error:
        message = f"the sample {show(key)}: the field {show(field)} is {_kind(value)}, which has no encoding there"
        raise MalformedMap(message, "bytes are taken as they are, text is UTF-8, a list or map is for .json") from error


def _kind(value: object) -> str:
    names = {dict: "a map", list: "a list", tuple: "a list", str: "text", bytes: "bytes", type(None): "nothing"}
    return names.get(type(value)) or f"of type {type(value).__name__}"


def text_or_bytes(raw: bytes) -> str | bytes:
    """Return a name as it is written: text if it is UTF-8, else the bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


# ---- Their encodings


class Encoding(NamedTuple):
    """The functions of one encoding.

    Attributes:
        pack: returns the bytes of a map.
        unpack: yields the items of a sequence, which is read by a function of a number of bytes. Raises IncompleteMap,
            MalformedMap, and the exceptions of that function.
    """

    pack: Callable[[dict[Any, Any]], bytes]
    unpack: Callable[[Callable[[int], bytes]], Iterator[object]]


class IncompleteMap(Exception):
    """A sequence ends inside an item."""


def load_encoding(form: str, purpose: str, extra: str | None = None) -> Encoding:
    """Return the functions of a format; `purpose` needs them, which is part of `extra`. Raises MissingLibrary."""
    library = MESSAGES[form].library
    if form == "cbors":
        return Encoding(load_library("cbor2", purpose, library, extra or "cbor").dumps, _unpack_cbor)
    return Encoding(load_library("msgpack", purpose, library, extra or form).packb, _unpack_msgpack)


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
