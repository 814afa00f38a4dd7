"""Codecs: names, magic bytes, round trips, damage, memory and threads."""

from __future__ import annotations

import itertools
import lzma
import random
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tarkit
from tarkit.bytereader import ByteReader
from tarkit.errors import Problem, TarkitError, Unsupported, Usage
from tarkit.shards.series import HEAVY
from tarkit.sizes import plural
from tarkit.streams.background import ReadAhead
from tarkit.streams.codecs import (
    CODECS,
    codec_by_magic,
    codec_by_suffix,
    decoder,
    encoder,
    foreign_codec,
    parse_spec,
    registry,
)
from tarkit.streams.codecs import encode as codecs_write
from tarkit.streams.codecs.decode import DECODERS
from tarkit.streams.codecs.encode import ENCODERS
from tests._tools import Chunks, archive, each_row, program, raising

ROOT = Path(__file__).parents[2]
TEXT = b"".join(b"%d bottles of beer on the wall, " % i for i in range(30_000))
NOISE = random.Random(7).randbytes(2 << 20)
MIXED = TEXT[:200_000] + NOISE[:200_000] + bytes(200_000) + TEXT[-100_001:]
SHORT = MIXED[185_000:215_000]
LIGHT = {"gz", "lz4"}  # codecs whose encoder takes at most 1 MB of memory
SKIPPABLE = b"\x5a\x2a\x4d\x18" + (9).to_bytes(4, "little") + b"skip this"


def each_codec(test: Callable[..., None]) -> Callable[[], None]:
    """Run a test with each codec, and gzip with isal and without."""

    def by(named: str) -> None:
        codec, _, backend = named.partition(" by ")
        with mock.patch.dict(sys.modules, {"isal": None} if backend else {}):
            test(codec)

    by.__name__, by.__doc__ = test.__name__, test.__doc__
    return each_row("named", [*CODECS, "gz by zlib"])(by)


def encode(codec: str, data: bytes, level: int | None = -1, threads: int = 1, cuts: tuple[int, ...] = ()) -> bytes:
    """Return a stream, by default at the fastest level."""
    out: list[bytes] = []
    target = encoder(codec, CODECS[codec].lowest if level == -1 else level, out.append, threads)
    for start, stop in itertools.pairwise((0, *cuts, len(data))):
        target.write(memoryview(data)[start:stop])
    target.close()
    return b"".join(out)


@cache
def stored(codec: str) -> bytes:
    """Return MIXED as a stream."""
    return encode(codec, MIXED)


class feeder(ByteReader):
    """A reader that returns at most `piece` bytes, and must not be called again after its end."""

    def __init__(self, raw: bytes, piece: int = 1 << 30) -> None:
        self.calls = iter([raw[i : i + piece] for i in range(0, len(raw), piece)] + [b""])
        self.rest = b""

    def readinto(self, view: Any, /) -> int:
        self.rest = self.rest or next(self.calls)
        data, self.rest = self.rest[: len(view)], self.rest[len(view) :]
        view[: len(data)] = data
        return len(data)


def drain(read: Callable[[int], bytes], out: list[bytes], n: int = 1 << 20) -> None:
    """Read to the end, and append the pieces to `out`, including those before an error."""
    while data := read(n):
        assert len(data) <= n
        out.append(data)
    assert read(n) == b""


def decode(codec: str, raw: bytes, piece: int = 1 << 30, n: int = 1 << 20) -> bytes:
    out: list[bytes] = []
    drain(decoder(codec, feeder(raw, piece), "a.tar").read, out, n)
    return b"".join(out)


def failure(codec: str, raw: bytes, piece: int = 1 << 30) -> tuple[Problem, bytes]:
    """Return the problem that decoding ends with, and the bytes before it."""
    out: list[bytes] = []
    source = decoder(codec, feeder(raw, piece), "a.tar")
    with pytest.raises(Problem) as caught:
        drain(source.read, out)
    with pytest.raises(Problem) as again:
        source.read(1)
    assert again.value is caught.value
    return caught.value, b"".join(out)


