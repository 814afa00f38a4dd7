"""Decode and encode numpy arrays: npy holds one, npz several by name.

Format: numpy.lib.format. numpy is imported at the first use.
"""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import MissingLibrary, TarkitError, spell
from tarkit.media.equality import equal_arrays

_BEGINNINGS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # of npy, of zips and of empty ones


def load_numpy(what: str = "arrays", extra: str = "numpy", *, encode: bool = False) -> Any:
    """Return the library, to decode or to encode `what`; raise MissingLibrary if it is not installed."""
    try:
        import numpy
    except ImportError:
        raise MissingLibrary(coding_of(what, encode), "numpy", extra) from None
    return numpy


def coding_of(what: str, encode: bool) -> str:
    """Return what a library is missing for, for a message."""
    return f"to encode {what}" if encode else f"{spell('decode')} of {what}"


def decode(data: bytes, pickles: bool = False) -> Any:
    """Return the array, for npz a dict of arrays. Raises TarkitError without numpy, else numpy's exceptions."""
    numpy = load_numpy()
    if not pickles and not data.startswith(_BEGINNINGS):  # which numpy takes for a pickle
        raise TarkitError("the content is no npy and no npz")
    loaded = numpy.load(io.BytesIO(data), allow_pickle=pickles)
    if hasattr(loaded, "files"):
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    return loaded


def encode(name: str, value: Any, pickles: bool = False) -> bytes:
    """Return the bytes of an array, or of a dict of arrays if `name` is npz. Raises TarkitError for other values."""
    numpy = load_numpy(encode=True)
    file = io.BytesIO()
    if name == "npz":
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise TarkitError(f"it takes a dict of arrays, not {type(value).__name__}")
        for each in value.values():
            _check_array(numpy, each, pickles)
        numpy.savez(file, **value)
    else:
        _check_array(numpy, value, pickles)
        numpy.save(file, value, allow_pickle=pickles)
    return file.getvalue()


def _check_array(numpy: Any, value: Any, pickles: bool) -> None:
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise TarkitError(f"it takes a numpy array, not {type(value).__name__}", "numpy.asarray() makes one of it")
    if value.dtype.hasobject and not pickles:
        raise TarkitError("an array of Python objects would be a pickle", f"{spell('allow_pickle')} writes it")


def same(value: Any, original: bytes, pickles: bool = False) -> bool:
    """Whether arrays have the type, shape and numbers of the original."""
    known = decode(original, pickles)
    if not isinstance(known, dict):
        return equal_arrays(value, known)
    if not isinstance(value, dict) or list(value) != list(known):
        return False
    return all(equal_arrays(value[name], known[name]) for name in known)
