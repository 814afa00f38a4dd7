"""Batches, and the accelerator, are what the plain reader finds: the same samples, problems and bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tarkit.errors import TarkitError
from tarkit.problems import Policy
from tarkit.samples.groups import BatchFinder, EntryGroups, plain_groups
from tarkit.samples.reader import SampleReader
from tarkit.samples.sample import SampleBatch, TarSample, split_name
from tarkit.streams.source import FileSource, StreamSource
from tarkit.tar import fast, pax, reader
from tarkit.tar import header as headers
from tarkit.tar.reader import HeaderSource, TarReader
from tests._tools import (
    MARKER,
    ROUNDS,
    Peeked,
    counted,
    each_row,
    extension,
    fd_of,
    member,
    on_disk,
    stream,
    with_field,
)
from tests.conftest import tarkit

DATA = sorted((Path(__file__).parents[1] / "data").glob("*.tar"))
POLICIES: list[dict[str, list[str]]] = [{}, {"allow": ["all"]}, {"skip": ["all"]}, {"allow": ["bad-header"]}]


compiled = pytest.mark.skipif(fast.scan is None, reason="the accelerator is not compiled, or TARKIT_PURE=1")

FAR = 1 << 40


@pytest.fixture
def each_way(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Return a function that calls another one without batches, without the accelerator, and with it, and compares."""

    def compare(call: Callable[[], object]) -> None:
        found = [call()] if fast.scan is not None else []
        with monkeypatch.context() as patch:
            patch.setattr("tarkit.tar.reader.scan", None)
            found.append(call())
            patch.setattr(BatchFinder, "find", lambda *arguments: None)
            found.append(call())
        assert all(each == found[0] for each in found)

    return compare


def samples(
    source: FileSource | StreamSource,
    policy: Policy,
    partial: bool,
    gather: bool = False,
    batches: bool = False,
    field: bytes | None = None,
) -> list[object]:
    """Return all that the reader of samples finds: samples, warnings, counts, and how it ends."""
    found: list[object] = []
    policy.warn = found.append
    reading = SampleReader(source, policy, gather=gather, field=field, partial=partial)
    try:
        for sample in singly(reading.batches(), field) if batches else reading:
            sample.complete()
            found.append((sample.key, sample.entries, sample.start, sample.stop))
    except TarkitError as error:
        found.append((type(error), str(error), error.hint))
    return [*found, policy.counts, policy.dropped, reading.dropped, reading.zeros, reading.marker]


def singly(batches: Iterator[SampleBatch], field: bytes | None = None) -> Iterator[TarSample]:
    """Yield each sample; check the contents of the field."""
    for batch in batches:
        assert (batch.start, batch.stop) == (batch.start_of(0), batch.start_of(len(batch.keys))) or len(batch.keys) == 1
        found = list(batch)
        if batch.contents and field is not None:
            assert list(batch.contents) == [content_of(sample, field) for sample in found]
        yield from found


def content_of(sample: TarSample, field: bytes) -> bytes:
    entry = next(entry for entry in sample.entries if split_name(entry.name) == (sample.key, field))
    return sample.source.read(entry.data, entry.data + entry.size)


def groups(source: HeaderSource) -> list[object]:
    """Return the samples of the plain loop over the headers, with what the reader says at its end."""
    entries, grouping = TarReader(source), EntryGroups()
    found: list[object] = []
    try:
        found += grouping.read(entries.raw(), ahead=partial(plain_groups, entries))
    except TarkitError as error:
        found.append((type(error), str(error), error.hint))
    found += [grouping.key, grouping.entries, grouping.keyless]
    return [*found, entries.broken, entries.resume, entries.end, entries.cut, entries.nul, entries.sparse]


# ---- archives that are made at random

