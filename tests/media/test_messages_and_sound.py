"""msgpack, CBOR, sound, and fields that are compressed: decoded, encoded again, and what is refused."""

from __future__ import annotations

import datetime
import gzip
import io
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import TarkitError
from tarkit.media.coding import KINDS, Coded, Coder
from tests._tools import each_row, error_line

numpy = pytest.importorskip("numpy")
msgpack = pytest.importorskip("msgpack")
cbor2 = pytest.importorskip("cbor2")
soundfile = pytest.importorskip("soundfile")

VALUES = [
    {"a": [1, -2, 1.5, None, True], "b": b"\xff", "é": {"deep": [[]]}},
    {1: "one", b"x": 2},
    [],
    "text",
    2**63,
    float("inf"),
    None,
]


@each_row("field", ["mp", "a.msgpack", "MSG", "cbor", "x.mp.gz", "cbor.gz"])
@each_row("value", VALUES)
def test_messages(field: str, value: object) -> None:
    """A value comes back as it was; a value that did not change keeps its bytes, however they were encoded."""
    coder = Coder()
    data = coder.encode(field, value)
    assert coder.decode(field, data) == value
    assert type(coder.decode(field, data)) is type(value)
    sample = Coded(coder, {field: data})
    assert sample.encode(field, sample.values[field]) == data


def test_messages_of_other_programs() -> None:
    """Bytes that another program encoded otherwise are kept; a change is encoded."""
    odd = b"\xd9\x01a"  # a short text with a length of its own byte
    sample = Coded(Coder(), {"mp": odd})
    assert sample.values["mp"] == "a"
    assert sample.encode("mp", "a") == odd
    assert sample.encode("mp", "b") == b"\xa1b"
    odd = b"\x9f\x01\xff"  # a list without a length
    sample = Coded(Coder(), {"cbor": odd})
    assert sample.encode("cbor", [1]) == odd
    assert sample.encode("cbor", [1, 2]) == b"\x82\x01\x02"
    assert Coder().encode("mp", (1, 2)) == b"\x92\x01\x02"


PLAIN: list[Any] = [
    {1, 2},
    re.compile("a"),
    Decimal("1.10"),
    Fraction(1, 3),
    datetime.date(2020, 1, 2),
    datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
    {(1, 2): 3},
    {frozenset([1]): 2},
    cbor2.undefined,
    cbor2.CBORSimpleValue(99),
    cbor2.CBORTag(6000, "x"),
]


@each_row("value", PLAIN)
def test_values_of_cbor(value: object) -> None:
    """What the tags of CBOR stand for comes back as it was."""
    found = Coder().decode("cbor", Coder().encode("cbor", [value]))
    assert repr(found) == repr([value])
    assert found == [value]


OTHER: list[Any] = [
    frozenset([1]),
    re.compile("a", re.IGNORECASE),
    Decimal("NaN"),
    Decimal("-0"),
    datetime.datetime(2020, 1, 2, tzinfo=ZoneInfo("Europe/Paris")),
    range(3),
    cbor2.CBORTag(6000, [frozenset([1])]),
    {Decimal("NaN"): 1},
]


@each_row("value", OTHER)
def test_values_that_cbor_does_not_keep(value: object) -> None:
    """What would come back as another value is an error, wherever it is."""
    for inside in (value, [value], {"a": (value,)}):
        with pytest.raises(TarkitError, match="field 'cbor': CBOR would not give back"):
            Coder().encode("cbor", inside)


