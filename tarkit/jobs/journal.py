"""The journal of a run of jobs: a file of JSON lines, one for each attempt that ended.

A job that writes a series of shards has another line when it begins, whose status is null: shards of these names are
its own from then on, and a later attempt replaces them.

A line is written by one call, at the end of the file, and is on the disk before another job takes the place of the one
that ended. Only the line of a job that printed something waits until that is passed on, after what the jobs before it
print: a run that resumes does the job again, and prints it, if the run before was killed until then. A job that was
cancelled has no line, so that it is done again as well. What a killed run leaves of a last line is removed by the run
that resumes. One run at a time holds the lock of a journal, until its last process has ended.

A job is known by the digest of its value, its command line or the name of its call, and the names of its outputs. It
is done if an attempt ended with status 0, and its inputs and outputs, as far as they are known, are what they were
then: same size and time, of an object the same version, of a directory those of all files in it and below. What cannot
be compared, such as the output of a command or an object that may not be looked at, is never what it was: such a job is
done again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from tarkit.errors import TarkitError, Usage, spell, system_hint
from tarkit.jobs.job import JobOutcome, ValueJob
from tarkit.redaction import hide_secrets
from tarkit.stores.connect import head_object, list_objects
from tarkit.stores.schemes import public_name, refuse_url, scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import Location, is_view

FileStates = dict[str, "str | None"]
"""Files and objects by name, each with what tells that it has changed; None for one that does not exist."""
UNKNOWN = "unknown"
"""The state of what cannot be compared."""

DIGEST = 16  # bytes
LISTED = 100_000  # names in a directory that a word of another program names, which are compared
MANY = 32  # states of one list of names that are written one by one; of more a digest is written
PATIENCE = 5.0  # seconds: the processes of a run that was killed end soon
AGAIN = 0.05  # seconds between two attempts to lock


def fingerprint(name: str, options: StoreOptions | None = None) -> str | None:
    """Return the state of a file or an object, which differs after a change, or UNKNOWN; None if it does not exist.

    `options` say how a URL is reached. An unreadable file is no error here: the job reports it.
    """
    try:
        if scheme_of(name):
            info = head_object(name, options)
            mark = info.version or info.modified
            return UNKNOWN if mark is None else f"{info.size}:{mark}"
        status = os.stat(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except (OSError, TarkitError) as error:
        return None if getattr(error, "errno", None) == errno.ENAMETOOLONG else UNKNOWN
    if stat.S_ISREG(status.st_mode):
        return f"{status.st_size}:{status.st_mtime_ns}"
    if stat.S_ISDIR(status.st_mode):
        return _directory_state(name, LISTED)
    return "device" if os.path.realpath(name) == os.devnull else UNKNOWN


def _directory_state(root: str, most: int | None = None) -> str:
    """Return the state of all that is in a directory and below, also behind links.

    It is UNKNOWN if there are more than `most` names, or if something cannot be read or compared.
    """
    digest = blake2b(digest_size=DIGEST)
    count = 0
    try:
        for directory, names, files in os.walk(root, onerror=_raised, followlinks=True):
            names.sort()
            count += len(names) + len(files)
            if most is not None and count > most:
                return UNKNOWN
            digest.update(b"\0".join(map(os.fsencode, (directory, *names, ""))))
            for path in (os.path.join(directory, file) for file in sorted(files)):
                state = fingerprint(path)
                if state == UNKNOWN:
                    return UNKNOWN
                digest.update(b"%b\0%b\0" % (os.fsencode(path), str(state).encode()))
    except OSError:
        return UNKNOWN
    return digest.hexdigest()


def _raised(error: OSError) -> None:
    raise error


def location_states(locations: Iterable[Location], options: StoreOptions | None) -> FileStates:
    """Return the states of inputs; stdin is empty, or the output of the step before. `options` are those of URLs."""
    states: FileStates = {}
    for location in locations:
        if location.kind == "stdin":
            continue
        if is_view(location):
            from tarkit.pipeline.view_rows import with_archives

            states |= location_states(with_archives([location])[1:], options)
        has_state = location.kind in ("path", "url")
        _add(states, location.text, fingerprint(location.text, location.options or options) if has_state else UNKNOWN)
    return _short(states)


def tree_states(root: str, options: StoreOptions | None) -> FileStates:
    """Return the state of all files in a directory and below, or of all objects whose URLs begin so."""
    if not scheme_of(root):
        return {public_name(root): _directory_state(root)}
    states: FileStates = {}
    for info in list_objects(f"{root.rstrip('/')}/", options):
        _add(states, info.url, f"{info.size}:{info.version or info.modified}")
    return {public_name(root): _digest(sorted(states.items())).hex()}


def _add(states: FileStates, name: str, state: str | None) -> None:
    """Add a state; names that differ only in their secrets are shown as one."""
    name = hide_secrets(name, whole=bool(scheme_of(name)), remembered=False)
    states[name] = state if states.get(name, state) == state else f"{states[name]} {state}"


def _short(states: FileStates) -> FileStates:
    """Return states, or a digest of many."""
    if len(states) <= MANY or UNKNOWN in states.values():
        return states
    [first, *_] = states
    return {f"{first} and {len(states) - 1} more": _digest(sorted(states.items())).hex()}


class JobJournal:
    """An open journal.

    Attributes:
        unknown: how many of the jobs that it has as done are done again, since something cannot be compared.

    Args:
        resume: whether an existing journal is continued; a missing one is begun.

    Raises:
        Usage: there is a journal, and no `resume`; or another run writes to it.
    """

    def __init__(self, path: str, resume: bool = False) -> None:
        refuse_url(path, "journal")
        self.path = path
        self._done: dict[bytes, bytes] = {}
        self._begun: set[bytes] = set()  # jobs that write shards, and may have written some
        self._before: dict[bytes, FileStates] = {}
        self.unknown = 0
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags | (0 if resume else os.O_EXCL), 0o666)
        except FileExistsError:
            raise Usage(
                f"{path}: there is a journal of this name",
                f"{spell('resume')} does what is left of it; a new run needs another name",
            ) from None
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise Usage(f"{path}: a journal is a regular file")
        try:
            self._lock()
            self._read()
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= limit:
                    raise Usage(f"{self.path}: another run writes to this journal", "wait for its end") from None
            time.sleep(AGAIN)

    def _read(self) -> None:
        whole = 0
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # a torn line
                whole += len(line)
                try:
                    record = json.loads(line)
                    key = bytes.fromhex(record["job"])
                    if record["status"] is None:
                        self._begun.add(key)
                        continue
                    state = _digest([record["inputs"], record["outputs"]])
                    status = int(record["status"])
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                    raise TarkitError(f"{self.path}:{number}: this is no line of a journal") from None
                if status == 0:
                    self._done[key] = state
                else:
                    self._done.pop(key, None)
        if whole != os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, whole)

    def has_done(self, job: ValueJob) -> bool:
        """Return whether a job is done, and its inputs and outputs are unchanged."""
        digest = self._done.get(identity(job)) if self._done else None
        if digest is None:
            return False
        inputs, outputs = _inputs_of(job), _outputs_of(job)
        if any(UNKNOWN in str(state) for state in (*inputs.values(), *outputs.values())):
            self.unknown += 1
            return False
        return digest == _digest([inputs, outputs])

    def begin(self, job: ValueJob) -> bool:
        """Note the state of the inputs before an attempt; return whether an earlier one may have written shards."""
        key = identity(job)
        self._before[key] = _inputs_of(job)
        if not job.series or key in self._begun:
            return bool(job.series)
        self._begun.add(key)
        self._write({"value": _shown(job.value.text), "command": job.shown(), "status": None, "job": key.hex()})
        return False

    def end(self, job: ValueJob, outcome: JobOutcome) -> None:
        """Write the line of an attempt."""
        before = self._before.pop(identity(job), None)
        record: dict[str, Any] = {
            **attempt_record(job, outcome),
            "job": identity(job).hex(),
            "inputs": before,
            "outputs": _outputs_of(job) if outcome.status == 0 else {},
        }
        if outcome.status:
            record["stderr"] = outcome.tail
        self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        try:
            if os.write(self._fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._fd)
        except OSError as error:
            raise TarkitError(f"{self.path}: {error.strerror}", system_hint(error)) from error

    def close(self) -> None:
        """Close it, and release its lock, which copies of this process share."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        os.close(self._fd)


