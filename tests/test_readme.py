"""README.md and docs/: blocks of `sh`, `python`, `c` and `make` are run, section by section.

A block `text` directly below one of `sh` or `python` is what that prints. Blocks marked `console` need a network or
change the machine; only their options are checked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from tarkit import demo_recipes
from tarkit.cli.app import group
from tests._documents import documents, text_of
from tests._served import served
from tests._tools import each_row, program, slow

ROOT = Path(__file__).resolve().parent.parent
RUN = ("sh", "python", "c", "make")


BLOCKS = [block for document in documents.DOCUMENTS for block in documents.blocks(text_of(document))]
PROGRAM = [block for document in documents.GUIDE for block in documents.blocks(text_of(document))]
"""The guide is one program, which tests/api/test_guide.py runs."""
TO_RUN = [
    block
    for block in BLOCKS
    if block.language in RUN and block.section not in documents.ELSEWHERE and block not in PROGRAM
]
SECTIONS = list(dict.fromkeys(block.section for block in TO_RUN))
QUICK = {block.section for block in documents.blocks(text_of(documents.DOCUMENTS[0]))}  # of README.md


@pytest.fixture
def directory(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a link `bin` to a directory that has a `tarkit`."""
    (tmp_path / "bin").symlink_to(served(tmp_path_factory.getbasetemp()))
    return tmp_path


