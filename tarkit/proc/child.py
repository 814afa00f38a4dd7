"""What runs in the worker process of --map: it loads the function, calls it with samples and returns the results.

A sample is a dict of field -> bytes, with its key as `__key__` and as the attribute `key`. The function returns a dict
of this form, an iterable of such dicts, or None for no sample. Names of the form `__x__` are reserved. With `decode`
the values are those of `tarkit.media.coding`, without it bytes or str.

The process and its parent (`function_process`) exchange frames over the pipes that were its stdin and stdout: eight
bytes with a length, then a value in the format of `marshal`, which runs no code when it is read. The first frame has
the settings; each of the others is a list of pieces of archives with the keys and entries of the samples in them, which
is answered by lists of results in the order of the samples, several at a time. The function gets an empty stdin, and
what it prints goes to a file, from which it is taken after each sample.

The index of the current sample and the time at which it was begun are in memory shared with the parent: if the process
is killed, the parent knows which sample it was.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from marshal import dumps, loads
from mmap import mmap
from struct import Struct
from time import monotonic
from types import ModuleType
from typing import Any, NoReturn

from tarkit import errors
from tarkit.errors import MissingLibrary, TarkitError, show, spell
from tarkit.proc import result
from tarkit.proc.engine import TAIL, BatchFailed, Failure, Job
from tarkit.proc.result import SampleBuilder
from tarkit.samples.names import FieldDict
from tarkit.samples.sample import TarSample
from tarkit.streams.ranges import HeldRange
from tarkit.tar.reader import Raw

KEY = "__key__"

Field = tuple[str, bytes]
Returned = tuple[str, list[tuple[str, bytes | None]]]  # a key, and fields; None: the content is that of the input


Wrapped = tuple[Mapping[str, Any], Callable[[str, Any], bytes]]
"""The argument of a function, and what encodes a field and a value that the function returns."""


class InvalidResult(Exception):
    """What the function returned cannot be a sample; the message follows the key: `returned an int`."""


def split_spec(spec: str) -> tuple[str, str]:
    """Split MODULE:FUNCTION or FILE.py:FUNCTION. Raises ValueError for another form."""
    where, _, name = spec.rpartition(":")
    if not where or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(spec)
    return where, name


def is_file(where: str) -> bool:
    """Return whether this is the path of a file rather than the name of a module."""
    return where.endswith(".py") or "/" in where


class FunctionLoader:
    """Finds functions by name. A file is executed once, for all of its functions."""

    def __init__(self) -> None:
        self._files: dict[str, ModuleType] = {}

    def __call__(self, spec: str) -> Callable[..., Any]:
        """Return the function that `MODULE:FUNCTION` or `FILE.py:FUNCTION` names. Raises TarkitError, in one line."""
        where, name = split_spec(spec)
        try:
            found: Any = self._file(where) if is_file(where) else self._module(where)
        except TarkitError:
            raise
        except BaseException as error:
            raise TarkitError(f"{where} cannot be imported: {in_words(error)}") from error
        for part in name.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise TarkitError(f"{where} has no {name}") from None
        if not callable(found):
            raise TarkitError(f"{spec} is {_a(found)}, not a function")
        function: Callable[..., Any] = found
        return function

    def _file(self, path: str) -> ModuleType:
        path = os.path.realpath(path)
        if path not in self._files:
            if not os.path.exists(path):
                raise TarkitError(f"{path}: no such file")
            sys.path.insert(0, os.path.dirname(path))
            name = os.path.splitext(os.path.basename(path))[0]
            if name in sys.modules:  # a library of this name is loaded
                name = f"tarkit_map_{name}"
            spec = spec_from_file_location(name, path)
            if spec is None or spec.loader is None:
                raise TarkitError(f"{path} is not a Python file")
            module = sys.modules[name] = self._files[path] = module_from_spec(spec)
            spec.loader.exec_module(module)
        return self._files[path]

    def _module(self, name: str) -> ModuleType:
        here = os.getcwd()
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and f"{name}.".startswith(f"{error.name}."):
                raise TarkitError(
                    f"no module {error.name} in the current directory or on Python's path",
                    "name a file with its suffix: FILE.py:FUNCTION",
                ) from None
            raise


class FunctionCaller:
    """Calls the function with samples and checks what it returns.

    Args:
        function: takes one sample, or a list of them.
        coder: decodes the fields that the function gets and encodes those that it returns.
        wrap: makes the argument of the function, whose attribute `key` is the key, and what encodes the result in
            place of the coder; without it the argument is a dict of the fields and `__key__`.
        exact: refuse values that their fields would hold with a loss.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        coder: Any = None,
        wrap: Callable[[TarSample], Wrapped] | None = None,
        exact: bool = False,
    ) -> None:
        self.function = function
        self.coder = coder
        self.wrap = wrap
        self.exact = exact

    def one(self, key: str, fields: list[Field], sample: TarSample | None = None) -> list[Returned]:
        """Return the samples that the function makes of one; `sample` is for `wrap`.

        Raises:
            InvalidResult: the function returned what cannot be a sample.
            BaseException: whatever the function raises.
        """
        argument, raw, encode = self._argument(key, fields, sample)
        return _made(self.function(argument), key, raw, encode, self.wrap is not None)

    def many(self, samples: list[tuple[str, list[Field], TarSample]]) -> list[list[Returned] | InvalidResult]:
        """Return the same for each sample of a batch: the function gets a list and returns one of the same length.

        Raises:
            InvalidResult: the function returned something else.
        """
        given = [self._argument(*each) for each in samples]
        returned = self.function([argument for argument, _, _ in given])
        if isinstance(returned, Mapping) or not _iterable(returned):
            raise InvalidResult(f"returned {_a(returned)} for a batch, not a list")
        done: list[list[Returned] | InvalidResult] = []
        for item in returned:
            if len(done) < len(given):
                (key, *_), (_, raw, encode) = samples[len(done)], given[len(done)]
                try:
                    done.append(_made(item, key, raw, encode, self.wrap is not None))
                except InvalidResult as error:
                    done.append(error)
            else:
                raise InvalidResult(f"returned more items than the batch of {len(given)} has")
        if len(done) < len(given):
            raise InvalidResult(f"returned {len(done)} items for a batch of {len(given)}")
        return done

    def _argument(
        self, key: str, fields: list[Field], sample: TarSample | None
    ) -> tuple[Mapping[str, Any], dict[str, bytes], Callable[[str, Any], bytes]]:
        """Return what the function gets, the raw fields, and what encodes the result."""
        raw = dict(fields)
        if self.wrap is not None and sample is not None:
            argument, encode = self.wrap(sample)
            return argument, raw, partial(_exact, encode, raw) if self.exact else encode
        if self.coder is None:
            return FieldDict({KEY: key, **raw}), raw, _plain
        from tarkit.media.coding import Coded

        try:
            coded = Coded(self.coder, raw)
        except MissingLibrary:
            raise
        except TarkitError as error:
            raise InvalidResult(str(error)) from None
        encode = partial(_exact, coded.encode, raw) if self.exact else coded.encode
        return FieldDict({KEY: key, **coded.values}), raw, encode