def attempt_record(job: ValueJob, outcome: JobOutcome) -> dict[str, Any]:
    """Return what is recorded of an attempt that ended, as values of JSON."""
    return {
        "value": _shown(job.value.text),
        "command": job.shown(),
        "start": outcome.start,
        "seconds": round(outcome.seconds, 3),
        "status": outcome.status,
        "samples": outcome.samples,
        "bytes": outcome.bytes,
        "attempt": outcome.attempt,
        "host": outcome.host,
    }


def identity(job: ValueJob) -> bytes:
    """Return the identity of a job."""
    return _digest([job.value.text, job.steps, job.name, job.outputs])


def _inputs_of(job: ValueJob) -> FileStates:
    try:
        return job.reads()
    except (OSError, TarkitError, ValueError) as error:  # the job fails, or says more
        return {_shown(str(error)): UNKNOWN}


def _outputs_of(job: ValueJob) -> FileStates:
    """Return the states of the outputs of a job, of a series those that are there."""
    try:
        shards = [path for template in job.series for _, path in template.existing(job.storage)]
    except (OSError, TarkitError) as error:
        return {_shown(str(error)): UNKNOWN}
    states: FileStates = {}
    for name in (*job.outputs, *shards):
        _add(states, name, fingerprint(name, job.storage))
    return states


def _shown(name: str) -> str:
    return public_name(name) if scheme_of(name) else hide_secrets(name)


def _digest(value: object) -> bytes:
    return blake2b(json.dumps(value).encode(), digest_size=DIGEST).digest()
