"""What is in datasets: counts as of `tarkit stats`; texts, values, names and pages as of `tarkit show`."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.display import classes
from tests._tools import each_row
from tests.api._inputs import Way, each_way
from tests.conftest import Archive, Link, Run, tar


def members(start: int, stop: int) -> dict[str, Any]:
    """Samples with three fields, of which some lack one; and a directory, which has no key."""
    made: dict[str, Any] = {f"d{start}/": None}
    for i in range(start, stop):
        made[f"{i:04}.JPG"] = b"j" * (i * 7 % 100)
        made[f"{i:04}.json"] = json.dumps({"label": i % 4}).encode()
        if i % 3:
            made[f"{i:04}.cls"] = str(i % 5).encode()
    return made


@pytest.mark.forks
def test_the_numbers_of_the_command(archive: Archive, run: Run) -> None:
    """For any number of processes; fields, shards and classes are attributes."""
    names = [archive(members(i * 20, i * 20 + 17), f"s{i}.tar") for i in range(4)]
    wanted = json.loads(run("stats", "--json", "--by", "json.label", *names).stdout)
    for processes in (0, 1, 9):
        found = tarkit.stats("s{0..3}.tar", by="json.label", processes=processes)
        assert found.describe() == wanted
        assert (found.samples, found.bytes, found.missing) == (68, 4 * len(Path("s0.tar").read_bytes()), 0)
        assert found.shards == dict.fromkeys(names, 17)
        assert found.classes == {"0": 20, "1": 16, "2": 16, "3": 16}
        assert list(found.fields) == ["JPG", "json", "cls"]
        assert vars(found.fields["cls"]) == {"count": 45, "bytes": 45, "min": 1, "median": 1, "max": 1}
    assert tarkit.open("s?.tar").stats("json.label").describe() == wanted


@each_row(
    ("words", "arguments"),
    [
        ((), {}),
        (("--by", "cls"), {"by": "cls"}),
        (("--by", "cls", "--classes", "names"), {"by": "cls", "classes": ["cat", "a dog", "emu"]}),
        (("--by", "cls", "--classes", "names"), {"by": "cls", "classes": Path("names")}),
        (("--world", "3"), {"world": 3}),
        (("--workers", "2", "--by", "json.label"), {"workers": 2, "by": "json.label"}),
    ],
)
def test_the_outputs_of_the_command(words: list[str], arguments: dict[str, Any], archive: Archive, run: Run) -> None:
    """Text, JSON and the page, byte for byte; also of samples that are selected."""
    names = [archive(members(i * 20, i * 20 + 17), f"s{i}.tar") for i in range(3)]
    Path("names").write_text("cat\n\na dog\nemu\n")
    data = tarkit.open(names)
    for chosen, options in ((data, []), (data.where("has(cls)"), ["--where", "has(cls)"])):
        found = chosen.stats(**arguments)
        assert f"{found}\n".encode() == run("stats", *words, *options, *names).stdout
        assert found.describe() == json.loads(run("stats", "--json", *words, *options, *names).stdout)
        found.write_html("page.html")
        assert Path("page.html").read_bytes() == run("stats", "--html", "-", *words, *options, *names).stdout
        page = io.BytesIO()
        found.write_html(page)
        assert page.getvalue() == Path("page.html").read_bytes()
    shares = data.stats(world=2, workers=3).shares
    assert [(each.node, each.worker, each.shards) for each in shares[:3]] == [(0, None, 2), (0, 0, 1), (0, 1, 1)]
    assert repr(data.stats()) == "<tarkit.Stats of 3 shards: 51 samples, 153600 bytes>"


def test_steps(archive: Archive) -> None:
    """What comes out of them is counted, each sample for the archive that it is from."""
    data = tarkit.open([archive(members(i * 20, i * 20 + 17), f"s{i}.tar") for i in range(2)])
    chosen = data.where("has(cls) and cls == 3").select("image:jpg cls")
    found = chosen.stats(by="cls", processes=2)
    chosen.write("chosen.tar")
    written = tarkit.stats("chosen.tar", by="cls")
    assert (found.samples, found.fields, found.classes) == (written.samples, written.fields, written.classes)
    assert found.classes == {"3": found.samples}
    assert found.shards == {"s0.tar": 2, "s1.tar": 2}
    assert data.shuffle(seed=1).stats().samples == data.stats().samples == 34
    assert data.slice(0, 3).stats().shards == {"s0.tar": 3}
    assert data.drop("cls").stats(by="cls").missing == 34
    with tarkit.open("s0.tar", shard_slice=slice(5)) as first:
        assert first.stats().samples == 5


def test_archives_of_one_name(archive: Archive) -> None:
    """Their samples are added up: none is missing from `shards`."""
    name = archive(members(0, 10))
    found = tarkit.stats([name, name, io.BytesIO(tar(members(0, 3))), io.BytesIO(tar(members(0, 4)))])
    assert found.samples == sum(found.shards.values()) == 27
    assert found.shards[name] == 20


def test_problems_that_are_passed_over(archive: Archive) -> None:
    """They are told, by `on_problem` or as warnings."""
    archive(tar(members(0, 10))[:5000], "b.tar")
    messages: list[str] = []
    assert 0 < tarkit.stats("b.tar", skip="truncated", on_problem=messages.append).samples < 10
    assert "truncated" in messages[0]
    assert "the sample '0001' is left out" in messages[1]
    with pytest.warns(tarkit.TarkitWarning, match="truncated"):
        tarkit.stats("b.tar", allow="truncated")


@pytest.mark.forks
def test_more_values_than_are_told_apart(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is counted as others, so that the numbers add up, also where processes have counted."""
    assert classes.MOST == 4096
    monkeypatch.setattr(classes, "MOST", 3)
    for number, values in enumerate(("aabcde", "xxaabb")):
        archive({f"{number}{place}.id": value.encode() for place, value in enumerate(values)}, f"{number}.tar")
    for processes in (1, 2):
        found = tarkit.stats("{0..1}.tar", by="id", processes=processes)
        assert (found.samples, found.missing) == (12, 0)
        assert (found.classes, found.others) == ({"a": 4, "b": 3, "c": 1}, 4)


