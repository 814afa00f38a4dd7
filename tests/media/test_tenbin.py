"""tenbin: exact bytes, all types, and what is refused."""

from __future__ import annotations

import struct

import pytest

from tarkit.media import coding_tenbin as tenbin
from tarkit.media.coding import Coded, Coder
from tests._tools import each_row, error_line

numpy = pytest.importorskip("numpy")


def chunk(payload: bytes) -> bytes:
    """Return a chunk, by the description of the format."""
    return b"~TenBin~" + struct.pack("<q", len(payload)) + payload.ljust(-(-len(payload) // 64) * 64, b"\0")


def test_exact_bytes() -> None:
    """An array of three floats is 160 bytes: a header from 0 on, the data from 80 on, both padded."""
    data = tenbin.encode("ten", numpy.arange(3, dtype="float32"))
    expected = bytearray(160)
    expected[0:8] = expected[80:88] = b"~TenBin~"
    expected[8:16] = (32).to_bytes(8, "little")
    expected[16:18] = b"f4"
    expected[32:40] = (1).to_bytes(8, "little")
    expected[40:48] = (3).to_bytes(8, "little")
    expected[88:96] = (12).to_bytes(8, "little")
    expected[96:108] = b"\0\0\0\0\0\0\x80\x3f\0\0\0\x40"
    assert data == expected
    assert tenbin.encode("ten", []) == b""
    assert tenbin.decode(b"") == []


@each_row("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">f4", ">i2", ">u4"])
@each_row("shape", [(), (0,), (5,), (2, 3), (2, 0, 3), (1,) * 9])
def test_types_and_shapes(dtype: str, shape: tuple[int, ...]) -> None:
    """All types and shapes come back, also arrays without dimensions, and those of the other byte order."""
    array = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    [before, back] = tenbin.decode(tenbin.encode("ten", [numpy.ones(5, "u1"), array]))
    assert before.tolist() == [1] * 5
    assert back.dtype == numpy.dtype(dtype).newbyteorder("=")
    assert back.shape == shape
    assert numpy.array_equal(back, array)
    back[...] = 1  # it can be written to


def test_arrays_that_are_not_contiguous() -> None:
    """The elements are written in their order, however they are stored."""
    array = numpy.arange(24, dtype="u4").reshape(4, 6)
    for view in (array.T, array[::2, ::-1], numpy.asfortranarray(array)):
        assert numpy.array_equal(tenbin.decode(tenbin.encode("ten", view))[0], view)


@each_row(
    ("value", "said"),
    [
        (numpy.ones(2, "bool"), "tenbin has no arrays of bool, only float16"),
        (numpy.ones(2, "complex64"), "tenbin has no arrays of complex64"),
        (numpy.array(["a"]), "tenbin has no arrays of <U1"),
        (numpy.array([{}]), "tenbin has no arrays of object"),
        (numpy.array([0], "M8[s]"), "tenbin has no arrays of datetime64"),
        (numpy.ones((1,) * 10), "tenbin has at most 9 dimensions, and this array 10"),
        ([[1, 2]], "it takes a list of numpy arrays, not list"),
        ("x", "it takes a list of numpy arrays, not str"),
    ],
)
def test_values_that_are_refused(value: object, said: str) -> None:
    """Types that the format lacks are named."""
    assert error_line(tenbin.encode, "ten", value).startswith(said)


def header(code: bytes = b"f4", *shape: int, count: int | None = None) -> bytes:
    return chunk(struct.pack(f"<8s8sq{len(shape)}q", code, b"", len(shape) if count is None else count, *shape))


@each_row(
    ("data", "said"),
    [
        (b"no tenbin", "it is not tenbin: at 0 there is 'no tenbi'"),
        (b"~TenBin~", "the chunk at 0 is cut off"),
        (tenbin.encode("ten", numpy.ones(9))[:-1], "the chunk at 80 is cut off"),
        (tenbin.encode("ten", numpy.ones(9)) + b"x", "it is not tenbin: at 224 "),
        (b"~TenBin~" + b"\xff" * 8, "the chunk at 0 is cut off"),
        (header(b"f4", 1), "the data of the last array are missing"),
        (header(b"c8", 1) + chunk(bytes(8)), "arrays of 'c8' are unknown"),
        (header(b"f4", 2) + chunk(bytes(4)), "an array of f4, (2,), has 4 bytes, not 8"),
        (header(b"f4", -1) + chunk(b""), "a dimension is negative: (-1,)"),
        (header(b"f4", 2, 2, count=1) + chunk(bytes(16)), "a header of 40 bytes cannot have 1 dimension"),
        (header(b"f4", count=1 << 62) + chunk(b""), "a header of 24 bytes cannot have"),
        (header(b"f4", 1 << 62, 1 << 62) + chunk(b""), "an array of f4, (4611686018427387904, 4611686018427387904),"),
        (chunk(b"f4") + chunk(b""), "a header of 2 bytes cannot have 0 dimensions"),
    ],
)
def test_damaged_data(data: bytes, said: str) -> None:
    """Damage is one line, whatever lengths it claims."""
    assert error_line(tenbin.decode, data).startswith(said)


def test_labels_are_kept_where_nothing_changes() -> None:
    data = chunk(struct.pack("<8s8sqq", b"u1", b"label", 1, 3)) + chunk(b"abc")
    sample = Coded(Coder(), {"ten": data})
    assert sample.encode("ten", sample.values["ten"]) == data
    sample.values["ten"][0][0] = 0
    assert sample.encode("ten", sample.values["ten"]) == tenbin.encode("ten", numpy.array([0, 98, 99], "u1"))
