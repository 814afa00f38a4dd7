"""Random chains of steps of the Python API, with a model of each step over dicts.

`Chain` draws archives, an origin, steps and an output. The model keeps `items`, a key and a dict of fields for each
sample, and knows nothing of bytes, headers and files; archives are built, and outputs read back, by Python's tarfile.

The mode of a chain says what its archives have. `distinct`: samples with keys of their own. `scattered`: parts of
samples that are not adjacent. `joined`: the last sample of the first archive has the key of the first one of the
second. `special`: links, sparse files, and names that a sample has twice.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import lzma
import os
import random
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tarkit
from tarkit.errors import Problem
from tarkit.pipeline.stages import ShuffleBuffer
from tarkit.samples.fields import Fields
from tarkit.samples.sample import split_name
from tarkit.sorting.shuffle import random_keys
from tarkit.tar import fast, reader

Data = tarkit.Dataset
Seen = list[tuple[str, list[tuple[str, bytes]]]]
SKIPPED = ("missing-field", "unmovable-entry", "bad-header", "truncated")
"""Samples that lack a field, or the target of a hard link, and those that damage touches, are left out."""

LARGE = 1_200_000  # bytes of a field: more than is read of a sample as a whole


@dataclass(frozen=True)
class Item:
    """A sample of the model: its fields in order; `stem` is the name of its archive."""

    key: str
    fields: dict[str, bytes]
    stem: str


class Special(bytes):
    """The content of a field that is no plain file."""


class HardLink(Special):
    """The content of the field `target`, to which the entry is a hard link."""

    target: str


class Symlink(Special):
    """The target of a symbolic link."""


class Sparse(Special):
    """The content of a sparse file, of which bytes [512, 512 + 700) are stored."""


class Twice(Special):
    """The content of the first of two entries with one name; `second` is that of the other."""

    second: bytes


class Unseekable(io.RawIOBase):
    """A stream of bytes that gives a few at a time."""

    name = "raw"

    def __init__(self, data: bytes, draw: random.Random) -> None:
        self.data = io.BytesIO(data)
        self.draw = draw

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        data = self.data.read(min(len(view), self.draw.choice((1, 511, 4096, 1 << 20))))
        view[: len(data)] = data
        return len(data)


class Shard(NamedTuple):
    """An archive: its file, and what is opened for it; `named` if that is the file."""

    path: Path
    items: list[Item]
    open: Callable[[], Any]
    named: bool


# ---- Archives

CODECS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": partial(gzip.compress, compresslevel=1),
    ".xz": partial(lzma.compress, preset=0),
}
CONTENTS: dict[str, Callable[[random.Random], bytes]] = {
    "cls": lambda draw: b"%d" % draw.randrange(12),
    "txt": lambda draw: b"caption " * draw.randrange(5) + b"%d" % draw.randrange(1000),
    "json": lambda draw: json.dumps({"n": draw.randrange(100), "t": ["a", "b"]}).encode(),
    "jpg": lambda draw: draw.randbytes(draw.choice((0, 1, 511, 512, 513, 3000, 20000))),
    "seg.png": lambda draw: draw.randbytes(draw.randrange(900)),
    "big.bin": lambda draw: (
        draw.randbytes(4096) * (LARGE // 4096 + draw.randrange(3)) + draw.randbytes(draw.randrange(9))
    ),
}


def build(draw: random.Random, items: list[Item], odd: bool) -> bytes:
    """Return an archive; an odd one has directories, entries without a key, extension headers and long names."""
    buffer, number = io.BytesIO(), itertools.count()
    form = draw.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)) if odd else tarfile.GNU_FORMAT
    # not without an entry behind it, which tarfile cannot read
    comment = {"comment": "of git archive"} if draw.random() < 0.2 and items else {}
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8", pax_headers=comment) as out:

        def add(name: str, content: bytes | None, key: str = "") -> None:
            info = tarfile.TarInfo(name)
            info.mtime = 1e9 + 0.5 if odd and draw.random() < 0.2 else 10**9
            if isinstance(content, Sparse):
                add_sparse(out, info, content, draw)
                return
            if content is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(content, HardLink):
                info.type, info.linkname, content = tarfile.LNKTYPE, f"{key}.{content.target}", None
            elif isinstance(content, Symlink):
                info.type, info.linkname, content = tarfile.SYMTYPE, content.decode(), None
            info.size = len(content or b"")
            out.addfile(info, io.BytesIO(content or b""))

        def strays() -> None:
            while odd and draw.random() < 0.15:
                one = next(number)
                add(*((f"dir{one}", None) if draw.random() < 0.5 else (f"README-{one}", b"read me")))

        for item in items:
            strays()
            for field, content in item.fields.items():
                add(f"{item.key}.{field}", content, item.key)
                strays()
            for field, content in item.fields.items():
                if isinstance(content, Twice):
                    add(f"{item.key}.{field}", content.second)
        strays()
    return buffer.getvalue()


def damage(draw: random.Random, data: bytes, items: list[Item]) -> tuple[bytes, list[Item]]:
    """Return a damaged archive, and the samples that the damage does not touch.

    A header is damaged: the samples before it and after it may have had its entry. Or the end is cut off, in the
    content of an entry of the last sample.
    """
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as file:
        members = file.getmembers()
    last = [info for info in members if info.name.startswith(f"{items[-1].key}.") and info.size]
    if last and draw.random() < 0.4:
        info = draw.choice(last)
        return data[: info.offset_data + draw.randrange(info.size)], items[:-1]
    owners = [number for number, item in enumerate(items) for _ in item.fields]
    place = draw.choice([place for place, owner in enumerate(owners) if 0 < owner < len(items) - 1])
    offset = members[place].offset
    touched = set(owners[place - 1 : place + 2])
    damaged = data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]
    return damaged, [item for number, item in enumerate(items) if number not in touched]


def add_sparse(out: tarfile.TarFile, info: tarfile.TarInfo, content: bytes, draw: random.Random) -> None:
    """Append a sparse file in one of the forms that GNU tar writes."""
    stored, real = content[512:1212], str(len(content))
    form = draw.choice(("gnu", "0.1", "1.0"))
    if form == "gnu":
        info.type, info.size = tarfile.GNUTYPE_SPARSE, 700
        header = bytearray(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
        block = memoryview(header)[-512:]
        block[386:410] = b"%011o\0%011o\0" % (512, 700)
        block[483:495] = b"%011o\0" % len(content)
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    else:
        info.pax_headers = {"GNU.sparse.size": real, "GNU.sparse.numblocks": "1", "GNU.sparse.map": "512,700"}
        if form == "1.0":
            info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": real}
            info.pax_headers["GNU.sparse.name"] = info.name
            stored = b"1\n512\n700\n".ljust(512, b"\0") + stored
        info.size = len(stored)
        header = bytearray(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
    padded = header + stored + bytes(-len(stored) % 512)
    assert out.fileobj is not None
    out.fileobj.write(padded)  # type: ignore[attr-defined]
    out.offset += len(padded)  # type: ignore[attr-defined]


class Chain:
    """A chain that is drawn with `seed`, in a directory of its own.

    `processes` is the share of steps that start processes. With `views` files are read by views of them.
    """

    def __init__(self, seed: int, here: Path, processes: float = 0.03, views: bool = False) -> None:
        self.draw = random.Random(seed)
        self.here = here
        self.processes = processes
        self.views = views
        self.words: list[str] = []
        self._writers: list[subprocess.Popen[bytes]] = []
        self.steps: list[Callable[[Data], Data]] = []
        self.number = itertools.count()
        self.odd = self.draw.random() < 0.4
        self.mode = self.draw.choices(("distinct", "scattered", "joined", "join", "special"), (7, 1, 1, 1, 2))[0]
        self.concatenated = self.draw.random() < 0.15  # archives with another one behind the end marker
        self.damaged = self.mode == "distinct" and not self.odd and not self.concatenated and self.draw.random() < 0.2
        self.shards = self._archives()
        self.rereads = True
        self.items, self.origin = self._origin()
        self._draw_steps()

    def _fifo(self, name: Path, path: Path) -> Path:
        """Return a new pipe with a name, into which a process writes a file."""
        os.mkfifo(name)
        self._writers.append(subprocess.Popen(["sh", "-c", 'exec cat "$0" > "$1"', path, name]))
        return name

    def close(self) -> None:
        """End the processes that write to pipes which nobody has read to the end."""
        for writer in self._writers:
            writer.kill()
            writer.wait()

    def dataset(self) -> Data:
        """Return the dataset anew, since some inputs can be read only once."""
        data = self.origin()
        for step in self.steps:
            data = step(data)
        return data

    def __str__(self) -> str:
        return " ".join(self.words)

    # ---- The origin

    def _archives(self) -> list[Shard]:
        draw, rows = self.draw, []
        large = draw.random() < 0.12
        names = [name for name in CONTENTS if name != "big.bin" or large]
        for _ in range({"scattered": 1, "joined": 2, "join": 2}.get(self.mode) or draw.choice((1, 1, 2, 3))):
            fixed = draw.sample(names, draw.randrange(1, len(names) + 1))
            some = []
            for _ in range(draw.choice((1, 3, 8, 20))):
                fields = fixed if draw.random() < 0.8 else draw.sample(names, draw.randrange(1, len(names) + 1))
                some.append({field: CONTENTS[field](draw) for field in fields})
                if self.mode == "special":
                    some[-1] |= self._special(some[-1])
            rows.append(some)
        items = [[Item(self._key(), fields, "") for fields in some] for some in rows]
        if self.mode == "scattered":
            items[0] = self._scattered(items[0])
        elif self.mode == "joined":
            last, key = items[0][-1], items[1][0].key
            items[0][-1] = Item(key, {f"first.{field}": data for field, data in last.fields.items()}, "")
        elif self.mode == "join":
            items[1] = self._second(items[0], items[1])
        return [self._shard(place, some) for place, some in enumerate(items)]

    def _key(self) -> str:
        number, forms = next(self.number), ["{}", "s{:04}", "d/e.f/{}"]
        if self.odd:
            forms += ["ä/{}", "n" * 120 + "/{}", "m" * 270 + "/{}", "\udcff/{}"]
        return self.draw.choice(forms).format(number)

    def _special(self, fields: dict[str, bytes]) -> dict[str, bytes]:
        """Return fields for a sample that are no plain files; one may replace a field of the sample."""
        draw = self.draw
        name = draw.choice([*fields])
        hard, twice = HardLink(fields[name]), Twice(fields[name])
        hard.target, twice.second = name, b"the second"
        content = bytes(512) + draw.randbytes(700) + bytes(draw.choice((0, 1, 4000)))
        special = {"hard.bin": hard, "sym.lnk": Symlink(b"../any"), "sparse.bin": Sparse(content), name: twice}
        return {field: special[field] for field in draw.sample([*special], draw.choice((0, 1, 1, 2)))}

    def _scattered(self, items: list[Item]) -> list[Item]:
        """Return the samples with second parts of some, which are not adjacent to the first, at the end."""
        parts = [Item(item.key, {"late.txt": b"late " + item.key[:9].encode("utf-8", "replace")}, "") for item in items]
        return [*items, *self.draw.sample(parts[:-1], len(parts) // 2)]

    def _second(self, first: list[Item], own: list[Item]) -> list[Item]:
        """Return samples of which many have the keys of `first`, in another order, and fields of their own."""
        keys = [item.key for item in first]
        keys = self.draw.sample(keys, self.draw.randrange(1, len(keys) + 1)) + [item.key for item in own]
        fields = [{f"second.{name}": data for name, data in item.fields.items()} for item in own]
        items = [Item(key, self.draw.choice(fields), "") for key in keys]
        self.draw.shuffle(items)
        return items

    def _shard(self, place: int, items: list[Item]) -> Shard:
        draw, stem = self.draw, f"a{place}"
        data = build(draw, items, self.odd)
        if self.concatenated:
            half = draw.randrange(len(items) + 1)
            data = build(draw, items[:half], self.odd) + build(draw, items[half:], self.odd)
        kinds = ("file", *CODECS, "object", "raw", "fifo", "command")
        if self.damaged and len(items) > 2:
            data, items = damage(draw, data, items)
        how = draw.choices(kinds, (10, 2, 1, 1, 1.5, 0.5, 0.3))[0]
        if self.views and how == "file" and not any("\udcff" in item.key for item in items):  # keys of views are UTF-8
            how = "view"
        path = self.here / f"{stem}.tar{how if how in CODECS else ''}"
        path.write_bytes(CODECS[how](data) if how in CODECS else data)
        opened: dict[str, Callable[[], Any]] = {
            "object": lambda: io.BytesIO(data),
            "raw": lambda: Unseekable(data, random.Random(1)),
            "fifo": lambda: self._fifo(self.here / f"{stem}-{next(self.number)}", path),
            "command": lambda: f"pipe:cat {path}",
            "view": lambda: self._view(path),
        }
        self.words.append(f"{how}{'-odd' * self.odd}({len(items)})")
        named = how == "file" or how in CODECS
        return Shard(path, [replace(item, stem=stem) for item in items], opened.get(how, lambda: path), named)

    def _view(self, path: Path) -> Path:
        """Return a view of all samples of an archive."""
        view = self.here / f"{path.name}-{next(self.number)}.view.parquet"
        allow = ("trailing-data", "duplicate-entry", "scattered-sample")
        tarkit.open(path, skip=SKIPPED, allow=allow, on_problem=lambda text: None).write(view)
        return view

    def _origin(self) -> tuple[list[Item], Callable[[], Data]]:
        draw, shards = self.draw, self.shards
        problems = {"scattered": "scattered-sample", "special": "duplicate-entry"}
        problems |= dict.fromkeys(("joined", "join"), "joined-sample")
        allow = [problem for mode, problem in problems.items() if mode == self.mode] + [
            "trailing-data"
        ] * self.concatenated
        common: dict[str, Any] = {"skip": SKIPPED, "allow": allow, "on_problem": lambda text: None}
        common["prefetch"] = draw.choice((0, 0, 0, 2))
        items = [item for shard in shards for item in shard.items]
        if self.mode == "distinct" and len(shards) > 1 and all(shard.items for shard in shards) and draw.random() < 0.3:
            return self._mixed(common)
        if self.mode == "distinct" and draw.random() < 0.1:
            common["shard_slice"] = slice(1, 7, 2)
            items = [item for shard in shards for item in shard.items[1:7:2]]
            self.words.append("shard_slice")
        elif self.mode == "distinct" and len(shards) > 1 and draw.random() < 0.2:
            common["interleave"] = 2
            self.words.append("interleave")
            items = self._as_in(items, tarkit.open([shard.path for shard in shards], **common))
        return items, lambda: tarkit.open([shard.open() for shard in shards], **common)

    def _mixed(self, common: dict[str, Any]) -> tuple[list[Item], Callable[[], Data]]:
        """Return a mix, some of whose sources have a step of their own. Which samples come is that of the mix alone."""
        seed, until = self.draw.randrange(99), self.draw.choice(("first", "all"))
        own: list[list[Callable[[Data], Data]]] = []
        items: list[Item] = []
        for shard in self.shards:
            self.items, self.steps, before = shard.items, [], len(self.words)
            if self.draw.random() < 0.5:
                self.rekey(numbered=False)
                self.words[before] = f"({self.words[before]})"
            own.append(self.steps)
            items += self.items
        self.steps = []
        files = [tarkit.open(shard.path, **common) for shard in self.shards]
        plain = tarkit.mix(files, seed, until=until)  # type: ignore[arg-type]
        old = {
            item.key: new
            for shard, new in zip(self.shards, self._split(items), strict=True)
            for item, new in zip(shard.items, new, strict=True)
        }
        self.words.append(f"mix-{until}")

        def origin() -> Data:
            found = []
            for shard, steps in zip(self.shards, own, strict=True):
                data = tarkit.open(shard.open(), **common)
                for step in steps:
                    data = step(data)
                found.append(data)
            return tarkit.mix(found, seed, until=until)  # type: ignore[arg-type]

        self.rereads = all(shard.named for shard in self.shards)  # another input of a mix can be read once
        return [old[sample.key] for sample in plain], origin

    def _split(self, items: list[Item]) -> list[list[Item]]:
        rest = iter(items)
        return [list(itertools.islice(rest, len(shard.items))) for shard in self.shards]

    def _as_in(self, items: list[Item], data: Data) -> list[Item]:
        known = {item.key: item for item in items}
        return [known[sample.key] for sample in data]

    # ---- Steps

    def _draw_steps(self) -> None:
        draw = self.draw
        narrow = [self.select, self.drop, self.require, self.where]
        if self.mode == "joined":  # other steps would need a rule for names that come in both parts
            for _ in range(draw.randrange(4)):
                draw.choice((*narrow, self.sort, self.slice, self.match))()
            return
        if self.mode in ("scattered", "join"):
            for _ in range(draw.randrange(3)):
                draw.choice(narrow)()
            self.sort()
        some = [*narrow, self.select, self.rekey, self.rekey, self.rename, self.match, self.keys, self.slice, self.join]
        some += [
            self.sample,
            self.draw_some,
            self.unique_by,
            self.balance,
            self.sort,
            self.sort,
            self.shuffle,
            self.shuffle,
            self.buffer_shuffle,
        ]
        if self.mode == "special":  # other steps make plain files of links
            for _ in range(draw.randrange(1, 5)):
                draw.choice(some)()
            return
        some += [self.map, self.map, self.values]
        for _ in range(draw.choice((1, 2, 3, 3, 4, 6))):
            if draw.random() < self.processes:
                draw.choice((self.worker, self.proc, self.map_in_processes))()
            else:
                draw.choice(some)()

    def _then(self, word: str, step: Callable[[Data], Data], items: Iterable[Item]) -> None:
        self.words.append(f".{word}")
        self.steps.append(step)
        self.items = list(items)

    def _fields(self) -> list[str]:
        return sorted({field for item in self.items for field in item.fields}) or ["none"]

    def select(self) -> None:
        names = self._fields()
        chosen = self.draw.sample(names, min(len(names), self.draw.choice((1, 2, 2, 3, 9))))
        words, wanted = [], []
        for name in chosen:
            if self.draw.random() < 0.3 and self.mode == "distinct":
                new, old = f"new{next(self.number)}.bin", [name, *self.draw.sample(names, 1)]
                words.append(f"{new}:{','.join(old)}")
                wanted.append((new, old))
            else:
                words.append(f"{name}:{name.upper()}" if self.draw.random() < 0.1 else name)
                wanted.append((name, [name]))
        chosen_items = []
        for item in self.items:
            olds = [next((name for name in old if name in item.fields), None) for _, old in wanted]
            if None not in olds:
                pairs = [(new, str(old)) for (new, _), old in zip(wanted, olds, strict=True)]
                once = {name: content[:] for name, content in item.fields.items() if isinstance(content, Twice)}
                chosen_items += chosen_of(replace(item, fields={**item.fields, **once}), pairs)
        self._then(f"select({words})", lambda data: data.select(" ".join(words)), chosen_items)

    def rename(self) -> None:
        """Rename a field, and remove another, as a recipe of `mix` does."""
        old, gone = self.draw.sample([*self._fields(), "none"], 2)
        new = f"renamed{next(self.number)}.bin"
        names = {old: new, gone: ""}
        items = []
        for item in self.items:
            items += chosen_of(item, [(names.get(name, name), name) for name in item.fields if name != gone])
        if self.odd and any(not item.fields.keys() - {gone} for item in self.items):
            return self.rekey()  # else entries without a key may remain of a sample
        pairs = tuple((os.fsencode(name), os.fsencode(new)) for name, new in names.items())
        return self._then(f"rename({names})", lambda data: data.change(Fields(rename=pairs)), items)

    def drop(self) -> None:
        for pattern in self.draw.sample([*self._fields(), "*.png", "new*", "j*"], 3):
            names = [[name for name in item.fields if not fnmatchcase(name, pattern)] for item in self.items]
            if not self.odd or all(names):  # else entries without a key may remain of a sample
                pairs = zip(self.items, names, strict=True)
                kept = [made for item, some in pairs for made in chosen_of(item, [(name, name) for name in some])]
                self._then(f"drop({pattern!r})", lambda data, pattern=pattern: data.drop(pattern), kept)  # type: ignore[misc]
                return

    def require(self) -> None:
        names = self.draw.sample(self._fields(), 1) + ["cls"]
        kept = [item for item in self.items if not item.fields.keys().isdisjoint(names)]
        word = "|".join(names)
        self._then(f"require({word!r})", lambda data: data.require(word, on_missing="skip"), kept)

    def rekey(self, numbered: bool = True) -> None:
        forms = ["{{key}}-{}", "x{}/{{key}}", "y.{}/{{key}}", "l" * 110 + "{}/{{key}}"]
        forms += ["{{stem}}-{}/{{key}}"] * all(shard.named for shard in self.shards)
        forms += ["{{index:04d}}-{}", "z{}/#"] * numbered
        template = self.draw.choice(forms).format(next(self.number))
        plain = template.replace("#", "{index:09d}")
        items = [
            replace(item, key=plain.format(key=item.key, index=index, stem=item.stem))
            for index, item in enumerate(item for item in self.items if not has_hard_link(item.fields))
        ]
        self._then(f"rekey({template!r})", lambda data: data.rekey(template), items)

    def where(self) -> None:
        fields = {name: data for item in self.items for name, data in item.fields.items() if isinstance(data, Symlink)}
        field = self.draw.choice([name for name in self._fields() if name not in fields] or ["none"])
        name, limit = field if re.fullmatch(r"[a-z]\w*", field) else "txt", self.draw.choice((0, 1, 9, 512))
        kept = [item for item in self.items if len(item.fields.get(name, b"")) > limit]
        text = f"has({name}) and size.{name} > {limit}"
        self._then(f"where({text!r})", lambda data: data.where(text), kept)

    def match(self) -> None:
        pattern = self.draw.choice(("[02468]", "^[^1]*$", "s|d|x"))
        kept = [item for item in self.items if re.search(pattern, item.key)]
        self._then(f"match({pattern!r})", lambda data: data.match(pattern), kept)

    def keys(self) -> None:
        some = [item.key for item in self.items if self.draw.random() < 0.7]
        kept = [item for item in self.items if item.key in some]
        self._then(f"keys({len(some)})", lambda data: data.keys(some), kept)

    def slice(self) -> None:
        start, stop, step = self.draw.choice(((0, 5, 1), (1, None, 2), (0, 99, 3), (2, 4, 1)))
        self._then(
            f"slice({start}, {stop}, {step})", lambda data: data.slice(start, stop, step), self.items[start:stop:step]
        )

    def sample(self) -> None:
        seed, numbers = self.draw.randrange(99), None
        numbers = random.Random(seed)
        kept = [item for item in self.items if numbers.random() < 0.7]
        self._then(f"sample(0.7, {seed})", lambda data: data.sample(0.7, seed), kept)

    def draw_some(self) -> None:
        seed, count = self.draw.randrange(99), self.draw.choice((0, 1, 4, 99))
        items = drawn(self.items, f"tarkit sample {seed}", lambda counts: count)
        self._then(f"sample({count}, {seed})", lambda data: data.sample(count, seed), items)

    def balance(self) -> None:
        seed, per_class = self.draw.randrange(99), self.draw.choice(("min", 1))
        items = drawn(
            self.items,
            f"tarkit balance {seed}",
            lambda counts: min(counts) if per_class == "min" else 1,
            lambda item: item.fields["cls"].strip() if "cls" in item.fields else None,
        )
        word = f"balance('cls', {per_class!r}, seed={seed})"
        self._then(word, lambda data: data.balance("cls", per_class, seed=seed), items)  # type: ignore[arg-type]

    def unique_by(self) -> None:
        first: dict[int, Item] = {}
        for item in self.items:
            first.setdefault(size_of(item.fields), item)
        self._then("unique_by('size')", lambda data: data.unique_by("size"), first.values())

    def join(self) -> None:
        """Join with a table of rows for some samples, choose or sort by a column, and make fields of columns."""
        draw, number = self.draw, next(self.number)
        if any(isinstance(content, Twice) for item in self.items for content in item.fields.values()):
            return self.match()  # the model has the second entries behind all others
        keys = list(dict.fromkeys(item.key for item in self.items))
        keys = [key for place, key in enumerate(keys) if not place or draw.random() < 0.7] + [f"no/{number}"]
        draw.shuffle(keys)
        columns = draw.sample([*{*self._fields()} - {"none"}, f"new{number}.txt"], 1)
        columns += [name for name in ("json.n", "score") if draw.random() < 0.5 and columns != ["json"]]
        table = {
            key: {name: None if draw.random() < 0.2 else f"{draw.choice('ab')} {draw.randrange(9)}" for name in columns}
            for key in keys
        }
        for row in table.values():
            row |= {name: draw.randrange(100) for name in ("json.n", "score") if name in row}
            for name in row:
                if name.rpartition(".")[2] == "cls" and row[name] is not None:
                    row[name] = draw.randrange(100)  # other texts are refused
        kinds = ["csv", "tsv", "jsonl"]
        if not self.processes and all("\udcff" not in key for key in keys):  # pyarrow has threads, no process is copied
            kinds.append("parquet")
        path = write_table(self.here / f"table{number}.{draw.choice(kinds)}", table, columns)
        self._then(f"join({path.name}, {columns})", lambda data: data.join(path), self.items)
        scores = {item.key: table[item.key]["score"] for item in self.items if item.key in table and "score" in columns}
        if len(scores) == len(keys) - 1 == len(self.items) and draw.random() < 0.5:
            items = sorted(self.items, key=lambda item: scores[item.key])
            self._then("sort('score')", lambda data: data.sort("score"), items)
        elif "score" in columns and draw.random() < 0.3:
            kept = [item for item in self.items if scores.get(item.key, 0) > 40]
            self._then("where('score')", lambda data: data.where("has(score) and score > 40"), kept)
        words = [f"score{number}.bin:{name}" if name == "score" else name for name in columns]
        rows = {key: dict(zip(words, row.values(), strict=True)) for key, row in table.items()}
        if any(item.key in rows and is_damaged(item.fields.get("json")) for item in self.items):
            words = [word for word in words if word != "json.n"]
        items = [
            item if item.key not in rows else with_row(item, {word: rows[item.key][word] for word in words})
            for item in self.items
        ]
        return self._then(
            f"set({words})", lambda data: data.set(" ".join(words)) if words else data, filter(None, items)
        )

    def sort(self) -> None:
        items: list[Item] = []
        for item in self.items:  # parts of one sample come together
            place = next((place for place, each in enumerate(items) if each.key == item.key), None)
            if place is None:
                items.append(item)
            else:
                items[place] = replace(items[place], fields={**items[place].fields, **item.fields})
        by, reverse = self.draw.choice(("__key__", "__key__", "size", "cls")), self.draw.random() < 0.3
        ranks: dict[str, Callable[[Item], Any]] = {
            "__key__": lambda item: item.key.encode("utf-8", "surrogateescape"),
            "size": lambda item: size_of(item.fields),
            "cls": lambda item: int(item.fields["cls"]),
        }
        items = [item for item in items if by != "cls" or "cls" in item.fields]
        items.sort(key=ranks[by], reverse=reverse)
        memory = self.draw.choice((None, 1_000_000))
        word = f"sort({by!r}, reverse={reverse}, memory={memory})"
        self._then(word, lambda data: data.sort(by, reverse=reverse, memory=memory), items)

    def shuffle(self) -> None:
        seed = self.draw.randrange(99)
        pairs = sorted(zip(random_keys(seed), self.items, strict=False), key=lambda pair: pair[0])
        self._then(f"shuffle({seed})", lambda data: data.shuffle(seed), [item for _, item in pairs])

    def buffer_shuffle(self) -> None:
        seed, size = self.draw.randrange(99), self.draw.choice((1, 3, 100))
        buffer = ShuffleBuffer[Item](size, 100, random.Random(seed))
        self._then(
            f"buffer_shuffle({size}, {seed})",
            lambda data: data.buffer_shuffle(size, seed),
            buffer.shuffle(iter(self.items)),
        )

    def map(self, **how: Any) -> None:
        name, made = (
            f"made{next(self.number)}",
            self.draw.choice(("same", "more", "other", "less", "two", "keys", "bytes")),
        )
        made_of = Made(made, name)
        batch = self.draw.choice((None, None, 3)) if made != "two" else None
        function: Any = made_of if batch is None else lambda samples: [made_of(sample) for sample in samples]
        if batch is not None:
            how["batch"] = batch
        if "processes" in how:
            function, how = made_of, {"processes": 2}
        self._then(f"map({made}, {how})", lambda data: data.map(function, **how), made_of.modelled(self.items))

    def map_in_processes(self) -> None:
        self.map(processes=2)

    def values(self) -> None:
        """A map of values: only where all fields have some."""
        if not all(is_value(field, data) for item in self.items for field, data in item.fields.items()):
            return self.select()
        name = f"n{next(self.number)}.cls"
        items = [replace(item, fields={**item.fields, name: b"%d" % len(item.fields)}) for item in self.items]
        ordered = [replace(item, fields=in_order(item.fields, name)) for item in items]

        def count(values: dict[str, Any]) -> dict[str, Any]:
            return {**values, name: len(values) - 1}

        return self._then("map(decode)", lambda data: data.map(count, decode=True), ordered)

    def worker(self) -> None:
        self._then("worker(cat)", lambda data: data.worker("cat"), self.items)

    def proc(self) -> None:
        log = f"log{next(self.number)}"
        items = [replace(item, fields=in_order({**item.fields, log: b"said\n"}, log)) for item in self.items]
        if self.draw.random() < 0.5:
            self._then("proc(add_log)", lambda data: data.proc("echo said", add_log=log), items)
        else:
            self._then("proc(echo)", lambda data: data.proc(f"echo said > sample.{log}"), items)


def drawn(
    items: list[Item],
    seed: str,
    quota: Callable[[list[int]], int],
    label: Callable[[Item], bytes | None] = lambda item: b"",
) -> list[Item]:
    """Return of each class those with the lowest random numbers, as many as `quota` says for the sizes of classes."""
    numbers, classes = random.Random(seed), dict[bytes, list[tuple[int, int]]]()
    for place, item in enumerate(items):
        number, name = numbers.getrandbits(64), label(item)
        if name is not None:
            classes.setdefault(name, []).append((number, place))
    count = quota(list(map(len, classes.values()))) if classes else 0
    places = sorted(place for members in classes.values() for _, place in sorted(members)[:count])
    return [items[place] for place in places]


def write_table(path: Path, table: dict[str, dict[str, Any]], columns: list[str]) -> Path:
    """Write rows by key as a table of the kind that the suffix says."""
    rows = [[key, *row.values()] for key, row in table.items()]
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            csv.writer(file).writerows([["__key__", *columns], *rows])  # None is an empty cell
    elif path.suffix == ".tsv":
        lines = (["\\N" if cell is None else str(cell) for cell in row] for row in (["__key__", *columns], *rows))
        path.write_bytes("".join("\t".join(line) + "\n" for line in lines).encode("utf-8", "surrogateescape"))
    elif path.suffix == ".jsonl":
        named = (dict(zip(("__key__", *columns), row, strict=True)) for row in rows)
        path.write_text("".join(json.dumps(row) + "\n" for row in named))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        arrays = [arrow.array(cells) for cells in zip(*rows, strict=True)]
        parquet.write_table(arrow.table(arrays, names=["__key__", *columns]), path)
    return path


def is_damaged(data: bytes | None) -> bool:
    """Return whether the content of a field of JSON is no object."""
    try:
        return data is not None and (isinstance(data, Special) or not isinstance(json.loads(data), dict))
    except ValueError:
        return True


def with_row(item: Item, row: dict[str, Any]) -> Item | None:
    """Return a sample with the fields that the words of `set` and their cells say; None without a field.

    There is none either for a hard link to a field that changes.
    """
    fields: dict[str, bytes | None] = {**item.fields}
    for word, cell in row.items():
        if word == "json.n":
            members = json.loads(item.fields.get("json", b"{}"))
            if "n" not in members or members["n"] != cell:
                fields["json"] = json.dumps({**members, "n": cell}, ensure_ascii=False).encode()
        else:
            fields[word.partition(":")[0]] = None if cell is None else str(cell).encode()
    changed = {name for name, content in fields.items() if item.fields.get(name) != content}
    for name, content in item.fields.items():
        if isinstance(content, HardLink) and content.target in changed and name not in changed:
            return None
    kept = {name: content if name in changed else item.fields.get(name) for name, content in fields.items()}
    left = {name: content for name, content in kept.items() if content is not None}
    return replace(item, fields=left) if left else None


def is_value(field: str, data: bytes) -> bool:
    """Return whether a field has a value of text, a number or JSON; earlier steps may have written anything."""
    try:
        return {"txt": bytes.decode, "cls": int, "json": json.loads}[field.rpartition(".")[2]](data) is not None
    except (KeyError, ValueError):
        return False


def chosen_of(item: Item, pairs: list[tuple[str, str]]) -> list[Item]:
    """Return the sample with these fields, pairs of a new name and the old one; none if no field remains.

    There is none either for a hard link in front of its target, or whose target is removed or renamed.
    """
    before = set()
    for new, old in pairs:
        content = item.fields[old]
        if isinstance(content, HardLink) and content.target not in before:
            return []
        if new == old:
            before.add(new)
    return [replace(item, fields={new: item.fields[old] for new, old in pairs})] if pairs else []


def has_hard_link(fields: dict[str, bytes]) -> bool:
    """Return whether a field is a hard link, which leads to the old name of its target after a change of the key."""
    return any(isinstance(content, HardLink) for content in fields.values())


def length_of(content: bytes) -> int:
    """Return the size that the header of an entry has."""
    return 0 if isinstance(content, (HardLink, Symlink)) else len(content)


def size_of(fields: dict[str, bytes]) -> int:
    """Return the size of a sample."""
    return sum(map(length_of, fields.values())) + sum(
        len(content.second) for content in fields.values() if isinstance(content, Twice)
    )


def in_order(fields: dict[str, bytes], *new: str) -> dict[str, bytes]:
    """Return fields in the order of results: those of the input, then new ones in the order of their bytes."""
    return {name: fields[name] for name in [*(name for name in fields if name not in new), *sorted(new)]}


@dataclass
class Made:
    """A function for `map`, and what it makes of the samples of the model."""

    how: str
    name: str

    def __call__(self, sample: Any) -> Any:
        fields, name = dict(sample), self.name
        if self.how == "same":
            return fields
        if self.how == "more":
            return {f"{name}.txt": "text", **fields, f"{name}.cls": len(fields)}
        if self.how == "other":
            return {field: data[::-1] if len(data) < 600 else data for field, data in fields.items()}
        if self.how == "less":
            return None if len(sample.key) % 3 == 0 else {field: fields[field] for field in reversed([*fields][:2])}
        if self.how == "two":
            return [{**fields, "__key__": f"{name}/{sample.key}"}, {"__key__": f"{name}-b/{sample.key}", "txt": "b"}]
        if self.how == "keys":
            return {**fields, "__key__": f"{name}/{sample.key}"}
        return {**{field: sample[field] for field in sample}, f"{name}.bin": bytes(700)}

    def modelled(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the results."""
        for item in items:
            fields, name = item.fields, self.name
            if self.how == "same":
                yield item
            elif self.how == "more":
                made = {**fields, f"{name}.cls": b"%d" % len(fields), f"{name}.txt": b"text"}
                yield replace(item, fields=made)
            elif self.how == "other":
                yield replace(
                    item, fields={field: data[::-1] if len(data) < 600 else data for field, data in fields.items()}
                )
            elif self.how == "less":
                if len(item.key) % 3:
                    yield replace(item, fields={field: fields[field] for field in [*fields][:2]})
            elif self.how == "two":
                yield replace(item, key=f"{name}/{item.key}")
                yield replace(item, key=f"{name}-b/{item.key}", fields={"txt": b"b"})
            elif self.how == "keys":
                yield replace(item, key=f"{name}/{item.key}")
            else:
                yield replace(item, fields={**fields, f"{name}.bin": bytes(700)})