def _exact(encode: Callable[[str, Any], bytes], raw: dict[str, bytes], field: str, value: Any) -> bytes:
    """Return the bytes of a value for a field; raise TarkitError for a changed one that they hold with a loss."""
    data = encode(field, value)
    if not isinstance(value, (bytes, bytearray, memoryview, str)) and data not in raw.values():
        from tarkit.media.coding import is_lossy

        if is_lossy(field, value):
            what = f"field {show(field)} would be compressed with a loss, and the loader would decode that"
            hint = f"a name such as 'png' or 'npy' keeps all; decode={{{field!r}: function}} of the loader changes it"
            raise TarkitError(what, hint)
    return data


def _made(
    returned: Any, key: str, raw: dict[str, bytes], encode: Callable[[str, Any], bytes], named: bool
) -> list[Returned]:
    """Check what the function returned for one sample, item by item as a generator makes them.

    With `named`, the attribute `key` of a result is its key unless it has an item `__key__`.
    """
    if returned is None:
        return []
    if isinstance(returned, Mapping):
        return [_one(returned, key, raw, encode, named)]
    if not _iterable(returned):
        raise InvalidResult(f"returned {_a(returned)}, not a dict, several dicts or None")
    made: dict[str, Returned] = {}
    for item in returned:
        if not isinstance(item, Mapping):
            raise InvalidResult(f"returned {_a(item)} among several, not a dict")
        one = _one(item, key, raw, encode, named)
        if made.setdefault(one[0], one) is not one:
            raise InvalidResult(f"returned two samples with the key {show(one[0])}: set another {KEY} for each")
    return list(made.values())


