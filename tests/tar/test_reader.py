"""Reading headers: archives by other programs, damage, and that payloads are never read."""

from __future__ import annotations

import json
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import webdataset as wds
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import Problem, TarkitError
from tarkit.tar import block as b
from tarkit.tar import header, pax
from tarkit.tar.reader import Entry, HeaderSource, TarReader, find_header
from tests._tools import MARKER, SOURCES, Peeked, counted, each_row, extension, member, on_disk, stream, with_field
from tests.conftest import tar

DATA = Path(__file__).parents[1] / "data"
EXPECTED = json.loads((DATA / "expected.json").read_text())
GOLDEN = sorted(EXPECTED)
DAMAGED = ["gnu-gnu-long.tar", "gnu-pax-long.tar", "gnu-sparse-old.tar", "git.tar", "bsdtar-v7.tar"]

Listing = list[list[str | int]]


def listed(entries: list[Entry]) -> Listing:
    """Return entries as in expected.json, without those of global headers."""
    return [
        [entry.name.decode("latin-1"), entry.type.decode("latin-1"), max(entry.size, entry.real), entry.start]
        for entry in entries
        if entry.type != b.PAX_GLOBAL
    ]


class ReadResult:
    """The entries of an archive, and the error that ended the reading."""

    def __init__(self, source: HeaderSource, pos: int = 0) -> None:
        self.reader = TarReader(source, pos)
        self.entries: list[Entry] = []
        self.error: TarkitError | None = None
        try:
            self.entries += self.reader
        except TarkitError as error:
            self.error = error

    @property
    def problem(self) -> str | None:
        """The name of the problem that ended the reading."""
        return self.error.name if isinstance(self.error, Problem) else None

    @property
    def whole(self) -> list[Entry]:
        """The entries before the damage."""
        return self.entries if self.error is None else [e for e in self.entries if e.start < self.reader.broken]


def pax_member(records: dict[bytes, bytes], name: str = "short", payload: bytes = b"", kind: bytes = b.PAX) -> bytes:
    """Return a header with PAX records and, unless these are global, the entry that they apply to."""
    extension = pax.format_records(records)
    entry = with_field(member("PaxHeaders/x", extension), 156, kind)
    return entry if kind == b.PAX_GLOBAL else entry + member(name, payload)


# ---- archives by other programs


AHEAD: dict[str, Callable[[bytes], HeaderSource]] = {
    f"{ahead} ahead": lambda data, ahead=ahead: Peeked(data, ahead, ahead % 2 > 0)  # type: ignore[misc]
    for ahead in (0, 513, 1024, 1535, 10_000)
}


@each_row("source", [*SOURCES.values(), *AHEAD.values()])
@each_row("name", GOLDEN)
def test_golden(name: str, source: Callable[[bytes], HeaderSource]) -> None:
    """Names, sizes, types and offsets are those of GNU tar and Python; the reader stops at the end of the archive."""
    data = (DATA / name).read_bytes()
    result = ReadResult(source(data))
    assert result.error is None
    assert listed(result.entries) == EXPECTED[name]
    assert result.reader.end == len(data)
    ends = [entry.stop for entry in result.entries]
    assert [entry.start for entry in result.entries] == [0, *ends[:-1]], "entries are adjacent"
    assert result.reader.marker == ends[-1]
    assert data[ends[-1] :].count(0) == len(data) - ends[-1]


def test_links() -> None:
    """Short and long targets of links are read in each encoding."""
    for name in ("gnu-gnu-long.tar", "gnu-pax-long.tar", "bsdtar-pax-long.tar", "bsdtar-gnutar-long.tar"):
        links = {entry.name: entry.link for entry in TarReader(Peeked((DATA / name).read_bytes())) if entry.link}
        target = b"s" * 149 + b"/" + b"n" * 146 + b".jpg"
        assert links == {b"soft.jpg": target, b"s" * 149 + b"/z.jpg": target}, name


# ---- sizes and the payload


class Headers:
    """A source of which only headers may be read: the rest does not exist."""

    name = "big.tar"
    seekable = True

    def __init__(self, size: int | None, headers: dict[int, bytes]) -> None:
        self.size = size
        self.known = {
            pos + at: blocks[at : at + 512] for pos, blocks in headers.items() for at in range(0, len(blocks), 512)
        }
        self.peeks = 0

    def peek(self, pos: int, n: int) -> bytes:
        self.peeks += 1
        blocks = []
        for at in range(pos, pos + n, b.BLOCK):
            if at not in self.known:
                assert self.size is None or at >= self.size, f"a payload was peeked, at {at}"
                break
            blocks.append(self.known[at])
        return b"".join(blocks)


