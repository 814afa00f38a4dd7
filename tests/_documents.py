"""scripts/_docs_run.py, which runs the blocks of documents, as a module for tests."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

_SCRIPTS = str(Path(__file__).resolve().parent.parent / "scripts")
_written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
sys.path.append(_SCRIPTS)
documents = import_module("_docs_run")
sys.path.remove(_SCRIPTS)
sys.dont_write_bytecode = _written


def text_of(document: Path) -> str:
    """Return the text of a document, without the tour of README.md that the home page of the site has too."""
    return re.sub(r"<!-- tour -->.*<!-- /tour -->", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