NAMES = [
    "a.x", "a.X", "a.y", "a.z", "b.x", "b.y.z", "c.x", "README", ".x", "d/a.x", "d/a.y", "d.1/a.x", "e/", "../a.x",
    "/a.x", "a.", "é.x", "n" * 99 + ".x", "n" * 96 + ".x", "p" * 90 + "/" + "q" * 60 + ".x", "l" * 300 + ".x",
]  # fmt: skip
RECORDS = [
    (b"mtime", b"1700000000.25"), (b"mtime", b""), (b"comment", b"a=b\n9 k=v\n"), (b"path", b"p" * 120 + b".txt"),
    (b"path", b"a.p"), (b"path", b""), (b"path", b"a\0b"), (b"path", b"w" * 1100 + b".x"), (b"linkpath", b"t"),
    (b"size", b"0"), (b"size", b"0003"), (b"size", b"x"), (b"GNU.sparse.size", b"7"), (b"GNU.sparse.name", b"s.txt"),
    (b"GNU.sparsely", b"1"), (b"hdrcharset", b"BINARY"), (b"SCHILY.xattr.user.x", bytes(700)), (b"uid", b"7"),
    (b"pathx", b"a.x"),
]  # fmt: skip


WRONG = [b"27 mtime=1700000000.1234\n", b"29 mtime=1700000000.1234\n", b"12 mtime=12\n\0", b"mtime=1\n", b"8 =12\n"]
"""Records with a wrong length, without one, or without a keyword."""


def odd_member(pick: random.Random) -> bytes:
    """Return an entry, or another piece of an archive, of any form."""
    name = pick.choice(NAMES)
    entry = member(name, bytes(pick.choice([0, 1, 511, 512, 513, 2000])), typeflag=pick.choice([b"0"] * 9 + [b"7"]))
    records = pax.format_records([pick.choice(RECORDS) for _ in range(pick.randint(0, 3))])
    odd: list[Callable[[], bytes]] = [
        lambda: entry,
        lambda: entry,
        lambda: entry,
        lambda: extension(b"x", records) + entry,
        lambda: extension(pick.choice([b"x", b"g", b"L", b"K", b"X"]), records) + entry,
        lambda: extension(b"L", pick.choice([b"l" * 130 + b".x\0", b"", b"\0x", b"a.s", b"L" * 1022 + b".x"])) + entry,
        lambda: extension(b"x", records[: pick.randint(0, len(records))]) + entry,
        lambda: extension(b"x", records + bytes(pick.randint(1, 600))) + entry,
        lambda: extension(b"x", pick.choice(WRONG)) + entry,
        lambda: with_field(entry, 156, pick.choice([b"0", b"1", b"2", b"5", b"7", b"\0", b"S", b"V", b"A", b"M"])),
        lambda: with_field(
            entry, 124, pick.choice([b"%011o " % 1, b"%12o" % 1, b"\x80" + bytes(10) + b"\1", bytes(12)])
        ),
        lambda: with_field(entry, 257, pick.choice([bytes(8), b"ustar  \0", b"ustar\00000"])),
        lambda: with_field(entry, 345, pick.choice([b"dir", b"dir\0x", b"d" * 155, b"d" * 131 + bytes(20) + b"tar"])),
        lambda: with_field(with_field(entry, 345, b"d" * 131), 508, b"tar\0"),
        lambda: with_field(entry, 0, pick.choice([b"\xff\xfe.x\0", b"\0", b"f" * 100])),
        lambda: entry[:148] + pick.choice([b"%06o \0", b"%07o\0", b"%6o\0 "]) % checksum(entry) + entry[156:],
        lambda: entry[:148] + b"%06o\0 " % (checksum(entry) - 256) + entry[156:],
        lambda: bytes(512),
        lambda: MARKER,
        lambda: entry[: pick.randint(0, len(entry))],
    ]
    return pick.choice(odd)()


def checksum(entry: bytes) -> int:
    """Return the sum of the bytes of the first header."""
    return sum(entry[:148]) + sum(entry[156:512]) + 8 * 32


