"""The optional libraries that decode and encode values; each is imported where it is used first."""

from __future__ import annotations

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
}


def media_library(module: str, content: str, *, encode: bool = False, extra: str = "") -> Any:
    """Return a module, to decode or to encode `content`. Raises MissingLibrary if it is not installed."""
    library, usual = _LIBRARIES[module]
    purpose = f"to encode {content}" if encode else f"{spell('decode')} of {content}"
    return load_library(module, purpose, library, extra or usual)
