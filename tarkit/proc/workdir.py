"""Private directories for commands, in one directory of this run that goes with it."""

from __future__ import annotations

import os
import stat

from tarkit.streams.tempfile import FALLBACK

places: set[str] = set()
"""The directories of runs that are to go."""


def remove_places() -> None:
    """Remove what is still there: the last act before a signal ends us."""
    for path in list(places):
        remove_tree(os.fsencode(path))
        places.discard(path)


class Place:
    """A new directory in `folder` for all that a run has to unpack. `keep` leaves it, and all that is in it."""

    def __init__(self, folder: str | None = None, keep: bool = False) -> None:
        self.keep = keep
        base = os.path.abspath(folder or FALLBACK)
        for attempt in range(1000):
            self.path = os.path.join(base, f".tarkit-{os.getpid()}-{attempt}")
            if not keep:
                places.add(self.path)
            try:
                os.mkdir(self.path, 0o700)
                return
            except FileExistsError:
                places.discard(self.path)
            except OSError:
                places.discard(self.path)
                raise
        raise FileExistsError(17, "too many directories of this name", self.path)

    def close(self) -> None:
        """Remove it."""
        if not self.keep:
            remove_tree(os.fsencode(self.path))
            places.discard(self.path)

    def folder(self, name: bytes) -> Folder:
        """A new private directory in it, called `name` or something like it."""
        path = os.path.join(os.fsencode(self.path), name)
        again = 1
        while True:
            try:
                os.mkdir(path, 0o700)
                return Folder(path, self.keep)
            except FileExistsError:  # of an earlier attempt
                again += 1
                path = os.path.join(os.fsencode(self.path), b"%b-%d" % (name, again))


class Folder:
    """A private directory, which goes when nobody refers to it."""

    def __init__(self, path: bytes, keep: bool) -> None:
        self.path = path
        self.keep = keep

    def __del__(self) -> None:
        if not self.keep:
            remove_tree(self.path)


def remove_tree(root: bytes) -> None:
    """Remove a directory with all that is in it, as far as that is possible. Links are removed, never followed."""
    for _ in range(3):  # somebody may still be writing to it
        folders = [root]
        for folder in folders:  # it grows
            for attempt in range(2):
                try:
                    folders += _emptied(folder)
                    break
                except PermissionError:
                    if attempt == 0:
                        _open_up(folder)
                except OSError:
                    break
        for folder in reversed(folders):
            try:
                os.rmdir(folder)
            except OSError:
                continue
            if folder is root:
                return
        if not os.path.lexists(root):
            return


def _emptied(folder: bytes) -> list[bytes]:
    """Remove what is in a directory, but for other directories, which are handed back."""
    with os.scandir(folder) as found:
        entries = list(found)
    inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
    return inner


def _open_up(folder: bytes) -> None:
    try:
        if stat.S_ISDIR(os.lstat(folder).st_mode):
            os.chmod(folder, 0o700)
    except OSError:
        pass