# ---- Outputs


def seen(items: Iterable[Item]) -> Seen:
    """Return what is compared of the samples of the model, as a sample of Python gives it."""
    problems = {Symlink: b"bad-field", Sparse: b"sparse-entry"}
    return [
        (item.key, [(name, problems.get(type(content), content)) for name, content in item.fields.items()])  # type: ignore[call-overload]
        for item in items
    ]


def written(items: Iterable[Item]) -> Seen:
    """Return the samples of the model as an archive has them: neighbours with one key are one sample."""
    rows = []
    for item in joined(items):
        twice = [(name, data.second) for name, data in item.fields.items() if isinstance(data, Twice)]
        rows.append((item.key, [*item.fields.items(), *twice]))
    return rows


def told(samples: Iterable[tarkit.Sample]) -> Seen:
    """Return what samples of Python give: a content, or the name of its problem."""
    return [(sample.key, [(name, content_of(sample, name)) for name in sample]) for sample in samples]


def content_of(sample: tarkit.Sample, name: str) -> bytes:
    """Return the content of a field, or the name of its problem."""
    try:
        return sample[name]
    except Problem as problem:
        return problem.name.encode()


def joined(items: Iterable[Item]) -> list[Item]:
    """Return the samples as an archive has them: neighbours with one key are one sample."""
    found: list[Item] = []
    for item in items:
        if found and found[-1].key == item.key:
            found[-1] = replace(item, fields={**found[-1].fields, **item.fields})
        else:
            found.append(item)
    return found


