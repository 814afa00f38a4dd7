"""Run a command over each sample, in a private directory where the sample's fields are files."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tarkit.errors import TarkitError, show
from tarkit.proc.engine import TAIL, BatchFailed, CommandOutput, Failure, Job, Outcome, Words, status_words
from tarkit.proc.result import FieldContent, Maker
from tarkit.proc.workdir import FieldFiles, Gatherer, WorkDirectory, unpack
from tarkit.streams.process import DEVNULL, Program
from tarkit.streams.tempfile import TemporaryFile

# ---- Where programs are, and which commands need no shell to run them

_CREATED = os.O_WRONLY | os.O_CREAT
# What bash does itself, or reads as more than a name (bash manual, "Reserved Words", "Shell Builtin Commands").
_OF_BASH = re.compile(
    r"[^A-Za-z0-9]+|"
    r"alias|bg|bind|break|builtin|caller|case|cd|command|compgen|complete|compopt|continue|coproc|declare|dirs|"
    r"disown|do|done|echo|elif|else|enable|esac|eval|exec|exit|export|false|fc|fg|fi|for|function|getopts|hash|"
    r"help|history|if|in|jobs|kill|let|local|logout|mapfile|popd|printf|pushd|pwd|read|readarray|readonly|"
    r"return|select|set|shift|shopt|source|suspend|test|then|time|times|trap|true|type|typeset|ulimit|umask|"
    r"unalias|unset|until|wait|while"
)
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+( +[A-Za-z0-9_@%+=:,./-]+)*")
_REDIRECT = re.compile(r" +(<|>>?) *(/dev/null|[A-Za-z0-9_@%+=:,.-]+)(?= |$)")
_OPENED = {"<": (0, os.O_RDONLY), ">": (1, _CREATED | os.O_TRUNC), ">>": (1, _CREATED | os.O_APPEND)}

Redirect = tuple[int, int, str]
"""A descriptor, how the file for it is opened, and its name: one in the folder where the command runs, or /dev/null."""


def interpreter(name: str, path: str) -> str:
    """Where the program `name` is, along the folders of `path`. Raises TarkitError when it is nowhere."""
    if "/" in name:
        return os.path.abspath(name)
    for folder in path.split(os.pathsep):
        found = os.path.join(folder or ".", name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return os.path.abspath(found)
    raise TarkitError(f"{show(name)} is needed to run commands and was not found")


def direct(command: str, environment: Mapping[bytes, bytes]) -> tuple[str, list[str], list[Redirect]] | None:
    """The program, the words and the files of a command that bash would only read and hand on, None for all that says
    more.

    It saves the start of a shell, which costs more than that of most programs; make does the same.
    """
    command = command.strip(" \n")
    opened = [(*_OPENED[found[1]], found[2]) for found in _REDIRECT.finditer(command)]
    command = _REDIRECT.sub("", command)
    if not _PLAIN.fullmatch(command) or any(
        name.startswith((b"BASH_ENV", b"BASH_FUNC_", b"SHELLOPTS", b"BASHOPTS")) for name in environment
    ):
        return None
    words = command.split()
    path = os.fsdecode(environment.get(b"PATH", b""))
    if _OF_BASH.fullmatch(words[0]) or not all(folder.startswith("/") for folder in path.split(os.pathsep)):
        return None
    if "/" in words[0] and not words[0].startswith("/"):
        return None
    try:
        found = interpreter(words[0], path)
        with open(found, "rb") as file:
            known = file.read(4).startswith((b"\x7fELF", b"#!"))
    except (TarkitError, OSError):
        return None  # bash knows how to say it
    return (found, words, opened) if known and os.access(found, os.X_OK) else None


PATIENCE = 2.0  # seconds between asking a command to end and ending it
HEARD = 1 << 16  # bytes of what a command says that are in memory
_CHUNK = 1 << 16
_LONGEST_KEY = 1 << 16
_LOOK = 5  # milliseconds between two looks where the system cannot wake us


@dataclass
class ShellOptions:
    """How a command is run: by the program `path` with `words`, its name first.

    `environment` is what it gets besides what tells of the sample; `mode` is one, multi or subdirs; `add_log` is the
    field that takes what it says; `timeout` is in seconds. `redirects` are the files of a command that needs no shell;
    where one of them cannot be opened `shell`, a path and words, is run in its place, and says why.
    """

    path: str
    words: Sequence[str | bytes]
    environment: Mapping[bytes, bytes]
    base: bytes = b"sample"
    mode: str = "one"
    add_log: bytes | None = None
    timeout: float | None = None
    make: Maker = field(default_factory=Maker)
    redirects: Sequence[Redirect] = ()
    shell: tuple[str, Sequence[str | bytes]] = ("", ())


class Shell:
    """An executor that starts a command for each job."""

    def __init__(self, place: WorkDirectory, options: ShellOptions) -> None:
        self.place = place
        self.options = options
        self.gather = Gatherer(options.base, options.mode, options.make)
        self._lock = threading.Lock()
        self._over = False
        self._program: Program | None = None
        self._listener = _Listener(place.path)

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """One after the other."""
        return [self._run(job) for job in jobs]

    def cancel(self) -> None:
        """Ask what runs to end."""
        with self._lock:
            self._over = True
            if self._program is not None:
                self._program.terminate()

    def kill(self) -> None:
        """End what runs."""
        with self._lock:
            self._over = True
            if self._program is not None:
                self._program.kill()

    def close(self) -> None:
        """Nothing stays."""
        self._listener.close()

    def _run(self, job: Job) -> Outcome:
        options = self.options
        started = time.monotonic()
        names = FieldFiles(options.base, job.inputs())
        folder = self.place.folder(b"%09d" % job.index)
        try:
            unpack(job, folder, names)
            status, late = self._command(job, folder.path)
            seconds = time.monotonic() - started
            said = self._listener.said()
            if status != 0 or late:
                reason = status_words(status)
                if late:
                    reason = f"took longer than {options.timeout:g} s and was ended"
                failure = Failure(reason, status, self._listener.tail, seconds)
                return Outcome(failure=failure, said=said, seconds=seconds)
            extra: list[tuple[bytes, bytes | FieldContent]] = []
            if options.add_log is not None:
                extra = [(options.add_log, _log(said))]
                said = []
            try:
                samples = self.gather(job, folder, names, extra)
            except BatchFailed as error:
                failure = error.failure._replace(status=status, tail=self._listener.tail, seconds=seconds)
                return Outcome(failure=failure, said=said, seconds=seconds)
            return Outcome(samples, said=said, seconds=seconds)
        finally:
            del folder  # what is not referred to by a sample goes now

    def _command(self, job: Job, folder: bytes) -> tuple[int, bool]:
        """Run it; its status, and whether it took too long."""
        if len(job.key) > _LONGEST_KEY:
            raise BatchFailed(
                Failure(f"has a key of {len(job.key)} bytes, which is too long for a command's environment")
            )
        environment = dict(self.options.environment)
        environment[b"TARKIT_KEY"] = job.key.replace(b"\0", b"%00")
        environment[b"TARKIT_INDEX"] = b"%d" % job.index
        environment[b"TARKIT_SHARD"] = os.fsencode(job.shard)
        environment[b"PWD"] = folder
        listener = self._listener
        listener.forget()
        path, words = self.options.path, self.options.words
        with ExitStack() as stack:
            files = {0: DEVNULL, 1: listener.out[1]}
            try:
                for fd, flags, name in self.options.redirects:
                    files[fd] = os.open(os.path.join(folder, os.fsencode(name)), flags | os.O_CLOEXEC, 0o666)
                    stack.callback(os.close, files[fd])
            except OSError:
                files = {0: DEVNULL, 1: listener.out[1]}
                path, words = self.options.shell
            with self._lock:
                if self._over:
                    raise BatchFailed(Failure("was not started"))
                program = self._program = Program(
                    words,
                    path=path,
                    stdin=files[0],
                    stdout=files[1],
                    stderr=listener.err[1],
                    folder=folder,
                    environment=environment,
                )
        try:
            late = not listener.listen(program, self.options.timeout)
            if late:
                program.terminate()
                if not listener.listen(program, PATIENCE):
                    program.kill()
            status = program.wait()
            assert status is not None
        except BaseException:
            program.end()
            raise
        finally:
            with self._lock:
                self._program = None
        listener.drain()
        return status, late


class _Listener:
    """Two pipes for what commands say, one after the other; `tail` is the end of what one said on stderr."""

    def __init__(self, tmpdir: str | None) -> None:
        self.tmpdir = tmpdir
        self.out = os.pipe()
        self.err = os.pipe()
        self.poll = select.poll()
        for pipe in (self.out, self.err):
            os.set_blocking(pipe[0], False)
            self.poll.register(pipe[0], select.POLLIN)
        self.forget()

    def close(self) -> None:
        """Let go of them."""
        for fd in (*self.out, *self.err):
            os.close(fd)

    def forget(self) -> None:
        """What comes from now on is said by another."""
        self.tail = b""
        self._pieces: list[bytes] = []
        self._held = 0
        self._file: TemporaryFile | None = None
        self._size = 0
        self._begun = {self.out[0]: b"", self.err[0]: b""}  # lines that have no end yet

    def listen(self, program: Program, seconds: float | None) -> bool:
        """Take in what it says until it has ended; whether it has, in time."""
        limit = None if seconds is None else time.monotonic() + seconds
        program.watch(self.poll)
        try:
            while True:
                left = None if limit is None else max(0.0, limit - time.monotonic()) * 1000
                if not program.wakes:
                    left = _LOOK if left is None else min(left, _LOOK)
                ready = self.poll.poll(left)
                heard = [fd for fd, _ in ready if fd in (self.out[0], self.err[0])]
                for fd in heard:
                    self._hear(fd)
                if len(ready) > len(heard) or (not program.wakes and program.ended()):
                    return True
                if limit is not None and time.monotonic() >= limit:
                    return program.ended()
        finally:
            program.unwatch(self.poll)

    def drain(self) -> None:
        """Take in what is still in the pipes, and no more than fits in there: somebody may still be writing."""
        for fd in (self.out[0], self.err[0]):
            for _ in range(16):
                if not self._hear(fd):
                    break
            self._take(self._begun[fd])

    def _hear(self, fd: int) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if fd == self.err[0]:
            self.tail = (self.tail + data)[-TAIL:]
        line = data.rfind(b"\n") + 1  # what two say at once is mixed by whole lines
        if line or len(self._begun[fd]) > _CHUNK:
            self._take(self._begun[fd] + data[:line])
            self._begun[fd] = b""
        self._begun[fd] += data[line:]
        return True

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._pieces.append(data)
        self._held += len(data)
        if self._held > HEARD:
            self._file = self._file or TemporaryFile(self.tmpdir)
            self._file.write(b"".join(self._pieces))
            self._size += self._held
            self._pieces, self._held = [], 0

    def said(self) -> list[CommandOutput]:
        """All of it, in memory or in a file."""
        said: list[CommandOutput] = [] if self._file is None else [_Log(self._file, self._size)]
        if self._pieces:
            said.append(Words(b"".join(self._pieces)))
        return said


class _Log:
    """What was said and is in a file."""

    mtime = 0

    def __init__(self, file: TemporaryFile, size: int) -> None:
        self.file = file
        self.size = size

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop)."""
        return self.file.read(start, min(stop, self.size))

    def write(self, data: bytes) -> None:
        """Append to it."""
        os.lseek(self.file.fd, self.size, os.SEEK_SET)
        self.file.write(data)
        self.size += len(data)

    def send(self, start: int, stop: int, sink: object) -> None:
        """Write bytes [start, stop) to a sink."""
        sink.copy(self.file.fd, start, stop)  # type: ignore[attr-defined]


def _log(said: Sequence[CommandOutput]) -> bytes | FieldContent:
    """What was said as the content of a field."""
    if not said:
        return b""
    first, *rest = said
    if isinstance(first, _Log):
        for each in rest:
            assert isinstance(each, Words)
            first.write(each.data)
        return first
    assert isinstance(first, Words)
    return first.data
