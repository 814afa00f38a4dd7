"""What the options of `proc` ask for: a command, a script, a function or a program, and how it is run."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from tarkit.errors import Usage, show
from tarkit.proc.engine import Runner, RunOptions
from tarkit.proc.shell import command_runner
from tarkit.proc.worker import worker_runner

Kind = Literal["shell", "script", "map", "worker"]

_LONGEST = 100  # bytes of --base: file names have 255 with the field
_SHELL_ONLY = ("subdirs", "shell", "add_log", "keep_dir")
_MAP_ONLY = ("decode", "allow_pickle", "init", "batch")


@dataclass
class Work:
    """What is run, and its options. `timeout` is in seconds, `mtime` in seconds since 1970."""

    kind: Kind
    what: str
    shell: str | None = None
    mode: str = "one"
    base: str = "sample"
    add_log: str | None = None
    timeout: float | None = None
    mtime: int | None = 0
    batch: int | None = None
    init: str | None = None
    decode: bool = False
    allow_pickle: bool = False
    keep_dir: bool = False

    def runner(
        self, run: RunOptions, tmpdir: str | None, tell: Callable[[str], None]
    ) -> AbstractContextManager[Runner]:
        """Return what runs it; entering raises TarkitError for what is missing. `tell` prints a line."""
        path = os.environ.get("PATH", os.defpath)
        if self.kind == "worker":
            return worker_runner(self.what, run, path=path, timeout=self.timeout, mtime=self.mtime, tmpdir=tmpdir)
        if self.kind == "map":
            from tarkit.proc.function import FunctionOptions, function_runner

            coding = (self.decode, self.allow_pickle, self.batch is not None)
            options = FunctionOptions(self.what, self.init, *coding, self.timeout, tmpdir, self.mtime, tell)
            return function_runner(options, self.batch, run)
        return command_runner(
            self.what,
            run,
            environment=dict(os.environb),
            script=self.kind == "script",
            shell=self.shell,
            base=self.base,
            mode=self.mode,
            add_log=self.add_log,
            timeout=self.timeout,
            mtime=self.mtime,
            tmpdir=tmpdir,
            keep=(lambda path: tell(f"the directories of the samples are in {path}")) if self.keep_dir else None,
        )


def parse_work(given: dict[str, Any]) -> Work:
    """Return what the options ask for. Raises Usage for options that exclude each other."""
    named = {"-c": "command", "-m": "multi", "--script": "script", "--map": "map_", "--worker": "worker"}
    asked = [word for word, name in named.items() if given[name] is not None]
    if len(asked) != 1:
        raise Usage(
            f"{' and '.join(asked)} exclude each other" if asked else "nothing to run",
            "give one of -c COMMAND, -m COMMAND, --script FILE, --map MODULE:FUNCTION and --worker COMMAND",
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
        raise Usage(f"--base {show(base)}: expected a name without dots and slashes, of at most {_LONGEST} bytes")
    if word == "-m" and given["subdirs"]:
        raise Usage("-S cannot be used with -m", "-m looks for files, -S for directories")
    if given["allow_pickle"] and not given["decode"]:
        raise Usage("--allow-pickle requires --decode")
    log = given["add_log"]
    if log is not None and (not log or "/" in log or log == "__key__"):
        raise Usage(f"--add-log {show(log)}: expected the name of a field, without slashes")
    names = ("shell", "base", "add_log", "timeout", "mtime", "batch", "init", "decode", "allow_pickle", "keep_dir")
    mode = "subdirs" if given["subdirs"] else "multi" if word == "-m" else "one"
    return Work(kind, given[named[word]], mode=mode, **{name: given[name] for name in names})