def _one(
    item: Mapping[Any, Any], key: str, raw: dict[str, bytes], encode: Callable[[str, Any], bytes], named: bool
) -> Returned:
    fields: list[tuple[str, bytes | None]] = []
    own = getattr(item, "key", None) if named else None
    if isinstance(own, str):
        key = own
    for field, value in item.items():
        if field == KEY:
            if type(value) is not str:
                raise InvalidResult(f"returned {_a(value)} as {KEY}, not a str")
            key = value
            continue
        known = raw.get(field)
        if value is known and known is not None:
            fields.append((field, None))
            continue
        if known is None:
            _check_field(field)
        try:
            data = encode(field, value)
        except MissingLibrary:
            raise
        except TarkitError as error:
            raise InvalidResult(f"{error} ({error.hint})" if error.hint else str(error)) from None
        fields.append((field, None if data is known else data))
    if not fields:
        raise InvalidResult("returned a sample without fields; return None for no sample")
    return key, fields


def _check_field(field: Any) -> None:
    if not isinstance(field, str):
        raise InvalidResult(f"returned a field whose name is {_a(field)}, not a str")
    if not field or "/" in field or "\0" in field:
        raise InvalidResult(f"returned a field with the invalid name {show(field)}")
    if field.startswith("__") and field.endswith("__"):
        raise InvalidResult(f"returned a field named {show(field)}; the only such name is {KEY}")


def _plain(field: str, value: Any) -> bytes:
    """Return the bytes of a value that is not to be encoded."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidResult(f"field {show(field)}: {error}") from None
    what = f"field {show(field)} is {_a(value)}, not bytes or str"
    raise InvalidResult(
        what if value is None else f"{what}; {spell('decode')} encodes other values by the name of the field"
    )


def _iterable(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _a(value: object) -> str:
    """Return the type of a value with its article, for a message."""
    name = "dict" if isinstance(value, FieldDict) else type(value).__name__
    return "None" if value is None else f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def in_words(error: BaseException) -> str:
    """Return what the user's code raised, and where, on one line."""
    text = " ".join(str(error).split())[:500]
    if isinstance(error, SyntaxError) and error.filename:
        return f"SyntaxError in {os.path.basename(error.filename)}, line {error.lineno}: {error.msg}"
    return f"{kind_of(error)}{': ' if text else ''}{text}"


def kind_of(error: BaseException) -> str:
    """Return the type of what the user's code raised, and where."""
    places: list[tuple[str, int]] = []
    trace = error.__traceback__
    while trace is not None:
        if not _is_ours(trace.tb_frame.f_code.co_filename):
            places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    own = [line for name, line in places if name == places[0][0]]  # the last frame in the user's own file
    return (
        f"{type(error).__name__} in {os.path.basename(places[0][0])}, line {own[-1]}" if own else type(error).__name__
    )


def tail_of(error: BaseException) -> bytes:
    """Return the last lines of the traceback of the user's code, without frames of tarkit."""
    import traceback

    own = error.__traceback__
    while own is not None and _is_ours(own.tb_frame.f_code.co_filename):
        own = own.tb_next
    trace = traceback.TracebackException(type(error), error, own)
    while trace.stack and _is_ours(trace.stack[-1].filename):  # what the user's code called
        trace.stack.pop()
    text = "".join(trace.format())
    lines = [line for line in text.splitlines(keepends=True) if line.strip(" ~^\n")]
    data = b""
    for line in reversed(lines):
        raw = line.encode("utf-8", "backslashreplace")
        if len(data) + len(raw) > TAIL:
            return data or raw[-TAIL:]
        data = raw + data
    return data


def _is_ours(name: str) -> bool:
    return name.startswith((_OURS, "<frozen importlib")) or name == importlib.__file__


_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep


# ---- The loop of the process: frames of samples in, frames of results out

LENGTH = Struct("<Q")
PLACE = Struct("<qd")  # index of the current sample in its list, and when it was begun, as `monotonic` has it
IDLE, WHOLE = -1, -2  # in place of that index: no sample, all samples
BYTES = 1 << 18  # of results that are sent together
PAUSE = 0.01  # seconds after which the results so far are sent
PRINTED = 1 << 20  # bytes of the output for one sample that are kept

Piece = tuple[str, int, bytes, list[tuple[bytes, list[Raw]]]]  # name of an archive, offset, bytes from there, samples
Sent = tuple[str, int, bytes, bytes, list[Raw]]  # the same with the key and the entries of one sample
NewSample = tuple[bytes, list[Raw], bytes] | None  # key, entries, bytes; None: the input sample
# new samples; reason and tail of a failure; output; seconds
Result = tuple[list[NewSample] | None, tuple[str, bytes] | None, bytes, float]