def read_back(*archives: bytes) -> Seen:
    """Return the samples of archives, read by tarfile: adjacent entries of one key."""
    rows: list[tuple[str, str, bytes]] = []
    for archive in archives:
        if archive[156:157] == b"g" and not any(archive[1024:]):  # a global header alone, which tarfile cannot open
            continue
        with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8", errors="surrogateescape") as file:
            for info in file:
                parts = split_name(info.name.encode("utf-8", "surrogateescape"))
                if parts is not None and not info.isdir():
                    key, field = (part.decode("utf-8", "surrogateescape") for part in parts)
                    opened = None if info.issym() else file.extractfile(info)
                    rows.append((key, field, info.linkname.encode() if opened is None else opened.read()))
    return [(key, [row[1:] for row in some]) for key, some in groupby(rows, lambda row: row[0])]


def differences(seeds: range, above: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> list[str]:
    """Return what is wrong with chains, by seed, each in a directory of its own; every second one is run without the
    accelerator."""
    failed = []
    for seed in seeds:
        here = above / str(seed)
        here.mkdir()
        with monkeypatch.context() as patch:
            if seed % 2:
                patch.setattr(reader, "scan", None)
                patch.setattr(fast, "gather", lambda *ranges: None)
            one = None
            try:
                one = Chain(seed, here, **settings)
                for output, actual, expected in outputs(one):
                    if actual != expected:
                        failed.append(
                            f"{seed}: {one} -> {output}\n  actual   {actual!r:.400}\n  expected {expected!r:.400}"
                        )
            except Exception as error:
                failed.append(f"{seed}: {one} {type(error).__name__}: {error!s:.300}")
            finally:
                if one is not None:
                    one.close()
        shutil.rmtree(here)
    return failed


def outputs(one: Chain) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of an output, what it gives, and what the model expects; iteration is always among them."""
    here, items, draw = one.here, one.items, one.draw
    yield "iterate", told(one.dataset()), seen(items)
    some = ["write", "write", "write", "split", "split", "head", "entries", "stats", "table", "get"]
    which = draw.choice(
        # these have no entries without a key, no long names and no links
        some if one.odd or one.mode == "special" else [*some, "extract", "cbors"]
    )
    if which == "write":
        path = here / draw.choice(("out.tar", "out.tar", "out.tar.gz"))
        one.dataset().write(path)
        data = path.read_bytes()
        yield which, read_back(gzip.decompress(data) if path.suffix == ".gz" else data), written(items)
    elif which == "split":
        limits: list[dict[str, int]] = [{"count": 3}, {"size": 20480}]
        if one.rereads and len(items) > 1 and one.mode == "distinct":
            limits.append({"shards": 2})
        made = one.dataset().split(here / "out-%d.tar", **draw.choice(limits))
        yield which, read_back(*((here / shard.name).read_bytes() for shard in made)), written(items)
    elif which == "head":
        yield which, told(one.dataset().head(4)), seen(items[:4])
    elif which == "get":
        if items:
            key = draw.choice(items).key
            yield which, told([one.dataset().get(key)]), seen([next(item for item in items if item.key == key)])
    elif which == "entries":
        found = [(entry.key, entry.field, entry.size) for entry in one.dataset().entries() if entry.field is not None]
        rows = [(item.key, name, data) for item in items for key, fields in written([item]) for name, data in fields]
        yield which, found, [(key, name, length_of(data)) for key, name, data in rows]
    elif which == "stats":
        stats = one.dataset().stats()
        sizes = {
            name: sum(size_of({name: item.fields[name]}) for item in items if name in item.fields)
            for name in {*chain(*(item.fields for item in items))}
        }
        yield which, (stats.samples, {name: field.bytes for name, field in stats.fields.items()}), (len(items), sizes)
    elif which == "table":
        rows = one.dataset().table(here / "out.json", "__key__ size", key=False)
        found = json.loads((here / "out.json").read_bytes()) if rows else []
        yield which, [row["size"] for row in found], [size_of(item.fields) for item in items]
    elif which == "extract":
        one.dataset().extract(here / "files")
        found = {
            str(path.relative_to(here / "files")): path.read_bytes()
            for path in (here / "files").rglob("*")
            if path.is_file()
        }
        wanted = {f"{item.key}.{name}": data for item in items for name, data in item.fields.items()}
        yield which, {name: found.get(name) for name in wanted}, wanted
    else:
        one.dataset().write(here / "out.cbors")
        again = tarkit.open(here / "out.cbors")
        yield which, [(sample.key, list(sample.items())) for sample in again], seen(joined(items))
