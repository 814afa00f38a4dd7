"""What runs in the worker process of --map: it loads the function, calls it with samples and returns the results.

A sample is a dict of field -> bytes, with its key as `__key__` and as the attribute `key`. The function returns a dict
of this form, an iterable of such dicts, or None for no sample. Names of the form `__x__` are reserved. With `decode`
the values are those of `tarkit.media.coding`, without it bytes or str.

The process and its parent (`function_process`) exchange values through a `Channel`. The first has the settings; each of
the others is a list of pieces of archives with the keys and entries of the samples in them, which is answered by lists
of results in the order of the samples, several at a time. The function gets an empty stdin, and what it prints goes to
a file, from which it is taken after each sample.

The index of the current sample and the time at which it was begun are in memory shared with the parent: if the process
is killed, the parent knows which sample it was.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from marshal import dumps, loads
from mmap import mmap
from struct import Struct
from time import monotonic
from typing import Any

from tarkit import errors
from tarkit.errors import MissingLibrary, TarkitError
from tarkit.proc.calls import FunctionOptions, NewSample, SampleFunction, Sent, each_sample, failure_of, load
from tarkit.proc.loader import tail_of

PLACE = Struct("<qd")  # index of the current sample in its list, and when it was begun, as `monotonic` has it
IDLE, WHOLE = -1, -2  # in place of that index: no sample, all samples
BYTES = 1 << 18  # of results that are sent together
PAUSE = 0.01  # seconds after which the results so far are sent
PRINTED = 1 << 20  # bytes of the output for one sample that are kept
_LENGTH = Struct("<Q")

# new samples; reason and tail of a failure; output; seconds
Result = tuple[list[NewSample] | None, tuple[str, bytes] | None, bytes, float]


class Channel:
    """Values from one descriptor and to another one: a length, and the format of `marshal`, which runs no code.

    `wait` is called where a descriptor does not block, to wait until it can be read or, if it gets True, written.
    """

    def __init__(self, incoming: int, outgoing: int, wait: Callable[[bool], None] = lambda writing: None) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.wait = wait

    def send(self, value: Any) -> None:
        """Send a value. Raises ValueError if it contains bytes of 2 GiB or more, BrokenPipeError when nobody reads."""
        data = dumps(value)
        length = _LENGTH.pack(len(data))
        for piece in (length + data,) if len(data) < BYTES else (length, data):
            view = memoryview(piece)
            while view:
                try:
                    view = view[os.write(self.outgoing, view) :]
                except BlockingIOError:
                    self.wait(True)

    def receive(self) -> Any:
        """Return the next value. Raises EOFError when there is none."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return loads(self._exactly(length))

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            try:
                got = os.readv(self.incoming, [view])
            except BlockingIOError:
                self.wait(False)
                continue
            if not got:
                raise EOFError
            view = view[got:]
        return data


class CapturedOutput:
    """The file behind descriptors 1 and 2, where the output of the function goes."""

    def __init__(self) -> None:
        self.fd = os.dup(2)  # the function may close its own

    def take(self) -> bytes:
        """Return and remove the output so far."""
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
        data = os.pread(self.fd, PRINTED, 0)
        if size > PRINTED:
            data += b"\n... %d bytes more\n" % (size - PRINTED)
        os.ftruncate(self.fd, 0)
        return data


class ChildLoop:
    """Works on lists of samples, one after the other."""

    def __init__(self, channel: Channel, output: CapturedOutput, function: SampleFunction, place: mmap) -> None:
        self.channel = channel
        self.output = output
        self.function = function
        self.place = place
        self.pid = os.getpid()

    def run(self, batches: bool) -> None:
        """Work until the parent closes the channel."""
        work = self._batch if batches else self._each
        while True:
            try:
                pieces = self.channel.receive()
            except EOFError:
                return
            work(each_sample(pieces))

    def _each(self, samples: Iterator[Sent]) -> None:
        results: list[Result] = []
        held, sent, place = 0, monotonic(), self.place
        for index, sample in enumerate(samples):
            begun = monotonic()
            if results and (held > BYTES or begun - sent > PAUSE):
                self._send(results)
                results, held, sent = [], 0, begun
            PLACE.pack_into(place, 0, index, begun)
            try:
                made, failure = self.function.one(sample), None
            except MissingLibrary:
                raise  # all samples would fail
            except BaseException as error:
                made, failure = None, failure_of(error)
            output = self.output.take()
            results.append((made, failure, output, monotonic() - begun))
            held += len(output) + sum(len(each[2]) for each in made or () if each)
        PLACE.pack_into(place, 0, IDLE, 0.0)
        self._send(results)

    def _batch(self, samples: Iterator[Sent]) -> None:
        batch = list(samples)
        begun = monotonic()
        PLACE.pack_into(self.place, 0, WHOLE, begun)
        answer: Any
        try:
            done = self.function.many(batch)
        except MissingLibrary:
            raise
        except BaseException as error:
            reason, tail = failure_of(error)
            answer = {"reason": reason, "tail": tail, "output": self.output.take(), "seconds": monotonic() - begun}
        else:
            output, seconds = self.output.take(), (monotonic() - begun) / len(batch)
            failures = [failure_of(made) if isinstance(made, Exception) else None for made in done]
            answer = [
                (None if failure else made, failure, output if index == 0 else b"", seconds)
                for index, (made, failure) in enumerate(zip(done, failures, strict=True))
            ]
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        self._send(answer)

    def _send(self, results: Any) -> None:
        if os.getpid() != self.pid:
            raise SystemExit  # this is a copy that the function forked
        try:
            self.channel.send(results)
        except ValueError:
            for made, failure, output, seconds in results:
                try:
                    self.channel.send([(made, failure, output, seconds)])
                except ValueError:
                    self.channel.send([(None, ("returned a field of 2 GiB or more", b""), output, seconds)])


def serve(channel: Channel, options: FunctionOptions, place: int) -> None:
    """Load the function, report that, and work on samples until the channel is closed.

    `place` is the descriptor of the memory in which this process says where it is.
    """
    memory = mmap(place, PLACE.size)
    os.close(place)
    output = CapturedOutput()
    try:
        function = load(options)
    except TarkitError as error:
        channel.send((str(error), error.hint, tail_of(error.__cause__) if error.__cause__ else b"", output.take()))
        return
    channel.send((None, None, b"", output.take()))
    try:
        ChildLoop(channel, output, function, memory).run(options.batches)
    except MissingLibrary as error:
        channel.send({"error": str(error), "hint": error.hint})
    except BrokenPipeError:
        pass  # the parent has ended


def _take_over() -> Channel:
    """Return the channel on stdin and stdout; the function gets an empty stdin, and stderr as its stdout."""
    channel = Channel(os.dup(0), os.dup(1))
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    return channel


def main() -> None:
    """Run in a new interpreter: the first value has the settings."""
    channel = _take_over()
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)
    options, place, errors.command_line = channel.receive()
    serve(channel, FunctionOptions(**options), place)


def work_in_copy(options: FunctionOptions, place: int) -> int:
    """Run in a copy of the parent; `place` is as for `serve`."""
    import faulthandler
    import signal

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    sys.unraisablehook = sys.__unraisablehook__
    channel = _take_over()
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", 1, errors="backslashreplace", closefd=False)
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)
    faulthandler.enable(2)
    serve(channel, options, place)
    return 0
