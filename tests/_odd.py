"""Odd archives, drawn at random: names, types and extension headers that programs write or users make."""

from __future__ import annotations

import random

KEYS = [b"a", b"b", b"c", b"a/1", b"./a", b"A", b"d.1/x", b"d.1/.y/x", "é".encode(), b"\xe9", b"n" * 120, b"a b", b"/e"]
KEYS += [b"__m__/a", b"d/__m__", b"x\\y"]
FIELDS = [
    b"jpg",
    b"txt",
    b"bin",
    b"TXT",
    b"Bin",
    b"seg.png",
    b"a.b.c",
    b"",
    b".x",
    b"\xe9",
    "é".encode(),
    b"a b",
    b"b\nc",
]
FIELDS += [b"__key__", b"__url__", b"__bad__", b"__local_path__", b"__x__"]
STRAYS = [
    b"README",
    b".hidden",
    b"._a.txt",
    b"a/._1.txt",
    b"a/.h",
    b"d.1/README",
    b"d.1\n/a.txt",
    b"d.1\n/x",
    b"a/",
    b"a/..x",
]
STRAYS += [b"__meta__", b"__m__.txt"]
TYPES = [b"0"] * 30 + [b"\0", b"7", b"1", b"2", b"3", b"6", b"5", b"D", b"V", b"A", b"Z"]


def header(name: bytes, size: int, kind: bytes, link: bytes = b"", times: bool = False) -> bytes:
    """Return the block of a header with its checksum; with `times` that of GNU tar --incremental."""
    fields = (
        name[:100].ljust(100, b"\0"),
        b"0000644\0",
        b"0000000\0",
        b"0000000\0",
        b"%011o\0" % size,
        b"00000000000\0",
    )
    block = b"".join(fields) + b" " * 8 + kind + link[:100].ljust(100, b"\0")
    block += (b"ustar  \0".ljust(88, b"\0") + b"15302050443\0" * 2) if times else b"ustar\x0000"
    block = block.ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padded(data: bytes) -> bytes:
    """Return data with zeros up to a whole block."""
    return data + bytes(-len(data) % 512)


def record(word: bytes, value: bytes) -> bytes:
    """Return a record of a PAX header."""
    rest = len(word) + len(value) + 3
    length = rest + len(str(rest + len(str(rest))))
    return b"%d %s=%s\n" % (length, word, value)


def extension(draw: random.Random, name: bytes, others: list[bytes]) -> tuple[bytes, bytes]:
    """Return extension headers for an entry, and the name in its own header."""
    parts = []
    own = draw.choice([name, name[:100], draw.choice(others)])
    kinds = draw.choices(["path", "comment", "long", "link", "other"], k=draw.randint(1, 3))
    if draw.random() < 0.2:
        kinds.insert(0, "global")
    if own != name and "path" not in kinds and "long" not in kinds:
        kinds.append(draw.choice(["path", "long"]))
    for kind in kinds:
        if kind in ("path", "comment"):
            body = record(b"path", name) if kind == "path" else record(b"comment", b"x")
            parts.append(header(b"PaxHeader", len(body), b"x") + padded(body))
        elif kind == "global":
            body = record(b"comment", b"g")
            parts.append(header(b"pax_global_header", len(body), b"g") + padded(body))
        elif kind == "other":
            body = record(b"mtime", b"1.5")
            parts.append(header(b"PaxHeader", len(body), b"x") + padded(body))
        else:
            body = (name if kind == "long" else b"l") + b"\0"
            parts.append(header(b"././@LongLink", len(body), b"L" if kind == "long" else b"K") + padded(body))
    return b"".join(parts), own


def odd_archive(draw: random.Random, oddness: float = 0.15) -> bytes:
    """Return an archive: `oddness` is how likely an entry is odd in one of its ways."""
    data, names = [], []
    for key in draw.sample(KEYS, draw.randint(1, 5)):
        fields = draw.sample(FIELDS if draw.random() < 0.5 else FIELDS[:3], draw.randint(1, 3))
        names += [key + b"." + field for field in fields]
    for _ in range(3):
        if draw.random() < oddness:
            names.insert(draw.randint(0, len(names)), draw.choice(STRAYS))
    for number, name in enumerate(names):
        kind = draw.choice(TYPES) if draw.random() < oddness else b"0"
        content = b"%d" % number * draw.choice([0, 1, 1, 1, 300])
        size = len(content) if kind in b"0\x007DAZ" else 0
        before, own = b"", name
        if len(name) > 100 or draw.random() < oddness:
            before, own = extension(draw, name, names)
            if len(name) > 100 and before.find(record(b"path", name)) < 0 and before.find(name + b"\0") < 0:
                before += header(b"././@LongLink", len(name) + 1, b"L") + padded(name + b"\0")
        times = draw.random() < oddness / 4
        data += [before, header(own, size, kind, names[0], times), padded(content[:size])]
    if draw.random() < oddness / 3:  # as in an archive of `git archive` of no files
        data += [header(b"pax_global_header", 13, b"g") + padded(record(b"comment", b"g"))]
    return b"".join(data) + bytes(1024)
