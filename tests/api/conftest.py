"""Fixtures of the tests of the API."""

from __future__ import annotations

from pathlib import Path

import pytest

import tarkit
from tests.api._inputs import write_inputs


@pytest.fixture
def data(here: Path) -> tarkit.Dataset:
    """Return a dataset of ten samples in the current directory."""
    write_inputs()
    return tarkit.open("a.tar")
