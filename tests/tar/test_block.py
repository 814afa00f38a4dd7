"""One block: numbers and names as tables, the checksum as a law."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tarkit.tar import block as b
from tests._tools import check_result, each_row

USTAR = b.USTAR_MAGIC + b"00"


def header(magic: bytes = USTAR, **fields: bytes) -> bytes:
    """A sealed header of these fields, at the offsets that POSIX gives them."""
    at = {"name": 0, "size": 124, "typeflag": 156, "linkname": 157, "prefix": 345, "sparse": 482, "trailer": 508}
    block = bytearray(b.BLOCK)
    block[257 : 257 + len(magic)] = magic
    for field, value in fields.items():
        block[at[field] : at[field] + len(value)] = value
    return b.seal(block)


@each_row(
    ("field", "number"),
    [
        (b"0000644\0", 0o644),
        (b"0000644 ", 0o644),
        (b"00000644", 0o644),
        (b"   644 \0", 0o644),
        (b"   644\0 ", 0o644),
        (b"644\0\0\0\0\0", 0o644),
        (b"644     ", 0o644),
        (b"644\0junk", 0o644),
        (b"77777777777\0", 8**11 - 1),
        (b"777777777777", 8**12 - 1),
        (b"\0" * 12, 0),
        (b" " * 12, 0),
        (b" " * 11 + b"\0", 0),
        (b"", 0),
        (b"0", 0),
        (b"7", 7),
        (b"\x80" + bytes(10) + b"\x01", 1),
        (b"\x80" + bytes(3) + (9 << 30).to_bytes(8, "big"), 9 << 30),
        (b"\x80\xff\xff\xff\xff\xff\xff\xff", 2**56 - 1),
        (b"\xff" * 12, -1),
        (b"\xff\xff\xff\xff\xff\xff\xff\x00", -256),
        (b"0000648\0", "."),
        (b"0000_644", "."),
        (b"00_0644\0", "."),
        (b"+000644\0", "."),
        (b"-000644\0", "."),
        (b"0o00644\0", "."),
        (b"0x00644\0", "."),
        (b"64 4   \0", "."),
        (b"644 junk", "."),
        (b"\t\n\v\f 644", "."),
        (b"644\n\0\0\0\0", "."),
        (b"\0000644\0\0", "."),
        (b"\0\x00644\0\0\0", 0),
        (b"\0\0\0\0\0\0\0" + b"0016\0", 0),
        (b"   \0 644", "."),
        ("٣".encode() + b"\0\0", "."),
        (b"\x81\0\0\0\0\0\0\0", "."),
        (b"\xfe\0\0\0\0\0\0\0", "."),
        (b"junk", "."),
    ],
)
def test_parse_number(field: bytes, number: int | str) -> None:
    check_result(number, b.parse_number, field)


@each_row(
    ("value", "width", "field"),
    [
        (0, 8, b"0000000\0"),
        (0o644, 8, b"0000644\0"),
        (8**7 - 1, 8, b"7777777\0"),
        (8**7, 8, b"\x80\0\0\0\0\x20\0\0"),
        (8**11 - 1, 12, b"77777777777\0"),
        (9 << 30, 12, b"\x80\0\0\0\0\0\0\x02\x40\0\0\0"),
        (-1, 8, b"\xff" * 8),
        (2**56 - 1, 8, b"\x80" + b"\xff" * 7),
        (-(2**56), 8, b"\xff" + bytes(7)),
        (2**56, 8, "does not fit"),
        (-(2**56) - 1, 8, "does not fit"),
    ],
)
def test_format_number(value: int, width: int, field: bytes | str) -> None:
    check_result(field, b.format_number, value, width)


@settings(max_examples=25)
@given(st.integers(-(2**88), 2**88 - 1))
def test_numbers_round_trip(value: int) -> None:
    field = b.format_number(value, 12)
    assert len(field) == 12
    assert b.parse_number(field) == value


@settings(max_examples=25)
@given(st.binary(max_size=12))
def test_parse_number_returns_a_number_or_raises(field: bytes) -> None:
    try:
        number = b.parse_number(field)
    except ValueError:
        return
    if field[:1] not in (b"\x80", b"\xff"):
        assert b"%o" % number == field.partition(b"\0")[0].strip(b" ").lstrip(b"0") or number == 0


def plain_sums(block: bytes) -> tuple[int, int]:
    """Return the unsigned and the signed checksum, by the definition."""
    blanked = block[:148] + b" " * 8 + block[156:]
    return sum(blanked), sum(byte - 256 if byte > 127 else byte for byte in blanked)


@settings(max_examples=25)
@given(st.binary(min_size=512, max_size=512) | st.binary(min_size=40, max_size=40).map(lambda name: header(name=name)))
@example(bytes(512))
@example(b"\x7f" * 512)
@example(b"\x80" * 512)
@example(b"\xff" * 512)
def test_seal_writes_the_sum(block: bytes) -> None:
    sealed = b.seal(block)
    assert sealed[:148] + sealed[156:] == block[:148] + block[156:]
    assert sealed[148:156] == b"%06o\0 " % plain_sums(block)[0]
    assert b.seal(bytearray(block)) == sealed
    assert b.checksum_ok(sealed)


@each_row("name", [b"a.jpg", "é.jpg".encode()])
@each_row(
    ("spelling", "good"),
    [
        (b"%06o\0 ", True),
        (b"%06o \0", True),
        (b"%6o\0 ", True),
        (b"%07o\0", True),
        (b"%07o ", True),
        (b"%08o", True),
        (b"%8o", True),
        (b" %5o \0", True),
        (b"%5o\0\0\0", True),
        (b"%05ox\0 ", False),
        (b"%06o\0x", True),
        (b"%05o\00036", True),
        (b"%05o 8x", True),
        (b"0o%04o\0 ", False),
        (b"+%05o\0 ", False),
        (b"-%05o\0 ", False),
        (b"0_%04o\0 ", False),
        (b"\t%05o\0 ", False),
        (b"\0%06o ", False),
        (b"\0\0\0\0\0\0\0\0%.0s", False),
        (b"        %.0s", False),
        (b"\x80\0\0\0\0\0\x14%c", False),
    ],
)
def test_checksum_spellings(name: bytes, spelling: bytes, good: bool) -> None:
    block = header(name=name)
    total = plain_sums(block)[0]
    field = spelling % (total & 0xFF if b"%c" in spelling else b"" if b"%.0s" in spelling else total)
    block = block[:148] + field.ljust(8, b"\0")[:8] + block[156:]
    assert b.checksum_ok(block) is good


def test_signed_checksum_of_old_tars() -> None:
    block = header(name=b"caf\xe9.jpg")
    unsigned, signed = plain_sums(block)
    assert unsigned - signed == 256
    assert b.checksum_ok(block[:148] + b"%06o\0 " % signed + block[156:])
    assert not b.checksum_ok(block[:148] + b"%06o\0 " % (signed - 256) + block[156:])


@each_row("apart", [65521, -65521, 65536, 1, -1, 256])
@each_row("block", [header(name=b"a.jpg"), header(name=b"\xff" * 100, prefix=b"\xff" * 155)])
def test_checksum_sums_that_adler32_confuses(block: bytes, apart: int) -> None:
    assert not b.checksum_ok(block[:148] + b"%06o\0 " % max(plain_sums(block)[0] + apart, 0) + block[156:])


@each_row("block", [b"", b"a", bytes(512), bytes(511), header(name=b"a")[:500], header(name=b"a") + b"\0"])
def test_checksum_of_no_header(block: bytes) -> None:
    assert not b.checksum_ok(block)


STAR = {"trailer": b.STAR_TRAILER, "sparse": b"0 ctime00000"}


@each_row(
    ("block", "prefix", "name"),
    [
        (header(name=b"a/b.jpg"), b"", b"a/b.jpg"),
        (header(name=b""), b"", b""),
        (header(name=b"n" * 100), b"", b"n" * 100),
        (header(name=b"n" * 100, prefix=b"p" * 155), b"p" * 155, b"p" * 155 + b"/" + b"n" * 100),
        (header(name=b"a\0junk", prefix=b"p\0junk"), b"p", b"p/a"),
        (header(name=b"/b", prefix=b"a"), b"a", b"a//b"),
        (header(name=b"caf\xe9.jpg", prefix=b"\xff"), b"\xff", b"\xff/caf\xe9.jpg"),
        (header(b.USTAR_MAGIC + b"99", name=b"n", prefix=b"p"), b"p", b"p/n"),
        (header(b.GNU_MAGIC, name=b"n", prefix=b"15300256136"), b"", b"n"),
        (header(b"", name=b"n", prefix=b"p"), b"", b"n"),
        (
            header(b"ustar", name=b"n" * 100, prefix=b"p" * 131 + b"07", **STAR),
            b"p" * 131,
            b"p" * 131 + b"/" + b"n" * 100,
        ),
        (header(b"ustar", name=b"n", prefix=b"p\0" + bytes(129) + b"07", **STAR), b"p", b"p/n"),
    ],
)
def test_names(block: bytes, prefix: bytes, name: bytes) -> None:
    assert (b.prefix_of(block), b.name_of(block)) == (prefix, name)


@each_row(
    ("field", "name"), [(b"", b""), (b"../a.jpg", b"../a.jpg"), (b"t" * 100, b"t" * 100), (b"\xe9\0junk", b"\xe9")]
)
def test_linkname(field: bytes, name: bytes) -> None:
    assert b.linkname_of(header(linkname=field)) == name


@each_row(
    ("typeflag", "size", "payload"),
    [
        *((flag, 5, 0) for flag in (b.HARD_LINK, b.SYMLINK, b.CHAR, b.BLOCK_DEVICE, b.DIRECTORY, b.FIFO)),
        (b.DIRECTORY, -1, 0),
        *((flag, 5, 5) for flag in (b.REGULAR, b.REGULAR_V7, b.CONTIGUOUS, b.GNU_SPARSE, b.GNU_DUMPDIR, b.PAX, b"Z")),
        (b.REGULAR, 9 << 30, 9 << 30),
        (b.REGULAR, 2**63 - 1, 2**63 - 1),
        (b.REGULAR, 2**63, "impossible size"),
        (b.REGULAR, -1, "impossible size"),
    ],
)
def test_payload_size(typeflag: bytes, size: int, payload: int | str) -> None:
    check_result(payload, b.payload_size, typeflag, size)


@each_row(
    ("block", "size"),
    [
        (header(b.GNU_MAGIC, sparse=b"\0" + b"00000001000\0"), 512),
        (header(b.GNU_MAGIC, sparse=b"\1\x80" + bytes(3) + (9 << 30).to_bytes(8, "big")), 9 << 30),
        (header(b.GNU_MAGIC, sparse=b"\0" + b"\xff" * 12), "."),
        (header(b.GNU_MAGIC, sparse=b"\0\x80" + b"\xff" * 11), "."),
        (header(b.GNU_MAGIC, sparse=b"\0junk"), "."),
        (header(sparse=b"\0" + b"00000001000\0"), "."),
    ],
)
def test_sparse_real_size(block: bytes, size: int | str) -> None:
    check_result(size, b.sparse_real_size, block)
