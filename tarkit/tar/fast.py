"""The optional accelerator, compiled from `_fast.c`. Without it, or with TARKIT_PURE=1, Python does all of the work.

`reader.TarReader` calls it. It parses headers and groups plain entries into samples in one loop, so it is the one place
in this package that knows what a sample is. The reference, which reads whatever it leaves, is `reader.TarReader.raw`
together with `samples.reader.EntryGroups.read`; `samples.reader.find_run` makes runs of that, with other ends. All ways
give the same samples, problems and bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

FindSamples = Callable[[bytes | memoryview, int, int, int], list[tuple[bytes, list[Any]]]]
Run = tuple[list[bytes], bytes, list[bytes], Any]
FindRun = Callable[[bytes | memoryview, int, int, int, bytes | None], Run | None]
FindRunOfFile = Callable[[int, int, int, int, int, int], Run | None]


def _is_off() -> bool:
    return os.environ.get("TARKIT_PURE", "0") not in ("", "0")


def _load() -> tuple[FindSamples, FindRun, FindRunOfFile] | tuple[None, None, None]:
    if _is_off():
        return None, None, None
    try:
        from tarkit.tar._fast import run, run_of_file, samples  # type: ignore[import-not-found]
    except ImportError:
        return None, None, None
    return samples, run, run_of_file


_found = _load()

find_samples: Final = _found[0]
"""`find_samples(data, at, base, whole)` returns the plain samples that follow each other from `data[at]` on.

There are at most 64, so that memory is bounded; the last one is before the first sample that is not plain, or whose end
is not in `data`. `base` is the offset of `data` in the archive, `whole` the length of the archive. None without the
accelerator.
"""

find_run: Final = _found[1]
"""`find_run(data, at, base, whole, field)` returns the same samples as a run, up to 1024 with safe names.

These are the keys, the ends of the samples as native int64, the contents of `field`, and the last entry. None if there
is no sample. `samples.reader.find_run` is the same in Python, with other ends.
"""

find_run_of_file: Final = _found[2]
"""`find_run_of_file(fd, offset, at, whole, least, most)` returns such a run of samples that are too large for memory.

The archive begins at `offset` in the file, whose headers are read there. The run ends with the first sample of fewer
than `least` bytes, and with the one that makes it longer than `most`.
"""


def used() -> str:
    """Return whether the accelerator is used, for `tarkit --version -v`."""
    if find_samples is not None:
        return "used"
    return "turned off by TARKIT_PURE" if _is_off() else "not compiled; tarkit does the same without it, slower"
