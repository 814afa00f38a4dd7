"""The recipe that trains a model, run in an empty directory as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests._served import served

PAGE = Path(__file__).resolve().parents[2] / "docs/recipes/train.md"
SECTION = "From directories of pictures to a trained model"

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]


def test_the_recipe_trains_a_model(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The loss falls in each epoch, most pictures put aside are recognised, and the printed lines are of this form."""
    pytest.importorskip("PIL")
    section = PAGE.read_text().partition(f"## {SECTION}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "sh", "python", "text"]
    assert len(blocks[2][1].splitlines()) <= 32
    tools = served(tmp_path_factory.getbasetemp())
    ran = [
        subprocess.run(
            [sys.executable, "-c", text] if language == "python" else ["bash", "-euc", f'PATH="{tools}:$PATH"\n{text}'],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for language, text in blocks[:3]
    ]
    assert [each.returncode for each in ran] == [0, 0, 0], ran[-1].stderr
    *losses, right = re.findall(r"[0-9.]+(?=$|%)", ran[-1].stdout, re.MULTILINE)
    assert len(losses) == 3
    assert sorted(map(float, losses), reverse=True) == list(map(float, losses))
    assert float(losses[-1]) < float(losses[0]) / 2
    assert int(right) > 80
    numbers = re.compile(r"[0-9.]+")
    assert numbers.sub("#", ran[-1].stdout) == numbers.sub("#", blocks[3][1])
