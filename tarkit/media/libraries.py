"""The optional libraries that decode and encode values: each is imported where it is used first, and kept quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tarkit.errors import load_library, spell

_LIBRARIES = {  # module: the library, and the extra of tarkit that installs it
    "numpy": ("numpy", "numpy"),
    "torch": ("torch", "torch"),
    "msgpack": ("msgpack", "msgpack"),
    "cbor2": ("cbor2", "cbor"),
    "soundfile": ("soundfile", "sound"),
    "PIL.Image": ("Pillow", "images"),
    "simplejpeg": ("simplejpeg", "images"),
    "av": ("PyAV", "video"),
}

_LOADED: dict[str, Any] = {}  # modules that are imported to their ends, in whichever thread


def media_library(module: str, content: str, *, encode: bool = False, extra: str = "") -> Any:
    """Return a module, to decode or to encode `content`. Raises MissingLibrary if it is not installed."""
    if (found := _LOADED.get(module)) is not None and found is sys.modules.get(module):
        return found  # an import takes 4 us, and a picture asks for several
    library, usual = _LIBRARIES[module]
    purpose = f"to encode {content}" if encode else f"{spell('decode')} of {content}"
    _LOADED[module] = load_library(module, purpose, library, extra or usual)
    return _LOADED[module]


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Discard what is written to descriptor 2 meanwhile, by all threads: damage is reported otherwise."""
    try:
        saved = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, 2)
        os.close(null)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
