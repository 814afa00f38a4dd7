"""The optional accelerator, compiled from `_fast.c`. Without it, or with TARKIT_PURE=1, Python does all of the work.

`reader.TarReader.plain_samples` calls it. It parses headers and groups plain entries into samples in one loop, so it is
the one place in this package that knows what a sample is. The reference, which reads whatever it leaves, is
`reader.TarReader.raw` together with `samples.reader.EntryGroups.read`. Both ways give the same samples, problems and
bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

FindSamples = Callable[[bytes | memoryview, int, int, int], list[tuple[bytes, list[Any]]]]


def _is_off() -> bool:
    return os.environ.get("TARKIT_PURE", "0") not in ("", "0")


def _load() -> FindSamples | None:
    if _is_off():
        return None
    try:
        from tarkit.tar._fast import samples  # type: ignore[import-not-found]
    except ImportError:
        return None
    return samples  # type: ignore[no-any-return]


find_samples: Final = _load()
"""`find_samples(data, at, base, whole)` returns the plain samples that follow each other from `data[at]` on.

There are at most 64, so that memory is bounded; the last one is before the first sample that is not plain, or whose end
is not in `data`. `base` is the offset of `data` in the archive, `whole` the length of the archive. None without the
accelerator.
"""


def used() -> str:
    """Return whether the accelerator is used, for `tarkit --version -v`."""
    if find_samples is not None:
        return "used"
    return "turned off by TARKIT_PURE" if _is_off() else "not compiled; tarkit does the same without it, slower"
