"""Records of TensorFlow: TFRecord files of `tf.train.Example`, by protobuf and google-crc32c.

A record is its length (8 bytes, little endian), a checksum of these, the data, and a checksum of them: CRC-32C, masked
(`tensorflow/core/lib/io/record_writer.h`, `tensorflow/core/lib/hash/crc32c.h`). The data are a message Example
(`tensorflow/core/example/example.proto`, `feature.proto`). Its features are read as a list, which has the bytes of the
map that it is declared as, so that their order stays.

Read, one byte string, float or integer is that value, several are a list, and none is no field. Written, a content is
a byte string; that of a field of integers, such as `cls`, is an integer if its text is that of a number as Python
writes it, so that it comes back as it was.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from tarkit.errors import Unsupported, load_library, show
from tarkit.media.coding import Coder
from tarkit.messages.maps import LARGEST, Encoding, IncompleteMap, MalformedMap, read_exactly
from tarkit.streams.codecs.tfrecord import FRAME, mask
from tarkit.streams.copy import CHUNK
from tarkit.tables.rows import NumberList

LIBRARY = "protobuf and google-crc32c"
EXTRA = "tfrecord"
_CODER = Coder()
_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")


def load_tfrecord(purpose: str) -> Encoding:
    """Return the functions of the format, which `purpose` needs. Raises MissingLibrary."""
    crc32c = load_library("google_crc32c", purpose, LIBRARY, EXTRA).value
    load_library("google.protobuf", purpose, LIBRARY, EXTRA)
    example = example_type()

    def unpack(read: Callable[[int], bytes]) -> Iterator[object]:
        for at, data in read_records(read, crc32c):
            yield _features(example, data, at)

    return Encoding(lambda item: record(_example(example, item), crc32c), unpack)


def record(data: bytes, crc32c: Callable[[bytes], int]) -> bytes:
    """Return data as a record."""
    length = len(data).to_bytes(8, "little")
    return b"".join((length, mask(crc32c(length)), data, mask(crc32c(data))))


def read_records(read: Callable[[int], bytes], crc32c: Callable[[bytes], int]) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a file, each with its position; a file that is compressed with zlib is decoded.

    Raises:
        IncompleteMap: the file ends inside a record.
        MalformedMap: a checksum does not match, or a record is longer than LARGEST.
    """
    head, at = read_exactly(read, FRAME), 0
    if len(head) == FRAME and mask(crc32c(head[:8])) != head[8:] and _is_zlib(head):
        read = _inflated(read, head)
        head = read_exactly(read, FRAME)
    while head:
        if len(head) < FRAME:
            raise IncompleteMap(at)
        if mask(crc32c(head[:8])) != head[8:]:
            raise MalformedMap("the length of the record does not match its checksum", position=at)
        length = int.from_bytes(head[:8], "little")
        if length > LARGEST:
            raise MalformedMap(f"the record is longer than {LARGEST >> 30} GiB", position=at)
        data, check = read_exactly(read, length), read_exactly(read, 4)
        if len(data) < length or len(check) < 4:
            raise IncompleteMap(at)
        if mask(crc32c(data)) != check:
            raise MalformedMap("the data of the record do not match their checksum", position=at)
        yield at, data
        at += FRAME + length + 4
        head = read_exactly(read, FRAME)


def _is_zlib(head: bytes) -> bool:
    """Return whether bytes begin a stream of zlib (RFC 1950, 2.2)."""
    return head[0] & 0x0F == 8 and head[0] >> 4 < 8 and int.from_bytes(head[:2], "big") % 31 == 0


def _inflated(read: Callable[[int], bytes], head: bytes) -> Callable[[int], bytes]:
    """Return a function that reads the decoded bytes of a stream of zlib, which begins with `head`."""
    decoder, waiting = zlib.decompressobj(), head

    def inflate(size: int) -> bytes:
        nonlocal waiting
        while not decoder.eof:
            waiting = waiting or read(CHUNK)
            if not waiting:
                raise IncompleteMap
            try:
                data = decoder.decompress(waiting, size)
            except zlib.error as error:
                raise MalformedMap(f"the stream of zlib is damaged: {error}") from None
            waiting = decoder.unconsumed_tail
            if data:
                return data
        if decoder.unused_data or waiting or read(1):
            raise MalformedMap("other bytes follow the end of the stream of zlib")
        return b""

    return inflate


