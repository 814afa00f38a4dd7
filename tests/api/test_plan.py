"""tarkit.plan: the plans and shards of `tarkit shard`, to the byte."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.api import plan
from tarkit.packing import tree
from tests._tools import each_row
from tests.conftest import Run, entries, keys

ROWS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"count": 4}, ["-c", "4"]),
    ({"size": 10240}, ["-s", "10240"]),
    ({"size": "10K", "size_rule": "content"}, ["-s", "10K", "--size-rule", "content"]),
    ({"shards": 3}, ["-n", "3"]),
    ({"shards": 3, "even": True}, ["-n", "3", "--even"]),
    ({"count": 3, "dirs": "separate"}, ["-c", "3", "--dirs", "separate"]),
    ({"count": 3, "dirs": "collapse"}, ["-c", "3", "--dirs", "collapse"]),
    ({"sort": "key"}, ["--sort", "key"]),
    ({"sort": "-key", "count": 3}, ["--sort", "-key", "-c", "3"]),
    ({"sort": "shuffle:7", "count": 3}, ["--sort", "shuffle:7", "-c", "3"]),
    ({"key": "base", "rename": "key", "exclude": "pig*"}, ["--key", "base", "--rename", "key", "--exclude", "pig*"]),
    ({"key": "flat", "rename": "flat"}, ["--key", "flat", "--rename", "flat"]),
    ({"last_dot": True}, ["--last-dot"]),
    ({"require": "jpg|png", "on_missing": "exclude"}, ["--require", "jpg|png", "--on-missing-field", "exclude"]),
    ({"require": ["jpg", "txt"], "on_missing": "keep"}, ["--require", "jpg,txt", "--on-missing-field", "keep"]),
    ({"label_from_dir": "cls"}, ["--label-from-dir", "cls"]),
    ({"label_from_dir": ["cls", "class:name"]}, ["--label-from-dir", "cls", "--label-from-dir", "class:name"]),
    ({"label_from_dir": "cls", "classes": "tree/classes"}, ["--label-from-dir", "cls", "--classes", "tree/classes"]),
    ({"join": "tree/table.csv:name"}, ["--join", "tree/table.csv:name"]),
    ({"match": r"^(cat|dog)/.*\.jpg"}, ["--match", r"^(cat|dog)/.*\.jpg"]),
    ({"exclude": "*.txt"}, ["--exclude", "*.txt"]),
    ({"exclude": ["*.txt", "dog/*"]}, ["--exclude", "*.txt", "--exclude", "dog/*"]),
    ({"prefix": "cat/"}, ["--prefix", "cat/"]),
    ({"symlinks": "skip"}, ["--symlinks", "skip"]),
    ({"symlinks": "all"}, ["--symlinks", "all"]),
    ({"keep_root": True}, ["--keep-root"]),
]


def fill() -> None:
    """Write a tree of three directories, with links, a table and a list of classes."""
    names = ["cat/1.jpg", "cat/1.txt", "cat/2.a.jpg", "dog/3.jpg", "dog/4.png", "dog/4.txt", "pig/1.jpg"]
    for number, name in enumerate((*names, *(f"cat/9{i}.jpg" for i in range(9)))):
        path = Path("tree", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * (number * 30 + 1))
        os.utime(path, (number * 1000, number * 1000))
    for name, target in (("dog/link.jpg", "3.jpg"), ("link", "cat")):
        if not os.path.lexists(f"tree/{name}"):
            Path("tree", name).symlink_to(target)
    Path("tree/classes").write_text("pig\ndog\ncat\nlink\n.\n")
    names = [str(path.relative_to("tree")) for path in sorted(Path("tree").rglob("*.*g"))]
    Path("tree/table.csv").write_text("name,size.txt\n" + "".join(f"{name},{len(name)}\n" for name in names))


@each_row("options,words", ROWS)
def test_the_shards_of_the_command(options: dict[str, Any], words: list[str], run: Run) -> None:
    """Shards, preview and summary equal those of the command and its --dry-run."""
    fill()
    os.mkdir("cli")
    os.mkdir("api")
    for table in {"classes", "table.csv"} - {
        str(each).removeprefix("tree/").partition(":")[0] for each in options.values()
    }:
        os.unlink(f"tree/{table}")  # fmt: skip
    ran = run("shard", "tree", "-o", "cli/%02d.tar", *words, exit=None)
    planned = tarkit.plan("tree", **options)
    if ran.status:
        with pytest.raises(tarkit.TarkitError) as caught:
            planned.write("api/%02d.tar")
        assert str(caught.value) in ran.stderr
        return
    preview = planned.preview("api/%02d.tar")
    assert os.listdir("api") == []
    shards = planned.write("api/%02d.tar", processes=1 if len(preview) % 2 else None)
    written = {path.name: path.read_bytes() for path in Path("api").iterdir()}
    assert written == {path.name: path.read_bytes() for path in Path("cli").iterdir()}
    assert written
    assert preview == [
        (
            each.name,
            each.samples,
            sum(len(data) for _, data in entries(each.name) if isinstance(data, bytes)),
            each.size,
        )
        for each in shards
    ]
    dry = [json.loads(line) for line in run("shard", "tree", "-o", "x-%02d.tar", "--json", *words).stdout.splitlines()]
    assert [(each["tar"], each["bytes"], len(each["samples"])) for each in dry] == [
        (each.size, each.content, each.samples) for each in preview
    ]


def test_every_row_but_few_writes(run: Run) -> None:
    """All rows of the table above but a few write shards, so that the test does not only compare errors."""
    fill()
    failed = [words for _, words in ROWS if run("shard", "tree", "--dry-run", *words, exit=None).status]
    assert len(failed) < len(ROWS) / 4, failed


@pytest.mark.forks
def test_write_options(run: Run) -> None:
    """Times, compression and processes have the same results as the options of the command."""
    fill()
    for number, (options, words) in enumerate((
        ({"mtime": None}, ["--mtime", "source"]),
        ({"mtime": 77}, ["--mtime", "@77"]),
        ({"compress": "gz:1"}, ["--compress", "gz:1"]),
        ({"processes": 3, "fsync": True}, ["-p", "3"]),
        ({"processes": 0}, ["-p", "0"]),
    )):  # fmt: skip
        tarkit.plan("tree", count=4).write(f"api{number}-%d.tar", **options)  # type: ignore[arg-type]
        run("shard", "tree", "-c", "4", "-o", f"cli{number}-%d.tar", *words)
        made = [path.read_bytes() for path in sorted(Path().glob(f"api{number}-*"))]
        assert made == [path.read_bytes() for path in sorted(Path().glob(f"cli{number}-*"))]
        assert len(made) == 5
    tarkit.plan("tree", count=8).write("post-%d.tar", post="cp {} {}.copy")
    assert Path("post-1.tar.copy").read_bytes() == Path("post-1.tar").read_bytes()


def test_classes(here: Path) -> None:
    """The names of classes are known after the plan was used; the table and the list are not packed."""
    fill()
    planned = tarkit.plan("tree", label_from_dir="cls", exclude=["classes", "table.csv"])
    assert planned.classes == []
    planned.preview()
    assert planned.classes == ["cat", "dog", "pig"]
    planned.write("a-%d.tar")
    assert {each.key[:3]: each["cls"] for each in tarkit.open("a-0.tar")} == {"cat": b"0", "dog": b"1", "pig": b"2"}
    with pytest.warns(tarkit.TarkitWarning, match="--require") as warned:
        tarkit.plan("tree", require="jpg", on_missing="warn", match="cat").preview()
    assert {each.filename for each in warned} == {__file__}
    listed = tarkit.plan(
        "tree", label_from_dir="cls", classes="tree/classes", join="tree/table.csv:name", match="cat|cl|ta"
    )
    listed.write("b-%d.tar")
    assert "classes" not in keys("b-0.tar")
    assert "table" not in keys("b-0.tar")
    assert {each["cls"] for each in tarkit.open("b-0.tar")} == {b"2"}


def test_the_tree_is_listed_anew(here: Path) -> None:
    """Files that exist when the plan is used are packed."""
    fill()
    planned = tarkit.plan("tree", match="dog")
    (before,) = planned.preview()
    Path("tree/dog/5.jpg").write_bytes(b"new")
    (shard,) = planned.write("a-%d.tar")
    assert shard.samples == before.samples + 1


def test_shards_that_are_there(here: Path) -> None:
    """Existing shards are an error before the listing; force replaces them, resume keeps those that are as planned."""
    fill()
    planned = tarkit.plan("tree", count=4)
    names = [shard.name for shard in planned.write("a-%d.tar")]
    before = [Path(name).read_bytes() for name in names]
    with pytest.raises(tarkit.TarkitError, match=r"^a-0\.tar and 4 more: there are shards of this name$"):
        planned.write("a-%d.tar")
    os.unlink(names[1])
    kept = os.stat(names[0]).st_ino
    assert [shard.name for shard in planned.write("a-%d.tar", resume=True)] == names
    assert os.stat(names[0]).st_ino == kept
    assert [Path(name).read_bytes() for name in names] == before
    Path("a-9.tar").write_bytes(b"of an earlier plan")
    with pytest.raises(tarkit.TarkitError, match=r"^a-9\.tar: exists, but is not in the plan$"):
        planned.write("a-%d.tar", resume=True)
    planned.write("a-%d.tar", force=True)
    assert os.stat(names[0]).st_ino != kept
    assert not os.path.exists("a-9.tar")


@each_row("when", ["listed", "written"])
def test_a_file_that_is_gone(when: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample of a removed file is dropped with a warning, or is an error, for a removal in the listing or later."""
    fill()
    sizes, pack = tree.Tree._sizes, plan.pack

    def listed(self: tree.Tree, path: bytes, names: list[bytes]) -> Any:
        if path.endswith(b"dog/"):
            Path("tree/dog/4.png").unlink()
        return sizes(self, path, names)

    def packed(*given: Any, **named: Any) -> Any:
        Path("tree/dog/4.png").unlink()
        return pack(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(tree.Tree, "_sizes", listed) if when == "listed" else patch.setattr(plan, "pack", packed)
        with pytest.raises((tarkit.TarkitError, OSError), match=r"dog/4\.png"):
            tarkit.plan("tree").write("a-%d.tar")
        assert [path.name for path in Path().iterdir()] == ["tree"]
        fill()
        messages: list[str] = []
        dogs = tarkit.plan("tree", match="dog", on_problem=messages.append)
        (shard,) = dogs.write("a-%d.tar", skip_missing=True)
    assert keys(shard.name) == "dog/3 dog/link"
    assert any("dog/4.png" in text for text in messages), messages


@each_row(
    "options,kind,message",
    [
        ({"directory": "nix"}, FileNotFoundError, "nix"),
        ({"directory": "tree/cat/1.jpg"}, tarkit.Usage, "is not a directory"),
        ({"key": "base", "rename": "key"}, tarkit.TarkitError, "1.jpg"),
        ({"require": "txt"}, tarkit.TarkitError, "a field that --require does not name [missing-field]"),
        ({"join": "nix.csv:name"}, OSError, "nix.csv"),
        ({"label_from_dir": "cls", "classes": "nix"}, OSError, "nix"),
    ],
)
def test_errors(options: dict[str, Any], kind: type[Exception], message: str, here: Path) -> None:
    """Errors are raised before anything is written."""
    fill()
    planned = tarkit.plan(**{"directory": "tree", **options})
    for use in (planned.preview, planned.write):
        with pytest.raises(kind) as caught:
            use("out-%d.tar")
        assert message in str(caught.value)
    assert os.listdir() == ["tree"]


def test_errors_of_outputs(here: Path) -> None:
    """A missing directory, stdout, and too few names are errors."""
    fill()
    with pytest.raises(FileNotFoundError, match=r"nix/a-0\.tar"):
        tarkit.plan("tree").write("nix/a-%d.tar")
    with pytest.raises(tarkit.Usage, match="stdout"):
        tarkit.plan("tree").write("-")
    with pytest.raises(tarkit.TarkitError, match="too few names"):
        tarkit.plan("tree", count=1).write("a-{0..3}.tar")
    with pytest.raises(tarkit.Usage, match="processes=-1: it is at least 0"):
        tarkit.plan("tree").write("a-%d.tar", processes=-1)
    assert os.listdir() == ["tree"]


@each_row(
    "options,message",
    [
        ({"count": 0}, "count=0: it is at least 1"),
        ({"shards": -1}, "shards=-1: it is at least 1"),
        ({"size": 0}, "invalid size '0'"),
        ({"size": "10Q"}, "10Q"),
        ({"size_rule": "nix"}, "size_rule='nix'"),
        ({"dirs": "keep"}, "dirs='keep': it is one of pack, separate, collapse"),
        ({"rename": "nix"}, "rename='nix'"),
        ({"symlinks": "nix"}, "symlinks='nix'"),
        ({"on_missing": "skip"}, "on_missing='skip': it is one of error, warn, keep, exclude"),
        ({"sort": "nix"}, "'nix'"),
        ({"key": "("}, "'('"),
        ({"match": "("}, "'('"),
        ({"shards": 2, "count": 3}, "cannot be used"),
        ({"shards": 2, "dirs": "separate"}, "cannot be used"),
        ({"classes": "file"}, "require"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str, here: Path) -> None:
    """Arguments out of range are errors of the call, since samples would be missing or packed differently."""
    with pytest.raises(tarkit.Usage) as caught:
        tarkit.plan(here, **options)
    assert message in str(caught.value)
