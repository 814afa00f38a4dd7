"""Shards of MDS with their index, both ways; `tests/data/mds` was written by the package mosaicml-streaming 0.13.

`tests/interop/test_mds.py` has the package itself read and write them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import TarkitError
from tests._tools import each_row
from tests.conftest import Archive, Content, Run, entries, tar

DATA = Path(__file__).parents[1] / "data" / "mds"
FIELDS = {
    "jpg": [b"\xff\xd8", b"", b"x" * 3_000_000],
    "cls": [b"3", b"-7\n"],
    "txt": [b"", "é".encode()],
    "x": [b"\xff"],
}


def index(path: str = "mds") -> Any:
    return json.loads(Path(path, "index.json").read_bytes())


def test_both_ways(run: Run, archive: Archive) -> None:
    """Random samples come back as they were, in order; the index has shards, sizes and the columns."""
    draw = random.Random(5)
    for number in range(8):
        fields = draw.sample(list(FIELDS), draw.randint(1, 4))
        rows: list[tuple[str, Content]] = []
        for key in draw.sample(range(100), draw.randint(1, 9)):
            rows += [(f"d/{key}.{field}", draw.choice(FIELDS[field])) for field in fields]
        name, directory = archive(tar(rows)), f"mds-{number}"
        Path(directory).mkdir()
        run("split", name, "-c", "4", "-o", f"{directory}/shard.%05d.mds")
        assert entries(run("cat", directory).stdout) == rows
        assert entries(run("cat", f"{directory}/*.mds").stdout) == rows
        run("check", directory, "--same-as", name)
        shards = index(directory)["shards"]
        assert [shard["samples"] for shard in shards] == [4] * (len(rows) // len(fields) // 4) + (
            [rest] if (rest := len(rows) // len(fields) % 4) else []
        )
        files = sorted(Path(directory).glob("*.mds"))
        assert [shard["raw_data"] for shard in shards] == [
            {"basename": file.name, "bytes": file.stat().st_size, "hashes": {}} for file in files
        ]
        encodings = {"jpg": "jpeg", "cls": "str_int", "txt": "str", "x": "bytes"}
        assert shards[0]["column_names"] == ["__key__", *fields]
        assert shards[0]["column_encodings"] == ["str", *(encodings[field] for field in fields)]


@each_row(
    "column,field,content",
    [
        ("id", "txt", b"3"),
        ("image", "png", None),
        ("label", "cls", b"-3"),
        ("v", "x", b"[0,1,2,3]"),
        ("v", "npy", None),
        ("m", "x", b"[[1.0,1.0]]"),
        ("u", "x", b"18446744073709551612"),
        ("half", "x", b"0.5"),
        ("meta", "json", b'{"a": 3}'),
        ("text", "txt", b"t3"),
        ("raw", "png", None),
        ("n", "cls", b"3"),
    ],
)
def test_values(column: str, field: str, content: bytes | None, here: Path) -> None:
    """Columns of each encoding are fields."""
    pytest.importorskip("numpy")
    pytest.importorskip("PIL")
    data = tarkit.open(str(DATA), set=f"{field}:{column}", key="{id:03d}")
    found = [(sample.key, sample[field]) for sample in data]
    assert [key for key, _ in found] == ["000", "001", "002", "003"]
    if content is not None:
        assert found[3][1] == content
    elif field == "npy":
        array = data.decode().head(4)[3]["npy"]
        assert (str(array.dtype), array.tolist()) == ("int16", [0, 1, 2, 3])
    else:
        assert data.decode().head(4)[3][field].size == ((2, 1) if column == "image" else (1, 1))


def test_names(here: Path) -> None:
    """Without words a picture is the field of its format, and keys are those of shard and row."""
    with pytest.raises(TarkitError, match=r"the column 'more' has the encoding list\[png\], and cannot be read"):
        tarkit.open(str(DATA)).head()
    assert [sample.key for sample in tarkit.open(str(DATA), set="png:image")][::3] == [
        "shard-00000/000000000",
        "shard-00003/000000000",
    ]


def edit(change: Callable[[Any], object]) -> Callable[[], object]:
    """Return a function that changes the index."""

    def edited() -> None:
        value = index()
        change(value["shards"][1])
        Path("mds/index.json").write_text(json.dumps(value))

    return edited


def raw(change: Callable[[bytes], bytes]) -> Callable[[], object]:
    """Return a function that changes the bytes of a shard, and its length in the index."""

    def changed() -> None:
        path = Path("mds/shard.00001.mds")
        data = change(path.read_bytes())
        path.write_bytes(data)
        edit(lambda shard: shard["raw_data"].update(bytes=len(data)))()

    return changed


def at(data: bytes, place: int, new: bytes) -> bytes:
    return data[:place] + new + data[place + len(new) :]


NAME = "mds/shard.00001.mds: "
ARRAY = b'"ndarray:bfloat16:2"         '


@each_row(
    "damage,words",
    [
        (lambda: Path("mds/shard.00001.mds").unlink(), f"{NAME}missing, and is named by mds/index.json"),
        (edit(lambda shard: shard["raw_data"].update(bytes=7)), "bytes, and mds/index.json says 7"),
        (edit(lambda shard: shard["raw_data"].update(hashes={"sha1": "0"})), f"{NAME}the sha1 of the file is"),
        (edit(lambda shard: shard["raw_data"].update(basename="../x")), "mds/index.json: damaged"),
        (edit(lambda shard: shard["raw_data"].update(basename="x/../../x")), "mds/index.json: damaged"),
        (edit(lambda shard: shard["raw_data"].update(basename="%2e%2e/x")), "mds/index.json: damaged"),
        (edit(lambda shard: shard.pop("zip_data")), "mds/index.json: damaged"),
        (lambda: Path("mds/index.json").write_text("{"), "mds/index.json: damaged, and there are shards of MDS"),
        (raw(lambda data: data[:-1]), f"{NAME}at 270: a shard of MDS ends inside sample 2 [truncated]"),
        (raw(lambda data: data[:3]), f"{NAME}at 0: a shard of MDS ends inside sample 1 [truncated]"),
        (raw(lambda data: data + b"x"), f"{NAME}at 292: sample 3 of a shard of MDS cannot be read: other bytes follow"),
        (raw(lambda data: at(data, 8, b"\xff")), "the positions of samples at the start are damaged"),
        (raw(lambda data: at(data, 20, b"\xff")), "the description of the columns is damaged"),
        (raw(lambda data: data.replace(b'"str_int"', b"null     ")), "the description of the columns is damaged"),
        (raw(lambda data: data.replace(b"null, null, null]", b'null, null, "4" ]')), "the columns is damaged"),
        (raw(lambda data: data.replace(b"null, null, null]", b"null, null, -400]")), "the columns is damaged"),
        (raw(lambda data: data.replace(b'"str_int"', b'"ndarray"')), "the sample is damaged"),
        (
            raw(lambda data: data.replace(b'"size_limit": null, ', b"").replace(b'"str_int"', ARRAY)),
            "'cls' has the encoding ndarray:bfloat16:2, and cannot be read",
        ),
        (
            raw(lambda data: at(data, 270, b"\xff")),
            f"{NAME}at 270: sample 2 of a shard of MDS cannot be read: the lengths",
        ),
        (raw(lambda data: at(data, 0, b"\xff\xff\xff\xff")), "ends inside sample 1 [truncated]"),
    ],
)
def test_damage(damage: Callable[[], object], words: str, here: Path) -> None:
    """A damaged shard, and one that is not what the index says, is an error that names it and the place."""
    Path("mds").mkdir()
    with tarkit.ShardWriter("mds/shard.%05d.mds", count=2) as out:
        for number in range(4):
            out.write(f"k{number}", {"txt": "t", "cls": number, "x": b"12"})
    damage()
    with pytest.raises(TarkitError) as raised:
        tarkit.open("mds").write("y.tar")
    assert words in str(raised.value)
    assert not Path("y.tar").exists()


@pytest.mark.slow
def test_refused(run: Run, archive: Archive) -> None:
    """What MDS cannot hold, and an index that would be replaced, is one line; nothing is left."""
    archive(tar([("a.txt", b"1"), ("b.txt", b"2")]), "a.tar")
    archive(tar([("a.txt", b"1"), ("b.cls", b"2")]), "fields.tar")
    archive(tar([("a.txt", b"\xff")]), "text.tar")
    archive(tar([("a.cls", b"x")]), "number.tar")
    archive(tar([("a.\udcff", b"x")]), "name.tar")
    Path("mds").mkdir()
    Path("tree").mkdir()
    Path("tree/a.txt").write_text("1")
    for words, message in [
        (["cat", "a.tar", "-o", "x.mds"], "tarkit split -o 'DIRECTORY/shard.%05d.mds' writes both"),
        (["split", "a.tar", "-c", "1", "-o", "mds/%d.mds.gz"], "shards of MDS are written without compression"),
        (["split", "a.tar", "--parts", "x=0.5,y=0.5", "-o", "mds/{part}-%d.mds"], "these are several series"),
        (["sort", "a.tar", "-c", "1", "-o", "mds/%d.mds", "--dask", "local", "--spill", "."], "workers write no index"),
        (["shard", "tree", "-c", "1", "-o", "mds/%d.mds"], "MDS needs an index of all shards"),
        (
            ["split", "fields.tar", "-c", "2", "-o", "mds/%d.mds"],
            "'b' has not the fields of the first sample: cls, txt",
        ),
        (["split", "text.tar", "-c", "2", "-o", "mds/%d.mds"], "MDS cannot hold txt of 'a': it is not UTF-8"),
        (["split", "number.tar", "-c", "2", "-o", "mds/%d.mds"], "MDS cannot hold cls of 'a': it is no integer"),
        (["split", "name.tar", "-c", "2", "-o", "mds/%d.mds"], "its name is not UTF-8"),
    ]:
        assert message in run(*words, exit=None).stderr
        assert not list(Path("mds").iterdir())
        assert not Path("x.mds").exists()
    run("split", "a.tar", "-c", "1", "-o", "mds/%d.mds")
    before = index()
    assert "mds/index.json is there already" in run("split", "a.tar", "-o", "mds/x%d.mds", exit=2).stderr
    assert index() == before
    run("cat", "a.tar", "--rekey", "x{key}", "-o", "b.tar")
    run("split", "b.tar", "-c", "1", "-o", "mds/%d.mds", "--append")
    assert [shard["raw_data"]["basename"] for shard in index()["shards"]] == [f"{n}.mds" for n in range(4)]
    assert [sample.key for sample in tarkit.open("mds")] == ["a", "b", "xa", "xb"]
    shutil.copytree(DATA, "zip")
    Path("zip/index.json").write_text(Path("zip/index.json").read_text().replace('"zstd"', '"br"'))
    assert "tarkit does not decode br" in run("cat", "zip", "-o", "y.tar", exit=1).stderr


def test_limit(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard ends with an error at the first sample with which it would be too large."""
    monkeypatch.setattr("tarkit.messages.mds_writer.MOST", 5000)
    name = archive(tar([(f"{number:03d}.bin", bytes(500)) for number in range(99)]))
    Path("mds").mkdir()
    with pytest.raises(TarkitError, match="a shard of MDS has 4 GiB at most: 10 samples have more"):
        tarkit.open(name).split("mds/%d.mds")
    assert not list(Path("mds").iterdir())