# ---- The views of `show`

PICTURE = bytes.fromhex(  # one pixel
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
    "0000000049454e44ae426082"
)
SHOWN: list[tuple[str, Any]] = [
    ("README", b"hi"),
    ("d/a.png", PICTURE),
    ("d/a.cls", b"1"),
    ("d/a.\udcff\n.txt", b"\x1b[1m \xe9 text\n" * 100),
    ("d/.hidden", b""),
    ("d/b.ln", Link("d/a.png", tarfile.SYMTYPE)),
    ("d/b.bin", b"\0\1" * (1 << 20)),
    *((f"d/{i}.cls", b"%d" % (i % 2)) for i in range(9)),
]


@each_way
def test_samples_as_text_and_as_values(way: Way, archive: Archive, run: Run) -> None:
    """The lines and the JSON of the command, while a sample is read and, if it is not large, later."""
    word = way(archive(SHOWN))
    data = tarkit.open(word)
    lines = run("show", "--all", word).stdout
    values = [json.loads(line) for line in run("show", "--json", word).stdout.splitlines()]
    assert "".join(f"{sample}\n" for sample in data).encode() == lines
    assert [sample.describe() for sample in data] == values
    assert [sample.describe() for sample in data.head(3)] == values[:3]
    assert data.get("d/b").describe() == values[1]
    kept = [sample for sample in data if sample.key != "d/b"]
    assert [sample.describe() for sample in kept] == values[:1] + values[2:]
    [chosen] = data.keys("d/a").select("cls").rekey("new")
    [line] = run("show", "--json", word, "--slice", "0", "-f", "cls", "--rekey", "new").stdout.splitlines()
    assert chosen.describe() == json.loads(line)


@each_way
def test_entries(way: Way, archive: Archive, run: Run) -> None:
    """The names that `show --names -0` prints, of entries without a key too; also of an archive without samples."""
    word = way(archive(SHOWN))
    found = [*tarkit.open(word).entries()]
    texts = [text or "" if not isinstance(text, int) else str(text) for each in found for text in each]
    raw = "".join(f"{text}\0" for text in texts).encode("utf-8", "surrogateescape")
    assert raw == run("show", "--names", "-0", word).stdout
    assert found[0] == ("README", None, None, 2)
    assert found[3].field == "\udcff\n.txt"
    archive({"README": b"hi"}, "none.tar")
    assert [each.path for each in tarkit.open("none.tar").entries()] == ["README"]


@each_row(
    ("words", "arguments"),
    [
        ((), {}),
        (("--by", "cls"), {"by": "cls"}),
        (("-c", "3", "--classes", "names"), {"count": 3, "classes": ["cat", "a <dog>"]}),
        (("--all", "--classes", "names", "--by", "cls"), {"count": None, "classes": "names", "by": "cls"}),
    ],
)
def test_gallery(words: list[str], arguments: dict[str, Any], archive: Archive, run: Run) -> None:
    """The page of the command, byte for byte."""
    name = archive(SHOWN + [(f"e/{i}.cls", b"1") for i in range(200)])
    Path("names").write_text("cat\na <dog>\n")
    data = tarkit.open([name, name])
    for chosen, options in ((data, []), (data.match("d/"), ["--match", "d/"])):
        count = chosen.gallery("page.html", **arguments)
        page = Path("page.html").read_bytes()
        assert page == run("show", name, name, "--html", "-", *words, *options).stdout
        assert count == page.count(b"<article")
        memory = io.BytesIO()
        assert chosen.gallery(memory, **arguments) == count
        assert memory.getvalue() == page


def test_a_class_that_is_nowhere(archive: Archive) -> None:
    """It is a warning."""
    data = tarkit.open(archive(SHOWN))
    with pytest.warns(tarkit.TarkitWarning, match="no sample has 'label'"):
        assert data.gallery("page.html", by="label") == 11
