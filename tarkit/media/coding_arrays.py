"""Decode and encode numpy arrays: npy holds one, npz several by name.

Format: numpy.lib.format. numpy is imported at the first use.
"""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import TarkitError, show, spell
from tarkit.media.equality import equal_arrays
from tarkit.media.libraries import media_library
from tarkit.media.limits import check_decoded
from tarkit.sizes import plural

_BEGINNINGS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # of npy, of zips and of empty ones
_ENDING = ".npy"  # of the entries of npz


def decode(data: bytes, pickles: bool = False) -> Any:
    """Return the array, for npz a dict of arrays. Raises TarkitError without numpy, else numpy's exceptions."""
    numpy = media_library("numpy", "arrays")
    if not pickles and not data.startswith(_BEGINNINGS):  # which numpy takes for a pickle
        raise TarkitError("the content is no npy and no npz")
    file = io.BytesIO(data)
    loaded = numpy.load(file, allow_pickle=pickles)
    if hasattr(loaded, "files"):
        with loaded:
            check_decoded(sum(entry.file_size for entry in loaded.zip.infolist()), len(data))
            arrays = {}
            for entry in loaded.zip.namelist():  # `files` has names without .npy, which may be those of other entries
                name = entry.removesuffix(_ENDING)
                if name in arrays:
                    raise TarkitError(f"two arrays are called {show(name)}")
                arrays[name] = loaded[entry]
            return arrays
    if file.tell() < len(data):
        raise TarkitError(f"{plural(len(data) - file.tell(), 'byte follows', 'bytes follow')} the array")
    return loaded


def encode(name: str, value: Any, pickles: bool = False) -> bytes:
    """Return the bytes of an array, or of a dict of arrays if `name` is npz. Raises TarkitError for other values."""
    numpy = media_library("numpy", "arrays", encode=True)
    file = io.BytesIO()
    if name == "npz":
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise TarkitError(f"it takes a dict of arrays, not {type(value).__name__}")
        _write_npz(numpy, file, value, pickles)
    else:
        _check_array(numpy, value, pickles)
        numpy.save(file, value, allow_pickle=pickles)
    return file.getvalue()


def _write_npz(numpy: Any, file: io.BytesIO, arrays: dict[str, Any], pickles: bool) -> None:
    """Write the file that numpy.savez writes, whose own arguments cannot be names of arrays."""
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            if "\0" in name:
                raise TarkitError(f"the name {show(name)} of an array has a NUL, which a zip cannot hold")
            if name + _ENDING in arrays:
                raise TarkitError(
                    f"numpy.load would read the array {show(name)} under the name {show(name + _ENDING)} too",
                    "rename one of them",
                )
            _check_array(numpy, array, pickles)
            with archive.open(name + _ENDING, "w", force_zip64=True) as entry:
                numpy.lib.format.write_array(entry, numpy.asanyarray(array), allow_pickle=pickles)


def _check_array(numpy: Any, value: Any, pickles: bool) -> None:
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise TarkitError(f"it takes a numpy array, not {type(value).__name__}", "numpy.asarray() makes one of it")
    refuse_mask(value)
    if value.dtype.hasobject and not pickles:
        raise TarkitError("an array of Python objects would be a pickle", f"{spell('allow_pickle')} writes it")


def refuse_mask(array: Any) -> None:
    """Raise TarkitError for a masked array: the file would have the values alone."""
    if hasattr(array, "mask") and hasattr(array, "filled"):
        raise TarkitError("a masked array would lose its mask", "filled() makes a plain array of it")


def same(value: Any, original: bytes, pickles: bool = False) -> bool:
    """Whether arrays have the type, shape and numbers of the original."""
    stored = decode(original, pickles)
    if not isinstance(stored, dict):
        return equal_arrays(value, stored)
    if not isinstance(value, dict) or list(value) != list(stored):
        return False
    return all(equal_arrays(value[name], stored[name]) for name in stored)