def _run(directory: Path, *words: str) -> str:
    environment = {**os.environ, "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(
        words, cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{words[-1]}\nended with {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def _only_here(block: Any) -> None:
    """Skip the test where a program or a library that the block needs is missing."""
    for name in re.findall(r"^import (webdataset|numpy)", block.text, re.MULTILINE):
        pytest.importorskip(name)
    program({"sh": "bash", "python": "bash", "c": "cc"}.get(block.language, block.language))
    if re.search(r"^make\b", block.text, re.MULTILINE):
        program("make")


def _names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def _content(path: Path, name: str) -> bytes:
    with tarfile.open(path) as archive:
        return archive.extractfile(name).read()  # type: ignore[union-attr]


def _fields(path: Path) -> Counter[str]:
    """Return how often each field is in an archive."""
    return Counter(name.rpartition(".")[2] for name in _names(path))


def _upper_case(directory: Path) -> None:
    for name in ("upper-worker", "upper-bash", "upper-c"):
        with tarfile.open(directory / f"{name}.tar") as archive:
            texts = {file.read() for each in archive if (file := archive.extractfile(each)) and ".txt" in each.name}
        assert all(text.startswith(b"A ") and text.isupper() for text in texts), name
    assert _names(directory / "upper-bash.tar") == _names(directory / "upper-c.tar") == _names(directory / "a.tar")


def _classes(directory: Path) -> None:
    assert (directory / "classes.txt").read_text() == "cat\ndog\n"
    for name, each in (("train", 8), ("val", 2)):
        labels: dict[str, list[bytes]] = {"cat": [], "dog": []}
        for shard in (directory / name).iterdir():
            with tarfile.open(shard) as archive:
                for entry in archive:
                    if entry.name.endswith(".cls") and (label := archive.extractfile(entry)):
                        labels[entry.name[:3]].append(label.read())
        assert labels == {"cat": [b"0"] * each, "dog": [b"1"] * each}


def _tree(directory: Path) -> None:
    assert sorted(name for i in range(4) for name in _names(directory / f"z-{i}.tar")) == sorted(
        [f"images/{i}.jpg" for i in range(4)] + [f"notes/{i}.json" for i in range(3)]
    )


def _four_processes(directory: Path) -> None:
    found = sorted(directory.glob("four-*"))
    assert sorted(name for path in found for name in _names(path)) == sorted(
        name for path in (directory / "shards").iterdir() for name in _names(path)
    )


def _sorted(directory: Path) -> None:
    files = [[name for name in _names(path) if "." in name] for path in sorted(directory.glob("photos-*.tar"))]
    assert list(map(len, files)) == [10, 10]  # there are directories besides
    assert _names(directory / "largest-first.tar")[0].startswith("000000.")


def _class_names(directory: Path) -> None:
    assert (directory / "classes.txt").read_text() == "cat\ndog\n"
    for name in ("stats.html", "classes.html"):
        page = (directory / name).read_text()
        assert "cat" in page, name
        assert "dog" in page, name


MADE: dict[str, dict[str, list[int] | int | str]] = {
    "tarkit": {"mixed-*": [10] * 4},
    "Exit status": {"by-size-*.tar": 24, "by-size-*2.tar": []},
    "Results for programs": {"reported-*.tar": 48},
    "Pairs of arrays": {"shard/*": [20] * 4},
    "A hundred thousand files": {"shard_large/npy_webdataset-0000.tar": [24], "shard_large.tsv": [2]},
    "A directory tree": {
        "x-000000.tar": "images/0.jpg images/1.jpg images/2.jpg",
        "x-000001.tar": "images/3.jpg",
    },
    "Images and annotations in two directories": {"y-000000.tar": "0.jpg 0.json 1.jpg 1.json 2.jpg 2.json"},
    "Captions from a table": {"captioned-000000.tar": "0.jpg 0.txt ..."},
    "A recipe that you can edit": {"p-000000.tar": "images/1.jpg images/2.jpg images/3.jpg notes/0.json"},
    "New files in an old tree": {"u-00000[01].tar": [3, 1], "u-000002.tar": "images/new.jpg"},
    "Shuffle in four processes": {"four-*": [20, 20, 8]},
    "A table of samples": {"table.tar": "0001.jpg 0001.cls 0001.txt 0002.jpg 0002.cls 0002.txt"},
    "Shards of another size": {"all.tar": [48], "even/*": [4] * 8},
    "Training and validation sets": {
        **dict.fromkeys(("[tv]*-000*.tar", "grouped-*", "fair-*", "cv-*"), 48),
        "fair-val-*": 8,
    },
    "Shards by category": {
        "pets/cats-000000.tar": [24],
        "pets/dogs-000000.tar": [16],
        "pets/rest-*": [8],
        "pets/*": [24, 16, 8],
    },
    "Shards of equal size": {"same-*": [28, 20]},  # each closes at half of the bytes
    "Samples by key": {"cats.tar": [24], "kept.tar": [8], "scored.tar": [8], "three.tar": [12]},
    "Fields": {"renamed.tar": "cat/0.image cat/0.label ...", "whole.tar": [48]},
    "Shuffle": {"mixed-all-*": 48},
    "Mix data sets by weight": {"twenty.tar": [80]},
    "What is in an archive": {"t.csv": [13]},
    "Are the shards whole?": {"clean/*.tar": 48 + 16},
    "One command line for each value": {"texts-*.tar": [4, 3, 3, 2]},
    "Break and continue": {"night.jsonl": [5]},
    "Compress": {"train.tar.xz": [48]},
    "Convert zip files": {"from-zip.tar": [8]},
    "Manifest": {"release.tsv": [3]},
    "Shards for several machines and workers": {"equal-*": [12] * 4},
    "A new order for each epoch": {"epoch*": [16] * 6},
}
"""What a section leaves: for a pattern the number of entries (or lines) of each archive (or table), their sum, or the
names of the entries of one."""


def _has(directory: Path, pattern: str, expected: list[int] | int | str) -> None:
    """Compare what there is with a row of `MADE`."""
    found = [
        path.read_text().splitlines() if path.suffix in (".csv", ".jsonl", ".tsv") else _names(path)
        for path in sorted(directory.glob(pattern))
    ]
    if isinstance(expected, str):
        [names] = found
        start, more = expected.removesuffix(" ...").split(), expected.endswith(" ...")
        assert (names[: len(start)] if more else names) == start, pattern
    else:
        counts = [*map(len, found)]
        assert (sum(counts) if isinstance(expected, int) else counts) == expected, pattern


CHECKS: dict[str, tuple[Callable[[Path], object], object]] = {
    "Results for programs": (lambda at: json.loads((at / "run.json").read_text())["samples"], 12),
    "Images in one directory per class": (_classes, None),
    "A directory tree": (_tree, None),
    "A recipe from a script": (
        lambda at: (len(_names(at / "photos.tar")), _content(at / "photos.tar", "dog/3.cls")),
        (40, b"1"),
    ),
    "Shuffle in four processes": (_four_processes, None),
    "Files of maps": (
        lambda at: (_names(at / "sorted.tar") == _names(at / "a.tar"), len([*at.glob("one-*.mp")])),
        (True, 2),
    ),
    "ZeroMQ": (lambda at: _names(at / "received.tar") == _names(at / "a.tar"), True),
    "Unique keys": (
        lambda at: (_names(at / "both.tar")[8], _names(at / "numbered.tar")[-1]),
        ("b/cat/0.jpg", "000000003.txt"),
    ),
    "Fields": (lambda at: {*_fields(at / "dropped.tar")}, {"jpg", "cls"}),
    "Sort": (_sorted, None),
    "Join two archives by key": (lambda at: _names(at / "both-sorted.tar")[0::8], ["a/cat/0.jpg", "b/cat/0.jpg"]),
    "Shuffle": (
        lambda at: (len([*at.glob("e[012]-*.tar")]), {*_names(at / "shuffled.tar")} ^ {*_names(at / "a.tar")}),
        (6, set()),
    ),
    "Shuffle a stream through a buffer": (lambda at: min(_names(at / "mixed-000000.tar")), "cat/0.cls"),
    "A command for each sample": (
        lambda at: (
            *(_fields(at / f"{name}.tar")[field] for name, field in (("upper", "upper"), ("whole", "n"))),
            {name[:4] for name in _names(at / "renamed-keys.tar")},
        ),
        (12, 12, {"new/"}),
    ),
    "A Python function": (lambda at: _content(at / "upper-py.tar", "cat/0.txt"), b"A CAT ASLEEP"),
    "A program that reads and writes tar": (_upper_case, None),
    "What is in an archive": (lambda at: "cat/0" in (at / "gallery.html").read_text(), True),
    "Classes": (_class_names, None),
    "One sample": (lambda at: (at / "3.txt").read_bytes()[:2], b"a "),
    "Unpack": (lambda at: sorted(os.listdir(at / "unpacked/cat")), [f"{i}.txt" for i in range(6)]),
    "A truncated download": (
        lambda at: {name.partition(".")[0] for name in _names(at / "saved.tar")},
        {f"cat/{i}" for i in range(4)},
    ),
    "One output for each input": (
        lambda at: (
            *(len([*at.glob(pattern)]) for pattern in ("sorted/*.tar", "sized-00?.tar")),
            (at / "train-000002/dog/1.txt").read_bytes()[:2],
        ),
        (4, 4, b"a "),
    ),
    "One command line for each value": (
        lambda at: (
            [line.split("/")[-1] for line in (at / "sums.txt").read_text().splitlines()],
            len([*at.glob("train-*.tar.gz")]),
        ),
        ([f"train-{number:06d}.tar" for number in range(4)], 4),
    ),
    "Break and continue": (lambda at: len([*at.glob("out/*.tar")]), 4),
    "Parts of the work": (lambda at: len([*at.glob("parts/*.tar.gz")]), 4),
    "Compress": (lambda at: (at / "train.tar.xz").read_bytes()[:4], b"\xfd7zX"),
    "Convert zip files": (
        lambda at: (
            zipfile.ZipFile(at / "a.zip").namelist() == _names(at / "a.tar"),
            (at / "1-of-zip.txt").read_bytes()[:2],
        ),
        (True, b"a "),
    ),
    "Index files": (lambda at: {path.suffix for path in (at / "shards").iterdir()}, {".tar", ".idx", ".json"}),
    "Balance classes": (
        lambda at: (
            _fields(at / "balanced.tar")["cls"],
            450 < sum(name.endswith(".cls") and name[0] == "d" for name in _names(at / "balanced.tar")) < 550,
        ),
        (1000, True),
    ),
}
"""A function of the directory that a section leaves, and its value."""


@pytest.mark.forks
@pytest.mark.parametrize("section", [each if each in QUICK else slow(each) for each in SECTIONS])
def test_the_blocks_of_a_section_run(section: str, directory: Path) -> None:
    """The blocks of a section succeed one after the other, print what is shown, and make what the text states."""
    blocks = [block for block in TO_RUN if block.section == section]
    for block in blocks:
        _only_here(block)
    demo_recipes.write(directory)
    programs = (directory / "bin", Path(sys.executable).parent, os.environ["PATH"])
    shell = [block for block in blocks if block.language in ("sh", "python")]
    if shell:
        outputs = documents.run(shell, directory, os.pathsep.join(map(str, programs)))
        for block, output in zip(shell, outputs, strict=True):
            assert block.shown is None or documents.same(output) == documents.same(block.shown), block.text
    for block in blocks:
        if block.language == "c":
            (directory / "upper-tar.c").write_text(block.text)
            _run(directory, "cc", "-Wall", "-Werror", "-o", "upper-tar", "upper-tar.c")
            _run(directory, "tarkit", "proc", "--worker", "./upper-tar", "a.tar", "-o", "upper-c.tar")
        elif block.language == "make":
            (directory / "recipe").write_text("a.jpg\tphotos/cat/1.jpg\n")
            (directory / "Makefile").write_text(block.text)
            assert _run(directory, "make").startswith("tarkit create")
            assert "up to date" in _run(directory, "make")
            os.utime(directory / "photos/cat/1.jpg", (2**31, 2**31))
            assert _run(directory, "make").startswith("tarkit create")
    for pattern, expected in MADE.get(section, {}).items():
        _has(directory, pattern, expected)
    if section in CHECKS:
        check, value = CHECKS[section]
        assert check(directory) == value


def test_outputs_are_what_the_documents_show() -> None:
    """Outputs are shown, and by scripts/docs in the places where they are."""
    shown, without = "```sh\necho one\n```\n\n```text\nold\n```\n", "```sh\necho two\n```\n"
    text = f"# A\n\n{shown}\n{without}\nWords.\n\n```text\nno output\n```\n"
    assert [block.shown for block in documents.blocks(text)] == ["old\n", None, None]
    assert documents.with_outputs(text, os.environ["PATH"]) == text.replace("old", "one")


@each_row(
    "page", [path for path in documents.DOCUMENTS if path.parent.name == "recipes" or path.stem in ("faq", "views")]
)
def test_a_page_of_recipes_says_how_its_files_are_made(page: Path) -> None:
    """Each page has the command line of the home page, except the one on clusters, whose blocks need one."""
    assert page.stem == "cluster" or "python3 -m tarkit.demo --recipes try && cd try" in page.read_text()


def test_every_check_has_its_section() -> None:
    """Each check names a section, and titles of sections that are run are unique among all documents."""
    assert {*CHECKS, *MADE} <= set(SECTIONS)
    sections = [
        {block.section for block in documents.blocks(text_of(path)) if block in TO_RUN} for path in documents.DOCUMENTS
    ]
    assert sum(map(len, sections)) == len(SECTIONS)


@each_row("block", BLOCKS)
def test_options_exist(block: Any) -> None:
    """Every option in a block is an option of its command."""
    text = re.sub(r"'[^']*'", "''", block.text).replace("\\\n", " ")
    context = click.Context(group, info_name="tarkit")
    for name, words in re.findall(r"\btarkit ([a-z]+)\b([^|\n]*)", text):
        command = group.get_command(context, name)
        assert command is not None, name
        words = words.partition(" -- ")[0]  # of each; what follows is another command
        known = {each for parameter in command.params for each in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"(?<=\s)--?[a-zA-Z][\w-]*", words)) <= known


PAGES = [*documents.DOCUMENTS, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))]
LINK = re.compile(r"(?:\]\(|^\[\w+\]: )(?!https?://)([^)#\s]*)#?([^)\s]*)\)?", re.MULTILINE)


