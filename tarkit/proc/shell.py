"""proc -c, -m: run a command for each sample, or batch of samples, in a directory where the fields are files."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from shlex import quote
from typing import Self

from tarkit.errors import TarkitError, Usage, show, spell, status_words
from tarkit.options import row
from tarkit.pipeline.run import CommandOutput, Run
from tarkit.pipeline.steps import digest
from tarkit.proc.job import TAIL, Failure, Job, Outcome, WorkFailed, find_program
from tarkit.proc.pool import MIN_PENDING, JobWorker, Pool
from tarkit.proc.result import SampleBuilder
from tarkit.proc.step import BATCH, SampleWork
from tarkit.proc.workdir import STEM, WATCH, FileNames, WorkDirectories, collect_batch, collect_samples, write_fields
from tarkit.sizes import plural
from tarkit.streams.command import DEVNULL, Program
from tarkit.streams.ranges import HeldRange
from tarkit.streams.tempfile import TemporaryFile

# ---- Commands that need no shell

_CREATED = os.O_WRONLY | os.O_CREAT
# Builtins and reserved words of bash (bash manual, "Reserved Words", "Shell Builtin Commands").
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
"""A descriptor, the flags for opening its file, and the file: in the directory of the command, or /dev/null."""
Launch = tuple[str, list[str], list[Redirect]]
"""Path, words and redirects of a program."""


def _parse(command: str) -> tuple[list[str], list[Redirect]] | None:
    """Return the words and redirects of a command that has nothing else, None for any other."""
    command = command.strip(" \n")
    opened = [(*_OPENED[redirect[1]], redirect[2]) for redirect in _REDIRECT.finditer(command)]
    command = _REDIRECT.sub("", command)
    return (command.split(), opened) if _PLAIN.fullmatch(command) else None


def direct(command: str, environment: Mapping[bytes, bytes]) -> Launch | None:
    """Return program, words and redirects of a command that bash would only start, None for any other.

    This saves the start of a shell, a sixth of the CPU time of a run of `wc`; make does the same.
    """
    parsed = _parse(command)
    if parsed is None or any(
        name.startswith((b"BASH_ENV", b"BASH_FUNC_", b"SHELLOPTS", b"BASHOPTS")) for name in environment
    ):
        return None
    words, opened = parsed
    path = os.fsdecode(environment.get(b"PATH", b""))
    if _OF_BASH.fullmatch(words[0]) or not all(directory.startswith("/") for directory in path.split(os.pathsep)):
        return None
    if "/" in words[0] and not words[0].startswith("/"):
        return None
    try:
        program = find_program(words[0], path)
        with open(program, "rb") as file:
            starts = file.read(4).startswith((b"\x7fELF", b"#!"))
    except (TarkitError, OSError):
        return None  # bash prints the error
    return (program, words, opened) if starts and os.access(program, os.X_OK) else None


def refuse_emptied(command: str) -> None:
    """Raise Usage for a command that reads a file and empties it."""
    _, redirects = _parse(command) or ([], [])
    read = {name for _, flags, name in redirects if flags == os.O_RDONLY and name != os.devnull}
    for _, flags, name in redirects:
        if flags & os.O_TRUNC and name in read:
            new = f"{name.partition('.')[0]}.new"
            raise Usage(f"the command reads {show(name)}, which > empties first", f"> {new} && mv {new} {name}")


PATIENCE = 2.0  # seconds between SIGTERM and SIGKILL
IN_MEMORY = 1 << 16  # bytes of output in memory; more goes to a file
QUICK = 4  # quick commands that a thread runs before it reports: 2000 x wc on two CPUs 2.24 -> 1.90 s, CPU 3.6 -> 3.2
BATCH_BYTES = 8 << 20  # bytes of samples from which on a batch takes no more
_IN_BATCH = b"sample-%06d"  # what the files of a sample of a batch begin with
_OF_SAMPLE = re.compile(r"(?<![\w/-])sample\.")  # a file of one sample, and not resample.py
_CHUNK = 1 << 16
_LONGEST_KEY = 1 << 16
_POLL = 5.0  # milliseconds between two checks where the system has no pidfd


def logged(command: str, field: str, several: bool = False) -> str:
    """Return a command whose stdout and stderr are a field of the sample; `several` samples have none. Raises Usage."""
    if several or not field or "/" in field or "\0" in field:
        reason = "not with multi or batch" if several else "expected the name of a field"
        raise Usage(f"{spell('add_log')} {show(field)}: {reason}", "for example log")
    return f"{{\n{command}\n}} > {quote(f'sample.{field}')} 2>&1"


class RunCommand(SampleWork):
    """Run a shell command for each sample, in a directory that has its fields as files `sample.FIELD`.

    With `multi` it makes many samples; with `keep_dir` its directories are kept. With `batch` it runs once for so many
    samples, or fewer of BATCH_BYTES together, whose files are `sample-000000.FIELD` and so on.
    """

    keep_dir: bool = row("With -c or -m", "--keep-dir", default=False, help="Keep all directories, and print where.")
    batch: int | None = BATCH
    command: str = ""
    multi: bool = False
    name = "proc"

    def check(self) -> None:
        """Raise Usage for options that do not go together, and for a command that has other names than its files."""
        super().check()
        if self.batch is None:
            return
        if self.multi:
            raise Usage(f"{spell('batch')} cannot be used with {spell('multi')}", "a sample of a batch gives one")
        if _OF_SAMPLE.search(self.command) and "sample-" not in self.command:
            message = f"with {spell('batch')} the files are called sample-000000.jpg, sample-000001.jpg, not sample.jpg"
            raise Usage(message, "sample-*.jpg are those of all samples")

    @property
    def code(self) -> str:
        """A hash of the command, in which there may be passwords."""
        return digest(os.fsencode(self.command))

    @contextmanager
    def pool(self, run: Run, tmpdir: str | None = None) -> Iterator[Pool]:
        """Yield a pool whose workers start the command for each sample.

        Raises:
            TarkitError: there is no bash.
            Usage: the command empties the file that it reads.
        """
        refuse_emptied(self.command)
        environment = dict(os.environb)
        bash: Launch = find_program("bash", os.environ.get("PATH", os.defpath)), ["bash", "-c", "--", self.command], []
        launches = direct(self.command, environment) or bash, bash
        in_memory = not (self.keep_dir or run.tmpdir or os.environ.get("TMPDIR"))
        directories = WorkDirectories(tmpdir, self.keep_dir, in_memory)
        way, parallel = self.way, self.way["parallel"]
        if self.batch is None:  # batches of quick commands change little in how many samples are under way
            way |= {"batch": QUICK, "most": max(MIN_PENDING, 2 * QUICK * parallel)}
        else:
            most = 2 * (parallel + 1)
            way |= {"batch": self.batch, "batch_bytes": BATCH_BYTES, "exact": True}
            way |= {"most": most * self.batch, "held": most * BATCH_BYTES}
            for name in (b"TARKIT_KEY", b"TARKIT_INDEX", b"TARKIT_SHARD"):
                environment.pop(name, None)
        try:
            start = lambda: CommandWorker(self, directories, environment, launches)  # noqa: E731
            with Pool(start, **way) as pool:
                yield pool
        finally:
            directories.close()
            if self.keep_dir:
                run.tell(f"the directories of the samples are in {directories.disk.path}")


class CommandWorker(JobWorker):
    """Runs a command for each job.

    Args:
        directories: where the directories of the samples are.
        environment: what the command gets besides TARKIT_KEY, TARKIT_INDEX and TARKIT_SHARD.
        launches: how it is started, and how where that cannot open a file: by bash, which prints the error.
    """

    def __init__(
        self,
        step: RunCommand,
        directories: WorkDirectories,
        environment: Mapping[bytes, bytes],
        launches: tuple[Launch, Launch],
    ) -> None:
        super().__init__()
        self.step = step
        self.directories = directories
        self.environment = environment
        self.launches = launches
        self.builder = SampleBuilder(step.mtime)

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for some in [jobs] if self.step.batch is not None else [[job] for job in jobs]:
            try:
                outcomes += self._run(some)
            except WorkFailed as error:
                if len(some) > 1:  # the pool runs halves of the batch
                    raise
                outcomes.append(Outcome(failure=error.failure))  # of this job alone: the others are not run again
        return outcomes

    def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run the command over the files of one sample, or of a batch, which fails as a whole."""
        started = time.monotonic()
        batch = self.step.batch is not None
        names = [FileNames(job.inputs(), _IN_BATCH % at if batch else STEM) for at, job in enumerate(jobs)]
        place = self.directories.choose(max(job.sample.size for job in jobs))
        directory = place.subdirectory(b"%09d" % jobs[0].index)
        try:
            for job, its_names in zip(jobs, names, strict=True):
                write_fields(job, directory, its_names)
            with _Output(self.directories.disk.path) as output:
                status, late = self._command(jobs, directory.path, output, place.check if place.in_memory else None)
            seconds = (time.monotonic() - started) / len(jobs)
            if late:
                failure = Failure(f"took longer than {self.step.timeout:g} s and was ended", status)
            elif status != 0:
                failure = Failure(status_words(status), status)
            else:
                try:
                    if batch:
                        made = collect_batch(jobs, directory, names, self.builder)
                    else:
                        made = [collect_samples(jobs[0], directory, names[0], self.builder, self.step.multi)]
                    logs = [output.log(), *([()] * (len(jobs) - 1))]  # that of a batch comes before its first sample
                    return [Outcome(of_job, None, log, seconds) for of_job, log in zip(made, logs, strict=True)]
                except WorkFailed as error:
                    failure = error.failure._replace(status=status)
            if len(jobs) > 1:
                raise WorkFailed(failure)
            hint = _hint_where(self.step.command, directory.path, output.tail)
            return [Outcome((), failure._replace(tail=output.tail, hint=hint), output.log(), seconds)]
        finally:
            del directory  # it is removed now, unless a sample refers to it

    def _environment(self, job: Job) -> dict[bytes, bytes]:
        """Return what the command of one sample is told of it."""
        if len(job.key) > _LONGEST_KEY:
            raise WorkFailed(
                f"has a key of {plural(len(job.key), 'byte')}, which is too long for a command's environment"
            )
        return {
            b"TARKIT_KEY": job.key.replace(b"\0", b"%00"),
            b"TARKIT_INDEX": b"%d" % job.index,
            b"TARKIT_SHARD": os.fsencode(job.shard),
        }

    def _command(
        self, jobs: Sequence[Job], directory: bytes, output: _Output, watch: Callable[[], None] | None
    ) -> tuple[int, bool]:
        """Run the command; return its status, and whether it took too long. `watch` is called meanwhile."""
        environment = {**self.environment, b"PWD": directory}
        if self.step.batch is None:
            environment |= self._environment(jobs[0])
        program = self.start(lambda: self._begin(directory, output, environment))
        seconds = None if self.step.timeout is None else self.step.timeout * len(jobs)
        try:
            late = not output.read_until_end(program, seconds, watch)
            if late:
                program.terminate()
                if not output.read_until_end(program, PATIENCE):
                    program.kill()
            status = program.wait()
            assert status is not None
        except BaseException:
            program.end()
            raise
        output.drain()
        return status, late

    def _begin(self, directory: bytes, output: _Output, environment: Mapping[bytes, bytes]) -> Program:
        (path, words, redirects), bash = self.launches
        files = {0: DEVNULL, 1: output.out[1]}
        with ExitStack() as stack:
            try:
                for fd, flags, name in redirects:
                    files[fd] = os.open(os.path.join(directory, os.fsencode(name)), flags | os.O_CLOEXEC, 0o666)
                    stack.callback(os.close, files[fd])
            except OSError:
                files = {0: DEVNULL, 1: output.out[1]}
                path, words, _ = bash
            return Program(
                words,
                path=path,
                stdin=files[0],
                stdout=files[1],
                stderr=output.err[1],
                directory=directory,
                environment=environment,
            )


