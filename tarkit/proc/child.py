"""The process that calls the user's function: the other side of `function`.

It talks through what were its stdin and stdout, in frames: eight bytes with a length, then a value as `marshal` has it,
which runs no code when it is read. The function finds an empty stdin, and what it prints goes to the file that is our
stderr; after each sample we take from there what was said. The first frame that comes says what to do; then each is a
list of pieces of archives, with the keys and entries of the samples in them, to which we answer with lists of results
in the order of the samples, some at a time.

Which sample is being worked on, and since when, stands in memory that is shared with `function`: should this process be
killed, it is known which sample it was.
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

from tarkit.errors import MissingLibrary, TarkitError
from tarkit.proc import result
from tarkit.proc.calling import KEY, FunctionCaller, FunctionLoader, Rubbish, in_words, kind_of, tail_of
from tarkit.proc.engine import BatchFailed, Failure, Job
from tarkit.proc.result import Maker
from tarkit.samples.sample import TarSample
from tarkit.streams.ranges import HeldRange
from tarkit.tar.reader import Raw

LENGTH = Struct("<Q")
PLACE = Struct("<qd")  # the number of a sample in its list, and when it was begun, as `monotonic` has it
IDLE, WHOLE = -1, -2  # in place of that number: none, all of them
BYTES = 1 << 18  # of results that are sent together
PAUSE = 0.01  # seconds after which those that there are are sent, before a sample is begun
SAID = 1 << 20  # bytes of what one sample says that are kept

Piece = tuple[str, int, bytes, list[tuple[bytes, list[Raw]]]]  # an archive's name, an offset in it, bytes from there
Sent = tuple[str, int, bytes, bytes, list[Raw]]  # the same of one sample, with its key and entries
Made = tuple[bytes, list[Raw], bytes] | None  # key, entries, bytes; None: the sample as it came
Result = tuple[list[Made] | None, tuple[str, bytes] | None, bytes, float]  # reason and tail of a failure; said; seconds


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


class PrintedOutput:
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


class ChildLoop:
    """Works on lists of samples, one after the other."""

    def __init__(
        self, channel: Channel, said: PrintedOutput, caller: FunctionCaller, maker: Maker, place: mmap
    ) -> None:
        self.channel = channel
        self.said = said
        self.caller = caller
        self.maker = maker
        self.place = place
        self.pid = os.getpid()

    def run(self, batches: bool) -> None:
        """Work until nothing more comes."""
        while True:
            try:
                pieces = self.channel.receive()
            except EOFError:
                return
            if batches:
                self._batch([_job(*each) for each in _samples(pieces)])
            else:
                self._each(_samples(pieces))

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
                made, failure = self._one(*sample), None
            except MissingLibrary:
                raise  # no other sample would fare better
            except BaseException as error:
                made, failure = None, _failure(error)
            said = self.said.take()
            results.append((made, failure, said, monotonic() - begun))
            held += len(said) + sum(len(each[2]) for each in made or () if each)
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        self._send(results)

    def _batch(self, jobs: list[Job]) -> None:
        begun = monotonic()
        PLACE.pack_into(self.place, 0, WHOLE, begun)
        samples: list[Any] = [_attempt(_sample, job) for job in jobs]
        good = [sample for sample in samples if not isinstance(sample, BatchFailed)]
        answer: Any
        try:
            done = iter(self.caller.many(good) if good else [])
        except MissingLibrary:
            raise
        except BaseException as error:
            reason, tail = _failure(error)
            answer = {"reason": reason, "tail": tail, "said": self.said.take(), "seconds": monotonic() - begun}
        else:
            answer = []
            for job, sample in zip(jobs, samples, strict=True):
                returned: Any = sample if isinstance(sample, BatchFailed) else next(done)
                made = returned if isinstance(returned, Exception) else _attempt(self._make, job, returned)
                bad = isinstance(made, Exception)
                answer.append((None if bad else made, _failure(made) if bad else None, b"", 0.0))
            seconds = (monotonic() - begun) / len(jobs)
            answer = [(*each[:2], b"" if number else self.said.take(), seconds) for number, each in enumerate(answer)]
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        self._send(answer)

    def _make(self, job: Job, returned: list[tuple[str, list[tuple[str, bytes | None]]]]) -> list[Made]:
        """The entries of what the function made of a sample; raises Failed."""
        return [self._made(job, key, fields, number == 0) for number, (key, fields) in enumerate(returned)]

    def _one(self, name: str, start: int, data: bytes, key: bytes, entries: list[Raw]) -> list[Made]:
        """What the function makes of one sample; raises Failed, Rubbish, and whatever the function does."""
        fields = result.taken(key, entries, data, start)
        if fields is None or not entries or KEY in dict(fields):
            job = _job(name, start, data, key, entries)
            return self._make(job, self.caller.one(*_sample(job)))
        text = key.decode("utf-8", "surrogateescape")
        returned = self.caller.one(text, fields)
        if len(returned) == 1 and returned[0][0] == text:
            try:
                return [result.given(key, entries, data, start, fields, returned[0][1], self.maker.mtime or 0)]
            except ValueError:
                pass  # a name that no entry can have: `Maker` says so
        return self._make(_job(name, start, data, key, entries), returned)

    def _made(self, job: Job, key: str, fields: list[tuple[str, bytes | None]], first: bool) -> Made:
        inputs = job.inputs()
        raw = _raw(key)
        if first and raw == job.key and len(fields) == len(inputs) and all(data is None for _, data in fields):
            return None
        known = {each.field: each for each in inputs}
        contents = [(name := _raw(field), known[name].read() if data is None else data) for field, data in fields]
        sample = self.maker(job, raw, contents, first=first)
        if sample is job.sample:
            return None
        return raw, list(map(tuple, sample.entries)), sample.source.read(0, sample.stop)  # type: ignore[arg-type]

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


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _samples(pieces: list[Piece]) -> Iterator[Sent]:
    """The samples in what was sent, one by one."""
    for name, start, data, samples in pieces:
        for key, entries in samples:
            yield name, start, data, key, entries


def _job(name: str, start: int, data: bytes, key: bytes, entries: list[Raw]) -> Job:
    return Job(0, TarSample(key, HeldRange(name, start, data), entries, start, start + len(data)))


def _sample(job: Job) -> tuple[str, list[tuple[str, bytes]]]:
    """The key and the fields of a sample; raises Failed for one that no dict can hold."""
    fields = [(each.field.decode("utf-8", "surrogateescape"), each.read()) for each in job.inputs()]
    names = {field for field, _ in fields}
    if len(names) < len(fields):
        raise BatchFailed(Failure("has two fields of one name, which no dict can hold"))
    if KEY in names:
        raise BatchFailed(Failure(f"has a field with the name {KEY}, which --map has for the key"))
    return job.key.decode("utf-8", "surrogateescape"), fields


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives, or the Failed that it raises."""
    try:
        return function(*arguments)
    except BatchFailed as error:
        return error