def several(codec: str) -> tuple[list[bytes], list[bytes], set[int]]:
    """Return a small stream of several frames: the frames, their contents, and the offsets where it may end."""
    plain = [b"alpha " * 20, b"", TEXT[:150], NOISE[:40]]
    frames = [encode(codec, data) for data in plain]
    if CODECS[codec].skips:
        frames[2:2], plain[2:2] = [SKIPPABLE], [b""]
    inside: set[int] = set()  # of padding
    if codec in ("gz", "xz"):
        frames[1:1], plain[1:1] = [bytes(8)], [b""]
        inside = set(range(len(frames[0]), len(frames[0]) + 8, 1 if codec == "gz" else 4))
    return frames, plain, {0, *itertools.accumulate(map(len, frames))} | inside


# Names


@each_row(
    ("path", "name"),
    [
        ("a.tar.gz", "gz"), ("a.tgz", "gz"), ("A.TGZ", "gz"), ("a.gz", "gz"), ("d.gz/a.tar", None), ("gz", None),
        ("a.tar.zst", "zst"), ("a.tzst", "zst"), ("a-{000..009}.tar.zst", "zst"), ("a.tar.lz4", "lz4"),
        ("a.tar.xz", "xz"), ("a.txz", "xz"), ("a.tar.bz2", "bz2"), ("a.tbz2", "bz2"), ("a.tar", None),
        ("a.gz.tar", None), ("a.zip", "zip"), ("a.ZIP", "zip"), ("zip", None),
    ],
)  # fmt: skip
def test_suffix(path: str, name: str | None) -> None:
    assert codec_by_suffix(path) == name


@each_codec
def test_magic(codec: str) -> None:
    for data in (b"", TEXT[:2000]):
        raw = encode(codec, data)
        assert codec_by_magic(raw[:512]) == codec_by_magic(raw[:10]) == codec
        assert codec_by_magic(b"\0" + raw) is None
        assert codec_by_magic(SKIPPABLE * 2 + raw) == (codec if CODECS[codec].skips else None)
        assert codec_by_magic(SKIPPABLE) == "zst"
    assert codec_by_magic(b"PK\3\4" + bytes(508)) == codec_by_magic(b"PK\5\6" + bytes(18)) == "zip"


@each_row(
    ("spec", "parsed"),
    [
        ("gz", ("gz", None)),
        ("gzip:9", ("gz", 9)),
        ("zst:9", ("zst", 9)),
        ("zstd:22", ("zst", 22)),
        ("xz:0", ("xz", 0)),
        ("lz4:12", ("lz4", 12)),
        ("bzip2", ("bz2", None)),
        ("none", ("none", None)),
        ("rar", "compress='rar': the codec is one of gz, zst, lz4, xz, bz2, zip, none"),
        ("", "compress='': the codec is one of gz, zst, lz4, xz, bz2, zip, none"),
        ("gz:0", "compress='gz:0': the level of gz is a number from 1 to 9"),
        ("zstd:23", "compress='zst:23': the level of zst is a number from 1 to 22"),
        ("xz:", "compress='xz:': the level of xz is a number from 0 to 9"),
        ("bz2:-1", "compress='bz2:-1': the level of bz2 is a number from 1 to 9"),
        ("lz4:٣", "compress='lz4:٣': the level of lz4 is a number from 1 to 12"),
        ("none:1", "compress='none:1': none has no levels"),
        ("zip:10", "compress='zip:10': the level of zip is a number from 0 to 9"),
    ],
)
def test_spec(spec: str, parsed: tuple[str, int | None] | str) -> None:
    try:
        result: object = parse_spec(spec)
    except Usage as error:
        result = str(error)
    assert result == parsed


# Round trips


