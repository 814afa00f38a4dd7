"""Whether two decoded values are equal, so that a value that a function did not change keeps its bytes."""

from __future__ import annotations

from typing import Any

_PLAIN = (
    "cbor2",
    "msgpack",
    "datetime",
    "decimal",
    "fractions",
    "uuid",
    "ipaddress",
    "re",
)  # their values show all they are


def equal(a: Any, b: Any) -> bool:
    """Whether two values are of one type and have the same content; False where that is not known."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, float):
        return repr(a) == repr(b)
    if a is None or isinstance(a, (str, bytes, int, complex)):
        return bool(a == b)
    if isinstance(a, (set, frozenset)):
        return a == b and sorted(map(repr, a)) == sorted(map(repr, b))
    library = type(a).__module__.partition(".")[0]
    if library in _PLAIN:
        return repr(a) == repr(b) and bool(a == b)
    if library == "numpy":
        return equal_arrays(a, b)
    if library == "torch":
        return _equal_tensors(a, b)
    return library == "PIL" and _equal_pictures(a, b)


def equal_arrays(a: Any, b: Any) -> bool:
    """Whether two arrays of numpy have the same type, shape and bytes; False for masked ones and Python objects."""
    import numpy

    if not isinstance(a, (numpy.ndarray, numpy.generic)) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    if isinstance(a, numpy.ma.MaskedArray) or isinstance(b, numpy.ma.MaskedArray):
        return False
    return not a.dtype.hasobject and bool(a.tobytes() == b.tobytes())


def _equal_tensors(a: Any, b: Any) -> bool:
    """Whether two tensors have the same type, shape and bits; False for those that are not plain and on the CPU."""
    import torch

    for tensor in (a, b):
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            return False
        if tensor.is_quantized or tensor.requires_grad:
            return False
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))))


def _equal_pictures(a: Any, b: Any) -> bool:
    """Whether two images of Pillow have the same mode, size, pixels and palette, and are at the same frame."""
    if not hasattr(a, "tobytes") or a.mode != b.mode or a.size != b.size:
        return False
    if getattr(a, "tell", int)() != getattr(b, "tell", int)():
        return False
    return bool(a.tobytes() == b.tobytes() and a.getpalette() == b.getpalette())