def test_index_of_what_stays(run: Run, archive: Archive) -> None:
    """The index has all shards that stay, and those that a command has moved; without a shard there is none."""
    name = archive(tar([(f"{number}.txt", b"x") for number in range(3)]))
    Path("mds").mkdir()
    words = ["split", name, "-c", "2", "-o", "mds/%d.mds"]
    expected = [("0.mds", 2), ("1.mds", 1)]

    def shards() -> list[tuple[str, int]]:
        return [(shard["raw_data"]["basename"], shard["samples"]) for shard in index()["shards"]]

    run(*words, "--post", "mkdir -p to && mv {} to")
    assert shards() == expected
    run(*words, "--append", "--post", "mv {} to")
    assert shards() == [*expected, ("2.mds", 2), ("3.mds", 1)]
    shutil.copy("mds/index.json", "to")
    assert len(entries(run("cat", "to", "--rekey", "{index}").stdout)) == 6
    run("split", name, "-c", "2", "-o", "to/x%d.mds", "--append")
    assert shards() == [*expected, ("2.mds", 2), ("3.mds", 1)]
    assert len(entries(run("cat", "to", "--rekey", "{index}").stdout)) == 9
    run("split", name, "-c", "3", "-o", "to/%d.mds", "--force", "--start", "3")
    assert [shard["raw_data"]["basename"] for shard in index("to")["shards"]] == [f"{n}.mds" for n in range(4)]
    run("split", name, "-o", "to/%d.mds", "--force", "--where", "txt == 'y'")
    assert sorted(path.name for path in Path("to").iterdir()) == ["x0.mds", "x1.mds"]
    Path("mds/index.json").write_text("{}")
    assert "mds/index.json: damaged, or no index" in run(*words, "--append", exit=1).stderr
