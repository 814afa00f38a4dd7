"""The recipes that train a model, run in an empty directory as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests._served import served
from tests.stores._s3 import s3_server
from tests.stores._servers import KEYS

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = re.compile(r"[0-9.]+")

pytestmark = [pytest.mark.torch, pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")]


def blocks_of(title: str) -> list[tuple[str, str]]:
    """Return the blocks of a section: languages and texts."""
    section = (ROOT / "docs/recipes/train.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def run(tools: Path, language: str, text: str, **variables: str) -> str:
    """Run a block in this directory; return what it prints."""
    programs = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = [sys.executable, "-c", text] if language == "python" else ["bash", "-euc", text]
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Change to a directory with the shards of the recipes; return the directory of the commands."""
    for library in ("PIL", "obstore", "torchdata"):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    tools = served(tmp_path_factory.getbasetemp())
    for block in blocks_of("From directories of pictures to a trained model")[:2]:
        run(tools, *block)
    return tools


def test_from_directories_to_a_model(tools: Path) -> None:
    """The loss falls in each epoch, and the printed lines are of this form."""
    paint, pack, train, shown = blocks_of("From directories of pictures to a trained model")
    assert [language for language, _ in (paint, pack, train, shown)] == ["python", "sh", "python", "text"]
    assert len(train[1].splitlines()) <= 32
    printed = run(tools, *train)
    check_losses(printed, shown[1])
    assert int(NUMBERS.findall(printed)[-1]) > 80


def test_from_a_bucket_to_a_model(tools: Path) -> None:
    """The same for ranks that stop in the middle and go on as another number, with each sample once in an epoch."""
    upload, (language, text), start, shown = blocks_of("From a bucket to a trained model")
    assert (language, len(text.splitlines()) <= 50) == ("python", True)
    Path("train.py").write_text(text)
    with s3_server() as server:
        how = {**KEYS, "AWS_ENDPOINT_URL": server.url}
        programs = Path(sys.executable).parent  # `tools` are copies of this process, which may have used stores
        run(programs, *upload, **how)
        for path in Path().glob("train-*.tar"):
            path.unlink()
        printed = run(programs, *start, **how)
    check_losses(printed, shown[1])
    assert printed.splitlines()[-1] == shown[1].splitlines()[-1] == "720 samples, 720 different"


def check_losses(printed: str, shown: str) -> None:
    """Check that losses fall, and that lines are those that the page shows, but for the numbers."""
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", printed)]
    assert len(losses) == 3
    assert sorted(losses, reverse=True) == losses
    assert losses[-1] < losses[0] / 2
    assert NUMBERS.sub("#", printed) == NUMBERS.sub("#", shown)
