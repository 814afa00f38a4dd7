"""The process that calls the user's function, as `function` sees it; `child` is its own side."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from marshal import dumps, loads
from mmap import mmap
from typing import Any

from tarkit.errors import TarkitError, show
from tarkit.proc.calling import split_spec
from tarkit.proc.child import IDLE, LENGTH, PLACE, SAID
from tarkit.proc.duplex import Duplex, Gone, Late
from tarkit.streams.process import PIPE, Program
from tarkit.streams.tempfile import Scratch

PATIENCE = 10.0  # seconds that a process gets to end, with threads and handlers of the user's, when all is done
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START = (
    "import sys; sys.path.insert(0, {root!r}); from tarkit.proc import child; sys.path.remove({root!r}); child.main()"
)


@dataclass(frozen=True)
class Call:
    """What is to be called, and how: MODULE:FUNCTION or FILE.py:FUNCTION, and `init` of that form once a process.

    With `batches` the function takes a list. `timeout` is in seconds, for one call; `mtime` is that of new entries.
    `tell` gets lines for the user. Raises TarkitError for what is of another form.
    """

    function: str
    init: str | None = None
    decode: bool = False
    pickles: bool = False
    batches: bool = False
    timeout: float | None = None
    tmpdir: str | None = None
    mtime: int | None = 0
    tell: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        for spec in (self.function, self.init):
            try:
                if spec is not None:
                    split_spec(spec)
            except ValueError:
                raise TarkitError(
                    f"{show(spec or '')} names no function", "it looks like package.module:function or file.py:function"
                ) from None


class Caller:
    """One process that calls the function, and what it has said."""

    def __init__(self, call: Call, said: Scratch) -> None:
        self.call = call
        self.said = said
        self.loaded = False
        os.ftruncate(said.fd, 0)
        shared = Scratch(call.tmpdir)
        os.ftruncate(shared.fd, PLACE.size)
        self.place = mmap(shared.fd, PLACE.size)
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        # -P: not the folder where we are, before ours are imported; -B: nothing is written beside the user's files.
        # Sets of strings come in the same order in every process, and in every run.
        python = (sys.executable, "-P", "-B", "-X", "faulthandler", "-c", _START.format(root=_ROOT))
        self.program = Program(
            ("env", "PYTHONHASHSEED=0", *python), stdin=PIPE, stdout=PIPE, stderr=said.fd, pass_fds=(shared.fd,)
        )
        self.pipes = Duplex(self.program)
        self._buffer = bytearray()
        settings = {
            "function": call.function,
            "init": call.init,
            "decode": call.decode,
            "pickles": call.pickles,
            "batches": call.batches,
            "mtime": call.mtime,
            "place": shared.fd,
        }
        try:
            self.send(settings)
        except Gone:
            pass  # what it had to say is read later

    def send(self, value: Any) -> None:
        """Send a value; raises Gone."""
        data = dumps(value)
        self.pipes.write(LENGTH.pack(len(data)) + data if len(data) < SAID else LENGTH.pack(len(data)))
        if len(data) >= SAID:
            self.pipes.write(data)

    def receive(self) -> Any:
        """The next value; raises Gone, and Late when a call has taken too long."""
        buffer = self._buffer
        while len(buffer) < LENGTH.size or len(buffer) < LENGTH.size + LENGTH.unpack_from(buffer)[0]:
            try:
                buffer += self.pipes.read(self._limit())
            except Late:
                index, begun = self.where()
                if index != IDLE and self.call.timeout and time.monotonic() >= begun + self.call.timeout:
                    raise
        stop = LENGTH.size + LENGTH.unpack_from(buffer)[0]
        with memoryview(buffer) as view:
            value = loads(view[LENGTH.size : stop])
        del buffer[:stop]
        return value

    def _limit(self) -> float | None:
        if self.call.timeout is None:
            return None
        index, begun = self.where()
        return (time.monotonic() if index == IDLE else begun) + self.call.timeout

    def where(self) -> tuple[int, float]:
        """Which sample it works on, and since when."""
        seen = PLACE.unpack_from(self.place)
        while (again := PLACE.unpack_from(self.place)) != seen:  # it was just writing that
            seen = again
        return int(seen[0]), float(seen[1])

    def heard(self) -> bytes:
        """What it has said and not handed over."""
        return self.said.read(0, SAID)

    def close(self) -> int:
        """Let it end, and see to it that it does; its status."""
        self.pipes.close()
        if self.program.wait(PATIENCE) is None:  # a thread of the user's waits for what does not come
            self.call.tell(
                f"the process that called {self.call.function} did not end, and was ended after {PATIENCE:g} s"
            )
            self.program.end()
        return self.program.wait() or 0