@each_row(
    ("field", "data", "said"),
    [
        ("mp", b"", "field 'mp' cannot be decoded: "),
        ("mp", b"\x81", "field 'mp' cannot be decoded: "),
        ("mp", b"\x01\x02", "field 'mp' cannot be decoded: ExtraData"),
        ("mp", b"\xc1", "field 'mp': the content is no MessagePack"),
        ("mp", b"\xdd\xff\xff\xff\xff", "field 'mp' cannot be decoded: "),
        ("mp", b"\x91" * 100_000, "field 'mp' cannot be decoded: "),
        ("cbor", b"", "field 'cbor' cannot be decoded: "),
        ("cbor", b"\xa1", "field 'cbor' cannot be decoded: "),
        ("cbor", b"\x01\x02", "field 'cbor': 1 byte follows the value"),
        ("cbor", b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "field 'cbor' cannot be decoded: "),
        ("cbor", b"\x81" * 100_000, "field 'cbor' cannot be decoded: "),
        ("wav", b"no sound", "field 'wav' cannot be decoded: LibsndfileError: "),
        ("json.gz", b"{}", "field 'json.gz': it is not compressed with gzip, as a name that ends in .gz says"),
        ("json.gz", b"", "field 'json.gz': its gzip data are cut off"),
        ("json.gz", gzip.compress(b"{}")[:-1], "field 'json.gz': its gzip data are cut off"),
        ("json.gz", gzip.compress(b"{}") + b"xxxx", "field 'json.gz': it is not compressed with gzip"),
        ("json.gz", gzip.compress(b"{"), "field 'json.gz' cannot be decoded: JSONDecodeError"),
        ("html", b"\xff", "field 'html' cannot be decoded: UnicodeDecodeError"),
    ],
)
def test_decoding_errors(field: str, data: bytes, said: str) -> None:
    """An error is one line that names the field; lengths that the content claims allocate nothing."""
    assert error_line(Coder().decode, field, data).startswith(said)


def test_compressed_fields() -> None:
    """The name before `.gz` decides; all members count, and the same value gives the same bytes."""
    coder = Coder()
    assert coder.decode("a.JSON.GZ", gzip.compress(b'{"a":') + gzip.compress(b" 1}")) == {"a": 1}
    assert coder.decode("txt.gz", gzip.compress(b"x") + bytes(20)) == "x"
    assert coder.encode("cls.gz", 3) == coder.encode("cls.gz", 3)
    assert gzip.decompress(coder.encode("cls.gz", 3)) == b"3"
    assert gzip.decompress(coder.encode("bin.gz", "é")) == "é".encode()
    assert coder.encode("json.gz", b"bytes") == b"bytes"
    packed = gzip.compress(b'{"a":1}', mtime=7)
    sample = Coded(coder, {"json.gz": packed})
    assert sample.encode("json.gz", {"a": 1}) == packed
    assert sample.encode("other.json.gz", sample.values["json.gz"]) == packed


def wave(channels: int = 2, dtype: str = "float32") -> Any:
    """Return 800 frames of sound."""
    samples = numpy.sin(numpy.arange(800 * channels) / 9).reshape(-1, channels) * 0.9
    return samples.astype("float32") if dtype == "float32" else (samples * numpy.iinfo(dtype).max).astype(dtype)


@each_row("field", ["wav", "flac", "a.mp3", "wav.gz"])
@each_row("channels", [1, 2])
def test_sound(field: str, channels: int) -> None:
    """Sound is an array of float32, frames x channels, and a rate; wav keeps all bits, flac 24, mp3 is lossy."""
    coder = Coder()
    data = coder.encode(field, (wave(channels), 8000))
    assert data == coder.encode(field, [wave(channels), 8000])
    samples, rate = coder.decode(field, data)
    assert (samples.dtype, samples.shape[1], rate, type(rate)) == (numpy.float32, channels, 8000, int)
    if "mp3" not in field:
        assert samples.shape == (800, channels)
        assert abs(samples - wave(channels)).max() <= (2**-23 if field == "flac" else 0)
    sample = Coded(coder, {field: data})
    assert sample.encode(field, sample.values[field]) == data
    samples = sample.values[field][0]
    samples[0] = 0.5
    assert sample.encode(field, (samples, rate)) != data


