"""What can go wrong, as one family; `cli/app.py` turns it into an exit status in one place.

TarkitError            1   anything the user can understand; str(error) is the whole message
├── Problem            1   something is wrong with an archive: archive, offset, detail, [name]
├── MissingLibrary     1   an optional library is needed; the hint installs it
├── Unsupported        1   valid input that this command cannot work on
├── CommandFailed      1   a command that we ran ended with a status other than 0
└── Usage              2   the words of the command line do not make sense together
Interrupted                a signal asked us to stop (BaseException: nothing may swallow it)
"""

from __future__ import annotations

import errno
import os
import signal


class TarkitError(Exception):
    """An error that is the user's to understand. `hint`, when there is one, says how to repair it."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Problem(TarkitError):
    """Something is wrong with an archive.

    `name` is one of `tarkit.problems.PROBLEMS`, `offset` counts bytes of the (decompressed) archive.
    """

    def __init__(self, name: str, archive: str, offset: int | None, detail: str, hint: str | None = None) -> None:
        where = f"{archive}: " if offset is None else f"{archive}: at {offset}: "
        super().__init__(f"{where}{detail} [{name}]", hint)
        self.name = name
        self.archive = archive
        self.offset = offset
        self.detail = detail


class MissingLibrary(TarkitError):
    """An optional library is needed and cannot be imported. It ends the run, whatever becomes of samples that fail."""

    def __init__(self, what: str, library: str, extra: str, otherwise: str = "") -> None:
        """`what` needs `library`, which the extra `extra` brings; the hint can end with what to do `otherwise`."""
        super().__init__(f"{what} needs {library}, which is not installed", f"pip install 'tarkit[{extra}]'{otherwise}")


class Unsupported(TarkitError):
    """Valid input, but not for this command."""


class CommandFailed(TarkitError):
    """A command we started ended with a status other than 0 (negative: a signal), `tail` is the end of its stderr."""

    def __init__(self, command: str, status: int, tail: str = "", hint: str | None = None) -> None:
        ended = f"ended with status {status}" if status >= 0 else f"was ended by {signal_name(-status)}"
        words = f": {tail}" if tail else ""
        super().__init__(f"command {ended}: {command}{words}", hint)
        self.command = command
        self.status = status


def system_hint(error: OSError, path: str | bytes | None = None) -> str | None:
    """The hint for an error of the operating system about `path`, or the file that it names; None if there is none."""
    if error.errno == errno.EMFILE:
        return "raise the limit with ulimit -n"
    named = error.filename if path is None else path
    if not isinstance(named, (str, bytes)):
        return None
    name = os.fsdecode(named)
    folder = os.path.dirname(name)
    if isinstance(error, FileNotFoundError) and folder and not os.path.isdir(folder):
        return f"there is no folder {folder}: make it with mkdir -p"
    if isinstance(error, PermissionError):
        from shlex import quote

        there = name if os.path.lexists(name) else folder or "."
        return f"ls -ld {quote(there)} shows who may read and write it"
    return "a file is needed here, not a directory" if isinstance(error, IsADirectoryError) else None


def signal_name(number: int) -> str:
    """The name of a signal, for a message."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time one
        return f"signal {number}"


class Usage(TarkitError):
    """The words of the command line do not make sense (together)."""

    exit_code = 2


class Interrupted(BaseException):
    """A signal asked us to stop: clean up, then die by that signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def show(name: bytes | str) -> str:
    """A name for a message: in quotes, on one line, what is not printable text as a `\\xNN` escape of its bytes."""
    text = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
    return "'" + printable(text.replace("\\", "\\\\")) + "'"


def printable(text: str) -> str:
    """`text` on one line: what is not printable as `\\xNN` escapes of its bytes, those that are no UTF-8 too."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    raw = char.encode("utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in raw)