GIB = 1 << 30


SIZES = {
    "8 GiB - 1": (header.encode(b"a.bin", 8 * GIB - 1), 8 * GIB - 1),
    "8 GiB": (header.encode(b"a.bin", 8 * GIB), 8 * GIB),
    "1 EiB + 1": (header.encode(b"a.bin", (1 << 60) + 1), (1 << 60) + 1),
    "base-256": (with_field(header.encode(b"a.bin", 0), 124, b.format_number(9 * GIB + 5, 12)), 9 * GIB + 5),
    "base-256, 2 EiB": (with_field(header.encode(b"a.bin", 0), 124, b.format_number(1 << 61, 12)), 1 << 61),
    "pax": (pax_member({b"size": b"%d" % (10 * GIB + 3)}, "a.bin"), 10 * GIB + 3),
    "pax beats the header": (pax_member({b"size": b"9"})[:1024] + header.encode(b"a.bin", 5 * GIB), 9),
    "pax without a size": (pax_member({b"size": b""})[:1024] + header.encode(b"a.bin", 5 * GIB), 5 * GIB),
}


@each_row("stream", [False, True])
@each_row(("head", "size"), SIZES.values())
def test_size(head: bytes, size: int, stream: bool) -> None:
    """Sizes of any length are read in each encoding, without reading the payload after them."""
    stop = len(head) + size + b.padding(size)
    source = Headers(None if stream else stop + 1536, {0: head, stop: member("b.txt") + MARKER})
    result = ReadResult(source)
    assert result.error is None
    assert [(e.name, e.start, e.data, e.size, e.stop) for e in result.entries] == [
        (b"a.bin", 0, len(head), size, stop),
        (b"b.txt", stop, stop + 512, 0, stop + 512),
    ]
    assert result.reader.marker == stop + 512


@each_row(
    ("head", "detail"),
    [
        (with_field(header.encode(b"a.bin", 0), 124, b.format_number(-5, 12)), "impossible size"),
        (with_field(header.encode(b"a.bin", 0), 124, b.format_number(1 << 80, 12)), "impossible size"),
        (with_field(header.encode(b"a.bin", 0), 124, b.format_number(1 << 62, 12)), "impossible size"),
        (pax_member({b"size": b"%d" % (1 << 62)}), "impossible size"),
        (with_field(header.encode(b"a.bin", 0), 124, b"0000000008\0\0"), "size"),
        (with_field(header.encode(b"a.bin", 0), 0, bytes(100)), "no name"),
        (pax_member({b"size": b"-1"}), "size"),
        (pax_member({b"size": b"9" * 19}), "size"),
        (pax_member({b"size": b"1e9"}), "size"),
        (pax_member({b"GNU.sparse.realsize": b"x"}), "size"),
        (with_field(pax_member({b"path": b"x"}), 124, b.format_number(1 << 40, 12)), "extension"),
        (with_field(header.encode(b"a.bin", 0), 156, b"S"), "sparse"),
    ],
)
def test_invalid_numbers(head: bytes, detail: str) -> None:
    """An invalid size is a bad header, even with a correct checksum."""
    result = ReadResult(Peeked(member("good") + head + MARKER))
    assert result.problem == "bad-header"
    assert detail in str(result.error)
    assert "'good'" in str(result.error)
    assert [entry.name for entry in result.whole] == [b"good"]
    assert result.reader.broken == 512


@each_row(
    "size",
    [
        b"zzzzzzzzzzz\0",
        b"\xff" * 12,
        b"\x80" + b"\x7f" * 11,
        b"00000000000\0",
        b"00000000009\0",
        b.format_number(1 << 62, 12),
    ],
)
def test_a_message_is_the_same_in_any_window(size: bytes) -> None:
    """What is said of a header does not depend on how much of the archive is in memory."""
    bad = with_field(with_field(header.encode(b"a.bin", 0), 124, size), 0, bytes(100))  # nor a name
    data = member("good") + pax_member({b"comment": b"x"})[:1024] + bad + MARKER
    said = {str(ReadResult(stream(data, step)).error) for step in (512, 1536, 1 << 20)}
    said |= {str(ReadResult(source(data)).error) for source in (on_disk, Peeked)}
    assert len(said) == 1
    assert "in the header after 'good'" in said.pop()


