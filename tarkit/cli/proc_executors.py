"""What `proc` is to run: a command, a function or a program, and the executors for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from tarkit.errors import TarkitError, Usage, show
from tarkit.proc.engine import Engine, Executor, Finished, Job
from tarkit.proc.result import Maker
from tarkit.proc.shell import Redirect, Shell, ShellOptions, direct, interpreter
from tarkit.proc.workdir import WorkDirectory
from tarkit.proc.worker import Resident, Residents

Kind = Literal["shell", "script", "map", "worker"]

_LONGEST = 100  # bytes of --base: the names of fields follow
_SHELL_ONLY = ("subdirs", "shell", "add_log", "keep_dir")
_MAP_ONLY = ("decode", "allow_pickle", "init", "batch")


@dataclass
class Work:
    """What is run, and what that wants to know. `timeout` is in seconds, `mtime` in seconds since 1970."""

    kind: Kind
    what: str
    shell: str | None = None
    collect: str = "one"
    base: str = "sample"
    add_log: str | None = None
    timeout: float | None = None
    mtime: int | None = 0
    batch: int | None = None
    init: str | None = None
    decode: bool = False
    allow_pickle: bool = False


Runs = AbstractContextManager[Callable[[Iterator[Job]], Iterator[Finished]]]


@dataclass
class Crew:
    """How executors are made, and how many samples one of them is handed at a time: at most, or `exact` so many."""

    start: Callable[[], Executor]
    batch: int = 1
    batch_bytes: int = 1 << 20
    exact: bool = False

    def engine(self, parallel: int, retries: int, ordered: bool, goes_on: bool) -> Runs:
        """What runs `parallel` of them."""
        return Engine(
            self.start,
            parallel,
            batch=self.batch,
            batch_bytes=self.batch_bytes,
            exact=self.exact,
            retries=retries,
            ordered=ordered,
        )


@dataclass
class Programs:
    """The same for programs that stay."""

    resident: Resident

    def engine(self, parallel: int, retries: int, ordered: bool, goes_on: bool) -> Runs:
        """What runs `parallel` of them; where the run `goes_on` after a failure, it finds out whose that was."""
        resident = replace(self.resident, settle=goes_on or retries > 0, retries=retries)
        return Residents(resident, parallel, ordered=ordered)


def parse_work(given: dict[str, Any]) -> Work:
    """What the options ask for; raises Usage when it is not one thing, or what does not go together."""
    named = {"-c": "command", "-m": "multi", "--script": "script", "--map": "map_", "--worker": "worker"}
    asked = [word for word, name in named.items() if given[name] is not None]
    if len(asked) != 1:
        raise Usage(
            f"{' and '.join(asked)}: choose one" if asked else "nothing to run",
            "choose one of -c COMMAND, -m COMMAND, --script FILE, --map MODULE:FUNCTION and --worker COMMAND",
        )
    word = asked[0]
    kinds: dict[str, Kind] = {"--script": "script", "--map": "map", "--worker": "worker"}
    kind = kinds.get(word, "shell")
    strange: tuple[str, ...] = _SHELL_ONLY if kind in ("map", "worker") else ()
    strange += _MAP_ONLY if kind != "map" else ()
    for name in strange:
        if given[name]:
            raise Usage(f"--{name.replace('_', '-')} cannot be used with {word}")
    base = given["base"]
    if not base or any(char in base for char in "./\0") or len(os.fsencode(base)) > _LONGEST:
        raise Usage(f"--base {show(base)}: must be a name without dots and slashes, of at most {_LONGEST} bytes")
    if word == "-m" and given["subdirs"]:
        raise Usage("-m looks for files, -S for directories", "-S goes with -c")
    if given["allow_pickle"] and not given["decode"]:
        raise Usage("--allow-pickle requires --decode")
    log = given["add_log"]
    if log is not None and (not log or "/" in log or log == "__key__"):
        raise Usage(f"--add-log {show(log)}: must be the name of a field, without slashes")
    names = ("shell", "base", "add_log", "timeout", "mtime", "batch", "init", "decode", "allow_pickle")
    collect = "subdirs" if given["subdirs"] else "multi" if word == "-m" else "one"
    return Work(kind, given[named[word]], collect=collect, **{name: given[name] for name in names})


@contextmanager
def hands(work: Work, tmpdir: str | None, keep: bool, tell: Callable[[str], None]) -> Iterator[Crew | Programs]:
    """What makes executors for this work. `keep` leaves the directories of commands, and tells where."""
    if work.kind == "map":
        yield from _mapper(work, tmpdir, tell)
        return
    if work.kind == "worker":
        yield _worker(work, tmpdir)
        return
    environment = dict(os.environb)
    path, words = shell = _words(work)
    plain = direct(work.what, environment) if work.kind == "shell" and work.shell is None else None
    redirects: list[Redirect] = []
    if plain is not None:
        path, words, redirects = plain
    place = WorkDirectory(tmpdir, keep)
    options = ShellOptions(
        path,
        words,
        environment,
        os.fsencode(work.base),
        work.collect,
        None if work.add_log is None else os.fsencode(work.add_log),
        work.timeout,
        Maker(work.mtime),
        redirects,
        shell,
    )
    try:
        yield Crew(lambda: Shell(place, options))
    finally:
        place.close()
        if keep:
            tell(f"the directories of the samples are in {place.path}")


def _words(work: Work) -> tuple[str, list[str]]:
    """The program that runs the command, and its words; a script that can be executed is, unless a shell is named."""
    shell = work.shell or "bash"
    folders = os.environ.get("PATH", os.defpath)
    if work.kind == "shell":
        return interpreter(shell, folders), [shell, "-c", work.what]
    script = os.path.abspath(work.what)
    if not os.path.isfile(script):
        raise TarkitError(f"--script {show(work.what)}: no such file")
    if work.shell is None and os.access(script, os.X_OK):
        return script, [script]
    return interpreter(shell, folders), [shell, script]


def _mapper(work: Work, tmpdir: str | None, tell: Callable[[str], None]) -> Iterator[Crew]:
    from tarkit.proc.function import TOGETHER, Call, Mappers

    batches = work.batch is not None
    coding = (work.decode, work.allow_pickle)
    call = Call(work.what, work.init, *coding, batches, work.timeout, tmpdir, work.mtime, tell)
    mappers = Mappers(call)
    mappers.prepare()
    try:
        # a batch is so many samples, whatever their size, so that it is the same for every -p
        yield Crew(mappers, work.batch, 1 << 62, exact=True) if work.batch is not None else Crew(mappers, TOGETHER)
    finally:
        mappers.close()


def _worker(work: Work, tmpdir: str | None) -> Programs:
    bash = interpreter("bash", os.environ.get("PATH", os.defpath))
    words = [bash, "-o", "pipefail", "-c", work.what]
    return Programs(Resident(words, work.what, Maker(work.mtime), timeout=work.timeout, tmpdir=tmpdir))