@each_codec
def test_round_trip(codec: str) -> None:
    """In pieces of any size, at any level; a level out of its range is an error."""
    assert decode(codec, b"") == b""
    for data in (b"", b"x", TEXT[:512], SHORT):
        raw = encode(codec, data)
        assert raw
        assert decode(codec, raw) == data
    assert decode(codec, raw, piece=3001) == decode(codec, raw, n=999) == SHORT
    assert decode(codec, encode(codec, TEXT[:2000]), piece=1, n=1) == TEXT[:2000]
    assert decode(codec, stored(codec)) == decode(codec, stored(codec), piece=100_001, n=1 << 24) == MIXED
    known = CODECS[codec]
    for level in (known.default, min(known.highest, 19)):
        assert decode(codec, encode(codec, SHORT, level)) == SHORT
    assert encode(codec, SHORT, None) == encode(codec, SHORT, known.default)
    with pytest.raises(Usage, match=f"to {known.highest}"):
        encoder(codec, known.highest + 1, print)


PROGRAMS = {
    "gz": [["gzip", "-9"]],
    "zst": [["zstd"], ["zstd", "--long=31"], ["zstd", "--no-check"], ["zstd", "-T2"]],
    "lz4": [["lz4"], ["lz4", "-B4", "-BD", "-BX"], ["lz4", "--no-frame-crc"]],
    "xz": [["xz"], ["xz", "-0", "--check=sha256"], ["xz", "-0", "--check=none"], ["xz", "-0T2", "--block-size=50KiB"]],
    "bz2": [["bzip2", "-1"]],
    "lzma": [
        ["xz", "--format=lzma", *options]
        for options in (["-0"], ["-6"], ["-9e"], ["--lzma1=dict=4KiB"], ["--lzma1=dict=6MiB"])
    ],
}