def test_no_byte_is_read_twice(tmp_path: Path) -> None:
    """No byte is read twice: with headers by webdataset, GNU long names, and records larger than the read-ahead."""
    path = tmp_path / "x.tar"
    with wds.TarWriter(str(path)) as out:
        for number in range(1000):
            out.write({"__key__": f"{number:06d}", "bin": bytes(200), "cls": number})
    long = with_field(member("././@LongLink", b"n" * 120 + b"\0"), 156, b"L")
    named = b"".join(long + member(f"{number}.bin", bytes(300)) for number in range(2000))
    large = b"".join(pax_member({b"SCHILY.xattr.x": bytes(400_000)}, f"{number}.bin") for number in range(20))
    for data, count in ((path.read_bytes(), 2000), (named + MARKER, 2000), (large + MARKER, 20)):
        source = on_disk(data)
        reads = counted(source)
        result = ReadResult(source)
        assert (result.error, len(result.entries)) == (None, count)
        assert sum(reads) <= len(data)


# ---- global headers


@each_row(
    ("archive", "names", "sizes"),
    [
        (pax_member({b"comment": b"x"}, kind=b"g") + member("a", b"12"), [b"a"], [2]),
        (pax_member({b"path": b"all"}, kind=b"g") + member("a", b"12") + member("b"), [b"all", b"all"], [2, 0]),
        (pax_member({b"path": b"all"}, kind=b"g") + pax_member({b"path": b"one"}) + member("b"), [b"one", b"all"], [0,
            0]),
        (pax_member({b"path": b"all"}, kind=b"g") + pax_member({b"path": b""}, "a"), [b"a"], [0]),
        (pax_member({b"path": b"1"}, kind=b"g") + member("a") + pax_member({b"path": b"2"}, kind=b"g") + member("b"),
            [b"1", b"2"], [0, 0]),
        (member("a") + pax_member({b"size": b"5"}, kind=b"g") + member("b") + bytes(512), [b"a", b"b"], [0, 5]),
        (member("a") + pax_member({b"size": b"5"}, kind=b"g") + pax_member({b"size": b"0"}, "b"), [b"a", b"b"], [0,
            0]),
        (pax_member({b"linkpath": b"t"}, kind=b"g") + member("a", typeflag=b"2", linkname=b"u"), [b"a"], [0]),
        (pax_member({b"size": b"", b"GNU.sparse.size": b""}, kind=b"g") + member("a", b"12"), [b"a"], [2]),
    ],
)  # fmt: skip
def test_global(archive: bytes, names: list[bytes], sizes: list[int]) -> None:
    """A global header is an entry, and applies to all later entries whose own records do not override it."""
    for ahead in (0, 1 << 20):
        result = ReadResult(Peeked(archive + MARKER, ahead))
        assert result.error is None
        plain = [entry for entry in result.entries if entry.type != b"g"]
        assert ([entry.name for entry in plain], [entry.size for entry in plain]) == (names, sizes)
        assert [entry.stop for entry in result.entries] == [*[e.start for e in result.entries[1:]], len(archive)]
        assert [entry.link for entry in plain if entry.type == b"2"] == [b"t"] * (b"linkpath" in archive)


@each_row("kind", [b"x", b"L", b"g"])
def test_extension_headers_have_a_common_limit(kind: bytes) -> None:
    """Extension headers have a common limit of 16 MiB, for one entry and for all global ones: more is a bad header."""
    payload = {b"L": bytes(7 << 20), b"x": pax.format_records({b"comment": bytes(7 << 20)})}.get(kind)
    each = extension(kind, payload or pax.format_records({b"comment": bytes(7 << 20)}))
    assert ReadResult(Peeked(each * 2 + member("a.txt") + MARKER)).error is None
    assert ReadResult(Peeked(each * 3 + member("a.txt") + MARKER)).problem == "bad-header"
    apart = ReadResult(Peeked((each + member("a.txt")) * 3 + MARKER))
    assert apart.problem == ("bad-header" if kind == b"g" else None)


@each_row(
    "before", [pax_member({b"path": b"real.txt"})[:1024], extension(b"L", b"real.txt\0"), extension(b"K", b"t\0")]
)
def test_a_global_header_between_an_entry_and_its_extension(before: bytes) -> None:
    """It is an error: the data of the extension header are never dropped silently."""
    data = member("a.txt", b"y") + before + pax_member({b"comment": b"hi"}, kind=b"g") + member("short.txt", b"abc")
    for ahead in (0, 1 << 20):
        result = ReadResult(Peeked(data + MARKER, ahead))
        assert (result.problem, [entry.name for entry in result.entries]) == ("bad-header", [b"a.txt"])
        assert result.reader.broken == 1024


