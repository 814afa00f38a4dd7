"""tarkit.shard: the shards of `tarkit shard`, to the byte."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.packing.files import LocalFiles
from tarkit.packing.packer import Packer
from tests._tools import each_row
from tests.conftest import Run, keys

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
    ({"label_from_dir": ["cls", "class:-1:name"]}, ["--label-from-dir", "cls", "--label-from-dir", "class:-1:name"]),
    ({"label_from_dir": "cls", "classes": "tree/classes"}, ["--label-from-dir", "cls", "--classes", "tree/classes"]),
    ({"join": "tree/table.csv:name"}, ["--join", "tree/table.csv:name"]),
    ({"match": r"^(cat|dog)/.*\.jpg"}, ["--match", r"^(cat|dog)/.*\.jpg"]),
    ({"exclude": "*.txt"}, ["--exclude", "*.txt"]),
    ({"exclude": ["*.txt", "dog/*"]}, ["--exclude", "*.txt", "--exclude", "dog/*"]),
    ({"symlinks": "skip"}, ["--symlinks", "skip"]),
    ({"symlinks": "all"}, ["--symlinks", "all"]),
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
    """Shards equal those of the command, and those of a dry run."""
    fill()
    os.mkdir("cli")
    os.mkdir("api")
    for table in {"classes", "table.csv"} - {
        str(each).removeprefix("tree/").partition(":")[0] for each in options.values()
    }:
        os.unlink(f"tree/{table}")  # fmt: skip
    ran = run("shard", "tree", "-o", "cli/%02d.tar", *words, exit=None)
    if ran.status:
        with pytest.raises(tarkit.TarkitError) as caught:
            tarkit.shard("tree", "api/%02d.tar", **options)
        assert str(caught.value) in ran.stderr
        return
    planned = tarkit.shard("tree", "api/%02d.tar", dry_run=True, **options)
    assert os.listdir("api") == []
    shards = tarkit.shard("tree", "api/%02d.tar", processes=1 if len(planned) % 2 else None, **options)
    written = {path.name: path.read_bytes() for path in Path("api").iterdir()}
    assert written == {path.name: path.read_bytes() for path in Path("cli").iterdir()}
    assert written
    assert [shard[:3] for shard in planned] == [shard[:3] for shard in shards]


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
        tarkit.shard("tree", f"api{number}-%d.tar", count=4, **options)  # type: ignore[arg-type]
        run("shard", "tree", "-c", "4", "-o", f"cli{number}-%d.tar", *words)
        made = [path.read_bytes() for path in sorted(Path().glob(f"api{number}-*"))]
        assert made == [path.read_bytes() for path in sorted(Path().glob(f"cli{number}-*"))]
        assert len(made) == 4
    tarkit.shard("tree", "post-%d.tar", count=8, post="cp {} {}.copy")
    assert Path("post-1.tar.copy").read_bytes() == Path("post-1.tar").read_bytes()


@each_row(
    "options,words",
    [
        ({"map": {"c-%d.tar": ["cat"], "sub/d-%d": ["dog"]}}, '--map {"c-%d.tar":["cat"],"sub/d-%d":["dog"]}'),
        ({"map": {"c": ["cat"]}, "unmatched": "r", "count": 2}, '--map {"c":["cat"]} --unmatched r -c 2'),
        (
            {"map": {"c.tgz": ["cat/.*"], "d": ["dog"]}},
            '--map {"c.tgz":["cat/.*"],"d":["dog"]}',
        ),
        (
            {"map": Path("lines"), "map_sep": ";", "sort": "-key"},
            "--map lines --map-sep ; --sort -key",
        ),
        (
            {"label_from_dir": "cls", "classes_out": "o.txt", "match": "/"},
            "--label-from-dir cls --classes-out o.txt --match /",
        ),
        ({"template": "x@12.tgz", "count": 3}, "-o x@12.tgz -c 3"),
        ({"template": "sub", "shards": 2}, "-o sub -n 2"),
    ],
)  # fmt: skip
def test_all_files_of_the_command(options: dict[str, Any], words: str, run: Run) -> None:
    """Shards, manifest, depfile, list of classes and recipe: of the same names, to the byte."""
    fill()
    tree = os.path.abspath("tree")
    for folder in ("cli", "api"):
        Path(folder, "sub").mkdir(parents=True)
        Path(folder, "lines").write_text("cat/;c-%d\ndog/;d-%d\n")
    with chdir("cli"):
        run("shard", tree, "--manifest", "m.tsv", "--depfile", "d.mk", *words.split())
        run("shard", tree, "--recipe", "recipe.txt", *words.split())
    options["on_problem"] = lambda text: None
    with chdir("api"):
        shards = tarkit.shard(tree, manifest=Path("m.tsv"), depfile="d.mk", **options)
        assert tarkit.shard(tree, recipe=Path("recipe.txt"), **options) == []
        planned = tarkit.shard(tree, dry_run=True, **options)
        assert [shard.name for shard in shards] == [shard.name for shard in planned]
    ours = {str(path.relative_to("api")): path.read_bytes() for path in Path("api").rglob("*.*")}
    assert ours == {str(path.relative_to("cli")): path.read_bytes() for path in Path("cli").rglob("*.*")}
    assert {shard.name for shard in shards} == {name for name in ours if name.endswith((".tar", ".tgz"))}


def test_new_files(run: Run) -> None:
    """They are packed into new shards, and reported if there are none."""
    fill()
    for folder in ("cli", "api"):
        Path(folder).mkdir()
        run("shard", "tree", "--match", "cat", "-c", "4", "-o", f"{folder}/%d.tar")
    run("shard", "tree", "--update", "--exclude", "*.csv", "-c", "4", "-o", "cli/%d.tar")
    options: dict[str, Any] = {"update": True, "exclude": "*.csv", "count": 4, "on_problem": lambda text: None}
    planned = tarkit.shard("tree", "api/%d.tar", dry_run=True, **options)
    assert [shard.name for shard in tarkit.shard("tree", "api/%d.tar", **options)] == [each.name for each in planned]
    assert planned[0].name == "api/3.tar"
    for path in Path("cli").iterdir():
        assert Path("api", path.name).read_bytes() == path.read_bytes()
    assert tarkit.shard("tree", "api/%d.tar", **options) == []


def test_files_beside_the_shards_are_not_packed(here: Path) -> None:
    """Nor replaced by one another."""
    fill()
    Path("tree/m.tsv").write_bytes(b"of an earlier run")
    tarkit.shard("tree", "tree/s-%d.tar", match="cat|tsv", count=20, manifest="tree/m.tsv")
    assert "m" not in keys("tree/s-0.tar")
    with pytest.raises(tarkit.Usage, match="update adds to existing shards: it cannot be used with force or resume"):
        tarkit.shard("tree", "tree/s-%d.tar", update=True, force=True)
    with pytest.raises(tarkit.Usage, match=r"table\.csv is the table, and the manifest too"):
        tarkit.shard("tree", "x-%d.tar", join="tree/table.csv:name", manifest="tree/table.csv")


def test_classes(here: Path) -> None:
    """The table and the list of classes are not packed; warnings are those of the caller's line."""
    fill()
    tarkit.shard("tree", "a-%d.tar", label_from_dir="cls", classes_out="c", exclude=["classes", "table.csv"])
    assert Path("c").read_text() == "cat\ndog\npig\n"
    assert {each.key[:3]: each["cls"] for each in tarkit.open("a-0.tar")} == {"cat": b"0", "dog": b"1", "pig": b"2"}
    with pytest.warns(tarkit.TarkitWarning, match="require: ") as warned:
        tarkit.shard("tree", require="jpg", on_missing="warn", match="cat", dry_run=True)
    assert {each.filename for each in warned} == {__file__}
    files: dict[str, Any] = {"classes": "tree/classes", "join": "tree/table.csv:name", "match": "cat|cl|ta"}
    tarkit.shard("tree", "b-%d.tar", label_from_dir="cls", **files)
    assert "classes" not in keys("b-0.tar")
    assert "table" not in keys("b-0.tar")
    assert {each["cls"] for each in tarkit.open("b-0.tar")} == {b"2"}


