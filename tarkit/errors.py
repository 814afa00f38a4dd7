"""The exceptions of tarkit, each with the exit status that `cli/app.py` returns for it.

TarkitError            1   an error for the user; str(error) is the whole message
├── Problem            1   a defect of an archive: archive, offset, detail, [name]
├── MissingLibrary     1   an optional library is not installed; the hint installs it
├── Unsupported        1   valid input that cannot be processed
├── MissingKey         1   no sample has a key; it is a KeyError too
├── MissingFile        1   an input does not exist; it is a FileNotFoundError too
├── CommandFailed      1   a command of the user ended with a status other than 0
└── Usage              2   usage error
Interrupted                a signal (BaseException, so that `except Exception` does not catch it)
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Mapping
from typing import Any

from tarkit.redaction import hide_secrets


class TarkitWarning(UserWarning):
    """A problem that does not end the run or the program: in an archive, or a writer that was never closed."""


def warn(text: str) -> None:
    """Issue a TarkitWarning, whose place is the line outside of tarkit that called it."""
    import warnings

    warnings.warn(text, TarkitWarning, stacklevel=frames_outside())


def frames_outside() -> int:
    """Return how many frames up the caller of tarkit is, for `warnings.warn`."""
    import sys

    ours = ("tarkit.", "contextlib")  # whose wrappers stand between two functions of tarkit
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ours):
        level, frame = level + 1, frame.f_back
    return level


class TarkitError(Exception):
    """An error for the user. `hint`, if any, suggests a remedy.

    It can be pickled. Each class can also be made of one argument, the message, since a DataLoader of torch makes an
    error of a worker anew in this way, with the traceback as its message.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(hide_secrets(message))
        self._hint: str | None = None
        self.hint = hint

    @property
    def hint(self) -> str | None:
        """What to do about it, or None. It is a note of the exception, too, so that tracebacks show it."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        notes = getattr(self, "__notes__", [])
        if notes and notes[0] == f"hint: {self._hint}":
            del notes[0]
        hint = None if hint is None else hide_secrets(hint)
        self._hint = hint
        if hint is not None:
            self.__notes__ = [f"hint: {hint}", *notes]

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (type(self), self.args, vars(self))


def _unpickle(kind: type[TarkitError], args: tuple[object, ...], state: dict[str, object]) -> TarkitError:
    """Return an error that was pickled; the arguments of its class are not those of the exception."""
    error = kind.__new__(kind, *args)
    error.args = args  # an OSError takes them in __init__
    vars(error).update(state)
    return error


class Problem(TarkitError):
    """A defect of an archive.

    `name` is one of `tarkit.problems.PROBLEMS`, `offset` a position in the (decompressed) archive in bytes. One that
    was made of a message alone has the name that is in it, and no other facts.
    """

    def __init__(
        self,
        name: str,
        archive: str = "",
        offset: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        if detail is None:
            super().__init__(name, hint)
            name, detail = next(reversed(re.findall(r"\[([a-z-]+)\]$", name, re.MULTILINE)), ""), name
        else:
            where = f"{archive}: " if offset is None else f"{archive}: at {offset}: "
            super().__init__(f"{where}{detail} [{name}]", hint)
        self.name = name
        self.archive = archive
        self.offset = offset
        self.detail = detail


class MissingLibrary(TarkitError):
    """An optional library that is needed is not installed. It ends a run even where failed samples are skipped."""

    def __init__(self, purpose: str, library: str = "", extra: str = "", otherwise: str = "") -> None:
        """`purpose` needs `library`, which is part of the extra `extra`; `otherwise` is appended to the hint."""
        if not library:
            super().__init__(purpose)
        else:
            needs = f"{purpose} needs {library}, which is not installed"
            super().__init__(needs, f"pip install 'tarkit[{extra}]'{otherwise}")


def load_library(module: str, purpose: str, library: str, extra: str, otherwise: str = "") -> Any:
    """Return a module of an optional library. Raises MissingLibrary, with the same words, if it is not installed."""
    from importlib import import_module

    try:
        import_module(module.partition(".")[0])
        return import_module(module)
    except (ImportError, OSError):  # OSError: without a shared library that it needs
        raise MissingLibrary(purpose, library, extra, otherwise) from None


class Unsupported(TarkitError):
    """Valid input that cannot be processed."""


class MissingKey(TarkitError, KeyError):
    """No sample has a key."""

    __str__ = Exception.__str__  # a KeyError quotes its message


class MissingFile(TarkitError, FileNotFoundError):
    """An input does not exist; `filename` is its path."""

    errno = errno.ENOENT
    strerror = os.strerror(errno)
    filename = ""
    __str__ = Exception.__str__  # the message has the name

    def __init__(self, message: str, hint: str | None = None, filename: str = "") -> None:
        super().__init__(message, hint)
        self.filename = filename


def unreadable(name: str, error: OSError) -> TarkitError:
    """Return the error for the input file `name`, which cannot be opened."""
    text = f"{name}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return MissingFile(text, filename=name)
    return TarkitError(text)


class CommandFailed(TarkitError):
    """A command ended with a status other than 0 (negative: a signal); `tail` is the end of its stderr."""

    def __init__(self, command: str, status: int | None = None, tail: str = "", hint: str | None = None) -> None:
        if status is None:
            super().__init__(command, hint)
        else:
            words = f": {tail}" if tail else ""
            super().__init__(f"command {status_words(status)}: {command}{words}", hint)
        self.command = command
        self.status = status


def system_hint(error: OSError) -> str | None:
    """Return the hint for an error of the operating system with the file that it names; None for no hint."""
    if error.errno == errno.EMFILE:
        return "raise the limit with ulimit -n"
    if not isinstance(error.filename, (str, bytes)):
        return None
    name = os.fsdecode(error.filename)
    if "://" in name:
        missing = isinstance(error, FileNotFoundError) and not name.endswith("/") and "." not in os.path.basename(name)
        return f"a directory ends in a slash: {name}/" if missing else None
    directory = os.path.dirname(name)
    if isinstance(error, FileNotFoundError) and directory and not os.path.isdir(directory):
        return f"there is no directory {directory}: make it with mkdir -p"
    if isinstance(error, PermissionError):
        from shlex import quote

        there = name if os.path.lexists(name) else directory or "."
        return f"ls -ld {quote(there)} shows who may read and write it"
    return "a file is needed here, not a directory" if isinstance(error, IsADirectoryError) else None


_NO_MEMORY = ("not enough memory", "allocation_failed", "cannot allocate memory", "failed to map segment")


def describe_limit(error: BaseException) -> tuple[str, str | None] | None:
    """Return the message and the hint for an error since a limit of the system is reached; None for any other error.

    Libraries have errors of their own for memory that cannot be allocated, and for modules that do not fit into it.
    """
    for cause in filter(None, (error, error.__cause__, error.__context__)):
        text = str(cause).lower()
        if "can't start new thread" in text:
            return "the system starts no more threads", "raise ulimit -u and ulimit -v, or use fewer at a time, with -p"
        if isinstance(cause, MemoryError) or any(words in text for words in _NO_MEMORY):
            return "there is not enough memory", "raise ulimit -v; Cost in the help of a command says what it holds"
        if isinstance(cause, RecursionError):
            return "a value is nested too deeply", None
    return None


def status_words(status: int) -> str:
    """Return how a process ended: `ended with status 3`, `was ended by SIGKILL`."""
    return f"ended with status {status}" if status >= 0 else f"was ended by {signal_name(-status)}"


def signal_name(number: int) -> str:
    """Return the name of a signal, for a message."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time one
        return f"signal {number}"