def _anchors(text: str) -> set[str]:
    """Return the anchors that GitHub and zensical make from headings."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    names = re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)  # of the API reference
    return {*names, *(re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles)}


@each_row("page", PAGES)
def test_links_have_targets(page: Path) -> None:
    """A link into the repository points to an existing file and an existing heading."""
    text = page.read_text(encoding="utf-8")
    for target, anchor in LINK.findall(text):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        assert not anchor or anchor in _anchors(path.read_text(encoding="utf-8")), f"{target}#{anchor}"


@each_row("name", ["CONTRIBUTING", "SECURITY"])
def test_pages_of_the_project_have_links_of_their_own(name: str) -> None:
    """The site includes the file at the root, whose links have names, and gives these its own targets."""
    text, page = ((ROOT / path).read_text(encoding="utf-8") for path in (f"{name}.md", f"docs/{name.lower()}.md"))
    assert f'--8<-- "{name}.md"' in page
    for source in (text, page):
        assert set(re.findall(r"^\[(\w+)\]: ", source, re.MULTILINE)) == set(re.findall(r"\]\[(\w+)\]", text))
    assert not re.search(r"\]\((?!https?://)", text)


@each_row("page", PAGES)
def test_no_paths_of_a_development_machine(page: Path) -> None:
    """Documents contain no path of a development machine."""
    text = page.read_text(encoding="utf-8")

    assert not re.search(r"(?<!tarkit)/(work|home|root|Users|tmp)/", text)


def test_the_readme_is_short() -> None:
    """README.md stays short; details belong in docs/."""
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 165