def test_shards_that_are_there(here: Path) -> None:
    """Existing shards are an error before the listing; force replaces them, resume keeps those that are as planned."""
    fill()
    names = [shard.name for shard in tarkit.shard("tree", "a-%d.tar", count=4)]
    before = [Path(name).read_bytes() for name in names]
    with pytest.raises(tarkit.TarkitError, match=r"(?m)^a-0\.tar and 3 more: there are shards of this name$") as error:
        tarkit.shard("tree", "a-%d.tar", count=4)
    hint = "resume keeps those that are as planned, update packs what is new, force replaces them"
    assert error.value.hint == hint
    os.unlink(names[1])
    kept = os.stat(names[0]).st_ino
    assert [shard.name for shard in tarkit.shard("tree", "a-%d.tar", count=4, resume=True)] == names
    assert os.stat(names[0]).st_ino == kept
    assert [Path(name).read_bytes() for name in names] == before
    Path("a-9.tar").write_bytes(b"of an earlier plan")
    with pytest.raises(tarkit.TarkitError, match=r"(?m)^a-9\.tar: exists, but is not in the plan$"):
        tarkit.shard("tree", "a-%d.tar", count=4, resume=True)
    tarkit.shard("tree", "a-%d.tar", count=4, force=True)
    assert os.stat(names[0]).st_ino != kept
    assert not os.path.exists("a-9.tar")


