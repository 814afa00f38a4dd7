"""One run over a dataset: its counts, messages and warnings. `cli.console` has the kind that writes to a terminal."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tarkit.api.output import refuse_input
from tarkit.errors import Usage
from tarkit.problems import Policy
from tarkit.samples.sample import TarSample
from tarkit.stores import connect, schemes
from tarkit.streams.location import Location
from tarkit.streams.text import file_label, parse_file

if TYPE_CHECKING:
    from tarkit.proc.engine import CommandOutput
    from tarkit.stores.store import StoreOptions

Item = TypeVar("Item")


class Run:
    """The counts and reports of one run. This kind reports warnings alone.

    Attributes:
        policy: what to do about each problem.
        samples, shards, bytes: what was read or written.
        dropped: samples that the policy left out.
        facts: what else there is to report, by name; the command line writes it to `--report`.
        places: the files that the run reads or writes besides its inputs and outputs: by their real path what each is,
            whether it is written, and its name.
        shows_progress, verbose: whether progress is shown, and every detail reported.
    """

    shows_progress = False
    verbose = False
    report: str | None = None

    def __init__(
        self,
        policy: Policy | None = None,
        tmpdir: str | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        """`on_problem` gets each warning in place of `warnings.warn`."""
        self.policy = policy or Policy(warn=self.warn)
        schemes.refuse_url(tmpdir, "tmpdir")
        self.tmpdir = tmpdir
        self.samples = self.shards = self.bytes = self.dropped = 0
        self.facts: dict[str, Any] = {}
        self.places: dict[str, tuple[str, bool, str]] = {}
        self._on_problem = on_problem

    def scratch(self, directory: str | None) -> str | None:
        """Return the directory of temporary files: that of the option, $TMPDIR, or `directory`, the output's."""
        return self.tmpdir or os.environ.get("TMPDIR") or directory

    def refuse(self, inputs: Sequence[Location], *written: str | None) -> None:
        """Raise Usage when the report, or another file that is written besides the output, is an input."""
        for path in (self.report, *written):
            refuse_input(path, inputs)

    def reserve(self, path: str | None, what: str, written: bool = True) -> None:
        """Register a file or object that is read or written; raise Usage when it is written and has a second role."""
        if path is None or path == "-":
            return
        kind, text = parse_file(path)
        if kind == "pipe":
            return
        if kind == "path":
            directory = os.path.dirname(text)
            if written and directory and not os.path.isdir(directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            try:
                if not stat.S_ISREG(os.stat(text).st_mode):
                    return
            except OSError:
                pass
        place = os.path.realpath(text) if kind == "path" else text
        other = self.places.setdefault(place, (what, written, path))
        if other[0] != what and (written or other[1]):
            raise Usage(f"{file_label(path)} is {other[0]}, and {what} too")

    def relay(self, key: bytes, log: Sequence[CommandOutput]) -> None:
        """Pass on what a command or function printed for a sample."""

    def note(self, text: str) -> None:
        """Report a detail."""

    def tell(self, text: str) -> None:
        """Report a message that is not a problem."""

    def warn(self, text: str) -> None:
        """Report a problem that does not end the run."""
        if self._on_problem is not None:
            self._on_problem(text)
        else:
            warnings.warn(text, TarkitWarning, stacklevel=_outside())

    def watch(
        self, samples: Iterator[TarSample], position: Callable[[], int], total: int | None
    ) -> Iterator[TarSample]:
        """Count the samples that pass; show progress in bytes if that is wanted."""
        counted = self._count(samples)
        return self.draw(counted, position, lambda: self.samples, total) if self.shows_progress else counted

    def _count(self, samples: Iterator[TarSample]) -> Iterator[TarSample]:
        for sample in samples:
            self.samples += sample.key is not None
            yield sample

    def draw(
        self, items: Iterator[Item], position: Callable[[], int], samples: Callable[[], int], total: int | None = None
    ) -> Iterator[Item]:
        """Show progress while items pass: bytes as `position` says, of `total` if that is known, and samples."""
        return items

    def remove_others(self, paths: Sequence[str], options: StoreOptions | None = None) -> None:
        """Remove files that have names of a series but are not among its shards."""
        for path in paths:
            if schemes.scheme_of(path):
                connect.delete_object(path, options)
            else:
                os.unlink(path)


class TarkitWarning(UserWarning):
    """A problem in an archive that does not end the run."""


def _outside() -> int:
    """Return how many frames up the caller of tarkit is, for `warnings.warn`."""
    import sys

    ours = ("tarkit.", "contextlib")  # whose wrappers stand between two functions of tarkit
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ours):
        level, frame = level + 1, frame.f_back
    return level
