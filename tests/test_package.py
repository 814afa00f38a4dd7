"""What is published: versions and requirements that several files name, links of the page of an index, the workflow."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tarkit

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
IN_CONDA = {"isal": "python-isal"}  # names that differ


def loaded(name: str) -> dict[str, Any]:
    """Return the content of a file in YAML."""
    content: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return content


def test_versions() -> None:
    """The citation and the recipe are of this version."""
    assert loaded("CITATION.cff")["version"] == tarkit.__version__
    assert loaded("conda/recipe.yaml")["context"]["version"] == tarkit.__version__


def test_requirements_of_the_recipe() -> None:
    """The recipe of conda asks for what the package requires, and builds with what it is built with."""
    needs = loaded("conda/recipe.yaml")["requirements"]

    def named(requirements: list[str]) -> set[tuple[str, str]]:
        pairs = (re.match(r"([\w.-]+)\s*([^;]*)", each) for each in requirements)
        return {(IN_CONDA.get(pair[1], pair[1]), pair[2].strip()) for pair in pairs if pair}

    assert named(needs["run"]) - {("python", "")} == named(PROJECT["project"]["dependencies"])
    assert named(needs["host"]) - {("python", ""), ("pip", "")} == named(PROJECT["build-system"]["requires"])


def test_links_of_the_index() -> None:
    """On the page of a package index all links and pictures of README.md are absolute, and name files that exist."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for rule in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert "\ntarkit needs Python 3.11 or later on Linux or macOS:\n\n```console\npip install tarkit " in text
    assert "pip install 'tarkit[s3]' " in text
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    assert [each for each in targets if not each.startswith("https://")] == []
    ours = (re.search(r"/tarkit/tarkit/(?:blob/)?v\$HFPR_VERSION/([^#]+)", each) for each in targets)
    paths = [each[1] for each in ours if each]
    assert paths
    assert [each for each in paths if not (ROOT / each).exists()] == []


def test_the_workflow() -> None:
    """Its steps are scripts and actions at a commit; nothing but the job that publishes gets an identity."""
    workflow = loaded(".github/workflows/ci.yml")
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) if "uses" in step else True
            assert (ROOT / step["run"].split()[0]).exists() if "run" in step else True
        assert ("id-token" in job["permissions"]) == (name == "publish")