@each_row("field", ["wav", "flac", "wav32"])
def test_sound_of_integers(field: str) -> None:
    """Integers of 16 bits are kept, and by wav those of 32 bits."""
    dtype = "int32" if field == "wav32" else "int16"
    field = field[:4].removesuffix("3")
    data = Coder().encode(field, (wave(2, dtype), 44100))
    back, rate = soundfile.read(io.BytesIO(data), dtype=dtype, always_2d=True)
    assert rate == 44100
    assert numpy.array_equal(back, wave(2, dtype))
    assert Coder().encode(field, (wave(1, dtype)[:, 0], 1))


def test_sound_that_cannot_be_written_twice_alike() -> None:
    """ogg is decoded, and kept if unchanged; wav of floats has no time in it."""
    file = io.BytesIO()
    soundfile.write(file, wave(), 8000, format="OGG", subtype="VORBIS")
    sample = Coded(Coder(), {"ogg": file.getvalue()})
    samples, rate = sample.values["ogg"]
    assert (samples.shape, rate) == ((800, 2), 8000)
    assert sample.encode("ogg", sample.values["ogg"]) == file.getvalue()
    with pytest.raises(TarkitError, match="field 'ogg': ogg is not written, since its bytes would differ each time"):
        sample.encode("ogg", (samples / 2, rate))
    data = Coder().encode("wav", (wave(), 8000))
    at = data.index(b"PEAK")
    assert data[at + 12 : at + 16] == bytes(4)


@each_row(
    ("field", "value", "said"),
    [
        ("wav", wave(), "it takes an array and a rate"),
        ("wav", ([0.5], 8000), "it takes an array and a rate"),
        ("wav", (wave(), 8000.0), "the rate is a number of frames a second, not 8000.0"),
        ("wav", (wave(), 0), "the rate is a number of frames a second, not 0"),
        ("wav", (wave().reshape(2, 2, -1), 8000), "an array of float32 with 3 dimensions is not sound for wav"),
        ("wav", (wave().astype("uint8"), 8000), "an array of uint8 with 2 dimensions is not sound for wav"),
        ("flac", (wave(2, "int32"), 8000), "an array of int32 with 2 dimensions is not sound for flac"),
        ("flac", (wave() * 2, 8000), "values of sound must be from -1 to 1"),
        ("mp3", (wave() * numpy.nan, 8000), "values of sound must be from -1 to 1"),
        ("wav", (numpy.full((4, 1), -1.5, "f4"), 8000), "values of sound must be from -1 to 1"),
    ],
)
def test_values_that_are_no_sound(field: str, value: object, said: str) -> None:
    """Values that a format would change silently are errors."""
    assert error_line(Coder().encode, field, value).startswith(f"field {field!r}: {said}")


FIELDS = [
    f"{name}{end}" for kind in KINDS if kind.name != "torch" for name in kind.fields.split()[:1] for end in ("", ".gz")
]
HEADS = [b"", b"~TenBin~", b"RIFF\x24\0\0\0WAVEfmt ", b"fLaC", b"\x93NUMPY\x01\0", b"PK\x03\x04", b"\x89PNG\r\n\x1a\n"]


@given(st.sampled_from(FIELDS), st.sampled_from(HEADS), st.binary(max_size=200))
def test_any_bytes(field: str, head: bytes, rest: bytes) -> None:
    """Any content is decoded, or is an error of one line that names the field; what is decoded keeps its bytes."""
    data = gzip.compress(head + rest) if field.endswith(".gz") else head + rest
    found: list[Any] = []
    said = error_of(lambda: found.append(Coded(Coder(), {field: data})))
    if said is None:
        said = error_of(lambda: found.append(found[0].encode(field, found[0].values[field])))
        assert said is not None or found[1:] == [data] or "cbor" in field
    assert said is None or (said.startswith(f"field {field!r}") and "\n" not in said)


def error_of(function: Callable[[], object]) -> str | None:
    """Return the message of the error of tarkit that a call raises; None if it raises none."""
    try:
        function()
    except TarkitError as error:
        return str(error)
    return None