def test_numbers_of_any_length() -> None:
    """Sizes may have leading zeros, as by Go; a checksum field ends at its first NUL."""
    sized = pax_member({b"size": b"0" * 21 + b"999", b"mtime": b"1"}, payload=bytes(999)) + MARKER
    assert [entry.size for entry in TarReader(Peeked(sized))] == [999]
    block = member("hi-gary.txt", bytes(16))
    lenient = block[:148] + (b"%o\x0036\0" % int(block[148:154], 8))[:8] + block[156:]
    assert [entry.size for entry in TarReader(Peeked(lenient + MARKER))] == [16]


def test_extensions_in_any_number_and_order() -> None:
    """PAX takes precedence over `L`, the last of several counts, `X` is Sun's `x`; all belong to the entry."""
    long = with_field(member("././@LongLink", b"long" + bytes(1)), 156, b"L")
    first, last = (pax_member({b"path": each, b"mtime": b"1"})[:1024] for each in (b"first", b"last"))
    for extensions, name in (
        (long, b"long"),
        (first, b"first"),
        (long + first, b"first"),
        (first + long, b"first"),
        (first + last, b"last"),
        (with_field(first, 156, b"X"), b"first"),
    ):
        for kind in SOURCES.values():
            [entry] = TarReader(kind(extensions + member("short", b"x") + MARKER))
            assert (entry.name, entry.start, entry.data) == (name, 0, len(extensions) + 512)


# ---- the end


@each_row("kind", SOURCES)
@each_row("zeros", [1024, 1536, 9216, 10_240, 299_520, 1_049_600])
def test_zeros_of_any_length(zeros: int, kind: str) -> None:
    """Whole blocks of zeros, up to 1 MiB of them, may follow the end marker, also of an archive without entries."""
    for entries in (member("a", b"x"), b""):
        result, stop = ReadResult(SOURCES[kind](entries + bytes(zeros))), len(entries)
        if entries or zeros <= 10_240:
            assert (result.error, result.reader.marker, result.reader.end) == (None, stop, stop + zeros)


@each_row("kind", SOURCES)
@each_row(
    ("data", "whole", "problem", "offset", "words"),
    [
        (b"", 0, "no-end-marker", 0, "empty"),
        (bytes(512), 0, "no-end-marker", 0, "lone"),
        (member("a", b"x"), 1, "no-end-marker", 1024, "after 'a'"),
        (member("a", b"x") + bytes(512), 1, "no-end-marker", 1024, "lone"),
        (member("a", b"x") + bytes(1023), 1, "truncated", 2047, "not a multiple of 512"),
        (member("a", b"x") + bytes(511), 1, "truncated", 1535, "after 'a'"),
        (member("a", b"x") + bytes(512) + member("b"), 1, "trailing-data", 1536, "lone"),
        (member("a", b"x") + MARKER + member("b"), 1, "trailing-data", 2048, "end of the archive"),
        (member("a", b"x") + bytes(10_240) + b"x", 1, "trailing-data", 1024 + 10_240, "end of the archive"),
        (member("a", b"x") + bytes(300_000) + member("b"), 1, "trailing-data", (1024 + 300_000) & -512, "end of"),
        (member("a", b"x") + bytes(1024) + bytes(511) + b"x", 1, "trailing-data", 2048, "end of"),
        (member("a", b"xy" * 400)[:-1], 0, "truncated", 1535, "'a'"),
        (member("a", b"xy" * 400)[:700], 0, "truncated", 700, "'a'"),
        (member("a") + member("b")[:511], 1, "truncated", 1023, "after 'a'"),
        (b"x", 0, "truncated", 1, "at the start"),
        (b"x" * 512, 0, "bad-header", 0, "not a tar archive"),
        (b"x" * 5120, 0, "bad-header", 0, "not a tar archive"),
        (member("a") + b"x" * 5120, 1, "bad-header", 512, "checksum"),
    ],
)
def test_ends(data: bytes, whole: int, problem: str, offset: int, words: str, kind: str) -> None:
    """Each wrong end of an archive has its problem, offset and message."""
    result = ReadResult(SOURCES[kind](data))
    assert isinstance(result.error, Problem)
    assert (result.error.name, result.error.offset, result.error.archive) == (problem, offset, "x.tar")
    assert words in result.error.detail
    assert [entry.name for entry in result.whole] == [b"a"] * whole