@each_row("when", ["listed", "written"])
def test_a_file_that_is_gone(when: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample of a removed file is dropped with a warning, or is an error, for a removal in the listing or later."""
    fill()
    sizes, check = LocalFiles.sizes, Packer.check

    def listed(self: LocalFiles, path: bytes, names: list[bytes]) -> Any:
        if path.endswith(b"dog/"):
            Path("tree/dog/4.png").unlink()
        return sizes(self, path, names)

    def checked(*given: Any) -> None:
        Path("tree/dog/4.png").unlink()
        check(*given)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "sizes", listed) if when == "listed" else patch.setattr(Packer, "check", checked)
        with pytest.raises((tarkit.TarkitError, OSError), match=r"dog/4\.png"):
            tarkit.shard("tree", "a-%d.tar")
        assert [path.name for path in Path().iterdir()] == ["tree"]
        fill()
        messages: list[str] = []
        (shard,) = tarkit.shard("tree", "a-%d.tar", match="dog", skip_missing=True, on_problem=messages.append)
    assert keys(shard.name) == "dog/3 dog/link"
    assert any("dog/4.png" in text for text in messages), messages


@each_row(
    "options,kind,message",
    [
        ({"directory": "nix"}, FileNotFoundError, "nix"),
        ({"directory": "tree/cat/1.jpg"}, tarkit.Usage, "is not a directory"),
        ({"key": "base", "rename": "key"}, tarkit.TarkitError, "1.jpg"),
        ({"require": "txt"}, tarkit.TarkitError, "a field that require does not name [missing-field]"),
        ({"join": "nix.csv:name"}, OSError, "nix.csv"),
        ({"label_from_dir": "cls", "classes": "nix"}, OSError, "nix"),
    ],
)
def test_errors(options: dict[str, Any], kind: type[Exception], message: str, here: Path) -> None:
    """Errors are raised before anything is written."""
    fill()
    for dry_run in (False, True):
        with pytest.raises(kind) as caught:
            tarkit.shard(**{"directory": "tree", "template": "out-%d.tar", "dry_run": dry_run, **options})
        assert message in str(caught.value)
    assert os.listdir() == ["tree"]


def test_errors_of_outputs(here: Path) -> None:
    """A missing directory, stdout, and too few names are errors."""
    fill()
    with pytest.raises(FileNotFoundError, match=r"nix/a-0\.tar"):
        tarkit.shard("tree", "nix/a-%d.tar")
    with pytest.raises(tarkit.Usage, match="stdout"):
        tarkit.shard("tree", "-")
    with pytest.raises(tarkit.TarkitError, match="too few names"):
        tarkit.shard("tree", "a-{0..3}.tar", count=1)
    with pytest.raises(tarkit.Usage, match="processes=-1: it is at least 0"):
        tarkit.shard("tree", "a-%d.tar", processes=-1)
    assert os.listdir() == ["tree"]


@each_row(
    "options,message",
    [
        ({"count": 0}, "count=0: it is at least 1"),
        ({"shards": -1}, "shards=-1: it is at least 1"),
        ({"size": 0}, "size=0: it is at least 1"),
        ({"size": "10Q"}, "10Q"),
        ({"size_rule": "nix"}, "size_rule='nix'"),
        ({"dirs": "keep"}, "dirs='keep': it is one of pack, separate, collapse"),
        ({"rename": "nix"}, "rename='nix'"),
        ({"symlinks": "nix"}, "symlinks='nix'"),
        ({"on_missing": "skip"}, "on_missing='skip': it is one of error, warn, keep, exclude"),
        ({"sort": "nix"}, "sort 'nix': not key"),
        ({"key": "("}, "key '('"),
        ({"match": "("}, "match '('"),
        ({"require": "|"}, "require '|': an empty name of a field"),
        ({"label_from_dir": "a/b"}, "label_from_dir 'a/b': not FIELD"),
        ({"shards": 2, "count": 3}, "cannot be used"),
        ({"shards": 2, "dirs": "separate"}, "cannot be used"),
        ({"classes": "file"}, "classes and classes_out require label_from_dir"),
        ({"classes_out": "file"}, "classes and classes_out require label_from_dir"),
        ({"shards": 2, "size": "9K"}, "shards and even cannot be used with count or size"),
        ({"even": True, "dirs": "collapse"}, "shards and even cannot be used with dirs='collapse'"),
        ({"shards": 2, "map": "m"}, "shards and even cannot be used with map"),
        ({"map_sep": ","}, "map_sep and unmatched require map"),
        ({"update": True, "label_from_dir": "cls"}, "update requires the numbers of the classes"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str, here: Path) -> None:
    """Arguments out of range are errors of the call, since samples would be missing or packed differently."""
    with pytest.raises(tarkit.Usage) as caught:
        tarkit.shard(here, **options)
    assert message in str(caught.value)