def _hint_where(command: str, directory: bytes, tail: bytes) -> str | None:
    """Return the hint for a word of a command that is a file where tarkit runs, and not in the directory of the sample.

    The word must be in `tail`, the end of what the failed command printed to stderr; None without such a word.
    """
    for word in re.split(r"[\s'\"<>|;&()=]+", command):
        if os.fsencode(os.path.basename(word)) not in tail or not os.path.isfile(word):
            continue
        if not os.path.exists(os.path.join(directory, os.fsencode(word))):
            path = quote(os.path.abspath(word))
            return f"commands run in the directory of the sample, where {word} is not: write {path}"
    return None


class _Output:
    """Two pipes for the output of a command; `tail` is the end of stderr."""

    def __init__(self, tmpdir: str | None) -> None:
        self.tmpdir = tmpdir
        self.poll = select.poll()
        self.tail = b""
        self._pieces: list[bytes] = []
        self._held = 0
        self._file: TemporaryFile | None = None
        self._open: list[int] = []
        try:
            self.out, self.err = self._pipe(), self._pipe()
        except BaseException:
            self.__exit__()
            raise
        self._unfinished = {self.out[0]: b"", self.err[0]: b""}  # lines without their ends

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        self._open += (read, write)
        os.set_blocking(read, False)
        self.poll.register(read, select.POLLIN)
        return read, write

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        while self._open:
            os.close(self._open.pop())

    def read_until_end(self, program: Program, seconds: float | None, watch: Callable[[], None] | None = None) -> bool:
        """Read the output until the program ends; return whether it ended in time. `watch` is called meanwhile."""
        limit = None if seconds is None else time.monotonic() + seconds
        program.watch(self.poll)
        try:
            while True:
                waits = [] if program.wakes else [_POLL]
                if watch is not None:
                    waits.append(WATCH)
                if limit is not None:
                    waits.append(max(0.0, limit - time.monotonic()) * 1000)
                ready = self.poll.poll(min(waits, default=None))
                if watch is not None:
                    watch()
                readable = [fd for fd, _ in ready if fd in self._unfinished]
                for fd in readable:
                    self._read(fd)
                if len(ready) > len(readable) or (not program.wakes and program.ended()):
                    return True
                if limit is not None and time.monotonic() >= limit:
                    return program.ended()
        finally:
            program.unwatch(self.poll)

    def drain(self) -> None:
        """Read what is left in the pipes, and no more than fits in there: another process may still be writing."""
        for fd in (self.out[0], self.err[0]):
            for _ in range(16):
                if not self._read(fd):
                    break
            self._take(self._unfinished[fd])

    def _read(self, fd: int) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if fd == self.err[0]:
            self.tail = (self.tail + data)[-TAIL:]
        line = data.rfind(b"\n") + 1  # stdout and stderr are mixed by whole lines
        if line or len(self._unfinished[fd]) > _CHUNK:
            self._take(self._unfinished[fd] + data[:line])
            self._unfinished[fd] = b""
        self._unfinished[fd] += data[line:]
        return True

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._pieces.append(data)
        self._held += len(data)
        if self._held > IN_MEMORY:
            self._file = self._file or TemporaryFile(self.tmpdir)
            self._file.write(b"".join(self._pieces))
            self._pieces, self._held = [], 0

    def log(self) -> list[CommandOutput]:
        """Return the output, in memory or in a file."""
        log: list[CommandOutput] = [] if self._file is None else [self._file]
        if self._pieces:
            log.append(HeldRange("output", 0, b"".join(self._pieces)))
        return log
