"""The optional accelerator, compiled from `_fast.c`. Without it, or with TARKIT_PURE=1, Python does all of the work.

`reader.TarReader` calls it. It parses headers and groups plain entries into samples in one loop, so it is the one place
in this package that knows what a sample is. The reference, which reads whatever it leaves, is `reader.TarReader.raw`
together with `samples.reader.EntryGroups.read`; `samples.reader.find_run` makes runs of that, with other ends. All ways
give the same samples, problems and bytes. `gather` is for what writes samples in another order.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from tarkit.streams.source import Gather

FindSamples = Callable[[bytes | memoryview, int, int, int], list[tuple[bytes, list[Any]]]]
Run = tuple[list[bytes], bytes, list[bytes], Any]
FindRun = Callable[[bytes | memoryview, int, int, int, bytes | None], Run | None]
FindRunOfFile = Callable[[int, int, int, int, int, int], Run | None]


def _is_off() -> bool:
    return os.environ.get("TARKIT_PURE", "0") not in ("", "0")


def _load() -> ModuleType | None:
    if _is_off():
        return None
    try:
        return import_module("tarkit.tar._fast")
    except ImportError:
        return None


_compiled = _load()

find_samples: Final[FindSamples | None] = getattr(_compiled, "samples", None)
"""`find_samples(data, at, base, whole)` returns the plain samples that follow each other from `data[at]` on.

There are at most 64, so that memory is bounded; the last one is before the first sample that is not plain, or whose end
is not in `data`. `base` is the offset of `data` in the archive, `whole` the length of the archive. None without the
accelerator.
"""

find_run: Final[FindRun | None] = getattr(_compiled, "run", None)
"""`find_run(data, at, base, whole, field)` returns the same samples as a run, up to 1024 with safe names.

These are the keys, the ends of the samples as native int64, the contents of `field`, and the last entry. None if there
is no sample. `samples.reader.find_run` is the same in Python, with other ends.
"""

find_run_of_file: Final[FindRunOfFile | None] = getattr(_compiled, "run_of_file", None)
"""`find_run_of_file(fd, offset, at, whole, least, most)` returns such a run of samples that are too large for memory.

The archive begins at `offset` in the file, whose headers are read there. The run ends with the first sample of fewer
than `least` bytes, and with the one that makes it longer than `most`.
"""

gather: Final[Gather | None] = getattr(_compiled, "gather", None)
"""`gather(fds, positions, sizes)` returns ranges of files, one after the other, `streams.source.gather` without errors.

None if a range is not all there, or cannot be read, there are more than 256, or they are longer than 64 MiB together.
"""


def used() -> str:
    """Return whether the accelerator is used, for `tarkit --version -v`."""
    if _compiled is not None:
        return "used"
    return "turned off by TARKIT_PURE" if _is_off() else "not compiled; tarkit does the same without it, slower"