# ---- Examples


@cache
def example_type() -> Any:
    """Return the class of messages. Field 2 is that of the lists of a SequenceExample."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kind, many, one = descriptor_pb2.FieldDescriptorProto, 3, 1  # LABEL_REPEATED, LABEL_OPTIONAL
    file = descriptor_pb2.FileDescriptorProto(name="tarkit_example.proto", package="tarkit", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        added = file.message_type.add(name=name)
        for field, number, label, type_, other in fields:
            one_field = added.field.add(name=field, number=number, label=label, type=type_)
            if other:
                one_field.type_name = f".tarkit.{other}"
        return added

    message("Bytes", ("value", 1, many, kind.TYPE_BYTES, ""))
    message("Floats", ("value", 1, many, kind.TYPE_FLOAT, ""))
    message("Integers", ("value", 1, many, kind.TYPE_INT64, ""))
    names = ("bytes_list", "Bytes"), ("float_list", "Floats"), ("int64_list", "Integers")
    feature = message(
        "Feature", *((name, number, one, kind.TYPE_MESSAGE, other) for number, (name, other) in enumerate(names, 1))
    )
    feature.oneof_decl.add(name="kind")
    for each in feature.field:
        each.oneof_index = 0
    message("Entry", ("key", 1, one, kind.TYPE_BYTES, ""), ("value", 2, one, kind.TYPE_MESSAGE, "Feature"))
    message("Features", ("feature", 1, many, kind.TYPE_MESSAGE, "Entry"))
    message(
        "Example", ("features", 1, one, kind.TYPE_MESSAGE, "Features"), ("feature_lists", 2, one, kind.TYPE_BYTES, "")
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tarkit.Example"))


def _example(kind: Any, item: Mapping[Any, bytes]) -> bytes:
    """Return a map of contents as an Example. Raises Unsupported for a name that is not UTF-8."""
    example = kind()
    add = example.features.feature.add
    for name, content in item.items():
        if isinstance(name, bytes):
            raise Unsupported(
                f"TFRecord cannot hold the field {show(name)}: its name is not UTF-8", "rename it, or write a .tar"
            )
        feature = add(key=name.encode()).value
        kind_of_field = _CODER.kind(name) if _INTEGER.fullmatch(content) else None
        if kind_of_field is not None and kind_of_field.name == "integer" and abs(int(content)) < 1 << 63:
            feature.int64_list.value.append(int(content))
        else:
            feature.bytes_list.value.append(content)
    data: bytes = example.SerializeToString()
    return data


def _features(kind: Any, data: bytes, at: int) -> dict[str, Any]:
    """Return the values of an Example, which is in the record at this position. Raises MalformedMap."""
    example = kind()
    try:
        example.ParseFromString(data)
    except Exception as error:  # DecodeError, of an optional library
        raise MalformedMap(f"the record is no tf.train.Example: {error}", position=at) from None
    if example.feature_lists:
        hint = "tf.io.parse_single_sequence_example reads it; tarkit reads tf.train.Example"
        raise MalformedMap("the record is a SequenceExample, whose lists of features are no fields", hint, at)
    values: dict[str, Any] = {}
    for entry in example.features.feature:
        try:
            name = entry.key.decode()
        except ValueError:
            raise MalformedMap(f"the name of a feature is not UTF-8: {show(entry.key)}", position=at) from None
        if name in values:
            raise MalformedMap(f"two features are called {show(name)}", position=at)
        values[name] = _value(entry.value, name, at)
    return values


def _value(feature: Any, name: str, at: int) -> Any:
    """Return the value of a feature; None for none."""
    kind = feature.WhichOneof("kind")
    values = [] if kind is None else list(getattr(feature, kind).value)
    if len(values) < 2:
        return values[0] if values else None
    if kind == "int64_list":
        return NumberList(values, "int64")
    if kind == "float_list":
        return NumberList(values, "float32")
    try:
        return [value.decode() for value in values]
    except ValueError:
        message = f"the feature {show(name)} has {len(values)} byte strings, which are no text"
        raise MalformedMap(message, "a field has one content", at) from None