# ---- damage


def without_magic(data: bytes) -> bytes:
    """Return an archive of plain entries as V7 writes it: without the magic and what follows it."""
    v7, at = bytearray(data), 0
    while any(v7[at : at + 512]):
        head, size = bytes(v7[at : at + 257]) + bytes(255), int(v7[at + 124 : at + 135], 8)
        v7[at : at + 512] = b.seal(head[:156] + b"\0" + head[157:])
        at += 512 + size + b.padding(size)
    return bytes(v7)


@each_row("seed", range(120))
def test_lost_or_added_bytes(seed: int) -> None:
    """No entry is other than it was where 1 to 600 bytes are lost or added: what is whole ends before an error.

    The content of most files begins like their names, so that checksums hold where headers are read one byte off.
    """
    draw = random.Random(seed)
    form = draw.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, None))
    members = {}
    for number in range(draw.randint(2, 9)):
        name = f"{'long/' * draw.choice((0, 0, 25 if form else 1))}{number:04}.txt"
        content = draw.choice((name[:1] + " 0.5 0.25\n", "0" * 600, "\0" * 700, "")) * draw.randint(1, 2)
        members[name] = content.encode()
    data = tar(members, tarfile.USTAR_FORMAT if form is None else form)
    data = data if form is not None else without_magic(data)
    count = draw.choice((1, 1, 2, 3, *range(4, 600, 9)))  # whole blocks that are lost cannot be seen
    at = draw.randrange(0, len(data), draw.choice((1, 512)))
    changed = data[:at] + data[at + count :] if seed % 2 else data[:at] + draw.randbytes(count) + data[at:]
    for source in (on_disk, stream):
        result = ReadResult(source(changed))
        if len(changed) % 512:
            assert result.error is not None
        found = {entry.name.decode(): changed[entry.data : entry.data + entry.size] for entry in result.whole}
        wrong = [name for name, content in found.items() if members.get(name) != content]
        assert len(wrong) <= 1, "the entry in which the bytes are, before the error"
        assert wrong in ([], [result.whole[-1].name.decode()] if result.whole else [])


def headers_of(data: bytes) -> Iterator[int]:
    """Yield offsets of all blocks with the checksum of a header."""
    return (pos for pos in range(0, len(data), 512) if b.checksum_ok(data[pos : pos + 512]))


@each_row("name", DAMAGED)
def test_cut_at_every_byte(name: str) -> None:
    """A cut archive has the entries before the cut, then the problem.

    It is cut around each border in the first 4 KiB and at every seventh byte.
    """
    data = (DATA / name).read_bytes()
    entries = ReadResult(Peeked(data)).entries
    marker = entries[-1].stop
    borders = {entry.start for entry in entries} | {marker}
    blocks = {*range(0, 4096, 512), *range(marker, marker + 1025, 512), *borders}
    beside = {block + shift for block in blocks for shift in (-1, 0, 1)}
    for cut in sorted({*range(0, 4096, 7), *range(marker - 20, marker + 1030, 7), *beside} - {-1}):
        source = on_disk if cut % 8 == 0 else stream if cut % 8 == 1 else AHEAD["1535 ahead" if cut % 2 else "0 ahead"]
        result = ReadResult(source(data[:cut]))
        if cut >= marker + 1024 and min(cut, len(data)) % 512 == 0:
            assert result.error is None, cut
        elif cut in borders or cut == marker + 512:
            assert result.problem == "no-end-marker", cut
        else:
            assert result.problem == "truncated", cut
        assert result.whole == [entry for entry in entries if entry.stop <= cut], cut


def first_entries(name: str) -> tuple[bytearray, list[Entry]]:
    """Return an archive of the first three entries of a golden one."""
    data = (DATA / name).read_bytes()
    entries = ReadResult(Peeked(data)).entries[:3]
    return bytearray(data[: entries[-1].stop] + MARKER), entries