def odd_archive(seed: int, most: int = 700) -> bytes:
    """Return an archive whose entries, and damage, depend on a number; the plain ones have up to `most` bytes."""
    pick = random.Random(seed)
    plain = [member(f"{number:03}.{field}", b"x" * pick.randint(0, most)) for number in range(9) for field in "ba"]
    odd = [odd_member(pick) for _ in range(pick.randint(0, 6))]
    parts = plain[: pick.randint(0, 18)]
    for part in odd:
        parts.insert(pick.randint(0, len(parts)), part)
    data = bytearray(b"".join(parts) + pick.choice([MARKER, MARKER, MARKER, b"", bytes(512)]))
    for _ in range(pick.choice([0, 0, 0, 1, 3])):
        if data:
            data[pick.randrange(len(data))] = pick.randrange(256)
    return bytes(data[: len(data) - pick.choice([0, 0, 0, 0, pick.randint(0, 3000)])] if data else data)


def all_of(data: bytes, seed: int) -> Iterator[object]:
    """Yield what each way of reading an archive finds."""
    pick = random.Random(seed)
    shown, hidden = [0, pick.randint(0, 9000), 1 << 20], bool(pick.getrandbits(1))
    windows = [groups(Peeked(data, ahead, hidden)) for ahead in shown]
    assert windows[0] == windows[1] == windows[2], "what is found does not depend on the read-ahead"
    yield windows
    yield groups(on_disk(data))
    settings, partial = pick.choice(POLICIES), bool(pick.getrandbits(1))
    field = pick.choice([None, b"a", b"x"])
    step, on_file, gather = pick.choice([100, 1000, 1 << 20]), bool(pick.getrandbits(1)), not pick.randrange(4)
    found = [
        samples(on_disk(data) if on_file else stream(data, step), Policy(**settings), partial, gather, batches, field)  # type: ignore[arg-type]
        for batches in (False, True)
    ]
    assert found[0] == found[1]
    yield found


# ---- the tests


def lengths(source: FileSource | StreamSource, field: bytes | None = None) -> list[int]:
    return [len(batch.keys) for batch in SampleReader(source, Policy(), field=field).batches()]


