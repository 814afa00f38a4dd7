"""What runs in the worker process of --map: it loads the function, calls it with samples and returns the results.

A sample is a dict of field -> bytes, with its key as `__key__` and as the attribute `key`. The function returns a dict
of this form, an iterable of such dicts, or None for no sample. Names of the form `__x__` are reserved. With `decode`
the values are those of `tarkit.media.coding`, without it bytes or str.

The process and its parent (`function.FunctionProcess`) exchange values through a `Channel`. A request is a list of
pieces of archives, with the keys and entries of the samples in them; replies have results in the order of the samples,
several at a time. Before the first request the settings come, and the reply says that the function is loaded. The
function gets an empty stdin, and what it prints goes to a file, from which it is taken after each sample.

The index of the current sample and the time at which it was begun are in memory shared with the parent: if the process
is killed, the parent knows which sample it was.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from marshal import dumps, loads
from mmap import mmap
from struct import Struct
from time import monotonic
from typing import Any

from tarkit import errors
from tarkit.errors import MissingLibrary, TarkitError
from tarkit.proc.calls import Made, SampleFunction, Sent, each_sample, failure_of

PLACE = Struct("<qdqd")
"""The index of the current sample in its list, and when it was begun, as `monotonic` has it; both twice, since they may
be read while they are written."""
IDLE, WHOLE = -1, -2  # in place of that index: no sample, all samples
BYTES = 1 << 18  # of results that are sent together
PAUSE = 0.01  # seconds after which the results so far are sent
PRINTED = 1 << 20  # bytes of the output for one sample that are kept
_LENGTH = Struct("<Q")

Result = tuple[Made | None, tuple[str, bytes] | None, bytes, float]
"""New samples; reason and tail of a failure; output; seconds."""
LOADED, RESULTS, REFUSED, ENDS = range(4)
"""Kinds of replies, pairs of a kind and a value: the function is loaded (output); results; all samples of the request
have failed together (a result); an error ends the run (message, hint)."""


def write_place(place: mmap, index: int, begun: float = 0.0) -> None:
    """Store the index of the sample that is begun, IDLE or WHOLE."""
    place[:] = PLACE.pack(index, begun, index, begun)  # `pack_into` would fill it with zeros first


def read_place(place: mmap) -> tuple[int, float]:
    """Return what `write_place` has stored; while it is being written, the sample begins now."""
    index, begun, *again = PLACE.unpack_from(place)
    return index, begun if again == [index, begun] else monotonic()


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
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None:
                    stream.flush()
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
    """Works on requests, one after the other."""

    def __init__(self, channel: Channel, output: CapturedOutput, function: SampleFunction, place: mmap) -> None:
        self.channel = channel
        self.output = output
        self.function = function
        self.place = place
        self.pid = os.getpid()

    def run(self) -> None:
        """Work until the parent closes the channel."""
        function, place, batches = self.function, self.place, self.function.batches
        while True:
            try:
                samples = each_sample(self.channel.receive())
            except EOFError:
                return
            results: list[Result] = []
            held, sent = 0, monotonic()
            groups: Iterable[list[Sent]] = [list(samples)] if batches else ([sample] for sample in samples)
            for index, group in enumerate(groups):
                begun = monotonic()
                if results and (held > BYTES or begun - sent > PAUSE):
                    self._send(RESULTS, results)
                    results, held, sent = [], 0, begun
                write_place(place, WHOLE if batches else index, begun)
                try:
                    made: list[Made | BaseException] = function(group)  # type: ignore[assignment]
                except MissingLibrary:
                    raise  # all samples would fail
                except BaseException as error:
                    made = [error]
                output, seconds = self.output.take(), (monotonic() - begun) / len(group)
                for new in made:
                    if isinstance(new, BaseException):
                        results.append((None, failure_of(new), output, seconds))
                    else:
                        results.append((new, None, output, seconds))
                        held += sum(len(sample[2]) for sample in new if sample)
                    held += len(output)
                    output = b""
            write_place(place, IDLE)
            if len(made) < len(group):
                self._send(REFUSED, results[0])
            else:
                self._send(RESULTS, results)

    def _send(self, kind: int, value: Any) -> None:
        if os.getpid() != self.pid:
            raise SystemExit  # this is a copy that the function forked
        try:
            self.channel.send((kind, value))
        except ValueError:
            for result in value:
                try:
                    self.channel.send((kind, [result]))
                except ValueError:
                    large = "returned a field of 2 GiB or more", b""
                    self.channel.send((kind, [(None, large, *result[2:])]))


def serve(channel: Channel, call: dict[str, Any], place: int) -> None:
    """Load the function, report that, and work on samples until the channel is closed.

    `call` has the arguments of `SampleFunction`, `place` is the descriptor of the memory in which this process says
    where it is.
    """
    memory = mmap(place, PLACE.size)
    os.close(place)
    output = CapturedOutput()
    try:
        function = SampleFunction(**call)
        channel.send((LOADED, output.take()))
        ChildLoop(channel, output, function, memory).run()
    except TarkitError as error:
        channel.send((ENDS, (str(error), error.hint)))
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
    call, place, errors.command_line = channel.receive()
    serve(channel, call, place)


def work_in_copy(call: dict[str, Any], place: int) -> int:
    """Run in a copy of the parent; arguments are those of `serve`."""
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
    serve(channel, call, place)
    return 0
