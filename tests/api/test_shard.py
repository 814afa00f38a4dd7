"""tarkit.shard: the shards of `tarkit shard`, to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.packing.files import LocalFiles
from tarkit.packing.packer import Packer
from tests._tools import each_row
from tests.api._inputs import write_tree
from tests.conftest import Run, keys


def fill() -> None:
    """Write a tree of three directories, with links, a table and a list of classes."""
    shutil.rmtree("tree", ignore_errors=True)
    Path("tree/table.csv").write_text(write_tree())
    Path("tree/classes").write_text("pig\ndog\ncat\nlink\n.\n")


def test_new_files(run: Run) -> None:
    """They are packed into new shards, and reported if there are none."""
    fill()
    for folder in ("cli", "api"):
        Path(folder).mkdir()
        run("shard", "tree", "--match", "cat", "-c", "4", "-o", f"{folder}/%d.tar")
    run("shard", "tree", "--update", "--exclude", "*.csv", "-c", "4", "-o", "cli/%d.tar")
    options: dict[str, Any] = {"update": True, "exclude": "*.csv", "count": 4, "on_problem": lambda text: None}
    planned = tarkit.shard("tree", "api/%d.tar", dry_run=True, **options)
    written = tarkit.shard("tree", "api/%d.tar", **options)
    assert [shard._replace(sha256="", stored=0) for shard in written] == planned
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
