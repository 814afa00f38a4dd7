"""`python3 -m tarkit.demo`: data to try tarkit on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarkit import demo
from tests._tools import each_row


def test_each_picture_has_a_caption_and_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are as many samples as the message says, each in the directory of its class."""
    monkeypatch.setattr(demo, "CLASSES", {"sea": 2, "desert": 1})
    pictures = tmp_path / "pictures"

    assert demo.main([str(pictures), "2"]) is None
    assert capsys.readouterr().out == f"6 pictures in {pictures}\n"
    names = [f"sea/000{i}" for i in range(1, 5)] + ["desert/0005", "desert/0006"]
    written = sorted(str(path.relative_to(pictures)) for path in pictures.rglob("*.*"))
    assert written == sorted(f"{name}.{field}" for name in names for field in ("png", "txt", "json"))


@each_row("words", [[], ["a", "b"], ["a", "1", "2"], ["."]])
def test_wrong_words(words: list[str]) -> None:
    """A usage error, or a directory that exists, is said."""
    said = demo.main(words)
    assert said is not None
    assert said.startswith(". is there already" if words == ["."] else "usage: python3 -m tarkit.demo DIRECTORY")