def _failure(error: BaseException) -> tuple[str, bytes]:
    """The reason and the tail of a failure."""
    if isinstance(error, BatchFailed):
        return error.failure.reason, b""
    if isinstance(error, Rubbish):
        return str(error), b""
    return f"raised {kind_of(error)}", tail_of(error)


def _load(settings: dict[str, Any]) -> FunctionCaller:
    coder = None
    if settings["decode"]:
        import json  # noqa: F401 - before the user's folder is where modules are looked for

        from tarkit.media.coding import Coder

        coder = Coder(settings["pickles"])
    load = FunctionLoader()
    function = load(settings["function"])
    if settings["init"] is not None:
        init = load(settings["init"])
        try:
            init()
        except BaseException as error:
            raise TarkitError(f"{settings['init']} raised {in_words(error)}") from error
    return FunctionCaller(function, coder)


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
    said = PrintedOutput()
    try:
        caller = _load(settings)
    except TarkitError as error:
        channel.send((str(error), error.hint, tail_of(error.__cause__) if error.__cause__ else b"", said.take()))
        return
    channel.send((None, None, b"", said.take()))
    try:
        ChildLoop(channel, said, caller, Maker(settings["mtime"]), place).run(settings["batches"])
    except MissingLibrary as error:
        channel.send({"error": str(error), "hint": error.hint})
    except BrokenPipeError:
        pass  # whoever asked is gone