class Channel:
    """Frames from one descriptor and to another one."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming = incoming
        self.outgoing = outgoing

    def send(self, value: Any) -> None:
        """Send a value. Raises ValueError if it contains bytes of 2 GiB or more."""
        data = dumps(value)
        view = memoryview(LENGTH.pack(len(data)) + data if len(data) < BYTES else LENGTH.pack(len(data)))
        for piece in (view, memoryview(data)[len(data) if len(data) < BYTES else 0 :]):
            while piece:
                piece = piece[os.write(self.outgoing, piece) :]

    def receive(self) -> Any:
        """Return the next value. Raises EOFError when there is none."""
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


class SampleFunction:
    """Makes new samples of samples with the function; the common part of worker processes and of `DirectRunner`."""

    def __init__(self, caller: FunctionCaller, builder: SampleBuilder) -> None:
        self.caller = caller
        self.builder = builder

    def one(self, name: str, start: int, data: bytes, key: bytes, entries: list[Raw]) -> list[NewSample]:
        """Return what the function makes of one sample.

        Raises:
            BatchFailed: the sample has no dict of fields, or the result no entries.
            InvalidResult: the function returned what cannot be a sample.
            BaseException: whatever the function raises.
        """
        fields = result.plain_fields(key, entries, data, start)
        if fields is None or not entries or KEY in dict(fields):
            job = _job(name, start, data, key, entries)
            return self._entries(job, self.caller.one(*_arguments(job)))
        text = key.decode("utf-8", "surrogateescape")
        wrapped = None if self.caller.wrap is None else _job(name, start, data, key, entries).sample
        returned = self.caller.one(text, fields, wrapped)
        if len(returned) == 1 and returned[0][0] == text:
            try:
                mtime = self.builder.mtime or 0
                return [result.build_plain(key, entries, data, start, fields, returned[0][1], mtime)]
            except ValueError:
                pass  # a name that no entry can have: the slow path reports it
        return self._entries(_job(name, start, data, key, entries), returned)

    def many(self, samples: list[Sent]) -> list[list[NewSample] | Exception]:
        """Return the same for each sample of a batch; the exception is the failure of that sample alone.

        Raises what the function raises for the whole batch.
        """
        jobs = [_job(*each) for each in samples]
        arguments: list[Any] = [_attempt(_arguments, job) for job in jobs]
        good = [each for each in arguments if not isinstance(each, BatchFailed)]
        returned = iter(self.caller.many(good) if good else [])
        done: list[list[NewSample] | Exception] = []
        for job, argument in zip(jobs, arguments, strict=True):
            made: Any = argument if isinstance(argument, BatchFailed) else next(returned)
            done.append(made if isinstance(made, Exception) else _attempt(self._entries, job, made))
        return done

    def _entries(self, job: Job, returned: list[Returned]) -> list[NewSample]:
        """Return the entries of what the function made of a sample. Raises BatchFailed."""
        return [self._new(job, key, fields, number == 0) for number, (key, fields) in enumerate(returned)]

    def _new(self, job: Job, key: str, fields: list[tuple[str, bytes | None]], first: bool) -> NewSample:
        inputs = job.inputs()
        raw = _raw(key)
        if first and raw == job.key and len(fields) == len(inputs) and all(data is None for _, data in fields):
            return None
        known = {each.field: each for each in inputs}
        contents = [(name := _raw(field), known[name].read() if data is None else data) for field, data in fields]
        sample = self.builder(job, raw, contents, first=first)
        if sample is job.sample:
            return None
        return raw, list(map(tuple, sample.entries)), sample.source.read(0, sample.stop)  # type: ignore[arg-type]


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
        while True:
            try:
                pieces = self.channel.receive()
            except EOFError:
                return
            if batches:
                self._batch(list(_samples(pieces)))
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
                made, failure = self.function.one(*sample), None
            except MissingLibrary:
                raise  # all samples would fail
            except BaseException as error:
                made, failure = None, failure_of(error)
            output = self.output.take()
            results.append((made, failure, output, monotonic() - begun))
            held += len(output) + sum(len(each[2]) for each in made or () if each)
        PLACE.pack_into(self.place, 0, IDLE, 0.0)
        self._send(results)

    def _batch(self, samples: list[Sent]) -> None:
        begun = monotonic()
        PLACE.pack_into(self.place, 0, WHOLE, begun)
        answer: Any
        try:
            done = self.function.many(samples)
        except MissingLibrary:
            raise
        except BaseException as error:
            reason, tail = failure_of(error)
            answer = {"reason": reason, "tail": tail, "output": self.output.take(), "seconds": monotonic() - begun}
        else:
            output, seconds = self.output.take(), (monotonic() - begun) / len(samples)
            answer = []
            for made in done:
                if isinstance(made, Exception):
                    answer.append((None, failure_of(made), output, seconds))
                else:
                    answer.append((made, None, output, seconds))
                output = b""
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


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _samples(pieces: list[Piece]) -> Iterator[Sent]:
    """Yield the samples in pieces one by one."""
    for name, start, data, samples in pieces:
        for key, entries in samples:
            yield name, start, data, key, entries


def _job(name: str, start: int, data: bytes, key: bytes, entries: list[Raw]) -> Job:
    low, high = (entries[0][1], entries[-1][4]) if entries else (start, start)
    return Job(0, TarSample(key, HeldRange(name, start, data), entries, low, high))


def _arguments(job: Job) -> tuple[str, list[Field], TarSample]:
    """Return key, fields and sample; raises BatchFailed for one that no dict can hold."""
    fields = [(each.field.decode("utf-8", "surrogateescape"), each.read()) for each in job.inputs()]
    names = {field for field, _ in fields}
    if len(names) < len(fields):
        raise BatchFailed(Failure("has two fields of the same name"))
    if KEY in names:
        raise BatchFailed(Failure(f"has a field named {KEY}, which is reserved for the key"))
    return job.key.decode("utf-8", "surrogateescape"), fields, job.sample


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or the BatchFailed that it raises."""
    try:
        return function(*arguments)
    except BatchFailed as error:
        return error


