"""The first bytes of a TFRecord file: the length of its first record, with a checksum that says that it is one.

CRC-32C is that of RFC 3720, B.4; TensorFlow masks it (`tensorflow/core/lib/hash/crc32c.h`). Here it is computed bit by
bit, without a library, for the 8 bytes of a length alone.
"""

from __future__ import annotations

FRAME = 12  # bytes of the length and its checksum
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reversed
_TABLE: list[int] = []


def mask(crc: int) -> bytes:
    """Return a checksum as records have it."""
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def record_length(head: bytes) -> int | None:
    """Return the length of the record that begins with these bytes; None if their checksum does not match."""
    if len(head) < FRAME:
        return None
    if not _TABLE:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
            _TABLE.append(byte)
    crc = 0xFFFFFFFF
    for byte in head[:8]:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return int.from_bytes(head[:8], "little") if mask(crc ^ 0xFFFFFFFF) == head[8:FRAME] else None