class Usage(TarkitError):
    """A usage error: arguments or options that are invalid or do not go together."""

    exit_code = 2


class Interrupted(BaseException):
    """A signal was received: clean up, then end the process by that signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


# ---- How messages name options

command_line: Mapping[str, str] | None = None
"""The options of the command whose names are not those of the arguments, by argument; None in a Python program, whose
messages name arguments."""

_ARGUMENTS = {"--keys-from": "keys", "--on-missing-field": "on_missing"}
"""Arguments that do not have the name of the option, in texts of tables."""
_PLAIN = r"[\w./-]+"  # needs no quotes in a shell


def spell(name: str, value: object = True) -> str:
    """Return an argument, perhaps with a value, as the caller writes it: `on_error='skip'`, `--on-error skip`."""
    if command_line is None:
        return name if value is True else f"{name}={value!r}"
    option = command_line.get(name) or f"--{name.replace('_', '-')}"
    if value is True:
        return option
    return f"{option} {value}" if re.fullmatch(_PLAIN, str(value)) else f"{option} '{value}'"


def spell_command(command: str, name: str, value: object) -> str:
    """Return an argument as the caller writes it, on the command line one of another command."""
    return spell(name, value) if command_line is None else f"tarkit {command} {spell(name, value)}"


def spell_open(name: str, value: object) -> str:
    """Return an argument of `tarkit.open`, which commands have as an option, as the caller writes it."""
    return f"tarkit.open(..., {spell(name, value)})" if command_line is None else spell(name, value)


def spell_from(form: str) -> str:
    """Return the argument that says the format of an input, as the caller writes it: `--from` on the command line."""
    return spell_open("format", form) if command_line is None else f"--from {form}"


def hint_without_missing() -> str | None:
    """Return the hint how to go on without inputs that do not exist, if the caller can say so."""
    if command_line is None:
        return "on_missing='warn' of tarkit.open and tarkit.loader goes on without it"
    return "--skip missing-shard goes on without it" if "skip" in command_line else None


def respell(text: str | None) -> str | None:
    """Return a text of a table, which names options, as a hint for the caller. Command lines in it stay."""
    if text is None or command_line is not None:
        return text

    def spelled(match: re.Match[str]) -> str:
        option, value = match.groups()
        if option is None:
            return match[0]
        name, argument = _ARGUMENTS.get(option) or option[2:].replace("-", "_"), value.strip("'") if value else True
        return spell_open(name, argument) if name in ("allow", "skip") and value else spell(name, argument)

    values = "'[^']*'|truncated|skip|[a-z]+-[a-z-]+"  # most names of problems have a hyphen
    return re.sub(rf"\btar(?:kit)?\b[^;]*|(--[a-z-]+)(?: ({values}))?", spelled, text)


def show(name: bytes | str) -> str:
    """Return a name for a message: quoted, on one line, with `\\xNN` escapes of the bytes that are not printable."""
    text = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
    return "'" + printable(text.replace("\\", "\\\\")) + "'"


def printable(text: str) -> str:
    """Return `text` on one line, with `\\xNN` escapes of the bytes that are not printable or not UTF-8."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def message_text(message: str, hint: str | None = None) -> str:
    """Return the lines of stderr for an error: the message, and the hint on a line of its own."""
    return f"tarkit: {printable(hide_secrets(message))}\n" + (
        f"hint: {printable(hide_secrets(hint))}\n" if hint else ""
    )


def _escape(char: str) -> str:
    raw = char.encode("utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in raw)
