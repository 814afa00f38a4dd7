"""`python3 -m tarkit.demo`: data to try tarkit on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarkit import demo, demo_recipes
from tests._tools import each_row


def test_each_picture_has_a_caption_and_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many samples as the message says, each in the directory of its class."""
    monkeypatch.setattr(demo, "CLASSES", {"sea": 2, "desert": 1})
    pictures = tmp_path / "pictures"

    demo.main([str(pictures), "2"])
    assert capsys.readouterr().out == f"6 pictures in {pictures}\n"
    names = [f"sea/000{i}" for i in range(1, 5)] + ["desert/0005", "desert/0006"]
    written = sorted(str(path.relative_to(pictures)) for path in pictures.rglob("*.*"))
    assert written == sorted(f"{name}.{field}" for name in names for field in ("png", "txt", "json"))


def test_the_files_of_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are those that tests/test_readme.py runs the recipes with."""
    demo.main(["--recipes", str(tmp_path / "try")])
    written = {str(path.relative_to(tmp_path / "try")): path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert capsys.readouterr().out == f"{len(written)} files in {tmp_path / 'try'}\n"
    assert written == demo_recipes.files()


@each_row(
    ("words", "said"),
    [
        ([], "the following arguments are required: DIRECTORY"),
        (["a", "b"], "argument SCALE: invalid int value: 'b'"),
        (["a", "0"], "SCALE is a number of 1 or more"),
        (["a", "2", "--recipes"], "does not go with --recipes"),
        (["a", "1", "2"], "unrecognized arguments: 2"),
        (["--recipe", "a", "--photos"], "unrecognized arguments: --photos"),
        (["."], ". is there already: remove it, or name another directory"),
    ],
)
def test_wrong_words(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error, or a directory that exists, is said, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        demo.main(words)
    assert said in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """--help says what there is, and writes nothing."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        demo.main(["--help"])
    assert "--recipes" in capsys.readouterr().out
    assert not [*tmp_path.iterdir()]