@each_row(("codec", "command"), [(codec, each) for codec in PROGRAMS for each in PROGRAMS[codec]])
def test_reads_programs(codec: str, command: list[str], tmp_path: Path) -> None:
    program(command[0])
    data = MIXED[130_000:270_000]
    (tmp_path / "data").write_bytes(data)
    raw = subprocess.run([*command, "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    assert codec_by_magic(raw[:512]) == codec
    if command == PROGRAMS[codec][0]:  # for a file the programs know the size, and store it
        raw += subprocess.run([*command, "-c", tmp_path / "data"], stdout=subprocess.PIPE, check=True).stdout
        data += data
    assert decode(codec, raw, piece=100_000) == data


@each_codec
def test_programs_read(codec: str) -> None:
    with mock.patch.object(codecs_write, "BLOCK", 4096):
        raw = encode(codec, SHORT, threads=2)
    assert codec in PROGRAMS, f"add {codec} to PROGRAMS"
    decoder = program(PROGRAMS[codec][0][0])
    assert subprocess.run([decoder, "-dc"], input=raw, stdout=subprocess.PIPE, check=True).stdout == SHORT


# Damage


@pytest.mark.slow
@each_codec
def test_cut_at_every_byte(codec: str) -> None:
    frames, plain, good = several(codec)
    raw, whole = b"".join(frames), b"".join(plain)
    ends = list(zip(itertools.accumulate(map(len, frames)), itertools.accumulate(map(len, plain)), strict=True))
    for cut in range(len(raw) + 1):
        complete = max([size for end, size in ends if end <= cut], default=0)
        for piece in (13, 1 << 20) if cut % 2 else (13,):
            if cut in good:
                assert decode(codec, raw[:cut], piece) == whole[:complete]
                continue
            problem, before = failure(codec, raw[:cut], piece)
            assert (problem.name, cut) == ("truncated", cut)
            unit = CODECS[codec].unit
            assert str(problem).startswith(f"a.tar: the {codec} stream ends inside ")
            assert str(problem).endswith(f" (after {plural(cut, 'compressed byte')}) [truncated]"), unit
            assert (problem.offset, bool(problem.hint)) == (None, True)
            assert whole.startswith(before)
            assert len(before) >= complete


def same_or_error(codec: str, raw: bytes, data: bytes) -> bool:
    try:
        assert decode(codec, raw) == data
    except TarkitError:
        return True
    return False


@pytest.mark.slow
@each_codec
def test_flip_every_bit(codec: str) -> None:
    plain = [b"alpha " * 9, NOISE[:9]]
    raw = bytearray(b"".join(encode(codec, data) for data in plain))
    seen = 0
    for at in range(len(raw)):
        for bit in range(8):
            raw[at] ^= 1 << bit
            seen += same_or_error(codec, bytes(raw), b"".join(plain))
            raw[at] ^= 1 << bit
    assert seen > 6 * len(raw)  # nothing depends on the time in a gzip header, or on bits between blocks


@each_codec
def test_all_blocks_before_any_damage_are_returned(codec: str) -> None:
    """Damage in any place: all that is decoded if the bytes come one by one is returned before the error.

    What was read may be held, or be read again.
    """
    draw = random.Random(codec)
    for _ in range(4):
        size = draw.randrange(1000, 9000)
        data = TEXT[:size] + NOISE[: size // 2] + TEXT[: size // 3]
        raw = bytearray(encode(codec, data, 1))
        at = draw.randrange(len(raw) // 8, len(raw))
        raw[at : at + 40] = bytes(value ^ 0x5A for value in raw[at : at + 40])
        one_by_one: list[bytes] = []
        with suppress(Problem):  # not each damage is noticed: lz4 has no checksum here
            drain(decoder(codec, feeder(bytes(raw), 1), "a.tar").read, one_by_one)
        expected = len(b"".join(one_by_one)) // 512 * 512
        for again in (None, lambda held=bytes(raw): feeder(held, 5000)):
            out: list[bytes] = []
            with suppress(Problem):
                drain(decoder(codec, feeder(bytes(raw), 70_000), "a.tar", again).read, out)
            assert len(b"".join(out)) >= expected
            assert b"".join(out)[:expected] == b"".join(one_by_one)[:expected]


@each_codec
def test_garbage(codec: str) -> None:
    """After the stream, and before it."""
    raw = encode(codec, TEXT[:2000])
    short = b"garbage", b"\xff", b"\0\0\0\0x" if codec in ("gz", "xz") else bytes(4)
    for garbage, piece in [*itertools.product(short, (1, len(raw), 1 << 20)), (TEXT, len(raw)), (TEXT, 1 << 20)]:
        problem, before = failure(codec, raw + garbage, piece)
        assert problem.name == "trailing-data"
        assert before == TEXT[:2000]
    problem, before = failure(codec, b"garbage" + raw)
    assert str(problem).startswith(f"a.tar: the {codec} stream is damaged: it does not begin with a ")
    assert (problem.name, before) == ("bad-data", b"")


@each_row("backend", ["isal", "zlib"])
def test_gzip_headers_with_all_fields(backend: str) -> None:
    head = b"\x1f\x8b\x08\x1e" + b"time" + b"\x02\x03" + b"\x05\x00extra" + b"name\0" + b"comment\0"
    head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    raw = (head + encode("gz", TEXT[:99])[10:]) * 2
    with mock.patch.dict(sys.modules, {"isal": None} if backend == "zlib" else {}):
        assert decode("gz", raw, piece=1) == decode("gz", raw) == 2 * TEXT[:99]
        for cut in range(1, len(raw)):
            if cut != len(raw) // 2:
                assert failure("gz", raw[:cut])[0].name == "truncated"
        assert failure("gz", raw[:3] + b"\x20" + raw[4:])[0].name == "bad-data"  # a reserved flag


@each_row("zeros", [1, 512, 600_000])
def test_zeros_after_gzip(zeros: int) -> None:
    raw = encode("gz", TEXT[:2000]) + bytes(zeros)
    assert decode("gz", raw) == TEXT[:2000]
    assert decode("gz", raw + raw) == 2 * TEXT[:2000]
    with mock.patch.dict(sys.modules, {"isal": None}):
        assert decode("gz", raw + raw) == 2 * TEXT[:2000]


def test_padding_after_xz() -> None:
    raw = encode("xz", TEXT[:2000])
    assert decode("xz", raw + bytes(300_000) + raw + bytes(4)) == 2 * TEXT[:2000]
    assert failure("xz", raw + bytes(5))[0].name == "truncated"
    assert failure("xz", raw + bytes(5) + raw)[0].name == "bad-data"


@each_row("codec", ["zst", "lz4"])
def test_skippable_frames(codec: str) -> None:
    raw = encode(codec, TEXT[:2000])
    long = b"\x50\x2a\x4d\x18" + (700_000).to_bytes(4, "little") + raw + bytes(700_000 - len(raw))
    assert decode(codec, SKIPPABLE + long + raw + SKIPPABLE + SKIPPABLE) == TEXT[:2000]
    assert decode(codec, SKIPPABLE) == b""
    assert failure(codec, raw + long[:-1])[0].name == "truncated"


@each_row(("first", "other"), [("zst", "lz4"), ("lz4", "zst")])
def test_skippable_frames_do_not_determine_the_codec(first: str, other: str) -> None:
    long = b"\x50\x2a\x4d\x18" + (700_000).to_bytes(4, "little") + bytes(700_000)
    raw = encode(other, TEXT[:2000])
    for piece in (50_000, 1 << 20):
        assert decode(first, SKIPPABLE + long + raw + SKIPPABLE + raw, piece) == TEXT[:2000] * 2
        assert failure(first, long + raw[:-1], piece)[0].name == "truncated"
        problem, before = failure(first, long + encode(first, TEXT[:100]) + raw, piece)
        assert (problem.name, before) == ("trailing-data", TEXT[:100])
        assert failure(first, long + encode("gz", b"x"), piece)[0].name == "trailing-data"
        with pytest.raises(Unsupported, match=r"(?m)^a.tar: this is legacy lz4, which tarkit does not decode$"):
            decode(first, long + b"\x02\x21\x4c\x18" + bytes(9), piece)


# LZMA-alone, which is read but not written


def sized(data: bytes) -> bytes:
    """Return a .lzma stream as the LZMA SDK writes it: with the size of `data` in its header, and no end marker.

    It is made from the one chunk of LZMA2 for so few bytes (control, two sizes, properties, then LZMA).
    """
    chunk = lzma.compress(data, lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}])
    size = int.from_bytes(chunk[3:5], "big") + 1
    assert chunk[6 + size :] == b"\0"
    return chunk[5:6] + (1 << 23).to_bytes(4, "little") + len(data).to_bytes(8, "little") + chunk[6 : 6 + size]


def test_lzma_is_read() -> None:
    """The dictionaries of all levels are recognised; in pieces of any size, and as several streams in sequence."""
    for level in range(10):
        raw = lzma.compress(SHORT if level in (0, 9) else b"x", lzma.FORMAT_ALONE, preset=level)
        assert codec_by_magic(raw[:512]) == codec_by_magic(raw[:10]) == "lzma"
    for piece in (1000, 1 << 20):
        assert decode("lzma", raw, piece) == SHORT
        assert decode("lzma", raw + sized(SHORT) + raw, piece) == SHORT * 3
    assert decode("lzma", lzma.compress(b"", lzma.FORMAT_ALONE)) == decode("lzma", b"") == b""


@each_row(("lc", "lp", "pb"), [(4, 0, 2), (0, 4, 2), (3, 0, 0), (3, 1, 4)])
def test_lzma_of_other_properties(lc: int, lp: int, pb: int, tmp_path: Path) -> None:
    """It is recognised by its suffix, as nothing else says what it is."""
    filters = [{"id": lzma.FILTER_LZMA1, "lc": lc, "lp": lp, "pb": pb}]
    for suffix in (".tar.lzma", ".TLZ"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(lzma.compress(archive([("a.txt", b"1")]), lzma.FORMAT_ALONE, filters=filters))
        assert [sample.key for sample in tarkit.open(path)] == ["a"]


@each_row("end", ["marker", "size"])
def test_lzma_cut_at_every_byte(end: str) -> None:
    """A stream that was cut anywhere is an error, even if all plain bytes came before the cut."""
    raw = sized(TEXT[:600]) if end == "size" else lzma.compress(TEXT[:600], lzma.FORMAT_ALONE)
    assert decode("lzma", raw) == TEXT[:600]
    for cut, piece in itertools.product(range(1, len(raw)), (13, 1 << 20)):
        problem, before = failure("lzma", raw[:cut], piece)
        assert (problem.name, cut) == ("truncated", cut)
        assert TEXT[:600].startswith(before)


def test_lzma_that_is_damaged() -> None:
    """Data after the stream, a wrong size and damaged data are errors; the format has no checksum."""
    raw = lzma.compress(TEXT[:2000], lzma.FORMAT_ALONE)
    for garbage in (b"garbage", bytes(4), b"\xff"):
        problem, before = failure("lzma", raw + garbage)
        assert (problem.name, before) == ("trailing-data", TEXT[:2000])
    assert failure("lzma", raw[:5] + (2001).to_bytes(8, "little") + raw[13:])[0].name in ("bad-data", "truncated")
    assert failure("lzma", raw[:13] + b"\1" + raw[14:])[0].name == "bad-data"


# Codecs that are not decoded

LZOP = b"\x89LZO\x00\r\n\x1a\n"


@each_row(
    ("head", "path", "name"),
    [
        (b"\x1f\x9d\x90", None, "compress (.Z)"),
        (b"LZIP\x01\x0c", None, "lzip"),
        (LZOP, None, "lzop"),
        (b"\x02\x21\x4c\x18" + bytes(20), None, "legacy lz4"),
        (SKIPPABLE + b"\x02\x21\x4c\x18" + bytes(20), None, "legacy lz4"),
        (b"\x0b\x02\x80", "a.tar.br", "brotli"),
        (b"\x0b\x02\x80", "A.TAR.BR", "brotli"),
        (b"\x0b\x02\x80", "a.br/b.tar", None),
        (b"\x0b\x02\x80", None, None),
        (b"hello", "a.tar.lz", None),  # a codec with magic bytes is recognized by these only
        (b"LZIP is a word", None, None),
        (b"]: a word", "a.tar.lzma", None),
        (bytes(512), None, None),
        (b"", None, None),
    ],
)
def test_foreign_codecs(head: bytes, path: str | None, name: str | None) -> None:
    """Codecs are recognized by first bytes, after skippable frames too; brotli, without magic bytes, by suffix."""
    assert codec_by_magic(head) is None
    found = foreign_codec(head, path)
    assert (found and found.name) == name


def test_empty_blocks_of_zstd() -> None:
    # one segment of 5 bytes; an empty raw block, "hel", two empty ones, "lo", an empty last one
    raw = b"\x28\xb5\x2f\xfd\x20\x05" + b"\0\0\0" + b"\x18\0\0hel" + b"\0\0\0" * 2 + b"\x10\0\0lo" + b"\x01\0\0"
    for piece, n in itertools.product((1, 99), (1, 99)):
        assert decode("zst", raw, piece, n) == b"hello"
    assert failure("zst", raw[:-3])[0].name == "truncated"


@each_row(
    ("head", "why"),
    [
        (b"\x28\xb5\x2f\xfd\x01\x38\x05\x01\0\0", "needs a dictionary"),
        (b"\x28\xb5\x2f\xfd\x00\xb0\x01\0\0", "needs a window of more than 2048 MiB"),
    ],
)
def test_unsupported_zstd(head: bytes, why: str) -> None:
    with pytest.raises(Unsupported, match=f"(?m)^a.tar: this zst stream {why}$"):
        decode("zst", head)


def test_errors_of_the_input_pass() -> None:
    for codec in CODECS:
        with pytest.raises(OSError, match="Input/output"):
            decoder(codec, Chunks(b"", error=OSError(5, "Input/output error")), "a.tar").read(10)


BOMB = """
import re, sys
sys.path.insert(0, sys.argv[1])
from tarkit.streams.codecs import decoder
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) >> 10
for path in sys.argv[2:]:
    codec = path.rpartition(".")[2]
    with open(path, "rb", buffering=0) as file:
        source = decoder(codec, file, path)
        source.read(1)
        before, size = peak(), 1
        while data := source.read(1 << 20):
            size += len(data)
        print(codec, size, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc to see peak memory")
def test_bombs(tmp_path: Path) -> None:
    sizes = {"gz": 30, "zst": 30, "lz4": 30, "xz": 12, "bz2": 12}
    for codec, size in sizes.items():
        out: list[bytes] = []
        target = encoder(codec, CODECS[codec].lowest, out.append)
        for _ in range(size):
            target.write(bytes(1_000_000) if codec in ("xz", "bz2") else NOISE[:250] * 4000)
        target.close()
        (tmp_path / f"bomb.{codec}").write_bytes(b"".join(out))
    # 400 blocks of 4 bytes, each of which is one byte 131 072 times
    raw = b"\x28\xb5\x2f\xfd\x00\x38" + b"\x02\x00\x10x" * 399 + b"\x03\x00\x10x"
    (tmp_path / "run.zst").write_bytes(raw)
    paths = [*(tmp_path / f"bomb.{codec}" for codec in sizes), tmp_path / "run.zst"]
    command = [sys.executable, "-c", BOMB, *map(str, [ROOT, *paths])]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    found = [(codec, int(size), int(growth)) for codec, size, growth in map(str.split, lines)]
    assert [size for _, size, _ in found] == [size * 1_000_000 for size in sizes.values()] + [400 << 17]
    assert all(growth <= 8 for _, _, growth in found), found


# Determinism


CUT = MIXED[190_000:210_000]


@cache
def in_one_piece(codec: str) -> bytes:
    return encode(codec, CUT)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 20_000), max_size=12), st.integers(1, 3), st.sampled_from(sorted(CODECS)))
def test_cuts_and_threads_do_not_change_the_output(cuts: list[int], threads: int, codec: str) -> None:
    with mock.patch.object(codecs_write, "BLOCK", 4096):
        assert encode(codec, CUT, -1, threads, tuple(sorted(cuts))) == in_one_piece(codec)


def test_gzip_blocks_share_their_window() -> None:
    with mock.patch.object(codecs_write, "BLOCK", 4096):
        assert len(encode("gz", NOISE[:4096] * 10)) < 2 * 4096


@each_codec
def test_a_block_filled_in_place(codec: str) -> None:
    """What a caller puts into `room` is the same as what it writes."""
    with mock.patch.object(codecs_write, "BLOCK", 4096):
        out: list[bytes] = []
        target, at = encoder(codec, CODECS[codec].lowest, out.append), 700
        target.write(CUT[:at])
        while at < len(CUT):
            room = target.room()[:1000]
            count = min(len(room), len(CUT) - at)
            room[:count] = CUT[at : at + count]
            target.fill(count)
            at += count
        target.close()
        with pytest.raises(ValueError, match="closed"):
            target.room()
        assert b"".join(out) == encode(codec, CUT)


def test_headers_have_no_time_and_have_checksums() -> None:
    from lz4.frame import get_frame_info
    from zstandard import get_frame_parameters

    for level in (1, 3, 9):
        assert encode("gz", TEXT, level)[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    assert get_frame_parameters(encode("zst", TEXT)).has_checksum
    assert get_frame_info(encode("lz4", TEXT))["content_checksum"]


@each_codec
def test_buffers_of_any_kind(codec: str) -> None:
    out: list[bytes] = []
    target = encoder(codec, None, out.append)
    buffer = bytearray(TEXT[:3000])
    target.write(buffer)
    buffer[:] = bytes(3000)
    target.write(memoryview(TEXT[3000:6000]).cast("H"))
    target.write(b"")
    target.close()
    assert decode(codec, b"".join(out)) == TEXT[:6000]


# The life of an encoder


@each_codec
@mock.patch.object(codecs_write, "BLOCK", 4096)
def test_close_and_abort(codec: str) -> None:
    before = set(threading.enumerate())
    for ended in ("close", "abort"):
        out: list[bytes] = []
        target = encoder(codec, 1, out.append, threads=2)
        target.write(TEXT[:20_000])
        getattr(target, ended)()
        count = len(out)
        target.close()
        target.abort()
        assert len(out) == count
        with pytest.raises(ValueError, match="closed"):
            target.write(b"more")
        assert set(threading.enumerate()) <= before


@each_codec
def test_errors_of_the_target_pass(codec: str) -> None:
    target = encoder(codec, 1, raising(OSError, 28, "No space left on device"))
    target.write(SHORT)
    with pytest.raises(OSError, match="No space"):
        target.close()
    target.abort()


# Reading ahead


@each_codec
def test_read_ahead(codec: str) -> None:
    """In pieces of any size; an error comes after the data that precede it, each time."""
    raw = encode(codec, SHORT)
    for n, size in itertools.product((1000, 1 << 20), (1000, 999)):
        out: list[bytes] = []
        source = ReadAhead(decoder(codec, feeder(raw), "a.tar"), size=size, limit=4000)
        drain(source.read, out, n)
        assert b"".join(out) == SHORT
        source.close()
    out, source = [], ReadAhead(decoder(codec, feeder(raw[:-1]), "a.tar"), size=1000)
    with pytest.raises(Problem, match="truncated"):
        drain(source.read, out)
    assert SHORT.startswith(b"".join(out))
    with pytest.raises(Problem, match="truncated"):
        source.read(1)
    source.close()


class Filled(ByteReader):
    """Calls a function for each read; notes whether it was closed."""

    def __init__(self, fill: Callable[[memoryview], int]) -> None:
        self.fill = fill
        self.gone = False

    def readinto(self, view: Any, /) -> int:
        return self.fill(view)

    def close(self) -> None:
        self.gone = True


def test_read_ahead_holds_little_and_closes_when_full() -> None:
    calls = 0
    fourth = threading.Event()

    def fill(view: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls == 4:
            fourth.set()
        return len(view)

    source = ReadAhead(below := Filled(fill), size=100, limit=400)
    assert fourth.wait(30)
    source.close()
    assert (calls, below.gone) == (4, True)
    with pytest.raises(ValueError, match="closed"):
        source.read(1)


def test_read_ahead_collects_small_pieces() -> None:
    """Small pieces do not fill it: what comes in single bytes, as from a slow server, is read ahead all the same."""
    pieces = iter([b"x"] * 300 + [b""])
    ended = threading.Event()

    def fill(view: memoryview) -> int:
        piece = next(pieces)
        if not piece:
            ended.set()
        view[: len(piece)] = piece
        return len(piece)

    source = ReadAhead(Filled(fill), size=100, limit=400)
    assert ended.wait(30)
    out: list[bytes] = []
    drain(source.read, out)
    assert out == [b"x" * 300]
    source.close()


def test_read_ahead_of_a_silent_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The input stays open while the thread is still in a read."""
    silence = threading.Event()
    source = ReadAhead(below := Filled(lambda view: silence.wait() and 0))
    monkeypatch.setattr(source, "patience", 0.01)
    source.close()
    assert not below.gone
    silence.set()
    monkeypatch.setattr(source, "patience", 30)
    source.close()
    assert below.gone


def run(program: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


def test_exit_while_reading_ahead() -> None:
    program = """
import os, threading
from tarkit.bytereader import ByteReader
from tarkit.streams.background import ReadAhead
from tarkit.streams.readers import DescriptorReader
class Full(ByteReader):
    def readinto(self, view):
        return len(view)
full = ReadAhead(Full(), 10, 100)
silent = ReadAhead(DescriptorReader(os.pipe()[0]))
print(full.readinto(memoryview(bytearray(10))))
"""
    assert run(program) == "10\n"


def test_each_codec_has_its_functions() -> None:
    assert set(DECODERS) == set(registry.DECODED)
    assert set(ENCODERS) == set(registry.CODECS)
    assert set(PROGRAMS) == set(registry.DECODED), "add it to PROGRAMS"


def test_the_memory_of_each_encoder_is_known() -> None:
    """Shards that are open together are counted by it: HEAVY says how much, LIGHT that it is little."""
    assert sorted([*HEAVY, *LIGHT]) == sorted(registry.CODECS)


def test_the_table_of_codecs_is_in_the_documents() -> None:
    text = (ROOT / "docs/formats/tar.md").read_text()
    rows = [
        f"| `{each.name}` | {' '.join(f'`{suffix}`' for suffix in each.suffixes)} | {each.lowest} to {each.highest} "
        f"| {each.default} |"
        for each in CODECS.values()
    ]
    assert "\n".join(rows) + "\n\n" in text
