"""Archives and other files that several tests of the API read."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import tarkit
from tests._tools import each_row
from tests.conftest import Content, Feed

Way: TypeAlias = Callable[[str], str]
each_way = each_row("way", [str, "pipe:cat {}".format, Feed("gzip")])
"""Run a test with each way to name an archive: a function of its path. Each can be read more than once."""

MANY: dict[str, Content] = {
    f"{'ab'[i % 2]}/{i}.{field}": content
    for i in [3, 1, 4, 15, 9, 2, 6, 5, 35, 8]
    for field, content in (("cls", b"%d" % (i % 4)), ("json", json.dumps({"w": i * 10}).encode()), ("JPG", b"j" * i))
}
ODD = [(f"{key}.{field}", b"1") for key in ("b", "a-1", "a", "B", "a1") for field in ("y", "x")]
NINETY = {f"{number % 7}/{number:03d}.cls": b"%d" % (number % 3) for number in range(90)}
SIXTY = {f"d/{i:03}.{field}": f"{i} {field}".encode() * i for i in range(60) for field in ("cls", "txt", "JPG")}
TEN = {f"{index}.{field}": f"{index} {field}".encode() for index in range(10) for field in ("x", "y")}
MIXED = {f"a{n}.{field}": f"A{n}{field}".encode() for n in range(9) for field in ("cls", "jpg")}
TARMIX = [
    {"shards": "a.tar", "weight": 1.5, "rename": {"cls": "label"}, "rekey": "x/{index:02d}"},
    {"shards": ["b-{0..3}.tar"], "probability": 0.5, "nstreams": 2, "nrepeats": 2},
    {"shards": "b-{1..9}.tar", "shuffle": 3, "allow_missing": True, "rekey": "y/{key}"},
]
CHOSEN = [{"shards": "b-{0..3}.tar", "choose": 2, "weight": 1}]
ARCHIVES: dict[str, Any] = {
    "in.tar": MANY,
    "odd.tar": ODD,
    "ninety.tar": NINETY,
    "sixty.tar": SIXTY,
    "ten.tar": TEN,
    "a.tar": MIXED,
    "six.tar": {name: data for name, data in SIXTY.items() if name < "d/006"},
    **{f"b-{s}.tar": {f"b{s}{n}.{field}": b"b" for n in range(4) for field in ("cls", "png")} for s in range(4)},
}


def until_error(data: tarkit.Dataset) -> tuple[list[str], tarkit.TarkitError]:
    """Return the keys of samples before the error that ends the run, and that error."""
    found = []
    try:
        for sample in data:
            found.append(sample.key)
    except tarkit.TarkitError as error:
        return found, error
    pytest.fail("no error")


class Stream(io.RawIOBase):
    """A file object that cannot seek, and returns a few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(memoryview(buffer)[:700])


def write_files(files: dict[str, bytes]) -> None:
    """Write files, each with another time, and their directories."""
    for number, (name, data) in enumerate(files.items()):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
        os.utime(name, (number * 1000, number * 1000))


def write_tree() -> str:
    """Write `tree`, of three directories with pictures, texts and links; return a table of its pictures."""
    names = ["cat/1.jpg", "cat/1.txt", "cat/2.a.jpg", "dog/3.jpg", "dog/4.png", "dog/4.txt", "pig/1.jpg"]
    names += [f"cat/9{number}.jpg" for number in range(9)]
    write_files({f"tree/{name}": name.encode() * (number * 30 + 1) for number, name in enumerate(names)})
    Path("tree/dog/link.jpg").symlink_to("3.jpg")
    Path("tree/link").symlink_to("cat")
    pictures = [str(path.relative_to("tree")) for path in sorted(Path("tree").rglob("*.*g"))]
    return "name,size.txt\n" + "".join(f"{name},{len(name)}\n" for name in pictures)


def write_inputs() -> None:
    """Write ten samples with the fields txt and cls as a.tar and in.tar, one that is cut, text files and a tree."""
    with tarkit.TarWriter("a.tar") as out:
        for number in range(10):
            out.write(f"{number:02}", {"txt": "x", "cls": number % 2})
    whole = Path("a.tar").read_bytes()
    Path("in.tar").write_bytes(whole)
    Path("cut.tar").write_bytes(whole[:1500])
    Path("keys").write_text("00\n")
    Path("caps.csv").write_text("key,caption\n00,one\n")
    Path("recipe").write_text("a.txt\ttext:1\nb.txt\ttext:2\na.cls\ttext:3\n")
    for name, text in {"piped": "a.x text:1\nb.x pipe:touch ran\n", "failing": "a.x text:1\nb.x pipe:false\n"}.items():
        Path(name).write_text(text)
    Path("piped.tsv").write_text("__key__\t@x\nk\tpipe:touch ran\n")
    for name in ("one/a.jpg", "one/a.txt", "two/b.jpg", "out/00.txt", "s-0.tar"):
        Path("tree", name).parent.mkdir(parents=True, exist_ok=True)
        Path("tree", name).write_text("x")
    Path("empty").mkdir()