def failure_of(error: BaseException) -> tuple[str, bytes]:
    """Return the reason and the tail of a failure, for `Failure`."""
    if isinstance(error, BatchFailed):
        return error.failure.reason, b""
    if isinstance(error, InvalidResult):
        return str(error), b""
    return f"raised {kind_of(error)}", tail_of(error)


def load(settings: Mapping[str, Any]) -> SampleFunction:
    """Load the function, and call `init`, as `tarkit.proc.call.FunctionOptions.settings` has them.

    Raises:
        TarkitError: one of them cannot be loaded, or `init` raised an exception, which is the cause.
    """
    coder = None
    if settings["decode"]:
        import json  # noqa: F401 - before the user's directory is searched for modules

        from tarkit.media.coding import Coder

        coder = Coder(settings["pickles"])
    loader = FunctionLoader()
    function, init = (loader(each) if isinstance(each, str) else each for each in settings["functions"])
    if init is not None:
        try:
            init()
        except BaseException as error:
            raise TarkitError(f"{settings['init_name']} raised {in_words(error)}") from error
    caller = FunctionCaller(function, coder, settings["wrap"], settings["exact"])
    return SampleFunction(caller, SampleBuilder(settings["mtime"]))


def serve(channel: Channel, settings: Mapping[str, Any]) -> None:
    """Load the function, report that, and work on samples until the channel is closed."""
    place = mmap(settings["place"], PLACE.size)
    os.close(settings["place"])
    output = CapturedOutput()
    try:
        function = load(settings)
    except TarkitError as error:
        channel.send((str(error), error.hint, tail_of(error.__cause__) if error.__cause__ else b"", output.take()))
        return
    channel.send((None, None, b"", output.take()))
    try:
        ChildLoop(channel, output, function, place).run(settings["batches"])
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
    """Run in a new interpreter: the first frame has the settings."""
    channel = _take_over()
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)
    settings = channel.receive()
    errors.command_line = settings["command_line"]
    serve(channel, settings)


def main_of_fork(settings: Mapping[str, Any], fds: tuple[int, int, int], close: Iterable[Any]) -> NoReturn:
    """Run in a copy of the parent, and end the process.

    Nothing of the parent is cleaned up here: its files, commands and directories stay the parent's.

    Args:
        settings: the settings; functions are callables.
        fds: the descriptors that become stdin, stdout and stderr.
        close: files of the parent that would keep pipes of other workers open.
    """
    import faulthandler
    import gc
    import signal
    import traceback

    from tarkit.streams.command import disown_commands
    from tarkit.streams.sink import unfinished

    status = 1
    try:
        os.setpgid(0, 0)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for fd, file in enumerate(fds):
            os.dup2(file, fd)
        for file in close:
            file.close()
        gc.freeze()  # a collection would copy all pages of the parent
        disown_commands()
        unfinished.clear()
        sys.unraisablehook = sys.__unraisablehook__
        channel = _take_over()
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", 1, errors="backslashreplace", closefd=False)
        sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)
        faulthandler.enable(2)
        serve(channel, settings)
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status)
