"""The process that calls the user's function: the other side of `mapper`.

It talks through what were its stdin and stdout, in frames: eight bytes with a length, then a value as `marshal` has it,
which runs no code when it is read. The function finds an empty stdin, and what it prints goes to the file that is our
stderr; after each sample we take from there what was said. The first frame that comes says what to do; then each is a
list of samples, to which we answer with lists of results in the same order, some at a time.

Which sample is being worked on, and since when, stands in memory that is shared with `mapper`: should this process be
killed, it is known which sample it was.
"""

from __future__ import annotations

import os
import sys
from marshal import dumps, loads
from mmap import mmap
from struct import Struct
from time import monotonic
from typing import Any

from tarkit.errors import TarkitError
from tarkit.work.calling import Caller, Loader, Rubbish, in_words, kind_of, tail_of

LENGTH = Struct("<Q")
PLACE = Struct("<qd")  # the number of a sample in its list, and when it was begun, as `monotonic` has it
IDLE, WHOLE = -1, -2  # in place of that number: none, all of them
BYTES = 1 << 18  # of results that are sent together
PAUSE = 0.001  # seconds after which those that there are are sent, before a sample is begun
SAID = 1 << 20  # bytes of what one sample says that are kept

Sample = tuple[str, list[tuple[str, bytes]]]
Result = tuple[Any, tuple[str, bytes] | None, bytes, float]  # samples; reason and tail of a failure; said; seconds


class Channel:
    """Frames from one descriptor and to another."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming = incoming
        self.outgoing = outgoing

    def send(self, value: Any) -> None:
        """Send a value; raises ValueError for one with 2 GiB in one piece."""
        data = dumps(value)
        view = memoryview(LENGTH.pack(len(data)) + data if len(data) < BYTES else LENGTH.pack(len(data)))
        for piece in (view, memoryview(data)[len(data) if len(data) < BYTES else 0 :]):
            while piece:
                piece = piece[os.write(self.outgoing, piece) :]

    def receive(self) -> Any:
        """The next value; raises EOFError when there is none."""
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return loads(self._exactly(length))

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            got = os.readv(self.incoming, [view])
            if not got:
                raise EOFError
            view = view[got:]
        return data


class Said:
    """The file that what the function prints goes to: descriptors 1 and 2."""

    def __init__(self) -> None:
        self.fd = os.dup(2)  # the function may close its own

    def take(self) -> bytes:
        """What was said since the last time."""
        out, err = sys.stdout, sys.stderr
        try:
            if out is not None:
                out.flush()
            if err is not None:
                err.flush()
        except (OSError, ValueError):
            pass  # the function closed it
        size = os.lseek(self.fd, 0, os.SEEK_END)
        if not size:
            return b""
        data = os.pread(self.fd, SAID, 0)
        if size > SAID:
            data += b"\n... %d bytes more\n" % (size - SAID)
        os.ftruncate(self.fd, 0)
        return data


class Child:
    """Works on lists of samples, one after the other."""

    def __init__(self, channel: Channel, said: Said, caller: Caller, place: mmap) -> None:
        self.channel = channel
        self.said = said
        self.caller = caller
        self.place = place
        self.pid = os.getpid()

    def run(self, batches: bool) -> None:
        """Work until nothing more comes."""
        while True:
            try:
                samples = self.channel.receive()
            except EOFError:
                return
            if batches:
                self._batch(samples)
            else:
                self._each(samples)

    def _each(self, samples: list[Sample]) -> None:
        results: list[Result] = []
        held, sent, one, place = 0, monotonic(), self.caller.one, self.place
        for index, (key, fields) in enumerate(samples):
            begun = monotonic()
            if results and (held > BYTES or begun - sent > PAUSE):
                self._send(results)
                results, held, sent = [], 0, begun
            PLACE.pack_into(place, 0, index, begun)
            try:
                made, failure = one(key, fields), None
            except BaseException as error:
                made, failure = None, _failure(error)
            said = self.said.take()
            results.append((made, failure, said, monotonic() - begun))
            held += len(said) + sum(len(data or b"") for _, each in made or () for _, data in each)
        PLACE.pack_into(place, 0, IDLE, 0.0)
        self._send(results)

    def _batch(self, samples: list[Sample]) -> None:
        begun = monotonic()
        PLACE.pack_into(self.place, 0, WHOLE, begun)
        answer: Any
        try:
            done = self.caller.many(samples)
        except BaseException as error:
            reason, tail = _failure(error)
            answer = {"reason": reason, "tail": tail, "said": self.said.take(), "seconds": monotonic() - begun}
        else:
            said, seconds = self.said.take(), (monotonic() - begun) / len(samples)
            bad = [_failure(made) if isinstance(made, Rubbish) else None for made in done]
            pairs = zip(done, bad, strict=True)
            answer = [(None if failure else made, failure, b"", seconds) for made, failure in pairs]
            answer[0] = (*answer[0][:2], said, seconds)
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        self._send(answer)

    def _send(self, results: Any) -> None:
        if os.getpid() != self.pid:
            raise SystemExit  # the function forked, and this is the copy
        try:
            self.channel.send(results)
        except ValueError:
            for made, failure, said, seconds in results:
                try:
                    self.channel.send([(made, failure, said, seconds)])
                except ValueError:
                    self.channel.send([(None, ("handed back a field of 2 GiB or more", b""), said, seconds)])


def _failure(error: BaseException) -> tuple[str, bytes]:
    """The reason and the tail of a failure."""
    if isinstance(error, Rubbish):
        return str(error), b""
    return f"raised {kind_of(error)}", tail_of(error)


def _load(settings: dict[str, Any]) -> Caller:
    coder = None
    if settings["decode"]:
        import json  # noqa: F401 - before the user's folder is where modules are looked for

        from tarkit.dataset.coding import Coder

        coder = Coder(settings["pickles"])
    load = Loader()
    function = load(settings["function"])
    if settings["init"] is not None:
        init = load(settings["init"])
        try:
            init()
        except BaseException as error:
            raise TarkitError(f"{settings['init']} raised {in_words(error)}") from error
    return Caller(function, coder)


def main() -> None:
    """What the process does."""
    channel = Channel(os.dup(0), os.dup(1))
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)
    settings = channel.receive()
    place = mmap(settings["place"], PLACE.size)
    os.close(settings["place"])
    said = Said()
    try:
        caller = _load(settings)
    except TarkitError as error:
        channel.send((str(error), error.hint, tail_of(error.__cause__) if error.__cause__ else b"", said.take()))
        return
    channel.send((None, None, b"", said.take()))
    try:
        Child(channel, said, caller, place).run(settings["batches"])
    except BrokenPipeError:
        pass  # whoever asked is gone