@each_row("name", DAMAGED)
def test_every_changed_byte_of_a_header_is_noticed(name: str) -> None:
    """A changed byte of a header is a problem, or all entries are the same.

    A fifth of the bytes of each header, and its checksum, are changed.
    """
    data, entries = first_entries(name)
    for number, pos in enumerate([*headers_of(bytes(data))]):
        for at in {*range(pos + number % 5, pos + 512, 5), *range(pos + 148, pos + 156)}:
            data[at] ^= 1 << at % 8
            result = ReadResult(Peeked(bytes(data), 0, stream=at % 2 > 0))
            data[at] ^= 1 << at % 8
            if result.error is None:
                assert result.entries == entries, at
            else:
                assert result.problem == "bad-header", at
                assert result.whole == [entry for entry in entries if entry.stop <= pos], at
                assert result.reader.resume == pos + 512, at


@each_row("name", DAMAGED)
def test_damage_of_extensions(name: str) -> None:
    """Damage in records, long names and sparse maps, without checksums, is an error or keeps the number of entries."""
    data, entries = first_entries(name)
    headers = {*headers_of(bytes(data))}
    for entry in entries:
        for at in range(entry.start, entry.data):
            if at & -512 in headers:
                continue
            data[at] ^= 1 << at % 8
            result = ReadResult(Peeked(bytes(data), 1024, stream=True))
            data[at] ^= 1 << at % 8
            # only the flag "more of the map follows" of old sparse files can hide later entries
            assert result.error or len(result.entries) == len(entries) or (entry.type == b"S" and at % 512 == 504), at


@settings(max_examples=25)
@given(st.binary(max_size=3000), st.integers(0, 2000))
def test_any_bytes(data: bytes, ahead: int) -> None:
    """Any bytes are read to the end or to an error of tarkit; a truncated tar is never complete."""
    result = ReadResult(Peeked(data, ahead))
    assert result.error or (result.reader.end == len(data) and not any(data[result.reader.marker :]))


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=300).filter(lambda name: 0 not in name), st.integers(0, 1 << 64)),
        max_size=5,
    )
)
def test_encode_round_trips(pairs: list[tuple[bytes, int]]) -> None:
    """The reader returns what `encode` wrote: any name, any size that a tar can have."""
    pos, headers = 0, {}
    for name, size in pairs:
        head = header.encode(name, size := size % (1 << 58))
        headers[pos] = head
        pos += len(head) + size + b.padding(size)
    headers[pos] = MARKER
    found = ReadResult(Headers(pos + 1024, headers))
    assert found.error is None
    assert [(entry.name, entry.size) for entry in found.entries] == [(name, size % (1 << 58)) for name, size in pairs]


# ---- resuming after damage


THREE = [member("a.txt", b"1" * 600), member("b.txt", b"2" * 600), member("c.txt", b"3" * 600)]


def damaged(at: int) -> bytes:
    """Return three entries, the byte `at` changed."""
    data = bytearray(b"".join(THREE) + MARKER)
    data[at] ^= 0x55
    return bytes(data)


@each_row("kind", SOURCES)
@each_row(
    ("data", "pos", "found"),
    [
        (b"", 0, None),
        (MARKER, 0, None),
        (b"x" * 5000, 0, None),
        (b"x" * 512 + member("a"), 0, 512),
        (b"x" * 512 + member("a"), 512, 512),
        (b"x" * 512 + member("a"), 1024, None),
        (b"x" * 511 + member("a"), 0, None),
        (b"x" * 512 * 1000 + member("a"), 0, 512_000),
        (b"x" * 512 * 3000 + member("a")[:511], 0, None),
        (bytes(5120) + member("a"), 0, 5120),
        (b"x" * 512 + with_field(member("v7"), 257, bytes(8)), 0, 512),
    ],
)
def test_find_header(data: bytes, pos: int, found: int | None, kind: str) -> None:
    """Only whole blocks at multiples of 512 are headers, including V7 headers."""
    assert find_header(SOURCES[kind](data), pos) == found


def test_messages() -> None:
    """Messages have the problem, its offset and the entry before it; names are escaped."""
    assert str(ReadResult(on_disk(damaged(1536 + 5))).error) == (
        "x.tar: at 1536: bad checksum in the header after 'a.txt' [bad-header]"
    )
    odd = member(b"a\n\xff.txt", b"x" * 600)
    assert str(ReadResult(on_disk(odd[:700])).error) == (
        "x.tar: at 700: the input ends inside 'a\\x0a\\xff.txt', which needs 836 bytes more [truncated]"
    )
    assert str(ReadResult(on_disk(b"")).error) == "x.tar: at 0: the input is empty [no-end-marker]"
    assert str(ReadResult(on_disk(b"PK\3\4" * 200)).error) == (
        "x.tar: at 0: this is not a tar archive: bad checksum in the first header [bad-header]"
    )