@each_row("scan", [fast.scan, None])
def test_it_is_used(scan: fast.Scan | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain samples come in long batches, up to one that is not plain; those of a file without a read for each."""
    monkeypatch.setattr(reader, "scan", scan)
    many = b"".join(member(f"{number:05}.x") for number in range(3000)) + MARKER
    for source in (on_disk, stream):
        found = lengths(source(many))
        assert sum(length for length in found if length > 1) > 2900
        assert max(found) <= 1024
    if scan is None:
        return
    large = b"".join(member(f"{number:03}.x", bytes(40_000)) for number in range(100)) + MARKER
    small_first = b"".join(member(f"{n:03}.a") + member(f"{n:03}.x", bytes(40_000)) for n in range(100)) + MARKER
    for data, field in ((large, None), (small_first, b"a")):
        reads = counted(file := on_disk(data))
        assert len(list(SampleReader(file, Policy()))) == 100
        assert len(lengths(file, field)) < 20
        assert len(reads) < 20


@each_row("scan", [fast.scan, None])
@each_row("source", [on_disk, stream])
@each_row("field", [b"cls", b"cls.x", b"CLS", b"x"])
def test_contents_of_a_field(
    field: bytes, source: Callable[[bytes], FileSource], scan: fast.Scan | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches have the contents of the field of that spelling; a sample without it is in no such batch."""
    monkeypatch.setattr(reader, "scan", scan)
    names = ["0.x", "0.cls", "1.cls", "1.x", "2.CLS", "2.cls", "3.x", "3.cls.x", "4.cls.x", "5.CLS", "6.CLS"]
    names += [f"{number}.{end}" for number in range(10, 80) for end in ("x", "cls", "cls.x", "CLS")]
    data = b"".join(member(name, name.encode()) for name in names) + MARKER
    found = [batch for batch in SampleReader(source(data), Policy(), field=field).batches() if batch.contents]
    for batch in found:
        assert list(batch.contents) == [b"%b.%b" % (key, field) for key in batch.keys]
    assert sum(len(batch.keys) for batch in found) > 30


@compiled
def test_arguments() -> None:
    """Positions outside of the data are no samples, and other types are errors."""
    data, scan = member("a.x") + member("b.x"), fast.scan
    assert scan is not None
    file = on_disk(data)
    for at in (-1, -(1 << 62), 513, 1024, 1025, 1 << 62):
        assert scan(data, 0, -1, 0, at, FAR, None, 0, FAR) is None
        assert scan(data, 1 << 61, -1, 0, (1 << 61) + at, 1 << 62, None, 0, FAR) is None
        assert scan(b"", 0, fd_of(file), 0, at, FAR, None, 0, FAR) is None
    assert scan(b"", 0, -1, 0, 0, 0, None, 0, FAR) is None
    for fd in (-1, 1 << 20):
        assert scan(b"", 0, fd, 0, 0, FAR, None, 0, FAR) is None
    for seed in range(20 * ROUNDS):  # any block, in memory and in a file
        odd = odd_archive(seed)
        file = on_disk(odd)
        for at in range(0, len(odd), 512):
            for field in (None, b"a"):
                found = scan(odd, 0, -1, 0, at, FAR, field, 0, FAR)
                assert found == scan(b"", 0, fd_of(file), 0, at, FAR, field, 0, FAR)
    for wrong in ("text", 0, 0), (data, "0", 0), (data, 0, "0"):
        with pytest.raises(TypeError):
            scan(wrong[0], wrong[1], -1, 0, wrong[2], FAR, None, 0, FAR)  # type: ignore[arg-type]


@each_row("data", [
    b"".join(member(f"{number:03}.{field}") for _ in range(2) for number in range(900) for field in "ab") + MARKER,
    b"".join(member(f"{number:03}/", typeflag=b"5") + member(f"{number:03}/a.x") for number in range(900)) + MARKER,
    b"".join(member(f"a/{number:03}.x", bytes(9000)) for number in range(900)) + member("a/000.x") + MARKER,
])  # fmt: skip
def test_entries_are_read_a_few_times(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no run is found, or a key in it is known, what was read for it is not read again for each sample."""
    seen: list[object] = []
    raw = TarReader.raw

    def counted(self: TarReader) -> Iterator[reader.Raw]:
        for entry in raw(self):
            seen.append(entry)
            yield entry

    monkeypatch.setattr(TarReader, "raw", counted)
    monkeypatch.setattr(reader, "scan", None)
    batches = SampleReader(on_disk(data), Policy(allow=["scattered-sample"])).batches()
    count = sum(len(sample.entries) for sample in singly(batches))
    assert len(seen) < 3.2 * count


@compiled
def test_arguments_of_gather(tmp_path: Path) -> None:
    """What is not all there, and what is too much, is None; other types and numbers are errors."""
    gather = fast.gather
    with (tmp_path / "x").open("w+b") as file:
        file.write(bytes(range(256)))
        file.flush()
        fd = file.fileno()
        assert gather((), (), ()) == b""
        assert gather((fd, fd), (250, 0), (6, 3)) == bytes((250, 251, 252, 253, 254, 255, 0, 1, 2))
        assert gather((fd,) * 256, (7,) * 256, (1,) * 256) == b"\x07" * 256
        refused: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
            ((fd,), (250,), (7,)),
            ((fd,), (-1,), (1,)),
            ((fd,), (1 << 62,), (1,)),
            ((fd,), (0,), (-1,)),
            ((fd,), (0,), (1 << 62,)),
            ((fd, fd), (0, 0), (1 << 26, 1)),
            ((1 << 20,), (0,), (1,)),
            ((fd,), (0, 0), (1,)),
            ((fd,), (0,), ()),
            ((-1,), (0,), (1,)),
        ]
        for each in refused:
            assert gather(*each) is None, each
        for huge in ((1 << 64,), (0,), (1,)), ((fd,), (1 << 64,), (1,)), ((fd,), (0,), (1 << 64,)):
            with pytest.raises(OverflowError):
                gather(*huge)
        with pytest.raises(TypeError):
            gather((fd,), ("0",), (1,))  # type: ignore[arg-type]


@pytest.mark.slow
@each_row("path", DATA)
def test_golden(path: Path, each_way: Callable[[Callable[[], object]], None]) -> None:
    """Archives by other programs, whole, cut, and with any byte of their first headers changed."""
    data = path.read_bytes()
    pick = random.Random(path.name)
    cut = [data[: pick.randrange(len(data))] for _ in range(2 * ROUNDS)]
    flipped = [bytearray(data) for _ in range(4 * ROUNDS)]
    for each in flipped:
        each[pick.randrange(min(len(data), 5000))] ^= 1 << pick.randrange(8)
    for seed, case in enumerate([data, *cut, *map(bytes, flipped)]):
        each_way(lambda: list(all_of(case, seed)))  # noqa: B023


@pytest.mark.slow
@each_row(
    ("begin", "count", "most"),
    [
        *((begin, 100, 700) for begin in (*range(0, 100 * ROUNDS, 100), 302_900, 5_042_100)),
        *((begin, 25, 70_000) for begin in (*range(0, 25 * ROUNDS, 25), 7_002_000)),
    ],
)
def test_odd_archives(begin: int, count: int, most: int, each_way: Callable[[Callable[[], object]], None]) -> None:
    """Archives of entries of all forms, with damage; headers of large samples are read in the file."""
    for seed in range(begin, begin + count):
        data = odd_archive(seed, most)
        each_way(lambda: list(all_of(data, seed)))  # noqa: B023


@pytest.mark.slow
@each_row("count", [1, 64, 65, 66, 200, 1023, 1024, 1025])
def test_many_entries_in_a_sample(count: int, each_way: Callable[[Callable[[], object]], None]) -> None:
    """Samples of many entries, with names in any order, and with one name twice."""
    names = [f"a.{number:03}" for number in range(count)]
    for order in (names, names[::-1], [*names, names[0]], [*names[::-1], names[-1]]):
        data = b"".join(map(member, order)) + member("b.x") + member("c.x") + MARKER
        each_way(lambda: list(all_of(data, count)))  # noqa: B023


LATER = [
    member("0005.z"), member("2999.z"), member("../a.z"), member("d/../a.z"), member("/a.z"), member("a..b/c.z"),
    member("README"), member("d/.z"), member("2998.z"),
    extension(b"x", pax.format_records([(b"path", b"a\0b")])) + member("a.z"),
    with_field(member("a.z"), 148, b"000000\0 "), MARKER, member("l.z", typeflag=b"1"), member("0000.z"),
]  # fmt: skip


@pytest.mark.slow
@each_row("number", range(len(LATER)))
def test_many_samples(number: int, each_way: Callable[[Callable[[], object]], None]) -> None:
    """Long runs, in ascending and in any other order, with something else in the middle and at the end."""
    last = 1500 if number else 2500  # a batch has up to 1024 samples
    parts = [member(f"{each:04}.{field}", bytes(each % 600)) for each in range(1400, last) for field in "ba"]
    halves = b"".join(parts[: len(parts) // 2]), b"".join(parts[len(parts) // 2 :])
    archives = [LATER[number].join(halves) + LATER[number] + MARKER, halves[1] + LATER[number] + halves[0] + MARKER]
    for seed, data in enumerate([*archives, halves[0] + LATER[number] + halves[0] + MARKER]):
        policy, source = POLICIES[(number + seed) % 4], (on_disk, stream)[number // 4 % 2]
        each_way(lambda: [samples(source(data), Policy(**policy), False, batches=each) for each in (False, True)])  # noqa: B023


@each_row("name", [b"a" * length + b".x" for length in (97, 98, 99, 255, 1000, 1020, 1021, 1022, 1023, 2000)])
def test_long_names(name: bytes, each_way: Callable[[Callable[[], object]], None]) -> None:
    """Names of any length, in each form."""
    long = extension(b"L", name + b"\0") + member("a.x")
    directory = b"d" * 100 + b"/" + name[-90:]
    for data in (headers.encode(name, 0), headers.encode(directory, 0), long, extension(b"L", name) + member("a.x")):
        archive = data + member("b.x") + member("c.x") + MARKER
        each_way(lambda: list(all_of(archive, 1)))  # noqa: B023


def test_records_of_any_length(each_way: Callable[[Callable[[], object]], None]) -> None:
    """A record before the one that names an entry."""
    for length in (*range(120), *range(970, 1010)):
        records = pax.format_records([(b"comment", b"c" * length), (b"path", b"p.x")])
        data = member("a.x") + extension(b"x", records) + member("b.x") + member("c.x") + MARKER
        each_way(lambda: list(all_of(data, 1)))  # noqa: B023


COMMANDS = [
    "cat in.tar -o -",
    "cat in.tar other.tar -o -",
    "cat in.tar in.tar --allow repeated-key --allow truncated -o -",
    "cat in.tar other.tar in.tar --skip all -o -",
    "cat in.tar other.tar -m 2 --skip all -o -",
    "cat in.tar other.tar -L 3 --skip all -o z.zip",
    "split in.tar -c 3 -o s-%d.tar --force",
    "split in.tar other.tar in.tar -c 3 -s 10K --skip all -o s-%d.tar --force",
    "split - -s 12K --skip all -o s-%d.tar --force --manifest m.tsv",
    "split - -c 5 --max-shards 2 --skip all -o s-%d.tar --force --manifest m.tsv",
    "split in.tar -s 900 --size-rule content --skip all -o s-%d.tar --force",
    "split in.tar other.tar -n 3 --allow all -o s-%d.tar --force",
    "cat in.tar --allow all -o -",
    "cat in.tar --skip all -o -",
    "cat - --skip all -o -",
    "sort in.tar --allow all -o -",
    "sort in.tar other.tar -r --skip all -o -",
    "sort in.tar other.tar --allow joined-sample --skip all -o -",
    "sort - --skip all -o -",
    "sort in.tar other.tar -s x --skip all -o -",
    "sort in.tar other.tar -s a -r --skip all -o -",
    "sort in.tar -s a -t int --allow all -o -",
    "sort - -s a -r --skip all -o -",
    "shuffle in.tar --seed 1 --skip all -o -",
    "shuffle in.tar other.tar in.tar --seed 2 --skip all -c 7 -o s-%d.tar",
    "shuffle in.tar in.tar other.tar --seed 3 --allow all -o -",
    "stats in.tar --json",
    "stats in.tar --json --allow all",
    "check in.tar --json",
    "check - --json",
    "index in.tar --allow all --format dali -o -",
]


@pytest.mark.slow
@each_row("line", COMMANDS)
def test_commands(line: str, here: Path, each_way: Callable[[Callable[[], object]], None]) -> None:
    """Commands print the same bytes and messages, write the same files, and exit with the same status."""
    words = line.split()
    for seed in range(2 * ROUNDS):
        data = odd_archive(seed, 70_000 if seed % 2 else 700)
        Path("in.tar").write_bytes(data)
        Path("other.tar").write_bytes(odd_archive(seed + 100))

        def call() -> object:
            for path in Path().glob("[!io]*"):
                path.unlink()
            ran = tarkit(*words, "-q", stdin=data if "-" in words[1:2] else b"", exit=None)  # noqa: B023
            return ran, {str(path): path.read_bytes() for path in sorted(Path().iterdir())}

        each_way(call)
